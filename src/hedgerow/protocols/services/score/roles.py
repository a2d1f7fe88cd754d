"""The two roles of vertical.scoring, and what each of them ends with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from hedgerow.codec import AsJson
from hedgerow.engine.dtypes import Floats
from hedgerow.protocols.services.score.answering import Answering
from hedgerow.protocols.services.score.job import ScoringJob
from hedgerow.protocols.services.score.messages import Answers, AnswersWanted, RandomisedAnswers, ReadyToScore
from hedgerow.protocols.vertical.common.serving import (
    answers_of_all,
    check_ready,
    part_of_feature_holder,
    part_of_label_holder,
    rows_of,
)
from hedgerow.protocols.vertical.common.tables import PATIENCE
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData

BATCH_BYTES = 1 << 28
"""What the label holder lays out for a batch, one byte per row and column of its ensemble, is at most this much."""


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scores(AsJson):
    """What the label holder has in the end."""

    KIND: ClassVar[str] = "scores"

    raw: Floats  # [rows, outputs]
    handles: Mapping[str, int] = field(default_factory=dict)  # feature holder -> how many of its splits were asked


@dataclass(frozen=True)
class Answered(AsJson):
    """What a feature holder has in the end: a note of what it gave away."""

    KIND: ClassVar[str] = "answered"

    n_rows: int
    n_handles: int
    n_columns: int  # that were asked about
    event: Mapping[str, Any] | None = None  # of one record, all batches together; None: answers in the clear


# --- roles -----------------------------------------------------------------------------------------------------------


def feature_holder(me: Party, job: ScoringJob, data: PartyData | None) -> Answered:
    """Answer all own handles for all rows."""
    part, brought = part_of_feature_holder(me.name, job, data)
    table = rows_of(part, brought.table)
    me.wait_longer(PATIENCE)
    me.send(job.label_holder, ReadyToScore(table.n_rows, part.run_id, part.n_handles))
    answering = Answering(part, job.predict_epsilon, brought.n_threads)
    wanted = me.recv(
        job.label_holder,
        AnswersWanted,
        n_rows=table.n_rows,
        most_batch_rows=job.batch_rows,
        predict_epsilon=_as_sent(job.predict_epsilon),
    )
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
    part, brought = part_of_label_holder(me.name, job, data)
    table = rows_of(part, brought.table)
    n_rows = table.n_rows
    for party in job.feature_holders:
        check_ready(party, me.recv(party, ReadyToScore), part, n_rows)
    batch_rows = min(job.batch_rows, max(BATCH_BYTES // max(len(part.ensemble.features), 1), 1))
    me.send_all(job.feature_holders, AnswersWanted(n_rows, batch_rows, _as_sent(job.predict_epsilon)))
    codes = part.codes(table, brought.n_threads)  # while the others are busy with their answers
    kind = Answers if job.predict_epsilon is None else RandomisedAnswers
    raw = np.empty((n_rows, part.ensemble.n_outputs))
    for start in range(0, n_rows, batch_rows):
        stop = min(start + batch_rows, n_rows)
        answers = answers_of_all(me, part, kind, start, stop)
        raw[start:stop] = part.raw_scores(codes[:, start:stop], answers, brought.n_threads)
        me.report(stop, n_rows)
    return Scores(raw, dict(part.handles))


def _as_sent(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon
