"""Which attacks apply to a recorded run, and what they came to: what `hedgerow attack` prints.

    run = fed.fit("vertical.noised_gradients", epsilon=2, delta=1e-5, record=True)
    for outcome in attacked(Context(run, labels={"bank": y})):
        print(outcome.attack, outcome.value, outcome.verdict)

An attack works from the attacker's transcript, with the attacker's own table where it needs one. Truth (labels, tables
of others) is there to count with only; without it an attack says what it claims to have found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from hedgerow.attacks.results import Interval
from hedgerow.engine.dtypes import Floats
from hedgerow.engine.table import Table, read_table
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.estimators.inputs import read_classes
from hedgerow.federation.alignment import take_rows
from hedgerow.federation.run import Run
from hedgerow.protocols.vertical.common.messages import GoAhead
from hedgerow.runtime.protocol import PartyData, names
from hedgerow.transport.transcripts import RECEIVED, SENT, Transcript

HOLDS, BROKEN, INCONCLUSIVE, AS_STATED = "holds", "BROKEN", "inconclusive", "as stated"
NOT_SCORED, NOT_RUN = "not scored", "not run"

CONFIDENCE = 0.9999
"""Of all intervals: a ceiling that the best attack just reaches must not look broken by bad luck."""


@dataclass(frozen=True)
class Outcome:
    """One attack by one party, and what it came to."""

    attack: str
    attacker: str
    target: str
    found: str
    """What the attacker claims to know now, in words."""
    verdict: str
    """"holds": the interval reaches down to what the statement allows. "BROKEN": all of it is beyond, and nothing else
    explains that; "inconclusive": something else may. "as stated": nothing was promised against it."""
    measure: str | None = None  # "AUC", "accuracy" or another share
    value: Interval | None = None  # with CONFIDENCE
    chance: float | None = None
    ceiling: float | None = None  # what the statement allows; None: it promises nothing

    @property
    def reason(self) -> str | None:
        """Why the verdict follows from the interval, in words; None where nothing was counted or promised."""
        if self.value is None or self.ceiling is None:
            return None
        if self.verdict == BROKEN:
            return "all of it is above the ceiling"
        if self.verdict == INCONCLUSIVE:
            return "all of it is above the ceiling, but columns that tell labels add to it; all_but_one decides"
        if self.value.estimate > self.ceiling:
            return "it reaches below the ceiling, so chance can explain a result above it"
        return "the result is not above the ceiling"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        value = None if self.value is None else {**self.value._asdict(), "confidence": CONFIDENCE}
        return {**asdict(self), "value": value, "reason": self.reason}


class Aim(NamedTuple):
    """Which attack, by whom, on what."""

    attack: str
    attacker: str
    target: str

    def says(self, verdict: str, found: str) -> Outcome:
        """An outcome without a number."""
        return Outcome(*self, found, verdict)

    def scored(
        self,
        found: str,
        measure: str,
        value: Interval,
        *,
        chance: float | None = None,
        ceiling: float | None = None,
        beyond: str = BROKEN,
    ) -> Outcome:
        """With the verdict that follows from the interval: `beyond` if even its lower end is above the ceiling."""
        verdict = AS_STATED if ceiling is None else beyond if value.low > ceiling else HOLDS
        return Outcome(*self, found, verdict, measure, value, chance, ceiling)


@dataclass(frozen=True)
class Context:
    """A recorded run, and what those who attack or count know beside it."""

    run: Run
    labels: Mapping[str, Any] = field(default_factory=dict)  # party -> its labels, as they were given to the Federation
    tables: Mapping[str, Any] = field(default_factory=dict)  # party -> its table; other columns are ignored

    def __post_init__(self) -> None:
        known = set(self.run.ledgers)
        for what, given in (("labels", self.labels), ("a table", self.tables)):
            for party in given:
                if party not in known:
                    raise InvalidParameter(f"{what} of {party!r}, but the run's parties are {', '.join(sorted(known))}")

    @property
    def job(self) -> Any:
        """What was run."""
        return self.run.job

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the run's statement promises."""
        return self.run.statement().facts

    def table(self, party: str, features: Any, n_rows: int | None = None) -> Table | None:
        """A party's rows in the columns of its part of the model, if its table was given; `n_rows` must be there."""
        if party not in self.tables:
            return None
        X = _only(self._common(party, self.tables[party]), [feature.name for feature in features])
        table = read_table(X, like=features, where=f"{party}: table")
        _check_rows(party, "table", table.n_rows, n_rows)
        return table

    def data(self, party: str, n_rows: int) -> PartyData | None:
        """The same as what a party of a vertical training brings."""
        table = self.table(party, self.run.model.parts[party].features, n_rows)
        return None if table is None else PartyData(table)

    def ones(self, party: str, n_rows: int) -> Floats | None:
        """A party's labels as 0 and 1, if they were given; two classes only."""
        if party not in self.labels:
            return None
        classes = self.run.model.classes_.tolist()
        given = self._common(party, self.labels[party])
        _check_rows(party, "labels", len(given), n_rows)
        values = read_classes(given, n_rows, f"{party}: labels")
        is_second = values == classes[1]
        if not np.asarray(is_second | (values == classes[0])).all():
            raise InvalidInput(f"{party}: labels must be the model's classes, {classes[0]!r} and {classes[1]!r}")
        return np.asarray(is_second, np.float64)

    def _common(self, party: str, rows: Any) -> Any:
        """The rows that were trained on, where those were found by ids."""
        alignment = self.run.alignment
        if alignment is None or party not in alignment.rows or len(rows) == len(alignment.rows[party]):
            return rows
        return take_rows(rows, alignment.rows[party])


