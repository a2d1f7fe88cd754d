"""Policies that grow trees level by level: a question about all nodes of a level, then the next level, then leaves.

Candidates. Of a numeric column: after each bin but the last; missing values go right. Of a categorical one: each level
on its own goes left. Which they are follows from the schema alone.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bytes, Floats, Int32s, Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidInput
from hedgerow.privacy.accountants import ZeroConcentratedDP
from hedgerow.privacy.calibrate import PlannedBudget, rho_for, sigma_for_rho
from hedgerow.privacy.events import Composed, Event, Exponential, Gaussian, NonPrivate, Repeated
from hedgerow.protocols.central.gaussian.policies import (
    SQUARES_SHARE,
    START_SHARE,
    CyclicTables,
    Policy,
    RandomTrees,
    Start,
)
from hedgerow.protocols.central.gaussian.requests import UNIT, NodeRequest, SumRequest
from hedgerow.protocols.central.gaussian.settings import GaussianSettings
from hedgerow.protocols.central.gaussian.training import Asking
from hedgerow.protocols.central.gaussian.trees import perfect_tree
from hedgerow.statement import Stage

SPLIT_SHARE = 0.5
"""Of what trees cost that choose their splits: for the splits; the rest is for leaves."""

COLUMNS_PER_LEVEL = 4
"""histogram: how many random columns each level looks at."""


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
        self.whole, self.sigma_for = rho_for(epsilon, delta), sigma_for_rho
        self.mu = math.sqrt(2.0 * self.whole)
        self._candidates = Candidates.of(self.described)

    @classmethod
    def planned_event(cls, settings: GaussianSettings) -> Event:
        """Choices and Gaussian sums, whatever the schema is."""
        if math.isinf(settings.epsilon):
            return NonPrivate("no noise was asked for")
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


def _choice_epsilon(rho: float, choices: int) -> float:
    """A choice costs epsilon^2 / 8. The share is that of the smaller of the two losses' trees."""
    return math.sqrt(8.0 * SPLIT_SHARE * (1.0 - START_SHARE - SQUARES_SHARE) * rho / choices)


POLICIES: dict[str, type[Policy]] = {
    "random": RandomTrees, "cyclic": CyclicTables, "histogram": HistogramTrees, "exponential": ExponentialTrees,
}  # fmt: skip
