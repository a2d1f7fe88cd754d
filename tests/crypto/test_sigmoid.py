"""The logistic function on shares, against its error bound, and against the same sums over Python's integers."""

from __future__ import annotations

import decimal
import hashlib
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto.shares import SUM32, SUM64, Share
from hedgerow.crypto.sigmoid import (
    _PI,
    BLOCK,
    BOUND,
    COEFFICIENTS,
    FRACTION_BITS,
    N_SINES,
    PERIOD_BITS,
    Sigmoid,
    _cos_sin,
    _tables,
    _turn,
    deal_sigmoid,
    series,
    sigmoid,
)
from hedgerow.errors import InvalidParameter, InvalidType
from twins.openings import repeated_masks
from twins.share_table import Table, value_of
from twins.sine_coefficients import coefficients

small = settings(max_examples=30, deadline=None)  # the first example waits for the compiler
RESULT_BITS = [6, 12, 20, 30, 60]
ANGLE_BITS = FRACTION_BITS + PERIOD_BITS


def talked(table, x, plan):
    """What the parties' shares open to, in units of 2**-F."""
    shares = table.split(np.asarray(x, np.int64).view(np.uint64), SUM64)
    found = table.talk(
        lambda step: deal_sigmoid(step, plan),
        lambda step, me: sigmoid(step, shares[me], plan, is_first=me == 0),
    )
    return value_of(found).view(np.int64)


def logistic(x):
    """Of floats."""
    return 1.0 / (1.0 + np.exp(-np.asarray(x, np.float64)))


# The error


@small
@given(st.data(), st.sampled_from(RESULT_BITS), st.integers(2, 4), st.integers(0, 2**30))
def test_results_are_within_the_error(data, bits, n_parties, run):
    """For numbers at both ends and anywhere between; so results are within -e and 1 + e."""
    end = BOUND << FRACTION_BITS
    numbers = st.one_of(st.sampled_from([-end, 1 - end, -1, 0, 1, end]), st.integers(-end, end))
    x = np.array(data.draw(st.lists(numbers, max_size=8)), np.int64)
    plan = Sigmoid(len(x), bits)
    table = Table(n_parties, run)
    found = np.ldexp(talked(table, x, plan).astype(np.float64), -plan.result_bits)
    assert (np.abs(found - logistic(np.ldexp(x.astype(np.float64), -FRACTION_BITS))) <= plan.error).all()
    assert ((found >= -plan.error) & (found <= 1.0 + plan.error)).all()
    assert table.meter.rounds == (2 if plan.cut_bits else 1)
    assert table.meter.sent_bytes == len(x) * (12 if plan.cut_bits else 4)
    assert table.meter.dealt_bytes <= 8 * (2 * N_SINES + (2 if plan.cut_bits else 0)) * len(x) + 16 * n_parties


def test_errors_that_are_promised():
    """12 sines of period 32 to 2e-4 for |x| <= 12, with and without a truncation."""
    assert Sigmoid(1).error < 1.83e-4
    assert Sigmoid(1, 60).error < 1.82e-4
    assert Sigmoid(1, 10).error < 1.2e-3


@pytest.mark.parametrize("bits", RESULT_BITS)
def test_the_error_of_the_series_is_found_and_no_more(bits):
    """A much finer grid finds nothing above it, and finds nearly as much: the bound is not loose."""
    plan = Sigmoid(1, bits)
    x = np.linspace(-BOUND, BOUND, 400_001)
    worst = np.abs(series(x) - logistic(x)).max()
    rounding = plan.error - worst
    assert 0.0 <= rounding < 1e-6 + 2.0**-plan.result_bits + (N_SINES + 1) * 2.0**-30


def test_many_rows_use_the_error_up():
    """Several blocks, all of the range: within the bound, and more than half of it somewhere."""
    plan = Sigmoid(3 * BLOCK + 5)
    x = np.linspace(-12 << 20, 12 << 20, plan.n).astype(np.int64)
    table = Table(3)
    off = np.abs(np.ldexp(talked(table, x, plan).astype(np.float64), -20) - logistic(np.ldexp(x.astype(float), -20)))
    assert 0.5 * plan.error < off.max() <= plan.error


@pytest.mark.parametrize("bits", RESULT_BITS)
def test_beyond_the_bound_it_is_wrong_but_never_far(bits):
    """For any words at all; half a period away it is 1/2, and one period away the same as here."""
    plan = Sigmoid(2000, bits)
    reach = math.ldexp(int(np.abs(COEFFICIENTS).sum()), -30) + plan.rounding
    x = np.random.default_rng(0).integers(-(2**63), 2**63, plan.n, dtype=np.int64)
    x[:2] = 1 << (ANGLE_BITS - 1), 2 << ANGLE_BITS
    found = np.ldexp(talked(Table(2), x, plan).astype(np.float64), -plan.result_bits)
    assert np.abs(found - 0.5).max() <= reach < 1.0
    assert np.abs(found[:2] - 0.5).max() < 1e-3 + 2.0 ** (1 - plan.result_bits) + 2.0**-FRACTION_BITS


# The same whole numbers everywhere


def test_tables_and_coefficients_are_the_same_on_every_machine():
    """Digests of what parties must agree on to the last bit; another one means that they would not."""
    digest = hashlib.sha256()
    for array in (COEFFICIENTS, *_tables(ANGLE_BITS)):
        digest.update(array.astype("<i8").tobytes())
    assert digest.hexdigest() == "7f55a1034a7002a3fbbc8f089cc91bfe62d4824fd3638f0fa582e5870e4668e6"


