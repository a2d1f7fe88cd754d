"""What an aligning leaves with each party: its own rows of the common records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hedgerow.crypto.identifiers import Rows


@dataclass(frozen=True, eq=False)
class AlignedRows:
    """One party's result. The k-th entry of `rows` is the same record at every party."""

    party: str
    rows: Rows  # positions in the party's own table
    n_ids: Mapping[str, int]  # different ids, of every party
    n_common: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "party": self.party,
            "rows": self.rows.tolist(),
            "n_ids": dict(self.n_ids),
            "n_common": self.n_common,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AlignedRows:
        """The inverse of `to_dict`."""
        return cls(data["party"], np.array(data["rows"], np.int64), dict(data["n_ids"]), int(data["n_common"]))

    def __repr__(self) -> str:
        return f"AlignedRows({self.party!r}, {self.n_common} common ids of {self.n_ids})"
