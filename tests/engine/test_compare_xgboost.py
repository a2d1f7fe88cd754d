"""The same trees as XGBoost when bins and parameters agree.

When they must be identical: same cuts (taken from XGBoost), same base score, level-wise growth, hist method, no
sampling. Structure, thresholds, missing directions and, to float accuracy, values and gains are then the same, because
both choose the largest second-order gain and break ties towards the lowest feature and the lowest cut.

When they may differ:
- where the missing values of a node go left and no row of it lies between two cuts, XGBoost (which scans from the right
  there) takes the upper cut and we the lower one; the rows of the node are divided alike;
- two cuts whose gains agree to about 1e-5 of the larger (XGBoost sums float32 gradients, we sum integers);
- where the node holds no missing value: XGBoost's default direction then carries no information, ours is the heavier
  child's;
- with categorical splits: XGBoost ranks levels without smoothing.
The data below are chosen without near-ties.
"""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.boosting import train
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import read_table

xgboost = pytest.importorskip("xgboost")

OBJECTIVES = {
    "logistic": "binary:logistic",
    "squared": "reg:squarederror",
    "softmax": "multi:softprob",
    "poisson": "count:poisson",
}


def problem(loss, seed, missing):
    """Columns of different kinds, a signal with interactions, and continuous noise so that ties are unlikely."""
    rng = np.random.default_rng(seed)
    n = 3000
    X = rng.normal(size=(n, 6)).astype(np.float32)
    X[:, 5] = rng.integers(0, 12, n)
    if missing:
        X[rng.random(X.shape) < 0.15] = np.nan
    clean = np.nan_to_num(X)
    signal = clean[:, 0] * clean[:, 1] + clean[:, 2] + 0.2 * clean[:, 5] - 1 + rng.normal(size=n)
    y = {
        "logistic": signal > 0,
        "softmax": np.digitize(signal, [-0.8, 0.8]),
        "squared": signal,
        "poisson": rng.poisson(np.exp(np.clip(signal / 2, -3, 1.5))),
    }[loss].astype(np.float64)
    return X, y


def xgboost_cuts(matrix):
    """XGBoost's cut points per feature; its last one lies above every value and is no edge of ours."""
    pointers, values = matrix.get_quantile_cut()
    return [values[a:b][:-1].astype(np.float64) for a, b in itertools.pairwise(pointers)]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("loss", list(OBJECTIVES))
@pytest.mark.parametrize(("depth", "gamma", "min_child_weight"), [(4, 0.0, 1.0), (6, 1.0, 5.0)])
def test_same_trees_as_xgboost(loss, missing, depth, gamma, min_child_weight):
    """Node by node: feature, threshold, children, missing direction, value, gain and cover."""
    X, y = problem(loss, seed=depth, missing=missing)
    matrix = xgboost.QuantileDMatrix(X, y, max_bin=64)
    parameters = {
        "objective": OBJECTIVES[loss], "max_depth": depth, "eta": 0.3, "gamma": gamma, "lambda": 1.0, "nthread": 1,
        "min_child_weight": min_child_weight, "tree_method": "hist", "max_bin": 64, "base_score": 0.5,
        "max_delta_step": 0,
    }  # fmt: skip
    if loss == "softmax":
        parameters["num_class"] = 3
    rounds = 3
    booster = xgboost.train(parameters, matrix, rounds)
    table = read_table(X)
    mapper = BinMapper(tuple(FeatureBins(f"x{k}", cuts) for k, cuts in enumerate(xgboost_cuts(matrix))))
    # XGBoost's base_score is a probability for logistic and a mean for poisson; ours is a raw score.
    base = {"logistic": 0.0, "squared": 0.5, "softmax": 0.5, "poisson": np.log(0.5)}[loss]
    ours = train(
        BoostingParams(
            loss=loss, n_classes=3, n_iterations=rounds, learning_rate=0.3, max_depth=depth, min_gain=gamma,
            min_child_weight=min_child_weight, base_score=base,
        ),
        mapper, mapper.transform(table), y,
    ).ensemble  # fmt: skip
    theirs = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
    assert len(theirs) == len(ours.trees)
    for tree, other in zip(ours.trees, theirs, strict=True):
        compare(tree, other, X)
    np.testing.assert_allclose(
        ours.raw_scores(X).squeeze(), booster.inplace_predict(X, predict_type="margin"), rtol=2e-4, atol=2e-4
    )


def compare(tree, other, X):
    """Walk both trees from their roots with the rows that reach each node; XGBoost numbers its nodes differently."""
    open_nodes = [(0, 0, np.arange(len(X)))]
    while open_nodes:
        ours, theirs, rows = open_nodes.pop()
        is_leaf = other["left_children"][theirs] == -1
        assert (tree.feature[ours] < 0) == is_leaf
        assert tree.cover[ours] == pytest.approx(other["sum_hessian"][theirs], rel=2e-3, abs=1e-3)
        if is_leaf:
            assert tree.value[ours] == pytest.approx(other["split_conditions"][theirs], rel=2e-3, abs=2e-4)
            continue
        feature = tree.feature[ours]
        assert feature == other["split_indices"][theirs]
        assert tree.gain[ours] == pytest.approx(other["loss_changes"][theirs], rel=5e-3, abs=5e-3)
        values = X[rows, feature]
        missing = np.isnan(values)
        goes_left = np.where(missing, tree.missing_left[ours], values < tree.threshold[ours])
        theirs_left = np.where(missing, bool(other["default_left"][theirs]), values < other["split_conditions"][theirs])
        np.testing.assert_array_equal(goes_left, theirs_left)
        if not (missing.any() and tree.missing_left[ours]) and np.isfinite(tree.threshold[ours]):
            assert np.float32(tree.threshold[ours]) == np.float32(other["split_conditions"][theirs])
        open_nodes.append((tree.left[ours], other["left_children"][theirs], rows[goes_left]))
        open_nodes.append((tree.right[ours], other["right_children"][theirs], rows[~goes_left]))
