"""Gumbel noise: its exact distribution, what the largest of noisy utilities is, and what that costs."""

from __future__ import annotations

import decimal
import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.accountants import BasicComposition, GaussianDP, PrivacyLoss, ZeroConcentratedDP
from hedgerow.privacy.curves import zcdp_delta
from hedgerow.privacy.events import Composed, Exponential, GumbelChoice, Parallel, from_dict
from hedgerow.privacy.gumbel import GumbelNoise
from hedgerow.privacy.mechanisms import words

SCALES = [Fraction(1), Fraction(7, 3), Fraction(1 << 12), Fraction(1 << 20), Fraction(10**9, 7)]


class Scripted:
    """Random words that a test has chosen; the last is repeated."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def bytes(self, length):
        """The next word."""
        assert length == 8
        number = self.numbers.pop(0) if len(self.numbers) > 1 else self.numbers[0]
        return number.to_bytes(8, "little")


def random(seed):
    """Secret randomness, the same each time."""
    return SecureRandom.from_seed(seed.to_bytes(32, "little"))


def below(k, scale):
    """P(nu <= k) without clipping: exp(-exp(-(k + 1/2) / scale))."""
    return np.exp(-np.exp(-(np.asarray(k, np.float64) + 0.5) / float(scale)))


# What is drawn


@pytest.mark.parametrize("scale", [1, Fraction(7, 3), 40])
def test_noise_has_its_distribution(scale):
    """Chi-square against the exact chances; tails are put together."""
    n = 200_000
    noise = GumbelNoise(Fraction(scale), 0).draw(n, random(1))
    ends = np.arange(math.floor(-1.5 * scale), math.ceil(6 * scale) + 1, max(int(scale) // 4, 1))
    chances = np.diff(np.concatenate([[0.0], below(ends, scale), [1.0]]))
    counts = np.diff(np.concatenate([[0], np.searchsorted(np.sort(noise), ends, side="right"), [n]]))
    assert chances.min() * n > 5
    assert chisquare(counts, chances * n).pvalue > 1e-3


@pytest.mark.parametrize("scale", SCALES)
def test_floats_settle_what_decimals_say(scale):
    """Where floats claim to know the noise, the slow and exact way gives the same; and mostly they know."""
    noise = GumbelNoise(scale, 0)
    drawn = words(400, random(2))
    drawn[:6] = 2**30, 2**31, 2**63 - 1, 2**63, 2**64 - 2**31, 2**64 - 2**30 - 1
    out = np.empty(400, np.int64)
    open_ = noise._in_floats(drawn, out)
    assert open_.sum() <= 2
    for word, found in zip(drawn[~open_].tolist(), out[~open_].tolist(), strict=True):
        assert noise._settled(word, Scripted(0)) == found


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("k_over_scale", [-1, 0, 3, 20])
def test_a_limit_is_settled_by_more_bits(scale, k_over_scale):
    """V just below where nu steps from k + 1 to k: floats leave it open, and the next bits decide it."""
    noise = GumbelNoise(scale, 0)
    k = math.floor(k_over_scale * scale)
    with decimal.localcontext(prec=120):
        y = (Decimal(2 * k + 1) / 2) * scale.denominator / scale.numerator
        limit = (1 - (-(-y).exp()).exp()) * 2**128
    first, second = divmod(int(limit), 2**64)
    assert noise._in_floats(np.array([first], np.uint64), np.empty(1, np.int64)).all()
    for word, following, expected in [
        (first, (0,), k + 1),
        (first, (2**64 - 1,), k),
        (first, (second, 0), k + 1),
        (first, (second, 2**64 - 1), k),
        (first, (second - 1, 0), k + 1),
        (first, (second + 1, 0), k),
    ]:
        assert noise._settled(word, Scripted(*following)) == expected


@pytest.mark.parametrize("clip", [8.0, 33.3, 96.0, 700.0])
def test_noise_is_clipped_and_rarely_so(clip):
    """The ends are reached by extreme bits only, and nothing is beyond; their chance is as small as is said."""
    noise = GumbelNoise(Fraction(1 << 10), 0, clip)
    assert noise._settled(0, Scripted(0)) == noise.highest
    assert noise._settled(2**64 - 1, Scripted(2**64 - 1)) == noise.lowest
    with decimal.localcontext(prec=400):
        above = 1 - (-(-(Decimal(noise.highest) + Decimal("0.5")) / 1024).exp()).exp()
        under = (-(-(Decimal(noise.lowest) - Decimal("0.5")) / 1024).exp()).exp()
        assert 0 < above <= (-Decimal(clip)).exp()
        assert 0 < under <= (-Decimal(clip)).exp()
        assert above + under <= Decimal(noise.clipped) < 3 * (above + under) + 10 * above
    assert (noise.highest, noise.lowest) == (math.ceil(clip * 1024), -math.ceil(math.log(clip) * 1024))


def test_a_low_clip_is_seen():
    """With the lowest clip that is allowed, one noise in 3,000 is at the upper end."""
    noise = GumbelNoise(Fraction(4), 0, 8)
    drawn = noise.draw((100, 1000), random(3))
    assert drawn.max() == noise.highest == 32
    assert drawn.min() >= noise.lowest
    assert 10 < (drawn == noise.highest).sum() < 70


# What the largest is


def chances(utilities, noise):
    """P~ exactly: of utilities in units of the grid, with noise that is not clipped, the first of the largest wins."""
    scale = noise.scale
    k = np.arange(math.floor(-6 * scale) - 1, math.ceil(120 * scale) + 1)
    limits = np.concatenate([[k[0] - 1], k])
    above = -np.expm1(-np.exp(-(limits + 0.5) / float(scale)))  # floats cancel near 1, so chances come from both sides
    each = np.where(k > 0, -np.diff(above), np.diff(below(limits, scale)))
    found = []
    for i, mine in enumerate(utilities):
        product = each.copy()
        for j, other in enumerate(utilities):
            ahead = mine - other  # i beats j if k_j < k_i + ahead, or k_j <= that and i comes first
            most = np.floor(k + ahead) if i < j else np.ceil(k + ahead) - 1
            product *= 1.0 if i == j else below(most, scale)
        found.append(product.sum())
    return np.array(found)


def softmax(utilities, scale):
    """The exponential mechanism."""
    weights = np.exp((np.asarray(utilities, np.float64) - max(utilities)) / float(scale))
    return weights / weights.sum()


@pytest.mark.parametrize("grid_bits", [0, 4, 12])
def test_winners_are_those_of_the_exponential_mechanism(grid_bits):
    """Chi-square of 150,000 choices: with a fine grid against the exponential mechanism, with coarse ones exactly."""
    noise = GumbelNoise(Fraction(2), grid_bits)
    utilities = np.array([0.0, 1.0, 4.0, 3.0, -2.0]) * 2**grid_bits
    winners = np.argmax(noise.draw((150_000, 5), random(4)) + utilities.astype(np.int64), axis=1)
    counts = np.bincount(winners, minlength=5)
    expected = softmax(utilities, noise.scale) if grid_bits == 12 else chances(utilities, noise)
    assert chisquare(counts, expected / expected.sum() * len(winners)).pvalue > 1e-3
    if grid_bits == 0:  # and the test can tell: without rounding there would be other chances
        assert chisquare(counts, softmax(utilities, noise.scale) * len(winners)).pvalue < 1e-6


utility = st.floats(-30.0, 30.0).map(lambda u: round(u * 8) / 8)


@settings(max_examples=150, deadline=None)
@given(st.lists(utility, min_size=2, max_size=5), st.sampled_from([Fraction(1), Fraction(5, 2), Fraction(9)]))
def test_rounding_moves_chances_by_at_most_the_grid(utilities, scale):
    """P~ is within a factor e^(-+ grid / beta) of the exponential mechanism, on the grid and off it."""
    noise = GumbelNoise(scale, 0)
    found = chances(utilities, noise)
    assert math.isclose(found.sum(), 1.0, rel_tol=1e-9)
    off = np.abs(np.log(found) - np.log(softmax(utilities, scale)))
    assert off.max() <= 1.0 / float(scale) + 1e-6


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([Fraction(1), Fraction(5, 2), Fraction(9)]))
def test_log_ratios_lie_in_an_interval_of_length_epsilon(data, scale):
    """For utilities that move by at most Delta: the range of log ratios is within the epsilon of the event."""
    noise, delta = GumbelNoise(scale, 0), 1.5
    utilities = np.array(data.draw(st.lists(utility, min_size=2, max_size=5)))
    moves = data.draw(st.lists(st.sampled_from([-1.5, -1.0, 0.0, 0.5, 1.5]), min_size=5, max_size=5))
    moved = utilities + moves[: len(utilities)]
    ratios = np.log(chances(moved, noise)) - np.log(chances(utilities, noise))
    assert np.ptp(ratios) <= noise.epsilon(delta) + 1e-6
    assert np.abs(ratios).max() <= noise.epsilon(delta) + 1e-6


def test_rounding_does_cost():
    """With a coarse grid the exponential mechanism's own epsilon is exceeded: what is added is not for nothing."""
    noise = GumbelNoise(Fraction(1), 0)
    # Off the grid: a move of 0.02 passes a limit between two grid points, and acts as one of a whole unit.
    ratios = np.log(chances([0.01, 0.0], noise)) - np.log(chances([-0.01, 0.0], noise))
    assert np.ptp(ratios) > 10 * 0.02 / float(noise.scale)
    assert np.ptp(ratios) <= noise.epsilon(0.01)


