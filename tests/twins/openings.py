"""Was a mask used twice? Looks at everything that was opened in several runs over the same data.

    opened = [run(seed) for seed in seeds]          each a list of Opening("lift", words, "sum")
    assert not repeated_masks(opened)

Two values under one mask r show x + r and y + r. Each looks uniform, and no test of balance or of bits finds it. But
between two runs with other seeds both words move by the same amount, r' - r. So:

1. For every opened word, take the differences between the first run and each of the others (exclusive or for bits).
2. Words with the same differences had the same mask; with opposite differences, one mask added and once subtracted.
3. A word with no differences at all had no mask.

With n words, chance makes two of them equal with probability about n**2 / 2**(bits compared), so runs are asked for
until that is small. It finds what it looks for and proves nothing else.

What it cannot find: a mask of several limbs of which only the upper limbs were used before; sums of three masks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.errors import InvalidParameter, InvalidType

CHANCE_BITS = 20
"""A pair is taken for a repeated mask by chance with probability below 2**-20."""


class Opening(NamedTuple):
    """What was opened under one name: words of shares put together.

    `how` is "sum" for words modulo 2**32 or 2**64, "limbs" for numbers [..., L] of 32-bit limbs, and "bits" for packed
    bits, of which the lowest `used_bits` of each word count (None: all). Additive masks are compared with each other
    whatever their width, by their lowest 32 bits; bits one by one.
    """

    name: str
    words: npt.NDArray[Any]
    how: Literal["sum", "limbs", "bits"] = "sum"
    used_bits: int | None = None


class Repeated(NamedTuple):
    """Two opened words under one mask, or one under none: (name, index) of each; the second is None for "no mask"."""

    first: tuple[str, int]
    second: tuple[str, int] | None
    relation: Literal["same", "opposite", "no mask"]


def repeated_masks(runs: Sequence[Sequence[Opening]]) -> list[Repeated]:
    """All pairs of opened words that moved together, and all words that did not move, between runs over the same data.

    Every run must open the same names and shapes in the same order. Indexes count words (or numbers, or bits) within
    the opening, in C order. Of many words under one mask, each but the first is listed with the first.
    """
    if len(runs) < 2:
        raise InvalidParameter(f"runs must be at least 2, got {len(runs)}")
    layout = _layout(runs[0])
    if any(_layout(run) != layout for run in runs[1:]):
        raise InvalidParameter("all runs must open the same names, kinds and shapes in the same order")
    return _repeated(runs, bits=False) + _repeated(runs, bits=True)


def _repeated(runs: Sequence[Sequence[Opening]], *, bits: bool) -> list[Repeated]:
    chosen = [[opening for opening in run if (opening.how == "bits") == bits] for run in runs]
    if not chosen[0]:
        return []
    words = np.stack([np.concatenate([_flat(opening) for opening in run]) for run in chosen])
    n_words = words.shape[1]
    needed = math.ceil((2 * math.log2(n_words + 1) + CHANCE_BITS) / (1 if bits else 32)) + 1
    if len(runs) < needed:
        raise InvalidParameter(f"{n_words} {'bits' if bits else 'words'} need at least {needed} runs, got {len(runs)}")
    places = [(opening.name, index) for opening in chosen[0] for index in range(len(_flat(opening)))]
    moves = (words[1:] ^ words[0] if bits else words[1:] - words[0]).T
    has_moved = moves.any(axis=1)
    found = [Repeated(places[index], None, "no mask") for index in np.flatnonzero(~has_moved)]
    moving = np.flatnonzero(has_moved)
    moves = moves[moving]
    found += [Repeated(places[moving[i]], places[moving[j]], "same") for i, j in _equal_rows(moves)]
    if not bits:  # a bit is its own negative
        mirrored = _equal_rows(np.concatenate([moves, -moves]))
        opposite = {(i, j - len(moves)) for i, j in mirrored if i < len(moves) <= j}
        found += [Repeated(places[moving[i]], places[moving[j]], "opposite") for i, j in sorted(opposite) if i < j]
    return found


def _layout(run: Sequence[Opening]) -> list[tuple[Any, ...]]:
    return [(opening.name, opening.how, opening.used_bits, opening.words.shape) for opening in run]


def _equal_rows(rows: npt.NDArray[np.uint32]) -> list[tuple[int, int]]:
    """(first, another) for each row that equals an earlier one."""
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    firsts = first[group.reshape(-1)]
    again = np.flatnonzero(firsts != np.arange(len(rows)))
    return [(int(firsts[index]), int(index)) for index in again]


def _flat(opening: Opening) -> npt.NDArray[np.uint32]:
    """The lowest 32 bits of every number, or every bit, as words."""
    words = opening.words
    if words.dtype.kind != "u":
        raise InvalidType(f"what {opening.name} opened must be unsigned words, got {words.dtype}")
    if opening.how == "bits":
        width = 8 * words.itemsize
        little = np.ascontiguousarray(words).astype(words.dtype.newbyteorder("<"))
        bits = np.unpackbits(little.reshape(-1).view(np.uint8), bitorder="little").reshape(-1, width)
        return bits[:, : opening.used_bits].reshape(-1).astype(np.uint32)
    numbers = words[..., 0] if opening.how == "limbs" else words
    return numbers.reshape(-1).astype(np.uint32)
