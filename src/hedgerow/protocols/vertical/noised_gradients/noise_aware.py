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

from typing import Any, NamedTuple

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.engine.ensemble import Tree
from hedgerow.engine.growth import Children, LevelSplits
from hedgerow.engine.histogram import Histograms, Layout, subtract_siblings
from hedgerow.engine.splitting import (
    INVALID,
    LEVEL_SMOOTHING,
    SplitRules,
    gain_of_cut,
    gradient_of,
    hessian_of,
    sort_levels,
    sums_of_feature,
    write_goes_left,
)
from hedgerow.protocols.vertical.common.joint_forest import JointGrower

DOUBT = 2.0
"""Standard deviations of its noise that a sum is not trusted with."""


class NoiseAwareGrower(JointGrower):
    """A grower that knows how much noise there is in the gradient of each row."""

    def __init__(self, *what: Any, sigma: float, **how: Any) -> None:
        """`sigma`: standard deviation of the noise of one row, in units of the gradient; the rest as `JointGrower`."""
        self._variance = sigma * sigma
        super().__init__(*what, **how)

    @property
    def with_counts(self) -> bool:
        """Rows per cell are always needed: they say how much noise is in its sum."""
        return True

    def evaluate_families(self, nodes: Children, where: Histograms, allowed: Bools, splits: LevelSplits) -> None:
        """The best split of each node beyond what noise alone could give it."""
        store, layout, counts = self.store, self.rows.layout, self.rows.node_counts
        for cells in (store.cells, store.count_cells):
            subtract_siblings(where.built, where.derived, where.slot, cells, layout.first_cell, layout.n_codes)
        members = np.concatenate([where.built, where.derived[where.derived >= 0]])
        evaluate_noisy_nodes(
            members, where.slot, store.cells, store.count_cells, nodes.total, counts, allowed, self.split_rules,
            self._variance, layout, splits,
        )  # fmt: skip

    def finish(self) -> Tree:
        """The finished tree with values that allow for the noise; it has been added to the scores."""
        nodes = self.tree.nodes
        noise = DOUBT * np.sqrt(np.concatenate(self.rows_of_nodes) * self._variance)
        weight = nodes.cover + self.rules.l2
        nodes.value[:] = nodes.value * (weight / (weight + noise))
        return super().finish()


# --- the best cut; vertical.masked_gradients finds it so too, with nothing to allow for -------------------------------


class Bounds(NamedTuple):
    """What monotone constraints ask of the leaf values of a cut, where there are any."""

    matter: bool
    direction: int  # -1, 0, 1: of the column
    lower: float  # for all values below the node
    upper: float


@inline_kernel
def gain_within(
    gl: float, hl: float, gradient: float, hessian: float, l2: float, min_child_weight: float, bounds: Bounds
) -> float:
    """What a cut gains with leaf values between bounds and ordered as asked; as the engine computes it, bit for bit."""
    _, direction, lower, upper = bounds
    parent_value = min(max(-gradient / (hessian + l2), lower), upper)
    parent = -(2.0 * gradient * parent_value + (hessian + l2) * parent_value * parent_value)
    gr, hr = gradient - gl, hessian - hl
    dl, dr = hl + l2, hr + l2
    if hl < min_child_weight or hr < min_child_weight or dl <= 0.0 or dr <= 0.0:
        return INVALID
    vl, vr = min(max(-gl / dl, lower), upper), min(max(-gr / dr, lower), upper)
    if direction * (vr - vl) < 0:
        return INVALID
    return -(2.0 * gl * vl + dl * vl * vl) - (2.0 * gr * vr + dr * vr * vr) - parent


class Cuts(NamedTuple):
    """What goes left at each cut of one column in one node, missing values apart."""

    gradients: Floats  # [256] in units
    hessians: Floats
    counts: Ints
    order: Ints  # codes in the order in which they are cut


@inline_kernel
def make_cuts() -> Cuts:
    """Buffers."""
    return Cuts(np.zeros(256), np.zeros(256), np.zeros(256, np.int64), np.zeros(256, np.int64))


@kernel
def rank_present_levels(
    gradients: Floats, hessians: Floats, counts: Ints, rules: SplitRules, variance: float, order: Ints
) -> int:
    """Levels that occur in the node, by gradient over hessian, smoothed also by the noise; how many there are."""
    keys = np.empty(counts.shape[0], np.float64)
    n_present = 0
    for level in range(counts.shape[0]):
        if counts[level] > 0:
            g, h = gradients[level] * rules.gradient_unit, hessians[level] * rules.hessian_unit
            weight = h + LEVEL_SMOOTHING + DOUBT * np.sqrt(counts[level] * variance)
            keys[n_present] = g / weight if weight > 0.0 else 0.0  # a noisy hessian may be far below 0
            order[n_present] = level
            n_present += 1
    sort_levels(keys, n_present, order)
    return n_present


@kernel
def add_up_cuts(gradients: Floats, hessians: Floats, counts: Ints, n_cuts: int, cuts: Cuts) -> None:
    """What goes left at each of the first cuts, from sums by code."""
    g, h, n = 0.0, 0.0, 0
    for cut in range(n_cuts):
        code = cuts.order[cut]
        g += gradients[code]
        h += hessians[code]
        n += counts[code]
        cuts.gradients[cut], cuts.hessians[cut], cuts.counts[cut] = g, h, n


