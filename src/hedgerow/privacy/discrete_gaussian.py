"""Whole numbers k with probability proportional to exp(-k^2 / (2 sigma^2)): many at once, from secret random bytes.

Floating-point noise has gaps and repetitions that give secrets away (Mironov 2012). Here no float is ever drawn, and
each number is within statistical distance 2^-140 of the distribution above. In two steps:

Table, for sigma <= 1024. The distribution is cut at |k| <= m = ceil(17 sigma), which drops at most 2 Q(17) < 2^-208 of
it (the sum beyond m is at most sigma sqrt(2 pi) Q(m / sigma) on each side, the normaliser at least sigma sqrt(2 pi)).
Weights are computed as integers in units of 2^-320: exp(-(k+1)^2/2v) = exp(-k^2/2v) r^(2k+1) with r = exp(-1/2v), all
factors <= 1, each product rounded down, so the error after k steps is below 2 (k+1)^2 2^-320 <= 2^-290. Their prefix
sums, scaled to 2^192 and rounded down, are the thresholds T_k, and the number drawn is how many T_k are <= U, for U
uniform over 192 bits. Rounding moves each probability by at most 2^-192 + 2^-270; over the at most 34,817 values that
is a statistical distance below 2^-176.

Convolution, for larger sigma. X = X1 + 192 X2 with X1 of scale 512 and X2 of variance (sigma^2 - 512^2) / 192^2, itself
drawn by one of the two steps. For sigma > 1024, w = 512^2 (1 - 512^2/sigma^2) / 192^2 > 5.33, so by (2)
below the log ratio to the wanted distribution, and with it the distance, is at most 4 theta(5.33) < 2^-148.

A scale up to 2^48 needs at most 7 tables, so the distance is below 7 (2^-176 + 2^-208) + 6 * 2^-148 < 2^-140.

Only the upper 64 bits of U are drawn at first. They settle the outcome unless some threshold has the same upper 64,
which happens about once in 2^49 draws; then 128 more are drawn.
Time is not constant: that a value needed a search, not which, can be seen by whoever can time single values.

How near sums over a lattice are to integrals: the one lemma behind discrete noise, with its numbers.

Write N(x; v) for the density of a Gaussian of variance v at x. Poisson summation gives, for every real c,

    sum over whole k of N(k - c; v)  =  1 + 2 sum_{m >= 1} exp(-2 pi^2 v m^2) cos(2 pi m c)                         (1)

so the left side is within 1 -+ theta(v), theta(v) = 2 sum_{m >= 1} exp(-2 pi^2 v m^2). The discrete Gaussian of
variance parameter v has P(k) = N(k; v) / Z(v), with 1 <= Z(v) <= 1 + theta(v). Three facts follow, each about the
largest |log(P(k) / Q(k))| over ALL whole k, tails included ("log ratio"). Log ratios survive any later processing, and
those of independent coordinates and of successive steps add up.

(2) Sum. X1, X2 independent discrete Gaussians of v1, v2 and a whole number s >= 1. Completing the square,
N(x - s j; v1) N(j; v2) = N(x; v) N(j - c_x; w) with v = v1 + s^2 v2 and w = v1 v2 / v, so by (1)
P(X1 + s X2 = x) = N(x; v) (1 -+ theta(w)) / (Z(v1) Z(v2)). As w < v1, v2, v, the log ratio to the discrete Gaussian of
v is at most -log(1 - theta(w)) + 2 log(1 + theta(w)) <= 4 theta(w), whenever theta(w) <= 1/4.

(3) Several parties. Adding up n discrete Gaussians of v one by one, step k has w = v k / (k + 1): the log ratio of
their sum to ONE discrete Gaussian of n v is at most 4 sum_{k=1}^{n-1} theta(v k / (k + 1)). This is the tau of Kairouz,
Liu and Steinke, "The Distributed Discrete Gaussian Mechanism" (2021), with other constants.

(4) Real noise inside discrete noise. Add real Gaussian noise of variance v - e to a whole number x, giving t; then
output k with probability N(k - t; e) / W(t), where W(t) is the sum (1), within 1 -+ theta(e). The result has
P(k) = integral of N(t - x; v - e) N(k - t; e) / W(t) dt = N(k - x; v) / (1 -+ theta(e)): the log ratio to the discrete
Gaussian of v around x is at most 4 theta(e). So discrete noise of variance v is, up to that ratio, a post-processing of
the REAL Gaussian mechanism of variance v - e, and inherits its whole privacy curve, not just its zCDP.
"""

