"""The loop over trees: gradients, one tree per output, evaluation, callbacks, early stopping."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import SCORE, Bytes, Floats, Scores
from hedgerow.engine.ensemble import Ensemble, Tree, predictions_from
from hedgerow.engine.growth import RowsLike, TreeGrower
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser, check_weight
from hedgerow.engine.rows import Rows
from hedgerow.engine.scratch import Room
from hedgerow.engine.sparse import SparseCodes
from hedgerow.errors import InvalidInput, InvalidParameter

ROW_TREES_WORTH_REGROUPING = 2_000_000  # rows x trees from which laying rows out by leaf repays its cost
SMALLEST = 1e-15  # share of a class, or mean, whose logarithm is still taken

EvalsLog = dict[str, dict[str, list[float]]]
EvalMetric = str | Callable[[Floats, Floats], float] | None


@dataclass(frozen=True)
class EvalSet:
    """Binned rows with their labels: those that are scored after every iteration, and never trained on."""

    name: str
    codes: Bytes | SparseCodes
    y: Floats
    weight: Floats | None = None


class RowsToTrain(RowsLike, Protocol):
    """What the loop over trees needs of its rows, wherever they are."""

    n_rows: int
    quantiser: Quantiser

    def gradients(self) -> None:
        """Quantise the gradients of every output from the present scores."""
        ...

    def start_tree(self, output: int = 0, *, sample: tuple[int, int, float] | None = None) -> None:
        """All rows, or a sample of them, stand at the root."""
        ...

    def regroup(self, *, in_place: bool = False) -> None:
        """Lay rows out in memory by the leaves of the tree just finished."""
        ...


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
    codes: Bytes | SparseCodes,
    y: Floats,
    weight: Floats | None = None,
    *,
    eval_sets: Sequence[EvalSet] = (),
    eval_metric: EvalMetric = None,
    callbacks: Sequence[Callback] = (),
    init: Ensemble | None = None,
    room: Room = np.empty,
) -> TrainingResult:
    """Train on binned rows: `codes` [features, rows] from `mapper`, labels as class numbers or targets.

    With `init` the trees of that model are kept and `n_iterations` more are added. `room` makes the arrays that hold
    the packed rows; where it is not memory, `codes` are not kept either, but used up.
    """
    training = EvalSet("training", codes, np.ascontiguousarray(y, np.float64), weight)
    _check(params, mapper, training, eval_sets)
    loss = params.loss_for(training.y if weight is None else training.y[weight > 0])
    ensemble = start_model(params, mapper, loss, training.y, weight, init)
    rows = _make_rows(params, mapper, loss, training, ensemble, room)
    in_place = room is not np.empty

    def add_tree(tree: Tree, output: int) -> None:
        ensemble.add_binned(codes, tree, rows.scores[output], n_threads=params.n_threads)

    # Codes that are written over cannot be looked at after each tree, in the order in which they were.
    watching_these = any(evals.codes is codes for evals in eval_sets)
    watched: dict[str, Any] = {"eval_sets": eval_sets, "eval_metric": eval_metric, "callbacks": callbacks}
    how: dict[str, Any] = {"in_place": in_place, "regroup": not (in_place and watching_these)}
    return boost(params, loss, rows, ensemble, add_tree, weighted=weight is not None, **watched, **how)


def boost(
    params: BoostingParams,
    loss: Loss,
    rows: RowsToTrain,
    ensemble: Ensemble,
    add_tree: Callable[[Tree, int], None],
    *,
    weighted: bool,
    eval_sets: Sequence[EvalSet] = (),
    eval_metric: EvalMetric = None,
    callbacks: Sequence[Callback] = (),
    after_iteration: Callable[[Ensemble], None] | None = None,
    regroup: bool = True,
    in_place: bool = True,
) -> TrainingResult:
    """The loop over trees, wherever the rows are; `ensemble` is what there is already, and grows.

    `add_tree(tree, output)` scores all rows with a tree that only a sample of them has walked down. `regroup`: rows may
    be laid out in another order, and `in_place` if what they were made from is of no use to anybody else.
    """
    edges = [feature.edges for feature in ensemble.features]
    grower = TreeGrower(rows, params, loss, rows.quantiser, edges, weighted=weighted)
    watch = _Watch(params, loss, ensemble, eval_sets, eval_metric)
    _notify(callbacks, "before_training", ensemble)
    first = ensemble.n_iterations
    is_enough = rows.n_rows * params.n_iterations >= ROW_TREES_WORTH_REGROUPING
    pays_to_regroup = regroup and is_enough and params.subsample == 1.0
    for iteration in range(first, first + params.n_iterations):
        _one_iteration(params, rows, grower, ensemble, add_tree, iteration)
        if iteration == first and pays_to_regroup:
            rows.regroup(in_place=in_place)
        if after_iteration is not None:
            after_iteration(ensemble)
        watch.after_iteration()
        wishes = [callback.after_iteration(ensemble, iteration, watch.log) for callback in callbacks]
        if watch.wants_to_stop or any(wishes):
            break
    _notify(callbacks, "after_training", ensemble)
    return watch.result()


def _one_iteration(
    params: BoostingParams,
    rows: RowsToTrain,
    grower: TreeGrower,
    ensemble: Ensemble,
    add_tree: Callable[[Tree, int], None],
    iteration: int,
) -> None:
    """One tree per output, all from the same scores."""
    rows.gradients()
    sample = None if params.subsample == 1.0 else (params.seed, iteration, params.subsample)
    for output in range(ensemble.n_outputs):
        rows.start_tree(output, sample=sample)
        tree = grower.grow(iteration * ensemble.n_outputs + output)
        ensemble.append(tree, checked=True)
        if sample is not None:  # rows outside the sample did not walk down the tree: score everybody afresh
            add_tree(tree, output)


def start_model(
    params: BoostingParams, mapper: BinMapper, loss: Loss, y: Floats, weight: Floats | None, init: Ensemble | None
) -> Ensemble:
    """The model before the first tree, or a copy of one to go on from."""
    if init is not None:
        if init.loss != loss.name or init.n_outputs != loss.n_outputs:
            raise InvalidParameter(f"init is a model for the {init.loss} loss, not for {loss.name}")
        return init.truncated(init.n_iterations)
    return Ensemble(mapper, loss.name, params.base_scores(loss, y, weight))


def _make_rows(
    params: BoostingParams, mapper: BinMapper, loss: Loss, training: EvalSet, ensemble: Ensemble, room: Room
) -> Rows:
    codes, y, weight, n_threads = training.codes, training.y, training.weight, params.n_threads
    quantiser = Quantiser.for_rows(loss, len(y), weight, gradient_bits=params.gradient_bits)
    scores = _scores_so_far(ensemble, codes, n_threads)
    how: dict[str, Any] = {"quantiser": quantiser, "n_threads": n_threads, "scores": scores, "room": room}
    return Rows.from_codes(mapper, codes, y, weight, loss=loss, base_scores=ensemble.base_scores, **how)


def _scores_so_far(ensemble: Ensemble, codes: Bytes | SparseCodes, n_threads: int) -> Scores:
    """What all trees add to the rows of `codes`, by output."""
    scores = np.zeros((ensemble.n_outputs, codes.shape[1]), SCORE)
    for number, tree in enumerate(ensemble.trees):
        ensemble.add_binned(codes, tree, scores[number % ensemble.n_outputs], n_threads=n_threads)
    return scores


class BestRound:
    """What early stopping remembers: the values of a metric, one for each iteration, and the best of them.

    Wherever the rows are, whoever computes the metric: the same values stop training in the same iteration.
    """

    def __init__(self, params: BoostingParams, metric: Metric, first: int = 0) -> None:
        self.metric, self._params, self._first = metric, params, first
        self.curve: list[float] = []
        self.best_iteration: int | None = None
        self._best = math.nan

    def see(self, value: float) -> None:
        """The metric after one more iteration."""
        self.curve.append(value)
        step = value - self._best if self.metric.larger_is_better else self._best - value
        if math.isnan(self._best) or step > self._params.tol:
            self._best, self.best_iteration = value, self._first + len(self.curve) - 1

    @property
    def wants_to_stop(self) -> bool:
        """Whether the last `early_stopping_rounds` values were no better than the best one."""
        if self._params.early_stopping_rounds is None or self.best_iteration is None:
            return False
        return self._first + len(self.curve) - 1 - self.best_iteration >= self._params.early_stopping_rounds


class _Watch:
    """Scores the evaluation sets after each iteration and remembers the best one."""

    def __init__(
        self, params: BoostingParams, loss: Loss, ensemble: Ensemble, sets: Sequence[EvalSet], metric: EvalMetric
    ) -> None:
        self._params, self._loss, self._ensemble, self._sets = params, loss, ensemble, list(sets)
        if callable(metric):
            name = getattr(metric, "__name__", "custom")
            self._metric = Metric(name, lambda labels, predictions, _weight: metric(labels, predictions))
        else:
            self._metric = find_metric(metric, loss)
        self.log: EvalsLog = {evals.name: {self._metric.name: []} for evals in self._sets}
        self._scores = [_scores_so_far(ensemble, evals.codes, params.n_threads) for evals in self._sets]
        stops = bool(self._sets) and params.early_stopping_rounds is not None
        self._best = BestRound(params, self._metric, ensemble.n_iterations) if stops else None

    @property
    def wants_to_stop(self) -> bool:
        """Once the last set has not improved for long enough."""
        return self._best is not None and self._best.wants_to_stop

    def after_iteration(self) -> None:
        """Log the metric of every set."""
        n_outputs, ensemble = self._loss.n_outputs, self._ensemble
        for evals, scores in zip(self._sets, self._scores, strict=True):
            for output, tree in enumerate(ensemble.trees[-n_outputs:]):
                ensemble.add_binned(evals.codes, tree, scores[output], n_threads=self._params.n_threads)
            raw = scores.T.astype(np.float64) + ensemble.base_scores
            self.log[evals.name][self._metric.name].append(self._metric(self._loss, evals.y, raw, evals.weight))
        if self._best is not None:
            self._best.see(self.log[self._sets[-1].name][self._metric.name][-1])

    def result(self) -> TrainingResult:
        if self._best is None or self._best.best_iteration is None:
            return TrainingResult(self._ensemble, self.log)
        kept = self._best.best_iteration
        return TrainingResult(self._ensemble.truncated(kept + 1), self.log, kept)


def _notify(callbacks: Sequence[Callback], event: str, ensemble: Ensemble) -> None:
    for callback in callbacks:
        hook: Callable[[Ensemble], Any] | None = getattr(callback, event, None)
        if hook is not None:
            hook(ensemble)


def _check(params: BoostingParams, mapper: BinMapper, training: EvalSet, eval_sets: Sequence[EvalSet]) -> None:
    n_features = len(mapper.features)
    for rows in (training, *eval_sets):
        where = "training" if rows is training else f"evaluation set {rows.name!r}"
        codes, labels = rows.codes, rows.y
        is_typed = isinstance(codes, SparseCodes) or (codes.dtype == np.uint8 and codes.ndim == 2)
        if not is_typed or codes.shape[0] != n_features:
            raise InvalidInput(f"{where}: codes must be uint8 [{n_features} features, rows], got {codes.shape}")
        if codes.shape[1] != len(labels):
            raise InvalidInput(f"{where}: {codes.shape[1]} rows but {len(labels)} labels")
        if len(labels) == 0:
            raise InvalidInput(f"{where}: there are no rows")
        if not np.isfinite(labels).all():
            raise InvalidInput(f"{where}: label of row {int(np.argmin(np.isfinite(labels)))} is not a finite number")
        if rows.weight is not None:
            check_weight(where, rows.weight, len(labels))
    check_rules(params, mapper, training.y)


def check_rules(params: BoostingParams, mapper: BinMapper, y: Floats) -> None:
    """Raise unless the parameters fit the columns and the labels."""
    if params.monotone is not None:
        _check_monotone(params.monotone, mapper)
        if params.loss_for(y).refits_leaves:
            raise InvalidParameter(
                f"monotone does not go with the {params.loss} loss: leaf values are quantiles of their own rows, and "
                "those do not keep to an order"
            )
    for feature in params.one_hot_levels:
        if not 0 <= feature < len(mapper.features) or mapper.features[feature].levels is None:
            raise InvalidParameter(f"one_hot_levels names feature {feature}, which has no levels")
    _check_labels(params, y)


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


# --- metrics: a name, whether more is better, and a function of labels, predictions and weights ----------------------


@dataclass(frozen=True, slots=True)
class Metric:
    """`function(labels, predictions, weight)`; predictions are what `predictions_from` gives."""

    name: str
    function: Callable[[Floats, Floats, Floats | None], float]
    larger_is_better: bool = False
    losses: tuple[str, ...] = ()

    def __call__(self, loss: Loss, labels: Floats, raw: Floats, weight: Floats | None) -> float:
        """The metric of raw scores [rows, outputs]."""
        return float(self.function(labels, predictions_from(loss.name, raw), weight))


def pinball_of(loss: Loss) -> Metric:
    """The mean pinball loss at the loss's own quantile; at one half it is half the mean absolute error."""
    too_low, too_high = loss.quantile, 1.0 - loss.quantile

    def pinball(labels: Floats, predictions: Floats, weight: Floats | None = None) -> float:
        lacking = labels - predictions
        return _mean(np.maximum(too_low * lacking, -too_high * lacking), weight)

    return Metric("pinball", pinball, losses=("absolute", "quantile"))


