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
from hedgerow.crypto.sigmoid import BLOCK, Sigmoid, _coefficients, _cos_sin, _pi, _tables, _turn, deal_sigmoid, sigmoid
from hedgerow.errors import InvalidParameter, InvalidType
from hedgerow.testing.openings import repeated_masks
from hedgerow.testing.share_table import Table, value_of

small = settings(max_examples=30, deadline=None)  # the first example waits for the compiler
PLANS = [
    {},
    {"bound": 9.0, "n_sines": 12, "period_bits": 7, "times": 5},
    {"bound": 6.0, "n_sines": 12, "period_bits": 4, "fraction_bits": 28, "result_bits": 30},
    {"dealt_bits": 18, "public_bits": 22, "result_bits": 40},
    {"bound": 3.5, "n_sines": 1, "period_bits": 4, "fraction_bits": 3, "result_bits": 12},
]


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
@given(st.data(), st.sampled_from(PLANS), st.integers(2, 4), st.integers(0, 2**30))
def test_results_are_within_the_error(data, options, n_parties, run):
    """For numbers at both ends and anywhere between; so results are within -e and 1 + e."""
    end = math.floor(math.ldexp(options.get("bound", 12.0), options.get("fraction_bits", 20)))
    numbers = st.one_of(st.sampled_from([-end, 1 - end, -1, 0, 1, end]), st.integers(-end, end))
    x = np.array(data.draw(st.lists(numbers, max_size=8)), np.int64)
    plan = Sigmoid(len(x), **options)
    table = Table(n_parties, run)
    found = np.ldexp(talked(table, x, plan).astype(np.float64), -plan.result_bits)
    assert (np.abs(found - logistic(np.ldexp(x.astype(np.float64), -plan.fraction_bits))) <= plan.error).all()
    assert ((found >= -plan.error) & (found <= 1.0 + plan.error)).all()
    assert table.meter.rounds == plan.rounds
    assert table.meter.sent_bytes == plan.opened_bytes
    assert table.meter.dealt_bytes <= 8 * (2 * plan.n_sines + (2 if plan.cut_bits else 0)) * len(x) + 16 * n_parties


def test_errors_that_are_promised():
    """16 sines of period 32 to 2e-5 for |x| <= 12, with and without a truncation; 12 of 25.6 for |x| <= 9."""
    assert Sigmoid(1).error < 1.4e-5
    assert Sigmoid(1, dealt_bits=18, public_bits=22, result_bits=40).error < 2e-5
    assert Sigmoid(1, bound=9.0, n_sines=12, period_bits=7, times=5).error < 2e-5
    assert Sigmoid(1, n_sines=20).error < 2e-6


@pytest.mark.parametrize("options", PLANS)
def test_the_error_of_the_series_is_found_and_no_more(options):
    """A much finer grid finds nothing above it, and finds nearly as much: the bound is not loose."""
    plan = Sigmoid(1, **options)
    x = np.linspace(-plan.bound, plan.bound, 400_001)
    worst = np.abs(plan.series(x) - logistic(x)).max()
    rounding = plan.error - worst
    assert (
        0.0 <= rounding < 1e-6 + 2.0**-plan.result_bits + plan.n_sines * 2.0**-plan.public_bits + 2.0**-plan.dealt_bits
    )


def test_many_rows_use_the_error_up():
    """Several blocks, all of the range: within the bound, and more than half of it somewhere."""
    plan = Sigmoid(3 * BLOCK + 5)
    x = np.linspace(-12 << 20, 12 << 20, plan.n).astype(np.int64)
    table = Table(3)
    off = np.abs(np.ldexp(talked(table, x, plan).astype(np.float64), -20) - logistic(np.ldexp(x.astype(float), -20)))
    assert 0.5 * plan.error < off.max() <= plan.error


@pytest.mark.parametrize("options", PLANS)
def test_beyond_the_bound_it_is_wrong_but_never_far(options):
    """For any words at all; half a period away it is 1/2, and one period away the same as here."""
    plan = Sigmoid(2000, **options)
    x = np.random.default_rng(0).integers(-(2**63), 2**63, plan.n, dtype=np.int64)
    x[:2] = int(plan.period / 2 * 2**plan.fraction_bits), 2 << plan.angle_bits
    found = np.ldexp(talked(Table(2), x, plan).astype(np.float64), -plan.result_bits)
    assert np.abs(found - 0.5).max() <= plan.reach < 1.0
    assert np.abs(found[:2] - 0.5).max() < 1e-3 + 2.0 ** (1 - plan.result_bits) + 2.0**-plan.fraction_bits


