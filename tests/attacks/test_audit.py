"""Lower bounds on epsilon: never above the truth, but for the stated risk, and not far below it."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from hedgerow.attacks import results as intervals
from hedgerow.attacks.central.audit import (
    Trials,
    audit,
    audit_mechanism,
    audit_one_run,
    lower_bound,
    lower_bound_one_run,
    one_run_p_value,
    run_trials,
)
from hedgerow.attacks.central.canaries import append, canary_for
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.schema import Schema
from twins.broken_privacy import best_of_each_feature
from twins.scattered_canaries import canaries_for


def randomised_response(rng, epsilon=1.0):
    """A bit is told truthfully with probability e^epsilon / (1 + e^epsilon): tight at epsilon."""

    def sample(bit, n):
        return bit ^ (rng.random(n) < 1.0 / (1.0 + math.exp(epsilon)))

    return sample


def laplace(rng, epsilon=1.0):
    """A count with Laplace noise: tight at epsilon."""
    return lambda value, n: value + rng.laplace(0.0, 1.0 / epsilon, n)


def leaky(rng, epsilon=1.0, delta=0.1):
    """Randomised response that says the truth plainly (2 or 3) with probability delta: tight at (epsilon, delta)."""

    def sample(bit, n):
        answer = (bit ^ (rng.random(n) < 1.0 / (1.0 + math.exp(epsilon)))).astype(float)
        plain = rng.random(n) < delta
        answer[plain] = 3.0 if bit else -3.0
        return answer

    return sample


# --- two worlds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "value", "neighbour", "delta"),
    [(randomised_response, True, False, 0.0), (laplace, 1.0, 0.0, 0.0), (leaky, True, False, 0.1)],
)
def test_bounds_are_sound_and_tight(make, value, neighbour, delta):
    """Of 200 audits of a mechanism that is tight at epsilon 1, at most 5% say more; most of them say most of it.

    Soundness is a promise about the share of audits, not about any one of them, so large audits are repeated too.
    """
    rng = np.random.default_rng(1)
    for n_samples, repetitions, seen in ((1000, 200, 0.6), (100_000, 20, 0.95)):
        found = np.array(
            [
                audit_mechanism(make(rng), value, neighbour, n_samples=n_samples, delta=delta).epsilon_lower
                for _ in range(repetitions)
            ]
        )
        assert np.mean(found > 1.0) <= 0.05
        assert np.median(found) > seen


def test_a_mechanism_below_its_claim_is_caught():
    """Laplace noise of half the scale that was claimed: the bound is above the claim, and the verdict says so."""
    rng = np.random.default_rng(2)
    result = audit_mechanism(laplace(rng, 2.0), 1.0, 0.0, n_samples=20_000)
    assert result.refutes(1.0)
    assert not result.refutes(2.0)
    assert result.verdict(1.0).startswith("ALARM")
    assert "does not contradict the claim of 2, and does not prove it" in result.verdict(2.0)


def test_delta_is_not_held_against_the_mechanism():
    """What happens with probability delta alone does not count; at delta 0 the same outcomes refute every epsilon."""
    rng = np.random.default_rng(3)
    sample = leaky(rng, 1.0, 0.1)
    assert audit_mechanism(sample, True, False, n_samples=20_000, delta=0.1).epsilon_lower <= 1.0
    assert audit_mechanism(sample, True, False, n_samples=20_000, delta=0.0).epsilon_lower > 5.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("swapped", [False, True])
def test_direction_and_side_do_not_matter(sign, swapped):
    """Whether the canary raises or lowers the statistic, and which world gives it away, is found out."""
    rng = np.random.default_rng(4)
    sure, seldom = np.ones(600), (rng.random(600) < 0.1).astype(float)
    worlds = (sign * seldom, sign * sure) if swapped else (sign * sure, sign * seldom)
    result = lower_bound(Trials(*worlds), delta=0.0)
    # The strongest evidence is the outcome that one world never shows, seen in nine of ten trials of the other.
    assert 4.0 < result.epsilon_lower < math.log(0.9 * 300)
    assert result.world == ("with" if swapped else "without")


def test_counting_trials_have_no_say_in_the_event():
    """The event is the same whatever the second halves hold; choosing and counting on the same trials is biased."""
    rng = np.random.default_rng(5)
    one, two = rng.normal(1, 1, 400), rng.normal(0, 1, 400)
    first = lower_bound(Trials(one, two), delta=0.0)
    other = lower_bound(
        Trials(np.append(one[:200], rng.normal(9, 1, 200)), np.append(two[:200], rng.normal(-9, 1, 200))), delta=0.0
    )
    assert (first.threshold, first.side, first.world) == (other.threshold, other.side, other.world)
    assert other.epsilon_lower > 3.0
    assert first.true_trials == first.false_trials == 200


def test_no_difference_gives_zero():
    """Equal worlds, also ones without any variation, prove nothing."""
    rng = np.random.default_rng(6)
    assert lower_bound(Trials(np.zeros(50), np.zeros(50)), delta=0.0).epsilon_lower == 0.0
    assert lower_bound(Trials(rng.normal(size=500), rng.normal(size=500)), delta=1e-6).epsilon_lower == 0.0


def test_most_that_trials_can_show():
    """Worlds that are perfectly apart give Clopper and Pearson's end points, and no more."""
    result = lower_bound(Trials(np.ones(1000), np.zeros(1000)), delta=0.0)
    rest = 0.025 ** (1.0 / 500)
    assert result.epsilon_lower == pytest.approx(math.log(rest / (1.0 - rest)))


