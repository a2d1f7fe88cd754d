"""The loop over trees: gradients, one tree per output, evaluation, callbacks, early stopping."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import SCORE, Bytes, Floats, Scores
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.growth import TreeGrower
from hedgerow.engine.losses import Loss, Quantiser, weight_total
from hedgerow.engine.metrics import Metric, find_metric
from hedgerow.engine.rows import Rows
from hedgerow.errors import InvalidInput, InvalidParameter

ROW_TREES_WORTH_REGROUPING = 2_000_000  # rows x trees from which laying rows out by leaf repays its cost

MissingUnseen = Literal["heavier", "right"]
"""Where missing values go, and levels, that no row of a split's node had: with most of the weight, or right."""

EvalsLog = dict[str, dict[str, list[float]]]
EvalMetric = str | Callable[[Floats, Floats], float] | None


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
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    colsample_bynode: float = 1.0
    monotone: tuple[int, ...] | None = None
    base_score: float | None = None
    label_range: tuple[float, float] | None = None
    gradient_bits: int | None = None
    seed: int = 0
    n_threads: int = 1
    early_stopping_rounds: int | None = None
    tol: float = 0.0
    missing_unseen: MissingUnseen = "heavier"

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
            ("colsample_bytree", 0 < self.colsample_bytree <= 1, "in (0, 1]"),
            ("colsample_bynode", 0 < self.colsample_bynode <= 1, "in (0, 1]"),
            ("monotone", signs_known, "made of -1, 0 and 1"),
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
        observed = (float(labels.min()), float(labels.max()))
        return Loss(self.loss, n_outputs, self.label_range or observed)


@dataclass(frozen=True)
class EvalSet:
    """Rows that are scored after every iteration and never trained on."""

    name: str
    codes: Bytes
    y: Floats
    weight: Floats | None = None


class Callback(Protocol):
    """`after_iteration` is called once per iteration and stops training by returning True.

    `before_training(model)` and `after_training(model)` are called too where they exist.
    """

    def after_iteration(self, model: Ensemble, epoch: int, evals_log: EvalsLog) -> bool:
        """See the model so far; True stops training."""
        ...


@dataclass
class TrainingResult:
    """The model, cut back to its best iteration where early stopping was asked for."""

    ensemble: Ensemble
    evals_log: EvalsLog = field(default_factory=dict)
    best_iteration: int | None = None


def train(
    params: BoostingParams,
    mapper: BinMapper,
    codes: Bytes,
    y: Floats,
    weight: Floats | None = None,
    *,
    eval_sets: Sequence[EvalSet] = (),
    eval_metric: EvalMetric = None,
    callbacks: Sequence[Callback] = (),
    init: Ensemble | None = None,
) -> TrainingResult:
    """Train on binned rows: `codes` [features, rows] from `mapper`, labels as class numbers or targets.

    With `init` the trees of that model are kept and `n_iterations` more are added.
    """
    y = np.ascontiguousarray(y, np.float64)
    _check(params, mapper, codes, y, weight, eval_sets)
    loss = params.loss_for(y if weight is None else y[weight > 0])
    ensemble = _start(params, mapper, loss, y, weight, init)
    rows = _make_rows(params, mapper, codes, y, weight, loss, ensemble)
    edges = [feature.edges for feature in mapper.features]
    grower = TreeGrower(rows, params, loss, rows.quantiser, edges, weighted=weight is not None)
    watch = _Watch(params, loss, ensemble, eval_sets, eval_metric)
    _notify(callbacks, "before_training", ensemble)
    first = ensemble.n_iterations
    pays_to_regroup = params.subsample == 1.0 and len(y) * params.n_iterations >= ROW_TREES_WORTH_REGROUPING
    for iteration in range(first, first + params.n_iterations):
        _one_iteration(params, loss, rows, grower, ensemble, codes, iteration)
        if iteration == first and pays_to_regroup:
            rows.regroup()
        watch.after_iteration()
        wishes = [callback.after_iteration(ensemble, iteration, watch.log) for callback in callbacks]
        if watch.wants_to_stop or any(wishes):
            break
    _notify(callbacks, "after_training", ensemble)
    return watch.result()


