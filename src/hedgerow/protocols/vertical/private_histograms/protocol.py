"""vertical.private_histograms as something to run: its parameters, roles and statement."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import Gaussian
from hedgerow.protocols.shares.protocol import SharesProtocol
from hedgerow.protocols.vertical.common.parts import Part
from hedgerow.protocols.vertical.private_histograms.dealer import dealer
from hedgerow.protocols.vertical.private_histograms.holder import holder
from hedgerow.protocols.vertical.private_histograms.job import DEFAULTS, GROWN, SMOOTH, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.plan import most_spent
from hedgerow.protocols.vertical.private_histograms.smooth.dealer import dealer as smooth_dealer
from hedgerow.protocols.vertical.private_histograms.smooth.holder import holder as smooth_holder
from hedgerow.protocols.vertical.private_histograms.statement import statement
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Planned, Request
from hedgerow.schema import Schema
from hedgerow.statement import Statement

_BY_RULE = {
    "n_iterations": DEFAULTS["max_iter"],
    "max_depth": DEFAULTS["max_depth"],
    "learning_rate": DEFAULTS["learning_rate"],
    "l2": DEFAULTS["l2_regularization"],
}
"""Parameters of trees that policy="smooth_then_trees" sets by itself, and the values that are no wish."""


class PrivateHistograms(SharesProtocol):
    """Private towards both sides."""

    name = PrivateHistogramsJob.NAME
    JOB = PrivateHistogramsJob
    options = frozenset({"dealer", "epsilon", "delta", "policy", "reveal", "schema", "split_share", "on_bad_rows"})
    defaults = MappingProxyType(DEFAULTS)
    shares = (
        "hedgerow.protocols.vertical.common.agreement",
        "hedgerow.protocols.shares.messages",
        "hedgerow.protocols.shares.rows_messages",
        "hedgerow.protocols.vertical.private_histograms.smooth.messages",
    )

    def maps_rows(self, options: Mapping[str, Any], *, has_labels: bool) -> bool:
        """All parties."""
        del options, has_labels
        return True

    def job(self, request: Request) -> PrivateHistogramsJob:
        """The job, with everything checked that can be checked without data."""
        job: PrivateHistogramsJob = super().job(request)
        if job.policy == SMOOTH:
            wishes = {name for name, usual in _BY_RULE.items() if getattr(job.boosting, name) != usual}
            wishes |= {"reveal"} & set(request.options) | {"split_share"} & set(request.options)
            if wishes:
                raise InvalidParameter(
                    f"{job.NAME}: policy={SMOOTH!r} sets {min(wishes)} by its own rule, from the number of rows and "
                    f"epsilon; leave it out, or use policy={GROWN!r}"
                )
        return job

    def deal(self, me: Party, job: PrivateHistogramsJob) -> None:
        """The dealer's role."""
        (smooth_dealer if job.policy == SMOOTH else dealer)(me, job)

    def hold(self, me: Party, job: PrivateHistogramsJob, data: PartyData | None) -> Part:
        """The role of a party with data."""
        return smooth_holder(me, job, data) if job.policy == SMOOTH else holder(me, job, data)

    def planned(self, job: PrivateHistogramsJob, party: str, data: PartyData) -> Planned | None:
        """All that is opened, as the accountant sees it that the noise was made for."""
        if not job.is_noisy or job.on_bad_rows == "raise":
            return super().planned(job, party, data)
        if job.policy == SMOOTH:
            return Planned(Gaussian(mu_for(job.noise, job.delta), 1.0), job.delta)
        return Planned(most_spent(job, data.table.n_rows), job.delta)

    def rehearsed_options(self) -> dict[str, Any]:
        """Bounds of the made-up columns."""
        bounds = {"wide": (-5.0, 5.0), "narrow": (-5.0, 5.0)}
        return {"schema": Schema.from_public(bounds=bounds, may_be_missing=["wide"], classes=[0, 1])}

    def statement(self, job: PrivateHistogramsJob, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


PROTOCOL = PrivateHistograms()