def _only(X: Any, wanted: list[str]) -> Any:
    """A table without columns that were not trained on, if it has names."""
    there = list(getattr(X, "column_names", getattr(X, "columns", ())))
    if there == wanted or not set(wanted) <= set(there):
        return X
    return X.select(wanted) if hasattr(X, "select") else X[wanted]


def _check_rows(party: str, what: str, n_rows: int, wanted: int | None) -> None:
    if wanted is not None and n_rows != wanted:
        raise InvalidInput(f"{party}: its {what} has {n_rows} rows, but the run was trained on {wanted}")


_MASKED, _HISTOGRAMS, _MP_FEDXGB = "vertical.masked_gradients", "vertical.private_histograms", "vertical.mp_fedxgb"
_ON_SHARES = ("vertical.secret_shared", _MP_FEDXGB, _HISTOGRAMS)

ATTACKS: Mapping[str, Mapping[str, str]] = {
    "bucket_bayes": {"vertical.bucket_rr": "bucket_rr.bucket_bayes:on_run"},
    "noised_labels": {"vertical.noised_gradients": "noised_gradients.noised_labels:on_run"},
    "label_clusters": {"vertical.homomorphic": "homomorphic.label_clusters:on_run"},
    "bin_sums": {"vertical.homomorphic": "homomorphic.bin_sums:on_run"},
    "argmax_opened": {_MP_FEDXGB: "mp_fedxgb.on_runs:argmax_opened"},
    "denominators_opened": {_MP_FEDXGB: "mp_fedxgb.on_runs:denominators_opened"},
    "leaf_opened": {_MP_FEDXGB: "mp_fedxgb.on_runs:leaf_opened"},
    "openings": {"vertical.secret_shared": "mp_fedxgb.on_runs:nothing_opened"},
    "singleton_cells": {"horizontal.secure_sum": "secure_sum.singleton_cells:on_run"},
    "unmask_least_squares": {
        _MASKED: "masked_gradients.unmask_least_squares:on_run",
        _HISTOGRAMS: "private_histograms.noisy_sums:unmask_least_squares",
    },
    "all_but_one": {_HISTOGRAMS: "private_histograms.noisy_sums:all_but_one"},
    "label_network": {_MASKED: "masked_gradients.label_network:on_run"},
    "active_set": {_MASKED: "masked_gradients.active_set:on_run"},
    "mask_reuse": dict.fromkeys(_ON_SHARES, "shares.mask_reuse:on_run"),
}
"""Name -> protocol -> "module:function", which is imported when it is needed."""


def applicable(protocol: str) -> dict[str, str]:
    """The attacks on runs of a protocol, and where each is."""
    return {name: homes[protocol] for name, homes in ATTACKS.items() if protocol in homes}


def load(home: str) -> Callable[[Context], list[Outcome]]:
    """What gives the outcomes of an attack, for every party that attacks or is attacked."""
    module, _, function = home.partition(":")
    found: Callable[[Context], list[Outcome]] = getattr(import_module(f"hedgerow.attacks.{module}"), function)
    return found


def attacked(context: Context, only: tuple[str, ...] = ()) -> list[Outcome]:
    """All attacks that apply to a run, or those of them that are named. InvalidInput if it was not recorded."""
    if not context.run.transcripts:
        raise InvalidInput("this run was not recorded, so there is nothing to attack: fit(..., record=True)")
    possible = applicable(context.run.protocol)
    for name in only:
        if name not in possible:
            some = ", ".join(other for other in names() if applicable(other))
            there_are = ", ".join(possible) or f"none; there are some for {some}"
            raise InvalidParameter(f"{name!r} is not an attack on {context.run.protocol}; there are {there_are}")
    chosen = [load(home) for name, home in possible.items() if name in (only or possible)]
    return [outcome for run in chosen for outcome in run(context)]


def n_rows_of(transcript: Transcript) -> int:
    """How many rows there were."""
    for direction in (SENT, RECEIVED):
        for message in transcript.messages(GoAhead, direction):
            return message.n_rows
    raise InvalidInput(f"the transcript of {transcript.party} does not have the beginning of a training")
