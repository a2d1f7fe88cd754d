"""vertical.secret_shared as something to run: its parameters, roles and statement."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hedgerow.errors import InvalidParameter
from hedgerow.party import Party
from hedgerow.protocols.protocol import PartyData, Protocol, Request, Statement, find
from hedgerow.protocols.rehearsal import rehearse
from hedgerow.protocols.vertical.on_shares.made_up import DEALER, NothingToKeep, made_up_rows
from hedgerow.protocols.vertical.parts import Part, part_from_dict
from hedgerow.protocols.vertical.secret_shared.dealer import dealer
from hedgerow.protocols.vertical.secret_shared.feature_holder import feature_holder
from hedgerow.protocols.vertical.secret_shared.job import PAPER, SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.label_holder import label_holder
from hedgerow.protocols.vertical.secret_shared.statement import statement

_OF_THE_PAPER = frozenset({"argmax", "first_layer_mask", "accept_known_leaks"})


class SecretShared(Protocol):
    """MP-FedXGB's setting, with nothing opened but the winner of each node."""

    name = SecretSharedJob.NAME
    partition = "columns"
    options = frozenset({"dealer", "disclosure"}) | _OF_THE_PAPER
    shares = ("hedgerow.protocols.vertical.agreement", "hedgerow.protocols.vertical.on_shares.messages")

    def variant(self, options: dict[str, Any]) -> Protocol:
        """With disclosure="paper" the published protocol, which has options of its own."""
        if options.get("disclosure") == PAPER:
            del options["disclosure"]
            return find("vertical.mp_fedxgb")
        for name in sorted(_OF_THE_PAPER & options.keys()):
            raise InvalidParameter(f'{self.name}: {name} is for disclosure="paper" alone, got {options[name]!r}')
        return self

    def job(self, request: Request) -> SecretSharedJob:
        """The job, with everything checked that can be checked without data."""
        return SecretSharedJob(**SecretSharedJob.common_fields(request), **request.options)

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
        rehearse(self, small, {name: made_up_rows(job, name == names[0]) for name in names})

    def statement(self, job: SecretSharedJob, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


PROTOCOL = SecretShared()
