"""Kernels for trees whose nodes hold shares of rows; what shares are: debias.py.

Tiers: `debias._SoftGrower` decides which nodes -> `find_splits`, `plan_level`, `divide_nodes` (each level),
`sum_leaves`, `solve_leaves`, `add_scores` (each tree) -> loops over the rows or the codes of one node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, RowIds, Scores, Words
from hedgerow.engine.histogram import GATHER_ROWS, add_word, clear_cells
from hedgerow.engine.jit import inline_kernel, kernel
from hedgerow.engine.layout import CELLS_PER_WORD, Layout
from hedgerow.engine.splitting import (
    LEVEL_SMOOTHING,
    LevelSplits,
    SplitRules,
    evaluate_families,
    gradient_of,
    hessian_of,
    read_feature,
)

RAREST = 1e-4
"""A code counts as occurring at least this often, so that noise never rules out what may be."""

ALIKE = 1e-12
"""Rounding: shares that differ by no more than this do not tell two leaves apart, nor is one side heavier."""

ROWS_PER_BLOCK = 256
"""Rows whose shares in all leaves are found together."""

WHOLE = -1
"""Instead of a place among the shares: a node that has its rows entirely."""


class Randomised(NamedTuple):
    """How the features' codes were changed.

    Given the changed code z, the true code is z with a certain probability, `sure`, and else any one, z included, as
    often as it occurs: P(x | z) = sure(z) [x = z] + (1 - sure(z)) prior(x) with sure / (1 - sure) = surplus(z) / other.
    """

    place: Ints  # [features] place among the randomised ones; -1 for an exact feature
    n_codes: Ints  # [features] codes that occur, the one for missing values included where it may
    prior: Floats  # [randomised, 256] how often each true code occurs
    surplus: Floats  # [randomised, 256] (keep - other) * prior
    other: Floats  # [randomised] chance that a code becomes one certain other one
    doubt: Floats  # [randomised] what a split must gain more than one of an exact feature


class Level(NamedTuple):
    """The nodes of one level."""

    start: Ints  # [nodes] their rows are ids[start:stop]
    stop: Ints
    shares_at: Ints  # [nodes] their rows' shares are shares[shares_at : shares_at + stop - start], or WHOLE
    allowed: Bools  # [nodes, randomised, 256] true codes that the way to the node allows


class Families(NamedTuple):
    """The nodes of one level that split, with room to spare."""

    parent: Ints  # place in the level
    rows_at: Ints  # where the children's row numbers go; not used by randomised splits
    shares_at: Ints  # where their shares go


class Codes(NamedTuple):
    """The changed codes in the shapes that the kernels want."""

    columns: Bytes  # [features, rows] not bundled
    words: Words  # [words, rows]
    records: Words  # [rows, words]


class Question(NamedTuple):
    """What the inner nodes of a tree ask; arrays over its nodes."""

    feature: Int32s  # -1 for a leaf
    left: Int32s
    to_left: Floats  # [nodes, 256] share that goes left, by changed code
    leaf: Ints  # number of a leaf, from left to right; for an inner node, of the first below it


class Walks(NamedTuple):
    """Nodes that have their rows entirely, below which shares begin or the tree ends: every row is in one of them."""

    node: Ints
    start: Ints  # rows are ids[start:stop]
    stop: Ints


def prior_of(counts: Ints, keep: float) -> Floats:
    """How often each true code occurs, from how often each changed code does.

    P(changed z) = keep * prior(z) + other * (1 - prior(z)) is solved for the prior, other = (1 - keep) / (codes - 1).
    Where most codes were changed the solution is mostly error. So it is drawn towards equal frequencies by the part of
    its spread that error explains (James and Stein): all the way if error explains all of it.
    """
    n_codes, n_rows = len(counts), max(int(counts.sum()), 1)
    other, seen = (1.0 - keep) / (n_codes - 1), counts / n_rows
    away = (seen - other) / (keep - other) - 1.0 / n_codes
    error = float((seen * (1.0 - seen)).sum()) / n_rows / (keep - other) ** 2
    spread = float((away * away).sum())
    reliable = 1.0 - error / spread if spread > error else 0.0
    prior: Floats = np.maximum(1.0 / n_codes + reliable * away, RAREST)
    prior /= prior.sum()
    return prior


@kernel
def find_sure(surplus: Floats, other: float, prior: Floats, allowed: Bools, n_codes: int, sure: Floats) -> float:
    """sure[z] = P(the true code is z for certain | changed code z, true code allowed); returns the prior of allowed."""
    total = 0.0
    for code in range(n_codes):
        total += prior[code] if allowed[code] else 0.0
    for z in range(n_codes):
        sure[z] = surplus[z] / (surplus[z] + other * total) if allowed[z] else 0.0
    return total


# --- splits ----------------------------------------------------------------------------------------------------------


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
    return Bench(
        np.empty(256, np.int64),
        np.empty(256, np.int64),
        np.empty(256),
        np.empty(256),
        np.empty(256),
        np.empty(256),
        np.empty(256),
        np.empty(256),
    )


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
    evaluate_families(
        first,
        last,
        nodes,
        nobody,
        nodes,
        cells,
        np.empty((n_nodes, 0), np.int64),
        totals,
        totals,
        exact_features,
        nodes[:0],
        no_bounds,
        no_bounds,
        rules,
        layout,
        splits,
    )
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
    column = layout.column_of_feature[feature]
    sums = read_feature(
        cells,
        layout.first_cell[column],
        n_bins,
        layout.owns_column[feature],
        layout.bin_of_code[feature],
        layout.n_codes[column],
        bench.sums,
    )
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
            # Where nobody is missing, later missing values go where most of the weight went.
            to_left = missing_left == 1 if may_miss else heavier_left
            write_split(node, n_present, cut, n_bins, to_left, layout.is_categorical[feature], bench, splits)


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
    splits.left_sum[node] = 0  # nobody asks: values are found when the tree is complete
    for code in range(256):
        goes_left[code] = missing_left if by_levels else code <= last
    if by_levels:
        for p in range(n_present):
            goes_left[bench.order[p]] = p <= cut
    goes_left[n_bins] = missing_left


# --- rows ------------------------------------------------------------------------------------------------------------


@kernel
def plan_level(
    feature: Ints,  # in  [nodes] that each splits on, -1 for none
    goes_left: Bytes,  # in  [nodes, 256] by true code
    features: Randomised,
    level: Level,
    is_last: bool,
    first_node: int,  # in  number of the level's first node
    rows_at: int,  # in  where there is room for row numbers
    to_left: Floats,  # out [all nodes, 256] by changed code
    families: Families,  # out
    children: Level,  # out `allowed` only
    walks: Walks,  # out
    n_walks: int,
) -> tuple[int, int, int, int]:
    """Which children arise, and where there is room for their rows and shares; nodes where walks begin.

    Returns the number of families and of walks, and the ends of row numbers and of shares.
    """
    n_families, shares_at = 0, 0
    for node in range(feature.shape[0]):
        number, n_rows = first_node + node, level.stop[node] - level.start[node]
        whole = level.shares_at[node] == WHOLE
        place = features.place[feature[node]] if feature[node] >= 0 else -1
        if whole and (feature[node] < 0 or place >= 0 or is_last):
            walks.node[n_walks], walks.start[n_walks], walks.stop[n_walks] = number, level.start[node], level.stop[node]
            n_walks += 1
        if feature[node] < 0:
            continue
        if place < 0:
            for code in range(256):
                to_left[number, code] = goes_left[node, code]
        else:
            share_of_code(features, place, feature[node], level.allowed[node, place], goes_left[node], to_left[number])
        if is_last:
            continue
        families.parent[n_families] = node
        families.rows_at[n_families], families.shares_at[n_families] = rows_at, shares_at
        if place < 0:
            rows_at += n_rows
            shares_at += 0 if whole else n_rows
        else:
            shares_at += 2 * n_rows
        for side in range(2):
            allowed = children.allowed[2 * n_families + side]
            for soft in range(allowed.shape[0]):
                for code in range(256):
                    on_this_side = soft != place or goes_left[node, code] == 1 - side
                    allowed[soft, code] = level.allowed[node, soft, code] and on_this_side
        n_families += 1
    return n_families, n_walks, rows_at, shares_at


@kernel
def share_of_code(
    features: Randomised, place: int, feature: int, allowed: Bools, goes_left: Bytes, to_left: Floats
) -> None:
    """to_left[z] = P(the true code goes left | changed code z, true code allowed)."""
    n_codes, prior = features.n_codes[feature], features.prior[place]
    total = find_sure(features.surplus[place], features.other[place], prior, allowed, n_codes, to_left)
    left = 0.0
    for code in range(n_codes):
        left += prior[code] if allowed[code] and goes_left[code] else 0.0
    for z in range(n_codes):
        sure = to_left[z]
        to_left[z] = sure * goes_left[z] + (1.0 - sure) * (left / total)


@kernel
def divide_nodes(
    first: int,  # in  families first..last
    last: int,
    families: Families,
    feature: Ints,  # in  [nodes]
    goes_left: Bytes,
    first_node: int,
    to_left: Floats,
    place: Ints,
    level: Level,
    children: Level,  # out rows and shares
    ids: RowIds,  # in/out
    shares: Scores,  # in
    child_shares: Scores,  # out
    codes: Codes,
    packed: Ints,  # in  [rows] packed (g, h)
    cells: Ints,  # in  [nodes, cells]
    child_cells: Ints,  # out
    layout: Layout,
) -> None:
    """Rows and shares of children, and their histograms."""
    for family in range(first, last):
        node = families.parent[family]
        start, stop, at = level.start[node], level.stop[node], level.shares_at[node]
        n_rows = stop - start
        shares_at = families.shares_at[family]
        mine = shares[at : at + n_rows] if at != WHOLE else shares[:0]
        column, left, right = codes.columns[feature[node]], 2 * family, 2 * family + 1
        if place[feature[node]] >= 0:
            children.start[left], children.stop[left], children.shares_at[left] = start, stop, shares_at
            children.start[right], children.stop[right], children.shares_at[right] = start, stop, shares_at + n_rows
            share_out(
                column, ids[start:stop], to_left[first_node + node], mine,
                child_shares[shares_at : shares_at + n_rows], child_shares[shares_at + n_rows : shares_at + 2 * n_rows],
                codes, packed, child_cells[left], child_cells[right], layout,
            )  # fmt: skip
            continue
        rows_at = families.rows_at[family]
        rows = ids[rows_at : rows_at + n_rows]
        theirs = child_shares[shares_at : shares_at + mine.shape[0]]
        n_left = part_rows(column, ids[start:stop], mine, goes_left[node], rows, theirs)
        middle = rows_at + n_left
        children.start[left], children.stop[left] = rows_at, middle
        children.start[right], children.stop[right] = middle, rows_at + n_rows
        children.shares_at[left] = shares_at if at != WHOLE else WHOLE
        children.shares_at[right] = shares_at + n_left if at != WHOLE else WHOLE
        n_left_shares = n_left if at != WHOLE else 0
        if 2 * n_left <= n_rows:  # the smaller child is summed
            small, large, small_rows, small_shares = left, right, rows[:n_left], theirs[:n_left_shares]
        else:
            small, large, small_rows, small_shares = right, left, rows[n_left:], theirs[n_left_shares:]
        sum_rows(small_rows, small_shares, codes, packed, child_cells[small], layout)
        for k in range(layout.first_cell.shape[0]):
            for cell in range(layout.first_cell[k], layout.first_cell[k] + layout.n_codes[k]):
                child_cells[large, cell] = cells[node, cell] - child_cells[small, cell]


@kernel
def part_rows(column: Bytes, rows: RowIds, share: Scores, goes_left: Bytes, out: RowIds, out_share: Scores) -> int:
    """Rows of a node, and their shares if it has not all of them, by side: left ones first; returns their number."""
    n_left = np.uint64(0)
    for k in range(rows.shape[0]):
        n_left += np.uint64(goes_left[column[np.uint64(rows[k])]])
    to = np.zeros(2, np.uint64)
    to[0] = n_left
    for k in range(rows.shape[0]):
        row = rows[k]
        side = np.uint64(goes_left[column[np.uint64(row)]])
        at = to[side]
        to[side] = at + np.uint64(1)
        out[at] = row
        if share.shape[0] > 0:
            out_share[at] = share[k]
    return int(n_left)


@inline_kernel
def shared_value(share: float, packed: np.int64) -> np.int64:
    """(share * g, share^2 * h), each rounded."""
    g = np.int64(np.floor(share * np.float64(gradient_of(packed)) + 0.5))
    h = np.int64(share * share * np.float64(hessian_of(packed)) + 0.5)
    return (g << np.int64(32)) + h


@inline_kernel
def _gather(records: Words, rows: RowIds, word: int, out: Words) -> None:
    flat = records.reshape(-1)[word:]
    step = np.uint64(records.shape[1])
    for k in range(rows.shape[0]):
        out[k] = flat[np.uint64(rows[k]) * step]


@kernel
def sum_rows(rows: RowIds, share: Scores, codes: Codes, packed: Ints, cells: Ints, layout: Layout) -> None:
    """A node's histogram; no shares mean whole rows."""
    words, values = np.empty(GATHER_ROWS, np.uint64), np.empty(GATHER_ROWS, np.int64)
    clear_cells(cells, layout.first_cell, layout.n_codes)
    for begin in range(0, rows.shape[0], GATHER_ROWS):
        some = rows[begin : begin + GATHER_ROWS]
        n_rows = some.shape[0]
        if share.shape[0] > 0:
            for k in range(n_rows):
                values[k] = shared_value(np.float64(share[begin + k]), packed[np.uint64(some[k])])
        else:
            for k in range(n_rows):
                values[k] = packed[np.uint64(some[k])]
        for word in range(layout.columns_in_word.shape[0]):
            _gather(codes.records, some, word, words)
            tile = cells[word * CELLS_PER_WORD : (word + 1) * CELLS_PER_WORD]
            add_word(words[:n_rows], values[:n_rows], tile, layout.columns_in_word[word])


