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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args

from hedgerow.codec import to_json
from hedgerow.errors import InvalidInput, InvalidParameter

Adjacency = Literal["add_remove", "replace_one"]
_ADJACENCIES = get_args(Adjacency)


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events. A field of a name means the same in each of them, and is checked alike (`_CHECKS`)."""

    KIND: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            check = _CHECKS.get(name)
            if check is not None:
                check(self.KIND, name, getattr(self, name))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, with the kind of event under "kind"."""
        document: dict[str, Any] = to_json(self)
        return document

    def leaves(self) -> Iterator[tuple[Event, int]]:
        """The mechanisms that ran and how often: what happened, and for its cost one needs the structure too."""
        yield self, 1

    def parts(self) -> tuple[Event, ...]:
        """What a structure holds together, each once; nothing for a mechanism."""
        return ()


# --- mechanisms ------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class _LaplaceNoise(Event):
    """What both kinds of Laplace noise have in common."""

    sensitivity: float
    scale: float
    adjacency: Adjacency = "add_remove"

    @property
    def epsilon(self) -> float:
        """Its pure differential privacy."""
        return self.sensitivity / self.scale


class DiscreteLaplace(_LaplaceNoise):
    """Whole-number noise with P(k) proportional to exp(-|k| / scale) on every coordinate; sensitivity in L1."""

    KIND: ClassVar[str] = "discrete_laplace"


class Laplace(_LaplaceNoise):
    """Laplace noise on real values: they are rounded to a public grid first, which the sensitivity (L1) allows for."""

    KIND: ClassVar[str] = "laplace"


@dataclass(frozen=True, slots=True)
class _Choice(Event):
    """What both ways to choose have in common."""

    sensitivity: float
    epsilon: float
    adjacency: Adjacency = "add_remove"


class Exponential(_Choice):
    """A choice among public candidates with P proportional to exp(epsilon utility / (2 sensitivity)).

    Made once for each of several disjoint sets of records, or once for all: one record takes part in one choice.
    """

    KIND: ClassVar[str] = "exponential"


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
        Event.__post_init__(self)
        if self.categories < 2 or self.adjacency != "replace_one":
            raise InvalidParameter(
                f"{self.KIND}: needs at least 2 categories and adjacency 'replace_one', "
                f"got {self.categories} and {self.adjacency!r}"
            )


# --- structures ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Structure(Event):
    """Events held together."""

    def leaves(self) -> Iterator[tuple[Event, int]]:
        """Those of all parts, as often as the whole runs."""
        times = self.times if isinstance(self, Repeated) else 1
        for part in self.parts():
            for event, count in part.leaves():
                yield event, count * times


@dataclass(frozen=True, slots=True)
class PoissonSampled(_Structure):
    """A mechanism on records of which each was taken with chance `rate`, independently and in secret."""

    KIND: ClassVar[str] = "poisson_sampled"

    rate: float
    event: Event

    def parts(self) -> tuple[Event, ...]:
        """The event."""
        return (self.event,)


@dataclass(frozen=True, slots=True)
class Repeated(_Structure):
    """The same event `times` times on the same rows, with fresh randomness each time."""

    KIND: ClassVar[str] = "repeated"

    event: Event
    times: int

    def parts(self) -> tuple[Event, ...]:
        """The event, once."""
        return (self.event,)


@dataclass(frozen=True, slots=True)
class _Several(_Structure):
    """Any number of events."""

    events: tuple[Event, ...]

    def parts(self) -> tuple[Event, ...]:
        """All of them."""
        return self.events


class Parallel(_Several):
    """Events on disjoint records, so that one record takes part in one of them at most.

    What makes it true under "add_remove": each record's place is drawn independently of all others. Sizes fixed as
    shares of the number of rows would move other records when one is added (docs/protocols/central_dp.md). Under
    "replace_one" the place must not depend on what the record holds either, or one exchange would touch two places.
    """

    KIND: ClassVar[str] = "parallel"


class Composed(_Several):
    """Several events on the same rows, each of which may have been chosen after the outcome of those before."""

    KIND: ClassVar[str] = "composed"