# What it costs


def test_epsilon_and_the_noise_for_it():
    """(2 Delta + 4 grid + 8 a) / beta, exactly, both ways."""
    noise = GumbelNoise(Fraction(3), 4)
    assert noise.epsilon(1) == pytest.approx((2 + 4 / 16) / 3, rel=1e-15)
    assert Fraction(noise.epsilon(1)) >= Fraction(9, 12)
    for epsilon in (0.1, 1.0, 7.3):
        made = GumbelNoise.for_choice(sensitivity=0.3, epsilon=epsilon, grid_bits=20)
        assert made.epsilon(0.3) == epsilon


def test_the_event_says_it_all():
    """Sensitivity, epsilon and the chance that one of all noises was clipped; it survives JSON."""
    noise = GumbelNoise(2, 10, clip=40)
    event = noise.event(sensitivity=0.5, n_noises=1000)
    assert event.epsilon == noise.epsilon(0.5)
    assert event.distance == pytest.approx(2000 * math.exp(-40), rel=1e-9)
    assert event.distance >= 2000 * math.exp(-40)
    assert from_dict(json.loads(json.dumps(event.to_dict()))) == event


@pytest.mark.parametrize("make", [ZeroConcentratedDP, GaussianDP, PrivacyLoss])
def test_accountants_charge_it_as_a_choice_and_add_the_distance(make):
    """The delta of the exponential mechanism, and (1 + e^epsilon) times the distance of all choices."""
    ideal, real = make(), make()
    ideal.compose(Exponential(1.0, 0.25), 8)
    real.compose(GumbelChoice(1.0, 0.25, 1e-9), 8)
    assert real.total == ideal.total
    assert real.delta(1.0) == pytest.approx(ideal.delta(1.0) + (1.0 + math.e) * 8e-9, rel=1e-9)
    assert real.delta(100.0) > 8e-9
    assert real.epsilon(1e-6) > ideal.epsilon(1e-6)
    assert math.isinf(real.epsilon(1e-9))


