"""Gradients from behind their masks: whoever drew a mask can take it off.

The adversary is a feature holder of vertical.masked_gradients. For each candidate split of a node it drew W noise
vectors, the columns of B, and sent them to the label holder. It got back g + B c, and h + B d, where c and d are W
numbers each that only the label holder knows. However large the noise is, what it received lies in a known flat of W
dimensions around g:

    one message     least squares of g + B c on [1, B] finds c but for O(sqrt(W / n)), and what is left is g. The sum G
                    of the node's gradients, which comes with it, is one exact equation more: for W = 1 that is c itself
    with hessians   the logistic loss has h = |g| (1 - |g|) for any score, so c and d are the 2 W numbers with which all
                    n rows fit: exact, from the same message
    two messages    of one node: their difference B1 c1 - B2 c2 has no g in it. n equations for 2 W numbers: c1, c2 and
                    g exactly, for any loss

The sign of g = p - y is the label, whatever the score was. No epsilon says anything about this: for two different g the
possible answers do not overlap. A feature holder that sends B = 0 need not even compute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.attacks.intervals import Interval, area_under_roc
from hedgerow.attacks.results import LabelsFound, read_labels, scored
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import InvalidInput

N_STEPS = 60
"""Of Gauss and Newton at most. Where all rows have the same score each step only halves the error."""


class Masked(NamedTuple):
    """One candidate of one node: what the feature holder drew, and what it got back."""

    noise: Floats  # [rows, W], B
    gradients: Floats  # [rows], g + B c
    hessians: Floats | None = None  # [rows], h + B d; None where only gradients are sent (score="first_order")

    @classmethod
    def received(
        cls,
        vectors: npt.ArrayLike,
        gradients: npt.ArrayLike,
        hessians: npt.ArrayLike | None,
        gradient_scale: float,
        hessian_scale: float = 1.0,
    ) -> Masked:
        """From arrays as they travel: vectors [W, rows] and what came back, in units; rows of one node."""
        plain = np.asarray(gradients, np.float64) / gradient_scale
        seen = None if hessians is None or not np.size(hessians) else np.asarray(hessians, np.float64) / hessian_scale
        return cls(np.asarray(vectors, np.float64).T, plain, seen)


class Unmasked(NamedTuple):
    """What was behind the masks."""

    gradients: Floats
    hessians: Floats | None


# --- the three ways --------------------------------------------------------------------------------------------------


def one_message(noise: npt.ArrayLike, masked: npt.ArrayLike, total: float | None = None) -> Floats:
    """[rows] the values behind one masked vector, by least squares; `total` is their sum if it was told as well."""
    B, seen = _checked(noise, masked)
    middle = B.mean(axis=0)
    c = _solved(B - middle, seen - seen.mean())
    if total is not None:
        # The best fit among those with the right sum: (sum of B) c = sum of what was received - total.
        lean = _solved((B - middle).T @ (B - middle), middle)
        along = float(middle @ lean)
        if along > 0.0:
            c += lean * (float(seen.mean()) - total / len(seen) - float(middle @ c)) / along
    found: Floats = seen - B @ c
    return found


def one_message_with_hessians(message: Masked) -> Unmasked:
    """Gradients and hessians of the logistic loss behind one message, which fit each other: h = |g| (1 - |g|)."""
    if message.hessians is None:
        raise InvalidInput("this message has no hessians: use one_message")
    B, seen = _checked(message.noise, message.gradients)
    _, seen_hessians = _checked(message.noise, message.hessians)
    # Columns of length 1: noise may be any number of times as large as what is behind it.
    B = B / np.maximum(np.sqrt((B**2).sum(axis=0)), 1e-300)
    g, h = one_message(B, seen), one_message(B, seen_hessians)
    misfit = h - np.abs(g) * (1.0 - np.abs(g))
    for _ in range(N_STEPS):
        slope = np.sign(g) - 2.0 * g
        step = _solved(np.hstack([-slope[:, None] * B, B]), misfit)
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


def several_messages(messages: Sequence[Masked]) -> Unmasked:
    """Gradients, and hessians if there are any, behind messages about different candidates of one node: exactly.

    Two messages are enough for a node of 2 W rows; as many are used as the node needs.
    """
    if len(messages) < 2:
        raise InvalidInput(f"two messages about one node are needed, got {len(messages)}")
    n_rows, n_vectors = np.shape(messages[0].noise)
    used = next((k for k in range(2, len(messages)) if (k - 1) * n_rows >= k * n_vectors), len(messages))
    chosen = messages[:used]
    noises = [_checked(each.noise, each.gradients)[0] for each in chosen]
    gradients = _behind_all(noises, [np.asarray(each.gradients, np.float64) for each in chosen])
    masked_hessians = [np.asarray(each.hessians, np.float64) for each in chosen if each.hessians is not None]
    hessians = _behind_all(noises, masked_hessians) if len(masked_hessians) == used else None
    return Unmasked(gradients, hessians)


def _behind_all(noises: Sequence[Floats], masked: Sequence[Floats]) -> Floats:
    """The vector that all of them hide: B1 c1 - Bk ck = the difference of the first and the k-th."""
    first, width = noises[0], noises[0].shape[1]
    n_rows = len(first)
    equations = np.zeros(((len(noises) - 1) * n_rows, len(noises) * width))
    for k in range(1, len(noises)):
        here = slice((k - 1) * n_rows, k * n_rows)
        equations[here, :width] = first
        equations[here, k * width : (k + 1) * width] = -noises[k]
    c = _solved(equations, np.concatenate([masked[0] - each for each in masked[1:]]))
    found: Floats = masked[0] - first @ c[:width]
    return found


def _solved(equations: Floats, right: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(equations, right, rcond=None)[0], np.float64)


def _checked(noise: npt.ArrayLike, masked: npt.ArrayLike) -> tuple[Floats, Floats]:
    B, seen = np.asarray(noise, np.float64), np.asarray(masked, np.float64)
    if B.ndim != 2 or seen.shape != B.shape[:1] or not (np.isfinite(B).all() and np.isfinite(seen).all()):
        raise InvalidInput(f"finite noise [rows, W] and a masked value per row are needed, got {B.shape}, {seen.shape}")
    return B, seen


# --- what they are worth ---------------------------------------------------------------------------------------------


def labels_of(gradients: npt.ArrayLike) -> Ints:
    """Labels of the logistic loss: g = p - y is negative where y is 1, for any p."""
    return (np.asarray(gradients) < 0.0).astype(np.int64)


def positive_rows(total: float, probabilities: npt.ArrayLike) -> int:
    """Rows with label 1 in a node, from its sum of gradients, which is sent in clear, and the scores of its rows."""
    return round(float(np.sum(probabilities)) - total)


@dataclass(frozen=True, kw_only=True)
class UnmaskedLabels(LabelsFound):
    """Labels recovered from behind masks: guesses are the signs of recovered gradients."""

    n_messages: int
    how: str
    spread: float
    """Standard deviation of what was received: gradients themselves lie between -1 and 1."""
    naive_area: Interval
    """The area of somebody who takes what was received as it is."""
    largest_error: float | None
    """Of a recovered gradient, where the true ones were given."""

    def __str__(self) -> str:
        error = "" if self.largest_error is None else f", largest error of a gradient {self.largest_error:.1e}"
        return (
            f"{self.how}, spread {self.spread:.4g}: accuracy {self.accuracy}, chance {self.chance:.3f}; "
            f"area {self.area}, as received {self.naive_area.estimate:.3f}, claimed at most {self.ceiling:.3f}{error}"
        )

    def verdict(self) -> str:
        """The outcome in words."""
        if self.refutes:
            return super().verdict()
        if self.accuracy.low > self.chance:
            return f"ALARM: {self}. Labels are recovered; nothing was claimed that would forbid it."
        return f"{self}. Labels were not recovered."


def attack(
    messages: Sequence[Masked],
    labels: npt.ArrayLike,
    *,
    total: float | None = None,
    with_hessians: bool = False,
    gradients: npt.ArrayLike | None = None,
    mu: float = math.inf,
    confidence: float = 0.95,
) -> UnmaskedLabels:
    """Unmask all messages about one node, and hold what comes out against its rows' labels, 0 or 1.

    One message is taken for itself, with the node's sum of gradients `total`, or its hessians, if so wished. Several
    are put together. `gradients` are the true ones, and `mu` what is claimed, for the result only.
    """
    if not messages:
        raise InvalidInput("there is no message to unmask")
    first = messages[0]
    if len(messages) > 1:
        how, found = f"{len(messages)} messages", several_messages(messages).gradients
    elif with_hessians:
        how, found = "one message with its hessians", one_message_with_hessians(first).gradients
    else:
        how = "one message" if total is None else "one message and the sum"
        found = one_message(first.noise, first.gradients, total)
    true = read_labels(labels, len(found))
    received = np.asarray(first.gradients, np.float64)
    return UnmaskedLabels(
        **scored(true, -found, labels_of(found) == 1, confidence),
        mu=mu,
        n_messages=len(messages),
        how=how,
        spread=float(received.std()),
        naive_area=area_under_roc(-received[true == 1], -received[true == 0], confidence),
        largest_error=None if gradients is None else float(np.abs(found - np.asarray(gradients)).max()),
    )