def walk(event: Event) -> Iterator[Event]:
    """The event, and every event inside it, each before what it holds."""
    waiting = [event]
    while waiting:
        event = waiting.pop()
        yield event
        waiting.extend(reversed(event.parts()))


_KINDS: dict[str, type[Event]] = {
    kind.KIND: kind
    for kind in (
        NonPrivate, Gaussian, DiscreteGaussian, DiscreteLaplace, Laplace, Exponential, PermuteAndFlip, GumbelChoice,
        RandomisedResponse, Composed, Repeated, Parallel, PoissonSampled,
    )
}  # fmt: skip


def from_dict(data: Any) -> Event:
    """The inverse of `to_dict`. An unknown kind, or a known one with other fields, is refused."""
    if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
        raise InvalidInput(f"an event is described by its kind and its fields, got {data!r}")
    kind, given = data["kind"], {key: value for key, value in data.items() if key != "kind"}
    if kind not in _KINDS:
        raise InvalidInput(f"unknown event of kind {kind!r}; known are {', '.join(sorted(_KINDS))}")
    wanted = {field.name for field in fields(_KINDS[kind])}
    if set(given) != wanted:
        raise InvalidInput(f"an event of kind {kind!r} has fields {sorted(wanted)}, got {sorted(given)}")
    if "event" in given:
        given["event"] = from_dict(given["event"])
    if "events" in given:
        if not isinstance(given["events"], list):
            raise InvalidInput(f"the events of an event of kind {kind!r} are a list, got {given['events']!r}")
        given["events"] = tuple(from_dict(part) for part in given["events"])
    return _KINDS[kind](**given)


# --- checks --------------------------------------------------------------------------------------------------------


def is_number(value: Any) -> bool:
    """Whether it is a number, also one of numpy's; True is not, nor a whole number too large to become a float."""
    if type(value) is int:
        return abs(value) < 2**1023
    return type(value) is float or (isinstance(value, Real) and not isinstance(value, bool))


def check_delta(delta: Any) -> None:
    """Raise unless it can be the delta of a guarantee."""
    if not is_number(delta) or not 0.0 <= delta < 1.0:
        raise InvalidParameter(f"delta must be at least 0 and below 1, got {delta!r}")


def check_adjacency(adjacency: Any, of: str = "") -> None:
    """Raise unless it is one of the two."""
    if adjacency not in _ADJACENCIES:
        raise InvalidParameter(f"{of}adjacency must be one of {_ADJACENCIES}, got {adjacency!r}")


def _check_scale(kind: str, name: str, value: Any) -> None:
    if not isinstance(value, float | int) or not is_number(value) or not 0.0 < value < math.inf:
        raise InvalidParameter(f"{kind}: {name} must be a finite number above 0, got {value!r}")


def _check_count(kind: str, name: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise InvalidParameter(f"{kind}: {name} must be a whole number of at least 1, got {value!r}")


def _check_rate(kind: str, name: str, value: Any) -> None:
    if not is_number(value) or not 0.0 < value <= 1.0:
        raise InvalidParameter(f"{kind}: {name} must be above 0 and at most 1, got {value!r}")


def _check_event(kind: str, name: str, value: Any) -> None:
    for part in value if name == "events" else (value,):
        if not isinstance(part, Event):
            raise InvalidParameter(f"{kind}: only events can be held together, got {part!r}")


_CHECKS: dict[str, Callable[[str, str, Any], None]] = {
    **dict.fromkeys(("sensitivity", "sigma", "scale", "epsilon", "distance"), _check_scale),
    **dict.fromkeys(("coordinates", "parties", "categories", "times"), _check_count),
    **dict.fromkeys(("event", "events"), _check_event),
    "rate": _check_rate,
    "adjacency": lambda kind, _, value: check_adjacency(value, f"{kind}: "),
}
"""By the name of a field."""


Value = TypeVar("Value")


class Released(NamedTuple, Generic[Value]):
    """What left the private side, and what is known about it."""

    values: Value
    event: Event
