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
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import BoostingParams
from hedgerow.engine.building import FlatEdges, TreeBuilder, ValueRules
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, Scores
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.growth import FeatureDraw, split_rules
from hedgerow.engine.losses import Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.engine.splitting import LevelSplits, SplitRules
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.bucket_rr.soft_leaves import (
    Question,
    Walks,
    add_scores,
    finish_nodes,
    number_leaves,
    sum_leaves,
)
from hedgerow.protocols.vertical.bucket_rr.soft_rows import (
    WHOLE,
    Codes,
    Families,
    Level,
    Randomised,
    divide_nodes,
    plan_level,
    prior_of,
)
from hedgerow.protocols.vertical.bucket_rr.soft_splits import find_splits

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
UPDATES_WORTH_A_THREAD = 200_000
"""Updates of about half a nanosecond below which waking a thread does not pay."""


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
    on_tree: Callable[[int, int], None] | None = None,
    n_threads: int = 1,
) -> Ensemble:
    """Train on `codes` [features, rows], of which feature f kept its true code with probability keep[f].

    A code that was not kept is any other of the n_codes[f] with equal probability. keep = 1 for exact features.
    """
    check_debiased(params, "training")
    loss = params.loss_for(y)
    bases = loss.base_scores(y) if params.base_score is None else np.full(loss.n_outputs, float(params.base_score))
    ensemble = Ensemble(mapper, loss.name, bases)
    quantiser = Quantiser.for_job(loss, float(len(y)), n_rows=len(y), gradient_bits=params.gradient_bits)
    rows = Rows.from_codes(
        mapper, codes, y, None, loss=loss, base_scores=bases, quantiser=quantiser, n_threads=n_threads
    )
    rules = split_rules(params, loss, quantiser, weighted=False)
    features = randomised_features(codes, np.asarray(keep, np.float64), np.asarray(n_codes, np.int64))
    grower = _SoftGrower(params, mapper, codes, rows, rules, features, n_threads)
    for iteration in range(params.n_iterations):
        rows.gradients()
        for output in range(loss.n_outputs):
            tree = grower.grow(iteration * loss.n_outputs + output, output)
            ensemble.append(tree, checked=True)
        if on_tree is not None:
            on_tree(iteration + 1, params.n_iterations)
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


class _Room:
    """An array that grows where more is needed, and is kept from tree to tree."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.array: npt.NDArray[Any] = np.empty(0, dtype)

    def reserve(self, size: int, *, filled: int = 0) -> npt.NDArray[Any]:
        """At least `size` places; what lies in the first `filled` stays."""
        if len(self.array) < size:
            larger = np.empty(size, self.array.dtype)
            larger[:filled] = self.array[:filled]
            self.array = larger
        return self.array


class _LevelRoom(NamedTuple):
    """Room for the nodes of a level; there are two, for a level and the next."""

    level: Level
    cells: Ints  # [nodes, cells] sums of (share * g, share^2 * h)
    shares: _Room

    @classmethod
    def for_nodes(cls, n_nodes: int, n_soft: int, n_cells: int) -> _LevelRoom:
        """Memory that is not used is never touched, and so costs nothing."""
        start, stop, shares_at = np.empty((3, n_nodes), np.int64)
        level = Level(start, stop, shares_at, np.empty((n_nodes, n_soft, 256), np.bool_))
        return cls(level, np.empty((n_nodes, n_cells), np.int64), _Room(np.float32))

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
        self._value_rules = ValueRules(
            rules.gradient_unit, rules.hessian_unit, rules.l2, params.learning_rate, params.min_gain
        )
        self._is_exact = features.place < 0
        self._all_features = np.ones((1, len(self._is_exact)), np.bool_)
        self._depth = params.max_depth or DEEPEST
        widest, n_rows = 2 ** (self._depth - 1), rows.n_rows
        self._rooms = [_LevelRoom.for_nodes(widest, len(features.other), rows.layout.n_cells) for _ in range(2)]
        self._families = Families(*np.empty((3, widest), np.int64))
        self._walks = Walks(*np.empty((3, widest), np.int64))
        self._to_left = np.empty((2 * widest, 256))
        self._ids = _Room(np.uint32)
        self._ids.reserve(n_rows)[:n_rows] = np.arange(n_rows, dtype=np.uint32)
        n_sums = max(1, min(MOST_SUMS, n_rows // ROWS_PER_SUM))
        self._pieces = list(itertools.pairwise(n_rows * k // n_sums for k in range(n_sums + 1)))

    def grow(self, tree_number: int, output: int) -> Tree:
        """One tree from the present gradients; scores are updated."""
        rows, features = self._rows, self._features
        packed = rows.gradients_packed[output]
        draw = FeatureDraw(self._params, self._all_features, tree_number)
        here, there = self._rooms
        root_total = self._start(here, output)
        building = TreeBuilder(self._value_rules, NO_CONSTRAINTS, self._edges, self._params.max_leaves, root_total)
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
            ids, child_shares = self._ids.reserve(new_end, filled=rows_end), there.shares.reserve(n_shares)
            question = (self._families, feature, splits.goes_left, first_node, self._to_left, features.place)
            held = (level, there.level, ids, here.shares.array, child_shares)
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
        leaf = np.empty(tree.n_nodes, np.int64)
        n_leaves, n_pieces = number_leaves(tree.left, leaf), len(self._pieces)
        ask = Question(tree.feature, tree.left, self._to_left, leaf)
        way = (ask, self._features.place, self._codes.columns, self._ids.array)
        overlap, (g, h) = np.empty((n_pieces, n_leaves, n_leaves)), np.empty((2, n_pieces, n_leaves))
        pieces = [(walks.piece(*piece), *way) for piece in self._pieces]
        self._team.run(sum_leaves, [(*piece, packed, overlap[k], g[k], h[k]) for k, piece in enumerate(pieces)])
        rate, place = self._params.learning_rate, self._features.place
        finish_nodes(walks, ask, place, overlap, g, h, self._rules, rate, tree.value, tree.cover)
        self._team.run(add_scores, [(*piece, n_leaves, tree.value, scores) for piece in pieces])
        return tree
