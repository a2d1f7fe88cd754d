"""Labels that a label holder can use: those of its rows, finite, and of the task that was agreed on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.engine.sources import Coded
from hedgerow.engine.table import Level
from hedgerow.errors import InvalidInput
from hedgerow.protocols.bad_rows import FittedLabels, OnBadRows
from hedgerow.protocols.tolerant import places, places_of
from hedgerow.protocols.vertical.common.job import VerticalJob
from hedgerow.runtime.protocol import PartyData


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


def fit_own_labels(
    party: str, job: VerticalJob, data: PartyData, listed: Sequence[Level] | None, on_bad_rows: OnBadRows
) -> FittedLabels:
    """Labels as places in a public list of classes, or as numbers within the public range; and which rows have one.

    One that is missing or not listed becomes the first class, or the middle of the range; without a range it is NaN.
    What becomes of a label depends on that label alone, so no error and no number of classes depends on a row. Without
    a list classes are read off the labels.
    """
    labels = _one_per_row(party, data)
    if data.classes is not None:
        values, counts = _places(labels, data.classes, listed)
        misfits, default = ~counts, 0.0
    else:
        low, high = job.boosting.label_range or (-math.inf, math.inf)
        low = max(low, 0.0) if job.boosting.loss == "poisson" else low
        values = np.clip(labels, low, high)
        counts = np.isfinite(values)
        misfits = ~counts | (values != labels)
        default = low + (high - low) / 2.0 if math.isfinite(high - low) else math.nan
    if on_bad_rows == "raise" and misfits.any():
        outside = data.classes is None and bool(counts.all())
        what = (
            f"some labels lie outside the declared label_range {job.boosting.label_range}"
            if outside
            else (
                "a label is missing"
                if listed is None
                else f"a label is missing, or not one of the classes {list(listed)}"
            )
        )
        raise InvalidInput(f"{party}: {what}")
    return FittedLabels(np.where(counts, values, default), counts, misfits)


def _places(labels: Floats, classes: Sequence[Level | None], listed: Sequence[Level] | None) -> tuple[Floats, Bools]:
    codes = np.where(np.isfinite(labels), labels, -1.0).astype(np.int64)
    if listed is not None:  # one that is not listed has the class None
        codes = places_of(Coded(codes, list(classes), declared=True), places(listed))[0].astype(np.int64)
    return codes.astype(np.float64), codes >= 0


def _one_per_row(party: str, data: PartyData) -> Floats:
    if data.labels is None:
        raise InvalidInput(f"{party}: the label holder needs labels")
    labels = np.ascontiguousarray(data.labels, np.float64)
    if labels.shape != (data.table.n_rows,):
        raise InvalidInput(f"{party}: {len(labels)} labels for {data.table.n_rows} rows")
    return labels
