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

A split of a randomised column is scored by what little the changed codes show of it and then used in full on true ones;
a wrong one does more harm than its gain can tell. So it must gain `DOUBT` more than another.

The formula G_k = (noisy G_k - p' G) / (p - p') for the split alone, with rows sent left and right by changed codes,
was tried too, and is hardly better than nothing: docs/protocols/vertical_bucket_rr.md has the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import BoostingParams
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, RowIds, Scores
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.growth import split_rules
from hedgerow.engine.histogram import node_histograms, root_histogram, subtract_cells
from hedgerow.engine.losses import Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.engine.splitting import MIN_GAIN, LevelSplits, SplitRules
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.bucket_rr.shares import (
    Randomised,
    add_value,
    best_splits,
    overlap,
    place_shares,
    posterior,
    share_out,
    sums_of_leaf,
    take_side,
)

DOUBT = 4.0
"""What a split of a randomised column must gain before it counts. A question that tells nothing gains about 1."""

DEEPEST = 8
"""Levels at most: shares of a row are kept for every node of a level."""


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
    rules = split_rules(params.growth_rules(), loss, quantiser, weighted=False)
    grower = _SoftGrower(params, mapper, codes, rows, rules, keep, n_codes)
    for iteration in range(params.n_iterations):
        rows.gradients()
        grown = [grower.grow(iteration * loss.n_outputs + output, output) for output in range(loss.n_outputs)]
        for tree in grown:
            ensemble.append(tree, checked=True)
        if on_tree is not None:
            on_tree(iteration + 1, params.n_iterations)
    return ensemble


@dataclass(frozen=True)
class _Node:
    """A node of the level that is being divided."""

    number: int  # in the tree
    rows: RowIds  # rows that may be in it
    share: Scores  # [all rows] of each of them
    values: Ints  # [all rows] packed (share * g, share^2 * h)
    allowed: Bools  # [randomised features, 256] codes that the way to the node allows
    cells: Ints  # [cells] sums of `values`; until it is filled, those of its parent
    turns: Mapping[int, int]  # splits of exact features on the way -> which side was taken


