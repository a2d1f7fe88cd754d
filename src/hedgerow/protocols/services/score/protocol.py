"""vertical.scoring as something to run: its roles, a rehearsal, its statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.errors import InvalidParameter
from hedgerow.protocols.services.score.job import NAME, ScoringJob
from hedgerow.protocols.services.score.roles import (
    Answered,
    Scores,
    feature_holder,
    label_holder,
    result_from_dict,
)
from hedgerow.protocols.services.score.statement import statement
from hedgerow.protocols.vertical.common.service_protocol import Service
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Request
from hedgerow.statement import Statement


class Scoring(Service):
    """Predictions by all parties of a vertical model together."""

    name = NAME
    options = frozenset({"predict_epsilon", "batch_rows"})

    def job(self, request: Request) -> ScoringJob:
        """Refused: a scoring is not a training, its job names a model."""
        raise InvalidParameter(f"{NAME} trains nothing; make a ScoringJob for a trained model, got {request.run_id!r}")

    def job_from_dict(self, data: Mapping[str, Any]) -> ScoringJob:
        """A job that was written down with its `to_dict`."""
        return ScoringJob.from_dict(data)

    def play(self, me: Party, job: ScoringJob, data: PartyData | None) -> Scores | Answered:
        """One party's role."""
        return label_holder(me, job, data) if me.name == job.label_holder else feature_holder(me, job, data)

    def result_from_dict(self, data: Mapping[str, Any]) -> Scores | Answered:
        """What `play` returned, after a way through JSON."""
        return result_from_dict(data)

    def statement(self, job: ScoringJob, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


PROTOCOL = Scoring()
