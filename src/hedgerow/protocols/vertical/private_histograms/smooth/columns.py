"""A party's own columns: public cells at first, bins of them once noisy counts are known to all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hedgerow.crypto.dealing import HandStep
from hedgerow.crypto.shares import SUM32, Array
from hedgerow.engine.dtypes import Bytes, Ints
from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.protocols.central.gaussian.grid import cells_of, grid_of
from hedgerow.protocols.shares.columns import bins_minus
from hedgerow.protocols.shares.job import MOST_ROWS
from hedgerow.protocols.shares.masked_columns import Matrices, exchanged
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.smooth.messages import SmoothColumns, SmoothSizes
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.schema import CategoricalColumn, Column, NumericColumn, Schema


class Described(NamedTuple):
    """A party's columns in the schema."""

    places: list[int]
    described: list[Column]  # under the names that the party has for them


def own_columns(party: str, job: PrivateHistogramsJob, data: PartyData) -> Described:
    """What the schema says about the columns of a party, under "party.column" or "column"."""
    known = _known(job)
    names = [entry.name for entry in known]
    own = Described([], [])
    for column in data.table.columns:
        name = next((name for name in (f"{party}.{column.name}", column.name) if name in names), None)
        if name is None:
            raise InvalidParameter(
                f"{job.NAME}: column {column.name!r} of {party} has no entry in the schema, neither as "
                f"{column.name!r} nor as '{party}.{column.name}'"
            )
        own.places.append(names.index(name))
        own.described.append(_renamed(known[own.places[-1]], column.name))
    return own


class OwnColumns:
    """Its own columns, which fit the schema, in cells; levels are welcome, for they need no order here."""

    def __init__(self, party: str, job: PrivateHistogramsJob, data: PartyData) -> None:
        own = own_columns(party, job, data)
        self.places = own.places
        schema = Schema(tuple(own.described), classes=(0, 1))
        mapper = grid_of(schema)
        self.cells: Bytes = mapper.transform(data.table, data.n_threads)
        self.grid = mapper.features
        self.n_cells = cells_of(schema, mapper)
        self.codes, self.n_bins = self.cells, list(self.n_cells)

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return int(self.cells.shape[1])

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


def exchanged_bins(
    me: Party, job: PrivateHistogramsJob, step: HandStep, columns: OwnColumns, rows: Sequence[Sequence[tuple[int, int]]]
) -> Array:
    """Masked bins of all holders, one below the other; those of its own are empty.

    `rows`: for each column of each holder, rows of its one-hot matrix, and rows for which there are masks.
    """
    in_use = [np.concatenate([np.arange(most) < used for used, most in theirs]) for theirs in rows]
    hidden = Matrices(tuple(int(used.sum()) for used in in_use), columns.n_rows, SUM32)
    return exchanged(me, job.holders, step, columns, hidden, keep_own=False, in_use=in_use)


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
        if told.n_rows != first.n_rows or any(
            not np.array_equal(ours, theirs)
            for ours, theirs in ((first.n_columns, told.n_columns), (first.places, told.places))
        ):
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
            columns.append(_renamed(described[number], name))
    schema = Schema(tuple(columns), classes=(0, 1))
    return Layout(tuple(owners), schema, cells_of(schema, grid_of(schema)))


def _known(job: PrivateHistogramsJob) -> tuple[Column, ...]:
    return () if job.schema is None else job.schema.columns


def _renamed(entry: Column, name: str) -> Column:
    if isinstance(entry, NumericColumn):
        return NumericColumn(name, entry.low, entry.high, entry.integer, entry.may_be_missing)
    return CategoricalColumn(name, entry.levels, entry.may_be_missing)


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