# The same whole numbers everywhere


def test_tables_and_coefficients_are_the_same_on_every_machine():
    """Digests of what parties must agree on to the last bit; another one means that they would not."""
    digest = hashlib.sha256()
    for options in PLANS:
        plan = Sigmoid(1, **options)
        for array in (plan.coefficients, *_tables(plan.angle_bits)):
            digest.update(array.astype("<i8").tobytes())
    assert digest.hexdigest() == "56ceb978d0133485e278b550a199acc6f03bdd1b4dc01bd694044ed7520e174a"
    assert Sigmoid(1).coefficients[:3].tolist() == [650163524, -12465038, 147943877]


def test_a_changed_decimal_context_changes_nothing():
    """Coefficients are computed in a context of their own."""
    with decimal.localcontext(prec=5, rounding=decimal.ROUND_UP):
        found = _coefficients.__wrapped__(16, Fraction(12), Fraction(32))
    assert np.array_equal(found, Sigmoid(1).coefficients)


@cache
def whole_tables(angle_bits):
    """The tables, as Python's integers."""
    return [table.tolist() for table in _tables(angle_bits)]


def powers(angle, plan):
    """z, z^2, ... over Python's integers, as the text says."""
    tables = whole_tables(plan.angle_bits)
    high, low = divmod(angle % (1 << plan.angle_bits), len(tables[1]))
    z = [(1 << 30, 0)]
    first = times(tables[0][high], tables[1][low])
    for _ in range(plan.n_sines):
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
    plan = Sigmoid(len(x), dealt_bits=18, public_bits=22, result_bits=40)
    table = Table(3, run)
    found = talked(table, x, plan).tolist()
    for value, c, y in zip(x, table.opened[0].words.tolist(), found, strict=True):
        total = 1 << 39
        parts = zip(plan.coefficients.tolist(), powers(c, plan), powers(value - c, plan), strict=True)
        for b, public, dealt in parts:
            cos_c, sin_c = (shifted(b * part, 38) for part in public)
            cos_r, sin_r = (shifted(part, 12) for part in dealt)
            total += cos_c * sin_r + sin_c * cos_r
        assert y == total


@pytest.mark.parametrize("bits", [8, 25, 32])
def test_sines_are_as_close_as_the_proof_says(bits):
    """z^k is off by less than 3 k units of 2**-30."""
    angles = np.random.default_rng(1).integers(0, 2**32, 5000, dtype=np.uint32)
    angles[:4] = 0, 1, 2**bits - 1, 2 ** (bits - 1)
    out = np.empty((5000, 20, 2), np.uint64)
    _turn(angles, *_tables(bits), 0, out)
    k = np.arange(1, 21)
    exact = np.exp(2j * np.pi * ((np.outer(angles.astype(np.int64), k) % 2**bits) / 2.0**bits))
    off = np.abs(out.view(np.int64)[..., 0] + 1j * out.view(np.int64)[..., 1] - exact * 2.0**30)
    assert (off < 3 * k).all()


def test_constants_of_the_tables():
    """pi, and sines of parts of a turn, to all bits of a float."""
    assert _pi(200) >> 148 == int(math.pi * 2**52)
    assert str(_pi(200) * 10**50 >> 200) == "314159265358979323846264338327950288419716939937510"
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
        ({"n_sines": 0}, "n_sines must be between 1 and 64, got 0"),
        ({"n_sines": 65}, "got 65"),
        ({"times": 0}, "times must be at least 1"),
        ({"fraction_bits": 28}, "together between 2 and 32, got 28 and 5"),
        ({"bound": 16.0}, r"bound must be above 0 and below half the period 32.0, got 16.0"),
        ({"bound": math.nan}, "got nan"),
        ({"dealt_bits": 31}, "dealt_bits must be between 1 and 30, got 31"),
        ({"public_bits": 0}, "public_bits must be between 1 and 30, got 0"),
        ({"result_bits": 61}, "result_bits must be between 1 and dealt_bits"),
        ({"bound": 9.0, "n_sines": 12}, "more freedom"),
        ({"bound": 10.5, "n_sines": 14}, "more freedom"),
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
