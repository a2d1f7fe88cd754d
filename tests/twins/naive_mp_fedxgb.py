"""The slow, obvious twin of protocols/vertical/mp_fedxgb: one tree from the data, in whole numbers without end.

It takes the quantised gradients of all rows and the bins of all columns, tries every split, and writes down what the
published protocol opens on the way: numerators and denominators of its equation 7, for every pair that is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Bools, Bytes, Ints


class Binned(NamedTuple):
    """One party's columns."""

    codes: Bytes  # [columns, rows]
    n_bins: Sequence[int]  # of values; the next code is that of a missing one


class Split(NamedTuple):
    """A possible split."""

    place: int  # of its owner among those who have data
    column: int  # among the owner's
    bin: int  # last one that goes left
    missing_left: bool


class Sums(NamedTuple):
    """Of a possible split: its gain is P / Q, but for what the node has without it."""

    split: Split
    P: int
    Q: int


@dataclass
class NaiveTree:
    """Nodes breadth-first, and what was opened: (level) or (level, round) -> a list for each node of the level."""

    splits: list[Split | None] = field(default_factory=list)
    leaf_sums: list[tuple[int, int]] = field(default_factory=list)  # G and H
    leaf_rows: list[Bools] = field(default_factory=list)
    numerators: dict[tuple[int, int], list[list[int]]] = field(default_factory=dict)
    denominators: dict[tuple[int, int], list[list[int]]] = field(default_factory=dict)
    test_numerators: dict[int, list[int]] = field(default_factory=dict)
    test_denominators: dict[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class NaiveMpFedXgb:
    """Public numbers of a training, and everybody's columns."""

    parties: Sequence[Binned]
    lambda_int: int
    threshold: int  # a split must gain more
    depth: int
    first_layer_mask: bool = False

    def grow(self, gradients: Ints, hessians: Ints) -> NaiveTree:
        """One tree."""
        tree = NaiveTree()
        level = [np.ones(len(gradients), np.bool_)]
        for number in range(self.depth):
            below: list[Bools] = []
            for rows in level:
                split = self._best(tree, number, rows, gradients, hessians)
                tree.splits.append(split)
                if split is None:
                    _add_leaf(tree, rows, gradients, hessians)
                else:
                    left = self.goes_left(split)
                    below += [rows & left, rows & ~left]
            level = below
        for rows in level:
            tree.splits.append(None)
            _add_leaf(tree, rows, gradients, hessians)
        return tree

    def goes_left(self, split: Split) -> Bools:
        """Of all rows."""
        party = self.parties[split.place]
        codes, missing = party.codes[split.column], party.n_bins[split.column]
        left: Bools = (codes <= split.bin) | (split.missing_left & (codes == missing))
        return left

    def candidates(self, level: int) -> list[list[Split]]:
        """Column by column, in the engine's order; missing values right before missing values left."""
        found = []
        for place, party in enumerate(self.parties[: 1 if self.first_layer_mask and level == 0 else None]):
            for column, n_bins in enumerate(party.n_bins):
                gaps = bool((party.codes[column] == n_bins).any())
                splits = [Split(place, column, b, False) for b in range(n_bins - (not gaps))]
                if gaps:
                    splits += [Split(place, column, b, True) for b in range(n_bins - 1)]
                found.append(splits)
        return [splits for splits in found if splits]

    def _best(self, tree: NaiveTree, level: int, rows: Bools, gradients: Ints, hessians: Ints) -> Split | None:
        """By comparing two at a time, as the paper does, and asking at last whether the best one gains anything."""
        G, H = int(gradients[rows].sum()), int(hessians[rows].sum())
        lam = self.lambda_int

        def sums(split: Split) -> Sums:
            left = rows & self.goes_left(split)
            gl, hl = int(gradients[left].sum()), int(hessians[left].sum())
            gr, hr = G - gl, H - hl
            return Sums(split, gl**2 * (hr + lam) + gr**2 * (hl + lam), (hl + lam) * (hr + lam))

        columns = [[sums(split) for split in splits] for splits in self.candidates(level)]
        n_rounds = 0
        while max(len(column) for column in columns) > 1:
            columns = _round(tree, (level, n_rounds), columns)
            n_rounds += 1
        (left,) = _all_rounds(tree, level, n_rounds, [column[0] for column in columns])
        above = left.P * (H + lam) - (G**2 + self.threshold * (H + lam)) * left.Q
        tree.test_numerators.setdefault(level, []).append(above)
        tree.test_denominators.setdefault(level, []).append((H + lam) * left.Q)
        return left.split if above > 0 else None


def _all_rounds(tree: NaiveTree, level: int, first: int, left: list[Sums]) -> list[Sums]:
    while len(left) > 1:
        (left,) = _round(tree, (level, first), [left])
        first += 1
    return left


def _round(tree: NaiveTree, key: tuple[int, int], columns: list[list[Sums]]) -> list[list[Sums]]:
    """Neighbours are compared, and the first of two that are equal goes on; an odd one goes on by itself."""
    above: list[int] = []
    below: list[int] = []
    found = []
    for column in columns:
        winners = []
        for one, other in zip(column[::2], column[1::2], strict=False):
            above.append(one.P * other.Q - other.P * one.Q)
            below.append(one.Q * other.Q)
            winners.append(other if above[-1] < 0 else one)
        found.append(winners + column[len(column) // 2 * 2 :])
    tree.numerators.setdefault(key, []).append(above)
    tree.denominators.setdefault(key, []).append(below)
    return found


def _add_leaf(tree: NaiveTree, rows: Bools, gradients: Ints, hessians: Ints) -> None:
    tree.leaf_sums.append((int(gradients[rows].sum()), int(hessians[rows].sum())))
    tree.leaf_rows.append(rows)
