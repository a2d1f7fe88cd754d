"""vertical.private_histograms, declared: private towards both sides."""

from __future__ import annotations

from typing import Any

from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import Gaussian, NonPrivate
from hedgerow.protocols.made_up import made_up_schema
from hedgerow.protocols.shares.messages import ON_SHARES, SHARED_ROWS
from hedgerow.protocols.shares.playing import dealing, result, small
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.protocols.vertical.private_histograms import messages
from hedgerow.protocols.vertical.private_histograms.dealer import dealer
from hedgerow.protocols.vertical.private_histograms.holder import holder
from hedgerow.protocols.vertical.private_histograms.job import DEFAULTS, SMOOTH, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.plan import most_spent
from hedgerow.protocols.vertical.private_histograms.smooth import messages as smooth
from hedgerow.protocols.vertical.private_histograms.smooth.dealer import dealer as smooth_dealer
from hedgerow.protocols.vertical.private_histograms.smooth.holder import holder as smooth_holder
from hedgerow.protocols.vertical.private_histograms.statement import statement
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import (
    DEALER,
    FEATURE_HOLDER,
    LABEL_HOLDER,
    PartyData,
    Planned,
    Protocol,
    Rehearsal,
)


def hold(me: Party, job: PrivateHistogramsJob, data: PartyData | None) -> Any:
    """The role of a party with data, by the policy."""
    return (smooth_holder if job.policy == SMOOTH else holder)(me, job, data)


def deal(me: Party, job: PrivateHistogramsJob) -> None:
    """The dealer's role, by the policy."""
    (smooth_dealer if job.policy == SMOOTH else dealer)(me, job)


def planned(job: PrivateHistogramsJob, party: str, data: PartyData) -> Planned | None:  # noqa: ARG001 - as all of them
    """All that is opened, as the accountant sees it that the noise was made for."""
    if not job.is_noisy or job.on_bad_rows == "raise":
        return Planned(NonPrivate(f"{job.NAME} releases without noise"))
    if job.policy == SMOOTH:
        return Planned(Gaussian(mu_for(job.noise, job.delta), 1.0), job.delta)
    return Planned(most_spent(job, data.table.n_rows), job.delta)


def warmup(job: PrivateHistogramsJob) -> Rehearsal:
    """One tree, or the shortest series, on made-up rows."""
    return small(job, schema=made_up_schema(levels=False))


SPEC = Protocol(
    PrivateHistogramsJob,
    roles={LABEL_HOLDER: hold, FEATURE_HOLDER: hold, DEALER: dealing(deal)},
    messages=(ReadyToTrain, GoAhead, *ON_SHARES, *SHARED_ROWS, *smooth.ALL, *messages.ALL),
    statement=statement,
    warmup=warmup,
    result=result,
    defaults=DEFAULTS,
    maps_rows=lambda _options, _has_labels: True,
    planned=planned,
)