class _SoftGrower:
    """Grows trees whose nodes hold shares of rows."""

    def __init__(
        self,
        params: BoostingParams,
        mapper: BinMapper,
        codes: Bytes,
        rows: Rows,
        rules: SplitRules,
        keep: Floats,
        n_codes: Ints,
    ) -> None:
        self._params, self._mapper, self._codes, self._rows, self._rules = params, mapper, codes, rows, rules
        soft = np.flatnonzero((keep < 1.0) & (n_codes > 1))
        place = np.full(len(keep), -1, np.int64)
        place[soft] = np.arange(len(soft))
        self._soft = soft
        self._team = Team(rows.n_parts)
        chances = np.zeros((max(len(soft), 1), 256, 256))
        self._allowed = np.zeros((len(soft), 256), np.bool_)
        for k, feature in enumerate(soft.tolist()):
            n = int(n_codes[feature])
            chances[k, :n, :n] = posterior(np.bincount(codes[feature], minlength=n)[:n], float(keep[feature]))
            self._allowed[k, :n] = True
        self._features = Randomised(place, np.asarray(n_codes, np.int64), chances, DOUBT)
        self._everybody = np.arange(rows.n_rows, dtype=np.uint32)
        self._ones = np.ones(rows.n_rows, np.float32)

    def grow(self, tree_number: int, output: int) -> Tree:
        """One tree from the present gradients; scores are updated."""
        params, packed = self._params, self._rows.gradients_packed[output]
        rng = np.random.default_rng((params.seed, tree_number, 0))
        building = _Building(self._mapper, params.learning_rate)
        in_tree = self._draw(np.arange(self._rows.layout.n_features), params.colsample_bytree, rng)
        leaves: list[_Node] = []
        level = [self._root(packed)]
        depth = params.max_depth or DEEPEST
        for d in range(1, depth + 1):
            splits = self._best(level, in_tree, rng)
            splitting = self._worth_it(splits, len(leaves) + len(level))
            leaves += [node for node, does in zip(level, splitting, strict=True) if not does]
            families = [
                self._children(node, splits, k, building, packed, last=d == depth)
                for k, node in enumerate(level)
                if splitting[k]
            ]
            level = [child for family in families for child in family]
            if not level:
                break
        leaves += level
        return self._with_values(building, leaves, packed, self._rows.scores[output])

    # --- one level ---------------------------------------------------------------------------------------------------

    def _root(self, packed: Ints) -> _Node:
        cells = np.empty(self._rows.layout.n_cells, np.int64)
        root = _Node(0, self._everybody, self._ones, packed, self._allowed, cells, {})
        self._sum(root, cells)
        return root

    def _sum(self, node: _Node, cells: Ints) -> None:
        """The node's histogram."""
        layout, packed = self._rows.layout, self._rows.packed
        shape = (layout.first_cell, layout.n_codes, layout.columns_in_word)
        n_rows = len(node.rows)
        if n_rows == self._rows.n_rows:  # no gathering
            root_histogram(packed.words, node.values, np.array([0]), np.array([n_rows]), cells, *shape)
        else:
            where = (np.array([[0]]), np.array([[n_rows]]), np.array([0]), np.array([0]))
            node_histograms(packed.records, node.values, node.rows, *where, cells[None], *shape)

    def _best(self, level: Sequence[_Node], in_tree: Ints, rng: np.random.Generator) -> LevelSplits:
        """The best split of every node."""
        n_nodes, layout = len(level), self._rows.layout
        allowed = np.zeros((n_nodes, layout.n_features), np.bool_)
        for node in range(n_nodes):
            allowed[node, self._draw(in_tree, self._params.colsample_bynode, rng)] = True
        splits = LevelSplits.room_for(n_nodes)
        best_splits(
            self._features,
            np.stack([node.allowed for node in level]),
            allowed,
            np.stack([node.cells for node in level]),
            self._rules,
            layout,
            splits,
        )
        return splits

    @staticmethod
    def _draw(features: Ints, share: float, rng: np.random.Generator) -> Ints:
        if share == 1.0:
            return features
        return rng.permutation(features)[: max(1, round(share * len(features)))]

    def _worth_it(self, splits: LevelSplits, n_leaves: int) -> Bools:
        """Which nodes split: those that gain enough, and where leaves are limited the best of the level."""
        good: Bools = (splits.feature >= 0) & (splits.gain > MIN_GAIN) & (splits.gain >= self._params.min_gain)
        if self._params.max_leaves is not None:
            room = max(0, self._params.max_leaves - n_leaves)
            best_first = np.argsort(np.where(good, -splits.gain, np.inf), kind="stable")
            good[best_first[room:]] = False
        return good

    def _children(
        self, node: _Node, splits: LevelSplits, k: int, building: _Building, packed: Ints, *, last: bool
    ) -> tuple[_Node, _Node]:
        feature, goes_left = int(splits.feature[k]), splits.goes_left[k]
        numbers = building.split(node.number, feature, splits, k)
        place, codes = int(self._features.place[feature]), self._codes[feature]
        if place < 0:
            sides = [take_side(codes, node.rows, goes_left, side) for side in (1, 0)]
            left, right = (
                replace(node, number=numbers[side], rows=sides[side], turns={**node.turns, node.number: side})
                for side in (0, 1)
            )
            return (left, right) if last else self._summed_exact(left, right)
        left, right = self._shared(node, numbers, place, goes_left.view(np.bool_), packed)
        if not last:
            for child in (left, right):
                self._sum(child, child.cells)
        return left, right

    def _shared(
        self, node: _Node, numbers: tuple[int, int], place: int, goes_left: Bools, packed: Ints
    ) -> tuple[_Node, _Node]:
        """Both children after a split of a randomised feature: the same rows, and shares that add up."""
        left, right = node.allowed.copy(), node.allowed.copy()
        left[place] &= goes_left
        right[place] &= ~goes_left
        chance = self._features.posterior[place]
        both = chance[:, node.allowed[place]].sum(axis=1)
        to_left = np.divide(chance[:, left[place]].sum(axis=1), both, out=np.zeros(256), where=both > 0)
        share_left, share_right = np.empty_like(node.share), np.empty_like(node.share)
        values_left, values_right = np.empty_like(node.values), np.empty_like(node.values)
        share_out(
            self._codes[self._soft[place]],
            node.rows,
            to_left.astype(np.float32),
            node.share,
            packed,
            share_left,
            share_right,
            values_left,
            values_right,
        )
        cells = np.empty_like(node.cells)
        return (
            _Node(numbers[0], node.rows, share_left, values_left, left, node.cells, node.turns),
            _Node(numbers[1], node.rows, share_right, values_right, right, cells, node.turns),
        )

    def _summed_exact(self, left: _Node, right: _Node) -> tuple[_Node, _Node]:
        """Children of a split of an exact feature: the smaller one is summed, the larger one by subtraction."""
        small = left if len(left.rows) <= len(right.rows) else right
        cells, layout = np.empty_like(small.cells), self._rows.layout
        self._sum(small, cells)
        subtract_cells(small.cells, cells, layout.first_cell, layout.n_codes)  # their parent's become the larger one's
        summed = replace(small, cells=cells)
        return (summed, right) if small is left else (left, summed)

    # --- leaf values -------------------------------------------------------------------------------------------------

    def _with_values(self, building: _Building, leaves: list[_Node], packed: Ints, scores: Scores) -> Tree:
        """The finished tree; its values, by shares, are added to the scores."""
        rules, n_leaves = self._rules, len(leaves)
        shares = np.zeros((n_leaves, self._rows.n_rows), np.float32)
        for leaf, whole in zip(leaves, shares, strict=True):
            place_shares(leaf.rows, leaf.share, whole)
        matrix = self._overlaps(leaves, shares, packed) * rules.hessian_unit
        sums = [sums_of_leaf(leaf.rows, whole, packed) for leaf, whole in zip(leaves, shares, strict=True)]
        gradient, cover = np.array(sums).T * np.array([[rules.gradient_unit], [rules.hessian_unit]])
        # Without l2 an empty leaf would have no value; a trace of it gives 0.
        ridge = max(rules.l2, 1e-9 * max(float(np.trace(matrix)), 1.0))
        step = np.linalg.solve(matrix + ridge * np.eye(n_leaves), -gradient) * self._params.learning_rate
        values = step.astype(np.float32)
        for leaf, whole, value in zip(leaves, shares, values, strict=True):
            add_value(leaf.rows, whole, value, scores)
        return building.finish([leaf.number for leaf in leaves], values, gradient, cover, rules.l2)

    def _overlaps(self, leaves: list[_Node], shares: Scores, packed: Ints) -> Floats:
        """Sums of share * share * h for all pairs of leaves; leaves on two sides of an exact split have none."""
        pairs = [
            (a, b)
            for a, leaf in enumerate(leaves)
            for b, other in enumerate(leaves[: a + 1])
            if not any(leaf.turns.get(split, side) != side for split, side in other.turns.items())
        ]
        tasks = [
            (min(leaves[a].rows, leaves[b].rows, key=len), shares[a], shares[b], packed)
            for a, b in pairs
        ]  # fmt: skip
        matrix = np.zeros((len(leaves), len(leaves)))
        for (a, b), total in zip(pairs, self._team.run(overlap, tasks), strict=True):
            matrix[a, b] = matrix[b, a] = total
        return matrix


