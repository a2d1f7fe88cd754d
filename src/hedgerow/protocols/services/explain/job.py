"""What an explanation is to be of: public parameters, checked before any party is asked for anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.common.serving import ServiceJob, checked_batch_rows

NAME = "vertical.explaining"
IMPORTANCES, CONTRIBUTIONS = "importances", "contributions"
KINDS = ("gain", "count")
BATCH_ROWS = 1 << 13
"""Fewer than for scoring: for each row a number per column goes back, and work and waiting overlap batch by batch."""


@dataclass(frozen=True)
class ExplainingJob(ServiceJob):
    """What all parties of an explanation must agree on. JSON-able; nothing in it is secret."""

    NAME: ClassVar[str] = NAME
    MODEL_IS: ClassVar[str] = "to be explained"
    TAKES_PART_IN: ClassVar[str] = "explaining it"

    what: str = CONTRIBUTIONS
    kind: str = "gain"  # of importances: summed gains of splits, or their "count"
    batch_rows: int = BATCH_ROWS  # rows in one message, at most

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.what not in (IMPORTANCES, CONTRIBUTIONS):
            raise InvalidParameter(f"{NAME}: what must be {IMPORTANCES!r} or {CONTRIBUTIONS!r}, got {self.what!r}")
        if self.kind not in KINDS:
            raise InvalidParameter(f"{NAME}: kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        object.__setattr__(self, "batch_rows", checked_batch_rows(NAME, self.batch_rows))
