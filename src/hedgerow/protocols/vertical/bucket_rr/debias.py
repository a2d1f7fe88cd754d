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

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import BestRound, find_metric
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, Scores
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.feature_choice import FeatureChoice
from hedgerow.engine.growth import FlatEdges, LevelSplits, TreeBuilder, split_rules
from hedgerow.engine.histogram import Layout
from hedgerow.engine.losses import BoostingParams, Quantiser
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.engine.splitting import SplitRules, evaluate_families
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.bucket_rr import soft_nodes
from hedgerow.protocols.vertical.bucket_rr.soft_nodes import Bench, Randomised
from hedgerow.protocols.vertical.bucket_rr.soft_rows import LeafSums, SoftSetup, number_leaves, piece_bounds, run_over
from hedgerow.protocols.vertical.common.drawing import RowDraw

DOUBT = 3.0
"""What a split of a randomised column must gain before it counts, where codes tell next to nothing: a question that
tells nothing gains about 1. It vanishes as codes become exact: it is multiplied by 1 - (keep - other), `other` the
chance that a code becomes one certain other one."""

NO_CONSTRAINTS = np.empty(0, np.int64)

DEEPEST = 8
"""Levels at most: a row may be in every leaf of a tree, and leaf values are found from all pairs of leaves."""

RAREST = 1e-4
"""A code counts as occurring at least this often, so that noise never rules out what may be."""


def check_debiased(params: BoostingParams, name: str) -> None:
    """InvalidParameter for what trees from shares do not know."""
    if params.max_depth is None or params.max_depth > DEEPEST:
        raise InvalidParameter(f"{name}: debias=True needs max_depth from 1 to {DEEPEST}, got {params.max_depth}")
    if params.monotone is not None:
        raise InvalidParameter(
            f"{name}: monotonic_cst goes with debias=False only, got {params.monotone}; leaves that share rows have "
            "values that are found together, and these do not keep to an order"
        )
    if params.loss in ("absolute", "quantile"):
        raise InvalidParameter(
            f"{name}: the {params.loss} loss goes with debias=False only: nobody knows which rows are in a leaf"
        )
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
    weight: Floats | None = None,
    watched: Ints | None = None,
    keep: Floats,
    n_codes: Ints,
    on_trees: Callable[[Ensemble, SoftRowsLike], None] | None = None,
    n_threads: int = 1,
    init: Sequence[Tree] = (),
    scores: Scores | None = None,
    backend: RayBackend | None = None,
) -> Ensemble:
    """Train on `codes` [features, rows], of which feature f kept its true code with probability keep[f].

    A code that was not kept is any other of the n_codes[f] with equal probability. keep = 1 for exact features. What
    `on_trees` gets after each iteration are the model, whose trees are `init` of a training that goes on from there,
    and the rows, whose `scores` are. With a `backend`, rows are in actors of Ray.

    Rows that are `watched`, and those that are not drawn for an iteration, are there by shares as all others, with
    weight 0: whether the watched ones improve is judged by the buckets that there are.
    """
    check_debiased(params, "training")
    draw = RowDraw(params, len(y), None if watched is None else np.isin(np.arange(len(y)), watched))
    learned, own = y[draw.learned], None if weight is None else weight[draw.learned]
    loss = params.loss_for(learned if own is None else learned[own > 0])
    bases = params.base_scores(loss, learned, own)
    ensemble = Ensemble(mapper, loss.name, bases, trees=init)
    quantiser = Quantiser.for_rows(loss, len(learned), own, gradient_bits=params.gradient_bits)
    rules = split_rules(params, loss, quantiser, weighted=weight is not None)
    best = None if watched is None else BestRound(params, find_metric(params.eval_metric, loss))
    features = randomised_features(codes, np.asarray(keep, np.float64), np.asarray(n_codes, np.int64))
    setup = SoftSetup(
        mapper, loss, bases, quantiser, features.place >= 0, params.max_depth or DEEPEST,
        tuple(piece_bounds(len(y))), n_threads,
    )  # fmt: skip
    with _placed(setup, codes, y, weight, backend) as rows:
        if scores is not None:
            rows.set_scores(scores)
        grower = _SoftGrower(params, mapper, rows, rules, features, n_threads)
        for iteration in range(ensemble.n_iterations, params.n_iterations):
            rows.gradients()
            if (counted := draw.for_iteration(iteration)) is not None:
                rows.count_only(counted)
            for output in range(loss.n_outputs):
                tree = grower.grow(iteration * loss.n_outputs + output, output)
                ensemble.append(tree, checked=True)
            if on_trees is not None:
                on_trees(ensemble, rows)
            if best is not None and watched is not None:
                raw = rows.scores[:, watched].T.astype(np.float64) + bases
                best.see(best.metric(loss, y[watched], raw, None if weight is None else weight[watched]))
                if best.wants_to_stop:
                    break
    if best is None or best.best_iteration is None:
        return ensemble
    ensemble = ensemble.truncated(best.best_iteration + 1)
    ensemble.meta |= {"learning_curve": {best.metric.name: best.curve}, "best_iteration": best.best_iteration}
    return ensemble


