"""Possible splits as differences of running totals, so that shares of histograms give shares of their sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Bools, Ints


class Cuts(NamedTuple):
    """The possible splits of some columns, in the engine's order, as differences of running totals over all bins.

    A column whose values are all there has a row in the one-hot matrix for each bin but the last; one with gaps has a
    row for each bin, so that the missing ones are the rest. What goes left is then

        missing right     bins 0..b                       = total up to b - total before the column
        missing left      bins 0..b, and the missing ones = total up to b - total up to the column's end + all rows
    """

    column: Ints
    bin: Ints
    missing_left: Bools
    upper: Ints  # places in running totals that begin with 0
    lower: Ints

    @classmethod
    def of(cls, n_bins: Sequence[int], has_missing: Sequence[bool]) -> Cuts:
        """Of columns with so many bins of values."""
        found = [np.empty((5, 0), np.int64)]
        start = 0
        for column, (bins, gaps) in enumerate(zip(n_bins, has_missing, strict=True)):
            end = start + bins - (not gaps)
            for missing_left, n, lower in ((False, end - start, start), (True, bins - 1 if gaps else 0, end)):
                b = np.arange(n)
                found.append(np.stack(np.broadcast_arrays(column, b, missing_left, start + b + 1, lower)))
            start = end
        columns = np.concatenate(found, axis=1)
        return cls(columns[0], columns[1], columns[2].astype(np.bool_), columns[3], columns[4])

    @classmethod
    def joined(cls, parts: Sequence[Cuts], n_bins: Sequence[int]) -> Cuts:
        """The cuts of several parties, one after the other; columns are numbered within each party."""
        first = np.cumsum([0, *n_bins[:-1]])
        upper = [cuts.upper + start for cuts, start in zip(parts, first, strict=True)]
        lower = [cuts.lower + start for cuts, start in zip(parts, first, strict=True)]
        return cls(
            np.concatenate([cuts.column for cuts in parts]),
            np.concatenate([cuts.bin for cuts in parts]),
            np.concatenate([cuts.missing_left for cuts in parts]),
            np.concatenate(upper),
            np.concatenate(lower),
        )

    def left(self, histograms: np.ndarray) -> np.ndarray:
        """What goes left without `all rows`, from histograms or shares of them: [..., cuts] from [..., bins]."""
        totals = np.zeros((*histograms.shape[:-1], histograms.shape[-1] + 1), histograms.dtype)
        np.cumsum(histograms, axis=-1, dtype=histograms.dtype, out=totals[..., 1:])
        return np.asarray(totals[..., self.upper] - totals[..., self.lower])


BYTES_OF_CUTS = 2 * 5 * 8 * 2
"""For each bin, while cuts are made: two at most, of five numbers each, and a copy."""


def masked_rows(n_bins: Sequence[int], has_missing: Sequence[bool]) -> int:
    """Rows of the one-hot matrix of such columns."""
    return sum(bins - (not gaps) for bins, gaps in zip(n_bins, has_missing, strict=True))
