"""Vertical models made of nothing but random numbers: a pooled ensemble, the same divided, and rows for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import Floats
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import Column, Table, read_table
from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.parts import OwnerPart, Part, divide
from hedgerow.testing.random_models import random_ensemble

PROTOCOL, RUN_ID = "vertical.bucket_rr", "a training"
UNSEEN = "never seen"


@dataclass(frozen=True, eq=False)
class RandomVertical:
    """A model over everybody's columns, and each party's part of it."""

    pooled: Ensemble
    owners: tuple[str, ...]  # of each feature
    label_holder: str
    parts: Mapping[str, Part]

    @property
    def parties(self) -> tuple[str, ...]:
        """In the order of their columns."""
        return tuple(self.parts)

    def rows(self, rng: np.random.Generator, n_rows: int) -> dict[str, Table]:
        """Each party's columns: values on and around the edges, float64 and float32, gaps, levels never seen."""
        columns: dict[str, list[Column]] = {party: [] for party in self.parties}
        for j, (feature, party) in enumerate(zip(self.pooled.features, self.owners, strict=True)):
            columns[party].append(_random_column(rng, feature, n_rows, np.float32 if j % 2 else np.float64))
        return {party: table_of(these, n_rows) for party, these in columns.items()}

    def data(self, tables: Mapping[str, Table], **more: Any) -> dict[str, PartyData]:
        """What each party brings to a scoring of these rows."""
        return {party: PartyData(tables[party], part=self.parts[party].to_dict(), **more) for party in self.parties}

    def pooled_scores(self, tables: Mapping[str, Table]) -> Floats:
        """The raw scores of the pooled ensemble on the pooled rows."""
        columns = [column for party in self.parties for column in tables[party].columns]
        table = table_of(columns, tables[self.label_holder].n_rows)
        return self.pooled.raw_scores(read_table(table, like=self.pooled.features, where="pooled rows"))


def random_vertical(
    rng: np.random.Generator,
    parties: Sequence[str] = ("shop", "bank", "clinic"),
    label_holder: str = "bank",
    *,
    n_numeric: int = 3,
    n_bins: int = 12,
    n_levels: int = 5,
    run_id: str = RUN_ID,
    **model: Any,
) -> RandomVertical:
    """Parties with numeric columns and one of levels each; `model` goes to `random_ensemble`."""
    features: list[FeatureBins] = []
    owners: list[str] = []
    for party in parties:
        for j in range(n_numeric):
            edges = rng.normal(size=n_bins - 1)
            features.append(FeatureBins(f"{party} x{j}", np.unique(edges.astype(np.float32) if j else edges)))
        features.append(FeatureBins(f"{party} level", levels=tuple(f"level {k}" for k in range(n_levels))))
        owners += [party] * (n_numeric + 1)
    pooled = random_ensemble(rng, BinMapper(tuple(features)), **model)
    asks, questions = divide(pooled, owners, label_holder, protocol=PROTOCOL, run_id=run_id)
    parts: dict[str, Part] = {}
    for party in parties:
        own = tuple(f for f, owner in zip(features, owners, strict=True) if owner == party)
        if party == label_holder:
            parts[party] = asks
        else:
            parts[party] = OwnerPart(party, label_holder, PROTOCOL, run_id, own, questions[party], {"n_rows": 7})
    return RandomVertical(pooled, tuple(owners), label_holder, parts)


def table_of(columns: Sequence[Column], n_rows: int) -> Table:
    """A table of these columns."""
    return Table(tuple(columns), n_rows, tuple(column.name for column in columns), has_names=True)


def _random_column(rng: np.random.Generator, feature: FeatureBins, n_rows: int, dtype: Any) -> Column:
    if feature.edges is None:
        levels = (UNSEEN, *(feature.levels or ())[::-1])
        return Column(feature.name, rng.integers(-1, len(levels), n_rows).astype(np.int32), levels)
    values = rng.choice(np.append(feature.edges, rng.normal(size=20)), n_rows).astype(dtype)
    kind = rng.random(n_rows)
    values[kind < 0.1] = np.nan
    values[(kind >= 0.1) & (kind < 0.13)] = np.inf
    values[(kind >= 0.13) & (kind < 0.16)] = -np.inf
    return Column(feature.name, values)
