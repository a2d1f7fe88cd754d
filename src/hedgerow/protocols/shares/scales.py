"""How gradients become integers, and how wide the rings must be for them: all from the job and the number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from hedgerow.crypto import widths
from hedgerow.crypto.limbs import LIMB_BITS
from hedgerow.crypto.shares import SUM32, SUM64, Array, Kind, limbs_kind
from hedgerow.engine.boosting import BoostingParams
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.splitting import MIN_GAIN
from hedgerow.errors import FixedPointOverflow, InvalidParameter
from hedgerow.protocols.shares.job import SharesJob

LEAST_BITS = 4
"""Fewer are not chosen: a hessian of 1/4 would be rounded to a handful of values, or to nothing."""


@dataclass(frozen=True, slots=True)
class Scales:
    """Public numbers of a training. A gain in real units is `unit` times as large in those of the integers."""

    loss: Loss
    quantiser: Quantiser
    gradient_bits: int
    sums: Kind
    wide: Kind
    lambda_int: int
    threshold: Fraction  # what a split must gain more than stopping, in units of the integers

    @classmethod
    def of(cls, job: SharesJob, n_rows: int) -> Scales:
        """For this many rows; FixedPointOverflow or InvalidParameter if no ring is wide enough."""
        loss, trees = job.loss(), job.boosting
        bits = finest(loss, n_rows) if trees.gradient_bits is None else trees.gradient_bits
        quantiser = Quantiser.for_job(loss, float(n_rows), n_rows=n_rows, gradient_bits=bits)
        gradient, hessian = _largest(loss.gradient_bound, bits), _largest(loss.hessian_bound, bits)
        unit = Fraction(2) ** bits  # G^2 / H
        lambda_int = max(1, round(Fraction(trees.l2) * unit))
        threshold = Fraction(max(trees.min_gain, MIN_GAIN)) * unit
        public = (n_rows, gradient, hessian)
        try:
            sum_bits = widths.sum_bits(*public)
            wide_bits = widths.comparison_bits(*public, lambda_int, math.ceil(threshold))
        except FixedPointOverflow as problem:
            raise FixedPointOverflow(
                f"no ring is wide enough for l2={trees.l2:g}, min_gain={trees.min_gain:g}, gradient_bits={bits} and "
                f"label_range={loss.label_range}: {problem}"
            ) from problem
        widths.require_sum_bits(sum_bits, *public)
        widths.require_comparison_bits(wide_bits, *public, lambda_int, math.ceil(threshold))
        sums = SUM32 if sum_bits == 32 else SUM64
        return cls(loss, quantiser, bits, sums, limbs_kind(wide_bits // LIMB_BITS), lambda_int, threshold)

    @property
    def largest_gradient(self) -> int:
        """Of one row, without its sign."""
        return _largest(self.loss.gradient_bound, self.gradient_bits)

    @property
    def largest_hessian(self) -> int:
        """Of one row."""
        return _largest(self.loss.hessian_bound, self.gradient_bits)

    def words(self, packed: Ints) -> tuple[Array, Array]:
        """Sums of gradients and of hessians as words of their ring, from the engine's packed ones."""
        dtype = self.sums.dtype
        return (packed >> 32).astype(dtype), (packed & 0xFFFFFFFF).astype(dtype)  # a negative one wraps round

    def base_score(self, labels: Floats, params: BoostingParams) -> float:
        """The score before the first tree."""
        return float(self.loss.base_scores(labels)[0] if params.base_score is None else params.base_score)

    def boosting(self, params: BoostingParams) -> BoostingParams:
        """The parameters with which the pooled engine grows the same trees.

        Lambda is a whole number of units. Of a foreign column nobody knows which side of a split is heavier, so missing
        values that no row of the node had go right, for every column alike.
        """
        l2 = float(self.lambda_int / Fraction(2) ** self.gradient_bits)
        return replace(params, l2=l2, gradient_bits=self.gradient_bits, missing_unseen="right")


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
