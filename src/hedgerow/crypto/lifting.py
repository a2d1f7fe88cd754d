"""What one opening under a mask gives: numbers divided by a power of two, or in a wider ring, and gains as fractions.

    opened   c = x + 2**(k-2) + r mod 2**k               the mask r is used for x alone
    known    x = c - 2**(k-2) - R(v)                     v = 1 if the top bit of c is 0: public
             R(0) = r without a sign, R(1) = r with a sign (two's complement): known to the dealer

**Range.** This holds for -2^(k-2) <= x <= 2^(k-2), both ends included, over the integers.
Proof: with x' = x + 2^(k-2) from 0 to 2^(k-1), a mask 0 <= r < 2^k, and
c = (x' + r) mod 2^k opened, x' = c - r + 2^k if the addition wrapped round, and c - r if not. It wrapped round if and
only if r >= 2^(k-1) and c < 2^(k-1): if r < 2^(k-1), then x' + r < 2^k, no wrap. If r >= 2^(k-1) and it did not wrap,
c >= r >= 2^(k-1); if it did, c = r - (2^k - x') <= r - 2^(k-1) < 2^(k-1). So the top bits of r and c tell. Beyond these
ends it goes wrong for some masks only: rarely, and unnoticed.

**Hiding.** r is uniform modulo 2**k, and so is c, whatever x is.

**Truncation.** x / 2**d, wrong by less than one unit of the result:

    x / 2**d  =  u - T(v)  + (low(c) - low(r)) / 2**d
    u = floor(c / 2**d) - 2**(k-2-d), public;  T(v) = floor(R(v) / 2**d), dealt;  low: the d lowest bits

The last part lies strictly between -1 and 1, and x / 2**d is floor(x / 2**d) plus a part that is not negative and below
1. So the whole number u - T(v) is floor(x / 2**d) or one more, and just x / 2**d if that is whole; it is within
-2**(k-2-d) and 2**(k-2-d) again. Beyond the ends some masks give a number that is wrong by 2**(k-d). It is one more if
and only if low(x) + low(r) >= 2**d, for a share low(x) / 2**d of all masks: the mean over masks is x / 2**d exactly.
Because the result is a public number minus a dealt one, its products with other dealt numbers can be dealt too, and
cost no round (`division.descended` does so): `hidden`, `cut` and `picked` are the pieces.

**Lifting.** x from sums modulo 2**32 or 2**64 in a wide ring: a public number minus one of two numbers that were dealt
there. So is every polynomial in several x, if the products of their R were dealt too, for all v: no further round. The
tables for gains are the most that is dealt per candidate (32 wide numbers), so `gains` draws and forgets them in
blocks. Dealer and parties draw within one step, in the same order, and the parties draw while they talk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import kernel
from hedgerow.crypto import limbs
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.shares import SUM32, SUM64, Array, Kind, Masked, Shape, Share, Talk, blocks_of, opened
from hedgerow.errors import InvalidParameter, InvalidType

Limbs = npt.NDArray[np.uint32]

BLOCK = 8192
"""Candidates whose tables are in memory at a time; dealer and parties must agree on it."""


# Truncation


def deal_truncation(step: DealerStep, shape: Shape, kind: Kind, d: int) -> Array:
    """A mask r for each number (nothing is sent), and T(0), T(1) (two numbers); gives both T: [2, ...]."""
    _check_shift(kind, d)
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
    _check_shift(x.kind, d)
    c = yield from opened(hidden(step, x, "truncation", is_first=is_first))
    return cut(step, c, x.kind, d).quotient(is_first=is_first)


class Cut(NamedTuple):
    """A truncated or lifted number: the public u minus the dealt [T(v)]."""

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
    return _held((limbs.top_bit(c) == 0)[..., None] if dealt.kind.limbs else _is_signed(c), dealt)


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


# Lifting alone


def deal_lift(step: DealerStep, shape: Shape, narrow: Kind, wide: Kind) -> None:
    """A mask r for each number (nothing is sent), and R(0), R(1) (two wide numbers)."""
    _check_kinds(narrow, wide)
    step.share(_both(step.mask(shape, narrow), wide), wide)


def lift(step: HandStep, x: Share, wide: Kind, *, is_first: bool) -> Talk[Share]:
    """[x] modulo 2**(32 L) from [x] modulo 2**k, k = 32 or 64, for -2**(k-2) <= x <= 2**(k-2).

    1. Dealt: [r] modulo 2**k; [R(0)] and [R(1)] modulo 2**(32 L).
    2. Everybody sends [x] + [r], the first adds 2**(k-2): one word per number, one round. Opened: c.
    3. [x] = -[R(v)], and the first adds u = c - 2**(k-2).
    """
    narrow = _check_kinds(x.kind, wide)
    c = yield from opened(hidden(step, x, "lift", is_first=is_first))
    u = limbs.add(limbs.from_words(c, wide.limbs), _offset(narrow, wide))
    return Cut(u, _held(_is_signed(c)[..., None], step.share((2, *x.shape), wide))).quotient(is_first=is_first)


# Gains

# The four sums of a candidate, and where the dealt numbers stand in its table. s is 0 for GL and HR, 1 for GR and HL.
_GL, _HL, _GR, _HR = range(4)
_SQUARED, _OTHER = [_GL, _GR], [_HR, _HL]
_ONE = 0  # + 2 x + v:             R_x(v)
_SQUARE = 8  # + 2 s + v:          R_G(v)^2
_CROSS = 12  # + 4 s + 2 v + v':   R_G(v) R_H(v')
_CUBE = 20  # + 4 s + 2 v + v':    R_G(v)^2 R_H(v')
_BOTH = 28  # + 2 v + v':          R_HL(v) R_HR(v')
_TABLE = 32
_PICKED = 11  # R of the four sums; R_G^2, R_G R_H, R_G^2 R_H for each s; R_HL R_HR


def deal_gains(step: DealerStep, n: int, narrow: Kind, wide: Kind) -> None:
    """Four masks per candidate (nothing is sent), and 32 wide numbers that are products of them."""
    _check_kinds(narrow, wide)
    r = step.mask((4, n), narrow)
    for block in blocks_of(n, BLOCK):
        step.share(_tables(r[:, block], wide), wide)


def gains(
    step: HandStep, sums: tuple[Share, Share, Share, Share], lambda_int: int, wide: Kind, *, is_first: bool
) -> Talk[tuple[Share, Share]]:
    """[P] and [Q] of each candidate from ([G_L], [H_L], [G_R], [H_R]) modulo 2**k, k = 32 or 64; any shape.

        P = G_L^2 (H_R + lambda) + G_R^2 (H_L + lambda)        Q = (H_L + lambda) (H_R + lambda)

    1. Dealt: for each of the four sums a mask [r] modulo 2**k, and modulo 2**(32 L), for both R(0) and R(1) of each:
       [R] (8 numbers), [R_G^2] (4), [R_G R_H] and [R_G^2 R_H] for G_L with H_R and G_R with H_L (16), [R_HL R_HR] (4).
    2. Everybody sends [x] + [r], the first adds 2**(k-2): four words per candidate, one round. Opened: c, hence the
       public u, to which lambda is added for H, and v, which says which of the dealt numbers hold.
    3. With G = u - R and H + lambda = t - S:
       [G^2 (H + lambda)] = 2 u [R S] + t [R^2] - u^2 [S] - 2 u t [R] - [R^2 S], and the first adds u^2 t;
       [(H_L + lambda) (H_R + lambda)] = [S_L S_R] - t_L [S_R] - t_R [S_L], and the first adds t_L t_R.
    """
    narrow = _check_kinds(sums[0].kind, wide)
    if any(share.kind != narrow or share.shape != sums[0].shape for share in sums):
        raise InvalidType("the sums of candidates must be shares of one kind and shape")
    shape = sums[0].shape
    x = Share(np.stack([share.words.reshape(-1) for share in sums]), narrow)
    c = yield from opened(hidden(step, x, "lift", is_first=is_first))
    plus_lambda = [_offset(narrow, wide, add) for add in (0, lambda_int, 0, lambda_int)]
    offsets = np.stack(plus_lambda)[:, None, :]
    n = c.shape[1]
    P, Q = (np.empty((n, wide.limbs), np.uint32) for _ in range(2))
    for block in blocks_of(n, BLOCK):
        here = c[:, block]
        table = step.share((_TABLE, here.shape[1]), wide).words
        dealt = np.empty((_PICKED, here.shape[1], wide.limbs), np.uint32)
        _pick(table, _is_signed(here), dealt)
        u = limbs.add(limbs.from_words(here, wide.limbs), offsets)
        P[block], Q[block] = _combined(u, dealt, is_first=is_first)
    return Share(P, wide).reshape(*shape), Share(Q, wide).reshape(*shape)


def _combined(u: Limbs, dealt: Limbs, *, is_first: bool) -> tuple[Limbs, Limbs]:
    """Step 3, for both s at once."""
    R, S = dealt[_SQUARED], dealt[_OTHER]
    squares, crosses, cubes, both = dealt[4:6], dealt[6:8], dealt[8:10], dealt[10]
    x, t = u[_SQUARED], u[_OTHER]
    twice = limbs.add(x, x)
    x_squared = limbs.multiply(x, x)
    parts = limbs.multiply(twice, crosses)
    limbs.add_product(parts, t, squares)
    limbs.subtract_product(parts, x_squared, S)
    limbs.subtract_product(parts, limbs.multiply(twice, t), R)
    limbs.subtract(parts, cubes, parts)
    if is_first:
        limbs.add_product(parts, x_squared, t)
    Q = both.copy()
    limbs.subtract_product(Q, u[_HL], dealt[_HR])
    limbs.subtract_product(Q, u[_HR], dealt[_HL])
    if is_first:
        limbs.add_product(Q, u[_HL], u[_HR])
    return limbs.add(parts[0], parts[1]), Q


@kernel
def _pick(table: Limbs, v: npt.NDArray[np.bool_], out: Limbs) -> None:
    """Which of the dealt numbers hold. In: `table` [32, n, L], `v` [4, n]. Out: `out` [11, n, L]."""
    for i in range(table.shape[1]):
        v_gl, v_hl, v_gr, v_hr = int(v[0, i]), int(v[1, i]), int(v[2, i]), int(v[3, i])
        left, right = 2 * v_gl + v_hr, 4 + 2 * v_gr + v_hl
        ones = (_ONE + v_gl, _ONE + 2 + v_hl, _ONE + 4 + v_gr, _ONE + 6 + v_hr)
        squares, both = (_SQUARE + v_gl, _SQUARE + 2 + v_gr), _BOTH + 2 * v_hl + v_hr
        for k, place in enumerate((*ones, *squares, _CROSS + left, _CROSS + right, _CUBE + left, _CUBE + right, both)):
            for limb in range(table.shape[2]):
                out[k, i, limb] = table[place, i, limb]


def _tables(r: Array, wide: Kind) -> Limbs:
    """All that is dealt for candidates with the masks r [4, n]: [32, n, L]."""
    n = r.shape[1]
    table = np.empty((_TABLE, n, wide.limbs), np.uint32)
    R = table[_ONE:_SQUARE].reshape(4, 2, n, wide.limbs)
    R[:, 0], R[:, 1] = _both(r, wide)
    for s, (g, h) in enumerate(zip(_SQUARED, _OTHER, strict=True)):
        square = limbs.multiply(R[g], R[g], table[_SQUARE + 2 * s : _SQUARE + 2 * s + 2])
        _outer(R[g], R[h], table[_CROSS + 4 * s : _CROSS + 4 * s + 4])
        _outer(square, R[h], table[_CUBE + 4 * s : _CUBE + 4 * s + 4])
    _outer(R[_HL], R[_HR], table[_BOTH:])
    return table


def _outer(x: Limbs, y: Limbs, out: Limbs) -> None:
    """x(v) y(v') for all v and v'."""
    limbs.multiply(x[:, None], y[None], out.reshape(2, 2, *x.shape[1:]))


def _both(r: Array, wide: Kind) -> Limbs:
    """R(0), r without a sign, and R(1), r with a sign: [2, ..., L]."""
    signed = r.view(np.dtype(f"i{r.itemsize}")).astype(np.int64, copy=False)
    return np.stack([limbs.from_words(each, wide.limbs) for each in (r, signed)])


def _held(v: npt.NDArray[np.bool_], dealt: Share) -> Share:
    return Share(np.where(v, dealt.words[1], dealt.words[0]), dealt.kind)


def _is_signed(c: Array) -> npt.NDArray[np.bool_]:
    """v: whether the top bit of c is 0."""
    return np.asarray(c >> c.dtype.type(8 * c.itemsize - 1) == 0)


def _offset(narrow: Kind, wide: Kind, add: int = 0) -> Limbs:
    return limbs.constant(add - (1 << (bits_of(narrow) - 2)), wide.limbs)


def _check_kinds(narrow: Kind, wide: Kind) -> Kind:
    if narrow not in {SUM32, SUM64}:
        raise InvalidType(f"sums to be lifted must be of kind sum32 or sum64, got {narrow}")
    if not wide.limbs or wide.number_bytes < narrow.number_bytes:
        raise InvalidParameter(f"wide must be limbs of at least as many bits as {narrow}, got {wide}")
    return narrow


def _check_shift(kind: Kind, d: int) -> None:
    if kind.is_xor:
        raise InvalidType(f"only numbers can be truncated, not bits of kind {kind}")
    if not 1 <= d <= bits_of(kind) - 2:
        raise InvalidParameter(f"d must be between 1 and {bits_of(kind) - 2} for {kind}, got {d}")
