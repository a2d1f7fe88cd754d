"""Which possible splits are compared with which: public, and the same for everybody.

    column 0      column 1      column 2         candidates, in the engine's order
    0 1 2 3 4     5 6 7         8 9
    |/  |/  |     |/  |         |/               the better one of two goes on, an odd one without a comparison
    0   2   4     5   7         9
    |---'   |     |---'         |                until each column has one ...
    |-------'     |-------------'                ... and then columns are compared in the same way

Of two equal candidates the first goes on, so the winner is the first of all that gain most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Ints


class Round(NamedTuple):
    """Places among those that are left, in order."""

    first: Ints  # of each pair; the second is the one after it
    odd: Ints  # go on without a comparison

    @property
    def n_pairs(self) -> int:
        """Comparisons in this round, at each node."""
        return len(self.first)

    def winners(self, second_is_better: np.ndarray) -> Ints:
        """Who goes on, in order, at one node or several: [..., left] places, from answers [..., pairs]."""
        chosen = self.first + second_is_better
        odd = np.broadcast_to(self.odd, (*chosen.shape[:-1], len(self.odd)))
        return np.sort(np.concatenate([chosen, odd], axis=-1), axis=-1)


def rounds(candidates: Sequence[int]) -> list[Round]:
    """All rounds for columns with this many candidates each; columns without any are left out."""
    left = [n for n in candidates if n]
    found: list[Round] = []
    while max(left, default=0) > 1:
        found.append(_round_of(left))
        left = [-(-n // 2) for n in left]
    n_columns = len(left)
    while n_columns > 1:
        found.append(_round_of([n_columns]))
        n_columns = -(-n_columns // 2)
    return found


def _round_of(left: Sequence[int]) -> Round:
    starts = np.cumsum([0, *left[:-1]])
    first = [start + np.arange(0, n - 1, 2) for start, n in zip(starts, left, strict=True)]
    odd = [start + n - 1 for start, n in zip(starts, left, strict=True) if n % 2]
    return Round(np.concatenate(first).astype(np.int64), np.array(odd, np.int64))
