"""Which rows go left, from noise that was to hide it: the chain finds it where the noise is worth having."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from experiments.masked_xgboost.active_sets import (
    SeenNoise,
    attack_chain,
    attack_smallest_sum,
    bins,
    chain,
    score_bins,
    smallest_sum,
)
from experiments.masked_xgboost.masked_noise import noise_vectors
from hedgerow.errors import InvalidInput, InvalidParameter

N_ROWS = 2000
EXAMPLE_2 = 10.0
"""The ratio sigma1^2 / sigma2^2 of the paper's example."""


def trees(active, n_trees, ratio, n_vectors=3, seed=0, rows=None):
    """Noise for one candidate at the root, or another node, of some trees."""
    rng = np.random.default_rng(seed)
    here = active if rows is None else active[rows]
    return [SeenNoise(noise_vectors(here, n_vectors, math.sqrt(ratio), 1.0, rng), rows) for _ in range(n_trees)]


def split(share=0.5, n_rows=N_ROWS, seed=7):
    """Rows that go left."""
    return np.random.default_rng(seed).random(n_rows) < share


@pytest.mark.parametrize(
    ("ratio", "n_vectors", "n_trees", "low", "high"),
    [
        (EXAMPLE_2, 3, 1, 0.62, 0.75),
        (EXAMPLE_2, 3, 5, 0.98, 1.0),
        (EXAMPLE_2, 3, 60, 1.0, 1.0),
        (0.311, 3, 1, 0.50, 0.60),  # W = 3, epsilon 8 and delta 1 / rows by Theorem 3
        (0.311, 3, 20, 0.78, 0.88),
        (0.311, 3, 60, 0.965, 1.0),
        (2.234, 1, 20, 0.92, 0.97),  # W = 1, epsilon 8
        (2.234, 1, 60, 0.998, 1.0),
    ],
)
def test_the_chain_finds_the_split(ratio, n_vectors, n_trees, low, high):
    """More trees, more rows; the ratios at which the noise is better than plain noise are those at which it tells."""
    active = split()
    result = attack_chain(trees(active, n_trees, ratio, n_vectors), math.sqrt(ratio), 1.0, active)
    assert low <= result.accuracy.estimate <= high
    assert result.n_vectors == n_trees * n_vectors
    assert result.succeeds or n_trees == 1
    assert result.verdict().startswith("ALARM") == result.succeeds


@pytest.mark.parametrize(("ratio", "n_vectors"), [(0.005, 3), (0.0458, 1)])
@pytest.mark.parametrize("n_trees", [1, 60])
def test_the_chain_is_lost_at_small_epsilons(ratio, n_vectors, n_trees):
    """W = 3, epsilon 2.2, and W = 1, epsilon 1, by Theorem 3: 60 trees are not enough for this decoder."""
    active = split()
    result = attack_chain(trees(active, n_trees, ratio, n_vectors), math.sqrt(ratio), 1.0, active)
    assert result.accuracy.estimate < 0.6


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_few_or_many_active_rows(share):
    """Ten trees tell them all the same."""
    active = split(share)
    result = attack_chain(trees(active, 10, EXAMPLE_2), math.sqrt(EXAMPLE_2), 1.0, active)
    assert result.accuracy.low > 0.98
    assert result.chance == pytest.approx(0.9, abs=0.02)


def test_blocks_of_rows_far_apart():
    """Active rows may be hundreds of rows apart: hypotheses are dropped by their weight, not by their age."""
    active = np.zeros(N_ROWS, np.bool_)
    active[100:200] = active[1500:1600] = True
    result = attack_chain(trees(active, 20, EXAMPLE_2), math.sqrt(EXAMPLE_2), 1.0, active)
    assert result.accuracy.estimate > 0.995


def test_odds_are_those_of_all_splits_counted():
    """Nine rows, all 512 splits by the covariance of an open chain: nothing is lost but what merging loses."""
    rng = np.random.default_rng(3)
    n_rows, n_vectors, s1 = 9, 12, 2.0
    sides = np.array(list(itertools.product([False, True], repeat=n_rows)))
    right = differences = 0.0
    for _ in range(20):
        active = rng.random(n_rows) < 0.5
        noise = noise_vectors(active, n_vectors, s1, 1.0, rng)
        logs = []
        for chosen in sides:
            neighbours = np.eye(int(chosen.sum()), k=1)
            covariance = (1.0 + 2 * s1**2) * np.eye(n_rows)
            covariance[np.ix_(chosen, chosen)] -= s1**2 * (neighbours + neighbours.T)
            root = np.linalg.cholesky(covariance)
            logs.append(-n_vectors * np.log(np.diag(root)).sum() - 0.5 * (np.linalg.solve(root, noise) ** 2).sum())
        weights = np.exp(np.array(logs) - max(logs))
        exact = weights @ sides / weights.sum()
        found = 1 / (1 + np.exp(-chain([SeenNoise(noise)], s1, 1.0)))
        differences += np.abs(found - exact).mean() / 20
        right += ((exact > 0.5) == (found > 0.5)).mean() / 20
    assert differences < 0.01
    assert right > 0.98


