"""What privacy costs: AUC over epsilon, with the spread over repetitions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hedgerow.engine.boosting import area_under_curve
from hedgerow.engine.dtypes import Floats
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.estimators.inputs import encode_like, read_classes
from hedgerow.federation.run import Run
from hedgerow.plot.canvas import GREY, axes_or_new, label, line_style, model_of, predictions_of
from hedgerow.statement import Statement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DIGITS = 6
"""Of an epsilon that an accountant has found: what lies behind them is rounding."""
_TITLE = "What privacy costs"


class _Measured(NamedTuple):
    """Epsilon -> AUC of each repetition, by method; and what one epsilon is for."""

    by_method: Mapping[str, Mapping[float, Floats]]
    unit: str = ""


def epsilon_against_auc(
    points: Mapping[Any, Any] | Iterable[Any],
    X: Any = None,
    y: Any = None,
    *,
    reference: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """AUC over epsilon: means, with bars of one standard deviation over repetitions.

    `points`: {epsilon: AUC, or a list of AUCs}; or several methods, {method: {epsilon: ...}}; or fitted models or runs
    that have an epsilon, which are then scored on the rows `X` with two classes of labels `y`; models of equal epsilon
    are repetitions. Runs of models in parts take `X` as {party: table}. An infinite epsilon, and each entry of
    `reference` ({"not private": 0.93}), is a horizontal line.

    Each model of a sweep costs its own epsilon: all of them together, released, cost the sum. What is computed from
    rows is not covered by any of their statements.
    """
    found = _by_models(points, X, y) if X is not None or not isinstance(points, Mapping) else _by_numbers(points)
    flat = dict(reference or {})
    ax = axes_or_new(ax)
    repeated, ticks = 1, set[float]()
    for number, (name, line) in enumerate(found.by_method.items()):
        finite = sorted(epsilon for epsilon in line if math.isfinite(epsilon))
        ticks.update(finite)
        repeated = max(repeated, *(len(scores) for scores in line.values()))
        means = [float(line[epsilon].mean()) for epsilon in finite]
        spreads = [float(line[epsilon].std(ddof=1)) if len(line[epsilon]) > 1 else 0.0 for epsilon in finite]
        if finite:
            ax.errorbar(finite, means, spreads, label=name or None, marker="o", capsize=3, **line_style(number))
        if math.inf in line:
            flat[f"{name}, epsilon infinite" if name else "epsilon infinite"] = float(line[math.inf].mean())
    for number, (name, value) in enumerate(flat.items()):
        dashes = (0, (6 - number % 4, 2))
        ax.axhline(_checked(value, f"reference {name!r}"), color=GREY, linestyle=dashes, label=f"{name}: {value:.3f}")
    ax.set_xscale("log")
    if len(ticks) <= 10:
        ax.set_xticks(sorted(ticks), [f"{tick:g}" for tick in sorted(ticks)])
        ax.minorticks_off()
    bars = f"\nbars: one standard deviation over up to {repeated} repetitions" if repeated > 1 else ""
    label(ax, _TITLE, f"epsilon{f' ({found.unit})' if found.unit else ' of each model'}, log scale{bars}", "AUC")
    if flat or any(found.by_method):
        ax.legend(loc="best")
    return ax


def _by_numbers(points: Mapping[Any, Any]) -> _Measured:
    """{epsilon: scores}, or {method: {epsilon: scores}}."""
    if not points:
        raise InvalidInput("points is empty: there is no epsilon to draw")
    several = [isinstance(value, Mapping) for value in points.values()]
    if any(several) and not all(several):
        raise InvalidInput("points must be {epsilon: scores} or {method: {epsilon: scores}}, not some of each")
    methods = {str(name): line for name, line in points.items()} if any(several) else {"": points}
    return _Measured({name: {_epsilon(e): _scores(e, s) for e, s in line.items()} for name, line in methods.items()})


def _epsilon(value: Any) -> float:
    number = math.nan if isinstance(value, str | bytes | bool) else float(value)
    if not number > 0:
        raise InvalidParameter(f"an epsilon must be a number above 0, got {value!r}")
    return float(f"{number:.{_DIGITS}g}")


def _scores(epsilon: Any, values: Any) -> Floats:
    scores: Floats = np.atleast_1d(np.asarray(values, np.float64))
    if scores.ndim != 1 or not scores.size:
        raise InvalidInput(f"epsilon {epsilon} must have one AUC, or a list of them, got shape {scores.shape}")
    for value in scores.tolist():
        _checked(value, f"at epsilon {epsilon}")
    return scores


def _checked(value: float, where: str) -> float:
    if not 0 <= value <= 1:
        raise InvalidInput(f"an AUC is between 0 and 1, but {where} it is {value!r}")
    return value


def _by_models(given: Any, X: Any, y: Any) -> _Measured:
    """Fitted models or runs, each with an epsilon of its own, scored on the same rows."""
    several = given if isinstance(given, Mapping) else {"": given}
    if X is None or y is None:
        raise InvalidParameter("models need rows X and labels y to be scored on; or give {epsilon: scores}")
    models = [(str(name), model) for name, group in several.items() for model in _listed(group)]
    if not models:
        raise InvalidInput("there is no model to score")
    promised = [_promised(model) for _, model in models]
    units = sorted({unit for _, unit in promised})
    if len(units) > 1:
        raise InvalidInput(
            f"these models protect different things, so their epsilons do not compare: {'; '.join(units)}"
        )
    found: dict[str, dict[float, list[float]]] = {}
    for (name, model), (epsilon, _) in zip(models, promised, strict=True):
        found.setdefault(name, {}).setdefault(_epsilon(epsilon), []).append(_auc(model, X, y))
    return _Measured({name: {e: np.array(s) for e, s in line.items()} for name, line in found.items()}, units[0])


def _listed(group: Any) -> list[Any]:
    return list(group) if isinstance(group, Iterable) else [group]


def _promised(model: Any) -> tuple[float, str]:
    """The epsilon of a model or run by its own statement, and what it is for."""
    statement = model.statement() if isinstance(model, Run) else getattr(model, "statement_", None)
    registry = statement.registry if isinstance(statement, Statement) else None
    epsilon = registry.loss.get("epsilon") if registry is not None else None
    if registry is None or not isinstance(epsilon, int | float):
        what = f"a run of {model.protocol}" if isinstance(model, Run) else f"a {type(model).__name__}"
        raise InvalidInput(f"{what} has no epsilon; give its AUC as reference={{'not private': ...}}")
    return float(epsilon), registry.unit


def _auc(given: Any, X: Any, y: Any) -> float:
    model = model_of(given, "plot.epsilon_against_auc")
    shares = predictions_of(model, X)
    if shares.ndim != 2 or shares.shape[1] != 2:
        raise InvalidInput("an AUC needs a model of two classes")
    found = area_under_curve(encode_like(read_classes(y, len(shares), "y"), model.classes_, "y"), shares)
    if math.isnan(found):
        raise InvalidInput("an AUC needs rows of both classes in y")
    return found
