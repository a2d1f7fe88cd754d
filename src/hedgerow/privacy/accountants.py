"""Accountants: what all events on the same rows add up to, as epsilon for a given delta or the other way round.

An accountant only counts how often each event happened; every total is computed from the counts. So composing an event
n times is, exactly and by construction, the same as composing it once with `times=n`, and order does not matter.

Structure. `Composed` and `Repeated` add. `Parallel` costs as much as its dearest branch: fix two tables that differ by
one record. The record's place is drawn without regard to other records, so given all places, one branch j sees a
difference, and every other branch runs the same algorithm on the same records in both worlds; whatever it says is
processing of what is known already. The whole is therefore no worse than branch j on its own, for some j, and a random
place is a mixture over j with the same weights in both worlds, which is no worse than the worst j. Every unit here (an
epsilon, rho, mu squared) bounds ALL tables and means less privacy when larger, so the largest one bounds every j. Under
"replace_one" the place must not depend on what the record holds, or two branches would change.

Claims are theorems about the samplers as they are, not about ideal ones. Let a be the total log ratio between what ran
and an ideal mechanism, and b the total statistical distance of the samples (both: discrete_gaussian.py; b also of
gumbel.py, whose noise is clipped). If the ideal mechanism is (epsilon', delta')-DP, then what ran is (epsilon' + 2a,
e^a delta' + (1 + e^epsilon) b)-DP: P(S) <= e^a P'(S) <= e^a (e^epsilon' Q'(S) + delta') <= e^(epsilon' + 2a) Q(S) + e^a
delta', and swapping each side's samples for real ones costs b once and e^epsilon b once. Both terms are part of every
number given here. In `Parallel`, a and b are those of the worst branch as well: only branch j has to be exchanged for
its ideal, because the others, with their real samplers, are already the same in both worlds.

Events may be chosen after seeing the outcomes before, noise scales included, as long as the total stays below what was
fixed beforehand: for pure epsilons by Rogers, Roth, Ullman and Vadhan 2016, for zCDP by Feldman and Zrnic 2021, for
Gaussian DP by Smith and Thakurta 2022. For `PrivacyLoss` the events must be fixed beforehand, though not the questions.

Speed. A training of a thousand trees is an event of many thousand parts, most of them equal. What is asked often is
computed once after each `compose`. Whatever goes through an event goes level by level and takes each object once per
level; structures are compared by value as rarely as possible, since that means going through all that they hold.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import ClassVar, NamedTuple

from hedgerow.errors import InvalidParameter
from hedgerow.privacy import events, selection
from hedgerow.privacy.curves import gaussian_delta, pure_delta, pure_mu, smallest, zcdp_delta
from hedgerow.privacy.discrete_gaussian import (
    DISTANCE,
    ROUNDING_VARIANCE,
    log_ratio_of_sum,
    log_ratio_to_rounded_real,
)
from hedgerow.privacy.events import Adjacency, Event
from hedgerow.privacy.privacy_loss import Form, Unit, deltas_of, library, most_of, together

NEGLIGIBLE = 2.0**-60
"""The largest log ratio of one event that is accepted; beyond it the noise is too coarse for the theorems to help."""

_UP = 1.0 + 2.0**-45
"""Totals are rounded up by more than the error of a few floating-point operations."""

_LARGEST_EPSILON = 600.0
"""e^600 is still a float; nobody needs more."""

_DEEPEST = 40
"""How deep events may be held inside each other: each level may lose a rounding, of which `_UP` covers a hundred."""

Pure = events.DiscreteLaplace | events.Laplace | events.Exponential | events.PermuteAndFlip | events.RandomisedResponse
NearlyPure = Pure | events.GumbelChoice | events.Selected
"""Pure, once their `distance` is taken into account."""


class Totals(NamedTuple):
    """All that was counted, added up."""

    is_private: bool
    cost: float
    """In the accountant's own unit."""
    log_ratio: float
    distance: float


