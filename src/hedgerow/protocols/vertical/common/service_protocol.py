"""A service of a trained vertical model as something to run: who takes part, and a rehearsal with a made-up model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.table import Column, Table
from hedgerow.protocols.vertical.common.parts import OwnerPart, divide
from hedgerow.runtime.protocol import PartyData, Protocol
from hedgerow.runtime.warmup import rehearse

MADE_UP = "made up"
"""The run that the made-up model says it comes from."""


class Service(Protocol):
    """What vertical.scoring and vertical.explaining do alike; their jobs are `serving.ServiceJob`s."""

    partition = "columns"

    def parties(self, job: Any) -> tuple[str, ...]:
        """The label holder, who listens, then the feature holders."""
        return (job.label_holder, *job.feature_holders)

    def rehearse(self, job: Any) -> None:
        """The same job on a few made-up rows, with a made-up model of two parties."""
        small = replace(job, parties=("a", "b"), label_holder="a", model_run_id=MADE_UP)
        rehearse(self, small, made_up_data(self.name))


def made_up_data(protocol: str) -> dict[str, PartyData]:
    """Two parties with a column of each kind, and a model with a split of each; "a" holds the labels."""
    rng = np.random.default_rng(0)
    n_rows = 40
    tables = {}
    for party in ("a", "b"):
        columns = (
            Column(f"{party} wide", rng.normal(size=n_rows)),
            Column(f"{party} narrow", rng.normal(size=n_rows).astype(np.float32)),
            Column(f"{party} level", rng.integers(-1, 2, n_rows).astype(np.int32), ("x", "y")),
        )
        tables[party] = Table(columns, n_rows, tuple(column.name for column in columns), has_names=True)
    features = [
        FeatureBins(column.name, np.array([0.0]) if column.levels is None else None, column.levels)
        for table in tables.values()
        for column in table.columns
    ]
    trees = [_stump(j, by_levels=feature.is_categorical) for j, feature in enumerate(features)]
    model = Ensemble(BinMapper(tuple(features)), "squared", [0.0], trees=trees)
    asks, questions = divide(model, ["a"] * 3 + ["b"] * 3, "a", protocol=protocol, run_id=MADE_UP)
    answers = OwnerPart("b", "a", protocol, MADE_UP, tuple(features[3:]), questions["b"])
    return {
        "a": PartyData(tables["a"], part=asks.to_dict()),
        "b": PartyData(tables["b"], part=answers.to_dict()),
    }


def _stump(feature: int, *, by_levels: bool) -> Tree:
    left_levels = np.zeros((int(by_levels), MAX_BINS), np.bool_)
    left_levels[:, 0] = True
    return Tree(
        feature=np.array([feature, -1, -1]),
        bin=np.array([-1 if by_levels else 0, -1, -1]),
        threshold=np.array([np.nan if by_levels else 0.0, np.nan, np.nan]),
        missing_left=np.zeros(3, np.bool_),
        left=np.array([1, -1, -1]),
        right=np.array([2, -1, -1]),
        value=np.array([0.0, -1.0, 1.0]),
        gain=np.array([1.0, 0.0, 0.0]),
        cover=np.array([2.0, 1.0, 1.0]),
        level_set=np.array([0 if by_levels else -1, -1, -1]),
        left_levels=left_levels,
    )
