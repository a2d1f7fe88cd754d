"""Kernels for trees whose nodes hold shares of rows; what shares are: debias.py."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, RowIds, Scores
from hedgerow.engine.jit import inline_kernel, kernel
from hedgerow.engine.layout import Layout
from hedgerow.engine.splitting import (
    LEVEL_SMOOTHING,
    LevelSplits,
    SplitRules,
    gradient_of,
    hessian_of,
    read_feature,
)

RAREST = 1e-4
"""A code counts as occurring at least this often, so that noise never rules out what may be."""


class Randomised(NamedTuple):
    """What is known about the features, and how their codes were changed."""

    place: Ints  # [features] place among the randomised ones; -1 for an exact feature
    n_codes: Ints  # [features] codes that occur, the one for missing values included where it may
    posterior: Floats  # [randomised, 256, 256] P(true code | changed code)
    doubt: float  # what a split of a randomised feature must gain more than another


def posterior(counts: Ints, keep: float) -> Floats:
    """P(true code | changed code), [changed, true], from how often each changed code occurs.

    P(changed z) = keep * prior(z) + other * (1 - prior(z)) is solved for the prior, other = (1 - keep) / (codes - 1).
    """
    n = len(counts)
    other = (1.0 - keep) / (n - 1)
    prior = np.maximum((counts / max(counts.sum(), 1) - other) / (keep - other), RAREST)
    prior /= prior.sum()
    joint = np.full((n, n), other)
    np.fill_diagonal(joint, keep)
    joint *= prior[None, :]
    table: Floats = joint / joint.sum(axis=1, keepdims=True)
    return table


# --- rows ------------------------------------------------------------------------------------------------------------


@kernel
def take_side(codes: Bytes, rows: RowIds, goes_left: Bytes, side: int) -> RowIds:
    """Of a node's rows those that go left (side 1) or right (0) at a split of an exact feature."""
    taken = np.empty(rows.shape[0], np.uint32)
    n_taken = np.uint64(0)
    for k in range(rows.shape[0]):
        taken[n_taken] = rows[k]
        n_taken += np.uint64(goes_left[codes[np.uint64(rows[k])]] == side)
    return taken[: np.int64(n_taken)]


@kernel
def share_out(
    codes: Bytes,  # in  [rows] changed codes of the feature that splits
    rows: RowIds,  # in  rows of the node
    to_left: Scores,  # in  [256] share that goes left, by changed code
    share: Scores,  # in  [all rows] shares in the node
    packed: Ints,  # in  [all rows] packed (g, h)
    left_share: Scores,  # out [all rows], and so on
    right_share: Scores,
    left_values: Ints,
    right_values: Ints,
) -> None:
    """Shares of both children, and what is summed for them: packed (share * g, share^2 * h)."""
    for k in range(rows.shape[0]):
        row = np.uint64(rows[k])
        left = share[row] * to_left[codes[row]]
        right = share[row] - left
        left_share[row] = left
        right_share[row] = right
        left_values[row] = shared_value(np.float64(left), packed[row])
        right_values[row] = shared_value(np.float64(right), packed[row])


@inline_kernel
def shared_value(share: float, packed: np.int64) -> np.int64:
    """(share * g, share^2 * h), each rounded."""
    g = np.int64(np.floor(share * np.float64(gradient_of(packed)) + 0.5))
    h = np.int64(share * share * np.float64(hessian_of(packed)) + 0.5)
    return (g << np.int64(32)) + h


@kernel
def place_shares(rows: RowIds, share: Scores, whole: Scores) -> None:
    """whole[row] = share of each of a leaf's rows; other rows have none."""
    for k in range(rows.shape[0]):
        whole[np.uint64(rows[k])] = share[np.uint64(rows[k])]


@kernel
def sums_of_leaf(rows: RowIds, share: Scores, packed: Ints) -> tuple[float, float]:
    """Sums of share * g and of share * h over a leaf's rows, in whole units."""
    g, h = 0.0, 0.0
    for k in range(rows.shape[0]):
        row = np.uint64(rows[k])
        g += np.float64(share[row]) * np.float64(gradient_of(packed[row]))
        h += np.float64(share[row]) * np.float64(hessian_of(packed[row]))
    return g, h


@kernel
def overlap(rows: RowIds, one: Scores, other: Scores, packed: Ints) -> float:
    """Sum of share * share * h over `rows`, which hold all that two leaves have in common.

    Four sums in turn, because one addition need not wait for the last one then.
    """
    sums = (0.0, 0.0, 0.0, 0.0)
    n_rows = rows.shape[0]
    for k in range(0, n_rows - 3, 4):
        sums = (
            sums[0] + _product(rows[k], one, other, packed),
            sums[1] + _product(rows[k + 1], one, other, packed),
            sums[2] + _product(rows[k + 2], one, other, packed),
            sums[3] + _product(rows[k + 3], one, other, packed),
        )
    rest = 0.0
    for k in range(n_rows - n_rows % 4, n_rows):
        rest += _product(rows[k], one, other, packed)
    return sums[0] + sums[1] + sums[2] + sums[3] + rest


