"""Labels from noisy sums: made-up sums of which everything is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.label_guesses import from_noisy_sums as attack
from hedgerow.attacks.private_histograms.noisy_sums import area_of_one as all_but_one
from hedgerow.attacks.private_histograms.noisy_sums import label_scores
from hedgerow.attacks.private_histograms.seen_releases import NOWHERE, Look, Sums, looks_at_labels
from hedgerow.attacks.results import area_under_roc, ceiling, matched_area
from hedgerow.errors import InvalidInput

N_ROWS = 200


def labels(n_rows=N_ROWS, seed=1):
    """Coins."""
    return np.random.default_rng(seed).integers(0, 2, n_rows)


def released(true, n_releases, n_sums, sigma, seed=2):
    """Sums over rows that are divided at random, again and again."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n_releases):
        place = rng.integers(0, n_sums, len(true))
        sums = np.bincount(place, true, n_sums) + sigma * rng.normal(size=n_sums)
        found.append(Sums(place, sums, np.full(n_sums, sigma**2)))
    return found


def test_sums_without_noise_are_solved():
    """As many different sums as rows: every label."""
    true = labels()
    result = attack(released(true, 40, 8, 0.0), true, positives=true.sum())
    assert result.accuracy.estimate == result.area.estimate == result.matched.estimate == 1.0
    assert result.n_sums == 320
    assert not result.refutes
    assert result.verdict().endswith("Nothing is claimed.")


def test_the_estimate_is_the_best_linear_one():
    """The same as by the formula of Gauss and Markov with a prior, and better than taking means of sums."""
    true = labels()
    seen = released(true, 20, 8, 1.0)
    scores = label_scores(seen, N_ROWS, true.sum())
    share = true.mean()
    A = np.concatenate([each.place[None] == np.arange(8)[:, None] for each in seen]).astype(float)
    b = np.concatenate([each.sums for each in seen]) - A.sum(axis=1) * share
    v = share * (1 - share)
    expected = share + v * A.T @ np.linalg.solve(v * A @ A.T + np.eye(len(A)), b)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    means = sum((each.sums / np.bincount(each.place, minlength=8))[each.place] for each in seen)
    areas = [area_under_roc(each[true == 1], each[true == 0]).estimate for each in (scores, means)]
    assert areas[0] >= areas[1]


def test_rows_in_no_sum_are_as_likely_as_any():
    """Nothing is said about them; without any sum, about nobody."""
    true = labels()
    place = np.where(np.arange(N_ROWS) < 50, 0, NOWHERE)
    scores = label_scores([Sums(place, np.array([50.0]), np.zeros(1))], N_ROWS, 100)
    assert (scores[:50] > 0.99).all()
    np.testing.assert_allclose(scores[50:], 0.5)
    np.testing.assert_allclose(label_scores([], N_ROWS, true.sum()), true.mean())


@pytest.mark.parametrize("sigma", [1.0, 4.0])
def test_all_labels_but_one(sigma):
    """Noise as stated gives Phi(mu / sqrt 2) with mu^2 the number of looks over the variance; all else knows less."""
    true = labels(2000)
    seen = released(true, 10, 50, sigma)
    mu = math.sqrt(10) / sigma
    alone = all_but_one(looks_at_labels(seen, true))
    assert alone.low < ceiling(mu) < alone.high
    assert alone.high - alone.low < 0.06
    result = attack(seen, true, positives=true.sum(), mu=mu)
    assert result.area.high < alone.estimate
    assert not result.refutes
    assert result.verdict().endswith("The claim is not contradicted.")


def test_noise_that_is_too_weak_is_seen():
    """A fifth of what is stated: both adversaries are beyond what the statement allows."""
    true = labels()
    weak = [each._replace(variance=25.0 * each.variance) for each in released(true, 60, 8, 2.0)]
    mu = math.sqrt(60) / 10.0
    assert all_but_one(looks_at_labels(weak, true)).low > ceiling(mu)
    result = attack(weak, true, mu=mu)
    assert result.refutes
    assert result.verdict().startswith("ALARM")
    assert result.to_dict()["ceiling"] == pytest.approx(ceiling(mu))


def test_the_row_that_shows_most_counts():
    """Rows that move sums by different amounts, or by none."""
    noise = np.random.default_rng(3).normal(size=500)
    place = np.full(500, NOWHERE)
    place[:2] = [0, 1]
    amount = np.zeros(500)
    amount[:2] = [1.0, 2.0]
    found = all_but_one([Look(place, amount, noise, np.ones(500))])
    assert found.low < ceiling(2.0) < found.high
    with pytest.raises(InvalidInput, match="no noise to measure"):
        all_but_one([])


def test_what_columns_say_is_not_counted():
    """A score that knows no label but follows the columns: far above chance among all rows, not among like ones."""
    rng = np.random.default_rng(4)
    group = rng.integers(0, 10, 3000)
    true = (rng.random(3000) < group / 10).astype(int)
    score = group + rng.normal(size=3000)
    plain = area_under_roc(score[true == 1], score[true == 0])
    matched = matched_area(score, true, group, 0.95)
    assert plain.low > 0.75
    assert matched.low < 0.5 < matched.high


def test_one_stratum_is_the_plain_area():
    """With its interval."""
    rng = np.random.default_rng(5)
    true, score = labels(300), rng.normal(size=300)
    score += 0.5 * true
    together = matched_area(score, true, np.zeros(300), 0.9)
    np.testing.assert_allclose(together, area_under_roc(score[true == 1], score[true == 0], 0.9))
    sure = matched_area(true.astype(float), true, np.arange(300) % 3, 0.9)
    assert sure.estimate == sure.high == 1.0
    assert 0.9 < sure.low < 1.0
    with pytest.raises(InvalidInput, match="no stratum"):
        matched_area(score, true, np.arange(300), 0.9)


@pytest.mark.parametrize(
    "sums",
    [
        Sums(np.zeros(3, int), np.zeros(1), np.zeros(1)),
        Sums(np.ones(N_ROWS, int), np.zeros(1), np.zeros(1)),
        Sums(np.zeros(N_ROWS, int), np.zeros(1), -np.ones(1)),
        Sums(np.zeros(N_ROWS, int), np.array([np.nan]), np.ones(1)),
    ],
)
def test_sums_that_do_not_fit_are_refused(sums):
    """Rows, places and numbers."""
    with pytest.raises(InvalidInput):
        label_scores([sums], N_ROWS)


def test_labels_that_are_none_are_refused():
    """0 and 1 only."""
    with pytest.raises(InvalidInput, match="0 or 1"):
        attack([], np.array([0, 2, 1]))
