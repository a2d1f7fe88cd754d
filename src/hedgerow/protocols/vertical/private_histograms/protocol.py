"""vertical.private_histograms as something to run: its parameters, roles and statement."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hedgerow.party import Party
from hedgerow.protocols.protocol import PartyData, Statement
from hedgerow.protocols.vertical.on_shares.protocol import SharesProtocol
from hedgerow.protocols.vertical.parts import Part
from hedgerow.protocols.vertical.private_histograms.dealer import dealer
from hedgerow.protocols.vertical.private_histograms.holder import holder
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.statement import statement
from hedgerow.schema import Schema

DEFAULTS = {"max_iter": 60, "max_depth": 3, "learning_rate": 0.3, "l2_regularization": 10.0, "max_bins": 64}
"""Small trees, each a large step: every level costs, and noise is shrunk by the ridge."""


class PrivateHistograms(SharesProtocol):
    """Private towards both sides."""

    name = PrivateHistogramsJob.NAME
    JOB = PrivateHistogramsJob
    options = frozenset({"dealer", "epsilon", "delta", "policy", "reveal", "schema", "split_share"})
    defaults = MappingProxyType(DEFAULTS)
    shares = (
        "hedgerow.protocols.vertical.agreement",
        "hedgerow.protocols.vertical.on_shares.messages",
        "hedgerow.protocols.vertical.on_shares.rows_messages",
    )

    def deal(self, me: Party, job: PrivateHistogramsJob) -> None:
        """The dealer's role."""
        dealer(me, job)

    def hold(self, me: Party, job: PrivateHistogramsJob, data: PartyData | None) -> Part:
        """The role of a party with data."""
        return holder(me, job, data)

    def rehearsed_options(self) -> dict[str, Any]:
        """Bounds of the made-up columns."""
        bounds = {"wide": (-5.0, 5.0), "narrow": (-5.0, 5.0)}
        return {"schema": Schema.from_public(bounds=bounds, may_be_missing=["wide"], classes=[0, 1])}

    def statement(self, job: PrivateHistogramsJob, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


PROTOCOL = PrivateHistograms()
