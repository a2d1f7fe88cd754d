"""vertical.explaining: its job, its two roles, each for importances and for rows, and what they end with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from hedgerow.codec import AsJson
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.contributions import contributions
from hedgerow.engine.dtypes import Bytes, Floats, Int32s, Ints
from hedgerow.engine.interactions import interactions
from hedgerow.engine.table import Table
from hedgerow.errors import ProtocolError
from hedgerow.protocols.services.explain import messages
from hedgerow.protocols.vertical.common import agreement
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, option

NAME = "vertical.explaining"
IMPORTANCES, CONTRIBUTIONS, INTERACTIONS = "importances", "contributions", "interactions"
BATCH_ROWS = 1 << 13
"""Fewer than for scoring: for each row a number per column goes back, and work and waiting overlap batch by batch."""
BATCH_BYTES = 1 << 27
"""What the label holder calculates for a batch, 8 bytes per row, column and output, is at most this much."""

OF_COLUMNS: dict[str, type[messages.ContributionsOfColumns | messages.InteractionsOfColumns]] = {
    CONTRIBUTIONS: messages.ContributionsOfColumns,
    INTERACTIONS: messages.InteractionsOfColumns,
}
"""What a feature holder gets for each batch of rows."""

AHEAD = 2
"""Batches of answers that a feature holder sends before it waits for contributions: nobody waits for the network."""


@dataclass(frozen=True)
class ExplainingJob(agreement.ServiceJob):
    """What all parties of an explanation must agree on. JSON-able; nothing in it is secret."""

    NAME = NAME
    MODEL_IS: ClassVar[str] = "to be explained"
    TAKES_PART_IN: ClassVar[str] = "explaining it"

    what: str = option(
        CONTRIBUTIONS,
        "of columns",
        one_of=(IMPORTANCES, CONTRIBUTIONS, INTERACTIONS),
        words=f"{IMPORTANCES!r}, {CONTRIBUTIONS!r} or {INTERACTIONS!r}",
    )
    kind: str = option("gain", "of importances: summed gains of splits, or their count", one_of=("gain", "count"))
    batch_rows: int = option(BATCH_ROWS, "rows in one message, at most", at_least=1)


# --- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Importances(AsJson):
    """Per own column, what all splits of it are worth; the label holder also knows what each other party's are."""

    KIND: ClassVar[str] = "importances"

    party: str
    columns: tuple[str, ...]
    values: Floats  # [columns] summed gains, or numbers of splits
    others: Mapping[str, float] = field(default_factory=dict)  # feature holder -> total; the label holder's only


@dataclass(frozen=True, eq=False)
class Contributions(AsJson):
    """Per row and own column, what it adds to the raw scores.

    All parties' values and the label holder's `expected` add up to the raw score; so do, at the label holder alone,
    its own values, `others` and `expected`.
    """

    KIND: ClassVar[str] = "contributions"

    party: str
    columns: tuple[str, ...]
    values: Floats  # [rows, columns, outputs]; 0 for a column that no split asks about
    expected: Floats | None = None  # [outputs] the score before anything is known of a row; the label holder's only
    others: Mapping[str, Floats] = field(default_factory=dict)  # feature holder -> total [rows, outputs]; as above


@dataclass(frozen=True, eq=False)
class Interactions(AsJson):
    """Per row, what each two own columns add to the raw scores only together, and each with all other parties' columns.

    For each column the sum over its own party's columns and `elsewhere` is its contribution; so all parties' numbers
    and the label holder's `expected` add up to the raw score.
    """

    KIND: ClassVar[str] = "interactions"

    party: str
    columns: tuple[str, ...]
    values: Floats  # [rows, columns, columns, outputs]; symmetric, on the diagonal what a column adds by itself
    elsewhere: Floats  # [rows, columns, outputs] with the columns of all other parties together
    expected: Floats | None = None  # [outputs] the score before anything is known of a row; the label holder's only
    others: Mapping[str, Floats] = field(default_factory=dict)  # feature holder -> its share of `elsewhere`; as above


# --- feature holder --------------------------------------------------------------------------------------------------


