"""Events: what was done to private rows, said completely enough to account for it, and nothing more.

A mechanism returns the event with the value it released. An event never changes its meaning; one that an accountant
does not know is refused, not guessed. `NonPrivate` is the honest name of a release without a guarantee.

A sensitivity is how far the exact answer can move, under the event's `adjacency`, when one record is added or removed
("add_remove"), or exchanged for another ("replace_one"): an L2 distance for Gaussian noise, an L1 distance for Laplace
noise, the change of any one candidate's utility for a choice.

Events are held together in four ways: `Composed` and `Repeated` on the same records, `Parallel` on disjoint ones, and
`PoissonSampled` on a secret random part of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args

from hedgerow.errors import InvalidInput, InvalidParameter

Adjacency = Literal["add_remove", "replace_one"]


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    KIND: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, with the kind of event under "kind"."""
        return {"kind": self.KIND, **asdict(self)}

    def leaves(self) -> Iterator[tuple[Event, int]]:
        """The mechanisms that ran and how often: what happened, and for its cost one needs the structure too."""
        yield self, 1

    def parts(self) -> tuple[Event, ...]:
        """What a structure holds together; nothing for a mechanism."""
        return ()


@dataclass(frozen=True, slots=True)
class NonPrivate(Event):
    """A release without any guarantee, and why."""

    KIND: ClassVar[str] = "non_private"

    reason: str


@dataclass(frozen=True, slots=True)
class Gaussian(Event):
    """Real-valued Gaussian noise of standard deviation `sigma` on every coordinate."""

    KIND: ClassVar[str] = "gaussian"

    sensitivity: float
    sigma: float
    adjacency: Adjacency = "add_remove"

    def __post_init__(self) -> None:
        _check_scale(self, "sensitivity", self.sensitivity)
        _check_scale(self, "sigma", self.sigma)
        _check_adjacency(self, self.adjacency)


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(Event):
    """Whole-number noise on a vector of whole numbers, drawn by `parties` parties independently and added up.

    Each draws P(k) proportional to exp(-k^2 / (2 sigma^2)) for each coordinate, so the sum has variance
    parties * sigma^2. `parties` counts only those whose noise the receiver does not know: colluding ones add nothing.
    """

    KIND: ClassVar[str] = "discrete_gaussian"

    sensitivity: float
    sigma: float
    coordinates: int
    parties: int = 1
    adjacency: Adjacency = "add_remove"

    def __post_init__(self) -> None:
        _check_scale(self, "sensitivity", self.sensitivity)
        _check_scale(self, "sigma", self.sigma)
        _check_count(self, "coordinates", self.coordinates)
        _check_count(self, "parties", self.parties)
        _check_adjacency(self, self.adjacency)


@dataclass(frozen=True, slots=True)
class _LaplaceNoise(Event):
    """What both kinds of Laplace noise have in common."""

    sensitivity: float
    scale: float
    adjacency: Adjacency = "add_remove"

    def __post_init__(self) -> None:
        _check_scale(self, "sensitivity", self.sensitivity)
        _check_scale(self, "scale", self.scale)
        _check_adjacency(self, self.adjacency)

    @property
    def epsilon(self) -> float:
        """Its pure differential privacy."""
        return self.sensitivity / self.scale


@dataclass(frozen=True, slots=True)
class DiscreteLaplace(_LaplaceNoise):
    """Whole-number noise with P(k) proportional to exp(-|k| / scale) on every coordinate; sensitivity in L1."""

    KIND: ClassVar[str] = "discrete_laplace"


@dataclass(frozen=True, slots=True)
class Laplace(_LaplaceNoise):
    """Laplace noise on real values: they are rounded to a public grid first, which the sensitivity (L1) allows for."""

    KIND: ClassVar[str] = "laplace"


@dataclass(frozen=True, slots=True)
class _Choice(Event):
    """What both ways to choose have in common."""

    sensitivity: float
    epsilon: float
    adjacency: Adjacency = "add_remove"

    def __post_init__(self) -> None:
        _check_scale(self, "sensitivity", self.sensitivity)
        _check_scale(self, "epsilon", self.epsilon)
        _check_adjacency(self, self.adjacency)


