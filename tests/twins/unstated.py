"""The rule that every number of a message has a range, as a function that tests ask."""

from __future__ import annotations

import numpy as np

from hedgerow.transport.frames import Message
from hedgerow.transport.ranges import stated


def unstated(kind: type[Message]) -> list[str]:
    """Fields that do not say what they may be: numbers and arrays without limits, arrays and bytes without a shape."""
    missing = []
    for name, (plain, scalar, shape, limits) in stated(kind).items():
        has_numbers = plain in (int, float) or scalar not in (None, np.bool_)
        has_size = plain in (bytes, str, tuple[str, ...]) or scalar is not None
        if (has_numbers and limits is None) or (has_size and shape is None):
            missing.append(name)
    return missing
