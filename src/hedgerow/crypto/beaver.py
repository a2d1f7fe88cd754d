"""Products of shared values, with correlated randomness that was dealt before.

Each protocol is a pair of steps, so that many of them fit into one message:

    sent = masked(x, a)                       what a party sends: [x]_m - [a]_m
    e = kind.total(sent by all)               x - a, the same for everybody; uniform, because a is used for x alone
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

from hedgerow.crypto import ring
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.shares import Array, Kind, Shape, Share
from hedgerow.errors import InvalidType

Among = Sequence[int] | None


class Triple(NamedTuple):
    """Shares of two masks and of their product: c = a b (or A B' for matrices, or a_i b_j - a_j b_i in groups)."""

    a: Share
    b: Share
    c: Share


def masked(x: Share, a: Share) -> Array:
    """[x]_m - [a]_m: the words that party m sends so that x - a can be opened; never use the mask a again."""
    return (x - a).words


# Element by element


def deal_product(step: DealerStep, shape: Shape, kind: Kind, among: Among = None) -> None:
    """Masks a and b (nothing is sent) and their product (one number to one party), for each element."""
    a = step.mask(shape, kind, among)
    b = step.mask(shape, kind, among)
    step.share(kind.mul(a, b), kind, among)


def take_product(step: HandStep, shape: Shape, kind: Kind, among: Among = None) -> Triple:
    """The party's shares of what `deal_product` dealt."""
    return Triple(step.mask(shape, kind, among), step.mask(shape, kind, among), step.share(shape, kind, among))


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


# A matrix with vectors, both shared


def deal_matrix_product(
    step: DealerStep, n_rows: int, n_columns: int, n_vectors: int, kind: Kind, among: Among = None
) -> None:
    """Masks A and B (nothing is sent) and A B' (n_rows n_vectors numbers to one party)."""
    a = step.mask((n_rows, n_columns), kind, among)
    b = step.mask((n_vectors, n_columns), kind, among)
    step.share(rows_times(a, b, kind), kind, among)


def take_matrix_product(
    step: HandStep, n_rows: int, n_columns: int, n_vectors: int, kind: Kind, among: Among = None
) -> Triple:
    """The party's shares of what `deal_matrix_product` dealt."""
    return Triple(
        step.mask((n_rows, n_columns), kind, among),
        step.mask((n_vectors, n_columns), kind, among),
        step.share((n_vectors, n_rows), kind, among),
    )


def matrix_product(e: Array, f: Array, triple: Triple, *, is_first: bool) -> Share:
    """[X y] for each of several vectors y, from [X] (rows x columns) and [y] (vectors x columns): vectors x rows.

    1. Dealt: [A], [B], [C] with C = A B' for all vectors at once.
    2. Everybody sends [X] - [A] (rows x columns numbers) and [y] - [B] (vectors x columns), one round. Opened: E, F.
    3. [X y] = [C] + E [B] + [A] F, and the first adds E F.
    """
    a, b, c = triple
    kind = c.kind
    b_words = kind.add(b.words, f) if is_first else b.words
    words = kind.add(rows_times(e, b_words, kind), rows_times(a.words, f, kind))
    return Share(kind.add(words, c.words, out=words), kind)


# A fixed matrix that one party knows, with many vectors


def deal_fixed(
    step: DealerStep, a: Array, vectors: int, kind: Kind, *, holders: Among, among: Among, n_threads: int = 1
) -> Array:
    """Vectors B among their holders (nothing is sent), and A B' among those who get the result; gives B.

    A is the mask of the owner's matrix, from `step.mask(shape, kind, among=(owner,))` of an earlier step.
    """
    b = step.mask((vectors, a.shape[1]), kind, holders)
    step.share(rows_times(a, b, kind, n_threads=n_threads), kind, among)
    return b


def hidden_matrix(x: Array, a: Share) -> Array:
    """E = X - A, which the owner of X sends once per training to those who hold the vectors.

    1. A is known to the owner and the dealer only; E is uniform to all others. A different X needs a different A.
    """
    return a.kind.sub(a.kind.check(x), a.words)


def fixed_at_holder(e: Array, b: Share, c: Share, *, n_threads: int = 1) -> Share:
    """What a holder of y has of [X y], all of it before y is known: E [B] + [C]; see `fixed_at_owner`."""
    words = rows_times(e, b.words, b.kind, n_threads=n_threads)
    return Share(b.kind.add(words, b.kind.check(c.words), out=words), b.kind)


def fixed_at_owner(product_with_f: Array, c: Share) -> Share:
    """What the owner of X has of [X y]: X F + [C].

    1. Once: the owner sends E = X - A to the holders of the vectors (rows x columns numbers; `hidden_matrix`).
    2. Dealt for each vector y: its mask B, and [C] with C = A B.
       a. y is the input of one party (the holder): B is known to it alone, and [C] is among it and the owner.
       b. y is shared among all: so are B and C, and all but the owner do what the holder does.
    3. F = y - B is opened to the owner (a: the holder sends it; columns numbers, one message, no answer).
    4. X y = X F + E B + A B. The owner has X F + [C]: X F is an ordinary product (a histogram) of what it knows in the
       clear, with a public vector. The holders have E [B] + [C], which does not depend on y: it can be made ahead.
       In b. the owner's share has its E [B] as well.

    What each learns: the holder E and the owner F, both uniform. One F may serve all rows; the mask B covers one y.
    """
    return Share(c.kind.add(c.kind.check(product_with_f), c.words), c.kind)


# All differences of cross products in groups, from one opening


class Pairs(NamedTuple):
    """The pairs i < j of a group: (0,1), (0,2), ..., (g-2,g-1)."""

    i: npt.NDArray[np.int64]
    j: npt.NDArray[np.int64]


@cache
def pairs_of(group: int) -> Pairs:
    """The pairs of a group of that size, in order."""
    i, j = np.triu_indices(group, 1)
    i.flags.writeable = j.flags.writeable = False
    return Pairs(i, j)


def deal_cross_products(
    step: DealerStep, n_groups: int, group: int, kind: Kind, among: Among = None
) -> tuple[Array, Array]:
    """Masks a and b for each member (nothing is sent), a_i b_j - a_j b_i for each pair (a number each); gives a, b."""
    a = step.mask((n_groups, group), kind, among)
    b = step.mask((n_groups, group), kind, among)
    i, j = pairs_of(group)
    c = kind.mul(a[:, i], b[:, j])
    kind.subtract_product(c, a[:, j], b[:, i])
    step.share(c, kind, among)
    return a, b


def take_cross_products(step: HandStep, n_groups: int, group: int, kind: Kind, among: Among = None) -> Triple:
    """The party's shares of what `deal_cross_products` dealt."""
    n_pairs = len(pairs_of(group).i)
    return Triple(
        step.mask((n_groups, group), kind, among),
        step.mask((n_groups, group), kind, among),
        step.share((n_groups, n_pairs), kind, among),
    )


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


def rows_times(matrix: Array, vectors: Array, kind: Kind, *, n_threads: int = 1) -> Array:
    """matrix (rows x columns) times each of some vectors (vectors x columns): vectors x rows, modulo 2**32 or 2**64."""
    if kind.limbs or kind.is_xor:
        raise InvalidType(f"a matrix product is for kinds sum32 and sum64, got {kind.name}")
    return ring.products(kind.check(matrix), kind.check(vectors), n_threads=n_threads)
