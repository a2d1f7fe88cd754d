from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import limbs
from hedgerow.errors import InvalidParameter, InvalidType

WIDTHS = (1, 2, 5, 8)  # limbs; each is compiled by itself, so not all are tried everywhere
settings_for_kernels = settings(deadline=None, max_examples=60)  # the first example waits for the compiler


def edges(n_limbs: int) -> list[int]:
    """Numbers at which carries, borrows and signs change."""
    top = 1 << (32 * n_limbs - 1)
    return sorted({0, 1, -1, 2**31, 2**32 - 1, 2**32, -(2**32), top - 1, -top, 1 - top, 2**63, -(2**63)})


def make(values: list[int], n_limbs: int) -> np.ndarray:
    """Numbers [n, L] from Python's integers, modulo the ring's size."""
    size = 1 << (32 * n_limbs)
    raw = b"".join((value % size).to_bytes(4 * n_limbs, "little") for value in values)
    return np.frombuffer(raw, "<u4").astype(np.uint32).reshape(len(values), n_limbs)


def ints(x: np.ndarray) -> list[int]:
    """The unsigned numbers behind limbs."""
    return limbs.to_ints(x, signed=False).reshape(-1).tolist()


@st.composite
def pairs(draw, widths=WIDTHS):
    """(L, numbers, as many numbers): any bits, with carries and edges among them."""
    n_limbs = draw(st.sampled_from(widths))
    number = st.one_of(st.integers(0, (1 << (32 * n_limbs)) - 1), st.sampled_from(edges(n_limbs)))
    n = draw(st.integers(1, 5))
    return n_limbs, *(draw(st.lists(number, min_size=n, max_size=n)) for _ in range(2))


@settings_for_kernels
@given(pairs())
def test_arithmetic_is_that_of_whole_numbers(case):
    """Sum, difference, product and negation are Python's, modulo 2**(32 L)."""
    n_limbs, first, second = case
    size = 1 << (32 * n_limbs)
    x, y = make(first, n_limbs), make(second, n_limbs)
    both = list(zip(first, second, strict=True))
    assert ints(limbs.add(x, y)) == [(a + b) % size for a, b in both]
    assert ints(limbs.subtract(x, y)) == [(a - b) % size for a, b in both]
    assert ints(limbs.multiply(x, y)) == [a * b % size for a, b in both]
    total = y.copy()
    assert limbs.add_product(total, x, y) is total
    assert ints(total) == [(b + a * b) % size for a, b in both]
    assert ints(limbs.subtract_product(total, x, y)) == [b % size for b in second]


@pytest.mark.parametrize("n_limbs", [3, 4, 6, 16])
def test_products_of_other_widths(n_limbs):
    """Every pair of edges, all bits set among them, in the widths that the other tests leave out."""
    first = [a for a in edges(n_limbs) for _ in edges(n_limbs)]
    second = edges(n_limbs) * len(edges(n_limbs))
    found = ints(limbs.multiply(make(first, n_limbs), make(second, n_limbs)))
    assert found == [a * b % (1 << (32 * n_limbs)) for a, b in zip(first, second, strict=True)]


@settings_for_kernels
@given(pairs(widths=(1, 2, 5)), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=5, max_size=5))
def test_small_numbers_enter_with_their_sign(case, words):
    """int64 are sign extended, words without a sign are not; both may be cut off by a narrow ring."""
    n_limbs, first, _ = case
    size, small = 1 << (32 * n_limbs), words[: len(first)]
    x, factors = make(first, n_limbs), np.array(small, np.int64)
    wide = limbs.from_words(factors, n_limbs)
    assert ints(limbs.multiply(x, wide)) == [a * b % size for a, b in zip(first, small, strict=True)]
    assert ints(limbs.multiply(x, wide[0])) == [a * small[0] % size for a in first]
    assert ints(limbs.from_words(factors, n_limbs)) == [b % size for b in small]
    assert ints(limbs.from_words(factors.view(np.uint64), n_limbs)) == [b % 2**64 % size for b in small]
    assert ints(limbs.from_words(factors.view(np.uint32), n_limbs)) == [
        half % size for b in small for half in (b % 2**32, b % 2**64 >> 32)
    ]