def test_nodes_with_other_rows_are_pooled():
    """Children in five trees, beside the root in two: each adds to what the others found."""
    active = split()
    left = np.random.default_rng(1).random(N_ROWS) < 0.5
    root = trees(active, 2, EXAMPLE_2)
    nodes = [trees(active, 5, EXAMPLE_2, rows=np.flatnonzero(side), seed=2) for side in (left, ~left)]
    alone = attack_chain(root, math.sqrt(EXAMPLE_2), 1.0, active)
    together = attack_chain([*root, *nodes[0], *nodes[1]], math.sqrt(EXAMPLE_2), 1.0, active)
    assert alone.accuracy.estimate < 0.95
    assert together.accuracy.estimate > 0.99
    part = attack_chain(nodes[0], math.sqrt(EXAMPLE_2), 1.0, active)
    assert part.n_rows == left.sum()
    assert part.accuracy.estimate > 0.97


@pytest.mark.parametrize(
    ("ratio", "n_vectors", "n_trees", "correlation", "exact"),
    [(EXAMPLE_2, 3, 1, 0.85, 0.4), (EXAMPLE_2, 3, 20, 0.999, 0.99), (0.38, 3, 60, 0.99, 0.9)],
)
def test_candidates_of_one_column_tell_the_order_of_values(ratio, n_vectors, n_trees, correlation, exact):
    """15 nested candidates, each weak for itself, put the rows in order: the values of the column up to a scale."""
    codes = np.random.default_rng(5).integers(0, 16, 500)
    candidates = [trees(codes <= k, n_trees, ratio, n_vectors, seed=k) for k in range(15)]
    result = score_bins(bins(candidates, math.sqrt(ratio), 1.0), codes)
    assert result.correlation > correlation
    assert result.exact.estimate > exact
    assert result.verdict().startswith("ALARM")


def test_the_order_begins_to_show_at_epsilon_1():
    """W = 1, 60 roots: no candidate alone is found, all 15 together tell a part of the order."""
    codes = np.random.default_rng(5).integers(0, 16, 600)
    candidates = [trees(codes <= k, 60, 0.055, 1, seed=k) for k in range(15)]
    result = score_bins(bins(candidates, math.sqrt(0.055), 1.0, n_rounds=1), codes)
    assert 0.2 < result.correlation < 0.6
    assert result.succeeds


def test_the_order_is_not_found_at_small_epsilons():
    """W = 3, epsilon 2.2, one node: no more than chance."""
    codes = np.random.default_rng(5).integers(0, 8, 1000)
    candidates = [trees(codes <= k, 1, 0.0037, seed=k) for k in range(7)]
    result = score_bins(bins(candidates, math.sqrt(0.0037), 1.0, n_rounds=1), codes)
    assert not result.succeeds
    assert "not found" in result.verdict()


# --- the paper's attacker --------------------------------------------------------------------------------------------


def test_the_smallest_sum_without_disturbing_noise():
    """The active set adds up to 0 exactly, and no other set does."""
    active = split(n_rows=14)
    noise = noise_vectors(active, 2, 1.0, 1e-9, np.random.default_rng(0))
    assert (smallest_sum(noise, int(active.sum())) == active).all()


@pytest.mark.parametrize(("n_rows", "low", "high"), [(12, 0.5, 0.68), (2000, 0.47, 0.53)])
def test_the_smallest_sum_is_a_weak_attacker(n_rows, low, high):
    """At the ratio of the paper's example: 0.5 to 0.6, where the chain finds all with five trees."""
    shares = []
    for seed in range(40 if n_rows < 100 else 3):
        active = np.arange(n_rows) % 2 == 0
        noise = noise_vectors(active, 3, math.sqrt(EXAMPLE_2), 1.0, np.random.default_rng(seed))
        shares.append(attack_smallest_sum(noise, active, seed=seed).accuracy.estimate)
    assert low < np.mean(shares) < high


def test_results_are_json_and_say_what_they_are():
    """For statements."""
    active = split(n_rows=200)
    (message,) = trees(active, 1, 0.0037)
    for result in (
        attack_chain([message], 0.06, 1.0, active),
        attack_smallest_sum(message.noise, active),
        score_bins(np.full((200, 2), 0.5) + 1e-3 * np.random.default_rng(0).random((200, 2)), active.astype(int)),
    ):
        assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["n_rows"] == 200
        assert "not found" in result.verdict()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: chain([], 1.0, 1.0), "no noise"),
        (lambda: chain([SeenNoise(np.ones(4))], 1.0, 1.0), "needed"),
        (lambda: chain([SeenNoise(np.ones((4, 1)), np.array([3, 2, 1, 0]))], 1.0, 1.0), "ascending"),
        (lambda: chain([SeenNoise(np.ones((4, 1)))], 1.0, 1.0, n_rows=3), "needed"),
        (lambda: smallest_sum(np.ones((4, 1)), 4), "fewer"),
        (lambda: bins([[SeenNoise(np.ones((4, 1)))]], 1.0, 1.0, shares=[1.0]), "per bin"),
        (lambda: score_bins(np.ones((4, 2)), np.zeros(3, int)), "per row"),
    ],
)
def test_what_does_not_fit_is_refused(call, words):
    """With the reason."""
    with pytest.raises(InvalidInput, match=words):
        call()


def test_variances_must_be_ones():
    """Without sigma1 there is no chain."""
    with pytest.raises(InvalidParameter, match="sigma1"):
        chain([SeenNoise(np.ones((4, 1)))], 0.0, 1.0)
