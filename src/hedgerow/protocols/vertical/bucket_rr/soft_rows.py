"""The rows of a tree from shares, which nodes they are in and by how much: behind verbs, for they may be elsewhere.

    start_soft      all rows stand at the root, entirely                              (once a tree)
    divide          rows and shares of the children of the nodes that split           (each level)
    level_cells     sums of (share * g, share^2 * h) per (node, column, code)         (each level)
    leaf_sums       what values of leaves that hold shares are made of                (at the end of a tree)
    add_values      scores[row] += sum over leaves of share * value

Whoever chooses splits and values is in debias.py. Histograms are sums of whole numbers. Sums over leaves are sums of
floats, which depend on their order: they are made piece by piece, of at most `MOST_SUMS` ranges of row numbers, and
rows of a node always stand in the order of their numbers. So a piece's sums depend on the rows of that piece alone, and
not on threads, nor on which machine holds which pieces.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import kernel
from hedgerow.engine.binning import BinMapper, bin_counts
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, RowIds, Scores
from hedgerow.engine.histogram import Layout, PackedColumns, pack
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.rows import UPDATES_WORTH_A_THREAD, Rows
from hedgerow.engine.rows_ray.actors import Source
from hedgerow.engine.splitting import gradient_of, hessian_of
from hedgerow.engine.threads import Team
from hedgerow.protocols.vertical.bucket_rr import soft_nodes
from hedgerow.protocols.vertical.bucket_rr.soft_nodes import ROWS_PER_BLOCK, Codes, Question

ROWS_PER_SUM = 8_192
"""Rows whose shares are summed in one piece: sums of floats must not depend on the number of threads."""

MOST_SUMS = 16

WHOLE = -1
"""Instead of a place among the shares: a node that has its rows entirely."""

LeafSums = tuple[Floats, Floats, Floats]
"""Of every piece: overlap [pieces, leaves, leaves], g and h [pieces, leaves], as `sum_leaves` has them."""


def piece_bounds(n_rows: int) -> list[int]:
    """Where pieces begin, and where the last one ends."""
    n_sums = max(1, min(MOST_SUMS, n_rows // ROWS_PER_SUM))
    return [n_rows * k // n_sums for k in range(n_sums + 1)]


class Level(NamedTuple):
    """The nodes of one level."""

    start: Ints  # [nodes] their rows are ids[start:stop], in ascending order
    stop: Ints
    shares_at: Ints  # [nodes] their rows' shares are shares[shares_at : shares_at + stop - start], or WHOLE


class Families(NamedTuple):
    """The nodes of one level that split, with room to spare."""

    parent: Ints  # place in the level
    rows_at: Ints  # where the children's row numbers go; not used by randomised splits
    shares_at: Ints  # where their shares go


class Walks(NamedTuple):
    """Nodes that have their rows entirely, below which shares begin or the tree ends: every row is in one of them."""

    node: Ints
    start: Ints  # rows are ids[start:stop]
    stop: Ints


def _with_room(array: npt.NDArray[Any], size: int, *, filled: int = 0) -> npt.NDArray[Any]:
    """The array, or one of at least `size` places in which the first `filled` are the same."""
    if len(array) >= size:
        return array
    larger = np.empty(size, array.dtype)
    larger[:filled] = array[:filled]
    return larger


class _LevelRoom:
    """Room for the nodes of a level; there are two, for a level and the next. Unused memory is never touched."""

    def __init__(self, n_nodes: int, n_cells: int) -> None:
        self.level = Level(*np.empty((3, n_nodes), np.int64))
        self.cells: Ints = np.empty((n_nodes, n_cells), np.int64)  # sums of (share * g, share^2 * h)
        self.shares: Scores = np.empty(0, np.float32)


class SoftRows(Rows):
    """Rows that nodes hold shares of; keeps its buffers from tree to tree."""

    def __init__(
        self,
        packed: PackedColumns,
        codes: Bytes,
        labels: Floats,
        weight: Floats | None,
        loss: Loss,
        base_scores: Floats,
        quantiser: Quantiser,
        *,
        is_randomised: Bools,
        depth: int,
        bounds: Sequence[int],
        n_threads: int,
    ) -> None:
        """`is_randomised` [features]; `bounds` of the pieces, as from `piece_bounds`."""
        super().__init__(packed, labels, weight, loss, base_scores, quantiser, n_threads=n_threads)
        self._codes = Codes(np.ascontiguousarray(codes), packed.records)
        self._is_randomised = is_randomised
        self._bounds = np.array(bounds, np.int64)
        self._threads = Team(n_threads)
        widest = 2 ** (depth - 1)
        self._here, self._there = (_LevelRoom(widest, self.layout.n_cells) for _ in range(2))
        self._families = Families(*np.empty((3, widest), np.int64))
        self._walks = Walks(*np.empty((3, widest), np.int64))
        self._to_left = np.empty((2 * widest, 256))
        self._ids: RowIds = np.arange(self.n_rows, dtype=np.uint32)
        self._n_level = self._first_node = self._n_walks = self._rows_end = 0
        self._of = 0  # the output that the tree is for

    def set_scores(self, scores: Scores) -> None:
        """Stand as rows stood with these scores [outputs, rows]."""
        self.scores[:] = scores

    def count_only(self, counted: Bools) -> None:
        """The gradients of all other rows are 0, until there are new ones."""
        self.gradients_packed[:, ~counted] = 0

    def start_soft(self, output: int) -> None:
        """All rows stand at the root, entirely."""
        level, zero = self._here.level, np.zeros(1, np.int64)
        level.start[0], level.stop[0], level.shares_at[0] = 0, self.n_rows, WHOLE
        self._n_level, self._first_node, self._n_walks, self._rows_end = 1, 0, 0, self.n_rows
        self._of = output
        self.start_tree(output)
        self.histograms(zero, zero, self._here.cells)

    def level_cells(self) -> Ints:
        """The sums of every node of the level."""
        return self._here.cells[: self._n_level]

    def divide(self, feature: Ints, goes_left: Bytes, to_left: Floats, *, last: bool) -> None:
        """Move to the next level: node k splits on feature[k] (-1: not at all); with `last`, walks begin instead.

        By the code that a row has: `goes_left` [nodes, 256] of exact features, `to_left` [nodes, 256], the share that
        goes left, of all.
        """
        here, there, n_level, first_node = self._here, self._there, self._n_level, self._first_node
        level = Level(*[each[:n_level] for each in here.level])
        self._to_left[first_node : first_node + n_level] = to_left
        n_families, self._n_walks, new_end, n_shares = plan_rows(
            feature, self._is_randomised, level, last, first_node, self._rows_end, self._families, self._walks,
            self._n_walks,
        )  # fmt: skip
        if last:
            return
        self._ids = _with_room(self._ids, new_end, filled=self._rows_end)
        there.shares = _with_room(there.shares, n_shares)
        question = (self._families, feature, goes_left, first_node, self._to_left, self._is_randomised)
        held = (level, there.level, self._ids, here.shares, there.shares)
        sums = (self._codes, self.gradients_packed[self._of], here.cells[:n_level], there.cells, self.layout)
        work = (new_end - self._rows_end + n_shares) * self.layout.n_columns
        run_over(self._threads, divide_nodes, n_families, (*question, *held, *sums), work)
        self._here, self._there = there, here
        self._n_level, self._first_node, self._rows_end = 2 * n_families, first_node + n_level, new_end

    def leaf_sums(self, feature: Int32s, left: Int32s) -> LeafSums:
        """Of every piece, for a finished tree: overlap [pieces, leaves, leaves], g and h [pieces, leaves]."""
        ask, pieces = self._finished(feature, left)
        n_leaves, n_pieces = (len(feature) + 1) // 2, len(pieces)
        overlap, (g, h) = np.empty((n_pieces, n_leaves, n_leaves)), np.empty((2, n_pieces, n_leaves))
        packed = self.gradients_packed[self._of]
        tasks = [(piece, ask, packed, overlap[k], g[k], h[k]) for k, piece in enumerate(pieces)]
        self._threads.run(sum_leaves, tasks)
        return overlap, g, h

    def add_values(self, feature: Int32s, left: Int32s, value: Scores) -> None:
        """Add a finished tree to the scores, by shares."""
        ask, pieces = self._finished(feature, left)
        self._threads.run(add_scores, [(piece, ask, value, self.scores[self._of]) for piece in pieces])

    def _finished(self, feature: Int32s, left: Int32s) -> tuple[Question, list[Walks]]:
        """What the nodes of a finished tree ask, and the walks of every piece."""
        leaf = np.empty(len(feature), np.int64)
        number_leaves(left, leaf)
        is_soft = (feature >= 0) & self._is_randomised[feature]
        ask = Question(feature, left, is_soft, self._to_left, leaf, self._codes.columns, self._ids)
        walks = Walks(*[each[: self._n_walks] for each in self._walks])
        cuts = np.empty((len(self._bounds), self._n_walks), np.int64)
        cut_walks(walks, self._ids, self._bounds, cuts)
        return ask, [Walks(walks.node, start, stop) for start, stop in itertools.pairwise(cuts)]


@dataclass(frozen=True)
class SoftSetup:
    """Makes `SoftRows` of codes, here or in an actor."""

    mapper: BinMapper
    loss: Loss
    base_scores: Floats
    quantiser: Quantiser
    is_randomised: Bools
    depth: int
    bounds: tuple[int, ...]  # of the pieces, in numbers of rows of the whole table
    n_threads: int

    def load(self, source: Source, _state: None) -> SoftRows:
        """The rows of one block."""
        codes, labels, weight, pieces = source.read(self.mapper, self.n_threads)
        first = int(pieces[0, 1])
        own = [bound - first for bound in self.bounds if first <= bound <= first + len(labels)]
        return self.rows(codes, labels, weight, own, bundle=False)

    def rows(
        self, codes: Bytes, labels: Floats, weight: Floats | None, bounds: Sequence[int], *, bundle: bool
    ) -> SoftRows:
        """Rows of these codes, in these pieces; `bundle`: columns of few levels may share bytes."""
        packed = pack(codes, *bin_counts(self.mapper.features), bundle=bundle, n_threads=self.n_threads)
        how: dict[str, Any] = {"depth": self.depth, "bounds": bounds, "n_threads": self.n_threads}
        rules = (self.loss, self.base_scores, self.quantiser)
        return SoftRows(packed, codes, labels, weight, *rules, is_randomised=self.is_randomised.copy(), **how)


def run_over(team: Team, task: Callable[..., None], n_items: int, rest: tuple[Any, ...], updates: int) -> None:
    """task(first, last, ...) over all items: one by one on all threads where there is enough to do."""
    if team.n_threads == 1 or n_items == 1 or updates < UPDATES_WORTH_A_THREAD:
        task(0, n_items, *rest)
    else:
        team.run(task, [(item, item + 1, *rest) for item in range(n_items)])


# --- from one level to the next ---------------------------------------------------------------------------------------


@kernel
def plan_rows(
    feature: Ints,  # in  [nodes] that each splits on, -1 for none
    is_randomised: Bools,  # in  [features]
    level: Level,
    is_last: bool,
    first_node: int,  # in  number of the level's first node
    rows_at: int,  # in  where there is room for row numbers
    families: Families,  # out
    walks: Walks,  # out
    n_walks: int,
) -> tuple[int, int, int, int]:
    """Where there is room for the rows and shares of children; nodes where walks begin.

    Returns the number of families and of walks, and the ends of row numbers and of shares.
    """
    n_families, shares_at = 0, 0
    for node in range(feature.shape[0]):
        number, n_rows = first_node + node, level.stop[node] - level.start[node]
        whole = level.shares_at[node] == WHOLE
        splits = feature[node] >= 0
        is_soft = splits and is_randomised[feature[node]]
        if whole and (not splits or is_soft or is_last):
            walks.node[n_walks], walks.start[n_walks], walks.stop[n_walks] = number, level.start[node], level.stop[node]
            n_walks += 1
        if is_last or not splits:
            continue
        families.parent[n_families] = node
        families.rows_at[n_families], families.shares_at[n_families] = rows_at, shares_at
        if is_soft:
            shares_at += 2 * n_rows
        else:
            rows_at += n_rows
            shares_at += 0 if whole else n_rows
        n_families += 1
    return n_families, n_walks, rows_at, shares_at


@kernel
def divide_nodes(
    first: int,  # in  families first..last
    last: int,
    families: Families,
    feature: Ints,  # in  [nodes]
    goes_left: Bytes,
    first_node: int,
    to_left: Floats,
    is_randomised: Bools,
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
        if is_randomised[feature[node]]:
            children.start[left], children.stop[left], children.shares_at[left] = start, stop, shares_at
            children.start[right], children.stop[right], children.shares_at[right] = start, stop, shares_at + n_rows
            soft_nodes.share_out(
                column, ids[start:stop], to_left[first_node + node], mine,
                child_shares[shares_at : shares_at + n_rows], child_shares[shares_at + n_rows : shares_at + 2 * n_rows],
                codes, packed, child_cells[left], child_cells[right], layout,
            )  # fmt: skip
            continue
        rows_at = families.rows_at[family]
        rows = ids[rows_at : rows_at + n_rows]
        theirs = child_shares[shares_at : shares_at + mine.shape[0]]
        n_left = soft_nodes.part_rows(column, ids[start:stop], mine, goes_left[node], rows, theirs)
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
        soft_nodes.sum_rows(small_rows, small_shares, codes, packed, child_cells[small], layout)
        for k in range(layout.first_cell.shape[0]):
            for cell in range(layout.first_cell[k], layout.first_cell[k] + layout.n_codes[k]):
                child_cells[large, cell] = cells[node, cell] - child_cells[small, cell]


# --- values of leaves -------------------------------------------------------------------------------------------------


@kernel
def number_leaves(left: Int32s, leaf: Ints) -> None:
    """Leaves from left to right, so that those below a node are next to each other."""
    n_below = np.empty(left.shape[0], np.int64)
    for node in range(left.shape[0] - 1, -1, -1):
        n_below[node] = n_below[left[node]] + n_below[left[node] + 1] if left[node] >= 0 else 1
    leaf[0] = 0
    for node in range(left.shape[0]):
        if left[node] >= 0:
            leaf[left[node]] = leaf[node]
            leaf[left[node] + 1] = leaf[node] + n_below[left[node]]


@kernel
def cut_walks(walks: Walks, ids: RowIds, bounds: Ints, cuts: Ints) -> None:
    """Where the rows of each piece begin in each walk. Out: `cuts` [bounds, walks]."""
    for walk in range(walks.node.shape[0]):
        low = walks.start[walk]
        for k in range(bounds.shape[0]):
            high = walks.stop[walk]
            while low < high:
                middle = (low + high) // 2
                if np.int64(ids[middle]) < bounds[k]:
                    low = middle + 1
                else:
                    high = middle
            cuts[k, walk] = low


@kernel
def sum_leaves(
    walks: Walks,  # in  those of a piece of the rows
    ask: Question,
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
    block = soft_nodes.make_block(ask.leaf.shape[0])
    for walk in range(walks.node.shape[0]):
        start, stop = walks.start[walk], walks.stop[walk]
        if start == stop or not ask.is_soft[walks.node[walk]]:
            continue
        n_nodes, n_leaves = soft_nodes.nodes_below(walks.node[walk], ask.left, block.nodes)
        first_leaf = ask.leaf[walks.node[walk]]
        for at in range(start, stop, ROWS_PER_BLOCK):
            rows = ask.ids[at : min(at + ROWS_PER_BLOCK, stop)]
            n = rows.shape[0]
            soft_nodes.find_shares(rows, n_nodes, ask, block)
            for k in range(n):
                block.g[k] = np.float64(gradient_of(packed[np.uint64(rows[k])]))
                block.h[k] = np.float64(hessian_of(packed[np.uint64(rows[k])]))
            for one in range(n_leaves):
                shares = block.shares[one]
                g[first_leaf + one] += soft_nodes.dot(shares, block.g, n)
                h[first_leaf + one] += soft_nodes.dot(shares, block.h, n)
                for k in range(n):
                    block.weighted[k] = shares[k] * block.h[k]
                for other in range(one + 1):
                    overlap[first_leaf + one, first_leaf + other] += soft_nodes.dot(
                        block.weighted, block.shares[other], n
                    )


@kernel
def add_scores(
    walks: Walks,  # in  those of a piece of the rows
    ask: Question,
    value: Scores,  # in  [nodes]
    scores: Scores,  # in/out [rows]
) -> None:
    """scores[row] += sum over leaves of share * value."""
    block = soft_nodes.make_block(ask.leaf.shape[0])
    for walk in range(walks.node.shape[0]):
        root = walks.node[walk]
        rows = ask.ids[walks.start[walk] : walks.stop[walk]]
        if rows.shape[0] == 0:
            continue
        if ask.is_soft[root]:
            n_nodes, _ = soft_nodes.nodes_below(root, ask.left, block.nodes)
            for at in range(0, rows.shape[0], ROWS_PER_BLOCK):
                soft_nodes.add_shared_values(rows[at : at + ROWS_PER_BLOCK], n_nodes, ask, value, block, scores)
        elif ask.left[root] < 0:
            for k in range(rows.shape[0]):
                scores[np.uint64(rows[k])] += value[root]
        else:  # a split of an exact feature at the end of the tree
            column, to_left, left = ask.columns[ask.feature[root]], ask.to_left[root], ask.left[root]
            for k in range(rows.shape[0]):
                row = np.uint64(rows[k])
                scores[row] += value[left] if to_left[column[row]] == 1.0 else value[left + 1]
