"""Number lines: every number of a kind has a whole-numbered place, and places are in the order of the numbers.

    float64, float32    a positive number's place is its bit pattern, a negative one's the same with a minus sign:
                        neighbours in place are neighbours as numbers, and a power of two is always 2**52 (2**23)
                        places from the next, whether it is 1e-300 or 1e300
    integer             a whole number is its own place; beyond 2**53, where float64 holds only every second one, places
                        go on from number to number

So a search by halving places finds any number in at most 64 steps, near zero as well as far away from it. Zero has one
place, whatever its sign. Infinities have none: they count as the largest finite number, as they do in `binning.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from hedgerow.engine.dtypes import Floats, Ints

KINDS = ("float64", "float32", "integer")

_ALL_WHOLE = 2**53
"""Up to here float64 holds every whole number."""

# Powers of two between which most numbers of most tables lie: the first look at a column is finer there.
_USUAL = {"float64": (-16, 32), "float32": (-16, 32), "integer": (0, 27)}
_EXPONENTS = {"float64": (-1074, 1023), "float32": (-149, 127), "integer": (0, 1023)}


def kind_of(values: np.ndarray) -> str:
    """The kind of some values (NaN for missing): "integer" if all are whole or there are none, else their type."""
    present = values[~np.isnan(values)]
    if np.array_equal(np.floor(present), present):
        return "integer"
    return "float32" if values.dtype == np.float32 else "float64"


def common_kind(kinds: set[str]) -> str:
    """One kind for a column whose owners hold these: whole numbers only if they do for all, else the wider float."""
    if "float64" in kinds:
        return "float64"
    return "float32" if "float32" in kinds else "integer"


@dataclass(frozen=True)
class NumberLine:
    """The places of one kind of numbers: from `-largest` to `largest`, both included."""

    kind: str

    @cached_property
    def largest(self) -> int:
        """The place of the largest finite number."""
        number = np.finfo(np.float32 if self.kind == "float32" else np.float64).max
        return int(self.places(np.array([number], np.float64))[0])

    @property
    def grain(self) -> int:
        """Every so many places lies a number that float32 can hold too (for the usual numbers); 1 where all are alike.

        Only float64 has a coarser grain: whole numbers of ordinary size are exact in float32 anyhow.
        """
        return 2**29 if self.kind == "float64" else 1

    def numbers(self, places: Ints) -> Floats:
        """The numbers at some places."""
        magnitudes = np.abs(places)
        if self.kind == "float64":
            found = magnitudes.view(np.float64)
        elif self.kind == "float32":
            found = magnitudes.astype(np.int32).view(np.float32).astype(np.float64)
        else:
            beyond = np.maximum(magnitudes - _ALL_WHOLE, 0) + _bits(float(_ALL_WHOLE))
            found = np.where(magnitudes <= _ALL_WHOLE, magnitudes.astype(np.float64), beyond.view(np.float64))
        return np.where(places < 0, -found, found)

    def places(self, numbers: Floats) -> Ints:
        """The places of finite numbers, or of the nearest ones of this kind."""
        magnitudes = np.abs(numbers)
        if self.kind == "float64":
            found = magnitudes.view(np.int64)
        elif self.kind == "float32":
            found = np.minimum(magnitudes, np.finfo(np.float32).max).astype(np.float32).view(np.int32).astype(np.int64)
        else:
            beyond = magnitudes.view(np.int64) - _bits(float(_ALL_WHOLE)) + _ALL_WHOLE
            found = np.where(
                magnitudes < _ALL_WHOLE, np.rint(np.minimum(magnitudes, _ALL_WHOLE)).astype(np.int64), beyond
            )
        return np.where(numbers < 0, -found, found)


@lru_cache(maxsize=64)
def first_look(kind: str, budget: int) -> Ints:
    """At most `budget` places to begin with, increasing: the same for every column of this kind.

    Zero and its neighbours, powers of two over the whole range, and as fine a division as the budget allows of the
    powers between which most numbers lie.
    """
    line = NumberLine(kind)
    lowest, highest = _EXPONENTS[kind]
    step = max(1, -(-16 * (highest - lowest) // budget))  # an eighth of the budget, for both signs together
    exponents = np.arange(lowest, highest + 1, step)
    magnitudes = np.ldexp(1.0, exponents)
    usual_low, usual_high = _USUAL[kind]
    fineness = (budget - 1 - 2 * len(exponents)) // (2 * (usual_high - usual_low))
    if fineness >= 1:
        parts = 2 ** (fineness.bit_length() - 1)  # a power of two, for round numbers
        steps = 1.0 + np.arange(parts) / parts
        usual = np.ldexp(steps, np.arange(usual_low, usual_high)[:, None]).ravel()
        magnitudes = np.concatenate([magnitudes, usual[usual == np.floor(usual)] if kind == "integer" else usual])
    above = np.unique(line.places(magnitudes))
    places = np.concatenate([-above[::-1], [0], above])
    places.flags.writeable = False
    return places


def _bits(number: float) -> int:
    return int(np.array([number]).view(np.int64)[0])
