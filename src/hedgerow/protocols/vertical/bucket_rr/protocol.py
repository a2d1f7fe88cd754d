"""vertical.bucket_rr as something to run: its parameters, roles and statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.engine.table import Column, Table
from hedgerow.privacy.events import NonPrivate
from hedgerow.protocols.vertical.bucket_rr.buckets import planned_events, together
from hedgerow.protocols.vertical.bucket_rr.feature_holder import feature_holder
from hedgerow.protocols.vertical.bucket_rr.job import NAME, PRIVATE, QUANTILE, Job
from hedgerow.protocols.vertical.bucket_rr.label_holder import label_holder
from hedgerow.protocols.vertical.bucket_rr.statement import statement
from hedgerow.protocols.vertical.common.parts import Part, part_from_dict
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Planned, Protocol, Request
from hedgerow.runtime.warmup import rehearse
from hedgerow.schema import CategoricalColumn, Schema
from hedgerow.statement import Statement


class BucketRandomisedResponse(Protocol):
    """FederBoost for columns that are split between parties."""

    name = NAME
    partition = "columns"
    options = frozenset(
        {"epsilon", "buckets", "edges", "schema", "debias", "cache", "transfer", "edges_epsilon", "on_bad_rows"}
    )
    shares = ("hedgerow.protocols.vertical.common.agreement",)

    def job(self, request: Request) -> Job:
        """The job, with everything checked that can be checked without data."""
        return Job(**Job.common_fields(request), **request.options)

    def job_from_dict(self, data: Mapping[str, Any]) -> Job:
        """A job that was written down with its `to_dict`."""
        return Job.from_dict(data)

    def parties(self, job: Job) -> tuple[str, ...]:
        """The label holder, who listens, then the feature holders."""
        return (job.label_holder, *job.feature_holders)

    def play(self, me: Party, job: Job, data: PartyData | None) -> Part:
        """One party's role."""
        return label_holder(me, job, data) if me.name == job.label_holder else feature_holder(me, job, data)

    def maps_rows(self, options: Mapping[str, Any], *, has_labels: bool) -> bool:
        """Feature holders, whose columns are protected, and the label holder, which leaves rows without a label out."""
        del options, has_labels
        return True

    def planned(self, job: Job, party: str, data: PartyData) -> Planned | None:
        """Buckets of all columns of a feature holder, and their edges where these are private; labels have no noise."""
        if party == job.label_holder:
            return Planned(NonPrivate(f"{NAME} does not protect labels"))
        if job.on_bad_rows == "raise":
            return super().planned(job, party, data)
        columns = data.table.columns
        buckets = planned_events(job, np.full(len(columns), job.buckets))
        expected = [job.expected(party, column.name) for column in columns]
        has_levels = [
            column.levels is not None if entry is None else isinstance(entry, CategoricalColumn)
            for column, entry in zip(columns, expected, strict=True)
        ]
        return Planned(together(job, buckets, has_levels))

    def charges_itself(self, job: Job, party: str) -> bool:
        """With a cache: what the label holder has kept is not sent again, and costs nothing."""
        return job.cache is not None and party != job.label_holder and job.on_bad_rows == "map"

    def rehearse(self, job: Job) -> None:
        """The same job with two trees, on a few made-up rows of two parties; nothing is kept."""
        small = replace(
            job,
            parties=("a", "b"),
            label_holder="a",
            boosting=replace(job.boosting, n_iterations=2),
            buckets=max(job.buckets, 4),
            edges=PRIVATE if job.edges == PRIVATE else QUANTILE,
            schema=Schema.from_public(levels={"level": ["a", "b"]}) if job.edges == PRIVATE else None,
            cache=None,
            transfer="once",
        )
        rehearse(self, small, {"a": _made_up_rows(job, labels=True), "b": _made_up_rows(job, labels=False)})

    def result_from_dict(self, data: Mapping[str, Any]) -> Part:
        """A party's part of the model, after a way through JSON."""
        return part_from_dict(data)

    def statement(self, job: Job, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


def _made_up_rows(job: Job, *, labels: bool) -> PartyData:
    n_rows = 40
    numbers = np.random.default_rng(labels).normal(size=(n_rows, 2))
    columns = (
        Column("wide", numbers[:, 0].copy()),
        Column("narrow", numbers[:, 1].astype(np.float32)),
        Column("level", (np.arange(n_rows) % 3 % 2).astype(np.int32), ("a", "b")),
    )
    table = Table(columns, n_rows, tuple(column.name for column in columns), has_names=True)
    if not labels:
        return PartyData(table)
    if job.task == "regression":  # such as every loss takes, and within the range that was declared for the real ones
        return PartyData(table, np.linspace(*(job.boosting.label_range or (0.0, 1.0)), n_rows))
    return PartyData(table, (np.arange(n_rows) % 2).astype(np.float64), (0, 1))


PROTOCOL = BucketRandomisedResponse()