def feature_holder(me: Party, job: ExplainingJob, data: PartyData | None) -> Importances | Contributions | Interactions:
    """Learn what its own columns are worth."""
    whole, brought = agreement.own_part(me.name, job, data)
    part = agreement.as_feature_holder(whole, job)
    me.wait_longer(agreement.PATIENCE)
    if job.what == IMPORTANCES:
        me.send(job.label_holder, messages.ReadyToExplain(0, part.run_id, part.n_handles))
        return _own_importances(me, job, part)
    table = agreement.rows_of(part, brought.table)
    me.send(job.label_holder, messages.ReadyToExplain(table.n_rows, part.run_id, part.n_handles))
    return _own_rows(me, job, part, part.codes(table, brought.n_threads))


def _own_importances(me: Party, job: ExplainingJob, part: OwnerPart) -> Importances:
    gains = me.recv(job.label_holder, messages.HandleGains, n_handles=part.n_handles).values
    values = np.zeros(len(part.features))
    np.add.at(values, part.questions.column, gains)
    return Importances(me.name, _names(part.features), values)


def _own_rows(me: Party, job: ExplainingJob, part: OwnerPart, codes: Bytes) -> Contributions | Interactions:
    """Answer for all rows, and take what its own columns add to the scores of each."""
    n_rows, kind = codes.shape[1], OF_COLUMNS[job.what]
    begin = me.recv(job.label_holder, messages.BeginExplaining, n_rows=n_rows, most_batch_rows=job.batch_rows)
    batches: list[Floats] = []  # as they come: what is only announced takes no memory
    columns = np.zeros(0, np.int64)
    if part.n_handles:
        numbers, columns = opaque_numbers(part.questions.column, me.rng)
        me.send(job.label_holder, messages.ColumnsOfHandles(numbers))
        sizes = {"n_columns": len(columns)}
        if job.what == INTERACTIONS:
            sizes["n_columns_and_others"] = len(columns) + 1
        starts = range(0, n_rows, begin.batch_rows)
        for k in range(len(starts) + AHEAD):
            if k < len(starts):
                batch = codes[:, starts[k] : starts[k] + begin.batch_rows]
                bits = np.packbits(part.answers(batch), axis=1)
                me.send(job.label_holder, messages.AnswersToExplain(starts[k], bits))
            if 0 <= k - AHEAD < len(starts):
                batches.append(
                    me.recv(
                        job.label_holder,
                        kind,
                        start=starts[k - AHEAD],
                        n_rows=min(begin.batch_rows, n_rows - starts[k - AHEAD]),
                        n_outputs=begin.n_outputs,
                        **sizes,
                    ).values
                )
    names, n_columns = _names(part.features), len(part.features)
    found = np.concatenate(batches) if batches else None
    if job.what == INTERACTIONS:
        pairs, elsewhere = (
            np.zeros((n_rows, n_columns, n_columns, begin.n_outputs)),
            np.zeros((n_rows, n_columns, begin.n_outputs)),
        )
        if found is not None:
            pairs[:, columns[:, None], columns], elsewhere[:, columns] = found[:, :, :-1], found[:, :, -1]
        return Interactions(me.name, names, pairs, elsewhere)
    values = np.zeros((n_rows, n_columns, begin.n_outputs))
    if found is not None:
        values[:, columns] = found
    return Contributions(me.name, names, values)


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


def label_holder(me: Party, job: ExplainingJob, data: PartyData | None) -> Importances | Contributions | Interactions:
    """Calculate for all, and tell each party what its own columns are worth."""
    whole, brought = agreement.own_part(me.name, job, data)
    part = agreement.as_label_holder(whole, job)
    if job.what == IMPORTANCES:
        agreement.wait_for_all(me, job, messages.ReadyToExplain, part, 0)
        return _all_importances(me, job, part)
    table = agreement.rows_of(part, brought.table)
    agreement.wait_for_all(me, job, messages.ReadyToExplain, part, table.n_rows)
    explain = _all_interactions if job.what == INTERACTIONS else _all_contributions
    return explain(me, job, part, table, brought.n_threads)


def _all_importances(me: Party, job: ExplainingJob, part: LabelHolderPart) -> Importances:
    worth = part.ensemble.importances(job.kind)
    others = {}
    for party in job.feature_holders:
        start = part.first_column(party)
        theirs = worth[start : start + part.handles[party]]
        me.send(party, messages.HandleGains(theirs))
        others[party] = float(theirs.sum())
    return Importances(me.name, _names(part.features), worth[: part.n_own].copy(), others)


