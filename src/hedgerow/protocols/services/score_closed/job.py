"""What a closed scoring of rows is to do: public parameters, checked before any party is asked for anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hedgerow.protocols.vertical.common.job import WithDealer
from hedgerow.protocols.vertical.common.serving import ServiceJob
from hedgerow.runtime.options import option

NAME = "vertical.closed_scoring"
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class ClosedScoringJob(WithDealer, ServiceJob):
    """What all parties of a closed scoring must agree on. JSON-able; nothing in it is secret."""

    NAME = NAME
    MODEL_IS: ClassVar[str] = "to be scored with"
    TAKES_PART_IN: ClassVar[str] = "the scoring"

    dealer: str = option("dealer", "the party that deals correlated randomness and has no data")
    batch_rows: int = option(BATCH_ROWS, "rows in one block, at most; fewer if there are many leaves", at_least=1)
