"""The recipe: which sums to ask for next, and what model follows from the noisy answers.

Stage 0 asks for histograms of the labels over the public grid: they give bins, the base score and the size of the task.
Stage 1 makes ten rounds over the columns, each time improving one column's table from noisy gradient sums per bin.
Stage 2 adds random oblivious trees, drawn where the tables say that something happens, with noisy Newton leaves.

Every number here is public (schema, budget, seed, constants) or follows from released sums, so that none of it costs
anything beyond the sums. In particular the number of rows is private when a record may be added or removed; only its
noisy estimate is used. The shares of the budget and all constants come from a study that compared settings by test AUC
on five public datasets (Adult, default_credit_card, give_me_some_credit, covtype, susy_30k); nothing is fitted to the
rows at hand, but figures on those five are a little flattered by that choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bytes, Floats, Int32s, Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.budget import Budget
from hedgerow.privacy.calibrate import sigma_for_mu
from hedgerow.privacy.events import DiscreteGaussian, Event, NonPrivate
from hedgerow.privacy.mechanisms import Released
from hedgerow.protocols.private_boosting.grid import cells_of, grid_of
from hedgerow.protocols.private_boosting.requests import (
    COUNT_UNIT,
    HESSIAN_WEIGHT,
    UNIT,
    Kind,
    SumRequest,
    record_sensitivity_squared,
)
from hedgerow.protocols.private_boosting.rows import loss_of
from hedgerow.protocols.private_boosting.tables import (
    Bins,
    FeatureTable,
    merged,
    order_of,
    padded,
    split_shares,
    spread,
)
from hedgerow.protocols.private_boosting.trees import merged_feature, oblivious_tree, table_tree
from hedgerow.schema import NumericColumn, Schema

SHARES = {"logistic": (0.15, 0.0, 0.425, 0.425), "squared": (0.15, 0.01, 0.42, 0.42)}
"""Of the squared mu: histograms, sum of squares, stage 1, stage 2."""

PASSES = 10
AVERAGED_PASSES = 5
MOST_BINS = 250
TREE_RATE = 0.2
TREE_TRUST = 100.0

Asking = Generator[SumRequest, Ints, Any]


@dataclass(frozen=True, slots=True)
class Size:
    """How large the task is, and what follows from it."""

    n_rows: float
    """A noisy estimate."""
    clips: tuple[float, float]
    """Largest absolute gradient in stage 1 and in stage 2."""
    depth: int
    n_trees: int

    @classmethod
    def of_task(cls, loss: str, n_rows: float, positive: float, mu: float) -> Size:
        """From the noisy number of rows, the noisy share of positives, and the budget."""
        effective = 4.0 * positive * (1.0 - positive) * n_rows if loss == "logistic" else n_rows
        signal = effective * mu
        clip = 0.6 if signal < 1e4 else 0.75
        depth = 6 if math.isinf(signal) else math.floor(math.log2(max(signal, 1.0) / 128.0))
        n_trees = round(min(effective / 125.0, signal / 20.0))
        return cls(
            n_rows,
            (clip, clip) if loss == "logistic" else (1.5, 1.0),
            min(max(depth, 3), 6),
            min(max(n_trees, 100), 800),
        )


@dataclass(eq=False)
class Learned:
    """What stage 0 found out: bins, where to start, and the size of the task."""

    bins: list[Bins]
    size: Size
    base_score: float
    centre: float = 0.0
    spread: float = 1.0
    hessian: float = 1.0
    """Expected hessian of a row at the start."""


class Recipe:
    """One private training. `run` it with a function that answers requests, or drive `requests` yourself."""

    def __init__(
        self, schema: Schema, *, epsilon: float, delta: float, seed: int = 0, owners: int = 1, honest: int | None = None
    ) -> None:
        """`seed` is public: it decides orders, columns and thresholds, never noise. `epsilon=inf` asks for no noise.

        Of `owners`, `honest` (by default all) keep their noise to themselves. Each draws noise as if only those
        counted, so that the sum carries owners / honest times the variance that the guarantee needs.
        """
        self.schema = schema
        self.loss = loss_of(schema)
        self.budget = Budget(epsilon, delta)
        self.honest = owners if honest is None else honest
        if not 1 <= self.honest <= owners:
            raise InvalidParameter(f"honest must be between 1 and the number of owners, {owners}; got {self.honest}")
        self._mu = math.sqrt(self.budget.mu_squared)
        self._excess = math.sqrt(owners / self.honest)
        self._grid = grid_of(schema)
        self._cells = cells_of(schema, self._grid)
        self._rng = np.random.default_rng(seed)
        self._number = 0
        self.n_requests: int | None = None  # how many there will be; known once the first are answered
        self._hessian_unit = UNIT * HESSIAN_WEIGHT[self.loss]

    @property
    def accountant(self) -> GaussianDP:
        """What has been spent so far, event by event."""
        return self.budget.accountant

    # --- running it --------------------------------------------------------------------------------------------------

    def run(self, release: Callable[[SumRequest], Released]) -> Ensemble:
        """Ask until the model is done. Each answer comes with its event, and the events must stay within the budget."""
        asking = self.requests()
        request = next(asking)
        while True:
            values, event = release(request)
            self._account(request, event)
            try:
                request = asking.send(values)
            except StopIteration as done:
                self.budget.check()
                model: Ensemble = done.value
                return model

    def _account(self, request: SumRequest, event: Event) -> None:
        """Take note of what an answer was worth; one with less noise than was asked for ends the training."""
        if isinstance(event, DiscreteGaussian) and request.sigma > 0.0:
            enough = (
                event.sensitivity >= request.sensitivity
                and event.parties * event.sigma**2 * (1.0 + 2.0**-40) >= request.sigma**2
                and event.coordinates >= request.n_sums
            )
        else:
            enough = isinstance(event, NonPrivate) and request.sigma == 0.0
        if not enough:
            raise ProtocolError(f"request {request.number} was answered with {event!r}, which is not what it asked for")
        self.budget.spend(event)

    # --- the three stages --------------------------------------------------------------------------------------------

    def requests(self) -> Asking:
        """Yields requests, is sent the noisy sums, and returns the Ensemble."""
        start = yield from self._stage_0()
        self.n_requests = self._number + PASSES * len(self._cells) + start.size.n_trees
        tables, found = yield from self._stage_1(start)
        described = tuple(
            merged_feature(cells, bins) for cells, bins in zip(self._grid.features, start.bins, strict=True)
        )
        scale = self._label_scale(start)
        model = Ensemble(
            BinMapper(described), self.loss, [self._base(start)], classes=self.schema.classes, meta=self._meta(start)
        )
        for number, (feature, values, table) in enumerate(zip(described, found, tables, strict=True)):
            weights = np.maximum(table.hessians, 1.0)
            model.append(table_tree(number, feature, values * scale, weights), checked=True)
        trees = yield from self._stage_2(start, found)
        for features, goes_right, leaves, weights in trees:
            model.append(oblivious_tree(features, goes_right, described, leaves * scale, weights), checked=True)
        return model

    def _stage_0(self) -> Generator[SumRequest, Ints, Learned]:
        """Label histograms over all cells: bins, base score, size of the task."""
        shares = SHARES[self.loss]
        sums = yield self._request("histograms", 2 * sum(self._cells), shares[0], 1)
        unit = COUNT_UNIT if self.loss == "logistic" else UNIT
        noise = self._noise / unit
        first, second = sums[0::2] / unit, sums[1::2] / unit
        cuts = np.cumsum(self._cells)[:-1]
        # A feature with fewer cells has less noise in its total, hence the weights.
        weights = 1.0 / np.array(self._cells)
        weights /= weights.sum()
        totals = [
            max(sum(w * part.sum() for w, part in zip(weights, np.split(half, cuts), strict=True)), least)
            for half, least in ((first, 1.0 if self.loss == "logistic" else -math.inf), (second, 1.0))
        ]
        if self.loss == "logistic":
            n_rows, positive = totals[0] + totals[1], totals[0] / (totals[0] + totals[1])
            counts, count_noise = first + second, math.sqrt(2.0) * noise
            learned = Learned(
                [], Size.of_task(self.loss, n_rows, positive, self._mu), math.log(positive / (1.0 - positive)),
                hessian=positive * (1.0 - positive),
            )  # fmt: skip
        else:
            n_rows = max(2.0 * totals[1], 1.0)
            counts, count_noise = 2.0 * second, 2.0 * noise
            centre = min(max(totals[0] / n_rows, -0.5), 0.5)
            squares = yield self._request("squares", 1, shares[1], 1)
            variance = float(squares[0]) / UNIT / n_rows - centre**2
            learned = Learned(
                [], Size.of_task(self.loss, n_rows, 0.5, self._mu), 0.0, centre, math.sqrt(max(variance, 0.05**2))
            )
        target = max(n_rows / MOST_BINS, 4.0 * count_noise)
        for column, cells, part in zip(self.schema.columns, self._cells, np.split(counts, cuts), strict=True):
            ordered = cells - column.may_be_missing if isinstance(column, NumericColumn) else 0
            learned.bins.append(merged(part, n_ordered=ordered, target=target))
        return learned

    def _stage_1(self, start: Learned) -> Generator[SumRequest, Ints, tuple[list[FeatureTable], list[Floats]]]:
        """Ten passes over the columns; each column's result is the mean of its last five tables."""
        tables = [FeatureTable(bins, bins.mass * start.hessian) for bins in start.bins]
        sums_of = [np.zeros(bins.n_bins) for bins in start.bins]
        update: dict[str, Any] = {
            "update": "start",
            "bins": np.stack([bins.of_cell for bins in start.bins]),
            "base_score": start.base_score,
            "centre": start.centre,
            "spread": start.spread,
        }
        rounds = PASSES * len(tables)
        for number in range(PASSES):
            for feature in self._rng.permutation(len(tables)).tolist():
                table = tables[feature]
                sums = yield self._request(
                    "bin_sums", 2 * table.bins.n_bins, SHARES[self.loss][2], rounds, start.size.clips[0],
                    features=np.array([feature], np.int32), **update,
                )  # fmt: skip
                gradients, hessians = sums[0::2] / UNIT, sums[1::2] / self._hessian_unit
                step = table.update(gradients, hessians, (self._noise / UNIT) ** 2 / PASSES)
                update = {"update": "table", "update_feature": feature, "update_values": padded([step])[0]}
            if number >= PASSES - AVERAGED_PASSES:
                for total, table in zip(sums_of, tables, strict=True):
                    np.add(total, table.values, out=total)
        return tables, [total / AVERAGED_PASSES for total in sums_of]

    def _stage_2(
        self, start: Learned, tables: list[Floats]
    ) -> Generator[SumRequest, Ints, list[tuple[Int32s, Bytes, Floats, Floats]]]:
        """Random oblivious trees, one request each."""
        size = start.size
        depth = min(size.depth, len(tables))
        draw = _RandomTrees(self._rng, start.bins, tables, depth)
        update: dict[str, Any] = {"update": "tables", "update_values": padded(tables)}
        trees = []
        for _ in range(size.n_trees):
            features, goes_right = draw()
            sums = yield self._request(
                "leaf_sums", 2 << depth, SHARES[self.loss][3], size.n_trees, size.clips[1],
                features=features, goes_right=goes_right, **update,
            )  # fmt: skip
            gradients, hessians = sums[0::2] / UNIT, sums[1::2] / self._hessian_unit
            noise = self._noise / UNIT
            known = np.maximum(hessians, max(noise / HESSIAN_WEIGHT[self.loss], 1e-9))
            trust = known / (known + TREE_TRUST * noise**2 / size.n_trees)
            leaves = TREE_RATE * trust * gradients / (trust * known + 0.5 * 2**depth)
            trees.append((features, goes_right, leaves, known))
            update = {"update": "leaves", "update_values": leaves}
        return trees

    # --- pieces ------------------------------------------------------------------------------------------------------

    def _request(
        self, kind: Kind, n_sums: int, share: float, rounds: int, clip: float = 0.0, **fields: Any
    ) -> SumRequest:
        """One of `rounds` requests that have `share` of the budget together."""
        clip_units = int(clip * UNIT)
        sensitivity_squared = record_sensitivity_squared(kind, self.loss, len(self._cells), clip_units)
        sigma = sigma_for_mu(math.sqrt(sensitivity_squared), share * self.budget.mu_squared / rounds)
        self._noise = sigma * self._excess  # what the sum will really carry
        self._number += 1
        request = SumRequest(self._number, kind, n_sums, sensitivity_squared, sigma, clip_units, **fields)
        self.accountant.check(request.event(self.honest))  # before anything is released
        return request

    def _label_scale(self, start: Learned) -> float:
        """From standardised labels back to real ones."""
        if self.schema.label_bounds is None:
            return 1.0
        low, high = self.schema.label_bounds
        return start.spread * (high - low)

    def _base(self, start: Learned) -> float:
        if self.schema.label_bounds is None:
            return start.base_score
        low, high = self.schema.label_bounds
        return (start.centre + 0.5) * (high - low) + low

    def _meta(self, start: Learned) -> dict[str, Any]:
        size = start.size
        meta: dict[str, Any] = {
            "policy": "smooth_then_trees",
            "n_rows_estimate": float(size.n_rows),
            "clips": list(size.clips),
            "depth": min(size.depth, len(self._cells)),
            "n_trees": size.n_trees,
        }
        if self.schema.label_bounds is not None:
            meta["prediction_bounds"] = list(self.schema.label_bounds)
        return meta


