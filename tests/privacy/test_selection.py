"""Private selection: the number of runs, what the best of them costs, and that it costs no more than is said."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.accountants import BasicComposition, GaussianDP, PrivacyLoss, ZeroConcentratedDP
from hedgerow.privacy.events import Composed, DiscreteLaplace, Gaussian, Laplace, NonPrivate, Selected, from_dict
from hedgerow.privacy.selection import (
    best_of,
    chances,
    delta_of_best,
    epsilon_of_best,
    epsilon_of_runs,
    mean_runs,
    pure_epsilon_of_best,
    rho_of_runs,
)

SHAPES = [0.0, 0.5, 1.0, 3.0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [1.2, 4.0, 30.0])
def test_chances_add_up_and_have_the_mean(mean, shape):
    """All of 2^128 but for what is rounded off, and E K is what the formula says."""
    best = best_of(mean, shape)
    found = chances(*best)
    assert abs(sum(found) / 2**128 - 1.0) < 1e-12
    assert sum(k * chance for k, chance in enumerate(found, 1)) / 2**128 == pytest.approx(mean, rel=1e-9)
    assert best.mean == pytest.approx(mean_runs(*best)) == pytest.approx(mean, rel=1e-9)


def test_a_geometric_number_of_runs():
    """Of shape 1: each further run has the same chance."""
    best = best_of(5.0, 1.0)
    assert best.stop == pytest.approx(0.2)
    assert [chance / 2**128 for chance in chances(*best)[:5]] == pytest.approx([0.2 * 0.8**k for k in range(5)])


def test_draws_follow_the_chances():
    """One run in as many cases as P(1) says."""
    best, random = best_of(3.0), SecureRandom.from_seed(bytes(32))
    drawn = np.array([best.draw(random) for _ in range(2000)])
    assert abs((drawn == 1).mean() - chances(*best)[0] / 2**128) < 0.04
    assert abs(drawn.mean() - 3.0) < 0.35


@pytest.mark.parametrize("wrong", [{"mean": 1.0}, {"mean": 1e9}, {"mean": math.nan}, {"mean": 3, "shape": -2.0}])
def test_wrong_numbers_of_runs_are_refused(wrong):
    """Before anything is planned with them."""
    with pytest.raises(InvalidParameter):
        best_of(**wrong)


# --- against exact distributions --------------------------------------------------------------------------------------


def best_exactly(run, shape, stop):
    """The distribution of the best of K runs, given that of one over outcomes in the order of their scores."""
    weights = np.array([chance / 2**128 for chance in chances(shape, stop)])
    runs = np.arange(1, len(weights) + 1)

    def at_most(p):
        return float((weights * p**runs).sum())  # the generating function of K

    below = np.concatenate([[0.0], np.cumsum(run)])
    return np.array([at_most(b) - at_most(a) for a, b in pairwise(below.tolist())])


def exact_epsilon(one, other):
    """The largest log ratio of two distributions."""
    return float(np.abs(np.log(one) - np.log(other)).max())


def exact_delta(one, other, epsilon):
    """The smallest delta at an epsilon, of both directions."""
    e = math.exp(epsilon)
    return max(float(np.maximum(one - e * other, 0).sum()), float(np.maximum(other - e * one, 0).sum()))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [1.5, 5.0, 20.0])
def test_pure_runs_cost_no_more_than_the_theorem_says(mean, shape):
    """Over many pairs of runs, those at the bound of one run included, the best is within (2 + shape) epsilon."""
    rng, best, epsilon = np.random.default_rng(4), best_of(mean, shape), 0.7
    worst = 0.0
    for _ in range(400):
        n = rng.integers(2, 7)
        one = rng.dirichlet(np.ones(n)) + rng.choice([0.001, 0.1])
        one /= one.sum()
        signs = rng.choice([-1.0, 1.0], n)
        other = one * np.exp(signs * epsilon / 2.0)
        other /= other.sum()
        if exact_epsilon(one, other) <= epsilon:
            worst = max(worst, exact_epsilon(best_exactly(one, *best), best_exactly(other, *best)))
    assert epsilon / 2.0 < worst <= pure_epsilon_of_best(epsilon, shape)


@pytest.mark.parametrize("shape", [0.0, 1.0])
@pytest.mark.parametrize("mean", [2.0, 10.0])
def test_gaussian_runs_cost_no_more_than_the_theorem_says(mean, shape):
    """Scores with Gaussian noise, on a grid: at every epsilon the exact delta of the best is below the bound."""
    best, mu = best_of(mean, shape), 0.5
    rho = mu**2 / 2.0
    grid = np.linspace(-9, 9, 4001)
    cdf = 0.5 * (1.0 + np.array([math.erf(x / math.sqrt(2.0)) for x in grid]))
    moved = 0.5 * (1.0 + np.array([math.erf((x - mu) / math.sqrt(2.0)) for x in grid]))
    one, other = (best_exactly(np.diff(c), *best) for c in (cdf, moved))
    for epsilon in (0.5, 1.0, 2.0, 3.0):
        assert exact_delta(one, other, epsilon) <= delta_of_best(rho, best, epsilon)


def test_bounds_are_those_of_dp_accounting():
    """Their accountant of repeated and selected runs, over their orders, proves what ours does, or a little less."""
    accounting = pytest.importorskip("dp_accounting")
    rdp = pytest.importorskip("dp_accounting.rdp").RdpAccountant
    for mean, shape, sigma in [(5.0, 0.0, 8.0), (10.0, 1.0, 5.0), (3.0, 0.5, 2.0)]:
        theirs = rdp()
        best = best_of(mean, shape)
        run = accounting.GaussianDpEvent(sigma)
        theirs.compose(accounting.dp_event.RepeatAndSelectDpEvent(run, mean=best.mean, shape=shape))
        rho = 1.0 / (2.0 * sigma**2)
        ours = epsilon_of_best(rho, math.inf, *best, 1e-6)
        assert ours <= theirs.get_epsilon(1e-6) * 1.001
        assert ours >= 0.9 * theirs.get_epsilon(1e-6)


# --- what a run may cost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_runs_are_given_what_fits(epsilon):
    """As much as the whole allows, and nearly no less."""
    best = best_of(6.0)
    rho = rho_of_runs(epsilon, 1e-6, best)
    assert 0.97 * epsilon <= epsilon_of_best(rho, math.inf, *best, 0.95e-6) <= epsilon
    assert 0.999 * epsilon <= pure_epsilon_of_best(epsilon_of_runs(epsilon, best), best.shape) <= epsilon
    assert delta_of_best(rho, best, epsilon) <= 1e-6


def test_more_costs_more():
    """In every argument that ought to matter."""
    base = epsilon_of_best(0.01, math.inf, *best_of(5.0), 1e-6)
    assert epsilon_of_best(0.02, math.inf, *best_of(5.0), 1e-6) > base
    assert epsilon_of_best(0.01, math.inf, *best_of(50.0), 1e-6) > base
    assert epsilon_of_best(0.01, math.inf, *best_of(5.0, 1.0), 1e-6) > base
    assert epsilon_of_best(0.01, math.inf, *best_of(5.0), 1e-9) > base
    assert epsilon_of_best(0.01, math.inf, *best_of(5.0), 1e-6, 1e-9) > base
    assert math.isinf(epsilon_of_best(0.01, math.inf, *best_of(5.0), 1e-6, 1e-3))
    assert epsilon_of_best(0.5, 0.1, *best_of(5.0), 1e-6) <= 0.2 * 1.001


# --- as an event ------------------------------------------------------------------------------------------------------


def test_the_event_is_accounted_for_and_survives_json():
    """Pure runs stay pure; a selection of Gaussian runs costs its epsilon at its delta, and composes with others."""
    best = best_of(5.0)
    pure = Selected(Laplace(1.0, 2.0), *best, pure_epsilon_of_best(0.5, 0.0), 0.0)
    books = BasicComposition()
    books.compose(pure)
    assert books.total == pytest.approx(1.0)
    assert from_dict(pure.to_dict()) == pure
    rho = rho_of_runs(1.0, 1e-6, best)
    noisy = Selected(Gaussian(math.sqrt(2.0 * rho), 1.0), *best, 1.0, 1e-6)
    for accountant in (ZeroConcentratedDP(), GaussianDP()):
        accountant.compose(Composed((noisy, DiscreteLaplace(1.0, 10.0))))
        assert accountant.delta(3.0) >= 1e-6
    alone = PrivacyLoss()
    alone.compose(noisy)
    assert alone.delta(1.0) == pytest.approx(1e-6, rel=1e-3)
    with pytest.raises(InvalidParameter):
        BasicComposition().compose(noisy)


@pytest.mark.parametrize("claimed", [{"epsilon": 0.9, "delta": 0.0}, {"epsilon": 0.9, "delta": 1e-12}])
def test_an_event_that_claims_too_little_is_refused(claimed):
    """Accountants do the sum again."""
    with pytest.raises(InvalidParameter, match="costs epsilon"):
        ZeroConcentratedDP().check(Selected(Laplace(1.0, 2.0), *best_of(5.0), **claimed))


def test_runs_without_a_guarantee_cannot_be_selected_from():
    """Nor runs that are compared in another way."""
    with pytest.raises(InvalidParameter, match="runs cannot be"):
        Selected(NonPrivate("no noise"), *best_of(5.0), 1.0, 0.0)
    with pytest.raises(InvalidParameter, match="runs cannot be"):
        Selected(Laplace(1.0, 2.0, "replace_one"), *best_of(5.0), 1.0, 0.0)
