"""What a party saw released, and the door that does not open for more."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hedgerow.crypto.dealing import HandStep, take_noise
from hedgerow.crypto.shares import SUM32, SUM64, Array, Shape, Share
from hedgerow.engine.dtypes import Ints
from hedgerow.errors import BudgetExceeded
from hedgerow.privacy.accountants import Accountant
from hedgerow.privacy.events import DiscreteGaussian, Event, NonPrivate
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob


def event_of(sensitivity_squared: int, sigma: float, n_sums: int) -> Event:
    """Of sums with discrete Gaussian noise."""
    if sigma == 0.0:
        return NonPrivate("no noise was asked for")
    return DiscreteGaussian(math.sqrt(sensitivity_squared) * (1.0 + 2.0**-48), sigma, n_sums)


class Noisy(NamedTuple):
    """Shares of noisy sums, and the event that their release is."""

    sums: Share
    event: dict[str, Any]


def signed(words: Array) -> Ints:
    """Released words as numbers."""
    return np.asarray(words.view(np.int32).astype(np.int64))


class Accounts:
    """One party's."""

    def __init__(self, job: PrivateHistogramsJob, accountant: Accountant) -> None:
        self._job, self._accountant = job, accountant

    def noisy(self, sums: Array, step: HandStep, event: Event, dealt: Shape) -> Noisy:
        """Sums with dealt noise, ready to be revealed; both modulo 2**32, sums below 2**30.

        If noise was dealt for more numbers than there are (along the last axis), what is left of it is not used.
        """
        noise = take_noise(step, dealt, SUM64).words.astype(np.uint32)  # a share modulo 2**64 is one modulo 2**32
        self.spend(event)
        return Noisy(Share(sums + noise[..., : sums.shape[-1]], SUM32), event.to_dict())

    def spend(self, event: Event) -> None:
        """Before it is released: BudgetExceeded if that would be more than was allowed."""
        self._accountant.compose(event)
        self._require()

    def privacy(self) -> dict[str, object] | None:
        """What the accountant says that saw every release; None without noise."""
        if not self._job.is_noisy:
            return None
        self._require()
        # the search for epsilon is right to some digits
        epsilon = min(self._accountant.epsilon(self._job.delta), self._job.noise)
        return {"epsilon": epsilon, "delta": self._job.delta, "accountant": self._accountant.description}

    def _require(self) -> None:
        job = self._job
        if job.is_noisy and not self._accountant.delta(job.noise) <= job.delta:
            raise BudgetExceeded(
                f"what was released costs epsilon={self._accountant.epsilon(job.delta):.6g} at delta={job.delta:g}, "
                f"which is above epsilon={job.noise:g}: the run ends here, and no model is kept"
            )
