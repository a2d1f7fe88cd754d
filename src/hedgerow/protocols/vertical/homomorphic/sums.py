"""A feature holder's sums of encrypted rows: per node, per column and code, with as few additions as it takes.

An addition of points costs a hundred times what one of integers does, so rows are not added column by column:

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
from hedgerow.crypto import elgamal
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.edwards25519 import POINT, Points
from hedgerow.crypto.field25519 import Words
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

    def encrypted(self, holder: elgamal.Holder, nodes: Sequence[RowIds], totals: Words, rng: SecureRandom) -> Words:
        """Points [nodes x sums, width, 8] of the sums over each node's rows, given the nodes' encrypted totals."""
        sums = [elgamal.no_sums(self.n_sums, holder.width) for _ in nodes]
        tasks = [
            (holder, rows, group, out) for rows, out in zip(nodes, sums, strict=True) for group in self._groups(rows)
        ]
        self._team.run(self._add_group, sorted(tasks, key=lambda task: -len(task[1])))
        finished = self._team.run(self._finish, [(holder, *each, rng) for each in zip(sums, totals, strict=True)])
        return np.concatenate(finished)

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

    def _add_group(self, holder: elgamal.Holder, rows: RowIds, group: Ints, sums: Points) -> None:
        n_codes, frequent, width = self._n_codes[group], self._frequent[group], holder.width
        n_cells = int(np.prod(n_codes))
        skipped = int(np.ravel_multi_index(tuple(frequent), tuple(n_codes)))
        cell = np.empty(len(rows), np.int32)
        join_codes(self._codes, group, n_codes, rows, cell)
        if len(group) == 1:  # its sums are its cells
            start = int(self._first[group[0]])
            own = sums[start * width * POINT : (start + n_cells) * width * POINT]
            elgamal.add_rows(holder.rows.reshape(-1), width, rows, cell, skipped, own, np.ones(n_cells, np.uint8))
            return
        cells, used = np.empty(n_cells * width * POINT, np.uint32), np.zeros(n_cells, np.uint8)
        elgamal.add_rows(holder.rows.reshape(-1), width, rows, cell, skipped, cells, used)
        elgamal.fold_cells(cells, used, width, n_codes, frequent, self._first[group], sums)

    def _finish(self, holder: elgamal.Holder, sums: Points, total: Words, rng: SecureRandom) -> Words:
        holder.complete(sums, self._n_codes, self._frequent, self._first, total)
        return holder.finished(sums.reshape(self.n_sums, holder.width, POINT), rng)


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
