"""A budget: (epsilon, delta) for everything together, and a door that does not open for more.

The one who adds noise keeps one, and asks it before each release: a request too many is then refused, whoever sent it.
"""

from __future__ import annotations

import math

from hedgerow.errors import ProtocolError
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import Event
from hedgerow.privacy.wording import up

_ROUNDING = 1e-10
"""Costs that were calibrated to use up the budget may exceed it by rounding; `mu_for` has kept ten times this back."""


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
