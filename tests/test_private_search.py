"""PrivateSearch, and scikit-learn's own pipelines and searches with every private estimator."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from hedgerow import (
    DPBoostClassifier,
    DPBoostRegressor,
    PrivateBoostingClassifier,
    PrivateBoostingRegressor,
    PrivateSearch,
    Schema,
)
from hedgerow.errors import BudgetExceeded, InvalidParameter
from hedgerow.estimators.search import rows_of
from hedgerow.privacy.accountants import BasicComposition, ZeroConcentratedDP
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.privacy.events import Selected

BOUNDS = {f"x{j}": (-3.0, 3.0) for j in range(2)}
CLASSES = Schema.from_public(bounds=BOUNDS, classes=["no", "yes"])
NUMBERS = Schema.from_public(bounds=BOUNDS, label_bounds=(-3.0, 3.0))
PURE = DPBoostClassifier(schema=CLASSES, max_iter=5)
ALL = [
    DPBoostClassifier(schema=CLASSES, max_iter=3, max_depth=2),
    DPBoostRegressor(schema=NUMBERS, max_iter=3, max_depth=2),
    PrivateBoostingClassifier(schema=CLASSES),
    PrivateBoostingRegressor(schema=NUMBERS),
]


@pytest.fixture(scope="module")
def rows():
    """2,000 rows: a table, classes, and numbers."""
    X = np.random.default_rng(2).normal(size=(2000, 2))
    return X, np.where(X[:, 0] > 0, "yes", "no"), np.clip(X[:, 0], -3, 3)


def labels_for(estimator, rows):
    """Those that it learns."""
    return rows[1] if is_classifier(estimator) else rows[2]


@pytest.mark.parametrize("estimator", ALL, ids=lambda each: type(each).__name__)
def test_a_search_finds_a_model_and_states_its_whole_price(rows, estimator):
    """Selection included; each trial had less, and the model's own statement says the same."""
    X, y = rows[0], labels_for(estimator, rows)
    grid = {"max_iter": [2, 4]} if "DPBoost" in type(estimator).__name__ else {"policy": ["smooth_then_trees"]}
    search = PrivateSearch(estimator, grid, epsilon=4.0, n_trials=2.0).fit(X, y)
    statement = search.privacy_statement()
    pure = "delta" not in estimator.get_params()
    assert (statement.epsilon, statement.delta) == (4.0, 0.0 if pure else 1e-6)
    assert isinstance(statement.event, Selected)
    (BasicComposition if pure else ZeroConcentratedDP)().check(statement.event)
    best = search.best_estimator_
    assert best.epsilon < 4.0
    assert best.privacy_statement() == statement
    assert best.ensemble_.meta["privacy"]["epsilon"] == 4.0
    assert search.best_params_ in [{name: value} for name, values in grid.items() for value in values]
    assert search.predict(X[:3]).shape == (3,)
    assert math.isfinite(search.best_score_)
    assert math.isfinite(search.score(X, y))
    assert is_classifier(search) == is_classifier(estimator)
    assert is_regressor(search) == is_regressor(estimator)
    assert "number of runs" in str(statement)
    assert "the choice of parameters, if several were tried on these rows" not in statement.not_covered


def test_the_better_setting_is_found(rows):
    """With a generous budget, a tree that can see the signal wins over one that learns next to nothing."""
    X, y, _ = rows
    grid = {"learning_rate": [0.5, 0.0001]}
    search = PrivateSearch(DPBoostClassifier(schema=CLASSES, max_iter=5), grid, epsilon=60.0, n_trials=12.0, shape=3.0)
    assert search.fit(X, y).best_params_ == {"learning_rate": 0.5}
    assert search.best_score_ > -0.25


def test_the_price_does_not_grow_with_the_settings():
    """Nor does a trial's share of it shrink."""
    few = PrivateSearch(PURE, {"max_depth": [1, 2]}).planned_event()
    many = PrivateSearch(PURE, {"max_depth": [1, 2, 3, 4, 5, 6]}).planned_event()
    assert few.epsilon == many.epsilon == 1.0
    assert BasicComposition().cost(many.event) == pytest.approx(BasicComposition().cost(few.event))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"estimator": make_pipeline(FunctionTransformer())}, "GridSearchCV"),
        ({"param_grid": {"epsilon": [1.0, 2.0]}}, "epsilon cannot be searched"),
        ({"epsilon": math.inf}, "epsilon must"),
        ({"epsilon": -1.0}, "epsilon must"),
        ({"n_trials": 1.0}, "mean number"),
        ({"shape": -1.0}, "shape"),
        ({"scoring": "roc_auc"}, "scoring must"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"budget": "here"}, "budget must"),
        ({"estimator": DPBoostClassifier()}, "schema"),
        ({"estimator": DPBoostClassifier(schema=CLASSES, assignment="paper")}, "runs cannot be"),
        ({"estimator": PrivateBoostingClassifier(schema=CLASSES), "delta": 0.0}, "delta must"),
    ],
)
def test_what_cannot_be_is_refused_before_a_row_is_read(parameters, words):
    """In a sentence with a way out."""
    given = {"estimator": PURE, "param_grid": {"max_depth": [1]}} | parameters
    with pytest.raises(InvalidParameter, match=words):
        PrivateSearch(**given).planned_event()


def test_a_budget_is_charged_once_for_all_trials(rows, tmp_path):
    """Before a row is looked at; a second search does not fit any more."""
    X, y, _ = rows
    dataset = BudgetFile(tmp_path / "budget.sqlite").open("rows", 1.5, 0.0)
    search = PrivateSearch(PURE, {"max_depth": [1, 2]}, epsilon=1.0, n_trials=3.0, budget=dataset)
    search.fit(X, y)
    assert dataset.spent().epsilon == pytest.approx(1.0)
    with pytest.raises(BudgetExceeded):
        search.fit(X, y)
    with pytest.raises(InvalidParameter, match="PrivateSearch"):
        PrivateSearch(clone(PURE).set_params(budget=dataset), {"max_depth": [1]}).planned_event()


def test_rows_of_any_table():
    """pandas, polars, arrow, numpy and lists."""
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    side = np.array([True, False, True])
    assert rows_of(pandas.DataFrame({"a": [1, 2, 3]}, index=[7, 8, 9]), side)["a"].tolist() == [1, 3]
    assert rows_of(arrow.table({"a": [1, 2, 3]}), side)["a"].to_pylist() == [1, 3]
    assert rows_of([[1], [2], [3]], side) == [[1], [3]]
    assert rows_of(np.array([1, 2, 3]), side).tolist() == [1, 3]


# --- scikit-learn's own ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*spend.*")
@pytest.mark.parametrize("estimator", ALL, ids=lambda each: type(each).__name__)
def test_scikit_learns_searches_and_pipelines_take_private_estimators(rows, estimator):
    """They run, in pipelines too; each of their trainings spends an epsilon of its own."""
    X, y = rows[0], labels_for(estimator, rows)
    assert len(cross_val_score(estimator, X, y, cv=2)) == 2
    pipeline = make_pipeline(FunctionTransformer(), clone(estimator))
    name = type(estimator).__name__.lower()
    found = GridSearchCV(pipeline, {f"{name}__epsilon": [1.0, 8.0]}, cv=2).fit(X, y)
    assert found.best_params_[f"{name}__epsilon"] in (1.0, 8.0)
    assert found.best_estimator_[-1].privacy_statement().epsilon <= 8.0
