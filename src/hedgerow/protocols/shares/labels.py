"""Labels that a training on shares can use: their sizes must be public before anything is shared."""

from __future__ import annotations

from hedgerow.engine.dtypes import Floats
from hedgerow.errors import InvalidInput
from hedgerow.protocols.shares.job import SharesJob
from hedgerow.protocols.vertical.common.labels import finite_labels
from hedgerow.runtime.protocol import PartyData


def checked_labels(party: str, job: SharesJob, data: PartyData) -> Floats:
    """Labels that are there and within the public range."""
    labels = finite_labels(party, job, data)
    low, high = job.loss().label_range
    if labels.min() < low or labels.max() > high:
        raise InvalidInput(f"{party}: some labels lie outside the declared label_range {(low, high)}")
    return labels
