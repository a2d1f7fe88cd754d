"""MP-FedXGB opens denominators to the label holder (P1), who gets from them the sums over everybody's buckets.

In every tree, with a = H_L + lambda, b = H_R + lambda, Q = a b and T = a + b:

    1  the winner's test shows (H + lambda) Q; P1 knows H, and so Q; then Q of all others, one comparison after another
    2  a b = Q and a + b = T is a quadratic equation

Which of a candidate's sides is the left one follows for most: left sides grow from bin to bin of a column. Numerators,
which another party opens: `argmax_opened`.

The step size tells everybody how many rows a leaf has. SecureLeafWeight looks for w = -b / a, a = H + lambda, by
gradient descent. Its step is 1 / (a + sum of sigma), where every party adds a sigma of its own, at most mu lambda in
all; P1 tells everybody. So H is known up to mu lambda, however large it is: the larger a leaf, the better. In the first
tree all rows have the same hessian, so it is the number of rows (`leaf_sizes`).

SecurePredict opens y_hat of every training row and tree to P1. Rows of one leaf have the same; P1 has their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from operator import le
from typing import NamedTuple

from hedgerow.attacks.mp_fedxgb.seen_openings import OpenedNode, Pair, in_order

MU = 2


def sums_of_hessians(
    node: OpenedNode,
    total: int,
    lambda_int: int,
    columns: Sequence[Sequence[int]],
    own: Mapping[int, int] | None = None,
) -> dict[int, tuple[int, ...]]:
    """Of each candidate the sum of hessians at the left, both sides' where nothing tells which it is. In any tree.

    `total` is that of the node. P1's `own` left sums are a start where the winner's test does not show Q.
    """
    T, known = total + 2 * lambda_int, own or {}
    Q = {candidate: (left + lambda_int) * (T - left - lambda_int) for candidate, left in known.items()}
    if node.test and node.test % (total + lambda_int) == 0:
        Q.setdefault(node.winner, node.test // (total + lambda_int))
    waiting, n_before = list(node.pairs), -1
    while waiting and len(waiting) != n_before:
        n_before = len(waiting)
        waiting = [pair for pair in waiting if not _passed_on(pair, Q)]
    sides = {candidate: _sides_of(T, q, lambda_int) for candidate, q in Q.items()}
    found = {candidate: both for candidate, both in sides.items() if both} | {c: (left,) for c, left in known.items()}
    for candidates in columns:
        listed = [candidate for candidate in candidates if candidate in found]
        found |= zip(listed, in_order([found[candidate] for candidate in listed], le), strict=True)
    return found


def _passed_on(pair: Pair, Q: dict[int, int]) -> bool:
    """Q of one candidate from that of the other; whether there is nothing more to learn from this comparison."""
    for known, other in ((pair.first, pair.second), (pair.second, pair.first)):
        if Q.get(known) and pair.value % Q[known] == 0:
            Q.setdefault(other, pair.value // Q[known])
            return True
    return False


def _sides_of(T: int, Q: int, lambda_int: int) -> tuple[int, ...]:
    """a and b with a + b = T and a b = Q, less lambda; nothing where there are none."""
    square = T * T - 4 * Q
    root = math.isqrt(max(square, 0))
    if root * root != square or (T - root) % 2 or (T - root) // 2 < lambda_int:
        return ()
    return tuple(sorted({(T - root) // 2 - lambda_int, (T + root) // 2 - lambda_int}))


class Leaf(NamedTuple):
    """A leaf's sum of hessians, in units of a row's hessian: its rows in the first tree."""

    estimate: float
    low: int
    high: int


def leaf_sizes(perturbed: Sequence[int], lambda_int: int, hessian: int) -> list[Leaf]:
    """From a + sum of sigma of each leaf, as everybody gets it from the step size."""
    most = MU * lambda_int
    found = []
    for total in perturbed:
        low, high = total - lambda_int - most, total - lambda_int
        middle = float(Fraction(low + high, 2 * hessian))
        found.append(Leaf(middle, max(0, -(-low // hessian)), max(0, high // hessian)))
    return found
