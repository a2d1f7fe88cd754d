"""Sums modulo 2**32 and modulo 2**64 over all rows: what histograms of shares are made of.

numpy and the machine reckon modulo 2**32 and 2**64 anyway; what is here is quick about it. Two facts help. Sums in a
ring are the same in any order, so rows are taken in blocks that stay in the cache, by as many threads as there are, and
the loops may be vectorised. And the masked one-hot matrix, which is by far the largest thing, is read once for all
right-hand sides, so all nodes of a level should come in one call.

Arrays are uint32 or uint64, rows of the data along the last axis. They may be ranges of rows of larger ones, as
E[:, a:b], so that nobody has to hold all rows at a time: sums over ranges add up.
"""

from __future__ import annotations

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
    matrix: Ring,  # in  [R, n], flat
    step: int,  # from one row of the matrix to the next
    sides: Ring,  # in  [S, n], flat
    side_step: int,
    start: int,  # this thread's rows of the data
    stop: int,
    n_rows: int,  # R
    n_sides: int,  # S
    out: Ring,  # out [S, R], flat
) -> None:
    """out += sides @ matrix.T over some rows of the data; two rows of the matrix with two sides at a time."""
    for begin in range(start, stop, TILE):
        n = min(TILE, stop - begin)
        for r in range(0, n_rows, 2):
            below = min(r + 1, n_rows - 1)
            x = matrix[r * step + begin : r * step + begin + n]
            y = matrix[below * step + begin : below * step + begin + n]
            for s in range(0, n_sides, 2):
                after = min(s + 1, n_sides - 1)
                a = sides[s * side_step + begin : s * side_step + begin + n]
                b = sides[after * side_step + begin : after * side_step + begin + n]
                xa = xb = ya = yb = np.uint64(0)
                for i in range(n):
                    xa += x[i] * a[i]
                    xb += x[i] * b[i]
                    ya += y[i] * a[i]
                    yb += y[i] * b[i]
                out[s * n_rows + r] += xa
                if after > s:
                    out[after * n_rows + r] += xb
                if below > r:
                    out[s * n_rows + below] += ya
                if after > s and below > r:
                    out[after * n_rows + below] += yb


def products(matrix: Ring, sides: Ring, *, n_threads: int = 1) -> Ring:
    """[S, R]: the product of each of S right-hand sides with each row of a matrix, modulo 2**32 or 2**64.

    In: `matrix` [R, N], `sides` [S, N], of the same dtype. With several threads each takes some of the N.
    """
    _check_rings(matrix=matrix, sides=sides)
    if matrix.shape[1] != sides.shape[1]:
        raise InvalidInput(f"{_shapes(matrix=matrix, sides=sides)} do not fit each other")
    total = np.zeros((len(sides), len(matrix)), matrix.dtype)
    (flat, step), (flat_sides, side_step) = _flat(matrix), _flat(sides)

    def part(start: int, stop: int, out: Ring) -> None:
        _add_products(flat, step, flat_sides, side_step, start, stop, len(matrix), len(sides), out.reshape(-1))

    _in_parts(part, matrix.shape[1], total, n_threads)
    return total


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
    codes: Codes,  # in  [J, n], flat; every code is below K
    step: int,  # from one column to the next
    sides: Ring,  # in  [S, n], flat
    side_step: int,
    start: int,  # this thread's rows
    stop: int,
    n_columns: int,  # J
    n_sides: int,  # S
    n_bins: int,  # K
    out: Ring,  # out [S, J, K], flat
) -> None:
    """Sums per bin over some rows. The cells of TOGETHER sides lie side by side, and so do their values of a row."""
    cells = np.empty(n_columns * n_bins * TOGETHER, sides.dtype)
    values = np.zeros(HISTOGRAM_ROWS * TOGETHER, sides.dtype)
    for s in range(0, n_sides, TOGETHER):
        many = min(TOGETHER, n_sides - s)
        cells[:] = 0
        for begin in range(start, stop, HISTOGRAM_ROWS):
            n = min(HISTOGRAM_ROWS, stop - begin)
            for k in range(many):
                side = sides[(s + k) * side_step + begin : (s + k) * side_step + begin + n]
                for i in range(n):
                    values[np.uint64(i * TOGETHER + k)] = side[i]
            for j in range(0, n_columns - 1, 2):  # two columns in turn: neither waits for its last addition
                one = codes[j * step + begin : j * step + begin + n]
                other = codes[(j + 1) * step + begin : (j + 1) * step + begin + n]
                for i in range(n):
                    _add_together_at(cells, (j * n_bins + one[i]) * TOGETHER, values, i * TOGETHER)
                    _add_together_at(cells, ((j + 1) * n_bins + other[i]) * TOGETHER, values, i * TOGETHER)
            if n_columns % 2:
                j = n_columns - 1
                one = codes[j * step + begin : j * step + begin + n]
                for i in range(n):
                    _add_together_at(cells, (j * n_bins + one[i]) * TOGETHER, values, i * TOGETHER)
        for k in range(many):
            for cell in range(n_columns * n_bins):
                out[(s + k) * n_columns * n_bins + cell] += cells[cell * TOGETHER + k]


