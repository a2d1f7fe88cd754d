"""The scikit-learn estimators: scikit-learn's own checks, bad input, determinism, early stopping, warm start, files."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter, ModelFileError
from hedgerow.estimators.inputs import check_values
from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor, load_model

FAST: dict[str, Any] = {"max_iter": 8, "max_depth": 3}


def numbers(n_rows: int = 300, n_columns: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A small table with some missing values, and a label that two of its columns explain."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    y = (X[:, 0] + 0.5 * X[:, 1] + 0.3 * rng.normal(size=n_rows) > 0).astype(int)
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, y


def people(n_rows: int = 300, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A data frame with a number, a whole number and a category, each with a say in the label."""
    rng = np.random.default_rng(seed)
    town = rng.choice(["ash", "elm", "oak"], size=n_rows)
    age = rng.integers(18, 90, size=n_rows)
    income = rng.lognormal(size=n_rows)
    y = np.where((town == "elm") | (age > 60) & (income > 1), "yes", "no")
    return pd.DataFrame({"town": pd.Categorical(town), "age": age, "income": income}), y


@parametrize_with_checks([BoostedTreesClassifier(), BoostedTreesRegressor()])
def test_scikit_learns_checks_pass(estimator: Any, check: Callable[[Any], None]) -> None:
    """Every check of scikit-learn's check_estimator holds, without exceptions."""
    check(estimator)


# --- what may come in ------------------------------------------------------------------------------------------------


def test_every_kind_of_table_gives_the_same_model() -> None:
    """pandas, polars and arrow tables with the same content lead to the same predictions."""
    frame, y = people()
    tables = {
        "pandas": frame,
        "strings": frame.assign(town=frame["town"].astype(str)),
        "polars": pl.from_pandas(frame),
        "arrow": pa.Table.from_pandas(frame, preserve_index=False),
    }
    predictions = {
        name: BoostedTreesClassifier(**FAST).fit(table, y).predict_proba(table) for name, table in tables.items()
    }
    for name, shares in predictions.items():
        np.testing.assert_array_equal(shares, predictions["pandas"], err_msg=name)


def test_a_model_trained_on_one_kind_of_table_predicts_another() -> None:
    """Columns are found by name, whoever holds them."""
    frame, y = people()
    model = BoostedTreesClassifier(**FAST).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["town", "age", "income"]
    np.testing.assert_array_equal(model.predict(pl.from_pandas(frame)), model.predict(frame))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 1] * 20),
        np.array([True, False] * 20),
        ["b", "a"] * 20,
        pd.Series(["b", "a"] * 20, dtype="category"),
        pd.Series([1, 0] * 20, dtype="Int64"),
        pl.Series(["b", "a"] * 20),
        pa.chunked_array([["b", "a"] * 20]),
        pa.array(["b", "a"] * 20).dictionary_encode(),
        np.array([-5, 10**12] * 20),
    ],
    ids=["int", "bool", "list", "category", "Int64", "polars", "arrow", "dictionary", "wide"],
)
def test_labels_come_in_any_kind_of_column(labels: Any) -> None:
    """Strings, booleans and whole numbers are classes; predictions are of the same kind."""
    X = np.tile([[0.0], [1.0]], (20, 1))
    model = BoostedTreesClassifier(**FAST).fit(X, labels)
    expected = list(labels.to_pylist() if isinstance(labels, (pa.Array, pa.ChunkedArray)) else labels)
    assert model.predict(X).tolist() == expected
    assert model.classes_.tolist() == sorted(set(expected))


def test_numpy_without_names_leaves_no_feature_names() -> None:
    """feature_names_in_ exists only where names were given, also after a second fit."""
    frame, y = people()
    model = BoostedTreesClassifier(**FAST).fit(frame, y).fit(frame[["age", "income"]].to_numpy(), y)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 2


