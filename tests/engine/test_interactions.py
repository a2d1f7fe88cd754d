"""What two columns add only together: by the kernel, by the definition, and by XGBoost."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hedgerow.engine import interactions as module
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import train
from hedgerow.engine.contributions import contributions
from hedgerow.engine.export_xgboost import export_xgboost
from hedgerow.engine.interactions import interactions
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput
from twins.random_models import random_ensemble, random_mapper
from twins.tree_games import chain_of, codes_for, expectation


def naive_interactions(ensemble, row, group):
    """By the definition, over all sets of players: [players, players, outputs], 0 on the diagonal."""
    players = range(max(group) + 1)
    n = len(players)
    out = np.zeros((n, n, ensemble.n_outputs))
    for t, tree in enumerate(ensemble.trees):
        worth = {
            frozenset(known): expectation(ensemble, tree, row, known, group)
            for size in range(n + 1)
            for known in itertools.combinations(players, size)
        }
        for i, j in itertools.permutations(players, 2):
            for known, value in worth.items():
                if i not in known and j not in known:
                    s = len(known)
                    weight = math.factorial(s) * math.factorial(n - s - 2) / (2 * math.factorial(n - 1))
                    together = worth[known | {i, j}] - worth[known | {i}] - worth[known | {j}] + value
                    out[i, j, t % ensemble.n_outputs] += weight * together
    return out


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("group", [None, (0, 1, 0, 2, 1, 3)])
def test_interactions_are_those_of_the_definition(n_outputs, group):
    """Random trees with levels, missing values and columns asked twice; with patterns remembered and without."""
    rng = np.random.default_rng(1)
    ensemble = random_ensemble(rng, random_mapper(rng, 4, 2), 3, n_outputs, depth=5, split_probability=0.9)
    codes = codes_for(ensemble, rng, 12)
    players = tuple(range(6)) if group is None else group
    found = interactions(ensemble, codes, None if group is None else np.array(group))
    n = max(players) + 1
    for r in range(codes.shape[1]):
        wanted = naive_interactions(ensemble, codes[:, r], players)
        pairs = ~np.eye(n, dtype=bool)
        np.testing.assert_allclose(found[r, :n, :n][pairs], wanted[pairs], atol=1e-12)


def test_rows_sum_up_to_contributions_and_the_matrix_is_symmetric():
    """Each column's contribution is divided, nothing is lost; threads change no bit; deep paths too."""
    rng = np.random.default_rng(2)
    ensemble = random_ensemble(rng, random_mapper(rng, 12, 2), 4, 2, depth=10, split_probability=0.8)
    codes = codes_for(ensemble, rng, 300)
    found = interactions(ensemble, codes)
    np.testing.assert_allclose(found.sum(axis=2), contributions(ensemble, codes), atol=1e-10)
    np.testing.assert_array_equal(found, found.transpose(0, 2, 1, 3))
    np.testing.assert_array_equal(interactions(ensemble, codes, n_threads=3), found)
    assert not found[:, -1, :-1].any()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_interactions_are_those_of_xgboost(n_classes, tmp_path):
    """For a trained model, XGBoost's own interaction values of the exported model, to float32 accuracy."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(600, 5)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    score = np.nan_to_num(rows[:, 0] * rows[:, 1] + rows[:, 2])
    y = np.digitize(score, [0.0] if n_classes == 2 else [-0.5, 0.5]).astype(float)
    table = read_table(rows)
    mapper = BinMapper.fit(table, 32)
    loss = "logistic" if n_classes == 2 else "softmax"
    params = BoostingParams(loss=loss, n_classes=n_classes, n_iterations=10, max_depth=4)
    ensemble = train(params, mapper, mapper.transform(table), y).ensemble
    export_xgboost(ensemble, tmp_path / "model.json")
    theirs = xgboost.Booster(model_file=tmp_path / "model.json").predict(xgboost.DMatrix(rows), pred_interactions=True)
    found = interactions(ensemble, mapper.transform(table))
    if n_classes == 3:
        theirs = theirs.transpose(0, 2, 3, 1)
    np.testing.assert_allclose(found, theirs.reshape(found.shape), atol=2e-5)


def test_single_leaves_lone_columns_and_no_rows():
    """Where no path has two columns there are contributions alone."""
    chain = chain_of(1)
    codes = np.array([[0, 1]], np.uint8)
    found, alone = interactions(chain, codes), contributions(chain, codes)
    np.testing.assert_array_equal(found[:, 0, 0], alone[:, 0])
    assert interactions(chain_of(2), np.zeros((2, 0), np.uint8)).shape == (0, 3, 3, 1)
    with pytest.raises(InvalidInput, match="more than 64 different columns"):
        interactions(chain_of(65), np.zeros((65, 1), np.uint8))
    assert module.MOST_REMEMBERED < 64
