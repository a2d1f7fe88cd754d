"""What an explanation is to be of: public parameters, checked before any party is asked for anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hedgerow.protocols.vertical.common.serving import ServiceJob
from hedgerow.runtime.options import option

NAME = "vertical.explaining"
IMPORTANCES, CONTRIBUTIONS = "importances", "contributions"
BATCH_ROWS = 1 << 13
"""Fewer than for scoring: for each row a number per column goes back, and work and waiting overlap batch by batch."""


@dataclass(frozen=True)
class ExplainingJob(ServiceJob):
    """What all parties of an explanation must agree on. JSON-able; nothing in it is secret."""

    NAME = NAME
    MODEL_IS: ClassVar[str] = "to be explained"
    TAKES_PART_IN: ClassVar[str] = "explaining it"

    what: str = option(
        CONTRIBUTIONS,
        "of columns",
        one_of=(IMPORTANCES, CONTRIBUTIONS),
        words=f"{IMPORTANCES!r} or {CONTRIBUTIONS!r}",
    )
    kind: str = option("gain", "of importances: summed gains of splits, or their count", one_of=("gain", "count"))
    batch_rows: int = option(BATCH_ROWS, "rows in one message, at most", at_least=1)
