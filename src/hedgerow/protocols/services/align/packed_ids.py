"""Ids as one array that can be written to a file without pickling, with texts of any length, numbers and gaps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_BYTE = np.dtype("V1")  # bytes that are no numbers, so that small whole numbers as ids are not taken for them


def packed(ids: Sequence[str | int | bool | None]) -> npt.NDArray[np.void]:
    """Ids as the bytes of a JSON list. An array of numpy's own texts would be as wide as the longest everywhere."""
    return np.frombuffer(json.dumps(ids).encode(), _BYTE)


def unpacked(ids: npt.NDArray[np.generic]) -> Iterable[Any]:
    """The ids of an array: those that were packed, or those of any other array as they are."""
    return list(json.loads(ids.tobytes())) if ids.dtype == _BYTE else ids
