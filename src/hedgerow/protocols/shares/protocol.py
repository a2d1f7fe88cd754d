"""What all trainings on shares do alike as something to run: everybody and a dealer, each linked with each."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from hedgerow.protocols.shares.job import SharesJob
from hedgerow.protocols.shares.made_up import DEALER, NothingToKeep, made_up_rows
from hedgerow.protocols.vertical.common.parts import Part, part_from_dict
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Protocol, Request
from hedgerow.runtime.warmup import rehearse


class SharesProtocol(Protocol):
    """A protocol adds its job, its options, the roles and a statement."""

    partition = "columns"
    JOB: ClassVar[type[Any]]
    TAKES_LEVELS: ClassVar[bool] = False
    """Whether the label holder may have columns with levels."""

    @abstractmethod
    def deal(self, me: Party, job: Any) -> None:
        """The dealer's role."""

    @abstractmethod
    def hold(self, me: Party, job: Any, data: PartyData | None) -> Part:
        """The role of a party with data."""

    def job(self, request: Request) -> Any:
        """The job, with everything checked that can be checked without data."""
        return self.JOB(**self.JOB.common_fields(request), **request.options)

    def job_from_dict(self, data: Mapping[str, Any]) -> Any:
        """A job that was written down with its `to_dict`."""
        return self.JOB.from_dict(data)

    def parties(self, job: SharesJob) -> tuple[str, ...]:
        """Who has data, the label holder first, and the dealer."""
        return (*job.holders, job.dealer)

    def links(self, job: SharesJob) -> tuple[tuple[str, str], ...]:
        """Everybody with everybody: what parties open to each other must not pass through the dealer."""
        return tuple(itertools.combinations(self.parties(job), 2))

    def play(self, me: Party, job: SharesJob, data: PartyData | None) -> Part | NothingToKeep:
        """One party's role."""
        if me.name == job.dealer:
            self.deal(me, job)
            return NothingToKeep()
        return self.hold(me, job, data)

    def result_from_dict(self, data: Mapping[str, Any]) -> Part | NothingToKeep:
        """A party's part of the model."""
        return NothingToKeep() if data.get("role") == DEALER else part_from_dict(data)

    def rehearse(self, job: SharesJob) -> None:
        """The same job with one tree, on a few made-up rows of as many parties."""
        names = tuple(f"party-{k}" for k in range(len(job.holders)))
        small = replace(
            job,
            parties=names,
            label_holder=names[0],
            dealer=DEALER,
            boosting=replace(job.boosting, n_iterations=1, max_depth=2),
            **self.rehearsed_options(),
        )
        rows = {name: made_up_rows(job, name == names[0], levels=self.TAKES_LEVELS) for name in names}
        rehearse(self, small, rows)

    def rehearsed_options(self) -> dict[str, Any]:
        """Options that must fit the made-up rows."""
        return {}
