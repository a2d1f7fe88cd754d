"""What a party brings, made to fit what is public about it: no row makes a private run fail (`protocols.bad_rows`).

How many rows did not fit is for the party's own log. No message has it, and no file that others may get.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.engine.dtypes import Bools
from hedgerow.engine.sources import open_source
from hedgerow.engine.table import Level
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.party import Party
from hedgerow.protocols.bad_rows import OnBadRows, fit_described, fit_labels, fit_table
from hedgerow.protocols.protocol import PartyData, Protocol
from hedgerow.protocols.vertical.job import VerticalJob
from hedgerow.protocols.vertical.labels import fit_own_labels
from hedgerow.schema import Column, Schema


def read_party(party: str, X: Any, schema: Schema, y: Any = None, *, task: str = "classification") -> PartyData:
    """A table of which every column is described, and labels where there are any; no row makes this fail.

    What cannot be read as the schema has it is a gap for now, and a label that is not listed is NaN: what becomes of
    them is for the protocol to say.
    """
    known = {entry.name: entry for entry in schema.columns}
    entries = []
    for name in open_source(X, party).names:
        entry = known.get(f"{party}.{name}", known.get(name))
        if entry is None:
            raise InvalidParameter(
                f"column {name!r} of {party} has no entry in the schema, neither as {name!r} nor as '{party}.{name}'"
            )
        entries.append(replace(entry, name=name, may_be_missing=True))
    table, misfits = fit_table(X, entries, where=party)
    if y is None:
        return PartyData(table, unread=misfits)
    if (schema.classes is None) != (task == "regression"):
        raise InvalidParameter(f"the schema must state {'label_bounds' if task == 'regression' else 'classes'}")
    labels = fit_labels(y, schema, where=party)
    if len(labels.values) != table.n_rows:  # how many there are of each is not for logs
        raise InvalidInput(f"{party}: rows and labels are not equally many")
    values = np.where(labels.counts, labels.values, np.nan)
    return PartyData(table, values, schema.classes, unread=misfits | labels.misfits)


def fitted(
    me: Party,
    job: VerticalJob,
    data: PartyData,
    described: Sequence[Column | None],
    *,
    classes: Sequence[Level] | None,
    on_bad_rows: OnBadRows,
) -> tuple[PartyData, Bools]:
    """The same data with columns as `described`, labels as the list of classes has them; and which rows have a label.

    Feature holders have none, and there all rows count.
    """
    table, misfits = fit_described(data.table, described, where=me.name, on_bad_rows=on_bad_rows)
    if data.unread is not None:
        if on_bad_rows == "raise" and data.unread.any():
            raise InvalidInput(f"{me.name}: a value or a label could not be read as the schema has it")
        misfits = misfits | data.unread
    counts = np.ones(table.n_rows, np.bool_)
    if me.name == job.label_holder:
        labels = fit_own_labels(me.name, job, data, classes, on_bad_rows)
        counts, misfits = labels.counts, misfits | labels.misfits
        known = data.classes if classes is None or data.classes is None else tuple(classes)
        data = replace(data, labels=labels.values, classes=known)
    if misfits.any():
        me.log.warning(
            "%s: %d of its rows did not fit what is public about them, and were mapped; no other party is told",
            me.name,
            int(misfits.sum()),
        )
    return replace(data, table=table), counts


def with_schema(protocol: Protocol, options: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Options of a training on tables that were read by a schema: it goes by the same one unless it is told another."""
    if "on_bad_rows" not in protocol.options:
        raise InvalidParameter(f"{protocol.name} does not go by a schema; leave it out of Federation.vertical")
    public = {"schema": schema, "classes": None if schema.classes is None else list(schema.classes)}
    return {**{name: value for name, value in public.items() if name in protocol.options}, **options}
