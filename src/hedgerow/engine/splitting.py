"""The best split of each node, from its histogram.

A split sends a set of a feature's codes left. For a numeric feature that is bins 0..b, and the missing code goes to
whichever side gains more; for a categorical one the levels are sorted by gradient over hessian and cut as if they were
numbers, which finds the best two-way grouping of a second-order loss. Features for which that is asked for
(`BoostingParams.one_hot_levels`) have one level against all others instead: no order of levels is needed, which where
sums are shared nobody may know.

    gain = GL^2/(HL+l2) + GR^2/(HR+l2) - G^2/(H+l2)          XGBoost's loss_chg, without the factor 1/2

Sums arrive as exact integers. Ties are broken by a public order: the lowest feature, then missing to the right before
missing to the left, then the lowest bin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints
from hedgerow.engine.histogram import Layout, subtract_cells

if TYPE_CHECKING:
    from hedgerow.engine.growth import LevelSplits

MIN_GAIN = 1e-6  # gains at or below are rounding, not structure (XGBoost's kRtEps)
LEVEL_SMOOTHING = 10.0  # added to a level's hessian when levels are ranked, so that rare levels do not take the ends
INVALID = -1.0


class SplitRules(NamedTuple):
    """What makes a split admissible, how it is scored, and what leaves get; public parameters and scales of sums."""

    gradient_unit: float  # 1 / gradient scale
    hessian_unit: float
    l2: float
    min_child_weight: float
    min_samples_leaf: int  # 0 when the counts are not needed
    unseen_right: bool  # where nobody in a node is missing, later missing values go right, not to the heavier side
    learning_rate: float = 1.0  # what nodes' values are multiplied by
    min_gain: float = 0.0  # what a split must gain


@inline_kernel
def gradient_of(packed: np.int64) -> np.int64:
    """The high half."""
    return packed >> np.int64(32)


@inline_kernel
def hessian_of(packed: np.int64) -> np.int64:
    """The low half."""
    return packed & np.int64(0xFFFFFFFF)


@inline_kernel
def gain_of_cut(
    gl: float, hl: float, gradient: float, hessian: float, parent: float, l2: float, min_child_weight: float
) -> float:
    """One division per cut: (GL^2 (HR+l2) + GR^2 (HL+l2)) / ((HL+l2)(HR+l2)) - parent."""
    gr = gradient - gl
    hr = hessian - hl
    dl = hl + l2
    dr = hr + l2
    gain = (gl * gl * dr + gr * gr * dl) / (dl * dr) - parent
    allowed = (hl >= min_child_weight) & (hr >= min_child_weight) & (dl > 0.0) & (dr > 0.0)
    return gain if allowed else INVALID


@kernel
def score_cuts(  # the gain of every cut of one feature, vectorised
    left_gradients: Int32s,  # in  high halves of the packed prefix sums (stride 2)
    left_hessians: npt.NDArray[np.uint32],  # in  low halves
    gradient: float,
    hessian: float,
    rules: SplitRules,
    gains: Floats,  # out
) -> None:
    """The gain of each cut, INVALID where a side is too light."""
    gradient_unit, hessian_unit, l2, min_child_weight, _, _, _, _ = rules
    parent = gradient * gradient / (hessian + l2)
    for cut in range(gains.shape[0]):
        gl = np.float64(left_gradients[2 * cut + 1]) * gradient_unit
        hl = np.float64(left_hessians[2 * cut]) * hessian_unit
        gains[cut] = gain_of_cut(gl, hl, gradient, hessian, parent, l2, min_child_weight)


@kernel
def score_cuts_bounded(
    lefts: Ints,  # in  packed prefix sums
    gradient: float,
    hessian: float,
    rules: SplitRules,
    direction: int,  # -1, 0, 1: the feature's monotone constraint
    lower: float,  # bounds on the leaf values below this node
    upper: float,
    gains: Floats,  # out
) -> None:
    """The same with leaf values held between bounds and, for a constrained feature, ordered as asked."""
    gradient_unit, hessian_unit, l2, min_child_weight, _, _, _, _ = rules
    parent_value = min(max(-gradient / (hessian + l2), lower), upper)
    parent = -(2.0 * gradient * parent_value + (hessian + l2) * parent_value * parent_value)
    for cut in range(gains.shape[0]):
        gl = np.float64(gradient_of(lefts[cut])) * gradient_unit
        hl = np.float64(hessian_of(lefts[cut])) * hessian_unit
        gr = gradient - gl
        hr = hessian - hl
        dl = hl + l2
        dr = hr + l2
        gains[cut] = INVALID
        if hl < min_child_weight or hr < min_child_weight or dl <= 0.0 or dr <= 0.0:
            continue
        vl = min(max(-gl / dl, lower), upper)
        vr = min(max(-gr / dr, lower), upper)
        if direction * (vr - vl) < 0:
            continue
        gains[cut] = -(2.0 * gl * vl + dl * vl * vl) - (2.0 * gr * vr + dr * vr * vr) - parent


@kernel
def first_largest(gains: Floats, threshold_bits: int) -> int:
    """Index of the first largest gain if its bit pattern is above that of a threshold (0 or more), else -1.

    Positive floats order like their bit patterns, and a maximum of integers is vectorised without fastmath.
    """
    bits = gains.view(np.int64)
    top = np.int64(0)
    for cut in range(bits.shape[0]):
        top = max(top, bits[cut])
    if top <= threshold_bits:
        return -1
    cut = 0
    while bits[cut] != top:
        cut += 1
    return cut


@kernel
def forbid_small_leaves(counts: Ints, total: int, min_samples_leaf: int, gains: Floats) -> None:
    """Mark cuts invalid that leave fewer rows than allowed on either side; counts are prefix sums."""
    for cut in range(gains.shape[0]):
        if counts[cut] < min_samples_leaf or total - counts[cut] < min_samples_leaf:
            gains[cut] = INVALID


@kernel
def marginal(cells: Ints, bin_of_code: Bytes, n_codes: int, n_bins: int, out: Ints) -> None:
    """A bundled feature's histogram: the bundle's, summed over the codes of each of its bins."""
    for b in range(n_bins):
        out[b] = 0
    for code in range(n_codes):
        out[np.uint64(bin_of_code[np.uint64(code)])] += cells[np.uint64(code)]


@kernel
def sort_levels(keys: Floats, n_levels: int, order: Ints) -> None:
    """Put the first levels of `order` into the order of their keys; equal keys keep the order of levels."""
    ranks = np.argsort(keys[:n_levels], kind="mergesort")  # stable
    levels = order[:n_levels].copy()
    for position in range(n_levels):
        order[position] = levels[ranks[position]]


@kernel
def rank_levels(sums: Ints, n_levels: int, gradient_unit: float, hessian_unit: float, order: Ints) -> int:
    """Levels that occur in the node, sorted by smoothed gradient over hessian; returns how many there are."""
    keys = np.empty(n_levels, np.float64)
    n_present = 0
    for level in range(n_levels):
        if sums[level] != 0:
            g = np.float64(gradient_of(sums[level])) * gradient_unit
            h = np.float64(hessian_of(sums[level])) * hessian_unit
            keys[n_present] = g / (h + LEVEL_SMOOTHING)
            order[n_present] = level
            n_present += 1
    sort_levels(keys, n_present, order)
    return n_present


class Scratch(NamedTuple):
    """Buffers of one thread, as long as a feature has codes."""

    sums: Ints
    counts: Ints
    prefix: Ints  # what goes left when bins (or ranked levels) 0..b do and the missing do not
    prefix_signed: Int32s  # the same memory as 32-bit halves, low first
    prefix_unsigned: npt.NDArray[np.uint32]
    count_prefix: Ints
    order: Ints  # levels in the order in which they are cut
    gains: Floats


@inline_kernel
def _make_scratch() -> Scratch:
    prefix = np.zeros(256, np.int64)
    return Scratch(
        np.zeros(256, np.int64),
        np.zeros(256, np.int64),
        prefix,
        prefix.view(np.int32),
        prefix.view(np.uint32),
        np.zeros(256, np.int64),
        np.zeros(256, np.int64),
        np.zeros(256, np.float64),
    )


@inline_kernel
def read_feature(
    cells: Ints, first: int, n_bins: int, owns_column: bool, bin_of_code: Bytes, n_codes: int, out: Ints
) -> Ints:
    """A feature's histogram, missing last: a slice of the node's, or for a bundled feature a marginal in `out`."""
    if owns_column:
        return cells[first : first + n_bins + 1]
    marginal(cells[first : first + 256], bin_of_code, n_codes, n_bins + 1, out)
    return out[: n_bins + 1]


@inline_kernel
def sums_of_feature(cells: Ints, feature: int, layout: Layout, out: Ints) -> Ints:
    """The same, found in the layout."""
    column = layout.column_of_feature[feature]
    return read_feature(
        cells, layout.first_cell[column], layout.n_value_bins[feature], layout.owns_column[feature],
        layout.bin_of_code[feature], layout.n_codes[column], out,
    )  # fmt: skip


@inline_kernel
def add_up_prefixes(sums: Ints, n_bins: int, order: Ints, ranked: bool, alone: bool, prefix: Ints) -> None:
    """Running totals over bins, or over levels in their ranked order; of levels that stand alone, each one's own."""
    running = np.int64(0)
    if alone:
        for b in range(n_bins):
            prefix[b] = sums[b]
    elif ranked:
        for b in range(n_bins):
            running += sums[order[b]]
            prefix[b] = running
    else:
        for b in range(n_bins):
            running += sums[b]
            prefix[b] = running


