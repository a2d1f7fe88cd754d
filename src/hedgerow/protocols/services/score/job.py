"""What a scoring of rows is to do: public parameters, checked before any party is asked for anything."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hedgerow.protocols.vertical.common.serving import ServiceJob
from hedgerow.runtime.options import option

NAME = "vertical.scoring"
BATCH_ROWS = 1 << 16
LARGEST_EPSILON = 1e6
"""Beyond that the mechanism does not go; infinity stands for no randomisation at all."""


@dataclass(frozen=True)
class ScoringJob(ServiceJob):
    """What all parties of a scoring must agree on. JSON-able; nothing in it is secret."""

    NAME = NAME
    MODEL_IS: ClassVar[str] = "to be scored with"
    TAKES_PART_IN: ClassVar[str] = "the scoring"

    predict_epsilon: float | None = option(
        None,
        "per value; None, or infinity, which becomes None: answers in the clear",
        above=0,
        at_most=LARGEST_EPSILON,
        or_inf=True,
        words=f"above 0 and at most {LARGEST_EPSILON:.0e}, or None (or infinite) for answers in the clear",
    )
    batch_rows: int = option(BATCH_ROWS, "rows in one message, at most", at_least=1)

    def check(self) -> None:
        """Without noise there is no epsilon."""
        super().check()
        if self.predict_epsilon == math.inf:
            object.__setattr__(self, "predict_epsilon", None)
