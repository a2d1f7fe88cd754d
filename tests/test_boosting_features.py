"""What users of other boosting libraries expect of the plain estimators: losses, weights of classes, constraints."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.class_weight import compute_sample_weight

from hedgerow import BudgetFile, DPBoostClassifier, Schema
from hedgerow.engine.ensemble import Tree
from hedgerow.errors import InvalidParameter
from hedgerow.estimators import private
from hedgerow.estimators.inputs import class_weights
from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor, load_model

SMALL: dict[str, Any] = {"max_iter": 5, "max_depth": 4, "min_child_weight": 0.0}


def some_rows(n_rows: int = 400, n_columns: int = 5, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, and labels that all columns matter for together."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    y = X @ np.arange(1, n_columns + 1) + 3 * X[:, 0] * X[:, -1] + rng.normal(size=n_rows)
    return pd.DataFrame(X, columns=[f"c{k}" for k in range(n_columns)]), y


def paths(tree: Tree) -> list[set[int]]:
    """The columns asked about on the way to each leaf."""
    found, open_nodes = [], [(0, frozenset())]
    while open_nodes:
        node, asked = open_nodes.pop()
        if tree.feature[node] < 0:
            found.append(set(asked))
            continue
        further = asked | {int(tree.feature[node])}
        open_nodes += [(int(tree.left[node]), further), (int(tree.right[node]), further)]
    return found


@pytest.mark.parametrize(
    ("wish", "groups"),
    [
        ("no_interactions", [{k} for k in range(5)]),
        ("pairwise", [set(pair) for pair in itertools.combinations(range(5), 2)]),
        ([{"c0", "c1"}, {1, 2, 3}], [{0, 1}, {1, 2, 3}, {4}]),
        ([[0, 4]], [{0, 4}, {1, 2, 3}]),
        ("[[0, 1], [2, 3, 4]]", [{0, 1}, {2, 3, 4}]),
    ],
)
def test_every_path_stays_within_one_group_of_columns(wish: Any, groups: list[set[int]]) -> None:
    """scikit-learn's words, names or numbers, XGBoost's text; columns that are not named are a group by themselves."""
    X, y = some_rows()
    model = BoostedTreesRegressor(interaction_cst=wish, **SMALL).fit(X, y)
    asked = [path for tree in model.ensemble_.trees for path in paths(tree)]
    assert all(any(path <= group for group in groups) for path in asked)
    assert len({frozenset(path) for path in asked}) > 1
    free = BoostedTreesRegressor(**SMALL).fit(X, y)
    assert any(len(path) > 2 for tree in free.ensemble_.trees for path in paths(tree))
    assert BoostedTreesRegressor(interaction_constraints=wish, **SMALL).fit(X, y).predict(X) == pytest.approx(
        model.predict(X), abs=0
    )


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("triplets", "interaction_cst must be 'pairwise', 'no_interactions' or a list"),
        ([{"c9"}], "interaction_cst names 'c9', which is not a column of X; X has 5 columns"),
        ([{5}], "interaction_cst names 5, which is not a column of X; X has 5 columns"),
        ([set()], "must be a list of groups of columns"),
        ({"c0"}, "must be a list of groups of columns"),
    ],
)
def test_interactions_of_unknown_columns_are_refused(wish: Any, message: str) -> None:
    """The error names the column."""
    X, y = some_rows()
    with pytest.raises(InvalidParameter, match=message):
        BoostedTreesRegressor(interaction_cst=wish).fit(X, y)


def test_columns_drawn_for_levels_change_the_model_by_seed() -> None:
    """Same seed, same model; a tree uses more columns than one of its levels may."""
    X, y = some_rows()
    fits = [BoostedTreesRegressor(colsample_bylevel=0.2, random_state=s, **SMALL).fit(X, y) for s in (1, 1, 2)]
    assert fits[0].ensemble_.to_dict()["trees"] == fits[1].ensemble_.to_dict()["trees"]
    assert fits[0].ensemble_.to_dict()["trees"] != fits[2].ensemble_.to_dict()["trees"]
    assert max(len(set(tree.feature[tree.feature >= 0])) for tree in fits[0].ensemble_.trees) > 1


@pytest.mark.parametrize(
    ("loss", "quantile"), [("absolute_error", 0.5), ("quantile", 0.5), ("quantile", 0.2), ("quantile", 0.9)]
)
def test_absolute_and_quantile_loss_do_as_well_as_scikit_learn(loss: str, quantile: float, tmp_path: Any) -> None:
    """On rows that were not trained on the pinball loss is scikit-learn's within 5%; and the model can be saved."""
    X, y = some_rows(3000)
    common: dict[str, Any] = {"loss": loss, "max_iter": 80, "min_samples_leaf": 20, "random_state": 0}
    ours = BoostedTreesRegressor(quantile=quantile, max_leaf_nodes=31, **common).fit(X[::2], y[::2])
    theirs = HistGradientBoostingRegressor(quantile=quantile, early_stopping=False, **common).fit(X[::2], y[::2])

    def pinball(predictions: np.ndarray) -> float:
        lacking = y[1::2] - predictions
        return float(np.maximum(quantile * lacking, (quantile - 1) * lacking).mean())

    assert pinball(ours.predict(X[1::2])) < 1.05 * pinball(theirs.predict(X[1::2]))
    ours.save_model(tmp_path / "model.json")
    np.testing.assert_array_equal(load_model(tmp_path / "model.json").predict(X), ours.predict(X))


