"""Bins that are public: made of the bounds in the schema, without looking at a row."""

from __future__ import annotations

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import Floats
from hedgerow.errors import InvalidInput
from hedgerow.protocols.memory import check_memory, memory_available
from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.on_shares.columns import OneHotColumns
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.schema import NumericColumn

CLOSER = 4.0
"""How much nearer to zero each of the edges near it is than the one before."""

BYTES_PER_LEAF = 40
"""For each row: shares of two numbers of each leaf and its parent, masks, what was opened, and what is on the way."""


def public_columns(party: str, job: PrivateHistogramsJob, data: PartyData) -> OneHotColumns:
    """A party's columns in public bins; values beyond the bounds count as the nearest bound."""
    table, trees = data.table, job.boosting
    described = [job.described(party, column.name) for column in table.columns]
    for column, entry in zip(table.columns, described, strict=True):
        if column.levels is not None:
            raise InvalidInput(f"{party}: column {column.name!r} has levels; make a column of 0 and 1 for each level")
        if not entry.may_be_missing and np.isnan(column.values).any():
            raise InvalidInput(
                f"{party}: column {column.name!r} has missing values, but it is not stated that it may; say so in the "
                f"schema: may_be_missing=[{column.name!r}]"
            )
    check_memory(party, table.n_rows, len(table.columns), job.max_bins, trees.max_depth, trees.max_leaves)
    _check_tree_memory(party, table.n_rows, job.depth)
    features = tuple(
        FeatureBins(column.name, edges=public_edges(entry, job.max_bins - entry.may_be_missing))
        for column, entry in zip(table.columns, described, strict=True)
    )
    codes = BinMapper(features).transform(table, data.n_threads)
    return OneHotColumns(party, features, codes, [entry.may_be_missing for entry in described])


def _check_tree_memory(party: str, n_rows: int, depth: int) -> None:
    """InvalidInput, naming the party, if a tree would not fit: all nodes of a level have vectors over all rows."""
    needed, available = n_rows * BYTES_PER_LEAF << depth, memory_available()
    if available is not None and needed > available:
        raise InvalidInput(
            f"{party}: max_depth={depth} with {n_rows:,} rows needs about {needed / 2**30:.1f} GiB, but only "
            f"{available / 2**30:.1f} GiB are available here; less depth takes less"
        )


def public_edges(column: NumericColumn, most_bins: int) -> Floats:
    """Edges of at most so many bins, from the bounds alone; values beyond an edge or on it are in the next bin.

    A whole-number column with few values has a bin for each. If there are too many, three quarters of the edges are
    evenly spaced, and the others lie nearer and nearer to zero, or to the bound that is nearer to zero: quantities like
    incomes crowd there.
    """
    low, high, n_edges = column.low, column.high, most_bins - 1
    if column.integer and high - low <= n_edges:
        return np.arange(low + 1.0, high + 0.5)
    n_near = n_edges // 4
    even = np.linspace(low, high, n_edges - n_near + 2)[1:-1]
    width = (high - low) / (n_edges - n_near + 1)
    if low < 0.0 < high:
        steps = width * CLOSER ** -np.arange(1.0, n_near // 2 + 1)
        near = np.concatenate([-steps, steps])
    else:
        steps = width * CLOSER ** -np.arange(1.0, n_near + 1)
        near = low + steps if abs(low) <= abs(high) else high - steps
    edges = np.concatenate([even, near])
    edges = np.unique(np.floor(edges) + 1.0 if column.integer else edges)
    return np.asarray(edges[(edges > low) & (edges <= high)])
