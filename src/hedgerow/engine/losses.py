"""What is boosted: the loss with its base score and its gradients as packed integers, and all other parameters.

Gradients are quantised once per tree, on a power-of-two scale that depends on public things only: the loss, the
(declared or agreed) range of the labels, the total weight. Parties who cannot see each other's gradients therefore
quantise alike, and one integer serves the engine, secure sums, secret shares and packed ciphertexts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.dtypes import Floats, Int32s, Ints, Scores
from hedgerow.engine.exact_sums import exact_limbs, nearest_above
from hedgerow.errors import InvalidInput, InvalidParameter

LOSSES = ("logistic", "squared", "softmax", "poisson", "absolute", "quantile")

FIELD_FOR_VALUES = 7 * 2**28
"""What sums of scaled gradients may reach: seven eighths of the 2**31 that fit a field. The last eighth, 2**28, is for
rounding: at most half a unit per row and per unit of weight, hence the limit on rows below."""
MOST_ROWS = 2**28
EXACT_FLOAT32 = 2.0**22  # a scaled gradient of unit weight stays below, so adding 1/2 and truncating it is exact

WEIGHT_STEPS = 2**30
LABEL_STEPS = 2**30
POISSON_HEADROOM = 2.0  # a predicted mean above this many times the largest label counts as that much
FINEST_QUANTILE = 10**6  # a quantile is a fraction with a denominator up to this
NO_MIN_ROWS = "min_rows_per_sum is for vertical.homomorphic, and for one table in its place; leave it out"

MissingUnseen = Literal["heavier", "right"]
"""Where missing values go, and levels, that no row of a split's node had: with most of the weight, or right."""


@dataclass(frozen=True, slots=True)
class Quantiser:
    """Powers of two that turn gradients and hessians into integers; the same for every party of a job.

    A row's integer is round(round(g * scale * unit) * weight / unit): a row of weight 1 (and, with unit 1, of any
    whole weight) is rounded once, so weight 2 is exactly the row twice and weight 0 the row left out.
    """

    gradient_scale: float
    hessian_scale: float
    weight_unit: float = 1.0

    @classmethod
    def for_job(cls, loss: Loss, total_weight: float, *, n_rows: int, gradient_bits: int | None = None) -> Quantiser:
        """The finest scales at which the sum over any subset of the rows stays inside its field.

        |sum g| <= scale * bound * total_weight + (n_rows + total_weight) / 2 <= 7/8 * 2**31 + 1/8 * 2**31.
        `gradient_bits` fixes both scales to 2**gradient_bits (as protocols do that agree on one) and is refused when
        sums could overflow.
        """
        unit = _weight_unit(total_weight / max(n_rows, 1), n_rows)
        units_of_weight = max(total_weight / unit, 1.0)
        if n_rows > MOST_ROWS:
            raise InvalidParameter(f"{n_rows:,} rows do not fit 32-bit sums of gradients; at most {MOST_ROWS:,} do")
        g_scale = min(FIELD_FOR_VALUES / units_of_weight, EXACT_FLOAT32) / loss.gradient_bound
        h_scale = min(FIELD_FOR_VALUES / units_of_weight, EXACT_FLOAT32) / loss.hessian_bound
        g_exponent, h_exponent = math.floor(math.log2(g_scale)), math.floor(math.log2(h_scale))
        if gradient_bits is not None:
            possible = min(g_exponent, h_exponent)
            if gradient_bits > possible:
                raise InvalidParameter(
                    f"gradient_bits={gradient_bits} could overflow the sums over {n_rows:,} rows; at most {possible}"
                )
            g_exponent = h_exponent = gradient_bits
        return cls(2.0**g_exponent / unit, 2.0**h_exponent / unit, unit)

    @classmethod
    def for_rows(
        cls, loss: Loss, n_rows: int, weight: Floats | None = None, *, gradient_bits: int | None = None
    ) -> Quantiser:
        """The same for rows of these weights; those of weight 0 are not there."""
        n_rows = n_rows if weight is None else int(np.count_nonzero(weight))
        return cls.for_job(loss, weight_total(weight, n_rows), n_rows=n_rows, gradient_bits=gradient_bits)

    @property
    def unit_scales(self) -> tuple[np.float32, np.float32]:
        """The scales of a row of weight `weight_unit`, for the gradient kernels."""
        return np.float32(self.gradient_scale * self.weight_unit), np.float32(self.hessian_scale * self.weight_unit)


