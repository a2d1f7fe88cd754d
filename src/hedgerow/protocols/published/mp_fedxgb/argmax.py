"""SecureArgmax: shares of the fractions whose signs say which of two possible splits is better.

    gain_i - gain_j = P_i / Q_i - P_j / Q_j = (P_i Q_j - P_j Q_i) / (Q_i Q_j)        the paper's equation 7

    P = G_L^2 (H_R + lambda) + G_R^2 (H_L + lambda)        Q = (H_L + lambda) (H_R + lambda)

Numerator and denominator are computed here; the protocol opens the one to P2 and the other to P1, and both signs
together say which is better. It counts nine products for each comparison: with P and Q computed once for each possible
split (five products), three are left.
"""

from __future__ import annotations

from hedgerow.crypto import limbs
from hedgerow.crypto.beaver import (
    cross_products,
    deal_cross_products,
    deal_product,
    masked,
    product,
    take_cross_products,
    take_product,
)
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.rounds import Masked, Talk
from hedgerow.crypto.shares import Kind, Shape, Share


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
    e, f = yield [Masked("pair", masked(P, triple.a), kind), Masked("pair", masked(Q, triple.b), kind)]
    numerators = cross_products(e, f, triple, is_first=is_first)[:, 0]
    denominators = both + triple.b[:, 1].times(f[:, 0]) + triple.b[:, 0].times(f[:, 1])
    return numerators, denominators.plus(kind.mul(f[:, 0], f[:, 1]), is_first=is_first)


def deal_multiplied(step: DealerStep, shape: Shape, kind: Kind) -> None:
    """For `multiplied`."""
    deal_product(step, shape, kind)


def multiplied(step: HandStep, x: Share, y: Share, *, is_first: bool) -> Talk[Share]:
    """[x y], element by element: MUL of the paper, `beaver.product`."""
    triple = take_product(step, x.shape, x.kind)
    e, f = yield [Masked("factor", masked(x, triple.a), x.kind), Masked("factor", masked(y, triple.b), x.kind)]
    return product(e, f, triple, is_first=is_first)


def public(value: int, kind: Kind) -> limbs.Limbs:
    """A public number as words."""
    return limbs.constant(value, kind.limbs)
