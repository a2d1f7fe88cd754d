"""A grown tree as an ordinary `Tree`, so that files, prediction and export need not know where it came from.

It holds the choices and the noisy leaves, and nothing else that was ever near a record. Covers are those of rows spread
evenly over a complete tree; the value of an inner node is the average of the leaves below it by these covers, and its
gain the weighted variance between its two sides.
"""

from __future__ import annotations

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.building import FlatEdges
from hedgerow.engine.dtypes import Bools, Floats, Ints, Scores
from hedgerow.engine.ensemble import Tree
from hedgerow.protocols.central.dpboost.candidates import Candidates
from hedgerow.protocols.central.dpboost.records import Asked


def released_tree(tree: Asked, candidates: Candidates, is_categorical: Bools, edges: FlatEdges, values: Scores) -> Tree:
    """The model's tree; `values` per node, of which those of leaves count."""
    n_nodes = len(tree.chosen)
    splits = tree.chosen >= 0
    asked = np.where(splits, tree.chosen, 0)
    feature = np.where(splits, candidates.feature[asked], -1)
    cut = candidates.cut[asked]
    by_level = splits & is_categorical[feature]
    numeric = splits & ~by_level
    threshold = np.full(n_nodes, np.nan)
    threshold[numeric] = edges.flat[edges.first[feature[numeric]] + cut[numeric]]
    value = values.copy()
    gain, cover = np.zeros(n_nodes, np.float32), np.zeros(n_nodes)
    spread_evenly(tree.child, value, gain, cover)
    levels = (np.arange(256) == cut[by_level, None]) & ~tree.missing_left[by_level, None]  # "missing" is no level
    return Tree.as_grown(
        feature=feature.astype(np.int32),
        bin=np.where(numeric, cut, -1).astype(np.int32),
        threshold=threshold,
        missing_left=tree.missing_left,
        left=tree.child.astype(np.int32),
        right=np.where(splits, tree.child + 1, -1).astype(np.int32),
        value=value,
        gain=gain,
        cover=cover,
        level_set=np.where(by_level, np.cumsum(by_level) - 1, -1).astype(np.int32),
        left_levels=levels,
    )


@kernel
def spread_evenly(child: Ints, value: Scores, gain: Scores, cover: Floats) -> None:
    """Covers from the root down, then values and gains from the leaves up; leaves have their values."""
    cover[0] = 1.0
    for node in range(child.shape[0]):
        if child[node] >= 0:
            cover[child[node]] = cover[child[node] + 1] = cover[node] / 2.0
    for node in range(child.shape[0] - 1, -1, -1):
        if child[node] >= 0:
            left, right = np.float64(value[child[node]]), np.float64(value[child[node] + 1])
            value[node] = (left + right) / 2.0
            gain[node] = (left - right) * (left - right) * cover[node] / 4.0
