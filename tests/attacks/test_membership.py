"""Membership inference: ceilings, scores and verdicts, on scores made by hand and on models that remember or do not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.audits.membership import Ceiling, assess, attack, label_confidence, unusual
from hedgerow.errors import InvalidInput, InvalidParameter


def scored(n, shift, seed=0):
    """Members, and normal scores that are higher by `shift` for them."""
    rng = np.random.default_rng(seed)
    members = rng.random(n) < 0.5
    return rng.normal(size=n) + shift * members, members


# --- ceilings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.0), (1.0, 0.05), (4.0, 1e-6), (0.0, 0.3)])
def test_ceilings_belong_together(epsilon, delta):
    """The advantage is the largest gap of the curve, the area the integral below it, and no point breaks a law."""
    ceiling = Ceiling(epsilon, delta)
    wrong = np.linspace(0.0, 1.0, 200_001)
    right = np.array([ceiling.true_positives(rate) for rate in wrong])
    assert np.max(right - wrong) == pytest.approx(ceiling.advantage, abs=1e-4)
    assert np.trapezoid(right, wrong) == pytest.approx(ceiling.area, abs=1e-4)
    assert ceiling.advantage == pytest.approx((math.exp(epsilon) - 1 + 2 * delta) / (math.exp(epsilon) + 1))
    assert (right <= np.exp(epsilon) * wrong + delta + 1e-12).all()
    assert (1 - wrong <= np.exp(epsilon) * (1 - right) + delta + 1e-12).all()


def test_ceiling_of_no_privacy_is_everything():
    """An infinite epsilon allows a perfect attack, but not one without any false alarm at delta 0."""
    ceiling = Ceiling(math.inf)
    assert ceiling.advantage == 1.0
    assert ceiling.area == 1.0
    assert ceiling.true_positives(0.01) == 1.0
    assert ceiling.true_positives(0.0) == 0.0
    assert Ceiling(0.0).area == 0.5


def test_randomised_response_reaches_its_ceiling():
    """The ceiling is tight: an adversary who is told each bit with randomised response comes up to it, not above."""
    rng = np.random.default_rng(1)
    members = rng.random(40_000) < 0.5
    told = (members ^ (rng.random(40_000) < 1.0 / (1.0 + math.e))) + 1e-6 * rng.random(40_000)
    result, ceiling = assess("told", told, members), Ceiling(1.0)
    assert result.advantage.low < ceiling.advantage < result.advantage.high
    assert result.area.low < ceiling.area < result.area.high
    assert 0.85 < result.epsilon_lower <= 1.0
    assert "not contradicted" in result.verdict(ceiling)


# --- figures -------------------------------------------------------------------------------------------------------


def test_figures_of_a_known_shift():
    """Normal scores one deviation apart: area, advantage and rates are those of the formulas."""
    result = assess("shift", *scored(20_000, 1.0))
    assert result.area.low < 0.7602 < result.area.high  # Phi(1 / sqrt 2)
    assert result.advantage.low < 0.3829 < result.advantage.high  # 2 Phi(1/2) - 1
    one_percent, one_in_a_thousand = result.rates
    assert one_percent.true_positives.estimate == pytest.approx(0.0924, abs=0.02)  # Phi(1 - 2.3263)
    assert one_in_a_thousand.true_positives.estimate == pytest.approx(0.0183, abs=0.01)
    assert one_percent.false_positives.estimate <= 0.01
    assert one_in_a_thousand.false_positives.estimate <= 0.001
    assert "gives members away" in result.verdict()


def test_scores_without_knowledge_show_nothing():
    """An advantage is measured on records that did not choose the threshold, so that chance gives none."""
    missed = sum(assess("noise", *scored(400, 0.0, seed)).advantage.low > 0.0 for seed in range(100))
    assert missed <= 5
    result = assess("noise", *scored(4000, 0.0))
    assert result.epsilon_lower == 0.0
    assert "a better one may" in result.verdict()


def test_verdict_raises_the_alarm():
    """Scores that know all break every claim."""
    result = assess("all", *scored(400, 100.0))
    assert result.verdict(Ceiling(1.0, 1e-6)).startswith("ALARM")
    assert result.epsilon_lower > 1.0
    assert result.area.estimate == 1.0
    weaker = assess("some", *scored(3000, 1.2))
    assert weaker.verdict(Ceiling(weaker.epsilon_lower + 0.01)).startswith(("WARNING", "some"))


def test_ties_are_no_evidence():
    """A model that says the same of every record tells nothing."""
    _, members = scored(200, 0.0)
    result = assess("constant", np.ones(200), members)
    assert result.area.estimate == 0.5
    assert result.advantage.estimate == 0.0
    assert all(rate.true_positives.estimate == 0.0 for rate in result.rates)


# --- shadows -------------------------------------------------------------------------------------------------------


def test_shadows_tell_easy_records_from_remembered_ones():
    """Records of very different difficulty: confidence alone says little, against the shadows members stand out."""
    rng = np.random.default_rng(2)
    easy = rng.normal(0.0, 4.0, 800)

    def fit(rows, number):
        own = np.random.default_rng(100 + number)
        logits = easy + own.normal(0.0, 0.3, 800)
        logits[rows] += 0.8
        return 1.0 / (1.0 + np.exp(-logits))

    plain, shadowed = attack(fit, 800, rng=rng, n_shadows=16)
    assert plain.area.estimate < 0.62
    assert shadowed.area.low > 0.9
    assert shadowed.rates[0].true_positives.low > plain.rates[0].true_positives.high


def test_members_are_drawn_by_coins_and_shadows_see_half():
    """The target's rows are about half of the records; each record is in exactly half of the shadows."""
    seen = []

    def fit(rows, number):
        seen.append((number, rows))
        return np.full(100, 0.5)

    attack(fit, 100, rng=np.random.default_rng(3), n_shadows=8)
    assert [number for number, _ in seen] == list(range(9))
    assert 30 < len(seen[0][1]) < 70
    times = np.bincount(np.concatenate([rows for _, rows in seen[1:]]), minlength=100)
    assert (times == 4).all()