@kernel
def share_out(
    column: Bytes,  # in  [all rows] changed codes of the feature that splits
    rows: RowIds,  # in  rows of the node
    to_left: Floats,  # in  [256]
    share: Scores,  # in  [rows of the node] its shares, or none for whole rows
    left_share: Scores,  # out likewise
    right_share: Scores,
    codes: Codes,
    packed: Ints,
    left_cells: Ints,  # out
    right_cells: Ints,
    layout: Layout,
) -> None:
    """Shares and histograms of both children of a randomised split, which have the same rows."""
    words = np.empty(GATHER_ROWS, np.uint64)
    lefts, rights = np.empty(GATHER_ROWS, np.int64), np.empty(GATHER_ROWS, np.int64)
    clear_cells(left_cells, layout.first_cell, layout.n_codes)
    clear_cells(right_cells, layout.first_cell, layout.n_codes)
    for begin in range(0, rows.shape[0], GATHER_ROWS):
        some = rows[begin : begin + GATHER_ROWS]
        n_rows = some.shape[0]
        for k in range(n_rows):
            row = np.uint64(some[k])
            whole = share[begin + k] if share.shape[0] > 0 else np.float32(1.0)
            left = np.float32(whole * to_left[column[row]])
            right = whole - left
            left_share[begin + k] = left
            right_share[begin + k] = right
            lefts[k] = shared_value(np.float64(left), packed[row])
            rights[k] = shared_value(np.float64(right), packed[row])
        for word in range(layout.columns_in_word.shape[0]):
            tile = slice(word * CELLS_PER_WORD, (word + 1) * CELLS_PER_WORD)
            _gather(codes.records, some, word, words)
            add_word(words[:n_rows], lefts[:n_rows], left_cells[tile], layout.columns_in_word[word])
            add_word(words[:n_rows], rights[:n_rows], right_cells[tile], layout.columns_in_word[word])


