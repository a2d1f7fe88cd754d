"""The sign of a shared number, as a shared bit: one masked opening, then a few rounds on bits. And its size, |x|.

    opened   c = d + r                       the mask r is used for d alone
    sign     top(d) = top(c) ^ top(r) ^ b    b: whether a subtraction of the lower bits borrows, low(c) < low(r)

The borrow compares a public number with one that the dealer knows, digit by digit. Of each digit of r the dealer shares
the one-hot word 1 << digit, whose bits tell, at places that c names, whether the digit is larger or equal: both are
local. What is left is to find the highest digit that differs, in a tree whose blocks put q digits together in one
round:

    larger = larger_(q-1) ^ larger_(q-2) equal_(q-1) ^ ... ^ larger_0 equal_1 ... equal_(q-1)
    equal  = equal_0 equal_1 ... equal_(q-1)

Any product of q shared bits takes one round, if the products of all subsets of their masks were dealt: with z = m ^ rho
and m opened, z_1 z_2 ... z_q = sum over subsets T of (product of rho in T) (product of m outside T).

Shares of bits are exclusive-or shares (kind xor8, one bit per byte); on the wire bits are packed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, reduce
from operator import xor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.extending import intrinsic

from hedgerow.compiling import kernel
from hedgerow.crypto import limbs
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.limbs import n_digits
from hedgerow.crypto.shares import (
    SUM32,
    XOR8,
    XOR16,
    XOR32,
    XOR64,
    Array,
    Kind,
    Masked,
    Share,
    Talk,
    limbs_kind,
    masked,
    opened,
)
from hedgerow.errors import InvalidParameter, InvalidType

Bits = npt.NDArray[np.uint8]

_ONE_LIMB = limbs_kind(1)
MAX_DIGIT_BITS = 6  # a one-hot word has 64 bits
MAX_FAN_IN = 6  # and the subsets of 6 bits are 64


class Layer(NamedTuple):
    """One round of the tree: this many digits go in, `fan_in` of them into each of some blocks."""

    n_in: int
    fan_in: int
    n_blocks: int

    @property
    def opened_bits(self) -> int:
        """Bits opened per block: `equal` of all digits, `larger` of all but the highest."""
        return 2 * self.fan_in - 1


@dataclass(frozen=True, slots=True)
class Circuit:
    """How numbers are cut and digits put together.

    Digits of 5 bits and blocks of 6: two rounds for up to 180 bits. Digits of 4 bits and blocks of 4: three rounds (to
    256 bits), and less is dealt.
    """

    digit_bits: int = 5
    fan_in: int = 6

    def __post_init__(self) -> None:
        if not 1 <= self.digit_bits <= MAX_DIGIT_BITS:
            raise InvalidParameter(f"digit_bits must be between 1 and {MAX_DIGIT_BITS}, got {self.digit_bits}")
        if not 2 <= self.fan_in <= MAX_FAN_IN:
            raise InvalidParameter(f"fan_in must be between 2 and {MAX_FAN_IN}, got {self.fan_in}")

    def layers(self, n_limbs: int) -> Iterator[Layer]:
        """The rounds of the tree for numbers of this many limbs."""
        n_in = n_digits(n_limbs, self.digit_bits)
        while n_in > 1:
            fan_in = min(self.fan_in, n_in)
            layer = Layer(n_in, fan_in, -(-n_in // fan_in))
            yield layer
            n_in = layer.n_blocks

    def openings(self, n: int, n_limbs: int) -> list[int]:
        """Bytes that each party sends for n numbers, in each round of `signs`: the number, then the tree."""
        tree = [-(-n * layer.n_blocks * layer.opened_bits // 8) for layer in self.layers(n_limbs)]
        return [4 * n_limbs * n, *tree]


def deal_signs(step: DealerStep, n: int, kind: Kind, circuit: Circuit) -> None:
    """For each number a mask r (nothing is sent), the one-hot words of its digits and its top bit; then for each layer.

    For each block masks of its bits (nothing is sent), and a word for each of two families of products.
    """
    r = step.mask(n, _check_kind(kind))
    one_hot = _words_of(1 << circuit.digit_bits)
    step.share(one_hot.dtype.type(1) << limbs.digits(r, circuit.digit_bits).astype(one_hot.dtype), one_hot)
    step.share(np.packbits(limbs.top_bit(r), bitorder="little"), XOR8)
    for layer in circuit.layers(kind.limbs):
        rho = step.mask((n, layer.n_blocks), XOR16)
        subsets = products_of(layer.fan_in)
        equal = rho & rho.dtype.type((1 << layer.fan_in) - 1)
        both = rho & rho.dtype.type((1 << layer.opened_bits) - 1)
        step.share(np.stack([subsets.of_masks[equal], subsets.with_larger[both]]), subsets.kind)


def signs(step: HandStep, d: Share, circuit: Circuit, *, is_first: bool) -> Talk[Share]:
    """[d < 0] as an exclusive-or share, from [d] modulo 2**(32 L): 1 for the negative numbers of two's complement.

    1. Dealt: [r]; the one-hot words [1 << r_i] of its digits; [top(r)].
    2. Everybody sends [d] + [r]: 4 L bytes per number, one round. Opened: c.
    3. Locally, for each digit: [r_i > c_i] is the exclusive or of the bits of [1 << r_i] above c_i, [r_i = c_i] is its
       bit c_i.
    4. A tree, one round for each layer. Dealt for a block of q digits: masks rho of all `equal` and of all `larger` but
       the highest; the products of each subset of the masks of `equal`, by themselves and with the mask of each
       `larger` below them. Everybody sends its shares of these bits with those of the masks: 2 q - 1 bits per block.
       Then both results are exclusive ors of dealt bits, chosen by what was opened.
    5. [d < 0] = [borrow] ^ [top(r)], and the first adds top(c).
    """
    kind = _check_kind(d.kind)
    n = int(np.prod(d.shape, dtype=np.int64))
    words = kind.add(d.words.reshape(n, kind.limbs), step.mask(n, kind).words)
    one_hot = _words_of(1 << circuit.digit_bits)
    per_number = n_digits(kind.limbs, circuit.digit_bits)
    hot = step.share((n, per_number), one_hot).words
    top = np.unpackbits(step.share(-(-n // 8), XOR8).words, count=n, bitorder="little")
    c = yield from opened(Masked("sign", words, kind))
    larger, equal = (np.empty((n, per_number), np.uint8) for _ in range(2))
    _look_up(hot, limbs.digits(c, circuit.digit_bits), larger, equal)
    for layer in circuit.layers(kind.limbs):
        rho = step.mask((n, layer.n_blocks), XOR16).words
        subsets = products_of(layer.fan_in)
        dealt = step.share((2, n, layer.n_blocks), subsets.kind).words
        hidden = np.empty((n, layer.n_blocks), np.uint16)
        _hide(larger, equal, rho, layer.fan_in, is_first, hidden)
        shown = yield from opened_bits("and", hidden, layer.opened_bits)
        highest = larger
        larger, equal = (np.empty((n, layer.n_blocks), np.uint8) for _ in range(2))
        _combine(highest, dealt, shown, layer.fan_in, *subsets.choices, larger, equal)
    sign = larger[:, 0] ^ top
    if is_first:
        sign ^= limbs.top_bit(c)
    return Share(sign.reshape(d.shape), XOR8)


# Sizes of numbers, without their signs: for scores that add up sizes of sums, |G_L| + |G_R|


def deal_bit_products(step: DealerStep, n: int) -> None:
    """For each number a random bit rho (nothing is sent) and as a number, a mask a (nothing is sent), and rho a."""
    rho = (step.mask(n, XOR8) & np.uint8(1)).astype(np.uint32)
    step.share(rho, SUM32)
    a = step.mask(n, SUM32)
    step.share(rho * a, SUM32)


def bit_times(step: HandStep, bit: Share, x: Share, *, is_first: bool) -> Talk[Share]:
    """[s x] modulo 2**32 from a bit [s] by exclusive or and [x] modulo 2**32, element by element.

    1. Dealt: [rho] by exclusive or and [rho], [a], [rho a] modulo 2**32.
    2. Everybody sends [s] ^ [rho], one bit per number, and [x] - [a], 4 bytes, in one round. Opened: v, e.
    3. s = v + (1 - 2 v) rho and x = e + a, so [s x] = v (e + [a]) + (1 - 2 v) (e [rho] + [rho a]); the first adds the e
       of the first part.
    """
    if bit.kind != XOR8 or x.kind != SUM32 or bit.shape != x.shape or len(x.shape) != 1:
        raise InvalidType(f"a bit must be of kind xor8, a number of kind sum32, both in a row, got {bit!r} and {x!r}")
    n = x.shape[0]
    hidden = (bit.words ^ step.mask(n, XOR8).words) & np.uint8(1)
    rho = step.share(n, SUM32).words
    a = step.mask(n, SUM32)
    rho_a = step.share(n, SUM32).words
    packed = np.packbits(hidden, bitorder="little")
    shown, e = yield [Masked("bit", packed, XOR8, n), masked("factor", x, a)]
    v = np.unpackbits(shown, count=n, bitorder="little")
    chosen = e * rho + rho_a
    whole = a.words + e if is_first else a.words
    return Share(np.where(v == 1, whole - chosen, chosen), SUM32)


def deal_absolute(step: DealerStep, n: int, circuit: Circuit) -> None:
    """For `absolute`."""
    deal_signs(step, n, _ONE_LIMB, circuit)
    deal_bit_products(step, n)


def absolute(step: HandStep, x: Share, circuit: Circuit, *, is_first: bool) -> Talk[Share]:
    """[|x|] modulo 2**32 from [x] modulo 2**32, for -2**31 < x < 2**31, numbers in a row.

    1. [s] = [x < 0] (`signs`), then [s x] (`bit_times`).
    2. [|x|] = [x] - 2 [s x].
    """
    if x.kind != SUM32 or len(x.shape) != 1:
        raise InvalidType(f"numbers must be of kind sum32, in a row, got {x!r}")
    is_negative = yield from signs(step, Share(x.words[:, None], _ONE_LIMB), circuit, is_first=is_first)
    product = yield from bit_times(step, is_negative, x, is_first=is_first)
    return Share(x.words - np.uint32(2) * product.words, SUM32)


# Products of masked bits


class Subsets(NamedTuple):
    """Tables for products of q bits z = m ^ rho. A subset T of the bits is a number below 2**q.

    The first family has bit T for each subset: the product of rho in T. The second has, for each i below q - 1, a bit
    for each subset of what is above i: that product times the mask of larger_i.
    """

    kind: Kind  # of a word of either family: 2**q bits
    of_masks: Array  # [2**q] by rho: the first family
    with_larger: Array  # [2**(2q - 1)] by the masks of equal (low) and larger: the second family
    choices: tuple[Array, Array, Array]  # which bits make: the product of all, by m; larger, of either family


@cache
def products_of(q: int) -> Subsets:
    """The tables for q bits, q at most 6."""
    kind = _words_of(1 << q)
    word = kind.dtype.type
    everything = (1 << q) - 1

    def subsets(of: int, least: int = 0) -> int:
        """Bits T for all T with least <= T <= of."""
        return sum(1 << T for T in range(1 << q) if T | of == of and T & least == least)

    starts = [sum(1 << (q - 1 - k) for k in range(i)) for i in range(q - 1)]  # of larger_i in the second family
    above = [everything >> (i + 1) << (i + 1) for i in range(q - 1)]

    def second(bits: int, i: int) -> int:
        """Bits T, all among what is above i, as bits of the second family."""
        return sum(1 << (starts[i] + (T >> (i + 1))) for T in range(1 << q) if bits >> T & 1)

    # For a product over S, T counts if it lies in S and m is 1 at all of S outside T, so T holds S without m.
    chosen = [[subsets(S, S & ~m) for S in above] for m in range(1 << q)]
    masks = [[second(subsets(S & rho), i) for i, S in enumerate(above)] for rho in range(1 << q)]
    pairs = [(larger, equal) for larger in range(1 << (q - 1)) for equal in range(1 << q)]
    with_larger = [reduce(xor, (masks[rho][i] for i in range(q - 1) if larger >> i & 1), 0) for larger, rho in pairs]
    choices = (
        [subsets(everything, everything & ~m) for m in range(1 << q)],
        [reduce(xor, (chosen[m][i] for i in range(q - 1) if larger >> i & 1), 0) for larger, m in pairs],
        [reduce(xor, (second(chosen[m][i], i) for i in range(q - 1)), 0) for m in range(1 << q)],
    )
    tables = [np.array(table, word) for table in choices]
    return Subsets(
        kind,
        np.array([subsets(rho) for rho in range(1 << q)], word),
        np.array(with_larger, word),
        (tables[0], tables[1], tables[2]),
    )


# Packed bits


def opened_bits(name: str, values: Array, width: int) -> Talk[Array]:
    """One round that opens the low `width` bits of each value; packed on the wire, without gaps but at the end."""
    n_bits = values.size * width
    words = np.zeros(-(-n_bits // 8), np.uint8)
    _pack(values.reshape(-1), width, words)
    shown = yield from opened(Masked(name, words, XOR8, n_bits))
    values = np.empty_like(values)
    _unpack(shown, width, values.reshape(-1))
    return values


@kernel
def _pack(values: Array, width: int, out: Bits) -> None:
    """The low `width` bits of all values, one after another. In: `values` [n]. Out: `out` [bits / 8]."""
    store, held, place = np.uint64(0), 0, 0
    keep = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    for i in range(len(values)):
        store |= (np.uint64(values[i]) & keep) << np.uint64(held)
        held += width
        while held >= 8:
            out[place] = np.uint8(store & np.uint64(255))
            place += 1
            store >>= np.uint64(8)
            held -= 8
    if held:
        out[place] = np.uint8(store)


@kernel
def _unpack(packed: Bits, width: int, out: Array) -> None:
    """Undoes `_pack`. In: `packed` [bits / 8]. Out: `out` [n]."""
    store, held, place = np.uint64(0), 0, 0
    keep = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    for i in range(len(out)):
        while held < width:
            store |= np.uint64(packed[place]) << np.uint64(held)
            place += 1
            held += 8
        out[i] = store & keep
        store >>= np.uint64(width)
        held -= width


# Kernels


def _parity_of(_context: Any, word: Any) -> tuple[Any, Any]:
    """1 if an odd number of the bits of an unsigned word are 1."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        count = builder.ctpop(arguments[0])
        return builder.and_(count, ir.Constant(count.type, 1))

    return word(word), generate


