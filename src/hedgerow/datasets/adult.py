"""The Adult census dataset, shipped with the package: does a person earn more than 50,000 dollars a year?

48,842 people, 14 columns (8 of them categorical, 3 of those with missing values), 24% positive. It is read with
pyarrow alone; pandas or polars are needed only by those who ask for their frames. Source and licence are in
ATTRIBUTION.md beside this file.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hedgerow.errors import InvalidParameter
from hedgerow.schema import Schema

Split = Literal["train", "test", "all"]
Frame = Literal["arrow", "pandas", "polars"]

N_TRAIN = 32_561
"""The official split: the first rows are the original file adult.data, the rest adult.test."""

LABEL = "label"

BOUNDS = {
    "age": (0, 100),
    "fnlwgt": (0, 1_500_000),
    "education-num": (1, 16),
    "capital-gain": (0, 100_000),
    "capital-loss": (0, 5_000),
    "hours-per-week": (0, 100),
}
"""Of the numeric columns, all of them whole numbers."""


class Adult(NamedTuple):
    """Features and labels of the same people, in the same order."""

    X: Any
    """14 columns, as a pyarrow Table, a pandas DataFrame or a polars DataFrame."""
    y: NDArray[np.int64]
    """1 where the income is above 50,000 dollars, else 0."""


def load_adult(split: Split = "train", as_frame: Frame = "arrow") -> Adult:
    """The shipped dataset, as features and labels.

        X, y = load_adult("train")

    `split` is "train" (32,561 rows), "test" (16,281 rows) or "all". Categorical columns come with a categorical dtype,
    and every split declares the same levels, so frames of the two splits can be compared or joined.
    """
    _check("split", split, Split)
    _check("as_frame", as_frame, Frame)
    people = _with_levels(_read())
    people = {"train": people.slice(0, N_TRAIN), "test": people.slice(N_TRAIN), "all": people}[split]
    labels = people.column(LABEL).to_numpy().astype(np.int64)
    return Adult(_as_frame(people.drop_columns([LABEL]), as_frame), labels)


def adult_schema() -> Schema:
    """What is public about the columns: bounds and levels as the dataset's own documentation has them.

    The levels are read from the file, where they are the documented ones; the bounds are round numbers around the
    documented meaning of each column, not the smallest and largest values that occur.
    """
    people = _with_levels(_read()).drop_columns([LABEL])
    levels = {
        name: people.column(name).chunk(0).dictionary.to_pylist()
        for name in people.column_names
        if pa.types.is_dictionary(people.schema.field(name).type)
    }
    return Schema.from_public(
        bounds=BOUNDS,
        levels=levels,
        integers=list(BOUNDS),
        may_be_missing=["workclass", "occupation", "native-country"],
        classes=[0, 1],
        columns=people.column_names,
    )


def _check(name: str, value: str, allowed: Any) -> None:
    if value not in get_args(allowed):
        choices = ", ".join(repr(choice) for choice in get_args(allowed))
        raise InvalidParameter(f"{name} must be one of {choices}, got {value!r}")


def _read() -> pa.Table:
    with as_file(files("hedgerow.datasets") / "adult.parquet") as path:
        return pq.ParquetFile(path).read()


def _with_levels(people: pa.Table) -> pa.Table:
    """Strings as dictionary columns over the sorted levels of the WHOLE dataset, and without pandas' own metadata."""
    columns = []
    for column in people.columns:
        if pa.types.is_large_string(column.type) or pa.types.is_string(column.type):
            values = column.cast(pa.string()).combine_chunks()
            levels = values.drop_null().unique().sort()
            codes = pc.index_in(values, value_set=levels)
            columns.append(pa.DictionaryArray.from_arrays(codes, levels))
        else:
            columns.append(column)
    return pa.table(columns, names=people.column_names)


def _as_frame(table: pa.Table, kind: Frame) -> Any:
    if kind == "arrow":
        return table
    try:
        if kind == "pandas":
            return table.to_pandas()
        import polars as pl

        return pl.from_arrow(table)
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"as_frame={kind!r} needs {kind}, which is not installed: pip install 'hedgerow[{kind}]', "
            "or use as_frame='arrow', which needs nothing more",
            name=missing.name,
        ) from missing
