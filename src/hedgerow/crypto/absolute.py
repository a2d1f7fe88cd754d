"""Sizes of shared numbers, without their signs: |x| from [x] modulo 2**32.

    [s] = [x < 0]                              by `compare.signs`, an exclusive-or share
    |x| = x - 2 s x                            a bit times a number

For scores that add up sizes of sums, |G_L| + |G_R|: a row moves such a score by no more than its own gradient.
"""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.compare import Circuit, deal_signs, signs
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.rounds import Masked, Talk, masked
from hedgerow.crypto.shares import SUM32, XOR8, Share, limbs_kind
from hedgerow.errors import InvalidType

_ONE_LIMB = limbs_kind(1)


def deal_bit_products(step: DealerStep, n: int) -> None:
    """For each number a random bit rho (nothing is sent) and as a number, a mask a (nothing is sent), and rho a."""
    rho = (step.mask(n, XOR8) & np.uint8(1)).astype(np.uint32)
    step.share(rho, SUM32)
    a = step.mask(n, SUM32)
    step.share(rho * a, SUM32)


def bit_times(step: HandStep, bit: Share, x: Share, *, is_first: bool) -> Talk[Share]:
    """[s x] modulo 2**32 from a bit [s] by exclusive or and [x] modulo 2**32, element by element.

    1. Dealt: [rho] by exclusive or and [rho], [a], [rho a] modulo 2**32.
    2. Everybody sends [s] ^ [rho], one bit per number, and [x] - [a], 4 bytes, in one round. Opened: v, e.
    3. s = v + (1 - 2 v) rho and x = e + a, so [s x] = v (e + [a]) + (1 - 2 v) (e [rho] + [rho a]); the first adds the e
       of the first part.
    """
    if bit.kind != XOR8 or x.kind != SUM32 or bit.shape != x.shape or len(x.shape) != 1:
        raise InvalidType(f"a bit must be of kind xor8, a number of kind sum32, both in a row, got {bit!r} and {x!r}")
    n = x.shape[0]
    hidden = (bit.words ^ step.mask(n, XOR8).words) & np.uint8(1)
    rho = step.share(n, SUM32).words
    a = step.mask(n, SUM32)
    rho_a = step.share(n, SUM32).words
    packed = np.packbits(hidden, bitorder="little")
    shown, e = yield [Masked("bit", packed, XOR8, n), masked("factor", x, a)]
    v = np.unpackbits(shown, count=n, bitorder="little")
    chosen = e * rho + rho_a
    whole = a.words + e if is_first else a.words
    return Share(np.where(v == 1, whole - chosen, chosen), SUM32)


def deal_absolute(step: DealerStep, n: int, circuit: Circuit) -> None:
    """For `absolute`."""
    deal_signs(step, n, _ONE_LIMB, circuit)
    deal_bit_products(step, n)


def absolute(step: HandStep, x: Share, circuit: Circuit, *, is_first: bool) -> Talk[Share]:
    """[|x|] modulo 2**32 from [x] modulo 2**32, for -2**31 < x < 2**31, numbers in a row.

    1. [s] = [x < 0] (`compare.signs`), then [s x] (`bit_times`).
    2. [|x|] = [x] - 2 [s x].
    """
    if x.kind != SUM32 or len(x.shape) != 1:
        raise InvalidType(f"numbers must be of kind sum32, in a row, got {x!r}")
    is_negative = yield from signs(step, Share(x.words[:, None], _ONE_LIMB), circuit, is_first=is_first)
    product = yield from bit_times(step, is_negative, x, is_first=is_first)
    return Share(x.words - np.uint32(2) * product.words, SUM32)
