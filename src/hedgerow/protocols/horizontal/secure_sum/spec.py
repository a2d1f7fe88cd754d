"""horizontal.secure_sum, declared: FederBoost for rows that are split between owners."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidInput
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import Gaussian, NonPrivate
from hedgerow.protocols.bad_rows import RAISED
from hedgerow.protocols.horizontal.secure_sum import messages
from hedgerow.protocols.horizontal.secure_sum.coordinator import coordinator
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.owner import data_owner
from hedgerow.protocols.horizontal.secure_sum.private import private_coordinator, private_owner
from hedgerow.protocols.horizontal.secure_sum.statement import statement
from hedgerow.protocols.made_up import made_up_rows, made_up_schema
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import COORDINATOR, OWNER, ROWS, PartyData, Planned, Protocol, Rehearsal


def coordinate(me: Party, job: Job, data: PartyData | None) -> Ensemble:
    """The coordinator's role, with noise in the sums or without."""
    return (coordinator if job.dp is None else private_coordinator)(me, job, data)


def own(me: Party, job: Job, data: PartyData | None) -> Ensemble:
    """An owner's role, with noise in its sums or without."""
    if data is None:
        raise InvalidInput(f"{me.name}: an owner needs rows and labels")
    return (data_owner if job.dp is None else private_owner)(me, data, job)


def planned(job: Job, party: str, data: PartyData) -> Planned | None:  # noqa: ARG001 - as all of them
    """With dp all that is released together has Gaussian noise for it; without, sums are exact."""
    if job.dp is None:
        return Planned(NonPrivate(f"{job.NAME} releases without noise"))
    if job.on_bad_rows == "raise":
        return Planned(NonPrivate(RAISED))
    epsilon, delta = job.dp
    return Planned(Gaussian(mu_for(epsilon, delta), 1.0), delta)


def warmup(job: Job) -> Rehearsal:
    """The same job with two trees, on a few made-up rows of three owners."""
    classes = job.classes or (None if job.schema is None else job.schema.classes) or (0, 1)
    changes: dict[str, Any] = {}
    if job.schema is not None:
        changes["schema"] = made_up_schema(job.task, classes)
    small = replace(
        job,
        owners=("a", "b", "c"),
        coordinator=COORDINATOR,
        boosting=replace(job.boosting, n_iterations=job.boosting.n_iterations if job.dp else 2, monotone=None),
        edges=None,
        quantiles="search" if job.quantiles == "given" else job.quantiles,
        dp=None if job.dp is None else (1.0, 1e-5),
        min_owners=None,
        honest_owners=None,
        **changes,
    )
    return small, lambda: {
        name: made_up_rows(small, n_rows=40, seed=seed, classes=classes) for seed, name in enumerate(small.owners)
    }


SPEC = Protocol(
    Job,
    roles={COORDINATOR: coordinate, OWNER: own},
    messages=(
        *(messages.TableDescription, messages.Agreement, messages.OwnLabelRange, messages.CommonLabelRange),
        *(messages.MaskKey, messages.MaskKeys, messages.MaskedTotals, messages.Probes, messages.MaskedCounts),
        *(messages.NoisyCells, messages.SumWanted, messages.NoisySum, messages.Start, messages.NextStep),
        *(messages.MaskedHistogram, messages.SealedSeeds, messages.RelayedSeeds, messages.WhoSent, messages.Unmasking),
        *(messages.FinishedModel, messages.NodeStatistics),
    ),
    statement=statement,
    warmup=warmup,
    partition=ROWS,
    maps_rows=lambda options, _has_labels: options.get("dp") is not None,
    planned=planned,
)
