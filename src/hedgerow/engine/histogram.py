"""Sums of packed gradients per (node, column, code): the inner loop of all training.

Tiers: `rows.Rows` decides which rows -> `node_histograms` / `root_histogram` (one thread's share)
-> `add_word` (one word of up to eight columns, no allocation, no branch).

A histogram is a flat array of packed int64 sums, one per cell of the `layout`. Only cells in use are cleared, added
and subtracted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.dtypes import Ints, RowIds, Words
from hedgerow.engine.layout import CELLS_PER_WORD

GATHER_ROWS = 2048  # rows gathered before they are added: the loads are independent, so their cache misses overlap


@inline_kernel
def _add_rows(words: Words, values: Ints, cells: Ints, n_columns: int) -> None:
    for row in range(words.shape[0]):
        word = words[row]
        value = values[row]
        for position in range(n_columns):
            code = (word >> np.uint64(8 * position)) & np.uint64(255)
            cells[np.uint64(256 * position) + code] += value


@kernel
def add_word(words: Words, values: Ints, cells: Ints, n_columns: int) -> None:
    """cells[column, code] += value for each row and each of the word's columns.

    One loop for each number of columns, which is then a constant and unrolled: a loop over columns would cost
    more than the one store per update that is the floor. All indices are unsigned, else numba adds a wrap-around test
    to each.
    """
    if n_columns == 8:
        _add_rows(words, values, cells, 8)
    elif n_columns == 7:
        _add_rows(words, values, cells, 7)
    elif n_columns == 6:
        _add_rows(words, values, cells, 6)
    elif n_columns == 5:
        _add_rows(words, values, cells, 5)
    elif n_columns == 4:
        _add_rows(words, values, cells, 4)
    elif n_columns == 3:
        _add_rows(words, values, cells, 3)
    elif n_columns == 2:
        _add_rows(words, values, cells, 2)
    else:
        _add_rows(words, values, cells, n_columns)


@inline_kernel
def gather_words(records: Words, rows: RowIds, word: int, out: Words) -> None:
    """out[k] = the word of row rows[k]."""
    source = records.reshape(-1)[word:]
    step = np.uint64(records.shape[1])
    for k in range(rows.shape[0]):
        out[k] = source[np.uint64(rows[k]) * step]


@kernel
def clear_cells(cells: Ints, first_cell: Ints, n_codes: Ints) -> None:
    """Zero the cells in use."""
    for column in range(first_cell.shape[0]):
        mine = cells[first_cell[column] : first_cell[column] + n_codes[column]]
        for code in range(mine.shape[0]):
            mine[code] = 0


@inline_kernel
def _add_times(cells: Ints, other: Ints, first_cell: Ints, n_codes: Ints, sign: int) -> None:
    for column in range(first_cell.shape[0]):
        mine = cells[first_cell[column] : first_cell[column] + n_codes[column]]
        theirs = other[first_cell[column] : first_cell[column] + n_codes[column]]
        for code in range(mine.shape[0]):
            mine[code] += sign * theirs[code]


@kernel
def add_cells(cells: Ints, other: Ints, first_cell: Ints, n_codes: Ints) -> None:
    """cells += other."""
    _add_times(cells, other, first_cell, n_codes, 1)


@kernel
def subtract_cells(cells: Ints, other: Ints, first_cell: Ints, n_codes: Ints) -> None:
    """cells -= other: a parent's histogram becomes the larger child's."""
    _add_times(cells, other, first_cell, n_codes, -1)


@kernel
def subtract_siblings(
    built: Ints,  # in  [families] node whose histogram was built
    derived: Ints,  # in  [families] its sibling, whose slot holds the parent's; -1 for none
    slots: Ints,  # in  [nodes]
    cells: Ints,  # in/out [slots, cells]
    first_cell: Ints,
    n_codes: Ints,
) -> None:
    """The histograms of all siblings that were not built."""
    for family in range(built.shape[0]):
        if derived[family] >= 0:
            subtract_cells(cells[slots[derived[family]]], cells[slots[built[family]]], first_cell, n_codes)


@kernel
def root_histogram(
    words: Words,  # in  [words, rows]
    values: Ints,  # in  [rows] packed gradients
    starts: Ints,  # in  [chunks] this thread's rows, as ranges
    stops: Ints,
    cells: Ints,  # out [cells]
    first_cell: Ints,
    n_codes: Ints,
    columns_in_word: Ints,
) -> None:
    """The sum over the row ranges starts..stops: no gather, the words are read as they lie."""
    clear_cells(cells, first_cell, n_codes)
    for chunk in range(starts.shape[0]):
        start = starts[chunk]
        stop = stops[chunk]
        for word in range(words.shape[0]):
            tile = cells[word * CELLS_PER_WORD : (word + 1) * CELLS_PER_WORD]
            add_word(words[word, start:stop], values[start:stop], tile, columns_in_word[word])


@kernel
def node_histograms(
    records: Words,  # in  [rows, words]
    values: Ints,  # in  [rows] packed gradients, by row number
    row_ids: RowIds,  # in  row numbers, grouped by node
    starts: Ints,  # in  [parts, active nodes] the ranges of row_ids that hold each node's rows
    stops: Ints,
    nodes: Ints,  # in  the nodes to sum
    slots: Ints,  # in  [nodes] which histogram to write
    cells: Ints,  # out [slots, cells]
    first_cell: Ints,
    n_codes: Ints,
    columns_in_word: Ints,
) -> None:
    """Histograms of several nodes, over all the parts given."""
    word_buffer = np.empty(GATHER_ROWS, np.uint64)
    value_buffer = np.empty(GATHER_ROWS, np.int64)
    for which in range(nodes.shape[0]):
        mine = cells[slots[which]]
        clear_cells(mine, first_cell, n_codes)
        for part in range(starts.shape[0]):
            stop = stops[part, nodes[which]]
            for begin in range(starts[part, nodes[which]], stop, GATHER_ROWS):
                rows = row_ids[begin : min(stop, begin + GATHER_ROWS)]
                gathered_values = value_buffer[: rows.shape[0]]
                gathered_words = word_buffer[: rows.shape[0]]
                for k in range(rows.shape[0]):
                    gathered_values[k] = values[np.uint64(rows[k])]
                for word in range(columns_in_word.shape[0]):
                    gather_words(records, rows, word, gathered_words)
                    tile = mine[word * CELLS_PER_WORD : (word + 1) * CELLS_PER_WORD]
                    add_word(gathered_words, gathered_values, tile, columns_in_word[word])


@kernel
def merge_histograms(cells: Ints, slots: Ints, partial: Ints, first_cell: Ints, n_codes: Ints) -> None:
    """cells[slots[i]] += partial[t, i] for every part t: what other threads summed for the same nodes."""
    for which in range(slots.shape[0]):
        for part in range(partial.shape[0]):
            add_cells(cells[slots[which]], partial[part, which], first_cell, n_codes)


class Histograms(NamedTuple):
    """Where the histograms of a level's nodes are, and which are summed from rows."""

    slot: Ints  # [nodes]
    built: Ints  # [families] nodes whose histogram is summed from rows
    derived: Ints  # [families] siblings that get theirs by subtraction, -1 for none


@kernel
def plan_histograms(
    counts: Ints,  # in  [children] rows of each, left and right in turn
    feature: Ints,  # in  [parents] -1 for those that did not split
    parent_slots: Ints,  # in  [parents]
) -> Histograms:
    """The smaller child of each splitting node is summed, in the lowest free slot.

    The larger one takes over its parent's slot and subtracts.
    """
    slots, n_families = np.empty(counts.shape[0], np.int64), counts.shape[0] // 2
    built, derived = np.empty(n_families, np.int64), np.empty(n_families, np.int64)
    taken = np.zeros(counts.shape[0], np.bool_)  # there is always room among as many slots as there are children
    family = 0
    for parent in range(feature.shape[0]):
        if feature[parent] < 0:
            continue
        left = 2 * family
        left_is_larger = counts[left] > counts[left + 1]
        built[family] = left + 1 if left_is_larger else left
        derived[family] = left if left_is_larger else left + 1
        slot = parent_slots[parent]
        slots[derived[family]] = slot
        if slot < taken.shape[0]:
            taken[slot] = True
        family += 1
    free = 0
    for k in range(family):
        while taken[free]:
            free += 1
        slots[built[k]] = free
        free += 1
    return Histograms(slots, built, derived)
