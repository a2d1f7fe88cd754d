"""What a scoring of rows is to do: public parameters, checked before any party is asked for anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hedgerow.errors import InvalidParameter

NAME = "vertical.scoring"
BATCH_ROWS = 1 << 16
LARGEST_EPSILON = 1e6
"""Beyond that the mechanism does not go; infinity stands for no randomisation at all."""


@dataclass(frozen=True)
class ScoringJob:
    """What all parties of a scoring must agree on. JSON-able; nothing in it is secret."""

    parties: tuple[str, ...]
    label_holder: str
    run_id: str  # of this scoring
    model_run_id: str  # of the training that the model comes from
    predict_epsilon: float | None = None  # per value; None (or infinity, which becomes None): answers in the clear
    batch_rows: int = BATCH_ROWS  # rows in one message, at most

    def __post_init__(self) -> None:
        if len(self.parties) < 2:
            raise InvalidParameter(f"{NAME} needs at least 2 parties, got {len(self.parties)}")
        if len(set(self.parties)) < len(self.parties) or not all(isinstance(p, str) and p for p in self.parties):
            raise InvalidParameter(f"{NAME}: parties must have different names, got {list(self.parties)}")
        if self.label_holder not in self.parties:
            raise InvalidParameter(
                f"{NAME}: the label holder must be one of {list(self.parties)}, got {self.label_holder!r}"
            )
        whole = isinstance(self.batch_rows, int | np.integer) and not isinstance(self.batch_rows, bool)
        if not whole or self.batch_rows < 1:
            raise InvalidParameter(f"{NAME}: batch_rows must be a whole number of at least 1, got {self.batch_rows!r}")
        object.__setattr__(self, "batch_rows", int(self.batch_rows))
        object.__setattr__(self, "predict_epsilon", _checked_epsilon(self.predict_epsilon))

    @property
    def feature_holders(self) -> tuple[str, ...]:
        """Everybody but the label holder."""
        return tuple(party for party in self.parties if party != self.label_holder)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ScoringJob:
        """The inverse of `to_dict`, also after a way through JSON."""
        return cls(**{**data, "parties": tuple(data["parties"])})


def _checked_epsilon(value: Any) -> float | None:
    if value is None:
        return None
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not value > 0 or LARGEST_EPSILON < value < math.inf:
        raise InvalidParameter(
            f"{NAME}: predict_epsilon must be above 0 and at most {LARGEST_EPSILON:.0e}, or None (or infinite) for "
            f"answers in the clear, got {value!r}"
        )
    return None if value == math.inf else float(value)
