"""Sensitivities: how far one record can move what is computed from all of them, each with its proof.

"add_remove": one record more or less. "replace_one": one record exchanged for another. Everywhere |g| <= bound for the
gradient g of every record that counts. Records with a larger one are left out, or their gradient is clipped: both look
at the record itself and the model released so far only, so they change nothing below. Nor do gradients in whole units:
the proofs use |g| <= bound and no more, and `bound` is then in units.

Notation of the proofs: bound = 1 (all is homogeneous in it), l = l2 >= 0, S the sum of gradients of n records, so
|S| <= n, and 0 / 0 = 0. f(S, n) = S^2 / (n + l). Replacing a record is removing one and adding one.

Several outputs. A record of K classes has a vector g of gradients, and S is the sum of vectors. For gains, which add up
the squares of all outputs, `bound` is that of the length |g|: the proofs below use |S| <= n, and products of S and g
only through -|S| |g| <= S g <= |S| |g|, with equality where they point the same or opposite ways, so they hold word
for word. For leaves, `bound` is that of the sum of absolute values, in which |S| <= n too, and one record moves all K
values of one leaf.

Weights. A record of weight w, from 0 to 1 (all weights divided by the largest one that is allowed), counts w and has
the gradient w g, so that n is a sum of weights and |S| <= n still. Gains: adding it moves a side by
D = (S + w g)^2 / (a + w) - S^2 / a. As before a (a + w) D <= w (a (2 S + w) - S^2) = w (a (a + w) - (S - a)^2), so
D <= w. For S > w the least is at g = -1: a (a + w) D = -w (a (2 S - w) + S^2) >= -w (3 a^2 - a w) > -3 w a (a + w);
for S <= w it is -S^2 / a >= -S >= -w. So D is between -3 w and w: the same bounds, since w <= 1. Replacing is one more
and one less: between -4 and 4. Leaves have a bound of their own, because n may now be anything (`leaf_sensitivity`).

Results for choices and leaves are rounded to the nearest float, which `exponential`, `permute_and_flip` and `laplace`
allow for; that of histograms is exact.
"""

from __future__ import annotations

import math

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.events import Adjacency, check_adjacency, check_positive


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
    check_positive("bound", bound)
    return _times(3.0, 4.0, adjacency) * bound**2


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
    check_positive("bound", bound)
    return _times(2.0, 4.0, adjacency) * bound**2


def leaf_sensitivity(bound: float, l2: float, adjacency: Adjacency = "add_remove", *, weighted: bool = False) -> float:
    """Of all leaf values -S / (n + l) of a tree together, in L1: bound / (1 + l), or twice that when replacing.

    Adding a record moves one leaf, by |g (n + l) - S| / ((n + l)(n + 1 + l)) <= (2 n + l) / ((n + l)(n + 1 + l)). This
    is at most 1 / (1 + l) if and only if (2 n + l)(1 + l) <= (n + l)(n + 1 + l), that is, n <= n^2, true for whole
    n >= 1. For n = 0 the value goes from 0 to g / (1 + l). Both n = 0 and n = 1 reach the bound.

    Replacing a record within a leaf: |g' - g| / (n + l) <= 2 / (1 + l), as n >= 1. Across leaves: 1 / (1 + l) each.

    With weights: adding a record of weight w moves the leaf by w |g (n + l) - S| / ((n + l)(n + w + l)), at most
    w (2 n + l) / ((n + l)(n + w + l)), which grows with w, so that w = 1 is the worst: h(x) = (2 x - l) / (x (x + 1))
    with x = n + l >= l. h'(x) = 0 where 2 x^2 - 2 l x - l = 0, at x = (l + s) / 2 with s = sqrt(l^2 + 2 l), which is
    at least l; h rises before it and falls after it, and there it is s / (x (x + 1)). For l = 0 it falls from its limit
    2. Replacing is removing and adding: twice that.
    """
    if not 0.0 <= l2 < math.inf:
        raise InvalidParameter(f"l2 must be a number of at least 0, got {l2!r}")
    check_positive("bound", bound)
    most = 1.0 / (1.0 + l2)
    if weighted:
        root = math.sqrt(l2 * (l2 + 2.0))
        x = (l2 + root) / 2.0
        most = min(root / (x * (x + 1.0)) * (1.0 + 2.0**-40), 2.0) if x > 0.0 else 2.0
    return _times(1.0, 2.0, adjacency) * bound * most


def clipped_leaf_sensitivity(
    bound: float,
    l2: float,
    clip: float,
    adjacency: Adjacency = "add_remove",
    *,
    outputs: int = 1,
    weighted: bool = False,
) -> float:
    """Of all leaf values together, each clipped to +-clip, in L1: the lesser of the above and 2 clip (or 4, replacing).

    Clipping brings no two values further apart, and no two clipped values are further apart than 2 clip. Replacing
    moves at most two leaves, and each of them has `outputs` values.
    """
    check_positive("clip", clip, or_inf=True)
    unclipped = leaf_sensitivity(bound, l2, adjacency, weighted=weighted)
    return min(unclipped, _times(2.0, 4.0, adjacency) * outputs * clip)


def bounded_sum_sensitivity(sums: int, largest: int, adjacency: Adjacency = "add_remove") -> float:
    """Of `sums` sums together, in L1, to each of which a record adds a whole number from 0 to `largest`.

    Adding: `largest` each. Replacing: a number between 0 and `largest` takes the place of another such: the same. So it
    is for a choice by one of these sums, too, but for that half the width counts (choices.py): adding moves all by
    between 0 and `largest`, half of which is `largest` / 2; replacing by between -`largest` and `largest`.
    """
    if sums < 1 or largest < 1:
        raise InvalidParameter(f"sums and largest must be at least 1, got {sums!r} and {largest!r}")
    check_adjacency(adjacency)
    return float(sums * largest)


def bounded_choice_sensitivity(largest: float, adjacency: Adjacency = "add_remove") -> float:
    """Of a choice by sums to which a record adds between 0 and `largest`: see `bounded_sum_sensitivity`."""
    check_positive("largest", largest)
    return _times(0.5, 1.0, adjacency) * largest


def histogram_sensitivity(columns: int, adjacency: Adjacency = "add_remove") -> float:
    """Of the counts of `columns` histograms together, in L1: every record is counted in one cell of each.

    Adding: `columns` cells change by 1 each. Replacing: in each histogram one cell loses 1 and another gains 1, or none
    changes: twice that.
    """
    if columns < 1:
        raise InvalidParameter(f"columns must be at least 1, got {columns!r}")
    return columns * _times(1.0, 2.0, adjacency)


def _times(adding: float, replacing: float, adjacency: Adjacency) -> float:
    check_adjacency(adjacency)
    return adding if adjacency == "add_remove" else replacing
