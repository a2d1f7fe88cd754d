"""What a party brings to an aligning, ids as one array, and what it ends with: its own rows of the common records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.codec import AsJson
from hedgerow.crypto.identifiers import Rows


@dataclass(frozen=True, eq=False)
class AlignedRows(AsJson):
    """One party's result. The k-th entry of `rows` is the same record at every party."""

    party: str
    rows: Rows  # positions in the party's own table
    n_ids: Mapping[str, int]  # different ids, of every party
    n_common: int

    def __repr__(self) -> str:
        return f"AlignedRows({self.party!r}, {self.n_common} common ids of {self.n_ids})"


# --- ids as one array ------------------------------------------------------------------------------------------------


_BYTE = np.dtype("V1")  # bytes that are no numbers, so that small whole numbers as ids are not taken for them


def packed(ids: Sequence[str | int | bool | None]) -> npt.NDArray[np.void]:
    """Ids as the bytes of a JSON list. An array of numpy's own texts would be as wide as the longest everywhere."""
    return np.frombuffer(json.dumps(ids).encode(), _BYTE)


def unpacked(ids: npt.NDArray[np.generic]) -> Iterable[Any]:
    """The ids of an array: those that were packed, or those of any other array as they are."""
    return list(json.loads(ids.tobytes())) if ids.dtype == _BYTE else ids