class Accountant(ABC):
    """Counts events; subclasses know what one costs and what a total means."""

    NAME: ClassVar[str]
    CHARGES_REAL_NOISE: ClassVar[bool] = False
    """Whether discrete noise is charged as the real noise that it is a post-processing of."""
    _SEARCH: ClassVar[tuple[float, float]] = (2.0**-40, 1e-13)
    """The smallest epsilon that is ever claimed, and the relative precision of all others."""

    def __init__(self, adjacency: Adjacency = "add_remove") -> None:
        self.adjacency: Adjacency = adjacency
        self._counts: Counter[Event] = Counter()
        self._totals: Totals | None = None

    def compose(self, event: Event, times: int = 1) -> None:
        """Add an event, or refuse all of it: nothing is added when a part of it is not understood."""
        if times < 1:
            raise InvalidParameter(f"times must be at least 1, got {times}")
        self.check(event)
        for part, count in _flat(event).items():
            self._counts[part] += count * times
        self._totals = None

    def compose_all(self, several: Iterable[Event]) -> None:
        """Add several events, or none of them."""
        self.compose(events.Composed(tuple(several)))

    def check(self, event: Event) -> None:
        """Raise unless all of the event can be accounted for."""
        for part in distinct(event):
            self._check(part)

    def cost(self, event: Event) -> float:
        """What the event would add to the total; infinite for a release without guarantee."""
        self.check(event)
        return self._folded(_flat(event), self._cost)

    @property
    def event(self) -> Event:
        """Everything so far as one event."""
        counted = self._counts.items()
        return events.Composed(tuple(one if count == 1 else events.Repeated(one, count) for one, count in counted))

    @property
    def is_private(self) -> bool:
        """Whether every release so far had a guarantee."""
        return self._all.is_private

    @property
    def total(self) -> float:
        """The sum of all costs, in the accountant's own unit, rounded up."""
        return self._all.cost * _UP

    @property
    def description(self) -> str:
        """What does the accounting, with the version of whatever is not our own."""
        return self.NAME

    @property
    def distance(self) -> float:
        """The statistical distance of all samples so far to ideal ones, rounded up."""
        return self._all.distance * _UP

    def delta(self, epsilon: float) -> float:
        """The smallest delta that is proved for this epsilon."""
        if not epsilon >= 0.0:
            raise InvalidParameter(f"epsilon must be at least 0, got {epsilon!r}")
        if not self.is_private:
            return 0.0 if math.isinf(epsilon) else 1.0
        if math.isinf(epsilon) or not self._counts:
            return 0.0
        ratio, distance = self._all.log_ratio * _UP, self.distance
        # (1 + e^epsilon) b; where e^epsilon overflows, nothing small is claimed.
        unlucky = (1.0 + math.exp(epsilon)) * distance if epsilon < _LARGEST_EPSILON else float(distance > 0.0)
        ideal = self._ideal_delta(epsilon - 2.0 * ratio) if epsilon >= 2.0 * ratio else 1.0
        return min(math.exp(ratio) * ideal + unlucky, 1.0)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon that is proved for this delta; infinite if there is none."""
        events.check_delta(delta)
        if not self.is_private:
            return math.inf
        if not self._counts:
            return 0.0
        start, precision = self._SEARCH
        return smallest(lambda epsilon: self.delta(epsilon) <= delta, _LARGEST_EPSILON, start, precision)

    # --- what subclasses know ----------------------------------------------------------------------------------------

    @abstractmethod
    def _cost(self, mechanism: Event) -> float:
        """What one mechanism adds to the total; raises InvalidParameter for one that cannot be accounted for."""

    @abstractmethod
    def _ideal_delta(self, epsilon: float) -> float:
        """The delta of all that was counted, were its samplers ideal."""

    def _ratio_of(self, event: events.DiscreteGaussian) -> float:
        """The log ratio per coordinate between the event and the mechanism whose cost is charged."""
        real = log_ratio_to_rounded_real() if self.CHARGES_REAL_NOISE else 0.0
        return log_ratio_of_sum(event.sigma, event.parties) + real

    def _sum(self, terms: Iterable[tuple[int, float]]) -> float:
        """The sum of counts times costs; correctly rounded, so that order does not matter."""
        return math.fsum(count * cost for count, cost in terms)

    def _check_sampled(self, event: events.PoissonSampled) -> None:
        raise InvalidParameter(
            f"the {self.NAME} accountant cannot account for {event.KIND} events; PrivacyLoss can, of Gaussian noise"
        )

    # --- the rest ----------------------------------------------------------------------------------------------------

    @property
    def _all(self) -> Totals:
        """Added up when first asked for after something was counted."""
        if self._totals is None:
            mechanisms = [part for part in distinct(*self._counts) if not part.parts()]
            noisy = any(
                isinstance(part, events.DiscreteGaussian | events.GumbelChoice | events.Selected) for part in mechanisms
            )
            self._totals = Totals(
                not any(isinstance(part, events.NonPrivate) for part in mechanisms),
                self._folded(self._counts, self._cost),
                self._folded(self._counts, self._log_ratio) if noisy else 0.0,
                self._folded(self._counts, _distance) if noisy else 0.0,
            )
        return self._totals

    def _check(self, event: Event) -> None:
        """Raise unless this one event, without what it holds, can be accounted for."""
        if isinstance(event, events.PoissonSampled):
            self._check_sampled(event)
            return
        if isinstance(event, events.NonPrivate | events.Composed | events.Repeated | events.Parallel):
            return
        if not isinstance(event, events.Gaussian | events.DiscreteGaussian | NearlyPure):
            raise self._unknown(event)
        if event.adjacency != self.adjacency:
            raise InvalidParameter(f"this accountant is for {self.adjacency}, but the event for {event.adjacency}")
        if isinstance(event, events.DiscreteGaussian) and event.coordinates * self._ratio_of(event) > NEGLIGIBLE:
            raise InvalidParameter(
                f"noise of scale {event.sigma:.3g} in whole-number units is too coarse for a sum over {event.parties} "
                "parties to be proved private; use a finer fixed point, or less epsilon"
            )
        if isinstance(event, events.Selected):
            check_selected(event)
        self._cost(event)

    def _unknown(self, event: Event) -> InvalidParameter:
        return InvalidParameter(f"the {self.NAME} accountant cannot account for {event!r}")

    def _folded(self, counts: Counter[Event], of_mechanism: Callable[[Event], float]) -> float:
        """Sums over what is composed, the largest over what is parallel."""
        branches: dict[int, float] = {}  # by identity, which is safe while `counts` holds them
        mechanisms: dict[Event, float] = {}

        def composed(event: Event) -> float:
            found = branches.get(id(event))
            if found is None:
                found = branches[id(event)] = self._sum((times, one(part)) for part, times in _flat(event).items())
            return found

        def one(event: Event) -> float:
            if isinstance(event, events.Parallel):
                return max((composed(branch) for branch in event.events), default=0.0)
            if isinstance(event, events.PoissonSampled):
                return composed(event.event)
            found = mechanisms.get(event)
            if found is None:
                found = math.inf if isinstance(event, events.NonPrivate) else of_mechanism(event)
                mechanisms[event] = found
            return found

        return self._sum((count, one(event)) for event, count in counts.items())

    def _log_ratio(self, event: Event) -> float:
        return event.coordinates * self._ratio_of(event) if isinstance(event, events.DiscreteGaussian) else 0.0


class BasicComposition(Accountant):
    """Pure differential privacy: the total is the sum of all epsilons, exactly, and delta may be 0.

    The curve is that of randomised response with this epsilon, of which every pure mechanism is a post-processing
    (Kairouz, Oh and Viswanath 2015, theorem 2.1 with delta = 0), so nothing better holds for all of them. The total is
    the rounded-up sum of numbers that are themselves exact or rounded up: what was calibrated to use up an epsilon
    costs that epsilon, not a little more.
    """

    NAME: ClassVar[str] = "basic composition of pure epsilons"

    @property
    def total(self) -> float:
        """The sum of all epsilons, rounded up to the next float."""
        return self._all.cost

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon for this delta; for 0 the total, without a search."""
        if delta == 0.0:
            return self.total
        return min(super().epsilon(delta), self.total)

    def _cost(self, mechanism: Event) -> float:
        if isinstance(mechanism, Pure) or (isinstance(mechanism, events.Selected) and mechanism.delta == 0.0):
            return pure_epsilon(mechanism)
        raise self._unknown(mechanism)

    def _ideal_delta(self, epsilon: float) -> float:
        return pure_delta(self.total, epsilon)

    def _sum(self, terms: Iterable[tuple[int, float]]) -> float:
        total = Fraction(0)
        for count, cost in terms:
            if math.isinf(cost):
                return math.inf
            total += count * Fraction(cost)
        return float_above(total)


