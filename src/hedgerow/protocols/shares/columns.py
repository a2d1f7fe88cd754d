"""Columns as one-hot matrices of bins, which are masked, multiplied and never written out.

What everybody gets to know of everybody's columns is their sizes, and the dealer too. Possible splits are differences
of running totals, so that shares of histograms give shares of their sums. Masked columns, E = X - A, go from everybody
to all others; A is known to its owner and the dealer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.ring import histogram, one_hot_minus
from hedgerow.crypto.shares import SUM32, Array, Kind, as_bytes
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import MAX_BINS, Bools, Bytes, Ints
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.protocols.shares.job import MOST_ROWS, SharesJob
from hedgerow.protocols.shares.mesh import blocks, received
from hedgerow.protocols.shares.messages import AllColumns, ColumnSizes, MaskedBins
from hedgerow.protocols.vertical.common.parts import Question
from hedgerow.protocols.vertical.common.shared_parts import FOREIGN, LEAF, PartialTree
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_memory, check_room


class Cuts(NamedTuple):
    """The possible splits of some columns, in the engine's order, as differences of running totals over all bins.

    A column whose values are all there has a row in the one-hot matrix for each bin but the last; one with gaps has a
    row for each bin, so that the missing ones are the rest. What goes left is then

        missing right     bins 0..b                       = total up to b - total before the column
        missing left      bins 0..b, and the missing ones = total up to b - total up to the column's end + all rows

    A column with levels has the same rows, one for each level but perhaps the last, and each of its levels goes left
    against all others:

        missing right     level b                         = total up to b - total before b
                          the last one, without gaps      = total before the column - total up to its end + all rows
        missing left      level b, and the missing ones   = the sum of what level b and the missing ones are
    """

    column: Ints
    bin: Ints  # the last one that goes left, or the level
    missing_left: Bools
    upper: Ints  # places in running totals that begin with 0
    lower: Ints
    plus_all: Bools  # whether all rows are to be added
    also_upper: Ints  # two more places, for levels; the same where there is nothing to add
    also_lower: Ints
    by_level: Bools

    @classmethod
    def of(cls, n_bins: Sequence[int], has_missing: Sequence[bool], has_levels: Sequence[bool] | None = None) -> Cuts:
        """Of columns with this many bins of values, or levels."""
        found = [np.empty((9, 0), np.int64)]
        start = 0
        levels = [False] * len(n_bins) if has_levels is None else has_levels
        for column, (bins, gaps, by_level) in enumerate(zip(n_bins, has_missing, levels, strict=True)):
            end = start + bins - (not gaps)
            cuts_of = _cuts_by_level if by_level else _cuts_in_order
            rows = (np.broadcast_arrays(column, *row, by_level) for row in cuts_of(bins, gaps, start, end))
            found.extend(np.stack(row).astype(np.int64) for row in rows)
            start = end
        columns = np.concatenate(found, axis=1)
        column, last, missing_left, upper, lower, plus_all, also_upper, also_lower, by_level_ = columns
        bits = [each.astype(np.bool_) for each in (missing_left, plus_all, by_level_)]
        return cls(column, last, bits[0], upper, lower, bits[1], also_upper, also_lower, bits[2])

    @classmethod
    def joined(cls, parts: Sequence[Cuts], n_bins: Sequence[int]) -> Cuts:
        """The cuts of several parties, one after the other; columns are numbered within each party."""
        first = np.cumsum([0, *n_bins[:-1]])
        places = ("upper", "lower", "also_upper", "also_lower")
        moved = [
            cuts._replace(**{place: getattr(cuts, place) + start for place in places})
            for cuts, start in zip(parts, first, strict=True)
        ]
        return cls(*(np.concatenate(each) for each in zip(*moved, strict=True)))

    def left(self, histograms: np.ndarray) -> np.ndarray:
        """What goes left without `all rows`, from histograms or shares of them: [..., cuts] from [..., bins]."""
        totals = np.zeros((*histograms.shape[:-1], histograms.shape[-1] + 1), histograms.dtype)
        np.cumsum(histograms, axis=-1, dtype=histograms.dtype, out=totals[..., 1:])
        left = np.asarray(totals[..., self.upper] - totals[..., self.lower])
        if self.by_level.any():
            left += totals[..., self.also_upper] - totals[..., self.also_lower]
        return left


_CutRows = Iterator[tuple[Ints, bool, Ints, int | Ints, bool, int, int]]
"""Of one column, missing values right and then left: the fields of `Cuts` from `bin` to `also_lower`."""


def _cuts_in_order(bins: int, gaps: bool, start: int, end: int) -> _CutRows:
    for missing_left, n, lower in ((False, end - start, start), (True, bins - 1 if gaps else 0, end)):
        b = np.arange(n)
        yield b, missing_left, start + b + 1, lower, missing_left, 0, 0


def _cuts_by_level(bins: int, gaps: bool, start: int, end: int) -> _CutRows:
    """A single level is a split from missing values alone."""
    level = np.arange(end - start)
    yield level, False, start + level + 1, start + level, False, 0, 0
    if bins > 1 and not gaps:
        yield np.array([bins - 1]), False, np.array([start]), end, True, 0, 0
    if bins > 1 and gaps:
        yield level, True, start + level + 1, start + level, True, start, end


BYTES_OF_CUTS = 2 * 9 * 8 * 2
"""For each bin, while cuts are made: two at most, of nine numbers each, and a copy."""


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
            place = start + first - bins.start
            one_hot_minus(column, first, masks[place : place + last - first])
        start += n - 1
    return masks


class OneHotColumns:
    """Its own columns, binned by itself."""

    def __init__(
        self,
        party: str,
        features: Sequence[FeatureBins],
        codes: Bytes,
        gaps: Sequence[bool],
        *,
        one_hot: bool = False,
    ) -> None:
        """`one_hot`: levels are split one against all others; else columns with levels are cut in their order."""
        self.features, self.codes, self.gaps = tuple(features), codes, list(gaps)
        self.n_bins = [feature.n_value_bins for feature in features]
        self.n_codes = [n + has for n, has in zip(self.n_bins, self.gaps, strict=True)]
        self.has_levels = [one_hot and feature.levels is not None for feature in features]
        self.cuts = Cuts.of(self.n_bins, self.gaps, self.has_levels)
        if not len(self.cuts.bin):
            raise InvalidInput(f"{party}: no column has values in two bins, so there is nothing to split by")
        within = [np.arange(n - 1) for n in self.n_codes]
        self._column = np.repeat(np.arange(len(within)), [len(bins) for bins in within])
        self._bin = np.concatenate(within)

    @classmethod
    def by_quantiles(
        cls,
        party: str,
        job: SharesJob,
        data: PartyData,
        *,
        one_hot: bool = False,
        like: tuple[FeatureBins, ...] | None = None,
    ) -> OneHotColumns:
        """Bins of about equally many rows, or those of an earlier model; which columns have gaps is read off the rows.

        `one_hot`: columns with levels are taken too, each level against all others.
        """
        table, trees = data.table, job.boosting
        if len(table.columns) > job.most_columns:
            raise InvalidInput(
                f"{party}: brings {len(table.columns):,} columns, and a party may have {job.most_columns:,} at most; "
                "leave some out"
            )
        for column in table.columns:
            if column.levels is not None and not one_hot:
                raise InvalidInput(
                    f"{party}: column {column.name!r} has levels, whose order by gradient nobody may know here; make a "
                    "column of 0 and 1 for each level"
                )
        check_memory(party, table.n_rows, len(table.columns), job.max_bins, trees.max_depth, trees.max_leaves)
        mapper = BinMapper(like) if like else BinMapper.fit(table, job.max_bins, n_threads=data.n_threads)
        codes = mapper.transform(table, data.n_threads)
        gaps = [bool((row == feature.n_value_bins).any()) for row, feature in zip(codes, mapper.features, strict=True)]
        return cls(party, mapper.features, codes, gaps, one_hot=one_hot)

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

    def question(self, cut: int) -> Question:
        """What a cut asks."""
        column, last_bin, missing_left = (int(each[cut]) for each in self.cuts[:3])
        by_level = self.cuts.by_level[cut]
        return Question.by(column, -1 if by_level else last_bin, bool(missing_left), np.arange(MAX_BINS) == last_bin)

    def goes_left(self, cut: int) -> Bytes:
        """Which rows a cut sends left, one bit each."""
        column, last_bin = int(self.cuts.column[cut]), int(self.cuts.bin[cut])
        codes = self.codes[column]
        left = codes == last_bin if self.cuts.by_level[cut] else codes <= last_bin
        if self.cuts.missing_left[cut]:
            left |= codes == self.n_bins[column]
        return np.packbits(left)


# --- sizes -----------------------------------------------------------------------------------------------------------


class Sizes(NamedTuple):
    """Of all columns of all holders."""

    n_rows: int
    n_bins: tuple[tuple[int, ...], ...]  # [holders][columns]
    gaps: tuple[tuple[bool, ...], ...]

    @classmethod
    def of(cls, n_rows: int, columns: Sequence[tuple[np.ndarray, np.ndarray]]) -> Sizes:
        """From the bins of values of each holder's columns, and which of these have gaps."""
        gaps = tuple(tuple(has_missing.astype(np.bool_).tolist()) for _, has_missing in columns)
        return cls(n_rows, tuple(tuple(n_bins.tolist()) for n_bins, _ in columns), gaps)

    @property
    def codes(self) -> list[int]:
        """Bins of each of all columns, missing values included."""
        pairs = zip(itertools.chain(*self.n_bins), itertools.chain(*self.gaps), strict=True)
        return [n + gap for n, gap in pairs]

    @property
    def bins(self) -> tuple[int, ...]:
        """Rows of each holder's one-hot matrix."""
        return tuple(masked_rows(bins, gaps) for bins, gaps in zip(self.n_bins, self.gaps, strict=True))

    def checked(self, party: str, job: SharesJob) -> Sizes:
        """InvalidInput if these matrices would not fit the party's memory, or somebody has nothing to split by."""
        n_bins = sum(self.bins)
        what = f"{n_bins:,} bins of {self.n_rows:,} rows, with the columns of all parties,"
        check_room(party, (SUM32.number_bytes * self.n_rows + BYTES_OF_CUTS) * n_bins, what)
        for holder, bins in zip(job.holders, self.bins, strict=True):
            if not bins:
                raise InvalidInput(f"{holder}: no column has values in two bins, so there is nothing to split by")
        return self