# --- leaves ----------------------------------------------------------------------------------------------------------


@kernel
def number_leaves(left: Int32s, leaf: Ints) -> int:
    """Leaves from left to right, so that those below a node are next to each other; returns how many there are."""
    n_below = np.empty(left.shape[0], np.int64)
    for node in range(left.shape[0] - 1, -1, -1):
        n_below[node] = n_below[left[node]] + n_below[left[node] + 1] if left[node] >= 0 else 1
    leaf[0] = 0
    for node in range(left.shape[0]):
        if left[node] >= 0:
            leaf[left[node]] = leaf[node]
            leaf[left[node] + 1] = leaf[node] + n_below[left[node]]
    return int(n_below[0])


class Block(NamedTuple):
    """Buffers for some rows of a walk."""

    nodes: Ints  # [nodes below] the walk's nodes, parents first
    shares: Floats  # [leaves below, rows]
    weighted: Floats  # [rows] shares of one leaf times h
    g: Floats  # [rows]
    h: Floats


@inline_kernel
def _make_block(n_nodes: int, n_leaves: int) -> Block:
    return Block(
        np.empty(n_nodes, np.int64),
        np.empty((n_leaves, ROWS_PER_BLOCK)),
        np.empty(ROWS_PER_BLOCK),
        np.empty(ROWS_PER_BLOCK),
        np.empty(ROWS_PER_BLOCK),
    )


