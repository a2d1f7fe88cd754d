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
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import Bytes, Floats, Int32s, Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.accountants import PrivacyLoss, ZeroConcentratedDP
from hedgerow.privacy.calibrate import Budget, rho_for, sigma_for_mu, sigma_for_rho
from hedgerow.privacy.events import Composed, Event, Exponential, Gaussian, NonPrivate, PoissonSampled, Repeated
from hedgerow.protocols.central.gaussian.growing import Candidates, NodeRequest, node_sensitivity_squared
from hedgerow.protocols.central.gaussian.plans import PlannedBudget, sampled_event, sampled_noise
from hedgerow.protocols.central.gaussian.recipe import Size
from hedgerow.protocols.central.gaussian.requests import MAX_DEPTH, UNIT, SumRequest
from hedgerow.protocols.central.gaussian.tables import Bins, padded
from hedgerow.protocols.central.gaussian.training import Asking, Training
from hedgerow.protocols.central.gaussian.trees import merged_feature, oblivious_tree, perfect_tree, table_tree
from hedgerow.schema import Schema

START_SHARE = 0.02
"""For the sum over all rows that gives the base score."""

SQUARES_SHARE = 0.01
"""For the spread of the labels in regression."""

USUAL_SPREAD = 0.25
"""Standard deviation of labels that nobody has measured, as a share of their range."""

SPLIT_SHARE = 0.5
"""Of what trees cost that choose their splits: for the splits; the rest is for leaves."""

LARGEST_STEP = 5.0
"""Of a leaf, in log odds or standard deviations: without noise and l2, a leaf of few rows could want any."""

COLUMNS_PER_LEVEL = 4
"""histogram: how many random columns each level looks at."""


