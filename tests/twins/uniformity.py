"""Are the bytes of a message uniform, position by position, over many runs? Are those of two groups of runs alike?

    problems = unlike_uniform(received)            received [runs, bytes]; an empty list if nothing was found
    problems = unlike_each_other(some, others)

Of a uniform bit, r runs show k ones, and (2k - r)**2 / r is the square of a sum of signs, whose tails are no heavier
than those of a squared normal. So a sum of n such squares is above n + 2 sqrt(n t) + 2 t with probability below
exp(-t) (Laurent and Massart 2000), whatever r is. The same holds for the difference of two groups. Sums are taken over
all bits, over those of each place within a byte, and over the bits of each byte by itself; then all bytes are counted
by their value (which is such a sum only about). With t = 40, all tests of a million bytes together give a false alarm
with probability below 1e-11.

It finds masks that are missing, too short or not uniform. It does not find one that was used twice: `openings` does.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hedgerow.errors import InvalidParameter

Bytes = npt.NDArray[np.uint8]
Bits = npt.NDArray[np.bool_]

STRICTNESS = 40.0


def most(n: float, t: float = STRICTNESS) -> float:
    """What a sum of n squares stays below, but for a probability of exp(-t)."""
    return n + 2 * math.sqrt(n * t) + 2 * t


def unlike_uniform(received: Bytes, counting: Bits | None = None) -> list[str]:
    """In which ways bytes [runs, bytes] differ from uniform ones; `counting` [8 x bytes] says which bits count.

    Bits are numbered from the lowest of each byte.
    """
    n_runs, n_bytes = received.shape
    counting = np.ones(8 * n_bytes, np.bool_) if counting is None else counting
    ones = _ones(received)
    problems = _unbalanced((2 * ones - n_runs) ** 2 / n_runs, counting)
    whole = counting.reshape(-1, 8).all(axis=1)
    values = np.bincount(received[:, whole].reshape(-1), minlength=256)
    expected = values.sum() / 256
    if expected >= 5 and ((values - expected) ** 2 / expected).sum() > most(255):
        problems.append("some values of bytes are more frequent than others")
    return problems


def unlike_each_other(some: Bytes, others: Bytes) -> list[str]:
    """In which ways the bytes [runs, bytes] of two groups of equally many independent runs differ."""
    if some.shape != others.shape:
        raise InvalidParameter(f"both groups must have equally many runs and bytes, got {some.shape}, {others.shape}")
    # A bit that is not random at all has either no difference or the largest that there is.
    problems = _unbalanced((_ones(some) - _ones(others)) ** 2 / (len(some) / 2), np.ones(8 * some.shape[1], np.bool_))
    values = np.stack([np.bincount(group.reshape(-1), minlength=256) for group in (some, others)]).astype(np.float64)
    total = values.sum(axis=0)
    found = total > 0
    if ((values[0] - values[1])[found] ** 2 / total[found]).sum() > most(255):
        problems.append("some values of bytes are more frequent in one of them")
    return problems


def _ones(received: Bytes) -> npt.NDArray[np.int64]:
    return np.asarray(np.unpackbits(received, axis=1, bitorder="little").sum(axis=0, dtype=np.int64))


def _unbalanced(squares: npt.NDArray[np.float64], counting: Bits) -> list[str]:
    squares = np.where(counting, squares, 0.0).reshape(-1, 8)
    counting = counting.reshape(-1, 8)
    problems = []
    if squares.sum() > most(counting.sum()):
        problems.append("bits are out of balance")
    problems += [
        f"bits at place {place} of bytes are out of balance"
        for place in range(8)
        if squares[:, place].sum() > most(counting[:, place].sum())
    ]
    of_bytes = np.array([most(n) for n in range(9)])[counting.sum(axis=1)]
    far = np.flatnonzero(squares.sum(axis=1) > of_bytes)
    if len(far):
        problems.append(f"{len(far)} bytes are out of balance by themselves, the first of them byte {far[0]}")
    return problems
