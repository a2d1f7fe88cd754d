"""Other ways to spend the budget, for study and comparison with `smooth_then_trees`; one owner, two classes or numbers.

    policy        splits                                        accounting            releases
    random        random columns and thresholds, oblivious      Gaussian DP, or PLD   a start, one per tree
    cyclic        one column per tree, in turn, all its bins    Gaussian DP, or PLD   a start, one per tree
    histogram     best of a few random columns per level, by    Gaussian DP           a start, then per tree one per
                  noisy histograms, their noise discounted                            level, and one for the leaves
    exponential   best of all, by the exponential mechanism,    zCDP                  as histogram, but choices instead
                  with counts as denominators                                         of histograms

`random` and `cyclic` follow Maddock et al. 2022 and can take a secret Poisson sample of the rows for each release
(`subsample`); losses are then composed numerically. All take every row otherwise. The start is one sum over all rows,
for the base score. Leaves are noisy Newton steps: G / (max(0, H) + l2 + noise), times the learning rate; the last term
keeps a leaf of nobody from being all noise. Every constant is public or follows from released sums.

`histogram` and `exponential` grow trees level by level: a question about all nodes of a level, then the next level,
then leaves. Candidates: of a numeric column, after each bin but the last; missing values go right. Of a categorical
one, each level on its own goes left. Which they are follows from the schema alone.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import Bytes, Floats, Int32s, Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidInput
from hedgerow.privacy import calibrate
from hedgerow.privacy.accountants import PrivacyLoss, ZeroConcentratedDP
from hedgerow.privacy.calibrate import Budget, PlannedBudget, rho_for
from hedgerow.privacy.events import Composed, Event, Exponential, Gaussian, NonPrivate, Repeated
from hedgerow.protocols.central.gaussian.recipe import Size
from hedgerow.protocols.central.gaussian.requests import UNIT, NodeRequest, SumRequest
from hedgerow.protocols.central.gaussian.tables import Bins, padded
from hedgerow.protocols.central.gaussian.training import Asking, GaussianSettings, Training
from hedgerow.protocols.central.gaussian.trees import merged_feature, oblivious_trees, perfect_tree, table_tree
from hedgerow.schema import Schema
from hedgerow.statement import Stage

START_SHARE = 0.02
"""For the sum over all rows that gives the base score."""

SQUARES_SHARE = 0.01
"""For the spread of the labels in regression."""

USUAL_SPREAD = 0.25
"""Standard deviation of labels that nobody has measured, as a share of their range."""

LARGEST_STEP = 5.0
"""Of a leaf, in log odds or standard deviations: without noise and l2, a leaf of few rows could want any."""

SPLIT_SHARE = 0.5
"""Of what trees cost that choose their splits: for the splits; the rest is for leaves."""

COLUMNS_PER_LEVEL = 4
"""histogram: how many random columns each level looks at."""

LEARNING_RATE = 0.3
L2 = 1.0


@dataclass(frozen=True)
class Start:
    """What the first releases told."""

    n_rows: float
    positive: float = 0.5
    centre: float = 0.0
    spread: float = 1.0

    @property
    def base_score(self) -> float:
        """Log odds; 0 in regression."""
        return math.log(self.positive / (1.0 - self.positive))


class Policy(Training):
    """A training by one of the policies."""

    N_TREES: ClassVar[int]
    MAX_DEPTH: ClassVar[int]

    def __init__(self, schema: Schema, settings: GaussianSettings) -> None:
        super().__init__(schema, seed=settings.seed, reserve=settings.clipped_count_share, multiclass=False)
        self.settings = settings
        self.rate = settings.rate
        self.planned_trees = settings.n_trees or self.N_TREES
        self.learning_rate = settings.learning_rate or LEARNING_RATE
        self.l2 = L2 if settings.l2 is None else float(settings.l2)
        self.bins = [
            _public_bins(feature, cells, self.most_bins())
            for feature, cells in zip(self.grid.features, self.cells, strict=True)
        ]
        self.described = BinMapper(
            tuple(merged_feature(cells, bins) for cells, bins in zip(self.grid.features, self.bins, strict=True))
        )
        self._sampled_noise = 0.0
        self.mu = 0.0
        self.open_budget()

    def open_budget(self) -> None:
        """Find out what may be spent, and by which accounting."""
        epsilon, delta = self.settings.epsilon, self.settings.delta
        self.budget = Budget(epsilon, delta)
        self.whole = self.budget.mu_squared
        self.mu = math.sqrt(self.whole)
        if self.rate < 1.0 and not math.isinf(epsilon):
            reserved = self.reserve * self.whole
            self._sampled_noise = calibrate.sampled_noise(self.rate, 1 + self.planned_trees, reserved, epsilon, delta)
            self.budget = PlannedBudget(epsilon, delta, PrivacyLoss())
            self.mu = 1.0 / self._sampled_noise

    @classmethod
    def planned_event(cls, settings: GaussianSettings) -> Event:
        """An upper bound of what a training with noise will cost, from settings alone."""
        mu_squared = Budget(settings.epsilon, settings.delta).mu_squared
        if settings.rate == 1.0:
            return Gaussian(math.sqrt(mu_squared) * (1.0 + 1e-9), 1.0)
        releases, reserved = 1 + (settings.n_trees or cls.N_TREES), settings.clipped_count_share * mu_squared
        noise = calibrate.sampled_noise(settings.rate, releases, reserved, settings.epsilon, settings.delta)
        return calibrate.sampled_event(settings.rate, releases, noise, reserved)

    def stages(self) -> list[Stage]:
        """What was asked for, for the statement."""
        n_releases = (self.n_requests or 0) - 1 - (self.loss == "squared" and self.rate == 1.0)
        if self.rate < 1.0:
            words = f"Each over a sample of the rows, of rate {self.rate:.4g}."
            return [self.stage("start and trees", None, n_releases + 1, words)]
        stages = [self.stage("start", START_SHARE, 1, "One sum over all rows: the base score.")]
        if self.loss == "squared":
            stages.append(self.stage("spread of the label", SQUARES_SHARE, 1))
        return stages + self.tree_stages(n_releases)

    def tree_stages(self, n_releases: int) -> list[Stage]:
        """Those after the start."""
        return [self.stage("trees", self.tree_share, n_releases, "Each tree sees all rows.")]

    def most_bins(self) -> int:
        """Of values per numeric column."""
        return 254

    def sigma(self, sensitivity: float, share: float, rounds: int) -> float:
        """All releases over samples have the same noise; else as the shares say."""
        if self._sampled_noise:
            return calibrate.sigma_for_mu(sensitivity, self._sampled_noise**-2)
        return super().sigma(sensitivity, share, rounds)

    # --- stages ------------------------------------------------------------------------------------------------------

    def requests(self) -> Asking:
        """Yields requests, is sent the noisy answers, and returns the Ensemble."""
        start = yield from self._start()
        base, scale = start.base_score, 1.0
        if self.schema.label_bounds is not None:
            base, scale = self.label_units(start.centre, start.spread)
        meta = {"policy": self.settings.policy, "n_rows_estimate": start.n_rows, "subsample": self.rate}
        model = Ensemble(self.described, self.loss, [base], classes=self.schema.classes, meta=meta)
        yield from self.grow(start, model, scale)
        if self.schema.label_bounds is not None:
            model.meta["prediction_bounds"] = list(self.schema.label_bounds)
        return model

    @abstractmethod
    def grow(self, start: Start, model: Ensemble, scale: float) -> Asking:
        """Ask for what trees need, and add them to the model."""

    def _start(self) -> Asking:
        """One sum over all rows at score 0, and in regression the sum of squares."""
        depth = self.start_depth()
        sums = yield self.request(
            "leaf_sums", 2 << depth, START_SHARE, 1, self.clip(None), update="start",
            features=np.arange(depth, dtype=np.int32), goes_right=np.zeros((depth, 256), np.uint8),
            bins=np.stack([bins.of_cell for bins in self.bins]),
        )  # fmt: skip
        gradient, hessian = sums[0] / UNIT, sums[1] / self.hessian_unit / self.rate
        if self.loss == "logistic":
            n_rows = max(4.0 * hessian, 1.0)
            return Start(n_rows, min(max(0.5 + gradient / self.rate / n_rows, 0.01), 0.99))
        n_rows = max(hessian, 1.0)
        centre = min(max(gradient / self.rate / n_rows, -0.5), 0.5)
        if self.rate < 1.0:
            return Start(n_rows, centre=centre, spread=USUAL_SPREAD)
        spread = yield from self.ask_spread(SQUARES_SHARE, n_rows, centre)
        return Start(n_rows, centre=centre, spread=spread)

    def start_depth(self) -> int:
        """Of the tree whose leftmost leaf holds everybody."""
        return 1

    # --- pieces ------------------------------------------------------------------------------------------------------

    def size(self, start: Start) -> Size:
        """How large the task is."""
        return Size.of_task(self.loss, start.n_rows, start.positive, self.mu)

    def clip(self, size: Size | None) -> float:
        """Of gradients; the start, and samples, have a fixed one."""
        if size is None or self.rate < 1.0:
            return 0.75 if self.loss == "logistic" else 1.5
        return size.clips[0]

    @property
    def tree_share(self) -> float:
        """Of the budget, for what comes after the start."""
        return 1.0 - START_SHARE - (SQUARES_SHARE if self.loss == "squared" else 0.0)

    def first_update(self, start: Start) -> dict[str, Any]:
        """What the first request after the start tells the rows."""
        return {
            "update": "start", "bins": np.stack([bins.of_cell for bins in self.bins]),
            "base_score": start.base_score, "centre": start.centre, "spread": start.spread,
        }  # fmt: skip

    def leaf_values(self, sums: Ints) -> tuple[Floats, Floats]:
        """Noisy Newton steps, and the hessians as weights that are above 0."""
        gradients, hessians = sums[0::2] / UNIT, sums[1::2] / self.hessian_unit
        steps = self.learning_rate * gradients / self.denominator(hessians, self.noise / UNIT)
        return np.clip(steps, -LARGEST_STEP, LARGEST_STEP), np.maximum(hessians, 1.0)

    def denominator(self, hessians: Floats, noise: float | Floats) -> Floats:
        """Of steps and scores: max(0, H) + l2 + noise, never 0."""
        return np.maximum(np.maximum(hessians, 0.0) + self.l2 + noise, 1e-9)


class RandomTrees(Policy):
    """Oblivious trees of random columns and thresholds."""

    N_TREES = 200
    MAX_DEPTH = 4

    def _depth(self, size: Size | None) -> int:
        wanted = self.settings.max_depth or (self.MAX_DEPTH if size is None or self.rate < 1.0 else size.depth)
        return min(wanted, len(self.cells))

    def start_depth(self) -> int:
        """All releases of a sampled training are alike."""
        return self._depth(None) if self.rate < 1.0 else 1

    def grow(self, start: Start, model: Ensemble, scale: float) -> Asking:
        """One release per tree."""
        size = self.size(start)
        depth, clip = self._depth(size), self.clip(size)
        n_trees = self.planned_trees if self.rate < 1.0 else self.settings.n_trees or size.n_trees
        self.n_requests = self.number + n_trees
        update = self.first_update(start)
        for _ in range(n_trees):
            features, goes_right = self._draw(depth)
            sums = yield self.request(
                "leaf_sums", 2 << depth, self.tree_share, n_trees, clip, features=features, goes_right=goes_right,
                **update,
            )  # fmt: skip
            leaves, weights = self.leaf_values(sums)
            (tree,) = oblivious_trees(features, goes_right, model.features, leaves[None] * scale, weights[None])
            model.append(tree, checked=True)
            update = {"update": "leaves", "update_values": leaves}
        model.meta |= {"n_trees": n_trees, "depth": depth, "clips": [clip, clip]}

    def _draw(self, depth: int) -> tuple[Int32s, Bytes]:
        features = self.rng.choice(len(self.cells), size=depth, replace=False)
        goes_right = np.empty((depth, 256), np.uint8)
        for row, number in zip(goes_right, features.tolist(), strict=True):
            feature = self.described.features[number]
            row[:] = self.rng.integers(0, 2)
            n = feature.n_value_bins
            if feature.is_categorical:
                row[:n] = self.rng.integers(0, 2, n)
            else:
                row[:n] = np.arange(n) > self.rng.integers(0, max(n - 1, 1))
        return features.astype(np.int32), goes_right


class CyclicTables(Policy):
    """One column at a time, in turn; what a column has learned is one tree in the end."""

    N_TREES = 200
    MAX_DEPTH = 5

    def most_bins(self) -> int:
        """As many as leaves of a tree of that depth."""
        return 1 << min(self.settings.max_depth or self.MAX_DEPTH, 7)

    def grow(self, start: Start, model: Ensemble, scale: float) -> Asking:
        """One release per turn."""
        n_columns = len(self.cells)
        n_trees = self.planned_trees if self.rate < 1.0 else self.settings.n_trees or 10 * n_columns
        clip = self.clip(self.size(start))
        self.n_requests = self.number + n_trees
        tables = [np.zeros(bins.n_bins) for bins in self.bins]
        weights = [np.ones(bins.n_bins) for bins in self.bins]
        update = self.first_update(start)
        for t in range(n_trees):
            j = t % n_columns
            sums = yield self.request(
                "bin_sums", 2 * self.bins[j].n_bins, self.tree_share, n_trees, clip,
                features=np.array([j], np.int32), **update,
            )  # fmt: skip
            step, weights[j] = self.leaf_values(sums)
            tables[j] += step
            update = {"update": "table", "update_feature": j, "update_values": padded([step])[0]}
        for j, feature in enumerate(model.features):
            model.append(table_tree(j, feature, tables[j] * scale, weights[j]), checked=True)
        model.meta |= {"n_trees": n_trees, "clips": [clip, clip]}


class Candidates(NamedTuple):
    """All splits that a node may be given, as parallel arrays."""

    feature: Int32s
    goes_right: Bytes
    """[candidates, 256]."""

    @classmethod
    def of(cls, described: BinMapper) -> Candidates:
        """Those of the bins of all columns."""
        features, rows = [], []
        for j, feature in enumerate(described.features):
            codes = np.arange(256)
            n_cuts = feature.n_value_bins - (not feature.is_categorical)
            for b in range(n_cuts):
                features.append(j)
                rows.append(codes != b if feature.is_categorical else codes > b)
        if not features:
            raise InvalidInput("the schema leaves nothing to split: every column has a single bin")
        return cls(np.array(features, np.int32), np.array(rows, np.uint8))


class GrownTrees(Policy):
    """Trees whose splits are chosen from top to bottom, then leaves."""

    N_TREES = 30
    MAX_DEPTH = 3

    def most_bins(self) -> int:
        """Few, since each bin of each node has noise of its own."""
        return 32

    @property
    def depth(self) -> int:
        """Of every tree."""
        return self.settings.max_depth or self.MAX_DEPTH

    def grow(self, start: Start, model: Ensemble, scale: float) -> Asking:
        """One release per level, and one for the leaves."""
        n_trees, depth = self.planned_trees, self.depth
        clip = self.clip(self.size(start) if self.settings.policy == "histogram" else None)
        self.n_requests = self.number + n_trees * (depth + 1)
        update = self.first_update(start)
        for _ in range(n_trees):
            features, rights = np.empty(0, np.int32), np.empty((0, 256), np.uint8)
            last: dict[str, Any] = {}
            for level in range(depth):
                chosen, right = yield from self._split(level, n_trees * depth, clip, last | update)
                update = {}
                features, rights = np.concatenate([features, chosen]), np.concatenate([rights, right])
                last = {"split_features": chosen, "split_right": right}
            share = (1.0 - SPLIT_SHARE) * self.tree_share
            sums = yield self.request("node_leaves", 2 << depth, share, n_trees, clip, depth=depth, **last)
            leaves, weights = self.leaf_values(sums)
            model.append(perfect_tree(features, rights, model.features, leaves * scale, weights), checked=True)
            update = {"update": "leaves", "update_values": leaves}
        model.meta |= {"n_trees": n_trees, "depth": depth, "clips": [clip, clip]}

    def tree_stages(self, n_releases: int) -> list[Stage]:
        """Choices, and leaves."""
        n_trees, share, depth = n_releases // (self.depth + 1), self.tree_share, self.depth
        choices = self.settings.policy == "exponential"
        how = "exponential mechanism" if choices else "discrete Gaussian noise on histograms"
        words = f"{n_trees} trees of {depth} levels, all rows each."
        return [
            self.stage("splits", SPLIT_SHARE * share, n_trees * depth, words, how),
            self.stage("leaves", (1.0 - SPLIT_SHARE) * share, n_trees),
        ]

    @abstractmethod
    def _split(self, level: int, rounds: int, clip: float, fields: dict[str, Any]) -> Asking:
        """Ask about the nodes of a level; returns (column, goes_right) of each node's split."""


