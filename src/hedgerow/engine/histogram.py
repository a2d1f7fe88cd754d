"""Sums of packed gradients per (node, column, code), the inner loop of all training, and where codes lie for it.

    features   f0 f1 f2 | f3 (3 codes) f4 (2) f5 (4) | f6 ...      what the user sees
    columns    c0 c1 c2 |      c3 = joint code       | c4 ...      low-cardinality features share one byte (a bundle)
    words      w0 = c0 c1 c2 c3,  w1 = c4 ...                      up to 8 columns of a row in one 64-bit load
    cells      256 per column, 2048 per word                       so a word's histogram (16 KB) stays in the L1 cache

A bundle is exact: it holds one code per *observed* combination of its members' codes, so a member's histogram is a
marginal of the bundle's. One-hot groups and small columns of any kind shrink to a few bytes per row that way.

A histogram is a flat array of packed int64 sums, one per cell of the `Layout`. Only cells in use are cleared, added
and subtracted. Tiers: `rows.Rows` decides which rows -> `node_histograms` / `root_histogram` (one thread's share)
-> `add_word` (one word of up to eight columns, no allocation, no branch).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.dtypes import BIN, MAX_BINS, WORD, Bools, Bytes, Ints, RowIds, Words
from hedgerow.engine.scratch import Room
from hedgerow.engine.threads import Team

COLUMNS_PER_WORD = 8
CELLS_PER_COLUMN = 256
CELLS_PER_WORD = COLUMNS_PER_WORD * CELLS_PER_COLUMN
LARGEST_BUNDLED_FEATURE = 32  # codes; above that a feature fills its own byte too well to share it
SAMPLE_ROWS = 20_000  # a bundle that is too large on a sample is too large on all rows: most candidates fail early
ROWS_PER_BLOCK = 1024
GATHER_ROWS = 2048  # rows gathered before they are added: the loads are independent, so their cache misses overlap


class Layout(NamedTuple):
    """The map from features to cells: small arrays that kernels take whole."""

    n_value_bins: Ints  # [features] the missing code is n_value_bins[f]
    is_categorical: Bools  # [features]
    column_of_feature: Ints  # [features]
    owns_column: Bools  # [features] codes of the column are the feature's own bins
    bin_of_code: Bytes  # [features, 256] column code -> the feature's bin
    n_codes: Ints  # [columns] codes in use
    first_cell: Ints  # [columns]
    columns_in_word: Ints  # [words]
    one_hot: Bools = np.zeros(0, np.bool_)  # [features] levels are split one against all others; length 0: nowhere

    @property
    def n_features(self) -> int:
        """What the user sees."""
        return len(self.n_value_bins)

    @property
    def n_columns(self) -> int:
        """Bytes per row: features that share one count once."""
        return len(self.n_codes)

    @property
    def n_cells(self) -> int:
        """Length of one node's histogram; without words (`sparse.py`) it has no gaps."""
        if not len(self.columns_in_word):
            return int(self.first_cell[-1] + self.n_codes[-1])
        return len(self.columns_in_word) * CELLS_PER_WORD

    @classmethod
    def plain(cls, n_value_bins: Ints, is_categorical: Bools) -> Layout:
        """One column per feature: what parties use for the histograms they exchange."""
        n_features = len(n_value_bins)
        own_code = np.tile(np.arange(MAX_BINS, dtype=BIN), (n_features, 1))
        first_cell, columns_in_word = _spread_over_words(n_features)
        return cls(
            n_value_bins=np.asarray(n_value_bins, np.int64),
            is_categorical=np.asarray(is_categorical, np.bool_),
            column_of_feature=np.arange(n_features, dtype=np.int64),
            owns_column=np.ones(n_features, np.bool_),
            bin_of_code=own_code,
            n_codes=np.asarray(n_value_bins, np.int64) + 1,
            first_cell=first_cell,
            columns_in_word=columns_in_word,
        )


@dataclass(frozen=True)
class PackedColumns:
    """The binned rows in the three shapes the kernels want; three bytes per cell in all."""

    layout: Layout
    columns: Bytes  # [columns, rows] for the partition, which reads one column
    words: Words  # [words, rows] for the root's histogram, which reads all rows, eight columns at a time
    records: Words  # [rows, words] for other nodes' histograms: all of a row's words in one or two cache lines

    @property
    def n_rows(self) -> int:
        """Rows."""
        return int(self.columns.shape[1])

    def reordered(self, order: RowIds, *, n_threads: int = 1, in_place: bool = False) -> PackedColumns:
        """The same rows in another order: row i is what row order[i] was. This one is of no use any more.

        Words and records are written over; columns too if `in_place`, else they are somebody else's and stay.
        """
        columns = self.columns if in_place else np.empty_like(self.columns)

        def take(first: int) -> None:
            taken = np.empty((1, self.n_rows), BIN)
            for column in range(first, len(columns), n_threads):
                take_rows(self.columns[column : column + 1], order, taken)
                columns[column] = taken[0]

        Team(n_threads).run(take, [(first,) for first in range(n_threads)])
        _pack_words(columns, self.layout, self.words, self.records, n_threads)
        return PackedColumns(self.layout, columns, self.words, self.records)


