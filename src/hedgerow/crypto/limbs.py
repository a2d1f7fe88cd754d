"""Numbers modulo 2**(32 L), in arrays: L limbs of 32 bits each, the lowest first, along the last axis.

    5 * 2**32 + 7, L = 5   ->   [7, 5, 0, 0, 0]          -1, L = 2   ->   [2**32 - 1, 2**32 - 1]

Comparisons of gains need 128 to 192 bits, which no type of numpy has. LLVM has integers of any length, and makes the
best instructions of the machine for them (64-bit words with carries), so a kernel reads the L limbs of a number as one
such integer: nothing here knows about carries. That takes a machine that is little-endian, as all are that numba knows.

All functions take arrays [..., L] that broadcast against each other along all axes but the last, read them where they
lie, and write to `out` if given: an array of the resulting shape in C order, which may also be one of the arguments.
There is no overflow: results are modulo 2**(32 L), and whether numbers fit is decided beforehand.

What is not claimed: to take equally long for all values. Multiplications and additions have no branches here, but what
compilers and processors make of them is theirs to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hedgerow.compiling import kernel
from hedgerow.errors import InvalidParameter, InvalidType

LIMB_BITS = 32
MAX_LIMBS = 16
MAX_DIGIT_BITS = 8

Limbs = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]

_AXES = 3  # loops of the kernel; operands with more are copied if they are repeated along some
_I64 = ir.IntType(64)


# --- kernels -------------------------------------------------------------------------------------------------------
#
# The number of limbs, the operation and the width of a digit have to be known when a kernel is compiled. They are told
# by the length of a tuple of zeros, which is part of its type: numba compiles, and keeps, one kernel for each.

_ADD, _SUBTRACT, _MULTIPLY, _ADD_PRODUCT, _SUBTRACT_PRODUCT = ((0,) * code for code in range(1, 6))


def _place(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, element: Any) -> Any:
    """The address of a number that begins `offset` elements after the array's first."""
    start = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(start, [offset]), element.as_pointer())


def _combine_one(
    _context: Any, x: Any, _at_x: Any, y: Any, _at_y: Any, out: Any, _to: Any, operation: Any, limbs: Any
) -> tuple[Any, Callable[..., Any]]:
    """One number of `out` from one of `x` and one of `y`; offsets count limbs."""
    signature = types.void(x, types.int64, y, types.int64, out, types.int64, operation, limbs)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(LIMB_BITS * limbs.count)
        at_x, at_y, place = (
            _place(context, builder, signature.args[k], arguments[k], arguments[k + 1], wide) for k in (0, 2, 4)
        )
        one, other = builder.load(at_x, align=4), builder.load(at_y, align=4)
        if operation.count == len(_ADD):
            result = builder.add(one, other)
        elif operation.count == len(_SUBTRACT):
            result = builder.sub(one, other)
        else:
            result = builder.mul(one, other)
            if operation.count == len(_ADD_PRODUCT):
                result = builder.add(builder.load(place, align=4), result)
            elif operation.count == len(_SUBTRACT_PRODUCT):
                result = builder.sub(builder.load(place, align=4), result)
        builder.store(result, place, align=4)
        return context.get_dummy_value()

    return signature, generate


_combine_at: Any = intrinsic(_combine_one)


@kernel
def _combine(
    x: Limbs,  # in  the first number of x; the others lie x_steps apart
    y: Limbs,  # in  the same of y
    out: Limbs,  # out [numbers * limbs]
    axes: tuple[int, ...],  # numbers along the three axes
    x_steps: tuple[int, ...],  # limbs from one number to the next along each axis
    y_steps: tuple[int, ...],
    operation: tuple[int, ...],
    limbs: tuple[int, ...],
) -> None:
    """out = x operation y."""
    to = 0
    for a in range(axes[0]):
        for b in range(axes[1]):
            at_x = a * x_steps[0] + b * x_steps[1]
            at_y = a * y_steps[0] + b * y_steps[1]
            for _ in range(axes[2]):
                _combine_at(x, at_x, y, at_y, out, to, operation, limbs)
                at_x += x_steps[2]
                at_y += y_steps[2]
                to += len(limbs)


def _cut_one(
    _context: Any, x: Any, _at_x: Any, out: Any, _to: Any, limbs: Any, width: Any
) -> tuple[Any, Callable[..., Any]]:
    """All digits of one number."""
    signature = types.void(x, types.int64, out, types.int64, limbs, width)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, bits = ir.IntType(8), LIMB_BITS * limbs.count
        wide = ir.IntType(bits)
        place = _place(context, builder, signature.args[0], arguments[0], arguments[1], wide)
        number = builder.and_(builder.load(place, align=4), ir.Constant(wide, (1 << (bits - 1)) - 1))
        for digit in range(n_digits(limbs.count, width.count)):
            shifted = builder.trunc(builder.lshr(number, ir.Constant(wide, digit * width.count)), byte)
            offset = builder.add(arguments[3], ir.Constant(_I64, digit))
            place = _place(context, builder, signature.args[2], arguments[2], offset, byte)
            builder.store(builder.and_(shifted, ir.Constant(byte, (1 << width.count) - 1)), place, align=1)
        return context.get_dummy_value()

    return signature, generate


