"""Splits and leaves that allow for the noise in the gradients.

A sum G over n rows, each with independent noise of variance v, has noise of variance n v. Plain scores square it: a
child of few rows and hardly any weight then gains most, from noise alone. Here, with d = 2 sqrt(n v),

    gain = S(left) + S(right) - S(node),    S = max(G^2 - d^2, 0) / (H + l2 + d)
    leaf = -G / (H + l2 + d),

children with H < d / 2 are not allowed, and levels of a column are ranked by G / (H + 10 + d). All of it is computed
from what was released and from its own columns, so it costs no privacy.

Why 2 standard deviations: taking off n v makes the score of one split right on average, but the best of hundreds is
looked for. On three tables 2 was better than 1 at epsilon 1 to 4, and worse at 0.5, when all trees share one release;
how it was chosen, and on what, is in docs/protocols/vertical_noised_gradients.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.building import Children
from hedgerow.engine.dtypes import Bools, Ints
from hedgerow.engine.ensemble import Tree
from hedgerow.engine.histogram import Histograms, subtract_siblings
from hedgerow.engine.layout import Layout
from hedgerow.engine.splitting import (
    INVALID,
    LEVEL_SMOOTHING,
    LevelSplits,
    SplitRules,
    gradient_of,
    hessian_of,
    sort_levels,
    sums_of_feature,
    write_goes_left,
)
from hedgerow.protocols.vertical.common.joint_growth import JointGrower

DOUBT = 2.0
"""Standard deviations of its noise that a sum is not trusted with."""


class NoiseAwareGrower(JointGrower):
    """A grower that knows how much noise there is in the gradient of each row."""

    def __init__(self, *what: Any, sigma: float) -> None:
        """`sigma`: standard deviation of the noise of one row, in units of the gradient; the rest as `JointGrower`."""
        self._variance = sigma * sigma
        super().__init__(*what)

    @property
    def with_counts(self) -> bool:
        """Rows per cell are always needed: they say how much noise is in its sum."""
        return True

    def evaluate_families(self, nodes: Children, where: Histograms, allowed: Bools, splits: LevelSplits) -> None:  # noqa: ARG002 - every column may split
        """The best split of each node beyond what noise alone could give it."""
        store, layout, counts = self.store, self.rows.layout, self.rows.node_counts
        for cells in (store.cells, store.count_cells):
            subtract_siblings(where.built, where.derived, where.slot, cells, layout.first_cell, layout.n_codes)
        members = np.concatenate([where.built, where.derived[where.derived >= 0]])
        evaluate_noisy_nodes(
            members, where.slot, store.cells, store.count_cells, nodes.total, counts, self.split_rules, self._variance,
            layout, splits,
        )  # fmt: skip

    def finish(self) -> Tree:
        """The finished tree with values that allow for the noise; it has been added to the scores."""
        nodes = self.tree.nodes
        noise = DOUBT * np.sqrt(np.concatenate(self.rows_of_nodes) * self._variance)
        weight = nodes.cover + self.rules.l2
        nodes.value[:] = nodes.value * (weight / (weight + noise))
        return super().finish()


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
    sort_levels(keys, n_present, order)
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
    n_value_bins, is_categorical = layout.n_value_bins, layout.is_categorical
    gradient = np.float64(gradient_of(total)) * gradient_unit
    hessian = np.float64(hessian_of(total)) * hessian_unit
    parent = _score(gradient, hessian, l2, np.sqrt(total_count * variance))
    sum_buffer = np.zeros(256, np.int64)
    count_buffer = np.zeros(256, np.int64)
    order = np.arange(256)
    best_gain, best_feature, best_cut, best_missing_left = 0.0, -1, -1, False
    best_levels = order[:0].copy()
    for feature in range(n_value_bins.shape[0]):
        n_bins = n_value_bins[feature]
        if n_bins == 0:
            continue
        sums = sums_of_feature(cells, feature, layout, sum_buffer)
        counts = sums_of_feature(count_cells, feature, layout, count_buffer)
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
                    best_levels = order[:n_prefix].copy()
    splits.gain[node] = best_gain
    splits.feature[node] = best_feature
    splits.bin[node] = best_cut
    splits.left_sum[node] = 0  # follows from the rows' sides
    splits.missing_left[node] = best_missing_left
    if best_feature >= 0:
        write_goes_left(node, n_value_bins[best_feature], is_categorical[best_feature], best_levels, splits)


@kernel
def evaluate_noisy_nodes(
    members: Ints,  # in  the nodes to evaluate
    slots: Ints,  # in  [nodes]
    cells: Ints,  # in  [slots, cells]
    count_cells: Ints,
    totals: Ints,  # in  [nodes] packed
    total_counts: Ints,  # in  [nodes]
    rules: SplitRules,
    variance: float,
    layout: Layout,
    splits: LevelSplits,  # out
) -> None:
    """The best split of each of some nodes."""
    for node in members:
        mine, mine_counts = cells[slots[node]], count_cells[slots[node]]
        evaluate_noisy_node(node, mine, mine_counts, totals[node], total_counts[node], rules, variance, layout, splits)