def _weight_unit(mean_weight: float, n_rows: int) -> float:
    """1 for ordinary weights; else the power of two above their mean.

    Very small or large weights would lose precision in the first of the two roundings, and weights above 1 on very many
    rows would leave that rounding no room.
    """
    ordinary = 0.5 <= mean_weight < 16 and n_rows * (1 + mean_weight) <= 2 * MOST_ROWS
    if mean_weight <= 0 or ordinary:
        return 1.0
    return float(2.0 ** math.ceil(math.log2(mean_weight)))


def _unit_of(weight: Floats | None) -> float:
    n_rows = 1 if weight is None else max(int(np.count_nonzero(weight)), 1)
    return 1.0 if weight is None else _weight_unit(weight_total(weight, n_rows) / n_rows, n_rows)


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss with its public facts. `label_range` is declared by the user or agreed by the parties."""

    name: str
    n_outputs: int = 1
    label_range: tuple[float, float] = (0.0, 1.0)
    quantile: float = 0.5

    def __post_init__(self) -> None:
        if self.name not in LOSSES:
            raise InvalidParameter(f"loss must be one of {', '.join(LOSSES)}, got {self.name!r}")
        if self.name == "softmax" and self.n_outputs < 3:
            raise InvalidParameter(f"softmax needs at least 3 classes, got {self.n_outputs}; use logistic for two")
        low, high = self.label_range
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise InvalidParameter(f"label_range must be (low, high), finite and in order, got {self.label_range}")
        if self.name == "poisson" and low < 0:
            raise InvalidParameter(f"poisson needs labels of at least 0, got label_range={self.label_range}")
        if not 0 < self.quantile < 1:
            raise InvalidParameter(f"quantile must be between 0 and 1, both excluded, got {self.quantile}")

    @property
    def refits_leaves(self) -> bool:
        """Whether a leaf's value is a quantile of its rows' residuals, found when the tree is grown.

        No sum of gradients tells it: whoever trains with such a loss needs labels and scores of all rows in one place.
        """
        return self.name in ("absolute", "quantile")

    @property
    def has_unit_hessians(self) -> bool:
        """Whether every row of weight 1 has hessian 1, so that a sum of hessians counts rows."""
        return self.name == "squared" or self.refits_leaves

    @property
    def takes_base_off(self) -> bool:
        """Whether labels are kept with the base score taken off: large labels then lose no precision."""
        return self.has_unit_hessians

    @property
    def gradient_bound(self) -> float:
        """|g| of a row of weight 1; a squared-loss gradient beyond the label range (an overshot score) is clipped."""
        low, high = self.label_range
        if self.name == "squared":
            return max(high - low, 1e-30)
        if self.name == "poisson":
            return max(POISSON_HEADROOM * high, 1e-30)
        return max(self.slopes) if self.name == "quantile" else 1.0

    @property
    def slopes(self) -> tuple[float, float]:
        """What it costs to be too low, and too high, by one: of the losses that refit leaves."""
        return (1.0, 1.0) if self.name == "absolute" else (self.quantile, 1.0 - self.quantile)

    @property
    def hessian_bound(self) -> float:
        """The largest hessian of a row of weight 1."""
        return {"logistic": 0.25, "softmax": 0.5, "poisson": self.gradient_bound}.get(self.name, 1.0)

    def base_scores(self, labels: Floats, weight: Floats | None = None) -> Floats:
        """The best constant raw score, from sums of integers so that the order of rows does not matter."""
        if self.refits_leaves:
            return np.array([weighted_quantile(labels, weights_in_steps(weight), self.quantile)])
        return self.base_scores_from(self.label_totals(labels, weight))

    def label_totals(self, labels: Floats, weight: Floats | None = None, weight_unit: float | None = None) -> Ints:
        """What the base score is made of, as whole numbers that add up over any division of the rows.

        The rows (in steps), then the labels' places in their range (in steps), or for softmax each class's rows.
        `weight_unit` is that of the quantiser of all rows; None: these are all rows.
        """
        if self.refits_leaves:
            raise InvalidParameter(f"the {self.name} loss begins with a quantile of the labels, which no sums tell")
        unit = _unit_of(weight) if weight_unit is None else weight_unit
        ones = _whole_total(np.ones_like(labels), weight, unit)
        if self.name == "softmax":
            classes = [_whole_total(np.where(labels == k, 1.0, 0.0), weight, unit) for k in range(self.n_outputs)]
            return np.array([ones, *classes], np.int64)
        low, high = self.label_range
        places = (np.clip(labels, low, high) - low) / (high - low) if high > low else np.zeros_like(labels)
        return np.array([ones, _whole_total(places, weight, unit)], np.int64)

    def base_scores_from(self, totals: Ints) -> Floats:
        """The base score for sums of `label_totals`."""
        if self.name == "softmax":
            counts = totals[1:].astype(np.float64)
            bases: Floats = np.log(np.maximum(counts / counts.sum(), 1e-15))
            return bases
        low, high = self.label_range
        mean = low + (high - low) * (float(totals[1]) / float(totals[0]))
        if self.name == "logistic":
            share = min(max(mean, 1e-15), 1 - 1e-15)
            return np.array([math.log(share / (1 - share))])
        if self.name == "poisson":
            return np.array([math.log(max(mean, 1e-15))])
        return np.array([mean])


def check_weight(name: str, weight: Floats, n_rows: int) -> None:
    """InvalidInput, which begins with `name`, unless these can be the weights of this many rows."""
    if weight.shape != (n_rows,):
        raise InvalidInput(
            f"{name}: sample_weight must have one value per row, got shape {weight.shape} for {n_rows} rows"
        )
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise InvalidInput(f"{name}: sample_weight must be finite and not negative")
    if not weight.any():
        raise InvalidInput(f"{name}: every sample_weight is zero")


def weight_total(weight: Floats | None, n_rows: int) -> float:
    """The weights' sum as a number that does not depend on the order of rows: exact, or the next float above."""
    return float(n_rows) if weight is None else nearest_above(exact_limbs(weight))


