"""Privacy numbers in words say no more than is proved."""

from __future__ import annotations

from statistics import NormalDist

import pytest

from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.curves import gaussian_delta, pure_delta
from hedgerow.privacy.events import amount, chance_beyond, up, what_is_proved


@pytest.mark.parametrize(("epsilon", "times_delta"), [(1.0, 20), (0.1, 149)])
def test_results_beyond_the_factor_are_more_likely_than_delta(epsilon, times_delta):
    """For Gaussian noise the chance is Phi(mu/2 - epsilon/mu), many times delta; the printed bound is not below it."""
    delta = 1e-6
    mu = mu_for(epsilon, delta)
    chance = NormalDist().cdf(mu / 2 - epsilon / mu)
    assert chance > times_delta * delta
    bound = chance_beyond(epsilon, lambda t: gaussian_delta(mu, t))
    assert chance <= bound < 4 * chance
    sentence = what_is_proved(epsilon, delta, beyond=bound)[1]
    assert up(bound, 3) in sentence
    assert float(up(bound, 3)) >= bound


def test_pure_mechanisms_have_no_such_results():
    """Beyond a pure epsilon there is nothing."""
    assert chance_beyond(2.0, lambda t: pure_delta(1.0, t)) == 0.0
    assert len(what_is_proved(1.0, 0.0)) == 2


def test_nothing_is_rounded_in_our_favour():
    """What is printed is never less than what holds."""
    assert amount(1.0004, 1.0049e-6) == "epsilon = 1.0004 and delta = 1.0049e-6"
    assert amount(1.00000401, 1.00000401e-6) == "epsilon = 1.0001 and delta = 1.0001e-6"
    assert amount(0.1, 0.0) == "epsilon = 0.1 (and delta = 0)"
