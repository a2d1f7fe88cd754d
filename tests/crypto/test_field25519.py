"""Numbers modulo 2**255 - 19 in kernels, against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.compiling import kernel
from hedgerow.crypto.field25519 import (
    P,
    fadd,
    fcarry,
    ffreeze,
    finvert,
    fmul,
    fpack,
    from_element,
    from_words,
    froot_power,
    fsqr,
    fsub,
    funpack,
    is_below_p,
    is_zero,
    to_element,
    to_words,
)

EDGES = (0, 1, 2, 18, 19, 20, 2**51 - 1, 2**51, 2**255 - 20, P - 1, P - 2, (P - 1) // 2, 2**254)
numbers = st.one_of(st.sampled_from(EDGES), st.integers(0, P - 1))
wide_limbs = st.tuples(*[st.integers(0, 2**54 - 1)] * 5)


@kernel
def _combined(a, b):
    return fmul(a, b), fsqr(a), fadd(a, b), ffreeze(fsub(a, b)), finvert(a), froot_power(a)


def limbs(values):
    """Numbers as a kernel takes them."""
    return tuple(np.uint64(value) for value in values)


@given(numbers, numbers)
def test_arithmetic_is_that_of_integers(a, b):
    """Products, sums, differences, inverses and the power that square roots are made of."""
    found = [from_element(each) for each in _combined(to_element(a), to_element(b))]
    assert found == [a * b % P, a * a % P, (a + b) % P, (a - b) % P, pow(a, P - 2, P), pow(a, (P - 5) // 8, P)]


@given(wide_limbs, wide_limbs)
def test_products_take_limbs_up_to_their_bound(a, b):
    """Limbs of 54 bits, which sums and differences leave, are multiplied without loss; their product is small."""
    product, square, *_ = _combined(limbs(a), limbs(b))
    value_a, value_b = (sum(limb << (51 * k) for k, limb in enumerate(each)) for each in (a, b))
    assert from_element(product) == value_a * value_b % P
    assert from_element(square) == value_a**2 % P
    assert max(map(int, (*product, *square))) < 2**51 + 2**13


def test_the_largest_limbs_do_not_overflow():
    """The worst case of the bound that the module states: all limbs at 2**54 - 1."""
    most = (2**54 - 1,) * 5
    value = sum(limb << (51 * k) for k, limb in enumerate(most))
    product, square, *_ = _combined(limbs(most), limbs(most))
    assert from_element(product) == from_element(square) == value**2 % P


@given(st.tuples(*[st.integers(0, 2**63 - 1)] * 5))
def test_carries_keep_the_number(a):
    """Any limbs below 2**63 become small, and their representative is the number below p."""
    value = sum(limb << (51 * k) for k, limb in enumerate(a))
    carried = fcarry(limbs(a))
    assert from_element(carried) == value % P
    assert max(map(int, carried)) <= 2**51
    frozen = ffreeze(limbs(a))
    assert sum(int(limb) << (51 * k) for k, limb in enumerate(frozen)) == value % P


@pytest.mark.parametrize("value", [*EDGES, P, P + 1, P + 18, 2 * P, 2**255 - 1])
def test_each_number_has_one_representative(value):
    """Also numbers from p up, which fit into 255 bits, come to the one below p."""
    raw = limbs([value >> (51 * k) & (2**51 - 1) for k in range(5)])
    assert sum(int(limb) << (51 * k) for k, limb in enumerate(ffreeze(raw))) == (value % 2**255) % P
    assert is_zero(raw) == (value % 2**255 % P == 0)


@given(numbers)
@settings(max_examples=50)
def test_words_come_back(value):
    """Packed to four words and unpacked."""
    wire = np.zeros(6, np.uint64)
    fpack(to_element(value), wire, 1)
    assert from_words(wire[1:5]) == value
    assert wire[0] == wire[5] == 0
    assert from_element(funpack(wire, 1)) == value


@pytest.mark.parametrize(
    "value", [*EDGES, P, P + 1, 2**255 - 1, 2**255, 2**256 - 1, P - 2**64, P - 2**128, 2**255 - 2**64]
)
def test_only_numbers_below_p_are_written_in_the_one_way(value):
    """A peer cannot send the same number in two ways."""
    assert is_below_p(to_words(value), 0) == (value < P)
