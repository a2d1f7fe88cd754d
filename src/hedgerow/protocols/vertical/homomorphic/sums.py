"""A feature holder's sums of encrypted rows: per node, per column and code, with as few additions as it takes.

An addition under encryption costs a hundred times what one of integers does, and more. So rows are not added column by
column:

1. Columns are grouped while the product of their numbers of codes stays below an eighth of the node's rows. A row is
   added once per group, to the joint cell of its codes; cells in use are then folded into each column's sums.
2. Rows in the joint cell of all most frequent codes are not added at all. What such a code is short of follows from the
   node's total, which the label holder sends encrypted: total less all other codes of the column.

Which codes are most frequent, and how many cells are in use, shows in nothing that is sent, but in the time it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import kernel
from hedgerow.crypto.additive import Holder, Sums, Words
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.dtypes import Bytes, Ints, RowIds
from hedgerow.engine.threads import Team

ROWS_PER_CELL = 8
"""Rows of a node per joint cell at least: folding a cell costs as much as adding a row to two or three columns."""


class ColumnSums:
    """A party's own columns, and how their sums are laid out in a tree."""

    def __init__(self, codes: Bytes, n_codes: Ints, n_threads: int) -> None:
        """`codes` [columns, rows], each below its column's n_codes."""
        self._codes, self._n_codes, self._team = codes, n_codes, Team(n_threads)
        counts = [np.bincount(column, minlength=1) for column in codes]
        self._frequent = np.array([int(np.argmax(count)) for count in counts], np.int64)
        self._smallest_first = np.argsort(n_codes, kind="stable")
        self.lay_out(np.arange(len(n_codes)))

    def lay_out(self, order: Ints) -> None:
        """The order of columns for a tree."""
        ends = np.cumsum(self._n_codes[order])
        self._first = np.empty(len(order), np.int64)
        self._first[order] = ends - self._n_codes[order]
        self.n_sums = int(ends[-1])

    @property
    def places(self) -> Ints:
        """Where the sums of the columns, in the party's own order, are in that of the tree."""
        first = np.cumsum(self._n_codes) - self._n_codes
        places: Ints = np.arange(self.n_sums) + np.repeat(self._first - first, self._n_codes)
        return places

    def encrypted(
        self, holder: Holder, nodes: Sequence[RowIds], totals: Words, rng: SecureRandom, noise: Ints | None = None
    ) -> Words:
        """Ciphertexts [nodes x ciphertexts, words] of sums over each node's rows, given the nodes' encrypted totals.

        `noise` [nodes, sums, 2] is in the party's own order of columns.
        """
        sums = [holder.no_sums(self.n_sums) for _ in nodes]
        tasks = [
            (holder, rows, group, out) for rows, out in zip(nodes, sums, strict=True) for group in self._groups(rows)
        ]
        self._team.run(self._add_group, sorted(tasks, key=lambda task: -len(task[1])))
        own = [None] * len(nodes) if noise is None else [each[np.argsort(self.places)] for each in noise]
        finishing = [(holder, rng, *of_node) for of_node in zip(sums, totals, own, strict=True)]
        return np.concatenate(self._team.run(self._finish, finishing))

    def _groups(self, rows: RowIds) -> list[Ints]:
        """Columns that are summed together over these rows."""
        groups: list[list[int]] = []
        n_cells = 0
        for column in self._smallest_first.tolist():
            n_codes = int(self._n_codes[column])
            if not groups or n_cells * n_codes * ROWS_PER_CELL > len(rows):
                groups.append([])
                n_cells = 1
            groups[-1].append(column)
            n_cells *= n_codes
        return [np.array(group, np.int64) for group in groups]

    def _add_group(self, holder: Holder, rows: RowIds, group: Ints, sums: Sums) -> None:
        n_codes, frequent = self._n_codes[group], self._frequent[group]
        n_cells = int(np.prod(n_codes))
        skipped = int(np.ravel_multi_index(tuple(frequent), tuple(n_codes)))
        cell = np.empty(len(rows), np.int32)
        join_codes(self._codes, group, n_codes, rows, cell)
        if len(group) == 1:  # its sums are its cells
            start = int(self._first[group[0]])
            holder.add_rows(rows, cell, skipped, sums[start : start + n_cells], np.ones(n_cells, np.uint8))
            return
        cells, used = holder.unset_sums(n_cells), np.zeros(n_cells, np.uint8)
        holder.add_rows(rows, cell, skipped, cells, used)
        holder.fold_cells(cells, used, n_codes, frequent, self._first[group], sums)

    def _finish(self, holder: Holder, rng: SecureRandom, sums: Sums, total: Words, noise: Ints | None) -> Words:
        holder.complete(sums, self._n_codes, self._frequent, self._first, total)
        return holder.finished(sums, rng, noise)


@kernel
def join_codes(
    codes: Bytes,  # in  [columns, rows]
    group: Ints,  # in  [columns of the group]
    n_codes: Ints,  # in  [columns of the group]
    rows: RowIds,
    cell: npt.NDArray[Any],  # out [rows] int32
) -> None:
    """One number for the codes of all columns of a group; the last column's changes fastest."""
    for k in range(rows.shape[0]):
        joint = 0
        for j in range(group.shape[0]):
            joint = joint * n_codes[j] + codes[group[j], rows[k]]
        cell[k] = joint
