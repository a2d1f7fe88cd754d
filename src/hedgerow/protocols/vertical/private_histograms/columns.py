"""A party's own columns in public cells, and in bins that follow from noisy counts of rows in these.

    schema -> cells of each column        public: bounds alone (`central.bins`)
    rows   -> counts of cells             at the party
           -> counts with noise           discrete Gaussian noise that the party draws, once
           -> bins of about n / max_bins  neighbouring cells put together (`central.gaussian.tables.merged`)

Grown trees: bins are all that leaves these counts, and others hear only how many there are. A column of few cells, such
as one of zeros and ones, has a bin for each, and is not counted.

With smooth_then_trees all are told the noisy counts and who has which column, and bins are those of the label holder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.shares import Array
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.engine.table import Table
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.privacy.discrete_gaussian import sample
from hedgerow.protocols.central.bins import cells_of, grid_of
from hedgerow.protocols.central.gaussian.tables import Bins, merged
from hedgerow.protocols.shares.columns import OneHotColumns, bins_minus
from hedgerow.protocols.shares.job import MOST_ROWS
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.messages import SmoothColumns, SmoothSizes
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_memory, memory_available
from hedgerow.schema import Column, Schema
from hedgerow.transport.frames import encode

FEW_CELLS = 16
"""A column with this many cells or fewer keeps them all."""

EVEN_BINS = 8
"""Of a column whose counts drown in noise: cells are put together evenly."""

NOISES_PER_BIN = 4.0
"""A bin has this many times the noise of a cell in rows, or more, as far as noisy counts tell."""

BYTES_PER_LEAF = 40
"""For each row: shares of two numbers of each leaf and its parent, masks, what was opened, and what is on the way."""


class OwnColumns:
    """A party's own columns, which fit the schema, in public cells."""

    def __init__(self, party: str, job: PrivateHistogramsJob, data: PartyData) -> None:
        names = [entry.name for entry in _known(job)]
        self.places = [names.index(job.described(party, column.name).name) for column in data.table.columns]
        schema = Schema(job.own_columns(party, data.table), classes=(0, 1))
        mapper = grid_of(schema)
        self.cells: Bytes = mapper.transform(data.table, data.n_threads)
        self.grid = mapper.features
        self.gaps = [column.may_be_missing for column in schema.columns]
        self.n_cells = cells_of(schema, mapper)
        self.codes, self.n_bins = self.cells, list(self.n_cells)

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return int(self.cells.shape[1])

    @property
    def counted(self) -> list[int]:
        """The columns whose cells are counted where trees are grown."""
        return [number for number, feature in enumerate(self.grid) if feature.n_value_bins > FEW_CELLS]

    def counts(self) -> Ints:
        """Rows in each cell of each column, one column after the other."""
        return np.concatenate(
            [np.bincount(codes, minlength=n)[:n] for codes, n in zip(self.cells, self.n_cells, strict=True)]
        )

    def merge(self, of_cell: Bytes) -> None:
        """Put cells together: of_cell [columns, 256]."""
        self.codes = np.stack([np.take(bins, codes) for bins, codes in zip(of_cell, self.cells, strict=True)])
        self.n_bins = [int(bins[:n].max()) + 1 for bins, n in zip(of_cell, self.n_cells, strict=True)]

    def minus(self, masks: Array, bins: slice) -> Array:
        """Some rows of the one-hot matrix of all bins but each column's last, minus masks, written over them."""
        return bins_minus(self.codes, self.n_bins, masks, bins)


# --- grown trees -----------------------------------------------------------------------------------------------------


def check_tree_memory(party: str, job: PrivateHistogramsJob, table: Table) -> None:
    """InvalidInput, naming the party, if a tree would not fit: all nodes of a level have vectors over all rows."""
    trees, depth = job.boosting, job.depth
    check_memory(party, table.n_rows, len(table.columns), job.max_bins, trees.max_depth, trees.max_leaves)
    needed, available = table.n_rows * BYTES_PER_LEAF << depth, memory_available()
    if available is not None and needed > available:
        raise InvalidInput(
            f"{party}: max_depth={depth} with {table.n_rows:,} rows needs about {needed / 2**30:.1f} GiB, but only "
            f"{available / 2**30:.1f} GiB are available here; less depth takes less"
        )


def noisy_counts(own: OwnColumns, sigma: float, random: SecureRandom) -> dict[int, Ints]:
    """Rows in each cell of values of each counted column, with noise of this scale; 0 for none."""
    found = {}
    for number in own.counted:
        n_cells = own.grid[number].n_value_bins
        exact = np.bincount(own.cells[number], minlength=n_cells)[:n_cells].astype(np.int64)
        found[number] = exact + sample(sigma, n_cells, random) if sigma else exact
    return found


