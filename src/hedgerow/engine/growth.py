"""One tree, grown level by level.

All nodes of a level are evaluated together, so a level costs one batch of messages when the rows are elsewhere:

    histograms of the smaller children  ->  larger siblings by subtraction  ->  best splits  ->  rows descend

The grower sees sums only; the records stay behind the verbs of `rows.Rows`. Where the records are elsewhere and their
sums stop coming in the middle of a tree, the tree ends at the last level that was complete.

`TreeGrower.grow` is these steps in turn. Protocols in which somebody else chooses the splits take them one by one:

    begin       all rows stand at the root, whose histogram is summed
    evaluate    the best split of each of some nodes
    divide      the nodes of the newest level split, rows descend, histograms of the children are planned
    finish      the tree, which has been added to the scores

The `TreeBuilder` holds the tree under construction: which nodes of a level split, what their children hold. Nodes are
numbered breadth-first as they arise, so the k-th node that splits has children 2k + 1 and 2k + 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, Scores
from hedgerow.engine.ensemble import NODE_DTYPES, Tree
from hedgerow.engine.feature_choice import FeatureChoice
from hedgerow.engine.histogram import Histograms, Layout, are_summed, histograms_of
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser
from hedgerow.engine.splitting import MIN_GAIN, SplitRules, evaluate_families, gradient_of, hessian_of
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidParameter

HISTOGRAM_BYTES = 512 * 2**20  # histograms kept for subtraction; beyond it nodes are summed afresh, batch by batch
CELLS_WORTH_A_THREAD = 30_000  # cells to evaluate below which waking another thread does not pay
DEEPEST = 64


class LevelLost(Exception):
    """The sums of a level are not available any more; raised by `RowsLike.histograms`, at the root by `grow` too."""


class RowsLike(Protocol):
    """What growth needs of its rows, wherever they are."""

    layout: Layout
    n_parts: int  # threads that work on them
    node_counts: Ints  # rows of each active node; empty where they are not known before the level's sums are

    def histograms(self, nodes: Ints, slots: Ints, cells: Ints, *, counts: bool = False) -> None:
        """Sum the gradients (or count the rows) of some active nodes; may raise LevelLost."""
        ...

    def descend(self, feature: Ints, goes_left: Bytes, *, last: bool = False) -> None:
        """Move the rows to the children they belong to."""
        ...

    def finish_tree(self, leaf_values: Scores) -> None:
        """Add the tree to the rows' scores."""
        ...


@runtime_checkable
class KnowsResiduals(Protocol):
    """Rows that can tell what losses with `refits_leaves` need: labels and scores are where they are."""

    def leaf_quantiles(self, n_leaves: int) -> Floats:
        """For each leaf, in the order of `finish_tree`, the loss's quantile of what its rows still lack."""
        ...


def split_rules(rules: BoostingParams, loss: Loss, quantiser: Quantiser, *, weighted: bool) -> SplitRules:
    """What makes a split admissible, and what its leaves get.

    min_samples_leaf needs a histogram of counts only where the hessian does not already imply it; else it is 0 here.
    """
    gradient_unit, hessian_unit = 1.0 / quantiser.gradient_scale, 1.0 / quantiser.hessian_scale
    min_child_weight, min_samples = rules.min_child_weight, rules.min_samples_leaf
    if not weighted and loss.has_unit_hessians:  # the hessian sum is the count
        min_child_weight, min_samples = max(min_child_weight, float(min_samples)), 0
    elif min_samples == 1:  # an empty child gains nothing, so it never wins
        min_samples = 0
    elif not weighted and min_child_weight >= min_samples * (loss.hessian_bound + hessian_unit):
        min_samples = 0  # each row brings at most hessian_bound, so that much weight takes enough rows
    admissible = (rules.l2, min_child_weight, min_samples, rules.missing_unseen == "right")
    return SplitRules(gradient_unit, hessian_unit, *admissible, rules.learning_rate, rules.min_gain)