class _RandomTrees:
    """Draws the questions of oblivious trees: columns by how much their tables vary, thresholds by `split_shares`."""

    def __init__(self, rng: np.random.Generator, bins: list[Bins], tables: list[Floats], depth: int) -> None:
        self._rng, self._bins, self._depth = rng, bins, depth
        self._orders = [order_of(table, own) for table, own in zip(tables, bins, strict=True)]
        self._starts = []
        for table, own in zip(tables, bins, strict=True):
            weights = split_shares(table, own)
            ends = np.cumsum(weights)
            self._starts.append(np.concatenate([[0.0], ends[:-1]]) / ends[-1])
        spreads = np.array([spread(table, own) for table, own in zip(tables, bins, strict=True)])
        # Columns that do not vary get a small chance, so that there are always `depth` to choose from.
        spreads += 1e-6 * max(spreads.max(), 1e-12)
        self._chances = spreads / spreads.sum()

    def __call__(self) -> tuple[Int32s, Bytes]:
        """(columns, goes_right [levels, 256]): bins beyond those of values go the way of missing values."""
        features = self._rng.choice(len(self._bins), size=self._depth, replace=False, p=self._chances)
        goes_right = np.empty((self._depth, 256), np.uint8)
        for row, feature in zip(goes_right, features.tolist(), strict=True):
            level = self._rng.uniform(0.1, 0.9)
            row[:] = self._rng.integers(0, 2)
            row[self._orders[feature]] = self._starts[feature] >= level
        return features.astype(np.int32), goes_right
