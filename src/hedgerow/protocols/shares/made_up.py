"""Rows to rehearse a training on shares with, and what its dealer ends up with: nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hedgerow.engine.table import Column, Table
from hedgerow.protocols.shares.job import SharesJob
from hedgerow.runtime.protocol import PartyData

DEALER = "dealer"


@dataclass(frozen=True)
class NothingToKeep:
    """What the dealer has in the end."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"role": DEALER}


def made_up_rows(job: SharesJob, has_labels: bool, *, levels: bool = True) -> PartyData:
    """A few rows; the label holder's have a column with levels, if the protocol takes it."""
    n_rows = 300
    rng = np.random.default_rng(11)
    signal = rng.normal(size=n_rows)
    columns = [
        Column("wide", np.where(rng.random(n_rows) < 0.1, np.nan, signal + rng.normal(size=n_rows))),
        Column("narrow", rng.normal(size=n_rows).astype(np.float32)),
    ]
    if has_labels and levels:
        columns.append(Column("level", rng.integers(0, 3, n_rows).astype(np.int32), ("a", "b", "c")))
    table = Table(tuple(columns), n_rows, tuple(column.name for column in columns), has_names=True)
    if not has_labels:
        return PartyData(table)
    places = (signal > 0).astype(np.float64)
    if job.task == "classification":
        return PartyData(table, places, (0, 1))
    low, high = job.boosting.label_range or (0.0, 1.0)
    return PartyData(table, low + (high - low) * places)
