"""vertical.scoring: its job, its two roles, and a feature holder's answers, for a range of rows at a time.

    value -> code (the bin it is in) -> cell (what the answers depend on) -> [randomised response] -> one bit per handle

Codes of one column with the same answers to every question about it are one cell; a column has as many cells as there
are intervals between the thresholds that are asked about, or groups of levels, and one for missing values if they go a
way of their own. A cell determines all answers about its column, and nothing else does. So one randomised response per
column and row makes all of them random at once, and one value costs epsilon however often it is asked about.

All batches together are one event. Randomised response is applied to each row alone, and every row is in one batch: the
event says what happens to one record, as if there were no others. To answer about the same row again, in another
scoring, is another event.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hedgerow.codec import AsJson
from hedgerow.compiling import kernel
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import MAX_BINS, Bytes, Floats, Ints
from hedgerow.engine.table import Table
from hedgerow.engine.threads import Team
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Composed, RandomisedResponse
from hedgerow.privacy.mechanisms import randomised_response
from hedgerow.protocols.services.score import messages
from hedgerow.protocols.vertical.common import agreement
from hedgerow.protocols.vertical.common.parts import OwnerPart
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, option

NAME = "vertical.scoring"
BATCH_ROWS = 1 << 16
LARGEST_EPSILON = 1e6
"""Beyond that the mechanism does not go; infinity stands for no randomisation at all."""
BATCH_BYTES = 1 << 28
"""What the label holder lays out for a batch, one byte per row and column of its ensemble, is at most this much."""


@dataclass(frozen=True)
class ScoringJob(agreement.ServiceJob):
    """What all parties of a scoring must agree on. JSON-able; nothing in it is secret."""

    NAME = NAME
    MODEL_IS: ClassVar[str] = "to be scored with"
    TAKES_PART_IN: ClassVar[str] = "the scoring"

    predict_epsilon: float | None = option(
        None,
        "per value; None, or infinity, which becomes None: answers in the clear",
        above=0,
        at_most=LARGEST_EPSILON,
        or_inf=True,
        words=f"above 0 and at most {LARGEST_EPSILON:.0e}, or None (or infinite) for answers in the clear",
    )
    batch_rows: int = option(BATCH_ROWS, "rows in one message, at most", at_least=1)

    def check(self) -> None:
        """Without noise there is no epsilon."""
        super().check()
        if self.predict_epsilon == math.inf:
            object.__setattr__(self, "predict_epsilon", None)


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
    whole, brought = agreement.own_part(me.name, job, data)
    part = agreement.as_feature_holder(whole, job)
    table = agreement.rows_of(part, brought.table)
    me.wait_longer(agreement.PATIENCE)
    me.send(job.label_holder, messages.ReadyToScore(table.n_rows, part.run_id, part.n_handles))
    answering = Answering(part, job.predict_epsilon, brought.n_threads)
    wanted = me.recv(
        job.label_holder,
        messages.AnswersWanted,
        n_rows=table.n_rows,
        most_batch_rows=job.batch_rows,
        predict_epsilon=_as_sent(job.predict_epsilon),
    )
    event = answering.event
    random = None if event is None else me.rng
    for start in range(0, table.n_rows if part.n_handles else 0, wanted.batch_rows):
        bits = answering.bits(table, start, min(start + wanted.batch_rows, table.n_rows), random)
        if event is None:
            me.send(job.label_holder, messages.Answers(start, bits))
        else:  # each batch has rows of its own, so this is the event of each record, not one of several
            me.send(job.label_holder, messages.RandomisedAnswers(start, bits), event=event)
    noise = None if event is None else event.to_dict()
    return Answered(table.n_rows, part.n_handles, len(answering.columns), noise)


def label_holder(me: Party, job: ScoringJob, data: PartyData | None) -> Scores:
    """Ask everybody once, and score batch by batch as the answers come."""
    whole, brought = agreement.own_part(me.name, job, data)
    part = agreement.as_label_holder(whole, job)
    table = agreement.rows_of(part, brought.table)
    n_rows = table.n_rows
    agreement.wait_for_all(me, job, messages.ReadyToScore, part, n_rows)
    batch_rows = min(job.batch_rows, max(BATCH_BYTES // max(len(part.ensemble.features), 1), 1))
    me.send_all(job.feature_holders, messages.AnswersWanted(n_rows, batch_rows, _as_sent(job.predict_epsilon)))
    codes = part.codes(table, brought.n_threads)  # while the others are busy with their answers
    kind = messages.Answers if job.predict_epsilon is None else messages.RandomisedAnswers
    raw = np.empty((n_rows, part.ensemble.n_outputs))
    for rows, everything in agreement.answered(me, part, kind, codes, batch_rows):
        raw[rows] = part.ensemble.raw_scores_binned(everything, brought.n_threads)
    return Scores(raw, dict(part.handles))


def _as_sent(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon


# --- answers ----------------------------------------------------------------------------------------------------------


class Cells(NamedTuple):
    """The cells of one column that is asked about."""

    of_code: Bytes  # [256] the cell of each code
    answers: Bytes  # [handles of this column, cells] 1 for right
    n_cells: int


def cells_of(goes_right: Bytes, n_codes: int) -> Cells:
    """Codes 0 .. n_codes - 1 by their answers: `goes_right` [handles, 256] are those of all handles of one column."""
    answers, of_code = np.unique(goes_right[:, :n_codes], axis=1, return_inverse=True)
    padded = np.zeros(MAX_BINS, np.uint8)
    padded[:n_codes] = of_code.reshape(-1)
    return Cells(padded, answers, answers.shape[1])


class Answering:
    """Everything about a part that does not depend on rows; epsilon None means answers in the clear."""

    def __init__(self, part: OwnerPart, epsilon: float | None, n_threads: int = 1) -> None:
        self._n_threads = n_threads
        self._epsilon = epsilon
        self.columns, place = np.unique(part.questions.column, return_inverse=True)
        self._place: Ints = place.reshape(-1).astype(np.int64)  # of each handle's column among those asked about
        self._mapper = BinMapper(tuple(part.features[j] for j in self.columns.tolist()))
        self._tables = part.goes_right()
        self._cells: list[Cells] = []
        if epsilon is None:
            return
        by_code, self._tables = self._tables, np.zeros_like(self._tables)  # which speak of cells, no longer of codes
        for j, feature in enumerate(self._mapper.features):
            handles = np.flatnonzero(self._place == j)
            cells = cells_of(by_code[handles], feature.n_codes)
            self._tables[handles, : cells.n_cells] = cells.answers
            self._cells.append(cells)

    @property
    def n_handles(self) -> int:
        """Questions to answer about each row."""
        return len(self._place)

    @property
    def event(self) -> Composed | None:
        """What one record goes through in one scoring: randomised response once for each column asked about.

        None for answers in the clear. A column whose answers are the same for every value tells nothing and costs
        nothing.
        """
        if self._epsilon is None:
            return None
        return Composed(
            tuple(RandomisedResponse(cells.n_cells, self._epsilon) for cells in self._cells if cells.n_cells > 1)
        )

    def bits(self, table: Table, start: int, stop: int, random: RandomBytes | None) -> Bytes:
        """The answers about some rows: uint8 [handles, ceil(rows / 8)], the first row in the highest bit of a byte."""
        codes = self._mapper.transform(_some_rows(table, self.columns, start, stop), self._n_threads)
        if self._epsilon is not None:
            how: dict[str, Any] = {"epsilon": self._epsilon, "random": random}
            for j, cells in enumerate(self._cells):
                codes[j] = np.take(cells.of_code, codes[j])
                if cells.n_cells > 1:
                    codes[j] = randomised_response(codes[j], categories=cells.n_cells, **how).values
        packed = np.empty((self.n_handles, (codes.shape[1] + 7) // 8), np.uint8)
        ends = np.linspace(0, self.n_handles, min(self._n_threads, self.n_handles) + 1).astype(np.int64).tolist()
        tasks = [(codes, self._place, self._tables, first, last, packed) for first, last in pairwise(ends)]
        Team(self._n_threads).run(pack_answers, tasks)
        return packed


def _some_rows(table: Table, chosen: Any, start: int, stop: int) -> Table:
    columns = tuple(table.columns[j].taken(slice(start, stop)) for j in chosen.tolist())
    return Table(columns, stop - start, tuple(column.name for column in columns), table.has_names)


@kernel
def pack_answers(codes: Any, place: Any, tables: Any, first: int, last: int, packed: Any) -> None:
    """Look up the answers of handles `first` to `last` and write them 8 rows to a byte, in one pass.

    In: `codes` uint8 [columns, rows], `place` int64 [handles] the column of each, `tables` uint8 [handles, 256].
    Out: `packed` uint8 [handles, ceil(rows / 8)]; what is over in the last byte is 0.
    """
    n_rows = codes.shape[1]
    n_full = n_rows // 8
    for k in range(first, last):
        column, table, out = codes[place[k]], tables[k], packed[k]
        for b in range(n_full):
            i = 8 * b
            out[b] = (
                (table[column[i]] << 7)
                | (table[column[i + 1]] << 6)
                | (table[column[i + 2]] << 5)
                | (table[column[i + 3]] << 4)
                | (table[column[i + 4]] << 3)
                | (table[column[i + 5]] << 2)
                | (table[column[i + 6]] << 1)
                | table[column[i + 7]]
            )
        if 8 * n_full < n_rows:
            byte = 0
            for i in range(8 * n_full, n_rows):
                byte |= np.int64(table[column[i]]) << (7 - (i - 8 * n_full))
            out[n_full] = byte
