"""Calibration: from what may be spent to how much noise that takes; the accountants inverted, rounded against us."""

from __future__ import annotations

import math

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.curves import gaussian_delta, smallest, zcdp_delta
from hedgerow.privacy.discrete_gaussian import DISTANCE
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
    if not 1e-15 <= delta < 1.0:
        raise InvalidParameter(f"delta must be at least 1e-15 and below 1, got {delta!r}")


def _check_positive(name: str, value: float) -> None:
    if not value > 0.0:
        raise InvalidParameter(f"{name} must be above 0, got {value!r}")
