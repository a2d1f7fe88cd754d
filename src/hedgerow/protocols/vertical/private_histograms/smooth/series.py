"""The logistic function of shared scores and its slope: one opening, sines that were dealt, and nothing else.

    p(x) = 1 / (1 + e^-x)     =  1/2 + sum of q_k sin(k w x)               k = 1, 3, 5, ..., w = 2 pi / period
    p(x) (1 - p(x))           =  sum of k w q_k cos(k w x)

    opened   c = x - r                              the mask r is used for x alone
    dealt    [cos(k w r)], [sin(k w r)]             the dealer knows r
    hence    sin(k w x) = sin(k w c) cos(k w r) + cos(k w c) sin(k w r)         public numbers times dealt ones: local
             cos(k w x) = cos(k w c) cos(k w r) - sin(k w c) sin(k w r)

`crypto.sigmoid` does the same to 20 bits with 64-bit words and a truncation, for scores that are known to be small.
Here noise is added to sums of gradients, so a few bits do: words have 32 bits, nothing is truncated, one round is
enough.

**Bounded, whatever the score is.** Everything is periodic. What a row adds to a sum is, for every x whatsoever, within
`largest_gradient`: the largest value of the series over a whole period, and what rounding can add. So nothing that is
private rests on scores being small. Beyond period / 2 - 4, about 17, gradients are wrong, which would harm the model
alone; in all trials scores stayed within 14.

**Series.** Fourier coefficients of a function that is periodic: p - 1/2 up to a quarter of the period, and then back as
it came, so that only odd multiples occur. It is off by 0.001 at most. Coefficients are whole numbers in units of
2**-24, and sines of a turn are a table that is made of whole numbers too: all parties have the same ones.

**Rounding.** Dealt sines have S bits, public ones P, and results S + P. With |X - cos| <= 2^-S / 2 for what was dealt
and |U - u| <= 2^-P / 2 for the public factors of one k, the sum of both products is off by at most
2^-P / 2 (|X| + |Y|) + 2^-S / 2 (|u| + |v|) <= 2^-P (sqrt 1/2 + 2^-S / 2) + 2^-S sqrt 1/2 |(u, v)|. Errors go with r and
c, which are uniform, so they have no mean worth mentioning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import kernel
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.shares import SUM32, Array, Share, Talk, blocks_of, masked, opened
from hedgerow.crypto.sigmoid import turn_table
from hedgerow.engine.dtypes import Floats

SCORE_BITS = 16
"""Scores are in units of 2**-SCORE_BITS."""
N_SINES = 7
"""Multiples of the angle: 1, 3, 5, ..."""
TIMES = 3
PERIOD_BITS = 7
PERIOD = 2.0**PERIOD_BITS / TIMES
COEFFICIENT_BITS = 24
FINEST, COARSEST = 18, 10
"""Bits of gradients."""
DEALT_ROWS = 1 << 18
"""Rows whose sines are dealt in one message."""

_BLOCK = 4096  # rows whose sines are in memory at a time; dealer and parties must agree on it
_ANGLE_BITS = 16  # of the table of sines
_UNIT_BITS = 30  # of its entries
_SHIFT = SCORE_BITS + PERIOD_BITS - _ANGLE_BITS  # bits of an angle that are not looked at
_POINTS = 1 << 14
_MULTIPLES = 2 * np.arange(N_SINES) + 1


class Precision(NamedTuple):
    """Bits of dealt and of public sines."""

    dealt: int
    public: int

    @property
    def bits(self) -> int:
        """Results are in units of 2**-bits."""
        return self.dealt + self.public

    @classmethod
    def of(cls, bits: int) -> Precision:
        """Public ones get more: the errors of all of them add up."""
        dealt = (bits - 4) // 2
        return cls(dealt, bits - dealt)


@dataclass(frozen=True)
class Series:
    """constant + sum of q_k sin(k w x) + sum of e_k cos(k w x) for odd k, in units of 2**-COEFFICIENT_BITS."""

    sines: tuple[int, ...] = (0,) * N_SINES
    cosines: tuple[int, ...] = (0,) * N_SINES
    constant: int = 0

    @property
    def coefficients(self) -> npt.NDArray[np.int64]:
        """[2, multiples]."""
        return np.array([self.sines, self.cosines], np.int64)

    @property
    def _real(self) -> Floats:
        return np.ldexp(self.coefficients.astype(np.float64), -COEFFICIENT_BITS)

    def values(self, x: Any) -> Floats:
        """For scores x, in floats."""
        angles = 2.0 * np.pi / PERIOD * np.outer(_MULTIPLES, x)
        found: Floats = self._real[0] @ np.sin(angles) + self._real[1] @ np.cos(angles)
        return found + math.ldexp(self.constant, -COEFFICIENT_BITS)

    def error(self, precision: Precision) -> float:
        """What rounding adds at most to a value, for every score."""
        size = float(np.abs(self._real).sum())
        public = N_SINES * 2.0**-precision.public * (math.sqrt(0.5) + 0.5 * 2.0**-precision.dealt)
        dealt = 2.0**-precision.dealt * math.sqrt(0.5) * size
        return public + dealt + 2.0**-precision.bits + 1e-7  # constants are rounded, and entries of the table

    def reach(self, centre: float, precision: Precision) -> float:
        """How far a value is from `centre` at most, for any score: at points, between them, and by rounding."""
        at_points = float(np.abs(self.values(np.arange(_POINTS) * (PERIOD / _POINTS)) - centre).max())
        bend = float((np.abs(self._real).sum(axis=0) * _MULTIPLES**2).sum())
        return at_points + (2.0 * np.pi / _POINTS) ** 2 / 8.0 * bend + self.error(precision)


LOGISTIC = Series(
    (10_309_078, 2_630_468, 987_551, 388_198, 153_731, 60_899, 24_165), constant=1 << (COEFFICIENT_BITS - 1)
)
SLOPE = Series(cosines=(1_518_137, 1_162_105, 727_145, 400_168, 203_749, 98_650, 46_261))


@lru_cache(maxsize=16)
def largest_gradient(precision: Precision) -> int:
    """No y - p is larger without its sign, whatever the score is: in units of 2**-bits, rounded up."""
    return math.ceil((0.5 + LOGISTIC.reach(0.5, precision)) * 2.0**precision.bits) + 1


@lru_cache(maxsize=16)
def largest_slope(precision: Precision) -> int:
    """No slope is larger without its sign."""
    return math.ceil(SLOPE.reach(0.0, precision) * 2.0**precision.bits) + 1


# --- dealt and computed --------------------------------------------------------------------------------------------


def deal_sines(step: DealerStep, n_rows: int, precision: Precision) -> None:
    """A mask r for each row of a parcel (nothing is sent), and its sines and cosines."""
    r = step.mask(n_rows, SUM32)
    for rows in blocks_of(n_rows, _BLOCK):
        dealt = np.empty((rows.stop - rows.start, N_SINES, 2), np.uint32)
        _turn(r[rows], _table(), _UNIT_BITS - precision.dealt, dealt)
        step.share(dealt, SUM32)


def values_of(
    step: HandStep, scores: Array, precision: Precision, *series: Series, is_first: bool
) -> Talk[list[Array]]:
    """Shares of series at a parcel's rows, in units of 2**-bits, from shares of scores modulo 2**32.

    Angles are opened, one word of 4 bytes each, one round; all else is local.
    """
    angles = Share(scores * np.uint32(TIMES), SUM32)
    c = yield from opened(masked("angles", angles, step.mask(len(scores), SUM32)))
    found = [np.empty(len(c), np.uint32) for _ in series]
    shift, cut = COEFFICIENT_BITS + _UNIT_BITS - precision.public, COEFFICIENT_BITS - precision.bits
    for rows in blocks_of(len(c), _BLOCK):
        dealt = step.share((rows.stop - rows.start, N_SINES, 2), SUM32).words
        for each, out in zip(series, found, strict=True):
            _add_up(c[rows], _table(), each.coefficients, shift, dealt, out[rows])
            if is_first:
                out[rows] += np.uint32((each.constant + (1 << cut >> 1)) >> cut)
    return found


@lru_cache(maxsize=1)
def _table() -> npt.NDArray[np.int32]:
    """cos and sin of all angles, in units of 2**-30."""
    table = turn_table(_ANGLE_BITS).astype(np.int32)
    table.flags.writeable = False
    return table


@kernel
def _turn(angles: Array, table: Array, shift: int, out: Array) -> None:
    """Cosines and sines of 1, 3, 5, ... times the angles. Out: [rows, sines, 2], in units of 2**(shift - 30)."""
    half = (1 << shift) >> 1
    last = len(table) - 1
    for i in range(len(angles)):
        angle = np.int64(angles[i]) >> _SHIFT
        at = -angle
        for k in range(out.shape[1]):
            at = (at + 2 * angle) & last
            out[i, k, 0] = np.uint32((table[at, 0] + half) >> shift)
            out[i, k, 1] = np.uint32((table[at, 1] + half) >> shift)


@kernel
def _add_up(angles: Array, table: Array, coefficients: Array, shift: int, dealt: Array, out: Array) -> None:
    """`out` [rows] from `dealt` [rows, sines, 2] = cos, sin of the masks; all but the constant."""
    half = np.int64(1) << (shift - 1)
    last = len(table) - 1
    for i in range(len(angles)):
        angle = np.int64(angles[i]) >> _SHIFT
        at = -angle
        total = np.uint32(0)
        for k in range(dealt.shape[1]):
            at = (at + 2 * angle) & last
            cos, sin = np.int64(table[at, 0]), np.int64(table[at, 1])
            q, e = coefficients[0, k], coefficients[1, k]
            total += np.uint32((q * sin + e * cos + half) >> shift) * dealt[i, k, 0]
            total += np.uint32((q * cos - e * sin + half) >> shift) * dealt[i, k, 1]
        out[i] = total