class HistogramTrees(GrownTrees):
    """Splits from noisy histograms of a few random columns."""

    def _split(self, level: int, rounds: int, clip: float, fields: dict[str, Any]) -> Asking:
        n_nodes = 1 << level
        columns = self.rng.choice(len(self.cells), min(COLUMNS_PER_LEVEL, len(self.cells)), replace=False)
        sizes = [self.bins[j].n_bins for j in columns]
        sums = yield self.request(
            "node_sums", 2 * n_nodes * sum(sizes), SPLIT_SHARE * self.tree_share, rounds, clip, depth=level,
            features=columns.astype(np.int32), **fields,
        )  # fmt: skip
        noise = self.noise / UNIT
        best = np.full(n_nodes, -math.inf)
        features, rights = np.zeros(n_nodes, np.int32), np.zeros((n_nodes, 256), np.uint8)
        ends = np.cumsum([2 * n_nodes * size for size in sizes])[:-1]
        for j, part in zip(columns.tolist(), np.split(sums, ends), strict=True):
            pairs = part.reshape(n_nodes, -1, 2)
            gradients, hessians = pairs[:, :, 0] / UNIT, pairs[:, :, 1] / self.hessian_unit
            feature = self.described.features[j]
            order = np.tile(np.arange(feature.n_value_bins), (n_nodes, 1))
            if feature.is_categorical:  # levels from low to high, as far as can be seen
                seen = gradients / self.denominator(hessians, noise)
                order = np.argsort(seen[:, : feature.n_value_bins], axis=1, kind="stable")
            ordered = [np.take_along_axis(half, order, axis=1) for half in (gradients, hessians)]
            left = [np.cumsum(half, axis=1)[:, :-1] for half in ordered]
            if left[0].shape[1] == 0:
                continue
            bins_left = np.arange(1, left[0].shape[1] + 1)
            score = self._score(left[0], left[1], bins_left, noise) + self._score(
                gradients.sum(axis=1, keepdims=True) - left[0], hessians.sum(axis=1, keepdims=True) - left[1],
                gradients.shape[1] - bins_left, noise,
            )  # fmt: skip
            cut = score.argmax(axis=1)
            for node in np.flatnonzero(score.max(axis=1) > best).tolist():
                best[node] = score[node, cut[node]]
                features[node] = j
                rights[node] = 1
                rights[node, order[node, : cut[node] + 1]] = 0
        return features, rights

    def _score(self, gradient: Floats, hessian: Floats, n_bins: Ints, noise: float) -> Floats:
        """G^2 / (H + l2) less what noise alone would give: the square of a sum of n noises is n noise^2 on average."""
        spread = np.sqrt(n_bins) * noise
        scores: Floats = (gradient**2 - spread**2) / self.denominator(hessian, spread)
        return scores