def test_early_stopping_watches_the_loss_s_own_metric() -> None:
    """mae for the absolute loss, pinball for quantiles; rmse on request."""
    X, y = some_rows()
    for params, metric in [
        ({"loss": "absolute_error"}, "mae"),
        ({"loss": "quantile", "quantile": 0.9}, "pinball"),
        ({"loss": "absolute_error", "eval_metric": "rmse"}, "rmse"),
    ]:
        model = BoostedTreesRegressor(**params, **SMALL).fit(X[::2], y[::2], X_val=X[1::2], y_val=y[1::2])
        curve = model.evals_result_["valid"][metric]
        assert curve[-1] < curve[0]


def test_continuing_with_more_trees_of_a_refitting_loss_is_training_in_one_go() -> None:
    """A warm start finds the same scores to go on from."""
    X, y = some_rows()
    whole = BoostedTreesRegressor(loss="absolute_error", max_iter=6).fit(X, y)
    grown = BoostedTreesRegressor(loss="absolute_error", max_iter=3, warm_start=True).fit(X, y)
    grown.set_params(max_iter=6).fit(X, y)
    np.testing.assert_array_equal(grown.predict(X), whole.predict(X))


def test_weights_of_classes_are_weights_of_rows() -> None:
    """Balanced or by name, alone or with weights of rows: the model of the rows' product of weights."""
    X, y = some_rows()
    labels = np.where(y > 8, "high", np.where(y > -8, "middle", "low"))
    own = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    by_name = {"high": 5.0, "low": 0.5}
    for given, expected in [
        ({"class_weight": "balanced"}, compute_sample_weight("balanced", labels)),
        ({"class_weight": by_name}, np.array([by_name.get(label, 1.0) for label in labels])),
    ]:
        model = BoostedTreesClassifier(**given, **SMALL).fit(X, labels)
        plain = BoostedTreesClassifier(**SMALL).fit(X, labels, sample_weight=expected)
        assert model.ensemble_.to_dict()["trees"] == plain.ensemble_.to_dict()["trees"]
    model = BoostedTreesClassifier(class_weight=by_name, **SMALL).fit(X, labels, sample_weight=own)
    both = own * np.array([by_name.get(label, 1.0) for label in labels])
    plain = BoostedTreesClassifier(**SMALL).fit(X, labels, sample_weight=both)
    assert model.ensemble_.to_dict()["trees"] == plain.ensemble_.to_dict()["trees"]


def test_scale_pos_weight_weighs_the_second_class() -> None:
    """As in XGBoost; and a class of weight 0 is left out, as rows of weight 0 are."""
    X, y = some_rows()
    labels = (y > 5).astype(int)
    model = BoostedTreesClassifier(scale_pos_weight=3.0, **SMALL).fit(X, labels)
    plain = BoostedTreesClassifier(**SMALL).fit(X, labels, sample_weight=np.where(labels == 1, 3.0, 1.0))
    assert model.ensemble_.to_dict()["trees"] == plain.ensemble_.to_dict()["trees"]
    assert (model.predict_proba(X)[:, 1] > BoostedTreesClassifier(**SMALL).fit(X, labels).predict_proba(X)[:, 1]).any()


def test_weights_of_classes_from_files_are_those_in_memory(tmp_path: Any) -> None:
    """Streamed rows get the same weights."""
    X, y = some_rows()
    labels = (y > 5).astype(int)
    X.assign(label=labels).to_parquet(tmp_path / "rows.parquet")
    streamed = BoostedTreesClassifier(class_weight="balanced", **SMALL).fit(str(tmp_path / "rows.parquet"), "label")
    plain = BoostedTreesClassifier(class_weight="balanced", **SMALL).fit(X, labels)
    assert streamed.ensemble_.to_dict()["trees"] == plain.ensemble_.to_dict()["trees"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"class_weight": {"none": 2.0}}, "class_weight names 'none', which is not a class of y; it has 'a', 'b', 'c'"),
        ({"class_weight": {"a": -1.0}}, "class_weight must hold numbers of at least 0, got -1.0"),
        ({"class_weight": "heavy"}, "class_weight must be 'balanced', a dict of weights by class, or None"),
        ({"scale_pos_weight": 2.0}, "scale_pos_weight=2.0 is for two classes, and y has 3; use class_weight"),
        ({"class_weight": {"a": 0, "b": 0, "c": 0}}, "leaves no row with a weight above 0"),
    ],
)
def test_impossible_weights_of_classes_are_refused(params: dict[str, Any], message: str) -> None:
    """The error names the parameter, the value and a way out."""
    with pytest.raises(InvalidParameter, match=message):
        BoostedTreesClassifier(**params).fit([[1.0], [2.0], [3.0]] * 4, ["a", "b", "c"] * 4)


