"""What a scoring of rows is to do: public parameters, checked before any party is asked for anything."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.common.serving import ServiceJob, checked_batch_rows

NAME = "vertical.scoring"
BATCH_ROWS = 1 << 16
LARGEST_EPSILON = 1e6
"""Beyond that the mechanism does not go; infinity stands for no randomisation at all."""


@dataclass(frozen=True)
class ScoringJob(ServiceJob):
    """What all parties of a scoring must agree on. JSON-able; nothing in it is secret."""

    NAME: ClassVar[str] = NAME
    MODEL_IS: ClassVar[str] = "to be scored with"
    TAKES_PART_IN: ClassVar[str] = "the scoring"

    predict_epsilon: float | None = None  # per value; None (or infinity, which becomes None): answers in the clear
    batch_rows: int = BATCH_ROWS  # rows in one message, at most

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "batch_rows", checked_batch_rows(NAME, self.batch_rows))
        object.__setattr__(self, "predict_epsilon", _checked_epsilon(self.predict_epsilon))


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
