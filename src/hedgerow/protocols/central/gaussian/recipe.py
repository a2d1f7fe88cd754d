"""The recipe: which sums to ask for next, and what model follows from the noisy answers.

Stage 0 asks for histograms of the labels over the public grid: they give bins, the base score and the size of the task.
Stage 1 makes ten rounds over the columns, each time improving one column's table from noisy gradient sums per bin.
Stage 2 adds random oblivious trees, drawn where the tables say that something happens, with noisy Newton leaves.
Stage 3 asks for one sum over all rows and moves the base score, so that predictions are right on average.

Every number here is public (schema, budget, seed, constants) or follows from released sums, so that none of it costs
anything beyond the sums. In particular the number of rows is private when a record may be added or removed; only its
noisy estimate is used. The shares of the budget and all constants come from a study that compared settings by test AUC
on public datasets (Adult, default_credit_card, give_me_some_credit, covtype, susy_30k; a few of them also on nomao and
bank_marketing); nothing is fitted to the rows at hand, but figures on those are a little flattered by that choice.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bytes, Floats, Int32s, Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.calibrate import Budget
from hedgerow.protocols.central.gaussian.requests import (
    COUNT_UNIT,
    HESSIAN_WEIGHT,
    UNIT,
    SumRequest,
)
from hedgerow.protocols.central.gaussian.tables import (
    Bins,
    FeatureTable,
    merged,
    order_of,
    padded,
    split_shares,
    spread,
)
from hedgerow.protocols.central.gaussian.training import Asking, Training
from hedgerow.protocols.central.gaussian.trees import merged_feature, oblivious_trees, table_tree
from hedgerow.schema import NumericColumn, Schema
from hedgerow.statement import Stage

SHARES = {
    "logistic": (0.15, 0.0, 0.42, 0.42, 0.01),
    "squared": (0.15, 0.01, 0.415, 0.415, 0.01),
    "softmax": (0.15, 0.0, 0.42, 0.42, 0.01),
}
"""Of the squared mu: histograms, sum of squares, stage 1, stage 2, stage 3."""

MEAN_CLIP = {"logistic": 1.0, "squared": 2.0, "softmax": math.sqrt(2.0)}
"""Length of a row's gradient in stage 3. For classes there is none longer, so nothing is clipped; a number may be two
standard deviations of the label away."""

MEAN_OFF = {"logistic": 0.15, "squared": 0.02, "softmax": 0.15}
"""How far a base score is expected to be off before stage 3."""

PASSES = 10
AVERAGED_PASSES = 5
MOST_BINS = 250
TREE_RATE = 0.2
TREE_TRUST = 100.0


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
    def of_task(cls, loss: str, n_rows: float, positive: float | Floats, mu: float) -> Size:
        """From the noisy number of rows, the noisy share of positives (softmax: of each class), and the budget."""
        effective, clips = n_rows, (1.5, 1.0)
        if loss == "logistic":
            effective = float(4.0 * positive * (1.0 - positive) * n_rows)
        elif loss == "softmax":
            # Of two classes this is the line above.
            effective = 2.0 * (1.0 - float(np.sum(np.square(positive)))) * n_rows
        signal = effective * mu
        if loss != "squared":
            clip = 0.6 if signal < 1e4 else 0.75
            # The vector of a row with gradients (g, -g) of two classes is longer by the square root of 2.
            clips = (clip, clip) if loss == "logistic" else (math.sqrt(2.0) * clip, math.sqrt(2.0) * clip)
        depth = 6 if math.isinf(signal) else math.floor(math.log2(max(signal, 1.0) / 128.0))
        n_trees = round(min(effective / 125.0, signal / 20.0))
        return cls(n_rows, clips, min(max(depth, 3), 6), min(max(n_trees, 100), 800))


@dataclass(eq=False)
class Learned:
    """What stage 0 found out: bins, where to start, and the size of the task."""

    bins: list[Bins]
    size: Size
    base_scores: Floats
    """One per output; 0 in regression, which starts from `centre`."""
    centre: float = 0.0
    spread: float = 1.0
    hessians: Floats = field(default_factory=lambda: np.ones(1))
    """Expected hessian of a row at the start, per output."""


class Recipe(Training):
    """The policy `smooth_then_trees`, on the rows of one owner or of several."""

    def __init__(
        self,
        schema: Schema,
        *,
        epsilon: float,
        delta: float,
        seed: int = 0,
        owners: int = 1,
        honest: int | None = None,
        multiclass: bool = False,
        reserve: float = 0.0,
    ) -> None:
        """`seed` is public: it decides orders, columns and thresholds, never noise. `epsilon=inf` asks for no noise.

        Of `owners`, `honest` (by default all) keep their noise to themselves. Each draws noise as if only those
        counted, so that the sum carries owners / honest times the variance that the guarantee needs.
        `multiclass`: whether more than two classes are welcome. `reserve`: the share of the squared mu for the number
        of rows that did not fit the schema; 0 for not asking.
        """
        super().__init__(schema, seed=seed, reserve=reserve, multiclass=multiclass)
        self.budget = Budget(epsilon, delta)
        self.whole = self.budget.mu_squared
        self.honest = owners if honest is None else honest
        if not 1 <= self.honest <= owners:
            raise InvalidParameter(f"honest must be between 1 and the number of owners, {owners}; got {self.honest}")
        self._mu = math.sqrt(self.whole)
        self.excess = math.sqrt(owners / self.honest)
        self.shares: tuple[float, ...] = SHARES[self.loss]

    # --- the four stages --------------------------------------------------------------------------------------------

    def requests(self) -> Asking:
        """Yields requests, is sent the noisy sums, and returns the Ensemble."""
        start = yield from self.stage_0()
        self.n_requests = self.number + PASSES * len(self.cells) + self.trees_asked(start.size) + 1
        tables, found = yield from self._stage_1(start)
        described = tuple(
            merged_feature(cells, bins) for cells, bins in zip(self.grid.features, start.bins, strict=True)
        )
        trees = yield from self._stage_2(start, found)
        shift = yield from self.stage_3(start, trees[-1][2])
        base, scale = start.base_scores, 1.0
        if self.schema.label_bounds is not None:
            centre, scale = self.label_units(start.centre, start.spread)
            base = np.array([centre])
        base = base + shift * scale
        model = Ensemble(BinMapper(described), self.loss, base, classes=self.schema.classes, meta=self.meta(start))
        for number, (feature, values, table) in enumerate(zip(described, found, tables, strict=True)):
            for own, learned in zip(values, table, strict=True):
                weights = np.maximum(learned.hessians, 1.0)
                model.append(table_tree(number, feature, own * scale, weights), checked=True)
        for features, goes_right, leaves, weights in trees:
            for tree in oblivious_trees(features, goes_right, described, leaves * scale, weights):
                model.append(tree, checked=True)
        return model

    def stage_0(self) -> Generator[SumRequest, Ints, Learned]:
        """Label histograms over all cells: bins, base score, size of the task."""
        shares = self.shares
        width = self.n_outputs if self.loss == "softmax" else 2
        sums = yield self.request("histograms", width * sum(self.cells), shares[0], 1)
        unit = UNIT if self.loss == "squared" else COUNT_UNIT
        noise = self.noise / unit
        parts = [sums[k::width] / unit for k in range(width)]
        cuts = np.cumsum(self.cells)[:-1]
        # A feature with fewer cells has less noise in its total, hence the weights.
        weights = 1.0 / np.array(self.cells)
        weights /= weights.sum()
        least = [-math.inf, 1.0] if self.loss == "squared" else [1.0] * width
        totals = [
            max(sum(w * piece.sum() for w, piece in zip(weights, np.split(part, cuts), strict=True)), at_least)
            for part, at_least in zip(parts, least, strict=True)
        ]
        if self.loss == "squared":
            n_rows = max(2.0 * totals[1], 1.0)
            counts, count_noise = 2.0 * parts[1], 2.0 * noise
            centre = min(max(totals[0] / n_rows, -0.5), 0.5)
            spread = yield from self.ask_spread(shares[1], n_rows, centre)
            learned = Learned([], Size.of_task(self.loss, n_rows, 0.5, self._mu), np.zeros(1), centre, spread)
        else:
            n_rows, counts, count_noise = sum(totals), sum(parts[1:], parts[0]), math.sqrt(width) * noise
            learned = self.start_of_classes(np.array(totals) / n_rows, n_rows)
        target = max(n_rows / MOST_BINS, 4.0 * count_noise)
        for column, cells, part in zip(self.schema.columns, self.cells, np.split(counts, cuts), strict=True):
            ordered = cells - column.may_be_missing if isinstance(column, NumericColumn) else 0
            learned.bins.append(merged(part, n_ordered=ordered, target=target))
        return learned

    def start_of_classes(self, shares: Floats, n_rows: float) -> Learned:
        """From the noisy shares of the classes (of two: positives, negatives)."""
        if self.loss == "logistic":
            positive = float(shares[0])
            base, hessians = np.array([math.log(positive / (1.0 - positive))]), np.array([positive * (1.0 - positive)])
            return Learned([], Size.of_task(self.loss, n_rows, positive, self._mu), base, hessians=hessians)
        size = Size.of_task(self.loss, n_rows, shares, self._mu)
        return Learned([], size, np.log(shares), hessians=self._boost * shares * (1.0 - shares))

    def _stage_1(
        self, start: Learned
    ) -> Generator[SumRequest, Ints, tuple[list[list[FeatureTable]], list[list[Floats]]]]:
        """Ten passes over the columns; each column's result is the mean of its last five tables, per output."""
        n_numeric = sum(isinstance(column, NumericColumn) for column in self.schema.columns)
        tables = [
            [FeatureTable(bins, bins.mass * own, n_numeric) for own in start.hessians.tolist()] for bins in start.bins
        ]
        sums_of = [[np.zeros(bins.n_bins) for _ in range(self.n_outputs)] for bins in start.bins]
        update: dict[str, Any] = {
            "update": "start",
            "bins": np.stack([bins.of_cell for bins in start.bins]),
            "centre": start.centre,
            "spread": start.spread,
        }
        update |= (
            {"update_values": start.base_scores}
            if self.loss == "softmax"
            else {"base_score": float(start.base_scores[0])}
        )
        rounds = PASSES * len(tables)
        for number, order in enumerate(orders_of(self.rng, len(tables))):
            for feature in order:
                table = tables[feature]
                sums = yield self.request(
                    "bin_sums", 2 * self.n_outputs * table[0].bins.n_bins, self.shares[2], rounds,
                    start.size.clips[0], features=np.array([feature], np.int32), **update,
                )  # fmt: skip
                variance = self.gradient_noise**2 / PASSES
                steps = [
                    own.update(gradients, hessians, variance)
                    for own, gradients, hessians in zip(table, *self.gradients(sums), strict=True)
                ]
                values = self._per_output(padded(steps))
                update = {"update": "table", "update_feature": feature, "update_values": values}
            if number >= PASSES - AVERAGED_PASSES:
                for totals, learned in zip(sums_of, tables, strict=True):
                    for total, own in zip(totals, learned, strict=True):
                        np.add(total, own.values, out=total)
        return tables, [[total / AVERAGED_PASSES for total in totals] for totals in sums_of]

    def _stage_2(
        self, start: Learned, tables: list[list[Floats]]
    ) -> Generator[SumRequest, Ints, list[tuple[Int32s, Bytes, Floats, Floats]]]:
        """Random oblivious trees, one request each."""
        size = start.size
        depth = min(size.depth, len(tables))
        of_outputs = np.stack([padded([own[k] for own in tables]) for k in range(self.n_outputs)])
        update: dict[str, Any] = {"update": "tables", "update_values": self._per_output(of_outputs)}
        trees = []
        for features, goes_right in random_trees(self.rng, start.bins, tables, depth, self.trees_asked(size)):
            sums = yield self.request(
                "leaf_sums", 2 * self.n_outputs << depth, self.shares[3], size.n_trees, size.clips[1],
                features=features, goes_right=goes_right, **update,
            )  # fmt: skip
            gradients, hessians = self.gradients(sums)
            noise = self.gradient_noise
            known = np.maximum(hessians, max(self.hessian_noise, 1e-9))
            trust = known / (known + TREE_TRUST * noise**2 / size.n_trees)
            leaves = TREE_RATE * trust * gradients / (trust * known + 0.5 * 2**depth)
            trees.append((features, goes_right, leaves, known))
            update = {"update": "leaves", "update_values": self._per_output(leaves)}
        return trees

    def stage_3(self, start: Learned, last_leaves: Floats) -> Generator[SumRequest, Ints, Floats]:
        """A last Newton step for the base score, per output, from gradients that are hardly clipped, if at all.

        Clipped gradients pull the mean of the predictions away from that of the labels. One sum over all rows, in the
        left leaf of a tree that sends nobody right, tells by how much, for a small share of the budget.
        """
        sums = yield self.request(
            "leaf_sums", 4 * self.n_outputs, self.shares[4], 1, MEAN_CLIP[self.loss],
            features=np.zeros(1, np.int32), goes_right=np.zeros((1, 256), np.uint8),
            update="leaves", update_values=self._per_output(last_leaves),
        )  # fmt: skip
        gradients, hessians = self.gradients(sums)
        return self.shift(start, gradients[:, 0], hessians[:, 0])

    def trees_asked(self, size: Size) -> int:
        """How many trees there are; the noise of each is that of one of `size.n_trees`."""
        return size.n_trees

    def shift(self, start: Learned, gradients: Floats, hessians: Floats) -> Floats:
        """The step of stage 3, from noisy sums over all rows, per output."""
        at_start = start.size.n_rows * start.hessians
        # The step is trusted as far as the sum that is to be expected outweighs the noise. Both that and the least
        # hessian go with the hessian at the start, so that noise moves no base score far, not even a rare class's.
        expected = MEAN_OFF[self.loss] / self._boost * at_start
        trust = expected**2 / (expected**2 + self.gradient_noise**2)
        known = np.maximum(hessians, 0.2 * at_start)
        shift: Floats = trust * gradients / known
        return shift

    # --- pieces ------------------------------------------------------------------------------------------------------

    def gradients(self, sums: Ints) -> tuple[Floats, Floats]:
        """Noisy sums of minus gradients and of hessians, each [outputs, positions].

        A row's gradients of K classes sum to 0 (but for rounding), and so do their sums: taking the mean of the noisy
        ones off removes 1 / K of the noise. Hessians are multiplied by K / (K - 1), as in Friedman 2001: the classes'
        scores are updated at the same time, and of two each does half of the work.
        """
        if self.loss != "softmax":
            return (sums[0::2] / UNIT)[np.newaxis], (sums[1::2] / self.hessian_unit)[np.newaxis]
        both = sums.reshape(-1, 2, self.n_outputs)
        gradients, hessians = both[:, 0].T / UNIT, both[:, 1].T / self.hessian_unit
        return gradients - gradients.mean(axis=0), self._boost * hessians

    @property
    def _boost(self) -> float:
        """K / (K - 1) for K classes under softmax, else 1."""
        return self.n_outputs / (self.n_outputs - 1.0) if self.loss == "softmax" else 1.0

    @property
    def gradient_noise(self) -> float:
        """Standard deviation of the noise in what `gradients` made of the last sums."""
        return self.noise / UNIT / math.sqrt(self._boost)

    @property
    def hessian_noise(self) -> float:
        """Standard deviation of the noise in the last sums of hessians, or somewhat less."""
        return self.gradient_noise / HESSIAN_WEIGHT[self.loss]

    def _per_output(self, values: Floats) -> Floats:
        """As updates have them: without an axis of outputs where there is one output."""
        return values if self.loss == "softmax" else values[0]

    def meta(self, start: Learned) -> dict[str, Any]:
        """What the model file says about the training."""
        size = start.size
        meta: dict[str, Any] = {
            "policy": "smooth_then_trees",
            "n_rows_estimate": float(size.n_rows),
            "clips": list(size.clips),
            "depth": min(size.depth, len(self.cells)),
            "n_trees": size.n_trees,
        }
        if self.schema.label_bounds is not None:
            meta["prediction_bounds"] = list(self.schema.label_bounds)
        return meta

    def stages(self) -> list[Stage]:
        """What was asked for, for the statement."""
        histograms, squares, tables, trees, mean = self.shares
        n_columns = len(self.cells)
        n_trees = (self.n_requests or 0) - (1 + (squares > 0.0)) - PASSES * n_columns - 1
        what = "Labels over the public cells of each column: bins, base score and size of the task."
        stages = [self.stage("histograms", histograms, 1, what)]
        if squares:
            stages.append(self.stage("spread of the label", squares, 1))
        what = f"{PASSES} rounds over {n_columns} column{'s' * (n_columns > 1)}, each all rows."
        stages.append(self.stage("tables", tables, PASSES * n_columns, what))
        stages.append(self.stage("trees", trees, n_trees, "Each tree sees all rows."))
        stages.append(self.stage("mean", mean, 1, "One sum over all rows, which moves the base score."))
        return stages


