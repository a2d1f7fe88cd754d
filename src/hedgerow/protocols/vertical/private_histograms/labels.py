"""Labels as the schema lists their classes: no error, and no number of classes, depends on a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob


def with_listed_classes(job: PrivateHistogramsJob, data: PartyData) -> PartyData:
    """The same data with labels as places in the schema's classes; a class that is not listed counts as the first.

    What becomes of a label depends on that label alone. A schema without classes leaves them as they are: then they
    are read off the labels.
    """
    listed = None if job.schema is None else job.schema.classes
    if listed is None or data.labels is None or data.classes is None:
        return data
    places = np.array([listed.index(label) if label in listed else 0 for label in data.classes], np.float64)
    return replace(data, labels=places[data.labels.astype(np.int64)], classes=tuple(listed))
