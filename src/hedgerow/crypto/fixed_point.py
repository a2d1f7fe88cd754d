"""Real numbers as words of the ring modulo 2**64, so that sums of them are exact and masks can be added.

    -1.5  --(bits=8)-->  -384  --(two's complement)-->  2**64 - 384

A sum of words is right as long as the sum of the numbers behind them stays within 63 bits and a sign. Whether it does
is decided before anything is sent, from the largest number and the number of terms.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.crypto.csprng import Words
from hedgerow.errors import FixedPointOverflow, InvalidParameter, InvalidType

MAX_BITS = 62


class FixedPoint:
    """Numbers of at most `bound` in absolute value, with `bits` binary digits after the point, `terms` of them summed.

    1. encode: round(value * 2**bits), half to even, as a 64-bit two's complement word.
    2. Anybody adds at most `terms` such words modulo 2**64.
    3. decode: the word as a signed number, divided by 2**bits; off by at most terms / 2**(bits + 1) from the true sum.

    Raises `FixedPointOverflow` if bound * 2**bits * terms does not fit, if a value is beyond the bound, infinite or
    missing, and if a decoded sum is larger than `terms` values can make it (for instance when masks did not cancel). If
    noise is added to the words, `bound` must have room for it.
    """

    def __init__(self, bits: int, *, bound: float, terms: int) -> None:
        if not 0 <= bits <= MAX_BITS:
            raise InvalidParameter(f"bits must be between 0 and {MAX_BITS}, got {bits}")
        if not (math.isfinite(bound) and bound > 0):
            raise InvalidParameter(f"bound must be a positive number, got {bound}")
        if terms < 1:
            raise InvalidParameter(f"terms must be at least 1, got {terms}")
        largest = Fraction(float(bound)) * 2**bits  # exact, where floats would round
        # Rounding can raise a value to the next whole number, and then `terms` of them.
        self._largest_sum = terms * max(round(largest), 1)
        if max(largest * terms, self._largest_sum) >= 2**63:
            most = most_bits(bound, terms)
            advice = f"use at most {most}" if most >= 0 else "not even without any"
            raise FixedPointOverflow(
                f"{terms} values of up to {bound} with {bits} bits after the point do not fit 63 bits: {advice}"
            )
        self.bits = bits
        self.bound = float(bound)
        self.terms = terms

    def __repr__(self) -> str:
        return f"FixedPoint({self.bits}, bound={self.bound}, terms={self.terms})"

    def encode(self, values: npt.ArrayLike) -> Words:
        """Floating-point values, of any shape, as words."""
        floats = np.asarray(values)
        if floats.dtype.kind != "f" or floats.dtype.itemsize > 8:
            raise InvalidType(f"values must be floating-point numbers of at most 64 bits, got {floats.dtype}")
        floats = floats.astype(np.float64)
        inside = np.abs(floats) <= self.bound  # False also for NaN
        if not inside.all():
            raise FixedPointOverflow(_first_outside(floats, inside, self.bound))
        # Multiplying by a power of two is exact, and the result is below 2**63.
        whole = np.asarray(np.rint(np.ldexp(floats, self.bits)), np.int64)  # numpy makes scalars of arrays without axes
        return whole.view(np.uint64)

    def decode(self, total: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """A sum of at most `terms` words as floating-point numbers."""
        if not isinstance(total, np.ndarray) or total.dtype != np.uint64:
            raise InvalidType(f"total must be an array of uint64, got {getattr(total, 'dtype', type(total).__name__)}")
        signed = np.ascontiguousarray(total).reshape(total.shape).view(np.int64)
        if signed.size and max(int(signed.max()), -int(signed.min())) > self._largest_sum:
            raise FixedPointOverflow(
                f"a sum is larger than {self.terms} values of up to {self.bound} can make it: "
                "a message is missing, masks did not cancel, or more was added than agreed"
            )
        return np.asarray(np.ldexp(signed.astype(np.float64), -self.bits), np.float64)


def most_bits(bound: float, terms: int) -> int:
    """The largest `bits` for which `terms` values up to `bound` fit, at most 62; -1 if none does."""
    for bits in range(MAX_BITS, -1, -1):
        largest = Fraction(float(bound)) * 2**bits
        if max(largest, round(largest), 1) * terms < 2**63:
            return bits
    return -1


def _first_outside(values: npt.NDArray[np.float64], inside: npt.NDArray[np.bool_], bound: float) -> str:
    where = tuple(int(k) for k in np.argwhere(~inside)[0])
    return f"the value at {where} is {values[where]}, it must be between {-bound} and {bound}"
