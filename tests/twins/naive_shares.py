"""The slow, obvious twin of protocols/vertical/bucket_rr/debias.py: whole matrices of shares, one candidate at a time.

It takes the quantised gradients of a row from the engine, and rounds what is summed for a split as the kernels do, so
that ties are ties for both. Everything else is done again from the formulas: Bayes' rule with the full table, shares as
products of its sums, gains and leaf values from the normal equations over all rows and all leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints
from hedgerow.engine.losses import BoostingParams, Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.engine.splitting import LEVEL_SMOOTHING, MIN_GAIN

RAREST = 1e-4


def posterior(counts: Ints, keep: float) -> Floats:
    """P(true code | changed code), [changed, true]."""
    n, n_rows = len(counts), counts.sum()
    channel = np.full((n, n), (1 - keep) / (n - 1))  # [changed, true]
    np.fill_diagonal(channel, keep)
    solved = np.linalg.solve(channel, counts / n_rows)
    variance = sum(c / n_rows * (1 - c / n_rows) / n_rows for c in counts) / (keep - (1 - keep) / (n - 1)) ** 2
    spread = sum((p - 1 / n) ** 2 for p in solved)
    reliable = max(0.0, 1 - variance / spread) if spread > 0 else 0.0
    prior = np.maximum(reliable * solved + (1 - reliable) / n, RAREST)
    joint = channel * (prior / prior.sum())
    table: Floats = joint / joint.sum(axis=1, keepdims=True)
    return table


@dataclass
class NaiveNode:
    """A node and, once it is divided, its question."""

    share: Floats  # [rows] as it is summed for splits: rounded to float32 at every level
    exact_share: Floats  # [rows]
    allowed: dict[int, Bools]  # randomised feature -> true codes that the way to the node allows
    feature: int = -1
    bin: int = -1
    missing_left: bool = False
    gain: float = 0.0
    left_codes: Bools = field(default_factory=lambda: np.zeros(256, np.bool_))
    children: tuple[int, int] | None = None
    value: float = 0.0
    cover: float = 0.0


@dataclass(frozen=True)
class _Candidate:
    gain: float
    feature: int
    bin: int
    missing_left: bool
    left_codes: Bools  # [256]


class NaiveShares:
    """`train` gives the trees as lists of nodes, breadth-first, in the order of iterations and outputs."""

    def __init__(
        self,
        params: BoostingParams,
        mapper: BinMapper,
        codes: Bytes,
        y: Floats,
        *,
        keep: Floats,
        n_codes: Ints,
        doubt: Floats,
    ) -> None:
        self.params, self.mapper, self.codes, self.doubt = params, mapper, codes, doubt
        loss = params.loss_for(y)
        bases = loss.base_scores(y) if params.base_score is None else np.full(loss.n_outputs, params.base_score)
        quantiser = Quantiser.for_job(loss, float(len(y)), n_rows=len(y), gradient_bits=params.gradient_bits)
        self.units = 1 / quantiser.gradient_scale, 1 / quantiser.hessian_scale
        self.rows = Rows.from_codes(mapper, codes, y, None, loss=loss, base_scores=bases, quantiser=quantiser)
        self.min_child_weight = params.min_child_weight
        if loss.name == "squared":  # every hessian is 1: one row at least
            self.min_child_weight = max(self.min_child_weight, 1.0)
        self.n_codes = n_codes
        self.tables = {
            f: posterior(np.bincount(codes[f], minlength=int(n_codes[f])), float(keep[f]))
            for f in range(len(codes))
            if keep[f] < 1 and n_codes[f] > 1
        }

    def train(self) -> list[list[NaiveNode]]:
        """All trees."""
        trees: list[list[NaiveNode]] = []
        for _ in range(self.params.n_iterations):
            self.rows.gradients()
            trees += [self.grow(len(trees) + k, k) for k in range(self.rows.loss.n_outputs)]
        return trees

    def grow(self, tree_number: int, output: int) -> list[NaiveNode]:
        """One tree; scores are updated."""
        packed = self.rows.gradients_packed[output]
        g, h = (packed >> 32).astype(np.float64), (packed & 0xFFFFFFFF).astype(np.float64)
        ones = np.ones(len(packed))
        everything = {f: np.ones(len(table), np.bool_) for f, table in self.tables.items()}
        nodes, level, n_leaves = [NaiveNode(ones, ones, everything)], [0], 1
        draws = self._draws(tree_number)
        for _ in range(self.params.max_depth or 0):
            found = {k: self.best(nodes[k], g, h, next(draws)) for k in level}
            good = {k: c for k, c in found.items() if c and c.gain > MIN_GAIN and c.gain >= self.params.min_gain}
            room = len(good) if self.params.max_leaves is None else self.params.max_leaves - n_leaves
            chosen = sorted(sorted(good, key=lambda k: -good[k].gain)[:room])
            level = []
            for k in chosen:
                level += self._divide(nodes, k, good[k])
            n_leaves += len(chosen)
        self._give_values(nodes, g, h, output)
        return nodes

    def _draws(self, tree_number: int):
        params, features = self.params, np.arange(len(self.codes))

        def some(candidates: Ints, share: float, rng: np.random.Generator) -> Ints:
            return np.sort(rng.permutation(candidates)[: max(1, round(share * len(candidates)))])

        if params.colsample_bytree < 1:
            features = some(features, params.colsample_bytree, np.random.default_rng((params.seed, tree_number, 0)))
        rng = np.random.default_rng((params.seed, tree_number, 1))
        while True:
            yield some(features, params.colsample_bynode, rng) if params.colsample_bynode < 1 else features

    # --- splits ------------------------------------------------------------------------------------------------------

    def best(self, node: NaiveNode, g: Floats, h: Floats, features: Ints) -> _Candidate | None:
        """The best question: exact features first, and among equals the first one."""
        shared_g, shared_h = np.floor(node.share * g + 0.5), np.floor(node.share**2 * h + 0.5)
        best: _Candidate | None = None
        for exact in (True, False):
            for f in features.tolist():
                if (f not in self.tables) == exact:
                    for candidate in self.candidates(f, node, shared_g, shared_h):
                        if candidate.gain > (best.gain if best else 0.0):
                            best = candidate
        return best

    def candidates(self, feature: int, node: NaiveNode, g: Floats, h: Floats) -> list[_Candidate]:
        """Every cut of one feature, missing right before missing left."""
        bins, z = self.mapper.features[feature], self.codes[feature]
        n_bins = bins.n_value_bins
        inside = self._chances(feature, node)  # [rows, codes] chance of each true code, given that it is allowed
        present = inside[:, :n_bins].any(axis=0)
        if feature not in self.tables:
            present = np.array([bool((g[z == c].sum() != 0) or (h[z == c].sum() != 0)) for c in range(n_bins + 1)])
            may_miss, present = bool(present[n_bins]), present[:n_bins] | (bins.levels is None)
        else:
            may_miss = inside.shape[1] > n_bins and bool(inside[:, n_bins].any())
        order = np.flatnonzero(present)
        if bins.levels is not None:
            keys = [
                (g @ inside[:, c]) * self.units[0] / ((h @ inside[:, c]) * self.units[1] + LEVEL_SMOOTHING)
                for c in order
            ]
            order = order[np.argsort(keys, kind="stable")]
        found: list[_Candidate] = []
        for missing_left in (False, True) if may_miss else (False,):
            n_cuts = len(order) if may_miss and not missing_left else len(order) - 1
            for cut in range(n_cuts):
                left = np.zeros(256, np.bool_)
                left[order[: cut + 1]] = True
                left[n_bins] = missing_left
                share = inside @ left[: inside.shape[1]].astype(np.float64)
                gain = self.gain(share, g, h) - (self.doubt[feature] if feature in self.tables else 0.0)
                heavier_left = bool(2 * (share @ h) >= h.sum() * (1 - 1e-12))
                unseen_left = self.params.missing_unseen == "heavier" and heavier_left
                to_left = missing_left if may_miss else unseen_left
                if bins.levels is None:
                    left = np.arange(256) <= order[cut]
                else:
                    left[~np.isin(np.arange(256), order)] = to_left
                left[n_bins] = to_left
                last_bin = -1 if bins.levels is not None else int(order[cut])
                found.append(_Candidate(gain, feature, last_bin, to_left, left))
        return found

    def _chances(self, feature: int, node: NaiveNode) -> Floats:
        z = self.codes[feature]
        if feature not in self.tables:
            table: Floats = np.eye(256)[:, : self.mapper.features[feature].n_value_bins + 1]
        else:
            table = self.tables[feature] * node.allowed[feature]
            table /= table.sum(axis=1, keepdims=True)
        chances: Floats = np.take(table, z, axis=0)
        return chances

    def gain(self, share: Floats, g: Floats, h: Floats) -> float:
        """What two leaves gain over one: g' (H + l2)^-1 g for rows that are in both by their shares."""
        both = np.stack([share, 1 - share])
        l2 = self.params.l2
        sums = both @ g * self.units[0]
        matrix = (both * h) @ both.T * self.units[1] + l2 * np.eye(2)
        weights = both @ h * self.units[1]
        least = self.min_child_weight
        if weights[0] < least or h.sum() * self.units[1] - weights[0] < least or min(np.diag(matrix)) <= 0:
            return -1.0
        (left, common), (_, right) = matrix
        determinant = left * right - common * common
        if determinant <= 1e-12 * left * right:
            return -1.0
        gained = (right * sums[0] ** 2 + left * sums[1] ** 2 - 2 * common * sums[0] * sums[1]) / determinant
        return float(gained - (g.sum() * self.units[0]) ** 2 / (h.sum() * self.units[1] + l2))

    def _divide(self, nodes: list[NaiveNode], k: int, split: _Candidate) -> list[int]:
        node, f = nodes[k], split.feature
        node.feature, node.bin, node.missing_left = f, split.bin, split.missing_left
        node.gain, node.left_codes = split.gain, split.left_codes
        node.children = len(nodes), len(nodes) + 1
        chances = self._chances(f, node)
        to_left = chances @ split.left_codes[: chances.shape[1]].astype(np.float64)
        rounded = (node.share * to_left).astype(np.float32).astype(np.float64)
        for side, share in enumerate((rounded, node.share - rounded)):
            allowed = dict(node.allowed)
            if f in self.tables:
                mine = split.left_codes[: len(allowed[f])]
                allowed[f] = allowed[f] & (mine if side == 0 else ~mine)
            nodes.append(NaiveNode(share, node.exact_share * (to_left, 1 - to_left)[side], allowed))
        return list(node.children)

    # --- leaves ------------------------------------------------------------------------------------------------------

    def _give_values(self, nodes: list[NaiveNode], g: Floats, h: Floats, output: int) -> None:
        """All leaves together; and what an inner node would have been worth alone."""
        l2, rate = self.params.l2, self.params.learning_rate
        for node in nodes:
            node.cover = float(node.exact_share @ h) * self.units[1]
            total = float(node.exact_share @ g) * self.units[0]
            node.value = -total / (node.cover + l2) * rate if node.cover + l2 > 0 else 0.0
        leaves = [node for node in nodes if node.children is None]
        shares = np.stack([leaf.exact_share for leaf in leaves])
        matrix = (shares * h) @ shares.T * self.units[1]
        ridge = l2 * np.eye(len(leaves)) if l2 > 0 else 1e-9 * np.diag(np.diag(matrix))
        some = np.diag(matrix + ridge) > 0  # an empty leaf has the value 0
        step = np.zeros(len(leaves))
        step[some] = np.linalg.solve((matrix + ridge)[np.ix_(some, some)], -(shares @ g)[some] * self.units[0])
        values = (step * rate).astype(np.float32)
        for leaf, value in zip(leaves, values.tolist(), strict=True):
            leaf.value = value
        self.rows.scores[output] += (values.astype(np.float64) @ shares).astype(np.float32)
