"""Sizes of everybody's columns, which everybody gets to know, and the dealer too."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hedgerow.crypto.shares import SUM32
from hedgerow.engine.dtypes import Ints
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.protocols.shares.columns import BYTES_OF_CUTS, Cuts, OneHotColumns, masked_rows
from hedgerow.protocols.shares.job import MOST_ROWS, SharesJob
from hedgerow.protocols.shares.messages import AllColumns, ColumnSizes
from hedgerow.runtime.party import Party
from hedgerow.runtime.resources import check_room


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

    def check_room(self, party: str) -> None:
        """InvalidInput, naming the party, if these matrices would not fit its memory."""
        n_bins = sum(self.bins)
        what = f"{n_bins:,} bins of {self.n_rows:,} rows, with the columns of all parties,"
        check_room(party, (SUM32.number_bytes * self.n_rows + BYTES_OF_CUTS) * n_bins, what)


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
    found = Sizes.of(columns.n_rows, [(each.n_bins, each.has_missing) for each in sizes])
    found.check_room(me.name)
    return found


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
    first, *rest = (_told_by(me, job, party) for party in informants(job))
    for party, told in zip(job.feature_holders, rest, strict=False):
        if told != first:
            raise ProtocolError(f"{job.label_holder} and {party} told different sizes: what is dealt would not fit")
    first.check_room(me.name)
    return first


def _told_by(me: Party, job: SharesJob, party: str) -> Sizes:
    n_holders = len(job.holders)
    columns = me.recv(
        party,
        AllColumns,
        most_rows=MOST_ROWS,
        n_holders=n_holders,
        most_columns=n_holders * job.most_columns,
        max_bins=job.max_bins,
    )
    ends = np.cumsum(columns.n_columns, dtype=np.int64).tolist()
    if ends[-1] != len(columns.n_bins):
        raise ProtocolError(f"{party} sent bins of {len(columns.n_bins)} columns, but counts {ends[-1]}")
    parts = [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    return Sizes.of(columns.n_rows, [(columns.n_bins[part], columns.has_missing[part]) for part in parts])


def check_splits(job: SharesJob, sizes: Sizes) -> None:
    """InvalidInput, naming the party, if somebody has nothing to split by."""
    for party, bins in zip(job.holders, sizes.bins, strict=True):
        if not bins:
            raise InvalidInput(f"{party}: no column has values in two bins, so there is nothing to split by")
