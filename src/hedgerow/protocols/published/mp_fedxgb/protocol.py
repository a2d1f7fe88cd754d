"""vertical.mp_fedxgb as something to run: its parameters, roles and statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.protocols.published.mp_fedxgb.dealer import dealer
from hedgerow.protocols.published.mp_fedxgb.holder import holder
from hedgerow.protocols.published.mp_fedxgb.job import MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.statement import statement
from hedgerow.protocols.shares.protocol import SharesProtocol
from hedgerow.protocols.vertical.common.parts import Part
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.statement import Statement


class MpFedXgb(SharesProtocol):
    """MP-FedXGB as published."""

    name = MpFedXgbJob.NAME
    options = frozenset({"dealer", "argmax", "first_layer_mask", "accept_known_leaks"})
    shares = (
        "hedgerow.protocols.vertical.common.agreement",
        "hedgerow.protocols.shares.messages",
        "hedgerow.protocols.shares.rows_messages",
    )
    JOB = MpFedXgbJob

    def deal(self, me: Party, job: MpFedXgbJob) -> None:
        """The dealer's role."""
        dealer(me, job)

    def hold(self, me: Party, job: MpFedXgbJob, data: PartyData | None) -> Part:
        """The role of a party with data: the same for all."""
        return holder(me, job, data)

    def statement(self, job: MpFedXgbJob, meta: Mapping[str, Any]) -> Statement:
        """What does not hold."""
        return statement(job, meta)


PROTOCOL = MpFedXgb()