def histogram(codes: Codes, sides: Ring, n_bins: int, *, n_threads: int = 1) -> Ring:
    """[S, J, K]: the sum of each right-hand side over the rows in each bin of each column, modulo 2**32 or 2**64.

    In: `codes` [J, N] below K, `sides` [S, N]. It is products(one-hot matrix of the codes, sides), without the matrix.
    """
    _check_rings(sides=sides)
    _check_codes(codes, n_bins)
    if codes.shape[1] != sides.shape[1]:
        raise InvalidInput(f"{_shapes(codes=codes, sides=sides)} do not fit each other")
    result = np.zeros((len(sides), len(codes), n_bins), sides.dtype)
    (flat, step), (flat_sides, side_step) = _flat(codes), _flat(sides)

    def part(start: int, stop: int, out: Ring) -> None:
        _add_histogram(flat, step, flat_sides, side_step, start, stop, len(codes), len(sides), n_bins, out.reshape(-1))

    _in_parts(part, codes.shape[1], result, n_threads)
    return result


@kernel
def _one_hot_minus(
    codes: Codes,  # in  [J, n], flat
    step: int,
    masks: Ring,  # in and out [J * (K - 1), n], flat
    mask_step: int,
    n: int,
    n_columns: int,
    n_bins: int,
) -> None:
    """The codes of a tile are read K - 1 times from the nearest cache, the masks once and from far away."""
    for begin in range(0, n, TILE):
        end = min(begin + TILE, n)
        for j in range(n_columns):
            column = codes[j * step + begin : j * step + end]
            for k in range(n_bins - 1):
                row = (j * (n_bins - 1) + k) * mask_step
                mask = masks[row + begin : row + end]
                wanted = np.uint8(k)
                for i in range(len(mask)):
                    mask[i] = (column[i] == wanted) - mask[i]


def one_hot_minus(codes: Codes, masks: Ring, n_bins: int) -> Ring:
    """The masked one-hot matrix E = X - A, written over the masks A.

    In: `codes` [J, n] below K, `masks` [J * (K - 1), n]. Row j * (K - 1) + k of X is 1 where column j has code k; the
    last bin has no row, for it follows from the total. `masks` may be a range of rows of the data, E[:, a:b], and so
    may `codes`: who sends E in such ranges holds no more of it than one.
    """
    _check_rings(masks=masks)
    _check_codes(codes, n_bins)
    if masks.shape != (len(codes) * (n_bins - 1), codes.shape[1]) or not masks.flags.writeable:
        raise InvalidInput(f"{_shapes(codes=codes, masks=masks)} do not fit {n_bins} bins, or cannot be written to")
    flat, step = _flat(codes)
    flat_masks, mask_step = _flat(masks, in_place=True)
    _one_hot_minus(flat, step, flat_masks, mask_step, codes.shape[1], len(codes), n_bins)
    return masks


# --- arrays --------------------------------------------------------------------------------------------------------


def _in_parts(part: Callable[[int, int, Ring], None], n: int, total: Ring, n_threads: int) -> None:
    """part(start, stop, out) for ranges of whole tiles that cover 0..n; what each adds is added to the total."""
    if n_threads < 1:
        raise InvalidParameter(f"n_threads must be at least 1, got {n_threads}")
    tiles = -(-n // TILE)
    n_parts = min(n_threads, tiles)
    if n_parts <= 1:
        part(0, n, total)
        return
    cuts = [min(tiles * k // n_parts * TILE, n) for k in range(n_parts + 1)]
    partial = np.zeros((n_parts, *total.shape), total.dtype)
    with ThreadPoolExecutor(n_parts) as pool:
        list(pool.map(part, cuts[:-1], cuts[1:], partial))
    for one in partial:
        total += one


def _flat(array: Array, *, in_place: bool = False) -> tuple[Array, int]:
    """All elements from the first to the last, and how many lie from one row to the next."""
    n_rows, n = array.shape
    step = array.strides[0] // array.itemsize if n_rows > 1 else n
    in_line = array.strides[1] == array.itemsize or n <= 1
    if not (in_line and step >= n and array.flags.aligned):
        if in_place:
            raise InvalidParameter("what is written to must be in C order, or a range of rows of such an array")
        array, step = np.ascontiguousarray(array), n
    span = (n_rows - 1) * step + n if array.size else 0
    flat = np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,), writeable=in_place)
    return flat, step


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
