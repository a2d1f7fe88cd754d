"""The group of edwards25519 in kernels: -x**2 + y**2 = 1 + d x**2 y**2 modulo p = 2**255 - 19; 8 L points, base G.

A point has one of three shapes, each in a flat array:

    affine    8 uint64    x, y, each four words below p: what is sent, and what is compared. `compress`: 4 uint64
    point     40 uint32   four lanes (X, Y, T, Z) with x = X/Z, y = Y/Z, T = XY/Z: what sums are made in
    summand   40 uint32   four lanes (Y - X, Y + X, 2 d T, 2 Z): what is added to a point; of affine points Z = 1

The lanes of limb k stand side by side at 4 k, ten limbs of 26 and 25 bits in turn. So an addition is two products of
four numbers each, in vectors of four 64-bit integers (AVX2 where there is one; LLVM splits them where there is not):

    (A, B, C, D) = (Y - X, Y + X, T, Z) * summand        E, F, G, H = B - A, D - C, D + C, B + A
    (X, Y, T, Z) = (E, G, E, G) * (F, H, H, F)

These formulas are complete (Hisil, Wong, Carter, Dawson 2008, section 3.1; d is not a square): equal, opposite and
neutral points, and points of small order, need no cases of their own.

Bounds of limbs, which tests/crypto/test_edwards25519.py follows through with exact integers:

    stored             even limbs below 2**26 + 2**17, odd ones below 2**25 + 2**17
    a + 2 p - b        below 3 * 2**26 + 2**18; 19 times that is below 2**32, so a 32-bit factor is exact
    ten products       below 2**63

What is not claimed: to take equally long for all values. No branch depends on a sign or on a coordinate, but tables are
read at places that digits tell, which whoever runs on the same machine may observe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.crypto.field25519 import (
    Element,
    P,
    Words,
    fadd,
    fcarry,
    finvert,
    fload,
    fmul,
    fpack,
    froot_power,
    fsqr,
    fstore,
    fsub,
    funpack,
    is_below_p,
    is_zero,
    to_element,
    to_words,
)

D = -121665 * pow(121666, -1, P) % P
ORDER = 2**252 + 27742317777372353535851937790883648493  # L, a prime; the group has 8 L points
COFACTOR = 8
BASE = (
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    46316835694926478169428394003475163141307993866256225615783033603165251855960,
)

POINT, AFFINE, COMPRESSED, LIMBS = 40, 8, 4, 10

Points = npt.NDArray[np.uint32]
Digits = npt.NDArray[np.int16]

_u, _u32 = np.uint64, np.uint32
_ZERO, _ONE, _D, _2D = to_element(0), to_element(1), to_element(D), to_element(2 * D)
_ROOT_OF_MINUS_ONE = to_element(pow(2, (P - 1) // 4, P))
_LOW_26, _26 = _u(2**26 - 1), _u(26)


def _bits(limb: int) -> int:
    return 26 - limb % 2


def in_lanes(*values: int) -> Points:
    """Four numbers side by side, as points hold them."""
    limbs = np.empty((LIMBS, 4), np.uint32)
    for lane, value in enumerate(values):
        rest = value % P
        for k in range(LIMBS):
            limbs[k, lane] = rest & (2 ** _bits(k) - 1)
            rest >>= _bits(k)
    return limbs.reshape(-1)


# --- four lanes ------------------------------------------------------------------------------------------------------
#
# Below, a "vector" is a list of ten LLVM vectors, one per limb, of four 64-bit lanes each.

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_V32, _V64 = ir.VectorType(_I32, 4), ir.VectorType(_I64, 4)
_TWO_P = [2 * (2 ** _bits(k) - (19 if k == 0 else 1)) for k in range(LIMBS)]
_ALL = 2**64 - 1

Vector = list[Any]


def _constant(*values: int) -> Any:
    lanes = values if len(values) == 4 else values * 4
    return ir.Constant(_V64, [ir.Constant(_I64, value) for value in lanes])


def _lanes(builder: Any, one: Any, other: Any, *which: int) -> Any:
    """Four lanes picked from two vectors: 0 to 3 of the one, 4 to 7 of the other."""
    return builder.shuffle_vector(one, other, ir.Constant(_V32, [ir.Constant(_I32, k) for k in which]))


def _place(builder: Any, start: Any, limb: int) -> Any:
    return builder.gep(builder.bitcast(start, _V32.as_pointer()), [ir.Constant(_I64, limb)])


def _load(builder: Any, start: Any) -> Vector:
    return [builder.zext(builder.load(_place(builder, start, k), align=4), _V64) for k in range(LIMBS)]


def _store(builder: Any, start: Any, vector: Vector) -> None:
    for k, limb in enumerate(vector):
        builder.store(builder.trunc(limb, _V32), _place(builder, start, k), align=4)


def _carry(builder: Any, vector: Vector, limb: int) -> None:
    """What is too much in one limb goes into the next, out of the last one into the first, times 19 = 16 + 2 + 1."""
    bits, after = _bits(limb), (limb + 1) % LIMBS
    carry = builder.lshr(vector[limb], _constant(bits))
    vector[limb] = builder.and_(vector[limb], _constant(2**bits - 1))
    if after == 0:
        shifted = [builder.shl(carry, _constant(by)) for by in (4, 1)]
        carry = builder.add(builder.add(*shifted), carry)
    vector[after] = builder.add(vector[after], carry)


def _multiply(builder: Any, x: Vector, y: Vector) -> Vector:
    """Lane by lane; limbs of x below 2**28, of y below 2**32 / 19.

    Limb k stands for 2**(25.5 k), rounded up: two odd limbs give twice their product. Masks tell LLVM that a factor
    has 32 bits, so that it multiplies with one instruction.
    """

    def low(limb: Any) -> Any:
        return builder.and_(limb, _constant(2**32 - 1))

    once, other = [low(limb) for limb in x], [low(limb) for limb in y]
    twice = [low(builder.shl(limb, _constant(1))) for limb in x]
    wrapped = [low(builder.mul(limb, _constant(19))) for limb in other]
    out: Vector = []
    for k in range(LIMBS):
        total = None
        for i in range(LIMBS):
            j = (k - i) % LIMBS
            left = twice[i] if i % 2 and j % 2 else once[i]
            product = builder.mul(left, (wrapped if i + j >= LIMBS else other)[j])
            total = product if total is None else builder.add(total, product)
        out.append(total)
    for k in range(5):  # two chains at a time
        _carry(builder, out, k)
        _carry(builder, out, k + 5)
    _carry(builder, out, 5)
    _carry(builder, out, 0)
    return out


def _sides(builder: Any, point: Vector) -> Vector:
    """(X, Y, T, Z) -> (Y - X, Y + X, T, Z)."""
    out = []
    for k, limb in enumerate(point):
        negative = builder.sub(_constant(_TWO_P[k]), limb)
        other = builder.and_(_lanes(builder, negative, limb, 0, 5, 2, 3), _constant(_ALL, _ALL, 0, 0))
        out.append(builder.add(_lanes(builder, limb, limb, 1, 0, 2, 3), other))
        # lane 0: Y + (2p - X);  lane 1: X + Y;  lanes 2 and 3 unchanged
    return out


def _sum(builder: Any, point: Vector, summand: Vector) -> Vector:
    """A point and a summand."""
    left, right = [], []
    for k, limb in enumerate(_multiply(builder, _sides(builder, point), summand)):  # lanes (A, B, C, D)
        negative = builder.sub(_constant(_TWO_P[k]), limb)
        # E = B - A, G = D + C, F = D - C, H = B + A
        left.append(builder.add(_lanes(builder, limb, limb, 1, 3, 1, 3), _lanes(builder, negative, limb, 0, 6, 0, 6)))
        right.append(builder.add(_lanes(builder, limb, limb, 3, 1, 1, 3), _lanes(builder, negative, limb, 2, 4, 4, 2)))
    return _multiply(builder, left, right)


def _add(builder: Any, point: Any, summand: Any) -> None:
    _store(builder, point, _sum(builder, _load(builder, point), _load(builder, summand)))


def _add_signed(builder: Any, point: Any, summand: Any, negate: Any) -> None:
    """The negative of (Y - X, Y + X, 2 d T, 2 Z) is (Y + X, Y - X, -2 d T, 2 Z)."""
    chosen = []
    for k, limb in enumerate(_load(builder, summand)):
        negative = builder.sub(_constant(_TWO_P[k]), limb)
        chosen.append(builder.select(negate, _lanes(builder, limb, negative, 1, 0, 6, 3), limb))
    _store(builder, point, _sum(builder, _load(builder, point), chosen))


def _to_summand(builder: Any, point: Any, summand: Any, factors: Any) -> None:
    sides = _sides(builder, _load(builder, point))
    _store(builder, summand, _multiply(builder, sides, _load(builder, factors)))


def _double(builder: Any, point: Any) -> None:
    """H = X**2 + Y**2, E = H - (X + Y)**2, G = X**2 - Y**2, F = 2 Z**2 + G; (EF, GH, EH, FG) is the double."""
    only_third = _constant(0, 0, _ALL, 0)
    bases = []
    for limb in _load(builder, point):
        y = builder.and_(_lanes(builder, limb, limb, 1, 1, 1, 1), only_third)
        bases.append(builder.add(_lanes(builder, limb, limb, 0, 1, 0, 3), y))  # X, Y, X + Y, Z
    left: Vector = []
    right: Vector = []
    for k, limb in enumerate(_multiply(builder, bases, bases)):
        xx, yy, both, zz = (_lanes(builder, limb, limb, *(lane,) * 4) for lane in range(4))
        h = builder.add(xx, yy)
        e = builder.sub(builder.add(h, _constant(_TWO_P[k])), both)
        g = builder.sub(builder.add(xx, _constant(_TWO_P[k])), yy)
        f = builder.add(g, builder.add(zz, zz))
        left.append(_lanes(builder, e, g, 0, 5, 0, 6))
        right.append(_lanes(builder, f, h, 0, 5, 6, 3))
    for vector in (left, right):  # four terms are too large for a factor
        for k in range(LIMBS):
            _carry(builder, vector, k)
    _store(builder, point, _multiply(builder, left, right))


def _called(name: str, body: Callable[..., None], builder: Any, arguments: list[Any]) -> None:
    """Call a function of the module that is never inlined, which `body` writes when it is first needed there.

    Half the time of compiling, and quicker: the loops around it stay in the cache of instructions.
    """
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
        function = ir.Function(builder.module, kind, name)
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        inside = ir.IRBuilder(function.append_basic_block())
        body(inside, *function.args)
        inside.ret_void()
    builder.call(function, arguments)


def _start(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [offset])


def _on_arrays(name: str, body: Callable[..., None]) -> Callable[..., Any]:
    """The code of an intrinsic whose arguments are arrays, each with an offset, and perhaps a boolean."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = []
        for k, kind in enumerate(signature.args):
            if isinstance(kind, types.Array):
                given.append(_start(context, builder, kind, arguments[k], arguments[k + 1]))
            elif isinstance(kind, types.Boolean):
                given.append(builder.icmp_unsigned("!=", arguments[k], ir.Constant(arguments[k].type, 0)))
        _called(f"hedgerow_edwards25519_{name}", body, builder, given)
        return context.get_dummy_value()

    return generate


