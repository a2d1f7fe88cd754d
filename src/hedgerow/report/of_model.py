"""The report of a model that is whole: of one table, private or not, or of owners of rows who all have it."""

from __future__ import annotations

import contextlib
from typing import Any

from hedgerow._version import __version__
from hedgerow.errors import HedgerowError, InvalidParameter
from hedgerow.report.charts import count
from hedgerow.report.measure import (
    contributions_of_model,
    importances,
    learning_curve,
    quality_of_classes,
    quality_of_numbers,
)
from hedgerow.report.told import Budget, Curve, Quality, Told

IN_ITS_RUN = "The model does not say: it was trained by {protocol}, and the statement is with the run (run.json)."


def told_of_model(model: Any, X: Any = None, y: Any = None, *, name: str = "", quality: Quality | None = None) -> Told:
    """All that a fitted estimator can tell; with rows and labels also how good it is on them."""
    ensemble, kind = model.ensemble_, type(model).__name__
    statement = getattr(model, "statement_", None)
    protocol = str(ensemble.meta.get("protocol", statement.protocol if statement else "one table, no protection"))
    instead = ""
    if statement is None and "protocol" in ensemble.meta:
        stamp = ensemble.meta.get("stamp")
        instead = (f"{stamp}. " if stamp else "") + IN_ITS_RUN.format(protocol=protocol)
    measured, curves = measured_on(model, X, y)
    return Told(
        title=f"Report of a model{f' in {name}' if name else ''}",
        subtitle=f"{kind}, {protocol}",
        protocol=protocol,
        party=None,
        trained=trained_words(model),
        statement=statement,
        guarantee_instead=instead,
        ranked=[importances(ensemble), *([] if X is None else [contributions_of_model(ensemble, X)])],
        curves=recorded(model) | curves,
        quality=quality or measured,
        is_from_rows=X is not None or quality is not None,
        budgets=list(_budgets(model)),
        again=_again(model),
        facts={"Hedgerow": __version__, "estimator": kind, **({"model file": name} if name else {})},
        commands=[f"hedgerow predict {name or 'model.json'} rows.parquet --out predictions.csv"],
        settings={**ensemble.meta.get("params", {})},
    )


def trained_words(model: Any) -> list[str]:
    """What was trained, from the model itself."""
    features = model.ensemble_.features
    levels = sum(feature.is_categorical for feature in features)
    what = "to predict a number"
    if hasattr(model, "classes_"):
        classes = [str(each) for each in model.classes_.tolist()]
        what = f"to tell {len(classes)} classes apart ({', '.join(classes[:5])}{', ...' * (len(classes) > 5)})"
    rounds = (
        count(model.n_iter_, "tree") if len(model.ensemble_.trees) == model.n_iter_ else count(model.n_iter_, "round")
    )
    columns = f"{count(len(features), 'column')}{f', {levels} of them categories' if levels else ''}"
    return [f"A model {what}: {rounds} of boosting on {columns}."]


def measured_on(model: Any, X: Any, y: Any) -> tuple[Quality | None, dict[str, list[Curve]]]:
    """Scores and a learning curve on rows whose labels are given."""
    if y is None:
        return None, {}
    if X is None:
        raise InvalidParameter("y needs X: labels are compared with what the model predicts for their rows")
    if hasattr(model, "classes_"):
        shares = model.predict_proba(X)
        found = quality_of_classes(shares, model.classes_, y, f"{len(shares):,} rows")
    else:
        numbers = model.predict(X)
        found = quality_of_numbers(numbers, y, f"{len(numbers):,} rows")
    return found, learning_curve(model, X, y)


def recorded(model: Any) -> dict[str, list[Curve]]:
    """Learning curves that `fit` has kept, of validation rows, by metric."""
    found: dict[str, list[Curve]] = {}
    for rows, metrics in getattr(model, "evals_result_", {}).items():
        for metric, values in metrics.items():
            found.setdefault(str(metric), []).append(Curve(str(rows), list(values)))
    return found


def _budgets(model: Any) -> list[Budget]:
    """The budget that `fit` was charged to. A file that has been moved since is no reason to show nothing."""
    dataset = getattr(model, "budget", None)
    if dataset is None:
        return []
    with contextlib.suppress(HedgerowError, OSError):
        spent = dataset.spent()
        return [Budget(dataset.name, dataset.epsilon, dataset.delta, spent.epsilon, spent.delta)]
    return []


def _again(model: Any) -> str:
    statement = getattr(model, "statement_", None)
    if statement is not None and statement.is_private:
        return "A second training gives another model: its noise is secret and drawn anew, and it costs the same again."
    return ""
