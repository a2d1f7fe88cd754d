"""vertical.mp_fedxgb as something to run: its parameters, roles and statement."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hedgerow.party import Party
from hedgerow.protocols.protocol import PartyData, Protocol, Request, Statement
from hedgerow.protocols.rehearsal import rehearse
from hedgerow.protocols.vertical.mp_fedxgb.dealer import dealer
from hedgerow.protocols.vertical.mp_fedxgb.holder import holder
from hedgerow.protocols.vertical.mp_fedxgb.job import MpFedXgbJob
from hedgerow.protocols.vertical.mp_fedxgb.statement import statement
from hedgerow.protocols.vertical.on_shares.made_up import DEALER, NothingToKeep, made_up_rows
from hedgerow.protocols.vertical.parts import Part, part_from_dict


class MpFedXgb(Protocol):
    """MP-FedXGB as published."""

    name = MpFedXgbJob.NAME
    partition = "columns"
    options = frozenset({"dealer", "argmax", "first_layer_mask", "accept_known_leaks"})
    shares = (
        "hedgerow.protocols.vertical.agreement",
        "hedgerow.protocols.vertical.on_shares.messages",
        "hedgerow.protocols.vertical.on_shares.rows_messages",
    )

    def job(self, request: Request) -> MpFedXgbJob:
        """The job, with everything checked that can be checked without data."""
        return MpFedXgbJob(**MpFedXgbJob.common_fields(request), **request.options)

    def job_from_dict(self, data: Mapping[str, Any]) -> MpFedXgbJob:
        """A job that was written down with its `to_dict`."""
        return MpFedXgbJob.from_dict(data)

    def parties(self, job: MpFedXgbJob) -> tuple[str, ...]:
        """Who has data, the label holder first, and the dealer."""
        return (*job.holders, job.dealer)

    def links(self, job: MpFedXgbJob) -> tuple[tuple[str, str], ...]:
        """Everybody with everybody: what parties open to each other must not pass through the dealer."""
        return tuple(itertools.combinations(self.parties(job), 2))

    def play(self, me: Party, job: MpFedXgbJob, data: PartyData | None) -> Part | NothingToKeep:
        """One party's role."""
        if me.name == job.dealer:
            dealer(me, job)
            return NothingToKeep()
        return holder(me, job, data)

    def result_from_dict(self, data: Mapping[str, Any]) -> Part | NothingToKeep:
        """A party's part of the model."""
        return NothingToKeep() if data.get("role") == DEALER else part_from_dict(data)

    def rehearse(self, job: MpFedXgbJob) -> None:
        """The same job with one tree, on a few made-up rows of as many parties."""
        names = tuple(f"party-{k}" for k in range(len(job.holders)))
        small = replace(
            job,
            parties=names,
            label_holder=names[0],
            dealer=DEALER,
            boosting=replace(job.boosting, n_iterations=1, max_depth=2),
        )
        rehearse(self, small, {name: made_up_rows(job, name == names[0], levels=False) for name in names})

    def statement(self, job: MpFedXgbJob, meta: Mapping[str, Any]) -> Statement:
        """What does not hold."""
        return statement(job, meta)


PROTOCOL = MpFedXgb()