def _typed_add(_context: Any, point: Any, _at: Any, summand: Any, _from: Any) -> tuple[Any, Callable[..., Any]]:
    """point[at:] += the summand at summand[from:]."""
    return types.void(point, types.int64, summand, types.int64), _on_arrays("add", _add)


def _typed_add_signed(
    _context: Any, point: Any, _at: Any, summand: Any, _from: Any, _negate: Any
) -> tuple[Any, Callable[..., Any]]:
    """The same, or its negative is added, without a branch."""
    signature = types.void(point, types.int64, summand, types.int64, types.boolean)
    return signature, _on_arrays("add_signed", _add_signed)


def _typed_to_summand(
    _context: Any, point: Any, _at: Any, summand: Any, _to: Any, factors: Any, _zero: Any
) -> tuple[Any, Callable[..., Any]]:
    """summand[to:] = what adds the point at point[at:]; `factors` are the lanes (1, 1, 2 d, 2)."""
    signature = types.void(point, types.int64, summand, types.int64, factors, types.int64)
    return signature, _on_arrays("to_summand", _to_summand)


def _typed_double(_context: Any, point: Any, _at: Any) -> tuple[Any, Callable[..., Any]]:
    """point[at:] doubles."""
    return types.void(point, types.int64), _on_arrays("double", _double)