class ZeroConcentratedDP(Accountant):
    """Zero-concentrated differential privacy: the total is rho, and choices and noise of all kinds add up.

    - Real Gaussian noise: sensitivity^2 / (2 sigma^2), and discrete noise the same, however coarse (Canonne, Kamath and
      Steinke 2020).
    - A pure epsilon: epsilon^2 / 2 (Bun and Steinke 2016, proposition 1.4).
    - The exponential mechanism, also by Gumbel noise: epsilon^2 / 8, since its log ratios lie within an interval of
      length epsilon, not 2 epsilon (bounded range; Cesar and Rogers 2021, lemma 3.4). Permute-and-flip has no such
      interval (it is the noisy maximum with exponential noise, whose log ratios reach both -epsilon and epsilon), so it
      is charged as any other.

    For Gaussian noise alone the curve is looser than that of Gaussian DP: at delta 1e-5 it wants 6 to 10% more noise.
    """

    NAME: ClassVar[str] = "zCDP"

    def _cost(self, mechanism: Event) -> float:
        if isinstance(mechanism, events.Gaussian):
            return mechanism.sensitivity**2 / (2.0 * mechanism.sigma**2)
        if isinstance(mechanism, events.DiscreteGaussian):
            return mechanism.sensitivity**2 / (2.0 * mechanism.parties * mechanism.sigma**2)
        if isinstance(mechanism, events.Exponential | events.GumbelChoice):
            return mechanism.epsilon**2 / 8.0
        if isinstance(mechanism, Pure | events.Selected):
            return pure_epsilon(mechanism) ** 2 / 2.0
        raise self._unknown(mechanism)

    def _ideal_delta(self, epsilon: float) -> float:
        return zcdp_delta(self.total, epsilon)


