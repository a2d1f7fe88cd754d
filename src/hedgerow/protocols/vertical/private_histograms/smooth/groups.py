"""Sums over the leaves of an oblivious tree whose levels belong to several parties, on shares.

A party knows which way all of its levels send each row: one of K = 2^levels ways, rows of a one-hot matrix X. Leaves
are all combinations of everybody's ways. The parties with levels take their turns, the one with most of them last, with
vectors Y that are shared (at first gradients alone) and masks A of X and B of Y. Party m knows its parts [A]_m, [B]_m:

    expand       a vector becomes K, X Y by rows. Opened are E = X - A and F = Y - B, and A B is dealt row by row:
                 X Y = E F + E B + A F + A B
    add up       the last party's: sums over rows of X Y, so that what is dealt are a few numbers. This A is known to
                 its owner o and the dealer: o sends E = X - A, and with F = Y - B opened
                 X Y = X (F + [B]_o) at o,  E [B]_m at all others m,  and A (B - [B]_o), which is dealt among all

Numbers of rows go the same way, beginning with the first party's X. Where one party has all levels, it knows them.

**Leaf values.** v[way of the last one, ways of the others]: the last one knows U = v[its way], a number for each
combination of the others' ways, whose indicators Y have been opened as F = Y - B. It masks U as it masks its X, and the
sum over combinations of U Y is shared: one number is dealt for each row.

**The dealer does not know whose levels these are**, for that follows from noisy sums whose noise it knows. So it deals
for as many ways and vectors as an expansion can have; for the last turn, for each party that could be the last and each
number of levels that others may have. Parties take what is theirs and throw the rest away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.ring import histogram, rows_times
from hedgerow.crypto.shares import SUM32, Array, as_bytes
from hedgerow.engine.dtypes import Bytes, Ints
from hedgerow.protocols.shares.mesh import Mesh, blocks, received
from hedgerow.protocols.vertical.private_histograms.messages import SmoothSides
from hedgerow.protocols.vertical.private_histograms.smooth.schedule import Schedule
from hedgerow.runtime.party import Party

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

    def __init__(self, schedule: Schedule) -> None:
        self._schedule, self._n_rows = schedule, schedule.n_rows
        self._places = range(schedule.n_holders)
        self._ones: list[Array] = []

    def deal_expansion(self, step: DealerStep, position: int) -> None:
        """For the party whose turn this is, whichever it will be."""
        ways, vectors = self._schedule.expansions[position]
        a = step.mask((ways - 1, self._n_rows), SUM32)
        b = step.mask((vectors, self._n_rows), SUM32)
        step.share(np.asarray(a[:, None] * b), SUM32)

    def deal_last(self, step: DealerStep) -> None:
        """For the last turn, of each party and for each number of levels of others."""
        depth, shared = self._schedule.depth, self._schedule.most_shared
        own = [step.mask((_vectors(shared), self._n_rows), SUM32, (place,)) for place in self._places]
        for place in self._places:
            a = step.mask(((1 << depth) - 1, self._n_rows), SUM32, (place,))
            others = without(own, place)
            for levels in range(shared + 1):
                ways = 1 << (depth - levels)
                step.share(rows_times(a[: ways - 1], others[: _vectors(levels)]), SUM32)
        self._ones = [mask.reshape(-1, _BOTH, self._n_rows)[:, 1] for mask in own] if shared else []

    def deal_values(self, step: DealerStep) -> None:
        """For `GroupSums.values`, after `deal_last` of the same tree: what each level of others adds."""
        for place in self._places:
            a = step.mask(self._ones[0].shape, SUM32, (place,))
            products = a * without(self._ones, place)
            for rows in _doubling(self._schedule.most_shared):
                step.share(np.asarray(products[rows].sum(axis=0, dtype=np.uint32)), SUM32)


class GroupSums:
    """One party's side of one tree after the other."""

    def __init__(self, me: Party, mesh: Mesh, holders: Sequence[str], schedule: Schedule) -> None:
        self._me, self._mesh, self._holders = me, mesh, tuple(holders)
        self._place = self._holders.index(me.name)
        self._schedule, self._n_rows = schedule, schedule.n_rows
        self.rounds = 0
        """In which one of the parties sent something to all, beside those of the mesh."""
        self._groups: list[Group] = []
        self._leaves = np.zeros((1, 1), np.int64)
        self._ways = np.zeros(0, np.uint8)

    def sums(self, taken: Callable[[int], HandStep], gradients: Array, owners: Sequence[int], ways: Bytes) -> Array:
        """Shares of sums of gradients and of numbers of rows in each leaf: [leaves, 2].

        `taken(position)` is what was dealt for a turn, that of the last one after all expansions; `ways` are those at
        its own levels.
        """
        self._groups, self._ways = groups_of(owners), ways
        self._leaves = leaf_numbers(self._groups, len(owners))
        vectors = gradients[None]
        for position, group in enumerate(self._groups[:-1]):
            mine = self._one_hot(group)
            made = self._expanded(taken(position), position, mine[:-1], vectors)
            made = np.concatenate([made, (vectors - made.sum(axis=0, dtype=np.uint32))[None]])
            if not position:
                made = np.stack([made[:, 0], mine], axis=1)
            vectors = made.reshape(-1, self._n_rows)
        sums = self._added_up(taken(len(self._schedule.expansions)), vectors)
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

    def values(self, taken: Callable[[], HandStep], values: Array) -> Array:
        """Shares of each row's leaf value, of the last tree; nothing is taken where one party knows all ways."""
        last = self._groups[-1]
        is_mine = last.place == self._place
        by_way = values[self._leaves]  # [combinations, ways of the last]
        if len(self._groups) == 1:
            return np.asarray(by_way[0][self._ways]) if is_mine else np.zeros(self._n_rows, np.uint32)
        step, n_combinations = taken(), len(by_way)
        self.rounds += 1
        dealt = np.zeros(self._n_rows, np.uint32)
        for place in range(len(self._holders)):
            if place == self._place:
                masks = step.mask((1 << self._schedule.most_shared, self._n_rows), SUM32, (place,)).words
            for rows in _doubling(self._schedule.most_shared):
                share = step.share(self._n_rows, SUM32).words
                if place == last.place and rows.stop <= n_combinations:
                    dealt += share
        if is_mine:
            known = by_way[:, self._ways]
            self._send_masked(known - masks[:n_combinations])
            added = (known * (self._f + self._b)).sum(axis=0, dtype=np.uint32)
        else:
            added = (self._received(last.place, self._b.shape) * self._b).sum(axis=0, dtype=np.uint32)
        return np.asarray(dealt + added)

    def _expanded(self, step: HandStep, position: int, mine: Array, vectors: Array) -> Array:
        """Shares of the products of all ways but the last with vectors: [ways, vectors, rows]."""
        most_ways, most_vectors = self._schedule.expansions[position]
        a = step.mask((most_ways - 1, self._n_rows), SUM32).words[: len(mine)]
        b = step.mask((most_vectors, self._n_rows), SUM32).words[: len(vectors)]
        made = step.share((most_ways - 1, most_vectors, self._n_rows), SUM32).words[: len(mine), : len(vectors)]
        e, f = self._mesh.masked_rows(SUM32, (mine, a), (vectors, b))
        e = e[:, None]
        made = made + e * b + a[:, None] * f
        if self._place == 0:
            made += e * f
        return np.asarray(made)

    def _added_up(self, step: HandStep, vectors: Array) -> Array:
        """Shares of the sums of vectors over the rows of each way of the last party: [vectors, ways]."""
        last, schedule = self._groups[-1], self._schedule
        n_ways, levels_of_others = last.n_ways, schedule.depth - len(last.levels)
        b = step.mask((_vectors(schedule.most_shared), self._n_rows), SUM32, (self._place,)).words[: len(vectors)]
        for place in range(len(self._holders)):
            if place == self._place:
                a = step.mask(((1 << schedule.depth) - 1, self._n_rows), SUM32, (place,)).words
            for levels in range(schedule.most_shared + 1):
                share = step.share((_vectors(levels), (1 << (schedule.depth - levels)) - 1), SUM32).words
                if (place, levels) == (last.place, levels_of_others):
                    made = share
        self.rounds += 1
        if last.place == self._place:
            self._send_masked(self._one_hot(last)[:-1] - a[: n_ways - 1])
            (f,) = self._mesh.masked_rows(SUM32, (vectors, b))
            made = made + histogram(self._ways[None], f + b, n_ways)[:, 0, :-1]
        else:
            hidden = self._received(last.place, (n_ways - 1, self._n_rows))
            (f,) = self._mesh.masked_rows(SUM32, (vectors, b))
            made = made + rows_times(hidden, b)
        totals = vectors.sum(axis=1, dtype=np.uint32)
        both = vectors.shape[0] > 1
        self._f, self._b = (each.reshape(-1, _BOTH, each.shape[1])[:, 1] if both else each for each in (f, b))
        return np.concatenate([made, (totals - made.sum(axis=1, dtype=np.uint32))[:, None]], axis=1)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _send_masked(self, words: Array) -> None:
        """To all others, in messages of bounded size."""
        others = [party for party in self._holders if party != self._me.name]
        for rows in _pieces(words.shape):
            self._me.send_all(others, SmoothSides(as_bytes(words[:, rows])))

    def _received(self, place: int, shape: tuple[int, ...]) -> Array:
        words, party = np.empty(shape, SUM32.dtype), self._holders[place]
        for rows in _pieces(shape):
            piece = words[:, rows]
            piece[:] = received(self._me, party, SmoothSides, SUM32.dtype, piece.shape)
        return words

    def _one_hot(self, group: Group) -> Array:
        """X at the party whose levels these are, zeros at all others: shares of X."""
        if group.place != self._place:
            return np.zeros((group.n_ways, self._n_rows), np.uint32)
        return np.asarray(self._ways == np.arange(group.n_ways, dtype=np.uint8)[:, None]).astype(np.uint32)


def _vectors(levels: int) -> int:
    """Vectors of the last turn, after others with this many levels: gradients and rows of each of their ways."""
    return _BOTH << levels if levels else 1


def _doubling(levels: int) -> list[slice]:
    """0..2, 2..4, 4..8, ...: combinations that each further level of others adds."""
    return [slice(1 << k if k else 0, 2 << k) for k in range(levels)]


def _pieces(shape: tuple[int, ...]) -> list[slice]:
    return blocks(shape[1], shape[0] * SUM32.number_bytes)
