"""A tree under construction: which nodes of a level split, what their children hold, and the finished `Tree`.

Nodes are numbered breadth-first as they arise, so the k-th node that splits has children 2k + 1 and 2k + 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, Scores
from hedgerow.engine.ensemble import NODE_DTYPES, Tree
from hedgerow.engine.splitting import MIN_GAIN, LevelSplits, gradient_of, hessian_of


class ValueRules(NamedTuple):
    """How a node's sums become its value, and how much a split must gain."""

    gradient_unit: float
    hessian_unit: float
    l2: float
    learning_rate: float
    min_gain: float


class NodeArrays(NamedTuple):
    """The fields of `Tree` that are written level by level, with room to spare."""

    feature: Int32s
    bin: Int32s
    missing_left: Bools
    left: Int32s
    value: Scores
    gain: Scores
    cover: Floats

    @classmethod
    def room_for(cls, n_nodes: int) -> NodeArrays:
        """Arrays that are filled as nodes arise."""
        return cls(*(np.empty(n_nodes, NODE_DTYPES[name]) for name in cls._fields))

    def first(self, n_nodes: int) -> NodeArrays:
        """The first nodes, in the same memory."""
        some: Any = (field[:n_nodes] for field in self)
        return NodeArrays(*some)

    def enlarged(self, n_nodes: int) -> NodeArrays:
        """The same nodes in larger arrays."""
        larger = NodeArrays.room_for(n_nodes)
        for name in self._fields:
            getattr(larger, name)[: len(self.value)] = getattr(self, name)
        return larger


class Children(NamedTuple):
    """Left and right child of each splitting node, in turn."""

    total: Ints  # packed
    lower: Floats  # bounds that monotone constraints put on values
    upper: Floats


class FlatEdges:
    """Every feature's edges in one array, each followed by +inf: the threshold of (feature, bin) is one look-up."""

    def __init__(self, edges: Sequence[Floats | None]) -> None:
        closed = [np.append(e, np.inf) if e is not None else np.empty(0) for e in edges]
        self.first = np.concatenate([[0], np.cumsum([len(e) for e in closed])])[:-1].astype(np.int64)
        self.flat = np.concatenate(closed)
        self.some_categorical = any(e is None for e in edges)


class TreeBuilder:
    """Takes the best splits of level after level and gives back what to do with each."""

    def __init__(
        self, rules: ValueRules, monotone: Ints, edges: FlatEdges, max_leaves: int | None, root_total: int
    ) -> None:
        self._rules, self._monotone, self._edges = rules, monotone, edges
        self._max_leaves = max_leaves
        self._nodes = NodeArrays.room_for(127)
        self._n_nodes = 1
        self._first = 0  # first node of the newest level
        self.n_leaves = 1
        self._left_levels: list[Bytes] = []
        root = Children(np.array([root_total]), np.array([-np.inf]), np.array([np.inf]))
        add_leaves(root, rules, 0, self._nodes)
        self.newest = root

    def divide(self, splits: LevelSplits) -> Ints:
        """The feature each node of the newest level splits on, -1 where it does not; `newest` becomes the children.

        A node splits if it gains enough. Where leaves are limited, the best nodes of the level go first.
        """
        n_level = len(splits.gain)
        if len(self._nodes.value) < self._n_nodes + 2 * n_level:
            self._nodes = self._nodes.enlarged(2 * (self._n_nodes + 2 * n_level))
        room = n_level if self._max_leaves is None else self._max_leaves - self.n_leaves
        feature = np.empty(n_level, np.int64)
        children = Children(np.empty(2 * n_level, np.int64), np.empty(2 * n_level), np.empty(2 * n_level))
        n_splitting = divide_level(
            splits,
            self.newest,
            self._rules,
            self._monotone,
            room,
            self._first,
            self._n_nodes,
            self._nodes,
            feature,
            children,
        )
        if self._edges.some_categorical:
            self._left_levels.append(splits.goes_left[(feature >= 0) & (splits.bin < 0)])
        n_children = 2 * n_splitting
        self.newest = Children(children.total[:n_children], children.lower[:n_children], children.upper[:n_children])
        self._level_feature = feature
        self._first = self._n_nodes
        self._n_nodes += 2 * n_splitting
        self.n_leaves += n_splitting
        return feature

    @property
    def nodes(self) -> NodeArrays:
        """All nodes so far; whoever knows better values than their sums give may write them before `finish`."""
        return self._nodes.first(self._n_nodes)

    @property
    def is_full(self) -> bool:
        """No further leaf is allowed."""
        return self.n_leaves == self._max_leaves

    def finish(self) -> tuple[Tree, Scores]:
        """The tree, and its leaf values in the order that `Rows.finish_tree` asks for."""
        n_nodes, nodes = self._n_nodes, self.nodes
        threshold = np.empty(n_nodes, np.float64)
        right, level_set = np.empty(n_nodes, np.int32), np.empty(n_nodes, np.int32)
        leaf_values = np.empty(self.n_leaves, np.float32)
        complete_tree(
            nodes, self._edges.flat, self._edges.first, self._first - len(self._level_feature), self._first,
            threshold, right, level_set, leaf_values,
        )  # fmt: skip
        left_levels = np.concatenate(self._left_levels) if self._left_levels else np.zeros((0, 256), np.uint8)
        arrays: dict[str, Any] = {**nodes._asdict(), "threshold": threshold, "right": right, "level_set": level_set}
        return Tree.as_grown(**arrays, left_levels=left_levels.view(np.bool_)), leaf_values


