from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import ring
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType

RINGS = [np.uint32, np.uint64]
settings_for_kernels = settings(deadline=None, max_examples=40)  # the first example waits for the compiler


def words(shape: tuple[int, ...], dtype: type, seed: int, *, extreme: bool = False) -> np.ndarray:
    """Uniform words of a ring; or only those around 0 and the middle, where sums wrap round most."""
    draw = np.random.default_rng(seed)
    top = int(np.iinfo(dtype).max)
    if extreme:
        return draw.choice(np.array([0, 1, top, top - 1, top // 2, top // 2 + 1], dtype), shape)
    return draw.integers(0, top, shape, dtype=dtype, endpoint=True)


def slow_products(matrix: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """The same with Python's integers, reduced at the end only."""
    size = 1 << (8 * matrix.itemsize)
    return (sides.astype(object) @ matrix.astype(object).T % size).astype(matrix.dtype)


def hidden(codes: np.ndarray, masks: np.ndarray, n_bins: int) -> np.ndarray:
    """X - A of all bins but each column's last, written over the masks A."""
    for j, column in enumerate(codes):
        ring.one_hot_minus(column, 0, masks[j * (n_bins - 1) : (j + 1) * (n_bins - 1)])
    return masks


def one_hot(codes: np.ndarray, n_bins: int, dtype: type) -> np.ndarray:
    """[J * K, N]: 1 where column j has code k."""
    n_columns, n = codes.shape
    return (codes[:, None, :] == np.arange(n_bins)[None, :, None]).astype(dtype).reshape(n_columns * n_bins, n)


@settings_for_kernels
@given(
    st.sampled_from(RINGS),
    st.integers(0, 5),
    st.integers(0, 11),
    st.integers(0, 70),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_products_are_those_of_whole_numbers(dtype, n_rows, n_sides, n, extreme, seed):
    """Every remainder of rows, sides and vectors, none of any included, at the edges of the ring too."""
    matrix, sides = (words((k, n), dtype, seed + k, extreme=extreme) for k in (n_rows, n_sides))
    found = ring.rows_times(matrix, sides)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, slow_products(matrix, sides))


@pytest.mark.parametrize("dtype", RINGS)
@pytest.mark.parametrize("n_threads", [1, 2, 3, 8])
def test_tiles_and_threads_add_up(dtype, n_threads):
    """Rows over several tiles, the last one short, dealt out to threads: the same words for any number of them."""
    n = 3 * ring.TILE + 17
    matrix, sides = words((5, n), dtype, 1), words((7, n), dtype, 2)
    codes = np.random.default_rng(3).integers(0, 6, (3, n), dtype=np.uint8)
    with np.errstate(all="raise"):
        expected = sides @ matrix.T  # numpy's products wrap round as well
        np.testing.assert_array_equal(ring.rows_times(matrix, sides, n_threads=n_threads), expected)
        cells = (sides @ one_hot(codes, 6, dtype).T).reshape(7, 3, 6)
        np.testing.assert_array_equal(ring.histogram(codes, sides, 6, n_threads=n_threads), cells)


@pytest.mark.parametrize("dtype", RINGS)
def test_wrap_around_at_the_edges(dtype):
    """-1 times -1 is 1, N halves of the ring are 0 or a half, and the largest words go round."""
    top, n = int(np.iinfo(dtype).max), 21
    half = (top + 1) // 2
    minus = np.full((1, n), top, dtype)
    assert ring.rows_times(minus, minus).tolist() == [[n]]
    assert ring.rows_times(np.full((1, n), half, dtype), minus).tolist() == [[half]]  # an odd number of halves
    assert ring.rows_times(np.full((1, n), half, dtype), np.full((1, n), 2, dtype)).tolist() == [[0]]
    assert ring.histogram(np.zeros((1, n), np.uint8), minus, 2).tolist() == [[[top + 1 - n, 0]]]
    codes = np.array([[0, 1, 2]], np.uint8)
    masks = np.array([[0, 1, top], [0, 1, top]], dtype)
    assert hidden(codes, masks, 3).tolist() == [[1, top, 1], [0, 0, 1]]


@settings_for_kernels
@given(
    st.sampled_from(RINGS),
    st.integers(0, 5),
    st.integers(0, 18),
    st.integers(0, 40),
    st.sampled_from([2, 3, 32, 256]),
    st.integers(0, 2**32),
)
def test_histogram_is_the_product_with_the_one_hot_matrix(dtype, n_columns, n_sides, n, n_bins, seed):
    """For odd and even numbers of columns and incomplete groups of sides."""
    codes = np.random.default_rng(seed).integers(0, n_bins, (n_columns, n), dtype=np.uint8, endpoint=False)
    sides = words((n_sides, n), dtype, seed)
    found = ring.histogram(codes, sides, n_bins)
    expected = sides @ one_hot(codes, n_bins, dtype).T
    np.testing.assert_array_equal(found, expected.reshape(n_sides, n_columns, n_bins))


@pytest.mark.parametrize("dtype", RINGS)
def test_masked_products_give_the_histogram(dtype):
    """X'y = X'F + E'B + A'B with E = X - A and F = y - B: the law that the shared histograms rest on."""
    n, n_bins = 5000, 8
    codes = np.random.default_rng(1).integers(0, n_bins, (3, n), dtype=np.uint8)
    truth, B = words((4, n), dtype, 2), words((4, n), dtype, 3)
    A = words((3 * (n_bins - 1), n), dtype, 4)
    E = hidden(codes, A.copy(), n_bins)
    np.testing.assert_array_equal(E + A, one_hot(codes, n_bins, dtype).reshape(3, n_bins, n)[:, :-1].reshape(-1, n))
    of_owner = ring.histogram(codes, truth - B, n_bins)[..., :-1].reshape(4, -1)
    found = of_owner + ring.rows_times(E, B) + ring.rows_times(A, B)
    np.testing.assert_array_equal(found, ring.histogram(codes, truth, n_bins)[..., :-1].reshape(4, -1))


@pytest.mark.parametrize("dtype", RINGS)
def test_ranges_of_rows_add_up(dtype):
    """Masks, codes and sides may be taken in ranges, masks in place; totals are added to."""
    n, n_bins, step = 1000, 5, 300
    codes = np.random.default_rng(1).integers(0, n_bins, (2, n), dtype=np.uint8)
    masks, sides = words((2 * (n_bins - 1), n), dtype, 2), words((3, n), dtype, 3)
    whole = hidden(codes, masks.copy(), n_bins)
    total, cells = np.zeros((3, len(masks)), dtype), np.zeros((3, 2, n_bins), dtype)
    for start in range(0, n, step):
        part = np.s_[:, start : start + step]
        hidden(codes[part], masks[part], n_bins)
        total += ring.rows_times(masks[part], sides[part])
        cells += ring.histogram(codes[part], sides[part], n_bins)
    np.testing.assert_array_equal(masks, whole)
    np.testing.assert_array_equal(total, ring.rows_times(whole, sides))
    np.testing.assert_array_equal(cells, ring.histogram(codes, sides, n_bins))


def test_any_layout_is_read_right():
    """Transposed, reversed, strided and read-only arrays; those that are repeated in memory too."""
    matrix, sides = words((6, 50), np.uint32, 1), words((4, 50), np.uint32, 2)
    expected = slow_products(matrix, sides)
    np.testing.assert_array_equal(ring.rows_times(np.asfortranarray(matrix), sides), expected)
    np.testing.assert_array_equal(ring.rows_times(matrix[::-1], sides[::2]), expected[::2, ::-1])
    np.testing.assert_array_equal(ring.rows_times(matrix[:, ::-1], sides[:, ::-1]), expected)
    repeated = np.broadcast_to(sides[0], sides.shape)
    np.testing.assert_array_equal(ring.rows_times(matrix, repeated), expected[[0, 0, 0, 0]])
    matrix.flags.writeable = False
    np.testing.assert_array_equal(ring.rows_times(matrix, sides), expected)


def test_masking_in_place_takes_no_memory():
    """The masked matrix is written over the masks: nothing of its size is made beside it."""
    codes = np.zeros((4, 10_000), np.uint8)
    masks = np.zeros((4 * 7, 10_000), np.uint32)
    hidden(codes, masks, 8)
    tracemalloc.start()
    hidden(codes, masks, 8)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < masks.nbytes // 20


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda a: ring.rows_times(a.masks, a.sides[:, :9]), InvalidInput, r"matrix \(6, 10\), sides \(2, 9\)"),
        (lambda a: ring.rows_times(a.masks, a.sides.astype(np.uint64)), InvalidType, "the same ring"),
        (lambda a: ring.rows_times(a.masks.astype(np.int32), a.sides), InvalidType, "uint32 or uint64, got int32"),
        (lambda a: ring.rows_times(a.masks[0], a.sides), InvalidInput, "two axes, got 1"),
        (lambda a: ring.rows_times([1], a.sides), InvalidType, "got list"),
        (
            lambda a: ring.rows_times(a.masks, a.sides, n_threads=0),
            InvalidParameter,
            "n_threads must be at least 1, got 0",
        ),
        (lambda a: ring.histogram(a.codes + np.uint8(3), a.sides, 4), InvalidInput, "below n_bins=4, the largest is 6"),
        (lambda a: ring.histogram(a.codes, a.sides, 257), InvalidParameter, "between 2 and 256, got 257"),
        (lambda a: ring.histogram(a.codes.astype(int), a.sides, 4), InvalidType, "of uint8, got int64"),
        (lambda a: ring.histogram(a.codes, a.sides[:, 1:], 4), InvalidInput, r"codes \(2, 10\), sides \(2, 9\)"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, error, said):
    """Wrong types, shapes and codes are named, and nothing is written outside of an array."""
    codes = np.array([[0, 1, 2, 3, 0, 1, 2, 3, 0, 1]] * 2, np.uint8)
    arrays = SimpleNamespace(codes=codes, masks=np.zeros((6, 10), np.uint32), sides=np.zeros((2, 10), np.uint32))
    with pytest.raises(error, match=said):
        call(arrays)
    assert not arrays.masks.any()
