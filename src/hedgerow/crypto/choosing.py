"""The value of the leaf that a row comes to, where nobody knows the leaf: each party rules out some by its own splits.

    private    s_m[i, l]     1 if the splits of party m do not rule out leaf l for row i (m = 0 .. M-1)
    shared     w[l]          what leaf l is worth, modulo 2**64
    wanted     y[i] = sum over l of s_0[i, l] s_1[i, l] ... s_(M-1)[i, l] w[l]

In one tree just one leaf is left for a row, so y[i] is its value; leaves of several trees, one after the other, give
the sum over the trees. A value that one party knows is shared as it is: its words are the value, the others' are 0.

Bits that a party knows are shared in the same way, without a message: its bits are its share, 0 is everybody else's.
Shares of bits are packed, eight in a byte; what is over in the last byte is masked like the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import kernel
from hedgerow.crypto.beaver import deal_product, product, take_product
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.shares import SUM64, XOR8, Array, Share, Talk, masked
from hedgerow.errors import InvalidParameter, InvalidType

Bits = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

DEALT_BYTES = 16
"""Bytes that are dealt for each row and leaf, beside one bit for each product of bits: rho and a rho modulo 2**64."""


@dataclass(frozen=True)
class Choosing:
    """How much is chosen at once. Many rows are many of these, one after another: blocks of rows are the caller's."""

    n_rows: int
    n_leaves: int  # of all trees whose values are added up
    n_parties: int

    def __post_init__(self) -> None:
        if self.n_rows < 0 or self.n_leaves < 0:
            raise InvalidParameter(f"rows and leaves must be at least 0, got {self.n_rows} and {self.n_leaves}")
        if self.n_parties < 2:
            raise InvalidParameter(f"n_parties must be at least 2, got {self.n_parties}")

    @property
    def shape(self) -> tuple[int, int]:
        """Of each party's bits: rows, leaves."""
        return self.n_rows, self.n_leaves

    @property
    def n_bytes(self) -> int:
        """Bytes of one bit for each row and leaf."""
        return -(-self.n_rows * self.n_leaves // 8)

    @property
    def pairs(self) -> tuple[int, ...]:
        """Products of bits in each round: parties are paired, then pairs, and so on; who is over waits."""
        found, left = [], self.n_parties
        while left > 1:
            found.append(left // 2)
            left -= left // 2
        return tuple(found)


def deal_choosing(step: DealerStep, plan: Choosing) -> None:
    """For each round masks of bits (nothing is sent) and their products; then for each row and leaf a random bit.

    The bit rho is dealt modulo 2 (nothing is sent), and modulo 2**64 both by itself and times the mask a of the leaf's
    value (nothing is sent for a).
    """
    for pairs in plan.pairs:
        deal_product(step, (pairs, plan.n_bytes), XOR8)
    a = step.mask(plan.n_leaves, SUM64)
    rho = _unpacked(step.mask(plan.n_bytes, XOR8), plan).astype(np.uint64)
    step.share(rho, SUM64)
    step.share(np.multiply(rho, a, out=rho), SUM64)


def chosen(step: HandStep, bits: Bits, values: Share, plan: Choosing, *, me: int) -> Talk[Share]:
    """[y] modulo 2**64 for each row, from this party's own bits [rows, leaves] and [w] for each leaf.

    1. [s_m]: the bits at party m, 0 at all others. In each of ceil(log2 M) rounds what is left of them is multiplied in
       pairs (`beaver.product` on packed bits: two bits per product are sent). Left over: [s], by exclusive or.
    2. Dealt: for each leaf a mask [a] of its value; for each row and leaf a random bit rho as [rho] by exclusive or,
       and [rho] and [a rho] modulo 2**64.
    3. Everybody sends [s] ^ [rho], one bit per row and leaf, and [w] - [a], one word per leaf; one round. Opened: v, e.
    4. s = v + (1 - 2 v) rho as a number, and w = e + a, so that
       [y] = sum over l of v [a] + (1 - 2 v) (e [rho] + [a rho]), and the first adds the sum of v e.

    The words of [y] are uniform to whoever lacks one party's [a rho]: whoever may know y can be sent them as they are.
    """
    if values.kind != SUM64 or values.shape != (plan.n_leaves,):
        raise InvalidType(f"values must be shares of kind sum64 and shape ({plan.n_leaves},), got {values!r}")
    left = _shared_bits(bits, plan, me)
    is_first = me == 0
    for pairs in plan.pairs:
        triple = take_product(step, (pairs, plan.n_bytes), XOR8)
        first, second = (Share(left[side : 2 * pairs : 2], XOR8) for side in (0, 1))
        e, f = yield [masked("and", first, triple.a), masked("and", second, triple.b)]
        left = np.concatenate([product(e, f, triple, is_first=is_first).words, left[2 * pairs :]])
    a = step.mask(plan.n_leaves, SUM64)
    rest = Share(left[0], XOR8)
    shown, public = yield [masked("choose", rest, step.mask(plan.n_bytes, XOR8)), masked("value", values, a)]
    rho = step.share(plan.shape, SUM64).words
    a_rho = step.share(plan.shape, SUM64).words
    y = np.empty(plan.n_rows, np.uint64)
    base = public + a.words if is_first else a.words
    _add_up(_unpacked(shown, plan), public, base, rho, a_rho, y)
    return Share(y, SUM64)


def _shared_bits(bits: Bits, plan: Choosing, me: int) -> Bits:
    """Shares of all parties' bits: one's own where they belong, 0 elsewhere. [parties, bytes]."""
    if not isinstance(bits, np.ndarray) or bits.dtype != np.uint8 or bits.shape != plan.shape:
        got = f"{bits.dtype} {bits.shape}" if isinstance(bits, np.ndarray) else type(bits).__name__
        raise InvalidType(f"bits must be an array of uint8 of shape {plan.shape}, got {got}")
    if bits.size and bits.max() > 1:
        raise InvalidParameter("bits must be 0 or 1")
    if not 0 <= me < plan.n_parties:
        raise InvalidParameter(f"me must be between 0 and {plan.n_parties - 1}, got {me}")
    shares = np.zeros((plan.n_parties, plan.n_bytes), np.uint8)
    shares[me] = np.packbits(bits.reshape(-1), bitorder="little")
    return shares


def _unpacked(packed: Bits, plan: Choosing) -> Bits:
    return np.unpackbits(packed, count=plan.n_rows * plan.n_leaves, bitorder="little").reshape(plan.shape)


@kernel
def _add_up(shown: Array, public: Words, base: Words, rho: Words, a_rho: Words, out: Words) -> None:
    """Step 4 of `chosen`. In: `shown`, `rho`, `a_rho` [rows, leaves], `public`, `base` [leaves]. Out: `out` [rows].

    `shown` are bits; `base` is this party's share of the value: e + [a] at the first, [a] at the others.
    """
    for i in range(shown.shape[0]):
        total = np.uint64(0)
        for leaf in range(shown.shape[1]):
            term = public[leaf] * rho[i, leaf] + a_rho[i, leaf]
            total += base[leaf] - term if shown[i, leaf] else term
        out[i] = total
