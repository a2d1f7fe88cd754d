"""What a report tells: all of it, gathered before anything is written as HTML.

Whoever gathers it (`of_run`, `of_node`, `of_model`) decides what the reader may know. `sections` only writes it down: a
fact that is not in here is on no page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

from hedgerow.aborts import stated
from hedgerow.codec import from_json
from hedgerow.errors import InvalidInput
from hedgerow.ledger import Ledger
from hedgerow.report.flows import Flow, flows
from hedgerow.statement import Registry, RunDocument, Statement


@dataclass(frozen=True)
class Passed:
    """What was done together: the ledgers that the reader may see, and who did what in it."""

    name: str  # "The training", "Matching rows by ids"
    protocol: str
    cast: Mapping[str, str]  # party -> role, in order
    books: Mapping[str, Ledger]  # the reader's own, or everybody's
    seconds: float | None = None

    @cached_property
    def flows(self) -> list[Flow]:
        """What passed, kind by kind; ledgers can be long, and are read once for this."""
        return flows(self.books)


class Ranked(NamedTuple):
    """Numbers of columns: importances, or mean contributions."""

    caption: str
    measure: str
    values: Mapping[str, float]
    unit: str = ""
    note: str = ""


class Curve(NamedTuple):
    """A line of numbers, one after each round of boosting."""

    name: str
    values: Sequence[float]


class Quality(NamedTuple):
    """How good predictions are on rows whose labels the reader has."""

    rows: str  # which rows: "16,281 rows of test.parquet"
    scores: Mapping[str, float]
    roc: Sequence[tuple[float, float]] = ()  # false positive rate, true positive rate
    calibration: Sequence[tuple[float, float, int]] = ()  # mean prediction, mean label, rows
    calibrated: str = "share of rows with the second class"


class Budget(NamedTuple):
    """A limit on what all runs together may cost some rows, and what is used up."""

    name: str
    epsilon: float
    delta: float
    spent_epsilon: float
    spent_delta: float


@dataclass(frozen=True, kw_only=True)
class Told:
    """All facts of a report."""

    title: str
    subtitle: str
    protocol: str
    party: str | None  # whose report it is; None: of somebody who has everybody's books
    trained: Sequence[str]  # sentences: what was trained
    cast: Mapping[str, str] = field(default_factory=dict)  # party -> role; empty: one table in one place
    passed: Sequence[Passed] = ()  # the training first
    statement: Statement | None = None  # None: nothing is guaranteed, or `guarantee_instead` says where to look
    guarantee_instead: str = ""
    statement_note: str = ""  # where the statement comes from, if that needs a word
    ranked: Sequence[Ranked] = ()
    curves: Mapping[str, Sequence[Curve]] = field(default_factory=dict)  # name of the metric -> lines
    quality: Quality | None = None
    is_from_rows: bool = False  # something on the page was computed from rows, without noise
    attacks: Sequence[Mapping[str, Any]] = ()  # as `hedgerow attack --json` has them
    budgets: Sequence[Budget] = ()
    again: str = ""  # whether the same rows give the same model
    facts: Mapping[str, str] = field(default_factory=dict)  # to repeat it: versions, ids, digests
    commands: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)  # the job, as JSON has it


def read_statement(document: Mapping[str, Any]) -> Statement:
    """The statement of a run that was written to disk as `to_dict` gives it. InvalidInput if it is not one."""
    names = {entry.name for entry in fields(RunDocument)}
    try:
        read = from_json(RunDocument, {name: document[name] for name in names}, "statement")
    except KeyError as problem:
        raise InvalidInput(f"not the statement of a run: it has no {problem}") from None
    registry = read.registry if isinstance(read.registry, Registry) else None
    return Statement(
        read.protocol,
        read.guarantee,
        read.assumed_of_parties,
        read.assumed_of_data,
        tuple(gap for gap in read.not_covered if gap != stated()),  # which every statement adds by itself
        {name: value for name, value in document.items() if name not in names},
        registry,
        read.stamp,
        read.date,
    )