def test_training_is_called_with_fresh_numbers():
    """Each trial has a number of its own, so that no two trainings draw the same noise."""
    called = []

    def train(with_canary, trial):
        called.append((with_canary, trial))
        return np.random.default_rng(trial).normal(3.0 if with_canary else 0.0)

    result = audit(train, delta=1e-6, n_trials=100)
    assert sorted(trial for _, trial in called) == list(range(200))
    assert sum(with_canary for with_canary, _ in called) == 100
    assert result.epsilon_lower > 1.0
    assert json.loads(json.dumps(result.to_dict()))["method"] == "two worlds"


# --- the Gaussian family -------------------------------------------------------------------------------------------


def test_gaussian_family_is_sound_and_tight():
    """Of 200 audits of Gaussian noise at mu = 1, at most 5% say more; 200 trials show more than without the family."""
    rng = np.random.default_rng(7)

    def sample(value, n):
        return value + rng.normal(size=n)

    found = np.array(
        [audit_mechanism(sample, 1.0, 0.0, n_samples=1000, delta=1e-5, family="gaussian").mu_lower for _ in range(200)]
    )
    assert np.mean(found > 1.0) <= 0.05
    assert np.median(found) > 0.7
    few = [
        audit_mechanism(sample, 1.0, 0.0, n_samples=400, delta=1e-5, family=family) for family in ("gaussian", "any")
    ]
    assert few[0].epsilon_lower > 1.5 * few[1].epsilon_lower
    many = audit_mechanism(sample, 1.0, 0.0, n_samples=100_000, delta=1e-5, family="gaussian")
    assert 0.95 < many.mu_lower <= 1.0
    assert mu_for(many.epsilon_lower, 1e-5) == pytest.approx(many.mu_lower, rel=1e-6)
    assert "if the training is Gaussian DP at all" in many.verdict(9.0)


# --- one run -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "published"),
    [((1000, 100, 75, 1e-4), 0.673), ((100_000, 1510, 1439, 1e-5), 2.675)],
)
def test_one_run_gives_the_papers_numbers(numbers, published):
    """The examples of Steinke, Nasr and Jagielski (appendix D, section 7), which print three digits."""
    n_canaries, guesses, right, delta = numbers
    included = np.zeros(n_canaries, np.bool_)
    half = (guesses + 1) // 2
    # The highest scores are guessed in, the lowest out: make `right` of those guesses right.
    included[:half] = True
    included[n_canaries - (guesses - right) :] = True
    scores = -np.arange(n_canaries, dtype=float)
    result = lower_bound_one_run(scores, included, guesses=guesses, delta=delta)
    assert result.right == right
    assert result.epsilon_lower == pytest.approx(published, abs=1e-3)


def test_one_run_is_sound_and_tight():
    """Of 200 audits of randomised response at epsilon 1, at most 5% say more; 20,000 canaries show nearly all."""
    rng = np.random.default_rng(8)

    def run(n):
        def train(included):
            return (included ^ (rng.random(n) < 1.0 / (1.0 + math.e))) + 1e-6 * rng.random(n)

        return audit_one_run(train, n, guesses=n, delta=0.0, random=rng).epsilon_lower

    found = np.array([run(1000) for _ in range(200)])
    assert np.mean(found > 1.0) <= 0.05
    assert np.median(found) > 0.75
    assert 0.95 < run(20_000) <= 1.0


