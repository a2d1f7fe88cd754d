"""What every central training takes and hands out: settings, a model, its statement, and what the red team measured.

The measurements are lower bounds on epsilon, by `experiments/central_dp_audit.py`. Each is for trainings on a small
made-up table with a canary, not for the model at hand: it shows how near to its claim a protocol can be pushed by an
adversary that we have, and that it was not pushed beyond. docs/attacks.md says how to read it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from hedgerow.engine.ensemble import Ensemble
from hedgerow.privacy.events import Event
from hedgerow.protocols.bad_rows import RAISED, OnBadRows
from hedgerow.runtime.protocol import options_of
from hedgerow.statement import PrivacyStatement


def check_settings(settings: Any) -> None:
    """InvalidParameter, naming the setting and its value, unless all are within the ranges that they declare."""
    for each in options_of(type(settings)):
        each.checked("", getattr(settings, each.name))


class CentralFit(NamedTuple):
    """A trained model, what its training released, and what that is worth."""

    model: Ensemble
    event: Event
    statement: PrivacyStatement


def given_up(protocol: str, epsilon: float, on_bad_rows: OnBadRows) -> tuple[str, ...]:
    """Why a training has no guarantee, for its statement; nothing where it has."""
    reasons = []
    if protocol == "central.plain":
        reasons.append("central.plain trains without noise, for comparison")
    elif math.isinf(epsilon):
        reasons.append("epsilon is infinite: no noise was added, for comparison")
    if on_bad_rows == "raise":
        reasons.append(RAISED)
    return tuple(reasons)


CONFIDENCE = 0.95

LOWER_BOUNDS: dict[str, dict[float, float]] = {
    "central.gaussian": {4.0: 1.36, 8.0: 3.41},
    "central.dpboost": {0.5: 0.14, 1.0: 0.39, 2.0: 0.83, 4.0: 1.78, 8.0: 3.44},
}
"""Protocol -> claimed epsilon -> lower bound; claims below these were not told from perfect privacy."""

WAYS = {
    "central.gaussian": "an adversary who knows all other rows and sees every noisy sum (Gaussian family, "
    "300 trainings of each kind)",
    "central.dpboost": "an adversary who knows all other rows (one tree of one level, 5000 trainings of each kind)",
}


def audit_of(protocol: str, epsilon: float) -> dict[str, Any] | None:
    """The measurement at the largest claimed epsilon up to this one; None if there is none that says anything."""
    known = [claim for claim in LOWER_BOUNDS.get(protocol, {}) if claim <= epsilon]
    if not known or math.isinf(epsilon):
        return None
    claim = max(known)
    attack = f"an audit of {protocol} at epsilon = {claim:g} on a made-up table, by {WAYS[protocol]},"
    return {"lower_bound": LOWER_BOUNDS[protocol][claim], "confidence": CONFIDENCE, "attack": attack, "claim": claim}