def binned_columns(party: str, own: OwnColumns, counts: dict[int, Ints], sigma: float, max_bins: int) -> OneHotColumns:
    """The columns in bins that follow from noisy counts."""
    features, codes = [], own.cells.copy()
    for number, (feature, gap) in enumerate(zip(own.grid, own.gaps, strict=True)):
        most, edges = max_bins - gap, np.asarray(feature.edges)  # columns with levels were refused
        if number in counts:
            of_cell = _merged_cells(counts[number].astype(np.float64), own.n_rows / most, sigma, most)
        else:
            of_cell = _even_cells(feature.n_value_bins, most)
        features.append(FeatureBins(feature.name, edges=edges[np.flatnonzero(np.diff(of_cell))], rule=feature.rule))
        codes[number] = np.append(of_cell, of_cell[-1] + 1).astype(np.uint8)[own.cells[number]]
    return OneHotColumns(party, features, codes, own.gaps)


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


# --- smooth_then_trees -----------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """Everybody's columns, the label holder's first."""

    owners: tuple[int, ...]  # place of the holder of each column
    schema: Schema  # all columns, under different names; those of the label holder keep theirs
    n_cells: tuple[int, ...]

    def of(self, place: int) -> list[int]:
        """The numbers of a party's columns."""
        return [number for number, owner in enumerate(self.owners) if owner == place]


def agreed_layout(me: Party, job: PrivateHistogramsJob, own: OwnColumns) -> Layout:
    """Everybody tells everybody which columns of the schema it has, and the dealer what it heard."""
    others = [party for party in job.holders if party != me.name]
    mine = np.array(own.places, np.int32)
    me.send_all(others, SmoothColumns(mine))
    limits = {"most_columns": job.most_columns, "n_described": len(_known(job))}
    places = [mine if party == me.name else me.recv(party, SmoothColumns, **limits).places for party in job.holders]
    layout = layout_of(job, places, [feature.name for feature in own.grid] if me.name == job.label_holder else [])
    n_columns = np.array([len(each) for each in places], np.int32)
    me.send(job.dealer, SmoothSizes(own.n_rows, n_columns, np.concatenate(places)))
    return layout


def told_layout(me: Party, job: PrivateHistogramsJob) -> tuple[Layout, int]:
    """What the dealer is told, by everybody: columns, and the number of rows. ProtocolError if somebody lies."""
    limits = {
        "most_rows": MOST_ROWS, "n_holders": len(job.holders), "most_columns": job.most_columns,
        "n_described": len(_known(job)),
    }  # fmt: skip
    first, *rest = (me.recv(party, SmoothSizes, **limits) for party in job.holders)
    for party, told in zip(job.feature_holders, rest, strict=True):
        if encode(told) != encode(first):
            raise ProtocolError(f"{job.label_holder} and {party} told different sizes: what is dealt would not fit")
    n_columns = first.n_columns.tolist()
    if sum(n_columns) != len(first.places):
        raise ProtocolError(f"{job.label_holder} sent {len(first.places)} columns, but counts {sum(n_columns)}")
    return layout_of(job, np.split(first.places, np.cumsum(n_columns)[:-1]), []), first.n_rows


def layout_of(job: PrivateHistogramsJob, places: Sequence[Ints | np.ndarray], names: Sequence[str]) -> Layout:
    """From everybody's places in the schema; `names` of the label holder's own columns, if they are known."""
    described = _known(job)
    owners: list[int] = []
    columns: list[Column] = []
    taken = set(names)
    for place, (party, theirs) in enumerate(zip(job.holders, places, strict=True)):
        if theirs.ndim != 1 or not all(0 <= number < len(described) for number in theirs.tolist()):
            raise ProtocolError(f"{party} says that it has columns which are not in the schema")
        for k, number in enumerate(theirs.tolist()):
            name = names[k] if not place and names else f"{party}.{described[number].name}"
            while place and name in taken:  # a column of the label holder may have any name
                name += "'"
            taken.add(name)
            owners.append(place)
            columns.append(replace(described[number], name=name))
    schema = Schema(tuple(columns), classes=(0, 1))
    return Layout(tuple(owners), schema, cells_of(schema, grid_of(schema)))


def _known(job: PrivateHistogramsJob) -> tuple[Column, ...]:
    return () if job.schema is None else job.schema.columns


def merged_bins(of_cell: Bytes, n_cells: Sequence[int], caps: Sequence[int]) -> list[int]:
    """Bins of each column; ProtocolError unless they are 0, 1, ... without a gap, and not too many."""
    found = []
    for bins, n, cap in zip(of_cell, n_cells, caps, strict=True):
        n_bins = int(bins[:n].max()) + 1
        if len(np.unique(bins[:n])) != n_bins:
            raise ProtocolError("the label holder put cells together to bins some of which are empty")
        if n_bins > cap:
            raise ProtocolError(f"the label holder made {n_bins} bins of a column that may have {cap}")
        found.append(n_bins)
    return found
