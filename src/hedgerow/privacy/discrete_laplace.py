"""Whole numbers k with probability proportional to exp(-|k| / scale): exactly, and many at once.

Floating-point noise has gaps and repetitions that give secrets away (Mironov 2012). Here no float is ever drawn, and
the distribution is met without any error. Write t for the scale and q = e^(-1/t).

Digits. Let G be geometric, P(G = k) = (1 - q) q^k for k = 0, 1, 2, ... Its binary digits are independent, with
P(digit j is 1) = q^(2^j) / (1 + q^(2^j)) = 1 / (1 + e^(2^j / t)): for digits d_0, d_1, ... of k, of which finitely many
are 1, the product of their probabilities is prod_j q^(d_j 2^j) / prod_j (1 + q^(2^j)), where the first product is q^k
and the second is 1 / (1 - q), because (1 - q)(1 + q)(1 + q^2)(1 + q^4) ... telescopes to 1.

Beyond. Only digits 0 .. b - 1 are drawn, 2^b >= 16 t. The rest, G / 2^b rounded down, is independent of them and itself
geometric, of ratio q^(2^b); that it is not 0 has probability q^(2^b) = e^(-2^b / t) <= e^-16. One more coin decides. If
it shows heads, G >= 2^b, and as a geometric variable has no memory, G - 2^b given this is distributed as G: add 2^b and
draw all digits afresh.

Every digit, and what lies beyond, is the toss of an exact coin (coins.py: the chances above are known to any number of
bits, and a toss uses as many as it takes). So G is exact.

Sign. Draw a fair sign, and start again if it is minus and G = 0. The outcomes k > 0 and -k have probability
(1 - q) q^k / 2 each in one round, and 0 has (1 - q) / 2: all proportional to q^|k|, which starting again does not
change.

Numbers beyond 2^62 are an error, not a wrapped number. Whether it happens does not depend on any data, and it does not:
with scale 2^48 at most, its probability is below e^-16000.

Time is not constant: who can time single numbers learns that one was drawn again, or which of the first bits were met.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.errors import FixedPointOverflow, InvalidParameter
from hedgerow.privacy.coins import FIRST_BITS, Coin, fair_bits, short_words
from hedgerow.privacy.discrete_gaussian import RandomBytes

Ints = npt.NDArray[np.int64]

MIN_SCALE = 2.0**-30
MAX_SCALE = 2.0**48

_REACH = 16
_CHUNK = 1 << 13
"""Samples per round: the intermediate arrays stay in the second-level cache."""
_LARGEST = 1 << 62


def sample(scale: float, size: int, random: RandomBytes) -> Ints:
    """`size` independent discrete Laplace variables of this scale, centred on 0."""
    if not MIN_SCALE <= scale <= MAX_SCALE:
        raise InvalidParameter(f"scale of a discrete Laplace must be between 2^-30 and 2^48, got {scale!r}")
    digits = _digits(float(scale))
    out = np.empty(size, np.int64)
    for start in range(0, size, _CHUNK):
        piece = out[start : start + _CHUNK]
        piece[:] = _signed(digits, len(piece), random)
        while len(again := np.flatnonzero(piece == _AGAIN)):
            piece[again] = _signed(digits, len(again), random)
    return out


_AGAIN = np.iinfo(np.int64).min
"""Stands for a zero with a minus."""


class _Digits(NamedTuple):
    """The coins of one scale: one for each digit, the lowest first, and the one for what lies beyond."""

    coins: tuple[Coin, ...]
    thresholds: npt.NDArray[np.uint16]  # the first bits of each chance, in a column
    shifts: npt.NDArray[np.uint8]  # the place of each digit in its byte, in a column
    beyond: int  # 2^b


@lru_cache(maxsize=256)
def _digits(scale: float) -> _Digits:
    t = Fraction(scale)
    n = 1
    while 2**n < _REACH * t:
        n += 1
    coins = (*(Coin(2**j / t) for j in range(n)), Coin(2**n / t, plus=0))
    thresholds = np.array([[coin.bits(FIRST_BITS)] for coin in coins], np.uint16)
    return _Digits(coins, thresholds, np.array([[j % 8] for j in range(n)], np.uint8), 2**n)


def _signed(digits: _Digits, size: int, random: RandomBytes) -> Ints:
    magnitude = _geometric(digits, size, random)
    minus = fair_bits(size, random)
    return np.where(minus, np.where(magnitude == 0, _AGAIN, -magnitude), magnitude)


def _geometric(digits: _Digits, size: int, random: RandomBytes) -> Ints:
    drawn, more = _one_round(digits, size, random)
    beyond = digits.beyond
    while len(more):
        if beyond >= _LARGEST:
            raise FixedPointOverflow("noise of 2^62 or more was drawn; this has a chance below e^-16000")
        again, more_of_them = _one_round(digits, len(more), random)
        drawn[more] = again + beyond
        more, beyond = more[more_of_them], beyond + digits.beyond
    return drawn


def _one_round(digits: _Digits, size: int, random: RandomBytes) -> tuple[Ints, npt.NDArray[np.intp]]:
    """Numbers below 2^b, and the places of those that lie beyond."""
    n = len(digits.coins)
    first = short_words(n * size, random).reshape(n, size)
    heads = first < digits.thresholds
    tied = first == digits.thresholds
    if tied.any():
        for row, column in zip(*np.nonzero(tied), strict=True):
            heads[row, column] = digits.coins[row].settle(random)
    # Eight digits make a byte, eight bytes a number.
    placed = heads[:-1].view(np.uint8) << digits.shifts
    as_bytes = np.zeros((size, 8), np.uint8)
    as_bytes[:, : (n + 6) // 8] = np.bitwise_or.reduceat(placed, range(0, n - 1, 8), axis=0).T
    return as_bytes.view("<i8").reshape(size).astype(np.int64), np.flatnonzero(heads[-1])