def find_metric(name: str | None, loss: Loss) -> Metric:
    """The metric of that name, or the loss's own."""
    known = {**METRICS, "pinball": pinball_of(loss)}
    name = DEFAULT_METRIC[loss.name] if name is None else name
    metric = known.get(name)
    if metric is None:
        raise InvalidParameter(f"eval_metric must be one of {', '.join(known)}, got {name!r}")
    if loss.name not in metric.losses:
        raise InvalidParameter(f"eval_metric={name!r} does not fit the {loss.name} loss")
    return metric


def _mean(values: Floats, weight: Floats | None) -> float:
    return float(np.average(values, weights=weight))


def log_losses(labels: Floats, shares: Floats) -> Floats:
    """-log of the share given to the true class, by row."""
    own = shares[np.arange(len(labels)), labels.astype(np.int64)]
    losses: Floats = -np.log(np.maximum(own, SMALLEST))
    return losses


def log_loss(labels: Floats, shares: Floats, weight: Floats | None = None) -> float:
    """Mean of -log of the share given to the true class."""
    return _mean(log_losses(labels, shares), weight)


def errors(labels: Floats, shares: Floats) -> Floats:
    """1 for rows whose likeliest class is not the true one, else 0."""
    wrong: Floats = (shares.argmax(axis=1) != labels).astype(np.float64)
    return wrong


