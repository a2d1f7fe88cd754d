"""Mechanisms: an exact answer goes in, a noisy one comes out together with the event that says what it is worth."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.errors import FixedPointOverflow, InvalidParameter
from hedgerow.privacy.discrete_gaussian import RandomBytes, sample
from hedgerow.privacy.events import Adjacency, DiscreteGaussian, Event, NonPrivate

Ints = npt.NDArray[np.int64]

_LARGEST = 2**62
"""Sums and noise stay below half of what 64 bits hold, so that the sum of the two cannot wrap round."""


class Released(NamedTuple):
    """What left the private side, and what is known about it."""

    values: Ints
    event: Event


def discrete_gaussian(
    values: npt.NDArray[Any],
    *,
    sensitivity: float,
    sigma: float,
    random: RandomBytes,
    parties: int = 1,
    adjacency: Adjacency = "add_remove",
) -> Released:
    """Whole numbers plus discrete Gaussian noise of scale `sigma`.

    With several `parties`, each of them adds noise of scale `sigma` to its own part of one sum, and the event is that
    of the sum. `sigma=0` adds nothing and says so in the event.
    """
    exact = _checked(values)
    if sigma == 0.0:
        return Released(exact.copy(), NonPrivate("no noise was added"))
    event = DiscreteGaussian(sensitivity, sigma, max(exact.size, 1), parties, adjacency)
    noise = sample(sigma, exact.size, random).reshape(exact.shape)
    return Released(exact + noise, event)


def _checked(values: npt.NDArray[Any]) -> Ints:
    if not isinstance(values, np.ndarray) or values.dtype != np.int64:
        raise InvalidParameter(f"discrete noise is for int64 arrays, got {getattr(values, 'dtype', type(values))}")
    if values.size and (int(values.max()) >= _LARGEST or int(values.min()) <= -_LARGEST):
        raise FixedPointOverflow("a sum of 2^62 or more leaves no room for noise; use a coarser fixed point")
    return values