parity: Any = intrinsic(_parity_of)


@kernel
def _look_up(hot: Array, digits: Bits, larger: Bits, equal: Bits) -> None:
    """Step 3 of `signs`. In: `hot`, `digits` [n, digits]. Out: `larger`, `equal` [n, digits], bits."""
    for i in range(hot.shape[0]):
        for k in range(hot.shape[1]):
            rest = np.uint64(hot[i, k]) >> np.uint64(digits[i, k])
            equal[i, k] = rest & np.uint64(1)
            larger[i, k] = parity(rest >> np.uint64(1))


@kernel
def _hide(larger: Bits, equal: Bits, rho: Array, fan_in: int, is_first: bool, out: Array) -> None:
    """Step 4 of `signs`, what is sent. In: `larger`, `equal` [n, digits], `rho` [n, blocks]. Out: `out` [n, blocks]."""
    n_in = larger.shape[1]
    filler = np.uint16(1) if is_first else np.uint16(0)  # digits above the last are equal and not larger
    for i in range(rho.shape[0]):
        for block in range(rho.shape[1]):
            word = rho[i, block]
            for k in range(fan_in):
                digit = block * fan_in + k
                bit = np.uint16(equal[i, digit]) if digit < n_in else filler
                word ^= bit << np.uint16(k)
                if k < fan_in - 1 and digit < n_in:
                    word ^= np.uint16(larger[i, digit]) << np.uint16(fan_in + k)
            out[i, block] = word