def _one_iteration(
    params: BoostingParams, loss: Loss, rows: Rows, grower: TreeGrower, ensemble: Ensemble, codes: Bytes, iteration: int
) -> None:
    """One tree per output, all from the same scores."""
    rows.gradients()
    sample = None if params.subsample == 1.0 else (params.seed, iteration, params.subsample)
    for output in range(loss.n_outputs):
        rows.start_tree(output, sample=sample)
        tree = grower.grow(iteration * loss.n_outputs + output)
        ensemble.append(tree, checked=True)
        if sample is not None:  # rows outside the sample did not walk down the tree: score everybody afresh
            ensemble.add_binned(codes, tree, rows.scores[output], n_threads=params.n_threads)


def _start(
    params: BoostingParams, mapper: BinMapper, loss: Loss, y: Floats, weight: Floats | None, init: Ensemble | None
) -> Ensemble:
    if init is not None:
        if init.loss != loss.name or init.n_outputs != loss.n_outputs:
            raise InvalidParameter(f"init is a model for the {init.loss} loss, not for {loss.name}")
        return init.truncated(init.n_iterations)
    if params.base_score is None:
        bases = loss.base_scores(y, weight)
    else:
        bases = np.full(loss.n_outputs, float(params.base_score))
    return Ensemble(mapper, loss.name, bases)


def _make_rows(
    params: BoostingParams,
    mapper: BinMapper,
    codes: Bytes,
    y: Floats,
    weight: Floats | None,
    loss: Loss,
    ensemble: Ensemble,
) -> Rows:
    n_rows = len(y) if weight is None else int(np.count_nonzero(weight))
    quantiser = Quantiser.for_job(loss, weight_total(weight, n_rows), n_rows=n_rows, gradient_bits=params.gradient_bits)
    scores, base_scores = _scores_so_far(ensemble, codes, params.n_threads), ensemble.base_scores
    how: dict[str, Any] = {"quantiser": quantiser, "n_threads": params.n_threads, "scores": scores}
    return Rows.from_codes(mapper, codes, y, weight, loss=loss, base_scores=base_scores, **how)


def _scores_so_far(ensemble: Ensemble, codes: Bytes, n_threads: int) -> Scores:
    """What all trees add to the rows of `codes`, by output."""
    scores = np.zeros((ensemble.n_outputs, codes.shape[1]), SCORE)
    for number, tree in enumerate(ensemble.trees):
        ensemble.add_binned(codes, tree, scores[number % ensemble.n_outputs], n_threads=n_threads)
    return scores


class _Watch:
    """Scores the evaluation sets after each iteration and remembers the best one."""

    def __init__(
        self,
        params: BoostingParams,
        loss: Loss,
        ensemble: Ensemble,
        eval_sets: Sequence[EvalSet],
        eval_metric: EvalMetric,
    ) -> None:
        self._params, self._loss, self._ensemble, self._sets = params, loss, ensemble, list(eval_sets)
        if callable(eval_metric):
            function = eval_metric
            name = getattr(function, "__name__", "custom")
            self._metric = Metric(name, lambda labels, predictions, _weight: function(labels, predictions))
        else:
            self._metric = find_metric(eval_metric, loss)
        self.log: EvalsLog = {evals.name: {self._metric.name: []} for evals in self._sets}
        self._scores = [_scores_so_far(ensemble, evals.codes, params.n_threads) for evals in self._sets]
        self.wants_to_stop = False
        self._best: float | None = None
        self._best_iteration: int | None = None

    def after_iteration(self) -> None:
        """Log the metric of every set; `wants_to_stop` once the last set has not improved for long enough."""
        n_outputs, ensemble = self._loss.n_outputs, self._ensemble
        for evals, scores in zip(self._sets, self._scores, strict=True):
            for output, tree in enumerate(ensemble.trees[-n_outputs:]):
                ensemble.add_binned(evals.codes, tree, scores[output], n_threads=self._params.n_threads)
            raw = scores.T.astype(np.float64) + ensemble.base_scores
            self.log[evals.name][self._metric.name].append(self._metric(self._loss, evals.y, raw, evals.weight))
        if not self._sets or self._params.early_stopping_rounds is None:
            return
        value = self.log[self._sets[-1].name][self._metric.name][-1]
        iteration = ensemble.n_iterations - 1
        if self._best_iteration is None or self._improves(value):
            self._best, self._best_iteration = value, iteration
        self.wants_to_stop = iteration - self._best_iteration >= self._params.early_stopping_rounds

    def _improves(self, value: float) -> bool:
        if self._best is None or math.isnan(self._best):
            return True
        step = value - self._best if self._metric.larger_is_better else self._best - value
        return step > self._params.tol

    def result(self) -> TrainingResult:
        ensemble = self._ensemble
        if self._best_iteration is not None:
            ensemble = ensemble.truncated(self._best_iteration + 1)
        return TrainingResult(ensemble, self.log, self._best_iteration)


