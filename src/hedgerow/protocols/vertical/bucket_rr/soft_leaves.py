"""Values of leaves that hold rows by shares, found together, and the scores that rows get: kernels of a finished tree.

What shares are, and the equations for the values: debias.py. Tiers: `debias._SoftGrower` cuts the rows into pieces ->
`sum_leaves` (what the equations are made of), `finish_nodes` (solves them), `add_scores` -> loops over some rows of a
walk, whose shares in all leaves below are found anew from the tree's questions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.dtypes import Bytes, Floats, Int32s, Ints, RowIds, Scores
from hedgerow.engine.splitting import SplitRules, gradient_of, hessian_of

ROWS_PER_BLOCK = 256
"""Rows whose shares in all leaves are found together."""


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

    def piece(self, first: int, last: int) -> Walks:
        """The same for rows first..last only, counted along the walks."""
        sizes = self.stop - self.start
        passed = np.cumsum(sizes) - sizes
        start, stop = (self.start + np.clip(limit - passed, 0, sizes) for limit in (first, last))
        some = start < stop
        return Walks(self.node[some], start[some], stop[some])


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
    walks: Walks,  # in  those of a piece of the rows
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
    for walk in range(walks.node.shape[0]):
        if not _is_soft(walks.node[walk], ask, place):
            continue
        start, stop = walks.start[walk], walks.stop[walk]
        n_nodes, n_leaves = nodes_below(walks.node[walk], ask, block.nodes)
        first_leaf = ask.leaf[walks.node[walk]]
        for at in range(start, stop, ROWS_PER_BLOCK):
            rows = ids[at : min(at + ROWS_PER_BLOCK, stop)]
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
    walks: Walks,  # in  those of a piece of the rows
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
    for walk in range(walks.node.shape[0]):
        root = walks.node[walk]
        rows = ids[walks.start[walk] : walks.stop[walk]]
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
