from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.accountants import BasicComposition, GaussianDP, PrivacyLoss, ZeroConcentratedDP
from hedgerow.privacy.calibrate import (
    epsilon_per_release,
    mu_for,
    noise_for,
    rho_for,
    scale_for,
    share_of_sigma,
    sigma_for_mu,
    sigma_for_rho,
)
from hedgerow.privacy.events import (
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    PoissonSampled,
    Repeated,
)

budgets = given(
    epsilon=st.floats(0.01, 20), delta=st.floats(1e-12, 1e-2), sensitivity=st.floats(1, 1e6), times=st.integers(1, 400),
    parties=st.integers(1, 40),
)  # fmt: skip


@settings(max_examples=40)
@budgets
def test_calibrated_noise_stays_within_its_budget(epsilon, delta, sensitivity, times, parties):
    """By Gaussian DP: what was asked for is never exceeded, and nearly all of it is used."""
    sigma = sigma_for_mu(sensitivity, mu_for(epsilon, delta) ** 2 / times)
    share = share_of_sigma(sigma, parties)
    if share < 8:
        return  # the accountant refuses noise this coarse
    accountant = GaussianDP()
    accountant.compose(DiscreteGaussian(sensitivity, share, 200, parties), times)
    assert 0.999 * epsilon <= accountant.epsilon(delta) <= epsilon


@settings(max_examples=40)
@budgets
def test_calibrated_zcdp_stays_within_its_budget(epsilon, delta, sensitivity, times, parties):
    """The same by zCDP."""
    share = share_of_sigma(sigma_for_rho(sensitivity, rho_for(epsilon, delta) / times), parties)
    if share < 8:
        return
    accountant = ZeroConcentratedDP()
    accountant.compose(DiscreteGaussian(sensitivity, share, 200, parties), times)
    assert 0.99 * epsilon <= accountant.epsilon(delta) <= epsilon


def test_known_values():
    """mu and rho at delta 1e-5, worked out elsewhere; mu and sqrt(2 rho) differ by what zCDP gives away."""
    assert [round(mu_for(e, 1e-5), 4) for e in (0.1, 1, 8)] == [0.0325, 0.2681, 1.6660]
    assert [round(rho_for(e, 1e-5), 4) for e in (0.5, 1, 8)] == [0.0085, 0.0306, 1.2297]


def test_no_limit_means_no_noise():
    """An infinite epsilon gives an infinite mu and rho, and those no noise."""
    assert mu_for(math.inf, 1e-5) == rho_for(math.inf, 1e-5) == math.inf
    assert scale_for(1.0, math.inf) == 0.0
    assert epsilon_per_release(math.inf, 3) == math.inf
    assert sigma_for_mu(1.0, math.inf) == sigma_for_rho(1.0, math.inf) == share_of_sigma(0.0, 3) == 0.0


@settings(max_examples=100)
@given(epsilon=st.floats(1e-3, 50), sensitivity=st.floats(1e-3, 1e6), releases=st.integers(1, 1000))
def test_pure_shares_use_up_their_epsilon_exactly(epsilon, sensitivity, releases):
    """So many releases of an equal share, as noise or as choices: what was asked for, not one bit more."""
    each = epsilon_per_release(epsilon, releases)
    for event in (DiscreteLaplace(sensitivity, scale_for(sensitivity, each)), Exponential(sensitivity, each)):
        accountant = BasicComposition()
        accountant.compose(event, releases)
        assert epsilon * (1 - 1e-12) <= accountant.epsilon(0.0) <= epsilon


