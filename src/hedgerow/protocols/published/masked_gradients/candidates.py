"""A feature holder's candidates, and the best split of each node from their noisy sums.

A candidate is a set of codes of one column: its rows in a node are the active set there.

    a numeric column        values below each cut, and the missing ones, if some are
    a column with levels    each level, and the missing ones, if some are

Missing values go to whichever side gains more, as in the engine: their own sum is added to that of a cut. Levels are
ranked by their noisy sums and added up in that order. Sums of independent noise over disjoint sets have the variance
that one candidate of all these rows would have, so both cost nothing in accuracy.

A child must have min_child_weight by the noisy sums, and min_samples_leaf rows, of which the feature holder knows the
exact number. Ties are broken as in the engine: the lowest column, missing right before missing left, the lowest cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.binning import FeatureBins, bin_counts
from hedgerow.engine.dtypes import MAX_BINS, Bools, Bytes, Floats, Ints
from hedgerow.engine.splitting import (
    LEVEL_SMOOTHING,
    LevelSplits,
    SplitRules,
    gain_of_cut,
    sort_levels,
    write_goes_left,
)


class Candidates(NamedTuple):
    """All candidates of a party's columns."""

    column: Ints  # [candidates]
    active: Bytes  # [candidates, 256] by code of the column: 1 if the row is in the active set
    first: Ints  # [columns] the column's first candidate
    missing: Ints  # [columns] the candidate of missing values, -1 if no value is missing
    n_value_bins: Ints  # [columns]
    is_categorical: Bools  # [columns]

    @classmethod
    def of(cls, features: Sequence[FeatureBins], codes: Bytes) -> Candidates:
        """The candidates of columns that were binned like this; codes: uint8 [columns, rows]."""
        column: list[int] = []
        sets: list[Bytes] = []
        first, missing = np.zeros(len(features), np.int64), np.full(len(features), -1, np.int64)
        all_codes = np.arange(MAX_BINS)
        for j, feature in enumerate(features):
            first[j] = len(sets)
            n_bins = feature.n_value_bins
            if feature.is_categorical:
                sets += [(all_codes == level).astype(np.uint8) for level in range(n_bins)]
            else:
                sets += [(all_codes <= cut).astype(np.uint8) for cut in range(n_bins - 1)]
            if (codes[j] == feature.missing_code).any():
                missing[j] = len(sets)
                sets.append((all_codes == feature.missing_code).astype(np.uint8))
            column += [j] * (len(sets) - len(column))
        return cls(
            np.array(column, np.int64),
            np.stack(sets) if sets else np.zeros((0, MAX_BINS), np.uint8),
            first,
            missing,
            *bin_counts(features),
        )

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.column)


@kernel
def rank_present_levels(gradients: Floats, hessians: Floats, counts: Ints, rules: SplitRules, order: Ints) -> int:
    """Levels that occur in the node, by smoothed gradient over hessian; returns how many there are."""
    n_present = 0
    keys = np.empty(counts.shape[0], np.float64)
    for level in range(counts.shape[0]):
        if counts[level] > 0:
            g = gradients[level] * rules.gradient_unit
            h = hessians[level] * rules.hessian_unit
            weight = h + LEVEL_SMOOTHING
            keys[n_present] = g / weight if weight > 0.0 else 0.0  # a noisy hessian may be far below 0
            order[n_present] = level
            n_present += 1
    sort_levels(keys, n_present, order)
    return n_present


class Lefts(NamedTuple):
    """What goes left at each cut of one column in one node, missing values apart."""

    gradients: Floats  # [256] in units
    hessians: Floats
    counts: Ints
    order: Ints  # levels in the order in which they are cut


