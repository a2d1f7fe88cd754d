"""Events: what was done to private rows, said completely enough to account for it, and nothing more.

A mechanism returns the event with the value it released. An event never changes its meaning; one that an accountant
does not know is refused, not guessed. `NonPrivate` is the honest name of a release without a guarantee.

A sensitivity is how far the exact answer can move, under the event's `adjacency`, when one record is added or removed
("add_remove"), or exchanged for another ("replace_one"): an L2 distance for Gaussian noise, an L1 distance for Laplace
noise, the change of any one candidate's utility for a choice.

Events are held together in four ways: `Composed` and `Repeated` on the same records, `Parallel` on disjoint ones, and
`PoissonSampled` on a secret random part of them.

In words: what (epsilon, delta) proves, and what an event says, for somebody who signs without knowing the mathematics.
All numbers are rounded against us: an epsilon, a delta or a chance up, a measured lower bound down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from numbers import Real
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args

from hedgerow.codec import to_json
from hedgerow.errors import InvalidInput, InvalidParameter

Adjacency = Literal["add_remove", "replace_one"]
_ADJACENCIES = get_args(Adjacency)


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events. A field of a name means the same in each of them, and is checked alike (`_CHECKS`)."""

    KIND: ClassVar[str] = ""  # its name in `KINDS`

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

    reason: str


@dataclass(frozen=True, slots=True)
class Gaussian(Event):
    """Real-valued Gaussian noise of standard deviation `sigma` on every coordinate."""

    sensitivity: float
    sigma: float
    adjacency: Adjacency = "add_remove"


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(Event):
    """Whole-number noise on a vector of whole numbers, drawn by `parties` parties independently and added up.

    Each draws P(k) proportional to exp(-k^2 / (2 sigma^2)) for each coordinate, so the sum has variance
    parties * sigma^2. `parties` counts only those whose noise the receiver does not know: colluding ones add nothing.
    """

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


class Laplace(_LaplaceNoise):
    """Laplace noise on real values: they are rounded to a public grid first, which the sensitivity (L1) allows for."""


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


class PermuteAndFlip(_Choice):
    """A choice by permute-and-flip (McKenna and Sheldon 2020), at the same epsilon never worse than the exponential."""


@dataclass(frozen=True, slots=True)
class GumbelChoice(Event):
    """A choice among public candidates by the largest of utilities with rounded, clipped Gumbel noise (gumbel.py).

    Its log ratios lie within an interval of length `epsilon`, as those of `Exponential`, but for noise that was
    clipped: what ran is within the statistical distance `distance` of a choice of which that is true.
    """

    sensitivity: float
    epsilon: float
    distance: float
    adjacency: Adjacency = "add_remove"


@dataclass(frozen=True, slots=True)
class RandomisedResponse(Event):
    """One of `categories` values per record: the true one with the highest chance that epsilon allows, else any other.

    A guarantee for the value of one record, whoever sees the answers: adjacency is always "replace_one".
    """

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


@dataclass(frozen=True, slots=True)
class Selected(Event):
    """The best, by a noisy score that is part of it, of a random number of runs of `event`; the number stays secret.

    The number of runs is drawn, without regard to any record, from a truncated negative binomial distribution with
    `shape` and `stop` (selection.py). The whole is (epsilon, delta)-DP, which accountants check against `event` before
    they count it. What was not selected was not released.
    """

    event: Event
    shape: float
    stop: float
    epsilon: float
    delta: float
    adjacency: Adjacency = "add_remove"

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        check_delta(self.delta)
        if not is_number(self.shape) or not -1.0 < self.shape < math.inf:
            raise InvalidParameter(f"{self.KIND}: shape must be a number above -1, got {self.shape!r}")
        if not is_number(self.stop) or not 0.0 < self.stop < 1.0:
            raise InvalidParameter(f"{self.KIND}: stop must be above 0 and below 1, got {self.stop!r}")
        for part in walk(self.event):
            if isinstance(part, NonPrivate | Selected) or getattr(part, "adjacency", self.adjacency) != self.adjacency:
                raise InvalidParameter(f"{self.KIND}: runs cannot be of {part!r} under {self.adjacency}")


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

    rate: float
    event: Event

    def parts(self) -> tuple[Event, ...]:
        """The event."""
        return (self.event,)


@dataclass(frozen=True, slots=True)
class Repeated(_Structure):
    """The same event `times` times on the same rows, with fresh randomness each time."""

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


class Composed(_Several):
    """Several events on the same rows, each of which may have been chosen after the outcome of those before."""


def walk(event: Event) -> Iterator[Event]:
    """The event, and every event inside it, each before what it holds."""
    waiting = [event]
    while waiting:
        event = waiting.pop()
        yield event
        waiting.extend(reversed(event.parts()))


