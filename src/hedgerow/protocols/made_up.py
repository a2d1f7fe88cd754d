"""Made-up rows and a made-up model, on which a protocol is played once so that every kernel is compiled.

A column of each kind is there: wide and narrow numbers, gaps, levels. Labels follow from one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.table import Column, Level, Table
from hedgerow.protocols.vertical.common.parts import OwnerPart, divide
from hedgerow.runtime.protocol import PartyData
from hedgerow.schema import Schema

BOUNDS = {"wide": (-5.0, 5.0), "narrow": (-5.0, 5.0)}
LEVELS = ("a", "b")
MADE_UP = "made up"
"""The run that the made-up model says it comes from."""


def made_up_rows(
    job: Any,
    *,
    has_labels: bool = True,
    n_rows: int = 300,
    seed: int = 7,
    levels: bool = True,
    classes: Sequence[Level] | None = None,
    prefix: str = "",
) -> PartyData:
    """A party's rows for a small training of this job; its labels are within the range that the job declares."""
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=n_rows).clip(-4.0, 4.0)
    columns = [
        Column(f"{prefix}wide", np.where(rng.random(n_rows) < 0.1, np.nan, signal)),
        Column(f"{prefix}narrow", rng.normal(size=n_rows).clip(-4.0, 4.0).astype(np.float32)),
        Column(f"{prefix}level", rng.integers(0, len(LEVELS), n_rows).astype(np.int32), LEVELS),
    ][: 3 if levels else 2]
    table = Table(tuple(columns), n_rows, tuple(column.name for column in columns), has_names=True)
    if not has_labels:
        return PartyData(table)
    if job.task == "classification":
        known = tuple(classes or (0, 1))
        return PartyData(table, np.digitize(signal, np.linspace(-1, 1, len(known) + 1)[1:-1]).astype(np.float64), known)
    low, high = job.boosting.label_range or (0.0, 1.0)
    return PartyData(table, np.linspace(low, high, n_rows)[np.argsort(np.argsort(signal))])


def made_up_schema(task: str = "classification", classes: Sequence[Level] = (0, 1), *, levels: bool = True) -> Schema:
    """What would be public about them."""
    is_classes = task == "classification"
    return Schema.from_public(
        bounds=BOUNDS,
        levels={"level": list(LEVELS)} if levels else None,
        may_be_missing=["wide"],
        classes=list(classes) if is_classes else None,
        label_bounds=None if is_classes else BOUNDS["wide"],
    )


# --- a model ---------------------------------------------------------------------------------------------------------


def made_up_model(protocol: str) -> dict[str, PartyData]:
    """Two parties with rows, and their parts of a model with a split of each kind of column; "a" holds the labels."""
    rows = {
        party: made_up_rows(None, has_labels=False, n_rows=40, seed=seed, prefix=party)
        for seed, party in enumerate("ab")
    }
    features = {
        party: tuple(
            FeatureBins(column.name, np.array([0.0]) if column.levels is None else None, column.levels, column.rule)
            for column in brought.table.columns
        )
        for party, brought in rows.items()
    }
    everything = (*features["a"], *features["b"])
    trees = [_stump(j, by_levels=feature.is_categorical) for j, feature in enumerate(everything)]
    model = Ensemble(BinMapper(everything), "squared", [0.0], trees=trees)
    owners = [party for party, own in features.items() for _ in own]
    asks, questions = divide(model, owners, "a", protocol=protocol, run_id=MADE_UP)
    answers = OwnerPart("b", "a", protocol, MADE_UP, features["b"], questions["b"])
    return {"a": replace(rows["a"], part=asks), "b": replace(rows["b"], part=answers)}


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
