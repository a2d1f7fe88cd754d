"""The best split of each node, from its histogram.

A split sends a set of a feature's codes left. For a numeric feature that is bins 0..b, and the missing code goes to
whichever side gains more; for a categorical one the levels are sorted by gradient over hessian and cut as if they were
numbers, which finds the best two-way grouping of a second-order loss.

    gain = GL^2/(HL+l2) + GR^2/(HR+l2) - G^2/(H+l2)          XGBoost's loss_chg, without the factor 1/2

Sums arrive as exact integers. Ties are broken by a public order: the lowest feature, then missing to the right before
missing to the left, then the lowest bin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints
from hedgerow.engine.histogram import add_cells, subtract_cells
from hedgerow.engine.jit import inline_kernel, kernel

MIN_GAIN = 1e-6  # gains at or below are rounding, not structure (XGBoost's kRtEps)
LEVEL_SMOOTHING = 10.0  # added to a level's hessian when levels are ranked, so that rare levels do not take the ends
INVALID = -1.0


class SplitRules(NamedTuple):
    """What makes a split admissible and how it is scored; public parameters and the scales of the sums."""

    gradient_unit: float  # 1 / gradient scale
    hessian_unit: float
    l2: float
    min_child_weight: float
    min_samples_leaf: int  # 0 when the counts are not needed


class LevelSplits(NamedTuple):
    """The best split of every node of a level; feature -1 where none is admissible."""

    gain: Floats
    feature: Ints
    bin: Ints  # last value bin that goes left; -1 for categorical splits
    missing_left: Bools
    left_sum: Ints  # packed
    left_count: Ints  # 0 when counts are not kept
    goes_left: Bytes  # [nodes, 256] by the feature's code, missing included

    @classmethod
    def empty(cls, n_nodes: int) -> LevelSplits:
        return cls(
            gain=np.zeros(n_nodes),
            feature=np.full(n_nodes, -1, np.int64),
            bin=np.full(n_nodes, -1, np.int64),
            missing_left=np.zeros(n_nodes, np.bool_),
            left_sum=np.zeros(n_nodes, np.int64),
            left_count=np.zeros(n_nodes, np.int64),
            goes_left=np.zeros((n_nodes, 256), np.uint8),
        )


@inline_kernel
def gradient_of(packed: np.int64) -> np.int64:
    return packed >> np.int64(32)


@inline_kernel
def hessian_of(packed: np.int64) -> np.int64:
    return packed & np.int64(0xFFFFFFFF)


@kernel
def score_cuts(  # the gain of every cut of one feature, vectorised
    left_gradients: np.ndarray[tuple[int], np.dtype[np.int32]],  # in  high halves of the packed prefix sums (stride 2)
    left_hessians: np.ndarray[tuple[int], np.dtype[np.uint32]],  # in  low halves
    gradient: float,
    hessian: float,
    gradient_unit: float,
    hessian_unit: float,
    l2: float,
    min_child_weight: float,
    gains: Floats,  # out
) -> None:
    """One division per cut: (GL^2 (HR+l2) + GR^2 (HL+l2)) / ((HL+l2)(HR+l2)) - parent."""
    parent = gradient * gradient / (hessian + l2)
    for cut in range(gains.shape[0]):
        gl = np.float64(left_gradients[2 * cut + 1]) * gradient_unit
        hl = np.float64(left_hessians[2 * cut]) * hessian_unit
        gr = gradient - gl
        hr = hessian - hl
        dl = hl + l2
        dr = hr + l2
        gain = (gl * gl * dr + gr * gr * dl) / (dl * dr) - parent
        allowed = (hl >= min_child_weight) & (hr >= min_child_weight) & (dl > 0.0) & (dr > 0.0)
        gains[cut] = gain if allowed else INVALID


@kernel
def score_cuts_bounded(
    lefts: Ints,  # in  packed prefix sums
    gradient: float,
    hessian: float,
    gradient_unit: float,
    hessian_unit: float,
    l2: float,
    min_child_weight: float,
    direction: int,  # -1, 0, 1: the feature's monotone constraint
    lower: float,  # bounds on the leaf values below this node
    upper: float,
    gains: Floats,  # out
) -> None:
    """The same with leaf values held between bounds and, for a constrained feature, ordered as asked."""
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
def first_largest(gains: Floats) -> int:
    """Index of the first largest gain, or -1 if none is positive.

    Positive floats order like their bit patterns, and a maximum of integers is vectorised without fastmath.
    """
    bits = gains.view(np.int64)
    top = np.int64(0)
    for cut in range(bits.shape[0]):
        top = max(top, bits[cut])
    if top == 0:
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
    ranks = np.argsort(keys[:n_present], kind="mergesort")  # stable: equal keys keep the order of levels
    levels = order[:n_present].copy()
    for position in range(n_present):
        order[position] = levels[ranks[position]]
    return n_present


@kernel
def evaluate_node(
    node: int,
    cells: Ints,  # in  [cells] the node's histogram
    count_cells: Ints,  # in  [cells] rows per cell; length 0 when counts are not kept
    total: int,  # in  packed sum of the node
    total_count: int,
    feature_allowed: Bools,  # in  [features]
    monotone: Ints,  # in  [features], or length 0
    lower: float,
    upper: float,
    rules: SplitRules,
    n_value_bins: Ints,
    is_categorical: Bools,
    column_of_feature: Ints,
    owns_column: Bools,
    bin_of_code: Bytes,
    n_codes: Ints,
    first_cell: Ints,
    splits: LevelSplits,  # out, row `node`
) -> None:
    """Scan every allowed feature of one node and write down the best admissible split."""
    gradient_unit, hessian_unit = rules.gradient_unit, rules.hessian_unit
    gradient = np.float64(gradient_of(total)) * gradient_unit
    hessian = np.float64(hessian_of(total)) * hessian_unit
    with_counts = rules.min_samples_leaf > 0
    sums = np.empty(256, np.int64)
    counts = np.zeros(256, np.int64)
    prefix = np.empty(256, np.int64)
    count_prefix = np.zeros(256, np.int64)
    halves_signed = prefix.view(np.int32)
    halves_unsigned = prefix.view(np.uint32)
    gain_buffer = np.empty(256, np.float64)
    order = np.empty(256, np.int64)
    best_gain = 0.0
    best_feature = -1
    best_cut = -1
    best_missing_left = False
    best_left = np.int64(0)
    best_count = np.int64(0)

    for feature in range(n_value_bins.shape[0]):
        n_bins = n_value_bins[feature]
        if not feature_allowed[feature] or n_bins == 0:
            continue
        column = column_of_feature[feature]
        base = first_cell[column]
        if owns_column[feature]:
            source = cells[base : base + n_bins + 1]
        else:
            marginal(cells[base : base + 256], bin_of_code[feature], n_codes[column], n_bins + 1, sums)
            source = sums[: n_bins + 1]
        missing = source[n_bins]
        count_source = counts[: n_bins + 1]
        if with_counts:
            if owns_column[feature]:
                count_source = count_cells[base : base + n_bins + 1]
            else:
                marginal(count_cells[base : base + 256], bin_of_code[feature], n_codes[column], n_bins + 1, counts)
        missing_count = count_source[n_bins]
        has_missing = missing != 0

        # prefix[b]: what goes left when bins (or ranked levels) 0..b do, and the missing do not.
        n_prefix = n_bins
        running = np.int64(0)
        if is_categorical[feature]:
            n_prefix = rank_levels(source, n_bins, gradient_unit, hessian_unit, order)
            for b in range(n_prefix):
                running += source[order[b]]
                prefix[b] = running
        else:
            for b in range(n_bins):
                running += source[b]
                prefix[b] = running
        if with_counts:
            counted = np.int64(0)
            for b in range(n_prefix):
                counted += count_source[order[b]] if is_categorical[feature] else count_source[b]
                count_prefix[b] = counted

        for missing_left in range(2 if has_missing else 1):
            n_cuts = n_prefix if has_missing and missing_left == 0 else n_prefix - 1
            if n_cuts < 1:
                continue
            if missing_left == 1:
                for b in range(n_cuts):
                    prefix[b] += missing
                    count_prefix[b] += missing_count
            gains = gain_buffer[:n_cuts]
            if monotone.shape[0] > 0:
                score_cuts_bounded(
                    prefix[:n_cuts],
                    gradient,
                    hessian,
                    gradient_unit,
                    hessian_unit,
                    rules.l2,
                    rules.min_child_weight,
                    monotone[feature],
                    lower,
                    upper,
                    gains,
                )
            else:
                score_cuts(
                    halves_signed,
                    halves_unsigned,
                    gradient,
                    hessian,
                    gradient_unit,
                    hessian_unit,
                    rules.l2,
                    rules.min_child_weight,
                    gains,
                )
            if with_counts:
                forbid_small_leaves(count_prefix[:n_cuts], total_count, rules.min_samples_leaf, gains)
            cut = first_largest(gains)
            if cut >= 0 and gains[cut] > best_gain:
                best_gain = gains[cut]
                best_feature = feature
                best_cut = cut
                best_left = prefix[cut]
                best_count = count_prefix[cut]
                # Nobody is missing here: later missing values go where most of the weight went.
                heavier_left = 2 * hessian_of(best_left) >= hessian_of(total)
                best_missing_left = missing_left == 1 if has_missing else heavier_left

    splits.gain[node] = best_gain
    splits.feature[node] = best_feature
    splits.bin[node] = best_cut
    splits.missing_left[node] = best_missing_left
    splits.left_sum[node] = best_left
    splits.left_count[node] = best_count
    if best_feature < 0:
        return
    n_bins = n_value_bins[best_feature]
    goes_left = splits.goes_left[node]
    if is_categorical[best_feature]:
        splits.bin[node] = -1
        column = column_of_feature[best_feature]
        base = first_cell[column]
        marginal(cells[base : base + 256], bin_of_code[best_feature], n_codes[column], n_bins + 1, sums)
        n_present = rank_levels(sums, n_bins, gradient_unit, hessian_unit, order)
        # Levels that do not occur in the node, like missing ones, say nothing: they follow the missing direction.
        for code in range(256):
            goes_left[code] = best_missing_left
        for position in range(n_present):
            goes_left[order[position]] = position <= best_cut
    else:
        for code in range(256):
            goes_left[code] = code <= best_cut
        goes_left[n_bins] = best_missing_left


@kernel
def evaluate_families(
    start: int,
    stop: int,
    built: Ints,  # in  [families] node whose histogram was built
    derived: Ints,  # in  [families] its sibling, to be had by subtraction; -1 for none
    slots: Ints,  # in  [nodes] histogram of each node; a derived node's slot holds its parent's
    cells: Ints,  # in/out [slots, cells]
    partial: Ints,  # in  [threads - 1, families, cells] what other threads summed for the built nodes
    count_cells: Ints,  # in/out like cells, or [slots, 0]
    count_partial: Ints,
    totals: Ints,  # in  [nodes] packed
    total_counts: Ints,  # in  [nodes]
    feature_allowed: Bools,  # in  [nodes, features] or [1, features] for all nodes alike
    monotone: Ints,
    lower: Floats,  # in  [nodes]
    upper: Floats,
    rules: SplitRules,
    n_value_bins: Ints,
    is_categorical: Bools,
    column_of_feature: Ints,
    owns_column: Bools,
    bin_of_code: Bytes,
    n_codes: Ints,
    first_cell: Ints,
    splits: LevelSplits,  # out
) -> None:
    """Families start..stop of a level: merge the threads' sums, subtract for the sibling, evaluate both.

    A family is done by one thread, because the sibling's histogram needs the built one complete.
    """
    with_counts = rules.min_samples_leaf > 0
    for family in range(start, stop):
        mine = cells[slots[built[family]]]
        for part in range(partial.shape[0]):
            add_cells(mine, partial[part, family], first_cell, n_codes)
        if with_counts:
            for part in range(count_partial.shape[0]):
                add_cells(count_cells[slots[built[family]]], count_partial[part, family], first_cell, n_codes)
        if derived[family] >= 0:
            subtract_cells(cells[slots[derived[family]]], mine, first_cell, n_codes)
            if with_counts:
                subtract_cells(
                    count_cells[slots[derived[family]]], count_cells[slots[built[family]]], first_cell, n_codes
                )
        for member in range(2):
            node = built[family] if member == 0 else derived[family]
            if node < 0:
                continue
            evaluate_node(
                node,
                cells[slots[node]],
                count_cells[slots[node]],
                totals[node],
                total_counts[node],
                feature_allowed[node if feature_allowed.shape[0] > 1 else 0],
                monotone,
                lower[node],
                upper[node],
                rules,
                n_value_bins,
                is_categorical,
                column_of_feature,
                owns_column,
                bin_of_code,
                n_codes,
                first_cell,
                splits,
            )
