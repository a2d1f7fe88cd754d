"""What each party has in the end: importances or contributions of its own columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hedgerow.engine.dtypes import Floats
from hedgerow.protocols.services.explain.job import CONTRIBUTIONS, IMPORTANCES
from hedgerow.protocols.vertical.common.arrays_as_text import as_text, from_text


@dataclass(frozen=True, eq=False)
class Importances:
    """Per own column, what all splits of it are worth; the label holder also knows what each other party's are."""

    party: str
    columns: tuple[str, ...]
    values: Floats  # [columns] summed gains, or numbers of splits
    others: Mapping[str, float] = field(default_factory=dict)  # feature holder -> total; the label holder's only

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "what": IMPORTANCES,
            "party": self.party,
            "columns": list(self.columns),
            "values": self.values.tolist(),
            "others": dict(self.others),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Importances:
        """The inverse of `to_dict`."""
        return cls(data["party"], tuple(data["columns"]), np.array(data["values"], np.float64), dict(data["others"]))


@dataclass(frozen=True, eq=False)
class Contributions:
    """Per row and own column, what it adds to the raw scores.

    All parties' values and the label holder's `expected` add up to the raw score; so do, at the label holder alone,
    its own values, `others` and `expected`.
    """

    party: str
    columns: tuple[str, ...]
    values: Floats  # [rows, columns, outputs]; 0 for a column that no split asks about
    expected: Floats | None = None  # [outputs] the score before anything is known of a row; the label holder's only
    others: Mapping[str, Floats] = field(default_factory=dict)  # feature holder -> total [rows, outputs]; as above

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: the numbers as they lie in memory (little-endian float64), in base64."""
        return {
            "what": CONTRIBUTIONS,
            "party": self.party,
            "columns": list(self.columns),
            "values": _written(self.values),
            "expected": None if self.expected is None else self.expected.tolist(),
            "others": {party: _written(total) for party, total in self.others.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Contributions:
        """The inverse of `to_dict`."""
        return cls(
            data["party"],
            tuple(data["columns"]),
            _read(data["values"]),
            None if data["expected"] is None else np.array(data["expected"], np.float64),
            {party: _read(total) for party, total in data["others"].items()},
        )


def result_from_dict(data: Mapping[str, Any]) -> Importances | Contributions:
    """Either kind of result, after a way through JSON."""
    return Importances.from_dict(data) if data["what"] == IMPORTANCES else Contributions.from_dict(data)


def _written(array: Floats) -> dict[str, Any]:
    return {"shape": list(array.shape), "float64": as_text(array)}


def _read(written: Mapping[str, Any]) -> Floats:
    return from_text(written["float64"], written["shape"])
