"""Products of shared values, with correlated randomness that was dealt before.

Each protocol is a pair of steps, so that many of them fit into one message:

    sent = masked("x", x, a)                  what a party sends: [x]_m - [a]_m
    e = what all sent makes                   x - a, the same for everybody; uniform, because a is used for x alone
    z = product(e, f, triple, is_first=...)   what it computes then, by itself

`deal_...` is what the dealer draws, `take_...` what each party draws, in the same order. In the formulas [x] is x
shared among all parties, and "the first" adds what is public. A mask covers one value; one masked value may serve many
products.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.shares import Array, Kind, Shape, Share, Talk, masked


class Triple(NamedTuple):
    """Shares of two masks and of their product: c = a b, or a_i b_j - a_j b_i in groups."""

    a: Share
    b: Share
    c: Share


# Element by element


def deal_product(step: DealerStep, shape: Shape, kind: Kind) -> None:
    """Masks a and b (nothing is sent) and their product (one number to one party), for each element."""
    a = step.mask(shape, kind)
    b = step.mask(shape, kind)
    step.share(kind.mul(a, b), kind)


def take_product(step: HandStep, shape: Shape, kind: Kind) -> Triple:
    """The party's shares of what `deal_product` dealt."""
    return Triple(step.mask(shape, kind), step.mask(shape, kind), step.share(shape, kind))


def product(e: Array, f: Array, triple: Triple, *, is_first: bool) -> Share:
    """[x y] from [x] and [y], element by element; for bits (kinds xor8 to xor64) it is x and y.

    1. Dealt: [a], [b], [c] with c = a b.
    2. Everybody sends [x] - [a] and [y] - [b]: two numbers per product, one round. Opened: e = x - a, f = y - b.
    3. [x y] = [c] + e [b] + f [a], and the first adds e f.
    """
    a, b, c = triple
    kind = c.kind
    kind.check(e)
    kind.check(f)
    b_words = kind.add(b.words, f) if is_first else b.words
    words = kind.add(kind.mul(e, b_words), c.words)
    kind.add_product(words, f, a.words)
    return Share(words, kind)


def multiplied(step: HandStep, x: Share, y: Share, *, is_first: bool) -> Talk[Share]:
    """[x y], element by element, with masks and product drawn from a step: `deal_product` is what is dealt."""
    triple = take_product(step, x.shape, x.kind)
    e, f = yield [masked("factor", x, triple.a), masked("factor", y, triple.b)]
    return product(e, f, triple, is_first=is_first)


# All differences of cross products in groups, from one opening


