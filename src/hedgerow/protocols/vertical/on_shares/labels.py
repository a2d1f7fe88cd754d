"""Labels that a training on shares can use: their sizes must be public before anything is shared."""

from __future__ import annotations

import numpy as np

from hedgerow.engine.dtypes import Floats
from hedgerow.errors import InvalidInput
from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.on_shares.job import SharesJob


def checked_labels(party: str, job: SharesJob, data: PartyData) -> Floats:
    """Labels that are there and within the public range."""
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
    low, high = job.loss().label_range
    if labels.min() < low or labels.max() > high:
        raise InvalidInput(f"{party}: some labels lie outside the declared label_range {(low, high)}")
    return labels
