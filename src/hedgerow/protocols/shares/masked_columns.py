"""Masked one-hot columns, E = X - A, which everybody sends to all others; A is known to its owner and the dealer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.shares import Array, Kind
from hedgerow.engine.dtypes import Bools
from hedgerow.protocols.shares.mesh import as_bytes, blocks, received
from hedgerow.protocols.shares.messages import MaskedBins
from hedgerow.runtime.party import Party


class OneHot(Protocol):
    """Columns that can be written as a one-hot matrix of bins."""

    def minus(self, masks: Array, bins: slice) -> Array:
        """Some bins of the matrix minus masks, written over them: [bins, rows]."""


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
    columns: OneHot,
    matrices: Matrices,
    *,
    keep_own: bool = True,
    in_use: Sequence[Bools] | None = None,
) -> Array:
    """E of all holders, at each of them; without `keep_own` there is room for its own, but nothing in it.

    `in_use`: of each holder, which of the rows for which there are masks its matrix has; all of them by default.
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
                    sent = columns.minus(masks if used.all() else masks[used], bins)
                    me.send_all(others, MaskedBins(as_bytes(sent)))
                    if keep_own:
                        here[:] = sent
            elif len(here):
                here[:] = received(me, holders[place], MaskedBins, kind.dtype, here.shape)
    return hidden
