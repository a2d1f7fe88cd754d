"""MP-FedXGB's leaves: the step size tells everybody how many rows a leaf has, and predictions tell P1 which.

SecureLeafWeight looks for w = -b / a, a = H + lambda, by gradient descent. Its step is 1 / (a + sum of sigma), where
every party adds a sigma of its own, at most mu lambda in all; P1 tells everybody. So H is known up to mu lambda,
however large it is: the larger a leaf, the better. In the first tree all rows have the same hessian, so it is the
number of rows.

SecurePredict opens y_hat of every training row and tree to P1. Rows of one leaf have the same; P1 has their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.engine.dtypes import Floats, Ints

MU = 2


class Leaf(NamedTuple):
    """A leaf's sum of hessians, in units of a row's hessian: its rows in the first tree."""

    estimate: float
    low: int
    high: int

    @property
    def relative_error(self) -> float:
        """At most, of the estimate."""
        return (
            max(self.estimate - self.low, self.high - self.estimate) / self.estimate if self.estimate > 0 else math.inf
        )


def leaf_sizes(perturbed: Sequence[int], lambda_int: int, hessian: int, mu: Fraction | int = MU) -> list[Leaf]:
    """From a + sum of sigma of each leaf, as everybody gets it from the step size."""
    most = Fraction(mu) * lambda_int
    found = []
    for total in perturbed:
        low, high = Fraction(total) - lambda_int - most, Fraction(total) - lambda_int
        middle = float((low + high) / 2 / hessian)
        found.append(Leaf(middle, max(0, math.ceil(low / hessian)), max(0, math.floor(high / hessian))))
    return found


class LeavesOfTree(NamedTuple):
    """What P1 knows of a tree's leaves."""

    leaf: Ints  # [rows]
    values: Floats  # [leaves] what was opened
    gradients: Ints  # [leaves] sums over the rows
    hessians: Ints  # [leaves]


def leaves_of_rows(predictions: npt.ArrayLike, gradients: Ints, hessians: Ints) -> list[LeavesOfTree]:
    """From y_hat [trees, rows] and P1's own gradients and hessians [trees, rows]."""
    found = []
    for opened, g, h in zip(np.asarray(predictions), gradients, hessians, strict=True):
        values, leaf = np.unique(opened, return_inverse=True)
        sums = [np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)]
        for total, each in zip(sums, (g, h), strict=True):
            np.add.at(total, leaf, each)
        found.append(LeavesOfTree(leaf.astype(np.int64), values, *sums))
    return found
