"""vertical.explaining as something to run: its roles, a rehearsal, its statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.errors import InvalidParameter
from hedgerow.protocols.services.explain.job import IMPORTANCES, NAME, ExplainingJob
from hedgerow.protocols.services.explain.results import Contributions, Importances, result_from_dict
from hedgerow.protocols.services.explain.roles import feature_holder, label_holder
from hedgerow.protocols.services.explain.statement import statement
from hedgerow.protocols.vertical.common.service_protocol import Service
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Request
from hedgerow.statement import Statement


class Explaining(Service):
    """Importances and contributions, to each party those of its own columns."""

    name = NAME
    options = frozenset({"what", "kind", "batch_rows"})

    def job(self, request: Request) -> ExplainingJob:
        """Refused: an explanation is not a training, its job names a model."""
        raise InvalidParameter(
            f"{NAME} trains nothing; make an ExplainingJob for a trained model, got {request.run_id!r}"
        )

    def job_from_dict(self, data: Mapping[str, Any]) -> ExplainingJob:
        """A job that was written down with its `to_dict`."""
        return ExplainingJob.from_dict(data)

    def play(self, me: Party, job: ExplainingJob, data: PartyData | None) -> Importances | Contributions:
        """One party's role."""
        return label_holder(me, job, data) if me.name == job.label_holder else feature_holder(me, job, data)

    def rehearse(self, job: ExplainingJob) -> None:
        """The same job on a few made-up rows, with a made-up model of two parties."""
        if job.what != IMPORTANCES:  # which need no kernel
            super().rehearse(job)

    def result_from_dict(self, data: Mapping[str, Any]) -> Importances | Contributions:
        """What `play` returned, after a way through JSON."""
        return result_from_dict(data)

    def statement(self, job: ExplainingJob, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


PROTOCOL = Explaining()