def test_losses_may_stand_in_for_probabilities():
    """Minus a squared error is taken as it is; certainty does not overflow."""
    outside = np.ones((4, 3), np.bool_)
    scores = unusual(np.array([-1.0, -5.0, -1.0]), np.full((4, 3), -5.0), outside)
    assert scores[0] == scores[2] > scores[1] == 0.0
    assert np.isfinite(unusual(np.ones(3), np.zeros((4, 3)), outside)).all()


def test_label_confidence_picks_the_true_class():
    """One probability per record, by the order of the classes."""
    probabilities = np.array([[0.1, 0.9], [0.7, 0.3]])
    assert label_confidence(probabilities, ["no", "yes"], ["yes", "no"]).tolist() == [0.9, 0.7]


@pytest.mark.parametrize(
    ("do", "error", "words"),
    [
        (lambda: Ceiling(-1.0), InvalidParameter, "a ceiling needs"),
        (lambda: Ceiling(1.0, 2.0), InvalidParameter, "a ceiling needs"),
        (lambda: assess("x", np.zeros(9), np.zeros(8, np.bool_)), InvalidInput, "one score per record"),
        (lambda: assess("x", np.full(9, np.nan), np.zeros(9, np.bool_)), InvalidInput, "NaN"),
        (lambda: assess("x", np.zeros(9), np.zeros(9, np.bool_)), InvalidInput, "four members"),
        (lambda: attack(lambda _, __: 0.0, 9, rng=np.random.default_rng(0)), InvalidParameter, "20 records"),
        (
            lambda: attack(lambda _, __: np.zeros(3), 30, rng=np.random.default_rng(0)),
            InvalidInput,
            "a confidence for each of the 30 records",
        ),
    ],
)
def test_misuse_is_refused(do, error, words):
    """Each mistake is named."""
    with pytest.raises(error, match=words):
        do()