def _notify(callbacks: Sequence[Callback], event: str, ensemble: Ensemble) -> None:
    for callback in callbacks:
        hook: Callable[[Ensemble], Any] | None = getattr(callback, event, None)
        if hook is not None:
            hook(ensemble)


def _check(
    params: BoostingParams,
    mapper: BinMapper,
    codes: Bytes,
    y: Floats,
    weight: Floats | None,
    eval_sets: Sequence[EvalSet],
) -> None:
    n_features = len(mapper.features)
    for name, some_codes, labels, some_weight in [
        ("training", codes, y, weight),
        *((f"evaluation set {evals.name!r}", evals.codes, evals.y, evals.weight) for evals in eval_sets),
    ]:
        if some_codes.dtype != np.uint8 or some_codes.ndim != 2 or some_codes.shape[0] != n_features:
            raise InvalidInput(f"{name}: codes must be uint8 [{n_features} features, rows], got {some_codes.shape}")
        if some_codes.shape[1] != len(labels):
            raise InvalidInput(f"{name}: {some_codes.shape[1]} rows but {len(labels)} labels")
        if len(labels) == 0:
            raise InvalidInput(f"{name}: there are no rows")
        if not np.isfinite(labels).all():
            raise InvalidInput(f"{name}: label of row {int(np.argmin(np.isfinite(labels)))} is not a finite number")
        if some_weight is not None:
            _check_weight(name, some_weight, len(labels))
    if params.monotone is not None:
        _check_monotone(params.monotone, mapper)
    _check_labels(params, y)


def _check_weight(name: str, weight: Floats, n_rows: int) -> None:
    if weight.shape != (n_rows,):
        raise InvalidInput(
            f"{name}: sample_weight must have one value per row, got shape {weight.shape} for {n_rows} rows"
        )
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise InvalidInput(f"{name}: sample_weight must be finite and not negative")
    if not weight.any():
        raise InvalidInput(f"{name}: every sample_weight is zero")


def _check_monotone(monotone: tuple[int, ...], mapper: BinMapper) -> None:
    if len(monotone) != len(mapper.features):
        raise InvalidParameter(f"monotone has {len(monotone)} entries for {len(mapper.features)} features")
    for sign, feature in zip(monotone, mapper.features, strict=True):
        if sign and feature.levels is not None:
            raise InvalidParameter(f"monotone: column {feature.name!r} is categorical and has no order")


def _check_labels(params: BoostingParams, y: Floats) -> None:
    if params.loss in ("logistic", "softmax"):
        n_classes = 2 if params.loss == "logistic" else params.n_classes
        if not np.isin(y, np.arange(n_classes)).all():
            raise InvalidInput(f"labels for the {params.loss} loss must be class numbers 0 to {n_classes - 1}")
    elif params.label_range is not None:
        low, high = params.label_range
        if y.min() < low or y.max() > high:
            raise InvalidInput(
                f"labels lie in [{y.min():g}, {y.max():g}], outside the declared label_range {params.label_range}"
            )
    if params.loss == "poisson" and y.min() < 0:
        raise InvalidInput(f"poisson needs labels of at least 0, got {y.min():g}")
