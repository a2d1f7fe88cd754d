"""The logistic function of shared numbers: one opening, sines that were dealt, and a truncation.

    sigma(x) = 1 / (1 + e^-x)  ~  1/2 + sum over k = 1 .. n of b_k sin(k w x)      for |x| <= BOUND; w = 2 pi / 2**p

    opened   c = x - r                               the mask r is used for x alone
    dealt    [sin(k w r)], [cos(k w r)]              the dealer knows r
    hence    sin(k w x) = sin(k w c) cos(k w r) + cos(k w c) sin(k w r)         public numbers times dealt ones: local

**Why sines.** They are periodic. x in units of 2**-f, with a period of 2**(f+p) units, needs no more than x modulo
2**(f+p), and a share modulo 2**64 is one modulo 2**32 too. So c has 32 bits, r is uniform, and nothing else is opened.

**The same numbers everywhere.** All parties multiply dealt words by sin(k w c) and cos(k w c). Were one of them off by
one unit at one party, the result would be noise. So no float takes part: angles are whole numbers of 2**-(f+p) turns,
the sines of a turn come from two tables (of the upper and of the lower bits of the angle), multiples from multiplying
complex numbers, and b_k are written down here. Tables are made with Python's integers, all else is 64-bit integers:
these are the same on every machine. The dealer uses the same tables, though its errors would only be errors.

**Coefficients.** Least squares on equal steps of 0 <= x <= BOUND, with the weight 1 / sqrt(1 - (x / BOUND)^2) that puts
more on the end, in decimal arithmetic (tests/twins/sine_coefficients.py makes them). Beyond the bound the series is
free, and has to come back to 1/2 at half a period.

**Error.** Of a result in units of 2**-F, F = `result_bits`, it is at most `Sigmoid.error`, the sum of

1. the series with the rounded b_k against sigma, for |x| <= BOUND: the largest at points of distance h = 2**-11, plus
   h^2 / 8 times a bound of the second derivative (between two points a function is no further than that from the line
   through its values), which is at most sum of |b_k| (k w)^2 + 0.0963 (the largest |sigma''| is 1 / (6 sqrt 3)).
2. sines as whole numbers. With u = 2**-30, an entry of a table, as a complex number, is off by u / sqrt 2, and rounding
   a product by as much. So z = e^(i w c) is off by less than 2.13 u, and z^k by less than 3 k u. What was dealt and
   b_k z^k are rounded to units of u, each by u / sqrt 2 at most. The product of both is off by at most
   |b_k| (6 k u + u) + u.
3. the truncation from 60 to F bits (`lifting`): one unit, 2**-F. It is right by its mean. With F = 60 there is none,
   and only one round.

**Range.** For |x| <= BOUND results are within -e and 1 + e, e = `error`: what rests on gradients being bounded must
count with e. Beyond the bound they are wrong, but for every x whatsoever within 1/2 -+ the sum of |b_k|, which is below
0.81, and the errors 2. and 3.: what may be truncated is more than three times that.

**What each learns.** Nothing: c is uniform, and so is what the truncation opens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.lifting import deal_truncation, truncated
from hedgerow.crypto.shares import SUM32, SUM64, Share, Talk, blocks_of, masked, opened
from hedgerow.errors import InvalidParameter, InvalidType

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

BLOCK = 4096
"""Rows whose sines are in memory at a time; dealer and parties must agree on it."""

BOUND = 12
"""Of |x|."""
FRACTION_BITS = 20
"""f: x is in units of 2**-f."""
PERIOD_BITS = 5
N_SINES = 12
COEFFICIENTS: Ints = np.array(
    [648797440, -10040305, 144992648, -5506027, 40050397, 1802069, 7760805, 3798234, 45766, 2283239, -405976, 665016],
    np.int64,
)
"""b_k in units of 2**-30, for k = 1 .. N_SINES."""
COEFFICIENTS.flags.writeable = False

_UNIT_BITS = 30  # of sines in tables and kernels: products of two fit 64 bits
_FINE_BITS = 160  # of sines while tables are made
_PI = 0x3243F6A8885A308D313198A2E03707344A4093822299F31D0082EFA98  # in units of 2**-224
_CHECK_STEP = 2.0**-11
_LARGEST_BEND = 0.0963  # above 1 / (6 sqrt 3), the largest second derivative of sigma


@dataclass(frozen=True, slots=True)
class Sigmoid:
    """How the logistic function of n numbers is computed; all of it is public."""

    n: int
    result_bits: int = 20  # F

    def __post_init__(self) -> None:
        if self.n < 0:
            raise InvalidParameter(f"n must be at least 0, got {self.n}")
        if not 1 <= self.result_bits <= 2 * _UNIT_BITS:
            raise InvalidParameter(f"result_bits must be between 1 and {2 * _UNIT_BITS}, got {self.result_bits}")

    @property
    def cut_bits(self) -> int:
        """Bits that are cut off the sum; 0: no truncation."""
        return 2 * _UNIT_BITS - self.result_bits

    @property
    def error(self) -> float:
        """What the result is off by at most, for |x| <= BOUND."""
        return _series_error() + self.rounding

    @property
    def rounding(self) -> float:
        """The errors 2. and 3."""
        unit = 2.0**-_UNIT_BITS
        sines = float((_sizes() * (6.0 * np.arange(1, N_SINES + 1) * unit + unit)).sum())
        cut = 2.0**-self.result_bits if self.cut_bits else 0.0
        return (sines + N_SINES * unit + cut) * (1.0 + 2.0**-20)


def series(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """1/2 + sum of b_k sin(k w x), in floats: what is computed, but for the errors 2. and 3."""
    total = np.full(x.shape, 0.5)
    for k, b in enumerate(COEFFICIENTS.tolist(), 1):
        total += math.ldexp(b, -_UNIT_BITS) * np.sin(2.0 * math.pi * k / 2.0**PERIOD_BITS * x)
    return total


@cache
def _series_error() -> float:
    """Error 1., in floats, whose own errors are below the 1e-12 that is added."""
    x = np.linspace(0.0, BOUND, math.ceil(BOUND / _CHECK_STEP) + 1)  # the error is odd
    at_points = float(np.abs(series(x) - 1.0 / (1.0 + np.exp(-x))).max())
    w = 2.0 * math.pi * np.arange(1, N_SINES + 1) / 2.0**PERIOD_BITS
    bend = float((_sizes() * w * w).sum()) + _LARGEST_BEND
    return at_points + _CHECK_STEP**2 / 8.0 * bend + 1e-12


def _sizes() -> npt.NDArray[np.float64]:
    """|b_k|."""
    return np.ldexp(np.abs(COEFFICIENTS).astype(np.float64), -_UNIT_BITS)


def deal_sigmoid(step: DealerStep, plan: Sigmoid) -> None:
    """A mask r for each number (nothing is sent), the sines and cosines of it, and what the truncation needs."""
    r = step.mask(plan.n, SUM32)
    tables = _tables(FRACTION_BITS + PERIOD_BITS)
    for rows in blocks_of(plan.n, BLOCK):
        dealt = np.empty((rows.stop - rows.start, N_SINES, 2), np.uint64)
        _turn(r[rows], *tables, dealt)
        step.share(dealt, SUM64)
    if plan.cut_bits:
        deal_truncation(step, plan.n, SUM64, plan.cut_bits)


def sigmoid(step: HandStep, x: Share, plan: Sigmoid, *, is_first: bool) -> Talk[Share]:
    """[sigma(x)] in units of 2**-F from [x] in units of 2**-f, both modulo 2**64, for |x| <= BOUND.

    1. Dealt: [r] modulo 2**32; [cos(k w r)] and [sin(k w r)] modulo 2**64 in units of 2**-30, for k = 1 .. N_SINES.
    2. Everybody sends [x] - [r] modulo 2**32: one word of 4 bytes per number, one round. Opened: c.
    3. Everybody computes b_k cos(k w c) and b_k sin(k w c) as whole numbers in units of 2**-30, and
       [y] = sum over k of b_k cos(k w c) [sin(k w r)] + b_k sin(k w c) [cos(k w r)]; the first adds 2**60 / 2.
    4. [y] is truncated to units of 2**-F (`lifting.truncated`): one more round, 8 bytes per number.
    """
    if x.kind != SUM64 or x.shape != (plan.n,):
        raise InvalidType(f"x must be shares of kind sum64 and shape ({plan.n},), got {x!r}")
    c = yield from opened(masked("sigmoid", Share(x.words.astype(np.uint32), SUM32), step.mask(plan.n, SUM32)))
    tables = _tables(FRACTION_BITS + PERIOD_BITS)
    y = np.empty(plan.n, np.uint64)
    half = 1 << (2 * _UNIT_BITS - 1) if is_first else 0
    for rows in blocks_of(plan.n, BLOCK):
        dealt = step.share((rows.stop - rows.start, N_SINES, 2), SUM64).words
        _add_up(c[rows], *tables, COEFFICIENTS, half, dealt, y[rows])
    if not plan.cut_bits:
        return Share(y, SUM64)
    return (yield from truncated(step, Share(y, SUM64), plan.cut_bits, is_first=is_first))


# --- kernels -------------------------------------------------------------------------------------------------------


@inline_kernel
def _product(a: int, b: int, c: int, d: int) -> tuple[int, int]:
    """(a + i b) (c + i d) in units of 2**-30, rounded."""
    half = 1 << 29
    return (a * c - b * d + half) >> 30, (a * d + b * c + half) >> 30


@kernel
def _turn(angles: npt.NDArray[np.uint32], coarse: Ints, fine: Ints, out: Words) -> None:
    """cos and sin of 1, 2, ... times the angles. Out: `out` [rows, sines, 2], in units of 2**-30."""
    for i in range(len(angles)):
        low = np.int64(angles[i]) % len(fine)
        high = np.int64(angles[i]) // len(fine) % len(coarse)
        x1, y1 = _product(coarse[high, 0], coarse[high, 1], fine[low, 0], fine[low, 1])
        x, y = x1, y1
        for k in range(out.shape[1]):
            out[i, k, 0] = np.uint64(x)
            out[i, k, 1] = np.uint64(y)
            x, y = _product(x, y, x1, y1)


@kernel
def _add_up(
    angles: npt.NDArray[np.uint32],
    coarse: Ints,
    fine: Ints,
    coefficients: Ints,
    first: int,
    dealt: Words,
    out: Words,
) -> None:
    """Step 3 of `sigmoid`: `out` [rows] from `dealt` [rows, sines, 2] = cos, sin of the masks; `first` is added."""
    half = 1 << 29
    for i in range(len(angles)):
        low = np.int64(angles[i]) % len(fine)
        high = np.int64(angles[i]) // len(fine) % len(coarse)
        x1, y1 = _product(coarse[high, 0], coarse[high, 1], fine[low, 0], fine[low, 1])
        x, y = x1, y1
        total = np.uint64(first)
        for k in range(len(coefficients)):
            total += np.uint64((coefficients[k] * x + half) >> 30) * dealt[i, k, 1]
            total += np.uint64((coefficients[k] * y + half) >> 30) * dealt[i, k, 0]
            x, y = _product(x, y, x1, y1)
        out[i] = total


# --- tables, the same on every machine --------------------------------------------------------------


@cache
def _tables(angle_bits: int) -> tuple[Ints, Ints]:
    """cos and sin in units of 2**-30: of whole multiples of 2**-h turns, and of 2**-(f+p) turns within one of them."""
    high = (angle_bits + 1) // 2
    return turn_table(high), _rounded(_turns(Fraction(1, 1 << angle_bits), 1 << (angle_bits - high)))


def turn_table(bits: int) -> Ints:
    """cos and sin of 0, 1, ..., 2**bits - 1 times 2**-bits turns, in units of 2**-30: the same on every machine."""
    return _rounded(_turns(Fraction(1, 1 << bits), 1 << bits))


def _rounded(turns: list[tuple[int, int]]) -> Ints:
    shift = _FINE_BITS - _UNIT_BITS
    half = 1 << (shift - 1)
    table = np.array([((x + half) >> shift, (y + half) >> shift) for x, y in turns], np.int64)
    table.flags.writeable = False
    return table


def _turns(turn: Fraction, n: int) -> list[tuple[int, int]]:
    """cos and sin of 0, 1, ..., n - 1 times this many turns, in units of 2**-160; off by less than 2 n units."""
    one = 1 << _FINE_BITS
    c, s = _cos_sin(turn)
    x, y = one, 0
    found = []
    for _ in range(n):
        found.append((x, y))
        x, y = (x * c - y * s) >> _FINE_BITS, (x * s + y * c) >> _FINE_BITS
    return found


def _cos_sin(turn: Fraction) -> tuple[int, int]:
    """cos and sin of at most one turn in units of 2**-160, by their power series with 64 bits more."""
    bits = _FINE_BITS + 64
    angle = 2 * _PI * turn.numerator // turn.denominator
    parts = [0, 0, 0, 0]
    term, k = 1 << bits, 0
    while term:
        parts[k % 4] += term
        k += 1
        term = (term * angle >> bits) // k
    return (parts[0] - parts[2]) >> 64, (parts[1] - parts[3]) >> 64