class GaussianDP(Accountant):
    """Gaussian differential privacy: the total is mu squared, and the curve is the exact one of a Gaussian.

    - Real noise: (sensitivity / sigma)^2.
    - Discrete noise of total variance v is a post-processing of real noise of variance v - 5.0625, up to a log ratio
      below 2^-140 (discrete_gaussian.py, 4), and is charged as that.
    - A pure epsilon: the square of the smallest mu that covers all mechanisms of this epsilon (curves.pure_mu has the
      proof), about 1.57 epsilon^2. A mechanism that is chosen after seeing outcomes, pure or not, is one more step for
      the theorem of Smith and Thakurta: it asks only that each be mu-GDP whatever came before. For many choices by the
      exponential mechanism zCDP asks a sixth of that, and loss distributions are tighter for all pure mechanisms.

    Poisson samples are refused: they are mu-GDP for no small mu.
    """

    NAME: ClassVar[str] = "Gaussian DP"
    CHARGES_REAL_NOISE: ClassVar[bool] = True

    def _cost(self, mechanism: Event) -> float:
        if isinstance(mechanism, events.Gaussian | events.DiscreteGaussian):
            return _mu_squared(mechanism, self.NAME)
        if isinstance(mechanism, NearlyPure):
            return pure_mu(pure_epsilon(mechanism)) ** 2
        raise self._unknown(mechanism)

    def _ideal_delta(self, epsilon: float) -> float:
        return gaussian_delta(math.sqrt(self.total), epsilon)