def test_categorical_features_may_be_named() -> None:
    """A column of whole numbers becomes categorical on request, and unseen levels count as missing."""
    rng = np.random.default_rng(0)
    code = rng.integers(0, 6, size=400)
    frame = pd.DataFrame({"code": code, "noise": rng.normal(size=400)})
    model = BoostedTreesClassifier(max_iter=1, max_depth=1, categorical_features=["code"]).fit(frame, code % 2)
    assert (model.predict(frame) == code % 2).all()
    assert len(model.predict(pd.DataFrame({"code": [99], "noise": [0.0]}))) == 1


# --- what may not ----------------------------------------------------------------------------------------------------

X_OK, Y_OK = numbers(60)
BAD_FITS: dict[str, tuple[type[HedgerowError], str, Callable[[], Any]]] = {
    "text in numpy": (
        InvalidInput,
        "column 'x1' holds text",
        lambda: fit(np.array([[1.0, "a"], [2.0, "b"]], dtype=object), [0, 1]),
    ),
    "dates that are levels": (
        InvalidInput,
        "column 'when' holds dates, times or durations, which are numbers here",
        lambda: BoostedTreesClassifier(categorical_features=["when"]).fit(
            pd.DataFrame({"when": pd.to_datetime(["2020", "2021"])}), [0, 1]
        ),
    ),
    "no rows": (InvalidInput, r"0 sample\(s\)", lambda: fit(np.empty((0, 2)), [])),
    "one row": (InvalidInput, "n_samples = 1", lambda: BoostedTreesRegressor().fit([[1.0]], [1.0])),
    "a constant table": (InvalidInput, "all 2 columns of X are constant", lambda: fit(np.ones((4, 2)), [0, 1, 0, 1])),
    "one class": (InvalidInput, "only one class, 1", lambda: fit(X_OK, np.ones(60, dtype=int))),
    "fractions": (
        InvalidInput,
        "Unknown label type: continuous.* such as 0.5",
        lambda: fit(X_OK, np.r_[0.5, Y_OK[1:]]),
    ),
    "missing label": (
        InvalidInput,
        "Input y contains NaN: 1 of 60 rows, the first is row 3",
        lambda: fit(X_OK, with_value(Y_OK, np.nan)),
    ),
    "missing text label": (InvalidInput, "Input y contains NaN", lambda: fit(X_OK, ["a", None, "b"] * 20)),
    "missing nullable label": (
        InvalidInput,
        "Input y contains NaN",
        lambda: fit(X_OK, pd.Series([0, None, 1] * 20, dtype="Int64")),
    ),
    "infinite label": (
        InvalidInput,
        "Input y contains infinity.* row 3",
        lambda: BoostedTreesRegressor().fit(X_OK, with_value(Y_OK, np.inf)),
    ),
    "mixed labels": (InvalidInput, "y mixes int and str", lambda: fit(X_OK, np.array(["a", 1] * 30, dtype=object))),
    "text target": (
        InvalidInput,
        "y must hold numbers, got 'a' of type str in row 0",
        lambda: BoostedTreesRegressor().fit(X_OK, ["a", "b"] * 30),
    ),
    "too few labels": (InvalidInput, "X has 60, y has 59", lambda: fit(X_OK, Y_OK[1:])),
    "negative weight": (InvalidInput, "-1 in row 3", lambda: fit(X_OK, Y_OK, with_value(np.ones(60), -1.0))),
    "zero weights": (InvalidInput, "all weights in sample_weight are zero", lambda: fit(X_OK, Y_OK, np.zeros(60))),
    "infinite weight": (
        InvalidInput,
        "sample_weight contains infinity",
        lambda: fit(X_OK, Y_OK, with_value(np.ones(60), np.inf)),
    ),
    "many levels": (
        InvalidInput,
        "column 'id' has 300 levels, but at most 255",
        lambda: BoostedTreesClassifier(many_levels="refuse").fit(
            pd.DataFrame({"id": [f"n{i}" for i in range(300)]}), np.arange(300) % 2
        ),
    ),
    "huge labels": (
        InvalidInput,
        "y is 1e\\+300 in row 3; beyond 1e\\+37",
        lambda: BoostedTreesRegressor().fit(X_OK, with_value(Y_OK, 1e300)),
    ),
    "bytes": (InvalidInput, "Unknown label type", lambda: fit(X_OK, np.array([b"a", b"b"] * 30))),
    "negative counts": (
        InvalidInput,
        "at least 0, but y is -1 in row 3",
        lambda: BoostedTreesRegressor(loss="poisson").fit(X_OK, with_value(Y_OK, -1.0)),
    ),
    "no counts": (
        InvalidInput,
        "y is 0 in every row",
        lambda: BoostedTreesRegressor(loss="poisson").fit(X_OK, np.zeros(60)),
    ),
    "new class to watch": (
        InvalidInput,
        "y of valid holds the label 7",
        lambda: fit(X_OK, Y_OK, X_val=X_OK, y_val=np.full(60, 7)),
    ),
    "X_val alone": (InvalidParameter, "X_val needs y_val", lambda: fit(X_OK, Y_OK, X_val=X_OK)),
    "y_val alone": (InvalidParameter, "need X_val", lambda: fit(X_OK, Y_OK, y_val=Y_OK)),
    "two spellings": (
        InvalidParameter,
        "not both",
        lambda: fit(X_OK, Y_OK, X_val=X_OK, y_val=Y_OK, eval_set=[(X_OK, Y_OK)]),
    ),
    "eval_set": (InvalidParameter, "eval_set must be a list", lambda: fit(X_OK, Y_OK, eval_set=[X_OK])),
}