def orders_of(rng: np.random.Generator, n_columns: int) -> list[list[int]]:
    """The order of columns in each pass of stage 1; nothing else is drawn before it."""
    return [rng.permutation(n_columns).tolist() for _ in range(PASSES)]


def random_trees(
    rng: np.random.Generator, bins: list[Bins], tables: list[list[Floats]], depth: int, n_trees: int
) -> list[tuple[Int32s, Bytes]]:
    """Questions of oblivious trees: columns by how much their tables vary, thresholds by `split_shares`.

    Of several outputs, each threshold follows the table of one that is drawn by how much its table varies. Of each
    tree: (columns, goes_right [levels, 256]); bins beyond those of values go the way of missing values.
    """
    pairs = list(zip(tables, bins, strict=True))
    orders = [[order_of(table, own) for table in of_outputs] for of_outputs, own in pairs]
    starts = [[_starts(table, own) for table in of_outputs] for of_outputs, own in pairs]
    each = np.array([[spread(table, own) for table in of_outputs] for of_outputs, own in pairs])
    spreads = each[:, 0] if each.shape[1] == 1 else np.sqrt((each**2).sum(axis=1))
    # Columns that do not vary get a small chance, so that there are always `depth` to choose from.
    spreads = spreads + 1e-6 * max(spreads.max(), 1e-12)
    outputs = (each + 1e-12) / (each + 1e-12).sum(axis=1, keepdims=True)
    drawn = []
    for _ in range(n_trees):
        features = rng.choice(len(bins), size=depth, replace=False, p=spreads / spreads.sum())
        goes_right = np.empty((depth, 256), np.uint8)
        for row, feature in zip(goes_right, features.tolist(), strict=True):
            chances = outputs[feature]
            output = int(rng.choice(len(chances), p=chances)) if len(chances) > 1 else 0
            level = rng.uniform(0.1, 0.9)
            row[:] = rng.integers(0, 2)
            row[orders[feature][output]] = starts[feature][output] >= level
        drawn.append((features.astype(np.int32), goes_right))
    return drawn


def _starts(table: Floats, bins: Bins) -> Floats:
    """Where each bin begins, in `order_of`, on a line from 0 to 1 that is shared out by `split_shares`."""
    ends = np.cumsum(split_shares(table, bins))
    starts: Floats = np.concatenate([[0.0], ends[:-1]]) / ends[-1]
    return starts
