"""What is measured on held-out rows."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Task = Literal["classification", "regression"]
Measures = dict[str, float]
Floats = NDArray[np.float64]


def measure(y: Floats, scores: Floats, label_bounds: tuple[float, float] | None) -> Measures:
    """Classes 0 and 1: share of wrong signs, and AUC. Numbers: RMSE of scores clipped to the labels' public bounds.

    Clipping costs no privacy, and the estimators do it too. RMSE without it is kept beside.
    """
    if not np.isfinite(scores).all():
        raise ValueError("a method gave scores that are not finite")
    if label_bounds is not None:
        return {"rmse": _rmse(y, np.clip(scores, *label_bounds)), "rmse unclipped": _rmse(y, scores)}
    from sklearn.metrics import roc_auc_score

    return {"error": float(np.mean((scores > 0.0) != (y > 0.5))), "auc": float(roc_auc_score(y, scores))}


def _rmse(y: Floats, predicted: Floats) -> float:
    return math.sqrt(float(np.mean((predicted - y) ** 2)))


def main_measure(task: Task) -> str:
    """The one that the paper shows."""
    return "rmse" if task == "regression" else "error"