def test_noise_for_a_mixture():
    """The smallest sigma beside choices that are fixed: within the budget, and hardly more than needed."""

    def event(sigma):
        return Composed((Repeated(Gaussian(1.0, sigma), 10), Repeated(Exponential(1.0, 0.1), 5)))

    sigma = noise_for(ZeroConcentratedDP, event, 1.0, 1e-6)
    for noise, low, high in [(sigma, 0.999, 1.0), (sigma * 0.999, 1.0, 1.01)]:
        accountant = ZeroConcentratedDP()
        accountant.compose(event(noise))
        assert low <= accountant.epsilon(1e-6) * (1 - 1e-12) <= high
    closed = math.sqrt(10) / mu_for(1.0, 1e-6)
    assert noise_for(GaussianDP, lambda s: Repeated(Gaussian(1.0, s), 10), 1.0, 1e-6) == pytest.approx(closed, rel=2e-4)


def test_noise_for_a_sample():
    """Sampling a hundredth of the rows needs far less noise than all of them; loss distributions know."""

    def event(sigma):
        return Repeated(PoissonSampled(0.01, Gaussian(1.0, sigma)), 100)

    sigma = noise_for(PrivacyLoss, event, 1.0, 1e-6, precision=0.01)
    accountant = PrivacyLoss()
    accountant.compose(event(sigma))
    assert 0.9 <= accountant.epsilon(1e-6) <= 1.0 + 1e-8
    assert sigma < 0.1 * noise_for(GaussianDP, lambda s: Repeated(Gaussian(1.0, s), 100), 1.0, 1e-6)


def test_noise_that_does_not_exist():
    """Where fixed parts alone cost more, or nothing is understood, there is no amount of noise."""
    with pytest.raises(InvalidParameter, match="no amount of noise"):
        noise_for(ZeroConcentratedDP, lambda s: Composed((Gaussian(1.0, s), Exponential(1.0, 9.0))), 1.0, 1e-6)
    with pytest.raises(InvalidParameter, match="cannot account for"):
        noise_for(BasicComposition, lambda s: Gaussian(1.0, s), 1.0, 1e-6)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mu_for(0.0, 1e-5), "epsilon must be a number above 0, got 0.0"),
        (lambda: mu_for("1", 1e-5), "epsilon must be a number above 0, got '1'"),
        (lambda: mu_for(True, 1e-5), "epsilon must be a number above 0, got True"),
        (lambda: mu_for(math.nan, 1e-5), "epsilon must be a number above 0, got nan"),
        (lambda: mu_for(1.0, "1e-5"), "delta must be at least 1e-15"),
        (lambda: rho_for(None, 1e-5), "epsilon must be a number above 0, got None"),
        (lambda: scale_for("1", 1.0), "sensitivity must be a finite number above 0, got '1'"),
        (lambda: mu_for(float("nan"), 1e-5), "epsilon must be a number above 0"),
        (lambda: mu_for(1.0, 0.0), "delta must be at least 1e-15"),
        (lambda: rho_for(1.0, 1.0), "delta must be"),
        (lambda: mu_for(80.0, 1e-5), "epsilon = 80.0 is too large to be proved at delta = 1e-05"),
        (lambda: sigma_for_mu(0.0, 1.0), "sensitivity must be a number above 0"),
        (lambda: sigma_for_mu(1.0, -1.0), "mu_squared must be a number above 0"),
        (lambda: sigma_for_rho(1.0, 0.0), "rho must be a number above 0"),
        (lambda: share_of_sigma(1.0, 0), "parties must be at least 1"),
        (lambda: scale_for(0.0, 1.0), "sensitivity must be a finite number above 0"),
        (lambda: scale_for(1.0, -1.0), "epsilon must be a number above 0"),
        (lambda: epsilon_per_release(1.0, 0), "releases must be at least 1"),
        (lambda: noise_for(GaussianDP, lambda s: Gaussian(1.0, s), math.inf, 1e-6), "epsilon must be a finite"),
        (lambda: noise_for(GaussianDP, lambda s: Gaussian(1.0, s), 1.0, 1.0), "delta must be"),
    ],
)
def test_impossible_budgets_are_refused(call, sentence):
    """Each mistake is named."""
    with pytest.raises(InvalidParameter, match=sentence):
        call()