@kernel
def _combine(
    highest: Bits,  # in  [n, digits]: `larger` of all digits, of which the highest of a block is not masked
    dealt: Array,  # in  [2, n, blocks]: both families of products
    shown: Array,  # in  [n, blocks]: what was opened
    fan_in: int,
    choose_equal: Array,  # in  the tables of `Subsets.choices`
    choose_first: Array,
    choose_second: Array,
    larger: Bits,  # out [n, blocks]
    equal: Bits,
) -> None:
    """Step 4 of `signs`, what is made of what was opened."""
    all_equal = (1 << fan_in) - 1
    for i in range(shown.shape[0]):
        for block in range(shown.shape[1]):
            both = int(shown[i, block])
            m = both & all_equal
            first, second = dealt[0, i, block], dealt[1, i, block]
            equal[i, block] = parity(first & choose_equal[m])
            bit = parity(first & choose_first[both]) ^ parity(second & choose_second[m])
            digit = block * fan_in + fan_in - 1
            larger[i, block] = bit ^ highest[i, digit] if digit < highest.shape[1] else bit


# Checks


def _words_of(bits: int) -> Kind:
    """The kind of words with at least this many bits."""
    return next(kind for kind in (XOR8, XOR16, XOR32, XOR64) if 8 * kind.number_bytes >= bits)


def _check_kind(kind: Kind) -> Kind:
    if not kind.limbs:
        raise InvalidType(f"signs are of numbers in limbs, got kind {kind}")
    return kind
