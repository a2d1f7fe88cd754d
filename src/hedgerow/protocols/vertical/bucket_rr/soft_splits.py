"""The best split of every node, from sums per code over rows that are in it by shares: kernels of each level.

What shares are, and what a split gains: debias.py. Tiers: `debias._SoftGrower` decides which nodes -> `find_splits`
(each level) -> loops over the codes of one feature in one node. No rows are seen here: their shares depend on their
codes only. What codes tell, and how nodes hold rows: soft_rows.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.engine.layout import Layout
from hedgerow.engine.splitting import (
    LEVEL_SMOOTHING,
    LevelSplits,
    SplitRules,
    evaluate_families,
    gradient_of,
    hessian_of,
    sums_of_feature,
    write_goes_left,
)
from hedgerow.protocols.vertical.bucket_rr.soft_rows import Level, Randomised, find_sure

ALIKE = 1e-12
"""Rounding: shares that differ by no more than this do not tell two leaves apart, nor is one side heavier."""


class Bench(NamedTuple):
    """Buffers for one feature of one node, by code."""

    sums: Ints
    order: Ints  # codes of values in the order in which they are cut
    keys: Floats
    sure: Floats
    sure_g: Floats  # sums of g, and so on, times these factors
    sure_h: Floats
    sure_unsure_h: Floats
    sure_sure_h: Floats


class Sums(NamedTuple):
    """Over all codes of a feature in a node."""

    g: float
    h: float
    unsure_g: float
    unsure_h: float
    unsure_unsure_h: float
    prior: float  # of the codes that are allowed


@inline_kernel
def _make_bench() -> Bench:
    sums, order = np.empty(256, np.int64), np.empty(256, np.int64)
    keys, sure = np.empty(256), np.empty(256)
    return Bench(sums, order, keys, sure, np.empty(256), np.empty(256), np.empty(256), np.empty(256))


@kernel
def find_splits(
    first: int,  # in  nodes first..last
    last: int,
    features: Randomised,
    level: Level,
    exact_features: Bools,  # in  [nodes, features] or [1, features]: which exact features may be asked about
    soft_features: Bools,  # in  likewise for randomised ones
    cells: Ints,  # in  [nodes, cells] sums of (share * g, share^2 * h)
    rules: SplitRules,
    layout: Layout,
    splits: LevelSplits,  # out
) -> None:
    """The best split of some nodes: the engine's for exact features, unless a randomised one gains more."""
    bench = _make_bench()
    n_nodes = cells.shape[0]
    nodes, nobody = np.empty(n_nodes, np.int64), np.empty(n_nodes, np.int64)
    totals, no_bounds = np.empty(n_nodes, np.int64), np.empty(n_nodes, np.float64)
    for node in range(first, last):
        nodes[node], nobody[node] = node, -1
        totals[node] = 0  # any column's cells add up to it
        for cell in range(layout.first_cell[0], layout.first_cell[0] + layout.n_codes[0]):
            totals[node] += cells[node, cell]
    no_counts = np.empty((n_nodes, 0), np.int64)
    evaluate_families(
        first, last, nodes, nobody, nodes, cells, no_counts, totals, totals, exact_features, nodes[:0], no_bounds,
        no_bounds, rules, layout, splits,
    )  # fmt: skip
    for node in range(first, last):
        asked = soft_features[node if soft_features.shape[0] > 1 else 0]
        for feature in range(asked.shape[0]):
            if asked[feature]:
                scan_randomised(node, feature, features, level.allowed, cells[node], rules, layout, bench, splits)


@kernel
def scan_randomised(
    node: int,
    feature: int,
    features: Randomised,
    allowed_codes: Bools,
    cells: Ints,
    rules: SplitRules,
    layout: Layout,
    bench: Bench,
    splits: LevelSplits,
) -> None:
    """Every cut of one randomised feature; the best takes the place of the node's best so far if it gains more."""
    place, n_bins, n_codes = features.place[feature], layout.n_value_bins[feature], features.n_codes[feature]
    allowed, prior = allowed_codes[node, place], features.prior[place]
    n_present = 0
    for code in range(min(n_bins, n_codes)):
        if allowed[code]:
            bench.order[n_present] = code
            n_present += 1
    may_miss = n_codes > n_bins and allowed[n_bins]
    if n_present + may_miss < 2:
        return
    sums = sums_of_feature(cells, feature, layout, bench.sums)
    total = find_sure(features.surplus[place], features.other[place], prior, allowed, n_codes, bench.sure)
    all_codes = add_up(sums, n_codes, total, rules, bench)
    if all_codes.h + rules.l2 <= 0.0:
        return
    if layout.is_categorical[feature]:
        sort_levels(n_present, prior, all_codes, bench)
    for missing_left in range(2 if may_miss else 1):
        # All values against the missing ones is a cut too; all values against nothing is not.
        n_cuts = n_present if may_miss and missing_left == 0 else n_present - 1
        gain, cut, heavier_left = best_cut(n_cuts, n_bins, missing_left, prior, all_codes, rules, bench)
        gain -= features.doubt[place]
        if gain > splits.gain[node]:
            splits.gain[node] = gain
            splits.feature[node] = feature
            # Where nobody is missing, later missing values go where most of the weight went, or right.
            to_left = missing_left == 1 if may_miss else heavier_left and not rules.unseen_right
            by_levels = layout.is_categorical[feature]
            splits.bin[node] = cut if by_levels else bench.order[cut]
            splits.missing_left[node] = to_left
            splits.left_sum[node] = 0  # nobody asks: values are found when the tree is complete
            write_goes_left(node, n_bins, by_levels, bench.order[:n_present], splits)


