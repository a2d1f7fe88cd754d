"""Statements: what is guaranteed, to whom, by which means, and what is not - in words and for machines.

The words are for somebody who has to answer for a release without knowing the mathematics. They follow the pyramid of
NIST SP 800-226: who is protected and by how much, then what that rests on in the parties and the implementation, then
in the data. Each sentence says what is proved and no more, and numbers are rounded against us (privacy/events.py).
`to_dict` holds the exact ones, and the fields of the public registry of differential-privacy deployments.

    Statement           of every run; a protocol of several parties writes its sentences itself
    PrivacyStatement    of a model from one table: one accountant saw every release, so that guarantee, stamp and
                        registry follow from numbers and are not written by anybody

What `to_dict` gives has a schema: `RunDocument` with the facts beside it, or `ModelDocument`. What the facts are called
and what each says: docs/reference/statement.md.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, Literal

from hedgerow._version import __version__
from hedgerow.aborts import DATA_DEPENDENT, stated
from hedgerow.codec import AsJson, from_json, to_json
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.events import (
    ADDED,
    REPLACED,
    Adjacency,
    Event,
    amount,
    best_chance,
    check_adjacency,
    check_delta,
    down,
    from_dict,
    sampling,
    up,
    walk,
    what_is_proved,
    without_guarantee,
)

ASSUMPTIONS = (
    "Noise was drawn from the operating system's secret randomness, which nobody could foresee, see or repeat.",
    "The model was released once. What was computed on the way and not released stays with the one who trained.",
)
"""What every statement of a model takes for granted of the implementation and those who run it, in words."""

ASSUMED_OF_DATA = (
    "One row is one record: what is protected is one row of the table.",
    "The schema (columns, bounds of numbers, levels of categories, labels) is public and was not made from these rows.",
    "The names and types of the table's columns are public, and that it has one label for each row.",
)
"""What every statement of a model takes for granted of the rows, in words."""

PARAMETERS_TRIED = "the choice of parameters, if several were tried on these rows"

NOT_COVERED = (
    "further trainings on the same rows, or on tables that share rows: their epsilons and deltas add up",
    "several rows of one person, or of people who depend on each other: k rows cost k times epsilon, and more delta",
    "what is true of people in general: a model may say much about somebody who was never in the table",
    PARAMETERS_TRIED,
    "the schema itself, if it was made from these rows",
    "log files, metrics and other output that was computed from the rows beside the model and this statement",
    "how long the training took, how much memory it needed, and what else could be observed of the machine",
)
"""What no statement of a model promises, in words."""

_ADJACENCY = {
    "add_remove": "adding one row to the table, or removing one, whatever it holds",
    "replace_one": "exchanging one row of the table for any other; the number of rows is taken to be public",
}
_WIDTH = 100
Section = tuple[str, Iterable[str]]
"""A title and the sentences below it, as a list; without a title they are paragraphs."""


# --- what is written for machines ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Registry(AsJson):
    """The fields of the public registry of differential-privacy deployments, where a run has any such guarantee."""

    flavour: str  # "pure", "approximate", "none"
    loss: Mapping[str, Any]  # {"epsilon": 1.0, "delta": 1e-6}, and more of its own kind
    unit: str  # what is protected: "one row", "one value of one column", ...
    model: str  # "central", "local", "distributed": who adds the noise
    accounting: str
    implementation: str = f"Hedgerow {__version__}"


@dataclass(frozen=True)
class RunDocument:
    """The JSON of a statement of a run. The facts stand beside these, under names of their own."""

    words: str
    protocol: str
    hedgerow: str  # the version
    date: str | None
    stamp: str | None
    guarantee: tuple[str, ...]
    assumed_of_parties: tuple[str, ...]
    assumed_of_data: tuple[str, ...]
    not_covered: tuple[str, ...]
    data_dependent_aborts: tuple[str, ...]  # reasons to stop early that can follow from protected rows
    registry: Registry | None


@dataclass(frozen=True, kw_only=True)
class ModelDocument:
    """The JSON of a statement of a model. Earlier versions wrote fewer fields: those that have a default here."""

    format: Literal[1]
    hedgerow: str  # the version
    stamp: str | None
    protocol: str
    date: str | None = None
    unit: str
    epsilon: float
    delta: float
    chance_beyond: float | None = None
    best_guess: float | None = None
    adjacency: str
    event: Any  # of privacy/events.py
    stages: tuple[Stage, ...]
    accountant: str
    assumptions: tuple[str, ...]
    assumed_of_data: tuple[str, ...] = ()
    not_covered: tuple[str, ...]
    not_private: tuple[str, ...]
    audit: Mapping[str, Any] | None
    facts: Mapping[str, Any]
    registry: Registry | None = None
    words: str


# --- statements ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """What holds after a run, in short sentences and as facts for machines. `stamp` warns before everything else."""

    protocol: str
    guarantee: tuple[str, ...]  # unit and epsilon first, then who learned what
    assumed_of_parties: tuple[str, ...]  # and of the implementation
    assumed_of_data: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    registry: Registry | None = None
    stamp: str | None = None
    date: str | None = None  # ISO 8601 in UTC: when a run of several parties ended, or the training of a model began

    def __str__(self) -> str:
        return self.text()

    @property
    def words(self) -> str:
        """The whole statement."""
        return self.text()

    def text(self, width: int = _WIDTH) -> str:
        """The words, in lines of at most `width` characters."""
        lines = list(self._opening(width))
        for title, sentences in self.sections():
            told = [f"- {sentence}" if title else sentence for sentence in sentences]
            if told:
                lines += ["", *_wrapped([title, *told] if title else told, width)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from hedgerow.report.page import fragment
        from hedgerow.report.sections import statement_part

        return fragment(statement_part(self))

    def _opening(self, _width: int) -> Iterator[str]:
        when = "" if self.date is None else f", {self.date}"
        if self.stamp:
            yield f"{self.stamp}."
        yield f"Statement of a run of {self.protocol} (Hedgerow {__version__}{when})."

    def sections(self) -> Iterator[Section]:
        """Titles and sentences, in their order: all that the statement says."""
        yield "What is guaranteed, and who learned what:", self.guarantee
        yield "What is assumed of the parties and the implementation:", self.assumed_of_parties
        yield "What is assumed of the data:", self.assumed_of_data
        yield "Not covered:", self._gaps

    @property
    def _gaps(self) -> tuple[str, ...]:
        """All that is not covered; what a party tells its peers when it stops early never is."""
        return (*self.not_covered, stated())

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: a `RunDocument`, with the facts beside it."""
        aborts = tuple(reason.name.lower() for reason in sorted(DATA_DEPENDENT))
        own = {"hedgerow": __version__, "not_covered": self._gaps, "data_dependent_aborts": aborts}
        document = RunDocument(**(_like(self, RunDocument) | own))
        return {**to_json(document), **self.facts}


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


