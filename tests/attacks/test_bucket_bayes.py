"""All randomised columns of a row against one of them: what they add, and what no one can exceed."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from experiments.bucket_guesses import attack, score
from hedgerow.attacks.bucket_rr.bucket_bayes import ceiling, chances, debiased, infer
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.mechanisms import randomised_response

N_ROWS, N_BUCKETS = 4000, 16


def one_factor(rng, n_columns, loading, n_rows=N_ROWS):
    """Equally filled buckets [columns, rows] of columns that follow one latent factor."""
    factor = rng.normal(size=n_rows)
    columns = loading * factor + math.sqrt(1.0 - loading**2) * rng.normal(size=(n_columns, n_rows))
    ranks = np.argsort(np.argsort(columns, axis=1), axis=1)
    return (ranks * N_BUCKETS // n_rows).astype(np.uint8)


def answers_to(truth, n_codes, epsilon, rng):
    """Every column through randomised response."""
    return np.stack(
        [
            randomised_response(own, categories=n, epsilon=epsilon, random=rng).values
            for own, n in zip(truth, n_codes, strict=True)
        ]
    )


def attacked(n_columns, loading, epsilon, seed=0):
    """The first of several columns, guessed."""
    rng = np.random.default_rng(seed)
    truth = one_factor(rng, n_columns, loading)
    answers = answers_to(truth, [N_BUCKETS] * n_columns, epsilon, rng)
    return score(infer(answers, [N_BUCKETS] * n_columns, epsilon, n_rounds=60), 0, truth[0])


def test_correlated_columns_average_the_noise_out():
    """At epsilon 2 one column tells little about itself, five tell more, eighteen nearly all."""
    found = [attacked(n, 0.9, 2.0) for n in (1, 5, 18)]
    correlations = [result.all.correlation for result in found]
    assert 0.15 < correlations[0] < 0.35
    assert 0.35 < correlations[1] < 0.60
    assert 0.60 < correlations[2] < 0.85
    errors = [result.all.rank_error for result in found]
    assert errors[0] > errors[1] + 0.3
    assert errors[1] > errors[2] + 0.3
    assert found[0].all.correlation == pytest.approx(found[0].own.correlation, abs=0.01)


def test_columns_that_say_the_same_break_the_promise_of_one_element():
    """Eighteen copies of one column: its bucket is found far beyond its own epsilon, within that of the record."""
    result = attacked(18, 1.0, 2.0)
    assert result.own.accuracy.low < result.ceiling_of_element < result.own.accuracy.high
    assert result.ceiling_of_element == pytest.approx(math.exp(2) / (math.exp(2) + 15), abs=1e-9)
    assert result.all.accuracy.low > 0.8
    assert result.all.accuracy.high < result.ceiling_of_record
    assert result.all.surest > 0.98
    assert "beyond its own epsilon" in result.verdict()


def test_columns_that_do_not_follow_each_other_add_nothing():
    """Independent columns: all answers together are worth no more than the column's own."""
    result = attacked(8, 0.0, 2.0)
    assert result.all.accuracy.estimate == pytest.approx(result.own.accuracy.estimate, abs=0.02)
    assert result.all.correlation < result.own.correlation + 0.02
    assert result.all.accuracy.low < result.ceiling_of_element
    assert "not contradicted" in result.verdict()


def test_noise_that_is_too_weak_is_noticed():
    """Buckets that were randomised with twice the epsilon that is claimed: more is found than the claim allows."""
    rng = np.random.default_rng(3)
    truth = one_factor(rng, 1, 0.0)
    broken = answers_to(truth, [N_BUCKETS], 4.0, rng)
    result = attack(broken, [N_BUCKETS], 2.0, truth, n_rounds=5)[0]
    assert result.own.accuracy.low > result.ceiling_of_element
    assert result.verdict().startswith("ALARM")


def test_a_rare_level_stays_hidden_until_others_show_it():
    """With a frequent level the own answer often says less than the prior; other columns help where it does not."""
    rng = np.random.default_rng(4)
    late = rng.random(N_ROWS) < 0.2
    truth = np.stack([np.where(late ^ (rng.random(N_ROWS) < 0.05), 1, 0) for _ in range(12)]).astype(np.uint8)
    result = attack(answers_to(truth, [3] * 12, 1.0, rng), [3] * 12, 1.0, truth, n_classes=4, n_rounds=60)[0]
    assert result.own.accuracy.estimate <= result.chance + 0.01
    assert result.all.accuracy.low > result.chance + 0.05