def _placed(
    setup: SoftSetup, codes: Bytes, labels: Floats, weight: Floats | None, backend: RayBackend | None
) -> AbstractContextManager[SoftRowsLike]:
    """Rows here; or in actors, for as long as the block lasts."""
    if backend is None:
        return nullcontext(setup.rows(codes, labels, weight, setup.bounds, bundle=True))
    from hedgerow.protocols.vertical.bucket_rr.on_ray import soft_rows_on_ray

    return soft_rows_on_ray(backend, setup, codes, labels, weight)


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


class SoftRowsLike(Protocol):
    """What growth needs of its rows, wherever they are; see `SoftRows`."""

    layout: Layout

    @property
    def scores(self) -> Scores:
        """Of all rows [outputs, rows]."""
        ...

    def set_scores(self, scores: Scores) -> None:
        """Stand as rows stood with these scores [outputs, rows]."""
        ...

    def gradients(self) -> None:
        """Quantise the gradients of every output from the present scores."""
        ...

    def count_only(self, counted: Bools) -> None:
        """The gradients of all other rows are 0, until there are new ones."""
        ...

    def start_soft(self, output: int) -> None:
        """All rows stand at the root, entirely."""
        ...

    def level_cells(self) -> Ints:
        """The sums of every node of the level."""
        ...

    def divide(self, feature: Ints, goes_left: Bytes, to_left: Floats, *, last: bool) -> None:
        """Move to the next level."""
        ...

    def leaf_sums(self, feature: Int32s, left: Int32s) -> LeafSums:
        """Of every piece of the rows, what values of leaves are made of."""
        ...

    def add_values(self, feature: Int32s, left: Int32s, value: Scores) -> None:
        """Add a finished tree to the scores, by shares."""
        ...


class Ways(NamedTuple):
    """How one gets to the nodes of a level, with room to spare."""

    allowed: Bools  # [nodes, randomised, 256] true codes that the way to the node allows
    whole: Bools  # [nodes] whether no randomised feature is asked about on the way, so that rows are there entirely


class _SoftGrower:
    """Grows trees whose nodes hold shares of rows; keeps its buffers from tree to tree."""

    def __init__(
        self,
        params: BoostingParams,
        mapper: BinMapper,
        rows: SoftRowsLike,
        rules: SplitRules,
        features: Randomised,
        n_threads: int,
    ) -> None:
        self._params, self._rows, self._rules, self._features = params, rows, rules, features
        self._team = Team(n_threads)
        self._edges = FlatEdges([feature.edges for feature in mapper.features])
        self._is_exact = features.place < 0
        self._depth = params.max_depth or DEEPEST
        widest, n_soft = 2 ** (self._depth - 1), len(features.other)
        self._ways = [Ways(np.empty((widest, n_soft, 256), np.bool_), np.empty(widest, np.bool_)) for _ in range(2)]
        self._to_left = np.empty((widest, 256))
        self._walks = np.empty(widest, np.int64)

    def grow(self, tree_number: int, output: int) -> Tree:
        """One tree from the present gradients; scores are updated."""
        rows = self._rows
        choice = FeatureChoice(self._params, len(self._is_exact), tree_number)
        here, there = self._ways
        here.allowed[0], here.whole[0] = True, True  # codes that do not occur have no prior
        rows.start_soft(output)
        cells, first = rows.level_cells(), int(rows.layout.first_cell[0])
        root_total = int(cells[0, first : first + int(rows.layout.n_codes[0])].sum())
        building = TreeBuilder(self._rules, NO_CONSTRAINTS, self._edges, self._params.max_leaves, root_total)
        n_level, first_node, n_walks = 1, 0, 0
        for depth in range(1, self._depth + 1):
            splits = self._best(here.allowed[:n_level], cells, choice.for_nodes(n_level))
            feature = building.divide(splits)
            choice.split(feature)
            is_last = depth == self._depth or building.is_full
            n_families, n_walks = plan_ways(
                feature, splits.goes_left, self._features, here, is_last, first_node, self._to_left, there,
                self._walks, n_walks,
            )  # fmt: skip
            is_last = is_last or not n_families
            rows.divide(feature, splits.goes_left, self._to_left[:n_level], last=is_last)
            if is_last:
                break
            cells, here, there = rows.level_cells(), there, here
            n_level, first_node = 2 * n_families, first_node + n_level
        return self._with_values(building, self._walks[:n_walks])

    def _best(self, allowed: Bools, cells: Ints, asked: Bools) -> LevelSplits:
        """The best split of every node among the features that it may ask about."""
        splits = LevelSplits.room_for(len(cells))
        exact, soft = asked & self._is_exact, asked & ~self._is_exact
        rest = (self._features, allowed, exact, soft, cells, self._rules, self._rows.layout, splits)
        run_over(self._team, find_splits, len(cells), rest, 4 * cells.size)
        return splits

    def _with_values(self, building: TreeBuilder, walks: Ints) -> Tree:
        """The finished tree; its values, by shares, are added to the scores."""
        tree, _ = building.finish()
        leaf = np.empty(tree.n_nodes, np.int64)
        number_leaves(tree.left, leaf)
        is_soft = (tree.feature >= 0) & ~self._is_exact[tree.feature]
        sums = self._rows.leaf_sums(tree.feature, tree.left)
        rate = self._params.learning_rate
        finish_nodes(walks, tree.left, is_soft, leaf, *sums, self._rules, rate, tree.value, tree.cover)
        self._rows.add_values(tree.feature, tree.left, tree.value)
        return tree


