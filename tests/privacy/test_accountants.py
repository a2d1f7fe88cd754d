"""Accountants: laws over every accountant and event, and exact brute force where one mechanism can be summed up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.accountants import GaussianDP, ZeroConcentratedDP
from hedgerow.privacy.curves import gaussian_delta, zcdp_delta
from hedgerow.privacy.events import Composed, DiscreteGaussian, Event, Gaussian, NonPrivate, Repeated

ACCOUNTANTS = [GaussianDP, ZeroConcentratedDP]
EVENTS = [
    Gaussian(1.0, 4.0),
    DiscreteGaussian(2.0, 30.0, coordinates=10),
    DiscreteGaussian(2.0, 30.0, coordinates=10, parties=5),
    Composed((Gaussian(1.0, 9.0), Repeated(DiscreteGaussian(1.0, 50.0, 3), 2))),
]

every_accountant = pytest.mark.parametrize("make", ACCOUNTANTS, ids=lambda make: make.NAME)
every_event = pytest.mark.parametrize("event", EVENTS, ids=range(len(EVENTS)))


def spent(make, *events, delta=1e-6):
    """The epsilon of these events."""
    accountant = make()
    accountant.compose_all(events)
    return accountant.epsilon(delta)


@every_accountant
@every_event
@pytest.mark.parametrize("times", [1, 2, 7, 100])
def test_n_at_once_is_one_n_times(make, event, times):
    """compose(e, n), n times compose(e) and Repeated(e, n) are the same, exactly."""
    at_once, one_by_one, repeated = make(), make(), make()
    at_once.compose(event, times)
    for _ in range(times):
        one_by_one.compose(event)
    repeated.compose(Repeated(event, times))
    for delta in (1e-3, 1e-6, 1e-10):
        assert at_once.epsilon(delta) == one_by_one.epsilon(delta) == repeated.epsilon(delta) > 0
    assert at_once.total == pytest.approx(times * _total(make, event), rel=1e-12)


def _total(make, event):
    accountant = make()
    accountant.compose(event)
    return accountant.total


@every_accountant
@every_event
def test_order_does_not_matter_and_more_costs_more(make, event):
    """The same events in another order cost the same; one event more costs more."""
    other = Gaussian(2.0, 11.0)
    assert spent(make, event, other) == spent(make, other, event) > max(spent(make, event), spent(make, other))


@every_accountant
@settings(max_examples=30)
@given(
    sensitivity=st.floats(0.5, 20),
    sigma=st.floats(20, 1e5),
    times=st.integers(1, 50),
    delta=st.floats(1e-10, 1e-2),
)
def test_monotone(make, sensitivity, sigma, times, delta):
    """More noise, less sensitivity, fewer releases or a larger delta: never a larger epsilon."""

    def epsilon(s=sensitivity, scale=sigma, n=times, d=delta):
        accountant = make()
        accountant.compose(DiscreteGaussian(s, scale, 4), n)
        return accountant.epsilon(d)

    base = epsilon()
    assert epsilon(scale=2 * sigma) <= base
    assert base <= min(epsilon(s=2 * sensitivity), epsilon(n=times + 1), epsilon(d=delta / 10))
    if 1e-3 < base < 50:  # below, delta alone may cover all; far above, nothing is proved
        assert epsilon(scale=2 * sigma) < base < epsilon(n=times + 1)


@every_accountant
@every_event
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_epsilon_and_delta_agree(make, event, delta):
    """At the epsilon for a delta, the delta is that one or less, and not much less."""
    accountant = make()
    accountant.compose(event, 3)
    assert 0.999 * delta <= accountant.delta(accountant.epsilon(delta)) <= delta


@every_accountant
def test_nothing_costs_nothing_and_no_guarantee_costs_everything(make):
    """No events: epsilon 0. One release without guarantee: epsilon infinite, whatever else there is."""
    accountant = make()
    assert (accountant.epsilon(1e-6), accountant.delta(0.1), accountant.is_private) == (0.0, 0.0, True)
    accountant.compose(Gaussian(1.0, 100.0))
    accountant.compose(NonPrivate("a mistake"))
    assert (accountant.epsilon(1e-6), accountant.delta(50.0), accountant.is_private) == (math.inf, 1.0, False)


@dataclass(frozen=True, slots=True)
class Unheard(Event):
    """An event that no accountant knows."""

    KIND: ClassVar[str] = "unheard"


@every_accountant
@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (Unheard(), "cannot account for"),
        (Gaussian(1.0, 1.0, "replace_one"), "this accountant is for add_remove, but the event for replace_one"),
        (DiscreteGaussian(1.0, 1.0, 10, parties=3), "too coarse for a sum over 3 parties"),
    ],
)
def test_what_cannot_be_proved_is_refused(make, event, sentence):
    """An unknown event, another adjacency, or noise too coarse for its theorem: refused, and nothing is added."""
    accountant = make()
    with pytest.raises(InvalidParameter, match=sentence):
        accountant.compose(Composed((Gaussian(1.0, 5.0), event)))
    assert accountant.epsilon(1e-6) == 0.0
    with pytest.raises(InvalidParameter, match="times must be at least 1"):
        accountant.compose(Gaussian(1.0, 5.0), 0)


def test_coarse_noise_of_one_party_has_zcdp_only():
    """A discrete Gaussian of scale 1 is accounted for by zCDP; Gaussian DP needs some room for rounding."""
    coarse = DiscreteGaussian(1.0, 1.0, 1)
    assert spent(ZeroConcentratedDP, coarse) == spent(ZeroConcentratedDP, Gaussian(1.0, 1.0))
    with pytest.raises(InvalidParameter, match=r"scale above 2\.25"):
        spent(GaussianDP, coarse)


@every_accountant
def test_shares_of_several_parties_are_worth_one_noise(make):
    """Nine parties with a third of the scale each cost as much as one, up to what the theorem adds: next to nil."""
    one = spent(make, DiscreteGaussian(1.0, 90.0, 100))
    several = spent(make, DiscreteGaussian(1.0, 30.0, 100, parties=9))
    assert one <= several <= one * (1 + 1e-9)


@pytest.mark.parametrize("sensitivity", [1, 4, 9])
@pytest.mark.parametrize("sigma", [6.0, 20.0])
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
def test_never_below_the_truth(sensitivity, sigma, epsilon):
    """One discrete Gaussian summed up exactly: both accountants claim at least its delta, Gaussian DP hardly more."""
    k = np.arange(-400, 401)
    p = np.exp(-(k**2) / (2 * sigma**2))
    p /= p.sum()
    shifted = np.exp(-((k - sensitivity) ** 2) / (2 * sigma**2))
    shifted /= shifted.sum()
    truth = np.maximum(p - math.exp(epsilon) * shifted, 0).sum()
    gaussian, zcdp = GaussianDP(), ZeroConcentratedDP()
    for accountant in (gaussian, zcdp):
        accountant.compose(DiscreteGaussian(float(sensitivity), sigma, 1))
    assert truth <= gaussian.delta(epsilon) + 1e-15
    assert truth <= zcdp.delta(epsilon) + 1e-15
    if truth > 1e-6 and sigma == 20.0:
        assert gaussian.delta(epsilon) <= 1.5 * truth


@pytest.mark.parametrize(
    ("epsilon", "mu", "rho"),
    [(0.5, 0.1422, 0.0085), (1, 0.2681, 0.0306), (2, 0.5016, 0.1083), (4, 0.9249, 0.3731), (8, 1.6660, 1.2297)],
)
def test_curves_have_known_values(epsilon, mu, rho):
    """Values worked out elsewhere, at delta 1e-5."""
    assert gaussian_delta(mu, epsilon) == pytest.approx(1e-5, rel=0.02)
    assert zcdp_delta(rho, epsilon) == pytest.approx(1e-5, rel=0.05)


@given(st.floats(1e-4, 5), st.floats(1e-3, 40))
def test_zcdp_never_claims_less_than_gaussian_dp(mu, epsilon):
    """The zCDP of a Gaussian says less than its own curve, so its delta is larger."""
    assert gaussian_delta(mu, epsilon) <= zcdp_delta(mu * mu / 2, epsilon) * (1 + 1e-6) + 1e-300


@pytest.mark.parametrize("accountant", [GaussianDP(), ZeroConcentratedDP()])
def test_impossible_questions_are_refused(accountant):
    """Delta lies between 0 and 1, epsilon is not negative."""
    with pytest.raises(InvalidParameter, match="delta must be"):
        accountant.epsilon(1.0)
    with pytest.raises(InvalidParameter, match="epsilon must be"):
        accountant.delta(-0.1)
    accountant.compose(DiscreteGaussian(1.0, 50.0, 1))
    assert accountant.epsilon(0.0) == math.inf
    assert accountant.delta(math.inf) == 0.0
    assert accountant.delta(1e4) == 1.0  # e^epsilon overflows: nothing is claimed rather than guessed