def error_rate(labels: Floats, shares: Floats, weight: Floats | None = None) -> float:
    """Share of rows whose likeliest class is not the true one."""
    return _mean(errors(labels, shares), weight)


def area_under_curve(labels: Floats, shares: Floats, weight: Floats | None = None) -> float:
    """Share of (positive, negative) pairs in the right order, ties counting half."""
    weight = np.ones(len(labels)) if weight is None else weight
    _, group = np.unique(shares[:, 1], return_inverse=True)
    positive = np.bincount(group, weights=weight * (labels == 1))
    negative = np.bincount(group, weights=weight * (labels != 1))
    below = np.cumsum(negative) - negative
    pairs = positive.sum() * negative.sum()
    if pairs == 0:
        return float("nan")
    return float((positive * (below + negative / 2)).sum() / pairs)


def squared_errors(labels: Floats, predictions: Floats) -> Floats:
    """Squared differences, by row."""
    squares: Floats = (labels - predictions) ** 2
    return squares


def root_mean_squared_error(labels: Floats, predictions: Floats, weight: Floats | None = None) -> float:
    """Square root of the mean squared difference."""
    return float(np.sqrt(_mean(squared_errors(labels, predictions), weight)))


def absolute_errors(labels: Floats, predictions: Floats) -> Floats:
    """Absolute differences, by row."""
    return np.abs(labels - predictions)


