"""What each column adds to a score: Shapley values of the trees' own game, by the kernel and by the definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hedgerow.engine import contributions as module
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.boosting import train
from hedgerow.engine.contributions import contributions
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.export_xgboost import export_xgboost
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput
from twins.random_models import random_ensemble, random_mapper, random_matrix
from twins.tree_games import NO_LEVELS, chain_of, codes_for, expectation

# --- the slow twin ---------------------------------------------------------------------------------------------------


def shapley(ensemble, row, group):
    """By the definition: over all sets of players, what one more player changes. [players + 1, outputs]."""
    players = range(max(group) + 1)
    out = np.zeros((len(players) + 1, ensemble.n_outputs))
    out[-1] = ensemble.base_scores
    for t, tree in enumerate(ensemble.trees):
        worth = {
            frozenset(known): expectation(ensemble, tree, row, known, group)
            for size in range(len(players) + 1)
            for known in itertools.combinations(players, size)
        }
        output = t % ensemble.n_outputs
        out[-1, output] += worth[frozenset()]
        for i, (known, value) in itertools.product(players, worth.items()):
            if i not in known:
                n, size = len(players), len(known)
                weight = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
                out[i, output] += weight * (worth[known | {i}] - value)
    return out


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("group", [None, (0, 1, 0, 2, 1, 3), (0, 0, 0, 0, 0, 0)])
def test_contributions_are_shapley_values(n_outputs, group):
    """Random trees with levels, missing values and columns that a path asks about twice: equal to the definition."""
    rng = np.random.default_rng(n_outputs)
    ensemble = random_ensemble(rng, random_mapper(rng, 4, 2), 3, n_outputs, depth=5, split_probability=0.8)
    codes = codes_for(ensemble, rng, 12)
    found = contributions(ensemble, codes, None if group is None else np.array(group))
    wanted = [shapley(ensemble, row, range(6) if group is None else group) for row in codes.T]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_long_paths_are_shapley_values():
    """Where a path has too many players for a table of patterns, each row is calculated for itself, and right."""
    chain = chain_of(12)
    assert chain.trees[0].depth > module.MOST_REMEMBERED
    codes = codes_for(chain, np.random.default_rng(5), 40)
    codes[:, 0] = 1  # all the way down
    merged = np.arange(12) // 2  # six players: with a table
    for group in (np.arange(12), merged):
        found = contributions(chain, codes, group)
        assert_adds_up(chain, codes, found)
        np.testing.assert_allclose(found[0], shapley(chain, codes[:, 0], group), rtol=0, atol=1e-12)


# --- laws ------------------------------------------------------------------------------------------------------------


def assert_adds_up(ensemble, codes, found):
    """All players and the expected value together are the raw score, up to its float32 sums."""
    raw = ensemble.raw_scores_binned(codes)
    size = np.abs(ensemble.base_scores).max() + sum(np.abs(tree.value).max() for tree in ensemble.trees)
    np.testing.assert_allclose(found.sum(axis=1), raw, rtol=0, atol=2.0**-23 * (len(ensemble.trees) + 2) * size)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_contributions_add_up_to_the_score(n_outputs):
    """Sums over the players and the expected value are the raw scores; rows of many tiles."""
    rng = np.random.default_rng(2)
    ensemble = random_ensemble(rng, random_mapper(rng, 9, 2), 10, n_outputs, depth=7, split_probability=0.9)
    codes = codes_for(ensemble, rng, 5000)
    assert_adds_up(ensemble, codes, contributions(ensemble, codes))


def test_groups_of_columns_are_players_of_their_own():
    """A column that asks nothing adds nothing; all features as one player add the whole difference."""
    rng = np.random.default_rng(3)
    small = random_ensemble(rng, random_mapper(rng, 3, 1), 6, depth=3)
    wide = Ensemble(
        BinMapper((*small.features, FeatureBins("idle", np.array([0.0])))),
        small.loss,
        small.base_scores,
        trees=small.trees,
    )
    codes = codes_for(wide, rng, 100)
    found = contributions(wide, codes)
    assert (found[:, 4] == 0).all()
    np.testing.assert_array_equal(found[:, [0, 1, 2, 3, 5]], contributions(small, codes[:4]))
    one = contributions(small, codes[:4], np.zeros(4, np.int64))
    np.testing.assert_allclose(one[:, 0], found[:, :5].sum(axis=1), atol=1e-12)
    np.testing.assert_array_equal(one[:, 1], found[:, 5])


def test_rows_tiles_and_threads_do_not_matter(monkeypatch):
    """Each row has its own numbers, to the last bit, in whatever company it is calculated."""
    rng = np.random.default_rng(4)
    ensemble = random_ensemble(rng, random_mapper(rng, 5, 1), 4, 3, depth=4)
    codes = codes_for(ensemble, rng, 3000)
    found = contributions(ensemble, codes)
    np.testing.assert_array_equal(contributions(ensemble, codes, n_threads=3), found)
    np.testing.assert_array_equal(contributions(ensemble, codes[:, 2990:]), found[2990:])
    monkeypatch.setattr(module, "TILE_BYTES", 1)
    np.testing.assert_array_equal(contributions(ensemble, codes, n_threads=2), found)


def test_covers_that_noise_has_spoilt():
    """Negative and missing covers give finite numbers that add up."""
    chain = chain_of(4)
    chain.trees[0].cover[:] = [1, 0, 0, -3, -1, 0, 5, 2, -1]
    codes = codes_for(chain, np.random.default_rng(0), 50)
    found = contributions(chain, codes)
    assert np.isfinite(found).all()
    assert_adds_up(chain, codes, found)
    values = chain.trees[0].value.astype(np.float64)
    # The first two splits have no cover below them: halves. Then all of it goes right, then all of it left.
    np.testing.assert_allclose(found[0, -1, 0], 0.25 + values[1] / 2 + values[3] / 4 + values[7] / 4)


def test_no_rows_no_trees_no_features():
    """Empty things have empty contributions, and the base score is expected."""
    chain = chain_of(2)
    assert contributions(chain, np.zeros((2, 0), np.uint8)).shape == (0, 3, 1)
    bare = Ensemble(chain.mapper, "softmax", [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(
        contributions(bare, np.zeros((2, 2), np.uint8)), [[[0, 0, 0], [0, 0, 0], [1, 2, 3]]] * 2
    )
    nothing = Ensemble(BinMapper(()), "squared", [1.5])
    np.testing.assert_array_equal(contributions(nothing, np.zeros((0, 2), np.uint8)), [[[1.5]], [[1.5]]])
    leaf = Tree(*([np.array([-1])] * 2), np.array([np.nan]), *([np.array([-1])] * 3), np.array([0.5]), np.zeros(1),
                np.ones(1), np.array([-1]), NO_LEVELS)  # fmt: skip
    lone = Ensemble(chain.mapper, "squared", [1.0], trees=[leaf])
    np.testing.assert_array_equal(contributions(lone, np.zeros((2, 1), np.uint8)), [[[0], [0], [1.5]]])


@pytest.mark.parametrize("n_splits", [64, 65])
def test_paths_of_more_players_than_bits_are_refused(n_splits):
    """64 different columns on the way to a leaf still add up; with one more there is a clear error."""
    chain = chain_of(n_splits)
    codes = codes_for(chain, np.random.default_rng(1), 30)
    codes[:, :5] = 1  # all the way down
    if n_splits == 64:
        assert_adds_up(chain, codes, contributions(chain, codes))
        return
    with pytest.raises(InvalidInput, match="splits of more than 64 different columns"):
        contributions(chain, codes)
    assert_adds_up(chain, codes, contributions(chain, codes, np.arange(65) // 2))


@pytest.mark.parametrize(
    ("codes", "group", "match"),
    [
        (np.zeros((3, 4), np.uint8), None, r"uint8 \[2 features, rows\]"),
        (np.zeros((2, 4)), None, "codes must be uint8"),
        (np.zeros((2, 4), np.uint8), np.zeros(3, np.int64), "for each of 2 features"),
        (np.zeros((2, 4), np.uint8), np.array([0, -1]), "from 0 on"),
        (np.zeros((2, 4), np.uint8), np.array([0.0, 1.0]), "group_of_feature must hold a number"),
    ],
)
def test_what_does_not_fit_is_refused(codes, group, match):
    """Codes and groups must fit the features."""
    with pytest.raises(InvalidInput, match=match):
        contributions(chain_of(2), codes, group)


# --- a competitor ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_contributions_are_those_of_xgboost(n_classes, tmp_path):
    """For a trained model, XGBoost's own contributions of the exported model are the same to float32 accuracy."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(6)
    X = random_matrix(rng, random_mapper(rng, 6, 0, n_bins=60), 600)
    X[np.isinf(X)] = 0.0
    signal = np.nan_to_num(X[:, 0] * X[:, 1] + X[:, 2]) + rng.normal(scale=0.3, size=len(X))
    y = np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes)).astype(np.float64)
    table = read_table(X)
    mapper = BinMapper.fit(table)
    codes = mapper.transform(table)
    loss = "logistic" if n_classes == 2 else "softmax"
    params = BoostingParams(loss=loss, n_classes=n_classes, n_iterations=8, max_depth=5)
    ensemble = train(params, mapper, codes, y).ensemble
    found = contributions(ensemble, codes)
    assert_adds_up(ensemble, codes, found)
    export_xgboost(ensemble, tmp_path / "model.json")
    booster = xgboost.Booster(model_file=tmp_path / "model.json")
    theirs = booster.predict(xgboost.DMatrix(X), pred_contribs=True).reshape(len(X), ensemble.n_outputs, 7)
    np.testing.assert_allclose(found.transpose(0, 2, 1), theirs, rtol=0, atol=1e-4)
    assert np.abs(found[:, 1]).max() > 0.05
