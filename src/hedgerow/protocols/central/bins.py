"""Bins of every column without a look at a row: public cells and bins from the schema, or edges from noisy counts.

**The public grid** (`grid_of`), whose cells noisy sums are asked for. A whole-number column with fewer than 254 values
gets a cell for each. Any other numeric column gets at most 254 cells whose edges are half evenly spaced, half geometric
around the bound nearer to zero (on both sides of zero if it lies inside): quantities like incomes crowd near zero at
every scale. A categorical column has one cell per level. A column that may be missing has one more cell at the end.

**Even bins** (`public_bins`), by evenly spaced edges between a column's bounds. A whole-number column with no more
values than `max_bins` gets a bin for each, and a categorical column one for each level, also in what follows.

**Edges from a noisy histogram** (`edges_from_counts`), which counts the other columns' values in up to 256 public cells
each. One record adds one to one cell of each such column, so the L1 sensitivity is their number (twice that when a
record is replaced). Edges are those cell boundaries that divide the noisy counts most evenly: post-processing, which is
free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.engine.table import Column, SparseColumn, Table
from hedgerow.schema import NumericColumn, Schema

MAX_CELLS = 254
_NEAREST = 1e-6
"""The first geometric edge, as a share of the range."""
CELLS = 256
_ROWS_AT_A_TIME = 1 << 14


def bins_of(schema: Schema, edges_of: Callable[[NumericColumn], Floats]) -> BinMapper:
    """Bins of all columns without a look at a row: between the edges of a numeric column, or one for each level."""
    return BinMapper(
        tuple(
            FeatureBins(column.name, edges=edges_of(column), rule=column.rule)
            if isinstance(column, NumericColumn)
            else FeatureBins(column.name, levels=column.levels, rule=column.rule)
            for column in schema.columns
        )
    )


def grid_of(schema: Schema) -> BinMapper:
    """The cells of all columns, as bins."""
    return bins_of(schema, grid_edges)


def cells_of(schema: Schema, grid: BinMapper) -> tuple[int, ...]:
    """Cells per column: those of values, and one for missing values where there may be any."""
    return tuple(
        feature.n_value_bins + column.may_be_missing
        for feature, column in zip(grid.features, schema.columns, strict=True)
    )


def grid_edges(column: NumericColumn) -> Floats:
    """Edges between cells; x belongs to the cell whose number is the number of edges <= x."""
    low, high = column.low, column.high
    if column.integer and high - low < MAX_CELLS:
        return np.arange(low + 1.0, high + 0.5)
    half = MAX_CELLS // 2
    even = np.linspace(low, high, half + 1)[1:-1]
    if low < 0.0 < high:
        reach = max(-low, high)
        steps = _geometric(reach, half // 2)
        crowded = np.concatenate([-steps, [0.0], steps])
    else:
        steps = _geometric(high - low, half)
        crowded = low + steps if abs(low) <= abs(high) else high - steps
    edges = np.concatenate([even, crowded])
    if column.integer:
        edges = np.floor(edges) + 1.0  # the cell up to and with floor(edge)
    edges = np.unique(short(edges))
    inside: Floats = edges[(edges > low) & (edges <= high)]  # of 126 even and 127 others, so at most 253
    return inside


def _geometric(reach: float, n_steps: int) -> Floats:
    """Distances up to `reach`, each a constant multiple of the last; all `reach` where nothing smaller is a number."""
    steps: Floats = np.geomspace(_NEAREST * reach or reach, reach, n_steps)
    return steps


def short(edges: Floats) -> Floats:
    """Rounded to float32 where that is possible: one place is as good as the next, and XGBoost knows no others."""
    with np.errstate(over="ignore"):
        rounded = edges.astype(np.float32).astype(np.float64)
    return np.where(np.isfinite(rounded), rounded, edges)


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


def counted_columns(schema: Schema, max_bins: int) -> dict[int, NumericColumn]:
    """Columns whose edges depend on a histogram, by number: numeric ones with more values than bins."""
    return {
        number: column
        for number, column in enumerate(schema.columns)
        if isinstance(column, NumericColumn) and not (column.integer and column.high - column.low < max_bins)
    }


def cell_counts(table: Table, columns: Mapping[int, NumericColumn], counted: Bools | None = None) -> Ints:
    """Rows per cell, int64 [columns, 256]; missing values are in no cell, values out of bounds in the outermost.

    `counted` [rows]: which rows count; all by default.
    """
    boundaries = [even_edges(column, CELLS) for column in columns.values()]
    counts = np.zeros((len(columns), CELLS), np.int64)
    if table.is_sparse:
        for own, edges, number in zip(counts, boundaries, columns, strict=True):
            values, weights = _tallied(table.columns[number], counted)
            there = ~np.isnan(values)
            cells = np.searchsorted(edges, values[there], side="right")
            np.add.at(own, cells, weights[there])
        return counts
    for start in range(0, table.n_rows, _ROWS_AT_A_TIME):
        block = table.matrix(start, start + _ROWS_AT_A_TIME, np.float64)
        if counted is not None:
            block = block[counted[start : start + _ROWS_AT_A_TIME]]
        for row, number in enumerate(columns):
            values = block[:, number]
            cells = np.searchsorted(boundaries[row], values[~np.isnan(values)], side="right")
            counts[row] += np.bincount(cells, minlength=CELLS)
    return counts


def _tallied(column: Column, counted: Bools | None) -> tuple[np.ndarray, Ints]:
    """Values of a column with the number of rows that each stands for."""
    rows = None if counted is None else counted.astype(np.int64)
    if isinstance(column, SparseColumn):
        return column.tally(rows)
    return column.values, np.ones(len(column.values), np.int64) if rows is None else rows


def edges_from_counts(counts: Ints, columns: Mapping[int, NumericColumn], max_bins: int) -> dict[int, Floats]:
    """Edges of each counted column that divide the (noisy) counts most evenly."""
    return {
        number: _quantile_edges(np.maximum(own, 0), even_edges(column, CELLS), max_bins)
        for (number, column), own in zip(columns.items(), counts, strict=True)
    }


def with_edges(bins: BinMapper, edges: dict[int, Floats]) -> BinMapper:
    """The same bins with other edges for some columns."""
    return BinMapper(
        tuple(
            replace(feature, edges=edges[number]) if number in edges else feature
            for number, feature in enumerate(bins.features)
        )
    )


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
