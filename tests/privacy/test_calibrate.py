from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.accountants import GaussianDP, ZeroConcentratedDP
from hedgerow.privacy.calibrate import (
    mu_for,
    rho_for,
    share_of_sigma,
    sigma_for_mu,
    sigma_for_rho,
)
from hedgerow.privacy.events import (
    DiscreteGaussian,
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
    assert sigma_for_mu(1.0, math.inf) == sigma_for_rho(1.0, math.inf) == share_of_sigma(0.0, 3) == 0.0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mu_for(0.0, 1e-5), "epsilon must be a number above 0, got 0.0"),
        (lambda: mu_for("1", 1e-5), "epsilon must be a number above 0, got '1'"),
        (lambda: mu_for(True, 1e-5), "epsilon must be a number above 0, got True"),
        (lambda: mu_for(math.nan, 1e-5), "epsilon must be a number above 0, got nan"),
        (lambda: mu_for(1.0, "1e-5"), "delta must be at least 1e-15"),
        (lambda: rho_for(None, 1e-5), "epsilon must be a number above 0, got None"),
        (lambda: mu_for(float("nan"), 1e-5), "epsilon must be a number above 0"),
        (lambda: mu_for(1.0, 0.0), "delta must be at least 1e-15"),
        (lambda: rho_for(1.0, 1.0), "delta must be"),
        (lambda: mu_for(80.0, 1e-5), "epsilon = 80.0 is too large to be proved at delta = 1e-05"),
        (lambda: sigma_for_mu(0.0, 1.0), "sensitivity must be a number above 0"),
        (lambda: sigma_for_mu(1.0, -1.0), "mu_squared must be a number above 0"),
        (lambda: sigma_for_rho(1.0, 0.0), "rho must be a number above 0"),
        (lambda: share_of_sigma(1.0, 0), "parties must be at least 1"),
    ],
)
def test_impossible_budgets_are_refused(call, sentence):
    """Each mistake is named."""
    with pytest.raises(InvalidParameter, match=sentence):
        call()
