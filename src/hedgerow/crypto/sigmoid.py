"""The logistic function of shared numbers: one opening, sines that were dealt, and a truncation.

    sigma(x) = 1 / (1 + e^-x)  ~  1/2 + sum over k = 1 .. n of b_k sin(k w x)        for |x| <= bound; w = 2 pi / period

    opened   c = x - r                               the mask r is used for x alone
    dealt    [sin(k w r)], [cos(k w r)]              the dealer knows r
    hence    sin(k w x) = sin(k w c) cos(k w r) + cos(k w c) sin(k w r)         public numbers times dealt ones: local

**Why sines.** They are periodic. x in units of 2**-f, with a period of 2**(f+p) units, needs no more than x modulo
2**(f+p), and a share modulo 2**64 is one modulo 2**32 too. So c has 32 bits, r is uniform, and nothing else is opened.
`times` makes the period 2**p / times: everybody multiplies its words before.

**The same numbers everywhere.** All parties multiply dealt words by sin(k w c) and cos(k w c). Were one of them off by
one unit at one party, the result would be noise. So no float takes part: angles are whole numbers of 2**-(f+p) turns,
the sines of a turn come from two tables (of the upper and of the lower bits of the angle), multiples from multiplying
complex numbers, and b_k from least squares in decimal arithmetic. Tables are made with Python's integers, all else is
64-bit integers: these are the same on every machine. The dealer uses the same tables, though its errors would only be
errors.

**Coefficients.** Least squares on `_POINTS` equal steps of 0 <= x <= bound, with the weight 1 / sqrt(1 - (x / bound)^2)
that puts more on the end. Beyond the bound the series is free, and has to come back to 1/2 at half a period. If there
is too little to fit for this many sines (bound / period small), coefficients become large and cancel: that is refused.

**Error.** Of a result in units of 2**-F, F = `result_bits`, it is at most `Sigmoid.error`, the sum of

1. the series with the rounded b_k against sigma, for |x| <= bound: the largest at points of distance h = 2**-11, plus
   h^2 / 8 times a bound of the second derivative (between two points a function is no further than that from the line
   through its values), which is at most sum of |b_k| (k w)^2 + 0.0963 (the largest |sigma''| is 1 / (6 sqrt 3)).
2. sines as whole numbers. With u = 2**-30, an entry of a table, as a complex number, is off by u / sqrt 2, and rounding
   a product by as much. So z = e^(i w c) is off by less than 2.13 u, and z^k by less than 3 k u. What was dealt is
   rounded once more to S = `dealt_bits` bits, by 2**-S / sqrt 2 at most, and b_k z^k to P = `public_bits` bits, by
   2**-P / sqrt 2. The product of both is off by at most |b_k| (6 k u + 2**-S) + 2**-P.
3. the truncation from S + P to F bits (`truncation`): one unit, 2**-F. It is right by its mean. With F = S + P there is
   none, and only one round.

**Range.** For |x| <= bound results are within -e and 1 + e, e = `error`: what rests on gradients being bounded must
count with e. Beyond the bound they are wrong, but for every x whatsoever within 1/2 -+ `reach`.

**What each learns.** Nothing: c is uniform, and so is what the truncation opens.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.rounds import Talk, masked, opened
from hedgerow.crypto.shares import SUM32, SUM64, Share
from hedgerow.crypto.truncation import deal_truncation, truncated
from hedgerow.errors import InvalidParameter, InvalidType

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

BLOCK = 4096
"""Rows whose sines are in memory at a time; dealer and parties must agree on it."""

MOST_SINES = 64
_ANGLE_BITS = 32  # what is opened
_UNIT_BITS = 30  # of sines in tables and kernels: products of two fit 64 bits
_FINE_BITS = 160  # of sines while tables are made
_DIGITS = 60
_POINTS = 384
_CHECK_STEP = 2.0**-11
_LARGEST_REACH = 2.5  # so that 1/2 more is within what may be truncated: 3 * 2**60 < 2**62
_LARGEST_BEND = 0.0963  # above 1 / (6 sqrt 3), the largest second derivative of sigma


@dataclass(frozen=True, slots=True)
class Sigmoid:
    """How the logistic function of n numbers is computed; all of it is public."""

    n: int
    bound: float = 12.0  # of |x|
    fraction_bits: int = 20  # f: x is in units of 2**-f
    n_sines: int = 16
    period_bits: int = 5  # p
    times: int = 1  # the period is 2**p / times
    dealt_bits: int = 30  # S
    public_bits: int = 30  # P
    result_bits: int = 20  # F

    def __post_init__(self) -> None:
        if self.n < 0:
            raise InvalidParameter(f"n must be at least 0, got {self.n}")
        if not 1 <= self.n_sines <= MOST_SINES:
            raise InvalidParameter(f"n_sines must be between 1 and {MOST_SINES}, got {self.n_sines}")
        if self.times < 1 or self.period_bits < 0:
            raise InvalidParameter(
                f"times must be at least 1 and period_bits at least 0, got {self.times} and {self.period_bits}"
            )
        if self.fraction_bits < 0 or not 2 <= self.angle_bits <= _ANGLE_BITS:
            raise InvalidParameter(
                f"fraction_bits and period_bits must be together between 2 and {_ANGLE_BITS}, "
                f"got {self.fraction_bits} and {self.period_bits}"
            )
        if not 0.0 < self.bound < self.period / 2:
            raise InvalidParameter(f"bound must be above 0 and below half the period {self.period}, got {self.bound}")
        for name in ("dealt_bits", "public_bits"):
            if not 1 <= getattr(self, name) <= _UNIT_BITS:
                raise InvalidParameter(f"{name} must be between 1 and {_UNIT_BITS}, got {getattr(self, name)}")
        if not 1 <= self.result_bits <= self.dealt_bits + self.public_bits:
            raise InvalidParameter(
                f"result_bits must be between 1 and dealt_bits + public_bits = {self.dealt_bits + self.public_bits}, "
                f"got {self.result_bits}"
            )
        if self.reach > _LARGEST_REACH:
            raise InvalidParameter(
                f"{self.n_sines} sines of period {self.period} have more freedom than |x| <= {self.bound} takes: their "
                f"coefficients add up to {self.reach:.3g}; use fewer sines, a larger bound or a shorter period"
            )

    @property
    def period(self) -> float:
        """Of the series, in units of x."""
        return math.ldexp(1.0, self.period_bits) / self.times

    @property
    def angle_bits(self) -> int:
        """A turn has 2**angle_bits units."""
        return self.fraction_bits + self.period_bits

    @property
    def cut_bits(self) -> int:
        """Bits that are cut off the sum; 0: no truncation."""
        return self.dealt_bits + self.public_bits - self.result_bits

    @property
    def rounds(self) -> int:
        """Rounds of `sigmoid`."""
        return 2 if self.cut_bits else 1

    @property
    def opened_bytes(self) -> int:
        """Bytes that each party sends to each other."""
        return self.n * (SUM32.number_bytes + (SUM64.number_bytes if self.cut_bits else 0))

    @property
    def coefficients(self) -> Ints:
        """b_k in units of 2**-30, for k = 1 .. n_sines."""
        return _coefficients(self.n_sines, Fraction(self.bound), Fraction(1 << self.period_bits, self.times))

    @property
    def reach(self) -> float:
        """How far any result is from 1/2 at most, whatever x is: the sum of |b_k|, and the errors 2. and 3."""
        return math.ldexp(int(np.abs(self.coefficients).sum()), -_UNIT_BITS) + self._rounding

    @property
    def error(self) -> float:
        """What the result is off by at most, for |x| <= bound."""
        key = (self.n_sines, Fraction(self.bound), Fraction(1 << self.period_bits, self.times))
        return _series_error(*key) + self._rounding

    def series(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """1/2 + sum of b_k sin(k w x), in floats: what is computed, but for the errors 2. and 3."""
        return _series(self.coefficients, self.period, x)

    def blocks(self) -> Iterator[slice]:
        """The rows whose sines are dealt together."""
        for start in range(0, self.n, BLOCK):
            yield slice(start, min(start + BLOCK, self.n))

    @property
    def _rounding(self) -> float:
        """The errors 2. and 3."""
        b = np.ldexp(np.abs(self.coefficients).astype(np.float64), -_UNIT_BITS)
        k = np.arange(1, self.n_sines + 1)
        sines = float((b * (6.0 * k * 2.0**-_UNIT_BITS + 2.0**-self.dealt_bits)).sum())
        cut = 2.0**-self.result_bits if self.cut_bits else 0.0
        return (sines + self.n_sines * 2.0**-self.public_bits + cut) * (1.0 + 2.0**-20)


def deal_sigmoid(step: DealerStep, plan: Sigmoid) -> None:
    """A mask r for each number (nothing is sent), n_sines sines and cosines of it, and what the truncation needs."""
    r = step.mask(plan.n, SUM32)
    tables = _tables(plan.angle_bits)
    for rows in plan.blocks():
        dealt = np.empty((rows.stop - rows.start, plan.n_sines, 2), np.uint64)
        _turn(r[rows], tables.coarse, tables.fine, _UNIT_BITS - plan.dealt_bits, dealt)
        step.share(dealt, SUM64)
    if plan.cut_bits:
        deal_truncation(step, plan.n, SUM64, plan.cut_bits)


def sigmoid(step: HandStep, x: Share, plan: Sigmoid, *, is_first: bool) -> Talk[Share]:
    """[sigma(x)] in units of 2**-F from [x] in units of 2**-f, both modulo 2**64, for |x| <= bound.

    1. Dealt: [r] modulo 2**32; [cos(k w r)] and [sin(k w r)] modulo 2**64 in units of 2**-S, for k = 1 .. n_sines.
    2. Everybody sends times [x] - [r] modulo 2**32: one word of 4 bytes per number, one round. Opened: c.
    3. Everybody computes b_k cos(k w c) and b_k sin(k w c) as whole numbers in units of 2**-P, and
       [y] = sum over k of b_k cos(k w c) [sin(k w r)] + b_k sin(k w c) [cos(k w r)]; the first adds 2**(S+P) / 2.
    4. [y] is truncated to units of 2**-F (`truncation.truncated`): one more round, 8 bytes per number.
    """
    if x.kind != SUM64 or x.shape != (plan.n,):
        raise InvalidType(f"x must be shares of kind sum64 and shape ({plan.n},), got {x!r}")
    lowest = (x.words * np.uint64(plan.times)).astype(np.uint32)
    c = yield from opened(masked("sigmoid", Share(lowest, SUM32), step.mask(plan.n, SUM32)))
    tables = _tables(plan.angle_bits)
    y = np.empty(plan.n, np.uint64)
    half = 1 << (plan.dealt_bits + plan.public_bits - 1) if is_first else 0
    for rows in plan.blocks():
        dealt = step.share((rows.stop - rows.start, plan.n_sines, 2), SUM64).words
        shift = 2 * _UNIT_BITS - plan.public_bits
        _add_up(c[rows], tables.coarse, tables.fine, plan.coefficients, shift, half, dealt, y[rows])
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
def _turn(angles: npt.NDArray[np.uint32], coarse: Ints, fine: Ints, shift: int, out: Words) -> None:
    """cos and sin of 1, 2, ... times the angles. Out: `out` [rows, sines, 2], in units of 2**(shift - 30)."""
    half = (1 << shift) >> 1
    for i in range(len(angles)):
        low = np.int64(angles[i]) % len(fine)
        high = np.int64(angles[i]) // len(fine) % len(coarse)
        x1, y1 = _product(coarse[high, 0], coarse[high, 1], fine[low, 0], fine[low, 1])
        x, y = x1, y1
        for k in range(out.shape[1]):
            out[i, k, 0] = np.uint64((x + half) >> shift)
            out[i, k, 1] = np.uint64((y + half) >> shift)
            x, y = _product(x, y, x1, y1)


@kernel
def _add_up(
    angles: npt.NDArray[np.uint32],
    coarse: Ints,
    fine: Ints,
    coefficients: Ints,
    shift: int,
    first: int,
    dealt: Words,
    out: Words,
) -> None:
    """Step 3 of `sigmoid`: `out` [rows] from `dealt` [rows, sines, 2] = cos, sin of the masks; `first` is added."""
    half = (1 << shift) >> 1
    for i in range(len(angles)):
        low = np.int64(angles[i]) % len(fine)
        high = np.int64(angles[i]) // len(fine) % len(coarse)
        x1, y1 = _product(coarse[high, 0], coarse[high, 1], fine[low, 0], fine[low, 1])
        x, y = x1, y1
        total = np.uint64(first)
        for k in range(len(coefficients)):
            total += np.uint64((coefficients[k] * x + half) >> shift) * dealt[i, k, 1]
            total += np.uint64((coefficients[k] * y + half) >> shift) * dealt[i, k, 0]
            x, y = _product(x, y, x1, y1)
        out[i] = total


# --- tables and coefficients, the same on every machine --------------------------------------------------------------


class _Tables(NamedTuple):
    """cos and sin in units of 2**-30: of whole multiples of 2**-h turns, and of 2**-(f+p) turns within one of them."""

    coarse: Ints
    fine: Ints


@lru_cache(maxsize=8)
def _tables(angle_bits: int) -> _Tables:
    high = (angle_bits + 1) // 2
    return _Tables(
        _rounded(_turns(Fraction(1, 1 << high), 1 << high)),
        _rounded(_turns(Fraction(1, 1 << angle_bits), 1 << (angle_bits - high))),
    )


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
    angle = 2 * _pi(bits) * turn.numerator // turn.denominator
    parts = [0, 0, 0, 0]
    term, k = 1 << bits, 0
    while term:
        parts[k % 4] += term
        k += 1
        term = (term * angle >> bits) // k
    return (parts[0] - parts[2]) >> 64, (parts[1] - parts[3]) >> 64


def _pi(bits: int) -> int:
    """pi in units of 2**-bits, by Machin's 16 arctan(1/5) - 4 arctan(1/239), with 32 bits more on the way."""

    def arctan_of_inverse(n: int) -> int:
        term = (1 << (bits + 32)) // n
        total, k = term, 1
        while term:
            term //= n * n
            total += (-term if k % 2 else term) // (2 * k + 1)
            k += 1
        return total

    return (16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)) >> 32


