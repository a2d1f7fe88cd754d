"""Sums over the leaves of an oblivious tree whose levels belong to several parties, on shares.

A party knows which way all of its levels send each row: one of K = 2^levels ways, rows of a one-hot matrix X. Leaves
are all combinations of everybody's ways. With vectors Y that are shared (at first gradients alone), masks B of them of
which each party m knows its own part [B]_m, and a mask A of X that its owner o and the dealer know:

    sent by o    E = X - A                       once for each tree; the last way follows from the others
    opened       F = Y - B
    then         X Y = X (F + [B]_o) at o,  E [B]_m at all others m,  and A (B - [B]_o), which is dealt among all

The parties with levels take their turns, the one with most of them last:

    expand       a vector becomes K: X Y by rows, whose products with A are dealt row by row
    add up       the last party's: sums over rows of X Y, so that what is dealt are a few numbers

Numbers of rows go the same way, beginning with the first party's X. Where one party has all levels, it knows them.

**Leaf values.** v[way of the last one, ways of the others]: the last one knows U = v[its way], a number for each
combination of the others' ways, whose indicators Y have been opened as F = Y - B. It masks U as it masks X, and the sum
over combinations of U Y is shared: one number is dealt for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hedgerow.crypto.beaver import rows_times
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.ring import histogram
from hedgerow.crypto.rounds import Conversation, Masked, opened
from hedgerow.crypto.shares import SUM32, Array
from hedgerow.engine.dtypes import Bytes, Ints
from hedgerow.party import Party
from hedgerow.protocols.vertical.on_shares.masked_columns import MESSAGE_BYTES
from hedgerow.protocols.vertical.on_shares.mesh import Mesh, as_bytes, blocks, received
from hedgerow.protocols.vertical.private_histograms.smooth.messages import SmoothSides

_BOTH = 2  # gradients, and numbers of rows


class Group(NamedTuple):
    """A party's levels of a tree."""

    place: int
    levels: tuple[int, ...]

    @property
    def n_ways(self) -> int:
        """Ways that a row can go at these levels."""
        return 1 << len(self.levels)


def groups_of(owners: Sequence[int]) -> list[Group]:
    """From the owner of each level: who has most levels comes last."""
    places = sorted(set(owners))
    found = [Group(place, tuple(k for k, owner in enumerate(owners) if owner == place)) for place in places]
    return sorted(found, key=lambda group: len(group.levels))


def dealt_bytes(groups: Sequence[Group], n_rows: int) -> int:
    """That the dealer sends to each party for the sums of a tree, but for a few: of what is expanded."""
    total, n_vectors = 0, 1
    for number, group in enumerate(groups[:-1]):
        total += (group.n_ways - 1) * n_vectors * n_rows * SUM32.number_bytes
        n_vectors *= group.n_ways * (1 if number else _BOTH)
    return total


def leaf_numbers(groups: Sequence[Group], depth: int) -> Ints:
    """[combinations, ways of the last]: the leaf of each. Of combinations, the newest party's way counts most."""
    numbers = np.zeros(1, np.int64)
    for group in groups:
        ways = np.arange(group.n_ways)
        bits = np.zeros(group.n_ways, np.int64)
        for position, level in enumerate(group.levels):
            bits |= ((ways >> (len(group.levels) - 1 - position)) & 1) << (depth - 1 - level)
        if group is groups[-1]:
            return np.asarray(numbers[:, None] | bits)
        numbers = (bits[:, None] | numbers).reshape(-1)
    return numbers[:, None]


def ways_of(codes: Bytes, goes_right: Bytes) -> Bytes:
    """The way of each row at a party's levels: codes [levels, rows], goes_right [levels, 256]."""
    ways = np.zeros(codes.shape[1], np.uint8)
    for row, right in zip(codes, goes_right, strict=True):
        ways = (ways << np.uint8(1)) | np.take(right, row)
    return ways


def without(masks: Sequence[Array], place: int) -> Array:
    """The sum of all parties' masks but one's."""
    return np.asarray(np.sum([mask for k, mask in enumerate(masks) if k != place], axis=0, dtype=np.uint32))


