"""How wide the rings must be, from public numbers alone. One size too narrow gives wrong trees without any error.

The public numbers: N rows; g and h, the largest quantised |gradient| and hessian of a row; L, lambda as an integer on
the scale of the hessians; C, twice gamma on the scale of the gain. For a node with rows divided into left and right:

    G_L, G_R   sums of gradients      |G_L| <= a g,      |G_R| <= b g        a and b rows, a + b <= N
    H_L, H_R   sums of hessians       0 <= H_L <= a h,   0 <= H_R <= b h
    split      P = G_L^2 (H_R + L) + G_R^2 (H_L + L),    Q = (H_L + L) (H_R + L)
    stop       P = L G^2 + C Q,                          Q = (H + L) L       all rows left, and gamma paid for

so that P / Q is the gain of a candidate (and G^2 / (H + L), plus 2 gamma, for stopping). One candidate is compared with
another by the sign of d = P_1 Q_2 - P_2 Q_1.

**Sums** are lifted from the ring modulo 2^k, k = 32 or 64, to the ring of comparisons, which is exact for
-2^(k-2) <= x <= 2^(k-2), both ends included. Proof: with x' = x + 2^(k-2) from 0 to 2^(k-1), a mask 0 <= r < 2^k, and
c = (x' + r) mod 2^k opened, x' = c - r + 2^k if the addition wrapped round, and c - r if not. It wrapped round if and
only if r >= 2^(k-1) and c < 2^(k-1): if r < 2^(k-1), then x' + r < 2^k, no wrap. If r >= 2^(k-1) and it did not wrap,
c >= r >= 2^(k-1); if it did, c = r - (2^k - x') <= r - 2^(k-1) < 2^(k-1). So the top bits of r and c tell. Beyond these
ends it goes wrong for some masks only: rarely, and unnoticed.

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

L must be at least 1: with 0, an empty child gives P = Q = 0, which ties with everything.
"""

from __future__ import annotations

import math

from hedgerow.crypto.limbs import LIMB_BITS, MAX_LIMBS
from hedgerow.errors import FixedPointOverflow, InvalidParameter

SUM_BITS = (32, 64)


def largest_sum(n_rows: int, largest_gradient: int, largest_hessian: int) -> int:
    """What no sum of quantised gradients or hessians over some of the rows exceeds, in absolute value."""
    _check(n_rows=n_rows, largest_gradient=largest_gradient, largest_hessian=largest_hessian)
    return n_rows * max(largest_gradient, largest_hessian)


def sum_bits(n_rows: int, largest_gradient: int, largest_hessian: int) -> int:
    """The ring for sums: 32 bits if all sums are at most 2^30 in absolute value, else 64, for at most 2^62."""
    for bits in SUM_BITS:
        if largest_sum(n_rows, largest_gradient, largest_hessian) <= 1 << (bits - 2):
            return bits
    raise FixedPointOverflow(_too_large(SUM_BITS[-1], n_rows, largest_gradient, largest_hessian))


def require_sum_bits(bits: int, n_rows: int, largest_gradient: int, largest_hessian: int) -> None:
    """Raise FixedPointOverflow unless every sum can be lifted from a ring of this many bits."""
    if bits not in SUM_BITS:
        raise InvalidParameter(f"sums are made modulo 2**32 or 2**64, not with bits={bits}")
    if largest_sum(n_rows, largest_gradient, largest_hessian) > 1 << (bits - 2):
        raise FixedPointOverflow(_too_large(bits, n_rows, largest_gradient, largest_hessian))


