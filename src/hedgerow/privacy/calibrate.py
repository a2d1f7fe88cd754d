"""Calibration: from what may be spent to how much noise that takes; the accountants inverted, rounded against us."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from numbers import Real
from typing import Any

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.accountants import Accountant
from hedgerow.privacy.curves import gaussian_delta, smallest, zcdp_delta
from hedgerow.privacy.discrete_gaussian import DISTANCE
from hedgerow.privacy.events import Adjacency, Event
from hedgerow.privacy.smoothing import ROUNDING_VARIANCE

_RESERVE = 1e-9
"""The relative share of epsilon and delta kept back for rounding and for log ratios."""

_DRAWS = 2**30
"""How many samples a budget is made for; their distance (discrete_gaussian.py) is kept back from delta."""


def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta)-DP; infinite for an infinite epsilon."""
    _check(epsilon, delta)
    if math.isinf(epsilon):
        return math.inf
    kept_epsilon, kept_delta = _kept(epsilon, delta)
    noise = smallest(lambda sigma: sigma > 0.0 and gaussian_delta(1.0 / sigma, kept_epsilon) <= kept_delta)
    return (1.0 - _RESERVE) / noise


def rho_for(epsilon: float, delta: float) -> float:
    """The largest rho for which rho-zCDP implies (epsilon, delta)-DP; infinite for an infinite epsilon."""
    _check(epsilon, delta)
    if math.isinf(epsilon):
        return math.inf
    kept_epsilon, kept_delta = _kept(epsilon, delta)
    inverse = smallest(lambda x: x > 0.0 and zcdp_delta(1.0 / x, kept_epsilon) <= kept_delta)
    return (1.0 - _RESERVE) / inverse


def sigma_for_mu(sensitivity: float, mu_squared: float) -> float:
    """The scale of discrete noise that costs `mu_squared` by the Gaussian DP accountant; 0 for an infinite budget."""
    _check_positive("sensitivity", sensitivity)
    _check_positive("mu_squared", mu_squared)
    if math.isinf(mu_squared):
        return 0.0
    return _rounded_up(math.sqrt(sensitivity**2 / mu_squared + ROUNDING_VARIANCE))


def sigma_for_rho(sensitivity: float, rho: float) -> float:
    """The scale of discrete noise that costs `rho` by the zCDP accountant; 0 for an infinite budget."""
    _check_positive("sensitivity", sensitivity)
    _check_positive("rho", rho)
    return 0.0 if math.isinf(rho) else _rounded_up(sensitivity / math.sqrt(2.0 * rho))


def scale_for(sensitivity: float, epsilon: float) -> float:
    """The scale of Laplace noise that costs `epsilon` or a little less; 0 for an infinite epsilon."""
    _check_finite("sensitivity", sensitivity)
    _check_positive("epsilon", epsilon)
    if math.isinf(epsilon):
        return 0.0
    scale = sensitivity / epsilon
    while Fraction(scale) * Fraction(epsilon) < Fraction(sensitivity):
        scale = math.nextafter(scale, math.inf)
    return scale


def epsilon_per_release(epsilon: float, releases: int) -> float:
    """The largest epsilon of which `releases` times as much is not above `epsilon`, exactly."""
    _check_positive("epsilon", epsilon)
    if releases < 1:
        raise InvalidParameter(f"releases must be at least 1, got {releases}")
    if math.isinf(epsilon):
        return math.inf
    each = epsilon / releases
    while releases * Fraction(each) > Fraction(epsilon):
        each = math.nextafter(each, 0.0)
    return each


def noise_for(
    make_accountant: Callable[[Adjacency], Accountant],
    make_event: Callable[[float], Event],
    epsilon: float,
    delta: float,
    *,
    adjacency: Adjacency = "add_remove",
    precision: float = 1e-4,
) -> float:
    """The smallest noise x, within `precision` of itself, for which `make_event(x)` costs at most (epsilon, delta).

    `make_event` says what will run if noise is scaled by x, for instance x as the sigma of every Gaussian in a mixture
    with choices; more noise must not cost more. Events that the accountant refuses because their noise is too small
    count as too dear. What is returned has been accounted for: it is within the budget, whatever the search did.
    """
    _check_finite("epsilon", epsilon)
    _check_finite("precision", precision)
    if not _is_number(delta) or not 0.0 <= delta < 1.0:
        raise InvalidParameter(f"delta must be at least 0 and below 1, got {delta!r}")

    def enough(noise: float) -> bool:
        accountant = make_accountant(adjacency)
        accountant.compose(make_event(noise))
        return accountant.delta(epsilon) <= delta

    largest, smallest_noise = 2.0**60, 2.0**-60
    if not enough(largest):
        raise InvalidParameter(
            f"no amount of noise keeps this within epsilon = {epsilon} at delta = {delta}: other parts cost more"
        )
    high = 1.0
    while not _holds(enough, high):
        high *= 4.0
    low = high / 4.0
    while low > smallest_noise and _holds(enough, low):
        low, high = low / 4.0, low
    while high > low * (1.0 + precision):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _holds(enough, middle) else (middle, high)
    return high


def _holds(enough: Callable[[float], bool], noise: float) -> bool:
    try:
        return enough(noise)
    except InvalidParameter:  # too coarse to be proved private
        return False


def share_of_sigma(sigma: float, parties: int) -> float:
    """What each of `parties` adds so that together they have noise of scale `sigma`."""
    if parties < 1:
        raise InvalidParameter(f"parties must be at least 1, got {parties}")
    return sigma if parties == 1 or sigma == 0.0 else _rounded_up(sigma / math.sqrt(parties))


def _kept(epsilon: float, delta: float) -> tuple[float, float]:
    """What is left for ideal mechanisms."""
    samplers = (1.0 + math.exp(min(epsilon, 600.0))) * _DRAWS * DISTANCE
    if samplers > delta / 2.0:
        raise InvalidParameter(
            f"epsilon = {epsilon} is too large to be proved at delta = {delta}; use a smaller one, or infinity for none"
        )
    return epsilon * (1.0 - _RESERVE), delta * (1.0 - _RESERVE) - samplers


def _rounded_up(value: float) -> float:
    return value * (1.0 + 2.0**-44)


def _check(epsilon: float, delta: float) -> None:
    _check_positive("epsilon", epsilon)
    if not _is_number(delta) or not 1e-15 <= delta < 1.0:
        raise InvalidParameter(f"delta must be at least 1e-15 and below 1, got {delta!r}")


def _check_finite(name: str, value: float) -> None:
    if not _is_number(value) or not 0.0 < value < math.inf:
        raise InvalidParameter(f"{name} must be a finite number above 0, got {value!r}")


def _check_positive(name: str, value: float) -> None:
    if not _is_number(value) or not value > 0.0:
        raise InvalidParameter(f"{name} must be a number above 0, got {value!r}")


def _is_number(value: Any) -> bool:
    """Also one of numpy's; True is none, and a whole number of 400 digits, which cannot become a float, is none."""
    if type(value) is int:
        return abs(value) < 2**1023
    return isinstance(value, Real) and not isinstance(value, bool)
