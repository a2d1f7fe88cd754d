"""Numbers that count only if some others are not negative: x where all of c_1, ..., c_k >= 0, else 0.

A possible split of a node counts if both of its children are heavy enough. Its left side's sums are set to 0 if not:
all rows then go right, which gains nothing.

1. `signs`: [c_j < 0] for all j, hence z_j = 1 for each c_j that is not negative; 3 rounds.
2. One round. Dealt: masks rho_j of the bits, masks a of all x, and for each value v of k bits the numbers 1 and a if v
   is rho, else 0, 0. Opened: m = z ^ rho, k bits, and e = x - a. All z_j are 1 if rho is m with every bit changed:
   there the table has [w], which is 1 if x counts and else 0, and [w a].
3. [w x] = e [w] + [w a].
"""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.compare import Circuit, deal_signs, signs
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.limbs import LIMB_BITS
from hedgerow.crypto.shares import XOR8, Array, Kind, Masked, Share, Talk, limbs_kind, masked

CIRCUIT = Circuit()
MOST_CHECKS = 8
"""Bits of a mask."""


def as_limbs(words: Array, kind: Kind) -> Share:
    """Shares modulo 2**32 or 2**64 as those of one or two limbs, for `signs`: the ring is the same."""
    wide = _limbs_of(kind)
    return Share(np.ascontiguousarray(words).view(np.uint32).reshape(*words.shape, wide.limbs), wide)


def deal_limited(step: DealerStep, n: int, n_checks: int, n_numbers: int, kind: Kind) -> None:
    """For n places with this many numbers and checks each: what `signs` needs, masks, and the tables of step 2."""
    deal_signs(step, n_checks * n, _limbs_of(kind), CIRCUIT)
    rho = step.mask(n, XOR8) & np.uint8((1 << n_checks) - 1)
    a = step.mask((n_numbers, n), kind)
    here = (np.arange(1 << n_checks)[:, None] == rho).astype(kind.dtype)
    step.share(np.concatenate([here[None], here * a[:, None]]), kind)


def limited(step: HandStep, x: Share, checks: Share, *, is_first: bool) -> Talk[Share]:
    """[x] where all checks are not negative, else [0]; x is [numbers, n], checks are limbs [checks, n]."""
    kind, (n_numbers, n), n_checks = x.kind, x.shape, checks.shape[0]
    bits = (yield from signs(step, checks, CIRCUIT, is_first=is_first)).words
    if is_first:
        bits ^= np.uint8(1)
    rho = step.mask(n, XOR8).words
    a = step.mask((n_numbers, n), kind)
    z = np.bitwise_or.reduce(bits << np.arange(n_checks, dtype=np.uint8)[:, None], axis=0).astype(np.uint8)
    every = np.uint8((1 << n_checks) - 1)
    hidden = np.unpackbits(((z ^ rho) & every)[:, None], axis=1, count=n_checks, bitorder="little")
    sent = np.packbits(hidden, bitorder="little")
    shown, e = yield [Masked("limits", sent, XOR8, n * n_checks), masked("limited", x, a)]
    m = np.packbits(
        np.unpackbits(shown, count=n * n_checks, bitorder="little").reshape(n, n_checks), axis=1, bitorder="little"
    )[:, 0]
    table = step.share((1 + n_numbers, 1 << n_checks, n), kind).words
    picked = table[:, m ^ every, np.arange(n)]
    return Share(np.asarray(e * picked[0] + picked[1:]), kind)


def _limbs_of(kind: Kind) -> Kind:
    return limbs_kind(8 * kind.number_bytes // LIMB_BITS)