# --- from one level to the next ---------------------------------------------------------------------------------------


@kernel
def find_splits(
    first: int,  # in  nodes first..last
    last: int,
    features: Randomised,
    allowed: Bools,  # in  [nodes, randomised, 256]
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
                soft_nodes.scan_randomised(node, feature, features, allowed, cells[node], rules, layout, bench, splits)


@kernel
def plan_ways(
    feature: Ints,  # in  [nodes] that each splits on, -1 for none
    goes_left: Bytes,  # in  [nodes, 256] by true code
    features: Randomised,
    ways: Ways,
    is_last: bool,
    first_node: int,  # in  number of the level's first node
    to_left: Floats,  # out [nodes, 256] by changed code
    children: Ways,  # out
    walks: Ints,  # out numbers of nodes where walks begin
    n_walks: int,
) -> tuple[int, int]:
    """Which children arise, and how one gets there. Returns the number of families and of walks."""
    n_families = 0
    for node in range(feature.shape[0]):
        whole = ways.whole[node]
        place = features.place[feature[node]] if feature[node] >= 0 else -1
        if whole and (feature[node] < 0 or place >= 0 or is_last):
            walks[n_walks] = first_node + node
            n_walks += 1
        if feature[node] < 0:
            continue
        if place < 0:
            for code in range(256):
                to_left[node, code] = goes_left[node, code]
        else:
            soft_nodes.share_of_code(
                features, place, feature[node], ways.allowed[node, place], goes_left[node], to_left[node]
            )
        if is_last:
            continue
        for side in range(2):
            child = 2 * n_families + side
            children.whole[child] = whole and place < 0
            allowed = children.allowed[child]
            for soft in range(allowed.shape[0]):
                for code in range(256):
                    on_this_side = soft != place or goes_left[node, code] == 1 - side
                    allowed[soft, code] = ways.allowed[node, soft, code] and on_this_side
        n_families += 1
    return n_families, n_walks


# --- values of leaves -------------------------------------------------------------------------------------------------


@kernel
def finish_nodes(
    walks: Ints,  # in  numbers of nodes where walks begin
    left: Int32s,  # in  [nodes]
    is_soft: Bools,  # in  [nodes]
    leaf: Ints,  # in  [nodes]
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
    for walk in range(walks.shape[0]):
        root = walks[walk]
        if not is_soft[root]:
            continue
        n_nodes, n_leaves = soft_nodes.nodes_below(root, left, nodes)
        first = leaf[root]
        for one in range(n_leaves):
            values[one] = -g[0, first + one] * rules.gradient_unit
            for other in range(one + 1):
                matrix[one, other] = overlap[0, first + one, first + other] * rules.hessian_unit
        soft_nodes.solve_leaves(matrix, values, n_leaves, rules.l2)
        for n in range(n_nodes - 1, 0, -1):
            node = nodes[n]
            child, own = left[node], leaf[node]
            if child < 0:
                total_g[node], cover[node] = g[0, own] * rules.gradient_unit, h[0, own] * rules.hessian_unit
                value[node] = np.float32(values[own - first] * learning_rate)
                continue
            total_g[node], cover[node] = total_g[child] + total_g[child + 1], cover[child] + cover[child + 1]
            weight = cover[node] + rules.l2
            value[node] = np.float32(-total_g[node] / weight * learning_rate) if weight > 0.0 else np.float32(0.0)
