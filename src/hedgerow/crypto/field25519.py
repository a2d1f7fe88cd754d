"""Numbers modulo p = 2**255 - 19 inside kernels: five limbs of 51 bits, a tuple that stays in registers.

    value = a[0] + a[1] 2**51 + a[2] 2**102 + a[3] 2**153 + a[4] 2**204        modulo p

Limbs may grow beyond 51 bits between two products, which saves carries:

    fmul, fsqr     take limbs below 2**54 and give limbs below 2**51 + 2**13: five products are below 2**115, so what
                   is carried into the next limb is below 2**64
    fadd           adds limb by limb
    fsub           adds 4 p first, so it takes b with limbs below 2**53 - 76 and nothing becomes negative
    fcarry         brings any limbs below 2**63 back to 2**51 at most
    ffreeze        the one representative below p, of which equality and bytes speak

numba has no integers of 128 bits, LLVM does: both products are written as LLVM code, as one function that is called
and never inlined. That costs 2 ns a call and saves minutes of compiling.

On the wire a number is four little-endian words, below p: `fpack` and `funpack`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hedgerow.compiling import inline_kernel, kernel

P = 2**255 - 19
LIMBS, LIMB_BITS, WIRE_WORDS = 5, 51, 4

Element = tuple[Any, Any, Any, Any, Any]  # of uint64
Words = npt.NDArray[np.uint64]

_u = np.uint64
_MASK = _u(2**LIMB_BITS - 1)
_BITS, _NINETEEN = _u(LIMB_BITS), _u(19)
_FOUR_P_LOW, _FOUR_P = _u(4 * (2**LIMB_BITS - 19)), _u(4 * (2**LIMB_BITS - 1))
_I64, _I128 = ir.IntType(64), ir.IntType(128)
_TUPLE = types.UniTuple(types.uint64, LIMBS)  # type: ignore[no-untyped-call]  # numba has no types here


def to_element(value: int) -> Element:
    """A Python integer as limbs."""
    value %= P
    a0, a1, a2, a3, a4 = (_u(value >> (LIMB_BITS * k) & (2**LIMB_BITS - 1)) for k in range(LIMBS))
    return a0, a1, a2, a3, a4


def from_element(limbs: Element) -> int:
    """The inverse: the number below p."""
    return sum(int(limb) << (LIMB_BITS * k) for k, limb in enumerate(limbs)) % P


def to_words(value: int, n_words: int = WIRE_WORDS) -> Words:
    """A Python integer as little-endian words."""
    return np.frombuffer(value.to_bytes(8 * n_words, "little"), "<u8").astype(np.uint64)


def from_words(words: Words) -> int:
    """The inverse."""
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


# --- products --------------------------------------------------------------------------------------------------------

Body = Callable[..., list[Any]]


def _called(name: str, n_arguments: int, body: Body) -> Callable[..., Any]:
    """Code that calls a function of the module, which is written by `body` when it is first needed there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.module.globals.get(name)
        if function is None:
            result = ir.LiteralStructType([_I64] * LIMBS)
            kind = ir.FunctionType(result, [_I64] * (LIMBS * n_arguments))
            function = ir.Function(builder.module, kind, name)
            function.linkage = "linkonce_odr"
            function.attributes.add("noinline")
            inside = ir.IRBuilder(function.append_basic_block())
            limbs = [list(function.args[LIMBS * k : LIMBS * (k + 1)]) for k in range(n_arguments)]
            value = ir.Constant(result, ir.Undefined)
            for k, limb in enumerate(body(inside, *limbs)):
                value = inside.insert_value(value, limb, k)
            inside.ret(value)
        given = [builder.extract_value(argument, k) for argument in arguments for k in range(LIMBS)]
        returned = builder.call(function, given)
        limbs = [builder.extract_value(returned, k) for k in range(LIMBS)]
        return context.make_tuple(builder, signature.return_type, limbs)

    return generate


