"""Splits and leaves that allow for the noise in the gradients.

A sum G over n rows, each with independent noise of variance v, has noise of variance n v. Plain scores square it: a
child of few rows and hardly any weight then gains most, from noise alone. Here, with d = 2 sqrt(n v),

    gain = S(left) + S(right) - S(node),    S = max(G^2 - d^2, 0) / (H + l2 + d)
    leaf = -G / (H + l2 + d),

children with H < d / 2 are not allowed, and levels of a column are ranked by G / (H + 10 + d). All of it is computed
from what was released and from the own columns, so it costs no privacy.

Why 2 standard deviations: taking off n v makes the score of one split right on average, but the best of hundreds is
looked for. On three tables 2 was better than 1 at epsilon 1 to 4, and worse at 0.5, when all trees share one release;
how it was chosen, and on what, is in docs/protocols/vertical_noised_gradients.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.building import Children
from hedgerow.engine.dtypes import Bools, Ints, Scores
from hedgerow.engine.ensemble import Tree
from hedgerow.engine.growth import GrowthRules
from hedgerow.engine.histogram import subtract_cells
from hedgerow.engine.layout import Layout
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.splitting import (
    INVALID,
    LEVEL_SMOOTHING,
    LevelSplits,
    SplitRules,
    gradient_of,
    hessian_of,
    read_feature,
)
from hedgerow.protocols.vertical.common.joint_growth import JointGrower, JointRows, leaf_order

DOUBT = 2.0
"""Standard deviations of its noise that a sum is not trusted with."""


class NoiseAwareGrower(JointGrower):
    """A grower that knows how much noise there is in the gradient of each row."""

    def __init__(
        self,
        rows: JointRows,
        rules: GrowthRules,
        loss: Loss,
        quantiser: Quantiser,
        features: Sequence[FeatureBins],
        *,
        sigma: float,
    ) -> None:
        """`sigma`: standard deviation of the noise of one row, in units of the gradient."""
        self._variance = sigma * sigma
        super().__init__(rows, rules, loss, quantiser, features)

    @property
    def with_counts(self) -> bool:
        """Rows per cell are always needed: they say how much noise is in its sum."""
        return True

    def _evaluate_families(self, nodes: Children, where: Any, allowed: Bools, splits: LevelSplits) -> None:  # noqa: ARG002 - every column may split
        store, rows = self._store, self._joint
        evaluate_noisy_families(
            where.built, where.derived, where.slot, store.cells, store.count_cells, nodes.total, rows.node_counts,
            self._split_rules, self._variance, rows.layout, splits,
        )  # fmt: skip

    def _valued(self, tree: Tree, leaf_values: Scores) -> tuple[Tree, Scores]:
        noise = DOUBT * np.sqrt(np.concatenate(self._rows_of_nodes) * self._variance)
        weight = tree.cover + self._rules.l2
        tree.value[:] = tree.value * (weight / (weight + noise))
        leaf_values[:] = tree.value[leaf_order(tree, [len(counts) for counts in self._rows_of_nodes])]
        return tree, leaf_values


@inline_kernel
def _score(gradient: float, hessian: float, l2: float, noise: float) -> float:
    """What a node is worth beyond what noise of this standard deviation alone could give it."""
    doubt = DOUBT * noise
    return max(gradient * gradient - doubt * doubt, 0.0) / (hessian + l2 + doubt)


@kernel
def rank_noisy_levels(
    sums: Ints, counts: Ints, n_levels: int, gradient_unit: float, hessian_unit: float, variance: float, order: Ints
) -> int:
    """Levels that occur in the node, sorted by gradient over hessian, smoothed by the noise; how many there are."""
    keys = np.empty(n_levels, np.float64)
    n_present = 0
    for level in range(n_levels):
        if counts[level] != 0:
            g = np.float64(gradient_of(sums[level])) * gradient_unit
            h = np.float64(hessian_of(sums[level])) * hessian_unit
            keys[n_present] = g / (h + LEVEL_SMOOTHING + DOUBT * np.sqrt(counts[level] * variance))
            order[n_present] = level
            n_present += 1
    ranks = np.argsort(keys[:n_present], kind="mergesort")
    levels = order[:n_present].copy()
    for position in range(n_present):
        order[position] = levels[ranks[position]]
    return n_present


@kernel
def evaluate_noisy_node(
    node: int,
    cells: Ints,  # in  [cells] packed sums
    count_cells: Ints,  # in  [cells] rows
    total: np.int64,
    total_count: int,
    rules: SplitRules,
    variance: float,  # in  of the noise of one row's gradient
    layout: Layout,
    splits: LevelSplits,  # out, row `node`
) -> None:
    """Scan every feature of one node and write down the best admissible split; ties as in the engine."""
    gradient_unit, hessian_unit, l2, min_child_weight, min_samples_leaf, unseen_right = rules
    n_value_bins, is_categorical, column_of_feature, owns_column, bin_of_code, n_codes, first_cell, _ = layout
    gradient = np.float64(gradient_of(total)) * gradient_unit
    hessian = np.float64(hessian_of(total)) * hessian_unit
    parent = _score(gradient, hessian, l2, np.sqrt(total_count * variance))
    sum_buffer = np.zeros(256, np.int64)
    count_buffer = np.zeros(256, np.int64)
    order = np.arange(256)
    best_gain, best_feature, best_cut, best_missing_left = 0.0, -1, -1, False
    for feature in range(n_value_bins.shape[0]):
        n_bins = n_value_bins[feature]
        if n_bins == 0:
            continue
        column = column_of_feature[feature]
        first, codes, own = first_cell[column], n_codes[column], owns_column[feature]
        sums = read_feature(cells, first, n_bins, own, bin_of_code[feature], codes, sum_buffer)
        counts = read_feature(count_cells, first, n_bins, own, bin_of_code[feature], codes, count_buffer)
        n_prefix = n_bins
        ranked = is_categorical[feature]
        if ranked:
            n_prefix = rank_noisy_levels(sums, counts, n_bins, gradient_unit, hessian_unit, variance, order)
        has_missing = counts[n_bins] != 0
        for missing_left in range(2 if has_missing else 1):
            n_cuts = n_prefix if has_missing and missing_left == 0 else n_prefix - 1
            left = sums[n_bins] if missing_left == 1 else np.int64(0)
            n_left = counts[n_bins] if missing_left == 1 else np.int64(0)
            for cut in range(n_cuts):
                code = order[cut] if ranked else cut
                left += sums[code]
                n_left += counts[code]
                n_right = total_count - n_left
                gl = np.float64(gradient_of(left)) * gradient_unit
                hl = np.float64(hessian_of(left)) * hessian_unit
                gr, hr = gradient - gl, hessian - hl
                gain = INVALID
                noise_left, noise_right = np.sqrt(n_left * variance), np.sqrt(n_right * variance)
                heavy = hl >= max(min_child_weight, noise_left) and hr >= max(min_child_weight, noise_right)
                if heavy and min(n_left, n_right) >= max(min_samples_leaf, 1):
                    gain = _score(gl, hl, l2, noise_left) + _score(gr, hr, l2, noise_right) - parent
                if gain > best_gain:
                    best_gain, best_feature, best_cut = gain, feature, cut
                    unseen_left = not unseen_right and 2 * hessian_of(left) >= hessian_of(total)
                    best_missing_left = missing_left == 1 if has_missing else bool(unseen_left)
    splits.gain[node] = best_gain
    splits.feature[node] = best_feature
    splits.bin[node] = best_cut
    splits.left_sum[node] = 0  # follows from the rows' sides
    splits.missing_left[node] = best_missing_left
    if best_feature >= 0:
        write_noisy_decision(node, cells, count_cells, rules, variance, layout, splits)


@kernel
def write_noisy_decision(
    node: int, cells: Ints, count_cells: Ints, rules: SplitRules, variance: float, layout: Layout, splits: LevelSplits
) -> None:
    """Turn the best cut of a node into one decision per code of its feature."""
    feature, cut, missing_left = splits.feature[node], splits.bin[node], splits.missing_left[node]
    n_bins = layout.n_value_bins[feature]
    goes_left = splits.goes_left[node]
    if not layout.is_categorical[feature]:
        for code in range(256):
            goes_left[code] = code <= cut
        goes_left[n_bins] = missing_left
        return
    splits.bin[node] = -1
    column = layout.column_of_feature[feature]
    first, codes, own = layout.first_cell[column], layout.n_codes[column], layout.owns_column[feature]
    bins = layout.bin_of_code[feature]
    order = np.arange(256)
    sums = read_feature(cells, first, n_bins, own, bins, codes, np.zeros(256, np.int64))
    counts = read_feature(count_cells, first, n_bins, own, bins, codes, np.zeros(256, np.int64))
    n_present = rank_noisy_levels(sums, counts, n_bins, rules.gradient_unit, rules.hessian_unit, variance, order)
    # Levels that do not occur in the node say nothing, like missing ones: they follow the missing direction.
    for code in range(256):
        goes_left[code] = missing_left
    for position in range(n_present):
        goes_left[order[position]] = position <= cut


@kernel
def evaluate_noisy_families(
    built: Ints,  # in  [families] node whose histogram was built
    derived: Ints,  # in  [families] its sibling, to be had by subtraction; -1 for none
    slots: Ints,  # in  [nodes]
    cells: Ints,  # in/out [slots, cells]
    count_cells: Ints,  # in/out [slots, cells]
    totals: Ints,  # in  [nodes] packed
    total_counts: Ints,  # in  [nodes]
    rules: SplitRules,
    variance: float,
    layout: Layout,
    splits: LevelSplits,  # out
) -> None:
    """All families of a level: the sibling's histogram by subtraction, then the best split of both."""
    for family in range(built.shape[0]):
        mine = slots[built[family]]
        if derived[family] >= 0:
            parents = slots[derived[family]]
            subtract_cells(cells[parents], cells[mine], layout.first_cell, layout.n_codes)
            subtract_cells(count_cells[parents], count_cells[mine], layout.first_cell, layout.n_codes)
        for member in range(2):
            node = built[family] if member == 0 else derived[family]
            if node >= 0:
                evaluate_noisy_node(
                    node, cells[slots[node]], count_cells[slots[node]], totals[node], total_counts[node], rules,
                    variance, layout, splits,
                )  # fmt: skip
