"""Shared numbers divided by a power of two: one opening, and wrong by less than one unit of the result.

    opened   c = x + 2**(k-2) + r mod 2**k               the mask r is used for x alone
    known    x = c - 2**(k-2) - R(v)                     v = 1 if the top bit of c is 0: public
             R(0) = r without a sign, R(1) = r with a sign (two's complement): known to the dealer
    hence    x / 2**d  =  u - T(v)  + (low(c) - low(r)) / 2**d
             u = floor(c / 2**d) - 2**(k-2-d), public;  T(v) = floor(R(v) / 2**d), dealt;  low: the d lowest bits

**Range.** -2**(k-2) <= x <= 2**(k-2), both ends included: `widths` proves the second line for these, over the integers.
The last part of the third line lies strictly between -1 and 1, and x / 2**d is floor(x / 2**d) plus a part that is not
negative and below 1. So the whole number u - T(v) is floor(x / 2**d) or one more, and just x / 2**d if that is whole;
it is within -2**(k-2-d) and 2**(k-2-d) again. Beyond the ends some masks give a number that is wrong by 2**(k-d).

**Hiding.** r is uniform modulo 2**k, and so is c, whatever x is.

**No drift.** It is one more if and only if low(x) + low(r) >= 2**d, for a share low(x) / 2**d of all masks: the mean
over masks is x / 2**d exactly.

Because the result is a public number minus a dealt one, its products with other dealt numbers can be dealt too, and
cost no round (`descent` does so): `hidden`, `cut` and `picked` are the pieces.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.crypto import limbs
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.rounds import Masked, Talk, opened
from hedgerow.crypto.shares import Array, Kind, Shape, Share
from hedgerow.errors import InvalidParameter, InvalidType


def deal_truncation(step: DealerStep, shape: Shape, kind: Kind, d: int) -> Array:
    """A mask r for each number (nothing is sent), and T(0), T(1) (two numbers); gives both T: [2, ...]."""
    _check(kind, d)
    r = step.mask(shape, kind)
    both = np.stack([shifted(r, d, kind, signed=False), shifted(r, d, kind, signed=True)])
    step.share(both, kind)
    return both


def truncated(step: HandStep, x: Share, d: int, *, is_first: bool) -> Talk[Share]:
    """[floor(x / 2**d)], or one more, from [x] modulo 2**k, for -2**(k-2) <= x <= 2**(k-2) and 1 <= d <= k-2.

    1. Dealt: [r]; [T(0)] and [T(1)].
    2. Everybody sends [x] + [r], the first adds 2**(k-2): one number each, one round. Opened: c.
    3. [x / 2**d] = -[T(v)], and the first adds u = floor(c / 2**d) - 2**(k-2-d).
    """
    _check(x.kind, d)
    c = yield from opened(hidden(step, x, "truncation", is_first=is_first))
    return cut(step, c, x.kind, d).quotient(is_first=is_first)


class Cut(NamedTuple):
    """A truncated number: the public u minus the dealt [T(v)]."""

    u: Array
    dealt: Share

    def quotient(self, *, is_first: bool) -> Share:
        """[u - T(v)]."""
        return (-self.dealt).plus(self.u, is_first=is_first)


def hidden(step: HandStep, x: Share, name: str, *, is_first: bool) -> Masked:
    """What a party sends in step 2; it draws the mask."""
    kind = x.kind
    words = (x + step.mask(x.shape, kind)).plus(kind.constant(1 << (bits_of(kind) - 2)), is_first=is_first).words
    return Masked(name, words, kind)


def cut(step: HandStep, c: Array, kind: Kind, d: int) -> Cut:
    """What a party has in step 3; it draws the dealt numbers."""
    shape = c.shape[:-1] if kind.limbs else c.shape
    u = kind.sub(shifted(c, d, kind, signed=False), kind.constant(1 << (bits_of(kind) - 2 - d)))
    return Cut(u, picked(c, step.share((2, *shape), kind)))


def picked(c: Array, dealt: Share) -> Share:
    """Of numbers that were dealt for v = 0 and for v = 1, [2, ...], those that hold."""
    if dealt.kind.limbs:
        signed = (limbs.top_bit(c) == 0)[..., None]
    else:
        signed = np.asarray(c >> c.dtype.type(bits_of(dealt.kind) - 1) == 0)
    return Share(np.where(signed, dealt.words[1], dealt.words[0]), dealt.kind)


def shifted(x: Array, d: int, kind: Kind, *, signed: bool) -> Array:
    """floor(x / 2**d) of public numbers, taken with a sign or without."""
    kind.check(x)
    if not kind.limbs:
        words = x.view(np.dtype(f"i{x.itemsize}")) if signed else x
        return np.asarray(words >> words.dtype.type(d)).view(kind.dtype)
    whole, rest = divmod(d, limbs.LIMB_BITS)
    sign = limbs.top_bit(x) if signed else np.zeros(x.shape[:-1], np.uint8)
    above = np.repeat((np.uint64(0xFFFFFFFF) * sign)[..., None], whole + 1, axis=-1)
    wide: npt.NDArray[np.uint64] = np.concatenate([x[..., whole:].astype(np.uint64), above], axis=-1)
    pairs = wide[..., 1:] << np.uint64(limbs.LIMB_BITS) | wide[..., :-1]
    return (pairs >> np.uint64(rest)).astype(np.uint32)  # the lowest 32 bits of each pair


def bits_of(kind: Kind) -> int:
    """k: numbers of this kind are modulo 2**k."""
    return 8 * kind.number_bytes


def _check(kind: Kind, d: int) -> None:
    if kind.is_xor:
        raise InvalidType(f"only numbers can be truncated, not bits of kind {kind}")
    if not 1 <= d <= bits_of(kind) - 2:
        raise InvalidParameter(f"d must be between 1 and {bits_of(kind) - 2} for {kind}, got {d}")