class ExponentialTrees(GrownTrees):
    """Splits by the exponential mechanism over all candidates, with counts as denominators."""

    def open_budget(self) -> None:
        """Choices and Gaussian sums are paid for together in zCDP."""
        epsilon, delta = self.settings.epsilon, self.settings.delta
        self.budget = PlannedBudget(epsilon, delta, ZeroConcentratedDP())
        self.whole, self.sigma_for = rho_for(epsilon, delta), calibrate.sigma_for_rho
        self.mu = math.sqrt(2.0 * self.whole)
        self._candidates = Candidates.of(self.described)

    @classmethod
    def planned_event(cls, settings: GaussianSettings) -> Event:
        """Choices and Gaussian sums, whatever the schema is."""
        rho = rho_for(settings.epsilon, settings.delta)
        n_choices = (settings.n_trees or cls.N_TREES) * (settings.max_depth or cls.MAX_DEPTH)
        choice = Exponential(1.0, _choice_epsilon((1.0 - settings.clipped_count_share) * rho, n_choices))
        rest = rho - n_choices * choice.epsilon**2 / 8.0
        return Composed((Repeated(choice, n_choices), Gaussian(math.sqrt(2.0 * rest) * (1.0 + 1e-9), 1.0)))

    def is_enough(self, request: SumRequest, event: Event) -> bool:
        """A choice has the very event that was planned."""
        if request.kind == "node_gains":
            return event == request.event() or (isinstance(event, NonPrivate) and math.isinf(self.whole))
        return super().is_enough(request, event)

    def _split(self, level: int, rounds: int, clip: float, fields: dict[str, Any]) -> Asking:
        epsilon = _choice_epsilon((1.0 - self.reserve) * self.whole, rounds)
        self.number += 1
        request = NodeRequest(
            self.number, "node_gains", 0, 0, 0.0, clip=int(clip * UNIT), depth=level, l2=self.l2,
            choice_epsilon=epsilon, **fields,
        )  # fmt: skip
        self.budget.accountant.check(request.event())
        chosen = yield request
        return self._candidates.feature[chosen], self._candidates.goes_right[chosen]


def _public_bins(feature: FeatureBins, cells: int, most: int) -> Bins:
    """Neighbouring cells put together until there are at most `most` bins; levels and missing values stay apart."""
    of_cell = np.zeros(256, np.uint8)
    n_values = feature.n_value_bins
    n_bins = n_values if feature.is_categorical else min(n_values, most)
    of_cell[:n_values] = np.arange(n_values) if feature.is_categorical else np.arange(n_values) * n_bins // n_values
    of_cell[n_values:cells] = n_bins
    total = n_bins + cells - n_values
    return Bins(of_cell, total, 0 if feature.is_categorical else n_bins, np.ones(total))


def _choice_epsilon(rho: float, choices: int) -> float:
    """A choice costs epsilon^2 / 8. The share is that of the smaller of the two losses' trees."""
    return math.sqrt(8.0 * SPLIT_SHARE * (1.0 - START_SHARE - SQUARES_SHARE) * rho / choices)


POLICIES: dict[str, type[Policy]] = {
    "random": RandomTrees, "cyclic": CyclicTables, "histogram": HistogramTrees, "exponential": ExponentialTrees,
}  # fmt: skip
