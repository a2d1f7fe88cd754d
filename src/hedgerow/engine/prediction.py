"""From raw values to codes, from codes to raw scores and leaves: the kernels that run an ensemble.

Every prediction runs on codes (`binning.py`), so raw values and binned values cannot disagree: raw rows are coded with
the model's own edges, some thousands at a time, and go through the trees in blocks of 256. The ways through a tree:

choosing     most trees: from the leaves up, all rows of the block at once, without a jump (`tree_layout.py`)
descending   what lies below the choices of a large tree: all rows of the block, one level at a time
walking      a handful of rows, or trees with a great many sets of levels: row by row from the root

All of them add the same float32 leaf values in the order of the trees, so their scores are equal to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import kernel
from hedgerow.engine.binning import CodingTables, code_values
from hedgerow.engine.dtypes import Bytes
from hedgerow.engine.table import Table
from hedgerow.engine.tree_layout import MOST_CHOICES
from hedgerow.engine.vectors import (
    BLOCK,
    add_looked_up,
    choose_leaf_leaf,
    choose_leaf_row,
    choose_row_leaf,
    choose_row_row,
    copy_codes,
    descend,
)
from hedgerow.errors import InvalidInput, InvalidType

FEW_ROWS = 16
"""Below this many rows of a block, walking costs less than choosing for all 256."""

CODES_IN_CACHE = 1 << 19
"""Bytes of codes made at a time when predicting from raw values: they stay in the second-level cache."""


def row_ranges(n_rows: int, n_threads: int, most: int = 16384) -> list[tuple[int, int]]:
    """Ranges of whole blocks, at most about `most` rows each and a few per thread; one, empty, for no rows."""
    size = max(1024, min(most, n_rows // (4 * n_threads)) // BLOCK * BLOCK)
    return [(start, min(start + size, n_rows)) for start in range(0, max(n_rows, 1), size)]


class RawRows:
    """A table, or a matrix in any order of axes, whose rows can be coded a range at a time."""

    def __init__(self, data: Table | npt.NDArray[Any], n_features: int, n_threads: int) -> None:
        self._source = data if isinstance(data, Table) else _checked_matrix(data)
        if isinstance(self._source, Table):
            self.n_rows, n_columns = self._source.n_rows, len(self._source.columns)
            self.dtype = self._source.matrix(0, 0).dtype
        else:
            self.n_rows, n_columns = self._source.shape
            self.dtype = self._source.dtype
        if n_columns != n_features:
            raise InvalidInput(f"the data has {n_columns} columns, but the model was trained on {n_features}")
        self._n_features = n_features
        self.ranges = row_ranges(self.n_rows, n_threads, CODES_IN_CACHE // max(n_features, 1))

    def codes(self, coding: CodingTables, start: int, stop: int) -> Bytes:
        """Codes uint8 [features, rows]; only the features that `coding` knows are filled."""
        flat, first, row_stride, column_stride = self._flat(start, stop)
        flat = flat.view()
        flat.flags.writeable = False  # numba compiles once more for read-only arrays, so let all be
        codes = np.empty((self._n_features, stop - start), np.uint8)
        code_values(coding, flat, first, row_stride, column_stride, codes, 0, stop - start)
        return codes

    def _flat(self, start: int, stop: int) -> tuple[npt.NDArray[Any], int, int, int]:
        """The values as one axis, where row `start` begins, and the steps to the next row and to the next column."""
        source = self._source
        if isinstance(source, Table):
            return source.matrix(start, stop).reshape(-1), 0, self._n_features, 1
        if source.flags.c_contiguous:
            return source.reshape(-1), start * self._n_features, self._n_features, 1
        return source.T.reshape(-1), start, 1, self.n_rows


def _checked_matrix(data: Any) -> npt.NDArray[Any]:
    matrix = np.asarray(data)
    if matrix.ndim != 2:
        raise InvalidInput(f"a matrix of rows and features is needed, got {matrix.ndim} dimension(s)")
    if not matrix.flags.c_contiguous and not matrix.flags.f_contiguous:
        matrix = np.ascontiguousarray(matrix)
    if matrix.dtype in (np.float32, np.float64):
        return matrix
    if matrix.dtype.kind not in "fiub":
        raise InvalidType(f"a matrix of numbers is needed, got dtype {matrix.dtype}")
    return matrix.astype(np.float32 if matrix.dtype == np.float16 else np.float64)


# --- codes to scores and leaves --------------------------------------------------------------------------------------


@kernel
def fill_block(
    column_feature: Any, column_low: Any, missing_code: Any, codes: Any, start: int, size: int, block: Any
) -> None:
    """The columns that the trees ask about, for `size` rows of `codes` (in) from `start` on, into `block` (out)."""
    n_rows, flat = codes.shape[1], codes.reshape(-1)
    for column in range(column_feature.shape[0]):
        feature = np.int64(column_feature[column])
        highest = missing_code[feature] - np.uint8(1) if column_low[column] else np.uint8(255)
        if size == BLOCK:
            copy_codes(block, np.int64(column), flat, np.int64(feature * n_rows + start), np.uint8(highest))
        else:
            for i in range(size):
                code = codes[feature, start + i]
                block[column, i] = code if code <= highest else np.uint8(0)


@kernel
def answer_tables(
    goes_right: Any, table_column: Any, start: int, stop: int, n_columns: int, size: int, block: Any
) -> None:
    """One column of zeros and ones per table of a tree, behind the columns of codes."""
    for table in range(start, stop):
        column, answer = table_column[table], n_columns + table - start
        for i in range(size):
            block[answer, i] = goes_right[table, block[column, i]]


@kernel
def choose(choice: Any, start: int, stop: int, block: Any, result: Any) -> None:
    """Make a tree's choices for a whole block; row 0 of `result` holds the number of each row's exit."""
    for c in range(start, stop):
        word = choice[c]
        column, into, cut = word >> 32, word >> 24 & 127, np.uint8(word)
        left, right = word >> 8 & 127, word >> 16 & 127
        if not word & 0x808000:
            choose_leaf_leaf(result, into, left, right, block, column, cut)
        elif word & 0x808000 == 0x808000:
            choose_row_row(result, into, left, right, block, column, cut)
        elif word & 0x8000:
            choose_row_leaf(result, into, left, right, block, column, cut)
        else:
            choose_leaf_row(result, into, left, right, block, column, cut)


@kernel
def walk(node_key: Any, node_left: Any, node_table: Any, goes_right: Any, block: Any, size: int, reached: Any) -> None:
    """Move each of the first `size` rows from the node in `reached` to the leaf below it (in and out)."""
    for i in range(size):
        node = np.int64(reached[i])
        left = np.int64(node_left[node])
        while left != node:
            key, table = node_key[node], node_table[node]
            code = block[key >> 8, i]
            node = left + (np.int64(goes_right[table, code]) if table >= 0 else np.int64(code > (key & 255)))
            left = np.int64(node_left[node])
        reached[i] = node


@kernel
def add_scores(layout: Any, codes: Any, start: int, stop: int, n_trees: int, n_outputs: int, scores: Any) -> None:
    """Add the leaf values of trees 0..n_trees-1 for rows start..stop-1 of `codes` uint8 [F, n] (in).

    `scores` float32 [n_outputs, n] (out): tree t adds to row t % n_outputs, one addition after the other.
    """
    node_start, node_key, node_left, node_table = (
        layout.node_start,
        layout.node_key,
        layout.node_left,
        layout.node_table,
    )
    goes_right, table_start, levels_left = layout.goes_right, layout.table_start, layout.levels_left
    choice, choice_start, node_value = layout.choice, layout.choice_start, layout.node_value
    exit_node, exit_start, exit_value = layout.exit_node, layout.exit_start, layout.exit_value
    n_columns = layout.column_feature.shape[0]
    # One row more than there are columns: `descend` reads codes four at a time.
    block = np.zeros((n_columns + layout.most_tables + 1, BLOCK), np.uint8)
    result = np.zeros((MOST_CHOICES + 1, BLOCK), np.uint8)
    total = np.zeros(n_outputs * BLOCK, np.float32)
    reached = np.zeros(BLOCK, np.int32)
    for first in range(start, stop, BLOCK):
        size = min(BLOCK, stop - first)
        fill_block(layout.column_feature, layout.column_low, layout.missing_code, codes, first, size, block)
        for output in range(n_outputs):
            for i in range(size):
                total[output * BLOCK + i] = scores[output, first + i]
        for tree in range(n_trees):
            into = np.int64((tree % n_outputs) * BLOCK)
            if size < FEW_ROWS or choice_start[tree + 1] == choice_start[tree]:
                reached[:] = node_start[tree]
                walk(node_key, node_left, node_table, goes_right, block, size, reached)
            else:
                if table_start[tree + 1] > table_start[tree]:
                    answer_tables(
                        goes_right,
                        layout.table_column,
                        table_start[tree],
                        table_start[tree + 1],
                        n_columns,
                        size,
                        block,
                    )
                choose(choice, choice_start[tree], choice_start[tree + 1], block, result)
                if levels_left[tree] == 0:
                    add_looked_up(total, into, exit_value, np.int64(exit_start[tree]), result)
                    continue
                for i in range(BLOCK):
                    reached[i] = exit_node[exit_start[tree] + np.int64(result[0, i])]
                if levels_left[tree] > 0:
                    descend(reached, node_key, node_left, block, np.int64(levels_left[tree]))
                else:
                    walk(node_key, node_left, node_table, goes_right, block, size, reached)
            for i in range(size):
                total[into + i] += node_value[reached[i]]
        for output in range(n_outputs):
            for i in range(size):
                scores[output, first + i] = total[output * BLOCK + i]


@kernel
def find_leaves(layout: Any, codes: Any, n_rows: int, leaves: Any) -> None:
    """The leaf of each row in each tree, as the node's number in its tree, into `leaves` int32 [n_rows, T] (out)."""
    node_start, node_key, node_left, node_table = (
        layout.node_start,
        layout.node_key,
        layout.node_left,
        layout.node_table,
    )
    block = np.zeros((layout.column_feature.shape[0], BLOCK), np.uint8)
    reached = np.zeros(BLOCK, np.int32)
    for first in range(0, n_rows, BLOCK):
        size = min(BLOCK, n_rows - first)
        fill_block(layout.column_feature, layout.column_low, layout.missing_code, codes, first, size, block)
        for tree in range(leaves.shape[1]):
            reached[:] = node_start[tree]
            walk(node_key, node_left, node_table, layout.goes_right, block, size, reached)
            for i in range(size):
                leaves[first + i, tree] = reached[i] - node_start[tree]
