"""A training by a label holder and feature holders as something to run; nobody else takes part."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from hedgerow.engine.table import Column, Table
from hedgerow.protocols.vertical.common.job import VerticalJob
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart, Part, part_from_dict
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Protocol, Request
from hedgerow.runtime.warmup import rehearse


class JointProtocol(Protocol):
    """What vertical.noised_gradients and vertical.masked_gradients do alike.

    A protocol adds its job, its options, both roles and a statement.
    """

    partition = "columns"
    shares = ("hedgerow.protocols.vertical.common.agreement",)
    JOB: ClassVar[type[Any]]

    @abstractmethod
    def hold_labels(self, me: Party, job: Any, data: PartyData | None) -> LabelHolderPart:
        """The label holder's role."""

    @abstractmethod
    def hold_features(self, me: Party, job: Any, data: PartyData | None) -> OwnerPart:
        """The role of everybody else."""

    def job(self, request: Request) -> Any:
        """The job, with everything checked that can be checked without data."""
        options = {
            name: value.item() if isinstance(value, np.generic) else value for name, value in request.options.items()
        }
        return self.JOB(**self.JOB.common_fields(request), **options)

    def job_from_dict(self, data: Mapping[str, Any]) -> Any:
        """A job that was written down with its `to_dict`."""
        return self.JOB.from_dict(data)

    def parties(self, job: VerticalJob) -> tuple[str, ...]:
        """The label holder, who listens, then the feature holders."""
        return (job.label_holder, *job.feature_holders)

    def play(self, me: Party, job: VerticalJob, data: PartyData | None) -> Part:
        """One party's role."""
        return (self.hold_labels if me.name == job.label_holder else self.hold_features)(me, job, data)

    def result_from_dict(self, data: Mapping[str, Any]) -> Part:
        """A party's part of the model."""
        return part_from_dict(data)

    def rehearse(self, job: VerticalJob) -> None:
        """The same job with two trees, on a few made-up rows of two parties."""
        small = replace(
            job, parties=("a", "b"), label_holder="a", boosting=replace(job.boosting, n_iterations=2, max_depth=3)
        )
        rehearse(self, small, {name: _made_up_rows(job, name == "a") for name in ("a", "b")})


def _made_up_rows(job: VerticalJob, has_labels: bool) -> PartyData:
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
        return PartyData(table, places, getattr(job, "classes", None) or (0, 1))
    low, high = job.boosting.label_range or (0.0, 1.0)
    return PartyData(table, low + (high - low) * places)
