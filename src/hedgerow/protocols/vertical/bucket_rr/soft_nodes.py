"""Loops over what one node holds: codes of a feature, rows by shares, leaves below. Kernels for those of debias.py.

What shares are, and what a split gains: debias.py. Its kernels go through the nodes of a level, or the walks of a
finished tree; those of this file do the work for one of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, RowIds, Scores, Words
from hedgerow.engine.growth import LevelSplits
from hedgerow.engine.histogram import CELLS_PER_WORD, GATHER_ROWS, Layout, add_word, clear_cells, gather_words
from hedgerow.engine.splitting import (
    LEVEL_SMOOTHING,
    SplitRules,
    gradient_of,
    hessian_of,
    sums_of_feature,
    write_goes_left,
)

ALIKE = 1e-12
"""Rounding: shares that differ by no more than this do not tell two leaves apart, nor is one side heavier."""

ROWS_PER_BLOCK = 256
"""Rows whose shares in all leaves are found together."""


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


class Codes(NamedTuple):
    """The changed codes in the shapes that the kernels want."""

    columns: Bytes  # [features, rows] not bundled
    records: Words  # [rows, words]


@kernel
def find_sure(surplus: Floats, other: float, prior: Floats, allowed: Bools, n_codes: int, sure: Floats) -> float:
    """sure[z] = P(the true code is z for certain | changed code z, true code allowed); returns the prior of allowed."""
    total = 0.0
    for code in range(n_codes):
        total += prior[code] if allowed[code] else 0.0
    for z in range(n_codes):
        sure[z] = surplus[z] / (surplus[z] + other * total) if allowed[z] else 0.0
    return total


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


# --- the best split of a node -----------------------------------------------------------------------------------------


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


# --- rows and shares of the children of a node ------------------------------------------------------------------------


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
            gather_words(codes.records, some, word, words)
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
            gather_words(codes.records, some, word, words)
            add_word(words[:n_rows], lefts[:n_rows], left_cells[tile], layout.columns_in_word[word])
            add_word(words[:n_rows], rights[:n_rows], right_cells[tile], layout.columns_in_word[word])


# --- leaves below a node ----------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """What the inner nodes of a tree ask, arrays over its nodes; and the rows that are asked."""

    feature: Int32s  # -1 for a leaf
    left: Int32s
    is_soft: Bools  # whether its feature is randomised
    to_left: Floats  # [nodes, 256] share that goes left, by changed code
    leaf: Ints  # number of a leaf, from left to right; for an inner node, of the first below it
    columns: Bytes  # [features, rows]
    ids: RowIds  # rows in the order of the walks


class Block(NamedTuple):
    """Buffers for some rows of a walk."""

    nodes: Ints  # [nodes below] the walk's nodes, parents first
    shares: Floats  # [leaves below, rows]
    weighted: Floats  # [rows] shares of one leaf times h
    g: Floats  # [rows]
    h: Floats


@inline_kernel
def make_block(n_nodes: int) -> Block:
    """For a tree of this many nodes."""
    shares = np.empty(((n_nodes + 1) // 2, ROWS_PER_BLOCK))
    weighted, g, h = np.empty(ROWS_PER_BLOCK), np.empty(ROWS_PER_BLOCK), np.empty(ROWS_PER_BLOCK)
    return Block(np.empty(n_nodes, np.int64), shares, weighted, g, h)


@kernel
def nodes_below(root: int, left_of: Int32s, nodes: Ints) -> tuple[int, int]:
    """All nodes from `root` on, parents first; how many they are, and how many of them are leaves."""
    n_nodes, n_leaves, k = 1, 0, 0
    nodes[0] = root
    while k < n_nodes:
        left = left_of[nodes[k]]
        if left >= 0:
            nodes[n_nodes], nodes[n_nodes + 1] = left, left + 1
            n_nodes += 2
        else:
            n_leaves += 1
        k += 1
    return n_nodes, n_leaves


@kernel
def find_shares(rows: RowIds, n_nodes: int, ask: Question, block: Block) -> None:
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
        column, to_left = ask.columns[ask.feature[node]], ask.to_left[node]
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
def add_shared_values(rows: RowIds, n_nodes: int, ask: Question, value: Scores, block: Block, scores: Scores) -> None:
    """The same for some rows of one walk."""
    find_shares(rows, n_nodes, ask, block)
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
