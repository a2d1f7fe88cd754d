"""One tree, grown level by level.

All nodes of a level are evaluated together, so a level costs one batch of messages when the rows are elsewhere:

    histograms of the smaller children  ->  larger siblings by subtraction  ->  best splits  ->  rows descend

The grower sees sums only; the records stay behind the verbs of `rows.Rows`. Where the records are elsewhere and their
sums stop coming in the middle of a tree, the tree ends at the last level that was complete.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np

from hedgerow.engine.building import Children, FlatEdges, TreeBuilder, ValueRules
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, Scores
from hedgerow.engine.ensemble import Tree
from hedgerow.engine.histogram import plan_slots
from hedgerow.engine.layout import Layout
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.splitting import LevelSplits, SplitRules, evaluate_families
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidParameter

HISTOGRAM_BYTES = 512 * 2**20  # histograms kept for subtraction; beyond it nodes are summed afresh, batch by batch
CELLS_WORTH_A_THREAD = 30_000  # cells to evaluate below which waking another thread does not pay
DEEPEST = 64

MissingUnseen = Literal["heavier", "right"]
"""Where missing values go, and levels, that no row of a split's node had: with most of the weight, or right."""


@dataclass(frozen=True, slots=True)
class GrowthRules:
    """How a tree may grow. All public."""

    learning_rate: float = 0.1
    max_depth: int | None = 6
    max_leaves: int | None = None
    l2: float = 1.0
    min_gain: float = 0.0
    min_child_weight: float = 1.0
    min_samples_leaf: int = 1
    colsample_bytree: float = 1.0
    colsample_bynode: float = 1.0
    monotone: tuple[int, ...] | None = None
    missing_unseen: MissingUnseen = "heavier"

    def __post_init__(self) -> None:
        _require(
            self.learning_rate > 0 and math.isfinite(self.learning_rate),
            "learning_rate",
            "positive",
            self.learning_rate,
        )
        _require(self.max_depth is None or self.max_depth >= 1, "max_depth", "at least 1, or None", self.max_depth)
        _require(self.max_leaves is None or self.max_leaves >= 2, "max_leaves", "at least 2, or None", self.max_leaves)
        _require(self.l2 >= 0 and math.isfinite(self.l2), "l2", "at least 0", self.l2)
        _require(self.min_gain >= 0 and math.isfinite(self.min_gain), "min_gain", "at least 0", self.min_gain)
        _require(
            self.min_child_weight >= 0 and math.isfinite(self.min_child_weight),
            "min_child_weight",
            "at least 0",
            self.min_child_weight,
        )
        _require(self.min_samples_leaf >= 1, "min_samples_leaf", "at least 1", self.min_samples_leaf)
        _require(0 < self.colsample_bytree <= 1, "colsample_bytree", "in (0, 1]", self.colsample_bytree)
        _require(0 < self.colsample_bynode <= 1, "colsample_bynode", "in (0, 1]", self.colsample_bynode)
        _require(
            self.monotone is None or all(sign in (-1, 0, 1) for sign in self.monotone),
            "monotone",
            "made of -1, 0 and 1",
            self.monotone,
        )
        known = get_args(MissingUnseen)
        _require(self.missing_unseen in known, "missing_unseen", " or ".join(map(repr, known)), self.missing_unseen)


def _require(holds: bool, name: str, what: str, value: object) -> None:
    if not holds:
        raise InvalidParameter(f"{name} must be {what}, got {value}")


class LevelLost(Exception):
    """The sums of a level cannot be had any more; raised by `RowsLike.histograms`, and at the root by `grow` too."""


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


class _Histograms(NamedTuple):
    """Where the histograms of a level's nodes are, and which are summed from rows."""

    slot: Ints  # [nodes]
    built: Ints  # [families] nodes whose histogram is summed from rows
    derived: Ints  # [families] siblings that get theirs by subtraction, -1 for none


