"""Which nodes hold which rows, and by what shares: kernels that take rows down from one level to the next.

What shares are: debias.py. Tiers: `debias._SoftGrower` decides which nodes split -> `plan_level` (what each split means
for changed codes, and where there is room), `divide_nodes` (rows, shares and histograms of the children) -> loops over
the rows of one node. What the codes of a row tell (`Randomised`) is here too, and read by soft_splits.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, RowIds, Scores, Words
from hedgerow.engine.histogram import GATHER_ROWS, add_word, clear_cells, gather_words
from hedgerow.engine.layout import CELLS_PER_WORD, Layout
from hedgerow.engine.splitting import gradient_of, hessian_of
from hedgerow.protocols.vertical.bucket_rr.soft_leaves import Walks

RAREST = 1e-4
"""A code counts as occurring at least this often, so that noise never rules out what may be."""

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
    records: Words  # [rows, words]


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
