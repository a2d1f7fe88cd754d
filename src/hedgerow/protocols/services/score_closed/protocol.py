"""vertical.closed_scoring as something to run: its roles, a rehearsal, its statement."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hedgerow.errors import InvalidParameter
from hedgerow.protocols.services.score_closed.job import NAME, ClosedScoringJob
from hedgerow.protocols.services.score_closed.roles import (
    ClosedScores,
    TookPart,
    dealer,
    feature_holder,
    label_holder,
    result_from_dict,
)
from hedgerow.protocols.services.score_closed.statement import statement
from hedgerow.protocols.vertical.common.service_protocol import Service
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Request
from hedgerow.statement import Statement


class ClosedScoring(Service):
    """Predictions by all parties of a vertical model together, of which nothing but the scores is opened."""

    name = NAME
    options = frozenset({"dealer", "batch_rows"})
    shares = ("hedgerow.protocols.shares.messages",)

    def job(self, request: Request) -> ClosedScoringJob:
        """Refused: a scoring is not a training, its job names a model."""
        raise InvalidParameter(
            f"{NAME} trains nothing; make a ClosedScoringJob for a trained model, got {request.run_id!r}"
        )

    def job_from_dict(self, data: Mapping[str, Any]) -> ClosedScoringJob:
        """A job that was written down with its `to_dict`."""
        return ClosedScoringJob.from_dict(data)

    def parties(self, job: ClosedScoringJob) -> tuple[str, ...]:
        """Who has data, the label holder first, and the dealer."""
        return (*job.holders, job.dealer)

    def links(self, job: ClosedScoringJob) -> tuple[tuple[str, str], ...]:
        """Everybody with everybody: what parties open to each other must not pass through the dealer."""
        return tuple(itertools.combinations(self.parties(job), 2))

    def play(self, me: Party, job: ClosedScoringJob, data: PartyData | None) -> ClosedScores | TookPart:
        """One party's role."""
        if me.name == job.dealer:
            return dealer(me, job)
        return label_holder(me, job, data) if me.name == job.label_holder else feature_holder(me, job, data)

    def result_from_dict(self, data: Mapping[str, Any]) -> ClosedScores | TookPart:
        """What `play` returned, after a way through JSON."""
        return result_from_dict(data)

    def rehearse(self, job: ClosedScoringJob) -> None:
        """The same job on a few made-up rows, with a made-up model of two parties."""
        super().rehearse(replace(job, parties=("a", "b"), label_holder="a", dealer="dealer"))

    def statement(self, job: ClosedScoringJob, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


PROTOCOL = ClosedScoring()