class _Building:
    """The nodes of a tree as they arise, breadth-first."""

    def __init__(self, mapper: BinMapper, learning_rate: float) -> None:
        self._mapper, self._rate = mapper, learning_rate
        self._feature, self._bin, self._left = [-1], [-1], [-1]
        self._missing_left, self._gain, self._threshold = [False], [0.0], [np.nan]
        self._levels: dict[int, Bytes] = {}

    def split(self, node: int, feature: int, splits: LevelSplits, k: int) -> tuple[int, int]:
        """Node `node` splits as `splits` says for its k-th; the numbers of its children."""
        first, last_bin = len(self._feature), int(splits.bin[k])
        self._feature[node], self._bin[node], self._left[node] = feature, last_bin, first
        self._missing_left[node], self._gain[node] = bool(splits.missing_left[k]), float(splits.gain[k])
        edges = self._mapper.features[feature].edges
        if edges is None:
            self._levels[node] = splits.goes_left[k].copy()
        else:
            self._threshold[node] = float(edges[last_bin]) if last_bin < len(edges) else np.inf
        for field in (self._feature, self._bin, self._left):
            field += [-1, -1]
        self._missing_left += [False, False]
        self._gain += [0.0, 0.0]
        self._threshold += [np.nan, np.nan]
        return first, first + 1

    def finish(self, leaves: list[int], values: Scores, gradient: Floats, cover: Floats, l2: float) -> Tree:
        """The tree; sums of inner nodes are those of their children."""
        n_nodes = len(self._feature)
        sums, weights, value = np.zeros(n_nodes), np.zeros(n_nodes), np.zeros(n_nodes, np.float32)
        sums[leaves], weights[leaves] = gradient, cover
        for node in reversed(range(n_nodes)):
            left = self._left[node]
            if left >= 0:
                sums[node] = sums[left] + sums[left + 1]
                weights[node] = weights[left] + weights[left + 1]
                value[node] = -sums[node] / (weights[node] + l2) * self._rate if weights[node] + l2 > 0 else 0.0
        value[leaves] = values
        by_levels = sorted(self._levels)
        level_set = np.full(n_nodes, -1, np.int32)
        level_set[by_levels] = np.arange(len(by_levels))
        left_levels = np.array([self._levels[node] for node in by_levels], np.uint8).reshape(-1, 256)
        first = np.array(self._left, np.int32)
        return Tree(
            feature=np.array(self._feature, np.int32),
            bin=np.array(self._bin, np.int32),
            threshold=np.array(self._threshold),
            missing_left=np.array(self._missing_left, np.bool_),
            left=first,
            right=np.where(first >= 0, first + 1, -1).astype(np.int32),
            value=value,
            gain=np.array(self._gain, np.float32),
            cover=weights,
            level_set=level_set,
            left_levels=left_levels.astype(np.bool_),
        )
