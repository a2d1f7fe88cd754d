"""Splits of LightGBM's `zero_as_missing`, in which numbers around 0 go the way of missing values.

Where 0 would go the other way by its value, no single threshold says so. Such a split becomes three of the same column,
with the subtrees L and R below them:

    t > 0, zero right                      t <= 0, zero left
      x < -1e-35 : L' , else                 x < t : L , else
      x <= 1e-35 or missing : R' , else      x < -1e-35 : R' , else
      x < t : L , else R                     x <= 1e-35 or missing : L' , else R

L' and R' are copies. Their roots have no cover and everything below them has what the original has. So where the column
is not known, all of the cover goes to L and R, as in the tree that was read: contributions stay the same as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.engine.foreign_trees import ForeignTree
from hedgerow.errors import ModelFileError

ZERO = float(np.float32(1e-35))
"""LightGBM's kZeroThreshold: numbers up to it, either sign, count as 0."""
MOST_COPIES = 1 << 17
"""Nodes that a tree may come to have."""


class Crossing(NamedTuple):
    """The splits that are to be made three, and where zero and missing values go at each node."""

    nodes: Ints
    default_left: Bools  # by node; of inner nodes at least


class _Growing(NamedTuple):
    """Nodes of the new tree, by what they have in the old one."""

    came_from: list[int]
    feature: list[int]
    threshold: list[float]
    missing_left: list[bool]
    children: list[list[int]]
    cover: list[float]
    gain: list[float]

    def add(self, old: int, split: tuple[int, float, bool], cover: float, gain: float, below: tuple[int, int]) -> int:
        """A node without children as yet, hung below another one, left or right."""
        node = len(self.feature)
        feature, threshold, missing_left = split
        self.came_from.append(old)
        self.feature.append(feature)
        self.threshold.append(threshold)
        self.missing_left.append(missing_left)
        self.children.append([-1, -1])
        self.cover.append(cover)
        self.gain.append(gain)
        if node:
            self.children[below[0]][below[1]] = node
        return node


class _Waiting(NamedTuple):
    """A node of the old tree that is still to be put into the new one."""

    old: int
    is_copied_root: bool  # no cover
    is_copy: bool  # no gain: it counts once
    below: tuple[int, int]


def expanded(tree: ForeignTree, crossing: Crossing, where: str) -> tuple[ForeignTree, Ints]:
    """The tree with three splits for each crossing one, and the node that each of its nodes comes from.

    The nodes must hang together as a tree: children that exist, each the child of one.
    """
    grown = _Growing([], [], [], [], [], [], [])
    is_crossing = set(crossing.nodes.tolist())
    low, high = -ZERO, float(np.nextafter(ZERO, np.inf))  # x < low is below zero; x < high is zero or below
    waiting = [_Waiting(0, False, False, (-1, 0))]
    while waiting:
        old, is_copied_root, is_copy, below = waiting.pop()
        if len(grown.feature) > MOST_COPIES:
            raise ModelFileError(
                f"{where} treats zeros as missing in so many splits that it would take more than {MOST_COPIES} nodes "
                "here; train with zero_as_missing=false, zeros given as NaN"
            )
        feature, threshold = int(tree.feature[old]), float(tree.threshold[old])
        left, right = int(tree.left[old]), int(tree.right[old])
        cover = 0.0 if is_copied_root else float(tree.cover[old])
        gain = 0.0 if is_copy else float(tree.gain[old])
        if old not in is_crossing:
            node = grown.add(old, (feature, threshold, bool(tree.missing_left[old])), cover, gain, below)
            if feature >= 0:
                waiting += [_Waiting(child, False, is_copy, (node, side)) for side, child in enumerate((left, right))]
            continue
        # Threshold, whether missing values go left, cover, and on each side a node and whether it is a copy.
        steps: list[tuple[float, bool, float, tuple[int, bool], tuple[int, bool] | None]]
        if crossing.default_left[old]:
            rest = float(tree.cover[right])
            steps = [
                (min(threshold, low), False, cover, (left, False), None),
                (low, False, rest, (right, True), None),
                (high, True, rest, (left, True), (right, False)),
            ]
        else:
            rest = float(tree.cover[old])
            steps = [
                (low, False, cover, (left, True), None),
                (high, True, rest, (right, True), None),
                (max(threshold, high), False, rest, (left, False), (right, False)),
            ]
        for k, (t, missing_left, step_cover, on_left, on_right) in enumerate(steps):
            node = grown.add(old, (feature, t, missing_left), step_cover, gain if k == 0 else 0.0, below)
            below = (node, 1)
            for side, hung in enumerate((on_left, on_right)):
                if hung is not None:
                    waiting.append(_Waiting(hung[0], hung[1], is_copy or hung[1], (node, side)))
    came_from = np.array(grown.came_from, np.int64)
    children = np.array(grown.children, np.int64).reshape(-1, 2)
    cover_of: Floats = np.array(grown.cover)
    new = ForeignTree(
        feature=np.array(grown.feature, np.int64),
        threshold=np.array(grown.threshold),
        missing_left=np.array(grown.missing_left, np.bool_),
        left=children[:, 0],
        right=children[:, 1],
        value=tree.value[came_from],
        gain=np.array(grown.gain),
        cover=cover_of,
    )
    return new, came_from
