"""The two datasets as the authors' published program prepares them; rows, columns of each party, and buckets.

The program says what the paper leaves open. give_me_some_credit loses its rows with missing values. Of adult only the
training file is used, and "?" is a level like others: 6 numbers and 102 columns of zeros and ones. Rows are taken in
the order of the file, separately for the two classes, first those to train and then those to test. (Values are also
divided by the largest of their column, which changes neither buckets nor trees, and is left out here.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from experiments.central_dp import datasets as central
from experiments.central_dp.datasets import N_ADULT_TRAIN

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTIES = ("P1", "P2", "P3", "P4")
TENTHS = (1, 2, 3)
"""Of the columns, for all parties but the last, which has the rest: 10, 20, 30 and 40 %."""

SIZES = {"give_me_some_credit": (30_000, 7_500), "adult": (26_049, 6_512)}
"""Rows to train and to test."""

_CREDIT = (
    "RevolvingUtilizationOfUnsecuredLines", "age", "NumberOfTime30-59DaysPastDueNotWorse", "DebtRatio", "MonthlyIncome",
    "NumberOfOpenCreditLinesAndLoans", "NumberOfTimes90DaysLate", "NumberRealEstateLoansOrLines",
    "NumberOfTime60-89DaysPastDueNotWorse", "NumberOfDependents",
)  # fmt: skip
_ADULT_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_ADULT_LEVELS = (
    "relationship", "sex", "marital-status", "workclass", "education", "native-country", "occupation", "race",
)  # fmt: skip
"""In the program's order, by which columns are divided."""


@dataclass(frozen=True)
class Dataset:
    """All columns as numbers, none missing, and labels 0 and 1, in the order of the file."""

    name: str
    X: Floats
    y: Ints
    columns: tuple[str, ...]


@lru_cache(maxsize=2)
def load(name: str) -> Dataset:
    """The whole cleaned dataset."""
    data = central.load(name)
    labels = data.y.astype(np.int64)
    if name == "adult":
        people = data.X.slice(0, N_ADULT_TRAIN)
        columns = {column: _numbers(people, column) for column in _ADULT_NUMBERS}
        for column in _ADULT_LEVELS:
            columns |= _zeros_and_ones(people, column)
        labels = labels[:N_ADULT_TRAIN]
    else:
        columns = {column: _numbers(data.X, column) for column in _CREDIT}
    X = np.column_stack(list(columns.values()))
    complete = ~np.isnan(X).any(axis=1)
    return Dataset(name, X[complete], labels[complete], tuple(columns))


def _numbers(table: pa.Table, column: str) -> Floats:
    return np.asarray(table.column(column).cast(pa.float64()).to_numpy(), np.float64)


def _zeros_and_ones(table: pa.Table, column: str) -> dict[str, Floats]:
    values = np.array(compute.fill_null(table.column(column).cast(pa.string()), "?").to_pylist())
    return {f"{column}={level}": (values == level).astype(np.float64) for level in np.unique(values)}


def rows_of(y: Ints, split: str, index: int, n_train: int, n_test: int) -> tuple[Ints, Ints]:
    """Rows to train and to test with equal shares of both classes: in the order of the "file", or at "random"."""
    rng = np.random.default_rng(index)
    ends = np.array([n_train, n_train + n_test])
    n_ones = int(y.sum()) * ends // len(y)
    train, test = [], []
    for label, (first, last) in ((0, ends - n_ones), (1, n_ones)):
        rows = np.flatnonzero(y == label)
        rows = rows if split == "file" else rng.permutation(rows)
        train.append(rows[:first])
        test.append(rows[first:last])
    return np.concatenate(train), np.concatenate(test)


def columns_of(n_columns: int) -> dict[str, range]:
    """Whose columns they are: in order, the first are the label holder's."""
    ends = np.cumsum([0, *(n_columns * tenths // 10 for tenths in TENTHS)]).tolist()
    return {party: range(start, stop) for party, start, stop in zip(PARTIES, ends, [*ends[1:], n_columns], strict=True)}


def as_tables(X: Floats) -> dict[str, pa.Table]:
    """Each party's columns."""
    return {
        party: pa.table({f"c{c}": np.ascontiguousarray(X[:, c]) for c in columns})
        for party, columns in columns_of(X.shape[1]).items()
    }


def repeated_columns(X: Floats, n_columns: int) -> Floats:
    """The same columns again and again, until there are enough: as in the paper's Figure 5."""
    return X[:, np.arange(n_columns) % X.shape[1]]


def bucket_ends(values: Floats, share: float) -> Floats:
    """The largest value of each bucket but the last, by the program's rule.

    The smallest value has a bucket of its own. Each further bucket takes values as long as it has less than `share` of
    the rows, and at least one value.
    """
    distinct, counts = np.unique(values, return_counts=True)
    up_to = np.cumsum(counts) / len(values)
    ends, last, top = [0], 0, len(distinct) - 1
    while last < top:
        below = int(np.searchsorted(up_to - up_to[last], share, side="left")) - 1
        last = max(last + 1, min(below, top))
        ends.append(last)
    return np.asarray(distinct[ends[:-1]], np.float64)


def in_buckets(X: Floats, train: Ints, share: float) -> Floats:
    """Every value as the number of its bucket, with ends from the training rows."""
    ends = [bucket_ends(X[train, c], share) for c in range(X.shape[1])]
    return np.column_stack([np.searchsorted(e, X[:, c], side="left") for c, e in enumerate(ends)]).astype(np.float64)