def fit(X: Any, y: Any, sample_weight: Any = None, **more: Any) -> Any:
    """Fit a classifier."""
    return BoostedTreesClassifier(**FAST).fit(X, y, sample_weight, **more)


def with_value(values: np.ndarray, value: float) -> np.ndarray:
    """The same as floats, with `value` in row 3."""
    changed = np.array(values, dtype=float)
    changed[3] = value
    return changed


@pytest.mark.parametrize("case", BAD_FITS)
def test_bad_data_is_refused_in_a_sentence(case: str) -> None:
    """Each kind of unusable input has its own error that names what is wrong and where."""
    error, words, attempt = BAD_FITS[case]
    with pytest.raises(error, match=words):
        attempt()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"learning_rate": 0}, "learning_rate must be a number above 0, got 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1, got 0"),
        ({"max_iter": 2.5}, "max_iter must be"),
        ({"max_iter": True}, "max_iter must be"),
        ({"max_depth": 0}, "max_depth must be a whole number of at least 1, or None for no limit, got 0"),
        ({"max_leaf_nodes": 1}, "max_leaf_nodes must be"),
        ({"max_bins": 257}, "max_bins must be between 2 and 256"),
        ({"subsample": 1.5}, "subsample must be a number above 0 and at most 1, got 1.5"),
        ({"l2_regularization": -1.0}, "l2_regularization must be"),
        ({"early_stopping": "yes"}, "early_stopping must be True, False or 'auto', got 'yes'"),
        ({"validation_fraction": 1.5}, "validation_fraction must be"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"gradient_bits": 0.5}, "gradient_bits must be a whole number from -100 to 30"),
        ({"missing_unseen": "left"}, "missing_unseen must be 'heavier' or 'right', got left"),
        ({"random_state": -1}, "random_state must be None, a whole number from 0 to"),
        ({"random_state": "lucky"}, "random_state must be"),
        ({"callbacks": [print]}, "callbacks must be objects with a method after_iteration"),
        ({"eval_metric": "auk"}, "eval_metric must be one of"),
        ({"eval_metric": ["auc", "logloss"]}, "eval_metric must be one name or a function"),
        ({"monotonic_cst": [1]}, "monotonic_cst has 1 entries, but X has 4 columns"),
        ({"monotonic_cst": [2, 0, 0, 0]}, "monotonic_cst must be -1, 0 or 1 for each column, got 2 for 'x0'"),
        ({"monotonic_cst": {"x9": 1}}, "monotonic_cst names 'x9', which is not a column of X"),
        ({"categorical_features": "all"}, "categorical_features must be"),
    ],
)
def test_bad_parameters_are_refused_by_fit(params: dict[str, Any], words: str) -> None:
    """The constructor takes anything, as scikit-learn wants; fit names the parameter and the value."""
    with pytest.raises(InvalidParameter, match=words):
        BoostedTreesClassifier(**params).fit(X_OK, Y_OK)


