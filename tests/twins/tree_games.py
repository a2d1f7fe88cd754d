"""The game behind contributions, by its definition: what a tree is worth if only some columns are known."""

from __future__ import annotations

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble, Tree

NO_LEVELS = np.zeros((0, 256), np.bool_)


def goes_left(tree, node, code, bins):
    """Which way a code goes at a node."""
    if code >= bins.missing_code:
        return bool(tree.missing_left[node])
    if tree.level_set[node] >= 0:
        return bool(tree.left_levels[tree.level_set[node], code])
    return code <= tree.bin[node]


def expectation(ensemble, tree, row, known, group, node=0):
    """The tree's value if only the players in `known` are: a mean by cover over both ways at all other nodes."""
    if tree.feature[node] < 0:
        return float(tree.value[node])
    feature, (left, right) = tree.feature[node], (tree.left[node], tree.right[node])
    if group[feature] in known:
        bins = ensemble.features[feature]
        child = left if goes_left(tree, node, row[feature], bins) else right
        return expectation(ensemble, tree, row, known, group, child)
    return sum(tree.cover[child] * expectation(ensemble, tree, row, known, group, child) for child in (left, right)) / (
        tree.cover[left] + tree.cover[right]
    )


def codes_for(ensemble, rng, n_rows):
    """Codes of all kinds, missing ones included."""
    return np.stack([rng.integers(0, f.n_codes, n_rows) for f in ensemble.features]).astype(np.uint8)


def chain_of(n_splits):
    """A tree that asks about one more column at every step to the right; covers halve."""
    mapper = BinMapper(tuple(FeatureBins(f"x{j}", np.array([0.0])) for j in range(n_splits)))
    n_nodes = 2 * n_splits + 1
    node = np.arange(n_nodes)
    inner = (node % 2 == 0) & (node < n_nodes - 1)
    tree = Tree(
        feature=np.where(inner, node // 2, -1),
        bin=np.where(inner, 0, -1),
        threshold=np.where(inner, 0.0, np.nan),
        missing_left=inner & (node % 4 == 0),
        left=np.where(inner, node + 1, -1),
        right=np.where(inner, node + 2, -1),
        value=np.cos(node),
        gain=np.where(inner, 1.0, 0.0),
        cover=0.5 ** ((node + 1) // 2),
        level_set=np.full(n_nodes, -1),
        left_levels=NO_LEVELS,
    )
    return Ensemble(mapper, "squared", [0.25], trees=[tree])
