"""vertical.secret_shared as something to run: its parameters, roles and statement."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hedgerow.engine.boosting import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.party import Party
from hedgerow.protocols.protocol import PartyData, Protocol, Request, Statement
from hedgerow.protocols.rehearsal import rehearse
from hedgerow.protocols.vertical.parts import Part, part_from_dict
from hedgerow.protocols.vertical.secret_shared.dealer import dealer
from hedgerow.protocols.vertical.secret_shared.feature_holder import feature_holder
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.label_holder import label_holder
from hedgerow.protocols.vertical.secret_shared.statement import statement

DEALER = "dealer"


@dataclass(frozen=True)
class NothingToKeep:
    """What the dealer has in the end."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"role": DEALER}


class SecretShared(Protocol):
    """MP-FedXGB's setting, with nothing opened but the winner of each node."""

    name = SecretSharedJob.NAME
    partition = "columns"
    options = frozenset({"dealer", "disclosure"})
    shares = ("hedgerow.protocols.vertical.agreement", "hedgerow.protocols.vertical.on_shares.messages")

    def job(self, request: Request) -> SecretSharedJob:
        """The job, with everything checked that can be checked without data.

        A child's weight cannot be checked on shares. The default of min_child_weight is taken for "no wish", and is 0
        here, as the statement says; any other value is refused.
        """
        fields = SecretSharedJob.common_fields(request)
        if request.boosting.min_child_weight == BoostingParams().min_child_weight:
            fields["boosting"] = replace(request.boosting, min_child_weight=0.0)
        return SecretSharedJob(**fields, **request.options)

    def job_from_dict(self, data: Mapping[str, Any]) -> SecretSharedJob:
        """A job that was written down with its `to_dict`."""
        return SecretSharedJob.from_dict(data)

    def parties(self, job: SecretSharedJob) -> tuple[str, ...]:
        """Who has data, the label holder first, and the dealer."""
        return (*job.holders, job.dealer)

    def links(self, job: SecretSharedJob) -> tuple[tuple[str, str], ...]:
        """Everybody with everybody: what parties open to each other must not pass through the dealer."""
        return tuple(itertools.combinations(self.parties(job), 2))

    def play(self, me: Party, job: SecretSharedJob, data: PartyData | None) -> Part | NothingToKeep:
        """One party's role."""
        if me.name == job.dealer:
            dealer(me, job)
            return NothingToKeep()
        return label_holder(me, job, data) if me.name == job.label_holder else feature_holder(me, job, data)

    def result_from_dict(self, data: Mapping[str, Any]) -> Part | NothingToKeep:
        """A party's part of the model."""
        return NothingToKeep() if data.get("role") == DEALER else part_from_dict(data)

    def rehearse(self, job: SecretSharedJob) -> None:
        """The same job with one tree, on a few made-up rows of as many parties."""
        names = tuple(f"party-{k}" for k in range(len(job.holders)))
        small = replace(
            job,
            parties=names,
            label_holder=names[0],
            dealer=DEALER,
            boosting=replace(job.boosting, n_iterations=1, max_depth=2),
        )
        rehearse(self, small, {name: _made_up_rows(job, name == names[0]) for name in names})

    def statement(self, job: SecretSharedJob, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


def _made_up_rows(job: SecretSharedJob, has_labels: bool) -> PartyData:
    n_rows = 300
    rng = np.random.default_rng(11)
    signal = rng.normal(size=n_rows)
    columns = [
        Column("wide", np.where(rng.random(n_rows) < 0.1, np.nan, signal + rng.normal(size=n_rows))),
        Column("narrow", rng.normal(size=n_rows).astype(np.float32)),
    ]
    if has_labels:
        columns.append(Column("level", rng.integers(0, 3, n_rows).astype(np.int32), ("a", "b", "c")))
    table = Table(tuple(columns), n_rows, tuple(column.name for column in columns), has_names=True)
    if not has_labels:
        return PartyData(table)
    places = (signal > 0).astype(np.float64)
    if job.task == "classification":
        return PartyData(table, places, (0, 1))
    low, high = job.boosting.label_range or (0.0, 1.0)
    return PartyData(table, low + (high - low) * places)


PROTOCOL = SecretShared()