def _all_contributions(
    me: Party, job: ExplainingJob, part: LabelHolderPart, table: Table, n_threads: int
) -> Contributions:
    n_rows, n_outputs, n_own = table.n_rows, part.ensemble.n_outputs, part.n_own
    width = 8 * (len(part.ensemble.features) + 1) * n_outputs
    batch_rows = min(job.batch_rows, max(BATCH_BYTES // width, 1))
    me.send_all(job.feature_holders, messages.BeginExplaining(n_rows, batch_rows, n_outputs))
    own_codes = part.codes(table, n_threads)  # while the others are busy with their answers
    players, player_of_feature = _players(me, part)
    own = np.empty((n_rows, n_own, n_outputs))
    others = {party: np.zeros((n_rows, n_outputs)) for party in job.feature_holders}
    expected = np.empty(0)
    for rows, codes in agreement.answered(me, part, messages.AnswersToExplain, own_codes, batch_rows):
        found = contributions(part.ensemble, codes, player_of_feature, n_threads)
        own[rows], expected = found[:, :n_own], found[0, -1].copy()
        for party, (first, last) in players.items():
            theirs = np.ascontiguousarray(found[:, first:last])
            me.send(party, messages.ContributionsOfColumns(rows.start, theirs))
            others[party][rows] = theirs.sum(axis=1)  # all that is kept of them
    return Contributions(me.name, _names(part.features), own, expected, others)


def _all_interactions(
    me: Party, job: ExplainingJob, part: LabelHolderPart, table: Table, n_threads: int
) -> Interactions:
    """As for contributions; of a pair of columns of two parties each learns no more than sums over the other's."""
    n_rows, n_outputs, n_own = table.n_rows, part.ensemble.n_outputs, part.n_own
    width = 8 * (len(part.ensemble.features) + 1) ** 2 * n_outputs
    batch_rows = min(job.batch_rows, max(BATCH_BYTES // width, 1))
    me.send_all(job.feature_holders, messages.BeginExplaining(n_rows, batch_rows, n_outputs))
    own_codes = part.codes(table, n_threads)
    players, player_of_feature = _players(me, part)
    own, elsewhere = np.empty((n_rows, n_own, n_own, n_outputs)), np.zeros((n_rows, n_own, n_outputs))
    others = {party: np.zeros((n_rows, n_own, n_outputs)) for party in job.feature_holders}
    expected = np.empty(0)
    for rows, codes in agreement.answered(me, part, messages.AnswersToExplain, own_codes, batch_rows):
        found = interactions(part.ensemble, codes, player_of_feature, n_threads)
        own[rows], expected = found[:, :n_own, :n_own], found[0, -1, -1].copy()
        for party, (first, last) in players.items():
            within = found[:, first:last, first:last]
            beyond = found[:, first:last].sum(axis=2) - within.sum(axis=2)
            theirs = np.concatenate([within, beyond[:, :, None]], axis=2)
            me.send(party, messages.InteractionsOfColumns(rows.start, theirs))
            others[party][rows] = found[:, :n_own, first:last].sum(axis=2)  # all that is kept of them
            elsewhere[rows] += others[party][rows]
    return Interactions(me.name, _names(part.features), own, elsewhere, expected, others)


def _players(me: Party, part: LabelHolderPart) -> tuple[dict[str, tuple[int, int]], Ints]:
    """Which players are whose, first and last + 1, and the player of each column of the ensemble."""
    ranges, of_feature = {}, [np.arange(part.n_own)]
    first = part.n_own
    for party, n_handles in part.handles.items():
        if n_handles == 0:
            continue
        numbers = me.recv(party, messages.ColumnsOfHandles, n_handles=n_handles).numbers
        if len(np.unique(numbers)) != numbers.max() + 1:
            raise ProtocolError(f"{party} sent numbers of columns with gaps between them")
        last = first + int(numbers.max()) + 1
        ranges[party] = (first, last)
        of_feature.append(first + numbers)
        first = last
    return ranges, np.concatenate(of_feature)


def _names(features: Sequence[FeatureBins]) -> tuple[str, ...]:
    return tuple(feature.name for feature in features)