KINDS: dict[str, type[Event]] = {
    "non_private": NonPrivate,
    "gaussian": Gaussian,
    "discrete_gaussian": DiscreteGaussian,
    "discrete_laplace": DiscreteLaplace,
    "laplace": Laplace,
    "exponential": Exponential,
    "permute_and_flip": PermuteAndFlip,
    "gumbel_choice": GumbelChoice,
    "randomised_response": RandomisedResponse,
    "selected": Selected,
    "composed": Composed,
    "repeated": Repeated,
    "parallel": Parallel,
    "poisson_sampled": PoissonSampled,
}
"""The name of each kind of event in files, which never changes."""

for _name, _kind in KINDS.items():
    _kind.KIND = _name


def from_dict(data: Any) -> Event:
    """The inverse of `to_dict`. An unknown kind, or a known one with other fields, is refused."""
    if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
        raise InvalidInput(f"an event is described by its kind and its fields, got {data!r}")
    kind, given = data["kind"], {key: value for key, value in data.items() if key != "kind"}
    if kind not in KINDS:
        raise InvalidInput(f"unknown event of kind {kind!r}; known are {', '.join(sorted(KINDS))}")
    wanted = {field.name for field in fields(KINDS[kind])}
    if set(given) != wanted:
        raise InvalidInput(f"an event of kind {kind!r} has fields {sorted(wanted)}, got {sorted(given)}")
    if "event" in given:
        given["event"] = from_dict(given["event"])
    if "events" in given:
        if not isinstance(given["events"], list):
            raise InvalidInput(f"the events of an event of kind {kind!r} are a list, got {given['events']!r}")
        given["events"] = tuple(from_dict(part) for part in given["events"])
    return KINDS[kind](**given)


# --- checks --------------------------------------------------------------------------------------------------------


def is_number(value: Any) -> bool:
    """Whether it is a number, also one of numpy's; True is not, nor a whole number too large to become a float."""
    if type(value) is int:
        return abs(value) < 2**1023
    return type(value) is float or (isinstance(value, Real) and not isinstance(value, bool))


def check_positive(name: str, value: Any, *, or_inf: bool = False) -> None:
    """Raise unless it is a number above 0, and a finite one if not said otherwise."""
    if not is_number(value) or not value > 0.0 or (value == math.inf and not or_inf):
        raise InvalidParameter(f"{name} must be a number above 0, got {value!r}")


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


# --- in words --------------------------------------------------------------------------------------------------------


def up(value: float, digits: int = 5) -> str:
    """Rounded up to this many digits; "infinite" where there is no limit."""
    return _rounded(value, Context(digits, ROUND_CEILING))


def down(value: float) -> str:
    """Rounded down to four digits."""
    return _rounded(value, Context(4, ROUND_FLOOR))


def _rounded(value: float, context: Context) -> str:
    """From the shortest decimal that means the float, so that 0.1 is 0.1 and not a little more."""
    # 1.0000000000000002 is 1: what a computer's own rounding adds, and a search to 13 digits, is no news.
    exact = float(value)
    if math.isinf(exact):
        return "infinite"
    number = context.create_decimal(
        repr(float(f"{exact:.12g}") if context.rounding == ROUND_CEILING else exact)
    ).normalize()
    return f"{number:e}" if number and not Decimal("1e-4") <= abs(number) < 10**6 else f"{number:f}"


def amount(epsilon: float, delta: float) -> str:
    """(epsilon, delta) as it may be printed."""
    return f"epsilon = {up(epsilon)} and delta = {up(delta)}" if delta else f"epsilon = {up(epsilon)} (and delta = 0)"


def factor(epsilon: float) -> str:
    """e^epsilon."""
    return up(math.exp(epsilon), 3) if epsilon < 20.0 else f"e^{up(epsilon)}"


def best_chance(epsilon: float, delta: float) -> float:
    """The chance of the best guess to be right, since missed + false alarms >= 2 (1 - delta) / (1 + e^epsilon).

    Kairouz, Oh and Viswanath 2015, theorem 2.1: missed + e^epsilon false >= 1 - delta, and the same with the two
    exchanged; the sum of both, halved.
    """
    return 1.0 - (1.0 - delta) / (1.0 + math.exp(min(epsilon, 600.0)))


def best_guess(epsilon: float, delta: float) -> str:
    """How often in 100 the best guess is right."""
    return up(100.0 * best_chance(epsilon, delta), 4)


