"""The learned functions as ordinary trees, so that files, prediction and export need not know where they came from.

Gains and covers are computed from released numbers: the gain of a split is how much of the weighted variance of the
values below it lies between its two sides.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import MAX_BINS, Bytes, Floats, Int32s, Ints
from hedgerow.engine.ensemble import Tree
from hedgerow.protocols.central.gaussian.tables import Bins


def merged_feature(cells: FeatureBins, bins: Bins) -> FeatureBins:
    """The merged bins of a feature; levels are never merged."""
    if cells.edges is None:
        return cells
    last_cells = np.flatnonzero(np.diff(bins.of_cell[: len(cells.edges) + 1].astype(np.int64)))
    return FeatureBins(cells.name, cells.edges[last_cells], rule=cells.rule)


def table_tree(number: int, feature: FeatureBins, table: Floats, weights: Floats) -> Tree:
    """A balanced tree with one leaf per bin of feature `number`; `table` and `weights` per bin, missing last if there.

    A missing value has its own leaf if it has a bin, split off at the root; else (a gap where the schema said there
    would be none) it takes the way to the bin whose value is nearest to the average.
    """
    missing = feature.missing_code
    values = np.arange(missing) if feature.levels is None else np.argsort(table[:missing], kind="stable")
    if len(table) > missing:
        lost, all_bins = missing, [*values.tolist(), missing]
    else:
        lost, all_bins = int(np.argmin(np.abs(table - weights @ table / weights.sum()))), values.tolist()
    nodes: list[dict[str, Any]] = []
    left_levels: list[Any] = []
    waiting = deque([all_bins])
    while waiting:
        below = waiting.popleft()
        value, weight = _mean(table, weights, below)
        if len(below) == 1:
            nodes.append(_LEAF | {"value": value, "cover": weight})
            continue
        cut = len(below) - 1 if below[-1] == missing else len(below) // 2
        left, right = below[:cut], below[cut:]
        gain = _gain(_mean(table, weights, left), _mean(table, weights, right))
        node = _LEAF | {"feature": number, "missing_left": lost in left, "gain": gain, "value": value, "cover": weight}
        if feature.edges is not None:
            node |= {"bin": left[-1], "threshold": _threshold(feature, left[-1])}
        else:
            node |= {"level_set": len(left_levels)}
            left_levels.append(np.isin(np.arange(MAX_BINS), left))
        nodes.append(node)
        waiting += [left, right]
    inner = np.array([node["feature"] >= 0 for node in nodes])
    first = 2 * np.cumsum(inner) - 1
    return Tree(
        **{name: np.array([node[name] for node in nodes]) for name in _LEAF},
        left=np.where(inner, first, -1),
        right=np.where(inner, first + 1, -1),
        left_levels=np.array(left_levels, np.bool_).reshape(-1, MAX_BINS),
    )


def oblivious_trees(
    features: Int32s, goes_right: Bytes, described: tuple[FeatureBins, ...], leaves: Floats, weights: Floats
) -> list[Tree]:
    """Perfect trees that ask the same question at every node of a level; leaf c has the bits of c as its answers.

    Trees have the same questions, and leaves of their own: `leaves` and `weights` [trees, leaves]. In `goes_right` the
    entry of a feature's missing code says where missing values go.
    """
    of_level = np.repeat(np.arange(len(features)), 1 << np.arange(len(features)))  # the level of each inner node
    asked = _questions(features, goes_right, described, of_level)
    return [Tree(**asked, **_contents(*own)) for own in zip(leaves, weights, strict=True)]


def perfect_tree(
    features: Int32s, goes_right: Bytes, described: tuple[FeatureBins, ...], leaves: Floats, weights: Floats
) -> Tree:
    """A perfect tree with a question of its own at every inner node, given level by level from left to right."""
    return Tree(**_questions(features, goes_right, described, np.arange(len(features))), **_contents(leaves, weights))


def _questions(
    features: Int32s, goes_right: Bytes, described: tuple[FeatureBins, ...], of_node: Ints
) -> dict[str, Any]:
    """What the nodes of a perfect tree ask, level by level: inner node k the question of_node[k], leaves nothing."""
    bins, thresholds = np.full(len(features), -1), np.full(len(features), np.nan)
    missing_left, by_level = np.empty(len(features), np.bool_), np.zeros(len(features), np.bool_)
    goes_left = goes_right == 0
    for k, number in enumerate(features.tolist()):
        feature = described[number]
        missing_left[k] = goes_left[k, feature.missing_code]
        if feature.edges is not None:
            bins[k] = np.flatnonzero(goes_left[k, : feature.n_value_bins])[-1]
            thresholds[k] = _threshold(feature, int(bins[k]))
        else:
            by_level[k] = True
            goes_left[k, feature.n_value_bins :] = False
    with_levels = by_level[of_node]
    inner = {
        "feature": features[of_node], "bin": bins[of_node], "threshold": thresholds[of_node],
        "missing_left": missing_left[of_node], "level_set": np.where(with_levels, np.cumsum(with_levels) - 1, -1),
    }  # fmt: skip
    n_inner = len(of_node)
    nodes = {name: np.concatenate([asked, np.full(n_inner + 1, _LEAF[name])]) for name, asked in inner.items()}
    left = np.concatenate([2 * np.arange(n_inner) + 1, np.full(n_inner + 1, -1)])
    right = np.where(left < 0, -1, left + 1)
    return nodes | {"left": left, "right": right, "left_levels": goes_left[of_node[with_levels]]}


def _contents(leaves: Floats, weights: Floats) -> dict[str, Any]:
    """Values, covers and gains of all nodes of a perfect tree with these leaves."""
    n_inner = len(leaves) - 1
    value, cover = np.empty(2 * n_inner + 1), np.empty(2 * n_inner + 1)
    value[n_inner:], cover[n_inner:] = leaves, weights
    gain = np.zeros(2 * n_inner + 1)
    stop = n_inner
    while stop > 0:  # a level at a time, from the last but one to the root
        here, below = slice(stop // 2, stop), slice(stop, 2 * stop + 1)
        values, covers = value[below].reshape(-1, 2), cover[below].reshape(-1, 2)
        cover[here] = covers[:, 0] + covers[:, 1]
        value[here] = (values[:, 0] * covers[:, 0] + values[:, 1] * covers[:, 1]) / cover[here]
        gain[here] = _gain((values[:, 0], covers[:, 0]), (values[:, 1], covers[:, 1]))
        stop //= 2
    return {"value": value, "cover": cover, "gain": gain}


_LEAF: dict[str, Any] = {
    "feature": -1,
    "bin": -1,
    "threshold": np.nan,
    "missing_left": False,
    "value": 0.0,
    "gain": 0.0,
    "cover": 0.0,
    "level_set": -1,
}


def _threshold(feature: FeatureBins, last_left: int) -> float:
    """Of a split after a bin; after the last one, every value that is there goes left."""
    edges = feature.edges
    return float(edges[last_left]) if edges is not None and last_left < len(edges) else np.inf


def _mean(table: Floats, weights: Floats, bins: list[int]) -> tuple[float, float]:
    weight = float(weights[bins].sum())
    return float(table[bins] @ weights[bins]) / weight, weight


def _gain(left: tuple[Any, Any], right: tuple[Any, Any]) -> Any:
    """Weighted variance between two sides given as (mean, weight); numbers or arrays of them."""
    (a, m), (b, n) = left, right
    return m * n / (m + n) * (a - b) ** 2
