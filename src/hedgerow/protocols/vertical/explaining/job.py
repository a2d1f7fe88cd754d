"""What an explanation is to be of: public parameters, checked before any party is asked for anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hedgerow.errors import InvalidParameter

NAME = "vertical.explaining"
IMPORTANCES, CONTRIBUTIONS = "importances", "contributions"
KINDS = ("gain", "count")
BATCH_ROWS = 1 << 13
"""Fewer than for scoring: for each row a number per column goes back, and work and waiting overlap batch by batch."""


@dataclass(frozen=True)
class ExplainingJob:
    """What all parties of an explanation must agree on. JSON-able; nothing in it is secret."""

    parties: tuple[str, ...]
    label_holder: str
    run_id: str  # of this explanation
    model_run_id: str  # of the training that the model comes from
    what: str = CONTRIBUTIONS
    kind: str = "gain"  # of importances: summed gains of splits, or their "count"
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
        if self.what not in (IMPORTANCES, CONTRIBUTIONS):
            raise InvalidParameter(f"{NAME}: what must be {IMPORTANCES!r} or {CONTRIBUTIONS!r}, got {self.what!r}")
        if self.kind not in KINDS:
            raise InvalidParameter(f"{NAME}: kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        whole = isinstance(self.batch_rows, int | np.integer) and not isinstance(self.batch_rows, bool)
        if not whole or self.batch_rows < 1:
            raise InvalidParameter(f"{NAME}: batch_rows must be a whole number of at least 1, got {self.batch_rows!r}")
        object.__setattr__(self, "batch_rows", int(self.batch_rows))

    @property
    def feature_holders(self) -> tuple[str, ...]:
        """Everybody but the label holder."""
        return tuple(party for party in self.parties if party != self.label_holder)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"parties": list(self.parties)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ExplainingJob:
        """The inverse of `to_dict`, also after a way through JSON."""
        return cls(**{**data, "parties": tuple(data["parties"])})