@lru_cache(maxsize=32)
def _coefficients(n_sines: int, bound: Fraction, period: Fraction) -> Ints:
    """b_k in units of 2**-30: the weighted least squares of the text above, by elimination in decimal arithmetic.

    The points are the middles of equal steps, (j + 1/2) bound / _POINTS, so k times their angle is k (2 j + 1) times
    that of half a step.
    """
    with decimal.localcontext(_context()):
        unit = decimal.Decimal(1 << _FINE_BITS)
        turns = _turns(bound / (2 * _POINTS) / period, n_sines * 2 * _POINTS)
        sines = [[turns[k * (2 * j + 1)][1] / unit for j in range(_POINTS)] for k in range(1, n_sines + 1)]
        places = [decimal.Decimal(2 * j + 1) / (2 * _POINTS) for j in range(_POINTS)]
        weights = [1 / (1 - place * place).sqrt() for place in places]
        whole = decimal.Decimal(bound.numerator) / bound.denominator
        target = [1 / (1 + (-whole * place).exp()) - decimal.Decimal("0.5") for place in places]
        weighted = [[w * s for w, s in zip(weights, row, strict=True)] for row in sines]
        rows = [[_dot(left, right) for right in [*sines, target]] for left in weighted]
        solution = _solved(rows)
        found = [int((b * (1 << _UNIT_BITS)).to_integral_value()) for b in solution]
    if max(map(abs, found)) >= 1 << 32:
        raise InvalidParameter(
            f"{n_sines} sines of period {float(period)} have more freedom than |x| <= {float(bound)} takes: use fewer "
            "sines, a larger bound or a shorter period"
        )
    coefficients = np.array(found, np.int64)
    coefficients.flags.writeable = False
    return coefficients