@dataclass(frozen=True)
class OfAllColumns:
    """Base of plans that follow from the sizes of all columns, which are public."""

    sizes: Sizes

    @property
    def n_rows(self) -> int:
        """Rows of the tables."""
        return self.sizes.n_rows

    @property
    def n_holders(self) -> int:
        """Parties with data."""
        return len(self.sizes.n_bins)

    @cached_property
    def cuts_by_holder(self) -> list[Cuts]:
        """The possible splits of each holder."""
        return [Cuts.of(bins, gaps) for bins, gaps in zip(self.sizes.n_bins, self.sizes.gaps, strict=True)]

    @cached_property
    def all_cuts(self) -> Cuts:
        """All possible splits, in the engine's order."""
        return Cuts.joined(self.cuts_by_holder, self.sizes.bins)

    @cached_property
    def owner_of_cut(self) -> Ints:
        """The holder of each possible split."""
        return np.repeat(np.arange(self.n_holders), [len(cuts.bin) for cuts in self.cuts_by_holder])

    @cached_property
    def first_cut(self) -> Ints:
        """Each holder's first possible split."""
        return np.cumsum([0, *(len(cuts.bin) for cuts in self.cuts_by_holder[:-1])])


def agreed_sizes(me: Party, job: SharesJob, columns: OneHotColumns) -> Sizes:
    """Everybody tells everybody."""
    others = [party for party in job.holders if party != me.name]
    mine = ColumnSizes(np.array(columns.n_bins, np.int32), np.array(columns.gaps, np.uint8))
    me.send_all(others, mine)
    limits = {"most_columns": job.most_columns, "max_bins": job.max_bins}
    sizes = [mine if party == me.name else me.recv(party, ColumnSizes, **limits) for party in job.holders]
    return Sizes.of(columns.n_rows, [(each.n_bins, each.has_missing) for each in sizes]).checked(me.name, job)


