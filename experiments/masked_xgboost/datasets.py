"""The datasets: rows to train and to test, half of the columns for each party, and public bounds.

Levels are numbered in the order of the public schema and taken for numbers by every method alike. Missing values stay
missing. Bounds, which some of the methods need, are those of the whole file and count as public: in real use they must
come from somebody who knows the field and not the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from experiments.central_dp import datasets as central
from experiments.federboost import datasets as federboost
from hedgerow.schema import NumericColumn, Schema

DATASETS = ("give_me_some_credit", "adult", "higgs_11k", "bank_marketing", "default_credit_card", "nomao")
"""In the order of the paper: Credit 1, Adult, Higgs, Bank, Credit 2, Nomao."""
LABEL_HOLDER, FEATURE_HOLDER = "label_holder", "feature_holder"
N_TEST = 10_000
TEST_SHARE = 0.25

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Rows to train and to test, and whose columns are whose."""

    data: federboost.Dataset
    train: Ints
    test: Ints
    columns: dict[str, Ints]

    @property
    def y(self) -> Ints:
        """Labels to train."""
        return self.data.y[self.train].astype(np.int64)

    @property
    def y_test(self) -> Ints:
        """Labels to test."""
        return self.data.y[self.test].astype(np.int64)

    def tables(self, rows: Ints) -> dict[str, pa.Table]:
        """Each party's columns of these rows."""
        return {party: self.data.table(rows, columns) for party, columns in self.columns.items()}

    def pooled(self, rows: Ints) -> pa.Table:
        """All columns of these rows in one table."""
        return self.data.table(rows, np.concatenate(list(self.columns.values())))


@lru_cache(maxsize=2)
def split(name: str, index: int, n_rows: int, most_foreign: int | None = None) -> Split:
    """At most `n_rows` to train, and a quarter, at most 10,000, to test; both and the columns are drawn by `index`.

    With `most_foreign` the feature holder has only this many of its columns.
    """
    data = federboost.load(name)
    rng = np.random.default_rng(1_000 + index)
    order = rng.permutation(len(data.y))
    n_test = min(N_TEST, round(TEST_SHARE * len(order)))
    columns = rng.permutation(data.X.shape[1])
    half = len(columns) // 2
    foreign = columns[half:][:most_foreign]
    shares = {LABEL_HOLDER: np.sort(columns[:half]), FEATURE_HOLDER: np.sort(foreign)}
    return Split(data, np.sort(order[n_test:][:n_rows]), np.sort(order[:n_test]), shares)


@lru_cache(maxsize=2)
def public_schema(name: str) -> Schema:
    """Bounds of all columns, as the experiments of central privacy have them; levels are whole numbers."""
    bounds: dict[str, Any] = {}
    whole, gaps = [], []
    for column in central.load(name).schema.columns:
        if isinstance(column, NumericColumn):
            bounds[column.name] = (column.low, column.high)
            whole += [column.name] if column.integer else []
        else:
            bounds[column.name] = (0, max(len(column.levels) - 1, 1))
            whole.append(column.name)
        gaps += [column.name] if column.may_be_missing else []
    return Schema.from_public(bounds=bounds, integers=whole, may_be_missing=gaps, classes=(0, 1))
