"""How good a model is on a table with known labels: the numbers that `train` and `demo` report."""

from __future__ import annotations

from typing import Any

import numpy as np

from hedgerow.engine import metrics
from hedgerow.engine.dtypes import Floats
from hedgerow.estimators.labels import encode_like, read_classes, read_targets
from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor


def scores(
    model: BoostedTreesClassifier | BoostedTreesRegressor, X: Any, y: Any, weight: Floats | None
) -> dict[str, float]:
    """auc (of two classes), accuracy and logloss of a classifier; rmse, mae and r2 of a regressor."""
    if isinstance(model, BoostedTreesClassifier):
        return scores_of_shares(model.predict_proba(X), model.classes_, y, weight)
    predictions = model.predict(X)
    labels = read_targets(y, len(predictions))
    mean = np.average(labels, weights=weight)
    spread = np.average((labels - mean) ** 2, weights=weight)
    rmse = metrics.root_mean_squared_error(labels, predictions, weight)
    return {
        "rmse": rmse,
        "mae": metrics.mean_absolute_error(labels, predictions, weight),
        "r2": float(1 - rmse**2 / spread) if spread > 0 else float("nan"),
    }


def scores_of_shares(shares: Floats, classes: Any, y: Any, weight: Floats | None = None) -> dict[str, float]:
    """The scores of a classifier, from the probabilities [rows, classes] that it gives."""
    labels = encode_like(read_classes(y, len(shares)), classes, "the label column")
    found = {
        "accuracy": 1 - metrics.error_rate(labels, shares, weight),
        "logloss": metrics.log_loss(labels, shares, weight),
    }
    return {"auc": metrics.area_under_curve(labels, shares, weight), **found} if shares.shape[1] == 2 else found