@kernel
def evaluate_node(  # noqa: PLR0915 - one loop over features; cut into kernels, each call would cost reference counts
    node: int,
    cells: Ints,  # in  [cells] the node's histogram
    count_cells: Ints,  # in  [cells] rows per cell; length 0 when counts are not kept
    total: np.int64,  # in  packed sum of the node
    total_count: int,
    feature_allowed: Bools,  # in  [features]
    monotone: Ints,  # in  [features], or length 0
    lower: float,
    upper: float,
    rules: SplitRules,
    layout: Layout,
    scratch: Scratch,
    splits: LevelSplits,  # out, row `node`
) -> None:
    """Scan every allowed feature of one node and write down the best admissible split."""
    # Arrays are taken out of their tuples once: each access costs a reference count, and the loop is short.
    n_value_bins, is_categorical, column_of_feature, owns_column, bin_of_code, n_codes, first_cell, _, one_hot = layout
    sum_buffer, count_buffer, prefix, prefix_signed, prefix_unsigned, count_prefix, order, gain_buffer = scratch
    gradient_unit, hessian_unit, _, _, min_samples_leaf, unseen_right, _, _ = rules
    gradient = np.float64(gradient_of(total)) * gradient_unit
    hessian = np.float64(hessian_of(total)) * hessian_unit
    best_gain = np.zeros(1, np.float64)
    best_gain_bits = best_gain.view(np.int64)
    best_feature, best_cut, best_left, best_missing_left = -1, -1, np.int64(0), False

    for feature in range(n_value_bins.shape[0]):
        n_bins = n_value_bins[feature]
        if not feature_allowed[feature] or n_bins == 0:
            continue
        column = column_of_feature[feature]
        first, codes, own = first_cell[column], n_codes[column], owns_column[feature]
        ranked = is_categorical[feature]
        alone = one_hot.shape[0] > 0 and one_hot[feature]
        sums = read_feature(cells, first, n_bins, own, bin_of_code[feature], codes, sum_buffer)
        missing = sums[n_bins]
        n_prefix = n_bins
        if ranked and not alone:
            n_prefix = rank_levels(sums, n_bins, gradient_unit, hessian_unit, order)
        add_up_prefixes(sums, n_prefix, order, ranked, alone, prefix)
        missing_count = np.int64(0)
        if min_samples_leaf > 0:
            counts = read_feature(count_cells, first, n_bins, own, bin_of_code[feature], codes, count_buffer)
            missing_count = counts[n_bins]
            add_up_prefixes(counts, n_prefix, order, ranked, alone, count_prefix)

        has_missing = missing != 0
        for missing_left in range(2 if has_missing else 1):
            # All values against the missing ones is a cut too; all values against nothing is not.
            n_cuts = n_prefix if has_missing and missing_left == 0 else n_prefix - 1
            if alone and n_prefix > 1:  # the last level against the others is one more
                n_cuts = n_prefix
            if n_cuts < 1:
                continue
            if missing_left == 1:
                for b in range(n_cuts):
                    prefix[b] += missing
                    count_prefix[b] += missing_count
            gains = gain_buffer[:n_cuts]
            if monotone.shape[0] > 0:
                score_cuts_bounded(prefix, gradient, hessian, rules, monotone[feature], lower, upper, gains)
            else:
                score_cuts(prefix_signed, prefix_unsigned, gradient, hessian, rules, gains)
            if min_samples_leaf > 0:
                forbid_small_leaves(count_prefix, total_count, min_samples_leaf, gains)
            cut = first_largest(gains, best_gain_bits[0])
            if cut >= 0:
                best_gain[0] = gains[cut]
                best_feature, best_cut, best_left = feature, cut, prefix[cut]
                # Where nobody is missing, later missing values go where most of the weight went, or right.
                unseen_left = not unseen_right and 2 * hessian_of(prefix[cut]) >= hessian_of(total)
                best_missing_left = missing_left == 1 if has_missing else bool(unseen_left)

    splits.gain[node] = best_gain[0]
    splits.feature[node] = best_feature
    splits.bin[node] = best_cut
    splits.left_sum[node] = best_left
    splits.missing_left[node] = best_missing_left
    if best_feature >= 0:
        write_decision(node, cells, rules, layout, scratch, splits)


