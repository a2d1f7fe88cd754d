"""What a party brings, made to fit what is public about it; then all agree that their tables fit together.

No row makes a private run fail (`protocols.bad_rows`). How many rows did not fit is for the party's own log: no message
has it, and no file that others may get. Nothing else moves before all have said that their tables are in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.engine.losses import Loss
from hedgerow.engine.sources import Coded
from hedgerow.engine.table import Level
from hedgerow.errors import InvalidInput
from hedgerow.protocols.bad_rows import FittedLabels, OnBadRows, fit_described
from hedgerow.protocols.tolerant import places, places_of
from hedgerow.protocols.vertical.common.job import VerticalJob
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_memory
from hedgerow.schema import Column

PATIENCE = 2.5
"""How much longer than the label holder feature holders wait: it may first have to wait for another one."""


def check_table(
    party: str, data: PartyData | None, *, needs_columns: bool = True, needs_values: bool = True
) -> PartyData:
    """InvalidInput, naming party and column, for a table that nothing can be trained on.

    Without `needs_values` nothing depends on what rows hold, as it must be where they are protected.
    """
    if data is None:
        raise InvalidInput(f"{party}: brings no table")
    table = data.table
    if needs_columns and not table.columns:
        raise InvalidInput(f"{party}: brings no column; a party that takes part needs at least one")
    for column in table.columns if needs_values else ():
        missing = column.values < 0 if column.levels is not None else np.isnan(column.values)
        if missing.all():
            raise InvalidInput(f"{party}: column {column.name!r} is empty, every value is missing; leave it out")
    return data


class OwnColumns:
    """A party's own columns, binned by itself."""

    def __init__(self, party: str, job: VerticalJob, data: PartyData) -> None:
        table, params = data.table, job.boosting
        check_memory(party, table.n_rows, len(table.columns), job.max_bins, params.max_depth, params.max_leaves)
        mapper = BinMapper.fit(table, job.max_bins, n_threads=data.n_threads)
        self.features, self.n_rows, self.n_threads = mapper.features, table.n_rows, data.n_threads
        self.codes = mapper.transform(table, data.n_threads)


# --- rows and labels that fit what is public -------------------------------------------------------------------------


def fitted(
    me: Party,
    job: VerticalJob,
    data: PartyData,
    described: Sequence[Column | None],
    *,
    classes: Sequence[Level] | None,
    on_bad_rows: OnBadRows,
) -> tuple[PartyData, Bools]:
    """The same data with columns as `described`, labels as the list of classes has them; and which rows have a label.

    Feature holders have none, and there all rows count.
    """
    table, misfits = fit_described(data.table, described, where=me.name, on_bad_rows=on_bad_rows)
    if data.misfits is not None:
        if on_bad_rows == "raise" and data.misfits.any():
            raise InvalidInput(f"{me.name}: a value or a label could not be read as the schema has it")
        misfits = misfits | data.misfits
    counts = np.ones(table.n_rows, np.bool_)
    if me.name == job.label_holder:
        labels = _fit_own_labels(me.name, job, data, classes, on_bad_rows)
        counts, misfits = labels.counts, misfits | labels.misfits
        known = data.classes if classes is None or data.classes is None else tuple(classes)
        data = replace(data, labels=labels.values, classes=known)
    if misfits.any():
        me.log.warning(
            "%s: %d of its rows did not fit what is public about them, and were mapped; no other party is told",
            me.name,
            int(misfits.sum()),
        )
    return replace(data, table=table), counts