@inline_kernel
def _product(row_id: np.uint32, one: Scores, other: Scores, packed: Ints) -> float:
    row = np.uint64(row_id)
    return np.float64(one[row]) * np.float64(other[row]) * np.float64(hessian_of(packed[row]))


@kernel
def add_value(rows: RowIds, share: Scores, value: np.float32, scores: Scores) -> None:
    """scores[row] += share * value for a leaf's rows."""
    for k in range(rows.shape[0]):
        scores[np.uint64(rows[k])] += share[np.uint64(rows[k])] * value


# --- splits ----------------------------------------------------------------------------------------------------------


class Bench(NamedTuple):
    """Buffers for one feature of one node."""

    sums: Ints
    order: Ints  # codes of values in the order in which they are cut
    g: Floats  # sums by changed code
    h: Floats
    both: Floats  # P(a code that the way to the node allows | changed code)
    share: Floats  # share that goes left, by changed code
    keys: Floats


@inline_kernel
def _make_bench() -> Bench:
    return Bench(
        np.empty(256, np.int64),
        np.empty(256, np.int64),
        np.empty(256),
        np.empty(256),
        np.empty(256),
        np.empty(256),
        np.empty(256),
    )


@kernel
def chance_of_allowed(n_codes: int, allowed: Bools, chance: Floats, both: Floats) -> None:
    """both[z] = P(a code that is allowed | changed code z)."""
    for z in range(n_codes):
        both[z] = 0.0
        for code in range(n_codes):
            if allowed[code]:
                both[z] += chance[z, code]


@kernel
def sort_levels(exact: bool, n_codes: int, n_present: int, chance: Floats, bench: Bench) -> None:
    """Put the levels in `order` into the order of gradient over hessian, each by its share of all rows."""
    order, keys = bench.order, bench.keys
    for p in range(n_present):
        g, h = bench.g[order[p]], bench.h[order[p]]
        if not exact:
            g, h = 0.0, 0.0
            for z in range(n_codes):
                if bench.both[z] > 0.0:
                    g += bench.g[z] * chance[z, order[p]] / bench.both[z]
                    h += bench.h[z] * chance[z, order[p]] / bench.both[z]
        keys[p] = g / (h + LEVEL_SMOOTHING)
    ranks = np.argsort(keys[:n_present], kind="mergesort")
    levels = order[:n_present].copy()
    for p in range(n_present):
        order[p] = levels[ranks[p]]


@inline_kernel
def gain_of_shares(n_codes: int, bench: Bench, g: float, h: float, l2: float, min_weight: float) -> float:
    """The gain of sending `share` left, or -1: g' (H + l2)^-1 g for the two leaves together, less the parent's."""
    a, b, share = bench.g, bench.h, bench.share
    g_left, weight, squares = 0.0, 0.0, 0.0
    for z in range(n_codes):
        g_left += share[z] * a[z]
        weight += share[z] * b[z]
        squares += share[z] * share[z] * b[z]
    if weight < min_weight or h - weight < min_weight:
        return -1.0
    g_right = g - g_left
    left = squares + l2
    right = h - 2.0 * weight + squares + l2  # sum of (1 - share)^2 h
    common = weight - squares  # sum of share (1 - share) h
    determinant = left * right - common * common
    if determinant <= 1e-12 * left * right:
        return -1.0
    both = (right * g_left * g_left + left * g_right * g_right - 2.0 * common * g_left * g_right) / determinant
    return both - g * g / (h + l2)


@kernel
def best_splits(
    features: Randomised,
    allowed_codes: Bools,  # in  [nodes, randomised, 256] codes that the way to the node allows
    allowed_features: Bools,  # in  [nodes, features]
    cells: Ints,  # in  [nodes, cells] sums of (share * g, share^2 * h)
    rules: SplitRules,
    layout: Layout,
    splits: LevelSplits,  # out
) -> None:
    """The best split of every node of a level."""
    bench = _make_bench()
    for node in range(cells.shape[0]):
        splits.gain[node] = 0.0
        splits.feature[node] = -1
        for feature in range(layout.n_value_bins.shape[0]):
            if not allowed_features[node, feature]:
                continue
            column = layout.column_of_feature[feature]
            sums = read_feature(
                cells[node],
                layout.first_cell[column],
                layout.n_value_bins[feature],
                layout.owns_column[feature],
                layout.bin_of_code[feature],
                layout.n_codes[column],
                bench.sums,
            )
            scan_feature(node, feature, sums, features, allowed_codes, rules, layout, bench, splits)


