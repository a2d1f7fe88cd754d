"""Taking the mask off: what a feature holder computes from one message, without knowing any label.

It has drawn B itself, so of masked = g + B c only W numbers are unknown to it. Regressing the message on [1, B] finds
them: g is independent of B, so what least squares makes of it is of the order of sqrt(W / n). What is left, with the
intercept, is g. Its sign is the label, since g = p - y and 0 < p < 1, whatever the score is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.engine.dtypes import Floats

ATTACK = "least squares of one message on [1, B]"

AnyFloats = npt.NDArray[np.floating[Any]]


def unmask(masked: AnyFloats, noise: AnyFloats) -> Floats:
    """Gradients from one masked vector [rows] and the noise vectors [vectors, rows] behind it; same units."""
    noise = np.asarray(noise, np.float64).reshape(-1, len(masked))
    strength = np.sqrt((noise**2).mean(axis=1, keepdims=True))
    basis = np.column_stack([np.ones(len(masked)), (noise / np.where(strength > 0.0, strength, 1.0)).T])
    target = np.asarray(masked, np.float64)
    # Normal equations: the columns of the basis are nearly orthogonal and of length sqrt(n).
    coefficients = np.linalg.lstsq(basis.T @ basis, basis.T @ target, rcond=None)[0]
    found: Floats = target - basis[:, 1:] @ coefficients[1:]
    return found


def label_recovery(masked: AnyFloats, noise: AnyFloats, labels: Floats, *, two_classes: bool) -> dict[str, Any]:
    """How much of the labels one message gives away, measured against the labels; beside chance.

    Two classes: the share of labels found. Else the share of the labels' variance that is explained, r2, for labels up
    to a constant: the first tree's gradients are the base score less the label.
    """
    found = unmask(masked, noise)
    facts = {"attack": ATTACK, "rows": len(labels)}
    if two_classes:
        share = float(np.mean(labels))
        accuracy = float(np.mean((found < 0.0) == labels))  # the gradient p - y of a label 1 is below 0
        return {**facts, "measure": "accuracy", "value": accuracy, "chance": max(share, 1.0 - share)}
    spread = float(np.std(found)) * float(np.std(labels))
    if spread == 0.0:
        return {**facts, "measure": "r2", "value": 0.0, "chance": 0.0}
    moments = (found - found.mean()) * (labels - labels.mean())
    return {**facts, "measure": "r2", "value": float((moments.mean() / spread) ** 2), "chance": 0.0}
