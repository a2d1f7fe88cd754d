"""Accountants: what all events on the same rows add up to, as epsilon for a given delta or the other way round.

An accountant only counts how often each event happened; every total is computed from the counts. So composing an event
n times is, exactly and by construction, the same as composing it once with `times=n`.

Claims are theorems about the samplers as they are, not about ideal ones. Let a be the total log ratio between what ran
and an ideal mechanism (smoothing.py), and b the total statistical distance of the samples (discrete_gaussian.py). If
the ideal mechanism is (epsilon', delta')-DP, then what ran is (epsilon' + 2a, e^a delta' + (1 + e^epsilon) b)-DP:
P(S) <= e^a P'(S) <= e^a (e^epsilon' Q'(S) + delta') <= e^(epsilon' + 2a) Q(S) + e^a delta', and swapping each side's
samples for real ones costs b once and e^epsilon b once. Both terms are part of every number given here.

Events may be chosen after seeing the outcomes before, noise scales included, as long as the total stays below what was
fixed beforehand: for zCDP by Feldman and Zrnic 2021, for Gaussian DP by Smith and Thakurta 2022.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.curves import gaussian_delta, smallest, zcdp_delta
from hedgerow.privacy.discrete_gaussian import DISTANCE
from hedgerow.privacy.events import Adjacency, Composed, DiscreteGaussian, Event, Gaussian, NonPrivate, Repeated
from hedgerow.privacy.smoothing import ROUNDING_VARIANCE, log_ratio_of_sum, log_ratio_to_rounded_real

NEGLIGIBLE = 2.0**-60
"""The largest log ratio of one event that is accepted; beyond it the noise is too coarse for the theorems to help."""

_UP = 1.0 + 2.0**-45
"""Totals are rounded up by more than the error of a few floating-point operations."""


_LARGEST_EPSILON = 600.0
"""e^600 is still a float; nobody needs more."""


class Accountant(ABC):
    """Counts events; subclasses know what one costs and what a total means."""

    NAME: ClassVar[str]

    def __init__(self, adjacency: Adjacency = "add_remove") -> None:
        self.adjacency: Adjacency = adjacency
        self._counts: Counter[Event] = Counter()

    def compose(self, event: Event, times: int = 1) -> None:
        """Add an event, or refuse all of it: nothing is added when a part of it is not understood."""
        if times < 1:
            raise InvalidParameter(f"times must be at least 1, got {times}")
        self.check(event)
        for leaf, count in event.leaves():
            self._counts[leaf] += count * times

    def check(self, event: Event) -> None:
        """Raise unless all of the event can be accounted for."""
        for leaf, _ in event.leaves():
            self._check(leaf)

    def cost(self, event: Event) -> float:
        """What the event would add to the total; infinite for a release without guarantee."""
        self.check(event)
        return math.fsum(
            math.inf if isinstance(leaf, NonPrivate) else count * self._cost(leaf) for leaf, count in event.leaves()
        )

    def compose_all(self, events: Iterable[Event]) -> None:
        """Add several events, or none of them."""
        self.compose(Composed(tuple(events)))

    @property
    def event(self) -> Event:
        """Everything so far as one event."""
        return Composed(tuple(event if count == 1 else Repeated(event, count) for event, count in self._counts.items()))

    @property
    def is_private(self) -> bool:
        """Whether every release so far had a guarantee."""
        return not any(isinstance(event, NonPrivate) for event in self._counts)

    @property
    def total(self) -> float:
        """The sum of all costs, in the accountant's own unit, rounded up."""
        return math.fsum(count * self._cost(event) for event, count in self._private()) * _UP

    def delta(self, epsilon: float) -> float:
        """The smallest delta that is proved for this epsilon."""
        if not epsilon >= 0.0:
            raise InvalidParameter(f"epsilon must be at least 0, got {epsilon!r}")
        if not self.is_private:
            return 0.0 if math.isinf(epsilon) else 1.0
        if math.isinf(epsilon) or not self._counts:
            return 0.0
        ratio, distance = self._log_ratio(), self._distance()
        # (1 + e^epsilon) b; where e^epsilon overflows, nothing small is claimed.
        unlucky = (1.0 + math.exp(epsilon)) * distance if epsilon < _LARGEST_EPSILON else float(distance > 0.0)
        ideal = self._curve(self.total, epsilon - 2.0 * ratio) if epsilon > 2.0 * ratio else 1.0
        return min(math.exp(ratio) * ideal + unlucky, 1.0)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon that is proved for this delta; infinite if there is none."""
        if not 0.0 <= delta < 1.0:
            raise InvalidParameter(f"delta must be at least 0 and below 1, got {delta!r}")
        if not self.is_private:
            return math.inf
        if not self._counts:
            return 0.0
        return smallest(lambda epsilon: self.delta(epsilon) <= delta, limit=_LARGEST_EPSILON)

    # --- what subclasses know ----------------------------------------------------------------------------------------

    @abstractmethod
    def _cost(self, event: Event) -> float:
        """What one event adds to the total; raises InvalidParameter for one that cannot be accounted for."""

    @staticmethod
    @abstractmethod
    def _curve(total: float, epsilon: float) -> float:
        """The delta of an ideal mechanism of this total cost."""

    @abstractmethod
    def _ratio_of(self, event: DiscreteGaussian) -> float:
        """The log ratio per coordinate between the event and the mechanism whose cost is charged."""

    # --- the rest ----------------------------------------------------------------------------------------------------

    def _check(self, event: Event) -> None:
        if isinstance(event, NonPrivate):
            return
        if not isinstance(event, Gaussian | DiscreteGaussian):
            raise InvalidParameter(f"the {self.NAME} accountant cannot account for {event!r}")
        if event.adjacency != self.adjacency:
            raise InvalidParameter(f"this accountant is for {self.adjacency}, but the event for {event.adjacency}")
        if isinstance(event, DiscreteGaussian) and event.coordinates * self._ratio_of(event) > NEGLIGIBLE:
            raise InvalidParameter(
                f"noise of scale {event.sigma:.3g} in whole-number units is too coarse for a sum over {event.parties} "
                "parties to be proved private; use a finer fixed point, or less epsilon"
            )
        self._cost(event)

    def _private(self) -> Iterable[tuple[Event, int]]:
        return ((event, count) for event, count in self._counts.items() if not isinstance(event, NonPrivate))

    def _log_ratio(self) -> float:
        return _UP * math.fsum(
            count * event.coordinates * self._ratio_of(event)
            for event, count in self._counts.items()
            if isinstance(event, DiscreteGaussian)
        )

    def _distance(self) -> float:
        return _UP * math.fsum(
            count * event.coordinates * event.parties * DISTANCE
            for event, count in self._counts.items()
            if isinstance(event, DiscreteGaussian)
        )


class GaussianDP(Accountant):
    """Gaussian differential privacy: the total is mu squared, and the curve is the exact one of a Gaussian.

    Real noise costs (sensitivity / sigma)^2. Discrete noise of total variance v is a post-processing of real noise of
    variance v - 5.0625, up to a log ratio below 2^-140 (smoothing.py, 4), and is charged as that.
    """

    NAME: ClassVar[str] = "Gaussian DP"

    def _cost(self, event: Event) -> float:
        if isinstance(event, Gaussian):
            return (event.sensitivity / event.sigma) ** 2
        if isinstance(event, DiscreteGaussian):
            real = event.parties * event.sigma**2 - ROUNDING_VARIANCE
            if real <= 0.0:
                raise InvalidParameter(
                    f"the Gaussian DP accountant needs discrete noise of a scale above "
                    f"{math.sqrt(ROUNDING_VARIANCE)}, got {event.sigma:.3g}; the zCDP accountant takes any"
                )
            return event.sensitivity**2 / real
        raise InvalidParameter(f"the {self.NAME} accountant cannot account for {event!r}")

    def _ratio_of(self, event: DiscreteGaussian) -> float:
        return log_ratio_of_sum(event.sigma, event.parties) + log_ratio_to_rounded_real()

    @staticmethod
    def _curve(total: float, epsilon: float) -> float:
        return gaussian_delta(math.sqrt(total), epsilon)


class ZeroConcentratedDP(Accountant):
    """Zero-concentrated differential privacy: the total is rho.

    Real noise costs sensitivity^2 / (2 sigma^2), and discrete noise the same, however coarse (Canonne, Kamath and
    Steinke 2020). The curve is looser than that of Gaussian DP: at delta 1e-5 it wants 6 to 10% more noise.
    """

    NAME: ClassVar[str] = "zCDP"

    def _cost(self, event: Event) -> float:
        if isinstance(event, Gaussian):
            return event.sensitivity**2 / (2.0 * event.sigma**2)
        if isinstance(event, DiscreteGaussian):
            return event.sensitivity**2 / (2.0 * event.parties * event.sigma**2)
        raise InvalidParameter(f"the {self.NAME} accountant cannot account for {event!r}")

    def _ratio_of(self, event: DiscreteGaussian) -> float:
        return log_ratio_of_sum(event.sigma, event.parties)

    @staticmethod
    def _curve(total: float, epsilon: float) -> float:
        return zcdp_delta(total, epsilon)
