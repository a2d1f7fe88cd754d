"""Sorted columns: what an owner of rows keeps at hand while the edges of numeric columns are searched for.

Each column is sorted once; after that "how many rows lie below this?" is answered for thousands of probes at once. The
coordinator, who adds up the answers of all owners, is in `quantile_search.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.table import Table
from hedgerow.errors import InvalidInput


class SortedColumns:
    """An owner's numeric columns, each sorted once in its own type, without its missing values."""

    def __init__(self, table: Table) -> None:
        numeric = [column for column in table.columns if column.levels is None]
        self._ordered = [_present(np.sort(column.values)) for column in numeric]

    @property
    def n_present(self) -> Ints:
        """Rows with a value, per column."""
        return np.array([len(ordered) for ordered in self._ordered], np.int64)

    def counts_below(self, probes: Floats, offsets: Ints) -> Ints:
        """For each probe the number of rows with value < probe; column j's are `probes[offsets[j]:offsets[j + 1]]`.

        The probes of a column must be increasing.
        """
        probes = np.ascontiguousarray(probes, np.float64)
        _check_probes(probes, offsets, len(self._ordered))
        counts = np.empty(len(probes), np.int64)
        for j, ordered in enumerate(self._ordered):
            start, stop = int(offsets[j]), int(offsets[j + 1])
            if start < stop:
                count_below(ordered, probes[start:stop], counts[start:stop])
        return counts


def _present(ordered: np.ndarray) -> np.ndarray:
    nan = ordered.dtype.type(np.nan)  # of the column's own type, else searchsorted would convert it
    return ordered[: np.searchsorted(ordered, nan)]


def _check_probes(probes: Floats, offsets: Ints, n_columns: int) -> None:
    fits = probes.ndim == 1 and np.shape(offsets) == (n_columns + 1,) and offsets.dtype.kind in "iu"
    if not fits or offsets[0] != 0 or offsets[-1] != len(probes) or (offsets[1:] < offsets[:-1]).any():
        raise InvalidInput(f"offsets must divide the {probes.size} probes among {n_columns} numeric columns")
    rising = probes[1:] > probes[:-1]
    inner = offsets[(offsets > 0) & (offsets < len(probes))]
    rising[inner - 1] = True  # from one column to the next they may fall
    if not rising.all() or not np.isfinite(probes).all():
        raise InvalidInput("the probes of a column must be finite and strictly increasing")


@kernel
def count_below(ordered: Any, probes: Any, counts: Any) -> None:
    """How many of the `ordered` values are below each of the increasing `probes`. Out: `counts`.

    From one answer to the next by doubled steps, then by halving: quick for many probes on few values and for few on
    many.
    """
    n = len(ordered)
    low = 0
    for p in range(len(probes)):
        probe = probes[p]
        step = 1
        while low + step <= n and ordered[low + step - 1] < probe:
            low += step
            step *= 2
        high = min(low + step - 1, n)
        while low < high:
            middle = (low + high) // 2
            if ordered[middle] < probe:
                low = middle + 1
            else:
                high = middle
        counts[p] = low
