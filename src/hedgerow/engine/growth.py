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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hedgerow.engine.building import Children, FlatEdges, TreeBuilder, ValueRules
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, Scores
from hedgerow.engine.ensemble import Tree
from hedgerow.engine.histogram import Histograms, plan_histograms
from hedgerow.engine.layout import Layout
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.splitting import LevelSplits, SplitRules, evaluate_families
from hedgerow.engine.threads import Team

if TYPE_CHECKING:
    from hedgerow.engine.boosting import BoostingParams

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


def split_rules(rules: BoostingParams, loss: Loss, quantiser: Quantiser, *, weighted: bool) -> SplitRules:
    """What makes a split admissible.

    min_samples_leaf needs a histogram of counts only where the hessian does not already imply it; else it is 0 here.
    """
    gradient_unit, hessian_unit = 1.0 / quantiser.gradient_scale, 1.0 / quantiser.hessian_scale
    min_child_weight, min_samples = rules.min_child_weight, rules.min_samples_leaf
    if not weighted and loss.name == "squared":  # every hessian is 1: the hessian sum is the count
        min_child_weight, min_samples = max(min_child_weight, float(min_samples)), 0
    elif min_samples == 1:  # an empty child gains nothing, so it never wins
        min_samples = 0
    elif not weighted and min_child_weight >= min_samples * (loss.hessian_bound + hessian_unit):
        min_samples = 0  # each row brings at most hessian_bound, so that much weight takes enough rows
    unseen_right = rules.missing_unseen == "right"
    return SplitRules(gradient_unit, hessian_unit, rules.l2, min_child_weight, min_samples, unseen_right)


class TreeGrower:
    """Grows trees on one set of rows; keeps its buffers from tree to tree.

    For subclasses: `rows`, `rules`, the `tree` under construction with its `depth`, the histograms in `store`; and two
    steps that may be taken in another way, `evaluate_families` and `descend`.
    """

    tree: TreeBuilder
    depth: int
    """Levels of the tree that have been divided."""

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
        self.rows, self.rules = rows, rules
        self.max_depth = rules.max_depth or DEEPEST
        self.split_rules = split_rules(rules, loss, quantiser, weighted=weighted)
        self.store = HistogramStore(rows.layout, rows.n_parts, with_counts=self.with_counts)
        self._edges = FlatEdges(edges)
        self._team = Team(rows.n_parts)
        self._all_features = np.ones((1, rows.layout.n_features), np.bool_)
        units = self.split_rules.gradient_unit, self.split_rules.hessian_unit
        self._value_rules = ValueRules(*units, rules.l2, rules.learning_rate, rules.min_gain)
        self._monotone = np.array(rules.monotone or (), np.int64)

    @property
    def with_counts(self) -> bool:
        """Whether histograms of row counts are asked for beside those of gradients."""
        return self.split_rules.min_samples_leaf > 0

    def grow(self, tree_number: int) -> Tree:
        """One tree from the rows' present gradients; `rows.start_tree` has been called. Scores are updated."""
        draw = FeatureDraw(self.rules, self._all_features, tree_number)
        goes_on, lost = True, False
        self.begin()
        while goes_on:
            nodes = self.tree.newest
            try:
                splits = self.evaluate(nodes, draw.for_nodes(len(nodes.total)))
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
        self._where = Histograms(slot=zero, built=zero, derived=zero - 1)
        self.depth = 0
        self.tree = TreeBuilder(self._value_rules, self._monotone, self._edges, self.rules.max_leaves, total)

    def evaluate(self, nodes: Children, allowed: Bools | None = None) -> LevelSplits:
        """Fill the histograms of the level and find every node's best split, among `allowed` features only.

        `nodes` are the tree's newest ones, or, where the store keeps no histograms, any whose rows are active.
        """
        allowed = self._all_features if allowed is None else allowed
        n_nodes = len(nodes.total)
        splits = LevelSplits.room_for(n_nodes)
        store = self.store
        store.reserve(n_nodes)
        if not store.batched:
            where = self._where
            if where.derived[0] >= 0:  # the root has its histogram already
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
        return splits

    def divide(self, splits: LevelSplits, *, last: bool = False) -> bool:
        """Split the newest nodes as these splits say; whether the tree goes on. `last`: its children are leaves."""
        feature = self.tree.divide(splits)
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
        finished, leaf_values = self.tree.finish()
        self.rows.finish_tree(leaf_values)
        return finished

    # --- one level ---------------------------------------------------------------------------------------------------

    def _plan_histograms(self, feature: Ints) -> None:
        """The smaller child is summed. Where nobody knows its rows, its hessian decides: the sums are the same."""
        counts = self.rows.node_counts
        if not len(counts):
            counts = self.tree.newest.total & np.int64(0xFFFFFFFF)
        self._where = plan_histograms(counts, feature, self._where.slot)
        self.store.batched |= len(counts) > self.store.capacity

    def _fill_histograms(self, nodes: Ints, slots: Ints) -> None:
        self.rows.histograms(nodes, slots, self.store.cells)
        if self.with_counts:
            self.rows.histograms(nodes, slots, self.store.count_cells, counts=True)

    def evaluate_families(self, nodes: Children, where: Histograms, allowed: Bools, splits: LevelSplits) -> None:
        """Write the best split of each node into `splits`; the histograms of built nodes are in the store."""
        store, layout, rows = self.store, self.rows.layout, self.rows
        n_families = len(where.built)
        n_tasks = rows.n_parts if n_families * layout.n_cells >= CELLS_WORTH_A_THREAD else 1
        common = (
            where.built, where.derived, where.slot, store.cells, store.count_cells,
            nodes.total, rows.node_counts, allowed, self._monotone, nodes.lower, nodes.upper, self.split_rules,
            layout, splits,
        )  # fmt: skip
        if n_tasks == 1:
            evaluate_families(0, n_families, *common)
            return
        cuts = [n_families * task // n_tasks for task in range(n_tasks + 1)]
        self._team.run(evaluate_families, [(cuts[task], cuts[task + 1], *common) for task in range(n_tasks)])


class FeatureDraw:
    """Which features the nodes of one tree may ask about: [nodes, features], or [1, features] for all nodes alike."""

    def __init__(self, rules: BoostingParams, all_features: Bools, tree_number: int) -> None:
        self._share, self._rng, self._of_tree = rules.colsample_bynode, None, all_features
        if rules.colsample_bytree < 1.0:
            rng = np.random.default_rng((rules.seed, tree_number, 0))
            self._of_tree = _drawn(rng, all_features, rules.colsample_bytree)[None]
        if self._share < 1.0:
            self._rng = np.random.default_rng((rules.seed, tree_number, 1))

    def for_nodes(self, n_nodes: int) -> Bools:
        """The features of the nodes of the next level."""
        if self._rng is None:
            return self._of_tree
        drawn = [_drawn(self._rng, self._of_tree, self._share) for _ in range(n_nodes)]
        return np.stack(drawn * 2 if n_nodes == 1 else drawn)  # one row would mean "for all nodes"


def _drawn(rng: np.random.Generator, allowed: Bools, share: float) -> Bools:
    """A share of the allowed features, at least one."""
    candidates = np.flatnonzero(allowed[0])
    chosen = np.zeros(allowed.shape[1], np.bool_)
    chosen[rng.permutation(candidates)[: max(1, round(share * len(candidates)))]] = True
    return chosen


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
