"""Exact coins and what is made of them: their bits against independent arithmetic, their rare paths by hand."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from hedgerow.errors import FixedPointOverflow, InvalidParameter
from hedgerow.privacy import mechanisms
from hedgerow.privacy.mechanisms import Coin, _Digits, _digits, _geometric, below, fair_bits
from hedgerow.privacy.mechanisms import sample_laplace as sample


class Scripted:
    """Random bytes that a test has chosen: (number, how many bytes), in order."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def bytes(self, length):
        """The next number, which must have been meant to be of this length."""
        number, wanted = self.numbers.pop(0)
        assert wanted == length
        return number.to_bytes(length, "little")


class Zeros:
    """Random bytes that are all 0."""

    def bytes(self, length):
        """So many zeros."""
        return bytes(length)


def chance(coin, digits=400):
    """1 / (plus + times e^x) to so many digits, straight from the definition."""
    with localcontext() as context:
        context.prec = digits
        return 1 / (coin.plus + coin.times * (Decimal(coin.exponent.numerator) / coin.exponent.denominator).exp())


COINS = [
    Coin(Fraction(1, 3)),
    Coin(Fraction(2) ** -48),  # just below 1/2: the first 16 bits are 0111...
    Coin(Fraction(2000, 7)),  # e^-285
    Coin(Fraction(5, 2), plus=0),
    Coin(Fraction(-4), times=9),
    Coin(Fraction(-1, 10**30), times=3),  # just above 1/4
]


# --- coins -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coin", COINS)
@pytest.mark.parametrize("n", [16, 80, 144, 720])
def test_bits_of_a_chance(coin, n):
    """The first bits are right to the last one, however many."""
    with localcontext() as context:
        context.prec = 500
        assert coin.bits(n) == int(chance(coin) * 2**n)


def test_a_chance_beside_1_has_only_ones():
    """Where e^-x is far below what the digits show, the bits are still below those of 1."""
    assert Coin(Fraction(-(10**6)), times=5).bits(80) == 2**80 - 1
    assert Coin(Fraction(10**6)).bits(80) == 0


@pytest.mark.parametrize("coin", COINS)
def test_first_bits_settle_a_toss_unless_they_are_those_of_the_chance(coin):
    """Heads below, tails above, and on a tie the next bits decide, 64 at a time."""
    first, second, third = coin.bits(16), coin.bits(80) % 2**64, coin.bits(144) % 2**64
    if first:
        assert coin.toss(1, Scripted((first - 1, 2))).tolist() == [True]
    assert coin.toss(1, Scripted((first + 1, 2))).tolist() == [False]
    if second:
        assert coin.toss(1, Scripted((first, 2), (second - 1, 8))).tolist() == [True]
    if second + 1 < 2**64:
        assert coin.toss(1, Scripted((first, 2), (second + 1, 8))).tolist() == [False]
    assert coin.toss(1, Scripted((first, 2), (second, 8), (third + 1, 8))).tolist() == [False]
    if third:
        assert coin.toss(1, Scripted((first, 2), (second, 8), (third - 1, 8))).tolist() == [True]


@pytest.mark.parametrize("coin", [COINS[0], COINS[3], Coin(Fraction(9))])
def test_tosses_have_their_chance(coin):
    """Heads are as frequent as they should be, within five standard deviations."""
    n, p = 2_000_000, float(chance(coin))
    heads = coin.toss(n, np.random.default_rng(1)).sum()
    assert abs(heads - n * p) < 5 * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 2**63 - 1])
def test_numbers_below_a_limit_are_uniform_exactly(limit):
    """Words from the last incomplete multiple of the limit on are drawn again; all others count modulo the limit."""
    whole = 2**64 // limit * limit
    for word in {0, limit - 1, limit % 2**64, whole - 1}:
        assert below(limit, 1, Scripted((word, 8))).tolist() == [word % limit]
    if whole < 2**64:
        assert below(limit, 1, Scripted((whole, 8), (2**64 - 1, 8), (5, 8))).tolist() == [5 % limit]


def test_each_number_may_have_its_own_limit():
    """One limit for each number, all of them respected."""
    limits = np.tile(np.array([1, 2, 7, 10**6]), 5000)
    drawn = below(limits, len(limits), np.random.default_rng(0))
    assert (drawn >= 0).all()
    assert (drawn < limits).all()
    assert chisquare(np.bincount(drawn[2::4])).pvalue > 1e-4


def test_fair_bits_are_single_bits():
    """Eight per byte, and only as many as were asked for."""
    assert fair_bits(10, Scripted((0x80_81, 2))).tolist() == [True, *[False] * 6, True, True, False]


# --- discrete Laplace ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.75])
def test_digits_make_up_the_geometric_distribution(scale):
    """The product of the digits' chances, to 300 bits, is (1 - q) q^k for every k that they can show."""
    digits = _digits(scale)
    exact = [Fraction(coin.bits(300), 2**300) for coin in digits.coins]
    with localcontext() as context:
        context.prec = 120
        q = Fraction((-1 / Decimal(scale)).exp())
    for k in range(digits.beyond):
        p = 1 - exact[-1]
        for j, one in enumerate(exact[:-1]):
            p *= one if k >> j & 1 else 1 - one
        assert abs(p - (1 - q) * q**k) < Fraction(1, 2**290)
    assert abs(exact[-1] - q**digits.beyond) < Fraction(1, 2**290)


@pytest.mark.parametrize("scale", [2.0**-12, 0.05, 3.0, 1e5, 2.0**48])
def test_thresholds_are_the_first_bits(scale):
    """Every threshold is the beginning of its coin's chance, and digits reach 16 scales."""
    digits = _digits(scale)
    assert digits.thresholds[:, 0].tolist() == [int(chance(coin) * 2**16) for coin in digits.coins]
    assert digits.beyond >= 16 * scale
    assert len(digits.coins) == math.log2(digits.beyond) + 1