@pytest.mark.parametrize("span", [3, (1,), ("a", "b"), (5.0, 1.0), (0.0, 0.5)])
def test_a_label_range_is_a_pair_that_holds_the_labels(span: Any) -> None:
    """Anything else is refused with the parameter's name."""
    with pytest.raises((InvalidParameter, InvalidInput), match="label_range"):
        BoostedTreesRegressor(label_range=span).fit(X_OK, Y_OK)
    BoostedTreesRegressor(label_range=(0, 1), gradient_bits=12, max_iter=2).fit(X_OK, Y_OK)


def test_the_defaults_are_within_their_ranges() -> None:
    """Both classes' defaults pass the checks."""
    check_values(BoostedTreesClassifier().get_params())
    check_values(BoostedTreesRegressor().get_params())


def test_monotone_constraints_need_an_order_and_at_most_two_classes() -> None:
    """Levels have no order, and class probabilities that sum to one cannot all rise."""
    frame, y = people()
    with pytest.raises(InvalidParameter, match="column 'town' is categorical"):
        BoostedTreesClassifier(monotonic_cst={"town": 1}).fit(frame, y)
    with pytest.raises(InvalidParameter, match="y has 3 classes"):
        BoostedTreesClassifier(monotonic_cst={"age": 1}).fit(frame, np.arange(300) % 3)


def test_predict_refuses_other_columns() -> None:
    """A missing, an extra, a renamed or a retyped column is named."""
    frame, y = people()
    model = BoostedTreesClassifier(**FAST).fit(frame, y)
    with pytest.raises(InvalidInput, match=r"(?s)seen at fit time, yet now missing.*income"):
        model.predict(frame[["town", "age"]])
    with pytest.raises(InvalidInput, match=r"(?s)unseen at fit time.*more"):
        model.predict(frame.assign(more=1))
    with pytest.raises(InvalidInput, match="same order"):
        model.predict(frame[["age", "town", "income"]])
    with pytest.raises(InvalidInput, match="column 'age'"):
        model.predict(frame.assign(age="old"))
    model = BoostedTreesClassifier(**FAST).fit(X_OK, Y_OK)
    with pytest.raises(InvalidInput, match="X has 3 features, but BoostedTreesClassifier is expecting 4"):
        model.predict(X_OK[:, :3])


def test_nothing_works_before_fit(tmp_path: Path) -> None:
    """Every method that needs a model says that there is none."""
    model = BoostedTreesClassifier()
    for attempt in (
        model.predict,
        model.predict_proba,
        model.apply,
        lambda _: model.importances(),
        lambda _: model.save_model(tmp_path / "m"),
    ):
        with pytest.raises(NotFittedError):
            attempt(X_OK)


# --- what comes out --------------------------------------------------------------------------------------------------


def test_the_model_learns() -> None:
    """Held-out AUC on an easy problem is high, and cross-validation runs."""
    X, y = numbers(1500)
    model = BoostedTreesClassifier(max_iter=40).fit(X[:1000], y[:1000])
    assert roc_auc_score(y[1000:], model.predict_proba(X[1000:])[:, 1]) > 0.93
    assert cross_val_score(BoostedTreesClassifier(max_iter=10), X, y, cv=3).mean() > 0.8


def test_three_classes_and_their_probabilities() -> None:
    """With softmax, probabilities sum to one and the largest decides."""
    X, _ = numbers(600)
    y = np.array(["low", "mid", "top"])[np.digitize(np.nan_to_num(X[:, 0]), [-0.5, 0.5])]
    model = BoostedTreesClassifier(max_iter=20).fit(X, y)
    shares = model.predict_proba(X)
    assert shares.shape == (600, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[shares.argmax(axis=1)], model.predict(X))
    assert model.score(X, y) > 0.9