def test_zcdp_is_an_eighth_of_the_square():
    """In a mixture with others too; of parallel ones the larger distance counts."""
    accountant = ZeroConcentratedDP()
    one, other = GumbelChoice(1.0, 0.5, 1e-12), GumbelChoice(1.0, 0.4, 1e-10)
    accountant.compose(Composed((Parallel((one, other)), Exponential(1.0, 0.3))))
    assert accountant.total == pytest.approx((0.25 + 0.09) / 8.0)
    unlucky = (1.0 + math.exp(2.0)) * 1e-10
    assert accountant.delta(2.0) == pytest.approx(zcdp_delta(accountant.total, 2.0) + unlucky, rel=1e-6)


def test_it_is_not_pure():
    """Basic composition, which promises a delta of 0, refuses it."""
    with pytest.raises(InvalidParameter, match="cannot account for GumbelChoice"):
        BasicComposition().compose(GumbelChoice(1.0, 0.5, 1e-40))


# Bad input


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beta": 0}, "beta must be a number above 0, got 0"),
        ({"beta": math.inf}, "beta must be a number above 0, got inf"),
        ({"beta": "1"}, "beta must be a number above 0, got '1'"),
        ({"beta": 0.5}, "beta must be between 1 and 2"),
        ({"beta": 2.0**32 + 1}, "got 4.29497e"),
        ({"grid_bits": 0.5}, "grid_bits must be a whole number between -1000 and 1000, got 0.5"),
        ({"clip": 7}, "clip must be between 8 and 700, got 7"),
        ({"clip": math.nan}, "got nan"),
    ],
)
def test_noise_that_cannot_be(options, said):
    """Each says what is wrong with it."""
    with pytest.raises(InvalidParameter, match=said):
        GumbelNoise(**{"beta": 1, "grid_bits": 0} | options)


def test_choices_that_cannot_be():
    """Sensitivities, errors and numbers of noises."""
    noise = GumbelNoise(1, 0)
    with pytest.raises(InvalidParameter, match="sensitivity must be a number above 0, got 0"):
        noise.epsilon(0)
    with pytest.raises(InvalidParameter, match="n_noises must be at least 1, got 0"):
        noise.event(sensitivity=1, n_noises=0)
    with pytest.raises(InvalidParameter, match="epsilon must be a number above 0, got nan"):
        GumbelNoise.for_choice(sensitivity=1, epsilon=math.nan, grid_bits=0)
    with pytest.raises(InvalidParameter, match="distance must be a finite number above 0, got 0"):
        GumbelChoice(1.0, 1.0, 0)
