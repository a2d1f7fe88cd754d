"""What an attack found, held against the truth: intervals beside chance, a verdict in words, JSON.

Most attacks look for labels of two classes. They end in `LabelsFound`, which knows what a claim in Gaussian DP allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from hedgerow.attacks.intervals import Interval, area_under_roc, share
from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.errors import InvalidInput


def ceiling(mu: float) -> float:
    """The largest area under the ROC curve that anybody can reach against a mu-GDP release."""
    return float(ndtr(mu / math.sqrt(2.0)))


@dataclass(frozen=True)
class Found:
    """What came out of an attack."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, for a privacy statement: the fields by their names, None for what is infinite."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def __str__(self) -> str:
        """The same for people: the fields by their names."""
        found = {field.name.replace("_", " "): getattr(self, field.name) for field in fields(self)}
        return ", ".join(f"{name} {_shown(value)}" for name, value in found.items() if value is not None)


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    return None if isinstance(value, float) and math.isinf(value) else value


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, kw_only=True)
class LabelsFound(Found):
    """How well labels were told apart, beside chance and beside what a claim allows."""

    n_rows: int
    accuracy: Interval
    """Of the likelier labels."""
    area: Interval
    """Under the ROC curve: P(a row with label 1 scores above one with label 0); a half means that nothing is learnt."""
    chance: float
    """Accuracy of the more frequent label."""
    mu: float = math.inf
    """What is claimed for one label, in Gaussian DP; infinite for no claim."""

    @property
    def ceiling(self) -> float:
        """The largest area that the claim allows: Phi(mu / sqrt 2)."""
        return ceiling(self.mu)

    @property
    def refutes(self) -> bool:
        """Whether the area is above the ceiling by more than chance explains."""
        return self.area.low > self.ceiling

    @property
    def succeeds(self) -> bool:
        """Whether labels are told apart by more than chance explains."""
        return self.area.low > 0.5

    def verdict(self) -> str:
        """The outcome in words."""
        if self.refutes:
            return f"ALARM: {self}. That is more than the claim allows: the claim is false."
        if math.isfinite(self.mu):
            return f"{self}. The claim is not contradicted."
        if self.succeeds:
            return f"ALARM: {self}. Labels are told apart. Nothing is claimed."
        return f"{self}. This attacker finds nothing, which says nothing about a better one. Nothing is claimed."

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, with the ceiling."""
        return {**super().to_dict(), "ceiling": self.ceiling}


def read_labels(labels: npt.ArrayLike, n_rows: int | None = None) -> npt.NDArray[Any]:
    """True labels, 0 or 1, one for each row."""
    true = np.asarray(labels)
    wanted = true.shape[:1] if n_rows is None else (n_rows,)
    if true.ndim != 1 or true.shape != wanted or not np.isin(true, (0, 1)).all():
        asked = "" if n_rows is None else f" for {n_rows} rows"
        raise InvalidInput(f"one label per row is needed, 0 or 1, got {true.shape}{asked}")
    return true


def scored(true: npt.NDArray[Any], scores: Floats, guesses: Bools, confidence: float = 0.95) -> dict[str, Any]:
    """The first fields of `LabelsFound`: scores and guesses [rows] held against true labels, 0 or 1."""
    n_rows, ones = len(true), int(true.sum())
    return {
        "n_rows": n_rows,
        "accuracy": share(int((guesses == (true == 1)).sum()), n_rows, confidence),
        "area": area_under_roc(scores[true == 1], scores[true == 0], confidence),
        "chance": max(ones, n_rows - ones) / n_rows,
    }
