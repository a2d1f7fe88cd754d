"""Noise that nobody but the dealer knows, as shares: what is opened after it was added is noisy for everybody.

    dealer     nu = draw(shape)                     from its own secret randomness, by a sampler of the privacy part
    dealt      [nu]
    parties    [x] + [nu]                           and only that is opened, or compared

**What it rests on.** The dealer has no data, works together with nobody and sees nothing that parties open: noise that
an adversary knows is no noise. Who lacks the share of one party knows nothing of nu, so one noise is enough against any
coalition but that of all parties, who have all data anyway. Noise that each party draws would have to be enough by
itself, because all others can take theirs off: M times the variance.

**What is not known of the draws here.** The sampler is a parameter: whole numbers in, whole numbers out. That they have
the wanted distribution, and what the result costs, is said where it was made (`privacy.discrete_gaussian`,
`privacy.gumbel`). Noise that does not fit the ring is refused, since it would wrap round.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hedgerow.crypto import limbs
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.shares import SUM64, Array, Kind, Shape, Share
from hedgerow.crypto.truncation import bits_of
from hedgerow.errors import FixedPointOverflow, InvalidParameter, InvalidType

Ints = npt.NDArray[np.int64]
Draw = Callable[[tuple[int, ...]], Ints]
"""Gives independent whole numbers of this shape, int64, from secret randomness of the dealer."""


def deal_noise(step: DealerStep, shape: Shape, kind: Kind, draw: Draw) -> None:
    """[nu] for each number: one number is sent."""
    step.share(_words(draw(_axes(shape)), _axes(shape), kind), kind)


def take_noise(step: HandStep, shape: Shape, kind: Kind) -> Share:
    """The party's share of what `deal_noise` dealt: adding it is local."""
    _check_kind(kind)
    return step.share(shape, kind)


def _axes(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _words(noise: Ints, shape: tuple[int, ...], kind: Kind) -> Array:
    """Whole numbers as words of the ring; those beyond a quarter of it are refused."""
    _check_kind(kind)
    if not isinstance(noise, np.ndarray) or noise.dtype != np.int64 or noise.shape != shape:
        got = f"{noise.dtype} {noise.shape}" if isinstance(noise, np.ndarray) else type(noise).__name__
        raise InvalidType(f"draw must give an array of int64 of shape {shape}, got {got}")
    bits = min(bits_of(kind), bits_of(SUM64)) - 2
    if noise.size and max(int(noise.max()), -int(noise.min())) > 1 << bits:
        # No number is named: what was drawn is a secret, even if it is not used.
        raise FixedPointOverflow(f"a noise is beyond 2**{bits}, a quarter of what {kind} holds: use a coarser unit")
    return limbs.from_int64(noise, kind.limbs) if kind.limbs else noise.astype(kind.dtype)


def _check_kind(kind: Kind) -> None:
    if kind.is_xor:
        raise InvalidParameter(f"kind must be of numbers, not of bits, got {kind}")