class GroupDealing:
    """What the dealer deals for one tree after the other."""

    def __init__(self, n_holders: int, n_rows: int) -> None:
        self._n_holders, self._n_rows = n_holders, n_rows
        self._ones: list[Array] = []
        self._place = -1

    def deal_sums(self, step: DealerStep, groups: Sequence[Group]) -> None:
        """For `GroupSums.sums`."""
        n_vectors = 1
        masks = [step.mask((group.n_ways - 1, self._n_rows), SUM32, (group.place,)) for group in groups]
        for number, (group, a) in enumerate(zip(groups, masks, strict=True)):
            own = self._own(step, n_vectors)
            others = without(own, group.place)
            if group is groups[-1]:
                step.share(rows_times(a, others, SUM32), SUM32)
                self._place = group.place
                self._ones = [mask.reshape(-1, _BOTH, self._n_rows)[:, 1] for mask in own] if number else []
            else:
                step.share(np.asarray(a[:, None] * others), SUM32)
                n_vectors *= group.n_ways * (1 if number else _BOTH)

    def deal_values(self, step: DealerStep) -> None:
        """For `GroupSums.values`, after `deal_sums` of the same tree."""
        a = step.mask(self._ones[0].shape, SUM32, (self._place,))
        others = without(self._ones, self._place)
        step.share(np.asarray((a * others).sum(axis=0, dtype=np.uint32)), SUM32)

    def _own(self, step: DealerStep, n_vectors: int) -> list[Array]:
        return [step.mask((n_vectors, self._n_rows), SUM32, (place,)) for place in range(self._n_holders)]