@dataclass(frozen=True, slots=True)
class Exponential(_Choice):
    """A choice among public candidates with P proportional to exp(epsilon utility / (2 sensitivity)).

    Made once for each of several disjoint sets of records, or once for all: one record takes part in one choice.
    """

    KIND: ClassVar[str] = "exponential"


@dataclass(frozen=True, slots=True)
class PermuteAndFlip(_Choice):
    """A choice by permute-and-flip (McKenna and Sheldon 2020), at the same epsilon never worse than the exponential."""

    KIND: ClassVar[str] = "permute_and_flip"


@dataclass(frozen=True, slots=True)
class GumbelChoice(Event):
    """A choice among public candidates by the largest of utilities with rounded, clipped Gumbel noise (gumbel.py).

    Its log ratios lie within an interval of length `epsilon`, as those of `Exponential`, but for noise that was
    clipped: what ran is within the statistical distance `distance` of a choice of which that is true.
    """

    KIND: ClassVar[str] = "gumbel_choice"

    sensitivity: float
    epsilon: float
    distance: float
    adjacency: Adjacency = "add_remove"

    def __post_init__(self) -> None:
        _check_scale(self, "sensitivity", self.sensitivity)
        _check_scale(self, "epsilon", self.epsilon)
        _check_scale(self, "distance", self.distance)
        _check_adjacency(self, self.adjacency)


@dataclass(frozen=True, slots=True)
class RandomisedResponse(Event):
    """One of `categories` values per record: the true one with the highest chance that epsilon allows, else any other.

    A guarantee for the value of one record, whoever sees the answers: adjacency is always "replace_one".
    """

    KIND: ClassVar[str] = "randomised_response"

    categories: int
    epsilon: float
    adjacency: Adjacency = "replace_one"

    def __post_init__(self) -> None:
        _check_count(self, "categories", self.categories)
        _check_scale(self, "epsilon", self.epsilon)
        if self.categories < 2 or self.adjacency != "replace_one":
            raise InvalidParameter(
                f"{self.KIND}: needs at least 2 categories and adjacency 'replace_one', "
                f"got {self.categories} and {self.adjacency!r}"
            )


@dataclass(frozen=True, slots=True)
class PoissonSampled(Event):
    """A mechanism on records of which each was taken with chance `rate`, independently and in secret."""

    KIND: ClassVar[str] = "poisson_sampled"

    rate: float
    event: Event

    def __post_init__(self) -> None:
        _check_event(self, self.event)
        if not isinstance(self.rate, float | int) or isinstance(self.rate, bool) or not 0.0 < self.rate <= 1.0:
            raise InvalidParameter(f"{self.KIND}: rate must be above 0 and at most 1, got {self.rate!r}")

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"kind": self.KIND, "rate": self.rate, "event": self.event.to_dict()}

    def leaves(self) -> Iterator[tuple[Event, int]]:
        """Those of the event."""
        yield from self.event.leaves()

    def parts(self) -> tuple[Event, ...]:
        """The event."""
        return (self.event,)


@dataclass(frozen=True, slots=True)
class Parallel(Event):
    """Events on disjoint records, so that one record takes part in one of them at most.

    What makes it true under "add_remove": each record's place is drawn independently of all others. Sizes fixed as
    shares of the number of rows would move other records when one is added (docs/protocols/central_dp.md). Under
    "replace_one" the place must not depend on what the record holds either, or one exchange would touch two places.
    """

    KIND: ClassVar[str] = "parallel"

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        for event in self.events:
            _check_event(self, event)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"kind": self.KIND, "events": [event.to_dict() for event in self.events]}

    def leaves(self) -> Iterator[tuple[Event, int]]:
        """Those of all branches."""
        for event in self.events:
            yield from event.leaves()

    def parts(self) -> tuple[Event, ...]:
        """The branches."""
        return self.events


