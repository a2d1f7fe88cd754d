"""vertical.secret_shared as something to run: its parameters, roles and statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.errors import InvalidParameter
from hedgerow.protocols.shares.protocol import SharesProtocol
from hedgerow.protocols.vertical.common.parts import Part
from hedgerow.protocols.vertical.secret_shared.dealer import dealer
from hedgerow.protocols.vertical.secret_shared.feature_holder import feature_holder
from hedgerow.protocols.vertical.secret_shared.job import PAPER, SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.label_holder import label_holder
from hedgerow.protocols.vertical.secret_shared.statement import statement
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Protocol, find
from hedgerow.statement import Statement

_OF_THE_PAPER = frozenset({"argmax", "first_layer_mask", "accept_known_leaks"})


class SecretShared(SharesProtocol):
    """MP-FedXGB's setting, with nothing opened but the winner of each node."""

    name = SecretSharedJob.NAME
    options = frozenset({"dealer", "disclosure"}) | _OF_THE_PAPER
    shares = ("hedgerow.protocols.vertical.common.agreement", "hedgerow.protocols.shares.messages")
    JOB = SecretSharedJob
    TAKES_LEVELS = True

    def variant(self, options: dict[str, Any]) -> Protocol:
        """With disclosure="paper" the published protocol, which has options of its own."""
        if options.get("disclosure") == PAPER:
            del options["disclosure"]
            return find("vertical.mp_fedxgb")
        for name in sorted(_OF_THE_PAPER & options.keys()):
            raise InvalidParameter(f'{self.name}: {name} is for disclosure="paper" alone, got {options[name]!r}')
        return self

    def deal(self, me: Party, job: SecretSharedJob) -> None:
        """The dealer's role."""
        dealer(me, job)

    def hold(self, me: Party, job: SecretSharedJob, data: PartyData | None) -> Part:
        """The role of a party with data."""
        return label_holder(me, job, data) if me.name == job.label_holder else feature_holder(me, job, data)

    def statement(self, job: SecretSharedJob, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


PROTOCOL = SecretShared()
