"""Trees from randomised buckets, made for rows whose buckets are true.

The label holder trains on codes z that randomised response has changed, but scores rows by their true codes x. Trained
as if z were x, a tree asks the right questions and gives answers that are far too timid: at epsilon 1 and 16 buckets a
code is the true one with probability 0.15, so what tells a bucket from the others is diluted ten times.

Nobody knows x, but P(x | z) is known: how codes are changed is public, and how often each code occurs follows from how
often it occurs among the changed ones. So a row does not go left or right at a split of a randomised column. It goes
left by a share, and the tree's score for it is the mean over the leaves that it may be in:

    share of a row in a node    w = product over randomised columns on the way of P(x in the allowed codes | z)
    score of a row              F(z) = sum over leaves of w * value,     while F(x) = value of one leaf, for true codes

Leaf values v are the Newton step for the loss at F(z), all leaves together, because rows are in several of them:

    (W' diag(h) W + l2) v = -W' g,      W [rows, leaves] the shares

and the gain of a split is the same thing for two leaves: with g_L, g_R = sums of w_L g, w_R g and the 2 x 2 matrix of
sums of w_L^2 h, w_L w_R h, w_R^2 h. For columns that are exact, shares are 0 and 1, the matrix is diagonal, and all of
this is plain boosting. Shares of a row depend on its changed code only, so gains need no more than sums per code.

Two things are taken as true that are so only nearly. Columns are independent of each other, so that P(x | z) needs one
column at a time. And the loss at the mean score stands for the mean of the loss, which is exact for no loss but is good
where a tree adds little; what shares leave open of a row counts as noise in its label.

A split of a randomised column is scored by what little the changed codes show of it and then used in full on true ones;
a wrong one does more harm than its gain can tell. So it must gain up to `DOUBT` more than another, the more the less
the codes show.

The formula G_k = (noisy G_k - p' G) / (p - p') for the split alone, with rows sent left and right by changed codes,
was tried too, and is hardly better than nothing: docs/results/federboost.md has the figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import kernel
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, RowIds, Scores
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.growth import FeatureDraw, FlatEdges, LevelSplits, TreeBuilder, split_rules
from hedgerow.engine.histogram import Layout
from hedgerow.engine.losses import BoostingParams, Quantiser
from hedgerow.engine.rows import UPDATES_WORTH_A_THREAD, Rows
from hedgerow.engine.splitting import SplitRules, evaluate_families, gradient_of, hessian_of
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.bucket_rr import soft_nodes
from hedgerow.protocols.vertical.bucket_rr.soft_nodes import ROWS_PER_BLOCK, Bench, Codes, Question, Randomised

DOUBT = 3.0
"""What a split of a randomised column must gain before it counts, where codes tell next to nothing: a question that
tells nothing gains about 1. It vanishes as codes become exact: it is multiplied by 1 - (keep - other), `other` the
chance that a code becomes one certain other one."""

NO_CONSTRAINTS = np.empty(0, np.int64)

DEEPEST = 8
"""Levels at most: a row may be in every leaf of a tree, and leaf values are found from all pairs of leaves."""

ROWS_PER_SUM = 8_192
"""Rows whose shares are summed in one piece: sums of floats must not depend on the number of threads."""

MOST_SUMS = 16

RAREST = 1e-4
"""A code counts as occurring at least this often, so that noise never rules out what may be."""

WHOLE = -1
"""Instead of a place among the shares: a node that has its rows entirely."""


def check_debiased(params: BoostingParams, name: str) -> None:
    """InvalidParameter for what trees from shares do not know."""
    if params.max_depth is None or params.max_depth > DEEPEST:
        raise InvalidParameter(f"{name}: debias=True needs max_depth from 1 to {DEEPEST}, got {params.max_depth}")
    if params.subsample < 1:
        raise InvalidParameter(f"{name}: subsample goes with debias=False only, got {params.subsample}")
    if params.min_samples_leaf > 1:
        raise InvalidParameter(
            f"{name}: min_samples_leaf goes with debias=False only, got {params.min_samples_leaf}; nobody knows which "
            "rows are in a leaf, use min_child_weight"
        )


def train_debiased(
    params: BoostingParams,
    mapper: BinMapper,
    codes: Bytes,
    y: Floats,
    *,
    keep: Floats,
    n_codes: Ints,
    on_trees: Callable[[Ensemble, Scores], None] | None = None,
    n_threads: int = 1,
    init: Sequence[Tree] = (),
    scores: Scores | None = None,
) -> Ensemble:
    """Train on `codes` [features, rows], of which feature f kept its true code with probability keep[f].

    A code that was not kept is any other of the n_codes[f] with equal probability. keep = 1 for exact features. What
    `on_trees` gets after each iteration are `init` and `scores` of a training that goes on from there.
    """
    check_debiased(params, "training")
    loss = params.loss_for(y)
    bases = params.base_scores(loss, y)
    ensemble = Ensemble(mapper, loss.name, bases, trees=init)
    quantiser = Quantiser.for_job(loss, float(len(y)), n_rows=len(y), gradient_bits=params.gradient_bits)
    how: dict[str, Any] = {"quantiser": quantiser, "n_threads": n_threads, "scores": scores}
    rows = Rows.from_codes(mapper, codes, y, None, loss=loss, base_scores=bases, **how)
    rules = split_rules(params, loss, quantiser, weighted=False)
    features = randomised_features(codes, np.asarray(keep, np.float64), np.asarray(n_codes, np.int64))
    grower = _SoftGrower(params, mapper, codes, rows, rules, features, n_threads)
    for iteration in range(ensemble.n_iterations, params.n_iterations):
        rows.gradients()
        for output in range(loss.n_outputs):
            tree = grower.grow(iteration * loss.n_outputs + output, output)
            ensemble.append(tree, checked=True)
        if on_trees is not None:
            on_trees(ensemble, rows.scores)
    return ensemble


def randomised_features(codes: Bytes, keep: Floats, n_codes: Ints) -> Randomised:
    """What follows from the changed codes and from how they were changed."""
    soft = np.flatnonzero((keep < 1.0) & (n_codes > 1))
    place = np.full(len(keep), -1, np.int64)
    place[soft] = np.arange(len(soft))
    other = (1.0 - keep[soft]) / (n_codes[soft] - 1)
    prior = np.zeros((len(soft), 256))
    for k, feature in enumerate(soft.tolist()):
        n = int(n_codes[feature])
        prior[k, :n] = prior_of(np.bincount(codes[feature], minlength=n)[:n], float(keep[feature]))
    shown = keep[soft] - other
    return Randomised(place, n_codes, prior, shown[:, None] * prior, other, DOUBT * (1.0 - shown))


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


def _with_room(array: npt.NDArray[Any], size: int, *, filled: int = 0) -> npt.NDArray[Any]:
    """The array, or one of at least `size` places in which the first `filled` are the same."""
    if len(array) >= size:
        return array
    larger = np.empty(size, array.dtype)
    larger[:filled] = array[:filled]
    return larger


class _LevelRoom:
    """Room for the nodes of a level; there are two, for a level and the next. Unused memory is never touched."""

    def __init__(self, n_nodes: int, n_soft: int, n_cells: int) -> None:
        start, stop, shares_at = np.empty((3, n_nodes), np.int64)
        self.level = Level(start, stop, shares_at, np.empty((n_nodes, n_soft, 256), np.bool_))
        self.cells: Ints = np.empty((n_nodes, n_cells), np.int64)  # sums of (share * g, share^2 * h)
        self.shares: Scores = np.empty(0, np.float32)

    def first(self, n_nodes: int) -> tuple[Level, Ints]:
        """The level and its sums without the spare room."""
        start, stop, shares_at, allowed = self.level
        return Level(start[:n_nodes], stop[:n_nodes], shares_at[:n_nodes], allowed[:n_nodes]), self.cells[:n_nodes]


class _SoftGrower:
    """Grows trees whose nodes hold shares of rows; keeps its buffers from tree to tree."""

    def __init__(
        self,
        params: BoostingParams,
        mapper: BinMapper,
        codes: Bytes,
        rows: Rows,
        rules: SplitRules,
        features: Randomised,
        n_threads: int,
    ) -> None:
        self._params, self._rows, self._rules, self._features = params, rows, rules, features
        self._codes = Codes(np.ascontiguousarray(codes), rows.packed.records)
        self._team = Team(n_threads)
        self._edges = FlatEdges([feature.edges for feature in mapper.features])
        self._is_exact = features.place < 0
        self._all_features = np.ones((1, len(self._is_exact)), np.bool_)
        self._depth = params.max_depth or DEEPEST
        widest, n_rows = 2 ** (self._depth - 1), rows.n_rows
        self._rooms = [_LevelRoom(widest, len(features.other), rows.layout.n_cells) for _ in range(2)]
        self._families = Families(*np.empty((3, widest), np.int64))
        self._walks = Walks(*np.empty((3, widest), np.int64))
        self._to_left = np.empty((2 * widest, 256))
        self._ids: RowIds = np.arange(n_rows, dtype=np.uint32)
        n_sums = max(1, min(MOST_SUMS, n_rows // ROWS_PER_SUM))
        self._pieces = list(itertools.pairwise(n_rows * k // n_sums for k in range(n_sums + 1)))

    def grow(self, tree_number: int, output: int) -> Tree:
        """One tree from the present gradients; scores are updated."""
        rows, features = self._rows, self._features
        packed = rows.gradients_packed[output]
        draw = FeatureDraw(self._params, self._all_features, tree_number)
        here, there = self._rooms
        root_total = self._start(here, output)
        building = TreeBuilder(self._rules, NO_CONSTRAINTS, self._edges, self._params.max_leaves, root_total)
        n_level, first_node, n_walks, rows_end = 1, 0, 0, rows.n_rows
        for depth in range(1, self._depth + 1):
            level, cells = here.first(n_level)
            splits = self._best(level, cells, draw.for_nodes(n_level))
            feature = building.divide(splits)
            is_last = depth == self._depth or building.is_full
            n_families, n_walks, new_end, n_shares = plan_level(
                feature, splits.goes_left, features, level, is_last, first_node, rows_end,
                self._to_left, self._families, there.level, self._walks, n_walks,
            )  # fmt: skip
            if is_last or not n_families:
                break
            self._ids = _with_room(self._ids, new_end, filled=rows_end)
            there.shares = _with_room(there.shares, n_shares)
            question = (self._families, feature, splits.goes_left, first_node, self._to_left, features.place)
            held = (level, there.level, self._ids, here.shares, there.shares)
            sums = (self._codes, packed, cells, there.cells, rows.layout)
            work = (new_end - rows_end + n_shares) * rows.layout.n_columns
            self._run(divide_nodes, n_families, (*question, *held, *sums), work)
            here, there = there, here
            n_level, first_node, rows_end = 2 * n_families, first_node + n_level, new_end
        walks = Walks(*[field[:n_walks] for field in self._walks])
        return self._with_values(building, walks, packed, rows.scores[output])

    def _start(self, root: _LevelRoom, output: int) -> int:
        """All rows stand at the root, entirely; its packed sum."""
        rows, zero = self._rows, np.zeros(1, np.int64)
        level, layout = root.level, rows.layout
        level.start[0], level.stop[0], level.shares_at[0] = 0, rows.n_rows, WHOLE
        level.allowed[0] = True  # codes that do not occur have no prior
        rows.start_tree(output)
        rows.histograms(zero, zero, root.cells)
        first = int(layout.first_cell[0])
        return int(root.cells[0, first : first + int(layout.n_codes[0])].sum())

    def _best(self, level: Level, cells: Ints, asked: Bools) -> LevelSplits:
        """The best split of every node among the features that it may ask about."""
        splits = LevelSplits.room_for(len(cells))
        exact, soft = asked & self._is_exact, asked & ~self._is_exact
        rest = (self._features, level, exact, soft, cells, self._rules, self._rows.layout, splits)
        self._run(find_splits, len(cells), rest, 4 * cells.size)
        return splits

    def _run(self, kernel: Callable[..., None], n_items: int, rest: tuple[Any, ...], updates: int) -> None:
        """kernel(first, last, ...) over all items: one by one on all threads where there is enough to do."""
        if self._team.n_threads == 1 or n_items == 1 or updates < UPDATES_WORTH_A_THREAD:
            kernel(0, n_items, *rest)
        else:
            self._team.run(kernel, [(item, item + 1, *rest) for item in range(n_items)])

    def _with_values(self, building: TreeBuilder, walks: Walks, packed: Ints, scores: Scores) -> Tree:
        """The finished tree; its values, by shares, are added to the scores."""
        tree, _ = building.finish()
        leaf, place = np.empty(tree.n_nodes, np.int64), self._features.place
        number_leaves(tree.left, leaf)
        is_soft = (tree.feature >= 0) & (place[tree.feature] >= 0)
        ask = Question(tree.feature, tree.left, is_soft, self._to_left, leaf, self._codes.columns, self._ids)
        n_leaves, n_pieces = (tree.n_nodes + 1) // 2, len(self._pieces)
        overlap, (g, h) = np.empty((n_pieces, n_leaves, n_leaves)), np.empty((2, n_pieces, n_leaves))
        pieces = [(walks.piece(*piece), ask) for piece in self._pieces]
        self._team.run(sum_leaves, [(*piece, packed, overlap[k], g[k], h[k]) for k, piece in enumerate(pieces)])
        rules, rate = self._rules, self._params.learning_rate
        finish_nodes(walks, ask, overlap, g, h, rules, rate, tree.value, tree.cover)
        self._team.run(add_scores, [(*piece, tree.value, scores) for piece in pieces])
        return tree


# --- from one level to the next ---------------------------------------------------------------------------------------


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
    sums, order, keys, sure = np.empty(256, np.int64), np.empty(256, np.int64), np.empty(256), np.empty(256)
    bench = Bench(sums, order, keys, sure, np.empty(256), np.empty(256), np.empty(256), np.empty(256))
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
                soft_nodes.scan_randomised(
                    node, feature, features, level.allowed, cells[node], rules, layout, bench, splits
                )


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
            soft_nodes.share_of_code(
                features, place, feature[node], level.allowed[node, place], goes_left[node], to_left[number]
            )
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
        if not ask.is_soft[walks.node[walk]]:
            continue
        start, stop = walks.start[walk], walks.stop[walk]
        n_nodes, n_leaves = soft_nodes.nodes_below(walks.node[walk], ask, block.nodes)
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
def finish_nodes(
    walks: Walks,
    ask: Question,
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
        if not ask.is_soft[root]:
            continue
        n_nodes, n_leaves = soft_nodes.nodes_below(root, ask, nodes)
        first = ask.leaf[root]
        for one in range(n_leaves):
            values[one] = -g[0, first + one] * rules.gradient_unit
            for other in range(one + 1):
                matrix[one, other] = overlap[0, first + one, first + other] * rules.hessian_unit
        soft_nodes.solve_leaves(matrix, values, n_leaves, rules.l2)
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
    value: Scores,  # in  [nodes]
    scores: Scores,  # in/out [rows]
) -> None:
    """scores[row] += sum over leaves of share * value."""
    block = soft_nodes.make_block(ask.leaf.shape[0])
    for walk in range(walks.node.shape[0]):
        root = walks.node[walk]
        rows = ask.ids[walks.start[walk] : walks.stop[walk]]
        if ask.is_soft[root]:
            n_nodes, _ = soft_nodes.nodes_below(root, ask, block.nodes)
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
