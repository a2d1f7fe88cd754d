"""A party's own columns as a one-hot matrix of bins, which is masked, multiplied and never written out.

And possible splits as differences of running totals, so that shares of histograms give shares of their sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hedgerow.crypto.ring import histogram, one_hot_minus
from hedgerow.crypto.shares import Array
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import Bools, Bytes, Ints
from hedgerow.errors import InvalidInput
from hedgerow.protocols.shares.job import SharesJob
from hedgerow.protocols.vertical.common.shared_parts import FOREIGN, LEAF, PartialTree
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_memory


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
        """Of columns with this many bins of values."""
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
        moved = [
            cuts._replace(upper=cuts.upper + start, lower=cuts.lower + start)
            for cuts, start in zip(parts, first, strict=True)
        ]
        return cls(*(np.concatenate(each) for each in zip(*moved, strict=True)))

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


def children_of(parents: Array, left: Array) -> Array:
    """Left and right children in turn, [nodes, ...], from what their parents and the left ones have."""
    children = np.empty((2 * len(left), *left.shape[1:]), left.dtype)
    children[::2] = left
    np.subtract(parents, left, out=children[1::2])
    return children


def filled(words: Array, n: int) -> Array:
    """The words with zeros for nodes or leaves that are not there."""
    if len(words) == n:
        return words
    whole = np.zeros((n, *words.shape[1:]), words.dtype)
    whole[: len(words)] = words
    return whole


def bins_minus(codes: Bytes, n_codes: Sequence[int], masks: Array, bins: slice) -> Array:
    """Some rows of the one-hot matrix of all bins but each column's last, minus masks, written over them."""
    start = 0
    for column, n in zip(codes, n_codes, strict=True):
        first, last = max(bins.start - start, 0), min(bins.stop - start, n - 1)
        if first < last:
            here = column
            if (first, last) != (0, n - 1):  # a block may end within a column; codes of other bins go to the last
                here = np.minimum(column - np.uint8(first), np.uint8(last - first))
            place = start + first - bins.start
            one_hot_minus(here[None], masks[place : place + last - first], last - first + 1)
        start += n - 1
    return masks


class OneHotColumns:
    """Its own columns, binned by itself."""

    def __init__(self, party: str, features: Sequence[FeatureBins], codes: Bytes, gaps: Sequence[bool]) -> None:
        self.features, self.codes, self.gaps = tuple(features), codes, list(gaps)
        self.n_bins = [feature.n_value_bins for feature in features]
        self.n_codes = [n + has for n, has in zip(self.n_bins, self.gaps, strict=True)]
        self.cuts = Cuts.of(self.n_bins, self.gaps)
        if not len(self.cuts.bin):
            raise InvalidInput(f"{party}: no column has values in two bins, so there is nothing to split by")
        within = [np.arange(n - 1) for n in self.n_codes]
        self._column = np.repeat(np.arange(len(within)), [len(bins) for bins in within])
        self._bin = np.concatenate(within)

    @classmethod
    def by_quantiles(cls, party: str, job: SharesJob, data: PartyData) -> OneHotColumns:
        """Bins of about equally many rows; which columns have gaps is read off the rows."""
        table, trees = data.table, job.boosting
        if len(table.columns) > job.most_columns:
            raise InvalidInput(
                f"{party}: brings {len(table.columns):,} columns, and a party may have {job.most_columns:,} at most; "
                "leave some out"
            )
        for column in table.columns:
            if column.levels is not None:
                raise InvalidInput(
                    f"{party}: column {column.name!r} has levels, whose order by gradient nobody may know here; make a "
                    "column of 0 and 1 for each level"
                )
        check_memory(party, table.n_rows, len(table.columns), job.max_bins, trees.max_depth, trees.max_leaves)
        mapper = BinMapper.fit(table, job.max_bins, n_threads=data.n_threads)
        codes = mapper.transform(table, data.n_threads)
        gaps = [bool((row == feature.n_value_bins).any()) for row, feature in zip(codes, mapper.features, strict=True)]
        return cls(party, mapper.features, codes, gaps)

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return int(self.codes.shape[1])

    def minus(self, masks: Array, bins: slice) -> Array:
        """Some bins of the one-hot matrix minus masks, written over them: [bins, rows]."""
        return bins_minus(self.codes, self.n_codes, masks, bins)

    def histograms(self, vectors: Array, n_threads: int) -> Array:
        """The one-hot matrix times vectors: [vectors, bins]."""
        sums = histogram(self.codes, vectors, max(self.n_codes), n_threads=n_threads)
        return np.ascontiguousarray(sums[:, self._column, self._bin])

    def known_of(self, cuts: Ints, is_leaf: Bools) -> PartialTree:
        """What this party knows of a tree, from the number of its own cut at each node, -1 where there is none."""
        column, last_bin = np.where(is_leaf, LEAF, FOREIGN), np.full(len(cuts), -1)
        missing_left, mine, own = np.zeros(len(cuts), np.bool_), np.flatnonzero(cuts >= 0), self.cuts
        number = cuts[mine]
        column[mine], last_bin[mine], missing_left[mine] = own.column[number], own.bin[number], own.missing_left[number]
        return PartialTree(column, last_bin, missing_left)

    def goes_left(self, cut: int) -> Bytes:
        """Which rows a cut sends left, one bit each."""
        column, last_bin = int(self.cuts.column[cut]), int(self.cuts.bin[cut])
        codes = self.codes[column]
        left = codes <= last_bin
        if self.cuts.missing_left[cut]:
            left |= codes == self.n_bins[column]
        return np.packbits(left)
