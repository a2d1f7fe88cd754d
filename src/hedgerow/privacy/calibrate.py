"""Calibration: from what may be spent to how much noise that takes; the accountants inverted, rounded against us.

And a budget: (epsilon, delta) for everything together, and a door that does not open for more. The one who adds noise
keeps one, and asks it before each release: a request too many is then refused, whoever sent it. It is for Gaussian
noise alone. Choices by the exponential mechanism are paid for in zCDP, samples of rows by privacy loss distributions;
both have all their releases fixed from the start, and a `PlannedBudget`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.privacy.accountants import Accountant, GaussianDP, PrivacyLoss
from hedgerow.privacy.curves import gaussian_delta, smallest, zcdp_delta
from hedgerow.privacy.discrete_gaussian import DISTANCE, ROUNDING_VARIANCE
from hedgerow.privacy.events import Composed, Event, Gaussian, PoissonSampled, Repeated, check_positive, is_number, up

_RESERVE = 1e-9
"""The relative share of epsilon and delta kept back for rounding and for log ratios."""

_DRAWS = 2**30
"""How many samples a budget is made for; their distance (discrete_gaussian.py) is kept back from delta."""

_ROUNDING = 1e-10
"""Costs that were calibrated to use up the budget may exceed it by rounding; `mu_for` has kept ten times this back."""

_PRECISION = 0.01
"""How far below the wanted delta is near enough for noise on samples, relatively: a tenth of that in noise. Each step
of the search composes hundreds of losses."""


def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta)-DP; infinite for an infinite epsilon."""
    return _largest(gaussian_delta, epsilon, delta)


def rho_for(epsilon: float, delta: float) -> float:
    """The largest rho for which rho-zCDP implies (epsilon, delta)-DP; infinite for an infinite epsilon."""
    return _largest(zcdp_delta, epsilon, delta)


def _largest(curve: Callable[[float, float], float], epsilon: float, delta: float) -> float:
    """The largest first argument of a privacy curve that stays below delta at epsilon, after what is kept back."""
    check_positive("epsilon", epsilon, or_inf=True)
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
    check_positive("sensitivity", sensitivity, or_inf=True)
    check_positive("mu_squared", mu_squared, or_inf=True)
    if math.isinf(mu_squared):
        return 0.0
    return _rounded_up(math.sqrt(sensitivity**2 / mu_squared + ROUNDING_VARIANCE))


def sigma_for_rho(sensitivity: float, rho: float) -> float:
    """The scale of discrete noise that costs `rho` by the zCDP accountant; 0 for an infinite budget."""
    check_positive("sensitivity", sensitivity, or_inf=True)
    check_positive("rho", rho, or_inf=True)
    return 0.0 if math.isinf(rho) else _rounded_up(sensitivity / math.sqrt(2.0 * rho))


def share_of_sigma(sigma: float, parties: int) -> float:
    """What each of `parties` adds so that together they have noise of scale `sigma`."""
    if parties < 1:
        raise InvalidParameter(f"parties must be at least 1, got {parties}")
    return sigma if parties == 1 or sigma == 0.0 else _rounded_up(sigma / math.sqrt(parties))


def sampled_event(rate: float, releases: int, noise: float, reserved: float) -> Event:
    """`releases` Gaussian sums over samples, with noise in units of their sensitivity, and one sum of all rows.

    The latter costs a squared mu of `reserved`.
    """
    sums = Repeated(PoissonSampled(rate, Gaussian(1.0, noise)), releases)
    return Composed((sums, Gaussian(math.sqrt(reserved), 1.0))) if reserved else Composed((sums,))


@lru_cache(maxsize=64)
def sampled_noise(rate: float, releases: int, reserved: float, epsilon: float, delta: float) -> float:
    """The least noise, as a multiple of the sensitivity, for `sampled_event` to stay within (epsilon, delta)."""

    def excess(noise: float) -> float:
        """Above 0 if it is not enough; nearly a straight line."""
        accountant = PrivacyLoss()
        accountant.compose(sampled_event(rate, releases, noise, reserved))
        return math.log(max(accountant.delta(epsilon), 1e-30) / (delta * (1.0 - 1e-6)))

    # Of many small losses only their variance counts: about what Gaussian noise on all rows would do, at this rate.
    guess = max(rate * math.sqrt(releases) / mu_for(epsilon, delta), 0.3)
    low, high = guess / 1.02, guess * 1.02
    above, below = excess(low), excess(high)
    while below > 0.0 or above <= 0.0:  # until the answer is between the two
        if not 1e-3 < high < 1e12:
            raise InvalidParameter(f"no amount of noise fits epsilon = {epsilon} at delta = {delta}")
        if below > 0.0:
            low, above, high = high, below, 1.2 * high
            below = excess(high)
        else:
            high, below, low = low, above, low / 1.2
            above = excess(low)
    while below < -_PRECISION:
        # A little beyond where the line says, so that the end that counts comes near.
        share = min((above + 0.5 * _PRECISION) / (above - below), 0.99)
        middle = low + share * (high - low)
        found = excess(middle)
        if found > 0.0:
            low, above = middle, found
        else:
            high, below = middle, found
    return high * (1.0 + 1e-9)  # a little more, so that rounding has room


def _rounded_up(value: float) -> float:
    return value * (1.0 + 2.0**-44)


class Budget:
    """What may be spent, what has been, and the events it went to. An infinite epsilon allows everything."""

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.mu_squared = mu_for(epsilon, delta) ** 2
        self.accountant: Accountant = GaussianDP()
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


class PlannedBudget(Budget):
    """Events that may not cost more together than (epsilon, delta), by any accountant."""

    def __init__(self, epsilon: float, delta: float, accountant: Accountant) -> None:
        super().__init__(epsilon, delta)
        self.accountant = accountant

    @property
    def spent(self) -> float:
        """The epsilon, at the budget's delta, of all that was spent; the whole budget, if it is not above that."""
        within = self.accountant.delta(self.epsilon) <= self.delta  # far quicker than a search for the least epsilon
        return self.epsilon if within else self.accountant.epsilon(self.delta)

    def spend(self, event: Event) -> None:
        """Take note of an event. That all of them are within the budget was planned, and `check` says so at the end."""
        self.accountant.compose(event)
