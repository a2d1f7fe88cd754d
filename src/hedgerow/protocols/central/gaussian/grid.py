"""The public grid: cells for every column of a schema, chosen without looking at a row.

A whole-number column with fewer than 254 values gets a cell for each. Any other numeric column gets at most 254 cells
whose edges are half evenly spaced, half geometric around the bound nearer to zero (on both sides of zero if it lies
inside): quantities like incomes crowd near zero at every scale. A categorical column has one cell per level. A column
that may be missing has one more cell at the end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import Floats
from hedgerow.schema import NumericColumn, Schema

MAX_CELLS = 254
_NEAREST = 1e-6
"""The first geometric edge, as a share of the range."""


def bins_of(schema: Schema, edges_of: Callable[[NumericColumn], Floats]) -> BinMapper:
    """Bins of all columns without a look at a row: between the edges of a numeric column, or one for each level."""
    return BinMapper(
        tuple(
            FeatureBins(column.name, edges=edges_of(column))
            if isinstance(column, NumericColumn)
            else FeatureBins(column.name, levels=column.levels)
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
