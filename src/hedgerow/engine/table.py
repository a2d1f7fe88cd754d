"""Tables in, columns out: whatever library a person keeps data in, the engine sees named columns of numbers or codes.

A numeric column is float32 or float64 with NaN for "missing"; it is a view of the caller's memory wherever that is
possible. A categorical column is int32 codes into its levels, -1 for "missing" (or, for a trained model, "never seen").
Whole numbers become float32 only where every value survives exactly, else float64; float64 itself is exact up to 2**53
and beyond that rounds to the nearest representable number, which never changes the order of two values.

Levels are sorted (numbers by value, text by code point), so they do not depend on the order of rows. Levels that a
pandas category, a polars Enum or an arrow dictionary declares are kept although no row has them, unless that makes more
than 255; text, object and polars Categorical columns have the levels that occur.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.engine.sources import (
    Coded,
    Raw,
    Source,
    as_floats,
    coded_values,
    default_names,
    family_of,
    is_missing,
    narrowest,
    open_source,
)
from hedgerow.errors import InvalidInput, InvalidParameter

if TYPE_CHECKING:
    from hedgerow.engine.binning import FeatureBins

Level = str | int | float | bool
MAX_LEVELS = MAX_BINS - 1


@dataclass(frozen=True, eq=False)
class Column:
    """One feature: floats with NaN for missing, or (when `levels` is given) int32 codes with -1 for missing."""

    name: str
    values: np.ndarray
    levels: tuple[Level, ...] | None = None


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length. `has_names` is False where the names are only our own x0, x1, ..."""

    columns: tuple[Column, ...]
    n_rows: int
    names: tuple[str, ...]
    has_names: bool

    def matrix(self, start: int = 0, stop: int | None = None, dtype: Any = None) -> np.ndarray:
        """Rows `start` to `stop` as a C-ordered [rows, features] array; codes as floats, missing as NaN.

        float32 if no column needs float64. A view, not a copy, where the columns already lie so in memory.
        """
        wanted = np.dtype(dtype) if dtype is not None else self._common_dtype
        grid = self.grid
        if grid is not None and grid.dtype == wanted:
            return grid[start:stop]  # read-only, like what follows: kernels are then compiled for one kind of array
        stop = self.n_rows if stop is None else min(stop, self.n_rows)
        out = np.empty((max(stop - start, 0), len(self.columns)), wanted)
        for j, column in enumerate(self.columns):
            out[:, j] = column.values[start:stop]
            if column.levels is not None:
                out[column.values[start:stop] < 0, j] = np.nan
        out.flags.writeable = False
        return out

    @cached_property
    def grid(self) -> np.ndarray | None:
        """All columns as one C-ordered 2-D view, if that is how they lie in memory (numpy, one-block pandas)."""
        first = self.columns[0].values
        step, row_stride = first.itemsize, first.itemsize * len(self.columns)
        address = first.__array_interface__["data"][0]
        for j, column in enumerate(self.columns):
            values = column.values
            in_place = values.strides[0] == row_stride and values.__array_interface__["data"][0] == address + j * step
            if column.levels is not None or values.dtype != first.dtype or not in_place:
                return None
        return np.lib.stride_tricks.as_strided(
            first, (self.n_rows, len(self.columns)), (row_stride, step), writeable=False
        )

    @cached_property
    def _common_dtype(self) -> np.dtype[Any]:
        wide = any(column.levels is None and column.values.dtype == np.float64 for column in self.columns)
        return np.dtype(np.float64 if wide else np.float32)


