"""Coins whose chance of heads is a number like 1 / (1 + e^x), exactly: as many of its bits as a toss turns out to need.

A toss is: draw U uniform in [0, 1), heads if U < p. Only the first 16 bits of U are drawn at first. They settle the
toss unless they equal the first 16 bits of p, a chance of 2^-16; then 64 more bits of U are drawn and compared with the
next 64 of p, and so on. At every length n, comparing floor(2^n U) with floor(2^n p) decides U < p whenever the two
differ, so P(heads) = p with no error at all, whatever p is. It ends: the chance to go on falls by 2^-64 each time.

Bits of p. p = 1 / (a + c e^x) for whole a and c, and a fraction x other than 0, such that 0 < p < 1. Python's decimal
rounds exp, +, * and / correctly: with d digits each is off by a factor within 1 -+ u, u = 10^(1-d) / 2. Rounding x
moves e^x by a factor within e^(-+ |x| u), and there are four operations after it, so the computed 2^n p is off by a
factor within 1 -+ (|x| + 5) u. Twice that, and more, is taken as its error, which also covers the rounding of the error
itself and of the two numbers between which 2^n p must then lie. If both have the same floor (at most 2^n - 1, as p <
1), that is the floor of 2^n p; if not, d is doubled. It ends: e^x is not a fraction (Lindemann), so 2^n p is never a
whole number.
"""

from __future__ import annotations

import decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.privacy.discrete_gaussian import RandomBytes

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

FIRST_BITS = 16
"""So few that random bytes are cheap, so many that one toss in 65,536 only takes the slow way."""

_MORE_BITS = 64
_CHUNK = 1 << 18


class Coin(NamedTuple):
    """Heads with chance 1 / (plus + times e^exponent), which must lie between 0 and 1; the exponent is not 0."""

    exponent: Fraction
    times: int = 1
    plus: int = 1

    def bits(self, n: int) -> int:
        """The first n bits of the chance of heads after the point, as a whole number."""
        return _bits(self, n)

    def settle(self, random: RandomBytes) -> bool:
        """The outcome of a toss whose first 16 bits are those of the chance."""
        n, drawn = FIRST_BITS, self.bits(FIRST_BITS)
        while drawn == self.bits(n):
            n += _MORE_BITS
            drawn = (drawn << _MORE_BITS) + int.from_bytes(random.bytes(_MORE_BITS // 8), "little")
        return drawn < self.bits(n)

    def toss(self, size: int, random: RandomBytes) -> Bools:
        """`size` independent tosses; True is heads."""
        heads = np.empty(size, np.bool_)
        threshold = np.uint16(self.bits(FIRST_BITS))
        for start in range(0, size, _CHUNK):
            piece = heads[start : start + _CHUNK]
            first = short_words(len(piece), random)
            np.less(first, threshold, out=piece)
            for place in np.flatnonzero(first == threshold):
                piece[place] = self.settle(random)
        return heads


@lru_cache(maxsize=4096)
def _bits(coin: Coin, n: int) -> int:
    x = coin.exponent
    digits = n // 3 + 25
    while True:
        with decimal.localcontext(exact_context(digits)):
            exponent = decimal.Decimal(x.numerator) / decimal.Decimal(x.denominator)
            scaled = 2**n / (coin.plus + coin.times * exponent.exp())
            error = scaled * (abs(exponent) + 8) * decimal.Decimal(10) ** (1 - digits)
            low = int((scaled - error).to_integral_value(decimal.ROUND_FLOOR))
            high = int((scaled + error).to_integral_value(decimal.ROUND_FLOOR))
            if low == min(high, 2**n - 1):
                return low
        digits *= 2


def exact_context(digits: int) -> decimal.Context:
    """Room for e^(-10^12) and the like, whatever the thread's own is; a result that no proof allows raises."""
    return decimal.Context(
        prec=digits,
        rounding=decimal.ROUND_HALF_EVEN,
        Emax=decimal.MAX_EMAX,
        Emin=decimal.MIN_EMIN,
        traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow, decimal.Underflow],
    )


def short_words(size: int, random: RandomBytes) -> npt.NDArray[np.uint16]:
    """Uniform words of 16 bits."""
    return np.frombuffer(random.bytes(2 * size), "<u2")


def words(size: int, random: RandomBytes) -> npt.NDArray[np.uint64]:
    """Uniform words of 64 bits, in an array of their own."""
    return np.frombuffer(random.bytes(8 * size), "<u8").astype(np.uint64)


def fair_bits(size: int, random: RandomBytes) -> Bools:
    """Tosses of a fair coin."""
    return np.unpackbits(np.frombuffer(random.bytes((size + 7) // 8), np.uint8), count=size).view(np.bool_)


def below(limit: int | Ints, size: int, random: RandomBytes) -> Ints:
    """`size` whole numbers, each uniform among 0 .. limit - 1, for one limit or for one of its own; at least 1.

    A word modulo the limit, for words below the largest multiple of it that fits 64 bits; others are drawn again. That
    multiple is 2^64 - (2^64 mod limit), and 2^64 mod limit = (2^64 - limit) mod limit, which fits 64 bits.
    """
    limits = np.asarray(limit).astype(np.uint64)
    last = ~((~limits + np.uint64(1)) % limits)
    drawn = words(size, random)
    while len(again := np.flatnonzero(drawn > last)):
        drawn[again] = words(len(again), random)
    drawn %= limits
    return drawn.view(np.int64)