@kernel
def nodes_below(root: int, ask: Question, nodes: Ints) -> tuple[int, int]:
    """All nodes from `root` on, parents first; how many they are, and how many of them are leaves."""
    n_nodes, n_leaves, k = 1, 0, 0
    nodes[0] = root
    while k < n_nodes:
        left = ask.left[nodes[k]]
        if left >= 0:
            nodes[n_nodes], nodes[n_nodes + 1] = left, left + 1
            n_nodes += 2
        else:
            n_leaves += 1
        k += 1
    return n_nodes, n_leaves


@kernel
def find_shares(rows: RowIds, n_nodes: int, ask: Question, columns: Bytes, block: Block) -> None:
    """Shares of some rows in the leaves below a node.

    The shares in an inner node stand where those in its leftmost leaf will be, so that none are moved.
    """
    first = ask.leaf[block.nodes[0]]
    for k in range(rows.shape[0]):
        block.shares[0, k] = 1.0
    for n in range(n_nodes):
        node = block.nodes[n]
        if ask.left[node] < 0:
            continue
        column, to_left = columns[ask.feature[node]], ask.to_left[node]
        left = block.shares[ask.leaf[node] - first]
        right = block.shares[ask.leaf[ask.left[node] + 1] - first]
        for k in range(rows.shape[0]):
            part = to_left[column[np.uint64(rows[k])]]
            right[k] = left[k] * (1.0 - part)
            left[k] *= part


