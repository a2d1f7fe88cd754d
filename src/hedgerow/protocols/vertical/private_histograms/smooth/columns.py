"""A party's own columns: public cells at first, bins of them once noisy counts are known to all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hedgerow.crypto.shares import Array
from hedgerow.engine.dtypes import Bytes, Ints
from hedgerow.errors import ProtocolError
from hedgerow.protocols.central.gaussian.grid import cells_of, grid_of
from hedgerow.protocols.shares.columns import bins_minus
from hedgerow.protocols.shares.job import MOST_ROWS
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.smooth.messages import SmoothColumns, SmoothSizes
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.schema import Column, Schema


class OwnColumns:
    """Its own columns, which fit the schema, in cells; levels are welcome, for they need no order here."""

    def __init__(self, party: str, job: PrivateHistogramsJob, data: PartyData) -> None:
        names = [entry.name for entry in _known(job)]
        self.places = [names.index(job.described(party, column.name).name) for column in data.table.columns]
        schema = Schema(job.own_columns(party, data.table), classes=(0, 1))
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