def pack(
    codes: Bytes,
    n_value_bins: Ints,
    is_categorical: Bools,
    *,
    bundle: bool = True,
    n_threads: int = 1,
    room: Room = np.empty,
) -> PackedColumns:
    """Bundle the small features of `codes` [features, rows], then pack columns into words; `room` makes the arrays."""
    layout = Layout.plain(n_value_bins, is_categorical)
    small = np.flatnonzero(layout.n_codes <= LARGEST_BUNDLED_FEATURE)
    columns = codes
    if bundle and len(small) > 1:
        layout, columns = _bundle(codes, layout, small, room)
    n_words, n_rows = len(layout.columns_in_word), codes.shape[1]
    words, records = room((n_words, n_rows), WORD), room((n_rows, n_words), WORD)
    _pack_words(columns, layout, words, records, n_threads)
    return PackedColumns(layout, columns, words, records)


def with_spare_column(packed: PackedColumns) -> PackedColumns:
    """The same rows with one more column, empty, that somebody writes into while trees grow: the last feature.

    Rows can be sent left or right by it like by any feature. It has no bins of values and no cells, so histograms are
    as before and no split is ever looked for in it.
    """
    layout, n_rows = packed.layout, packed.n_rows
    columns = np.concatenate([packed.columns, np.zeros((1, n_rows), BIN)])
    wider = layout._replace(
        n_value_bins=np.append(layout.n_value_bins, 0),
        is_categorical=np.append(layout.is_categorical, False),
        column_of_feature=np.append(layout.column_of_feature, len(packed.columns)),
        owns_column=np.append(layout.owns_column, True),
        bin_of_code=np.concatenate([layout.bin_of_code, np.arange(MAX_BINS, dtype=BIN)[None]]),
    )
    return PackedColumns(wider, columns, packed.words, packed.records)


@dataclass
class _Bundle:
    codes: Bytes
    n_codes: int
    members: dict[int, Bytes]  # feature -> its bin for each of the bundle's codes


def _bundle(codes: Bytes, plain: Layout, small: Ints, room: Room) -> tuple[Layout, Bytes]:
    """Greedily join each small feature to the first bundle whose observed combinations still fit a byte."""
    bundles: list[_Bundle] = []
    for feature in small.tolist():
        n_codes = int(plain.n_codes[feature])
        if not any(_join(bundle, feature, codes[feature], n_codes) for bundle in bundles):
            own_bins = np.arange(n_codes, dtype=BIN)
            bundles.append(_Bundle(codes[feature], n_codes, {feature: own_bins}))
    joint = [bundle for bundle in bundles if len(bundle.members) > 1]
    if not joint:
        return plain, codes
    alone = [f for f in range(plain.n_features) if not any(f in bundle.members for bundle in joint)]
    n_columns = len(alone) + len(joint)
    columns = room((n_columns, codes.shape[1]), BIN)
    column_of_feature = np.empty(plain.n_features, np.int64)
    owns_column = np.zeros(plain.n_features, np.bool_)
    bin_of_code = plain.bin_of_code.copy()
    n_codes_of_column = np.empty(n_columns, np.int64)
    for column, feature in enumerate(alone):
        columns[column] = codes[feature]
        column_of_feature[feature] = column
        owns_column[feature] = True
        n_codes_of_column[column] = plain.n_codes[feature]
    for column, bundle in enumerate(joint, start=len(alone)):
        columns[column] = bundle.codes
        n_codes_of_column[column] = bundle.n_codes
        for feature, bins in bundle.members.items():
            column_of_feature[feature] = column
            bin_of_code[feature, : len(bins)] = bins
    first_cell, columns_in_word = _spread_over_words(n_columns)
    meaning = (plain.n_value_bins, plain.is_categorical, column_of_feature, owns_column, bin_of_code)
    return Layout(*meaning, n_codes_of_column, first_cell, columns_in_word), columns


