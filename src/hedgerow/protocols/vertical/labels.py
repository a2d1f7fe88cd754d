"""Labels that a label holder can use: those of its rows, finite, and of the task that was agreed on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hedgerow.engine.dtypes import Floats
from hedgerow.engine.table import Level
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


def with_listed_classes(listed: Sequence[Level] | None, data: PartyData) -> PartyData:
    """The same data with labels as places in a public list of classes; one that is not listed counts as the first.

    What becomes of a label depends on that label alone, so no error and no number of classes depends on a row. Without
    a list they stay as they are: then classes are read off the labels.
    """
    if listed is None or data.labels is None or data.classes is None:
        return data
    places = np.array([listed.index(label) if label in listed else 0 for label in data.classes], np.float64)
    return replace(data, labels=places[data.labels.astype(np.int64)], classes=tuple(listed))