@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.02])
@pytest.mark.parametrize("together", [False, True])
def test_one_run_allows_for_delta(delta, together):
    """Mechanisms that spend delta, on each canary apart or on all at once, are not accused too often: exactly."""
    n, epsilon = 50, 0.5
    q = 1.0 / (1.0 + math.exp(-epsilon))
    for right in range(n + 1):
        if together:  # all canaries are told with probability delta
            chance = delta + (1.0 - delta) * stats.binom.sf(right - 1, n, q)
        else:  # each is told with probability delta
            chance = stats.binom.sf(right - 1, n, delta + (1.0 - delta) * q)
        assert chance <= one_run_p_value(n, n, right, epsilon, delta) * (1.0 + 1e-9)


def test_one_run_p_value_is_the_formula():
    """The vectorised sum is that of the corollary, written out."""
    n, guesses, right, epsilon, delta = 300, 80, 61, 0.7, 1e-4
    q = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    between = [sum(stats.binom.pmf(right - j, guesses, q) for j in range(1, i + 1)) / i for i in range(1, right + 1)]
    expected = stats.binom.sf(right - 1, guesses, q) + 2 * n * delta * max(between)
    assert one_run_p_value(n, guesses, right, epsilon, delta) == pytest.approx(expected, rel=1e-9)
    assert one_run_p_value(n, guesses, 0, epsilon, delta) == 1.0


def test_one_run_without_knowledge_shows_nothing():
    """Scores that have nothing to do with the canaries prove nothing."""
    rng = np.random.default_rng(9)
    result = audit_one_run(lambda included: rng.random(len(included)), 999, guesses=101, delta=1e-5, random=rng)
    assert result.epsilon_lower == 0.0
    assert one_run_p_value(999, 101, result.right, 1.0, 1e-5) > 0.5
    assert json.loads(json.dumps(result.to_dict()))["n_canaries"] == 999


# --- single mechanisms of ours -------------------------------------------------------------------------------------


def test_discrete_gaussian_keeps_its_promise():
    """A thousand units of noise for a sensitivity of a thousand: mu = 1, nearly reached, not exceeded."""
    rng = np.random.default_rng(10)

    def sample(value, n):
        return discrete_gaussian(np.full(n, value), sensitivity=1000.0, sigma=1000.0, random=rng).values

    result = audit_mechanism(sample, 1000, 0, n_samples=200_000, delta=1e-5, family="gaussian")
    assert 0.95 < result.mu_lower <= 1.0


def test_best_threshold_without_noise_is_caught():
    """The exponential mechanism over features alone: the threshold of each gives a record away."""
    rng = np.random.default_rng(11)

    def sample(utilities, n):
        return best_of_each_feature(utilities, sensitivity=3.0, epsilon=1.0, n_samples=n, rng=rng)

    with_canary = [np.array([5.0, 5.1]), np.array([1.0, 2.0])]
    without = [np.array([5.0, 4.9]), np.array([1.0, 2.0])]
    result = audit_mechanism(
        sample, with_canary, without, n_samples=2000, statistic=lambda chosen: chosen[:, 0] * 0 + chosen[:, 1]
    )
    assert result.refutes(1.0)
    assert result.verdict(1.0).startswith("ALARM")


# --- canaries ------------------------------------------------------------------------------------------------------

SCHEMA = Schema.from_public(
    bounds={"age": (0, 90), "height": (0.0, 2.5)}, levels={"town": ["a", "b", "c"]}, integers=["age"], classes=[0, 1]
)


def test_canary_is_extreme_and_rare():
    """From the schema alone the far corner; with the rows the far side of them, their rarest level and label."""
    assert canary_for(SCHEMA).values == (90.0, 2.5, "c")
    frame = pd.DataFrame({"age": [80, 85, 70], "height": [0.3, 0.2, 0.1], "town": ["c", "c", "a"]})
    canary = canary_for(SCHEMA, frame, np.array([1, 1, 0]))
    assert canary.values == (0.0, 2.5, "b")
    assert canary.label == 0
    longer, labels = canary.appended_to(frame, np.array([1, 1, 0]))
    assert longer.iloc[3].to_dict() == {"age": 0, "height": 2.5, "town": "b"}
    assert list(longer.dtypes) == list(frame.dtypes)
    assert labels.tolist() == [1, 1, 0, 0]
    measured = Schema.from_public(bounds={"x": (0, 1)}, label_bounds=(-1.0, 3.0))
    assert canary_for(measured).label == 3.0
    assert canary_for(measured, np.array([[0.1]]), np.array([2.9])).label == -1.0


