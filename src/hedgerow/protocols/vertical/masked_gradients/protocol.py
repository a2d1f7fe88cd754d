"""vertical.masked_gradients as something to run: its parameters, roles and statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.engine.table import Column, Table
from hedgerow.party import Party
from hedgerow.protocols.protocol import PartyData, Protocol, Request, Statement
from hedgerow.protocols.rehearsal import rehearse
from hedgerow.protocols.vertical.masked_gradients.feature_holder import feature_holder
from hedgerow.protocols.vertical.masked_gradients.job import MaskedGradientsJob
from hedgerow.protocols.vertical.masked_gradients.label_holder import label_holder
from hedgerow.protocols.vertical.masked_gradients.statement import statement
from hedgerow.protocols.vertical.parts import Part, part_from_dict


class MaskedGradientsProtocol(Protocol):
    """MaskedXGBoost as published: not private, and stamped so."""

    name = MaskedGradientsJob.NAME
    partition = "columns"
    options = frozenset(
        {
            "eps_ap", "delta_ap", "eps_pp", "delta_pp", "sigma1", "sigma2", "C", "n_vectors", "score", "reading",
            "accept_low_snr", "accept_known_leaks", "block_bytes",
        }
    )  # fmt: skip
    shares = ("hedgerow.protocols.vertical.agreement",)

    def job(self, request: Request) -> MaskedGradientsJob:
        """The job, with everything checked that can be checked without data."""
        options = {
            name: value.item() if isinstance(value, np.generic) else value for name, value in request.options.items()
        }
        return MaskedGradientsJob(**MaskedGradientsJob.common_fields(request), **options)

    def job_from_dict(self, data: Mapping[str, Any]) -> MaskedGradientsJob:
        """A job that was written down with its `to_dict`."""
        return MaskedGradientsJob.from_dict(data)

    def parties(self, job: MaskedGradientsJob) -> tuple[str, ...]:
        """The label holder, who listens, then the feature holders."""
        return (job.label_holder, *job.feature_holders)

    def play(self, me: Party, job: MaskedGradientsJob, data: PartyData | None) -> Part:
        """One party's role."""
        return label_holder(me, job, data) if me.name == job.label_holder else feature_holder(me, job, data)

    def result_from_dict(self, data: Mapping[str, Any]) -> Part:
        """A party's part of the model."""
        return part_from_dict(data)

    def rehearse(self, job: MaskedGradientsJob) -> None:
        """The same job with two trees, on a few made-up rows of two parties."""
        small = replace(
            job, parties=("a", "b"), label_holder="a", boosting=replace(job.boosting, n_iterations=2, max_depth=3)
        )
        rehearse(self, small, {name: _made_up_rows(job, name == "a") for name in ("a", "b")})

    def statement(self, job: MaskedGradientsJob, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


def _made_up_rows(job: MaskedGradientsJob, has_labels: bool) -> PartyData:
    n_rows = 400
    rng = np.random.default_rng(7)
    signal = rng.normal(size=n_rows)
    few = rng.integers(0, 3, n_rows).astype(np.int32)
    gaps = np.where(rng.random(n_rows) < 0.1, np.nan, signal)
    columns = (
        Column("wide", gaps + rng.normal(scale=0.1 + has_labels, size=n_rows)),
        Column("narrow", rng.normal(size=n_rows).astype(np.float32)),
        Column("level", few, ("a", "b", "c")),
    )
    table = Table(columns, n_rows, tuple(column.name for column in columns), has_names=True)
    if not has_labels:
        return PartyData(table)
    places = (signal > 0).astype(np.float64)
    if job.task == "classification":
        return PartyData(table, places, (0, 1))
    low, high = job.boosting.label_range or (0.0, 1.0)
    return PartyData(table, low + (high - low) * places)


PROTOCOL = MaskedGradientsProtocol()
