"""How gradients become integers, and how wide the rings must be for them: all from the job and the number of rows.

One size too narrow gives wrong trees without any error.

The public numbers: N rows; g and h, the largest quantised |gradient| and hessian of a row; L, lambda as an integer on
the scale of the hessians; C, twice gamma on the scale of the gain. For a node with rows divided into left and right:

    G_L, G_R   sums of gradients      |G_L| <= a g,      |G_R| <= b g        a and b rows, a + b <= N
    H_L, H_R   sums of hessians       0 <= H_L <= a h,   0 <= H_R <= b h
    split      P = G_L^2 (H_R + L) + G_R^2 (H_L + L),    Q = (H_L + L) (H_R + L)
    stop       P = L G^2 + C Q,                          Q = (H + L) L       all rows left, and gamma paid for

so that P / Q is the gain of a candidate (and G^2 / (H + L), plus 2 gamma, for stopping). One candidate is compared with
another by the sign of d = P_1 Q_2 - P_2 Q_1.

**Sums** are lifted from the ring modulo 2^k, k = 32 or 64, to the ring of comparisons, which is exact for
-2^(k-2) <= x <= 2^(k-2), both ends included. `crypto.lifting` has the proof.

**Comparisons.** P and Q grow with every one of |G_L|, |G_R|, H_L, H_R, a and b, so take them all at their bounds and
a + b = N. With p = a b, which goes from 0 to floor(N/2) ceil(N/2) = M:

    split      P <= g^2 (a^2 (b h + L) + b^2 (a h + L)) = g^2 (L N^2 + p (h N - 2 L))      because a^2 + b^2 = N^2 - 2 p
               Q <= (a h + L) (b h + L) = p h^2 + L h N + L^2
    stop       P <= L (g^2 N^2 + C (N h + L)),  Q <= L h N + L^2

All are linear in p, so their maxima are at p = 0 or p = M; with p = 0 the split is no more than the stop. Hence

    max P = max(L (g^2 N^2 + C (N h + L)), g^2 (L N^2 + M (h N - 2 L))),       max Q = M h^2 + L h N + L^2.

Neither P nor Q is negative, so |d| <= max P max Q = D, and two's complement holds d in bits(D) + 1 bits, one for the
sign. P and Q by themselves fit too, because L >= 1 makes max Q >= 1. The bound is reached, so it cannot be improved:
with N a multiple of 4, all hessians h, half of the gradients g and half -g, the candidate that separates them has
P = max P (if that is a split's), and one with half of each on both sides has P = 0 and Q = max Q. In the other cases
(tests try them all for small N from 3 on) D is at most 9/4 of the largest |d|.

**Weights.** Gradients and hessians of a row are multiplied by its weight, in units of a power of two u that follows
from the mean weight (1 for ordinary ones), and rounded. A sum over rows with weights w is at most g (sum of w / u), and
half a unit for each row that was rounded: at most g N with N = ceil(sum of w / u) + number of rows, as if there were N
rows of weight 1. So N, rounded up to a power of two, and u are what must be public about weights (`Weighing`). Integers
times u / 2**gradient_bits are gradients, and lambda and gamma are put on that scale.

L must be at least 1: with 0, an empty child gives P = Q = 0, which ties with everything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from hedgerow.crypto.limbs import LIMB_BITS, MAX_LIMBS
from hedgerow.crypto.shares import SUM32, SUM64, Array, Kind, limbs_kind
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.growth import split_rules
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser, weight_total
from hedgerow.engine.splitting import MIN_GAIN
from hedgerow.errors import FixedPointOverflow, InvalidParameter
from hedgerow.protocols.shares.job import SharesJob

SUM_BITS = (32, 64)
LEAST_BITS = 4
"""Fewer are not chosen: a hessian of 1/4 would be rounded to a handful of values, or to nothing."""


@dataclass(frozen=True)
class Bounds:
    """The public numbers from which widths follow."""

    n_rows: int
    largest_gradient: int  # of one row, quantised, without its sign
    largest_hessian: int
    lambda_int: int = 1
    gamma2_int: int = 0

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            least = 1 if name in ("n_rows", "lambda_int") else 0
            if number < least:
                why = ", else empty children tie with all" if name == "lambda_int" else ""
                raise InvalidParameter(f"{name} must be at least {least}{why}, got {number}")

    def sum_bits(self, most: int = SUM_BITS[-1]) -> int:
        """The ring for sums: 32 bits if all sums are at most 2^30 in absolute value, else 64, for at most 2^62."""
        largest = self.n_rows * max(self.largest_gradient, self.largest_hessian)
        for bits in SUM_BITS:
            if bits <= most and largest <= 1 << (bits - 2):
                return bits
        raise FixedPointOverflow(
            f"{self} make sums of up to {largest:,}; a ring of {most} bits holds 2**{most - 2} = {1 << (most - 2):,}, "
            f"which is {(1 << (most - 2)) // self.n_rows:,} per row: use fewer gradient_bits"
        )

    @property
    def largest_numerator(self) -> int:
        """max P over all candidates, stopping included."""
        squares, rows_squared = self.largest_gradient**2, self.n_rows**2
        hessians, lambda_int = self.n_rows * self.largest_hessian, self.lambda_int
        stop = lambda_int * (squares * rows_squared + self.gamma2_int * (hessians + lambda_int))
        split = squares * (lambda_int * rows_squared + rows_squared // 4 * (hessians - 2 * lambda_int))
        return max(stop, split)

    @property
    def largest_denominator(self) -> int:
        """max Q over all candidates; stopping has none that is larger."""
        hessian, lambda_int = self.largest_hessian, self.lambda_int
        return self.n_rows**2 // 4 * hessian**2 + lambda_int * hessian * self.n_rows + lambda_int**2

    @property
    def needed_bits(self) -> int:
        """Bits of the largest P times the largest Q, and one for the sign."""
        return (self.largest_numerator * self.largest_denominator).bit_length() + 1

    def comparison_bits(self) -> int:
        """The ring for comparisons: the next multiple of 32 bits that holds every difference P_1 Q_2 - P_2 Q_1.

        Never narrower than the ring for sums, from which it is lifted.
        """
        needed = max(self.needed_bits, self.sum_bits())
        bits = -(-needed // LIMB_BITS) * LIMB_BITS
        if bits > LIMB_BITS * MAX_LIMBS:
            raise FixedPointOverflow(
                f"comparisons of gains over {self}, lambda {_short(self.lambda_int)} and twice gamma "
                f"{_short(self.gamma2_int)} need {needed} bits; at most {LIMB_BITS * MAX_LIMBS} are available: use "
                "fewer gradient_bits"
            )
        return bits

    def __str__(self) -> str:
        return (
            f"{self.n_rows:,} rows with gradients up to {self.largest_gradient:,} and hessians up to "
            f"{self.largest_hessian:,}"
        )


class Weighing(NamedTuple):
    """What all parties know about weights of rows."""

    n_units: int = 0  # the rows of weight 1 that would make sums as large; 0: rows have no weights
    unit_exponent: int = 0  # weights are counted in units of 2**unit_exponent

    @classmethod
    def of(cls, loss: Loss, weight: Floats | None) -> Weighing:
        """Of rows with these weights; the rows that nothing is learned from are not among them."""
        if weight is None:
            return cls()
        unit = Quantiser.for_rows(loss, len(weight), weight).weight_unit
        n_units = math.ceil(weight_total(weight, len(weight)) / unit) + len(weight)
        return cls(1 << (n_units - 1).bit_length(), round(math.log2(unit)))

    @property
    def is_weighted(self) -> bool:
        """Whether rows have weights."""
        return self.n_units > 0


NO_WEIGHTS = Weighing()


@dataclass(frozen=True, slots=True)
class Scales:
    """Public numbers of a training. A gain in real units is `scale` times as large in those of the integers."""

    loss: Loss
    quantiser: Quantiser
    gradient_bits: int
    sums: Kind
    wide: Kind
    bounds: Bounds
    threshold: Fraction  # what a split must gain more than stopping, in units of the integers
    scale: Fraction  # an integer per unit of gradients, of hessians, and of G^2 / H
    is_weighted: bool = False

    @classmethod
    def of(cls, job: SharesJob, n_rows: int, weighing: Weighing = NO_WEIGHTS, n_classes: int = 2) -> Scales:
        """For this many rows; FixedPointOverflow or InvalidParameter if no ring is wide enough."""
        loss, trees = job.loss(n_classes), job.boosting
        n_rows = weighing.n_units or n_rows
        bits = finest(loss, n_rows) if trees.gradient_bits is None else trees.gradient_bits
        quantiser = Quantiser.for_job(loss, float(n_rows), n_rows=n_rows, gradient_bits=bits)
        unit = Fraction(2) ** (bits - weighing.unit_exponent)
        threshold = Fraction(max(trees.min_gain, MIN_GAIN)) * unit
        rows = (n_rows, _largest(loss.gradient_bound, bits), _largest(loss.hessian_bound, bits))
        bounds = Bounds(*rows, max(1, round(Fraction(trees.l2) * unit)), math.ceil(threshold))
        try:
            sums = SUM32 if bounds.sum_bits() == 32 else SUM64
            wide = limbs_kind(bounds.comparison_bits() // LIMB_BITS)
        except FixedPointOverflow as problem:
            raise FixedPointOverflow(
                f"no ring is wide enough for l2={trees.l2:g}, min_gain={trees.min_gain:g}, gradient_bits={bits} and "
                f"label_range={loss.label_range}: {problem}"
            ) from problem
        return cls(loss, quantiser, bits, sums, wide, bounds, threshold, unit, weighing.is_weighted)

    @property
    def lambda_int(self) -> int:
        """Lambda on the scale of the hessians."""
        return self.bounds.lambda_int

    def words(self, packed: Ints) -> tuple[Array, Array]:
        """Sums of gradients and of hessians as words of their ring, from the engine's packed ones."""
        dtype = self.sums.dtype
        return (packed >> 32).astype(dtype), (packed & 0xFFFFFFFF).astype(dtype)  # a negative one wraps round

    def quantiser_for(self, n_rows: int, weight: Floats | None) -> Quantiser:
        """That of the rows that trees learn from, as the pooled engine has it."""
        return Quantiser.for_rows(self.loss, n_rows, weight, gradient_bits=self.gradient_bits)

    def limits(self, params: BoostingParams) -> Limits:
        """What a child must have at least, as the pooled engine's rules come out for such rows."""
        quantiser = Quantiser(float(self.scale), float(self.scale))
        rules = split_rules(params, self.loss, quantiser, weighted=self.is_weighted)
        most = (1 << (8 * self.sums.number_bytes - 2)) + 1  # more than any sum
        hessian = math.ceil(Fraction(rules.min_child_weight) * self.scale)
        if self.loss.has_unit_hessians and not self.is_weighted and hessian <= self.scale:
            hessian = 0  # each row has that much, and a child without rows gains nothing
        return Limits(min(hessian, most), min(rules.min_samples_leaf, most))

    def boosting(self, params: BoostingParams) -> BoostingParams:
        """The parameters with which the pooled engine grows the same trees.

        Lambda is a whole number of units. Of a foreign column nobody knows which side of a split is heavier, so missing
        values that no row of the node had go right, for every column alike.
        """
        l2 = float(self.lambda_int / self.scale)
        return replace(params, l2=l2, gradient_bits=self.gradient_bits, missing_unseen="right")