@kernel
def dot(one: Floats, other: Floats, n: int) -> float:
    """Eight sums in turn, because they are added side by side then, and none waits for the last addition."""
    a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    whole = n - n % 8
    for k in range(0, whole, 8):
        a += one[k] * other[k]
        b += one[k + 1] * other[k + 1]
        c += one[k + 2] * other[k + 2]
        d += one[k + 3] * other[k + 3]
        e += one[k + 4] * other[k + 4]
        f += one[k + 5] * other[k + 5]
        g += one[k + 6] * other[k + 6]
        h += one[k + 7] * other[k + 7]
    for k in range(whole, n):
        a += one[k] * other[k]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@inline_kernel
def _is_soft(node: int, ask: Question, place: Ints) -> bool:
    return bool(ask.feature[node] >= 0 and place[ask.feature[node]] >= 0)


@kernel
def sum_leaves(
    first: int,  # in  rows first..last, counted along the walks
    last: int,
    walks: Walks,
    ask: Question,
    place: Ints,
    columns: Bytes,
    ids: RowIds,
    packed: Ints,
    overlap: Floats,  # out [leaves, leaves] sums of share * share * h, in whole units, up to the diagonal
    g: Floats,  # out [leaves] sums of share * g
    h: Floats,  # out [leaves] sums of share * h
) -> None:
    """What the values of leaves that hold shares are made of."""
    for one in range(g.shape[0]):
        g[one], h[one] = 0.0, 0.0
        for other in range(one + 1):
            overlap[one, other] = 0.0
    block = _make_block(ask.leaf.shape[0], g.shape[0])
    passed = 0
    for walk in range(walks.node.shape[0]):
        start, n_rows = walks.start[walk], walks.stop[walk] - walks.start[walk]
        begin, end = max(first - passed, 0), min(last - passed, n_rows)
        passed += n_rows
        if begin >= end or not _is_soft(walks.node[walk], ask, place):
            continue
        n_nodes, n_leaves = nodes_below(walks.node[walk], ask, block.nodes)
        first_leaf = ask.leaf[walks.node[walk]]
        for at in range(start + begin, start + end, ROWS_PER_BLOCK):
            rows = ids[at : min(at + ROWS_PER_BLOCK, start + end)]
            n = rows.shape[0]
            find_shares(rows, n_nodes, ask, columns, block)
            for k in range(n):
                block.g[k] = np.float64(gradient_of(packed[np.uint64(rows[k])]))
                block.h[k] = np.float64(hessian_of(packed[np.uint64(rows[k])]))
            for one in range(n_leaves):
                shares = block.shares[one]
                g[first_leaf + one] += dot(shares, block.g, n)
                h[first_leaf + one] += dot(shares, block.h, n)
                for k in range(n):
                    block.weighted[k] = shares[k] * block.h[k]
                for other in range(one + 1):
                    overlap[first_leaf + one, first_leaf + other] += dot(block.weighted, block.shares[other], n)


