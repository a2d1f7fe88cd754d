"""The two roles of vertical.explaining, each for importances and for contributions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.contributions import contributions
from hedgerow.engine.dtypes import Bytes, Floats, Int32s, Ints
from hedgerow.engine.table import Table
from hedgerow.errors import ProtocolError
from hedgerow.protocols.services.explain.job import IMPORTANCES, ExplainingJob
from hedgerow.protocols.services.explain.messages import (
    AnswersToExplain,
    BeginExplaining,
    ColumnsOfHandles,
    ContributionsOfColumns,
    HandleGains,
    ReadyToExplain,
)
from hedgerow.protocols.services.explain.results import Contributions, Importances
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart
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

BATCH_BYTES = 1 << 27
"""What the label holder calculates for a batch, 8 bytes per row, column and output, is at most this much."""

AHEAD = 2
"""Batches of answers that a feature holder sends before it waits for contributions: nobody waits for the network."""


# --- feature holder --------------------------------------------------------------------------------------------------


def feature_holder(me: Party, job: ExplainingJob, data: PartyData | None) -> Importances | Contributions:
    """Learn what the own columns are worth."""
    part, brought = part_of_feature_holder(me.name, job, data)
    me.wait_longer(PATIENCE)
    if job.what == IMPORTANCES:
        me.send(job.label_holder, ReadyToExplain(0, part.run_id, part.n_handles))
        return _own_importances(me, job, part)
    table = rows_of(part, brought.table)
    me.send(job.label_holder, ReadyToExplain(table.n_rows, part.run_id, part.n_handles))
    return _own_contributions(me, job, part, part.codes(table, brought.n_threads))


def _own_importances(me: Party, job: ExplainingJob, part: OwnerPart) -> Importances:
    gains = me.recv(job.label_holder, HandleGains, n_handles=part.n_handles).values
    values = np.zeros(len(part.features))
    np.add.at(values, part.questions.column, gains)
    return Importances(me.name, _names(part.features), values)


def _own_contributions(me: Party, job: ExplainingJob, part: OwnerPart, codes: Bytes) -> Contributions:
    n_rows = codes.shape[1]
    begin = me.recv(job.label_holder, BeginExplaining, n_rows=n_rows, most_batch_rows=job.batch_rows)
    batches: list[Floats] = []  # as they come: what is only announced takes no memory
    columns = np.zeros(0, np.int64)
    if part.n_handles:
        numbers, columns = opaque_numbers(part.questions.column, me.rng)
        me.send(job.label_holder, ColumnsOfHandles(numbers))
        starts = range(0, n_rows, begin.batch_rows)
        for k in range(len(starts) + AHEAD):
            if k < len(starts):
                batch = codes[:, starts[k] : starts[k] + begin.batch_rows]
                bits = np.packbits(part.answers(batch), axis=1)
                me.send(job.label_holder, AnswersToExplain(starts[k], bits))
            if 0 <= k - AHEAD < len(starts):
                batches.append(
                    me.recv(
                        job.label_holder,
                        ContributionsOfColumns,
                        start=starts[k - AHEAD],
                        n_rows=min(begin.batch_rows, n_rows - starts[k - AHEAD]),
                        n_columns=len(columns),
                        n_outputs=begin.n_outputs,
                    ).values
                )
    values = np.zeros((n_rows, len(part.features), begin.n_outputs))
    if batches:
        values[:, columns] = np.concatenate(batches)
    return Contributions(me.name, _names(part.features), values)


def opaque_numbers(column_of_handle: Int32s, random: SecureRandom) -> tuple[Ints, Ints]:
    """A number for each handle, the same for handles of one column, and the column of each number.

    Columns are numbered as they first occur when the handles are taken in a random order.
    """
    column = column_of_handle.astype(np.int64)
    order = np.argsort(random.words(len(column)), kind="stable")
    found, first, place = np.unique(column[order], return_index=True, return_inverse=True)
    by_occurrence = np.argsort(first)
    rank = np.empty(len(found), np.int64)
    rank[by_occurrence] = np.arange(len(found))
    numbers = np.empty(len(column), np.int64)
    numbers[order] = rank[place.reshape(-1)]
    return numbers, found[by_occurrence]


# --- label holder ----------------------------------------------------------------------------------------------------


def label_holder(me: Party, job: ExplainingJob, data: PartyData | None) -> Importances | Contributions:
    """Calculate for all, and tell each party what its own columns are worth."""
    part, brought = part_of_label_holder(me.name, job, data)
    if job.what == IMPORTANCES:
        _wait_for_all(me, job, part, 0)
        return _all_importances(me, job, part)
    table = rows_of(part, brought.table)
    _wait_for_all(me, job, part, table.n_rows)
    return _all_contributions(me, job, part, table, brought.n_threads)


def _all_importances(me: Party, job: ExplainingJob, part: LabelHolderPart) -> Importances:
    worth = part.ensemble.importances(job.kind)
    others = {}
    for party in job.feature_holders:
        start = part.first_column(party)
        theirs = worth[start : start + part.handles[party]]
        me.send(party, HandleGains(theirs))
        others[party] = float(theirs.sum())
    return Importances(me.name, _names(part.features), worth[: part.n_own].copy(), others)


def _all_contributions(
    me: Party, job: ExplainingJob, part: LabelHolderPart, table: Table, n_threads: int
) -> Contributions:
    n_rows, n_outputs, n_own = table.n_rows, part.ensemble.n_outputs, part.n_own
    width = 8 * (len(part.ensemble.features) + 1) * n_outputs
    batch_rows = min(job.batch_rows, max(BATCH_BYTES // width, 1))
    me.send_all(job.feature_holders, BeginExplaining(n_rows, batch_rows, n_outputs))
    own_codes = part.codes(table, n_threads)  # while the others are busy with their answers
    players, player_of_feature = _players(me, part)
    own = np.empty((n_rows, n_own, n_outputs))
    others = {party: np.zeros((n_rows, n_outputs)) for party in job.feature_holders}
    expected = np.empty(0)
    for start in range(0, n_rows, batch_rows):
        stop = min(start + batch_rows, n_rows)
        answers = answers_of_all(me, part, AnswersToExplain, start, stop)
        codes = part.all_codes(own_codes[:, start:stop], answers)
        found = contributions(part.ensemble, codes, player_of_feature, n_threads)
        own[start:stop], expected = found[:, :n_own], found[0, -1].copy()
        for party, (first, last) in players.items():
            theirs = np.ascontiguousarray(found[:, first:last])
            me.send(party, ContributionsOfColumns(start, theirs))
            others[party][start:stop] = theirs.sum(axis=1)  # all that is kept of them
        me.report(stop, n_rows)
    return Contributions(me.name, _names(part.features), own, expected, others)


def _players(me: Party, part: LabelHolderPart) -> tuple[dict[str, tuple[int, int]], Ints]:
    """Which players are whose, first and last + 1, and the player of each column of the ensemble."""
    ranges, of_feature = {}, [np.arange(part.n_own)]
    first = part.n_own
    for party, n_handles in part.handles.items():
        if n_handles == 0:
            continue
        numbers = me.recv(party, ColumnsOfHandles, n_handles=n_handles).numbers
        if len(np.unique(numbers)) != numbers.max() + 1:
            raise ProtocolError(f"{party} sent numbers of columns with gaps between them")
        last = first + int(numbers.max()) + 1
        ranges[party] = (first, last)
        of_feature.append(first + numbers)
        first = last
    return ranges, np.concatenate(of_feature)


def _wait_for_all(me: Party, job: ExplainingJob, part: LabelHolderPart, n_rows: int) -> None:
    """Nothing about the model is said before everybody's part and rows fit."""
    for party in job.feature_holders:
        check_ready(party, me.recv(party, ReadyToExplain), part, n_rows)


def _names(features: Sequence[FeatureBins]) -> tuple[str, ...]:
    return tuple(feature.name for feature in features)
