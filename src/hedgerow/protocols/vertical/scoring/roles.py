"""The two roles of vertical.scoring, and what each of them ends with."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Bytes, Floats
from hedgerow.engine.table import Table
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.party import Party
from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.agreement import PATIENCE
from hedgerow.protocols.vertical.parts import LabelHolderPart, OwnerPart, Part, part_from_dict
from hedgerow.protocols.vertical.scoring.answering import Answering
from hedgerow.protocols.vertical.scoring.job import ScoringJob
from hedgerow.protocols.vertical.scoring.messages import Answers, AnswersWanted, RandomisedAnswers, ReadyToScore

BATCH_BYTES = 1 << 28
"""What the label holder lays out for a batch, one byte per row and column of its ensemble, is at most this much."""


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scores:
    """What the label holder has in the end."""

    raw: Floats  # [rows, outputs]
    handles: Mapping[str, int] = field(default_factory=dict)  # feature holder -> how many of its splits were asked

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: the numbers as they lie in memory (little-endian float64), in base64."""
        return {
            "kind": "scores",
            "shape": list(self.raw.shape),
            "raw": base64.b64encode(np.ascontiguousarray(self.raw, "<f8").tobytes()).decode("ascii"),
            "handles": dict(self.handles),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scores:
        """The inverse of `to_dict`."""
        raw = np.frombuffer(base64.b64decode(data["raw"]), "<f8").reshape(data["shape"]).astype(np.float64)
        return cls(raw, dict(data["handles"]))


@dataclass(frozen=True)
class Answered:
    """What a feature holder has in the end: a note of what it gave away."""

    n_rows: int
    n_handles: int
    n_columns: int  # that were asked about
    event: Mapping[str, Any] | None = None  # of one record, all batches together; None: answers in the clear

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"kind": "answered", **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Answered:
        """The inverse of `to_dict`."""
        return cls(data["n_rows"], data["n_handles"], data["n_columns"], data["event"])


def result_from_dict(data: Mapping[str, Any]) -> Scores | Answered:
    """Either kind of result, after a way through JSON."""
    return Scores.from_dict(data) if data.get("kind") == "scores" else Answered.from_dict(data)


# --- roles -----------------------------------------------------------------------------------------------------------


def feature_holder(me: Party, job: ScoringJob, data: PartyData | None) -> Answered:
    """Answer all own handles for all rows."""
    part, brought = _part_of(me.name, job, data)
    if not isinstance(part, OwnerPart) or part.label_holder != job.label_holder:
        raise InvalidInput(f"{me.name}: brings a part that is not one of a feature holder of {job.label_holder}")
    table = _read(part, part.features, brought.table)
    me.wait_longer(PATIENCE)
    me.send(job.label_holder, ReadyToScore(table.n_rows, part.run_id, part.n_handles))
    answering = Answering(part, job.predict_epsilon, brought.n_threads)
    wanted = me.recv(job.label_holder, AnswersWanted)
    if wanted.predict_epsilon != _as_sent(job.predict_epsilon) or wanted.n_rows != table.n_rows:
        raise ProtocolError(f"{job.label_holder} wants other answers of {me.name} than the job says")
    if not 1 <= wanted.batch_rows <= job.batch_rows:
        raise ProtocolError(f"{job.label_holder} wants batches of {wanted.batch_rows} rows of {me.name}")
    event = None if answering.event is None else answering.event.to_dict()
    for start in range(0, table.n_rows if part.n_handles else 0, wanted.batch_rows):
        bits = answering.bits(table, start, min(start + wanted.batch_rows, table.n_rows), me.rng)
        if event is None:
            me.send(job.label_holder, Answers(start, bits))
        else:  # each batch has rows of its own, so this is the event of each record, not one of several
            me.send(job.label_holder, RandomisedAnswers(start, bits), event=event)
    return Answered(table.n_rows, part.n_handles, len(answering.columns), event)


def label_holder(me: Party, job: ScoringJob, data: PartyData | None) -> Scores:
    """Ask everybody once, and score batch by batch as the answers come."""
    part, brought = _part_of(me.name, job, data)
    if not isinstance(part, LabelHolderPart):
        raise InvalidInput(f"{me.name}: brings the part of a feature holder, but holds the labels")
    _check_parties(part, job)
    table = _read(part, part.own_features, brought.table)
    n_rows = table.n_rows
    for party in job.feature_holders:
        _check_ready(party, me.recv(party, ReadyToScore), part, n_rows)
    batch_rows = min(job.batch_rows, max(BATCH_BYTES // max(len(part.ensemble.features), 1), 1))
    me.send_all(job.feature_holders, AnswersWanted(n_rows, batch_rows, _as_sent(job.predict_epsilon)))
    codes = part.codes(table, brought.n_threads)  # while the others are busy with their answers
    raw = np.empty((n_rows, part.ensemble.n_outputs))
    for start in range(0, n_rows, batch_rows):
        stop = min(start + batch_rows, n_rows)
        answers = {party: _answers(me, job, party, n, start, stop) for party, n in part.handles.items()}
        raw[start:stop] = part.raw_scores(codes[:, start:stop], answers, brought.n_threads)
        me.report(stop, n_rows)
    return Scores(raw, dict(part.handles))


def _answers(me: Party, job: ScoringJob, party: str, n_handles: int, start: int, stop: int) -> Bytes:
    """The answers of one party about some rows: uint8 [handles, rows]."""
    if n_handles == 0:
        return np.empty((0, stop - start), np.uint8)
    message: Answers | RandomisedAnswers
    message = me.recv(party, Answers) if job.predict_epsilon is None else me.recv(party, RandomisedAnswers)
    if message.first_row != start or message.bits.shape != (n_handles, (stop - start + 7) // 8):
        raise ProtocolError(f"{party} sent answers about other rows or handles than those from row {start} on")
    return np.unpackbits(message.bits, axis=1, count=stop - start)


def _as_sent(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon


# --- checks ----------------------------------------------------------------------------------------------------------


def _part_of(party: str, job: ScoringJob, data: PartyData | None) -> tuple[Part, PartyData]:
    """The party's own part of the right model."""
    if data is None or data.part is None:
        raise InvalidInput(f"{party}: brings no part of a model")
    part = part_from_dict(data.part)
    if part.party != party:
        raise InvalidInput(f"{party}: brings the part of {part.party}")
    if part.run_id != job.model_run_id:
        raise InvalidInput(
            f"{party}: its part is of another model, that of run {part.run_id!r}; "
            f"to be scored with is that of run {job.model_run_id!r}"
        )
    return part, data


def _read(part: Part, features: Sequence[FeatureBins], table: Table) -> Table:
    """The table with the columns and levels of the part; as it is, if it was read so already."""
    as_needed = [(feature.name, feature.levels) for feature in features]
    if [(column.name, column.levels) for column in table.columns] == as_needed:
        if table.n_rows == 0:
            raise InvalidInput(f"{part.party}: brings no rows")
        return table
    return part.read(table, part.party)


def _check_parties(part: LabelHolderPart, job: ScoringJob) -> None:
    absent = [party for party, n_handles in part.handles.items() if n_handles and party not in job.feature_holders]
    unknown = [party for party in job.feature_holders if party not in part.handles]
    if absent:
        raise InvalidInput(f"{absent[0]}: the model asks about its columns, but it does not take part in the scoring")
    if unknown:
        raise InvalidInput(f"{unknown[0]}: took no part in the training of the model")


def _check_ready(party: str, ready: ReadyToScore, part: LabelHolderPart, n_rows: int) -> None:
    if ready.model_run_id != part.run_id or ready.n_handles != part.handles[party]:
        raise InvalidInput(
            f"{party}: its part is of another model: it is of run {ready.model_run_id!r} with {ready.n_handles} "
            f"handles, that of {part.party} is of run {part.run_id!r} and has {part.handles[party]} of them"
        )
    if ready.n_rows != n_rows:
        raise InvalidInput(
            f"{party}: has {ready.n_rows} rows, but {part.party} has {n_rows}; the rows of all parties must be the "
            "same ones in the same order"
        )
