"""Explanations of plain estimators: ours, scikit-learn's inspection, and those of models trained elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.inspection import partial_dependence, permutation_importance

import hedgerow
from hedgerow import BoostedTreesClassifier, BoostedTreesRegressor
from hedgerow.engine.binning import WideBins

RNG = np.random.default_rng(4)
ROWS = RNG.normal(size=(400, 4))
Y = ROWS[:, 0] * ROWS[:, 1] + 2 * ROWS[:, 2]


def test_interaction_contributions_add_up_to_contributions():
    """Numbers, two classes and three: rows of the matrix are contributions, the corner what is expected."""
    for model, n_outputs in (
        (BoostedTreesRegressor(max_iter=20).fit(ROWS, Y), 1),
        (BoostedTreesClassifier(max_iter=10).fit(ROWS, Y > 0), 1),
        (BoostedTreesClassifier(max_iter=5).fit(ROWS, np.digitize(Y, [-1, 1])), 3),
    ):
        found, alone = model.interaction_contributions(ROWS[:50]), model.contributions(ROWS[:50])
        assert found.shape == ((50, 5, 5) if n_outputs == 1 else (50, 5, 5, 3))
        found = found.reshape(50, 5, 5, n_outputs)
        np.testing.assert_allclose(found.sum(axis=2)[:, :-1], alone.values, atol=1e-10)
        np.testing.assert_allclose(found[:, -1, -1], np.broadcast_to(alone.expected, (50, n_outputs)))
        assert np.abs(found[:, 0, 1]).max() > 0.01


def test_scikit_learn_inspects_our_estimators():
    """Permutation importance and partial dependence, of scikit-learn, take a plain estimator as it is."""
    model = BoostedTreesRegressor(max_iter=30).fit(ROWS, Y)
    found = permutation_importance(model, ROWS, Y, n_repeats=3, random_state=0)
    assert found.importances_mean.argmax() == 2
    assert found.importances_mean[3] < 0.1 * found.importances_mean[2]
    curve = partial_dependence(model, ROWS, [2], grid_resolution=5, kind="average")
    assert (np.diff(curve["average"][0]) > 0).all()
    values = curve["grid_values"][0]
    changed = ROWS.copy()
    changed[:, 2] = values[1]
    assert curve["average"][0][1] == pytest.approx(model.predict(changed).mean())
    classes = BoostedTreesClassifier(max_iter=5).fit(ROWS, Y > 0)
    assert partial_dependence(classes, ROWS, [2], grid_resolution=4)["average"].shape == (1, 4)


def test_a_model_of_xgboost_is_explained_as_xgboost_explains_it(tmp_path):
    """Contributions and interactions, also of columns with more thresholds than a byte holds; the report shows them."""
    xgboost = pytest.importorskip("xgboost")
    rows = RNG.normal(size=(2000, 3)).astype(np.float32)
    data = xgboost.DMatrix(rows, rows[:, 0] * rows[:, 1])
    booster = xgboost.train({"max_depth": 8, "tree_method": "exact", "nthread": 1}, data, 40)
    booster.save_model(tmp_path / "model.json")
    model = hedgerow.load_model(tmp_path / "model.json")
    assert any(isinstance(feature, WideBins) for feature in model.ensemble_.features)
    few = xgboost.DMatrix(rows[:100])
    found, alone = model.interaction_contributions(rows[:100]), model.contributions(rows[:100])
    np.testing.assert_allclose(found, booster.predict(few, pred_interactions=True), atol=5e-5)
    np.testing.assert_allclose(alone.values[..., 0], booster.predict(few, pred_contribs=True)[:, :-1], atol=5e-5)
    assert "TreeSHAP" in model.report(X=rows[:100]).fragment
