"""What follows from released numbers: the first score, splits by noisy histograms, leaf values. Post-processing."""

from __future__ import annotations

import math

import numpy as np

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import ProtocolError
from hedgerow.protocols.vertical.private_histograms.plan import LARGEST_SCORE, SCORE_BITS, Plan

LARGEST_STEP = 4.0
"""Of a leaf before the learning rate, in log odds."""

_LARGEST = LARGEST_SCORE << SCORE_BITS
_UNIT = 2.0**-SCORE_BITS


class FollowUp:
    """Scores and leaf values are whole numbers in units of 2**-SCORE_BITS, sums in units of 2**-gradient_bits.

    The label holder computes what follows, and everybody keeps count of how far scores can be from 0 by now: beyond
    LARGEST_SCORE the logistic function on shares is wrong, gradients are not bounded, and nothing would be private.
    """

    def __init__(self, plan: Plan, learning_rate: float) -> None:
        self._plan, self._rate = plan, learning_rate
        self._unit = 2.0**-plan.gradient_bits
        self._reached = 0  # no score is further from 0
        self._curvature = 0.25

    def first_score(self, positives: int) -> Ints:
        """Log odds of the noisy share of positive rows, kept away from 0 and 1."""
        n_rows = self._plan.n_rows
        least = min(max(0.5 / n_rows, 1e-4), 0.5)
        share = min(max(positives / n_rows, least), 1.0 - least)
        self._curvature = share * (1.0 - share)
        return np.array([round(math.log(share / (1.0 - share)) / _UNIT)], np.int64)

    def leaf_values(self, noisy: Ints) -> Ints:
        """A Newton step for each leaf, with the curvature of the first score; noise in the denominator shrinks it."""
        spending = self._plan.spending
        gradient = noisy[:, 0] * self._unit
        count = np.maximum(noisy[:, 1] / spending.count_unit, 0.0)
        noise = spending.leaf_sigma * self._unit
        step = -gradient / (count * self._curvature + self._plan.lambda_int + noise)
        step = self._rate * np.clip(step, -LARGEST_STEP, LARGEST_STEP)
        room = _LARGEST - self._reached
        values: Ints = np.clip(np.trunc(step / _UNIT), -room, room).astype(np.int64)
        return values

    def reach(self, values: Ints) -> None:
        """Everybody: rows get these scores more. ProtocolError if some could be beyond LARGEST_SCORE."""
        largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
        if self._reached + largest > _LARGEST:
            raise ProtocolError(
                f"the label holder chose values with which scores can be beyond {LARGEST_SCORE}: gradients would not "
                "be bounded, and what is released would not be private"
            )
        self._reached += largest

    def best(self, noisy: Ints) -> Ints:
        """The split of each node whose noisy gain, less what noise alone would give, is largest."""
        plan, spending = self._plan, self._plan.spending
        sums = noisy.astype(np.float64)
        sums[:, 0] *= self._unit
        sums[:, 1] /= spending.count_unit
        noise = spending.histogram_sigma * self._unit
        cuts, totals = plan.cuts, sums[:, :, -1:]
        left = cuts.left(sums[:, :, :-1]) + totals * cuts.missing_left
        spread = noise * np.sqrt(np.abs(cuts.upper - cuts.lower) + cuts.missing_left)
        gains = self._gain(left, spread) + self._gain(totals - left, np.hypot(spread, noise * ~cuts.missing_left))
        return np.asarray(np.argmax(gains, axis=1))

    def _gain(self, sums: Floats, noise: Floats) -> Floats:
        gradient, count = sums[:, 0], np.maximum(sums[:, 1], 0.0)
        gains: Floats = (gradient**2 - noise**2) / (count + self._plan.lambda_int + noise)
        return gains