def read_table(
    X: Any,
    *,
    categorical_features: Any = "from_dtype",
    like: Sequence[FeatureBins] | None = None,
    where: str = "X",
) -> Table:
    """Read a numpy array, a pandas or polars data frame or a pyarrow table.

    `categorical_features`: "from_dtype" (category, text, dictionary and enum columns are categorical), None (no column
    is), or exactly those given by name, index or boolean mask.
    `like`: the features of a trained model. Columns are found by name (by position where either side has no names),
    put into the model's order, and levels are mapped onto the model's; unseen ones become -1.
    `where` names the table in error messages.
    """
    source = source_of_table(X) if isinstance(X, Table) else open_source(X, where)
    if source.n_rows == 0 or not source.names:
        what = "sample" if source.n_rows == 0 else "feature"
        shape = (source.n_rows, len(source.names))
        raise InvalidInput(f"{where}: found array with 0 {what}(s) (shape={shape}) while a minimum of 1 is required.")
    repeated = [name for name, times in Counter(source.names).items() if times > 1]
    if repeated:
        raise InvalidInput(f"{where} has more than one column named {_quoted(repeated)}; names must be unique")
    if like is not None:
        return _read_like(source, like, where)
    wanted = _wanted_categorical(source, categorical_features, where)
    columns = []
    for name, raw, wish in zip(source.names, source.columns, wanted, strict=True):
        label = f"{where}: column {name!r}"
        categorical = _is_categorical(raw, source.text_is_categorical, label) if wish is None else wish
        columns.append(_categorical(name, raw, None, label) if categorical else _numeric(name, raw, label))
    return Table(tuple(columns), source.n_rows, source.names, source.has_names)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


# --- which column is what ------------------------------------------------------------------------------------------


def _wanted_categorical(source: Source, wish: Any, where: str) -> list[bool | None]:
    """Per column: categorical or not as the caller wishes, None where its type decides."""
    n_features = len(source.names)
    if isinstance(wish, str):
        if wish != "from_dtype":
            raise InvalidParameter(
                f"categorical_features must be 'from_dtype', None, a list of names or indices, or a mask, got {wish!r}"
            )
        return [None] * n_features
    if wish is None:
        return [False] * n_features
    if not isinstance(wish, Iterable):
        raise InvalidParameter(f"categorical_features must be a list of names or indices, or a mask, got {wish!r}")
    items = list(wish)
    if items and all(isinstance(item, bool | np.bool_) for item in items):
        if len(items) != n_features:
            raise InvalidParameter(
                f"categorical_features is a mask of length {len(items)}, but {where} has {n_features} columns"
            )
        return [bool(item) for item in items]
    wanted: list[bool | None] = [False] * n_features
    for item in items:
        if isinstance(item, str):
            if item not in source.names or not source.has_names:
                raise InvalidParameter(f"categorical_features names {item!r}, which is not a column of {where}")
            wanted[source.names.index(item)] = True
        elif isinstance(item, int | np.integer) and not isinstance(item, bool):
            if not 0 <= item < n_features:
                raise InvalidParameter(
                    f"categorical_features has index {item}, but {where} has columns 0 to {n_features - 1}"
                )
            wanted[item] = True
        else:
            raise InvalidParameter(f"categorical_features must hold names, indices or a mask, got {item!r}")
    return wanted


def _read_like(source: Source, like: Sequence[FeatureBins], where: str) -> Table:
    columns = []
    for feature, raw in zip(like, columns_like(source, like, where), strict=True):
        label = f"{where}: column {feature.name!r}"
        if feature.levels is None:
            columns.append(_numeric(feature.name, raw, label, for_model=True))
        else:
            columns.append(_categorical(feature.name, raw, feature.levels, label))
    expected = tuple(feature.name for feature in like)
    return Table(tuple(columns), source.n_rows, expected, has_names=has_own_names(expected))


def columns_like(source: Source, like: Sequence[FeatureBins], where: str) -> list[Raw]:
    """The columns of a source in the order of `like`, found by name, or by position where either has no names."""
    expected = tuple(feature.name for feature in like)
    if source.has_names and set(source.names) == set(expected):
        raw_by_name = dict(zip(source.names, source.columns, strict=True))
        return [raw_by_name[name] for name in expected]
    if source.has_names and has_own_names(expected):
        missing = [name for name in expected if name not in set(source.names)]
        extra = [name for name in source.names if name not in set(expected)]
        parts = [f"lacks {_quoted(missing)}"] if missing else []
        parts += [f"has {_quoted(extra)}, unseen at fit time"] if extra else []
        raise InvalidInput(
            f"The feature names should match those that were passed during fit: {where} {' and '.join(parts)}"
        )
    if len(source.names) != len(expected):
        raise InvalidInput(
            f"{where} has {len(source.names)} features, but the model is expecting {len(expected)} features as input"
        )
    return list(source.columns)


