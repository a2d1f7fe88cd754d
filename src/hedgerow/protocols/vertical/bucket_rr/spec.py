"""vertical.bucket_rr, declared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hedgerow.privacy.events import NonPrivate
from hedgerow.protocols.made_up import LEVELS, made_up_rows
from hedgerow.protocols.vertical.bucket_rr.buckets import Kinds, event_of
from hedgerow.protocols.vertical.bucket_rr.feature_holder import feature_holder
from hedgerow.protocols.vertical.bucket_rr.job import PRIVATE, QUANTILE, Job
from hedgerow.protocols.vertical.bucket_rr.label_holder import label_holder
from hedgerow.protocols.vertical.bucket_rr.messages import Buckets, ColumnKinds, HaveTransfer, OwnSplits, SameAsBefore
from hedgerow.protocols.vertical.bucket_rr.statement import statement
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, PartyData, Planned, Protocol, Rehearsal
from hedgerow.schema import CategoricalColumn, Schema


def planned(job: Job, party: str, data: PartyData) -> Planned | None:
    """Buckets of all columns of a feature holder, and their edges where these are private; labels have no noise."""
    if party == job.label_holder:
        return Planned(NonPrivate(f"{job.NAME} does not protect labels"))
    if job.on_bad_rows == "raise":
        return Planned(NonPrivate(f"{job.NAME} releases without noise"))
    columns = data.table.columns
    expected = [job.expected(party, column.name) for column in columns]
    has_levels = [
        column.levels is not None if entry is None else isinstance(entry, CategoricalColumn)
        for column, entry in zip(columns, expected, strict=True)
    ]
    n_buckets, no_gaps = np.full(len(columns), job.buckets, np.int32), np.zeros(len(columns), np.bool_)
    return Planned(event_of(job, Kinds(n_buckets, np.array(has_levels, np.bool_), no_gaps)))


def charges_itself(job: Job, party: str) -> bool:
    """With a cache: what the label holder has kept is not sent again, and costs nothing."""
    return job.cache is not None and party != job.label_holder and job.on_bad_rows == "map"


def warmup(job: Job) -> Rehearsal:
    """Two trees; private edges have kernels of their own, all others warm up with quantiles. Nothing is kept."""
    is_private = job.edges == PRIVATE
    small = replace(
        job,
        parties=("a", "b"),
        label_holder="a",
        boosting=replace(job.boosting, n_iterations=2),
        buckets=max(job.buckets, 4),
        edges=PRIVATE if is_private else QUANTILE,
        schema=Schema.from_public(levels={"level": list(LEVELS)}) if is_private else None,
        cache=None,
        transfer="once",
    )
    return small, lambda: {name: made_up_rows(small, has_labels=name == "a", n_rows=40) for name in small.parties}


SPEC = Protocol(
    Job,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder},
    messages=(ReadyToTrain, GoAhead, HaveTransfer, SameAsBefore, ColumnKinds, Buckets, OwnSplits),
    statement=statement,
    warmup=warmup,
    result=part_from_dict,
    maps_rows=lambda _options, _has_labels: True,
    planned=planned,
    charges_itself=charges_itself,
)
