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
from hedgerow.engine.growth import LevelSplits
from hedgerow.engine.splitting import SplitRules
from hedgerow.protocols.vertical.noised_gradients.noise_aware import (
    Bounds,
    add_up_cuts,
    clear_split,
    make_cuts,
    rank_present_levels,
    take_best_cut,
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
def best_of_level(
    gradients: Floats,  # in  [candidates, nodes] sums over active sets, in units
    hessians: Floats,
    counts: Ints,  # in  [columns, nodes, 256] rows by code
    total_gradients: Floats,  # in  [nodes]
    total_hessians: Floats,
    total_counts: Ints,
    candidates: Candidates,
    rules: SplitRules,  # min_samples_leaf is at least 1
    allowed: Bools,  # in  [nodes, columns] or [1, columns] for all nodes alike
    signs: Ints,  # in  [columns] of monotone ones, or none
    lower: Floats,  # in  [nodes] bounds that monotone columns put on values
    upper: Floats,
    splits: LevelSplits,  # out
) -> None:
    """The best admissible split of every node."""
    cuts, has_signs = make_cuts(), signs.shape[0] > 0
    for node in range(total_counts.shape[0]):
        total_g, total_h, total_n = total_gradients[node], total_hessians[node], total_counts[node]
        clear_split(node, splits)
        for column in range(candidates.n_value_bins.shape[0]):
            if not allowed[node if allowed.shape[0] > 1 else 0, column]:
                continue
            bounds = Bounds(has_signs, signs[column] if has_signs else 0, lower[node], upper[node])
            begin, n_bins = candidates.first[column], candidates.n_value_bins[column]
            by_code, of_missing = counts[column, node], candidates.missing[column]
            missing_g, missing_h, n_missing = 0.0, 0.0, by_code[n_bins]
            if n_missing > 0:
                missing_g, missing_h = gradients[of_missing, node], hessians[of_missing, node]
            by_levels = candidates.is_categorical[column]
            n_prefix = n_bins
            if by_levels:
                level_g, level_h = gradients[begin : begin + n_bins, node], hessians[begin : begin + n_bins, node]
                n_prefix = rank_present_levels(level_g, level_h, by_code[:n_bins], rules, 0.0, cuts.order)
                add_up_cuts(level_g, level_h, by_code, n_prefix, cuts)
            else:
                n_left = 0
                for cut in range(n_bins - 1):
                    n_left += by_code[cut]
                    cuts.gradients[cut], cuts.hessians[cut] = gradients[begin + cut, node], hessians[begin + cut, node]
                    cuts.counts[cut] = n_left
                last = n_bins - 1  # all values that are there
                cuts.gradients[last], cuts.hessians[last] = total_g - missing_g, total_h - missing_h
                cuts.counts[last] = total_n - n_missing
            total, missing = (total_g, total_h, total_n), (missing_g, missing_h, n_missing)
            of_column = (n_bins, by_levels, bounds)
            take_best_cut(node, column, cuts, n_prefix, missing, total, rules, 0.0, *of_column, splits)
