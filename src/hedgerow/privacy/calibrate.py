"""Calibration: from what may be spent to how much noise that takes; the accountants inverted, rounded against us.

And a budget: (epsilon, delta) for everything together, and a door that does not open for more. The one who adds noise
keeps one, and asks it before each release: a request too many is then refused, whoever sent it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.curves import gaussian_delta, smallest, zcdp_delta
from hedgerow.privacy.discrete_gaussian import DISTANCE, ROUNDING_VARIANCE
from hedgerow.privacy.events import Event, is_number
from hedgerow.privacy.wording import up

_RESERVE = 1e-9
"""The relative share of epsilon and delta kept back for rounding and for log ratios."""

_DRAWS = 2**30
"""How many samples a budget is made for; their distance (discrete_gaussian.py) is kept back from delta."""

_ROUNDING = 1e-10
"""Costs that were calibrated to use up the budget may exceed it by rounding; `mu_for` has kept ten times this back."""


def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta)-DP; infinite for an infinite epsilon."""
    return _largest(gaussian_delta, epsilon, delta)


def rho_for(epsilon: float, delta: float) -> float:
    """The largest rho for which rho-zCDP implies (epsilon, delta)-DP; infinite for an infinite epsilon."""
    return _largest(zcdp_delta, epsilon, delta)


def _largest(curve: Callable[[float, float], float], epsilon: float, delta: float) -> float:
    """The largest first argument of a privacy curve that stays below delta at epsilon, after what is kept back."""
    _check_positive("epsilon", epsilon)
    if not is_number(delta) or not 1e-15 <= delta < 1.0:
        raise InvalidParameter(f"delta must be at least 1e-15 and below 1, got {delta!r}")
    if math.isinf(epsilon):
        return math.inf
    samplers = (1.0 + math.exp(min(epsilon, 600.0))) * _DRAWS * DISTANCE
    if samplers > delta / 2.0:
        raise InvalidParameter(
            f"epsilon = {epsilon} is too large to be proved at delta = {delta}; use a smaller one, or infinity for none"
        )
    kept_epsilon, kept_delta = epsilon * (1.0 - _RESERVE), delta * (1.0 - _RESERVE) - samplers
    return (1.0 - _RESERVE) / smallest(lambda x: x > 0.0 and curve(1.0 / x, kept_epsilon) <= kept_delta)


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


def _rounded_up(value: float) -> float:
    return value * (1.0 + 2.0**-44)


def _check_positive(name: str, value: float) -> None:
    if not is_number(value) or not value > 0.0:
        raise InvalidParameter(f"{name} must be a number above 0, got {value!r}")


class Budget:
    """What may be spent, what has been, and the events it went to. An infinite epsilon allows everything."""

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.mu_squared = mu_for(epsilon, delta) ** 2
        self.accountant = GaussianDP()
        self._spent = 0.0

    @property
    def spent(self) -> float:
        """The epsilon, at the budget's delta, of all that was spent."""
        return self.accountant.epsilon(self.delta)

    def spend(self, event: Event) -> None:
        """Take note of a release that is about to happen, or refuse it and take no note."""
        after = self._spent + self.accountant.cost(event)
        if not math.isinf(self.epsilon) and not after <= self.mu_squared * (1.0 + _ROUNDING):
            raise ProtocolError(
                f"{event!r} would go beyond epsilon = {self.epsilon} at delta = {self.delta}, "
                f"of which {up(self.spent)} is spent"
            )
        self.accountant.compose(event)
        self._spent = after

    def check(self) -> None:
        """Raise unless all that was spent, added up afresh, is within the budget."""
        if not self.spent <= self.epsilon:
            raise ProtocolError(f"epsilon {self.spent} was spent at delta {self.delta}, more than {self.epsilon}")