def _whole_total(values: Floats, weight: Floats | None, weight_unit: float) -> int:
    """Sum of values in [0, 1] times weights, in integer steps of 2**-30; whole weights count as repeated rows."""
    steps = np.rint(values * LABEL_STEPS)
    if weight is not None:
        steps = np.rint(steps * (weight / weight_unit))
    return int(steps.astype(np.int64).sum())


def weights_in_steps(weight: Floats | None) -> Ints | None:
    """Weights as whole numbers, in proportion, so that their sums are exact; fractions of powers of two stay exact."""
    if weight is None:
        return None
    step = 2.0 ** math.ceil(math.log2(float(weight.max()))) / WEIGHT_STEPS
    return np.ceil(weight / step).astype(np.int64)


def weighted_quantile(values: Floats | Scores, weight: Ints | None, quantile: float) -> float:
    """The middle of all numbers with at most `quantile` of the weight below and at most the rest above.

    These are the constants with the least pinball loss. The order of rows does not matter, and weight 2 is the row
    twice. 0 if there is no weight at all. All sums are whole numbers, and 0.1 is a tenth.
    """
    if weight is not None:
        values, weight = values[weight > 0], weight[weight > 0]
    if not len(values):
        return 0.0
    order = np.argsort(values)
    below = np.arange(1, len(values) + 1) if weight is None else np.cumsum(weight[order])
    share = Fraction(quantile).limit_denominator(FINEST_QUANTILE) * int(below[-1])
    first = int(np.searchsorted(below, math.ceil(share)))
    second = min(first + int(below[first] == share), len(values) - 1)
    return float(values[order[first]]) / 2.0 + float(values[order[second]]) / 2.0


