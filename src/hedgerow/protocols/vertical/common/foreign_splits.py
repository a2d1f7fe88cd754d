"""Whose each foreign split of the label holder's trees is, and what its owner calls it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hedgerow.engine.dtypes import Ints
from hedgerow.engine.ensemble import Tree
from hedgerow.protocols.vertical.common.parts import with_handles


class ForeignSplits:
    """Kept tree by tree and level by level while trees grow; parties go by their places."""

    def __init__(self, parties: Sequence[str], label_holder: str) -> None:
        self._parties, self._label_holder = tuple(parties), label_holder
        self._n_handles = np.zeros(len(parties), np.int64)
        self._levels: list[list[Ints]] = []  # per tree and level: [foreign nodes, (place, handle)]

    def begin_tree(self) -> None:
        """What comes now belongs to a new tree."""
        self._levels.append([])

    def n_handles_of(self, place: int) -> int:
        """Questions of a party so far."""
        return int(self._n_handles[place])

    def add_level(self, place: Ints, handle: Ints) -> None:
        """The foreign splits of a level, in the order of nodes."""
        np.maximum.at(self._n_handles, place, handle + 1)
        self._levels[-1].append(np.column_stack([place, handle]))

    @property
    def n_handles(self) -> dict[str, int]:
        """Questions of each feature holder."""
        named = zip(self._parties, self._n_handles.tolist(), strict=True)
        return {party: n for party, n in named if party != self._label_holder}

    def in_trees(self, trees: Sequence[Tree], n_own: int) -> list[Tree]:
        """Trees over own columns and handles, from trees with column `n_own` for all foreign splits."""
        first = n_own + np.cumsum([0, *self._n_handles[:-1]])
        finished = []
        for tree, levels in zip(trees, self._levels, strict=True):
            place, handle = np.concatenate([*levels, np.empty((0, 2), np.int64)]).T
            columns = tree.feature.copy()
            columns[tree.feature == n_own] = first[place] + handle
            finished.append(with_handles(tree, columns, n_own))
        return finished