@kernel
def write_decision(
    node: int, cells: Ints, rules: SplitRules, layout: Layout, scratch: Scratch, splits: LevelSplits
) -> None:
    """Turn the best cut of a node into one decision per code of its feature."""
    feature = splits.feature[node]
    n_bins, by_levels = layout.n_value_bins[feature], layout.is_categorical[feature]
    n_present = 0
    if by_levels:
        if layout.one_hot.shape[0] > 0 and layout.one_hot[feature]:
            write_level_alone(node, n_bins, splits)
            return
        sums = sums_of_feature(cells, feature, layout, scratch.sums)
        n_present = rank_levels(sums, n_bins, rules.gradient_unit, rules.hessian_unit, scratch.order)
    write_goes_left(node, n_bins, by_levels, scratch.order[:n_present], splits)


@kernel
def write_level_alone(node: int, n_bins: int, splits: LevelSplits) -> None:
    """Decisions by code where one level goes left and all others go right, whether they occur in the node or not."""
    goes_left, level = splits.goes_left[node], splits.bin[node]
    for code in range(256):
        goes_left[code] = code == level if code < n_bins else splits.missing_left[node]
    splits.bin[node] = -1


@kernel
def write_goes_left(node: int, n_bins: int, by_levels: bool, levels: Ints, splits: LevelSplits) -> None:
    """Decisions by code from the node's cut and missing direction; `levels` of the node, in the order of the cuts."""
    cut, missing_left = splits.bin[node], splits.missing_left[node]
    goes_left = splits.goes_left[node]
    if not by_levels:
        for code in range(256):
            goes_left[code] = code <= cut
        goes_left[n_bins] = missing_left
        return
    splits.bin[node] = -1
    # Levels that do not occur in the node say nothing, like missing ones: they follow the missing direction.
    for code in range(256):
        goes_left[code] = missing_left
    for position in range(levels.shape[0]):
        goes_left[levels[position]] = position <= cut