def test_weights_of_classes_without_a_wish_are_the_rows_own() -> None:
    """Nothing asked, nothing changed."""
    assert class_weights(np.zeros(3), [0, 1]) is None
    own = np.ones(3)
    assert class_weights(np.zeros(3), [0, 1], sample_weight=own) is own


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_contributions_add_up_to_raw_scores(n_classes: int, tmp_path: Any) -> None:
    """Of every row, for one output or several; from files and from rows of numbers as from a frame."""
    X, y = some_rows()
    X["text"] = np.where(X["c0"] > 0, "yes", "no")
    kind: Any = BoostedTreesClassifier if n_classes else BoostedTreesRegressor
    labels = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes)) if n_classes else y
    model = kind(**SMALL).fit(X, labels)
    found = model.contributions(X)
    assert found.columns == tuple(X.columns)
    assert found.values.shape == (len(X), 6, 3 if n_classes == 3 else 1)
    raw = model.decision_function(X) if n_classes else model.predict(X)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.expected, raw.reshape(len(X), -1), atol=1e-5)
    X.to_parquet(tmp_path / "rows.parquet")
    np.testing.assert_array_equal(model.contributions(tmp_path / "rows.parquet").values, found.values)
    numbers = kind(**SMALL).fit(X.iloc[:, :5].to_numpy(), labels)
    assert numbers.contributions(X.iloc[:, :5].to_numpy()[:3]).values.shape[:2] == (3, 5)


def test_amounts_given_to_a_classifier_are_noticed() -> None:
    """A warning names the number of classes and the regressor; digits, many rows for each number, and text are fine."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    quick = BoostedTreesClassifier(max_iter=1, max_depth=1, max_bins=8)
    with pytest.warns(UserWarning, match="y has 22. classes, all of them numbers, in 442 rows.*BoostedTreesRegressor"):
        quick.fit(X[:442], rng.permutation(np.arange(442) % 227))
    prices = np.concatenate([np.repeat(np.arange(40), 14), 50 + 10 * np.arange(10), np.full(30, 7)])
    with pytest.warns(UserWarning, match="y has 50 classes"):
        quick.fit(X, prices)
    quick.fit(X, np.arange(600) % 10)
    quick.fit(X, np.arange(600) % 40)
    quick.fit(X, [f"shop {k % 100}" for k in range(600)])


def test_named_columns_are_categorical_besides_those_that_are_by_type() -> None:
    """As on the command line: naming one column does not make numbers of the texts; a mask says exactly which."""
    X, y = some_rows()
    X["code"], X["text"] = np.arange(len(X)) % 3, np.where(X["c0"] > 0, "1", "2")
    for wish, expected in [
        (["code"], ["code", "text"]),
        ([5], ["code", "text"]),
        ("from_dtype", ["text"]),
        ([False] * 5 + [True, False], ["code"]),
        (None, []),
    ]:
        model = BoostedTreesRegressor(categorical_features=wish, **SMALL).fit(X, y)
        assert [feature.name for feature in model.ensemble_.features if feature.is_categorical] == expected


def test_private_cross_validation_without_a_budget_is_warned_of_once(tmp_path: Any, monkeypatch: Any) -> None:
    """Folds and candidates spend each; a fit by itself, a second one, and folds that are charged say nothing."""
    monkeypatch.setattr(private, "_warned", set())
    schema = Schema.from_public(bounds={"x0": (0, 9)}, classes=[0, 1])
    X, y = np.arange(60).reshape(-1, 1) % 10.0, np.arange(60) % 2
    model = DPBoostClassifier(epsilon=1.0, schema=schema, max_iter=2)
    model.fit(X, y).fit(X, y)
    file = BudgetFile(tmp_path / "budgets.sqlite")
    file.open("people", epsilon=50.0, delta=0.0)
    charged = DPBoostClassifier(epsilon=1.0, schema=schema, max_iter=2, budget=file.dataset("people"))
    cross_val_score(charged, X, y, cv=2)
    with pytest.warns(UserWarning, match="DPBoostClassifier is cross-validated without a budget.*epsilon=1 of") as told:
        cross_val_score(model, X, y, cv=3)
    assert len(told) == 1
    GridSearchCV(model, {"max_iter": [1, 2]}, cv=2).fit(X, y)


def test_quantiles_of_rows_on_a_cluster_are_refused() -> None:
    """Before a connection is made, with a way out."""
    X, y = some_rows()
    model = BoostedTreesRegressor(loss="absolute_error", backend="ray")
    with pytest.raises(InvalidParameter, match=r"loss='absolute_error' does not go with backend='ray'.*or train here"):
        model.fit(X, y)
