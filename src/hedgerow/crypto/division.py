"""Quotients of shared numbers, by gradient descent and by Newton's method.

First: leaf weights w = -b / a by descent, with a public step that is a bit too short (MP-FedXGB, 4.4).

    w <- w - (a w + b) / (a + sigma)        a = H + lambda and b = G are shared, a + sigma is public, w begins with 0

Each turn takes the error w + b / a times q = sigma / (a + sigma). In fixed point, with W = w 2**F and the public
E = round(2**S / (a + sigma)) of each leaf:

    W <- W - truncated(E (a W + b 2**F), S)

**Rounds.** One per turn. What a truncation gives is u - T(v), u public and T(v) dealt (`lifting`). The next turn
wants a times it, and a = e + A with e opened once and the mask A known to the dealer: a T(v) = e T(v) + A T(v), all
dealt. So [a W] is kept beside [W], without any opening of W; it is exact in the ring, however large.

**Error.** Let D be W minus the true -b 2**F / a, so D = b 2**F / a at first. Let r be the rounding of E, which makes
E / 2**S = 1 / (a + sigma) + r and |r| <= 2**-(S+1), and t that of the truncation, |t| < 1. A turn gives
D' = (q - a r) D - t. The plan asks for a |r D| <= 1/2, hence |D'| <= q |D| + 3/2, and after n turns

    |D| <= q**n |b / a| 2**F + 3/2 (a + sigma) / a

The first part is at most eps 2**F after `iterations_needed` turns. With a >= lambda and sigma <= mu lambda, the second
is at most 3/2 (1 + mu): 4.5 units of 2**-F with mu = 2.

**Range.** E a <= 2**S + a / 2, so what is truncated is at most (2**S + a / 2) |D|, and |D| does not exceed what it is
at first (or the second part above). The plan asks that this be at most 2**(k-2).

**What each learns.** Nothing from here: every opened word is uniform. a + sigma is opened by who calls this, and it
gives away a but for mu lambda; that is the published protocol's leak, not this one's.


Second: quotients c / d by Newton's method, for denominators between public bounds (MP-FedXGB, appendix B).

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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.crypto import limbs
from hedgerow.crypto.beaver import Triple, product
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.lifting import bits_of, cut, deal_truncation, hidden, picked, truncated
from hedgerow.crypto.shares import Array, Kind, Share, Talk, masked
from hedgerow.errors import InvalidParameter, InvalidType

PAPER_TURNS = 80
"""Of descent, what the paper finds enough: mu = 2 and a eps / |b| = 1e-14."""
PAPER_ITERATIONS = 20
"""Of division, what the paper's authors found to be the least on a small example: 41 products per quotient."""

_GUARD_BITS = 3


@dataclass(frozen=True, slots=True)
class Descent:
    """How weights of some leaves are computed; all of it is public."""

    n: int  # leaves
    kind: Kind  # limbs
    largest_total: int  # of a + sigma
    largest_weight: int  # of |b / a|, rounded up
    fraction_bits: int = 32  # F
    max_iterations: int = PAPER_TURNS

    def __post_init__(self) -> None:
        _check_positive(self, ("n", "fraction_bits", "max_iterations", "largest_total", "largest_weight"))
        if not self.kind.limbs:
            raise InvalidParameter(f"kind must be limbs, got {self.kind}")
        if self.fraction_bits < 4:  # so that the second part of the error is no more than D may be at first
            raise InvalidParameter(f"fraction_bits must be at least 4, got {self.fraction_bits}")
        if bits_of(self.kind) < self.needed_bits:
            raise InvalidParameter(
                f"kind {self.kind} has {bits_of(self.kind)} bits, and weights up to {self.largest_weight:,} with "
                f"fraction_bits={self.fraction_bits}, step_bits={self.step_bits} and sums up to {self.largest_total:,} "
                f"need {self.needed_bits}: use a wider kind or fewer fraction_bits"
            )

    @property
    def step_bits(self) -> int:
        """S: the least with a |r D| <= 1/2, for |r| <= 2**-(S+1)."""
        return (self.largest_total * self.largest_weight - 1).bit_length() + self.fraction_bits

    @property
    def needed_bits(self) -> int:
        """Bits of the ring that holds every number which is truncated."""
        largest = ((1 << self.step_bits) + self.largest_total) * (self.largest_weight << self.fraction_bits)
        return (largest - 1).bit_length() + 2


