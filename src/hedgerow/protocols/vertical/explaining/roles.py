"""The two roles of vertical.explaining, each for importances and for contributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.contributions import contributions
from hedgerow.engine.dtypes import Bytes, Floats, Int32s, Ints
from hedgerow.engine.table import Table
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.party import Party
from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.agreement import PATIENCE
from hedgerow.protocols.vertical.explaining.job import IMPORTANCES, ExplainingJob
from hedgerow.protocols.vertical.explaining.messages import (
    AnswersToExplain,
    BeginExplaining,
    ColumnsOfHandles,
    ContributionsOfColumns,
    HandleGains,
    ReadyToExplain,
)
from hedgerow.protocols.vertical.explaining.results import Contributions, Importances
from hedgerow.protocols.vertical.parts import LabelHolderPart, OwnerPart, Part, part_from_dict

BATCH_BYTES = 1 << 27
"""What the label holder calculates for a batch, 8 bytes per row, column and output, is at most this much."""

AHEAD = 2
"""Batches of answers that a feature holder sends before it waits for contributions: nobody waits for the network."""


# --- feature holder --------------------------------------------------------------------------------------------------


def feature_holder(me: Party, job: ExplainingJob, data: PartyData | None) -> Importances | Contributions:
    """Learn what the own columns are worth."""
    part, brought = _part_of(me.name, job, data)
    if not isinstance(part, OwnerPart) or part.label_holder != job.label_holder:
        raise InvalidInput(f"{me.name}: brings a part that is not one of a feature holder of {job.label_holder}")
    me.wait_longer(PATIENCE)
    if job.what == IMPORTANCES:
        me.send(job.label_holder, ReadyToExplain(0, part.run_id, part.n_handles))
        return _own_importances(me, job, part)
    table = _read(part, part.features, brought.table)
    me.send(job.label_holder, ReadyToExplain(table.n_rows, part.run_id, part.n_handles))
    return _own_contributions(me, job, part, part.codes(table, brought.n_threads))


def _own_importances(me: Party, job: ExplainingJob, part: OwnerPart) -> Importances:
    gains = me.recv(job.label_holder, HandleGains).values
    if gains.shape != (part.n_handles,):
        raise ProtocolError(f"{job.label_holder} sent gains of shape {gains.shape} for {part.n_handles} handles")
    values = np.zeros(len(part.features))
    np.add.at(values, part.questions.column, gains)
    return Importances(me.name, _names(part.features), values)


def _own_contributions(me: Party, job: ExplainingJob, part: OwnerPart, codes: Bytes) -> Contributions:
    n_rows = codes.shape[1]
    begin = me.recv(job.label_holder, BeginExplaining)
    if begin.n_rows != n_rows or not 1 <= begin.batch_rows <= job.batch_rows or begin.n_outputs < 1:
        raise ProtocolError(f"{job.label_holder} wants other rows of {me.name} explained than the job says")
    values = np.zeros((n_rows, len(part.features), begin.n_outputs))
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
                start = starts[k - AHEAD]
                rows = values[start : start + begin.batch_rows]
                rows[:, columns] = _contributions_to(me, job, start, (len(rows), len(columns), begin.n_outputs))
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


def _contributions_to(me: Party, job: ExplainingJob, start: int, shape: tuple[int, ...]) -> Floats:
    message = me.recv(job.label_holder, ContributionsOfColumns)
    if message.first_row != start or message.values.shape != shape:
        raise ProtocolError(
            f"{job.label_holder} sent contributions of shape {message.values.shape} from row {message.first_row} on, "
            f"{me.name} needs {shape} from row {start} on"
        )
    return message.values


# --- label holder ----------------------------------------------------------------------------------------------------


def label_holder(me: Party, job: ExplainingJob, data: PartyData | None) -> Importances | Contributions:
    """Calculate for all, and tell each party what its own columns are worth."""
    part, brought = _part_of(me.name, job, data)
    if not isinstance(part, LabelHolderPart):
        raise InvalidInput(f"{me.name}: brings the part of a feature holder, but holds the labels")
    _check_parties(part, job)
    if job.what == IMPORTANCES:
        _wait_for_all(me, job, part, 0)
        return _all_importances(me, job, part)
    table = _read(part, part.own_features, brought.table)
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
    return Importances(me.name, _names(part.own_features), worth[: part.n_own].copy(), others)


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
        answers = {party: _answers(me, party, n, start, stop) for party, n in part.handles.items()}
        codes = part.all_codes(own_codes[:, start:stop], answers)
        found = contributions(part.ensemble, codes, player_of_feature, n_threads)
        own[start:stop], expected = found[:, :n_own], found[0, -1].copy()
        for party, (first, last) in players.items():
            theirs = np.ascontiguousarray(found[:, first:last])
            me.send(party, ContributionsOfColumns(start, theirs))
            others[party][start:stop] = theirs.sum(axis=1)  # all that is kept of them
        me.report(stop, n_rows)
    return Contributions(me.name, _names(part.own_features), own, expected, others)


def _players(me: Party, part: LabelHolderPart) -> tuple[dict[str, tuple[int, int]], Ints]:
    """Which players are whose, first and last + 1, and the player of each column of the ensemble."""
    ranges, of_feature = {}, [np.arange(part.n_own)]
    first = part.n_own
    for party, n_handles in part.handles.items():
        if n_handles == 0:
            continue
        numbers = me.recv(party, ColumnsOfHandles).numbers
        if numbers.shape != (n_handles,) or not np.array_equal(np.unique(numbers), np.arange(numbers.max() + 1)):
            raise ProtocolError(f"{party} sent numbers of columns that are not one for each of {n_handles} handles")
        last = first + int(numbers.max()) + 1
        ranges[party] = (first, last)
        of_feature.append(first + numbers)
        first = last
    return ranges, np.concatenate(of_feature)


def _answers(me: Party, party: str, n_handles: int, start: int, stop: int) -> Bytes:
    """The answers of one party about some rows: uint8 [handles, rows]."""
    if n_handles == 0:
        return np.empty((0, stop - start), np.uint8)
    message = me.recv(party, AnswersToExplain)
    if message.first_row != start or message.bits.shape != (n_handles, (stop - start + 7) // 8):
        raise ProtocolError(f"{party} sent answers about other rows or handles than those from row {start} on")
    return np.unpackbits(message.bits, axis=1, count=stop - start)


# --- checks ----------------------------------------------------------------------------------------------------------


def _part_of(party: str, job: ExplainingJob, data: PartyData | None) -> tuple[Part, PartyData]:
    """The party's own part of the right model."""
    if data is None or data.part is None:
        raise InvalidInput(f"{party}: brings no part of a model")
    part = part_from_dict(data.part)
    if part.party != party:
        raise InvalidInput(f"{party}: brings the part of {part.party}")
    if part.run_id != job.model_run_id:
        raise InvalidInput(
            f"{party}: its part is of another model, that of run {part.run_id!r}; "
            f"to be explained is that of run {job.model_run_id!r}"
        )
    return part, data