@inline_kernel
def add_up(sums: Ints, n_codes: int, prior: float, rules: SplitRules, bench: Bench) -> Sums:
    """What the gain of every cut is made of, by code and over all codes."""
    g, h, unsure_g, unsure_h, unsure_unsure_h = 0.0, 0.0, 0.0, 0.0, 0.0
    for z in range(n_codes):
        g_z = np.float64(gradient_of(sums[z])) * rules.gradient_unit
        h_z = np.float64(hessian_of(sums[z])) * rules.hessian_unit
        sure = bench.sure[z]
        unsure = 1.0 - sure
        bench.sure_g[z] = sure * g_z
        bench.sure_h[z] = sure * h_z
        bench.sure_unsure_h[z] = sure * unsure * h_z
        bench.sure_sure_h[z] = sure * sure * h_z
        g += g_z
        h += h_z
        unsure_g += unsure * g_z
        unsure_h += unsure * h_z
        unsure_unsure_h += unsure * unsure * h_z
    return Sums(g, h, unsure_g, unsure_h, unsure_unsure_h, prior)


@kernel
def sort_levels(n_present: int, prior: Floats, sums: Sums, bench: Bench) -> None:
    """Put the levels in `order` into the order of gradient over hessian, each by its share of all rows."""
    order, keys = bench.order, bench.keys
    for p in range(n_present):
        level = order[p]
        part = prior[level] / sums.prior
        g = part * sums.unsure_g + bench.sure_g[level]
        h = part * sums.unsure_h + bench.sure_h[level]
        key = g / (h + LEVEL_SMOOTHING)
        at = p  # insertion: levels are few, and equal ones keep their order
        while at > 0 and keys[at - 1] > key:
            keys[at], order[at] = keys[at - 1], order[at - 1]
            at -= 1
        keys[at], order[at] = key, level


@kernel
def best_cut(
    n_cuts: int, n_bins: int, missing_left: int, prior: Floats, sums: Sums, rules: SplitRules, bench: Bench
) -> tuple[float, int, bool]:
    """Gain and place of the best cut, -1 if there is none, and whether more weight goes left there.

    A row with changed code z goes left by sure(z) [z is left] + (1 - sure(z)) part, where `part` of the prior is left;
    so sums of shares, and of their squares, over all codes follow from sums over the codes that are left.
    """
    best, at, heavier_left = -1.0, -1, False
    parent = sums.g * sums.g / (sums.h + rules.l2)
    prior_left, sure_g, sure_h, sure_unsure_h, sure_sure_h = 0.0, 0.0, 0.0, 0.0, 0.0
    for cut in range(-missing_left, n_cuts):
        code = bench.order[cut] if cut >= 0 else n_bins  # missing ones first, if they go left
        prior_left += prior[code]
        sure_g += bench.sure_g[code]
        sure_h += bench.sure_h[code]
        sure_unsure_h += bench.sure_unsure_h[code]
        sure_sure_h += bench.sure_sure_h[code]
        if cut < 0:
            continue
        part = prior_left / sums.prior
        weight = part * sums.unsure_h + sure_h
        if weight < rules.min_child_weight or sums.h - weight < rules.min_child_weight:
            continue
        g_left = part * sums.unsure_g + sure_g
        g_right = sums.g - g_left
        squares = part * part * sums.unsure_unsure_h + 2.0 * part * sure_unsure_h + sure_sure_h
        common = weight - squares  # sum of share (1 - share) h
        left = squares + rules.l2
        right = sums.h - weight - common + rules.l2  # sum of (1 - share)^2 h
        determinant = left * right - common * common
        if determinant <= ALIKE * left * right:
            continue
        both = (right * g_left * g_left + left * g_right * g_right - 2.0 * common * g_left * g_right) / determinant
        if both - parent > best:
            best, at = both - parent, cut
            heavier_left = 2.0 * weight >= sums.h * (1.0 - ALIKE)
    return best, at, heavier_left