from __future__ import annotations

import decimal
import math
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hedgerow.errors import InvalidParameter

Ints = npt.NDArray[np.int64]

DISTANCE = 2.0**-140
"""Statistical distance of one sample to its distribution: a bound, proved above."""

MAX_SIGMA = 2.0**48
_TABLE_SIGMA = 1024
_FINE_SIGMA = 512
_STEP = 192
_REACH = 17
_WEIGHT_BITS = 320
_THRESHOLD_BITS = 192
_LOWER_BITS = _THRESHOLD_BITS - 64
_GUIDE_BITS = 16
_CHUNK = 1 << 16
"""Samples per round: the intermediate arrays stay in the second-level cache."""


class RandomBytes(Protocol):
    """A source of secret randomness: `crypto.csprng.SecureRandom`, or for tests a seeded generator of numpy."""

    def bytes(self, length: int, /) -> bytes:
        """`length` fresh random bytes."""


def sample(sigma: float, size: int, random: RandomBytes) -> Ints:
    """`size` independent discrete Gaussians of scale `sigma`, centred on 0."""
    if not 0.0 < sigma <= MAX_SIGMA:
        raise InvalidParameter(f"sigma of a discrete Gaussian must be above 0 and at most 2^48, got {sigma!r}")
    (_, finest), *others = _parts(sigma)
    out = np.empty(size, np.int64)
    for start in range(0, size, _CHUNK):
        piece = out[start : start + _CHUNK]
        piece[:] = finest.draw(len(piece), random)
        for step, table in others:
            piece += step * table.draw(len(piece), random)
    return out


@lru_cache(maxsize=64)
def _parts(sigma: float) -> tuple[tuple[int, _Table], ...]:
    """X = sum of step * (a draw from table); the first step is 1."""
    return tuple((step, _table(variance)) for step, variance in _split(Fraction(sigma) ** 2))


def _split(variance: Fraction) -> Iterator[tuple[int, Fraction]]:
    step = 1
    while variance > _TABLE_SIGMA**2:
        yield step, Fraction(_FINE_SIGMA**2)
        variance = (variance - _FINE_SIGMA**2) / _STEP**2
        step *= _STEP
    yield step, variance


