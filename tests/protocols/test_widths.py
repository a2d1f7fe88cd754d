from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import limbs
from hedgerow.errors import FixedPointOverflow, InvalidParameter
from hedgerow.protocols.shares.scales import Bounds

CREDIT = (50_000, 2**14, 2**12, 2**14, 0)  # rows, gradients, hessians of at most a quarter, lambda = 1, gamma = 0


def numerator_and_denominator(G, H, left, lam):
    """P and Q of the candidate with (G, H) of `left` on its left."""
    g, h = left
    return g * g * (H - h + lam) + (G - g) ** 2 * (h + lam), (h + lam) * (H - h + lam)


def candidates(rows, lam, gamma2):
    """(P, Q) of every division of the rows, and of stopping."""
    G, H = sum(g for g, _ in rows), sum(h for _, h in rows)
    sums = {(0, 0)}
    for g, h in rows:
        sums |= {(a + g, b + h) for a, b in sums}
    stop = (H + lam) * lam
    return [(lam * G * G + gamma2 * stop, stop), *(numerator_and_denominator(G, H, left, lam) for left in sorted(sums))]


def largest_of_all(n_rows, lam, gamma2, kinds):
    """The largest P, Q and |P1 Q2 - P2 Q1| over all nodes with rows of these kinds."""
    found = [0, 0, 0]
    for rows in itertools.combinations_with_replacement(kinds, n_rows):
        pairs = candidates(rows, lam, gamma2)
        found[0] = max(found[0], *(p for p, _ in pairs))
        found[1] = max(found[1], *(q for _, q in pairs))
        found[2] = max(found[2], *(p * t - s * q for p, q in pairs for s, t in pairs))
    return found


@settings(max_examples=25, deadline=None)
@given(
    st.integers(3, 5),
    st.integers(1, 1000),
    st.integers(0, 1000),
    st.one_of(st.integers(1, 5), st.integers(1, 10_000)),
    st.one_of(st.just(0), st.integers(0, 10**6)),
)
def test_bounds_hold_and_are_close(n_rows, g, h, lam, gamma2):
    """Over all nodes of a few rows, P and Q reach their closed bounds exactly, and differences come within 9/4."""
    kinds = list(itertools.product((-g, 0, g), {0, h}))
    largest_p, largest_q, difference = largest_of_all(n_rows, lam, gamma2, kinds)
    assert largest_p == Bounds(n_rows, g, h, lam, gamma2).largest_numerator
    assert largest_q == Bounds(n_rows, g, h, lam).largest_denominator
    assert difference <= largest_p * largest_q <= difference * 9 // 4
    bits = Bounds(n_rows, g, h, lam, gamma2).needed_bits
    assert difference.bit_length() + 1 <= bits <= difference.bit_length() + 3


@pytest.mark.parametrize(("n_rows", "lam", "gamma2"), [(1, 1, 0), (2, 1, 3), (3, 2, 0), (4, 1, 0)])
def test_no_row_between_the_extremes_is_larger(n_rows, lam, gamma2):
    """With every whole number allowed as gradient and hessian, not only the extremes, the bounds hold too."""
    kinds = list(itertools.product(range(-2, 3), range(3)))
    largest_p, largest_q, difference = largest_of_all(n_rows, lam, gamma2, kinds)
    assert largest_p == Bounds(n_rows, 2, 2, lam, gamma2).largest_numerator
    assert largest_q == Bounds(n_rows, 2, 2, lam).largest_denominator
    assert difference <= largest_p * largest_q


