"""Estimators survive joblib, cloudpickle and pickle, as their users' tools want it; a budget is not doubled by it."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from hedgerow import (
    BoostedTreesClassifier,
    BoostedTreesRegressor,
    DPBoostClassifier,
    DPBoostRegressor,
    Federation,
    PrivateBoostingClassifier,
    PrivateBoostingRegressor,
    Schema,
)
from hedgerow.errors import BudgetExceeded, InvalidInput
from hedgerow.privacy.budget_file import BudgetFile

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(120, 3))
LABELS, NUMBERS = (X[:, 0] > 0.5).astype(int), X[:, 0] * 10
BOUNDS = {f"x{j}": (0, 1) for j in range(3)}
CLASSES = Schema.from_public(bounds=BOUNDS, classes=[0, 1])
AMOUNTS = Schema.from_public(bounds=BOUNDS, label_bounds=(0, 10))
ESTIMATORS = [
    BoostedTreesClassifier(max_iter=3),
    BoostedTreesRegressor(max_iter=3, loss="poisson"),
    DPBoostClassifier(schema=CLASSES, max_iter=3),
    DPBoostRegressor(schema=AMOUNTS, max_iter=3),
    PrivateBoostingClassifier(schema=CLASSES, policy="random", max_iter=3),
    PrivateBoostingRegressor(schema=AMOUNTS, policy="random", max_iter=3),
]


def through_joblib(thing: Any) -> Any:
    """To a file of joblib's and back."""
    file = io.BytesIO()
    joblib.dump(thing, file)
    file.seek(0)
    return joblib.load(file)


def through_pickle(thing: Any) -> Any:
    """To bytes and back."""
    return pickle.loads(pickle.dumps(thing))  # noqa: S301 - our own bytes


def through_cloudpickle(thing: Any) -> Any:
    """The same as Ray and Dask do it."""
    return cloudpickle.loads(cloudpickle.dumps(thing))


WAYS = [through_joblib, through_pickle, through_cloudpickle]


def targets(estimator: Any) -> np.ndarray:
    """Labels that go with the estimator."""
    return LABELS if hasattr(estimator, "predict_proba") else NUMBERS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: type(each).__name__)
def test_round_trips(estimator: Any, way: Any) -> None:
    """Before `fit` the parameters are the same, after it predictions and statement; copies can be cloned and fitted."""
    unfitted = way(estimator)
    assert unfitted.get_params() == estimator.get_params()
    fitted = clone(unfitted).fit(X, targets(estimator))
    again = way(fitted)
    for method in ("predict", "predict_proba", "apply"):
        if hasattr(fitted, method):
            np.testing.assert_array_equal(getattr(again, method)(X), getattr(fitted, method)(X))
    if hasattr(fitted, "privacy_statement"):
        assert again.privacy_statement() == fitted.privacy_statement()
    assert again.report().html == fitted.report().html
    assert not hasattr(clone(again), "ensemble_")


def test_who_watches_is_not_written_down() -> None:
    """A function that shows progress belongs to this program."""
    model = DPBoostClassifier(schema=CLASSES, max_iter=2).watch(lambda *_: None)
    assert not hasattr(through_pickle(model), "_on_progress")
    assert hasattr(model, "_on_progress")


def test_the_model_of_owners_of_rows_is_an_estimator() -> None:
    """All of them have it, so it may be pickled as any other; a model in parts may not (tests/claims)."""
    owners = {
        name: (X[rows], LABELS[rows]) for name, rows in (("a", slice(60)), ("b", slice(60, 90)), ("c", slice(90, None)))
    }
    model = Federation.horizontal(owners).fit("horizontal.secure_sum", n_estimators=2, max_depth=2).model
    np.testing.assert_array_equal(through_joblib(model).predict_proba(X), model.predict_proba(X))


@pytest.mark.filterwarnings("ignore:DPBoostClassifier is cross-validated without a budget")
def test_a_search_runs_in_processes() -> None:
    """GridSearchCV hands plain and private estimators to joblib's processes, and finds what it finds alone."""
    grid = {"max_iter": [1, 3]}
    search = GridSearchCV(BoostedTreesClassifier(max_depth=2), grid, cv=2, n_jobs=2).fit(X, LABELS)
    alone = GridSearchCV(BoostedTreesClassifier(max_depth=2), grid, cv=2).fit(X, LABELS)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
    private = GridSearchCV(DPBoostClassifier(schema=CLASSES), grid, cv=2, n_jobs=2, error_score="raise")
    assert private.fit(X, LABELS).best_estimator_.privacy_statement().epsilon <= 1.0


# --- budgets ---------------------------------------------------------------------------------------------------------


def charged(path: Path, epsilon: float = 2.0) -> DPBoostClassifier:
    """An estimator of epsilon 1 on a budget."""
    budget = BudgetFile(path).open("rows", epsilon=epsilon, delta=0.0)
    return DPBoostClassifier(epsilon=1.0, schema=CLASSES, max_iter=2, budget=budget)


@pytest.mark.parametrize("way", WAYS)
def test_copies_spend_one_budget(way: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fits of epsilon 1 are all that epsilon 2 allows, whichever copies they are of, and from whatever folder."""
    monkeypatch.chdir(tmp_path)
    model = charged(Path("budget.sqlite"))
    copies = [way(model), way(model), clone(way(model))]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    copies[0].fit(X, LABELS)
    copies[1].fit(X, LABELS)
    for each in copies:
        with pytest.raises(BudgetExceeded):
            each.fit(X, LABELS)
    assert way(copies[0]).budget.remaining < 1e-9
    assert not list(Path.cwd().iterdir())


def test_without_its_budget_file_a_copy_predicts_and_does_not_fit(tmp_path: Path) -> None:
    """On another machine the file is not there: an error, and no new budget; nor is a file of other terms taken."""
    path = tmp_path / "budget.sqlite"
    model = charged(path).fit(X, LABELS)
    again = through_pickle(model)
    path.rename(tmp_path / "moved.sqlite")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(InvalidInput, match=r"budget\.sqlite cannot be used"):
        again.fit(X, LABELS)
    assert not path.exists()
    assert through_pickle(model).report().html
    BudgetFile(path).open("others", epsilon=9.0, delta=0.0)
    with pytest.raises(InvalidInput, match="is not the file that dataset 'rows' is from"):
        again.fit(X, LABELS)
    BudgetFile(path).open("rows", epsilon=0.5, delta=0.0)
    with pytest.raises(InvalidInput, match="is not the file that dataset 'rows' is from"):
        again.fit(X, LABELS)
    assert BudgetFile(path).dataset("rows").entries() == ()


def test_a_search_in_processes_spends_one_budget(tmp_path: Path) -> None:
    """Four fits at epsilon 1 and one at the end, on a budget of 2: two are done, the rest is refused."""
    search = GridSearchCV(
        charged(tmp_path / "budget.sqlite"), {"max_iter": [1, 2]}, cv=2, n_jobs=2, error_score="raise"
    )
    with pytest.raises(BudgetExceeded):
        search.fit(X, LABELS)
    assert search.estimator.budget.spent().epsilon <= 2.0 * (1 + 1e-9)