def _typed_prefetch(_context: Any, array: Any, _at: Any) -> tuple[Any, Callable[..., Any]]:
    """Ask the machine for the cache line of array[at], which is needed soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, flag = ir.IntType(8).as_pointer(), _I32
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")  # type: ignore[no-untyped-call]  # numba's
        start = _start(context, builder, signature.args[0], arguments[0], arguments[1])
        how = [ir.Constant(flag, each) for each in (0, 3, 1)]  # to read, to keep, data
        builder.call(function, [builder.bitcast(start, byte), *how])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


add: Any = intrinsic(_typed_add)
add_signed: Any = intrinsic(_typed_add_signed)
double: Any = intrinsic(_typed_double)
prefetch: Any = intrinsic(_typed_prefetch)
_to_summand_at: Any = intrinsic(_typed_to_summand)
_FACTORS = in_lanes(1, 1, 2 * D, 2)


@kernel
def to_summand(points: Points, at: int, summand: Points, to: int) -> None:
    """summand[to:] = what adds the point at points[at:]."""
    _to_summand_at(points, at, summand, to, _FACTORS, 0)


@inline_kernel
def set_neutral(points: Points, at: int) -> None:
    """The point (0, 1), which changes nothing."""
    for k in range(POINT):
        points[at + k] = _u32(0)
    points[at + 1] = _u32(1)
    points[at + 3] = _u32(1)


@inline_kernel
def lane(points: Points, at: int, which: int) -> Element:
    """X, Y, T or Z of a point as a field element."""
    return (
        _u(points[at + which]) + (_u(points[at + 4 + which]) << _26),
        _u(points[at + 8 + which]) + (_u(points[at + 12 + which]) << _26),
        _u(points[at + 16 + which]) + (_u(points[at + 20 + which]) << _26),
        _u(points[at + 24 + which]) + (_u(points[at + 28 + which]) << _26),
        _u(points[at + 32 + which]) + (_u(points[at + 36 + which]) << _26),
    )


@inline_kernel
def set_lane(points: Points, at: int, which: int, a: Element) -> None:
    """The inverse; limbs at most 2**51 + 2**13."""
    for k in range(5):
        points[at + 8 * k + which] = _u32(a[k] & _LOW_26)
        points[at + 8 * k + 4 + which] = _u32(a[k] >> _26)


@kernel
def negate(points: Points, at: int) -> None:
    """(x, y) -> (-x, y)."""
    for which in (0, 2):
        set_lane(points, at, which, fcarry(fsub(_ZERO, lane(points, at, which))))


# --- affine points ---------------------------------------------------------------------------------------------------


@kernel
def to_affine(points: Points, n: int, affine: Words, at: int, scratch: Words) -> None:
    """affine[at:] = x and y of n points, by one inversion for all; scratch has room for 5 n words."""
    product = _ONE
    for i in range(n):
        fstore(scratch, 5 * i, product)
        product = fmul(product, lane(points, POINT * i, 3))
    inverse = finvert(product)
    for j in range(n):
        i = n - 1 - j
        own = fmul(inverse, fload(scratch, 5 * i))
        inverse = fmul(inverse, lane(points, POINT * i, 3))
        fpack(fmul(lane(points, POINT * i, 0), own), affine, at + AFFINE * i)
        fpack(fmul(lane(points, POINT * i, 1), own), affine, at + AFFINE * i + 4)


@kernel
def checked_summand(affine: Words, at: int, summand: Points, to: int) -> bool:
    """summand[to:] = what adds the point at affine[at:]; False if that is none, or not written in the one way."""
    if not (is_below_p(affine, at) and is_below_p(affine, at + 4)):
        return False
    x, y = funpack(affine, at), funpack(affine, at + 4)
    xy = fmul(x, y)
    if not is_zero(fsub(fcarry(fsub(fsqr(y), fsqr(x))), fadd(_ONE, fmul(_D, fsqr(xy))))):
        return False
    set_lane(summand, to, 0, fcarry(fsub(y, x)))
    set_lane(summand, to, 1, fcarry(fadd(y, x)))
    set_lane(summand, to, 2, fmul(xy, _2D))
    for k in range(LIMBS):
        summand[to + 4 * k + 3] = _u32(0)
    summand[to + 3] = _u32(2)
    return True


@kernel
def checked_summands(affine: Words, n: int, summands: Points) -> int:
    """The same for n points; how many are none."""
    refused = 0
    for i in range(n):
        refused += not checked_summand(affine, AFFINE * i, summands, POINT * i)
    return refused


@kernel
def is_small(affine: Words, at: int) -> bool:
    """Whether eight times the point is neutral: a point of small order, which no key or sum of a key is."""
    summand, point = np.empty(POINT, np.uint32), np.empty(POINT, np.uint32)
    if not checked_summand(affine, at, summand, 0):
        return True
    set_neutral(point, 0)
    add(point, 0, summand, 0)
    for _ in range(3):
        double(point, 0)
    return is_zero(lane(point, 0, 0)) and is_zero(fsub(lane(point, 0, 1), lane(point, 0, 3)))


@kernel
def is_same(points: Points, at: int, affine: Words, to: int) -> bool:
    """Whether a point is this affine one."""
    z = lane(points, at, 3)
    same_x = is_zero(fsub(fmul(funpack(affine, to), z), lane(points, at, 0)))
    return same_x and is_zero(fsub(fmul(funpack(affine, to + 4), z), lane(points, at, 1)))


@kernel
def compress(affine: Words, n: int, compressed: Words) -> None:
    """y, and in its highest bit whether x is odd (RFC 8032, section 5.1.2)."""
    for i in range(n):
        for k in range(4):
            compressed[COMPRESSED * i + k] = affine[AFFINE * i + 4 + k]
        compressed[COMPRESSED * i + 3] |= (affine[AFFINE * i] & _u(1)) << _u(63)


@kernel
def decompress(compressed: Words, n: int, affine: Words) -> int:
    """x and y again (RFC 8032, section 5.1.3); how many are no points, or not written in the one way.

    Those have rubbish in `affine`.
    """
    refused = 0
    for i in range(n):
        to, is_odd = AFFINE * i, compressed[COMPRESSED * i + 3] >> _u(63)
        for k in range(4):
            affine[to + 4 + k] = compressed[COMPRESSED * i + k]
        affine[to + 7] &= ~_u(0) >> _u(1)
        y = funpack(affine, to + 4)
        yy = fsqr(y)
        a, b = fcarry(fsub(yy, _ONE)), fadd(fmul(yy, _D), _ONE)  # x**2 = a / b
        b3 = fmul(fsqr(b), b)
        x = fmul(fmul(a, b3), froot_power(fmul(a, fmul(fsqr(b3), b))))
        if not is_zero(fsub(fmul(b, fsqr(x)), a)):
            x = fmul(x, _ROOT_OF_MINUS_ONE)
        is_point = is_zero(fsub(fmul(b, fsqr(x)), a)) and is_below_p(affine, to + 4)
        if not is_point or (is_odd == _u(1) and is_zero(x)):
            refused += 1
        fpack(x, affine, to)
        if affine[to] & _u(1) != is_odd:
            fpack(fsub(_ZERO, funpack(affine, to)), affine, to)
    return refused


# --- multiples -------------------------------------------------------------------------------------------------------


class Table(NamedTuple):
    """Multiples of one point: 1 to 2**(bits - 1) times 2**(bits w) of it, for each window w of a scalar's bits."""

    summands: Points  # [windows, half, POINT], flat
    bits: int
    n_windows: int

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return self.summands.nbytes


