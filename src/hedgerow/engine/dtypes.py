"""The data types of the engine, each with its reason. Every other module takes them from here."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BIN = np.uint8
"""One code per (row, column). A byte, because histogram building is bound by memory traffic, and eight columns then
fit one 64-bit word. Hence at most 256 codes per column, the one for "missing" included."""

MAX_BINS = 256
"""Codes per column that a byte can hold; the last used one is always kept for missing values."""

WORD = np.uint64
"""Eight columns of a row in one load (`histogram.Layout`)."""

ROW_ID = np.uint32
"""Row numbers in the partition: half the traffic of int64, and 2**32 rows are more than the packed sums allow."""

PACKED = np.int64
"""A gradient and a hessian in one integer: `(g << 32) + h`, with -2**31 <= g < 2**31 and 0 <= h < 2**31.

Adding packed values adds both fields at once, and subtraction, prefix sums and reductions work on them unopened. The
scale of the two fields is chosen (`losses.Quantiser`) so that the sum over ANY subset of the rows stays inside its
field: |sum g| <= scale * bound * total weight + rounding < 2**31, likewise for h. So no sum can overflow and no flush
is needed, and because integer addition is associative the result does not depend on threads, blocks or the order of
rows."""

SCORE = np.float32
"""Raw scores while training: they are gathered and scattered by row, so width is time. Leaf values are added in tree
order, one addition per tree, so the sum is reproducible; prediction adds the same float32 values in the same order.
The base score is kept apart, in float64, so a large offset of the labels costs no precision here."""

# Names for arrays in signatures.
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
RowIds = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Scores = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
