"""Partial dependence: the mean prediction for some rows, were a column the same in all of them.

A model of trees looks at a column through its own thresholds alone, so the curve is a staircase with steps at these,
and it is drawn as it is: each stair is one prediction for all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Floats
from hedgerow.engine.table import Column, read_table
from hedgerow.errors import InvalidInput
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.plot.canvas import GREY, axes_or_new, label, line_style, model_of, predictions_of
from hedgerow.protocols.vertical.common.parts import Part
from hedgerow.protocols.vertical.common.shared_parts import SharedLeavesPart
from hedgerow.report.charts import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_LEVEL = 18


class _Means(NamedTuple):
    """Mean predictions, one row for each stair or level, one column for each line."""

    stairs: Floats  # edges, one more than stairs; of levels: empty
    levels: Sequence[str]
    means: Floats  # [stairs or levels, lines]
    missing: Floats | None  # [lines], if the rows have missing values in the column
    seen: Floats  # the rows' own values, without missing ones


def partial_dependence(model: Any, table: Any, column: str, *, ax: Axes | None = None) -> Axes:
    """The mean prediction for the rows of `table`, were `column` the same in all of them; ticks are the rows' deciles.

    Two classes: the mean probability of the second; more: a line for each; numbers: the mean prediction. If rows have
    missing values in the column, a dotted line shows the mean were it missing in all.

    Of a model in parts `table` is {party: table}, and the column is one of the label holder's: it learns the scores,
    and can put values into its own columns only. Every stair is a scoring by all parties.

    The picture shows what predictions for these rows are, and where their values lie. It is not covered by the model's
    privacy statement: take rows that you may show, and not those that a private model was trained on.
    """
    found = model_of(model, "plot.partial_dependence")
    names: Sequence[str]
    if isinstance(found, VerticalModel):
        means, names = _of_parts(found, table, column), _names(found)
    elif isinstance(found, Part):
        raise InvalidInput(f"the part of {found.party} predicts nothing alone: rows are scored by all parties together")
    else:
        means, names = _of_whole(found, table, column), _names(found)
    ax = axes_or_new(ax)
    for number, name in enumerate(names):
        style, values = line_style(number), means.means[:, number]
        if means.levels:
            ax.plot(range(len(values)), values, label=name, marker="o", color=style["color"], linestyle="none")
        else:
            ax.stairs(values, means.stairs, baseline=None, label=name, **style)
        if means.missing is not None:
            ax.axhline(means.missing[number], color=style["color"], linestyle=":", label=f"{name}, missing")
    if means.levels:
        ax.set_xticks(range(len(means.levels)), [short(level, _LONGEST_LEVEL) for level in means.levels])
        if len(means.levels) > 5:
            ax.tick_params(axis="x", rotation=60)
    elif means.seen.size:
        deciles = np.quantile(means.seen, np.arange(1, 10) / 10)
        ax.plot(
            deciles, np.zeros(9), "|", color=GREY, transform=ax.get_xaxis_transform(), markersize=12, label="deciles"
        )
    what = "mean prediction" if names == [_NUMBER] else "mean probability"
    label(ax, f"Partial dependence on {short(column, 32)}", column, what)
    ax.legend()
    return ax


_NUMBER = "prediction"


def _names(model: Any) -> list[str]:
    """Of the lines: the second of two classes, all of more, or one for a number."""
    classes = [repr(each) for each in model.classes_.tolist()] if hasattr(model, "classes_") else [_NUMBER]
    return classes[1:] if len(classes) == 2 else classes


def _mean(predictions: Floats) -> Floats:
    """By line."""
    lines = predictions[:, None] if predictions.ndim == 1 else predictions
    means: Floats = (lines[:, 1:] if lines.shape[1] == 2 else lines).mean(axis=0)
    return means


# --- of a whole model ------------------------------------------------------------------------------------------------


def _of_whole(model: Any, X: Any, name: str) -> _Means:
    """On codes: every row has the code of the stair in this column."""
    ensemble = model.ensemble_
    table = read_table(X, like=ensemble.features, where="table")
    place = _place_of(name, ensemble.features)
    codes = ensemble.mapper.transform(table)

    def mean(code: int) -> Floats:
        codes[place] = code
        return _mean(ensemble.predictions(ensemble.raw_scores_binned(codes)))

    cuts = {int(b) for tree in ensemble.trees for b in tree.bin[tree.feature == place]}
    return _means(ensemble.features[place], table.columns[place], cuts, mean)


def _place_of(name: str, features: Sequence[FeatureBins]) -> int:
    names = [feature.name for feature in features]
    if name not in names:
        raise InvalidInput(
            f"the model has no column {name!r}; there are {', '.join(names[:10])}{', ...' * (len(names) > 10)}"
        )
    return names.index(name)


def _means(feature: FeatureBins, column: Column, cuts: set[int], mean: Any) -> _Means:
    """One prediction for each level, or for each stair between thresholds that the trees ask about."""
    values = column.values
    gone = values < 0 if column.levels is not None else np.isnan(values)
    missing = mean(feature.missing_code) if gone.any() else None
    if feature.levels is not None:
        if not feature.levels:
            raise InvalidInput(f"column {feature.name!r} had no level in training, so nothing depends on it")
        means = np.array([mean(code) for code in range(len(feature.levels))])
        return _Means(np.empty(0), [str(level) for level in feature.levels], means, missing, np.empty(0))
    edges = feature.edges if feature.edges is not None else np.empty(0)
    bins = sorted(b for b in cuts if 0 <= b < len(edges))  # a split after the last bin parts values from missing ones
    means = np.array([mean(code) for code in (*bins, feature.n_value_bins - 1)])
    seen = values[~gone].astype(np.float64)
    seen = seen[np.isfinite(seen)]
    return _Means(_ends(edges[bins], seen), (), means, missing, seen)


def _ends(steps: Floats, seen: Floats) -> Floats:
    """The steps with an end on each side: the rows' smallest and largest value, or a little beyond the last step."""
    around = np.concatenate([steps, seen])
    low, high = (float(around.min()), float(around.max())) if around.size else (0.0, 1.0)
    room = 0.03 * (high - low) or 0.5
    return np.concatenate([[low - room], steps, [high + room]])


