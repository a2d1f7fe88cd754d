"""Arrays of numbers inside a JSON document, bit for bit: as they lie in memory (little-endian float64), in base64.

Results of many rows go from a party's process to who asked for them in this way. As decimal numbers they would take
more room, and longer to write and to read.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hedgerow.engine.dtypes import Floats

Words = npt.NDArray[np.uint64]


def as_text(array: Floats) -> str:
    """The numbers row by row; the shape has to be written down beside them."""
    return base64.b64encode(np.ascontiguousarray(array, "<f8").tobytes()).decode("ascii")


def from_text(text: str, shape: Sequence[int]) -> Floats:
    """The inverse of `as_text`, as an array of its own that can be written to."""
    return np.frombuffer(base64.b64decode(text), "<f8").reshape(shape).astype(np.float64)


def words_as_text(words: Words) -> str:
    """Words of 64 bits, one after another."""
    return base64.b64encode(np.ascontiguousarray(words, "<u8").tobytes()).decode("ascii")


def words_from_text(text: str) -> Words:
    """The inverse of `words_as_text`; ValueError if it is none."""
    return np.frombuffer(base64.b64decode(text, validate=True), "<u8").astype(np.uint64)