@settings_for_kernels
@given(pairs(widths=(1, 2, 5)), st.sampled_from([1, 4, 5, 8]))
def test_digits_make_the_number_without_its_top_bit(case, width):
    """Digits, put together, are the low 32 L - 1 bits; the top bit is the sign."""
    n_limbs, first, _ = case
    x = make(first, n_limbs)
    cut = limbs.digits(x, width)
    assert cut.shape == (len(first), limbs.n_digits(n_limbs, width))
    assert cut.dtype == np.uint8
    assert int(cut.max()) < 1 << width
    half = 1 << (32 * n_limbs - 1)
    together = [sum(int(digit) << (width * k) for k, digit in enumerate(row)) for row in cut]
    assert together == [a % half for a in first]
    assert limbs.top_bit(x).tolist() == [int(a % (2 * half) >= half) for a in first]
    assert [value < 0 for value in limbs.to_ints(x)] == limbs.top_bit(x).astype(bool).tolist()


def test_digits_of_views_and_into_a_buffer():
    """Digits of a transposed view are those of its copy, whatever lies in `out` before."""
    x = make(list(range(2**40, 2**40 + 6)), 2).reshape(2, 3, 2)
    out = np.full((3, 2, 13), 255, np.uint8)
    assert limbs.digits(x.transpose(1, 0, 2), 5, out) is out
    np.testing.assert_array_equal(out, limbs.digits(x.transpose(1, 0, 2).copy(), 5))
    assert x.flags.writeable


@pytest.mark.parametrize("operation", [limbs.add, limbs.subtract, limbs.multiply])
@pytest.mark.parametrize(
    ("x_shape", "y_shape"),
    [
        ((), ()),
        ((7,), ()),
        ((), (7,)),
        ((3, 4, 5), (4, 5)),
        ((3, 1, 5), (1, 4, 1)),
        ((3, 4, 5), (3, 1, 5)),
        ((2, 1, 3, 1, 2), (1, 3, 1, 2, 1)),  # more axes than the kernel has loops
        ((0, 3), (1, 3)),
    ],
)
def test_broadcasting_is_that_of_numpy(operation, x_shape, y_shape):
    """Every way to repeat an operand gives what operating on the repeated copies gives."""
    draw = np.random.default_rng(1)
    x, y = (draw.integers(0, 2**32, (*shape, 5), dtype=np.uint32) for shape in (x_shape, y_shape))
    shape = np.broadcast_shapes(x.shape, y.shape)
    found = operation(x, y)
    assert found.shape == shape
    flat = [np.broadcast_to(array, shape).reshape(-1, 5) for array in (x, y)]
    np.testing.assert_array_equal(found.reshape(-1, 5), operation(*(one.copy() for one in flat)))
    if found.size:
        a, b = (limbs.to_ints(one, signed=False)[-1] for one in flat)
        sign = {"add": a + b, "subtract": a - b, "multiply": a * b}[operation.__name__]
        assert ints(found)[-1] == sign % 2**160


def test_views_are_read_where_they_lie():
    """Slices, reversed and transposed views, views of other limbs, and read-only arrays."""
    draw = np.random.default_rng(2)
    big = draw.integers(0, 2**32, (6, 8, 12), dtype=np.uint32)
    other = draw.integers(0, 2**32, (6, 8, 5), dtype=np.uint32)
    views = [big[..., 2:7], big[::-1, :, :5], big[:, ::-1, 7:], big[..., 10::-2][..., :5], big[..., ::2][..., :5]]
    for view in views:
        view.flags.writeable = False
        np.testing.assert_array_equal(limbs.multiply(view, other), limbs.multiply(view.copy(), other))
        np.testing.assert_array_equal(
            limbs.subtract(other.transpose(1, 0, 2), view.transpose(1, 0, 2)),
            limbs.subtract(other, view.copy()).transpose(1, 0, 2),
        )
    factors = draw.integers(-9, 9, (12, 8))
    np.testing.assert_array_equal(limbs.from_words(factors[::-2], 5), limbs.from_words(factors[::-2].copy(), 5))
    unaligned = np.frombuffer(b"x" + other.tobytes(), np.uint8)[1:].view(np.uint32).reshape(other.shape)
    np.testing.assert_array_equal(limbs.add(unaligned, other), limbs.add(other, other))


