"""Gradients from behind their masks: whoever drew a mask can take it off.

The adversary is a feature holder of vertical.masked_gradients. For each candidate split of a node it drew W noise
vectors, the columns of B, and sent them to the label holder. It got back g + B c, and h + B d, where c and d are W
numbers each that only the label holder knows. However large the noise is, what it received lies in a known flat of W
dimensions around g:

    one message     least squares of g + B c on [1, B] finds c but for O(sqrt(W / n)), and what is left is g. The sum G
                    of the node's gradients, which comes with it, is one exact equation more: for W = 1 that is c itself
    two messages    of one node: their difference B1 c1 - B2 c2 has no g in it. n equations for 2 W numbers: c1, c2 and
                    g exactly, for any loss

Where hessians come along, one message is exact as well: h = |g| (1 - |g|) for any score, and no other c and d fit that.

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

from hedgerow.attacks.results import LabelsFound, read_labels, scored
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import InvalidInput


class Masked(NamedTuple):
    """One candidate of one node: what the feature holder drew, and what it got back."""

    noise: Floats  # [rows, W], B
    gradients: Floats  # [rows], g + B c
    hessians: Floats | None = None  # [rows], h + B d; None where only gradients are sent (score="first_order")
    total: float | None = None  # of the gradients, which is sent with them
    tree: int = 0
    candidate: int = 0  # its number among those of the feature holder


class Unmasked(NamedTuple):
    """What was behind the masks."""

    gradients: Floats
    hessians: Floats | None


# --- the ways --------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, kw_only=True)
class UnmaskedLabels(LabelsFound):
    """Labels recovered from behind masks: guesses are the signs of recovered gradients."""

    how: str


def attack(
    messages: Sequence[Masked],
    labels: npt.ArrayLike,
    *,
    total: float | None = None,
    mu: float = math.inf,
    confidence: float = 0.95,
) -> UnmaskedLabels:
    """Unmask all messages about one node, and hold what comes out against its rows' labels, 0 or 1.

    One message is taken for itself, with the node's sum of gradients `total` if it was told. Several are put together.
    `mu` is what is claimed, for the result only.
    """
    if not messages:
        raise InvalidInput("there is no message to unmask")
    first = messages[0]
    if len(messages) > 1:
        how, found = f"{len(messages)} messages", several_messages(messages).gradients
    else:
        how = "one message" if total is None else "one message and the sum"
        found = one_message(first.noise, first.gradients, total)
    true = read_labels(labels, len(found))
    return UnmaskedLabels(**scored(true, -found, labels_of(found) == 1, confidence), mu=mu, how=how)