def table_of(affine: Words, bits: int) -> Table:
    """A table for scalars below 2**256, of a point that has been checked. 13 bits: 13 MB; 7 bits: 370 KB."""
    n_windows = 256 // bits + 1  # the last one has room for the carry of signed digits
    summands = np.empty(n_windows * 2 ** (bits - 1) * POINT, np.uint32)
    _fill_table(affine, bits, n_windows, summands)
    return Table(summands, bits, n_windows)


@kernel
def _fill_table(affine: Words, bits: int, n_windows: int, summands: Points) -> None:
    half = 1 << (bits - 1)
    points = np.empty(half * POINT, np.uint32)
    found, scratch = np.empty(half * AFFINE, np.uint64), np.empty(half * 5, np.uint64)
    first, step = np.empty(POINT, np.uint32), np.empty(POINT, np.uint32)
    checked_summand(affine, 0, step, 0)
    set_neutral(first, 0)
    add(first, 0, step, 0)
    for w in range(n_windows):
        to_summand(first, 0, step, 0)
        for i in range(half):
            start = POINT * i
            points[start : start + POINT] = points[start - POINT : start] if i else first
            if i:
                add(points, start, step, 0)
        to_affine(points, half, found, 0, scratch)
        checked_summands(found, half, summands[w * half * POINT :])
        first[:] = points[(half - 1) * POINT :]
        double(first, 0)


