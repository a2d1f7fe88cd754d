"""One question to the rows: which sums are wanted, after which update, and how much noise they must carry.

All sums are of whole numbers. A real value v becomes round(v * 2^16), clipped afterwards as a whole number, so that
the sensitivity stated with a request is exactly true. Class counts are in units of 2^12, because noise that several
owners draw must be wide in whole-number units (privacy/discrete_gaussian.py). With 2^40 rows a sum still fits 62 bits.

    kind         the answer, pairs interleaved                                how far one record moves it (L2, squared)
    misfits      number of rows that did not fit the schema                   2^24
    histograms   per column and cell: positives, negatives                    columns * 2^24
                 regression: sum of z, half the count; z is the label         columns * (2^30 + 2^30)
                 scaled to -.5 to .5
                 softmax: rows of each of K classes                           columns * 2^24
    squares      sum of z^2                                                   2^28
    bin_sums     per bin of one column: sum of -gradients, sum of hessians    clip^2 + largest hessian^2
                 softmax: K sums of -gradients, then K of hessians            clip^2 + largest hessian^2
    leaf_sums    the same per leaf of an oblivious tree                       clip^2 + largest hessian^2
    node_sums    the same per column, node of a growing tree and bin          columns * (clip^2 + largest hessian^2)
    node_leaves  the same per node                                            clip^2 + largest hessian^2
    node_gains   per node and candidate split, for a choice:                  see privacy/sensitivity.py
                 S_L^2 / (n_L + l2) + S_R^2 / (n_R + l2)

    update       what happens to the rows' scores before that
    none         nothing
    start        bins are set from cells; scores become 0 (kept apart from the base score)
    table        `update_values[bin of update_feature]` is added
    tables       scores become the sum of `update_values[feature, bin]`
    leaves       `update_values[leaf in the tree of the last request]` is added

With K > 2 classes (softmax) a row has K scores, `update_values` has one more axis in front, of length K, and "start"
carries the K base scores in it. The clip then bounds the length of a row's whole vector of gradients, and the largest
hessian that of its vector of hessians: sum over k of (p_k (1 - p_k))^2 <= 4/27. Proof: p (1 - p)^2 is largest at
p = 1/3, where it is 4/27; so p^2 (1 - p)^2 <= 4/27 p for each class, and the p_k sum to 1. Three classes of 1/3 reach
it. (The vector of gradients y - p has length at most sqrt(2) (1 - p_y) <= sqrt(2).)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hedgerow.engine.dtypes import Bytes, Floats, Int32s
from hedgerow.privacy.calibrate import share_of_sigma
from hedgerow.privacy.events import DiscreteGaussian, Event, Exponential, NonPrivate
from hedgerow.privacy.sensitivity import centred_gain_sensitivity

Kind = Literal["misfits", "histograms", "squares", "bin_sums", "leaf_sums"]
NodeKind = Literal["node_sums", "node_leaves", "node_gains"]
"""Asked for by policies that grow trees level by level (policies.py); central only, no message carries them."""
SharedKind = Literal["counts", "positives", "mean"]
"""Asked for where the columns of a row are with several parties (vertical.private_histograms)."""
AnyKind = Kind | NodeKind | SharedKind

Update = Literal["none", "start", "table", "tables", "leaves"]
LossName = Literal["logistic", "squared", "softmax"]

UNIT = 2**16
"""Fixed point of gradients, hessians and scaled labels."""

COUNT_UNIT = 2**12
"""Fixed point of class counts."""

HESSIAN_WEIGHT = {"logistic": 1.0, "squared": 0.5, "softmax": 1.0}
"""The factor c on hessians: it balances their noise against that of the gradients."""

LARGEST_HESSIAN = {"logistic": UNIT // 4, "squared": UNIT // 2, "softmax": math.isqrt(4 * UNIT**2 // 27) + 1}
"""Of one record, in fixed point, the factor included: c * 1/4 for the logistic loss, c * 1 for the squared one; for
softmax the length of the vector, c * sqrt(4/27)."""

MOST_ROWS = 2**32
"""A public limit on the rows of a growing tree: with it gains have a public limit too."""

MAX_DEPTH = 8
"""Levels of an oblivious tree: the number of a leaf fits a byte."""


def rounded_up(sensitivity_squared: int) -> float:
    """The sensitivity itself, not below the true one."""
    return math.sqrt(sensitivity_squared) * (1.0 + 2.0**-48)


def event_of(sensitivity_squared: int, sigma: float, n_sums: int, honest: int = 1) -> Event:
    """What sums with discrete Gaussian noise are worth, of this scale from each of `honest` owners."""
    if sigma == 0.0:
        return NonPrivate("no noise was asked for")
    return DiscreteGaussian(rounded_up(sensitivity_squared), sigma, n_sums, honest)


@dataclass(frozen=True, slots=True, eq=False)
class SumRequest:
    """What the recipe asks next. Plain numbers, text and arrays only, so that it can be sent as a message."""

    number: int
    kind: AnyKind
    n_sums: int
    sensitivity_squared: int
    sigma: float
    """Scale that the noise in the sum must have, in whole-number units; 0 for none at all."""
    clip: int = 0
    """Largest absolute gradient of one record, in fixed point."""
    features: Int32s = field(default_factory=lambda: np.empty(0, np.int32))
    """bin_sums: the column; leaf_sums: one column per level of the tree."""
    goes_right: Bytes = field(default_factory=lambda: np.empty((0, 256), np.uint8))
    """leaf_sums, [levels, 256]: 1 where rows of this bin go right."""
    update: Update = "none"
    update_feature: int = -1
    update_values: Floats = field(default_factory=lambda: np.empty(0))
    bins: Bytes = field(default_factory=lambda: np.empty((0, 256), np.uint8))
    """start, [columns, 256]: the bin of each cell."""
    base_score: float = 0.0
    """start: the score of every row before any table."""
    centre: float = 0.0
    spread: float = 1.0
    """start, regression: the scaled label is standardised as (z - centre) / spread."""

    @property
    def sensitivity(self) -> float:
        """How far one record can move the answer, rounded up."""
        return rounded_up(self.sensitivity_squared)

    def sigma_per_owner(self, honest: int = 1) -> float:
        """The noise that each owner draws when `honest` of them are trusted not to tell theirs."""
        return share_of_sigma(self.sigma, honest)

    def event(self, honest: int = 1) -> Event:
        """What the noisy answer is worth when every owner draws `sigma_per_owner(honest)`."""
        return event_of(self.sensitivity_squared, self.sigma_per_owner(honest), self.n_sums, honest)


@dataclass(frozen=True, slots=True, eq=False)
class NodeRequest(SumRequest):
    """A question to the nodes of the tree that is growing. Its rows step down by the splits before it is answered."""

    depth: int = 0
    """Level of the nodes asked about: 2^depth of them. 0 begins a new tree."""
    split_features: Int32s = field(default_factory=lambda: np.empty(0, np.int32))
    """Column of the split of each node of the level above."""
    split_right: Bytes = field(default_factory=lambda: np.empty((0, 256), np.uint8))
    """[nodes of the level above, 256]: 1 where rows of this bin go right."""
    l2: float = 0.0
    choice_epsilon: float = 0.0
    """node_gains: of the choice that the gains are for."""

    @property
    def gain_sensitivity(self) -> float:
        """Half the width of what one record can do to a node's gains."""
        return centred_gain_sensitivity(self.clip / UNIT)

    @property
    def largest_gain(self) -> float:
        """S^2 / n <= n clip^2 on either side."""
        return MOST_ROWS * (self.clip / UNIT) ** 2

    def event(self, honest: int = 1) -> Event:
        """What the answer is worth."""
        if self.kind != "node_gains":
            return SumRequest.event(self, honest)
        if math.isinf(self.choice_epsilon):
            return NonPrivate("no noise was asked for")
        return Exponential(self.gain_sensitivity, self.choice_epsilon)


def record_sensitivity_squared(kind: AnyKind, loss: LossName, n_columns: int, clip: int) -> int:
    """How far one record can move the exact answer, L2 and squared, in whole-number units."""
    if kind == "misfits":
        return COUNT_UNIT**2
    if kind == "histograms":
        # In every column the record is in one cell: one count, or (z, half a count) with |z| <= 1/2.
        return n_columns * (2 * (UNIT // 2) ** 2 if loss == "squared" else COUNT_UNIT**2)
    if kind == "squares":
        return (UNIT // 4) ** 2
    # It is in one bin or leaf; in one node, and there in one bin of each column asked about.
    return (n_columns if kind == "node_sums" else 1) * (clip**2 + LARGEST_HESSIAN[loss] ** 2)