def test_many_canaries_lie_within_the_schema():
    """Whole numbers stay whole, levels and classes are those listed, and a matrix takes them too."""
    many = canaries_for(SCHEMA, 200, np.random.default_rng(12))
    ages, heights, towns = zip(*(canary.values for canary in many), strict=True)
    assert all(age == int(age) and 0 <= age <= 90 for age in ages)
    assert min(heights) >= 0.0
    assert max(heights) <= 2.5
    assert set(towns) == {"a", "b", "c"}
    assert {canary.label for canary in many} == {0, 1}
    numbers = canaries_for(Schema.from_public(bounds={"x": (0, 1)}, label_bounds=(0, 1)), 3, np.random.default_rng(1))
    X, y = append(numbers, np.zeros((2, 1)), np.zeros(2))
    assert X.shape == (5, 1)
    assert len(y) == 5


# --- intervals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "n"), [(0, 20), (3, 20), (20, 20), (517, 1000)])
def test_clopper_pearson_is_exact(hits, n):
    """At the ends the counts seen, or more extreme ones, have exactly the stated probability."""
    estimate, low, high = intervals.share(hits, n, 0.9)
    assert estimate == hits / n
    assert low == 0.0 if hits == 0 else stats.binom.sf(hits - 1, n, low) == pytest.approx(0.05)
    assert high == 1.0 if hits == n else stats.binom.cdf(hits, n, high) == pytest.approx(0.05)


def test_area_has_an_interval_that_covers():
    """Of 300 samples the interval of the area misses the truth about as often as it says."""
    rng = np.random.default_rng(13)
    truth = stats.norm.cdf(1.0 / math.sqrt(2.0))
    missed = 0
    for _ in range(300):
        area = intervals.area_under_roc(rng.normal(1, 1, 60), rng.normal(0, 1, 80), 0.9)
        missed += not area.low <= truth <= area.high
    assert 0.05 < missed / 300 < 0.16
    assert intervals.area_under_roc(np.ones(9), np.zeros(9))[0] == 1.0
    assert intervals.area_under_roc(np.zeros(9), np.ones(9)).high < 0.5
    assert intervals.area_under_roc(np.ones(9), np.ones(9)).estimate == 0.5


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "error", "words"),
    [
        (lambda: audit(float, delta=1.0, n_trials=9), InvalidParameter, "delta must be"),
        (lambda: audit(float, delta=0.1, n_trials=9, confidence=95.0), InvalidParameter, "confidence must be"),
        (lambda: audit(float, delta=0.0, n_trials=9, family="gaussian"), InvalidParameter, "no finite epsilon"),
        (lambda: audit(float, delta=0.1, n_trials=9, family="laplace"), InvalidParameter, "family must be one of"),
        (lambda: run_trials(float, 3), InvalidParameter, "n_trials must be at least 4"),
        (lambda: lower_bound(Trials(np.full(9, np.nan), np.zeros(9)), delta=0.0), InvalidInput, "NaN"),
        (lambda: lower_bound(Trials(np.zeros(3), np.zeros(9)), delta=0.0), InvalidInput, "four trials"),
        (
            lambda: audit_mechanism(lambda _, n: np.zeros((n, 2)), 1, 0, n_samples=9),
            InvalidInput,
            "one number per sample",
        ),
        (
            lambda: lower_bound_one_run(np.zeros(9), np.zeros(9, np.bool_), guesses=10, delta=0.0),
            InvalidParameter,
            "guesses must be between 1 and the number of canaries, 9; got 10",
        ),
        (
            lambda: lower_bound_one_run(np.zeros(9), np.zeros(8, np.bool_), guesses=2, delta=0.0),
            InvalidInput,
            "one score per canary",
        ),
        (lambda: canary_for(Schema.from_public(bounds={"x": (0, 1)})), InvalidInput, "needs a label"),
        (lambda: canary_for(SCHEMA, np.zeros((2, 2)), np.zeros(2)), InvalidInput, "describes 3 columns"),
        (lambda: append([canary_for(SCHEMA)], [[1]], [0]), InvalidInput, "matrices and to pandas frames"),
        (lambda: intervals.area_under_roc(np.zeros(1), np.zeros(5)), InvalidParameter, "two scores of each kind"),
    ],
)
def test_misuse_is_refused(do, error, words):
    """Each mistake is named before anything is trained."""
    with pytest.raises(error, match=words):
        do()