@dataclass(frozen=True, slots=True)
class BoostingParams:
    """Everything that fixes a model besides the data. All public."""

    loss: str = "logistic"
    n_classes: int = 2
    n_iterations: int = 100
    learning_rate: float = 0.1
    max_depth: int | None = 6
    max_leaves: int | None = None
    l2: float = 1.0
    min_gain: float = 0.0
    min_child_weight: float = 1.0
    min_samples_leaf: int = 1
    min_rows_per_sum: int = 1
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    colsample_bylevel: float = 1.0
    colsample_bynode: float = 1.0
    monotone: tuple[int, ...] | None = None
    interaction: tuple[tuple[int, ...], ...] | None = None
    base_score: float | None = None
    label_range: tuple[float, float] | None = None
    quantile: float = 0.5
    gradient_bits: int | None = None
    seed: int = 0
    n_threads: int = 1
    early_stopping_rounds: int | None = None
    tol: float = 0.0
    eval_metric: str | None = None
    missing_unseen: MissingUnseen = "heavier"
    one_hot_levels: tuple[int, ...] = ()
    """Features whose levels are split one against all others, not into two groups."""

    def __post_init__(self) -> None:
        known = get_args(MissingUnseen)
        signs_known = self.monotone is None or all(sign in (-1, 0, 1) for sign in self.monotone)
        for name, holds, what in [
            ("learning_rate", 0 < self.learning_rate < math.inf, "positive"),
            ("max_depth", self.max_depth is None or self.max_depth >= 1, "at least 1, or None"),
            ("max_leaves", self.max_leaves is None or self.max_leaves >= 2, "at least 2, or None"),
            ("l2", 0 <= self.l2 < math.inf, "at least 0"),
            ("min_gain", 0 <= self.min_gain < math.inf, "at least 0"),
            ("min_child_weight", 0 <= self.min_child_weight < math.inf, "at least 0"),
            ("min_samples_leaf", self.min_samples_leaf >= 1, "at least 1"),
            ("min_rows_per_sum", self.min_rows_per_sum >= 1, "at least 1"),
            ("colsample_bytree", 0 < self.colsample_bytree <= 1, "in (0, 1]"),
            ("colsample_bylevel", 0 < self.colsample_bylevel <= 1, "in (0, 1]"),
            ("colsample_bynode", 0 < self.colsample_bynode <= 1, "in (0, 1]"),
            ("quantile", 0 < self.quantile < 1, "between 0 and 1, both excluded"),
            ("monotone", signs_known, "made of -1, 0 and 1"),
            ("interaction", self.interaction is None or all(self.interaction), "made of groups that have columns"),
            ("missing_unseen", self.missing_unseen in known, " or ".join(map(repr, known))),
            ("n_iterations", self.n_iterations >= 1, "at least 1"),
            ("subsample", 0 < self.subsample <= 1, "in (0, 1]"),
            ("n_threads", self.n_threads >= 1, "at least 1"),
            ("seed", 0 <= self.seed < 2**63, "between 0 and 2**63 - 1"),
            ("tol", self.tol >= 0, "at least 0"),
            ("base_score", self.base_score is None or math.isfinite(self.base_score), "finite"),
            (
                "early_stopping_rounds",
                self.early_stopping_rounds is None or self.early_stopping_rounds >= 1,
                "at least 1, or None",
            ),
        ]:
            if not holds:
                raise InvalidParameter(f"{name} must be {what}, got {getattr(self, name)}")

    def loss_for(self, labels: Floats) -> Loss:
        """The loss, with the declared label range or, where none is declared, that of these labels."""
        n_outputs = self.n_classes if self.loss == "softmax" else 1
        if self.loss in ("logistic", "softmax"):
            return Loss(self.loss, n_outputs)
        quantile = self.quantile if self.loss == "quantile" else 0.5
        observed = (float(labels.min()), float(labels.max()))
        return Loss(self.loss, n_outputs, self.label_range or observed, quantile)

    def base_scores(self, loss: Loss, labels: Floats, weight: Floats | None = None) -> Floats:
        """What all scores begin with: the one that is given, else the best ones for these labels."""
        if self.base_score is None:
            return loss.base_scores(labels, weight)
        return np.full(loss.n_outputs, float(self.base_score))


# --- gradients -----------------------------------------------------------------------------------------------------


@inline_kernel
def _sigmoid(margin: np.float32) -> np.float32:
    """1 / (1 + exp(-x)) as 1/2 + tanh(x/2)/2 with a rational tanh.

    No branch and no call, so the loop over rows is vectorised; within 2e-7 of the true value, which is far below the
    quantum of a gradient.
    """
    x = margin * np.float32(0.5)
    x = min(max(x, np.float32(-9.0)), np.float32(9.0))
    z = x * x
    p = np.float32(-2.76076847742355e-16) * z + np.float32(2.00018790482477e-13)
    p = p * z + np.float32(-8.60467152213735e-11)
    p = p * z + np.float32(5.12229709037114e-08)
    p = p * z + np.float32(1.48572235717979e-05)
    p = p * z + np.float32(6.37261928875436e-04)
    p = p * z + np.float32(4.89352455891786e-03)
    q = np.float32(1.19825839466702e-06) * z + np.float32(1.18534705686654e-04)
    q = q * z + np.float32(2.26843463243900e-03)
    q = q * z + np.float32(4.89352518554385e-03)
    return np.float32(0.5) + np.float32(0.5) * (x * p / q)


_POWERS_OF_TWO = np.ldexp(np.float32(1.0), np.arange(-126, 128)).astype(np.float32)


@inline_kernel
def exponential(x: np.float32) -> np.float32:
    """exp(x) for float32 from additions and multiplications alone: libraries differ in the last bit, this does not.

    x = k ln 2 + r with |r| <= ln 2 / 2; ln 2 is taken off in two pieces so that r is exact; relative error below 2e-7.
    """
    x = min(max(x, np.float32(-87.0)), np.float32(88.0))
    k = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = (x - k * np.float32(0.693359375)) - k * np.float32(-2.12194440e-4)
    p = np.float32(1.98756915e-4) * r + np.float32(1.39819994e-3)
    p = p * r + np.float32(8.33345205e-3)
    p = p * r + np.float32(4.16657962e-2)
    p = p * r + np.float32(1.66666654e-1)
    p = p * r + np.float32(5.00000012e-1)
    result: np.float32 = (p * r * r + r + np.float32(1.0)) * _POWERS_OF_TWO[np.int64(k) + 126]
    return result


