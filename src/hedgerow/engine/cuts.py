"""Where to cut a numeric column: at most a few hundred edges that split its rows evenly.

If the distinct values fit the budget, each gets a bin of its own. Otherwise cuts are set from the smallest value
upwards, each at the boundary of two distinct values nearest to an even share of the rows (or of their weight) left:

    value    0       1   2   3   4   5   6         a value heavier than two shares ends up alone in its bin,
    rows     ####    #   #   #   #   #   #         what it took beyond its share is missing from the others' alike,
    bins     ----    -----   -----   -----         and the budget is always used up

Everything is computed from all rows, out of whole numbers over sorted values, so the edges depend neither on the order
of rows nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hedgerow.compiling import kernel

_ROWS_AT_A_TIME = 4096
_LARGEST = float(np.finfo(np.float64).max)
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def choose_edges(columns: Sequence[np.ndarray], n_bins: int, weights: np.ndarray | None = None) -> list[np.ndarray]:
    """For each of some columns of equal length and type at most `n_bins - 1` edges; NaN takes no part.

    `weights` are integers (`whole_weights`); rows of weight zero take no part, as if they were not there.
    Several columns at once only because neighbours in a row-wise array are read together.
    """
    copies = _contiguous_copies(columns)
    if weights is not None:
        return [_edges(*_sorted_with_weights(copy, weights), n_bins) for copy in copies]
    copies.sort(axis=1)  # NaN goes last
    nan = copies.dtype.type(np.nan)  # of the columns' own type, else searchsorted would convert them
    return [_edges(ordered[: np.searchsorted(ordered, nan)], None, n_bins) for ordered in copies]


def _contiguous_copies(columns: Sequence[np.ndarray]) -> np.ndarray:
    """The columns as rows of a new array, copied in blocks that stay in cache where they share their memory lines."""
    n_rows = len(columns[0])
    copies = np.empty((len(columns), n_rows), columns[0].dtype)
    block = n_rows if all(column.flags.c_contiguous for column in columns) else _ROWS_AT_A_TIME
    for start in range(0, n_rows, block):
        for copy, column in zip(copies, columns, strict=True):
            copy[start : start + block] = column[start : start + block]
    return copies


def _sorted_with_weights(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    used = (weights > 0) & ~np.isnan(values)
    values, weights = values[used], weights[used]
    if values.dtype == np.float32:  # value and weight fit one integer, and sorting those is much faster than argsort
        packed = (_turned(values.view(np.int32)).astype(np.int64) << 32) | weights
        packed.sort()
        return _turned((packed >> 32).astype(np.int32)).view(np.float32), packed & 0xFFFFFFFF
    order = np.argsort(values)
    return values[order], weights[order]


def _turned(bits: np.ndarray) -> np.ndarray:
    """The bits of float32 numbers as integers of the same order, and back: turns round those of negative numbers."""
    turned: np.ndarray = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
    return turned


def _edges(ordered: np.ndarray, weights: np.ndarray | None, n_bins: int) -> np.ndarray:
    first_of_value = np.flatnonzero(ordered[1:] != ordered[:-1])
    first_of_value += 1
    if len(first_of_value) >= n_bins:
        below = first_of_value if weights is None else np.cumsum(weights)[first_of_value - 1]
        total = len(ordered) if weights is None else int(weights.sum())
        chosen = np.empty(n_bins - 1, np.int64)
        spread_cuts(below, total, chosen)
        first_of_value = first_of_value[chosen]
    return edges_between(ordered[first_of_value - 1], ordered[first_of_value])


def whole_weights(weights: np.ndarray) -> np.ndarray | None:
    """Weights as integers whose sum is exact in float64; None if they are all the same. Only true zeros become 0.

    Whole weights stay as they are, so that weight 2 is exactly the row twice.
    """
    heaviest = float(weights.max())
    if float(weights.min()) == heaviest:
        return None
    if np.array_equal(weights, np.floor(weights)) and weights.sum() < 2.0**52:
        return weights.astype(np.int64)
    bits = min(31, 52 - len(weights).bit_length())
    scaled = np.rint(weights / heaviest * float(2**bits)).astype(np.int64)
    return np.where(weights > 0, np.maximum(scaled, 1), 0)


@kernel
def spread_cuts(below: Any, total: int, chosen: Any) -> None:
    """Choose len(chosen) of the boundaries between distinct values.

    In: `below[j]`, the weight of all rows before boundary j, increasing. Out: `chosen`, increasing boundary numbers.
    Weights stand multiplied by the number of bins left, so that shares are whole: below 2**52 * 2**8, no overflow.
    """
    n_cuts = len(chosen)
    first = 0
    reached = 0
    for k in range(n_cuts):
        bins_left = n_cuts + 1 - k
        target = reached * bins_left + (total - reached)
        low = first
        high = len(below) - (n_cuts - k)  # leave a boundary for each cut to come
        while low < high:  # the first boundary that reaches the target
            middle = (low + high) // 2
            if below[middle] * bins_left >= target:
                high = middle
            else:
                low = middle + 1
        if low > first and target - below[low - 1] * bins_left <= below[low] * bins_left - target:
            low -= 1
        chosen[k] = low
        first = low + 1
        reached = below[low]


def edges_between(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """One finite edge per pair of neighbouring values, with lower < edge <= upper.

    The midpoint rounded to float32, if it separates the two values as float32 too: then float32 data, float64 data and
    an exported XGBoost model all agree. Otherwise the upper value rounded to float32 if that is not above it, else the
    upper value itself. Infinities count as the largest finite number, which puts them into the outermost bins.
    """
    a = np.clip(lower.astype(np.float64), -_LARGEST, _LARGEST)
    b = np.clip(upper.astype(np.float64), -_LARGEST, _LARGEST)
    a32, b32, middle = (_to_float32(v) for v in (a, b, a * 0.5 + b * 0.5))
    edge = np.where(middle > a32, middle, b32)
    edge = np.where((edge > a32) & (edge <= b), edge, b)
    distinct = a < b  # the largest finite number and infinity are the same here
    return edge[distinct] + 0.0  # no negative zeros


def _to_float32(values: np.ndarray) -> np.ndarray:
    """Rounded to float32 without overflow to infinity, as float64."""
    rounded: np.ndarray = np.clip(values, -_LARGEST_FLOAT32, _LARGEST_FLOAT32).astype(np.float32)
    return rounded.astype(np.float64)
