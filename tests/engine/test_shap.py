"""Contributions and interaction values are those of the package `shap`, of the same trees in XGBoost's format."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import xgboost

from hedgerow import BoostedTreesClassifier, BoostedTreesRegressor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that shap imports
    import shap

N_ROWS, N_COLUMNS = 300, 4


@pytest.fixture(scope="module", params=["two classes", "three classes", "numbers"])
def both(request, tmp_path_factory):
    """One of our models with rows, and shap's explainer of the same trees."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(N_ROWS, N_COLUMNS)).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    signal = np.nan_to_num(X[:, 0] * X[:, 1] + X[:, 2])
    params = {"max_iter": 6, "max_depth": 4, "learning_rate": 0.4}
    if request.param == "numbers":
        model = BoostedTreesRegressor(**params).fit(X, signal)
    else:
        cuts = [0.0] if request.param == "two classes" else [-0.5, 0.5]
        model = BoostedTreesClassifier(**params).fit(X, np.digitize(signal, cuts))
    path = tmp_path_factory.mktemp("shap") / "model.json"
    model.export_xgboost(path)
    explainer = shap.TreeExplainer(xgboost.Booster(model_file=path), feature_perturbation="tree_path_dependent")
    return model, X[:40], explainer


def test_contributions_are_those_of_shap(both):
    """Row by row and column by column, for every output."""
    model, rows, explainer = both
    found = model.contributions(rows).values
    wanted = np.asarray(explainer.shap_values(rows)).reshape(found.shape)
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_interaction_values_are_those_of_shap(both):
    """Pairs of columns, for every output."""
    model, rows, explainer = both
    found = model.interaction_contributions(rows)[:, :-1, :-1]
    wanted = np.asarray(explainer.shap_interaction_values(rows)).reshape(found.shape)
    np.testing.assert_allclose(found, wanted, atol=2e-5)
