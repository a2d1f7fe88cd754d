"""A party's own columns in bins that follow from noisy counts over public cells.

    schema -> cells of each column        public: bounds alone (`central.gaussian.grid`)
    rows   -> counts of cells             at the party
           -> counts with noise           discrete Gaussian noise that the party draws, once
           -> bins of about n / max_bins  neighbouring cells put together (`central.gaussian.tables.merged`)

Bins are all that leaves these counts, and others hear only how many there are. A column of few cells, such as one of
zeros and ones, has a bin for each, and is not counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.errors import InvalidInput
from hedgerow.privacy.discrete_gaussian import sample
from hedgerow.protocols.central.gaussian.grid import grid_of
from hedgerow.protocols.central.gaussian.tables import Bins, merged
from hedgerow.protocols.shares.columns import OneHotColumns
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_memory, memory_available
from hedgerow.schema import Schema

FEW_CELLS = 16
"""A column with this many cells or fewer keeps them all."""

EVEN_BINS = 8
"""Of a column whose counts drown in noise: cells are put together evenly."""

NOISES_PER_BIN = 4.0
"""A bin has this many times the noise of a cell in rows, or more, as far as noisy counts tell."""

BYTES_PER_LEAF = 40
"""For each row: shares of two numbers of each leaf and its parent, masks, what was opened, and what is on the way."""


class Cells(NamedTuple):
    """A party's columns in public cells."""

    names: tuple[str, ...]
    edges: tuple[Floats, ...]  # of each column's cells
    codes: Bytes  # [columns, rows]: the cell of each value; one more for missing ones
    gaps: tuple[bool, ...]  # which columns may have missing values

    @property
    def counted(self) -> list[int]:
        """The columns whose cells are counted."""
        return [number for number, edges in enumerate(self.edges) if len(edges) + 1 > FEW_CELLS]


def public_cells(party: str, job: PrivateHistogramsJob, data: PartyData) -> Cells:
    """The columns of a party, which fit the schema, in public cells."""
    table, trees = data.table, job.boosting
    described = job.own_columns(party, table)
    check_memory(party, table.n_rows, len(table.columns), job.max_bins, trees.max_depth, trees.max_leaves)
    _check_tree_memory(party, table.n_rows, job.depth)
    grid = grid_of(Schema(described, classes=(0, 1)))
    names = tuple(feature.name for feature in grid.features)
    edges = tuple(np.asarray(feature.edges) for feature in grid.features)  # columns with levels were refused
    gaps = tuple(entry.may_be_missing for entry in described)
    return Cells(names, edges, grid.transform(table, data.n_threads), gaps)


def noisy_counts(cells: Cells, sigma: float, random: SecureRandom) -> dict[int, Ints]:
    """Rows in each cell of values of each counted column, with noise of this scale; 0 for none."""
    found = {}
    for number in cells.counted:
        n_cells = len(cells.edges[number]) + 1
        exact = np.bincount(cells.codes[number], minlength=n_cells)[:n_cells].astype(np.int64)
        found[number] = exact + sample(sigma, n_cells, random) if sigma else exact
    return found


def binned_columns(party: str, cells: Cells, counts: dict[int, Ints], sigma: float, max_bins: int) -> OneHotColumns:
    """The columns in bins that follow from noisy counts."""
    n_rows = cells.codes.shape[1]
    features, codes = [], cells.codes.copy()
    for number, (name, edges, gap) in enumerate(zip(cells.names, cells.edges, cells.gaps, strict=True)):
        most = max_bins - gap
        if number in counts:
            of_cell = _merged_cells(counts[number].astype(np.float64), n_rows / most, sigma, most)
        else:
            of_cell = _even_cells(len(edges) + 1, most)
        features.append(FeatureBins(name, edges=edges[np.flatnonzero(np.diff(of_cell))]))
        codes[number] = np.append(of_cell, of_cell[-1] + 1).astype(np.uint8)[cells.codes[number]]
    return OneHotColumns(party, features, codes, cells.gaps)


def _merged_cells(counts: Floats, rows: float, sigma: float, most: int) -> Ints:
    """The bin of each cell: bins of about this many rows, and no more bins than `most`."""
    bins = merged_at_most(most, counts, len(counts), max(rows, NOISES_PER_BIN * sigma, 1.0), 1.25)
    if bins.n_bins == 1:
        return _even_cells(len(counts), min(EVEN_BINS, most))
    return bins.of_cell[: len(counts)].astype(np.int64)


def merged_at_most(most: int, counts: Floats, n_ordered: int, target: float, more: float) -> Bins:
    """Bins of about `target` rows; as long as that leaves too many bins, of `more` times that many."""
    bins = merged(counts, n_ordered=n_ordered, target=target)
    while bins.n_bins > most:
        target *= more
        bins = merged(counts, n_ordered=n_ordered, target=target)
    return bins


def _even_cells(n_cells: int, most: int) -> Ints:
    """The bin of each cell: all of them if there are few, else equally many cells in each."""
    return np.arange(n_cells) * min(n_cells, most) // n_cells


def _check_tree_memory(party: str, n_rows: int, depth: int) -> None:
    """InvalidInput, naming the party, if a tree would not fit: all nodes of a level have vectors over all rows."""
    needed, available = n_rows * BYTES_PER_LEAF << depth, memory_available()
    if available is not None and needed > available:
        raise InvalidInput(
            f"{party}: max_depth={depth} with {n_rows:,} rows needs about {needed / 2**30:.1f} GiB, but only "
            f"{available / 2**30:.1f} GiB are available here; less depth takes less"
        )