@kernel
def scan_feature(
    node: int,
    feature: int,
    sums: Ints,
    features: Randomised,
    allowed_codes: Bools,
    rules: SplitRules,
    layout: Layout,
    bench: Bench,
    splits: LevelSplits,
) -> None:
    """Every cut of one feature of one node; the best takes the place of the node's best so far if it gains more."""
    place, n_bins, n_codes = features.place[feature], layout.n_value_bins[feature], features.n_codes[feature]
    exact = place < 0
    if exact:
        n_codes = n_bins + 1
    n_present = 0
    for code in range(min(n_bins, n_codes)):
        if sums[code] != 0 if exact and layout.is_categorical[feature] else exact or allowed_codes[node, place, code]:
            bench.order[n_present] = code
            n_present += 1
    may_miss = sums[n_bins] != 0 if exact else n_codes > n_bins and allowed_codes[node, place, n_bins]
    if n_present + may_miss < 2:
        return
    chance = features.posterior[max(place, 0)]
    g, h = read_sums(sums, n_codes, rules, bench)
    if h + rules.l2 <= 0.0:
        return
    if not exact:
        chance_of_allowed(n_codes, allowed_codes[node, place], chance, bench.both)
    if layout.is_categorical[feature]:
        sort_levels(exact, n_codes, n_present, chance, bench)
    doubt = 0.0 if exact else features.doubt
    for missing_left in range(2 if may_miss else 1):
        n_cuts = n_present if may_miss and missing_left == 0 else n_present - 1
        if exact:
            gain, cut = best_exact_cut(n_cuts, n_bins, missing_left, bench, g, h, rules)
        else:
            gain, cut = best_soft_cut(n_cuts, n_codes, n_bins, missing_left, chance, bench, g, h, rules)
        if gain - doubt > splits.gain[node]:
            splits.gain[node] = gain - doubt
            splits.feature[node] = feature
            to_left = missing_left == 1 if may_miss else heavier_left(cut, exact, bench, chance, n_codes, h)
            write_split(node, n_present, cut, n_bins, to_left, layout.is_categorical[feature], bench, splits)


@inline_kernel
def read_sums(sums: Ints, n_codes: int, rules: SplitRules, bench: Bench) -> tuple[float, float]:
    """Sums by code as numbers, and over all codes."""
    g, h = 0.0, 0.0
    for z in range(n_codes):
        bench.g[z] = np.float64(gradient_of(sums[z])) * rules.gradient_unit
        bench.h[z] = np.float64(hessian_of(sums[z])) * rules.hessian_unit
        g += bench.g[z]
        h += bench.h[z]
    return g, h


@kernel
def best_exact_cut(
    n_cuts: int, n_bins: int, missing_left: int, bench: Bench, g: float, h: float, rules: SplitRules
) -> tuple[float, int]:
    """Gain and place of the best cut of an exact feature."""
    l2, least = rules.l2, rules.min_child_weight
    best, at = -1.0, -1
    parent = g * g / (h + l2)
    g_left = bench.g[n_bins] if missing_left else 0.0
    h_left = bench.h[n_bins] if missing_left else 0.0
    for cut in range(n_cuts):
        g_left += bench.g[bench.order[cut]]
        h_left += bench.h[bench.order[cut]]
        g_right, h_right = g - g_left, h - h_left
        if h_left < least or h_right < least or h_left + l2 <= 0.0 or h_right + l2 <= 0.0:
            continue
        gain = g_left * g_left / (h_left + l2) + g_right * g_right / (h_right + l2) - parent
        if gain > best:
            best, at = gain, cut
    return best, at


@kernel
def best_soft_cut(
    n_cuts: int,
    n_codes: int,
    n_bins: int,
    missing_left: int,
    chance: Floats,
    bench: Bench,
    g: float,
    h: float,
    rules: SplitRules,
) -> tuple[float, int]:
    """Gain and place of the best cut of a randomised feature."""
    best, at = -1.0, -1
    for z in range(n_codes):
        bench.share[z] = chance[z, n_bins] / bench.both[z] if missing_left and bench.both[z] > 0.0 else 0.0
    for cut in range(n_cuts):
        code = bench.order[cut]
        for z in range(n_codes):
            if bench.both[z] > 0.0:
                bench.share[z] += chance[z, code] / bench.both[z]
        gain = gain_of_shares(n_codes, bench, g, h, rules.l2, rules.min_child_weight)
        if gain > best:
            best, at = gain, cut
    return best, at


@kernel
def heavier_left(cut: int, exact: bool, bench: Bench, chance: Floats, n_codes: int, h: float) -> bool:
    """Where nobody is missing, later missing values go where most of the weight went."""
    weight = 0.0
    for p in range(cut + 1):
        code = bench.order[p]
        if exact:
            weight += bench.h[code]
        else:
            for z in range(n_codes):
                if bench.both[z] > 0.0:
                    weight += bench.h[z] * chance[z, code] / bench.both[z]
    return 2.0 * weight >= h


@kernel
def write_split(
    node: int,
    n_present: int,
    cut: int,
    n_bins: int,
    missing_left: bool,
    by_levels: bool,
    bench: Bench,
    splits: LevelSplits,
) -> None:
    """One decision per code; levels that cannot be there follow the missing values."""
    last = bench.order[cut]
    goes_left = splits.goes_left[node]
    splits.bin[node] = -1 if by_levels else last
    splits.missing_left[node] = missing_left
    for code in range(256):
        goes_left[code] = missing_left if by_levels else code <= last
    if by_levels:
        for p in range(n_present):
            goes_left[bench.order[p]] = p <= cut
    goes_left[n_bins] = missing_left