def tell_dealer(me: Party, job: SharesJob, sizes: Sizes) -> None:
    """Those whom the dealer asks tell it; nobody else does anything."""
    if me.name in informants(job):
        n_columns = np.array([len(bins) for bins in sizes.n_bins], np.int32)
        n_bins = np.array([n for bins in sizes.n_bins for n in bins], np.int32)
        gaps = np.array([gap for each in sizes.gaps for gap in each], np.uint8)
        me.send(job.dealer, AllColumns(sizes.n_rows, n_columns, n_bins, gaps))


def informants(job: SharesJob) -> tuple[str, ...]:
    """Who tells the dealer about sizes: the label holder, or everybody where noise follows from them."""
    return job.holders if job.DEALS_NOISE else (job.label_holder,)


def told_sizes(me: Party, job: SharesJob) -> Sizes:
    """What the dealer is told; ProtocolError if two parties tell different things."""
    n_holders, found = len(job.holders), []
    limits = {"most_rows": MOST_ROWS, "n_holders": n_holders, "max_bins": job.max_bins}
    for party in informants(job):
        columns = me.recv(party, AllColumns, most_columns=n_holders * job.most_columns, **limits)
        ends = np.cumsum(columns.n_columns, dtype=np.int64)
        if ends[-1] != len(columns.n_bins):
            raise ProtocolError(f"{party} sent bins of {len(columns.n_bins)} columns, but counts {ends[-1]}")
        parts = zip(np.split(columns.n_bins, ends[:-1]), np.split(columns.has_missing, ends[:-1]), strict=True)
        found.append(Sizes.of(columns.n_rows, list(parts)))
        if found[-1] != found[0]:
            raise ProtocolError(f"{job.label_holder} and {party} told different sizes: what is dealt would not fit")
    return found[0].checked(me.name, job)


