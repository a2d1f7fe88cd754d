"""The first messages of every vertical run: do the tables fit together? Nothing else moves before all have said so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from hedgerow.errors import InvalidInput
from hedgerow.ledger import Exact, Public
from hedgerow.protocols.vertical.common.job import VerticalJob
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.transport.frames import Message
from hedgerow.transport.ranges import MOST, Within

PATIENCE = 2.5
"""How much longer than the label holder feature holders wait: it may first have to wait for another one."""
MOST_COLUMNS = 1 << 20


@dataclass(frozen=True, slots=True)
class ReadyToTrain(Message, name="vertical.ready_to_train", version=1):
    """Feature holder to label holder: my table is in order."""

    discloses = Exact("the feature holder's numbers of rows and columns")
    n_rows: Annotated[int, Within(0, MOST)]
    n_columns: Annotated[int, Within(1, MOST_COLUMNS)]


@dataclass(frozen=True, slots=True)
class GoAhead(Message, name="vertical.go_ahead", version=1):
    """Label holder to feature holder: all tables fit together."""

    discloses = Public("that all parties are ready")
    n_rows: Annotated[int, Within("n_rows", "n_rows")]


def check_table(
    party: str, data: PartyData | None, *, needs_columns: bool = True, needs_values: bool = True
) -> PartyData:
    """InvalidInput, naming party and column, for a table that nothing can be trained on.

    Without `needs_values` nothing depends on what rows hold, as it must be where they are protected.
    """
    if data is None:
        raise InvalidInput(f"{party}: brings no table")
    table = data.table
    if needs_columns and not table.columns:
        raise InvalidInput(f"{party}: brings no column; a party that takes part needs at least one")
    for column in table.columns if needs_values else ():
        missing = column.values < 0 if column.levels is not None else np.isnan(column.values)
        if missing.all():
            raise InvalidInput(f"{party}: column {column.name!r} is empty, every value is missing; leave it out")
    return data


def begin_as_feature_holder(me: Party, job: VerticalJob, data: PartyData) -> None:
    """Say that the own table is in order, and wait until everybody's is."""
    me.wait_longer(PATIENCE)
    me.send(job.label_holder, ReadyToTrain(data.table.n_rows, len(data.table.columns)))
    me.recv(job.label_holder, GoAhead, n_rows=data.table.n_rows)


def begin_as_label_holder(me: Party, job: VerticalJob, data: PartyData) -> dict[str, int]:
    """Wait until all are ready, and check that they have equally many rows. Returns everybody's number of columns."""
    n_rows = data.table.n_rows
    n_columns = {}
    for party in job.feature_holders:
        ready = me.recv(party, ReadyToTrain)
        if ready.n_rows != n_rows:
            raise InvalidInput(
                f"{party}: has {ready.n_rows} rows, but {me.name} has {n_rows}; the rows of all parties must be the "
                "same ones in the same order, align them first"
            )
        n_columns[party] = ready.n_columns
    me.send_all(job.feature_holders, GoAhead(n_rows))
    return {party: n_columns.get(party, len(data.table.columns)) for party in job.parties}
