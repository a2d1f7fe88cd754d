"""Sums of floats that are exact, so that neither the order of rows nor who holds them matters.

    limbs = exact_limbs(weights)        whole numbers; those of several parties add up, limb by limb
    nearest_above(limbs)                the smallest float that is not below the sum

A float64 of at least 0 is a whole number of 2**-1074. Written in digits of 32 bits, such numbers are added digit by
digit: 2**30 of them fit 64 bits before anything is carried. Whole weights and others are so summed alike, and the sum
of what several parties have is the sum over all their rows.
"""

from __future__ import annotations

import math

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.dtypes import Floats, Ints

DIGIT_BITS = 32
_SMALLEST = 1074
"""The smallest float above 0 is two to the power of minus this."""
N_LIMBS = -(-(1024 + _SMALLEST) // DIGIT_BITS) + 1
"""Digits of the largest float, and one for what is carried."""


def exact_limbs(values: Floats) -> Ints:
    """The sum of finite values of at least 0, of which there are fewer than 2**30, as digits: int64 [N_LIMBS]."""
    limbs = np.zeros(N_LIMBS, np.int64)
    _add_digits(np.ascontiguousarray(values, np.float64).view(np.int64), limbs)
    return limbs


@kernel
def _add_digits(bits: Ints, limbs: Ints) -> None:
    """A float is its last 52 bits, with a 1 before them unless the 11 bits of its exponent are 0."""
    digit = np.int64(2**DIGIT_BITS - 1)
    for row in range(bits.shape[0]):
        exponent = bits[row] >> 52
        digits = bits[row] & np.int64(2**52 - 1)
        if exponent > 0:
            digits |= np.int64(2**52)
            exponent -= 1
        first, shift = exponent // DIGIT_BITS, exponent % DIGIT_BITS
        high = digits >> (DIGIT_BITS - shift)  # what is beyond the first digit
        limbs[first] += (digits << shift) & digit
        limbs[first + 1] += high & digit
        limbs[first + 2] += high >> DIGIT_BITS
    for limb in range(limbs.shape[0] - 1):
        limbs[limb + 1] += limbs[limb] >> DIGIT_BITS
        limbs[limb] &= digit


def nearest_above(limbs: Ints) -> float:
    """The smallest float that is not below the sum; the sum itself where it is a float. math.inf beyond all floats."""
    total = sum(int(limb) << (DIGIT_BITS * place) for place, limb in enumerate(limbs.tolist()))
    try:
        nearest = total / 2**_SMALLEST
    except OverflowError:
        return math.inf
    numerator, denominator = nearest.as_integer_ratio()
    return math.nextafter(nearest, math.inf) if numerator * 2**_SMALLEST < total * denominator else nearest