@inline_kernel
def _score(gradient: float, hessian: float, l2: float, noise: float) -> float:
    """What a node is worth beyond what noise of this standard deviation alone could give it."""
    doubt = DOUBT * noise
    return max(gradient * gradient - doubt * doubt, 0.0) / (hessian + l2 + doubt)


@kernel
def clear_split(node: int, splits: LevelSplits) -> None:
    """No split so far."""
    splits.gain[node], splits.feature[node], splits.bin[node] = 0.0, -1, -1
    splits.missing_left[node] = False
    splits.left_sum[node] = 0  # follows from the rows' sides


@kernel
def take_best_cut(
    node: int,
    feature: int,
    cuts: Cuts,
    n_prefix: int,
    missing: tuple[float, float, int],  # in  sums of gradients and hessians in units, and rows
    total: tuple[float, float, int],
    rules: SplitRules,
    variance: float,  # in  of the noise of one row's gradient
    n_bins: int,
    by_levels: bool,
    bounds: Bounds,
    splits: LevelSplits,  # in/out, row `node`
) -> None:
    """The best admissible cut of one feature, if it gains more than the node's split so far; ties as in the engine."""
    gradient_unit, hessian_unit, l2, min_child_weight, min_samples_leaf, unseen_right, _, _ = rules
    gradient, hessian = total[0] * gradient_unit, total[1] * hessian_unit
    parent = _score(gradient, hessian, l2, np.sqrt(total[2] * variance))
    has_missing, best_cut = missing[2] > 0, -1
    for missing_left in range(2 if has_missing else 1):
        for cut in range(n_prefix if has_missing and missing_left == 0 else n_prefix - 1):
            g, h, n_left = cuts.gradients[cut], cuts.hessians[cut], cuts.counts[cut]
            if missing_left == 1:
                g, h, n_left = g + missing[0], h + missing[1], n_left + missing[2]
            n_right = total[2] - n_left
            if min(n_left, n_right) < max(min_samples_leaf, 1):
                continue
            gl, hl = g * gradient_unit, h * hessian_unit
            gain = INVALID
            if variance == 0.0 and bounds.matter:
                gain = gain_within(gl, hl, gradient, hessian, l2, min_child_weight, bounds)
            elif variance == 0.0:
                gain = gain_of_cut(gl, hl, gradient, hessian, parent, l2, min_child_weight)
            else:
                gr, hr = gradient - gl, hessian - hl
                noise_left, noise_right = np.sqrt(n_left * variance), np.sqrt(n_right * variance)
                if hl >= max(min_child_weight, noise_left) and hr >= max(min_child_weight, noise_right):
                    gain = _score(gl, hl, l2, noise_left) + _score(gr, hr, l2, noise_right) - parent
            if gain > splits.gain[node]:
                splits.gain[node], best_cut = gain, cut
                # Where nobody is missing, later missing values go where most of the weight went, or right.
                unseen_left = not unseen_right and 2.0 * h >= total[1]
                splits.missing_left[node] = missing_left == 1 if has_missing else unseen_left
    if best_cut >= 0:
        splits.feature[node], splits.bin[node] = feature, best_cut
        write_goes_left(node, n_bins, by_levels, cuts.order[:n_prefix], splits)


@kernel
def evaluate_noisy_nodes(
    members: Ints,  # in  the nodes to evaluate
    slots: Ints,  # in  [nodes]
    cells: Ints,  # in  [slots, cells] packed sums
    count_cells: Ints,  # in  likewise, rows
    totals: Ints,  # in  [nodes] packed
    total_counts: Ints,  # in  [nodes]
    feature_allowed: Bools,  # in  [nodes, features] or [1, features] for all nodes alike
    rules: SplitRules,
    variance: float,
    layout: Layout,
    splits: LevelSplits,  # out
) -> None:
    """The best split of each of some nodes, over all features."""
    cuts, gradients, hessians = make_cuts(), np.empty(256), np.empty(256)
    unbound = Bounds(False, 0, -np.inf, np.inf)
    sum_buffer, count_buffer = np.zeros(256, np.int64), np.zeros(256, np.int64)
    for node in members:
        slot = slots[node]
        total = (np.float64(gradient_of(totals[node])), np.float64(hessian_of(totals[node])), total_counts[node])
        clear_split(node, splits)
        for feature in range(layout.n_value_bins.shape[0]):
            n_bins, by_levels = layout.n_value_bins[feature], layout.is_categorical[feature]
            if n_bins == 0 or not feature_allowed[node if feature_allowed.shape[0] > 1 else 0, feature]:
                continue
            sums = sums_of_feature(cells[slot], feature, layout, sum_buffer)
            counts = sums_of_feature(count_cells[slot], feature, layout, count_buffer)
            for code in range(n_bins + 1):
                cuts.order[code] = code
                gradients[code], hessians[code] = gradient_of(sums[code]), hessian_of(sums[code])
            n_prefix = n_bins
            if by_levels:
                n_prefix = rank_present_levels(gradients, hessians, counts[:n_bins], rules, variance, cuts.order)
            add_up_cuts(gradients, hessians, counts, n_prefix, cuts)
            missing = (gradients[n_bins], hessians[n_bins], counts[n_bins])
            of_column = (n_bins, by_levels, unbound)
            take_best_cut(node, feature, cuts, n_prefix, missing, total, rules, variance, *of_column, splits)