def has_own_names(names: Sequence[str]) -> bool:
    """Whether these are names that somebody gave, and not x0, x1, ..."""
    return tuple(names) != default_names(len(names))


def _is_categorical(raw: Raw, text_is_categorical: bool, label: str) -> bool:
    """What the column's type says; for Python objects in a data frame, whether they are text."""
    if isinstance(raw, np.ndarray):
        return False
    return raw.declared or (text_is_categorical and family_of(raw.values, label) == "text")


def source_of_table(table: Table) -> Source:
    """A table that was read already, as if it came from outside."""
    raws = [
        column.values if column.levels is None else Coded(column.values, list(column.levels), declared=True)
        for column in table.columns
    ]
    return Source(table.names, table.has_names, table.n_rows, raws, text_is_categorical=True)


# --- one column ----------------------------------------------------------------------------------------------------


def _numeric(name: str, raw: Raw, label: str, *, for_model: bool = False) -> Column:
    if isinstance(raw, np.ndarray):
        return Column(name, as_floats(raw, label))
    if family_of(raw.values, label) == "text" and for_model:
        raise InvalidInput(f"{label} is numeric in the model, but holds text here")
    numbers = [_parsed(value, label) for value in raw.values]
    return Column(name, narrowest(np.array([*numbers, math.nan]))[raw.codes])  # the last place answers code -1


def _parsed(value: Any, label: str) -> float:
    if is_missing(value):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        raise InvalidInput(f"{label} holds a whole number too large for a float") from None
    except ValueError:
        raise InvalidInput(
            f"{label} holds text ({value[:40]!r}) where numbers are expected; "
            "name it in categorical_features, or give it as a category or text column of a data frame"
        ) from None


def _categorical(name: str, raw: Raw, levels: tuple[Level, ...] | None, label: str) -> Column:
    coded = raw if isinstance(raw, Coded) else coded_values(raw, label)  # numbers that somebody declared to be levels
    family = family_of(coded.values, label)
    plain = [None if is_missing(value) else plain_level(value) for value in coded.values]
    if levels is None:
        levels = _sorted_levels(plain, coded, label)
    elif family != "nothing" and levels and isinstance(levels[0], str) != (family == "text"):
        theirs = "text" if isinstance(levels[0], str) else "numbers"
        raise InvalidInput(f"{label} has levels that are {theirs} in the model, but holds {family} here")
    index = {level: code for code, level in enumerate(levels)}
    # The last place answers code -1.
    lookup = np.array([-1 if value is None else index.get(value, -1) for value in plain] + [-1], np.int32)
    return Column(name, lookup[coded.codes], levels)


def _sorted_levels(plain: list[Level | None], coded: Coded, label: str) -> tuple[Level, ...]:
    kept = {value for value in plain if value is not None}
    if not coded.declared or len(kept) > MAX_LEVELS:
        present = np.unique(coded.codes[coded.codes >= 0])
        kept = {value for value in (plain[code] for code in present) if value is not None}
    if len(kept) > MAX_LEVELS:
        raise InvalidInput(
            f"{label} has {len(kept)} levels, but at most {MAX_LEVELS} are supported; "
            "group the rare ones, or give the column as numbers"
        )
    if any(isinstance(level, float) and math.isinf(level) for level in kept):
        raise InvalidInput(f"{label} has an infinite value, which cannot be a level")
    return tuple(sorted(kept))  # all text or all numbers, as family_of has checked


def plain_level(value: Any) -> Level:
    """A JSON-able level; 3.0 and 3 are the same level, written 3."""
    item: Level = value.item() if isinstance(value, np.generic) else value
    if isinstance(item, float) and item.is_integer():
        return int(item)
    return item if isinstance(item, bool | int | float) else str(item)
