"""The columns of the table of features that are no protocols between parties: each cell is what happens.

Private estimators train without noise here (`epsilon=inf`), so that what they learn can be looked at.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from hedgerow import (
    BoostedTreesClassifier,
    BoostedTreesRegressor,
    DPBoostClassifier,
    DPBoostRegressor,
    PrivateBoostingClassifier,
    PrivateBoostingRegressor,
    Schema,
)
from hedgerow.errors import HedgerowError
from hedgerow.runtime import features
from twins.features import CHANGES, NAMES, SMALL, Case

ESTIMATORS: dict[str, tuple[Any, Any]] = {
    features.PLAIN: (BoostedTreesClassifier, BoostedTreesRegressor),
    features.GAUSSIAN: (PrivateBoostingClassifier, PrivateBoostingRegressor),
    features.DPBOOST: (DPBoostClassifier, DPBoostRegressor),
}
CELLS = [(name, feature) for name in ESTIMATORS for feature in CHANGES]
OF_TREES = {*SMALL, "label_range"}
"""What the private estimators take from the schema, or set themselves."""


def schema_of(case: Case) -> Schema:
    """What is public about the columns of a case."""
    names = [f"x{k}" for k in range(len(NAMES))] if case.is_sparse else NAMES
    called = dict(zip(NAMES, names, strict=True))
    texts = {name for name in NAMES if case.columns[name].dtype.kind == "U"}
    levels = {name: sorted(set(case.columns[name].tolist())) for name in texts}
    levels = {called[name]: own if len(own) < 256 else "hash" for name, own in levels.items()}
    days = (np.datetime64("2026-01-01").item(), np.datetime64("2026-01-10").item())
    bounds = {
        called[name]: days if case.columns[name].dtype.kind == "M" else (0.0, 9.0)
        for name in NAMES
        if name not in texts
    }
    about = (
        {"label_bounds": (0.0, 24.0)} if case.task == "regression" else {"classes": sorted(set(case.labels.tolist()))}
    )
    return Schema.from_public(bounds=bounds, levels=levels, may_be_missing=[called["b0"]], **about)


def fitted(case: Case, name: str) -> Any:
    """The estimator, trained, or trained on where it is to go on."""
    kind = ESTIMATORS[name][case.task == "regression"]
    params = dict(case.params)
    if name != features.PLAIN:
        params = {each: value for each, value in params.items() if each not in OF_TREES or value != SMALL.get(each)}
        params.pop("label_range", None)
        params |= {"schema": schema_of(case), "epsilon": math.inf, "random_state": 7}
        params |= {} if name == features.GAUSSIAN else {"max_iter": 6, "max_depth": 3, "learning_rate": 0.3}
        params |= {} if case.weight is None else {"max_weight": 3.0}
        params |= {"max_weight": 3.0} if "class_weight" in params else {}
        params.pop("n_iter_no_change", None)
        if name == features.GAUSSIAN and params.get("loss") == "squared_error":
            del params["loss"]  # there is no other
        if "subsample" in params:
            params["policy"] = "random"  # the default policy takes all rows
    model = kind(**params)
    weight = {} if case.weight is None else {"sample_weight": case.weight}
    model.fit(case.table, case.labels, **weight)
    if case.more_trees:
        model.set_params(warm_start=True, max_iter=model.n_iter_ + case.more_trees)
        model.fit(case.table, case.labels, **weight)
    return model


@pytest.mark.parametrize(("name", "feature"), CELLS)
def test_a_feature_trains_or_is_refused(name: str, feature: str) -> None:
    """What is offered learns something, and what is not is refused before anything is read."""
    case = Case.of(feature)
    if features.offered(name, feature) is not None:
        with pytest.raises((HedgerowError, TypeError)):
            fitted(case, name)
        return
    model = fitted(case, name)
    rows = case.table
    found = model.decision_function(rows) if case.task == "classification" else model.predict(rows)
    assert np.isfinite(found).all()
    by_class = np.eye(found.shape[1])[case.labels] if found.ndim == 2 else case.labels
    assert np.corrcoef(np.ravel(found), np.ravel(by_class))[0, 1] > 0.2


def test_sparse_cases_are_sparse() -> None:
    """The case of the table really is a sparse matrix."""
    assert scipy.sparse.issparse(Case.of("sparse").table)
