from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hedgerow.crypto.fixed_point import FixedPoint, most_bits
from hedgerow.errors import FixedPointOverflow, InvalidParameter, InvalidType


@given(
    st.integers(0, 40),
    st.lists(st.floats(-1000, 1000), min_size=1, max_size=30),
)
def test_sum_of_codes_is_sum_of_values(bits, values):
    """The decoded sum is the exact sum of the rounded values, and within terms / 2**(bits + 1) of the true sum."""
    point = FixedPoint(bits, bound=1000.0, terms=len(values))
    total = np.add.reduce(point.encode(np.array(values)), keepdims=True)
    rounded = sum(round(Fraction(value) * 2**bits) for value in values)  # round is half to even
    decoded = point.decode(total)
    assert decoded.tolist() == [float(Fraction(rounded, 2**bits))]
    exact = sum(map(Fraction, values))
    assert abs(Fraction(rounded, 2**bits) - exact) <= Fraction(len(values), 2 ** (bits + 1))


def test_half_goes_to_even():
    """Halves are rounded to the even neighbour, so that rounding has no bias, for both signs."""
    codes = FixedPoint(0, bound=10.0, terms=1).encode(np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5]))
    assert codes.view(np.int64).tolist() == [0, 2, 2, 0, -2, -2]


def test_negative_numbers_are_twos_complement():
    """A negative number is 2**64 minus its size."""
    assert int(FixedPoint(8, bound=2.0, terms=1).encode(np.array([-1.5]))[0]) == 2**64 - 384


@given(st.integers(0, 62), st.integers(1, 10**6), st.floats(1e-6, 1e12))
def test_what_is_accepted_cannot_overflow(bits, terms, bound):
    """If the constructor accepts, the sum of that many largest values decodes right; if not, it would not fit."""
    largest = max(Fraction(bound) * 2**bits, round(Fraction(bound) * 2**bits), 1)
    if largest * terms >= 2**63:
        with pytest.raises(FixedPointOverflow, match="do not fit 63 bits"):
            FixedPoint(bits, bound=bound, terms=terms)
        assume(False)
    point = FixedPoint(bits, bound=bound, terms=terms)
    for value in (bound, -bound):
        total = point.encode(np.array([value])) * np.uint64(terms)
        expected = float(Fraction(round(Fraction(value) * 2**bits) * terms, 2**bits))
        assert point.decode(total).tolist() == [expected]
    assert most_bits(bound, terms) >= bits


def test_edge_of_the_ring():
    """2**63 does not fit and one less does; the error says how many bits would."""
    with pytest.raises(FixedPointOverflow, match="use at most 42"):
        FixedPoint(43, bound=1.0, terms=2**20)
    FixedPoint(43, bound=1.0, terms=2**20 - 1)
    with pytest.raises(FixedPointOverflow, match="not even without any"):
        FixedPoint(0, bound=2.0**63, terms=1)


@pytest.mark.parametrize("bad", [1.0000001, -2.0, np.nan, np.inf, -np.inf])
def test_values_out_of_bounds(bad):
    """A value beyond the bound, infinite or missing is refused with its place."""
    values = np.zeros((2, 3))
    values[1, 2] = bad
    with pytest.raises(FixedPointOverflow, match=r"value at \(1, 2\) is .*between -1.0 and 1.0"):
        FixedPoint(10, bound=1.0, terms=5).encode(values)


def test_sums_out_of_bounds():
    """A sum that the terms cannot have made, such as masks that did not cancel, is refused, in both directions."""
    point = FixedPoint(10, bound=1.0, terms=5)
    assert point.decode(np.array([5 * 1024, 2**64 - 5 * 1024], np.uint64)).tolist() == [5.0, -5.0]
    for word in (5 * 1024 + 1, 2**64 - 5 * 1024 - 1, 2**63, 2**63 - 1):
        with pytest.raises(FixedPointOverflow, match="larger than 5 values"):
            point.decode(np.array([0, word], np.uint64))


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 4)])
def test_shapes_and_strides(shape):
    """Every shape is kept, also of arrays that are not contiguous and of float32."""
    point = FixedPoint(20, bound=4.0, terms=1)
    values = np.ones(shape, np.float32) * np.float32(1.5)
    codes = point.encode(values.T)
    assert codes.shape == values.T.shape
    assert codes.dtype == np.uint64
    assert np.array_equal(point.decode(codes.T), values)


@pytest.mark.parametrize("values", [np.ones(2, int), ["a"], np.ones(2, complex), np.ones(2, bool)])
def test_only_floats_are_encoded(values):
    """Anything but floating-point numbers is refused."""
    with pytest.raises(InvalidType, match="floating-point"):
        FixedPoint(3, bound=4.0, terms=1).encode(values)


def test_only_words_are_decoded():
    """A sum of another type than the codes is refused."""
    with pytest.raises(InvalidType, match="uint64"):
        FixedPoint(3, bound=4.0, terms=1).decode(np.zeros(2, np.int64))


@pytest.mark.parametrize(
    ("bits", "bound", "terms", "words"),
    [
        (-1, 1.0, 1, "bits must be between 0 and 62, got -1"),
        (63, 1.0, 1, "bits must be"),
        (3, 0.0, 1, "bound must be a positive number, got 0.0"),
        (3, np.inf, 1, "bound must be"),
        (3, np.nan, 1, "bound must be"),
        (3, 1.0, 0, "terms must be at least 1, got 0"),
    ],
)
def test_bad_parameters(bits, bound, terms, words):
    """Parameters out of range are refused by name and value."""
    with pytest.raises(InvalidParameter, match=words):
        FixedPoint(bits, bound=bound, terms=terms)