def chance_beyond(epsilon: float, delta_at: Callable[[float], float]) -> float:
    """An upper bound of the chance of results that are more than e^epsilon times as likely with the row as without.

    `delta_at` is the privacy curve. With L the logarithm of that ratio, delta(t) = E[max(0, 1 - e^(t - L))], which is
    at least (1 - e^(t - epsilon)) P(L > epsilon) for every t < epsilon. So delta(t) / (1 - e^(t - epsilon)) is a bound
    for every t, and the smallest of a few is printed. (For Gaussian noise of mu the chance itself is
    Phi(mu/2 - epsilon/mu); the bound is above it, and holds for every mechanism with that curve.)
    """
    tried = [epsilon * (1.0 - 2.0 ** (-k / 4.0)) for k in range(1, 60)] + [0.0]
    bounds = [delta_at(t) / -math.expm1(t - epsilon) for t in tried if t < epsilon]
    return min(1.0, *bounds) if bounds else 1.0


ADDED = ("with the row as without it", "whether the row was there")
REPLACED = ("with one row as with another in its place", "which of the two rows was there")
"""What two neighbours are, in words: how the two worlds are compared, and what somebody would guess."""


def what_is_proved(
    epsilon: float,
    delta: float,
    *,
    beyond: float | None = None,
    neighbours: tuple[str, str] = ADDED,
) -> list[str]:
    """What holds for every question, how rare exceptions are, how well one guesses: for both of two neighbours.

    `beyond` is `chance_beyond`; without a curve at hand it is left out, and the sentence says that it may exceed delta.
    `neighbours` says how two worlds are compared and what somebody would guess: a row, or something else, was there.
    """
    compared, guessed = neighbours
    times, plus = factor(epsilon), "" if delta == 0.0 else f", plus {up(delta)}"
    proved = (
        f"Whatever anybody asks of what was released, the chance of a yes is at most {times} times as large {compared}"
        f"{plus}; and the other way round."
    )
    rare = "may be above delta" if beyond is None else f"is at most {up(beyond, 3)}"
    exceptions = (
        f"The chance that a single result comes out which is by itself more than {times} times as likely {compared} "
        f"{rare}: delta is not that chance."
    )
    guessing = (
        f"Somebody who knows everything else, and has to guess from what was released {guessed}, is "
        f"right in at most {best_guess(epsilon, delta)} of 100 cases; blind guessing reaches 50."
    )
    return [proved, exceptions, guessing] if delta else [proved, guessing]


def without_guarantee(event: Event) -> list[str]:
    """The reasons of all releases without one, each once."""
    return list(dict.fromkeys(part.reason for part in walk(event) if isinstance(part, NonPrivate)))


def sampling(event: Event) -> str:
    """Where the accounting counts on a row not having been in everything: in samples, or in parts that are disjoint."""
    sentences = []
    rates = sorted({part.rate for part in walk(event) if isinstance(part, PoissonSampled)})
    if rates:
        told = ", ".join(up(rate, 4) for rate in rates)
        sentences.append(
            f"It counts on sampling: each row took part with a chance of {told}, drawn independently and kept "
            "secret. If anybody learns which rows took part, the guarantee is weaker."
        )
    if any(isinstance(part, Selected) for part in walk(event)):
        sentences.append(
            "It counts on a number of runs that was drawn in secret and is not told, and on rows that served the runs "
            "or their scores, never both."
        )
    n_groups, n_parts = _disjoint(event)
    if n_groups == 1:
        sentences.append(f"It counts on disjoint rows: of {n_parts} parts of the training a row was in one at most.")
    elif n_groups:
        sentences.append(
            f"It counts on disjoint rows within each of {n_groups:,} groups of parts of the training: of the "
            f"parts of one group a row was in one at most, so of all of them in up to {n_groups:,}."
        )
    return " ".join(sentences) or "No sampling of rows is counted on."


def _disjoint(event: Event) -> tuple[int, int]:
    """How many groups of parts on disjoint rows there are, and the parts of all kinds of them; a part alone is none."""
    n_groups, n_parts = 0, 0
    waiting = [(event, 1)]
    while waiting:
        event, times = waiting.pop()
        if isinstance(event, Parallel) and len(event.events) > 1:
            n_groups, n_parts = n_groups + times, n_parts + len(event.events)
        inside = times * event.times if isinstance(event, Repeated) else times
        waiting += [(part, inside) for part in event.parts()]
    return n_groups, n_parts


PRACTICALLY_NONE = math.log(99.0)
"""From this epsilon on somebody who guesses between two values may be right in 99 of 100 cases."""


def meaning_for_a_person(epsilon: float) -> str:
    """What a large epsilon is worth, and from when on it is nothing; "" where it protects."""
    if epsilon < PRACTICALLY_NONE:
        return ""
    return (
        f"For a person epsilon = {up(epsilon)} is practically no protection: somebody who has to guess between "
        f"two possible records is right in up to {best_guess(epsilon, 0.0)} of 100 cases. From epsilon = "
        f"{up(PRACTICALLY_NONE, 2)} on it is 99 of 100 or more; blind guessing reaches 50."
    )
