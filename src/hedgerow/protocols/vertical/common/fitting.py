"""What a party brings, made to fit what is public about it: no row makes a private run fail (`protocols.bad_rows`).

How many rows did not fit is for the party's own log. No message has it, and no file that others may get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hedgerow.engine.dtypes import Bools
from hedgerow.engine.table import Level
from hedgerow.errors import InvalidInput
from hedgerow.protocols.bad_rows import OnBadRows, fit_described
from hedgerow.protocols.vertical.common.job import VerticalJob
from hedgerow.protocols.vertical.common.labels import fit_own_labels
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.schema import Column


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
    if data.misfits is not None:
        if on_bad_rows == "raise" and data.misfits.any():
            raise InvalidInput(f"{me.name}: a value or a label could not be read as the schema has it")
        misfits = misfits | data.misfits
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