@given(st.integers(1, 10**5), st.integers(1, 2**20), st.integers(1, 2**20), st.integers(1, 2**10))
def test_the_bound_is_reached(quarter, g, h, lam):
    """4 q rows, half with +g and half with -g: separated, against mixed evenly."""
    n_rows = 4 * quarter
    if n_rows * h < 4 * lam:
        return  # stopping has the larger P there
    H = n_rows * h
    apart = numerator_and_denominator(0, H, (2 * quarter * g, H // 2), lam)
    mixed = numerator_and_denominator(0, H, (0, H // 2), lam)
    difference = apart[0] * mixed[1] - mixed[0] * apart[1]
    assert difference.bit_length() + 1 == Bounds(n_rows, g, h, lam, 0).needed_bits


def signs_in_ring(pairs, others, n_limbs):
    """1 where P1 Q2 - P2 Q1 is negative, computed modulo 2**(32 L)."""

    def ring(values):
        return np.stack([limbs.constant(value, n_limbs) for value in values])

    d = limbs.multiply(ring([p for p, _ in pairs]), ring([q for _, q in others]))
    limbs.subtract_product(d, ring([p for p, _ in others]), ring([q for _, q in pairs]))
    return limbs.top_bit(d).tolist()


def test_one_size_too_narrow_compares_wrongly():
    """In the ring that is asked for all comparisons are right; with one limb less many are not, and nothing tells."""
    n_rows, g, h, lam, _ = CREDIT
    bits = Bounds(*CREDIT).comparison_bits()
    assert bits == 160
    draw = np.random.default_rng(5)
    H = n_rows * h
    made = [
        numerator_and_denominator(int(a - b), H, (int(a), int(c)), lam)
        for a, b, c in zip(
            draw.integers(0, n_rows * g // 2, 400), draw.integers(0, n_rows * g // 2, 400), draw.integers(0, H, 400),
            strict=True,
        )
    ]  # fmt: skip
    pairs, others = made[:200], made[200:]
    truth = [int(p * t < s * q) for (p, q), (s, t) in zip(pairs, others, strict=True)]
    assert signs_in_ring(pairs, others, bits // 32) == truth
    narrow = signs_in_ring(pairs, others, bits // 32 - 1)
    assert sum(a != b for a, b in zip(narrow, truth, strict=True)) > 20
    assert bits - 32 < Bounds(*CREDIT).needed_bits == 140 <= bits


@pytest.mark.parametrize(
    ("numbers", "needed", "bits"),
    [
        (CREDIT, 140, 160),
        ((10**6, 2**10, 2**8, 2**10, 0), 141, 160),
        ((50_000, 2**11, 2**9, 2**11, 0), 125, 128),
        ((1, 1, 0, 1, 0), 2, 32),
        ((2**40, 1, 1, 1, 0), 198, 224),  # P just above 2**118, Q just above 2**78
    ],
)
def test_known_widths(numbers, needed, bits):
    """Widths that were worked out by hand or by the maximum over many divisions of the rows."""
    assert Bounds(*numbers).needed_bits == needed
    assert Bounds(*numbers).comparison_bits() == bits


def test_lambda_and_gamma_are_in_the_width():
    """A large lambda or gamma needs a wider ring."""
    n_rows, g, h, _, _ = CREDIT
    assert Bounds(n_rows, g, h, 2**40, 0).comparison_bits() > 160
    assert Bounds(n_rows, g, h, 2**14, 2**80).comparison_bits() > 160


def lift(x, r, bits):
    """Step by step: hide x + 2**(bits - 2) under r, open it, and take off r with the wrap that the top bits tell."""
    size, half = 1 << bits, 1 << (bits - 1)
    opened = (x + half // 2 + r) % size
    wrapped = r >= half and opened < half
    return opened - half // 2 - (r - size if wrapped else r)


def test_sums_within_both_ends_are_lifted_exactly():
    """All sums and all masks of a ring of 8 bits; one step beyond either end some masks fail."""
    bits, quarter = 8, 64
    for x in range(-quarter, quarter + 1):
        assert {lift(x, r, bits) for r in range(256)} == {x}
    for x in (-quarter - 1, quarter + 1):
        right = [lift(x, r, bits) == x for r in range(256)]
        assert any(right)
        assert not all(right)


@pytest.mark.parametrize(
    ("n_rows", "largest", "bits"), [(2**16, 2**14, 32), (2**16 + 1, 2**14, 64), (1, 2**30, 32), (1, 2**30 + 1, 64)]
)
def test_sums_take_32_bits_up_to_the_closed_bound(n_rows, largest, bits):
    """2**30 still fits 32 bits, whichever of gradients and hessians reach it, and no more does."""
    assert Bounds(n_rows, largest, 1).sum_bits() == Bounds(n_rows, 1, largest).sum_bits() == bits
    assert Bounds(n_rows, largest, 1).sum_bits(bits) == bits
    if bits == 64:
        with pytest.raises(FixedPointOverflow, match=rf"{n_rows:,} rows .* 2\*\*30 = 1,073,741,824"):
            Bounds(n_rows, largest, 1).sum_bits(32)


def test_what_fits_no_ring_is_refused_with_its_numbers():
    """Sums above 2**62 and comparisons above 512 bits."""
    Bounds(2**40, 2**22, 0).sum_bits()
    with pytest.raises(FixedPointOverflow, match=r"rows with gradients up to 4,194,305 .*4,194,304 per row"):
        Bounds(2**40, 2**22 + 1, 0).sum_bits()
    with pytest.raises(FixedPointOverflow, match="64 bits"):
        Bounds(2**40, 2**22 + 1, 0).sum_bits(64)
    with pytest.raises(FixedPointOverflow, match="are available"):
        Bounds(10, 1, 1, 2**200, 0).comparison_bits()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Bounds(10, 1, 1, 0, 0).comparison_bits(), "lambda_int must be at least 1"),
        (lambda: Bounds(0, 1, 1, 1, 0).comparison_bits(), "n_rows must be at least 1, got 0"),
        (lambda: Bounds(10, -1, 1).sum_bits(), "largest_gradient must be at least 0, got -1"),
        (lambda: Bounds(10, 1, 1, 1, -1).needed_bits, "gamma2_int must be at least 0, got -1"),
    ],
)
def test_parameters_out_of_range_are_named(call, said):
    """Each names the parameter and its value."""
    with pytest.raises(InvalidParameter, match=said):
        call()
