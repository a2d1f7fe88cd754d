"""Quotients c / d of shared numbers by Newton's method, for denominators between public bounds (MP-FedXGB, appendix B).

    x <- x (2 - d x)            takes 1 - d x to its square: two products per turn, and one for c x at last

It is the baseline that the paper's comparisons without division are measured against. Shares are uniform, so their
sizes tell nothing about d, and the start can only come from the bounds low <= d <= high. In integers, with y = x 2**B:

    start     y = truncated(L (low + high - d), Z)         L = round(2**(B+Z) 8 / (high^2 + 6 high low + low^2))
    turn      t = truncated(2**(B+1) - d y, B - P)         2 - d x, with P bits after the point
              y = truncated(y t, P)
    last      truncated(c y, B - F)                        c / d, with F bits after the point

The start is a straight line in d and takes no product. It is the line for which the largest |1 - d x| is the least:
1 - d x = T(z) / T(z_0) with Chebyshev's T(z) = 2 z^2 - 1, z = (high + low - 2 d) / (high - low), z_0 that of d = 0.

**Turns.** Let e = 1 - d x. On the line |e| <= 1 - 8 low high / (high^2 + 6 high low + low^2). With B = P + bits(high)
and Z = bits(high), each truncation being wrong by less than one:

    start     |e| <= 1 - 8 low high / (...) + 2 / 2**P
    turn      |e'| <= e^2 + (1 + |e|) / 2**P + 1 / 2**P

While |e| is near 1 its distance from 1 doubles with each turn (log2(high / low) - 3 turns), then correct bits double.
P = max(precision_bits, bits(high / low)) + 3, so that rounding does not stop the first and ends the second below
2**-precision_bits. `Division.error_after` walks along these bounds in whole numbers; `Division.of` takes as many turns
as bring them there.

**Error of a quotient.** At most |c / d| relative_error + 2**-F, with relative_error <= 2**-precision_bits unless the
plan was made by hand with fewer turns.

**Range.** The largest numbers that are truncated are L high <= 2**(B+Z+3) / high, y t <= 2**(B+P) / low + y, and
|c| y, with y <= (1 + |e|) 2**B / d. The plan asks that all be at most 2**(k-2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hedgerow.crypto.beaver import Triple, product
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.lifting import bits_of, cut, deal_truncation, hidden, truncated
from hedgerow.crypto.rounds import Talk, masked
from hedgerow.crypto.shares import Array, Kind, Share
from hedgerow.errors import InvalidParameter, InvalidType

PAPER_ITERATIONS = 20
"""What the paper's authors found to be the least on a small example: 41 products per quotient."""

_GUARD_BITS = 3


