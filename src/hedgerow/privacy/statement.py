"""Privacy statements: what is guaranteed, to whom, by which means, and what is not - in words and for machines.

The words are for somebody who has to answer for a release without knowing the mathematics. They follow the pyramid of
NIST SP 800-226: who is protected and by how much, then what that rests on in the implementation, then in the data. Each
sentence says what is proved and no more, and numbers are rounded against us (wording.py). `to_dict` holds the exact
ones, and the fields of the public registry of differential-privacy deployments.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, Self, get_args

from hedgerow._version import __version__
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.accountants import Accountant
from hedgerow.privacy.events import Adjacency, Event, NonPrivate, Parallel, PoissonSampled, Repeated, from_dict, walk
from hedgerow.privacy.wording import ADDED, REPLACED, amount, best_chance, chance_beyond, down, up, what_is_proved

FORMAT = 1
"""The version of what `to_dict` gives."""

ASSUMPTIONS = (
    "Noise was drawn from the operating system's secret randomness, which nobody could foresee, see or repeat.",
    "The model was released once. What was computed on the way and not released stays with the one who trained.",
)
"""What every statement takes for granted of the implementation and those who run it, in words."""

ASSUMED_OF_DATA = (
    "One row is one record: what is protected is one row of the table.",
    "The schema (columns, bounds of numbers, levels of categories, labels) is public and was not made from these rows.",
    "The names and types of the table's columns are public, and that it has one label for each row.",
)
"""What every statement takes for granted of the rows, in words."""

NOT_COVERED = (
    "further trainings on the same rows, or on tables that share rows: their epsilons and deltas add up",
    "several rows of one person, or of people who depend on each other: k rows cost k times epsilon, and more delta",
    "what is true of people in general: a model may say much about somebody who was never in the table",
    "the choice of parameters, if several were tried on these rows",
    "the schema itself, if it was made from these rows",
    "log files, metrics and other output that was computed from the rows beside the model and this statement",
    "how long the training took, how much memory it needed, and what else could be observed of the machine",
)
"""What no statement promises, in words."""

_ADJACENCY = {
    "add_remove": "adding one row to the table, or removing one, whatever it holds",
    "replace_one": "exchanging one row of the table for any other; the number of rows is taken to be public",
}
_OF_IMPLEMENTATION = " of the implementation and of those who run it"
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of the training and what it costs: `epsilon` where it is pure, `share` of the whole budget, or both."""

    name: str
    mechanism: str
    epsilon: float | None = None
    share: float | None = None
    releases: int | None = None
    words: str = ""

    def __post_init__(self) -> None:
        if self.epsilon is not None and not self.epsilon >= 0.0:
            raise InvalidParameter(f"stage {self.name!r}: epsilon must be at least 0, got {self.epsilon!r}")
        if self.share is not None and not 0.0 <= self.share <= 1.0:
            raise InvalidParameter(f"stage {self.name!r}: share must be between 0 and 1, got {self.share!r}")
        if self.releases is not None and self.releases < 0:
            raise InvalidParameter(f"stage {self.name!r}: releases must be at least 0, got {self.releases!r}")

    def __str__(self) -> str:
        facts = []
        if self.epsilon is not None:
            facts.append("no limit" if math.isinf(self.epsilon) else f"epsilon {up(self.epsilon)}")
        if self.share is not None:
            facts.append(f"{up(100.0 * self.share, 3)} per cent of the budget")
        if self.releases is not None:
            facts.append("1 release" if self.releases == 1 else f"{self.releases:,} releases")
        sentence = f"{self.name}: {self.mechanism}"
        if facts:
            sentence += f" ({', '.join(facts)})"
        return f"{sentence}. {self.words}".rstrip() if self.words else f"{sentence}."

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {f.name: _encoded(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True)
class PrivacyStatement:
    """What holds for everything that left the training, under `adjacency`: (epsilon, delta)-differential privacy.

    `event` is what was done to the rows, so that anybody can do the accounting again. `not_private` gives reasons why
    the guarantee does not hold; with any, or an infinite epsilon, the words begin with NOT PRIVATE. `audit` is what an
    attack measured (`with_audit`), `facts` whatever else is worth keeping; both hold what JSON can hold.
    `chance_beyond` bounds the chance of results that are by themselves more than e^epsilon times as likely
    (`wording.chance_beyond`, from the privacy curve of what was planned); None where nobody has computed it. `date` is
    when the training began, ISO 8601 in UTC.
    """

    protocol: str
    epsilon: float
    delta: float
    adjacency: Adjacency
    event: Event
    stages: tuple[Stage, ...]
    accountant: str
    assumptions: tuple[str, ...] = ASSUMPTIONS
    not_covered: tuple[str, ...] = NOT_COVERED
    not_private: tuple[str, ...] = ()
    audit: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__
    assumed_of_data: tuple[str, ...] = ASSUMED_OF_DATA
    chance_beyond: float | None = None
    date: str | None = None

    def __post_init__(self) -> None:
        if not self.epsilon >= 0.0:
            raise InvalidParameter(f"epsilon must be at least 0, got {self.epsilon!r}")
        if not 0.0 <= self.delta < 1.0:
            raise InvalidParameter(f"delta must be at least 0 and below 1, got {self.delta!r}")
        if self.adjacency not in get_args(Adjacency):
            raise InvalidParameter(f"adjacency must be one of {get_args(Adjacency)}, got {self.adjacency!r}")
        for part in walk(self.event):
            if getattr(part, "adjacency", self.adjacency) != self.adjacency:
                raise InvalidParameter(f"a statement for {self.adjacency} cannot rest on {part!r}")
        if self.epsilon < math.inf and not self.not_private and _without_guarantee(self.event):
            raise InvalidParameter(
                f"epsilon = {self.epsilon} is claimed, but a release had no guarantee: {_without_guarantee(self.event)}"
            )
        if self.chance_beyond is not None and not 0.0 <= self.chance_beyond <= 1.0:
            raise InvalidParameter(f"chance_beyond must be between 0 and 1, got {self.chance_beyond!r}")
        if not isinstance(self.date, str | None):
            raise InvalidParameter(f"date must be text, got {self.date!r}")
        for name in ("stages", "assumptions", "assumed_of_data", "not_covered", "not_private"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "facts", _plain(self.facts, "facts"))
        if self.audit is not None:
            object.__setattr__(self, "audit", _plain(self.audit, "audit"))

    @classmethod
    def of(cls, accountant: Accountant, delta: float, *, protocol: str, stages: tuple[Stage, ...], **more: Any) -> Self:
        """A statement whose epsilon, event, curve and adjacency are an accountant's own."""
        epsilon = accountant.epsilon(delta)
        return cls(
            protocol, epsilon, delta, accountant.adjacency, accountant.event, stages, accountant.description,
            chance_beyond=None if math.isinf(epsilon) else chance_beyond(epsilon, accountant.delta), **more,
        )  # fmt: skip

    def with_audit(self, *, lower_bound: float, confidence: float, attack: str, **facts: Any) -> Self:
        """The same with what an attack measured: with this confidence, the true epsilon is at least `lower_bound`."""
        if not 0.0 <= lower_bound < math.inf:
            raise InvalidParameter(f"lower_bound must be a finite number of at least 0, got {lower_bound!r}")
        if not 0.0 < confidence < 1.0:
            raise InvalidParameter(f"confidence must be between 0 and 1, got {confidence!r}")
        measured = {"lower_bound": lower_bound, "confidence": confidence, "attack": attack}
        return replace(self, audit={**facts, **measured})

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why this is not private; empty if it is."""
        reasons = list(self.not_private)
        if math.isinf(self.epsilon):
            reasons += [reason for reason in _without_guarantee(self.event) if reason not in reasons]
            reasons = reasons or ["epsilon is infinite"]
        if self.audit is not None and self.audit.get("lower_bound", 0.0) > self.epsilon:
            reasons.append(
                f"an attack measured an epsilon of at least {down(self.audit['lower_bound'])}, more than is claimed"
            )
        return tuple(reasons)

    @property
    def is_private(self) -> bool:
        """Whether the guarantee holds under the assumptions."""
        return not self.reasons

    # --- words -------------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = _WIDTH) -> str:
        """The words, in lines of at most `width` characters."""
        return "\n".join(_wrapped(self._paragraphs(), width))

    def _paragraphs(self) -> Iterator[str]:
        """Paragraphs; lines of a list begin with "- "."""
        if not self.is_private:
            yield f"NOT PRIVATE: {'; '.join(self.reasons)}."
            yield ""
        yield f"Privacy statement of a model trained with {self.protocol} (Hedgerow {self.version})."
        if self.date is not None:
            yield f"The training began at {self.date}."
        yield ""
        yield from self._guarantee()
        if self.stages:
            yield ""
            yield "How it was spent:"
            yield from (f"- {stage}" for stage in self.stages)
        yield ""
        yield f"Accounting: {self.accountant}. {self._sampling()}"
        if self.audit is not None:
            yield self._measured()
        for title, lines in (
            (f"What is assumed{_OF_IMPLEMENTATION if self.assumed_of_data else ''}:", self.assumptions),
            ("What is assumed of the data:", self.assumed_of_data),
            ("What is not covered:", self.not_covered),
        ):
            if lines:
                yield ""
                yield title
                yield from (f"- {line}" for line in lines)

    def _guarantee(self) -> Iterator[str]:
        if math.isinf(self.epsilon):
            yield "There is no guarantee: epsilon is infinite, and the model may show any row it was trained on."
            return
        if not self.is_private:
            yield "The guarantee below does NOT hold, for the reason above. It says what would hold without it."
        yield "What is protected: one row of the table."
        yield f"Compared are two trainings that differ by {_ADJACENCY[self.adjacency]}."
        claim = amount(self.epsilon, self.delta)
        yield f"The guarantee: differential privacy with {claim}, for all that was released, taken together."
        yield from what_is_proved(
            self.epsilon,
            self.delta,
            beyond=self.chance_beyond,
            neighbours=ADDED if self.adjacency == "add_remove" else REPLACED,
        )

    def _sampling(self) -> str:
        parts = list(walk(self.event))
        sentences = []
        rates = sorted({part.rate for part in parts if isinstance(part, PoissonSampled)})
        if rates:
            told = ", ".join(up(rate, 4) for rate in rates)
            sentences.append(
                f"It counts on sampling: each row took part with a chance of {told}, drawn independently and kept "
                "secret. If anybody learns which rows took part, the guarantee is weaker."
            )
        n_groups, n_parts = _disjoint(self.event)
        if n_groups == 1:
            sentences.append(
                f"It counts on disjoint rows: of {n_parts} parts of the training a row was in one at most."
            )
        elif n_groups:
            sentences.append(
                f"It counts on disjoint rows within each of {n_groups:,} groups of parts of the training: of the "
                f"parts of one group a row was in one at most, so of all of them in up to {n_groups:,}."
            )
        return " ".join(sentences) or "No sampling of rows is counted on."

    def _measured(self) -> str:
        audit = {"attack": "an attack", **(self.audit or {})}
        if "lower_bound" not in audit or "confidence" not in audit:
            return f"Measured: {audit}."
        low = audit["lower_bound"]
        verdict = (
            "It is below what is guaranteed, as it has to be."
            if low <= self.epsilon
            else "It is ABOVE what is claimed, so the claim is wrong."
        )
        return (
            f"Measured: {audit['attack']} shows that no epsilon below {down(low)} could be promised "
            f"(confidence {down(100.0 * audit['confidence'])} per cent). {verdict}"
        )

    # --- for machines ------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: an infinity is the text "inf". `words` and `stamp` are for readers; `from_dict` derives them."""
        return {
            "format": FORMAT,
            "hedgerow": self.version,
            "stamp": None if self.is_private else "NOT PRIVATE",
            "protocol": self.protocol,
            "date": self.date,
            "unit": "one row",
            "epsilon": _encoded(self.epsilon),
            "delta": self.delta,
            "chance_beyond": self.chance_beyond,
            "best_guess": best_chance(self.epsilon, self.delta),
            "adjacency": self.adjacency,
            "event": self.event.to_dict(),
            "stages": [stage.to_dict() for stage in self.stages],
            "accountant": self.accountant,
            "assumptions": list(self.assumptions),
            "assumed_of_data": list(self.assumed_of_data),
            "not_covered": list(self.not_covered),
            "not_private": list(self.not_private),
            "audit": _encoded(self.audit),
            "facts": _encoded(self.facts),
            "registry": self._registry(),
            "words": str(self),
        }

    def _registry(self) -> dict[str, Any]:
        """The fields of the public registry of differential-privacy deployments."""
        kind = "pure" if self.delta == 0.0 else "approximate"
        return {
            "flavour": kind if self.is_private else "none",
            "loss": {"epsilon": _encoded(self.epsilon), "delta": self.delta, "chance_beyond": self.chance_beyond},
            "unit": {"add_remove": "one row, added or removed", "replace_one": "one row, exchanged"}[self.adjacency],
            "model": "central",
            "accounting": self.accountant,
            "implementation": f"Hedgerow {self.version}",
        }

    @classmethod
    def from_dict(cls, data: Any) -> PrivacyStatement:
        """The inverse of `to_dict`. What is not a statement, or of another format, is refused.

        Statements of earlier versions have neither a date nor `chance_beyond`, and their assumptions in one list.
        """
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise InvalidInput(f"not a privacy statement of format {FORMAT}")
        try:
            return cls(
                data["protocol"],
                _decoded(data["epsilon"]),
                data["delta"],
                data["adjacency"],
                from_dict(data["event"]),
                tuple(Stage(**{key: _decoded(value) for key, value in stage.items()}) for stage in data["stages"]),
                data["accountant"],
                tuple(data["assumptions"]),
                tuple(data["not_covered"]),
                tuple(data["not_private"]),
                data["audit"],
                data["facts"],
                data["hedgerow"],
                tuple(data.get("assumed_of_data", ())),
                data.get("chance_beyond"),
                data.get("date"),
            )
        except (KeyError, TypeError, AttributeError, InvalidParameter) as error:
            raise InvalidInput(f"a damaged privacy statement: {error}") from error


def _without_guarantee(event: Event) -> list[str]:
    """The reasons of all releases without one, each once."""
    return list(dict.fromkeys(part.reason for part in walk(event) if isinstance(part, NonPrivate)))


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


def _wrapped(paragraphs: Iterator[str], width: int) -> Iterator[str]:
    for text in paragraphs:
        hanging = "  " if text.startswith("- ") else ""
        yield from textwrap.wrap(text, width, subsequent_indent=hanging, break_on_hyphens=False) or [""]


# --- values that JSON can hold ---------------------------------------------------------------------------------------


def _plain(value: Any, where: str) -> Any:
    """The value as JSON has it, with "inf" as the number it stands for; what JSON cannot hold is refused."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise InvalidParameter(f"{where}: names must be texts, got {sorted(map(repr, value))}")
        return {key: _plain(part, f"{where}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, where) for part in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return float(value) if value in ("inf", "-inf") else value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and not math.isnan(value):
        return float(value)
    raise InvalidParameter(f"{where}: JSON cannot hold {value!r}")


def _encoded(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {key: _encoded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_encoded(part) for part in value]
    return value


def _decoded(value: Any) -> Any:
    return math.inf if value == "inf" else value
