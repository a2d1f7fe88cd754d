"""What the label holder can make of MP-FedXGB's openings with its own gradients: the rows of nodes and of leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.engine.dtypes import Floats, Ints


def members(hessians: Sequence[int], total: int, at_most: int = 2) -> list[int]:
    """Sets of rows, as bits, whose hessians add up to this: which rows of a small node a candidate sends one way.

    Sums of one half of the rows are looked up among those of the other, so up to some forty rows can be done.
    """
    half = len(hessians) // 2
    low, high = _subset_sums(hessians[:half]), _subset_sums(hessians[half:])
    order = np.argsort(low, kind="stable")
    start = np.searchsorted(low[order], total - high, side="left")
    end = np.searchsorted(low[order], total - high, side="right")
    found: list[int] = []
    for place in np.flatnonzero(end > start).tolist():
        found += [int(low_set) | place << half for low_set in order[start[place] : end[place]]]
        if len(found) >= at_most:
            break
    return found[:at_most]


def _subset_sums(values: Sequence[int]) -> Ints:
    """Of all subsets, at the place that has the bits of their members."""
    sums = np.zeros(1, np.int64)
    for value in values:
        sums = np.concatenate([sums, sums + value])
    return sums


class LeavesOfTree(NamedTuple):
    """What P1 knows of a tree's leaves."""

    leaf: Ints  # [rows]
    values: Floats  # [leaves] what was opened
    gradients: Ints  # [leaves] sums over the rows
    hessians: Ints  # [leaves]


def leaves_of_rows(predictions: npt.ArrayLike, gradients: Ints, hessians: Ints) -> list[LeavesOfTree]:
    """From y_hat [trees, rows] and P1's own gradients and hessians [trees, rows]."""
    found = []
    for opened, g, h in zip(np.asarray(predictions), gradients, hessians, strict=True):
        values, leaf = np.unique(opened, return_inverse=True)
        sums = [np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)]
        for total, each in zip(sums, (g, h), strict=True):
            np.add.at(total, leaf, each)
        found.append(LeavesOfTree(leaf.astype(np.int64), values, *sums))
    return found