def split_rules(rules: GrowthRules, loss: Loss, quantiser: Quantiser, *, weighted: bool) -> SplitRules:
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
    """Grows trees on one set of rows; keeps its buffers from tree to tree."""

    def __init__(
        self,
        rows: RowsLike,
        rules: GrowthRules,
        loss: Loss,
        quantiser: Quantiser,
        edges: Sequence[Floats | None],
        *,
        weighted: bool,
        seed: int = 0,
    ) -> None:
        self._rows = rows
        self._rules = rules
        self._edges = FlatEdges(edges)
        self._seed = seed
        self._team = Team(rows.n_parts)
        self._all_features = np.ones((1, rows.layout.n_features), np.bool_)
        self._gradient_unit = 1.0 / quantiser.gradient_scale
        self._hessian_unit = 1.0 / quantiser.hessian_scale
        self._split_rules = split_rules(rules, loss, quantiser, weighted=weighted)
        self._value_rules = ValueRules(
            self._gradient_unit, self._hessian_unit, rules.l2, rules.learning_rate, rules.min_gain
        )
        self._monotone = np.array(rules.monotone or (), np.int64)
        self._store = _HistogramStore(rows.layout, rows.n_parts, with_counts=self.with_counts)

    @property
    def most_nodes(self) -> int:
        """Nodes of a level whose histograms are asked for together; a wider level is asked for in several batches."""
        return self._store.capacity

    @property
    def with_counts(self) -> bool:
        """Whether histograms of row counts are asked for beside those of gradients."""
        return self._split_rules.min_samples_leaf > 0

    def grow(self, tree_number: int) -> Tree:
        """One tree from the rows' present gradients; `rows.start_tree` has been called. Scores are updated."""
        rows, max_depth = self._rows, self._rules.max_depth or DEEPEST
        allowed = self._features_of_tree(tree_number)
        rng = np.random.default_rng((self._seed, tree_number, 1)) if self._rules.colsample_bynode < 1.0 else None
        total, where = self._root()
        tree = TreeBuilder(self._value_rules, self._monotone, self._edges, self._rules.max_leaves, total)
        for depth in range(1, max_depth + 1):
            nodes = tree.newest
            last = depth == max_depth
            try:
                splits = self._evaluate(nodes, where, self._features_of_nodes(allowed, len(nodes.total), rng))
            except LevelLost:
                splits, last = LevelSplits.none(len(nodes.total)), True
            feature = tree.divide(splits)
            last = last or tree.is_full
            rows.descend(feature, splits.goes_left, last=last)
            if last or not len(tree.newest.total):
                break
            where = self._plan_histograms(where, feature, tree.newest)
        finished, leaf_values = tree.finish()
        rows.finish_tree(leaf_values)
        return finished

    # --- features --------------------------------------------------------------------------------------------------

    def _features_of_tree(self, tree_number: int) -> Bools:
        n_features = self._rows.layout.n_features
        if self._rules.colsample_bytree == 1.0:
            return self._all_features
        rng = np.random.default_rng((self._seed, tree_number, 0))
        chosen = rng.permutation(n_features)[: max(1, round(self._rules.colsample_bytree * n_features))]
        allowed = np.zeros((1, n_features), np.bool_)
        allowed[0, chosen] = True
        return allowed

    def _features_of_nodes(self, allowed: Bools, n_nodes: int, rng: np.random.Generator | None) -> Bools:
        if rng is None:
            return allowed
        candidates = np.flatnonzero(allowed[0])
        n_chosen = max(1, round(self._rules.colsample_bynode * len(candidates)))
        mask = np.zeros((max(n_nodes, 2), allowed.shape[1]), np.bool_)  # one row would mean "for all nodes"
        for node in range(n_nodes):
            mask[node, rng.permutation(candidates)[:n_chosen]] = True
        return mask

    # --- one level -------------------------------------------------------------------------------------------------

    def _root(self) -> tuple[int, _Histograms]:
        """Sum the root's histogram; any column's cells add up to the sum over all rows."""
        zero = np.zeros(1, np.int64)
        store, layout = self._store, self._rows.layout
        store.restart()
        store.reserve(1)
        self._fill_histograms(zero, zero)
        first_column = slice(layout.first_cell[0], layout.first_cell[0] + layout.n_codes[0])
        total = int(store.cells[0, first_column].sum())
        return total, _Histograms(slot=zero, built=zero, derived=zero - 1)

    def _evaluate(self, nodes: Children, where: _Histograms, allowed: Bools) -> LevelSplits:
        """Fill the histograms of the level and find every node's best split."""
        n_nodes = len(nodes.total)
        splits = LevelSplits.room_for(n_nodes)
        store = self._store
        store.reserve(n_nodes)
        if not store.batched:
            if where.derived[0] >= 0:  # the root has its histogram already
                self._fill_histograms(where.built, where.slot[where.built])
            self._evaluate_families(nodes, where, allowed, splits)
            return splits
        for first in range(0, n_nodes, store.capacity):  # too many nodes to keep: no subtraction, a batch at a time
            batch = np.arange(first, min(n_nodes, first + store.capacity))
            slot = np.zeros(n_nodes, np.int64)
            slot[batch] = batch - first
            self._fill_histograms(batch, slot[batch])
            afresh = _Histograms(slot=slot, built=batch, derived=np.full(len(batch), -1, np.int64))
            self._evaluate_families(nodes, afresh, allowed, splits)
        return splits

    def _fill_histograms(self, nodes: Ints, slots: Ints) -> None:
        store = self._store
        self._rows.histograms(nodes, slots, store.cells)
        if self.with_counts:
            self._rows.histograms(nodes, slots, store.count_cells, counts=True)

    def _evaluate_families(self, nodes: Children, where: _Histograms, allowed: Bools, splits: LevelSplits) -> None:
        store, layout, rows = self._store, self._rows.layout, self._rows
        n_families = len(where.built)
        n_tasks = rows.n_parts if n_families * layout.n_cells >= CELLS_WORTH_A_THREAD else 1
        common = (
            where.built, where.derived, where.slot, store.cells, store.count_cells,
            nodes.total, rows.node_counts, allowed, self._monotone, nodes.lower, nodes.upper, self._split_rules,
            layout, splits,
        )  # fmt: skip
        if n_tasks == 1:
            evaluate_families(0, n_families, *common)
            return
        cuts = [n_families * task // n_tasks for task in range(n_tasks + 1)]
        self._team.run(evaluate_families, [(cuts[task], cuts[task + 1], *common) for task in range(n_tasks)])

    def _plan_histograms(self, parents: _Histograms, feature: Ints, children: Children) -> _Histograms:
        """The smaller child is summed, in a new slot; the larger one takes over its parent's.

        Smaller by its rows, or by its hessian where nobody knows the rows: either way the sums are the same.
        """
        counts = self._rows.node_counts
        if not len(counts):
            counts = children.total & np.int64(0xFFFFFFFF)
        n_families = len(counts) // 2
        plan = _Histograms(
            np.empty(len(counts), np.int64), np.empty(n_families, np.int64), np.empty(n_families, np.int64)
        )
        plan_slots(counts, feature, parents.slot, *plan)
        self._store.batched |= len(counts) > self._store.capacity
        return plan


class _HistogramStore:
    """Histograms of the active nodes, in numbered slots that are reused from level to level and tree to tree."""

    def __init__(self, layout: Layout, n_parts: int, *, with_counts: bool) -> None:
        self._n_count_cells = layout.n_cells if with_counts else 0
        # Each further thread may need a histogram of its own per node, until the sums are merged.
        self.capacity = max(1, HISTOGRAM_BYTES // (8 * (n_parts * layout.n_cells + self._n_count_cells)))
        self.batched = False
        self.cells = np.empty((0, layout.n_cells), np.int64)
        # Without counts the kernel still indexes a row per slot; rows of no cells cost nothing.
        self.count_cells = np.empty((0, self._n_count_cells), np.int64)

    def restart(self) -> None:
        """A new tree."""
        self.batched = False

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
