"""What follows from released numbers: the first score, columns and splits by noisy histograms, leaf values."""

from __future__ import annotations

import math

import numpy as np

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import ProtocolError
from hedgerow.protocols.vertical.private_histograms.plan import LARGEST_SCORE, SCORE_BITS, Plan
from hedgerow.protocols.vertical.private_histograms.spending import COLUMNS_PER_LEVEL

LARGEST_STEP = 4.0
"""Of a leaf before the learning rate, in log odds."""

LARGEST_VALUE = LARGEST_SCORE << SCORE_BITS
"""Of a score, and hence of a leaf, in units of 2**-SCORE_BITS."""

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
        room = LARGEST_VALUE - self._reached
        values: Ints = np.clip(np.trunc(step / _UNIT), -room, room).astype(np.int64)
        return values

    def reach(self, values: Ints) -> None:
        """Everybody: rows get these scores more. ProtocolError if some could be beyond LARGEST_SCORE."""
        largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
        if self._reached + largest > LARGEST_VALUE:
            raise ProtocolError(
                f"the label holder chose values with which scores can be beyond {LARGEST_SCORE}: gradients would not "
                "be bounded, and what is released would not be private"
            )
        self._reached += largest

    def importance(self, survey: Ints) -> Floats:
        """Of each of all columns: the utility of its best split at the first root, less what noise alone would give."""
        every = list(range(len(self._plan.codes)))
        utilities = self._utilities(survey[None], every, self._plan.spending.survey_sigma)
        found = np.zeros(len(every))
        np.maximum.at(found, self._plan.column_of_cut, utilities)
        return found

    def best(self, noisy: Ints, columns: list[int]) -> int:
        """The split of a level with the largest noisy utility, less what noise alone would give."""
        return int(np.argmax(self._utilities(noisy, columns, self._plan.spending.histogram_sigma)))

    def _utilities(self, noisy: Ints, columns: list[int], sigma: float) -> Floats:
        """Of all possible splits, -1 for those of other columns, from noisy histograms [nodes, bins of the columns]."""
        plan = self._plan
        found = np.full(plan.n_candidates, -1.0)
        ends = np.cumsum([plan.codes[column] for column in columns])[:-1]
        for column, sums in zip(columns, np.split(noisy * self._unit, ends, axis=1), strict=True):
            own = np.flatnonzero(plan.column_of_cut == column)
            last, missing_left = plan.all_cuts.bin[own], plan.all_cuts.missing_left[own]
            left = np.cumsum(sums, axis=1)[:, last] + sums[:, -1:] * missing_left
            n_left = last + 1 + missing_left
            sides = ((left, n_left), (sums.sum(axis=1, keepdims=True) - left, sums.shape[1] - n_left))
            found[own] = sum(
                np.maximum(np.abs(side) - sigma * self._unit * np.sqrt(n), 0.0).sum(axis=0) for side, n in sides
            )
        return found


class Columns:
    """Which columns' histograms are released: the more a column mattered at first, the likelier; public randomness."""

    def __init__(self, importance: Floats, seed: int) -> None:
        chances = importance + max(float(importance.mean()), 1e-9)
        self._chances, self._rng = chances / chances.sum(), np.random.default_rng(seed)

    def draw(self, depth: int) -> Ints:
        """For each level of a tree, in ascending order: [depth, columns]."""
        n = len(self._chances)
        drawn = [
            np.sort(self._rng.choice(n, min(COLUMNS_PER_LEVEL, n), replace=False, p=self._chances))
            for _ in range(depth)
        ]
        return np.array(drawn, np.int64)