_cut_at: Any = intrinsic(_cut_one)


@kernel
def _cut(x: Limbs, out: Bytes, n: int, per_number: int, limbs: tuple[int, ...], width: tuple[int, ...]) -> None:
    """The digits of n numbers. In: `x` [n * limbs]. Out: `out` [n * per_number]."""
    for i in range(n):
        _cut_at(x, i * len(limbs), out, i * per_number, limbs, width)


# --- arithmetic ----------------------------------------------------------------------------------------------------


def add(x: Limbs, y: Limbs, out: Limbs | None = None) -> Limbs:
    """x + y."""
    return _apply(_ADD, x, y, out)


def subtract(x: Limbs, y: Limbs, out: Limbs | None = None) -> Limbs:
    """x - y."""
    return _apply(_SUBTRACT, x, y, out)


def multiply(x: Limbs, y: Limbs, out: Limbs | None = None) -> Limbs:
    """x * y, its lower half."""
    return _apply(_MULTIPLY, x, y, out)


def add_product(total: Limbs, x: Limbs, y: Limbs) -> Limbs:
    """total += x * y, without an array for the product."""
    return _apply(_ADD_PRODUCT, x, y, total)


def subtract_product(total: Limbs, x: Limbs, y: Limbs) -> Limbs:
    """total -= x * y, without an array for the product."""
    return _apply(_SUBTRACT_PRODUCT, x, y, total)


# --- from and to other numbers -------------------------------------------------------------------------------------


def constant(value: int, n_limbs: int) -> Limbs:
    """One public number, [L]; it cannot be written to."""
    _check_limbs(n_limbs)
    whole = (int(value) % (1 << (LIMB_BITS * n_limbs))).to_bytes(4 * n_limbs, "little")
    return np.frombuffer(whole, np.dtype("<u4")).astype(np.uint32, copy=False)


def from_words(values: Array, n_limbs: int) -> Limbs:
    """Words [...] as numbers of the ring [..., L]: int64 with their signs, uint32 or uint64, which have none."""
    if not isinstance(values, np.ndarray) or values.dtype not in (np.uint32, np.uint64, np.int64):
        raise InvalidType(f"values must be an array of uint32, uint64 or int64, got {_kind(values)}")
    _check_limbs(n_limbs)
    own = np.asarray(values, order="C")[..., None].view(np.uint32)
    found = np.zeros((*values.shape, n_limbs), np.uint32)
    for limb in range(n_limbs):  # one after the other: they lie apart in memory, and are many
        if limb < own.shape[-1]:
            found[..., limb] = own[..., limb]
        elif values.dtype == np.int64:
            found[..., limb] = (values < 0) * np.uint32(0xFFFFFFFF)
    return found


def to_ints(x: Limbs, *, signed: bool = True) -> npt.NDArray[np.object_]:
    """Python's integers [...], below 2**(32 L - 1) and signed, or not signed. Slow: for tests and small n."""
    n_limbs = _n_limbs(x)
    raw = np.ascontiguousarray(x).astype("<u4").tobytes()
    size = 4 * n_limbs
    found = np.empty(x.shape[:-1], object)
    flat = found.reshape(-1)
    for place in range(len(flat)):
        flat[place] = int.from_bytes(raw[place * size : (place + 1) * size], "little", signed=signed)
    return found


def top_bit(x: Limbs) -> Bytes:
    """1 where the number is negative, if it is taken for a signed one: uint8 [...]."""
    _n_limbs(x)
    return np.asarray(x[..., -1] >> np.uint32(LIMB_BITS - 1), np.uint8)


