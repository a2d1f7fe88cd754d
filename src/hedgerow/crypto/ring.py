"""Sums modulo 2**32 and modulo 2**64 over all rows: what histograms of shares are made of.

numpy and the machine reckon modulo 2**32 and 2**64 anyway; what is here is quick about it. Two facts help. Sums in a
ring are the same in any order, so rows are taken in blocks that stay in the cache, by as many threads as there are, and
the loops may be vectorised. And the masked one-hot matrix, which is by far the largest thing, is read once for all
right-hand sides, so all nodes of a level should come in one call.

Arrays are uint32 or uint64, rows of the data along the last axis. Sums over ranges of rows add up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hedgerow.compiling import kernel
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType

TILE = 4096
"""Rows of the data taken together: those of two rows of a matrix and of eight right-hand sides are then 160 KB."""

HISTOGRAM_ROWS = 2048
TOGETHER = 8
"""Right-hand sides that are added to a histogram together: one vector for each row and column."""

MOST_BINS = 256

Array = npt.NDArray[Any]
Ring = npt.NDArray[Any]  # uint32 or uint64
Codes = npt.NDArray[np.uint8]

_RINGS = (np.dtype(np.uint32), np.dtype(np.uint64))


# --- products ------------------------------------------------------------------------------------------------------


@kernel
def _add_products(
    matrix: Ring,  # in  [R, n]
    sides: Ring,  # in  [S, n]
    start: int,  # this thread's rows of the data
    stop: int,
    out: Ring,  # out [S, R]
) -> None:
    """out += sides @ matrix.T over some rows of the data; two rows of the matrix with two sides at a time."""
    n_sides, n_rows = out.shape
    for begin in range(start, stop, TILE):
        n = min(TILE, stop - begin)
        for r in range(0, n_rows, 2):
            below = min(r + 1, n_rows - 1)
            x = matrix[r, begin : begin + n]
            y = matrix[below, begin : begin + n]
            for s in range(0, n_sides, 2):
                after = min(s + 1, n_sides - 1)
                a = sides[s, begin : begin + n]
                b = sides[after, begin : begin + n]
                xa = xb = ya = yb = np.uint64(0)
                for i in range(n):
                    xa += x[i] * a[i]
                    xb += x[i] * b[i]
                    ya += y[i] * a[i]
                    yb += y[i] * b[i]
                out[s, r] += xa
                if after > s:
                    out[after, r] += xb
                if below > r:
                    out[s, below] += ya
                if after > s and below > r:
                    out[after, below] += yb


def rows_times(matrix: Ring, sides: Ring, *, n_threads: int = 1) -> Ring:
    """[S, R]: the product of each of S right-hand sides with each row of a matrix, modulo 2**32 or 2**64.

    In: `matrix` [R, N], `sides` [S, N], of the same dtype. With several threads each takes some of the N.
    """
    _check_rings(matrix=matrix, sides=sides)
    if matrix.shape[1] != sides.shape[1]:
        raise InvalidInput(f"{_shapes(matrix=matrix, sides=sides)} do not fit each other")
    total = np.zeros((len(sides), len(matrix)), matrix.dtype)
    return _in_parts(functools.partial(_add_products, _fixed(matrix), _fixed(sides)), matrix.shape[1], total, n_threads)


# --- histograms ----------------------------------------------------------------------------------------------------


def _add_together(_context: Any, cells: Any, _to: Any, values: Any, _at: Any) -> tuple[Any, Callable[..., Any]]:
    """cells[to : to + TOGETHER] += values[at : at + TOGETHER], as one vector."""
    signature = types.void(cells, types.int64, values, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = signature.args[0].dtype.bitwidth
        vector = ir.VectorType(ir.IntType(bits), TOGETHER)

        def place(argument: int) -> Any:
            array = context.make_array(signature.args[argument])(context, builder, arguments[argument])
            return builder.bitcast(builder.gep(array.data, [arguments[argument + 1]]), vector.as_pointer())

        values, cells = builder.load(place(2), align=bits // 8), builder.load(place(0), align=bits // 8)
        builder.store(builder.add(cells, values), place(0), align=bits // 8)
        return context.get_dummy_value()

    return signature, generate


_add_together_at: Any = intrinsic(_add_together)


@kernel
def _add_histogram(
    codes: Codes,  # in  [J, n]; every code is below K
    sides: Ring,  # in  [S, n]
    start: int,  # this thread's rows
    stop: int,
    out: Ring,  # out [S, J, K]
) -> None:
    """Sums per bin over some rows. The cells of TOGETHER sides lie side by side, and so do their values of a row."""
    n_sides, n_columns, n_bins = out.shape
    cells = np.empty(n_columns * n_bins * TOGETHER, sides.dtype)
    values = np.zeros(HISTOGRAM_ROWS * TOGETHER, sides.dtype)
    for s in range(0, n_sides, TOGETHER):
        many = min(TOGETHER, n_sides - s)
        cells[:] = 0
        for begin in range(start, stop, HISTOGRAM_ROWS):
            n = min(HISTOGRAM_ROWS, stop - begin)
            for k in range(many):
                side = sides[s + k, begin : begin + n]
                for i in range(n):
                    values[np.uint64(i * TOGETHER + k)] = side[i]
            for j in range(0, n_columns - 1, 2):  # two columns in turn: neither waits for its last addition
                one = codes[j, begin : begin + n]
                other = codes[j + 1, begin : begin + n]
                for i in range(n):
                    _add_together_at(cells, (j * n_bins + one[i]) * TOGETHER, values, i * TOGETHER)
                    _add_together_at(cells, ((j + 1) * n_bins + other[i]) * TOGETHER, values, i * TOGETHER)
            if n_columns % 2:
                j = n_columns - 1
                one = codes[j, begin : begin + n]
                for i in range(n):
                    _add_together_at(cells, (j * n_bins + one[i]) * TOGETHER, values, i * TOGETHER)
        for k in range(many):
            for j in range(n_columns):
                for b in range(n_bins):
                    out[s + k, j, b] += cells[(j * n_bins + b) * TOGETHER + k]


def histogram(codes: Codes, sides: Ring, n_bins: int, *, n_threads: int = 1) -> Ring:
    """[S, J, K]: the sum of each right-hand side over the rows in each bin of each column, modulo 2**32 or 2**64.

    In: `codes` [J, N] below K, `sides` [S, N]. It is rows_times(one-hot matrix, sides), without the matrix.
    """
    _check_rings(sides=sides)
    _check_codes(codes, n_bins)
    if codes.shape[1] != sides.shape[1]:
        raise InvalidInput(f"{_shapes(codes=codes, sides=sides)} do not fit each other")
    total = np.zeros((len(sides), len(codes), n_bins), sides.dtype)
    return _in_parts(functools.partial(_add_histogram, _fixed(codes), _fixed(sides)), codes.shape[1], total, n_threads)


@kernel
def one_hot_minus(column: Codes, first: int, masks: Ring) -> None:
    """Some rows of a masked one-hot matrix E = X - A, written over the masks A [k, n].

    Row i of X is 1 where the column [n] has code first + i.
    """
    for i in range(masks.shape[0]):
        mask, wanted = masks[i], np.uint8(first + i)
        for row in range(len(mask)):
            mask[row] = (column[row] == wanted) - mask[row]


# --- arrays --------------------------------------------------------------------------------------------------------


def _in_parts(part: Callable[[int, int, Ring], None], n: int, total: Ring, n_threads: int) -> Ring:
    """part(start, stop, out) for ranges of whole tiles that cover 0..n; what each adds is added to the total."""
    if n_threads < 1:
        raise InvalidParameter(f"n_threads must be at least 1, got {n_threads}")
    tiles = -(-n // TILE)
    n_parts = min(n_threads, tiles)
    if n_parts <= 1:
        part(0, n, total)
        return total
    cuts = [min(tiles * k // n_parts * TILE, n) for k in range(n_parts + 1)]
    partial = np.zeros((n_parts, *total.shape), total.dtype)
    with ThreadPoolExecutor(n_parts) as pool:
        list(pool.map(part, cuts[:-1], cuts[1:], partial))
    for one in partial:
        total += one
    return total


def _fixed(array: Array) -> Array:
    """The array in C order and read-only: numba compiles once more for each other layout."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _check_rings(**arrays: Ring) -> None:
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype not in _RINGS:
            got = getattr(array, "dtype", type(array).__name__)
            raise InvalidType(f"{name} must be an array of uint32 or uint64, got {got}")
        if array.ndim != 2:
            raise InvalidInput(f"{name} must have two axes, got {array.ndim}")
    if len({array.dtype for array in arrays.values()}) > 1:
        raise InvalidType(f"{' and '.join(arrays)} must be of the same ring, got words of different lengths")


def _check_codes(codes: Codes, n_bins: int) -> None:
    if not isinstance(codes, np.ndarray) or codes.dtype != np.uint8 or codes.ndim != 2:
        raise InvalidType(
            f"codes must be an array [columns, rows] of uint8, got {getattr(codes, 'dtype', type(codes))}"
        )
    if not 2 <= n_bins <= MOST_BINS:
        raise InvalidParameter(f"n_bins must be between 2 and {MOST_BINS}, got {n_bins}")
    if codes.size and int(codes.max()) >= n_bins:
        raise InvalidInput(f"codes must be below n_bins={n_bins}, the largest is {int(codes.max())}")


def _shapes(**arrays: Array) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