@inline_kernel
def _store(halves: Int32s, row: int, gradient: np.float32, hessian: np.float32) -> None:
    """Round both to the nearest integer and write them as one packed value.

    `halves` is the packed array seen as 32-bit halves, low first: a loop with 32-bit types only is vectorised twice as
    wide as one that mixes in 64-bit ones.
    """
    halves[2 * row] = np.int32(hessian + np.float32(0.5))
    halves[2 * row + 1] = np.int32(np.floor(gradient + np.float32(0.5)))


@kernel
def logistic_gradients(
    scores: Scores, labels: Scores, base: np.float32, g_scale: np.float32, h_scale: np.float32, packed: Ints
) -> None:
    """g = p - y, h = p (1 - p); unit weights."""
    halves = packed.view(np.int32)
    for row in range(scores.shape[0]):
        p = _sigmoid(scores[row] + base)
        _store(halves, row, (p - labels[row]) * g_scale, p * (np.float32(1.0) - p) * h_scale)


@kernel
def squared_gradients(
    scores: Scores, residual_labels: Scores, bound: np.float32, g_scale: np.float32, h_scale: np.float32, packed: Ints
) -> None:
    """g = score - y, h = 1; labels come with the base score taken off. Unit weights."""
    halves = packed.view(np.int32)
    for row in range(scores.shape[0]):
        g = min(max(scores[row] - residual_labels[row], -bound), bound)
        _store(halves, row, g * g_scale, h_scale)


@kernel
def pinball_gradients(
    scores: Scores,
    residual_labels: Scores,
    too_low: np.float32,
    too_high: np.float32,
    g_scale: np.float32,
    h_scale: np.float32,
    packed: Ints,
) -> None:
    """g = -too_low below the label, too_high above it, 0 on it; h = 1; labels as for the squared loss. Unit weights."""
    halves = packed.view(np.int32)
    zero = np.float32(0.0)
    for row in range(scores.shape[0]):
        miss = scores[row] - residual_labels[row]
        g = (too_high if miss > zero else zero) - (too_low if miss < zero else zero)
        _store(halves, row, g * g_scale, h_scale)


@kernel
def poisson_gradients(
    scores: Scores,
    labels: Scores,
    base: np.float32,
    bound: np.float32,
    g_scale: np.float32,
    h_scale: np.float32,
    packed: Ints,
) -> None:
    """g = mean - y, h = mean, with the mean at most `bound`. Unit weights."""
    halves = packed.view(np.int32)
    for row in range(scores.shape[0]):
        mean = min(exponential(scores[row] + base), bound)
        _store(halves, row, (mean - labels[row]) * g_scale, mean * h_scale)


@kernel
def softmax_gradients(
    scores: Scores,
    labels: Scores,
    bases: Scores,
    g_scale: np.float32,
    h_scale: np.float32,
    packed: Ints,
    start: int,
    stop: int,
) -> None:
    """g = p_k - [y = k], h = 2 p_k (1 - p_k) for every class k; scores and packed are [classes, rows]. Unit weights."""
    one = np.float32(1.0)
    n_classes = scores.shape[0]
    shares = np.empty(n_classes, np.float32)
    for row in range(start, stop):
        top = scores[0, row] + bases[0]
        for k in range(1, n_classes):
            top = max(top, scores[k, row] + bases[k])
        total = np.float32(0.0)
        for k in range(n_classes):
            shares[k] = exponential(scores[k, row] + bases[k] - top)
            total += shares[k]
        for k in range(n_classes):
            p = shares[k] / total
            target = one if labels[row] == k else np.float32(0.0)
            _store(packed[k].view(np.int32), row, (p - target) * g_scale, np.float32(2.0) * p * (one - p) * h_scale)


@kernel
def apply_weights(weight: Floats, weight_unit: float, packed: Ints) -> None:
    """Multiply both fields by the row's weight in units and round to the nearest integer."""
    for row in range(packed.shape[0]):
        value = packed[row]
        factor = weight[row] / weight_unit
        g = np.floor(np.float64(value >> np.int64(32)) * factor + 0.5)
        h = np.floor(np.float64(value & np.int64(0xFFFFFFFF)) * factor + 0.5)
        packed[row] = (np.int64(g) << np.int64(32)) + np.int64(h)