@kernel
def solve_leaves(matrix: Floats, values: Floats, n: int, l2: float) -> None:
    """Solve (matrix + l2) x = values in place for the first n; the matrix is symmetric, its lower half is overwritten.

    Plain elimination. Without l2 a trace of the diagonal stands in for it, because shares may tell leaves apart too
    little; an empty leaf has the value 0.
    """
    for k in range(n):
        matrix[k, k] += l2 if l2 > 0.0 else 1e-9 * matrix[k, k]
    for k in range(n - 1, -1, -1):  # from the last one up: what is left of the lower half stays a lower half
        pivot = matrix[k, k]
        if pivot <= 0.0:
            continue
        for row in range(k):
            factor = matrix[k, row] / pivot
            for column in range(row + 1):
                matrix[row, column] -= factor * matrix[k, column]
            values[row] -= factor * values[k]
    for k in range(n):
        for column in range(k):
            values[k] -= matrix[k, column] * values[column]
        values[k] = values[k] / matrix[k, k] if matrix[k, k] > 0.0 else 0.0


@kernel
def finish_nodes(
    walks: Walks,
    ask: Question,
    place: Ints,
    overlap: Floats,  # in  [pieces, leaves, leaves] what `sum_leaves` found, piece by piece; overwritten
    g: Floats,  # in  [pieces, leaves]
    h: Floats,
    rules: SplitRules,
    learning_rate: float,
    value: Scores,  # out [nodes] where they hold shares; others have their value already
    cover: Floats,  # out
) -> None:
    """Values and covers of nodes that hold shares; inner ones have the sums of their children, and the value alone."""
    n_all = g.shape[1]
    for piece in range(1, g.shape[0]):
        for one in range(n_all):
            g[0, one] += g[piece, one]
            h[0, one] += h[piece, one]
            for other in range(one + 1):
                overlap[0, one, other] += overlap[piece, one, other]
    nodes, total_g = np.empty(value.shape[0], np.int64), np.empty(value.shape[0])
    matrix, values = np.empty((n_all, n_all)), np.empty(n_all)
    for walk in range(walks.node.shape[0]):
        root = walks.node[walk]
        if not _is_soft(root, ask, place):
            continue
        n_nodes, n_leaves = nodes_below(root, ask, nodes)
        first = ask.leaf[root]
        for one in range(n_leaves):
            values[one] = -g[0, first + one] * rules.gradient_unit
            for other in range(one + 1):
                matrix[one, other] = overlap[0, first + one, first + other] * rules.hessian_unit
        solve_leaves(matrix, values, n_leaves, rules.l2)
        for n in range(n_nodes - 1, 0, -1):
            node = nodes[n]
            left, leaf = ask.left[node], ask.leaf[node]
            if left < 0:
                total_g[node], cover[node] = g[0, leaf] * rules.gradient_unit, h[0, leaf] * rules.hessian_unit
                value[node] = np.float32(values[leaf - first] * learning_rate)
                continue
            total_g[node], cover[node] = total_g[left] + total_g[left + 1], cover[left] + cover[left + 1]
            weight = cover[node] + rules.l2
            value[node] = np.float32(-total_g[node] / weight * learning_rate) if weight > 0.0 else np.float32(0.0)