def test_out_may_be_an_argument_or_overlap_one():
    """Writing over an operand, or over a part of it, gives what writing elsewhere gives."""
    draw = np.random.default_rng(3)
    start = draw.integers(0, 2**32, (9, 5), dtype=np.uint32)
    other = draw.integers(0, 2**32, (8, 5), dtype=np.uint32)
    for places in (slice(0, 8), slice(1, 9)):
        expected = limbs.multiply(start[:8].copy(), other)
        x = start.copy()
        assert limbs.multiply(x[:8], other, out=x[places]).base is x
        np.testing.assert_array_equal(x[places], expected)
    x = start.copy()
    limbs.add(x[0], x, out=x)  # the first number is added to all, also after it has changed
    np.testing.assert_array_equal(x, limbs.add(start, start[0].copy()))
    x = start.copy()
    limbs.subtract_product(x, x, x)
    assert ints(x) == [(a - a * a) % 2**160 for a in ints(start)]


def test_hot_paths_allocate_nothing():
    """With `out`, no array of the operands' size is made."""
    import tracemalloc

    x = np.ones((20_000, 5), np.uint32)
    out, cut = np.empty_like(x), np.empty((20_000, limbs.n_digits(5, 5)), np.uint8)

    def work() -> None:
        limbs.add(x, x, out)
        limbs.multiply(x, x[:1], out)
        limbs.add_product(out, x, x)
        limbs.digits(out, 5, cut)

    work()
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < x.nbytes // 4


def test_constants():
    """A public number is reduced into the ring, cannot be changed, and comes back with its sign."""
    assert limbs.constant(5 * 2**32 + 7, 5).tolist() == [7, 5, 0, 0, 0]
    assert limbs.constant(-1, 2).tolist() == [2**32 - 1, 2**32 - 1]
    assert limbs.constant(2**64 + 3, 2).tolist() == [3, 0]
    assert limbs.to_ints(limbs.constant(-(2**100), 4)[None]).tolist() == [-(2**100)]
    with pytest.raises(ValueError, match="read-only"):
        limbs.constant(1, 1)[0] = 2


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda x: limbs.add(x, x[:, :4].copy()), InvalidType, "of 5 and of 4 limbs"),
        (lambda x: limbs.add(x.astype(np.uint64), x), InvalidType, "arrays of uint32"),
        (lambda x: limbs.add([1], x), InvalidType, "got list"),
        (lambda x: limbs.add(x, x, out=x[:2]), InvalidParameter, r"\(3, 5\) in C order, got \(2, 5\)"),
        (lambda x: limbs.add(x, x, out=np.asfortranarray(x)), InvalidParameter, "in C order"),
        (lambda x: limbs.add(x, x, out=x.astype(np.int32)), InvalidType, "out must be an array of uint32, got int32"),
        (lambda _: limbs.top_bit(np.zeros((1, 17), np.uint32)), InvalidParameter, "between 1 and 16 limbs, got 17"),
        (lambda _: limbs.constant(1, 0), InvalidParameter, "between 1 and 16 limbs, got 0"),
        (lambda _: limbs.from_words(np.zeros(3), 5), InvalidType, "must be an array of uint32, .* got float64"),
        (lambda _: limbs.from_words(np.zeros(3, np.int32), 5), InvalidType, "uint64 or int64, got int32"),
        (lambda x: limbs.digits(x, 9), InvalidParameter, "between 1 and 8 bits, got 9"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, error, said):
    """Wrong types, widths and buffers are named."""
    with pytest.raises(error, match=said):
        call(np.zeros((3, 5), np.uint32))