@inline_kernel
def _raw_value(gradient: float, hessian: float, l2: float, lower: float, upper: float) -> float:
    """-G / (H + l2) within bounds; an empty node without regularisation has no opinion."""
    denominator = hessian + l2
    value = -gradient / denominator if denominator > 0.0 else 0.0
    return min(max(value, lower), upper)


@kernel
def add_leaves(children: Children, rules: ValueRules, first: int, nodes: NodeArrays) -> None:
    """New nodes from number `first` on: leaves, until they split, with their value and cover."""
    for k in range(children.total.shape[0]):
        node = first + k
        gradient = np.float64(gradient_of(children.total[k])) * rules.gradient_unit
        hessian = np.float64(hessian_of(children.total[k])) * rules.hessian_unit
        value = _raw_value(gradient, hessian, rules.l2, children.lower[k], children.upper[k])
        nodes.value[node] = np.float32(value * rules.learning_rate)
        nodes.cover[node] = hessian
        nodes.feature[node] = -1
        nodes.bin[node] = -1
        nodes.left[node] = -1
        nodes.gain[node] = 0.0
        nodes.missing_left[node] = False


@kernel
def divide_level(
    splits: LevelSplits,  # in  [nodes] the best split of each
    level: Children,  # in  [nodes] their sums and bounds
    rules: ValueRules,
    monotone: Ints,  # in  [features], or length 0
    room: int,  # in  splits that are still allowed
    first: int,  # in  number of the level's first node
    n_nodes: int,  # in  nodes there are already
    nodes: NodeArrays,  # out
    feature: Ints,  # out [nodes] -1 where a node becomes a leaf
    children: Children,  # out [2 x nodes]
) -> int:
    """Choose the nodes that split, write them down, and give their children sums, bounds and values."""
    n_level = splits.gain.shape[0]
    n_good = 0
    for k in range(n_level):
        good = splits.feature[k] >= 0 and splits.gain[k] > MIN_GAIN and splits.gain[k] >= rules.min_gain
        feature[k] = splits.feature[k] if good else -1
        n_good += good
    if n_good > room:
        best_first = np.argsort(-splits.gain, kind="mergesort")  # stable: the first node wins a tie
        taken = 0
        for position in range(n_level):
            k = best_first[position]
            if feature[k] >= 0:
                taken += 1
                if taken > room:
                    feature[k] = -1
    n_splitting = 0
    for k in range(n_level):
        if feature[k] < 0:
            continue
        node = first + k
        left = 2 * n_splitting
        right = left + 1
        nodes.feature[node] = feature[k]
        nodes.bin[node] = splits.bin[k]
        nodes.gain[node] = splits.gain[k]
        nodes.missing_left[node] = splits.missing_left[k]
        nodes.left[node] = n_nodes + left
        children.total[left] = splits.left_sum[k]
        children.total[right] = level.total[k] - splits.left_sum[k]
        for child in (left, right):
            children.lower[child] = level.lower[k]
            children.upper[child] = level.upper[k]
        if monotone.shape[0] > 0 and monotone[feature[k]] != 0:
            # No value below one child may cross the middle between the two children's values.
            middle = 0.0
            for child in (left, right):
                gradient = np.float64(gradient_of(children.total[child])) * rules.gradient_unit
                hessian = np.float64(hessian_of(children.total[child])) * rules.hessian_unit
                middle += _raw_value(gradient, hessian, rules.l2, level.lower[k], level.upper[k]) / 2.0
            below, above = (left, right) if monotone[feature[k]] > 0 else (right, left)
            children.upper[below] = middle
            children.lower[above] = middle
        n_splitting += 1
    written = Children(
        children.total[: 2 * n_splitting], children.lower[: 2 * n_splitting], children.upper[: 2 * n_splitting]
    )
    add_leaves(written, rules, n_nodes, nodes)
    return n_splitting


@kernel
def complete_tree(
    nodes: NodeArrays,
    flat_edges: Floats,
    first_edge: Ints,
    last_level: int,  # in  first node of the last level that was evaluated
    children: int,  # in  first of its children
    threshold: Floats,  # out [nodes] x < threshold goes left; NaN for leaves and splits by levels
    right: Int32s,  # out [nodes]
    level_set: Int32s,  # out [nodes]
    leaf_values: Scores,  # out [leaves]
) -> None:
    """Fields that follow from the others, and the leaf values in the order in which rows are settled.

    That order is level by level, except that children of the last level stand where their parents do.
    """
    n_sets = 0
    n_values = 0
    for node in range(nodes.feature.shape[0]):
        feature = nodes.feature[node]
        left = nodes.left[node]
        right[node] = left + 1 if feature >= 0 else -1
        by_levels = feature >= 0 and nodes.bin[node] < 0
        level_set[node] = n_sets if by_levels else -1
        n_sets += by_levels
        threshold[node] = np.nan
        if nodes.bin[node] >= 0:
            threshold[node] = flat_edges[first_edge[feature] + nodes.bin[node]]
        if node >= children:
            continue
        if feature < 0:
            leaf_values[n_values] = nodes.value[node]
            n_values += 1
        elif node >= last_level:
            leaf_values[n_values] = nodes.value[left]
            leaf_values[n_values + 1] = nodes.value[left + 1]
            n_values += 2
