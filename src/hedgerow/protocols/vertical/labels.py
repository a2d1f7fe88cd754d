"""Labels that a label holder can use: those of its rows, finite, and of the task that was agreed on."""

from __future__ import annotations

import numpy as np

from hedgerow.engine.dtypes import Floats
from hedgerow.errors import InvalidInput
from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.job import VerticalJob


def finite_labels(party: str, job: VerticalJob, data: PartyData) -> Floats:
    """One number for each row: of two classes at most, or of a regression. Their range is the caller's affair."""
    if data.labels is None:
        raise InvalidInput(f"{party}: the label holder needs labels")
    labels = np.ascontiguousarray(data.labels, np.float64)
    if labels.shape != (data.table.n_rows,):
        raise InvalidInput(f"{party}: {len(labels)} labels for {data.table.n_rows} rows")
    if not np.isfinite(labels).all():
        raise InvalidInput(f"{party}: label of row {int(np.argmin(np.isfinite(labels)))} is not a finite number")
    if (data.classes is None) != (job.task == "regression"):
        raise InvalidInput(f"{party}: the labels are not those of a {job.task}")
    if data.classes is not None and len(data.classes) > 2:
        raise InvalidInput(f"{party}: {job.NAME} is for two classes, but the labels have {len(data.classes)}")
    return labels