def _carried(builder: Any, sums: list[Any]) -> list[Any]:
    """Limbs of 51 bits from sums of products; what leaves the last one comes in again at the first, times 19."""
    out: list[Any] = []
    carry = None
    for each in sums:
        total = each if carry is None else builder.add(each, builder.zext(carry, _I128))
        carry = builder.trunc(builder.lshr(total, ir.Constant(_I128, LIMB_BITS)), _I64)
        out.append(builder.and_(builder.trunc(total, _I64), ir.Constant(_I64, 2**LIMB_BITS - 1)))
    first = builder.add(out[0], builder.mul(carry, ir.Constant(_I64, 19)))
    out[0] = builder.and_(first, ir.Constant(_I64, 2**LIMB_BITS - 1))
    out[1] = builder.add(out[1], builder.lshr(first, ir.Constant(_I64, LIMB_BITS)))
    return out


def _products(builder: Any, pairs: Callable[[int], list[tuple[Any, Any]]]) -> list[Any]:
    """For each limb of the result, the sum of its products."""
    sums = []
    for k in range(LIMBS):
        total = None
        for one, other in pairs(k):
            product = builder.mul(builder.zext(one, _I128), builder.zext(other, _I128))
            total = product if total is None else builder.add(total, product)
        sums.append(total)
    return sums


def _multiply(builder: Any, a: list[Any], b: list[Any]) -> list[Any]:
    wrapped = [builder.mul(limb, ir.Constant(_I64, 19)) for limb in b]  # 2**255 = 19

    def pairs(k: int) -> list[tuple[Any, Any]]:
        return [(a[i], b[k - i] if i <= k else wrapped[k - i + LIMBS]) for i in range(LIMBS)]

    return _carried(builder, _products(builder, pairs))


def _square(builder: Any, a: list[Any]) -> list[Any]:
    times = {factor: [builder.mul(limb, ir.Constant(_I64, factor)) for limb in a] for factor in (1, 2, 19, 38)}

    def pairs(k: int) -> list[tuple[Any, Any]]:
        found = [(i, j) for i in range(LIMBS) for j in range(i, LIMBS) if (i + j) % LIMBS == k]
        return [(a[i], times[(1 if i == j else 2) * (19 if i + j >= LIMBS else 1)][j]) for i, j in found]

    return _carried(builder, _products(builder, pairs))


def _typed_product(_context: Any, _a: Any, _b: Any) -> tuple[Any, Callable[..., Any]]:
    """a b."""
    return _TUPLE(_TUPLE, _TUPLE), _called("hedgerow_field25519_multiply", 2, _multiply)


def _typed_square(_context: Any, _a: Any) -> tuple[Any, Callable[..., Any]]:
    """a a."""
    return _TUPLE(_TUPLE), _called("hedgerow_field25519_square", 1, _square)


fmul: Any = intrinsic(_typed_product)
fsqr: Any = intrinsic(_typed_square)


# --- sums and representatives ----------------------------------------------------------------------------------------