def iterations_needed(totals: Sequence[int], mu_lambda: int, ratio: float, *, mu: float = 2.0) -> int:
    """Turns after which the error of every leaf is at most eps, if ratio <= a eps / |b| for each (appendix A).

    1. q = sigma / (a + sigma) <= mu lambda / (a + sigma) = 1 / v, because sigma <= mu lambda.
    2. q = 1 - a / (a + sigma) <= 1 - lambda / (a + sigma) = (v mu - 1) / (v mu), because a >= lambda.
    3. q**n <= ratio after ln(ratio) / ln(q) turns: the smaller of both, rounded up, at least 1; the most of all leaves.

    The bound 1 / v says nothing for v <= 1 (its logarithm is not negative then), and is left out for such leaves: taken
    as it stands, the paper's minimum would be below zero there.
    """
    if not 0 < ratio < math.inf or mu_lambda < 1 or not mu > 0:
        raise InvalidParameter(f"ratio, mu_lambda and mu must be positive, got {ratio}, {mu_lambda} and {mu}")
    # Whole numbers may have been rounded on the way here: lambda = mu_lambda / mu is right to one unit.
    if not totals or min(totals) < math.floor(mu_lambda / mu):
        raise InvalidParameter(f"totals must all be at least lambda = {mu_lambda / mu}")
    return max(_turns(total, mu_lambda, mu_lambda / mu, ratio) for total in totals)


def worst_iterations(ratio: float, *, mu: float = 2.0) -> int:
    """What `iterations_needed` never exceeds: both of its bounds meet at v = (mu + 1) / mu, where q = mu / (mu + 1)."""
    return max(1, math.ceil(math.log(ratio) / -math.log1p(1 / mu)))


def deal_descent_start(step: DealerStep, plan: Descent) -> Array:
    """The masks A of all a (nothing is sent); gives A, which every turn needs."""
    return step.mask(plan.n, plan.kind)


def deal_descent_turn(step: DealerStep, plan: Descent, a: Array) -> None:
    """Per leaf a mask r (nothing is sent), T(0) and T(1), and A times both: four numbers."""
    both = deal_truncation(step, plan.n, plan.kind, plan.step_bits)
    step.share(plan.kind.mul(np.broadcast_to(a, both.shape), both), plan.kind)


def descended(
    steps: Callable[[int], HandStep],
    a: Share,
    b: Share,
    totals: Sequence[int],
    n_iterations: int,
    plan: Descent,
    *,
    is_first: bool,
) -> Talk[Share]:
    """[w 2**F] of all leaves, w = -b / a, after n turns: n rounds; totals are the public a + sigma.

    1. Dealt: [A] in steps(0); in steps(i), i = 1 ... n, [r], [T(0)], [T(1)], [A T(0)], [A T(1)].
    2. Everybody sends [a] - [A], together with the first of step 3. Opened: e = a - A.
    3. In each turn everybody sends E ([a W] + [b] 2**F) + [r], the first adds 2**(k-2). One number per leaf and turn.
       Opened: c, hence the public u and v.
    4. [W] <- [W] + [T(v)], and the first subtracts u;  [a W] <- [a W] - u [a] + e [T(v)] + [A T(v)].
    """
    _check(a, b, totals, n_iterations, plan)
    kind = plan.kind
    step_sizes = [((2 << plan.step_bits) + total) // (2 * total) for total in totals]
    E = np.stack([limbs.constant(size, kind.limbs) for size in step_sizes])
    b_wide = b.times(limbs.constant(1 << plan.fraction_bits, kind.limbs))
    first = [masked("denominator", a, steps(0).mask(plan.n, kind))]
    w = aw = Share(np.zeros_like(a.words), kind)
    for turn in range(1, n_iterations + 1):
        step = steps(turn)
        sent = hidden(step, (aw + b_wide).times(E), "descent", is_first=is_first)
        *before, c = yield [*first, sent]
        if before:
            first, e = [], before[0]
        change = cut(step, c, kind, plan.step_bits)
        u, T = change
        AT = picked(c, step.share((2, plan.n), kind))
        w = w - change.quotient(is_first=is_first)
        aw = aw - a.times(u) + T.times(e) + AT
    return w


def _turns(total: int, mu_lambda: int, lambda_: float, ratio: float) -> int:
    if ratio >= 1 or total <= lambda_:
        return 1
    bounds = [math.log(ratio) / math.log1p(-lambda_ / total)]
    if total > mu_lambda:
        bounds.append(math.log(ratio) / math.log(mu_lambda / total))
    return max(1, math.ceil(min(bounds)))


def _check(a: Share, b: Share, totals: Sequence[int], n_iterations: int, plan: Descent) -> None:
    if any(share.kind != plan.kind or share.shape != (plan.n,) for share in (a, b)) or len(totals) != plan.n:
        raise InvalidType(f"a, b and totals must have {plan.n} numbers each, a and b shares of kind {plan.kind}")
    if not all(1 <= total <= plan.largest_total for total in totals):
        raise InvalidParameter(f"totals must be between 1 and {plan.largest_total:,}, as planned")
    if not 1 <= n_iterations <= plan.max_iterations:
        raise InvalidParameter(f"n_iterations must be between 1 and {plan.max_iterations}, got {n_iterations}")


# --- division --------------------------------------------------------------------------------------------------------


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
        _check_positive(self, ("n", "low", "largest_numerator", "fraction_bits", "precision_bits", "n_iterations"))
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
        return replace(one, n_iterations=turns)

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


def _check_positive(plan: Descent | Division, names: Sequence[str]) -> None:
    for name in names:
        if getattr(plan, name) < 1:
            raise InvalidParameter(f"{name} must be at least 1, got {getattr(plan, name)}")


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)
