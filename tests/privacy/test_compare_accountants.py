"""Our accountants beside those of other projects, where these are installed."""

from __future__ import annotations

import math
import sys
import warnings
from functools import cache

import numpy as np
import pytest

from hedgerow.errors import InvalidParameter
from hedgerow.privacy import privacy_loss
from hedgerow.privacy.accountants import BasicComposition, GaussianDP, PrivacyLoss, ZeroConcentratedDP
from hedgerow.privacy.curves import zcdp_delta
from hedgerow.privacy.events import DiscreteGaussian, Exponential, Gaussian, PoissonSampled


@pytest.fixture(scope="module")
def pld():
    """Privacy loss distributions of dp-accounting."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whatever other projects' dependencies warn of
        return pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")


@cache
def composed(make, *mechanism, step, times):
    """A mechanism's loss distribution so often: the same one for every delta that is asked of it."""
    return make(*mechanism, value_discretization_interval=step).self_compose(times)


@pytest.mark.parametrize(("sensitivity", "sigma", "times"), [(1, 20.0, 50), (10, 100.0, 10), (3, 64.0, 100)])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_discrete_noise_against_its_loss_distribution(pld, sensitivity, sigma, times, delta):
    """Composed numerically, one-dimensional discrete noise costs what Gaussian DP says, within 1%."""
    step = 1e-5
    reference = composed(pld.from_discrete_gaussian_mechanism, sigma, sensitivity, step=step, times=times)
    theirs = reference.get_epsilon_for_delta(delta)  # rounded up by at most `step` each time
    accountant = GaussianDP()
    accountant.compose(DiscreteGaussian(float(sensitivity), sigma, 1), times)
    ours = accountant.epsilon(delta)
    assert theirs - times * step <= ours <= 1.01 * theirs


@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_real_noise_against_its_loss_distribution(pld, delta):
    """Ten Gaussians by their exact curve and by a numerical loss distribution: equal to 1e-4."""
    theirs = composed(pld.from_gaussian_mechanism, 5.0, step=1e-5, times=10)
    accountant = GaussianDP()
    accountant.compose(Gaussian(1.0, 5.0), 10)
    assert accountant.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-4)


@pytest.mark.parametrize("scale", [2.0, 20.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_zcdp_against_opendp(opendp, scale, delta):
    """The same discrete Gaussian has the same zCDP and the same epsilon in opendp."""
    space = opendp.vector_domain(opendp.atom_domain(T=int)), opendp.l2_distance(T=float)
    measurement = opendp.m.make_gaussian(*space, scale=scale)
    accountant = ZeroConcentratedDP()
    accountant.compose(DiscreteGaussian(1.0, scale, 1))
    assert accountant.total == pytest.approx(measurement.map(1.0), rel=1e-9)
    theirs = opendp.c.make_zCDP_to_approxDP(measurement).map(1.0).epsilon(delta)
    assert accountant.epsilon(delta) == pytest.approx(theirs, rel=1e-6)
    assert zcdp_delta(accountant.total, theirs) == pytest.approx(delta, rel=1e-4)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("times", [10, 1000])
@pytest.mark.usefixtures("pld")
def test_loss_distributions_reproduce_gaussian_dp(times, delta):
    """Gaussians forced through the numerical path (samples of everybody): the closed curve, never less, to 4 digits."""
    forced, closed = PrivacyLoss(), GaussianDP()
    forced.compose(PoissonSampled(1.0, Gaussian(1.0, math.sqrt(times))), times)
    closed.compose(Gaussian(1.0, math.sqrt(times)), times)
    assert closed.epsilon(delta) * (1 - 1e-9) <= forced.epsilon(delta) <= closed.epsilon(delta) * (1 + 3e-4)


@pytest.mark.usefixtures("pld")
def test_loss_distributions_never_exceed_the_sum_of_epsilons():
    """Many small pure events cost far less at a positive delta, and never more than their sum."""
    for times in (1, 3, 100):
        basic, loss = BasicComposition(), PrivacyLoss()
        for accountant in (basic, loss):
            accountant.compose(Exponential(1.0, 0.1), times)
        assert loss.epsilon(1e-6) <= basic.epsilon(0.0) * (1 + 1e-9)
    assert loss.epsilon(1e-6) < 0.6 * basic.epsilon(1e-6)


@pytest.mark.usefixtures("pld")
def test_samples_against_their_own_accountant():
    """A thousand samples of a hundredth: within a thousandth of what dp-accounting says itself."""
    dp = pytest.importorskip("dp_accounting")
    theirs = dp.pld.PLDAccountant()
    theirs.compose(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.0)), 1000)
    accountant = PrivacyLoss()
    accountant.compose(PoissonSampled(0.01, Gaussian(1.0, 1.0)), 1000)
    assert accountant.epsilon(1e-6) == pytest.approx(theirs.get_epsilon(1e-6), rel=1e-3)


@pytest.mark.usefixtures("pld")
def test_the_fft_errs_less_than_is_allowed_for():
    """256 Gaussians by FFT and by direct convolution of the same masses: deltas differ by less than a tenth of it."""
    times, step = 256, 2.0**-9
    one = privacy_loss._gaussian(1.0 / times, step)
    masses = one._pmf_remove.to_dense_pmf()
    direct, lowest = masses._probs, masses._lower_loss
    for _ in range(8):
        direct, lowest = np.convolve(direct, direct), 2 * lowest
        kept = np.flatnonzero(direct > 1e-40)
        direct, lowest = direct[kept[0] : kept[-1] + 1], lowest + kept[0]
    fft = one.self_compose(times)._pmf_remove.to_dense_pmf()

    def delta(probabilities, low, epsilon):
        losses = (np.arange(len(probabilities)) + low) * step
        return probabilities[losses > epsilon] @ -np.expm1(epsilon - losses[losses > epsilon])

    worst = max(
        abs(delta(direct, lowest, at) - delta(fft._probs, fft._lower_loss, at)) for at in np.linspace(0.0, 10.0, 40)
    )
    assert 0.0 < worst < 0.1 * times * privacy_loss.FFT_ERROR


def test_a_missing_library_is_named(monkeypatch):
    """Without dp-accounting the error says what to install, and everything else still works."""
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    accountant = PrivacyLoss()
    accountant.compose(Exponential(1.0, 0.321))
    with pytest.raises(InvalidParameter, match=r"pip install 'hedgerow\[pld\]'"):
        accountant.epsilon(1e-6)
    other = GaussianDP()
    other.compose(Gaussian(1.0, 3.21))
    assert other.epsilon(1e-6) > 0
