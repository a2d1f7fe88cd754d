"""Numbers for the pages that are computed from rows and models: ROC, calibration, scores, mean contributions.

They need labels, so they are the business of whoever has those: `of_run` and `of_model` ask for nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hedgerow.engine import boosting
from hedgerow.engine.contributions import contributions
from hedgerow.engine.dtypes import Floats
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput
from hedgerow.estimators.inputs import encode_like, read_classes, read_targets
from hedgerow.report.told import Curve, Quality, Ranked

GROUPS = 10
"""Of a calibration: tenths of the rows, by their predictions."""
MOST_EXPLAINED = 1000
"""Rows whose contributions are averaged."""


def roc(is_second: Floats, scores: Floats) -> list[tuple[float, float]]:
    """Shares of the first class and of the second above each threshold, from (0, 0) to (1, 1); ties are one step."""
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order], is_second[order]
    ends = np.flatnonzero(np.diff(ranked, append=-np.inf) != 0)
    found, taken = np.cumsum(hits)[ends], ends + 1.0
    n_second = float(hits.sum())
    n_first = len(hits) - n_second
    if not n_second or not n_first:
        raise InvalidInput("a ROC curve needs rows of both classes")
    points = zip(((taken - found) / n_first).tolist(), (found / n_second).tolist(), strict=True)
    return [(0.0, 0.0), *points]


def calibration(labels: Floats, predictions: Floats) -> list[tuple[float, float, int]]:
    """Mean prediction, mean label and number of rows of each tenth of the rows, from the lowest predictions on."""
    order = np.argsort(predictions, kind="stable")
    tenths = [part for part in np.array_split(order, min(GROUPS, len(order))) if len(part)]
    return [(float(predictions[part].mean()), float(labels[part].mean()), len(part)) for part in tenths]


def quality_of_classes(shares: Floats, classes: Any, y: Any, rows: str) -> Quality:
    """From probabilities [rows, classes] and true labels; curves for two classes."""
    labels = encode_like(read_classes(y, len(shares), "y"), classes, "y")
    scores = {
        "accuracy": 1 - boosting.error_rate(labels, shares, None),
        "log loss (smaller is better)": boosting.log_loss(labels, shares, None),
    }
    if shares.shape[1] != 2:
        return Quality(rows, scores)
    auc = boosting.area_under_curve(labels, shares, None)
    second = np.ascontiguousarray(shares[:, 1])
    return Quality(
        rows,
        {"AUC (1 is perfect, 0.5 is chance)": auc, **scores},
        roc(labels, second),
        calibration(labels, second),
        f"share of rows that are {classes.tolist()[1]!r}",
    )


def quality_of_numbers(predictions: Floats, y: Any, rows: str) -> Quality:
    """From predicted numbers and true ones."""
    labels = read_targets(y, len(predictions), "y")
    rmse = boosting.root_mean_squared_error(labels, predictions, None)
    spread = float(np.var(labels))
    scores = {
        "root mean squared error": rmse,
        "mean absolute error": boosting.mean_absolute_error(labels, predictions, None),
        "R2 (1 is perfect, 0 is the mean)": 1 - rmse**2 / spread if spread else float("nan"),
    }
    return Quality(rows, scores, (), calibration(labels, predictions), "mean label")


def learning_curve(model: Any, X: Any, y: Any, rows: str = "rows of this report") -> dict[str, list[Curve]]:
    """How the loss on some rows went down, from the predictions after each round."""
    if hasattr(model, "classes_"):
        return losses(list(model.staged_predict_proba(X)), y, model.classes_, rows)
    return losses(list(model.staged_predict(X)), y, None, rows)


def losses(staged: Sequence[Floats], y: Any, classes: Any, rows: str) -> dict[str, list[Curve]]:
    """The loss of predictions after each of some rounds, by the name of the loss."""
    if classes is not None:
        labels = encode_like(read_classes(y, len(staged[0]), "y"), classes, "y")
        return {"log loss": [Curve(rows, [boosting.log_loss(labels, each, None) for each in staged])]}
    labels = read_targets(y, len(staged[0]), "y")
    found = [boosting.root_mean_squared_error(labels, each, None) for each in staged]
    return {"root mean squared error": [Curve(rows, found)]}


def importances(ensemble: Ensemble, note: str = "") -> Ranked:
    """Each column's share of the gain of all splits, or the number of its splits where gains are not known."""
    names = [feature.name for feature in ensemble.features]
    gains = ensemble.importances("gain")
    total = float(gains.sum())
    if total > 0:
        shares = dict(zip(names, (gains / total).tolist(), strict=True))
        return Ranked("Importance of columns: share of the gain of all splits", "share", shares, "share", note)
    counts = dict(zip(names, ensemble.importances("count").tolist(), strict=True))
    return Ranked("Importance of columns: number of splits", "splits", counts, "", note)


def mean_contributions(values: Floats, columns: Any, whose: str = "") -> Ranked:
    """From contributions [rows, columns, outputs]: what each column moves the score by, on average."""
    means = np.abs(values).mean(axis=(0, 2)) if len(values) else np.zeros(len(columns))
    caption = f"Contributions{whose}: what a column adds to or takes from the score of a row, on average"
    found = dict(zip(map(str, columns), means.tolist(), strict=True))
    return Ranked(caption, "mean, without sign", found, "", f"TreeSHAP over {len(values):,} rows.")


def contributions_of_model(ensemble: Ensemble, X: Any) -> Ranked:
    """Of a whole model, on the first rows of a table."""
    table = read_table(X, like=ensemble.features)
    narrow, column_of_feature = ensemble.narrowed()
    values = contributions(narrow, ensemble.codes(table)[:, :MOST_EXPLAINED], column_of_feature)[:, :-1]
    return mean_contributions(values, [feature.name for feature in ensemble.features])
