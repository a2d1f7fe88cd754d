"""vertical.explaining as something to run: its roles, a rehearsal, its statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.table import Column, Table
from hedgerow.errors import InvalidParameter
from hedgerow.party import Party
from hedgerow.protocols.protocol import PartyData, Protocol, Request, Statement
from hedgerow.protocols.rehearsal import rehearse
from hedgerow.protocols.vertical.explaining.job import IMPORTANCES, NAME, ExplainingJob
from hedgerow.protocols.vertical.explaining.results import Contributions, Importances, result_from_dict
from hedgerow.protocols.vertical.explaining.roles import feature_holder, label_holder
from hedgerow.protocols.vertical.explaining.statement import statement
from hedgerow.protocols.vertical.parts import OwnerPart, divide


class Explaining(Protocol):
    """Importances and contributions, to each party those of its own columns."""

    name = NAME
    partition = "columns"
    options = frozenset({"what", "kind", "batch_rows"})

    def job(self, request: Request) -> ExplainingJob:
        """Refused: an explanation is not a training, its job names a model."""
        raise InvalidParameter(
            f"{NAME} trains nothing; make an ExplainingJob for a trained model, got {request.run_id!r}"
        )

    def job_from_dict(self, data: Mapping[str, Any]) -> ExplainingJob:
        """A job that was written down with its `to_dict`."""
        return ExplainingJob.from_dict(data)

    def parties(self, job: ExplainingJob) -> tuple[str, ...]:
        """The label holder, who listens, then the feature holders."""
        return (job.label_holder, *job.feature_holders)

    def play(self, me: Party, job: ExplainingJob, data: PartyData | None) -> Importances | Contributions:
        """One party's role."""
        return label_holder(me, job, data) if me.name == job.label_holder else feature_holder(me, job, data)

    def rehearse(self, job: ExplainingJob) -> None:
        """The same job on a few made-up rows, with a made-up model of two parties."""
        if job.what == IMPORTANCES:
            return  # they need no kernel
        small = replace(job, parties=("a", "b"), label_holder="a", model_run_id="made up")
        rehearse(self, small, _made_up())

    def result_from_dict(self, data: Mapping[str, Any]) -> Importances | Contributions:
        """What `play` returned, after a way through JSON."""
        return result_from_dict(data)

    def statement(self, job: ExplainingJob, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


def _made_up() -> dict[str, PartyData]:
    """Two parties with a wide and a narrow column each, and a model that asks about all of them."""
    rng = np.random.default_rng(0)
    n_rows = 40
    tables = {}
    for party in ("a", "b"):
        columns = (
            Column(f"{party} wide", rng.normal(size=n_rows)),
            Column(f"{party} narrow", rng.normal(size=n_rows).astype(np.float32)),
        )
        tables[party] = Table(columns, n_rows, tuple(column.name for column in columns), has_names=True)
    features = [FeatureBins(column.name, np.array([0.0])) for table in tables.values() for column in table.columns]
    trees = [_stump(j) for j in range(len(features))]
    model = Ensemble(BinMapper(tuple(features)), "squared", [0.0], trees=trees)
    asks, questions = divide(model, ["a", "a", "b", "b"], "a", protocol=NAME, run_id="made up")
    answers = OwnerPart("b", "a", NAME, "made up", tuple(features[2:]), questions["b"])
    return {
        "a": PartyData(tables["a"], part=asks.to_dict()),
        "b": PartyData(tables["b"], part=answers.to_dict()),
    }


def _stump(feature: int) -> Tree:
    return Tree(
        feature=np.array([feature, -1, -1]),
        bin=np.array([0, -1, -1]),
        threshold=np.array([0.0, np.nan, np.nan]),
        missing_left=np.zeros(3, np.bool_),
        left=np.array([1, -1, -1]),
        right=np.array([2, -1, -1]),
        value=np.array([0.0, -1.0, 1.0]),
        gain=np.array([1.0, 0.0, 0.0]),
        cover=np.array([2.0, 1.0, 1.0]),
        level_set=np.full(3, -1),
        left_levels=np.zeros((0, 256), np.bool_),
    )


PROTOCOL = Explaining()
