"""Sensitivities: how far one record can move what is computed from all of them, each with its proof.

"add_remove": one record more or less. "replace_one": one record exchanged for another. Everywhere |g| <= bound for the
gradient g of every record that counts. Records with a larger one are left out, or their gradient is clipped: both look
at the record itself and the model released so far only, so they change nothing below. Nor do gradients in whole units:
the proofs use |g| <= bound and no more, and `bound` is then in units.

Notation of the proofs: bound = 1 (all is homogeneous in it), l = l2 >= 0, S the sum of gradients of n records, so
|S| <= n, and 0 / 0 = 0. f(S, n) = S^2 / (n + l). Replacing a record is removing one and adding one.

Results for choices and leaves are rounded to the nearest float, which `exponential`, `permute_and_flip` and `laplace`
allow for; all others are exact or rounded up, by a factor of 1 + 2^-48.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.events import Adjacency

Norm = Literal["l1", "l2"]
Loss = Literal["logistic", "squared"]

LARGEST_FREE_WEIGHT = 3.330
"""For logistic loss (sum g, c sum h) costs no more than sum g alone up to c = golden ratio^(5/2) = 3.3301...; rounded
down."""

_UP = 1.0 + 2.0**-48


def gain_sensitivity(bound: float, adjacency: Adjacency = "add_remove") -> float:
    """Of S_L^2 / (n_L + l) + S_R^2 / (n_R + l) for one candidate split of one node: 3 bound^2, or 4 when replacing.

    Adding a record with gradient g to a side (S, n), with a = n + l, moves the gain by
    D = (S + g)^2 / (a + 1) - S^2 / a. By symmetry let S >= 0. The other side stays.

    D <= 1: a D (a + 1) = a (S + g)^2 - (a + 1) S^2 = a g (2 S + g) - S^2 <= a (2 S + 1) - S^2 = a + a^2 - (S - a)^2
    <= a (a + 1). For a = 0, that is n = l = 0, D = g^2.
    D > -3: a convex function of g is smallest inside or at an end; as the derivative 2 (S + g) / (a + 1) vanishes at
    g = -S, the minimum over |g| <= 1 is at g = -min(S, 1). For S <= 1 it is -S^2 / a >= -1, because S <= n <= a and
    S <= 1. For S > 1 it is at g = -1, where a (a + 1) D = -(a (2 S - 1) + S^2) >= -(a (2 n - 1) + n a)
    = -a (3 n - 1) > -3 a (a + 1).
    So adding moves the gain by more than -3 and at most 1, removing by at least -1 and less than 3.

    Replacing within one side, others adding up to T, |T| <= n - 1: the change is (g' - g)(2 T + g + g') / (n + l). With
    d = |g' - g| and |g + g'| <= 2 - d it is at most d (2 n - d) / n: 1 for n = 1, 4 (n - 1) / n for n >= 2. Replacing
    across sides: one loses a record, one gains one, by the above between -1 - 3 and 3 + 1.

    All bounds are approached, for many records of equal gradients (tests/privacy/test_sensitivity.py).
    """
    return _times(3.0, 4.0, adjacency) * _checked("bound", bound) ** 2


def centred_gain_sensitivity(bound: float, adjacency: Adjacency = "add_remove") -> float:
    """Of the gain, for choosing among candidates, over all nodes of one level together: 2 bound^2, or 4 when replacing.

    A choice depends on differences of utilities only, so any number may be added to all candidates of a node, even one
    that depends on the records; take bound^2 times the number of the node's records. Adding a record moves each gain by
    between -3 and 1 (`gain_sensitivity`), so with that number by between -2 and 2. In the terms of choices.py: the
    width of the change is at most 4.

    Replacing a record within a node: at most 4 either way, and the number stays. Replacing one by another that belongs
    to another node: two choices are moved, each by 2 at most; their losses add up, and so do these sensitivities: 4.
    (By the gain alone it would be 3 + 3: `gain_sensitivity` under "replace_one" is for a single node.)
    """
    return _times(2.0, 4.0, adjacency) * _checked("bound", bound) ** 2


def leaf_sensitivity(bound: float, l2: float, adjacency: Adjacency = "add_remove") -> float:
    """Of all leaf values -S / (n + l) of a tree together, in L1: bound / (1 + l), or twice that when replacing.

    Adding a record moves one leaf, by |g (n + l) - S| / ((n + l)(n + 1 + l)) <= (2 n + l) / ((n + l)(n + 1 + l)). This
    is at most 1 / (1 + l) if and only if (2 n + l)(1 + l) <= (n + l)(n + 1 + l), that is, n <= n^2, true for whole
    n >= 1. For n = 0 the value goes from 0 to g / (1 + l). Both n = 0 and n = 1 reach the bound.

    Replacing a record within a leaf: |g' - g| / (n + l) <= 2 / (1 + l), as n >= 1. Across leaves: 1 / (1 + l) each.
    """
    return _times(1.0, 2.0, adjacency) * _checked("bound", bound) / (1.0 + _checked_l2(l2))


def clipped_leaf_sensitivity(bound: float, l2: float, clip: float, adjacency: Adjacency = "add_remove") -> float:
    """Of all leaf values together, each clipped to +-clip, in L1: the lesser of the above and 2 clip (or 4, replacing).

    Clipping brings no two values further apart, and no two clipped values are further apart than 2 clip. Replacing
    moves at most two leaves.
    """
    unclipped = leaf_sensitivity(bound, l2, adjacency)
    return min(unclipped, _times(2.0, 4.0, adjacency) * _checked("clip", clip, infinite=True))


def pair_sensitivity(clip: float, weight: float, loss: Loss = "logistic") -> float:
    """Of (sum g, weight sum h) in L2, under "add_remove", with g clipped to +-clip: the longest vector of one record.

    Squared loss: h = 1, so sqrt(clip^2 + weight^2).

    Logistic loss: q = |g| before clipping is in [0, 1], and h = q (1 - q). Write c for the weight.
    The square of the length is F(q) = q^2 + c^2 q^2 (1 - q)^2 for q <= clip, and clip^2 + c^2 q^2 (1 - q)^2 beyond.
    Beyond, it is largest at q = 1/2, or at q = clip if that is more than 1/2. Below, F'(q) = 2 q (1 + c^2 (1 - q)
    (1 - 2 q)) is 0 only at q = (3 -+ sqrt(1 - 8 / c^2)) / 4, both in [1/2, 1]: F rises up to the first, falls up to the
    second, then rises again. So the largest is at the first, if it is below clip, or at the end.
    For clip >= 1 and c = golden ratio^(5/2), F at the first is F(1) = 1; it rises with c, so for c up to that it is 1.
    """
    tau, c = _checked("clip", clip), _checked("weight", weight)
    if loss == "squared":
        return math.hypot(tau, c) * _UP
    if loss != "logistic":
        raise InvalidParameter(f"loss must be one of {get_args(Loss)}, got {loss!r}")
    tau = min(tau, 1.0)
    lengths = [math.hypot(tau, c * tau * (1.0 - tau))]
    if tau < 0.5:
        lengths.append(math.hypot(tau, c / 4.0))
    if c * c > 8.0:
        first = (3.0 - math.sqrt(1.0 - 8.0 / (c * c))) / 4.0
        if first < tau:
            # Where F is flat, an error of its argument counts for nothing; what is left is far below _UP.
            lengths.append(math.hypot(first, c * first * (1.0 - first)))
    return max(lengths) * _UP


def histogram_sensitivity(columns: int, adjacency: Adjacency = "add_remove", norm: Norm = "l1") -> float:
    """Of the counts of `columns` histograms together: every record is counted in one cell of each.

    Adding: `columns` cells change by 1 each, so columns in L1, sqrt(columns) in L2. Replacing: in each histogram one
    cell loses 1 and another gains 1, or none changes: 2 columns in L1, sqrt(2 columns) in L2.
    """
    cells = _checked_columns(columns) * _times(1.0, 2.0, adjacency)
    return _by_norm(cells, math.sqrt(cells) * _UP, norm)


def sums_sensitivity(columns: int, record: float, adjacency: Adjacency = "add_remove", norm: Norm = "l2") -> float:
    """Of sums per cell of `columns` histograms, where a record adds a vector of length `record`, in the same norm.

    Adding: columns * record in L1, sqrt(columns) * record in L2. Replacing is twice as much in both: gradients of both
    signs may meet in one cell, which counts cannot.
    """
    length = _checked("record", record) * _times(1.0, 2.0, adjacency)
    n = _checked_columns(columns)
    return _by_norm(n * length * _UP, math.sqrt(n) * length * _UP, norm)


class NewtonCounterexample(NamedTuple):
    """A side of a split before and after one record of logistic loss is added, and what G^2 / (H + l) makes of it."""

    before: tuple[float, float]  # G, H
    after: tuple[float, float]
    change: float  # of the gain
    claimed: float  # 3 bound^2, which holds with counts as denominators


def newton_counterexample(l2: float = 0.1, records: int = 10_000, probability: float = 0.999) -> NewtonCounterexample:
    """Gains with hessians as denominators, G^2 / (H + l), have no such bound: here is a case.

    `records` of label 0, which the model gives `probability`: g = p and h = p (1 - p) each. One more of them moves
    n^2 p^2 / (n p (1 - p) + l) by about p / (1 - p) for many records, which is as large as the model is sure and wrong;
    |g| <= 1 does not help. So split selection by the gain is for counts as denominators only.
    """
    if not 0.0 < probability < 1.0:
        raise InvalidParameter(f"probability must be between 0 and 1, got {probability!r}")
    g, h = probability, probability * (1.0 - probability)
    before, after = (records * g, records * h), ((records + 1) * g, (records + 1) * h)
    gains = [G * G / (H + _checked_l2(l2)) if G else 0.0 for G, H in (before, after)]
    return NewtonCounterexample(before, after, gains[1] - gains[0], gain_sensitivity(1.0))


def _times(adding: float, replacing: float, adjacency: Adjacency) -> float:
    if adjacency not in get_args(Adjacency):
        raise InvalidParameter(f"adjacency must be one of {get_args(Adjacency)}, got {adjacency!r}")
    return adding if adjacency == "add_remove" else replacing


def _by_norm(l1: float, l2: float, norm: Norm) -> float:
    if norm not in get_args(Norm):
        raise InvalidParameter(f"norm must be one of {get_args(Norm)}, got {norm!r}")
    return l1 if norm == "l1" else l2


def _checked(name: str, value: float, *, infinite: bool = False) -> float:
    if not (0.0 < value < math.inf or (infinite and value == math.inf)):
        raise InvalidParameter(f"{name} must be a number above 0, got {value!r}")
    return value


def _checked_l2(l2: float) -> float:
    if not 0.0 <= l2 < math.inf:
        raise InvalidParameter(f"l2 must be a number of at least 0, got {l2!r}")
    return l2


def _checked_columns(columns: int) -> int:
    if columns < 1:
        raise InvalidParameter(f"columns must be at least 1, got {columns!r}")
    return columns