@dataclass(frozen=True, slots=True)
class Composed(Event):
    """Several events on the same rows, each of which may have been chosen after the outcome of those before."""

    KIND: ClassVar[str] = "composed"

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        for event in self.events:
            _check_event(self, event)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"kind": self.KIND, "events": [event.to_dict() for event in self.events]}

    def leaves(self) -> Iterator[tuple[Event, int]]:
        """Those of all parts."""
        for event in self.events:
            yield from event.leaves()

    def parts(self) -> tuple[Event, ...]:
        """The events."""
        return self.events


@dataclass(frozen=True, slots=True)
class Repeated(Event):
    """The same event `times` times on the same rows, with fresh randomness each time."""

    KIND: ClassVar[str] = "repeated"

    event: Event
    times: int

    def __post_init__(self) -> None:
        _check_event(self, self.event)
        _check_count(self, "times", self.times)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"kind": self.KIND, "event": self.event.to_dict(), "times": self.times}

    def leaves(self) -> Iterator[tuple[Event, int]]:
        """Those of the event, more often."""
        for event, count in self.event.leaves():
            yield event, count * self.times

    def parts(self) -> tuple[Event, ...]:
        """The event, once."""
        return (self.event,)


def walk(event: Event) -> Iterator[Event]:
    """The event, and every event inside it, each before what it holds."""
    waiting = [event]
    while waiting:
        event = waiting.pop()
        yield event
        waiting.extend(reversed(event.parts()))


_LEAVES: dict[str, type[Event]] = {
    kind.KIND: kind
    for kind in (
        NonPrivate,
        Gaussian,
        DiscreteGaussian,
        DiscreteLaplace,
        Laplace,
        Exponential,
        PermuteAndFlip,
        GumbelChoice,
        RandomisedResponse,
    )
}
_STRUCTURES = (Composed.KIND, Repeated.KIND, Parallel.KIND, PoissonSampled.KIND)


def from_dict(data: Any) -> Event:
    """The inverse of `to_dict`. An unknown kind, or a known one with other fields, is refused."""
    if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
        raise InvalidInput(f"an event is described by its kind and its fields, got {data!r}")
    kind, given = data["kind"], {key: value for key, value in data.items() if key != "kind"}
    if kind in (Composed.KIND, Parallel.KIND) and set(given) == {"events"} and isinstance(given["events"], list):
        parts = tuple(from_dict(part) for part in given["events"])
        return Composed(parts) if kind == Composed.KIND else Parallel(parts)
    if kind == Repeated.KIND and set(given) == {"event", "times"}:
        return Repeated(from_dict(given["event"]), given["times"])
    if kind == PoissonSampled.KIND and set(given) == {"event", "rate"}:
        return PoissonSampled(given["rate"], from_dict(given["event"]))
    if kind in _STRUCTURES:
        raise InvalidInput(f"an event of kind {kind!r} has other fields than {sorted(given)}")
    leaf = _LEAVES.get(kind)
    if leaf is None:
        raise InvalidInput(f"unknown event of kind {kind!r}; known are {', '.join(sorted((*_LEAVES, *_STRUCTURES)))}")
    wanted = {field.name for field in fields(leaf)}
    if set(given) != wanted:
        raise InvalidInput(f"an event of kind {kind!r} has fields {sorted(wanted)}, got {sorted(given)}")
    return leaf(**given)


# --- checks --------------------------------------------------------------------------------------------------------


def _check_scale(event: Event, name: str, value: Any) -> None:
    number = isinstance(value, float | int) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:
        raise InvalidParameter(f"{event.KIND}: {name} must be a finite number above 0, got {value!r}")


def _check_count(event: Event, name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidParameter(f"{event.KIND}: {name} must be a whole number of at least 1, got {value!r}")


def _check_adjacency(event: Event, value: Any) -> None:
    if value not in get_args(Adjacency):
        raise InvalidParameter(f"{event.KIND}: adjacency must be one of {get_args(Adjacency)}, got {value!r}")


def _check_event(event: Event, part: Any) -> None:
    if not isinstance(part, Event):
        raise InvalidParameter(f"{event.KIND}: only events can be held together, got {part!r}")


Value = TypeVar("Value")


class Released(NamedTuple, Generic[Value]):
    """What left the private side, and what is known about it."""

    values: Value
    event: Event
