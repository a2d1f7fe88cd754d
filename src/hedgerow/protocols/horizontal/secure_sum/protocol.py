"""horizontal.secure_sum as something to run: its parameters, roles and statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import Column, Table
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import Gaussian, NonPrivate
from hedgerow.protocols.bad_rows import RAISED
from hedgerow.protocols.horizontal.secure_sum.coordinator import coordinator
from hedgerow.protocols.horizontal.secure_sum.job import NAME, NO_BAD_ROWS, Job
from hedgerow.protocols.horizontal.secure_sum.owner import data_owner
from hedgerow.protocols.horizontal.secure_sum.private import private_coordinator, private_owner
from hedgerow.protocols.horizontal.secure_sum.statement import statement
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Planned, Protocol, Request
from hedgerow.runtime.warmup import rehearse
from hedgerow.schema import Schema
from hedgerow.statement import Statement

COORDINATOR = "coordinator"


class SecureSum(Protocol):
    """FederBoost for rows that are split between owners."""

    name = NAME
    partition = "rows"
    options = frozenset(
        {
            "coordinator", "quantiles", "edges", "schema", "quantile_epsilon", "quantile_delta", "classes", "dp",
            "honest_owners", "accept_no_masking", "min_owners", "double_masking", "share_cover", "exact_label_range",
            "on_bad_rows",
        }
    )  # fmt: skip

    def job(self, request: Request) -> Job:
        """The job, with everything checked that can be checked without data."""
        options = dict(request.options)
        if "on_bad_rows" in options and options.get("dp") is None:
            raise InvalidParameter(NO_BAD_ROWS)
        wanted = options.pop("coordinator", None)
        if wanted is not None and wanted not in request.parties:
            raise InvalidParameter(
                f"{NAME}: coordinator must be one of the owners {list(request.parties)}, or left out, got {wanted!r}"
            )
        if wanted is None and COORDINATOR in request.parties:
            raise InvalidParameter(
                f"{NAME}: an owner may not be called {COORDINATOR!r} unless coordinator={COORDINATOR!r} makes it one"
            )
        for name, value in options.items():
            options[name] = value.item() if isinstance(value, np.generic) else value  # the job is JSON-able
        for name in ("classes", "dp"):
            if options.get(name) is not None:
                options[name] = _as_tuple(name, options[name])
        return Job(
            owners=request.parties,
            run_id=request.run_id,
            task=request.task,
            boosting=request.boosting,
            max_bins=request.max_bins,
            coordinator=wanted or COORDINATOR,
            **options,
        )

    def job_from_dict(self, data: Mapping[str, Any]) -> Job:
        """A job that was written down with its `to_dict`."""
        return Job.from_dict(data)

    def parties(self, job: Job) -> tuple[str, ...]:
        """The coordinator, who listens, then the owners."""
        return (job.coordinator, *(name for name in job.owners if name != job.coordinator))

    def play(self, me: Party, job: Job, data: PartyData | None) -> Ensemble:
        """One party's role."""
        if me.name == job.coordinator:
            return coordinator(me, job, data) if job.dp is None else private_coordinator(me, job, data)
        if data is None:
            raise InvalidInput(f"{me.name}: an owner needs rows and labels")
        return data_owner(me, data, job) if job.dp is None else private_owner(me, data, job)

    def maps_rows(self, options: Mapping[str, Any], *, has_labels: bool) -> bool:
        """With dp, where the schema says what fits."""
        del has_labels
        return options.get("dp") is not None

    def planned(self, job: Job, party: str, data: PartyData) -> Planned | None:
        """With dp all that is released together has Gaussian noise for it; without, sums are exact."""
        if job.dp is None:
            return super().planned(job, party, data)
        if job.on_bad_rows == "raise":
            return Planned(NonPrivate(RAISED))
        epsilon, delta = job.dp
        return Planned(Gaussian(mu_for(epsilon, delta), 1.0), delta)

    def rehearse(self, job: Job) -> None:
        """The same job with two trees, on a few made-up rows of three owners."""
        rng = np.random.default_rng(0)
        owners = ("a", "b", "c")
        schema = None if job.schema is None else _made_up_schema(job)
        small = replace(
            job,
            owners=owners,
            coordinator=COORDINATOR,
            boosting=replace(job.boosting, n_iterations=job.boosting.n_iterations if job.dp else 2, monotone=None),
            edges=None,
            quantiles="search" if job.quantiles == "given" else job.quantiles,
            schema=schema,
            dp=None if job.dp is None else (1.0, 1e-5),
            min_owners=None,
            honest_owners=None,
        )
        rehearse(self, small, {name: _made_up_rows(rng, job) for name in owners})

    def statement(self, job: Job, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


def _as_tuple(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidParameter(f"{NAME}: {name} must be a list or a tuple, got {value!r}")
    return tuple(entry.item() if isinstance(entry, np.generic) else entry for entry in value)


def _made_up_rows(rng: np.random.Generator, job: Job) -> PartyData:
    n_rows = 40
    numbers = rng.normal(size=(n_rows, 2))
    levels = rng.integers(0, 2, n_rows).astype(np.int32)
    columns = (
        Column("wide", numbers[:, 0]),
        Column("narrow", numbers[:, 1].astype(np.float32)),
        Column("level", levels, ("a", "b")),
    )
    if job.task == "classification":
        labels = (np.arange(n_rows) % max(2, len(job.classes or ()))).astype(np.float64)
    else:  # such as every loss takes, and within the range that was declared for the real ones
        low, high = job.boosting.label_range or (0.0, 1.0)
        labels = np.linspace(low, high, n_rows)
    classes = tuple(job.classes or (0, 1)) if job.task == "classification" else None
    table = Table(columns, n_rows, tuple(column.name for column in columns), has_names=True)
    return PartyData(table, labels, classes)


def _made_up_schema(job: Job) -> Schema:
    return Schema.from_public(
        bounds={"wide": (-5.0, 5.0), "narrow": (-5.0, 5.0)},
        levels={"level": ["a", "b"]},
        classes=list(job.classes or (0, 1)) if job.task == "classification" else None,
        label_bounds=None if job.task == "classification" else (-5.0, 5.0),
    )


PROTOCOL = SecureSum()
