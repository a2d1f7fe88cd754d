"""Hessians as well as gradients, beside `hedgerow.attacks.masked_gradients.unmask_least_squares`; and a third way.

The logistic loss has h = |g| (1 - |g|) for any score, so c and d are the 2 W numbers with which all n rows fit: exact,
from one message that has hessians.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hedgerow.attacks.masked_gradients import unmask_least_squares
from hedgerow.attacks.masked_gradients.unmask_least_squares import Masked, behind_all, one_message
from hedgerow.engine.dtypes import Floats
from hedgerow.errors import InvalidInput

N_STEPS = 60
"""Of Gauss and Newton at most. Where all rows have the same score each step only halves the error."""


class Unmasked(NamedTuple):
    """What was behind the masks."""

    gradients: Floats
    hessians: Floats | None


def several_messages(messages: Sequence[Masked]) -> Unmasked:
    """Gradients, and hessians if there are any, behind messages about different candidates of one node: exactly."""
    gradients = unmask_least_squares.several_messages(messages)
    noises = [each.noise for each in messages if each.hessians is not None]
    masked = [each.hessians for each in messages if each.hessians is not None]
    return Unmasked(gradients, behind_all(noises, masked) if len(masked) == len(messages) else None)


def one_message_with_hessians(message: Masked) -> Unmasked:
    """Gradients and hessians of the logistic loss behind one message, which fit each other: h = |g| (1 - |g|)."""
    if message.hessians is None:
        raise InvalidInput("this message has no hessians: use one_message")
    # Columns of length 1: noise may be any number of times as large as what is behind it.
    B = message.noise
    B = B / np.maximum(np.sqrt((B**2).sum(axis=0)), 1e-300)
    g, h = one_message(B, message.gradients), one_message(B, message.hessians)
    misfit = h - np.abs(g) * (1.0 - np.abs(g))
    for _ in range(N_STEPS):
        slope = np.sign(g) - 2.0 * g
        step = np.linalg.lstsq(np.hstack([-slope[:, None] * B, B]), misfit, rcond=None)[0]
        length, before = 1.0, float(misfit @ misfit)
        while length > 1e-3:
            new_g = g - length * B @ step[: B.shape[1]]
            new_h = h - length * B @ step[B.shape[1] :]
            misfit = new_h - np.abs(new_g) * (1.0 - np.abs(new_g))
            if float(misfit @ misfit) < before:
                break
            length /= 2.0
        else:
            break
        g, h = new_g, new_h
        if float(misfit @ misfit) > 0.9 * before:  # down to rounding
            break
    return Unmasked(g, h)