class GroupSums:
    """One party's side of one tree after the other."""

    def __init__(self, me: Party, mesh: Mesh, holders: Sequence[str]) -> None:
        self._me, self._mesh, self._holders = me, mesh, tuple(holders)
        self._place = self._holders.index(me.name)
        self.rounds = 0
        """In which some of the parties sent something to all, beside those of the mesh."""
        self._groups: list[Group] = []
        self._leaves = np.zeros((1, 1), np.int64)
        self._ways = np.zeros(0, np.uint8)

    def sums(self, step: HandStep, gradients: Array, owners: Sequence[int], ways: Bytes) -> Array:
        """Shares of sums of gradients and of numbers of rows in each leaf: [leaves, 2]. `ways`: at its own levels."""
        self._groups, self._ways = groups_of(owners), ways
        self._leaves = leaf_numbers(self._groups, len(owners))
        n_rows = len(gradients)
        vectors = gradients[None]
        *before, last = self._sides(step)
        for number, (group, hidden) in enumerate(zip(self._groups[:-1], before, strict=True)):
            b, f = self._shown(step, vectors)
            made = step.share((group.n_ways - 1, len(vectors), n_rows), SUM32).words
            made += self._one_hot(ways, group)[:-1, None] * (f + b) if hidden is None else hidden[:, None] * b
            rest = vectors - made.sum(axis=0, dtype=np.uint32)
            made = np.concatenate([made, rest[None]])
            if not number:
                ones = self._one_hot(ways, group) if hidden is None else np.zeros_like(made[:, 0])
                made = np.stack([made[:, 0], ones], axis=1)
            vectors = made.reshape(-1, n_rows)
        sums = self._added_up(step, vectors, last)
        if len(self._groups) == 1:
            counts = np.zeros_like(sums)
            if self._groups[0].place == self._place:
                counts[0] = np.bincount(ways, minlength=sums.shape[1]).astype(np.uint32)
            sums = np.stack([sums, counts], axis=1)
        else:
            sums = sums.reshape(-1, _BOTH, sums.shape[1])
        out = np.empty((self._leaves.size, _BOTH), np.uint32)
        out[self._leaves.reshape(-1)] = np.moveaxis(sums, 1, 2).reshape(-1, _BOTH)
        return out

    def values(self, step: HandStep | None, values: Array) -> Array:
        """Shares of each row's leaf value, of the last tree; nothing is dealt where one party knows all ways."""
        last = self._groups[-1]
        self.rounds += step is not None
        is_mine = last.place == self._place
        by_way = values[self._leaves]  # [combinations, ways of the last]
        if step is None:
            return np.asarray(by_way[0][self._ways]) if is_mine else np.zeros(len(self._ways), np.uint32)
        if is_mine:
            known = by_way[:, self._ways]
            masks = step.mask(known.shape, SUM32, (self._place,)).words
            for rows in _pieces(known.shape):
                self._me.send_all(self._others, SmoothSides(as_bytes((known - masks)[:, rows])))
            added = (known * (self._f + self._b)).sum(axis=0, dtype=np.uint32)
        else:
            hidden = np.empty(self._b.shape, SUM32.dtype)
            for rows in _pieces(hidden.shape):
                self._receive(last.place, hidden[:, rows])
            added = (hidden * self._b).sum(axis=0, dtype=np.uint32)
        return np.asarray(step.share(len(added), SUM32).words + added)

    def _added_up(self, step: HandStep, vectors: Array, hidden: Array | None) -> Array:
        """Shares of the sums of vectors over the rows of each way of the last party: [vectors, ways]."""
        last = self._groups[-1]
        b, f = self._shown(step, vectors)
        made = step.share((len(vectors), last.n_ways - 1), SUM32).words
        if hidden is None:
            made += histogram(self._ways[None], f + b, last.n_ways)[:, 0, :-1]
        else:
            made += rows_times(hidden, b, SUM32)
        totals = vectors.sum(axis=1, dtype=np.uint32)
        both = vectors.shape[0] > 1
        self._f, self._b = (each.reshape(-1, _BOTH, each.shape[1])[:, 1] if both else each for each in (f, b))
        return np.concatenate([made, (totals - made.sum(axis=1, dtype=np.uint32))[:, None]], axis=1)

    # --- messages ----------------------------------------------------------------------------------------------------

    @property
    def _others(self) -> list[str]:
        return [party for party in self._holders if party != self._me.name]

    def _sides(self, step: HandStep) -> list[Array | None]:
        """E of everybody's ways; None for its own.

        Pieces go in turn: parties that sent all of their own first would wait for each other to take them.
        """
        self.rounds += 1
        shapes = [(group.n_ways - 1, len(self._ways)) for group in self._groups]
        words = [np.empty(shape, SUM32.dtype) for shape in shapes]
        for group, own in zip(self._groups, words, strict=True):
            if group.place == self._place:
                masks = step.mask(own.shape, SUM32, (self._place,)).words
                np.subtract(self._one_hot(self._ways, group)[:-1], masks, out=own)
        pieces = [_pieces(shape) for shape in shapes]
        for turn in range(max(map(len, pieces))):
            now = [
                (g.place, w[:, p[turn]]) for g, w, p in zip(self._groups, words, pieces, strict=True) if turn < len(p)
            ]
            for place, piece in now:
                if place == self._place:
                    self._me.send_all(self._others, SmoothSides(as_bytes(piece)))
            for place, piece in now:
                if place != self._place:
                    self._receive(place, piece)
        return [None if group.place == self._place else w for group, w in zip(self._groups, words, strict=True)]

    def _receive(self, place: int, into: Array) -> None:
        party = self._holders[place]
        into[:] = received(self._me, party, SmoothSides, SUM32.dtype, into.shape)

    def _shown(self, step: HandStep, vectors: Array) -> tuple[Array, Array]:
        """Its own masks of vectors, and what is opened of them."""
        masks: Array = step.mask(vectors.shape, SUM32, (self._place,)).words
        return masks, shown(self._mesh, vectors - masks)

    @staticmethod
    def _one_hot(ways: Bytes, group: Group) -> Array:
        return np.asarray(ways == np.arange(group.n_ways, dtype=np.uint8)[:, None]).astype(np.uint32)


def shown(mesh: Mesh, words: Array) -> Array:
    """What everybody's words [vectors, rows] make, in messages of bounded size."""
    found = [
        mesh.talk([Conversation(opened(Masked("rows", np.ascontiguousarray(words[:, rows]), SUM32)))])[0]
        for rows in _pieces(words.shape)
    ]
    return found[0] if len(found) == 1 else np.concatenate(found, axis=1)


def _pieces(shape: tuple[int, ...]) -> list[slice]:
    return blocks(shape[1], shape[0] * SUM32.number_bytes, MESSAGE_BYTES)