class PrivacyLoss(Accountant):
    """Privacy loss distributions, composed numerically by dp-accounting (the extra `pld`): for mixtures and samples.

    Every mechanism is charged as a worst case that it is a post-processing of: Gaussian noise as in Gaussian DP, a pure
    epsilon as randomised response (so also Laplace noise: ours is discrete, and the most likely loss of discrete noise
    is more likely than that of real noise). Poisson sampling is understood under "add_remove" around Gaussian noise or
    around pure mechanisms: both directions, add and remove, are composed apart, and the larger delta counts. For many
    choices by the exponential mechanism zCDP claims less, since it knows more about them than their epsilon.

    `total` is a number of releases, for want of a unit. Gaussian noise alone gets its closed curve, and what is all
    pure never costs more than its sum. privacy_loss.py says what is rounded, and which error is measured, not proved.
    """

    NAME: ClassVar[str] = "privacy loss distributions"
    CHARGES_REAL_NOISE: ClassVar[bool] = True
    _SEARCH: ClassVar[tuple[float, float]] = (2.0**-20, 1e-9)  # each look at a distribution takes milliseconds
    _added_up: tuple[Totals, Form] | None = None

    @property
    def description(self) -> str:
        """The name, and the library that composes."""
        return f"{self.NAME} ({library()})"

    @property
    def total(self) -> float:
        """How many mechanisms ran."""
        releases = sum(count * n for event, count in self._counts.items() for _, n in event.leaves())
        return float(releases) if self.is_private else math.inf

    def cost(self, event: Event) -> float:
        """The number of mechanisms; infinite for a release without guarantee."""
        self.check(event)
        if holds(event, events.NonPrivate):
            return math.inf
        return float(sum(n for _, n in event.leaves()))

    def _cost(self, mechanism: Event) -> float:
        """Mu squared or epsilon: what `_unit` is made of."""
        if isinstance(mechanism, events.Gaussian | events.DiscreteGaussian):
            return _mu_squared(mechanism, self.NAME)
        if isinstance(mechanism, NearlyPure):
            return pure_epsilon(mechanism)
        raise self._unknown(mechanism)

    def _check_sampled(self, event: events.PoissonSampled) -> None:
        parts = [part for part in distinct(event.event) if not part.parts() and not isinstance(part, events.NonPrivate)]
        if self.adjacency != "add_remove":
            raise InvalidParameter(f"poisson_sampled events are accounted for under add_remove, not {self.adjacency}")
        if holds(event.event, events.PoissonSampled):
            raise InvalidParameter("a sample of a sample cannot be accounted for; multiply the rates instead")
        gaussian = [isinstance(part, events.Gaussian | events.DiscreteGaussian) for part in parts]
        if any(gaussian) and not all(gaussian):
            raise InvalidParameter(
                "a sample can be accounted for with Gaussian noise or pure mechanisms, not with both"
            )

    def _ideal_delta(self, epsilon: float) -> float:
        if self._added_up is None or self._added_up[0] is not self._all:  # added up again since
            self._added_up = self._all, self._form(self._counts)
        return deltas_of(self._added_up[1]).delta(epsilon)

    def _form(self, counts: Counter[Event]) -> Form:
        """What was counted, as units that have a loss distribution."""
        return together((self._form_of(event), count) for event, count in counts.items())

    def _form_of(self, event: Event) -> Form:
        if isinstance(event, events.Parallel):
            return most_of(self._form(_flat(branch)) for branch in event.events)
        if isinstance(event, events.PoissonSampled):
            inner = _flat(event.event)
            cost = self._folded(inner, self._cost) * _UP
            gaussian = holds(event.event, events.Gaussian, events.DiscreteGaussian)
            unit = Unit("sampled gaussian", cost, event.rate) if gaussian else Unit.sampled(event.rate, cost)
        else:
            unit = Unit("pure" if isinstance(event, NearlyPure) else "gaussian", self._cost(event))
        return ((unit, 1),)


FOR_ALL_ROWS: tuple[type[Accountant], ...] = (BasicComposition, GaussianDP, ZeroConcentratedDP)
FOR_SAMPLES: tuple[type[Accountant], ...] = (PrivacyLoss,)
"""Who understands events, with samples of rows or without."""


def pure_epsilon(mechanism: NearlyPure) -> float:
    """The epsilon of a pure mechanism, rounded up where it is a quotient."""
    if isinstance(mechanism, events.DiscreteLaplace | events.Laplace):
        return float_above(Fraction(mechanism.sensitivity) / Fraction(mechanism.scale))
    return float(mechanism.epsilon)


