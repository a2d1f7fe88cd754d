"""vertical.aligning as something to run: its parameters, roles and statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hedgerow.crypto.identifiers import IdRule
from hedgerow.protocols.services.align.job import NAME, AligningJob
from hedgerow.protocols.services.align.result import AlignedRows
from hedgerow.protocols.services.align.roles import party
from hedgerow.protocols.services.align.statement import statement
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Protocol, Request
from hedgerow.statement import Statement


class Aligning(Protocol):
    """Private record linkage before a vertical training."""

    name = NAME
    partition = "columns"
    options = frozenset({"comparer", "rule", "duplicates", "minimum", "column", "block", "most_ids"})

    def job(self, request: Request) -> AligningJob:
        """The job, with everything checked that can be checked without data."""
        options = {name: value for name, value in request.options.items() if value is not None}
        for name, value in options.items():
            options[name] = value.item() if isinstance(value, np.generic) else value  # the job is JSON-able
        if isinstance(options.get("rule"), IdRule):
            options["rule"] = options["rule"].to_dict()
        return AligningJob(parties=request.parties, run_id=request.run_id, **options)

    def job_from_dict(self, data: Mapping[str, Any]) -> AligningJob:
        """A job that was written down with its `to_dict`."""
        return AligningJob.from_dict(data)

    def parties(self, job: AligningJob) -> tuple[str, ...]:
        """The comparer, who listens, then the others."""
        return (job.comparer, *(name for name in job.parties if name != job.comparer))

    def links(self, job: AligningJob) -> tuple[tuple[str, str], ...]:
        """Everybody with the comparer, and round the ring; each pair once."""
        links = [(job.comparer, name) for name in job.parties if name != job.comparer]
        known = {frozenset(pair) for pair in links}
        ring = job.way(job.comparer)
        for pair in zip(ring, (*ring[1:], ring[0]), strict=True):
            if frozenset(pair) not in known:
                known.add(frozenset(pair))
                links.append(pair)
        return tuple(links)

    def play(self, me: Party, job: AligningJob, data: PartyData | None) -> AlignedRows:
        """One party's role."""
        return party(me, job, data)

    def rehearse(self, job: AligningJob) -> None:
        """Nothing: no kernel is compiled for this."""

    def result_from_dict(self, data: Mapping[str, Any]) -> AlignedRows:
        """A party's rows, from their `to_dict`."""
        return AlignedRows.from_dict(data)

    def statement(self, job: AligningJob, meta: Mapping[str, Any]) -> Statement:
        """Who learned what."""
        return statement(job, meta)


PROTOCOL = Aligning()