def test_columns_may_have_different_numbers_of_buckets():
    """Two, five and sixteen of them; without noise the answers are the truth."""
    rng = np.random.default_rng(5)
    fine = one_factor(rng, 3, 0.95)
    truth = np.stack([fine[0] // 8, fine[1] // 4, fine[2]])
    n_codes = [2, 5, 16]
    result = attack(answers_to(truth, n_codes, 1.0, rng), n_codes, 1.0, truth, n_rounds=60)
    assert [own.n_codes for own in result] == n_codes
    assert all(own.all.correlation > own.own.correlation for own in result)
    plain = attack(truth, n_codes, math.inf, truth, n_rounds=20)
    assert [own.all.accuracy.estimate for own in plain] == [1.0, 1.0, 1.0]
    assert [own.ceiling_of_element for own in plain] == pytest.approx([1.0, 1.0, 1.0])


def test_marginals_are_debiased():
    """Counts of answers, with the noise taken out, are those of the truth."""
    rng = np.random.default_rng(6)
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    truth = rng.choice(4, size=200_000, p=shares).astype(np.uint8)
    answers = answers_to(truth[None], [4], 1.0, rng)[0]
    assert np.abs(np.bincount(answers) / len(truth) - shares).max() > 0.1
    assert np.abs(debiased(answers, 4, 1.0) - shares).max() < 0.02


def test_posteriors_are_those_of_bayes():
    """With one column everything is known in closed form."""
    rng = np.random.default_rng(7)
    truth = one_factor(rng, 1, 0.0)
    beliefs = infer(answers_to(truth, [N_BUCKETS], 1.0, rng), [N_BUCKETS], 1.0, n_rounds=5)
    stays, comes = chances(N_BUCKETS, 1.0)
    assert stays == pytest.approx(math.exp(1) / (math.exp(1) + 15))
    assert stays / comes == pytest.approx(math.e)
    answer, prior = beliefs.answers[0, 0], beliefs.marginals[0]
    joint = prior * np.where(np.arange(N_BUCKETS) == answer, stays, comes)
    assert beliefs.from_own(0)[0] == pytest.approx(joint / joint.sum())
    for posterior in (beliefs.from_own(0), beliefs.from_all(0)):
        assert posterior.sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("shares", [[0.25] * 4, [0.6, 0.2, 0.15, 0.05], [0.4, 0.35, 0.2, 0.05]])
def test_the_ceiling_is_the_best_there_is(shares, epsilon):
    """Against a linear program over all ways to guess: rows are true buckets, columns are guesses."""
    n = len(shares)
    right, least = np.zeros((n, n)), []
    np.fill_diagonal(right, shares)
    for k, a, b in product(range(n), repeat=3):  # P(guess k | a) <= e^epsilon P(guess k | b)
        row = np.zeros((n, n))
        row[a, k] += 1.0
        row[b, k] -= math.exp(epsilon)
        least.append(row.reshape(-1))
    best = linprog(
        -right.reshape(-1), np.array(least), np.zeros(len(least)), np.kron(np.eye(n), np.ones(n)), np.ones(n)
    )
    assert ceiling(shares, epsilon) == pytest.approx(-best.fun, abs=1e-9)


def test_ceilings_at_the_ends():
    """Without any answer it is the most frequent bucket; without noise it is certainty."""
    assert ceiling([0.1, 0.5, 0.4], 0.0) == pytest.approx(0.5)
    assert ceiling([0.1, 0.5, 0.4], math.inf) == pytest.approx(1.0)


def test_results_are_json():
    """For statements."""
    result = attacked(3, 0.9, 2.0)
    read = json.loads(json.dumps(result.to_dict()))
    assert read["all"]["accuracy"]["estimate"] == result.all.accuracy.estimate
    assert read["ceiling_of_record"] == result.ceiling_of_record


@pytest.mark.parametrize(
    ("answers", "n_codes", "how", "error", "words"),
    [
        (np.zeros((2, 5)), [2, 2], {}, InvalidInput, "uint8"),
        (np.zeros((2, 5), np.uint8), [2], {}, InvalidInput, "for each column"),
        (np.full((1, 5), 3, np.uint8), [3], {}, InvalidInput, "below its column"),
        (np.zeros((1, 5), np.uint8), [2], {"epsilon": 0.0}, InvalidParameter, "epsilon"),
        (np.zeros((1, 5), np.uint8), [2], {"n_classes": 0}, InvalidParameter, "n_classes"),
    ],
)
def test_what_cannot_have_been_received_is_refused(answers, n_codes, how, error, words):
    """With the reason."""
    with pytest.raises(error, match=words):
        infer(answers, n_codes, **({"epsilon": 1.0} | how))


def test_the_truth_must_fit():
    """One true bucket per row."""
    beliefs = infer(np.zeros((1, 5), np.uint8), [2], 1.0, n_rounds=1, n_classes=1)
    with pytest.raises(InvalidInput, match="per row"):
        score(beliefs, 0, np.zeros(4, np.uint8))
