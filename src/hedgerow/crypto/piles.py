"""Sets of ids that do not fit memory: laid out in piles by one pass over them, of which one at a time is worked on.

    came       d4 0e 91 3c ab 17 ...            pile 0   0e 17 3c    sorted, compared or shuffled here: a pile fits
    pile       3  0  2  0  2  0                 pile 2   91 ab       memory, and pile after pile gives what
                                                pile 3   d4          all at once would have given, in the same order

What is sorted here is uniform: digests, blinded points, random words. So their first bits make piles of nearly equal
size. Piles are a party's own: how many there are and what is in them is told to nobody, and does not show in what is
sent.

`room` makes an array of a shape and a type: `np.empty`, or one that lies in a file without a name. It is asked for sets
of more than PILE rows; smaller ones are one pile, in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.signedinteger[Any]]
Room = Callable[[tuple[int, ...], Any], Array]

PILE = 1 << 21
"""Rows of a pile, about: 64 MiB of points, and about three times that while it is worked on."""
_STEP = 1 << 18
"""Rows that are dealt out at a time."""


def number_type(n: int) -> type[np.signedinteger[Any]]:
    """For numbers of rows: half of the memory where they fit."""
    return np.int32 if n <= np.iinfo(np.int32).max else np.int64


def n_piles_for(n_rows: int) -> int:
    """A power of two, so that the first bits say which."""
    return 1 << max(0, n_rows - 1).bit_length() - PILE.bit_length() + 1 if n_rows > PILE else 1


def first_bits(words: Array, n_piles: int) -> Array:
    """The pile of each word, which is the value of its first bits."""
    return words >> np.uint64(64 - (n_piles.bit_length() - 1)) if n_piles > 1 else np.zeros(len(words), np.uint64)


class Gathered:
    """Rows in the order in which they came, in memory until they fill a pile, then in `room`."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._chunks: list[Array] = []
        self._last: list[Array] = []
        self._n_last = 0
        self.n = 0

    def add(self, rows: Array) -> None:
        """The next rows."""
        self._last.append(rows)
        self._n_last += len(rows)
        self.n += len(rows)
        if self._n_last > PILE:
            self._chunks.append(_copied(self._last, self._room((self._n_last, *rows.shape[1:]), rows.dtype)))
            self._last, self._n_last = [], 0

    def taken(self) -> list[Array]:
        """All rows, in chunks; whoever takes them lets go of each as soon as it can."""
        chunks, self._chunks, self._last = [*self._chunks, *self._last], [], []
        return chunks


def in_one_piece(chunks: list[Array], room: Room) -> Array:
    """All rows as one array, of one chunk at least; chunks are let go of."""
    n_rows = sum(map(len, chunks))
    made = room if n_rows > PILE else np.empty
    return _copied(chunks, made((n_rows, *chunks[0].shape[1:]), chunks[0].dtype))


def _copied(chunks: list[Array], out: Array) -> Array:
    """Chunks one after the other; each is let go of once it is copied."""
    chunks.reverse()
    start = 0
    while chunks:
        chunk = chunks.pop()
        out[start : start + len(chunk)] = chunk
        start += len(chunk)
    return out


def in_piles(
    chunks: list[Array], pile_of: Callable[[int, Array], Array], n_piles: int, room: Room
) -> Iterator[tuple[Array, Numbers]]:
    """The rows of each pile, and their numbers, both in the order in which they came. Chunks are let go of.

    `pile_of(first, rows)` says to which pile rows belong, of which the first has this number.

    1. How many rows each pile has.
    2. Every row goes to the next free place of its pile, and its number beside it.
    """
    n_rows = sum(map(len, chunks))
    kind = number_type(n_rows)
    if not chunks:
        return
    if n_piles == 1:
        yield in_one_piece(chunks, room), np.arange(n_rows, dtype=kind)
        return
    counts = np.zeros(n_piles, np.int64)
    for first, part in _parts(iter(chunks)):
        counts += np.bincount(pile_of(first, part).astype(np.int64), minlength=n_piles)
    stops = np.cumsum(counts)
    free = stops - counts
    rows, numbers = room((n_rows, *chunks[0].shape[1:]), chunks[0].dtype), room((n_rows,), kind)
    for first, part in _parts(_let_go(chunks)):
        which = pile_of(first, part).astype(np.int64)
        order = np.argsort(which, kind="stable")
        dealt, own = part[order], (order + first).astype(kind)
        start = 0
        for pile, count in enumerate(np.bincount(which, minlength=n_piles).tolist()):
            to = slice(free[pile], free[pile] + count)
            rows[to], numbers[to] = dealt[start : start + count], own[start : start + count]
            free[pile] += count
            start += count
    for start, stop in zip((stops - counts).tolist(), stops.tolist(), strict=True):
        yield rows[start:stop], numbers[start:stop]


def _let_go(chunks: list[Array]) -> Iterator[Array]:
    chunks.reverse()
    while chunks:
        yield chunks.pop()


def _parts(chunks: Iterator[Array]) -> Iterator[tuple[int, Array]]:
    """Some rows at a time, with the number of the first."""
    first = 0
    for chunk in chunks:
        for start in range(0, len(chunk), _STEP):
            yield first + start, chunk[start : start + _STEP]
        first += len(chunk)
