"""Bins of every column: public ones from the schema alone, or edges from a noisy histogram.

Public edges are evenly spaced between a column's bounds. A whole-number column with no more values than `max_bins` gets
a bin for each, and a categorical column one for each level, in both ways of binning.

A private histogram counts the other columns' values in up to 256 public cells each. One record adds one to one cell of
each such column, so the L1 sensitivity is their number (twice that when a record is replaced). Edges are those cell
boundaries that divide the noisy counts most evenly: post-processing, which is free.
"""

from __future__ import annotations

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.engine.table import Table
from hedgerow.protocols.central.gaussian.grid import bins_of, short
from hedgerow.schema import NumericColumn, Schema

CELLS = 256
_ROWS_AT_A_TIME = 1 << 14


def public_bins(schema: Schema, max_bins: int) -> BinMapper:
    """The bins of all columns, without looking at a row."""
    return bins_of(schema, lambda column: even_edges(column, max_bins))


def even_edges(column: NumericColumn, n_bins: int) -> Floats:
    """Edges between evenly spaced bins; x belongs to the bin whose number is the number of edges <= x."""
    low, high = column.low, column.high
    if column.integer and high - low < n_bins:
        return np.arange(low + 1.0, high + 0.5)
    edges = low + (high - low) * (np.arange(1, n_bins) / n_bins)
    edges = np.floor(edges) + 1.0 if column.integer else short(edges)
    inside: Floats = np.unique(edges[(edges > low) & (edges <= high)])
    return inside


# --- edges from a noisy histogram ----------------------------------------------------------------------------------


def counted_columns(schema: Schema, max_bins: int) -> tuple[int, ...]:
    """Columns whose edges depend on a histogram: numeric ones with more values than bins."""
    return tuple(
        number
        for number, column in enumerate(schema.columns)
        if isinstance(column, NumericColumn) and not (column.integer and column.high - column.low < max_bins)
    )


def cell_counts(table: Table, schema: Schema, columns: tuple[int, ...], counted: Bools | None = None) -> Ints:
    """Rows per cell, int64 [columns, 256]; missing values are in no cell, values out of bounds in the outermost.

    `counted` [rows]: which rows count; all by default.
    """
    boundaries = [_cell_boundaries(schema, number) for number in columns]
    counts = np.zeros((len(columns), CELLS), np.int64)
    for start in range(0, table.n_rows, _ROWS_AT_A_TIME):
        block = table.matrix(start, start + _ROWS_AT_A_TIME, np.float64)
        if counted is not None:
            block = block[counted[start : start + _ROWS_AT_A_TIME]]
        for row, number in enumerate(columns):
            values = block[:, number]
            cells = np.searchsorted(boundaries[row], values[~np.isnan(values)], side="right")
            counts[row] += np.bincount(cells, minlength=CELLS)
    return counts


def edges_from_counts(counts: Ints, schema: Schema, columns: tuple[int, ...], max_bins: int) -> dict[int, Floats]:
    """Edges of each counted column that divide the (noisy) counts most evenly."""
    return {
        number: _quantile_edges(np.maximum(own, 0), _cell_boundaries(schema, number), max_bins)
        for number, own in zip(columns, counts, strict=True)
    }


def with_edges(bins: BinMapper, edges: dict[int, Floats]) -> BinMapper:
    """The same bins with other edges for some columns."""
    return BinMapper(
        tuple(
            FeatureBins(feature.name, edges=edges[number]) if number in edges else feature
            for number, feature in enumerate(bins.features)
        )
    )


def _cell_boundaries(schema: Schema, number: int) -> Floats:
    column = schema.columns[number]
    if not isinstance(column, NumericColumn):
        raise TypeError(f"column {column.name!r} has levels, not bounds")
    return even_edges(column, CELLS)


def _quantile_edges(counts: Ints, boundaries: Floats, n_bins: int) -> Floats:
    """Of the boundaries, those nearest to even shares of the total; evenly spaced ones where nothing was counted."""
    below = np.cumsum(counts)[: len(boundaries)].astype(np.float64)
    total = float(counts.sum())
    if total == 0.0:
        below, total = np.arange(1.0, len(boundaries) + 1.0), len(boundaries) + 1.0
    targets = total * np.arange(1, n_bins) / n_bins
    after = np.minimum(np.searchsorted(below, targets), len(below) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(targets - below[before] < below[after] - targets, before, after)
    chosen: Floats = boundaries[np.unique(nearest)]
    return chosen