class TreeGrower:
    """Grows trees on one set of rows; keeps its buffers from tree to tree.

    For subclasses: `rows`, `rules`, the `tree` under construction with its `depth`, the histograms in `store`; and two
    steps that may be taken in another way, `evaluate_families` and `descend`.
    """

    tree: TreeBuilder
    depth: int
    """Levels of the tree that have been divided."""
    where: Histograms
    """Of the newest nodes: which are summed, and which follow by subtraction."""

    def __init__(
        self,
        rows: RowsLike,
        rules: BoostingParams,
        loss: Loss,
        quantiser: Quantiser,
        edges: Sequence[Floats | None],
        *,
        weighted: bool,
    ) -> None:
        self.rows, self.rules, self._fewest = rows, rules, rules.min_rows_per_sum
        self.max_depth = rules.max_depth or DEEPEST
        self.split_rules = split_rules(rules, loss, quantiser, weighted=weighted)
        self.store = HistogramStore(rows.layout, rows.n_parts, with_counts=self.with_counts)
        self._edges = FlatEdges(edges)
        self._team = Team(rows.n_parts)
        self._all_features = np.ones((1, rows.layout.n_features), np.bool_)
        self._monotone = np.array(rules.monotone or (), np.int64)
        self._layout = _with_one_hot(rows.layout, rules.one_hot_levels)
        self._choice: FeatureChoice | None = None
        self._refit: Callable[[int], Floats] | None = None
        if loss.refits_leaves:
            if not isinstance(rows, KnowsResiduals):
                raise InvalidParameter(
                    f"the {loss.name} loss sets a leaf's value to a quantile of its rows' residuals, for which labels "
                    "and scores of all rows must be in one place, and here they are not; use the squared loss"
                )
            self._refit = rows.leaf_quantiles

    @property
    def with_counts(self) -> bool:
        """Whether histograms of row counts are asked for beside those of gradients."""
        return self.split_rules.min_samples_leaf > 0

    def grow(self, tree_number: int) -> Tree:
        """One tree from the rows' present gradients; `rows.start_tree` has been called. Scores are updated."""
        choice = self._choice = FeatureChoice(self.rules, self.rows.layout.n_features, tree_number)
        goes_on, lost = True, False
        self.begin()
        while goes_on:
            nodes = self.tree.newest
            try:
                splits = self.evaluate(nodes, choice.for_nodes(len(nodes.total)))
            except LevelLost:
                splits, lost = LevelSplits.none(len(nodes.total)), True
            goes_on = self.divide(splits, last=lost)
        return self.finish()

    # --- the steps ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Sum the root's histogram; any column's cells add up to the sum over all rows."""
        zero = np.zeros(1, np.int64)
        store, layout = self.store, self.rows.layout
        store.batched = False
        store.reserve(1)
        self._fill_histograms(zero, zero)
        first_column = slice(layout.first_cell[0], layout.first_cell[0] + layout.n_codes[0])
        total = int(store.cells[0, first_column].sum())
        built = zero[: int(self._fewest <= 1 or self.rows.node_counts[0] >= self._fewest)]
        self.where = Histograms(slot=zero, built=built, derived=built - 1)
        self.depth = 0
        self.tree = TreeBuilder(self.split_rules, self._monotone, self._edges, self.rules.max_leaves, total)

    def evaluate(self, nodes: Children, allowed: Bools | None = None) -> LevelSplits:
        """Fill the histograms of the level and find every node's best split, among `allowed` features only.

        `nodes` are the tree's newest ones, or, where the store keeps no histograms, any whose rows are active.
        """
        allowed = self._all_features if allowed is None else allowed
        n_nodes = len(nodes.total)
        splits = LevelSplits.none(n_nodes) if self._fewest > 1 else LevelSplits.room_for(n_nodes)
        store = self.store
        store.reserve(n_nodes)
        if not store.batched:
            where = self.where
            if (where.derived >= 0).any():  # the root has its histogram already
                self._fill_histograms(where.built, where.slot[where.built])
            self.evaluate_families(nodes, where, allowed, splits)
            return splits
        for first in range(0, n_nodes, store.capacity):  # too many nodes to keep: no subtraction, a batch at a time
            batch = np.arange(first, min(n_nodes, first + store.capacity))
            slot = np.zeros(n_nodes, np.int64)
            slot[batch] = batch - first
            self._fill_histograms(batch, slot[batch])
            afresh = Histograms(slot=slot, built=batch, derived=np.full(len(batch), -1, np.int64))
            self.evaluate_families(nodes, afresh, allowed, splits)
        if self._fewest > 1:
            splits.feature[~are_summed(self.rows.node_counts, self._fewest)] = -1
        return splits

    def divide(self, splits: LevelSplits, *, last: bool = False) -> bool:
        """Split the newest nodes as these splits say; whether the tree goes on. `last`: its children are leaves."""
        feature = self.tree.divide(splits)
        if self._choice is not None:
            self._choice.split(feature)
        self.depth += 1
        last = last or self.tree.is_full or self.depth == self.max_depth
        self.descend(feature, splits, last=last)
        if last or not len(self.tree.newest.total):
            return False
        self._plan_histograms(feature)
        return True

    def descend(self, feature: Ints, splits: LevelSplits, *, last: bool) -> None:
        """Move the rows of nodes that split on a feature (-1: a leaf); a subclass may know another way."""
        self.rows.descend(feature, splits.goes_left, last=last)

    def finish(self) -> Tree:
        """The finished tree, which has been added to the scores."""
        finished, leaf_values = self.tree.finish(self._refit)
        self.rows.finish_tree(leaf_values)
        return finished

    # --- one level ---------------------------------------------------------------------------------------------------

    def _plan_histograms(self, feature: Ints) -> None:
        """The smaller child is summed. Where nobody knows its rows, its hessian decides: the sums are the same."""
        counts = self.rows.node_counts
        if not len(counts):
            counts = self.tree.newest.total & np.int64(0xFFFFFFFF)
        self.where = histograms_of(counts, feature, self.where.slot, self._fewest)
        self.store.batched |= len(counts) > self.store.capacity

    def _fill_histograms(self, nodes: Ints, slots: Ints) -> None:
        self.rows.histograms(nodes, slots, self.store.cells)
        if self.with_counts:
            self.rows.histograms(nodes, slots, self.store.count_cells, counts=True)

    def evaluate_families(self, nodes: Children, where: Histograms, allowed: Bools, splits: LevelSplits) -> None:
        """Write the best split of each node into `splits`; the histograms of built nodes are in the store."""
        store, layout, rows = self.store, self._layout, self.rows
        n_families = len(where.built)
        n_tasks = rows.n_parts if n_families * layout.n_cells >= CELLS_WORTH_A_THREAD else 1
        common = (
            where.built, where.derived, where.slot, store.cells, store.count_cells,
            nodes.total, rows.node_counts, allowed, self._monotone, nodes.lower, nodes.upper, self.split_rules,
            layout, splits,
        )  # fmt: skip
        cuts = [n_families * task // n_tasks for task in range(n_tasks + 1)]
        self._team.run(evaluate_families, [(*limits, *common) for limits in itertools.pairwise(cuts)])


def _with_one_hot(layout: Layout, features: Sequence[int]) -> Layout:
    """The layout that says of which features levels are split one against all others."""
    if not features:
        return layout
    one_hot = np.zeros(layout.n_features, np.bool_)
    one_hot[list(features)] = layout.is_categorical[list(features)]
    return layout._replace(one_hot=one_hot)


class HistogramStore:
    """Histograms of the active nodes, in numbered slots that are reused from level to level and tree to tree."""

    def __init__(self, layout: Layout, n_parts: int, *, with_counts: bool) -> None:
        n_count_cells = layout.n_cells if with_counts else 0
        # Each further thread may need a histogram of its own per node, until the sums are merged.
        self.capacity = max(1, HISTOGRAM_BYTES // (8 * (n_parts * layout.n_cells + n_count_cells)))
        self.batched = False
        """Whether nodes of this tree are summed batch by batch, and no histogram follows from its parent's."""
        self.cells = np.empty((0, layout.n_cells), np.int64)
        # Without counts the kernel still indexes a row per slot; rows of no cells cost nothing.
        self.count_cells = np.empty((0, n_count_cells), np.int64)

    def reserve(self, n_nodes: int) -> None:
        """Make room for the level; what lies in the slots already stays."""
        n_nodes = min(n_nodes, self.capacity)
        if len(self.cells) < n_nodes:
            self.cells = _with_more_slots(self.cells, n_nodes)
            self.count_cells = _with_more_slots(self.count_cells, n_nodes)


def _with_more_slots(cells: Ints, n_slots: int) -> Ints:
    larger = np.empty((n_slots, cells.shape[1]), np.int64)
    larger[: len(cells)] = cells
    return larger


# --- the tree under construction -------------------------------------------------------------------------------------


class LevelSplits(NamedTuple):
    """The best split of every node of a level; feature -1 where none is admissible."""

    gain: Floats
    feature: Ints
    bin: Ints  # last value bin that goes left; -1 for categorical splits
    missing_left: Bools
    left_sum: Ints  # packed
    goes_left: Bytes  # [nodes, 256] by the feature's code, missing included

    @classmethod
    def room_for(cls, n_nodes: int) -> LevelSplits:
        """Arrays that `evaluate_families` fills."""
        return cls(
            gain=np.empty(n_nodes),
            feature=np.empty(n_nodes, np.int64),
            bin=np.empty(n_nodes, np.int64),
            missing_left=np.empty(n_nodes, np.bool_),
            left_sum=np.empty(n_nodes, np.int64),
            goes_left=np.empty((n_nodes, 256), np.uint8),
        )

    @classmethod
    def none(cls, n_nodes: int) -> LevelSplits:
        """No node splits."""
        splits = cls.room_for(n_nodes)
        for field in splits:
            field.fill(0)
        splits.feature.fill(-1)
        return splits


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
        self, rules: SplitRules, monotone: Ints, edges: FlatEdges, max_leaves: int | None, root_total: int
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
        where = (room, self._first, self._n_nodes)
        level = (splits, self.newest, self._rules, self._monotone)
        n_splitting = divide_level(*level, *where, self._nodes, feature, children)
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

    def finish(self, refit: Callable[[int], Floats] | None = None) -> tuple[Tree, Scores]:
        """The tree, and its leaf values in the order that `Rows.finish_tree` asks for.

        `refit` knows better values than sums give, for this many leaves in that order; nodes that split then have 0.
        """
        n_nodes, nodes = self._n_nodes, self.nodes
        threshold = np.empty(n_nodes, np.float64)
        right, level_set = np.empty(n_nodes, np.int32), np.empty(n_nodes, np.int32)
        leaves = np.empty(self.n_leaves, np.int64)
        complete_tree(
            nodes, self._edges.flat, self._edges.first, self._first - len(self._level_feature), self._first,
            threshold, right, level_set, leaves,
        )  # fmt: skip
        if refit is not None:
            nodes.value.fill(0.0)
            nodes.value[leaves] = refit(self.n_leaves) * self._rules.learning_rate
        left_levels = np.concatenate(self._left_levels) if self._left_levels else np.zeros((0, 256), np.uint8)
        arrays: dict[str, Any] = {**nodes._asdict(), "threshold": threshold, "right": right, "level_set": level_set}
        return Tree.as_grown(**arrays, left_levels=left_levels.view(np.bool_)), nodes.value[leaves]


@inline_kernel
def _raw_value(gradient: float, hessian: float, l2: float, lower: float, upper: float) -> float:
    """-G / (H + l2) within bounds; an empty node without regularisation has no opinion."""
    denominator = hessian + l2
    value = -gradient / denominator if denominator > 0.0 else 0.0
    return min(max(value, lower), upper)


@kernel
def add_leaves(children: Children, rules: SplitRules, first: int, nodes: NodeArrays) -> None:
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
    rules: SplitRules,
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
    leaves: Ints,  # out [leaves]
) -> None:
    """Fields that follow from the others, and the leaves in the order in which rows are settled.

    That order is level by level, except that children of the last level stand where their parents do.
    """
    n_sets = 0
    n_leaves = 0
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
            leaves[n_leaves] = node
            n_leaves += 1
        elif node >= last_level:
            leaves[n_leaves] = left
            leaves[n_leaves + 1] = left + 1
            n_leaves += 2
