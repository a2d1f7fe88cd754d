"""Rows of a sparse matrix: of each column the code that most rows have, and the rows with another one.

    codes        by column: which rows have another code than the usual one, that of a zero, and which
    packed       the same by row, as cells of a histogram: what a row adds its gradient to

A histogram is the sum over entries alone; the cell of the usual code is what is missing to the sum over all rows of the
node, exactly, for sums are of integers. A column is written out, a byte per row, while nodes are split on it. So memory
and time follow the number of entries, and trees are the same, bit for bit, as those of the dense table.

Cells of a histogram lie without gaps, and there are no words of eight columns: `Layout.columns_in_word` is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.dtypes import BIN, ROW_ID, Bools, Bytes, Int32s, Ints, RowIds
from hedgerow.engine.histogram import Layout, clear_cells


@dataclass(frozen=True)
class SparseCodes:
    """Codes of all rows; where a dense table has uint8 [features, rows]."""

    n_rows: int
    usual: Bytes  # [features] the code of rows that are not listed
    starts: Ints  # [features + 1] where a feature's entries begin
    rows: RowIds  # [entries] increasing in each feature
    codes: Bytes  # [entries] none of them usual

    @classmethod
    def of(cls, features: Sequence[tuple[int, Bytes, RowIds]], n_rows: int) -> SparseCodes:
        """From each feature's usual code, and the codes of some rows."""
        kept = [codes != usual for usual, codes, _ in features]
        starts = np.concatenate([[0], np.cumsum([np.count_nonzero(keep) for keep in kept])]).astype(np.int64)
        pairs = list(zip(features, kept, strict=True))
        rows = np.concatenate([rows[keep] for (_, _, rows), keep in pairs]).astype(ROW_ID)
        codes = np.concatenate([codes[keep] for (_, codes, _), keep in pairs]).astype(BIN)
        return cls(n_rows, np.array([usual for usual, _, _ in features], BIN), starts, rows, codes)

    @property
    def shape(self) -> tuple[int, int]:
        """Features and rows."""
        return len(self.usual), self.n_rows

    def __len__(self) -> int:
        return len(self.usual)

    def dense(self, features: Sequence[int] | Ints | Int32s) -> Bytes:
        """The codes of some features, written out: [features, rows]."""
        out = np.empty((len(features), self.n_rows), BIN)
        for row, feature in zip(out, features, strict=True):
            entries = slice(self.starts[feature], self.starts[feature + 1])
            row[:] = self.usual[feature]
            row[self.rows[entries]] = self.codes[entries]
        return out

    def taken(self, rows: Ints) -> SparseCodes:
        """Some of the rows, in this order, each at most once."""
        place = np.full(self.n_rows, -1, np.int64)
        place[rows] = np.arange(len(rows))
        now = place[self.rows]
        features = []
        for feature, usual in enumerate(self.usual.tolist()):
            entries = slice(self.starts[feature], self.starts[feature + 1])
            there = np.flatnonzero(now[entries] >= 0)
            order = there[np.argsort(now[entries][there])]
            features.append((usual, self.codes[entries][order], now[entries][order].astype(ROW_ID)))
        return SparseCodes.of(features, len(rows))

    def are_constant(self) -> Bools:
        """Of each feature: whether all rows have the same code."""
        n_listed = np.diff(self.starts)
        constant: Bools = n_listed == 0
        for feature in np.flatnonzero(n_listed == self.n_rows).tolist():  # nobody has the usual code
            own = self.codes[self.starts[feature] : self.starts[feature + 1]]
            constant[feature] = bool((own == own[0]).all())
        return constant


def written_out(codes: Bytes | SparseCodes) -> Bytes:
    """The codes of all features, a byte each: for rows that others are to hold."""
    return codes.dense(range(len(codes))) if isinstance(codes, SparseCodes) else codes


@dataclass(frozen=True)
class SparseColumns:
    """The rows as the kernels want them; in place of `PackedColumns`."""

    layout: Layout
    codes: SparseCodes
    row_starts: Ints  # [rows + 1]
    cells: Int32s  # [entries] by row
    usual_cell: Ints  # [columns]

    @property
    def n_rows(self) -> int:
        """Rows."""
        return self.codes.n_rows

    def columns_of(self, features: Ints) -> tuple[Bytes, Ints]:
        """The columns of some features, written out, and where each feature's is; -1 stands for no feature."""
        used = np.unique(features[features >= 0])
        places = np.zeros(len(self.codes), np.int64)
        places[used] = np.arange(len(used))
        return self.codes.dense(used), places


def pack_sparse(codes: SparseCodes, n_value_bins: Ints, is_categorical: Bools) -> SparseColumns:
    """One column per feature, cells without gaps, entries by row."""
    n_codes = np.asarray(n_value_bins, np.int64) + 1
    first_cell = np.concatenate([[0], np.cumsum(n_codes)[:-1]]).astype(np.int64)
    layout = Layout.plain(n_value_bins, is_categorical)._replace(
        first_cell=first_cell, columns_in_word=np.empty(0, np.int64)
    )
    row_starts = np.concatenate([[0], np.cumsum(np.bincount(codes.rows, minlength=codes.n_rows))]).astype(np.int64)
    cells = np.empty(len(codes.rows), np.int32)
    by_rows(codes.starts, codes.rows, codes.codes, first_cell, row_starts[:-1].copy(), cells)
    return SparseColumns(layout, codes, row_starts, cells, first_cell + codes.usual)


@kernel
def by_rows(starts: Ints, rows: RowIds, codes: Bytes, first_cell: Ints, at: Ints, cells: Int32s) -> None:
    """The cell of each entry, row after row. In and out: `at` [rows], where a row's next entry goes. Out: `cells`."""
    for feature in range(first_cell.shape[0]):
        for entry in range(starts[feature], starts[feature + 1]):
            row = np.uint64(rows[entry])
            cells[at[row]] = np.int32(first_cell[feature] + np.int64(codes[entry]))
            at[row] += 1


@kernel
def sparse_histograms(
    row_starts: Ints,  # in  [rows + 1]
    entries: Int32s,  # in  [entries] cells, by row
    usual_cell: Ints,  # in  [columns]
    values: Ints,  # in  [rows] packed gradients, by row number
    row_ids: RowIds,  # in  row numbers, grouped by node
    starts: Ints,  # in  [active nodes] the range of row_ids that holds each node's rows
    stops: Ints,
    nodes: Ints,  # in  the nodes to sum
    slots: Ints,  # in  [nodes] which histogram to write
    cells: Ints,  # out [slots, cells]
    first_cell: Ints,
    n_codes: Ints,
) -> None:
    """Histograms of several nodes: entries are added, and the usual code of a column gets what is left of the sum."""
    for which in range(nodes.shape[0]):
        mine = cells[slots[which]]
        clear_cells(mine, first_cell, n_codes)
        total = np.int64(0)
        for place in range(starts[nodes[which]], stops[nodes[which]]):
            row = np.uint64(row_ids[place])
            value = values[row]
            total += value
            for entry in range(row_starts[row], row_starts[row + np.uint64(1)]):
                mine[np.uint64(entries[entry])] += value
        for column in range(first_cell.shape[0]):
            listed = np.int64(0)
            for cell in range(first_cell[column], first_cell[column] + n_codes[column]):
                listed += mine[cell]
            mine[usual_cell[column]] = total - listed