def _mu_squared(event: events.Gaussian | events.DiscreteGaussian, name: str) -> float:
    if isinstance(event, events.Gaussian):
        return (event.sensitivity / event.sigma) ** 2
    real = event.parties * event.sigma**2 - ROUNDING_VARIANCE
    if real <= 0.0:
        raise InvalidParameter(
            f"the {name} accountant needs discrete noise of a scale above "
            f"{math.sqrt(ROUNDING_VARIANCE)}, got {event.sigma:.3g}; the zCDP accountant takes any"
        )
    return event.sensitivity**2 / real


def check_selected(event: events.Selected) -> None:
    """Raise unless the best of several runs costs no more than its event says (selection.py has the theorems)."""
    runs, adjacency = BasicComposition(event.adjacency), event.adjacency
    try:
        pure = runs.cost(event.event)
    except InvalidParameter:
        pure = math.inf
    concentrated = ZeroConcentratedDP(adjacency)
    concentrated.compose(event.event)
    distance = concentrated.distance
    if pure < math.inf and selection.pure_epsilon_of_best(pure, event.shape) <= event.epsilon:
        return
    proved = selection.epsilon_of_best(concentrated.total, pure, event.shape, event.stop, event.delta, distance)
    if not proved <= event.epsilon * (1.0 + 1e-9):
        raise InvalidParameter(
            f"the best of these runs costs epsilon = {proved} at delta = {event.delta}, not {event.epsilon}"
        )


def _distance(event: Event) -> float:
    """The statistical distance of all samples of one event to ideal ones; those of pure mechanisms are exact.

    Two outcomes that are (epsilon, delta)-close are each within delta / (1 + e^epsilon) of two that are epsilon-close
    (Vadhan 2017, The complexity of differential privacy, lemma 1.5).
    """
    if isinstance(event, events.GumbelChoice):
        return event.distance
    if isinstance(event, events.Selected):
        return event.delta / (1.0 + math.exp(min(event.epsilon, _LARGEST_EPSILON)))
    return event.coordinates * event.parties * DISTANCE if isinstance(event, events.DiscreteGaussian) else 0.0


def distinct(*events: Event) -> Iterator[Event]:
    """Everything inside these events, themselves included, at least once; what is equal mostly once.

    Level by level, each object once per level, so that it is quick however often parts are shared. Raises when events
    are held too deep inside each other.
    """
    level, depth = {id(event): event for event in events}, 0
    mechanisms: set[Event] = set()
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise InvalidParameter(f"events can be held inside each other {_DEEPEST} deep, not deeper")
        below: dict[int, Event] = {}
        for event in level.values():
            parts = event.parts()
            if parts:
                yield event
                below.update((id(part), part) for part in parts)
            elif event not in mechanisms:
                mechanisms.add(event)
                yield event
        level = below


def holds(event: Event, *kinds: type[Event]) -> bool:
    """Whether it is of one of these kinds, or anything inside it is."""
    return any(isinstance(part, kinds) for part in distinct(event))


def _flat(event: Event) -> Counter[Event]:
    """What is composed, and how often: `Composed` and `Repeated` taken apart, everything else left whole."""
    counts: Counter[Event] = Counter()
    level = {id(event): (event, 1)}
    while level:
        below: dict[int, tuple[Event, int]] = {}
        for whole, times in level.values():
            if not isinstance(whole, events.Composed | events.Repeated):
                counts[whole] += times
                continue
            each = times * whole.times if isinstance(whole, events.Repeated) else times
            for part in whole.parts():
                _, so_far = below.get(id(part), (part, 0))
                below[id(part)] = (part, so_far + each)
        level = below
    return counts


def sum_above(numbers: Iterable[float]) -> float:
    """Their exact sum, rounded up to the next float."""
    return float_above(sum(map(Fraction, numbers), Fraction(0)))


def float_above(number: Fraction) -> float:
    """The smallest float that is not below."""
    nearest = float(number)
    return nearest if math.isinf(nearest) or Fraction(nearest) >= number else math.nextafter(nearest, math.inf)