# --- of a model in parts ---------------------------------------------------------------------------------------------


def _of_parts(model: VerticalModel, X: Any, name: str) -> _Means:
    """By scoring rows whose column is overwritten: one scoring for each stair."""
    part = model.asking
    _refuse_others(model, name)
    place = _place_of(name, part.features)
    if not isinstance(X, Mapping) or part.party not in X:
        raise InvalidInput(f"rows are given by party, {{name: table}}, and {part.party} has to be among them")
    table = part.read(X[part.party], f"{part.party}: table")
    feature = part.features[place]

    def mean(code: int) -> Floats:
        column = replace(table.columns[place], values=np.full(table.n_rows, _value_of(feature, code)))
        changed = replace(table, columns=(*table.columns[:place], column, *table.columns[place + 1 :]))
        return _mean(predictions_of(model, {**X, part.party: changed}))

    if isinstance(part, SharedLeavesPart):
        cuts = {int(b) for tree in part.trees for b in tree.bin[tree.column == place]}
    else:
        cuts = {int(b) for tree in part.ensemble.trees for b in tree.bin[tree.feature == place]}
    return _means(feature, table.columns[place], cuts, mean)


def _value_of(feature: FeatureBins, code: int) -> Any:
    """A value with this code: a level's own number, the edge above which a bin begins, or one below all edges."""
    if feature.edges is None:
        return np.int32(-1 if code == feature.missing_code else code)
    if code == feature.missing_code:
        return np.nan
    return feature.edges[code - 1] if code else np.nextafter(feature.edges[0], -np.inf) if len(feature.edges) else 0.0


def _refuse_others(model: VerticalModel, name: str) -> None:
    own = model.asking
    for party, part in model.parts.items():
        if (
            party != own.party
            and name in [f.name for f in part.features]
            and name not in [f.name for f in own.features]
        ):
            raise InvalidInput(
                f"column {name!r} is {party}'s. {own.party} learns the scores and cannot put values into a column of "
                f"{party}, whose name it does not know; {party} knows the column and learns no scores. "
                f"model.contributions({{...}})[{party!r}] is what {party} can learn of its own columns"
            )
