"""What stopping is worth at a node, as a fraction that fits the ring and decides as the exact number does.

A split is worth making if P / Q, its gain and what the node has already, reaches

    T = G^2 / (H + lambda) + threshold

where `threshold` is the least gain, as the engine's 64-bit float says it: T by itself has up to 50 bits too many for
the ring. But every split of the node has Q = (H_L + lambda) (H_R + lambda) <= (H / 2 + lambda)^2 = B. So T may be
replaced by the next smaller fraction whose denominator is at most B: no split lies between the two, and the comparison
comes out as with T. If a gain of just the threshold is enough, as it is for the engine where somebody asks for a least
gain, the fraction must be smaller than T and not only at most T.

What is next to a fraction a / b among all with denominators up to B: c / d with a d - b c = 1 and d as large as it may
be (neighbours in a Farey sequence).
"""

from __future__ import annotations

from fractions import Fraction

from hedgerow.crypto.widths import largest_denominator, largest_numerator
from hedgerow.engine.splitting import MIN_GAIN
from hedgerow.protocols.shares.scales import Scales


class Stopping:
    """For all nodes of a training. Only the label holder knows their sums, so only it can tell."""

    def __init__(self, scales: Scales, n_rows: int) -> None:
        self._lambda, self._threshold = scales.lambda_int, scales.threshold
        # The engine asks for more than MIN_GAIN, but for no more than what somebody asked for.
        self._enough = scales.threshold > Fraction(MIN_GAIN) * Fraction(2) ** scales.gradient_bits
        gamma2 = -(-self._threshold.numerator // self._threshold.denominator)
        g, h = scales.largest_gradient, scales.largest_hessian
        self._most_numerator = largest_numerator(n_rows, g, h, self._lambda, gamma2)
        self._most_denominator = largest_denominator(n_rows, h, self._lambda)

    def fraction(self, gradient: int, hessian: int) -> tuple[int, int]:
        """(P, Q) for a node with these sums; a split is worth making if its own is larger.

        Where the ring is too narrow for the next smaller fraction (gradients of all rows at their bound, or a threshold
        beyond all gains), the next smaller one that it holds.
        """
        exact = Fraction(gradient**2, hessian + self._lambda) + self._threshold
        most = min((hessian + 2 * self._lambda) ** 2 // 4, self._most_denominator, int(self._most_numerator / exact))
        below = next_below(exact, most, or_equal=not self._enough)
        return below.numerator, below.denominator


def next_below(value: Fraction, most: int, *, or_equal: bool) -> Fraction:
    """The largest fraction below `value` (or equal to it, if that will do) whose denominator is at most `most`."""
    near = value.limit_denominator(most)
    if near < value or (or_equal and near == value):
        return near
    a, b = near.numerator, near.denominator
    inverse = pow(a, -1, b) if b > 1 else 0
    d = most - (most - inverse) % b
    return Fraction((a * d - 1) // b, d)