@dataclass(frozen=True, slots=True)
class Division:
    """How n quotients are computed; all of it is public. `Division.of` chooses the number of turns."""

    n: int
    kind: Kind  # limbs
    low: int  # 1 <= low <= every denominator
    high: int  # >= every denominator
    largest_numerator: int  # of |c|
    fraction_bits: int  # F
    precision_bits: int
    n_iterations: int

    def __post_init__(self) -> None:
        for name in ("n", "low", "largest_numerator", "fraction_bits", "precision_bits", "n_iterations"):
            if getattr(self, name) < 1:
                raise InvalidParameter(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.high < self.low:
            raise InvalidParameter(f"high must be at least low = {self.low:,}, got {self.high:,}")
        if self.fraction_bits >= self.point:
            raise InvalidParameter(f"fraction_bits must be below {self.point}, got {self.fraction_bits}")
        if not self.kind.limbs:
            raise InvalidParameter(f"kind must be limbs, got {self.kind}")
        if bits_of(self.kind) < self.needed_bits:
            raise InvalidParameter(
                f"kind {self.kind} has {bits_of(self.kind)} bits, and quotients of numbers up to "
                f"{self.largest_numerator:,} by numbers from {self.low:,} to {self.high:,} with precision_bits="
                f"{self.precision_bits} need {self.needed_bits}: use a wider kind or fewer precision_bits"
            )

    @classmethod
    def of(
        cls,
        n: int,
        kind: Kind,
        *,
        low: int,
        high: int,
        largest_numerator: int,
        fraction_bits: int = 20,
        precision_bits: int = 30,
        least_iterations: int = 1,
    ) -> Division:
        """The plan with as many turns as the bounds ask for, but no fewer than `least_iterations`."""
        one = cls(n, kind, low, high, largest_numerator, fraction_bits, precision_bits, max(1, least_iterations))
        turns = one.n_iterations
        while one.error_after(turns) > one.one >> precision_bits:
            turns += 1
        return cls(n, kind, low, high, largest_numerator, fraction_bits, precision_bits, turns)

    @property
    def rounding_bits(self) -> int:
        """P."""
        return max(self.precision_bits, (self.high // self.low).bit_length()) + _GUARD_BITS

    @property
    def point(self) -> int:
        """B: bits after the point of reciprocals."""
        return self.rounding_bits + self.high.bit_length()

    @property
    def one(self) -> int:
        """1 on the scale of `error_after`."""
        return 1 << (2 * self.rounding_bits + 16)

    @property
    def relative_error(self) -> float:
        """What |1 - d x| does not exceed in the end."""
        return self.error_after(self.n_iterations) / self.one

    @property
    def line(self) -> int:
        """L."""
        low, high = self.low, self.high
        return _rounded(8 << (self.point + high.bit_length()), high**2 + 6 * high * low + low**2)

    @property
    def needed_bits(self) -> int:
        """Bits of the ring that holds every number which is truncated."""
        reciprocal = (2 << self.point) // self.low + 2
        largest = max(
            self.line * self.high,
            2 << self.point,
            (1 << (self.point + self.rounding_bits)) // self.low + 2 * reciprocal,
            self.largest_numerator * reciprocal,
        )
        return (largest - 1).bit_length() + 2

    def error_after(self, n_iterations: int) -> int:
        """The bound of |1 - d x| after this many turns, times `one`, rounded up."""
        low, high, one = self.low, self.high, self.one
        unit = one >> self.rounding_bits
        error = one - one * 8 * low * high // (high**2 + 6 * high * low + low**2) + 2 * unit
        for _ in range(n_iterations):
            error = error * error // one + (error >> self.rounding_bits) + 2 + 2 * unit
        return error


def deal_quotients(steps: Callable[[int], DealerStep], plan: Division) -> None:
    """All that `quotients` draws, in its steps. Per quotient and turn six numbers are sent, two of them products."""
    n, kind, P = plan.n, plan.kind, plan.rounding_bits
    step = steps(0)
    a = step.mask(n, kind)
    deal_truncation(step, n, kind, plan.high.bit_length())
    for turn in range(1, plan.n_iterations + 1):
        step = steps(turn)
        b = step.mask(n, kind)
        _deal_times(step, a, b, kind)
        deal_truncation(step, n, kind, plan.point - P)
        _deal_times(step, b, step.mask(n, kind), kind)
        deal_truncation(step, n, kind, P)
    step = steps(plan.n_iterations + 1)
    _deal_times(step, step.mask(n, kind), step.mask(n, kind), kind)
    deal_truncation(step, n, kind, plan.point - plan.fraction_bits)


def quotients(
    steps: Callable[[int], HandStep], numerators: Share, denominators: Share, plan: Division, *, is_first: bool
) -> Talk[Share]:
    """[c / d 2**F] from [c] and [d], both modulo 2**k.

    1. Dealt: in steps(0) the mask [A] of d; in steps(i), i = 1 ... n, masks [b] of y and [m] of t, and [A b], [b m]; in
       steps(n + 1) masks of c and y and their product; with each truncation what it needs.
    2. Everybody sends [d] - [A], and [L (low + high - d)] for its truncation, in one round. Opened once: d - A.
    3. In each turn, four rounds: [y] - [b], whence [d y]; [2**(B+1) - d y] for its truncation to [t]; [t] - [m], whence
       [y t] (y - b is open already); [y t] for its truncation to the next [y].
    4. At last [c] and [y] under their masks, and [c y] for its truncation: two rounds.
    """
    n, kind, P = plan.n, plan.kind, plan.rounding_bits
    if any(share.kind != kind or share.shape != (n,) for share in (numerators, denominators)):
        raise InvalidType(f"numerators and denominators must be {n} shares of kind {kind}")
    c, d = numerators, denominators
    step = steps(0)
    a = step.mask(n, kind)
    line = (-d).plus(kind.constant(plan.low + plan.high), is_first=is_first).times(kind.constant(plan.line))
    e, start = yield [
        masked("denominator", d, a),
        hidden(step, line, "truncation", is_first=is_first),
    ]
    y = cut(step, start, kind, plan.high.bit_length()).quotient(is_first=is_first)
    for turn in range(1, plan.n_iterations + 1):
        step = steps(turn)
        b = step.mask(n, kind)
        (f,) = yield [masked("reciprocal", y, b)]
        dy = product(e, f, Triple(a, b, step.share(n, kind)), is_first=is_first)
        two_minus = (-dy).plus(kind.constant(2 << plan.point), is_first=is_first)
        t = yield from truncated(step, two_minus, plan.point - P, is_first=is_first)
        m = step.mask(n, kind)
        (g,) = yield [masked("factor", t, m)]
        yt = product(f, g, Triple(b, m, step.share(n, kind)), is_first=is_first)
        y = yield from truncated(step, yt, P, is_first=is_first)
    step = steps(plan.n_iterations + 1)
    a, b = step.mask(n, kind), step.mask(n, kind)
    e, f = yield [masked("numerator", c, a), masked("reciprocal", y, b)]
    cy = product(e, f, Triple(a, b, step.share(n, kind)), is_first=is_first)
    return (yield from truncated(step, cy, plan.point - plan.fraction_bits, is_first=is_first))


def _deal_times(step: DealerStep, a: Array, b: Array, kind: Kind) -> None:
    """The product of two masks: one number each."""
    step.share(kind.mul(a, b), kind)


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)