class Limits(NamedTuple):
    """Of the children of a split, on the scale of the integers."""

    hessian: int  # 0: there is none
    rows: int

    @property
    def n_vectors(self) -> int:
        """What is summed by bin: gradients, hessians, and rows where they count."""
        return 3 if self.rows else 2

    @property
    def n_checks(self) -> int:
        """Comparisons for each possible split."""
        return 2 * ((self.hessian > 0) + (self.rows > 0))


def finest(loss: Loss, n_rows: int) -> int:
    """The most bits with which every sum stays within 2**30, so that 32 bits are enough, and which the engine takes."""
    free = Quantiser.for_job(loss, float(n_rows), n_rows=n_rows)
    bits = int(math.log2(min(free.gradient_scale, free.hessian_scale)))
    bounds = (loss.gradient_bound, loss.hessian_bound)
    while bits >= LEAST_BITS and n_rows * max(_largest(bound, bits) for bound in bounds) > 1 << 30:
        bits -= 1
    if bits < LEAST_BITS:
        has_range = loss.name in ("squared", "poisson")
        raise InvalidParameter(
            f"gradients up to {loss.gradient_bound:g}{f' (label_range={loss.label_range})' * has_range} of {n_rows:,} "
            f"rows cannot be added up with {LEAST_BITS} bits after the point: "
            f"{'divide the labels by a number, or ' * has_range}give gradient_bits"
        )
    return bits


def _largest(bound: float, bits: int) -> int:
    """What the engine rounds a gradient of `bound` to: it works in 32-bit floats."""
    return math.floor(np.float32(bound) * np.float32(2.0**bits) + np.float32(0.5))


def _short(number: int) -> str:
    """A number that may have hundreds of digits."""
    return f"{number:,}" if number < 10**15 else f"2**{math.log2(number):.1f}"