def n_digits(n_limbs: int, width: int) -> int:
    """How many digits of `width` bits the low 32 L - 1 bits make; the last may be shorter."""
    return -(-(LIMB_BITS * n_limbs - 1) // width)


def digits(x: Limbs, width: int, out: Bytes | None = None) -> Bytes:
    """All bits but the top one, cut into digits of `width` bits, the lowest first: uint8 [..., n_digits]."""
    n_limbs = _n_limbs(x)
    if not 1 <= width <= MAX_DIGIT_BITS:
        raise InvalidParameter(f"a digit must have between 1 and {MAX_DIGIT_BITS} bits, got {width}")
    per_number = n_digits(n_limbs, width)
    result = _result(out, (*x.shape[:-1], per_number), np.uint8)
    if result.size:
        source = np.ascontiguousarray(x).reshape(-1)  # a view at least, so that the next line does not touch x
        source.flags.writeable = False  # numba compiles once more for read-only arrays, so let all be
        n = result.size // per_number
        _cut(source, result.reshape(-1), n, per_number, (0,) * n_limbs, (0,) * width)
    return result


# --- broadcasting --------------------------------------------------------------------------------------------------


def _apply(operation: tuple[int, ...], x: Limbs, y: Limbs, out: Limbs | None) -> Limbs:
    n_limbs = _n_limbs(x)
    if _n_limbs(y) != n_limbs:
        raise InvalidType(f"numbers of {n_limbs} and of {_n_limbs(y)} limbs cannot be put together")
    x_shape, y_shape = x.shape[:-1], y.shape[:-1]
    shape = x_shape if x_shape == y_shape else np.broadcast_shapes(x_shape, y_shape)
    result = _result(out, (*shape, n_limbs), np.uint32)
    n = result.size // n_limbs
    if n == 0:
        return result
    if out is not None:
        x, y = _apart(x, result), _apart(y, result)
    x_step, y_step = _in_line(x, n_limbs, n), _in_line(y, n_limbs, n)
    if x_step >= 0 and y_step >= 0:  # mostly, and it halves the time of a small call
        axes: tuple[int, ...] = (1, 1, n)
        x_steps: tuple[int, ...] = (0, 0, x_step)
        y_steps: tuple[int, ...] = (0, 0, y_step)
    else:
        (x, x_steps), (y, y_steps) = _along_axes(x, shape), _along_axes(y, shape)
        axes = x.shape[:_AXES]
    _combine(_first(x), _first(y), result.reshape(-1), axes, x_steps, y_steps, operation, (0,) * n_limbs)
    return result


def _in_line(operand: Limbs, per_number: int, n: int) -> int:
    """Limbs from one number to the next, if there are n one after another or one for all; else -1."""
    flags = operand.flags
    if not (flags.c_contiguous and flags.aligned):
        return -1
    if operand.size == per_number:
        return 0
    return per_number if operand.size == n * per_number else -1


def _along_axes(operand: Limbs, shape: tuple[int, ...]) -> tuple[Limbs, tuple[int, ...]]:
    """The operand repeated to this shape, along three axes, and the limbs from one number to the next along each.

    What cannot be read so where it lies is copied.
    """
    wide = np.broadcast_to(operand, shape + operand.shape[-1:])
    numbers = (1,) * (_AXES - len(shape)) + shape if len(shape) <= _AXES else (-1, *shape[1 - _AXES :])
    wide = wide.reshape(numbers + operand.shape[-1:])
    if not wide.flags.aligned or wide.strides[-1] != wide.itemsize:
        wide = np.ascontiguousarray(wide)
    return wide, tuple(stride // wide.itemsize for stride in wide.strides[:_AXES])


def _first(array: Limbs) -> Limbs:
    """A read-only view of the array's first number; kernels go on from there by steps."""
    view: Limbs = array[(0,) * (array.ndim - 1)]
    view.flags.writeable = False  # numba compiles once more for read-only arrays, so let all be
    return view


def _apart(operand: Limbs, result: Limbs) -> Limbs:
    """The operand, or a copy of it where writing the result would change numbers that are still to be read."""
    if not np.may_share_memory(operand, result):
        return operand
    same = operand.shape == result.shape and operand.strides == result.strides and operand.dtype == result.dtype
    return operand if same and operand.ctypes.data == result.ctypes.data else operand.copy()


def _result(out: Array | None, shape: tuple[int, ...], dtype: Any) -> Array:
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray) or out.dtype != dtype:
        raise InvalidType(f"out must be an array of {np.dtype(dtype)}, got {_kind(out)}")
    if out.shape != shape or not out.flags.c_contiguous or not out.flags.writeable:
        raise InvalidParameter(f"out must be a writeable array {shape} in C order, got {out.shape}")
    return out


def _check_limbs(n_limbs: int) -> int:
    """The number of limbs, if there may be this many."""
    if not 1 <= n_limbs <= MAX_LIMBS:
        raise InvalidParameter(f"numbers must have between 1 and {MAX_LIMBS} limbs, got {n_limbs}")
    return n_limbs


def _n_limbs(x: Limbs) -> int:
    if not isinstance(x, np.ndarray) or x.dtype != np.uint32 or x.ndim == 0:
        raise InvalidType(f"numbers must be arrays of uint32 with their limbs along the last axis, got {_kind(x)}")
    return _check_limbs(x.shape[-1])


def _kind(value: Any) -> str:
    return str(getattr(value, "dtype", type(value).__name__))