@kernel
def add_scores(
    first: int,  # in  rows first..last, counted along the walks
    last: int,
    walks: Walks,
    ask: Question,
    place: Ints,
    columns: Bytes,
    ids: RowIds,
    n_leaves: int,
    value: Scores,  # in  [nodes]
    scores: Scores,  # in/out [rows]
) -> None:
    """scores[row] += sum over leaves of share * value."""
    block = _make_block(ask.leaf.shape[0], n_leaves)
    passed = 0
    for walk in range(walks.node.shape[0]):
        root, start, n_rows = walks.node[walk], walks.start[walk], walks.stop[walk] - walks.start[walk]
        begin, end = max(first - passed, 0), min(last - passed, n_rows)
        passed += n_rows
        if begin >= end:
            continue
        rows = ids[start + begin : start + end]
        if _is_soft(root, ask, place):
            n_nodes, _ = nodes_below(root, ask, block.nodes)
            for at in range(0, rows.shape[0], ROWS_PER_BLOCK):
                add_shared_values(rows[at : at + ROWS_PER_BLOCK], n_nodes, ask, columns, value, block, scores)
        elif ask.left[root] < 0:
            for k in range(rows.shape[0]):
                scores[np.uint64(rows[k])] += value[root]
        else:  # a split of an exact feature at the end of the tree
            column, to_left, left = columns[ask.feature[root]], ask.to_left[root], ask.left[root]
            for k in range(rows.shape[0]):
                row = np.uint64(rows[k])
                scores[row] += value[left] if to_left[column[row]] == 1.0 else value[left + 1]


@kernel
def add_shared_values(
    rows: RowIds, n_nodes: int, ask: Question, columns: Bytes, value: Scores, block: Block, scores: Scores
) -> None:
    """The same for some rows of one walk."""
    find_shares(rows, n_nodes, ask, columns, block)
    n, total = rows.shape[0], block.weighted
    for k in range(n):
        total[k] = 0.0
    for m in range(n_nodes):
        node = block.nodes[m]
        if ask.left[node] < 0:
            shares = block.shares[ask.leaf[node] - ask.leaf[block.nodes[0]]]
            for k in range(n):
                total[k] += shares[k] * np.float64(value[node])
    for k in range(n):
        scores[np.uint64(rows[k])] += np.float32(total[k])
