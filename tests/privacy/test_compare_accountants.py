"""Our accountants beside those of other projects, where these are installed."""

from __future__ import annotations

import signal
import warnings

import pytest

from hedgerow.privacy.accountants import GaussianDP, ZeroConcentratedDP
from hedgerow.privacy.curves import zcdp_delta
from hedgerow.privacy.events import DiscreteGaussian, Gaussian


@pytest.fixture(scope="module")
def pld():
    """Privacy loss distributions of dp-accounting."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whatever other projects' dependencies warn of
        return pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")


@pytest.fixture(scope="module")
def opendp():
    """The prelude of opendp, with everything switched on that we compare with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prelude = pytest.importorskip("opendp.prelude")
    prelude.enable_features("contrib")
    yield prelude
    # Its compiled part takes Ctrl-C over from Python when it is first used; later tests want it back.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(("sensitivity", "sigma", "times"), [(1, 20.0, 50), (10, 100.0, 10), (3, 64.0, 100)])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_discrete_noise_against_its_loss_distribution(pld, sensitivity, sigma, times, delta):
    """Composed numerically, one-dimensional discrete noise costs what Gaussian DP says, within 1%."""
    step = 1e-5
    reference = pld.from_discrete_gaussian_mechanism(sigma, sensitivity, value_discretization_interval=step)
    theirs = reference.self_compose(times).get_epsilon_for_delta(delta)  # rounded up by at most `step` each time
    accountant = GaussianDP()
    accountant.compose(DiscreteGaussian(float(sensitivity), sigma, 1), times)
    ours = accountant.epsilon(delta)
    assert theirs - times * step <= ours <= 1.01 * theirs


@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_real_noise_against_its_loss_distribution(pld, delta):
    """Ten Gaussians by their exact curve and by a numerical loss distribution: equal to 1e-4."""
    theirs = pld.from_gaussian_mechanism(5.0, value_discretization_interval=1e-5).self_compose(10)
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