@kernel
def signed_digits(scalar: Words, at: int, bits: int, n_digits: int, digits: Digits, to: int) -> None:
    """A scalar of four words as digits from -2**(bits - 1) + 1 to 2**(bits - 1), the lowest first."""
    carry = 0
    for k in range(n_digits):
        word, shift = (k * bits) >> 6, _u((k * bits) & 63)
        found = _u(0)
        if word < 4:
            found = scalar[at + word] >> shift
            if word < 3 and shift > _u(64 - bits):
                found |= scalar[at + word + 1] << (_u(64) - shift)
        digit = np.int64(found & _u((1 << bits) - 1)) + carry
        carry = 1 if digit > 1 << (bits - 1) else 0
        digits[to + k] = digit - (carry << bits)


@kernel
def add_multiples(
    points: Points,  # in, out
    n: int,
    step: int,  # from one point to the next
    digits: Digits,  # in  [n, windows], flat
    table: Points,
    half: int,  # entries of the table per window
    n_windows: int,
) -> None:
    """points[i] += what digits[i] say of the table's point; window by window, so that its part stays in the cache."""
    for w in range(n_windows):
        for i in range(n):
            ahead = int(abs(np.int64(digits[min(i + 5, n - 1) * n_windows + w])))
            entry = (w * half + max(ahead, 1) - 1) * POINT
            prefetch(table, entry)
            prefetch(table, entry + 16)
            prefetch(table, entry + 32)
            digit = np.int64(digits[i * n_windows + w])
            if digit:
                add_signed(points, step * i, table, (w * half + abs(digit) - 1) * POINT, digit < 0)


def affine_of(x: int, y: int) -> Words:
    """A point of Python integers."""
    return np.concatenate([to_words(x), to_words(y)])


def multiples(table: Table, scalars: Words) -> Words:
    """Affine [n, 8]: each scalar [n, 4] times the table's point. For few of them, and for tests."""
    n = len(scalars)
    points, digits = np.empty(n * POINT, np.uint32), np.empty(n * table.n_windows, np.int16)
    affine = np.empty((n, AFFINE), np.uint64)
    _multiples(np.ascontiguousarray(scalars).reshape(-1), n, points, digits, *table, affine.reshape(-1))
    return affine


@kernel
def _multiples(
    scalars: Words,
    n: int,
    points: Points,
    digits: Digits,
    table: Points,
    bits: int,
    n_windows: int,
    affine: Words,
) -> None:
    for i in range(n):
        set_neutral(points, POINT * i)
        signed_digits(scalars, 4 * i, bits, n_windows, digits, i * n_windows)
    add_multiples(points, n, POINT, digits, table, 1 << (bits - 1), n_windows)
    to_affine(points, n, affine, 0, np.empty(5 * n, np.uint64))