@dataclass(frozen=True)
class PolicySettings:
    """What all policies take; None means the policy's own default."""

    n_trees: int | None = None
    max_depth: int | None = None
    learning_rate: float | None = None
    l2: float | None = None
    subsample: float = 1.0

    def __post_init__(self) -> None:
        for name, value, most in (("n_trees", self.n_trees, 10**6), ("max_depth", self.max_depth, MAX_DEPTH)):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (whole and 1 <= value <= most):
                raise InvalidParameter(f"{name} must be a whole number from 1 to {most}, got {value!r}")
        rate, l2, share = self.learning_rate, self.l2, self.subsample
        if rate is not None and not (_is_number(rate) and 0.0 < rate <= 10.0):
            raise InvalidParameter(f"learning_rate must be above 0 and at most 10, got {rate!r}")
        if l2 is not None and not (_is_number(l2) and 0.0 <= l2 < math.inf):
            raise InvalidParameter(f"l2 must be a finite number of at least 0, got {l2!r}")
        if not (_is_number(share) and 0.0 < share <= 1.0):
            raise InvalidParameter(f"subsample must be above 0 and at most 1, got {share!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


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

    NAME: ClassVar[str]
    N_TREES: ClassVar[int]
    MAX_DEPTH: ClassVar[int]
    LEARNING_RATE: ClassVar[float] = 0.3
    L2: ClassVar[float] = 1.0
    CAN_SAMPLE: ClassVar[bool] = False
    MOST_BINS: ClassVar[int] = 254

    def __init__(
        self,
        schema: Schema,
        *,
        epsilon: float,
        delta: float,
        seed: int = 0,
        reserve: float = 0.0,
        settings: PolicySettings | None = None,
    ) -> None:
        super().__init__(schema, seed=seed, reserve=reserve, multiclass=False)
        self.settings = settings or PolicySettings()
        self.rate = rate_of(self.settings.subsample)
        if self.rate < 1.0 and not self.CAN_SAMPLE:
            raise InvalidParameter(f"subsample is for the policies random and cyclic, not for {self.NAME}")
        self.learning_rate = self.settings.learning_rate or self.LEARNING_RATE
        self.l2 = self.L2 if self.settings.l2 is None else float(self.settings.l2)
        self._sampled_noise = 0.0
        self._bins = [
            _public_bins(feature, cells, self.MOST_BINS)
            for feature, cells in zip(self._grid.features, self._cells, strict=True)
        ]
        self.described = BinMapper(
            tuple(merged_feature(cells, bins) for cells, bins in zip(self._grid.features, self._bins, strict=True))
        )
        self._open(epsilon, delta)

    def _open(self, epsilon: float, delta: float) -> None:
        """Get the purse."""
        budget = Budget(epsilon, delta)
        self._whole_mu_squared = budget.mu_squared
        if self.rate == 1.0 or math.isinf(epsilon):
            self.budget = budget
            self._mu = math.sqrt(budget.mu_squared)
            return
        reserved = self.reserve * budget.mu_squared
        self._sampled_noise = sampled_noise(self.rate, 1 + self._planned_trees(), reserved, epsilon, delta)
        self.budget = PlannedBudget(epsilon, delta, PrivacyLoss())
        self._mu = 1.0 / self._sampled_noise

    def _planned_trees(self) -> int:
        return self.settings.n_trees or self.N_TREES

    @classmethod
    def planned_event(cls, settings: PolicySettings, epsilon: float, delta: float, reserve: float) -> Event:
        """An upper bound of what the training will cost, from settings alone."""
        if math.isinf(epsilon):
            return NonPrivate("no noise was asked for")
        mu_squared = Budget(epsilon, delta).mu_squared
        rate = rate_of(settings.subsample)
        if rate == 1.0:
            return Gaussian(math.sqrt(mu_squared) * (1.0 + 1e-9), 1.0)
        releases, reserved = 1 + (settings.n_trees or cls.N_TREES), reserve * mu_squared
        return sampled_event(rate, releases, sampled_noise(rate, releases, reserved, epsilon, delta), reserved)

    def stages(self, gaussian: str) -> list[tuple[str, str, float | None, int, str]]:
        """For the statement: (name, mechanism, share of what the policy has, releases, words) of each stage."""
        n_trees = (self.n_requests or 0) - 1 - (self.loss == "squared" and self.rate == 1.0)
        if self.rate < 1.0:
            words = f"Each over a sample of the rows, of rate {self.rate:.4g}."
            return [("start and trees", gaussian, None, n_trees + 1, words)]
        stages: list[tuple[str, str, float | None, int, str]] = [
            ("start", gaussian, START_SHARE, 1, "One sum over all rows: the base score.")
        ]
        if self.loss == "squared":
            stages.append(("spread of the label", gaussian, SQUARES_SHARE, 1, ""))
        return stages + self._tree_stages(gaussian, n_trees)

    def _tree_stages(self, gaussian: str, n_releases: int) -> list[tuple[str, str, float | None, int, str]]:
        return [("trees", gaussian, self._tree_share, n_releases, "Each tree sees all rows.")]

    # --- noise -------------------------------------------------------------------------------------------------------

    def _sigma(self, sensitivity: float, share: float, rounds: int) -> float:
        if self._sampled_noise:
            return sigma_for_mu(sensitivity, self._sampled_noise**-2)
        return super()._sigma(sensitivity, share, rounds)

    def _is_enough(self, request: SumRequest, event: Event) -> bool:
        if not self._sampled_noise:
            return super()._is_enough(request, event)
        if not isinstance(event, PoissonSampled) or event.rate > self.rate:
            return False
        return super()._is_enough(request, event.event)

    def reserve_sigma(self, sensitivity: float) -> float:
        """The noise of a release that uses up the reserve."""
        return sigma_for_mu(sensitivity, self.reserve * self._whole_mu_squared)

    def _leaf_values(self, gradients: Floats, hessians: Floats) -> tuple[Floats, Floats]:
        """Noisy Newton steps, and the hessians as weights that are above 0."""
        noise = self._noise / UNIT
        steps = self.learning_rate * gradients / self._below(hessians, noise)
        return np.clip(steps, -LARGEST_STEP, LARGEST_STEP), np.maximum(hessians, 1.0)

    def _below(self, hessians: Floats, noise: float | Floats) -> Floats:
        """The denominator of steps and scores: max(0, H) + l2 + noise, never 0."""
        return np.maximum(np.maximum(hessians, 0.0) + self.l2 + noise, 1e-9)

    # --- stages ------------------------------------------------------------------------------------------------------

    def requests(self) -> Asking:
        """Yields requests, is sent the noisy answers, and returns the Ensemble."""
        start = yield from self._start()
        bounds = self.schema.label_bounds
        if bounds is None:
            base, scale = start.base_score, 1.0
        else:
            base = (start.centre + 0.5) * (bounds[1] - bounds[0]) + bounds[0]
            scale = start.spread * (bounds[1] - bounds[0])
        meta: dict[str, Any] = {"policy": self.NAME, "n_rows_estimate": start.n_rows, "subsample": self.rate}
        model = Ensemble(self.described, self.loss, [base], classes=self.schema.classes, meta=meta)
        yield from self._grow(start, model, scale)
        if bounds is not None:
            model.meta["prediction_bounds"] = list(bounds)
        return model

    @abstractmethod
    def _grow(self, start: Start, model: Ensemble, scale: float) -> Asking:
        """Ask for what trees need, and add them to the model."""

    def _start(self) -> Asking:
        """One sum over all rows at score 0, and in regression the sum of squares."""
        depth = self._start_depth()
        sums = yield self._request(
            "leaf_sums", 2 << depth, START_SHARE, 1, self._clip(None), update="start",
            features=np.arange(depth, dtype=np.int32), goes_right=np.zeros((depth, 256), np.uint8),
            bins=np.stack([bins.of_cell for bins in self._bins]),
        )  # fmt: skip
        gradient, hessian = sums[0] / UNIT, sums[1] / self._hessian_unit / self.rate
        if self.loss == "logistic":
            n_rows = max(4.0 * hessian, 1.0)
            return Start(n_rows, min(max(0.5 + gradient / self.rate / n_rows, 0.01), 0.99))
        n_rows = max(hessian, 1.0)
        centre = min(max(gradient / self.rate / n_rows, -0.5), 0.5)
        if self.rate < 1.0:
            return Start(n_rows, centre=centre, spread=USUAL_SPREAD)
        squares = yield self._request("squares", 1, SQUARES_SHARE, 1)
        variance = float(squares[0]) / UNIT / n_rows - centre**2
        return Start(n_rows, centre=centre, spread=math.sqrt(max(variance, 0.05**2)))

    def _start_depth(self) -> int:
        return 1

    def _clip(self, size: Size | None) -> float:
        """Of gradients; the start, and samples, have a fixed one."""
        if size is None:
            return 0.75 if self.loss == "logistic" else 1.5
        return size.clips[0]

    def _size(self, start: Start) -> Size:
        return Size.of_task(self.loss, start.n_rows, start.positive, self._mu)

    @property
    def _tree_share(self) -> float:
        return 1.0 - START_SHARE - (SQUARES_SHARE if self.loss == "squared" else 0.0)

    def _first_update(self, start: Start) -> dict[str, Any]:
        return {
            "update": "start", "bins": np.stack([bins.of_cell for bins in self._bins]),
            "base_score": start.base_score, "centre": start.centre, "spread": start.spread,
        }  # fmt: skip

    def _pairs(self, sums: Ints) -> tuple[Floats, Floats]:
        return sums[0::2] / UNIT, sums[1::2] / self._hessian_unit


class RandomTrees(Policy):
    """Oblivious trees of random columns and thresholds."""

    NAME = "random"
    N_TREES = 200
    MAX_DEPTH = 4
    CAN_SAMPLE = True

    def _depth(self, size: Size | None) -> int:
        wanted = self.settings.max_depth or (self.MAX_DEPTH if size is None or self.rate < 1.0 else size.depth)
        return min(wanted, len(self._cells))

    def _start_depth(self) -> int:
        return self._depth(None) if self.rate < 1.0 else 1  # all releases of a sampled training are alike

    def _grow(self, start: Start, model: Ensemble, scale: float) -> Asking:
        size = self._size(start)
        depth = self._depth(size)
        n_trees = self._planned_trees() if self.rate < 1.0 else self.settings.n_trees or size.n_trees
        clip = self._clip(None if self.rate < 1.0 else size)
        self.n_requests = self._number + n_trees
        update = self._first_update(start)
        for _ in range(n_trees):
            features, goes_right = self._draw(depth)
            sums = yield self._request(
                "leaf_sums", 2 << depth, self._tree_share, n_trees, clip, features=features, goes_right=goes_right,
                **update,
            )  # fmt: skip
            leaves, weights = self._leaf_values(*self._pairs(sums))
            model.append(oblivious_tree(features, goes_right, model.features, leaves * scale, weights), checked=True)
            update = {"update": "leaves", "update_values": leaves}
        model.meta |= {"n_trees": n_trees, "depth": depth, "clips": [clip, clip]}

    def _draw(self, depth: int) -> tuple[Int32s, Bytes]:
        features = self._rng.choice(len(self._cells), size=depth, replace=False)
        goes_right = np.empty((depth, 256), np.uint8)
        for row, number in zip(goes_right, features.tolist(), strict=True):
            feature = self.described.features[number]
            row[:] = self._rng.integers(0, 2)
            n = feature.n_value_bins
            if feature.is_categorical:
                row[:n] = self._rng.integers(0, 2, n)
            else:
                row[:n] = np.arange(n) > self._rng.integers(0, max(n - 1, 1))
        return features.astype(np.int32), goes_right


class CyclicTables(Policy):
    """One column at a time, in turn; what a column has learned is one tree in the end."""

    NAME = "cyclic"
    N_TREES = 200
    MAX_DEPTH = 5
    CAN_SAMPLE = True

    def __init__(self, schema: Schema, *, settings: PolicySettings | None = None, **rest: Any) -> None:
        depth = (settings or PolicySettings()).max_depth or self.MAX_DEPTH
        self.MOST_BINS = 1 << min(depth, 7)  # type: ignore[misc]  # this training's own
        super().__init__(schema, settings=settings, **rest)

    def _grow(self, start: Start, model: Ensemble, scale: float) -> Asking:
        n_columns = len(self._cells)
        n_trees = self._planned_trees() if self.rate < 1.0 else self.settings.n_trees or 10 * n_columns
        clip = self._clip(None if self.rate < 1.0 else self._size(start))
        self.n_requests = self._number + n_trees
        tables = [np.zeros(bins.n_bins) for bins in self._bins]
        weights = [np.ones(bins.n_bins) for bins in self._bins]
        update = self._first_update(start)
        for t in range(n_trees):
            j = t % n_columns
            sums = yield self._request(
                "bin_sums", 2 * self._bins[j].n_bins, self._tree_share, n_trees, clip,
                features=np.array([j], np.int32), **update,
            )  # fmt: skip
            step, weights[j] = self._leaf_values(*self._pairs(sums))
            tables[j] += step
            update = {"update": "table", "update_feature": j, "update_values": padded([step])[0]}
        for j, feature in enumerate(model.features):
            model.append(table_tree(j, feature, tables[j] * scale, weights[j]), checked=True)
        model.meta |= {"n_trees": n_trees, "clips": [clip, clip]}


class _GrownTrees(Policy):
    """Trees whose splits are chosen from top to bottom, then leaves."""

    N_TREES = 30
    MAX_DEPTH = 3
    MOST_BINS = 32

    def _grow(self, start: Start, model: Ensemble, scale: float) -> Asking:
        n_trees, depth = self._planned_trees(), self.settings.max_depth or self.MAX_DEPTH
        clip = self._clip(self._size(start) if self.NAME == "histogram" else None)
        clip_units = int(clip * UNIT)
        self.n_requests = self._number + n_trees * (depth + 1)
        update = self._first_update(start)
        for _ in range(n_trees):
            features, rights = np.empty(0, np.int32), np.empty((0, 256), np.uint8)
            last: dict[str, Any] = {}
            for level in range(depth):
                chosen, right = yield from self._split(level, n_trees * depth, clip_units, last | update)
                update = {}
                features, rights = np.concatenate([features, chosen]), np.concatenate([rights, right])
                last = {"split_features": chosen, "split_right": right}
            share = (1.0 - SPLIT_SHARE) * self._tree_share
            sums = yield self._node_request(
                "node_leaves", 2 << depth, share, n_trees, clip=clip_units, depth=depth, **last
            )
            leaves, weights = self._leaf_values(*self._pairs(sums))
            model.append(perfect_tree(features, rights, model.features, leaves * scale, weights), checked=True)
            update = {"update": "leaves", "update_values": leaves}
        model.meta |= {"n_trees": n_trees, "depth": depth, "clips": [clip, clip]}

    def _tree_stages(self, gaussian: str, n_releases: int) -> list[tuple[str, str, float | None, int, str]]:
        depth = self.settings.max_depth or self.MAX_DEPTH
        n_trees, each = n_releases // (depth + 1), self._tree_share
        choices = "exponential mechanism" if self.NAME == "exponential" else "discrete Gaussian noise on histograms"
        return [
            (
                "splits",
                choices,
                SPLIT_SHARE * each,
                n_trees * depth,
                f"{n_trees} trees of {depth} levels, all rows each.",
            ),
            ("leaves", gaussian, (1.0 - SPLIT_SHARE) * each, n_trees, ""),
        ]

    def _node_request(self, kind: str, n_sums: int, share: float, rounds: int, *, clip: int, **fields: Any) -> Any:
        columns = fields.get("features", np.empty(0, np.int32))
        squared = node_sensitivity_squared(kind, self.loss, len(columns), clip)
        return self._made(NodeRequest, kind, n_sums, squared, share, rounds, clip=clip, **fields)

    @abstractmethod
    def _split(self, level: int, rounds: int, clip: int, fields: dict[str, Any]) -> Asking:
        """Ask about the nodes of a level; returns (column, goes_right) of each node's split."""


class HistogramTrees(_GrownTrees):
    """Splits from noisy histograms of a few random columns."""

    NAME = "histogram"

    def _split(self, level: int, rounds: int, clip: int, fields: dict[str, Any]) -> Asking:
        n_nodes = 1 << level
        columns = self._rng.choice(len(self._cells), min(COLUMNS_PER_LEVEL, len(self._cells)), replace=False)
        sizes = [self._bins[j].n_bins for j in columns]
        sums = yield self._node_request(
            "node_sums", 2 * n_nodes * sum(sizes), SPLIT_SHARE * self._tree_share, rounds, clip=clip, depth=level,
            features=columns.astype(np.int32), **fields,
        )  # fmt: skip
        noise = self._noise / UNIT
        best = np.full(n_nodes, -math.inf)
        features, rights = np.zeros(n_nodes, np.int32), np.zeros((n_nodes, 256), np.uint8)
        ends = np.cumsum([2 * n_nodes * size for size in sizes])[:-1]
        for j, part in zip(columns.tolist(), np.split(sums, ends), strict=True):
            pairs = part.reshape(n_nodes, -1, 2)
            gradients, hessians = pairs[:, :, 0] / UNIT, pairs[:, :, 1] / self._hessian_unit
            feature = self.described.features[j]
            order = np.tile(np.arange(feature.n_value_bins), (n_nodes, 1))
            if feature.is_categorical:  # levels from low to high, as far as can be seen
                seen = gradients / self._below(hessians, noise)
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
        scores: Floats = (gradient**2 - spread**2) / self._below(hessian, spread)
        return scores


class ExponentialTrees(_GrownTrees):
    """Splits by the exponential mechanism over all candidates, with counts as denominators."""

    NAME = "exponential"

    def _open(self, epsilon: float, delta: float) -> None:
        self.budget: Any = PlannedBudget(epsilon, delta, ZeroConcentratedDP())
        self._rho = rho_for(epsilon, delta)
        self._mu = math.sqrt(2.0 * self._rho)
        self._candidates = Candidates.of(self.described)

    @classmethod
    def planned_event(cls, settings: PolicySettings, epsilon: float, delta: float, reserve: float) -> Event:
        """Choices and Gaussian sums, whatever the schema is."""
        if math.isinf(epsilon):
            return NonPrivate("no noise was asked for")
        rho = rho_for(epsilon, delta)
        n_trees, depth = settings.n_trees or cls.N_TREES, settings.max_depth or cls.MAX_DEPTH
        whole = (1.0 - reserve) * rho
        n_choices = n_trees * depth
        choice = Exponential(1.0, cls._choice_epsilon(whole, n_choices))
        rest = rho - n_choices * choice.epsilon**2 / 8.0
        return Composed((Repeated(choice, n_choices), Gaussian(math.sqrt(2.0 * rest) * (1.0 + 1e-9), 1.0)))

    @staticmethod
    def _choice_epsilon(rho: float, choices: int) -> float:
        """A choice costs epsilon^2 / 8. The share is that of the smaller of the two losses' trees."""
        return math.sqrt(8.0 * SPLIT_SHARE * (1.0 - START_SHARE - SQUARES_SHARE) * rho / choices)

    def _sigma(self, sensitivity: float, share: float, rounds: int) -> float:
        return sigma_for_rho(sensitivity, share * (1.0 - self.reserve) * self._rho / rounds)

    def reserve_sigma(self, sensitivity: float) -> float:
        """The noise of a release that uses up the reserve."""
        return sigma_for_rho(sensitivity, self.reserve * self._rho)

    def _is_enough(self, request: SumRequest, event: Event) -> bool:
        if request.kind == "node_gains":
            return event == request.event() or (isinstance(event, NonPrivate) and math.isinf(self._rho))
        return super()._is_enough(request, event)

    def _split(self, level: int, rounds: int, clip: int, fields: dict[str, Any]) -> Asking:
        epsilon = self._choice_epsilon((1.0 - self.reserve) * self._rho, rounds)
        self._number += 1
        request = NodeRequest(
            self._number, "node_gains", 0, 0, 0.0, clip=clip, depth=level, l2=self.l2, choice_epsilon=epsilon, **fields
        )
        self.budget.accountant.check(request.event())
        chosen = yield request
        return self._candidates.feature[chosen], self._candidates.goes_right[chosen]


POLICIES: dict[str, type[Policy]] = {
    policy.NAME: policy for policy in (RandomTrees, CyclicTables, HistogramTrees, ExponentialTrees)
}


def rate_of(subsample: float) -> float:
    """The chance of a row as 32 random bits can have it: a multiple of 2^-32, rounded down."""
    return max(math.floor(subsample * 2.0**32), 1) / 2.0**32


def _public_bins(feature: FeatureBins, cells: int, most: int) -> Bins:
    """Neighbouring cells put together until there are at most `most` bins; levels and missing values stay apart."""
    of_cell = np.zeros(256, np.uint8)
    n_values = feature.n_value_bins
    n_bins = n_values if feature.is_categorical else min(n_values, most)
    of_cell[:n_values] = np.arange(n_values) if feature.is_categorical else np.arange(n_values) * n_bins // n_values
    of_cell[n_values:cells] = n_bins
    total = n_bins + cells - n_values
    return Bins(of_cell, total, 0 if feature.is_categorical else n_bins, np.ones(total))
