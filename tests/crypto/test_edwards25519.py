"""The group of edwards25519: against Python's integers, and against X25519 and Ed25519 of another implementation."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.compiling import kernel
from hedgerow.crypto import edwards25519 as ed
from hedgerow.crypto.field25519 import P, from_words, to_words
from twins import naive_edwards as naive

TABLE = ed.table_of(ed.affine_of(*ed.BASE), 7)
SCALARS = (0, 1, 2, 3, 63, 64, 65, 4096, 8191, 8192, ed.ORDER - 1, ed.ORDER, 8 * ed.ORDER, 2**252, 2**255, 2**256 - 1)
scalars = st.one_of(st.sampled_from(SCALARS), st.integers(0, 2**256 - 1))
SMALL = [naive.multiple(k, naive.ORDER_8) for k in range(8)]
points = st.one_of(st.sampled_from(SMALL), st.integers(1, ed.ORDER - 1).map(naive.multiple))


@kernel
def _added(affine, out, negate):
    """out[0] = sum, out[1] = double of the first, out[2] = sum by way of points; how many were no points."""
    summands, sums = np.empty(2 * ed.POINT, np.uint32), np.empty(3 * ed.POINT, np.uint32)
    refused = ed.checked_summands(affine, 2, summands)
    for k in range(3):
        ed.set_neutral(sums, ed.POINT * k)
        ed.add(sums, ed.POINT * k, summands, 0)
    ed.add_signed(sums, 0, summands, ed.POINT, negate)
    ed.double(sums, ed.POINT)
    again, summand = np.empty(ed.POINT, np.uint32), np.empty(ed.POINT, np.uint32)
    ed.set_neutral(again, 0)
    ed.add(again, 0, summands, ed.POINT)
    if negate:
        ed.negate(again, 0)
    ed.to_summand(again, 0, summand, 0)
    ed.add(sums, 2 * ed.POINT, summand, 0)
    ed.to_affine(sums, 3, out, 0, np.empty(15, np.uint64))
    return refused


def as_ints(affine):
    """An affine point of Python integers."""
    return from_words(affine[:4]), from_words(affine[4:8])


def one(point):
    """The affine array of a point."""
    return ed.affine_of(*point)


@given(points, points, st.booleans())
def test_sums_are_those_of_the_equation(a, b, negate):
    """Any two points, equal, opposite, neutral and of small order among them, in all the ways to add."""
    out = np.empty(3 * ed.AFFINE, np.uint64)
    assert _added(np.concatenate([one(a), one(b)]), out, negate) == 0
    expected = naive.add(a, naive.negative(b) if negate else b)
    assert [as_ints(out[8 * k :]) for k in range(3)] == [expected, naive.add(a, a), expected]


@given(st.lists(scalars, min_size=1, max_size=12))
@settings(max_examples=30)
def test_multiples_are_repeated_sums(values):
    """Scalars of up to 256 bits by tables, several at a time."""
    found = ed.multiples(TABLE, np.stack([to_words(value) for value in values]))
    assert [as_ints(each) for each in found] == [naive.multiple(value) for value in values]


def test_a_large_table_says_the_same():
    """Windows of 13 bits, as the base point has them, and of 5."""
    values = np.stack([to_words(value) for value in SCALARS])
    expected = ed.multiples(TABLE, values)
    for bits in (13, 5):
        assert np.array_equal(ed.multiples(ed.table_of(one(ed.BASE), bits), values), expected)


@given(scalars, st.sampled_from([5, 7, 13]))
def test_digits_add_up(value, bits):
    """Each is small, and all together are the scalar."""
    n = 256 // bits + 1
    digits = np.zeros(n, np.int16)
    ed.signed_digits(to_words(value), 0, bits, n, digits, 0)
    assert sum(int(digit) << (bits * k) for k, digit in enumerate(digits)) == value
    assert np.abs(digits.astype(int)).max() <= 2 ** (bits - 1)


# --- another implementation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_public_keys_are_those_of_ed25519(seed):
    """The clamped scalar of a private key times the base point, compressed, is the public key."""
    private = hashlib.sha256(bytes([seed])).digest()
    hashed = bytearray(hashlib.sha512(private).digest()[:32])
    hashed[0] &= 248
    hashed[31] = hashed[31] & 127 | 64
    compressed = np.empty(4, np.uint64)
    scalar = np.frombuffer(bytes(hashed), np.uint64)
    ed.compress(ed.multiples(TABLE, scalar[None])[0], 1, compressed)
    assert compressed.tobytes() == Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


@pytest.mark.parametrize("seed", range(8))
def test_shared_secrets_are_those_of_x25519(seed):
    """u = (1 + y) / (1 - y) takes our multiples of any point to those of the Montgomery curve."""
    point = naive.multiple(1 + int.from_bytes(hashlib.sha256(b"point%d" % seed).digest(), "little") % (ed.ORDER - 1))
    scalar = bytearray(hashlib.sha256(b"scalar%d" % seed).digest())
    key = X25519PrivateKey.from_private_bytes(bytes(scalar))
    scalar[0] &= 248
    scalar[31] = scalar[31] & 127 | 64
    mine = as_ints(ed.multiples(ed.table_of(one(point), 7), np.frombuffer(bytes(scalar), np.uint64)[None])[0])

    def to_u(y):
        return ((1 + y) * pow(1 - y, -1, P) % P).to_bytes(32, "little")

    assert to_u(mine[1]) == key.exchange(X25519PublicKey.from_public_bytes(to_u(point[1])))


# --- what is received ------------------------------------------------------------------------------------------------


@given(points)
def test_compressed_points_come_back(point):
    """With the sign of x, also of points whose x or y is 0."""
    compressed, affine = np.empty(4, np.uint64), np.empty(8, np.uint64)
    ed.compress(one(point), 1, compressed)
    assert ed.decompress(compressed, 1, affine) == 0
    assert as_ints(affine) == point


@given(st.integers(0, P - 1), st.integers(0, 1))
def test_what_is_no_point_is_refused(y, sign):
    """About half of all y belong to no point: decompressing says so, and the equation is checked on affine points."""
    compressed, affine = to_words(y | sign << 255), np.empty(8, np.uint64)
    square = (y * y - 1) * pow(ed.D * y * y + 1, -1, P) % P
    has_point = pow(square, (P - 1) // 2, P) == 1 or (square == 0 and sign == 0)
    assert ed.decompress(compressed, 1, affine) == (not has_point)
    summands = np.empty(ed.POINT, np.uint32)
    assert ed.checked_summands(affine, 1, summands) == (not has_point and square != 0)


@pytest.mark.parametrize(
    "written",
    [1 | 1 << 255, (P - 1) | 1 << 255, *range(P, 2**255), *(y | 1 << 255 for y in range(P, 2**255))],
    ids=lambda written: f"{written:x}"[:2] + f"{written:x}"[-2:],
)
def test_a_point_is_compressed_in_one_way(written):
    """The sign of x = 0 is not set, and y is below p: else two messages would be the same point (RFC 8032, 5.1.3)."""
    assert ed.decompress(to_words(written), 1, np.empty(8, np.uint64)) == 1


@pytest.mark.parametrize("point", [(0, 0), (1, 1), (P, 1), (0, P + 1), (0, 2**255 + 1), (2**256 - 1, 2**256 - 1)])
def test_rubbish_is_refused(point):
    """Off the curve, or a coordinate that is not written in the one way."""
    assert ed.checked_summands(one(point), 1, np.empty(ed.POINT, np.uint32)) == 1


def test_points_of_small_order_are_known():
    """All eight vanish when multiplied by 8; a key that is one would encrypt nothing."""
    assert len(set(SMALL)) == 8
    assert {naive.NEUTRAL, naive.ORDER_2, naive.ORDER_4} < set(SMALL)
    for point in SMALL:
        assert naive.is_on_curve(point)
        assert ed.is_small(one(point), 0)
    assert ed.is_small(one((1, 1)), 0)  # no point at all
    assert not ed.is_small(one(ed.BASE), 0)
    assert not ed.is_small(one(naive.add(ed.BASE, naive.ORDER_8)), 0)


# --- bounds ----------------------------------------------------------------------------------------------------------

STORED = [2**26 + 2**17 if k % 2 == 0 else 2**25 + 2**17 for k in range(ed.LIMBS)]


def worst_product(x, y):
    """What `_multiply` does to the largest limbs, with exact integers: its largest sum, and what it stores at most."""
    assert all(19 * limb < 2**32 for limb in y)
    assert all((2 if k % 2 else 1) * limb < 2**32 for k, limb in enumerate(x))
    out = []
    for k in range(ed.LIMBS):
        pairs = [(i, (k - i) % ed.LIMBS) for i in range(ed.LIMBS)]
        out.append(
            sum((2 if i % 2 and j % 2 else 1) * (19 if i + j >= ed.LIMBS else 1) * x[i] * y[j] for i, j in pairs)
        )
    largest = max(out)
    for k in (0, 5, 1, 6, 2, 7, 3, 8, 4, 9, 5, 0):
        bits, after = 26 - k % 2, (k + 1) % ed.LIMBS
        carry, out[k] = out[k] >> bits, min(out[k], 2**bits - 1)
        out[after] += 19 * carry if after == 0 else carry
        largest = max(largest, *out)
    return largest, out


def test_limbs_stay_within_their_bounds():
    """The largest stored limbs, and the largest differences of them, give products below 2**63 and limbs as small."""
    two_p = [2 * (2**26 - 19), *(2 * (2 ** (26 - k % 2) - 1) for k in range(1, ed.LIMBS))]
    assert all(most <= over for most, over in zip(STORED, two_p, strict=True))  # 2 p - b is not negative
    differences = [a + b for a, b in zip(STORED, two_p, strict=True)]
    twice = [2 * limb for limb in STORED]
    for x, y in ((differences, STORED), (differences, differences), (differences, two_p), (twice, twice)):
        largest, limbs = worst_product(x, y)
        assert largest < 2**63
        assert all(limb <= most for limb, most in zip(limbs, STORED, strict=True))


@kernel
def _two_sums(point, summand, sums):
    for k in range(2):
        sums[ed.POINT * k : ed.POINT * (k + 1)] = point
        ed.add_signed(sums, ed.POINT * k, summand, 0, k == 1)


def test_the_kernel_takes_the_largest_limbs():
    """A point and a summand whose limbs are all at their bound: what comes out is what exact integers say."""
    most = np.repeat(np.array(STORED, np.uint32) - 1, 4)
    sums = np.empty(2 * ed.POINT, np.uint32)
    _two_sums(most, most, sums)
    value = sum((limb - 1) << ((51 * k + 1) // 2) for k, limb in enumerate(STORED))
    for k in range(2):
        a, b, c, d = 0, 2 * value**2, (-1 if k else 1) * value**2, value**2
        e, f, g, h = b - a, d - c, d + c, b + a
        found = sums[ed.POINT * k : ed.POINT * (k + 1)].reshape(ed.LIMBS, 4)
        for lane, expected in enumerate((e * f, g * h, e * h, f * g)):
            limbs = [int(limb) for limb in found[:, lane]]
            assert sum(limb << ((51 * n + 1) // 2) for n, limb in enumerate(limbs)) % P == expected % P
            assert all(limb <= bound for limb, bound in zip(limbs, STORED, strict=True))
