"""Going on from an earlier model: what each party brings of it, and what its trees add up to for the rows to come.

    more = fed.fit("vertical.homomorphic", n_estimators=20, init_model=run.model)       20 trees more
    other = Federation.vertical({"bank": X, "post": X_post}, labels=("bank", y))
    other.fit("vertical.homomorphic", init_model=run.model, init_tables={"shop": X_shop})

Where rows are split, everybody has the model and scores its own rows. Where columns are split, the parties of the
earlier model score the rows together first, as they would for a prediction (`vertical.scoring`); an earlier partner
who takes no part in the training answers there, and its part stays a part of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.estimators.plain import BoostedTrees
from hedgerow.federation.vertical_model import Scoring, VerticalModel
from hedgerow.runtime.protocol import PartyData


class Earlier(NamedTuple):
    """A model to go on from, and what came of its look at the rows."""

    data: dict[str, PartyData]
    record: dict[str, Any]  # for the new model: what it goes on from
    left: Mapping[str, Any] = {}  # parts of earlier partners who take no part now
    scoring: Scoring | None = None


def where_rows_are_split(model: Any, data: Mapping[str, PartyData], loss: str) -> Earlier:
    """Every owner brings the whole model, and reads its rows as that does."""
    ensemble = getattr(model, "ensemble_", None) if isinstance(model, BoostedTrees) else model
    if not isinstance(ensemble, Ensemble):
        raise InvalidParameter(
            f"init_model must be the model of an earlier run, such as run.model, got {type(model).__name__}"
        )
    _check_loss(ensemble.loss, loss, {name: brought.classes for name, brought in data.items()})
    read = {name: _labelled(brought, ensemble.classes, name) for name, brought in data.items()}
    for name, brought in read.items():
        table = brought.table
        if brought.blocks is None:
            table = read_table(table, like=ensemble.features, where=f"{name}: X")
        read[name] = replace(brought, table=table, part=ensemble)
    return Earlier(read, {"iterations": ensemble.n_iterations})


def where_columns_are_split(
    model: Any,
    data: Mapping[str, PartyData],
    label_holder: str,
    loss: str,
    tables: Mapping[str, Any] | None,
    how: Mapping[str, Any],
) -> Earlier:
    """Each party brings its part, and the label holder what the parties of the model find for the rows together."""
    if not isinstance(model, VerticalModel):
        raise InvalidParameter(
            f"init_model must be the joint model of an earlier run, run.model, got {type(model).__name__}"
        )
    if model.label_holder != label_holder:
        raise InvalidParameter(
            f"init_model was trained with labels of {model.label_holder}, and this federation's are {label_holder}'s"
        )
    _check_loss(model.target.loss, loss, {label_holder: data[label_holder].classes})
    given = dict(tables or {})
    left = {name: part for name, part in model.parts.items() if name not in data}
    for name in left:
        if name not in given:
            raise InvalidInput(
                f"{name} has a part of init_model and takes no part in this training; its table of the same rows is "
                f"needed to score them: init_tables={{{name!r}: X}}"
            )
    unknown = [name for name in given if name not in left]
    if unknown:
        raise InvalidInput(
            f"init_tables are those of earlier partners who take no part now, {sorted(left)}, got {unknown[0]!r}"
        )
    if model.is_shared and set(model.parts) != set(data):
        raise InvalidParameter(
            f"init_model's leaf values are shared among {', '.join(model.parties)}: only all of them can go on from it"
        )
    read = {name: _as_before(name, brought, model) for name, brought in data.items()}
    rows = {name: read[name].table if name in read else given[name] for name in model.parties}
    scoring = model.scoring(rows, **how)
    sums = np.ascontiguousarray((scoring.raw - np.array(model.target.base_scores)).T, np.float32)
    own = _labelled(read[label_holder], model.target.classes, label_holder)
    read[label_holder] = replace(own, init_scores=sums)
    return Earlier(read, {"iterations": model.n_iter_, "run_id": model.asking.run_id}, left, scoring)


def _as_before(name: str, brought: PartyData, model: VerticalModel) -> PartyData:
    part = model.parts.get(name)
    return brought if part is None else replace(brought, table=part.read(brought.table, f"{name}: X"), part=part)


def _labelled(brought: PartyData, classes: Any, name: str) -> PartyData:
    """Labels as numbers of the earlier model's classes."""
    if classes is None or brought.classes is None or brought.labels is None:
        return brought
    known = list(classes)
    strange = [label for label in brought.classes if label is not None and label not in known]
    if strange:
        raise InvalidInput(f"{name}: y has the class {strange[0]!r}, and init_model knows {known}")
    places = np.array([len(known) if label is None else known.index(label) for label in brought.classes], np.float64)
    more = (None,) if None in brought.classes else ()
    return replace(brought, labels=places[brought.labels.astype(np.int64)], classes=(*known, *more))


def _check_loss(before: str, now: str, classes: Mapping[str, Any]) -> None:
    is_class = any(each is not None for each in classes.values())
    if is_class != (before in ("logistic", "softmax")) or (not is_class and before != now):
        raise InvalidParameter(
            f"init_model was trained with the {before} loss, which this training cannot go on from: it is "
            f"{'a classification' if is_class else f'a regression with the {now} loss'}"
        )
