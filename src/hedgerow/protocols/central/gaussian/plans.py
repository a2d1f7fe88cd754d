"""What a training with a fixed number of releases may cost: the plan is accounted for before a row is read.

`calibrate.Budget` is for Gaussian noise alone. Choices by the exponential mechanism are paid for in zCDP, samples
of rows by privacy loss distributions; both have all their releases fixed from the start.
"""

from __future__ import annotations

import math
from functools import lru_cache

from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.privacy.accountants import Accountant, PrivacyLoss
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import Composed, Event, Gaussian, PoissonSampled, Repeated

_PRECISION = 0.01
"""How far below the wanted delta is near enough, relatively: a tenth of that in noise. Each step of the search composes
hundreds of losses."""

_MORE = 1.0 + 1e-9
"""Planned noise is a little larger than the plan's least, so that rounding has room."""


class PlannedBudget:
    """Events that may not cost more together than (epsilon, delta)."""

    def __init__(self, epsilon: float, delta: float, accountant: Accountant) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.accountant = accountant
        self._spent: float | None = None

    @property
    def spent(self) -> float:
        """The epsilon, at the budget's delta, of all that was spent; the whole budget, if it is not above that."""
        if self._spent is None:
            within = (
                self.accountant.delta(self.epsilon) <= self.delta
            )  # far quicker than a search for the least epsilon
            self._spent = self.epsilon if within else self.accountant.epsilon(self.delta)
        return self._spent

    def spend(self, event: Event) -> None:
        """Take note of an event. That all of them are within the budget was planned, and `check` says so at the end."""
        self.accountant.compose(event)
        self._spent = None

    def check(self) -> None:
        """Raise unless all that was spent is within the budget."""
        if not self.spent <= self.epsilon:
            raise ProtocolError(f"epsilon {self.spent} was spent at delta {self.delta}, more than {self.epsilon}")


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
    return high * _MORE