def _fit_own_labels(
    party: str, job: VerticalJob, data: PartyData, listed: Sequence[Level] | None, on_bad_rows: OnBadRows
) -> FittedLabels:
    """Labels as places in a public list of classes, or as numbers within the public range; and which rows have one.

    One that is missing or not listed becomes the first class, or the middle of the range; without a range it is NaN.
    What becomes of a label depends on that label alone, so no error and no number of classes depends on a row. Without
    a list classes are read off the labels.
    """
    labels = _one_per_row(party, data)
    if data.classes is not None:
        codes = np.where(np.isfinite(labels), labels, -1.0).astype(np.int64)
        if listed is not None:  # one that is not listed has the class None
            codes = places_of(Coded(codes, list(data.classes), declared=True), places(listed))[0].astype(np.int64)
        values, counts = codes.astype(np.float64), codes >= 0
        misfits, default = ~counts, 0.0
    else:
        low, high = job.boosting.label_range or (-math.inf, math.inf)
        low = max(low, 0.0) if job.boosting.loss == "poisson" else low
        values = np.clip(labels, low, high)
        counts = np.isfinite(values)
        misfits = ~counts | (values != labels)
        default = low + (high - low) / 2.0 if math.isfinite(high - low) else math.nan
    if on_bad_rows == "raise" and misfits.any():
        if data.classes is None and counts.all():
            what = f"some labels lie outside the declared label_range {job.boosting.label_range}"
        else:
            what = "a label is missing" + ("" if listed is None else f", or not one of the classes {list(listed)}")
        raise InvalidInput(f"{party}: {what}")
    return FittedLabels(np.where(counts, values, default), counts, misfits)


def finite_labels(party: str, job: VerticalJob, data: PartyData) -> Floats:
    """One number for each row: of two classes at most, or of a regression. Their range is the caller's affair."""
    labels = _one_per_row(party, data)
    if not np.isfinite(labels).all():
        raise InvalidInput(f"{party}: label of row {int(np.argmin(np.isfinite(labels)))} is not a finite number")
    if (data.classes is None) != (job.task == "regression"):
        raise InvalidInput(f"{party}: the labels are not those of a {job.task}")
    if data.classes is not None and len(data.classes) > 2:
        raise InvalidInput(f"{party}: {job.NAME} is for two classes, but the labels have {len(data.classes)}")
    return labels


def labels_and_loss(party: str, job: VerticalJob, data: PartyData) -> tuple[Floats, Loss]:
    """Finite labels within the declared range, and the loss that goes with them."""
    labels = finite_labels(party, job, data)
    given, observed = job.boosting.label_range, (float(labels.min()), float(labels.max()))
    if data.classes is None and given is not None and (observed[0] < given[0] or observed[1] > given[1]):
        raise InvalidInput(f"{party}: some labels lie outside the declared label_range {given}")
    return labels, job.for_labels(None if data.classes is None else 2, observed).loss_for(labels)


def _one_per_row(party: str, data: PartyData) -> Floats:
    if data.labels is None:
        raise InvalidInput(f"{party}: the label holder needs labels")
    labels = np.ascontiguousarray(data.labels, np.float64)
    if labels.shape != (data.table.n_rows,):
        raise InvalidInput(f"{party}: {len(labels)} labels for {data.table.n_rows} rows")
    return labels


# --- agreement -------------------------------------------------------------------------------------------------------


def begin_as_feature_holder(me: Party, job: VerticalJob, data: PartyData) -> None:
    """Say that its own table is in order, and wait until everybody's is."""
    me.wait_longer(PATIENCE)
    me.send(job.label_holder, ReadyToTrain(data.table.n_rows, len(data.table.columns)))
    me.recv(job.label_holder, GoAhead, n_rows=data.table.n_rows)


def begin_as_label_holder(me: Party, job: VerticalJob, data: PartyData) -> dict[str, int]:
    """Wait until all are ready, and check that they have equally many rows. Returns everybody's number of columns."""
    n_rows = data.table.n_rows
    n_columns = {me.name: len(data.table.columns)}
    for party in job.feature_holders:
        ready = me.recv(party, ReadyToTrain)
        if ready.n_rows != n_rows:
            raise InvalidInput(
                f"{party}: has {ready.n_rows} rows, but {me.name} has {n_rows}; the rows of all parties must be the "
                "same ones in the same order, align them first"
            )
        n_columns[party] = ready.n_columns
    me.send_all(job.feature_holders, GoAhead(n_rows))
    return {party: n_columns[party] for party in job.parties}