@kernel
def evaluate_families(
    start: int,
    stop: int,
    built: Ints,  # in  [families] node whose histogram was built
    derived: Ints,  # in  [families] its sibling, found by subtraction; -1 for none
    slots: Ints,  # in  [nodes] histogram of each node; a derived node's slot holds its parent's
    cells: Ints,  # in/out [slots, cells]
    count_cells: Ints,  # in/out like cells, or [slots, 0]
    totals: Ints,  # in  [nodes] packed
    total_counts: Ints,  # in  [nodes]
    feature_allowed: Bools,  # in  [nodes, features] or [1, features] for all nodes alike
    monotone: Ints,
    lower: Floats,  # in  [nodes]
    upper: Floats,
    rules: SplitRules,
    layout: Layout,
    splits: LevelSplits,  # out
) -> None:
    """Families start..stop of a level: the sibling's histogram by subtraction, then the best split of both.

    A family is done by one thread, because the sibling's histogram needs the built one.
    """
    scratch = _make_scratch()
    with_counts = rules.min_samples_leaf > 0
    first_cell, n_codes = layout.first_cell, layout.n_codes
    for family in range(start, stop):
        mine = slots[built[family]]
        if derived[family] >= 0:
            parents = slots[derived[family]]
            subtract_cells(cells[parents], cells[mine], first_cell, n_codes)
            if with_counts:
                subtract_cells(count_cells[parents], count_cells[mine], first_cell, n_codes)
        for member in range(2):
            node = built[family] if member == 0 else derived[family]
            if node < 0:
                continue
            allowed = feature_allowed[node if feature_allowed.shape[0] > 1 else 0]
            evaluate_node(
                node, cells[slots[node]], count_cells[slots[node]], totals[node], total_counts[node], allowed,
                monotone, lower[node], upper[node], rules, layout, scratch, splits,
            )  # fmt: skip