@kernel
def add_up_lefts(
    column: int,
    node: int,
    gradients: Floats,
    hessians: Floats,
    by_code: Ints,
    values: tuple[float, float, int],  # sums and rows of all values that are there
    candidates: Candidates,
    rules: SplitRules,
    lefts: Lefts,  # out
) -> int:
    """The sums of every cut, and how many prefixes there are; the last one holds all values that are there."""
    begin: int = candidates.first[column]
    n_bins: int = candidates.n_value_bins[column]
    if candidates.is_categorical[column]:
        stop = begin + n_bins
        level_g, level_h = gradients[begin:stop, node], hessians[begin:stop, node]
        n_prefix = rank_present_levels(level_g, level_h, by_code[:n_bins], rules, lefts.order)
        g, h, n = 0.0, 0.0, 0
        for position in range(n_prefix):
            level = lefts.order[position]
            g += level_g[level]
            h += level_h[level]
            n += by_code[level]
            lefts.gradients[position], lefts.hessians[position], lefts.counts[position] = g, h, n
        return n_prefix
    n = 0
    for cut in range(n_bins - 1):
        n += by_code[cut]
        lefts.gradients[cut], lefts.hessians[cut] = gradients[begin + cut, node], hessians[begin + cut, node]
        lefts.counts[cut] = n
    lefts.gradients[n_bins - 1], lefts.hessians[n_bins - 1], lefts.counts[n_bins - 1] = values
    return n_bins


@kernel
def write_split(
    node: int, column: int, cut: int, missing_left: bool, levels: Ints, candidates: Candidates, splits: LevelSplits
) -> None:
    """One decision per code of the column; levels: those that go left or right, in the order in which they are cut."""
    splits.feature[node] = column
    splits.bin[node] = cut
    splits.missing_left[node] = missing_left
    splits.left_sum[node] = 0
    if column >= 0:
        write_goes_left(node, candidates.n_value_bins[column], candidates.is_categorical[column], levels, splits)


@kernel
def best_of_level(
    gradients: Floats,  # in  [candidates, nodes] sums over active sets, in units
    hessians: Floats,
    counts: Ints,  # in  [columns, nodes, 256] rows by code
    total_gradients: Floats,  # in  [nodes]
    total_hessians: Floats,
    total_counts: Ints,
    candidates: Candidates,
    rules: SplitRules,  # min_samples_leaf is at least 1
    splits: LevelSplits,  # out
) -> None:
    """The best admissible split of every node."""
    left_g, left_h = np.zeros(MAX_BINS, np.float64), np.zeros(MAX_BINS, np.float64)
    left_n, order = np.zeros(MAX_BINS, np.int64), np.zeros(MAX_BINS, np.int64)
    lefts = Lefts(left_g, left_h, left_n, order)
    gradient_unit, hessian_unit, l2, min_child_weight, min_samples_leaf, _ = rules
    for node in range(total_counts.shape[0]):
        total_g, total_h, total_n = total_gradients[node], total_hessians[node], total_counts[node]
        gradient, hessian = total_g * gradient_unit, total_h * hessian_unit
        parent = gradient * gradient / (hessian + l2)
        best_gain, best_column, best_cut, best_missing_left = 0.0, -1, -1, False
        best_levels = order[:0].copy()
        for column in range(candidates.n_value_bins.shape[0]):
            by_code = counts[column, node]
            n_missing = by_code[candidates.n_value_bins[column]]
            has_missing = n_missing > 0
            of_missing = candidates.missing[column]
            missing_g = gradients[of_missing, node] if has_missing else 0.0
            missing_h = hessians[of_missing, node] if has_missing else 0.0
            values = (total_g - missing_g, total_h - missing_h, total_n - n_missing)
            n_prefix = add_up_lefts(column, node, gradients, hessians, by_code, values, candidates, rules, lefts)
            for missing_left in range(2 if has_missing else 1):
                n_cuts = n_prefix if has_missing and missing_left == 0 else n_prefix - 1
                if missing_left == 1:
                    left_g += missing_g
                    left_h += missing_h
                    left_n += n_missing
                for cut in range(n_cuts):
                    if min(left_n[cut], total_n - left_n[cut]) < min_samples_leaf:
                        continue
                    gl, hl = left_g[cut] * gradient_unit, left_h[cut] * hessian_unit
                    gain = gain_of_cut(gl, hl, gradient, hessian, parent, l2, min_child_weight)
                    if gain > best_gain:
                        best_gain, best_column, best_cut = gain, column, cut
                        # Where nobody is missing, later missing values go where most of the weight went, or right.
                        unseen_left = not rules.unseen_right and 2.0 * left_h[cut] >= total_h
                        best_missing_left = missing_left == 1 if has_missing else unseen_left
                        best_levels = order[:n_prefix].copy()
        splits.gain[node] = best_gain
        write_split(node, best_column, best_cut, best_missing_left, best_levels, candidates, splits)
