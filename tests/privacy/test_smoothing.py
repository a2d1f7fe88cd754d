"""The lemma behind discrete noise (discrete_gaussian.py), against sums and integrals worked out numerically."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hedgerow.privacy.discrete_gaussian import ROUNDING_VARIANCE, log_ratio_of_sum, log_ratio_to_rounded_real, theta


def pmf(variance, reach):
    """The discrete Gaussian on -reach .. reach."""
    p = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * variance))
    return p / p.sum()


@pytest.mark.parametrize("variance", [0.25, 0.3, 0.5, 1.0])
def test_theta_bounds_the_sum_over_the_lattice(variance):
    """For every shift the sum of densities is within theta of 1, and for some it is almost that far."""
    k = np.arange(-60, 61)
    shifts = np.linspace(0, 1, 101)
    sums = np.exp(-((k - shifts[:, None]) ** 2) / (2 * variance)).sum(axis=1) / math.sqrt(2 * math.pi * variance)
    assert np.abs(sums - 1).max() <= theta(variance) + 1e-14
    assert np.abs(sums - 1).max() >= 0.95 * theta(variance)


@pytest.mark.parametrize(("sigma", "parties"), [(0.8, 2), (0.8, 5), (1.0, 3)])
def test_the_sum_of_several_is_near_one(sigma, parties):
    """The log ratio of a sum of discrete Gaussians to a single one stays below its bound, far out too."""
    reach = 40
    total = np.ones(1)
    for _ in range(parties):
        total = np.convolve(total, pmf(sigma**2, reach))
    middle = len(total) // 2
    near = slice(middle - 12, middle + 13)  # float sums lose their relative accuracy beyond
    wanted = pmf(parties * sigma**2, middle)
    measured = np.abs(np.log(total[near] / wanted[near])).max()
    assert 0.01 * log_ratio_of_sum(sigma, parties) < measured < log_ratio_of_sum(sigma, parties)


def test_many_parties_are_bounded_by_their_last_step():
    """The shortcut for more than 64 parties is above the full sum, and not by much."""
    full = sum(4 * theta(1.0 * k / (k + 1)) for k in range(1, 1000))
    assert full <= log_ratio_of_sum(1.0, 1000) <= 1.1 * full
    assert log_ratio_of_sum(1.0, 1) == 0.0
    assert log_ratio_of_sum(0.5, 2) == math.inf


def test_discrete_noise_is_rounded_real_noise():
    """Real noise of variance v - e, rounded at random with variance e, is discrete noise of variance v."""
    v, e = 3.0, 0.4
    t = np.linspace(-30, 30, 60001)
    k = np.arange(-30, 31)
    rounding = np.exp(-((k[:, None] - t) ** 2) / (2 * e))
    rounding /= rounding.sum(axis=0)
    density = np.exp(-(t**2) / (2 * (v - e)))
    found = (rounding * density).sum(axis=1)
    found /= found.sum()
    near = slice(20, 41)
    assert np.abs(np.log(found[near] / pmf(v, 30)[near])).max() < 4 * theta(e)


def test_the_constant_is_negligible():
    """With e = 2.25 squared the log ratio is below 2^-140."""
    assert ROUNDING_VARIANCE == 2.25**2
    assert 0 < log_ratio_to_rounded_real() < 2.0**-140
