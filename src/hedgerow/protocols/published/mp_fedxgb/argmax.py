"""SecureArgmax: which of two possible splits is better, by fractions of which P2 sees one half and P1 the other.

    gain_i - gain_j = P_i / Q_i - P_j / Q_j = (P_i Q_j - P_j Q_i) / (Q_i Q_j)        the paper's equation 7

    P = G_L^2 (H_R + lambda) + G_R^2 (H_L + lambda)        Q = (H_L + lambda) (H_R + lambda)

Numerator and denominator are computed on shares; the one is opened to P2 and the other to P1, and both signs together
say which is better. The paper counts nine products for each comparison: with P and Q computed once for each possible
split (five products), three are left.

Which possible splits are compared with which is public, and the same for everybody:

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

from hedgerow.crypto.beaver import cross_products, deal_cross_products, take_cross_products
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.shares import Array, Kind, Share, Talk, masked
from hedgerow.engine.dtypes import Bools, Ints


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


# --- two possible splits ---------------------------------------------------------------------------------------------


def deal_fractions(step: DealerStep, n_pairs: int, kind: Kind) -> None:
    """For `fractions`: four masks of each pair (nothing is sent), and two numbers."""
    _, b = deal_cross_products(step, n_pairs, 2, kind)
    step.share(kind.mul(b[:, 0], b[:, 1]), kind)


def fractions(step: HandStep, P: Share, Q: Share, *, is_first: bool) -> Talk[tuple[Share, Share]]:
    """[P_0 Q_1 - P_1 Q_0] and [Q_0 Q_1] of each pair, from [P] and [Q] of both: [pairs, 2].

    1. Dealt: masks [a], [b] of P and Q, [a_0 b_1 - a_1 b_0] and [b_0 b_1].
    2. Everybody sends [P] - [a] and [Q] - [b], one round. Opened: e, f.
    3. The numerator as in `beaver.cross_products`; [Q_0 Q_1] = [b_0 b_1] + f_0 [b_1] + f_1 [b_0],
       and the first adds f_0 f_1.
    """
    kind, n_pairs = P.kind, P.shape[0]
    triple = take_cross_products(step, n_pairs, 2, kind)
    both = step.share(n_pairs, kind)
    e, f = yield [masked("pair", P, triple.a), masked("pair", Q, triple.b)]
    numerators = cross_products(e, f, triple, is_first=is_first)[:, 0]
    denominators = both + triple.b[:, 1].times(f[:, 0]) + triple.b[:, 0].times(f[:, 1])
    return numerators, denominators.plus(kind.mul(f[:, 0], f[:, 1]), is_first=is_first)


def is_negative(words: Array) -> Bools:
    """Of numbers in limbs, or 64-bit words: whether the top bit is 1."""
    return np.asarray(words[..., -1] >> 31 == 1)


def is_positive(words: Array) -> Bools:
    """Neither negative nor zero."""
    return np.asarray(~is_negative(words) & words.any(axis=-1))
