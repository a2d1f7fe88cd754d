"""Vertical models made of nothing but random numbers: a pooled ensemble, the same divided, and rows for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import Floats
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.table import Column, Table, read_table
from hedgerow.protocols.vertical.common.parts import OwnerPart, Part, Target, divide
from hedgerow.protocols.vertical.common.shared_parts import FOREIGN, LEAF, PartialTree, SharedLeavesPart
from hedgerow.runtime.protocol import PartyData
from twins.random_models import random_ensemble

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
        return {party: PartyData(tables[party], part=self.parts[party], **more) for party in self.parties}

    def exact_scores(self, tables: Mapping[str, Table]) -> Floats:
        """The same with nothing rounded on the way: the engine adds up in 32 bits, tree by tree."""
        n_outputs = self.pooled.n_outputs
        scores = np.tile(self.pooled.base_scores, (tables[self.label_holder].n_rows, 1))
        leaves = self.pooled.apply(self.pooled_rows(tables))
        for number, tree in enumerate(self.pooled.trees):
            scores[:, number % n_outputs] += tree.value[leaves[:, number]].astype(np.float64)
        return scores

    def pooled_scores(self, tables: Mapping[str, Table]) -> Floats:
        """The raw scores of the pooled ensemble on the pooled rows."""
        return self.pooled.raw_scores(self.pooled_rows(tables))

    def pooled_rows(self, tables: Mapping[str, Table]) -> Table:
        """All columns in one table."""
        columns = [column for party in self.parties for column in tables[party].columns]
        table = table_of(columns, tables[self.label_holder].n_rows)
        return read_table(table, like=self.pooled.features, where="pooled rows")


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


def random_shared(
    rng: np.random.Generator,
    parties: Sequence[str] = ("bank", "shop", "clinic"),
    *,
    n_numeric: int = 3,
    n_bins: int = 12,
    fraction_bits: int = 40,
    learning_rate: float = 0.5,
    run_id: str = RUN_ID,
    **model: Any,
) -> RandomVertical:
    """Parties with numeric columns, the label holder first, whose leaf values are shared among all of them."""
    features = tuple(
        FeatureBins(f"{party} x{j}", np.unique(rng.normal(size=n_bins - 1)))
        for party in parties
        for j in range(n_numeric)
    )
    pooled = random_ensemble(rng, BinMapper(features), **model)
    words = {party: list[npt.NDArray[np.uint64]]() for party in parties}
    for tree in pooled.trees:
        values = tree.value[tree.is_leaf].astype(np.float64) / learning_rate
        rest = np.rint(np.ldexp(values, fraction_bits)).astype(np.int64).view(np.uint64)
        for party in parties[1:]:
            share = rng.integers(0, 2**64, len(rest), dtype=np.uint64)
            words[party].append(share)
            rest = rest - share
        words[parties[0]].append(rest)
    classes = None if pooled.classes is None else tuple(pooled.classes)
    target = Target(pooled.loss, tuple(pooled.base_scores.tolist()), learning_rate, classes)
    parts: dict[str, Part] = {}
    for place, party in enumerate(parties):
        first = place * n_numeric
        parts[party] = SharedLeavesPart(
            party=party,
            label_holder=parties[0],
            holders=tuple(parties),
            protocol="vertical.mp_fedxgb",
            run_id=run_id,
            features=features[first : first + n_numeric],
            trees=tuple(_partial(tree, first, n_numeric) for tree in pooled.trees),
            leaves=tuple(words[party]),
            fraction_bits=fraction_bits,
            target=None if place else target,
            meta={"n_rows": 7},
        )
    owners = tuple(party for party in parties for _ in range(n_numeric))
    return RandomVertical(pooled, owners, parties[0], parts)


def _partial(tree: Tree, first: int, n_own: int) -> PartialTree:
    own = (tree.feature >= first) & (tree.feature < first + n_own)
    column = np.where(own, tree.feature - first, np.where(tree.is_leaf, LEAF, FOREIGN))
    return PartialTree(column, np.where(own, tree.bin, -1), tree.missing_left & own)


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
