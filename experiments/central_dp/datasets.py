"""The datasets: name -> table, labels and what is public about them; and how rows are split.

The public schema of a file is read off the WHOLE file: smallest and largest value of each number, levels of each text,
bounds of the label. These are taken for public knowledge, the same for every method. In real use they must come from
somebody who knows the field and not the file. (adult is the exception: its schema, shipped with the library, states
round numbers around the documented meaning of its columns.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, parquet

from experiments.central_dp.objective import Task
from hedgerow.datasets import adult_schema, find_dataset, load_adult
from hedgerow.schema import Schema

SplitKind = Literal["folds", "official", "random"]

N_ADULT_TRAIN = 32_561
TEST_SHARE = 0.25

TASKS: dict[str, Task] = {
    "abalone": "regression",
    "adult": "classification",
    "susy_30k": "classification",
    "cod_rna": "classification",
    "protein_casp": "regression",
    "w8a": "classification",
    "synthetic_cls": "classification",
    "synthetic_reg": "regression",
    "covtype": "classification",
    "default_credit_card": "classification",
    "bank_marketing": "classification",
    "give_me_some_credit": "classification",
    "higgs_11k": "classification",
    "nomao": "classification",
}

PAPER = ("abalone", "adult", "susy_30k", "cod_rna", "protein_casp", "w8a", "synthetic_cls", "synthetic_reg", "covtype")
"""Those of the paper, or what stands for them, small ones first."""

SYNTHETIC_SHAPE = (100_000, 50)


@dataclass(frozen=True)
class Dataset:
    """Rows in an order that means nothing, and what everybody may know of them."""

    name: str
    task: Task
    X: pa.Table
    y: NDArray[np.float64]
    schema: Schema


class Part(NamedTuple):
    """Training or test rows."""

    X: pa.Table
    y: NDArray[np.float64]


@lru_cache(maxsize=2)
def load(name: str, rows: int | None = None) -> Dataset:
    """The whole dataset; the first `rows` of it in an order drawn once, if it has more."""
    if name == "adult":
        people = load_adult("all")
        return Dataset(name, "classification", people.X, people.y.astype(np.float64), adult_schema())
    X, y = _synthetic(name) if name.startswith("synthetic") else _file(name)
    schema = _public_schema(X, y, TASKS[name])
    if rows is not None and rows < len(y):
        kept = np.random.default_rng(0).permutation(len(y))[:rows]  # files may be in order of class or place
        X, y = X.take(pa.array(kept)), y[kept]
    return Dataset(name, TASKS[name], X, y, schema)


def split(data: Dataset, kind: SplitKind, index: int, of: int = 5) -> tuple[Part, Part]:
    """Training and test rows. "folds": fold `index` of `of` is the test; "random": a quarter, drawn with `index`."""
    n = len(data.y)
    if kind == "official":
        if data.name != "adult":
            raise ValueError(f"only adult has an official split, {data.name} has not")
        test = np.arange(N_ADULT_TRAIN, n)
        train = np.arange(N_ADULT_TRAIN)
    elif kind == "folds":
        n = N_ADULT_TRAIN if data.name == "adult" else n  # the paper's adult is the training file alone
        order = np.random.default_rng(1).permutation(n)
        test = order[index::of]
        train = np.setdiff1d(order, test)
    else:
        order = np.random.default_rng(100 + index).permutation(n)
        n_test = round(TEST_SHARE * n)
        test, train = order[:n_test], order[n_test:]
    return _part(data, train), _part(data, test)


def _part(data: Dataset, rows: NDArray[np.int64]) -> Part:
    return Part(data.X.take(pa.array(rows)), data.y[rows])


def _file(name: str) -> tuple[pa.Table, NDArray[np.float64]]:
    table = parquet.read_table(find_dataset(name)).combine_chunks()
    y = table.column("label").to_numpy().astype(np.float64)
    return table.drop_columns(["label"]), y


def _synthetic(name: str) -> tuple[pa.Table, NDArray[np.float64]]:
    from sklearn.datasets import make_classification, make_regression

    n_rows, n_columns = SYNTHETIC_SHAPE
    make = make_classification if name == "synthetic_cls" else make_regression
    X, y = make(n_rows, n_columns, n_informative=20, random_state=0)
    return pa.table({f"f{i}": X[:, i] for i in range(n_columns)}), y.astype(np.float64)


def _public_schema(X: pa.Table, y: NDArray[np.float64], task: Task) -> Schema:
    bounds: dict[str, tuple[float, float]] = {}
    levels: dict[str, list[str]] = {}
    integers, gaps = [], []
    for name in X.column_names:
        column = X.column(name)
        if column.null_count:
            gaps.append(name)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            levels[name] = sorted(column.drop_null().unique().to_pylist())
            continue
        ends = compute.min_max(column).as_py()
        low, high = float(ends["min"]), float(ends["max"])
        bounds[name] = (low, high if high > low else low + 1.0)
        whole = compute.all(compute.equal(column, compute.round(column))).as_py()
        if whole:
            integers.append(name)
    return Schema.from_public(
        bounds=bounds,
        levels=levels,
        integers=integers,
        may_be_missing=gaps,
        label_bounds=(float(y.min()), float(y.max())) if task == "regression" else None,
        classes=(0, 1) if task == "classification" else None,
        columns=X.column_names,
    )