def _read(part: Part, features: Sequence[FeatureBins], table: Table) -> Table:
    """The table with the columns and levels of the part; as it is, if it was read so already."""
    as_needed = [(feature.name, feature.levels) for feature in features]
    if [(column.name, column.levels) for column in table.columns] != as_needed:
        table = part.read(table, part.party)
    if table.n_rows == 0:
        raise InvalidInput(f"{part.party}: brings no rows")
    return table


def _check_parties(part: LabelHolderPart, job: ExplainingJob) -> None:
    handles: Mapping[str, int] = part.handles
    absent = [party for party, n_handles in handles.items() if n_handles and party not in job.feature_holders]
    unknown = [party for party in job.feature_holders if party not in handles]
    if absent:
        raise InvalidInput(f"{absent[0]}: the model asks about its columns, but it does not take part in explaining it")
    if unknown:
        raise InvalidInput(f"{unknown[0]}: took no part in the training of the model")


def _wait_for_all(me: Party, job: ExplainingJob, part: LabelHolderPart, n_rows: int) -> None:
    """Nothing about the model is said before everybody's part and rows fit."""
    for party in job.feature_holders:
        ready = me.recv(party, ReadyToExplain)
        if ready.model_run_id != part.run_id or ready.n_handles != part.handles[party]:
            raise InvalidInput(
                f"{party}: its part is of another model: it is of run {ready.model_run_id!r} with {ready.n_handles} "
                f"handles, that of {me.name} is of run {part.run_id!r} and has {part.handles[party]} of them"
            )
        if ready.n_rows != n_rows:
            raise InvalidInput(
                f"{party}: has {ready.n_rows} rows, but {me.name} has {n_rows}; the rows of all parties must be the "
                "same ones in the same order"
            )


def _names(features: Sequence[FeatureBins]) -> tuple[str, ...]:
    return tuple(feature.name for feature in features)