class _Table:
    """Thresholds of one small discrete Gaussian, and a guide that answers most questions in one look."""

    def __init__(self, variance: Fraction) -> None:
        weights = _weights(variance)
        self._lowest = -(len(weights) - 1)
        two_sided = weights[:0:-1] + weights
        total, running, thresholds = sum(two_sided), 0, []
        for weight in two_sided[:-1]:  # the last value takes what is left
            running += weight
            thresholds.append((running << _THRESHOLD_BITS) // total)
        # A threshold of 2^192 is never reached: weights that vanish at 320 bits, when sigma is tiny.
        self._thresholds = [threshold for threshold in thresholds if threshold >> _THRESHOLD_BITS == 0]
        self._upper = np.array([threshold >> _LOWER_BITS for threshold in self._thresholds], np.uint64)
        self._guide = self._make_guide()

    def _make_guide(self) -> Ints:
        """Per value of the first bits of U: the outcome, or one below all outcomes where they do not settle it."""
        shift = _THRESHOLD_BITS - _GUIDE_BITS
        firsts = [threshold >> shift for threshold in self._thresholds]
        cells = np.arange(1 << _GUIDE_BITS)
        up_to = np.searchsorted(np.array(firsts), cells, side="right")  # thresholds in this cell or before it
        before = np.searchsorted(np.array(firsts), cells, side="left")
        return np.where(up_to == before, up_to + self._lowest, self._lowest - 1).astype(np.int64)

    def draw(self, size: int, random: RandomBytes) -> Ints:
        """`size` independent draws."""
        upper = np.frombuffer(random.bytes(8 * size), "<u8")
        drawn: Ints = self._guide[upper >> np.uint64(64 - _GUIDE_BITS)]
        open_ = np.flatnonzero(drawn < self._lowest)
        asked = upper[open_]
        found = np.searchsorted(self._upper, asked, side="right")
        for place in np.flatnonzero(found != np.searchsorted(self._upper, asked, side="left")):
            lower = int.from_bytes(random.bytes(_LOWER_BITS // 8), "little")
            found[place] = bisect_right(self._thresholds, (int(asked[place]) << _LOWER_BITS) + lower)
        drawn[open_] = found + self._lowest
        return drawn


_table = lru_cache(maxsize=64)(_Table)


def _weights(variance: Fraction) -> list[int]:
    """exp(-k^2 / (2 variance)) for k = 0, 1, ... up to 17 sigma, in units of 2^-320, rounded down at each step."""
    m = math.isqrt(math.ceil(_REACH**2 * variance) - 1) + 1  # ceil(17 sigma): the smallest with m^2 >= 289 variance
    ratio = _exp_minus(1 / (2 * variance))
    ratio_squared = ratio * ratio >> _WEIGHT_BITS
    weight, weights = 1 << _WEIGHT_BITS, [1 << _WEIGHT_BITS]
    for _ in range(m):
        weight = weight * ratio >> _WEIGHT_BITS
        ratio = ratio * ratio_squared >> _WEIGHT_BITS
        weights.append(weight)
    return weights


def _exp_minus(x: Fraction) -> int:
    """exp(-x) in units of 2^-320, rounded down; decimal's exp is correctly rounded to the asked number of digits."""
    with decimal.localcontext() as context:
        context.prec = 130
        value = (decimal.Decimal(-x.numerator) / decimal.Decimal(x.denominator)).exp()
        return int(value * (1 << _WEIGHT_BITS))


# --- sums over a lattice ---------------------------------------------------------------------------------------------

ROUNDING_VARIANCE = 5.0625
"""The e of (4), 2.25 squared: theta(e) = 2^-143, while a noise scale of 64 or more loses less than 0.07% of itself."""


def theta(variance: float) -> float:
    """An upper bound for 2 sum_{m >= 1} exp(-2 pi^2 variance m^2), for variances of at least 1/4."""
    first = math.exp(-2.0 * math.pi**2 * variance)
    # The terms fall faster than first^m, hence the geometric series. 2^-1000 stands for what underflows; the factor
    # covers the rounding of this line.
    return max(2.0 * first / (1.0 - first) * (1.0 + 1e-9), 2.0**-1000)


def log_ratio_of_sum(sigma: float, parties: int) -> float:
    """How far the sum of `parties` discrete Gaussians of scale `sigma` is from a single one; see (3)."""
    variance = sigma * sigma
    if parties > 1 and variance / 2.0 < 0.25:
        return math.inf
    total, step = 0.0, 1
    while step < parties:
        term = 4.0 * theta(variance * step / (step + 1))
        if step >= 64:  # the terms fall with each step, so the present one bounds all that are left
            return total + term * (parties - step)
        total += term
        step += 1
    return total


def log_ratio_to_rounded_real() -> float:
    """How far discrete noise is from rounded real noise; see (4)."""
    return 4.0 * theta(ROUNDING_VARIANCE)