@dataclass(frozen=True)
class PrivacyStatement(Statement):
    """What holds for everything that left the training, under `adjacency`: (epsilon, delta)-differential privacy.

    `event` is what was done to the rows, so that anybody can do the accounting again. `not_private` gives reasons why
    the guarantee does not hold; with any, or an infinite epsilon, the words begin with NOT PRIVATE. `audit` is what an
    attack measured; it and the facts hold what JSON can hold. `chance_beyond` bounds the chance of
    results that are by themselves more than e^epsilon times as likely (`privacy.events.chance_beyond`, from the privacy
    curve of what was planned); None where nobody has computed it.
    """

    guarantee: tuple[str, ...] = field(init=False)
    assumed_of_parties: tuple[str, ...] = ASSUMPTIONS
    assumed_of_data: tuple[str, ...] = ASSUMED_OF_DATA
    not_covered: tuple[str, ...] = NOT_COVERED
    registry: Registry | None = field(init=False)
    stamp: str | None = field(init=False)
    epsilon: float = field(kw_only=True)
    delta: float = field(kw_only=True)
    adjacency: Adjacency = field(kw_only=True)
    event: Event = field(kw_only=True)
    stages: tuple[Stage, ...] = field(kw_only=True)
    accountant: str = field(kw_only=True)
    not_private: tuple[str, ...] = ()
    audit: Mapping[str, Any] | None = None
    chance_beyond: float | None = None
    version: str = __version__

    def __post_init__(self) -> None:
        if not self.epsilon >= 0.0:
            raise InvalidParameter(f"epsilon must be at least 0, got {self.epsilon!r}")
        check_delta(self.delta)
        check_adjacency(self.adjacency)
        for part in walk(self.event):
            if getattr(part, "adjacency", self.adjacency) != self.adjacency:
                raise InvalidParameter(f"a statement for {self.adjacency} cannot rest on {part!r}")
        if self.epsilon < math.inf and not self.not_private and without_guarantee(self.event):
            raise InvalidParameter(
                f"epsilon = {self.epsilon} is claimed, but a release had no guarantee: {without_guarantee(self.event)}"
            )
        if self.chance_beyond is not None and not 0.0 <= self.chance_beyond <= 1.0:
            raise InvalidParameter(f"chance_beyond must be between 0 and 1, got {self.chance_beyond!r}")
        if not isinstance(self.date, str | None):
            raise InvalidParameter(f"date must be text, got {self.date!r}")
        plain: dict[str, Any] = {
            name: tuple(getattr(self, name))
            for name in ("stages", "assumed_of_parties", "assumed_of_data", "not_covered", "not_private")
        }
        plain |= {"facts": _plain(self.facts, "facts"), "audit": _plain(self.audit, "audit")}
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "stamp", None if self.is_private else "NOT PRIVATE")
        object.__setattr__(self, "guarantee", tuple(self._guarantees()))
        object.__setattr__(self, "registry", self._registry())

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why this is not private; empty if it is."""
        reasons = list(self.not_private)
        if math.isinf(self.epsilon):
            reasons += [reason for reason in without_guarantee(self.event) if reason not in reasons]
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

    def _opening(self, width: int) -> Iterator[str]:
        if self.reasons:
            yield from _wrapped([f"NOT PRIVATE: {'; '.join(self.reasons)}."], width)
            yield ""
        title = [f"Privacy statement of a model trained with {self.protocol} (Hedgerow {self.version})."]
        if self.date is not None:
            title.append(f"The training began at {self.date}.")
        yield from _wrapped(title, width)

    def sections(self) -> Iterator[Section]:
        """Titles and sentences, in their order: all that the statement says after its first lines."""
        measured = [] if self.audit is None else [self._measured(self.audit)]
        whose = " of the implementation and of those who run it" if self.assumed_of_data else ""
        yield "", self.guarantee
        yield "How it was spent:", map(str, self.stages)
        yield "", [f"Accounting: {self.accountant}. {sampling(self.event)}", *measured]
        yield f"What is assumed{whose}:", self.assumed_of_parties
        yield "What is assumed of the data:", self.assumed_of_data
        yield "What is not covered:", self.not_covered

    def _guarantees(self) -> Iterator[str]:
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

    def _measured(self, audit: Mapping[str, Any]) -> str:
        audit = {"attack": "an attack", **audit}
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

    def _registry(self) -> Registry:
        flavour = "pure" if self.delta == 0.0 else "approximate"
        return Registry(
            flavour if self.is_private else "none",
            {"epsilon": self.epsilon, "delta": self.delta, "chance_beyond": self.chance_beyond},
            {"add_remove": "one row, added or removed", "replace_one": "one row, exchanged"}[self.adjacency],
            "central",
            self.accountant,
            f"Hedgerow {self.version}",
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: a `ModelDocument`. What follows from the rest in it is for readers; `from_dict` derives it."""
        own = {"format": 1, "hedgerow": self.version, "unit": "one row", "assumptions": self.assumed_of_parties}
        own["best_guess"] = best_chance(self.epsilon, self.delta)
        document: dict[str, Any] = to_json(ModelDocument(**(_like(self, ModelDocument) | own)))
        return document

    @classmethod
    def from_dict(cls, data: Any) -> PrivacyStatement:
        """The inverse of `to_dict`. What is not a statement, or of another format, is refused."""
        if not isinstance(data, Mapping) or data.get("format") != 1:
            raise InvalidInput("not a privacy statement of format 1")
        try:
            known = {entry.name for entry in fields(ModelDocument)}
            read = from_json(ModelDocument, {name: data[name] for name in data if name in known}, "statement")
            same = {entry.name for entry in fields(cls) if entry.init} & known - {"event"}
            given = {name: getattr(read, name) for name in same}
            return cls(**given, event=from_dict(read.event), assumed_of_parties=read.assumptions, version=read.hedgerow)
        except (TypeError, AttributeError, InvalidInput, InvalidParameter) as error:
            raise InvalidInput(f"a damaged privacy statement: {error}") from error


def _like(statement: Statement, document: type[RunDocument | ModelDocument]) -> dict[str, Any]:
    """Those fields of a document that a statement has under the same name."""
    names = (entry.name for entry in fields(document))
    return {name: getattr(statement, name) for name in names if hasattr(statement, name)}


def _wrapped(paragraphs: Iterable[str], width: int) -> Iterator[str]:
    for text in paragraphs:
        hanging = "  " if text.startswith("- ") else ""
        yield from textwrap.wrap(text, width, subsequent_indent=hanging, break_on_hyphens=False, break_long_words=False)


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