def mean_absolute_error(labels: Floats, predictions: Floats, weight: Floats | None = None) -> float:
    """Mean absolute difference."""
    return _mean(absolute_errors(labels, predictions), weight)


def half_deviances(labels: Floats, means: Floats) -> Floats:
    """y log(y / mean) - y + mean, by row."""
    means = np.maximum(means, SMALLEST)
    ratio = np.where(labels > 0, labels / means, 1.0)
    deviances: Floats = labels * np.log(ratio) - labels + means
    return deviances


def poisson_deviance(labels: Floats, means: Floats, weight: Floats | None = None) -> float:
    """Twice the mean of y log(y / mean) - y + mean."""
    return 2 * _mean(half_deviances(labels, means), weight)


REGRESSIONS = ("squared", "poisson", "absolute", "quantile")
METRICS = {
    metric.name: metric
    for metric in (
        Metric("logloss", log_loss, losses=("logistic",)),
        Metric("auc", area_under_curve, larger_is_better=True, losses=("logistic",)),
        Metric("error", error_rate, losses=("logistic",)),
        Metric("mlogloss", log_loss, losses=("softmax",)),
        Metric("merror", error_rate, losses=("softmax",)),
        Metric("rmse", root_mean_squared_error, losses=REGRESSIONS),
        Metric("mae", mean_absolute_error, losses=REGRESSIONS),
        Metric("poisson-deviance", poisson_deviance, losses=("poisson",)),
    )
}

DEFAULT_METRIC = {
    "logistic": "logloss",
    "softmax": "mlogloss",
    "squared": "rmse",
    "poisson": "poisson-deviance",
    "absolute": "mae",
    "quantile": "pinball",
}