def test_poisson_predicts_positive_rates() -> None:
    """Counts are predicted by their mean, which is never negative."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(800, 2))
    y = rng.poisson(np.exp(2 * X[:, 0]))
    model = BoostedTreesRegressor(loss="poisson", max_iter=50, max_depth=3).fit(X, y)
    assert (model.predict(X) > 0).all()
    assert abs(model.predict(X).mean() - y.mean()) < 0.05 * y.mean()


def test_weight_two_is_the_row_twice_and_weight_zero_is_no_row() -> None:
    """Exactly: the trees are equal, not only close."""
    X, y = numbers(200)
    weight = np.random.default_rng(5).integers(0, 4, size=200)
    weighted = BoostedTreesClassifier(**FAST).fit(X, y, weight)
    repeated = BoostedTreesClassifier(**FAST).fit(X.repeat(weight, axis=0), y.repeat(weight))
    np.testing.assert_array_equal(weighted.decision_function(X), repeated.decision_function(X))
    assert weighted.ensemble_.trees == repeated.ensemble_.trees


def test_importances_tell_which_columns_were_used() -> None:
    """Shares of gain sum to one, counts count splits, and noise gets little."""
    X, y = numbers(600)
    model = BoostedTreesClassifier(**FAST).fit(X, y)
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert model.feature_importances_[0] == model.feature_importances_.max()
    n_splits = sum(int((tree.feature >= 0).sum()) for tree in model.ensemble_.trees)
    assert model.importances("count").sum() == n_splits


def test_constant_columns_are_noted_and_unused() -> None:
    """One constant column is no reason to refuse the table."""
    frame, y = people()
    model = BoostedTreesClassifier(**FAST).fit(frame.assign(same=1.0), y)
    assert model.constant_features_ == ("same",)
    assert model.importances("count")[3] == 0


def test_staged_predictions_are_those_of_shorter_models() -> None:
    """Stage k equals, bit for bit, a model trained for k iterations."""
    X, y = numbers()
    model = BoostedTreesClassifier(max_iter=5, max_depth=3).fit(X, y)
    for number, (raw, shares, labels) in enumerate(
        zip(model.staged_decision_function(X), model.staged_predict_proba(X), model.staged_predict(X), strict=True),
        start=1,
    ):
        short = clone(model).set_params(max_iter=number).fit(X, y)
        np.testing.assert_array_equal(raw, short.decision_function(X))
        np.testing.assert_array_equal(shares, short.predict_proba(X))
        np.testing.assert_array_equal(labels, short.predict(X))
    regressor = BoostedTreesRegressor(max_iter=3).fit(X, y)
    np.testing.assert_array_equal(list(regressor.staged_predict(X))[-1], regressor.predict(X))


def test_a_matrix_may_lie_in_memory_in_any_way() -> None:
    """Rows first, columns first, with gaps, narrower, or as a data frame: the predictions are the same."""
    X, y = numbers()
    X = X.astype(np.float32).astype(np.float64)
    model = BoostedTreesClassifier(**FAST).fit(X, y)
    expected = model.decision_function(X)
    wide = np.zeros((600, 9))
    wide[::2, 1::2] = X
    for other in (np.asfortranarray(X), wide[::2, 1::2], X.astype(np.float32), X.tolist(), pd.DataFrame(X)):
        np.testing.assert_array_equal(model.decision_function(other), expected)
    np.testing.assert_array_equal(model.decision_function(X[7:8]), expected[7:8])


def test_apply_names_the_leaf_of_each_row() -> None:
    """Leaf values of the leaves that apply names add up to the raw score."""
    X, y = numbers()
    model = BoostedTreesClassifier(**FAST).fit(X, y)
    leaves = model.apply(X)
    assert leaves.shape == (300, 8)
    total = sum(tree.value[leaves[:, t]].astype(float) for t, tree in enumerate(model.ensemble_.trees))
    np.testing.assert_allclose(total + model.ensemble_.base_scores[0], model.decision_function(X), atol=1e-5)


def test_monotone_constraints_hold() -> None:
    """A dict by name and a list by position constrain alike, and predictions never fall along the column."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"dose": rng.uniform(size=500), "other": rng.normal(size=500)})
    y = frame["dose"] + 0.5 * np.sin(15 * frame["dose"]) + 0.1 * rng.normal(size=500)
    by_name = BoostedTreesRegressor(max_iter=30, monotonic_cst={"dose": 1}).fit(frame, y)
    by_place = BoostedTreesRegressor(max_iter=30, monotonic_cst=[1, 0]).fit(frame, y)
    np.testing.assert_array_equal(by_name.predict(frame), by_place.predict(frame))
    line = pd.DataFrame({"dose": np.linspace(0, 1, 200), "other": 0.0})
    assert (np.diff(by_name.predict(line)) >= 0).all()
    assert (np.diff(BoostedTreesRegressor(max_iter=30).fit(frame, y).predict(line)) < 0).any()


