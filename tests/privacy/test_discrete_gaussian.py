"""The sampler: its tables, its convolutions and its rare paths against independent arithmetic."""

from __future__ import annotations

import math
from bisect import bisect_right
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chisquare

from hedgerow.errors import InvalidParameter
from hedgerow.privacy import discrete_gaussian
from hedgerow.privacy.discrete_gaussian import _split, _Table, sample, theta


class Scripted:
    """Random bytes that a test has chosen: whole numbers of 64 bits, in order."""

    def __init__(self, words):
        self.words = list(words)

    def bytes(self, length):
        """The next words."""
        taken, self.words = self.words[: length // 8], self.words[length // 8 :]
        return b"".join(word.to_bytes(8, "little") for word in taken)


def exact_probabilities(variance, reach):
    """P(k) for k = -reach .. reach in 90 digits, straight from the definition."""
    with localcontext() as context:
        context.prec = 90
        weights = [(Decimal(-k * k) / (2 * Decimal(variance))).exp() for k in range(-reach, reach + 1)]
        total = sum(weights)
        return [weight / total for weight in weights]


@pytest.mark.parametrize("variance", [0.01, 0.25, 1, 30, 400])
def test_tables_hold_the_distribution(variance):
    """Each probability of a table is right to 2^-180, which floats could not be."""
    table = _Table(Fraction(variance))
    reach = -table._lowest
    exact = exact_probabilities(variance, reach)
    bounds = [0, *table._thresholds]
    bounds += [2**192] * (len(exact) + 1 - len(bounds))
    assert reach >= 17 * math.sqrt(variance)
    for k, p in enumerate(exact):
        assert abs(Fraction(bounds[k + 1] - bounds[k], 2**192) - Fraction(p)) < Fraction(1, 2**180)


@pytest.mark.parametrize("sigma", [1024.5, 3e4, 1.7e5, 1e6, 2.9e6, 1e12, 2.0**48])
def test_parts_make_up_the_variance_exactly(sigma):
    """Scaled variances of the parts add up to sigma squared, and every convolution is smooth enough for its proof."""
    parts = list(_split(Fraction(sigma) ** 2))
    assert sum(step**2 * variance for step, variance in parts) == Fraction(sigma) ** 2
    assert all(variance <= 1024**2 for _, variance in parts)
    assert len(parts) <= 7
    for (step, fine), (next_step, _) in pairwise(parts):
        whole = sum((s // step) ** 2 * v for s, v in parts if s >= step)
        coarse = (whole - fine) / (next_step // step) ** 2
        assert 4 * theta(float(fine * coarse / whole)) < 2.0**-148


def test_a_convolution_has_the_wanted_distribution():
    """X1 + 192 X2, worked out over all values, is the discrete Gaussian to the accuracy of floats, tails included."""
    sigma = 1100.0
    (_, fine), (step, coarse) = _split(Fraction(sigma) ** 2)
    reach = 8000
    k = np.arange(-reach, reach + 1)
    fine_p = np.exp(-(k**2) / (2 * float(fine)))
    coarse_k = np.arange(-80, 81)
    coarse_p = np.exp(-(coarse_k**2) / (2 * float(coarse)))
    found = np.zeros(len(k))
    for j, p in zip(coarse_k, coarse_p, strict=True):
        shift = int(step * j)
        found[max(shift, 0) : len(k) + min(shift, 0)] += p * fine_p[max(-shift, 0) : len(k) + min(-shift, 0)]
    middle = slice(reach - 5500, reach + 5501)  # five standard deviations: beyond, the cut of fine_p shows
    ratio = found[middle] / np.exp(-(k[middle] ** 2) / (2 * sigma**2))
    assert ratio.max() / ratio.min() - 1 < 1e-9


@pytest.mark.parametrize("sigma", [0.4, 2.0, 37.5, 900.0])
def test_samples_follow_the_distribution(sigma):
    """A chi-square test over the cells with enough expected samples finds nothing."""
    n = 300_000
    drawn = sample(sigma, n, np.random.default_rng(11))
    reach = math.ceil(17 * sigma)
    k = np.arange(-reach, reach + 1)
    p = np.exp(-(k**2) / (2 * sigma**2))
    expected = n * p / p.sum()
    found = np.bincount(drawn + reach, minlength=len(k))
    often = expected >= 20
    rest = [found[~often].sum()], [expected[~often].sum()]
    keep = rest[1][0] >= 5
    outcome = chisquare(
        np.concatenate([found[often], rest[0] if keep else []]),
        np.concatenate([expected[often], rest[1] if keep else []]) * (n / (n - (0 if keep else rest[1][0]))),
        sum_check=False,
    )
    assert outcome.pvalue > 1e-4


@pytest.mark.parametrize("sigma", [5e3, 2.9e6, 1e10])
def test_large_scales_have_their_moments(sigma):
    """Mean 0, standard deviation sigma, kurtosis 3, and low digits that are spread evenly."""
    drawn = sample(sigma, 400_000, np.random.default_rng(3))
    scaled = drawn / sigma
    assert abs(scaled.mean()) < 5 / math.sqrt(len(drawn))
    assert abs(scaled.std() - 1) < 5 / math.sqrt(2 * len(drawn))
    assert abs((scaled**4).mean() - 3) < 5 * math.sqrt(96 / len(drawn))
    assert chisquare(np.bincount(drawn % 192)).pvalue > 1e-4


def test_the_upper_bits_settle_what_they_can():
    """With the guide or without it, the drawn number is how many thresholds are at most U."""
    table = _Table(Fraction(50))
    rng = np.random.default_rng(5)
    near = [int(upper) + d for upper in table._upper[::7] for d in (-1, 1) if 0 <= int(upper) + d < 2**64]
    words = [0, 2**64 - 2, *near, *rng.integers(0, 2**64, 3000, dtype=np.uint64).tolist()]
    words = [word for word in words if word not in set(table._upper.tolist())]
    drawn = table.draw(len(words), Scripted(words))
    assert drawn.tolist() == [bisect_right(table._thresholds, word << 128) + table._lowest for word in words]


def test_a_tie_in_the_upper_bits_is_settled_by_the_lower():
    """When a threshold starts like U, 128 more bits are drawn and all 192 are compared."""
    table = _Table(Fraction(50))
    place = len(table._thresholds) // 2
    threshold = table._thresholds[place]
    upper, lower = divmod(threshold, 2**128)
    below, at = (Scripted([upper, low % 2**64, low >> 64]) for low in (lower - 1, lower))
    assert table.draw(1, below).tolist() == [place + table._lowest]
    assert table.draw(1, at).tolist() == [place + 1 + table._lowest]
    assert (below.words, at.words) == ([], [])
    # In the far tails many thresholds start alike.
    assert table.draw(1, Scripted([2**64 - 1] * 3)).tolist() == [-table._lowest]
    never = table._thresholds.count(0)  # values whose probability is below 2^-192
    assert table.draw(1, Scripted([0] * 3)).tolist() == [table._lowest + never]


def test_pieces_do_not_change_what_is_drawn_in_number():
    """More samples than one piece holds are all drawn, from fresh bytes."""
    n = 3 * discrete_gaussian._CHUNK + 17
    drawn = sample(1e5, n, np.random.default_rng(0))
    assert drawn.shape == (n,)
    assert len(np.unique(drawn)) > n / 3
    assert sample(3.0, 0, np.random.default_rng(0)).shape == (0,)


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf"), 2.0**49])
def test_an_impossible_scale_is_refused(sigma):
    """Sigma must be positive and small enough for 64-bit sums."""
    with pytest.raises(InvalidParameter, match="sigma of a discrete Gaussian"):
        sample(sigma, 1, np.random.default_rng(0))