# --- masked columns --------------------------------------------------------------------------------------------------


class Matrices(NamedTuple):
    """The one-hot matrices of all holders, one below the other."""

    bins: tuple[int, ...]  # rows of each holder's
    n_rows: int  # of the tables: columns of the matrices
    kind: Kind

    @property
    def n_bins(self) -> int:
        """Of all holders."""
        return sum(self.bins)

    def of(self, place: int) -> slice:
        """Where a holder's bins are."""
        start = sum(self.bins[:place])
        return slice(start, start + self.bins[place])

    def blocks(self, place: int) -> list[slice]:
        """Bins of a holder that go into one message: all rows of a few, which lie together in memory."""
        return blocks(self.bins[place], self.n_rows * self.kind.number_bytes)

    def empty(self) -> Array:
        """Room for all of them."""
        return np.empty((self.n_bins, self.n_rows), self.kind.dtype)


def drawn_masks(step: DealerStep, matrices: Matrices) -> Array:
    """A of all holders, at the dealer."""
    masks = matrices.empty()
    for place in range(len(matrices.bins)):
        of_party = masks[matrices.of(place)]
        for bins in matrices.blocks(place):
            of_party[bins] = step.mask(of_party[bins].shape, matrices.kind, (place,))
    return masks


def exchanged(
    me: Party,
    holders: Sequence[str],
    step: HandStep,
    minus: Callable[[Array, slice], Array],
    matrices: Matrices,
    *,
    keep_own: bool = True,
    in_use: Sequence[Bools] | None = None,
) -> Array:
    """E of all holders, at each of them; without `keep_own` there is room for its own, but nothing in it.

    `minus` writes some bins of its own matrix minus masks over these, as `OneHotColumns.minus`. `in_use`: of each
    holder, which of the rows for which there are masks its matrix has; all of them by default.
    Blocks go in turn, one to everybody and one from everybody: a party that sent all of its own first would wait for
    others to take them, who wait as well.
    """
    hidden, kind = matrices.empty(), matrices.kind
    own = list(holders).index(me.name)
    others = [party for party in holders if party != me.name]
    used_rows = in_use or [np.ones(n, np.bool_) for n in matrices.bins]
    masked = matrices._replace(bins=tuple(map(len, used_rows)))
    blocks_of = [masked.blocks(place) for place in range(len(holders))]
    done = [0] * len(holders)
    for turn in range(max(map(len, blocks_of))):
        now = [place for place in range(len(holders)) if turn < len(blocks_of[place])]
        for place in sorted(now, key=lambda place: place != own):
            used = used_rows[place][blocks_of[place][turn]]
            bins = slice(done[place], done[place] + int(used.sum()))
            done[place] = bins.stop
            here = hidden[matrices.of(place)][bins]
            if place == own:
                masks = step.mask((len(used), matrices.n_rows), kind, (own,)).words
                if len(here):
                    sent = minus(masks if used.all() else masks[used], bins)
                    me.send_all(others, MaskedBins(as_bytes(sent)))
                    if keep_own:
                        here[:] = sent
            elif len(here):
                here[:] = received(me, holders[place], MaskedBins, kind.dtype, here.shape)
    return hidden