def test_coefficients_are_those_of_least_squares():
    """Computed in a decimal context of their own: a changed one changes nothing."""
    with decimal.localcontext(prec=5, rounding=decimal.ROUND_UP):
        found = coefficients(N_SINES, Fraction(BOUND), Fraction(1 << PERIOD_BITS))
    assert found == COEFFICIENTS.tolist()


@cache
def whole_tables(angle_bits):
    """The tables, as Python's integers."""
    return [table.tolist() for table in _tables(angle_bits)]


def powers(angle):
    """z, z^2, ... over Python's integers, as the text says."""
    tables = whole_tables(ANGLE_BITS)
    high, low = divmod(angle % (1 << ANGLE_BITS), len(tables[1]))
    z = [(1 << 30, 0)]
    first = times(tables[0][high], tables[1][low])
    for _ in range(N_SINES):
        z.append(times(z[-1], first))
    return z[1:]


def times(left, right):
    """A product of complex numbers in units of 2**-30."""
    (a, b), (c, d) = left, right
    return (a * c - b * d + (1 << 29)) >> 30, (a * d + b * c + (1 << 29)) >> 30


def shifted(number, bits):
    """Rounded to so many bits less."""
    return (number + ((1 << bits) >> 1)) >> bits


@small
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=4), st.integers(0, 2**30))
def test_sums_are_those_over_integers(x, run):
    """Without a truncation, with the masks known from what was opened: equal, bit for bit."""
    plan = Sigmoid(len(x), 60)
    table = Table(3, run)
    found = talked(table, x, plan).tolist()
    for value, c, y in zip(x, table.opened[0].words.tolist(), found, strict=True):
        total = 1 << 59
        parts = zip(COEFFICIENTS.tolist(), powers(c), powers(value - c), strict=True)
        for b, public, (cos_r, sin_r) in parts:
            cos_c, sin_c = (shifted(b * part, 30) for part in public)
            total += cos_c * sin_r + sin_c * cos_r
        assert y == total


@pytest.mark.parametrize("bits", [8, 25, 32])
def test_sines_are_as_close_as_the_proof_says(bits):
    """z^k is off by less than 3 k units of 2**-30."""
    angles = np.random.default_rng(1).integers(0, 2**32, 5000, dtype=np.uint32)
    angles[:4] = 0, 1, 2**bits - 1, 2 ** (bits - 1)
    out = np.empty((5000, 20, 2), np.uint64)
    _turn(angles, *_tables(bits), out)
    k = np.arange(1, 21)
    exact = np.exp(2j * np.pi * ((np.outer(angles.astype(np.int64), k) % 2**bits) / 2.0**bits))
    off = np.abs(out.view(np.int64)[..., 0] + 1j * out.view(np.int64)[..., 1] - exact * 2.0**30)
    assert (off < 3 * k).all()


def test_constants_of_the_tables():
    """pi, and sines of parts of a turn, to all bits of a float."""
    assert int(math.pi * 2**52) == _PI >> 172
    assert str(_PI * 10**50 >> 224) == "314159265358979323846264338327950288419716939937510"
    for turn in (Fraction(0), Fraction(1, 4096), Fraction(3, 7), Fraction(1, 1)):
        cos, sin = _cos_sin(turn)
        assert math.isclose(cos / 2**160, math.cos(2 * math.pi * turn), abs_tol=1e-15)
        assert math.isclose(sin / 2**160, math.sin(2 * math.pi * turn), abs_tol=1e-15)


# What others see


def openings(run, *, twice=False):
    """All that is opened for fixed numbers; with `twice`, other numbers are opened with the same dealt masks."""
    found = []
    for factor in (1, 2) if twice else (1,):
        table = Table(3, run)
        talked(table, (np.arange(20) - 10) * factor << 18, Sigmoid(20))
        found += [opening._replace(name=f"{opening.name} {factor}") for opening in table.opened]
    return found


def test_no_mask_covers_two_values():
    """No two opened words move together from seed to seed; the control uses every mask of x twice and each is found."""
    assert repeated_masks([openings(run) for run in range(4)]) == []
    found = {pair[:2] for pair in repeated_masks([openings(run, twice=True) for run in range(4)])}
    assert {(("sigmoid 1", k), ("sigmoid 2", k)) for k in range(20)} <= found


def test_opened_bits_are_balanced():
    """For fixed numbers every opened bit is 1 in about half of the runs, above the period too."""
    runs = [openings(run) for run in range(300)]
    for place in (0, 1):
        words = np.stack([run[place].words for run in runs])
        bits = np.unpackbits(words.reshape(300, -1).view(np.uint8), axis=1)
        assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(300)


# Bad input


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": -1}, "n must be at least 0, got -1"),
        ({"result_bits": 0}, "result_bits must be between 1 and 60, got 0"),
        ({"result_bits": 61}, "result_bits must be between 1 and 60, got 61"),
    ],
)
def test_plans_that_cannot_be(options, said):
    """Each says what is wrong with it."""
    with pytest.raises(InvalidParameter, match=said):
        Sigmoid(**{"n": 1} | options)


def test_shares_that_do_not_fit():
    """Of another kind, or of another number of rows."""
    for words in (np.zeros(3, np.uint32), np.zeros(4, np.uint64)):
        share = Share(words, SUM32 if words.dtype == np.uint32 else SUM64)
        with pytest.raises(InvalidType, match=r"sum64 and shape \(3,\)"):
            next(sigmoid(None, share, Sigmoid(3), is_first=True))