def largest_numerator(
    n_rows: int, largest_gradient: int, largest_hessian: int, lambda_int: int, gamma2_int: int
) -> int:
    """max P over all candidates, stopping included."""
    _check(n_rows=n_rows, largest_gradient=largest_gradient, largest_hessian=largest_hessian, gamma2_int=gamma2_int)
    _check_lambda(lambda_int)
    squares, hessians = largest_gradient**2, n_rows * largest_hessian
    stop = lambda_int * (squares * n_rows**2 + gamma2_int * (hessians + lambda_int))
    split = squares * (lambda_int * n_rows**2 + n_rows**2 // 4 * (hessians - 2 * lambda_int))
    return max(stop, split)


def largest_denominator(n_rows: int, largest_hessian: int, lambda_int: int) -> int:
    """max Q over all candidates; stopping has none that is larger."""
    _check(n_rows=n_rows, largest_hessian=largest_hessian)
    _check_lambda(lambda_int)
    return n_rows**2 // 4 * largest_hessian**2 + lambda_int * largest_hessian * n_rows + lambda_int**2


def needed_bits(n_rows: int, largest_gradient: int, largest_hessian: int, lambda_int: int, gamma2_int: int) -> int:
    """Bits of the largest P times the largest Q, and one for the sign."""
    numerator = largest_numerator(n_rows, largest_gradient, largest_hessian, lambda_int, gamma2_int)
    return (numerator * largest_denominator(n_rows, largest_hessian, lambda_int)).bit_length() + 1


def comparison_bits(n_rows: int, largest_gradient: int, largest_hessian: int, lambda_int: int, gamma2_int: int) -> int:
    """The ring for comparisons: the next multiple of 32 bits that holds every difference P_1 Q_2 - P_2 Q_1.

    Never narrower than the ring for sums, from which it is lifted.
    """
    needed = needed_bits(n_rows, largest_gradient, largest_hessian, lambda_int, gamma2_int)
    needed = max(needed, sum_bits(n_rows, largest_gradient, largest_hessian))
    bits = -(-needed // LIMB_BITS) * LIMB_BITS
    if bits > LIMB_BITS * MAX_LIMBS:
        raise FixedPointOverflow(
            f"comparisons of gains over {n_rows:,} rows with gradients up to {largest_gradient:,} and hessians up to "
            f"{largest_hessian:,}, lambda {_short(lambda_int)} and twice gamma {_short(gamma2_int)} need {needed} "
            f"bits; at most {LIMB_BITS * MAX_LIMBS} can be had: use fewer gradient_bits"
        )
    return bits


def require_comparison_bits(
    bits: int, n_rows: int, largest_gradient: int, largest_hessian: int, lambda_int: int, gamma2_int: int
) -> None:
    """Raise FixedPointOverflow unless every comparison comes out right in a ring of this many bits."""
    if bits % LIMB_BITS or not LIMB_BITS <= bits <= LIMB_BITS * MAX_LIMBS:
        raise InvalidParameter(f"bits must be a multiple of {LIMB_BITS} up to {LIMB_BITS * MAX_LIMBS}, got {bits}")
    needed = needed_bits(n_rows, largest_gradient, largest_hessian, lambda_int, gamma2_int)
    if bits < needed:
        raise FixedPointOverflow(
            f"a ring of {bits} bits is too narrow: comparisons of gains over {n_rows:,} rows with gradients up to "
            f"{largest_gradient:,} and hessians up to {largest_hessian:,}, lambda {_short(lambda_int)} and "
            f"twice gamma {_short(gamma2_int)} need {needed}"
        )


def _too_large(bits: int, n_rows: int, largest_gradient: int, largest_hessian: int) -> str:
    largest = max(largest_gradient, largest_hessian)
    return (
        f"{n_rows:,} rows with gradients up to {largest_gradient:,} and hessians up to {largest_hessian:,} make sums "
        f"of up to {n_rows * largest:,}; a ring of {bits} bits holds 2**{bits - 2} = {1 << (bits - 2):,}, which is "
        f"{(1 << (bits - 2)) // n_rows:,} per row: use fewer gradient_bits"
    )


def _short(number: int) -> str:
    """A number that may have hundreds of digits."""
    return f"{number:,}" if number < 10**15 else f"2**{math.log2(number):.1f}"


def _check(**numbers: int) -> None:
    for name, number in numbers.items():
        least = 1 if name == "n_rows" else 0
        if number < least:
            raise InvalidParameter(f"{name} must be at least {least}, got {number}")


def _check_lambda(lambda_int: int) -> None:
    if lambda_int < 1:
        raise InvalidParameter(f"lambda_int must be at least 1, else empty children tie with all, got {lambda_int}")