@inline_kernel
def fadd(a: Element, b: Element) -> Element:
    """a + b."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4])


@inline_kernel
def fsub(a: Element, b: Element) -> Element:
    """a - b."""
    return (
        a[0] + _FOUR_P_LOW - b[0],
        a[1] + _FOUR_P - b[1],
        a[2] + _FOUR_P - b[2],
        a[3] + _FOUR_P - b[3],
        a[4] + _FOUR_P - b[4],
    )


@inline_kernel
def _chain(a0: Any, a1: Any, a2: Any, a3: Any, a4: Any) -> Element:
    """Carry from each limb to the next; all that is too much is in the last one."""
    a1 += a0 >> _BITS
    a2 += a1 >> _BITS
    a3 += a2 >> _BITS
    a4 += a3 >> _BITS
    return (a0 & _MASK, a1 & _MASK, a2 & _MASK, a3 & _MASK, a4)


@kernel
def fcarry(a: Element) -> Element:
    """The same number with small limbs."""
    a0, a1, a2, a3, a4 = _chain(a[0], a[1], a[2], a[3], a[4])
    a0 += _NINETEEN * (a4 >> _BITS)
    return (a0 & _MASK, a1 + (a0 >> _BITS), a2, a3, a4 & _MASK)


@kernel
def ffreeze(a: Element) -> Element:
    """The representative below p."""
    a = fcarry(fcarry(a))
    q = (a[0] + _NINETEEN) >> _BITS  # carry of a + 19: whether a is p or more
    q = (a[1] + q) >> _BITS
    q = (a[2] + q) >> _BITS
    q = (a[3] + q) >> _BITS
    q = (a[4] + q) >> _BITS
    a0, a1, a2, a3, a4 = _chain(a[0] + _NINETEEN * q, a[1], a[2], a[3], a[4])
    return (a0, a1, a2, a3, a4 & _MASK)


@kernel
def is_zero(a: Element) -> bool:
    """Whether a is a multiple of p."""
    z = ffreeze(a)
    return bool((z[0] | z[1] | z[2] | z[3] | z[4]) == _u(0))


# --- powers ----------------------------------------------------------------------------------------------------------


@kernel
def _squared(a: Element, times: int) -> Element:
    for _ in range(times):
        a = fsqr(a)
    return a


@kernel
def _to_2_250_minus_1(z: Element) -> tuple[Element, Element]:
    """z**(2**250 - 1) and z**11, from which both powers below are a few steps."""
    z2 = fsqr(z)
    z9 = fmul(_squared(z2, 2), z)
    z11 = fmul(z9, z2)
    ones_5 = fmul(fsqr(z11), z9)  # z**(2**5 - 1), and so on
    ones_10 = fmul(_squared(ones_5, 5), ones_5)
    ones_20 = fmul(_squared(ones_10, 10), ones_10)
    ones_40 = fmul(_squared(ones_20, 20), ones_20)
    ones_50 = fmul(_squared(ones_40, 10), ones_10)
    ones_100 = fmul(_squared(ones_50, 50), ones_50)
    ones_200 = fmul(_squared(ones_100, 100), ones_100)
    return fmul(_squared(ones_200, 50), ones_50), z11


@kernel
def finvert(z: Element) -> Element:
    """z**(p - 2): the inverse; 0 of 0."""
    most, z11 = _to_2_250_minus_1(z)
    inverse: Element = fmul(_squared(most, 5), z11)
    return inverse


@kernel
def froot_power(z: Element) -> Element:
    """z**((p - 5) / 8), of which square roots are made."""
    most, _ = _to_2_250_minus_1(z)
    power: Element = fmul(_squared(most, 2), z)
    return power


# --- words -----------------------------------------------------------------------------------------------------------


@inline_kernel
def fload(memory: Words, at: int) -> Element:
    """Limbs that were stored."""
    return (memory[at], memory[at + 1], memory[at + 2], memory[at + 3], memory[at + 4])


@inline_kernel
def fstore(memory: Words, at: int, a: Element) -> None:
    """Limbs as they are."""
    memory[at], memory[at + 1], memory[at + 2], memory[at + 3], memory[at + 4] = a[0], a[1], a[2], a[3], a[4]


@kernel
def fpack(a: Element, wire: Words, at: int) -> None:
    """The four words of the representative below p."""
    b = ffreeze(a)
    wire[at] = b[0] | (b[1] << _u(51))
    wire[at + 1] = (b[1] >> _u(13)) | (b[2] << _u(38))
    wire[at + 2] = (b[2] >> _u(26)) | (b[3] << _u(25))
    wire[at + 3] = (b[3] >> _u(39)) | (b[4] << _u(12))


@kernel
def funpack(wire: Words, at: int) -> Element:
    """Limbs of the low 255 bits of four words."""
    w0, w1, w2, w3 = wire[at], wire[at + 1], wire[at + 2], wire[at + 3]
    return (
        w0 & _MASK,
        ((w0 >> _u(51)) | (w1 << _u(13))) & _MASK,
        ((w1 >> _u(38)) | (w2 << _u(26))) & _MASK,
        ((w2 >> _u(25)) | (w3 << _u(39))) & _MASK,
        (w3 >> _u(12)) & _MASK,
    )


@kernel
def is_below_p(wire: Words, at: int) -> bool:
    """Whether four words are the one way to write a number."""
    full = ~_u(0)
    if wire[at + 3] != full >> _u(1):
        return bool(wire[at + 3] < full >> _u(1))
    return bool(wire[at + 2] != full or wire[at + 1] != full or wire[at] < full - _u(18))