def _join(bundle: _Bundle, feature: int, feature_codes: Bytes, n_codes: int) -> bool:
    """Add `feature` to `bundle` if the combinations that occur fit a byte; say whether it did."""
    n_sample = min(len(feature_codes), SAMPLE_ROWS)
    for n_rows in (n_sample, len(feature_codes)):
        seen = np.zeros(bundle.n_codes * n_codes, np.bool_)
        mark_combinations(bundle.codes[:n_rows], feature_codes[:n_rows], n_codes, seen)
        combinations = np.flatnonzero(seen)
        if len(combinations) > MAX_BINS:
            return False
    code_of_combination = np.zeros(len(seen), BIN)
    code_of_combination[combinations] = np.arange(len(combinations), dtype=BIN)
    joined = np.empty_like(bundle.codes)
    join_codes(bundle.codes, feature_codes, n_codes, code_of_combination, joined)
    bundle.members = {member: bins[combinations // n_codes] for member, bins in bundle.members.items()}
    bundle.members[feature] = (combinations % n_codes).astype(BIN)
    bundle.codes, bundle.n_codes = joined, len(combinations)
    return True


def _spread_over_words(n_columns: int) -> tuple[Ints, Ints]:
    """28 columns as four words of 7 rather than 8+8+8+4: no padding byte is ever updated in the inner loop."""
    n_words = -(-n_columns // COLUMNS_PER_WORD)
    columns_in_word = np.full(n_words, n_columns // n_words, np.int64)
    columns_in_word[: n_columns % n_words] += 1
    first_cell = [
        word * CELLS_PER_WORD + position * CELLS_PER_COLUMN
        for word in range(n_words)
        for position in range(columns_in_word[word])
    ]
    return np.array(first_cell, np.int64), columns_in_word


def _pack_words(columns: Bytes, layout: Layout, words: Words, records: Words, n_threads: int) -> None:
    cuts = [len(records) * part // n_threads for part in range(n_threads + 1)]
    tasks = [(columns, layout.columns_in_word, words, records, *limits) for limits in itertools.pairwise(cuts)]
    Team(n_threads).run(pack_rows, tasks)


@kernel
def pack_rows(columns: Bytes, columns_in_word: Ints, words: Words, records: Words, start: int, stop: int) -> None:
    """words[w, i] = records[i, w] = the bytes of word w's columns in row i, the first column lowest.

    Rows start..stop, in blocks that stay in the cache.
    """
    for block in range(start, stop, ROWS_PER_BLOCK):
        end = min(stop, block + ROWS_PER_BLOCK)
        first = 0
        for word in range(words.shape[0]):
            out = words[word, block:end]
            for row in range(out.shape[0]):
                out[row] = 0
            for position in range(columns_in_word[word]):
                column = columns[first + position, block:end]
                shift = np.uint64(8 * position)
                for row in range(out.shape[0]):
                    out[row] |= np.uint64(column[row]) << shift
            first += columns_in_word[word]
        for word in range(words.shape[0]):
            for row in range(block, end):
                records[row, word] = words[word, row]


@kernel
def take_rows(columns: Bytes, order: RowIds, out: Bytes) -> None:
    """out[:, i] = columns[:, order[i]]."""
    for column in range(columns.shape[0]):
        source, target = columns[column], out[column]
        for k in range(order.shape[0]):
            target[k] = source[np.uint64(order[k])]


@kernel
def mark_combinations(left: Bytes, right: Bytes, n_right: int, seen: Bools) -> None:
    """seen[a * n_right + b] for every pair of codes (a, b) that some row has."""
    for row in range(left.shape[0]):
        seen[np.uint64(left[row]) * np.uint64(n_right) + np.uint64(right[row])] = True


@kernel
def join_codes(left: Bytes, right: Bytes, n_right: int, code_of_combination: Bytes, joined: Bytes) -> None:
    """The bundle's code of each row."""
    for row in range(left.shape[0]):
        joined[row] = code_of_combination[np.uint64(left[row]) * np.uint64(n_right) + np.uint64(right[row])]


# --- sums -------------------------------------------------------------------------------------------------------------


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


def are_summed(counts: Ints, fewest: int) -> Bools:
    """Which nodes of a level may be summed: those that have this many rows, and whose sibling has as well; 1: all.

    A sibling's sums follow from the parent's by subtraction, so of two children both are summed or neither.
    """
    enough = counts >= fewest if fewest > 1 else np.ones(len(counts), np.bool_)
    return enough if len(counts) == 1 else np.repeat(enough.reshape(-1, 2).all(axis=1), 2)


def histograms_of(counts: Ints, feature: Ints, parent_slots: Ints, fewest: int) -> Histograms:
    """`plan_histograms`, without families that are not summed: children with fewer than `fewest` rows, or beside."""
    slots, built, derived = plan_histograms(counts, feature, parent_slots)
    summed = are_summed(counts, fewest)[built]
    return Histograms(slots, built[summed], derived[summed])


@kernel
def plan_histograms(
    counts: Ints,  # in  [children] rows of each, left and right in turn
    feature: Ints,  # in  [parents] -1 for those that did not split
    parent_slots: Ints,  # in  [parents]
) -> tuple[Ints, Ints, Ints]:  # of `Histograms`, which a kernel must not make: Ctrl-C would strike inside numba
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
    return slots, built, derived