def _dot(x: list[decimal.Decimal], y: list[decimal.Decimal]) -> decimal.Decimal:
    return sum((a * b for a, b in zip(x, y, strict=True)), decimal.Decimal(0))


def _solved(rows: list[list[decimal.Decimal]]) -> list[decimal.Decimal]:
    """The solution of A b = y from rows [A, y], A positive definite: elimination needs no exchange of rows."""
    n = len(rows)
    for i in range(n):
        for below in rows[i + 1 :]:
            factor = below[i] / rows[i][i]
            for j in range(i, n + 1):
                below[j] -= factor * rows[i][j]
    solution = [decimal.Decimal(0)] * n
    for i in reversed(range(n)):
        solution[i] = (rows[i][n] - _dot(rows[i][i + 1 : n], solution[i + 1 :])) / rows[i][i]
    return solution


def _context() -> decimal.Context:
    """A context of our own: whoever calls may have changed the thread's."""
    return decimal.Context(
        prec=_DIGITS,
        rounding=decimal.ROUND_HALF_EVEN,
        Emax=decimal.MAX_EMAX,
        Emin=decimal.MIN_EMIN,
        traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
    )


@lru_cache(maxsize=32)
def _series_error(n_sines: int, bound: Fraction, period: Fraction) -> float:
    """Error 1., in floats, whose own errors are below the 1e-12 that is added."""
    coefficients = _coefficients(n_sines, bound, period)
    n = math.ceil(float(bound) / _CHECK_STEP)
    x = np.linspace(0.0, float(bound), n + 1)  # the error is odd
    at_points = float(np.abs(_series(coefficients, float(period), x) - 1.0 / (1.0 + np.exp(-x))).max())
    w = 2.0 * math.pi * np.arange(1, n_sines + 1) / float(period)
    bend = float((np.ldexp(np.abs(coefficients).astype(np.float64), -_UNIT_BITS) * w * w).sum()) + _LARGEST_BEND
    return at_points + _CHECK_STEP**2 / 8.0 * bend + 1e-12


def _series(coefficients: Ints, period: float, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    total = np.full(x.shape, 0.5)
    for k, b in enumerate(coefficients.tolist(), 1):
        total += math.ldexp(b, -_UNIT_BITS) * np.sin(2.0 * math.pi * k / period * x)
    return total