@cache
def pairs_of(group: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """i and j of the pairs i < j of a group of that size: (0,1), (0,2), ..., (g-2,g-1)."""
    i, j = np.triu_indices(group, 1)
    i.flags.writeable = j.flags.writeable = False
    return i, j


def deal_cross_products(step: DealerStep, n_groups: int, group: int, kind: Kind) -> tuple[Array, Array]:
    """Masks a and b for each member (nothing is sent), a_i b_j - a_j b_i for each pair (a number each); gives a, b."""
    a = step.mask((n_groups, group), kind)
    b = step.mask((n_groups, group), kind)
    i, j = pairs_of(group)
    c = kind.mul(a[:, i], b[:, j])
    kind.subtract_product(c, a[:, j], b[:, i])
    step.share(c, kind)
    return a, b


def take_cross_products(step: HandStep, n_groups: int, group: int, kind: Kind) -> Triple:
    """The party's shares of what `deal_cross_products` dealt."""
    a, b = step.mask((n_groups, group), kind), step.mask((n_groups, group), kind)
    return Triple(a, b, step.share((n_groups, group * (group - 1) // 2), kind))


def cross_products(e: Array, f: Array, triple: Triple, *, is_first: bool) -> Share:
    """[P_i Q_j - P_j Q_i] for all pairs i < j of each group, from [P] and [Q] (groups x members): groups x pairs.

    1. Dealt: [a_i], [b_i] for each member, and [c_ij] with c_ij = a_i b_j - a_j b_i for each pair.
    2. Everybody sends [P] - [a] and [Q] - [b]: two numbers per member, however many pairs; one round. Opened: e, f.
    3. [P_i Q_j - P_j Q_i] = [c_ij] + e_i [b_j] + f_j [a_i] - e_j [b_i] - f_i [a_j]; the first adds e_i f_j - e_j f_i.
    """
    a, b, c = triple
    kind = c.kind
    kind.check(e)
    kind.check(f)
    i, j = pairs_of(e.shape[1])
    b_words = kind.add(b.words, f) if is_first else b.words
    words = c.words.copy()
    kind.add_product(words, e[:, i], b_words[:, j])
    kind.add_product(words, f[:, j], a.words[:, i])
    kind.subtract_product(words, e[:, j], b_words[:, i])
    kind.subtract_product(words, f[:, i], a.words[:, j])
    return Share(words, kind)


# Two private inputs, and one of the two learns the product


class PrivateMasks(NamedTuple):
    """For the reader: its mask b and z_1; for the other: its mask a and z_2; z_1 + z_2 = a b."""

    mine: Share
    z: Share


def deal_private_product(step: DealerStep, shape: Shape, kind: Kind, *, reader: int, others: Sequence[int]) -> None:
    """Mask b to the reader, a mask a to each other (nothing is sent), a b among each of them and the reader.

    One number per product and other, to one of the two. All others are dealt to if it is not known yet whose input is
    wanted; what the rest of them got is never used.
    """
    b = step.mask(shape, kind, (reader,))
    for other in others:
        a = step.mask(shape, kind, (other,))
        step.share(kind.mul(a, b), kind, (reader, other))


def take_as_reader(
    step: HandStep, shape: Shape, kind: Kind, *, reader: int, others: Sequence[int]
) -> dict[int, PrivateMasks]:
    """What `deal_private_product` dealt to the reader: the same mask b, and z_1 for each of the others."""
    b = step.mask(shape, kind, (reader,))
    return {other: PrivateMasks(b, step.share(shape, kind, (reader, other))) for other in others}


def take_as_other(step: HandStep, shape: Shape, kind: Kind, *, reader: int, me: int) -> PrivateMasks:
    """What `deal_private_product` dealt to one of the others: its mask a, and z_2."""
    return PrivateMasks(step.mask(shape, kind, (me,)), step.share(shape, kind, (reader, me)))


def hidden_input(value: Array, masks: PrivateMasks) -> Array:
    """value - mask: the reader's S = s - b or the other's T = t - a."""
    kind = masks.mine.kind
    return kind.sub(kind.check(value), masks.mine.words)


def answer_to_reader(s_hidden: Array, t: Array, masks: PrivateMasks) -> Array:
    """u = S t + z_2: what the other sends beside T, once S is there; see `private_product`."""
    kind = masks.z.kind
    return kind.add(kind.mul(kind.check(s_hidden), kind.check(t)), masks.z.words)


def private_product(t_hidden: Array, u: Array, masks: PrivateMasks) -> Array:
    """s t, in the clear, to the reader, who has s; the other has t. For bits (kinds xor8 to xor64): s and t.

    1. Dealt: b to the reader, a to the other, z_1 + z_2 = a b among the two.
    2. The reader sends S = s - b (one number per product). The same S may go to all others: one value, one mask.
    3. The other sends T = t - a and u = S t + z_2 (two numbers).
    4. s t = u + b T + z_1.

    The other learns S, which is uniform. The reader learns T, which is uniform, and u, which follows from s t.
    """
    kind = masks.z.kind
    words = kind.add(kind.mul(masks.mine.words, kind.check(t_hidden)), kind.check(u))
    return kind.add(words, masks.z.words, out=words)
