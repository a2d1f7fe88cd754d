"""A trained model as one message, and back: only what cannot be computed from the rest is sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.ensemble import Tree
from hedgerow.errors import FrameError
from hedgerow.protocols.horizontal.secure_sum.messages import FinishedModel


def write_model(trees: Sequence[Tree]) -> FinishedModel:
    """All trees, their nodes one after the other."""
    return FinishedModel(
        tree_ends=np.cumsum([tree.n_nodes for tree in trees]).astype(np.int64),
        feature=np.concatenate([tree.feature for tree in trees]),
        bin=np.concatenate([tree.bin for tree in trees]),
        missing_left=np.concatenate([tree.missing_left for tree in trees]).view(np.uint8),
        value=np.concatenate([tree.value for tree in trees]),
        gain=np.concatenate([tree.gain for tree in trees]),
        cover=np.concatenate([tree.cover for tree in trees]),
        left_levels=np.packbits(np.concatenate([tree.left_levels for tree in trees]), axis=1),
    )


def read_model(message: FinishedModel, mapper: BinMapper) -> list[Tree]:
    """The trees of a message. Nothing in it is believed: prediction follows children and looks up bins unchecked.

    All trees are checked at once, and children, thresholds and level sets are computed rather than read: the k-th inner
    node of a tree has children 2k + 1 and 2k + 2, and its threshold is an edge of its feature.
    """
    ends, feature, last_bin = message.tree_ends, message.feature, message.bin
    n_nodes = len(feature)
    arrays = (last_bin, message.missing_left, message.value, message.gain, message.cover)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    _require(all(array.shape == (n_nodes,) for array in arrays), "arrays of different lengths")
    _require(len(ends) > 0 and int(ends[-1]) == n_nodes and bool((starts < ends).all()), "wrong ends of trees")
    _require(bool((feature < len(mapper.features)).all()), "a feature that there is not")
    _require(bool((message.missing_left <= 1).all()), "a direction that is neither left nor right")

    inner = feature >= 0
    n_inner = np.add.reduceat(inner, starts, dtype=np.int64)
    _require(bool((ends - starts == 2 * n_inner + 1).all()), "a tree with too many or too few leaves")
    rank = _rank_within(inner, starts, ends)
    position = np.arange(n_nodes) - np.repeat(starts, ends - starts)
    _require(bool((position < 2 * rank + 1)[inner].all()), "a child that comes before its parent")

    is_categorical = np.array([f.is_categorical for f in mapper.features], np.bool_)
    n_edges = np.array([0 if f.edges is None else len(f.edges) for f in mapper.features], np.int64)
    edges = np.concatenate([np.empty(0) if f.edges is None else np.append(f.edges, np.inf) for f in mapper.features])
    first_edge = np.cumsum([0, *np.where(is_categorical, 0, n_edges + 1)])[:-1]
    by_levels = inner & is_categorical[feature]
    numeric = inner & ~by_levels
    _require(bool((last_bin[~numeric] == -1).all()), "a bin where there is no split by value")
    in_range = (last_bin[numeric] >= 0) & (last_bin[numeric] <= n_edges[feature[numeric]])
    _require(bool(in_range.all()), "a bin that the feature has not")
    _require(message.left_levels.shape == (int(by_levels.sum()), 32), "too many or too few sets of levels")

    threshold = np.full(n_nodes, np.nan)
    threshold[numeric] = edges[first_edge[feature[numeric]] + last_bin[numeric]]
    left = np.where(inner, 2 * rank + 1, -1).astype(np.int32)
    right = np.where(inner, 2 * rank + 2, -1).astype(np.int32)
    level_set = np.where(by_levels, _rank_within(by_levels, starts, ends), -1).astype(np.int32)
    n_sets = np.add.reduceat(by_levels, starts, dtype=np.int64)
    sets = np.split(np.unpackbits(message.left_levels, axis=1).view(np.bool_), np.cumsum(n_sets)[:-1])
    return [
        Tree.as_grown(
            feature=feature[here],
            bin=last_bin[here],
            threshold=threshold[here],
            missing_left=message.missing_left[here].view(np.bool_),
            left=left[here],
            right=right[here],
            value=message.value[here],
            gain=message.gain[here],
            cover=message.cover[here],
            level_set=level_set[here],
            left_levels=levels,
        )
        for here, levels in zip(map(slice, starts.tolist(), ends.tolist()), sets, strict=True)
    ]


def _rank_within(chosen: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """How many of the chosen nodes come before each node in its tree."""
    before = np.cumsum(chosen) - chosen
    ranks: np.ndarray = before - np.repeat(before[starts], ends - starts)
    return ranks


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise FrameError(f"the model that came is not one: {what}")
