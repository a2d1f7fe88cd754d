"""How the loss went down, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.plot.canvas import GREY, axes_or_new, label, line_style, model_of, predictions_of, whole_numbers
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, Part
from hedgerow.report.charts import thinned
from hedgerow.report.measure import learning_curve, losses
from hedgerow.report.of_model import recorded
from hedgerow.report.told import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROUNDS = 25
"""Of a model in parts, each point takes one scoring by all parties: so many are enough to see the curve."""
_GIVEN = "the given rows"

_Line = tuple[str, Sequence[int], Sequence[float]]
"""A name, numbers of rounds, and the metric after each of them."""


def learning_curves(
    model: Any, X: Any = None, y: Any = None, *, metric: str | None = None, ax: Axes | None = None
) -> Axes:
    """The loss after each round of boosting, on the rows that `fit` has watched, or on rows `X` with labels `y`.

    `model`: a fitted model, a run, or `evals_result_` itself, {rows: {metric: values}}. `metric` chooses one where
    several were watched. A model keeps what it watched in memory only: one that was read from a file, was trained by
    several parties or is private has none, and needs `X` and `y`. Of a model in parts `X` is {party: table}, and the
    picture is that of the label holder, who learns the scores; each point is a scoring by all parties, at most 25.

    What is drawn from rows is not covered by a model's privacy statement, least of all from the rows it was trained on.
    """
    by_metric = _curves(model, X, y)
    chosen = next(iter(by_metric)) if metric is None else metric
    if chosen not in by_metric:
        raise InvalidParameter(f"metric={metric!r} was not watched; there are {', '.join(by_metric)}")
    ax = axes_or_new(ax)
    for number, (name, rounds, values) in enumerate(by_metric[chosen]):
        ax.plot(rounds, values, label=name, marker="o" if len(rounds) <= MOST_ROUNDS else None, **line_style(number))
    best = getattr(model, "best_iteration_", None)
    if best is not None and X is None:
        ax.axvline(best + 1, color=GREY, linestyle=":", label=f"best round, {best + 1}")
    label(ax, "Learning curves", "rounds of boosting", chosen)
    whole_numbers(ax)
    ax.legend()
    return ax


def _curves(given: Any, X: Any, y: Any) -> dict[str, list[_Line]]:
    """By metric: lines."""
    if (X is None) != (y is None):
        raise InvalidParameter("X and y go together: rows, and their labels")
    if isinstance(given, Mapping):
        if X is not None:
            raise InvalidParameter("X and y need a model: this is a log of curves, and predicts nothing")
        return _from_one(_of_log(given))
    model = model_of(given, "plot.learning_curves")
    if X is None:
        found = {} if isinstance(model, VerticalModel | Part) else recorded(model)
        if not found:
            raise InvalidInput(
                "this model has kept no learning curve. Give rows and labels: plot.learning_curves(model, X, y); "
                "estimators that are not private keep one if they are trained with fit(..., X_val=..., y_val=...)"
            )
        return _from_one(found)
    if isinstance(model, VerticalModel):
        return _by_scoring(model, X, y)
    if isinstance(model, Part):
        raise InvalidInput(f"the part of {model.party} predicts nothing alone: rows are scored by all parties together")
    return _from_one(learning_curve(model, X, y, _GIVEN))


def _of_log(log: Mapping[Any, Any]) -> dict[str, list[Curve]]:
    """{rows: {metric: values}}, as estimators and XGBoost have it."""
    found: dict[str, list[Curve]] = {}
    for rows, metrics in log.items():
        for metric, values in metrics.items() if isinstance(metrics, Mapping) else ():
            numbers = np.asarray(values, np.float64)
            if numbers.ndim != 1 or not numbers.size:
                raise InvalidInput(f"{metric} of {rows} must be a list of numbers, one for each round")
            found.setdefault(str(metric), []).append(Curve(str(rows), numbers.tolist()))
    if not found:
        raise InvalidInput("a log of curves is {rows: {metric: values}}, as evals_result_ has it; this one is empty")
    return found


def _from_one(found: Mapping[str, Sequence[Curve]]) -> dict[str, list[_Line]]:
    return {
        metric: [(curve.name, range(1, len(curve.values) + 1), curve.values) for curve in curves]
        for metric, curves in found.items()
    }


def _by_scoring(model: VerticalModel, X: Any, y: Any) -> dict[str, list[_Line]]:
    """Score the rows with the first trees only. The label holder asks all questions each time, and learns no more."""
    asking = model.asking
    if not isinstance(asking, LabelHolderPart):
        raise InvalidInput(
            "a model whose leaf values are shared has no learning curve: scores after each round would have to be "
            "opened, and a closed scoring opens the last ones only"
        )
    rounds = thinned(range(1, model.n_iter_ + 1), MOST_ROUNDS)
    staged = []
    for n_rounds in rounds:
        shorter = replace(asking, ensemble=asking.ensemble.truncated(n_rounds))
        staged.append(predictions_of(VerticalModel({**model.parts, asking.party: shorter}), X))
    classes = None if model.target.classes is None else model.classes_
    return {
        metric: [(curve.name, rounds, curve.values) for curve in curves]
        for metric, curves in losses(staged, y, classes, _GIVEN).items()
    }
