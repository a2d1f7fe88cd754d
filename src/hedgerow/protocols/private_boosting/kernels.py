"""Kernels over one owner's rows: positions in, exact whole-number sums out.

Every sum is of integers, so neither the order of rows nor their division into ranges matters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hedgerow.engine.jit import kernel


@kernel
def add_pairs(codes: Any, first: Any, second: Any, start: int, stop: int, out: Any) -> None:
    """Sums of `first` and `second` per cell of one column.

    In: `codes` [rows], `first` and `second` int32 [rows]. Out: `out` [2 * cells], interleaved.
    """
    for i in range(start, stop):
        place = np.uint64(2) * np.uint64(codes[i])
        out[place] += first[i]
        out[place + np.uint64(1)] += second[i]


@kernel
def find_leaves(codes: Any, features: Any, goes_right: Any, start: int, stop: int, leaves: Any) -> None:
    """The leaf of each row in an oblivious tree: one bit per level, the first level's the highest.

    In: `codes` [columns, rows], `features` [levels], `goes_right` [levels, 256]. Out: `leaves` [rows].
    """
    for i in range(start, stop):
        leaves[i] = 0
    for level in range(len(features)):
        column = codes[features[level]]
        bit = goes_right[level]
        for i in range(start, stop):
            leaves[i] = (leaves[i] << np.uint8(1)) | bit[column[i]]


@kernel
def add_tables(codes: Any, tables: Any, start: int, stop: int, scores: Any) -> None:
    """Scores become the sum over columns of tables[column, bin]. Out: `scores` [rows]."""
    for i in range(start, stop):
        scores[i] = np.float32(0.0)
    for j in range(len(codes)):
        column = codes[j]
        table = tables[j]
        for i in range(start, stop):
            scores[i] += table[column[i]]


@kernel
def add_scores(positions: Any, values: Any, start: int, stop: int, scores: Any) -> None:
    """values[position] is added to each row's score."""
    for i in range(start, stop):
        scores[i] += values[positions[i]]


@kernel
def add_gradients(positions: Any, packed: Any, clip: int, largest: int, start: int, stop: int, out: Any) -> None:
    """Sums of MINUS the gradient and of the hessian per position, each clipped as a whole number.

    In: `packed` [rows], a gradient and a hessian in one integer (engine/dtypes.py). Out: `out`, interleaved.
    Whatever the packed values are, a row adds at most `clip` and at most `largest` in absolute value: the sensitivity
    rests on this loop alone.
    """
    for i in range(start, stop):
        gradient = -(packed[i] >> 32)
        hessian = packed[i] & 0xFFFFFFFF
        place = np.uint64(2) * np.uint64(positions[i])
        out[place] += min(max(gradient, -clip), clip)
        out[place + np.uint64(1)] += min(hessian, largest)