@pytest.mark.parametrize("scale", [0.3, 0.4, 1.0, 7.3, 300.0])
def test_samples_follow_the_distribution(scale):
    """A chi-square test over the cells with enough expected samples finds nothing."""
    assert pvalue_of(sample(scale, 400_000, np.random.default_rng(17)), scale) > 1e-4


def pvalue_of(drawn, scale):
    """Chi-square of whole numbers against P(k) proportional to exp(-|k| / scale)."""
    reach = max(math.ceil(40 * scale), 2)
    k = np.arange(-reach, reach + 1)
    p = np.exp(-np.abs(k) / scale)
    expected = len(drawn) * p / p.sum()
    assert np.abs(drawn).max() <= reach
    found = np.bincount(drawn + reach, minlength=len(k))
    often = (expected >= 20) | (k == 0)
    cells = np.where(often, k, 0)  # what is rare counts as 0
    totals = [np.bincount(cells + reach, weights)[np.unique(cells) + reach] for weights in (found, expected)]
    return chisquare(*totals).pvalue if len(totals[0]) > 1 else 1.0


@pytest.mark.parametrize("scale", [2.0**20, 3.3e9, 2.0**48])
def test_large_scales_have_their_moments(scale):
    """|X| has mean and standard deviation 1 in scales, signs and low digits are fair, tails fall as they should."""
    n = 300_000
    drawn = sample(scale, n, np.random.default_rng(3))
    size = np.abs(drawn) / scale
    assert abs(size.mean() - 1) < 5 / math.sqrt(n)
    assert abs((size**2).mean() - 2) < 5 * math.sqrt(20 / n)
    assert abs((drawn > 0).mean() - 0.5) < 5 * 0.5 / math.sqrt(n)
    for tail in (0.1, 2.0, 5.0):
        p = math.exp(-tail)
        assert abs((size > tail).mean() - p) < 5 * math.sqrt(p * (1 - p) / n)
    assert chisquare(np.bincount(drawn % 64)).pvalue > 1e-4
    assert chisquare(np.bincount((np.abs(drawn) >> 8) % 64)).pvalue > 1e-4


def test_what_lies_beyond_is_drawn_afresh():
    """With one digit only, most numbers lie beyond it, often many times over; the distribution is still the same."""
    t = Fraction(3)
    coins = (Coin(1 / t), Coin(2 / t, plus=0))
    digits = _Digits(coins, np.array([[coin.bits(16)] for coin in coins], np.uint16), np.zeros((1, 1), np.uint8), 2)
    drawn = _geometric(digits, 200_000, np.random.default_rng(4))
    expected = 200_000 * (1 - math.exp(-1 / 3)) * np.exp(-np.arange(24) / 3)
    found = np.bincount(np.minimum(drawn, 24))
    assert chisquare(found, np.append(expected, 200_000 - expected.sum())).pvalue > 1e-4


def test_numbers_without_end_are_an_error():
    """A source that says "beyond" for ever leads to an error, not to a number that wraps round or a loop."""
    with pytest.raises(FixedPointOverflow, match="e\\^-16000"):
        sample(2.0**48, 1, Zeros())


def test_a_tie_of_a_digit_is_settled_by_more_bits():
    """All first bits equal to the thresholds: each digit asks for 64 more, one after another."""
    digits = _digits(1.0)
    words = [int(threshold) for threshold in digits.thresholds[:, 0]]
    together = sum(word << 16 * place for place, word in enumerate(words))
    nexts = [coin.bits(80) % 2**64 for coin in digits.coins]
    more = [(nexts[0] - 1, 8), *((following + 1, 8) for following in nexts[1:])]
    assert _geometric(digits, 1, Scripted((together, 2 * len(words)), *more)).tolist() == [1]


def test_zero_is_not_counted_twice():
    """A zero with a minus starts again: at a tiny scale all samples are zeros, and they end."""
    assert not sample(0.01, 20_000, np.random.default_rng(0)).any()
    assert sample(0.01, 1, Scripted((2**32 - 1, 4), (2**7, 1), (2**32 - 1, 4), (0, 1))).tolist() == [0]


def test_the_same_bytes_give_the_same_samples():
    """Samples depend on the random bytes alone; more than one round holds are all drawn, from fresh bytes."""
    n = 3 * mechanisms._CHUNK + 17
    first, second, other = (sample(1e6, n, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert (first == second).all()
    assert (first == other).mean() < 0.01
    assert first.dtype == np.int64
    assert len(np.unique(first)) > n / 2
    assert sample(3.0, 0, Scripted()).shape == (0,)


@pytest.mark.parametrize("scale", [0.7, 7.3])
def test_against_opendp(opendp, scale):
    """The samples of opendp's discrete Laplace are of the same distribution."""
    space = opendp.vector_domain(opendp.atom_domain(T=int)), opendp.l1_distance(T=int)
    theirs = np.array(opendp.m.make_laplace(*space, scale=scale)([0] * 20_000))
    ours = sample(scale, 200_000, np.random.default_rng(8))
    reach = int(6 * scale)
    table = [np.bincount(np.clip(drawn, -reach, reach) + reach, minlength=2 * reach + 1) for drawn in (theirs, ours)]
    assert chi2_contingency(np.array(table)).pvalue > 1e-6  # their randomness cannot be fixed


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), 2.0**49, 2.0**-31])
def test_an_impossible_scale_is_refused(scale):
    """The scale must be positive and small enough for 64-bit sums."""
    with pytest.raises(InvalidParameter, match="scale of a discrete Laplace"):
        sample(scale, 1, np.random.default_rng(0))