# --- the same data, the same model -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampling", [{}, {"subsample": 0.7, "max_features": 0.5, "colsample_bytree": 0.8}], ids=["all", "sampled"]
)
def test_the_number_of_threads_does_not_matter(sampling: dict[str, Any]) -> None:
    """One thread and two give the same bits, also when rows and columns are drawn."""
    X, y = numbers(5000)
    one, two = (BoostedTreesClassifier(**FAST, **sampling, random_state=3, n_jobs=n).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


@pytest.mark.parametrize("estimator", [BoostedTreesClassifier(**FAST), BoostedTreesRegressor(**FAST)])
def test_the_order_of_rows_does_not_matter(estimator: Any) -> None:
    """Shuffled rows and weights give the same bits."""
    X, y = numbers(2000)
    rng = np.random.default_rng(1)
    weight, order = rng.uniform(0.5, 3.0, size=2000), rng.permutation(2000)
    target = y if isinstance(estimator, BoostedTreesClassifier) else y + rng.normal(size=2000)
    first = clone(estimator).fit(X, target, weight).ensemble_
    second = clone(estimator).fit(X[order], target[order], weight[order]).ensemble_
    np.testing.assert_array_equal(first.raw_scores(X), second.raw_scores(X))


def test_the_seed_decides_what_is_drawn() -> None:
    """Equal seeds give equal models, other seeds other ones; a numpy generator is a seed too."""
    X, y = numbers()
    generators = (np.random.RandomState, np.random.default_rng)
    seeds: list[Any] = [0, 0, 1, *(make(0) for make in generators for _ in range(2)), None, None]
    raw = [BoostedTreesClassifier(**FAST, subsample=0.5, random_state=s).fit(X, y).decision_function(X) for s in seeds]
    np.testing.assert_array_equal(raw[0], raw[1])
    np.testing.assert_array_equal(raw[3], raw[4])
    np.testing.assert_array_equal(raw[5], raw[6])
    assert (raw[0] != raw[2]).any()
    assert (raw[7] != raw[8]).any()


# --- stopping early, going on ----------------------------------------------------------------------------------------


def test_early_stopping_keeps_the_best_iteration() -> None:
    """Training ends n_iter_no_change after the best iteration, and the model is cut back to it."""
    X, y = numbers(800)
    flip = np.random.default_rng(0).random(800) < 0.2
    y = np.where(flip, 1 - y, y)
    model = BoostedTreesClassifier(max_iter=200, learning_rate=0.3, n_iter_no_change=5)
    model.fit(X[:500], y[:500], X_val=X[500:], y_val=y[500:])
    history = model.evals_result_["valid"]["logloss"]
    assert model.n_iter_ == model.best_iteration_ + 1 == len(history) - 5 < 200
    assert history[model.best_iteration_] == min(history)
    assert len(model.ensemble_.trees) == model.n_iter_


def test_eval_set_has_xgboosts_names_and_the_last_one_decides() -> None:
    """A list of pairs is watched under validation_0, validation_1, ..., with weights where given."""
    X, y = numbers(400)
    model = BoostedTreesClassifier(max_iter=5, early_stopping=False, eval_metric="auc")
    model.fit(X[:200], y[:200], eval_set=[(X[:200], y[:200]), (X[200:], y[200:], np.ones(200))])
    assert {name: list(log) for name, log in model.evals_result_.items()} == {
        "validation_0": ["auc"],
        "validation_1": ["auc"],
    }
    assert model.best_iteration_ is None
    assert model.n_iter_ == len(model.evals_result_["validation_1"]["auc"]) == 5
    stopped = (
        clone(model)
        .set_params(early_stopping_rounds=1, max_iter=100)
        .fit(X[:200], y[:200], eval_set=(X[200:], y[200:]))
    )
    assert stopped.n_iter_ < 100


def test_rows_are_set_apart_only_when_asked() -> None:
    """early_stopping=True draws validation rows by random_state; "auto" draws none, however many rows there are."""
    X, y = numbers(10_100, n_columns=2)
    fits = [BoostedTreesClassifier(max_iter=3, early_stopping=True, random_state=seed).fit(X, y) for seed in (0, 0, 1)]
    assert all(list(model.evals_result_) == ["valid"] for model in fits)
    assert fits[0].evals_result_ == fits[1].evals_result_ != fits[2].evals_result_
    assert BoostedTreesClassifier(max_iter=3).fit(X, y).evals_result_ == {}


def test_a_class_of_one_row_is_learned_from() -> None:
    """Setting rows apart keeps a share of every class to learn from, also of one with a single row."""
    rare = np.r_[Y_OK[:-1], 9]
    model = BoostedTreesClassifier(max_iter=2, early_stopping=True).fit(X_OK, rare)
    assert model.classes_.tolist() == [0, 1, 9]
    assert BoostedTreesRegressor(max_iter=2, early_stopping=True).fit(X_OK, Y_OK).do_early_stopping_
    with pytest.raises(InvalidInput, match="number of classes"):
        BoostedTreesClassifier(early_stopping=True).fit(X_OK, np.arange(60) // 3)


def test_a_failed_fit_leaves_no_model() -> None:
    """Neither old trees with new classes, nor the other way round."""
    model = BoostedTreesClassifier(**FAST).fit(X_OK, Y_OK)
    with pytest.raises(InvalidParameter):
        model.set_params(eval_metric="auk").fit(X_OK, np.where(Y_OK, "a", "b"))
    with pytest.raises(NotFittedError):
        model.predict(X_OK)


@pytest.mark.parametrize(
    "sampling", [{}, {"subsample": 0.6, "max_features": 0.5, "random_state": 4}], ids=["all", "sampled"]
)
def test_a_warm_start_equals_training_in_one_go(sampling: dict[str, Any]) -> None:
    """Five iterations and then five more are ten iterations, bit for bit."""
    X, y = numbers()
    cold = BoostedTreesClassifier(max_depth=3, max_iter=10, **sampling).fit(X, y)
    warm = BoostedTreesClassifier(max_depth=3, max_iter=5, warm_start=True, **sampling).fit(X, y)
    warm.set_params(max_iter=10).fit(X, y)
    assert warm.n_iter_ == 10
    np.testing.assert_array_equal(warm.decision_function(X), cold.decision_function(X))
    assert warm.fit(X, y).n_iter_ == 10
    with pytest.raises(InvalidParameter, match="max_iter=3 must be larger than or equal to n_iter_=10"):
        warm.set_params(max_iter=3).fit(X, y)


class Recorder:
    """A callback that remembers its calls and stops after the third iteration."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def before_training(self, model: Any) -> Any:
        """Called once before."""
        self.calls.append("before")
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Called after each iteration."""
        self.calls.append((model.n_iterations, epoch, len(evals_log["validation_0"]["logloss"])))
        return epoch == 2

    def after_training(self, model: Any) -> Any:
        """Called once after."""
        self.calls.append("after")
        return model


def test_callbacks_see_every_iteration_and_may_stop() -> None:
    """XGBoost's three hooks are called in order; True ends the training."""
    X, y = numbers()
    recorder = Recorder()
    model = BoostedTreesClassifier(max_iter=10, callbacks=[recorder], early_stopping=False).fit(X, y, eval_set=[(X, y)])
    assert recorder.calls == ["before", (1, 0, 1), (2, 1, 2), (3, 2, 3), "after"]
    assert model.n_iter_ == 3


def test_verbose_prints_progress_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """One line per iteration with train and validation metrics and the time to go; silence by default."""
    X, y = numbers()
    BoostedTreesClassifier(max_iter=3, verbose=1).fit(X, y, X_val=X, y_val=y)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert len(lines) == 3
    assert lines[1].startswith("[1] train-logloss:0.")
    assert " valid-logloss:0." in lines[1]
    assert lines[2].endswith("ETA 0.0s")
    BoostedTreesClassifier(max_iter=3).fit(X, y)
    assert capsys.readouterr() == ("", "")


def test_progress_goes_to_the_log_where_somebody_listens(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the logger "hedgerow" switched on, the lines go there and nowhere else."""
    X, y = numbers()
    with caplog.at_level(logging.INFO, logger="hedgerow"):
        BoostedTreesClassifier(max_iter=2, verbose=1).fit(X, y)
    assert [record.name for record in caplog.records] == ["hedgerow", "hedgerow"]
    assert capsys.readouterr().err == ""


# --- copies and files ------------------------------------------------------------------------------------------------


def test_a_fitted_model_can_be_copied_and_pickled() -> None:
    """Users may pickle estimators, as scikit-learn's own tools do."""
    frame, y = people()
    model = BoostedTreesClassifier(**FAST).fit(frame, y)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301 - our own bytes
        np.testing.assert_array_equal(twin.predict_proba(frame), model.predict_proba(frame))


@pytest.mark.parametrize("estimator", [BoostedTreesClassifier(**FAST), BoostedTreesRegressor(**FAST)])
def test_a_saved_model_predicts_the_same(estimator: Any, tmp_path: Path) -> None:
    """The file holds all that prediction needs: columns, levels, classes, trees."""
    frame, y = people()
    target = y if isinstance(estimator, BoostedTreesClassifier) else np.arange(300.0)
    model = clone(estimator).fit(frame, target)
    path = tmp_path / "model.json"
    model.save_model(path)
    for loaded in (load_model(path), type(model)().load_model(path)):
        assert type(loaded) is type(model)
        assert loaded.feature_names_in_.tolist() == ["town", "age", "income"]
        assert loaded.n_features_in_ == 3
        assert loaded.n_iter_ == model.n_iter_
        np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
        np.testing.assert_array_equal(loaded.feature_importances_, model.feature_importances_)


def test_a_file_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    """A regressor's file is no classifier; a model without column names stays without."""
    X, y = numbers()
    path = tmp_path / "model.json"
    BoostedTreesRegressor(**FAST).fit(X, y).save_model(path)
    with pytest.raises(ModelFileError, match="squared loss is not a model of a BoostedTreesClassifier"):
        BoostedTreesClassifier().load_model(path)
    assert not hasattr(load_model(path), "feature_names_in_")


def test_training_can_go_on_from_a_file(tmp_path: Path) -> None:
    """A loaded model is a warm start like any other."""
    X, y = numbers()
    path = tmp_path / "model.json"
    BoostedTreesClassifier(max_iter=4, max_depth=3).fit(X, y).save_model(path)
    warm = BoostedTreesClassifier(max_iter=8, max_depth=3, warm_start=True).load_model(path).fit(X, y)
    cold = BoostedTreesClassifier(max_iter=8, max_depth=3).fit(X, y)
    np.testing.assert_array_equal(warm.decision_function(X), cold.decision_function(X))


def test_an_exported_model_predicts_the_same_in_xgboost(tmp_path: Path) -> None:
    """xgboost.Booster reads the file and agrees on every row."""
    xgboost = pytest.importorskip("xgboost")
    X, y = numbers()
    model = BoostedTreesClassifier(**FAST).fit(X.astype(np.float32), y)
    path = tmp_path / "xgboost.json"
    model.export_xgboost(path)
    booster = xgboost.Booster(model_file=str(path))
    theirs = booster.predict(xgboost.DMatrix(X.astype(np.float32)))
    np.testing.assert_allclose(model.predict_proba(X.astype(np.float32))[:, 1], theirs, atol=1e-6)
