"""Metrics for evaluation sets: a name, whether more is better, and a function of labels, raw scores and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hedgerow.engine.dtypes import Floats
from hedgerow.engine.losses import Loss
from hedgerow.errors import InvalidParameter

SMALLEST = 1e-15


@dataclass(frozen=True, slots=True)
class Metric:
    """`function(labels, predictions, weight)`; predictions are what `Loss.predictions` gives."""

    name: str
    function: Callable[[Floats, Floats, Floats | None], float]
    larger_is_better: bool = False
    losses: tuple[str, ...] = ()

    def __call__(self, loss: Loss, labels: Floats, raw: Floats, weight: Floats | None) -> float:
        """The metric of raw scores [rows, outputs]."""
        return float(self.function(labels, loss.predictions(raw), weight))


def find_metric(name: str | None, loss: Loss) -> Metric:
    """The metric of that name, or the loss's own."""
    if name is None:
        return METRICS[DEFAULT_METRIC[loss.name]]
    metric = METRICS.get(name)
    if metric is None:
        raise InvalidParameter(f"eval_metric must be one of {', '.join(METRICS)}, got {name!r}")
    if loss.name not in metric.losses:
        raise InvalidParameter(f"eval_metric={name!r} does not fit the {loss.name} loss")
    return metric


def _mean(values: Floats, weight: Floats | None) -> float:
    return float(np.average(values, weights=weight))


def log_loss(labels: Floats, shares: Floats, weight: Floats | None = None) -> float:
    """Mean of -log of the share given to the true class."""
    own = shares[np.arange(len(labels)), labels.astype(np.int64)]
    return _mean(-np.log(np.maximum(own, SMALLEST)), weight)


def error_rate(labels: Floats, shares: Floats, weight: Floats | None = None) -> float:
    """Share of rows whose likeliest class is not the true one."""
    return _mean((shares.argmax(axis=1) != labels).astype(np.float64), weight)


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


def root_mean_squared_error(labels: Floats, predictions: Floats, weight: Floats | None = None) -> float:
    """Square root of the mean squared difference."""
    return float(np.sqrt(_mean((labels - predictions) ** 2, weight)))


def mean_absolute_error(labels: Floats, predictions: Floats, weight: Floats | None = None) -> float:
    """Mean absolute difference."""
    return _mean(np.abs(labels - predictions), weight)


def poisson_deviance(labels: Floats, means: Floats, weight: Floats | None = None) -> float:
    """Twice the mean of y log(y / mean) - y + mean."""
    means = np.maximum(means, SMALLEST)
    ratio = np.where(labels > 0, labels / means, 1.0)
    return 2 * _mean(labels * np.log(ratio) - labels + means, weight)


METRICS = {
    metric.name: metric
    for metric in (
        Metric("logloss", log_loss, losses=("logistic",)),
        Metric("auc", area_under_curve, larger_is_better=True, losses=("logistic",)),
        Metric("error", error_rate, losses=("logistic",)),
        Metric("mlogloss", log_loss, losses=("softmax",)),
        Metric("merror", error_rate, losses=("softmax",)),
        Metric("rmse", root_mean_squared_error, losses=("squared", "poisson")),
        Metric("mae", mean_absolute_error, losses=("squared", "poisson")),
        Metric("poisson-deviance", poisson_deviance, losses=("poisson",)),
    )
}

DEFAULT_METRIC = {"logistic": "logloss", "softmax": "mlogloss", "squared": "rmse", "poisson": "poisson-deviance"}
