"""One tree, grown level by level: all nodes of a level are evaluated together, so a level costs one batch of messages
when the rows are elsewhere.

    histograms of the smaller children  ->  larger siblings by subtraction  ->  best splits  ->  rows descend

The grower sees sums only; the records stay behind the verbs of `rows.Rows`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, Scores
from hedgerow.engine.ensemble import Tree
from hedgerow.engine.layout import Layout
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.splitting import MIN_GAIN, LevelSplits, SplitRules, evaluate_families
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidParameter

HISTOGRAM_BYTES = 512 * 2**20  # histograms kept for subtraction; beyond it nodes are summed afresh, batch by batch
CELLS_WORTH_A_THREAD = 50_000  # cells to evaluate below which waking another thread does not pay
DEEPEST = 64


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

    def __post_init__(self) -> None:
        _require(self.learning_rate > 0 and math.isfinite(self.learning_rate), "learning_rate", "positive", self.learning_rate)
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


def _require(holds: bool, name: str, what: str, value: object) -> None:
    if not holds:
        raise InvalidParameter(f"{name} must be {what}, got {value}")


class RowsLike(Protocol):
    """What growth needs of its rows, wherever they are."""

    layout: Layout
    n_parts: int
    node_counts: Ints

    def total(self) -> int: ...
    def histograms(self, nodes: Ints, slots: Ints, cells: Ints, partial: Ints, *, counts: bool = False) -> None: ...
    def descend(self, feature: Ints, goes_left: Bytes, *, last: bool = False) -> None: ...
    def finish_tree(self, leaf_values: Scores) -> None: ...


class _Level(NamedTuple):
    """The active nodes: their sums, the bounds on the values below them, and where their histograms are."""

    total: Ints  # packed
    lower: Floats
    upper: Floats
    slot: Ints
    built: Ints  # [families] nodes whose histogram is summed from rows
    derived: Ints  # [families] siblings that get theirs by subtraction, -1 for none


class FlatEdges:
    """Every feature's edges in one array, each followed by +inf: the threshold of (feature, bin) is one look-up."""

    def __init__(self, edges: Sequence[Floats | None]) -> None:
        closed = [np.append(e, np.inf) if e is not None else np.empty(0) for e in edges]
        self._first = np.concatenate([[0], np.cumsum([len(e) for e in closed])])[:-1].astype(np.int64)
        self._flat = np.concatenate(closed)

    def thresholds(self, feature: Ints, bins: Int32s) -> Floats:
        """x < threshold goes left; NaN for leaves and splits by levels, +inf where all values there are go left."""
        numeric = bins >= 0
        result = np.full(len(feature), np.nan)
        result[numeric] = self._flat[self._first[feature[numeric]] + bins[numeric]]
        return result


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
        n_threads: int = 1,
    ) -> None:
        self._rows = rows
        self._rules = rules
        self._edges = FlatEdges(edges)
        self._seed = seed
        self._team = Team(n_threads)
        self._n_threads = n_threads
        self._gradient_unit = 1.0 / quantiser.gradient_scale
        self._hessian_unit = 1.0 / quantiser.hessian_scale
        self._split_rules = self._make_split_rules(loss, weighted=weighted)
        self._monotone = np.array(rules.monotone or (), np.int64)
        self._store = _HistogramStore(rows.layout, rows.n_parts, with_counts=self._split_rules.min_samples_leaf > 0)

    def _make_split_rules(self, loss: Loss, *, weighted: bool) -> SplitRules:
        """min_samples_leaf needs a histogram of counts only where the hessian does not already imply it."""
        min_child_weight, min_samples = self._rules.min_child_weight, self._rules.min_samples_leaf
        if not weighted and loss.name == "squared":  # every hessian is 1: the hessian sum is the count
            min_child_weight, min_samples = max(min_child_weight, float(min_samples)), 0
        elif min_samples == 1:  # an empty child gains nothing, so it never wins
            min_samples = 0
        elif not weighted and min_child_weight >= min_samples * (loss.hessian_bound + self._hessian_unit):
            min_samples = 0  # each row brings at most hessian_bound, so that much weight takes enough rows
        return SplitRules(self._gradient_unit, self._hessian_unit, self._rules.l2, min_child_weight, min_samples)

    def grow(self, tree_number: int) -> Tree:
        """One tree from the rows' present gradients; `rows.start_tree` has been called. Scores are updated."""
        rows, max_depth = self._rows, self._rules.max_depth or DEEPEST
        allowed = self._features_of_tree(tree_number)
        rng = np.random.default_rng((self._seed, tree_number, 1)) if self._rules.colsample_bynode < 1.0 else None
        self._store.restart()
        level = self._root()
        nodes = _TreeUnderConstruction(self._edges, level, self._values)
        for depth in range(max_depth):
            splits = self._evaluate(level, self._features_of_nodes(allowed, len(level.total), rng))
            feature = self._choose(splits, nodes.n_leaves)
            last = nodes.split_level(feature, splits) == self._rules.max_leaves or depth + 1 == max_depth
            rows.descend(feature, splits.goes_left, last=last)
            total, lower, upper = self._children(level, splits, feature)
            nodes.add_level(total, lower, upper)
            if last or not len(total):
                break
            level = self._plan_histograms(level, feature, total, lower, upper)
        tree, leaf_values = nodes.finish()
        rows.finish_tree(leaf_values)
        return tree

    # --- features ------------------------------------------------------------------------------------------------------

    def _features_of_tree(self, tree_number: int) -> Bools:
        n_features = self._rows.layout.n_features
        if self._rules.colsample_bytree == 1.0:
            return np.ones((1, n_features), np.bool_)
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

    # --- one level -----------------------------------------------------------------------------------------------------

    def _root(self) -> _Level:
        zero = np.zeros(1, np.int64)
        total = np.array([self._rows.total()], np.int64)
        return _Level(total, np.array([-np.inf]), np.array([np.inf]), slot=zero, built=zero, derived=zero - 1)

    def _evaluate(self, level: _Level, allowed: Bools) -> LevelSplits:
        """Fill the histograms of the level and find every node's best split."""
        n_nodes = len(level.total)
        splits = LevelSplits.empty(n_nodes)
        store = self._store
        store.reserve(n_nodes, len(level.built))
        if not store.batched:
            self._evaluate_families(level, allowed, splits)
            return splits
        for first in range(0, n_nodes, store.capacity):  # too many nodes to keep: no subtraction, a batch at a time
            batch = np.arange(first, min(n_nodes, first + store.capacity))
            slot = np.zeros(n_nodes, np.int64)
            slot[batch] = batch - first
            afresh = level._replace(slot=slot, built=batch, derived=np.full(len(batch), -1, np.int64))
            self._evaluate_families(afresh, allowed, splits)
        return splits

    def _evaluate_families(self, level: _Level, allowed: Bools, splits: LevelSplits) -> None:
        store, layout, rows = self._store, self._rows.layout, self._rows
        built_slots = level.slot[level.built]
        rows.histograms(level.built, built_slots, store.cells, store.partial)
        if self._split_rules.min_samples_leaf > 0:
            rows.histograms(level.built, built_slots, store.count_cells, store.count_partial, counts=True)
        n_families = len(level.built)
        n_tasks = self._n_threads if n_families * layout.n_cells >= CELLS_WORTH_A_THREAD else 1
        cuts = [n_families * task // n_tasks for task in range(n_tasks + 1)]
        common = (
            level.built, level.derived, level.slot, store.cells, store.partial, store.count_cells, store.count_partial,
            level.total, rows.node_counts, allowed, self._monotone, level.lower, level.upper, self._split_rules,
            layout.n_value_bins, layout.is_categorical, layout.column_of_feature, layout.owns_column,
            layout.bin_of_code, layout.n_codes, layout.first_cell, splits,
        )  # fmt: skip
        self._team.run(evaluate_families, [(cuts[task], cuts[task + 1], *common) for task in range(n_tasks)])

    def _choose(self, splits: LevelSplits, n_leaves: int) -> Ints:
        """The feature each node splits on, -1 for those that become leaves.

        A node splits if it gains enough; where leaves are limited, the best nodes of the level go first (ties: the
        first node).
        """
        feature = np.where((splits.gain > MIN_GAIN) & (splits.gain >= self._rules.min_gain), splits.feature, -1)
        if self._rules.max_leaves is not None:
            good = np.flatnonzero(feature >= 0)
            best_first = good[np.argsort(-splits.gain[good], kind="stable")]
            feature[best_first[self._rules.max_leaves - n_leaves :]] = -1
        return feature

    def _children(self, level: _Level, splits: LevelSplits, feature: Ints) -> tuple[Ints, Floats, Floats]:
        """Sums and bounds of the left and right child of each splitting node, in turn."""
        parents = np.flatnonzero(feature >= 0)
        total = np.empty(2 * len(parents), np.int64)
        total[::2] = splits.left_sum[parents]
        total[1::2] = level.total[parents] - total[::2]
        lower, upper = np.repeat(level.lower[parents], 2), np.repeat(level.upper[parents], 2)
        if len(self._monotone) and len(parents):
            self._tighten(total, lower, upper, self._monotone[feature[parents]])
        return total, lower, upper

    def _tighten(self, total: Ints, lower: Floats, upper: Floats, direction: Ints) -> None:
        """After a split on a constrained feature no value of one side's descendants may cross the middle."""
        value = self._unscaled_values(total, lower, upper)
        middle = (value[::2] + value[1::2]) / 2
        up, down = direction > 0, direction < 0
        upper[::2][up] = middle[up]
        lower[1::2][up] = middle[up]
        lower[::2][down] = middle[down]
        upper[1::2][down] = middle[down]

    def _plan_histograms(self, level: _Level, feature: Ints, total: Ints, lower: Floats, upper: Floats) -> _Level:
        """The smaller child is summed, in a new slot; the larger one takes over its parent's."""
        count = self._rows.node_counts
        first_child = np.arange(0, len(total), 2)
        left_is_larger = (count[::2] > count[1::2]).astype(np.int64)
        built, derived = first_child + left_is_larger, first_child + 1 - left_is_larger
        slot = np.zeros(len(total), np.int64)
        self._store.batched |= len(total) > self._store.capacity
        if not self._store.batched:
            slot[derived] = level.slot[feature >= 0]
            slot[built] = self._store.free_slots(slot[derived])
        return _Level(total, lower, upper, slot, built, derived)

    # --- values --------------------------------------------------------------------------------------------------------

    def _unscaled_values(self, total: Ints, lower: Floats, upper: Floats) -> Floats:
        gradient = (total >> 32) * self._gradient_unit
        denominator = (total & 0xFFFFFFFF) * self._hessian_unit + self._rules.l2
        if self._rules.l2 == 0.0:  # an empty child has no opinion
            gradient[denominator == 0] = 0.0
            denominator[denominator == 0] = 1.0
        value: Floats = -gradient / denominator
        return np.clip(value, lower, upper) if len(self._monotone) else value

    def _values(self, total: Ints, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
        """What each node would add to a score, and its hessian sum."""
        cover: Floats = (total & 0xFFFFFFFF) * self._hessian_unit
        return self._unscaled_values(total, lower, upper) * self._rules.learning_rate, cover


class _HistogramStore:
    """Histograms of the active nodes, in numbered slots that are reused from level to level and tree to tree."""

    def __init__(self, layout: Layout, n_parts: int, *, with_counts: bool) -> None:
        self._n_cells = layout.n_cells
        self._n_parts = n_parts
        self._with_counts = with_counts
        per_node = 8 * layout.n_cells * (2 if with_counts else 1) * (1 + (n_parts - 1) / 2)
        self.capacity = max(1, int(HISTOGRAM_BYTES / per_node))
        self.batched = False
        self.cells = np.empty((0, self._n_cells), np.int64)
        self.partial = np.empty((n_parts - 1, 0, self._n_cells), np.int64)
        self.count_cells = np.empty((0, 0), np.int64)
        self.count_partial = np.empty((n_parts - 1, 0, 0), np.int64)

    def restart(self) -> None:
        self.batched = False

    def reserve(self, n_nodes: int, n_families: int) -> None:
        """Make room for the level; what lies in the slots already stays."""
        n_nodes = min(n_nodes, self.capacity)
        n_families = n_nodes if self.batched else n_families
        if len(self.cells) < n_nodes:
            self.cells = _with_more_slots(self.cells, n_nodes)
            # Without counts the kernel still indexes a row per slot; rows of no cells cost nothing.
            self.count_cells = _with_more_slots(self.count_cells, n_nodes, self._n_cells if self._with_counts else 0)
        if self.partial.shape[1] < n_families:
            self.partial = np.empty((self._n_parts - 1, n_families, self._n_cells), np.int64)
            if self._with_counts:
                self.count_partial = np.empty_like(self.partial)

    def free_slots(self, taken: Ints) -> Ints:
        """As many slots again as are taken, the lowest ones."""
        free = np.ones(max(2 * len(taken), int(taken.max()) + 1), np.bool_)
        free[taken] = False
        return np.flatnonzero(free)[: len(taken)]


def _with_more_slots(cells: Ints, n_slots: int, n_cells: int | None = None) -> Ints:
    larger = np.empty((n_slots, cells.shape[1] if n_cells is None else n_cells), np.int64)
    if larger.shape[1] == cells.shape[1]:
        larger[: len(cells)] = cells
    return larger


class _TreeUnderConstruction:
    """Collects nodes breadth-first, a level at a time, and turns them into a `Tree`."""

    def __init__(self, edges: FlatEdges, root: _Level, values: Callable[..., tuple[Floats, Floats]]) -> None:
        self._edges = edges
        self._node_values = values
        self.n_leaves = 1
        self._n_nodes = 0
        self._values: list[Floats] = []
        self._covers: list[Floats] = []
        self._levels: list[tuple[Ints, LevelSplits]] = []
        self.add_level(root.total, root.lower, root.upper)

    def split_level(self, feature: Ints, splits: LevelSplits) -> int:
        """Node k of the newest level splits on feature[k], or not where that is -1; returns the leaves there are then."""
        self._levels.append((feature, splits))
        self.n_leaves += int(np.count_nonzero(feature >= 0))
        return self.n_leaves

    def add_level(self, total: Ints, lower: Floats, upper: Floats) -> None:
        """The children of the splitting nodes."""
        value, cover = self._node_values(total, lower, upper)
        self._values.append(value)
        self._covers.append(cover)
        self._n_nodes += len(total)

    def finish(self) -> tuple[Tree, Scores]:
        """The tree, and its leaf values in the order that `Rows.finish_tree` asks for."""
        n = self._n_nodes
        n_last = n - sum(len(feature) for feature, _ in self._levels)  # children of the last level: all leaves
        feature = np.concatenate([*(f for f, _ in self._levels), np.full(n_last, -1, np.int64)])
        inner = np.flatnonzero(feature >= 0)
        split = {
            name: np.concatenate([getattr(s, name)[f >= 0] for f, s in self._levels])
            for name in ("bin", "gain", "missing_left")
        }
        left = np.full(n, -1, np.int32)
        left[inner] = np.arange(1, n, 2)  # breadth-first: the k-th inner node has children 2k + 1 and 2k + 2
        bins, gain, missing_left = np.full(n, -1, np.int32), np.zeros(n, np.float32), np.zeros(n, np.bool_)
        bins[inner], gain[inner], missing_left[inner] = split["bin"], split["gain"], split["missing_left"]
        level_set, left_levels = self._level_sets(n, inner[split["bin"] < 0])
        value = np.concatenate(self._values).astype(np.float32)
        tree = Tree(
            feature=feature.astype(np.int32),
            bin=bins,
            threshold=self._edges.thresholds(feature, bins),
            missing_left=missing_left,
            left=left,
            right=np.where(left >= 0, left + 1, -1).astype(np.int32),
            value=value,
            gain=gain,
            cover=np.concatenate(self._covers),
            level_set=level_set,
            left_levels=left_levels,
        )
        return tree, value[self._leaves_by_level(feature)]

    def _level_sets(self, n_nodes: int, by_levels: Ints) -> tuple[Int32s, Bools]:
        level_set = np.full(n_nodes, -1, np.int32)
        level_set[by_levels] = np.arange(len(by_levels))
        if not len(by_levels):
            return level_set, np.zeros((0, 256), np.bool_)
        tables = [s.goes_left[(f >= 0) & (s.bin < 0)] for f, s in self._levels]
        return level_set, np.concatenate(tables).astype(np.bool_)

    def _leaves_by_level(self, feature: Ints) -> Ints:
        """Leaves of each level in order, except that the last split level's children stand where their parents do."""
        leaves = np.flatnonzero(feature < 0)
        last_feature = self._levels[-1][0]
        n_last_children = 2 * int(np.count_nonzero(last_feature >= 0))
        if n_last_children == 0 or n_last_children == 2 * len(last_feature):
            return leaves
        first_of_last = self._n_nodes - n_last_children - len(last_feature)
        order: list[int] = leaves[leaves < first_of_last].tolist()
        child = self._n_nodes - n_last_children
        for position, splits_on in enumerate(last_feature.tolist()):
            if splits_on < 0:
                order.append(first_of_last + position)
            else:
                order += [child, child + 1]
                child += 2
        return np.array(order, np.int64)
