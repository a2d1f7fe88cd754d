"""Tables in, columns out: whatever library a person keeps data in, the engine sees named columns of numbers or codes.

A numeric column is float32 or float64 with NaN for "missing"; it is a view of the caller's memory wherever that is
possible. A categorical column is int32 codes into its levels, -1 for "missing" (or, for a trained model, "never seen").
Whole numbers become float32 only where every value survives exactly, else float64; float64 itself is exact up to 2**53
and beyond that rounds to the nearest representable number, which never changes the order of two values.

Levels are sorted (numbers by value, text by code point), so they do not depend on the order of rows. Levels that a
pandas category, a polars Enum or an arrow dictionary declares are kept although no row has them, unless that makes more
than 255; text, object and polars Categorical columns have the levels that occur.

Dates, times and durations are numbers of seconds (`times.py`), booleans are 0 and 1, both with NaN for "missing". Of
sparse matrices (scipy's) only what is stored is kept; the rest is 0, as scikit-learn has it, and not missing. More than
255 levels are put into groups (`level_groups.py`). What was done is the column's `rule`, which its model keeps.

A table is read in two steps. `open_source` gives the columns as they are: numpy arrays of numbers, or codes into a list
of values. Arrays are numpy's; data frames are pandas', polars' or pyarrow's, recognised by the module of the object
given, as scipy's matrices are: none of these is ever
imported on our own account. `read_table` then decides what each column is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from hedgerow.engine.dtypes import MAX_BINS, ROW_ID, Ints, RowIds
from hedgerow.engine.level_groups import (
    GROUP_RULES,
    MOST_GROUPS,
    GroupRule,
    ManyLevels,
    check_many_levels,
    frequent_levels,
    places,
)
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType
from hedgerow.schema import hash_groups
from hedgerow.times import TIME_RULES, TimeRule, rule_of_dtype, seconds_of, seconds_of_value, time_rule

if TYPE_CHECKING:
    from hedgerow.engine.binning import FeatureBins

Level = str | int | float | bool
Rule = TimeRule | GroupRule
RULES: tuple[Rule, ...] = (*get_args(TimeRule), *get_args(GroupRule))
MAX_LEVELS = MAX_BINS - 1
_EXACT_IN_FLOAT32 = 2**24
_FAMILIES = {"text": "text", "number": "numbers", "time": "dates", "duration": "durations"}
_ARROW_TIMES = ("date", "time", "duration")  # how arrow's types begin, those of timestamps too
_MISSING_TYPES = ("NoneType", "NAType", "NaTType")


@dataclass(frozen=True, eq=False)
class Column:
    """One feature: floats with NaN for missing, or (when `levels` is given) int32 codes with -1 for missing.

    `rule` says how numbers or levels were made of what was given, where that is not as they are.
    """

    name: str
    values: np.ndarray
    levels: tuple[Level, ...] | None = None
    rule: Rule | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return self.values.dtype

    def with_values(self, values: np.ndarray) -> Column:
        """The same column of other rows."""
        return replace(self, values=values)

    def taken(self, rows: Any) -> Column:
        """Some of its rows, in this order."""
        return self.with_values(self.values[rows])


class SparseColumn(Column):
    """A numeric column of zeros but for some rows: `values` are made each time somebody asks for them."""

    n_rows: int
    rows: RowIds  # increasing
    stored: np.ndarray  # their values; NaN for missing

    def __init__(self, name: str, n_rows: int, rows: RowIds, stored: np.ndarray) -> None:
        own = {"name": name, "levels": None, "rule": None, "n_rows": n_rows, "rows": rows, "stored": stored}
        self.__dict__.update(own)  # it is frozen

    @property
    def values(self) -> np.ndarray:
        """All of them."""
        values = np.zeros(self.n_rows, self.stored.dtype)
        values[self.rows] = self.stored
        return values

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return self.stored.dtype

    def with_values(self, values: np.ndarray) -> Column:
        """The same column of other rows."""
        there = np.flatnonzero(values)  # NaN too
        return SparseColumn(self.name, len(values), there.astype(ROW_ID), values[there])

    def tally(self, weights: Ints | None = None) -> tuple[np.ndarray, Ints]:
        """Values with whole weights, 1 for each row unless given: those stored, and one zero for all the others."""
        stored = np.ones(len(self.rows), np.int64) if weights is None else weights[self.rows]
        total = self.n_rows if weights is None else int(weights.sum())
        zeros = np.array([total - int(stored.sum())], np.int64)
        return np.append(self.stored, self.stored.dtype.type(0)), np.concatenate([stored, zeros])


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
        wanted = np.dtype(dtype) if dtype is not None else self.common_dtype
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

    def with_values(self, place: int, values: np.ndarray) -> Table:
        """The same table, but for the values (or codes of levels) of one column."""
        columns = list(self.columns)
        columns[place] = Column(columns[place].name, values, columns[place].levels)
        return Table(tuple(columns), self.n_rows, self.names, self.has_names)

    @cached_property
    def grid(self) -> np.ndarray | None:
        """All columns as one C-ordered 2-D view, if that is how they lie in memory (numpy, one-block pandas)."""
        if self.is_sparse:
            return None
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
    def is_sparse(self) -> bool:
        """Whether it was a sparse matrix: then rows are not to be looked at as a matrix."""
        return any(isinstance(column, SparseColumn) for column in self.columns)

    def taken(self, rows: Any) -> Table:
        """Some of the rows, in this order."""
        return replace(self, columns=tuple(column.taken(rows) for column in self.columns), n_rows=len(rows))

    @cached_property
    def common_dtype(self) -> np.dtype[Any]:
        """float64 if a numeric column has it, else float32."""
        wide = any(column.levels is None and column.dtype == np.float64 for column in self.columns)
        return np.dtype(np.float64 if wide else np.float32)


def read_table(
    X: Any,
    *,
    categorical_features: Any = "from_dtype",
    like: Sequence[FeatureBins] | None = None,
    parse_text: bool = False,
    many_levels: ManyLevels = "refuse",
    where: str = "X",
) -> Table:
    """Read a numpy array, a pandas or polars data frame, a pyarrow table or a sparse matrix of scipy.

    `categorical_features`: "from_dtype" (category, text, dictionary and enum columns are categorical), names or indices
    of columns that are categorical too, None (no column is), or a boolean mask: exactly those.
    `like`: the features of a trained model. Columns are found by name (by position where either side has no names),
    put into the model's order, and levels are mapped onto the model's; unseen ones become -1. Text where the model has
    numbers is refused unless `parse_text`.
    `many_levels`: what becomes of a column with more than 255 (`level_groups.py`).
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
        return _read_like(source, like, where, parse_text=parse_text)
    check_many_levels(many_levels)
    wanted = _wanted_categorical(source, categorical_features, where)
    columns = []
    for name, raw, wish in zip(source.names, source.columns, wanted, strict=True):
        label = f"{where}: column {name!r}"
        is_categorical = _has_levels(raw, wish, source, label)
        columns.append(_own_levels(name, raw, label, many_levels) if is_categorical else numeric(name, raw, label))
    return Table(tuple(columns), source.n_rows, source.names, source.has_names)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


# --- which column is what ------------------------------------------------------------------------------------------


def are_categorical(X: Any, categorical_features: Any, where: str = "X") -> list[bool]:
    """Which columns `read_table` would take for categorical; of a data frame whose types tell, it needs no rows."""
    source = open_source(X, where)
    wanted = zip(source.names, source.columns, _wanted_categorical(source, categorical_features, where), strict=True)
    return [_has_levels(raw, wish, source, f"{where}: column {name!r}") for name, raw, wish in wanted]


def time_rules(X: Any, where: str = "X") -> dict[str, TimeRule | None]:
    """By column: whether its type says that it holds times or durations; of a data frame this needs no rows."""
    source = open_source(X, where)
    return {
        name: raw.rule if isinstance(raw, Times) else None
        for name, raw in zip(source.names, source.columns, strict=True)
    }


def _has_levels(raw: Raw, wish: bool | None, source: Source, label: str) -> bool:
    if wish is None and isinstance(raw, Coded):  # for Python objects in a data frame: whether they are text
        return raw.declared or (source.text_is_categorical and family_of(raw.values, label) == "text")
    return bool(wish)


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
    wanted: list[bool | None] = [None] * n_features
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


def _read_like(source: Source, like: Sequence[FeatureBins], where: str, *, parse_text: bool) -> Table:
    columns = []
    for feature, raw in zip(like, columns_like(source, like, where), strict=True):
        label = f"{where}: column {feature.name!r}"
        if feature.levels is None:
            column = numeric(feature.name, raw, label, for_model=not parse_text)
            columns.append(_with_rule(column, raw, feature.rule, label))
        else:
            columns.append(_categorical(feature.name, raw, feature.levels, feature.rule, label))
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


def source_of_table(table: Table) -> Source:
    """A table that was read already, as if it came from outside."""
    return Source(table.names, table.has_names, table.n_rows, map(_raw_column, table.columns), text_is_categorical=True)


def _raw_column(column: Column) -> Raw:
    if column.levels is not None:
        return Coded(column.values, list(column.levels), declared=True, rule=column.rule)
    if isinstance(column, SparseColumn):
        return Sparse(column.n_rows, column.rows, column.stored)
    return column.values if column.rule not in TIME_RULES else Times(column.values, column.rule)


# --- one column ----------------------------------------------------------------------------------------------------


def numeric(name: str, raw: Raw, label: str, *, for_model: bool = False) -> Column:
    """A column of numbers; of text only where all of it reads as numbers, and not `for_model`."""
    if isinstance(raw, np.ndarray):
        return Column(name, as_floats(raw, label))
    if isinstance(raw, Times):
        return Column(name, raw.seconds, rule=raw.rule)
    if isinstance(raw, Sparse):
        return SparseColumn(name, raw.n_rows, raw.rows, as_floats(raw.stored, label))
    family = family_of(raw.values, label)
    if family in TIME_RULES:
        seconds = [math.nan if is_missing(value) else seconds_of_value(value) for value in raw.values]
        return Column(name, np.array([*seconds, math.nan])[raw.codes], rule=family)
    if family == "text" and for_model:
        raise InvalidInput(f"{label} is numeric in the model, but holds text here")
    numbers = [_parsed(value, label) for value in raw.values]
    return Column(name, narrowest(np.array([*numbers, math.nan]))[raw.codes])  # the last place answers code -1


def _with_rule(column: Column, raw: Raw, rule: Rule | None, label: str) -> Column:
    """The column as a model has it, if it holds what the model does: times, durations or plain numbers."""
    if column.rule == rule:
        return column
    if isinstance(raw, Coded) and column.rule is None and not (raw.codes >= 0).any():  # objects that are all missing
        return replace(column, rule=rule)
    raise _other_rule(rule, column.rule, label)


def _other_rule(wanted: Rule | None, found: Rule | None, label: str) -> InvalidInput:
    words = {"time": "dates or times", "duration": "durations", None: "numbers"}
    here, there = words[found], words[wanted]
    return InvalidInput(f"{label} holds {there} in the model, but {here} here; give it as {there}")


def check_rule(raw: Raw, rule: Rule | None, label: str) -> None:
    """Raise if the type of a column, whatever its rows hold, is not that of times, durations or numbers as wanted."""
    found = raw.rule if isinstance(raw, Times) else None
    if not isinstance(raw, Coded) and found != rule:
        raise _other_rule(rule, found, label)


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


def as_coded(raw: Raw, label: str) -> Coded:
    """Levels as codes, also where they are numbers that somebody declared to be levels."""
    if isinstance(raw, Coded):
        return raw
    if isinstance(raw, Times):
        raise InvalidInput(f"{label} holds dates, times or durations, which are numbers here, and no levels")
    return coded_values(raw.dense() if isinstance(raw, Sparse) else raw, label)


def _own_levels(name: str, raw: Raw, label: str, many_levels: ManyLevels) -> Column:
    """A categorical column with levels of its own; those of a table that was read already keep their rule."""
    coded = as_coded(raw, label)
    if coded.rule is not None:
        return Column(name, coded.codes, tuple(coded.values), coded.rule)
    family_of(coded.values, label)
    plain = plain_levels(coded)
    levels, rule = sorted_levels(plain, rows_of_levels(plain, coded.codes), label, many_levels, declared=coded.declared)
    return _categorical(name, coded, levels, rule, label)


def _categorical(name: str, raw: Raw, levels: tuple[Level, ...], rule: Rule | None, label: str) -> Column:
    """A column with the levels of a model, or with those that were just found."""
    coded = as_coded(raw, label)
    if coded.rule is not None:
        check_groups(coded, levels, rule, label)
        return Column(name, coded.codes, levels, rule)
    family = family_of(coded.values, label)
    if family in TIME_RULES:
        raise InvalidInput(f"{label} has levels in the model, but holds dates, times or durations here")
    plain = plain_levels(coded)
    if rule in GROUP_RULES:
        found = places(plain, levels, rule)
    else:
        if family != "nothing" and levels and isinstance(levels[0], str) != (family == "text"):
            theirs = "text" if isinstance(levels[0], str) else "numbers"
            raise InvalidInput(f"{label} has levels that are {theirs} in the model, but holds {family} here")
        index = {level: code for code, level in enumerate(levels)}
        found = [-1 if value is None else index.get(value, -1) for value in plain]
    return Column(name, np.array([*found, -1], np.int32)[coded.codes], levels, rule)  # the last place answers code -1


def check_groups(coded: Coded, levels: tuple[Level, ...] | None, rule: Rule | None, label: str) -> None:
    """Raise unless the groups of a table that was read already are those that are wanted."""
    if (coded.rule, tuple(coded.values)) != (rule, levels):
        raise InvalidInput(f"{label} was put into groups of levels already, and they are not those of the model")


def plain_levels(coded: Coded) -> list[Level | None]:
    """The values as levels; None for those that are missing."""
    return [None if is_missing(value) else plain_level(value) for value in coded.values]


def rows_of_levels(plain: Sequence[Level | None], codes: np.ndarray) -> dict[Level, int]:
    """How many rows have each level; 0 for one that is only declared."""
    counts: dict[Level, int] = {}
    for value, count in zip(plain, np.bincount(codes[codes >= 0], minlength=len(plain)).tolist(), strict=True):
        if value is not None:
            counts[value] = counts.get(value, 0) + count
    return counts


def sorted_levels(
    plain: Iterable[Level | None], n_rows: dict[Level, int], label: str, many_levels: ManyLevels, *, declared: bool
) -> tuple[tuple[Level, ...], Rule | None]:
    """The levels of a column, and the rule that they are groups by, if they are too many.

    They are those that are declared; if these are too many, or none is, those that rows have.
    """
    kept = {value for value in plain if value is not None}
    if not declared or len(kept) > MAX_LEVELS:
        kept = {value for value, count in n_rows.items() if count}
    if any(isinstance(level, float) and math.isinf(level) for level in kept):
        raise InvalidInput(f"{label} has an infinite value, which cannot be a level")
    if len(kept) <= MAX_LEVELS:
        return tuple(sorted(kept)), None  # all text or all numbers, as family_of has checked
    if many_levels == "refuse":
        raise InvalidInput(
            f"{label} has {len(kept)} levels, but at most {MAX_LEVELS} are supported; group the rare ones, give the "
            "column as numbers, or let it be done by a rule: many_levels='hash' or 'frequent'"
        )
    levels = hash_groups(MOST_GROUPS) if many_levels == "hash" else frequent_levels(n_rows)
    return levels, many_levels


def plain_level(value: Any) -> Level:
    """A JSON-able level; 3.0 and 3 are the same level, written 3."""
    item: Level = value.item() if isinstance(value, np.generic) else value
    if isinstance(item, float) and item.is_integer():
        return int(item)
    return item if isinstance(item, bool | int | float) else str(item)


# --- sources: a data frame or array of any supported library ---------------------------------------------------------


class Coded(NamedTuple):
    """Codes into a list of Python values, -1 for missing; the values may repeat, be missing, or occur in no row."""

    codes: np.ndarray
    values: list[Any]
    declared: bool  # the column's type says that these are levels; else the values have to be looked at
    rule: Rule | None = None  # they are groups of levels already


class Times(NamedTuple):
    """Dates, times or durations in seconds, NaN for missing."""

    seconds: np.ndarray
    rule: TimeRule


class Sparse(NamedTuple):
    """Zeros but for some rows, in increasing order."""

    n_rows: int
    rows: RowIds
    stored: np.ndarray

    def dense(self) -> np.ndarray:
        """All values."""
        values = np.zeros(self.n_rows, self.stored.dtype)
        values[self.rows] = self.stored
        return values


Raw = np.ndarray | Coded | Times | Sparse


class Source(NamedTuple):
    """What a reader hands over: columns as they were given, before it is decided what each is."""

    names: tuple[str, ...]
    has_names: bool
    n_rows: int
    columns: Iterable[Raw]
    text_is_categorical: bool


def open_source(X: Any, where: str) -> Source:
    """The columns of `X`, whichever library it comes from; `where` names it in errors."""
    library = type(X).__module__.partition(".")[0]
    kind = type(X).__name__
    if hasattr(X, "tocsc"):
        return _open_sparse(X, where)
    if isinstance(X, (str, PathLike)) or kind == "Blocks":
        raise InvalidType(
            f"{where} is a table in files, which only the plain estimators read some rows at a time "
            "(BoostedTreesClassifier, BoostedTreesRegressor: fit, predict, apply); give it as a table in memory"
        )
    if library == "polars" and kind == "LazyFrame":
        raise InvalidType(f"{where} is a polars LazyFrame; call .collect() first")
    if library == "pandas" and kind == "DataFrame":
        return _open_frame(list(X.columns), len(X), lambda j: X.iloc[:, j], _raw_pandas, where)
    if library == "polars" and kind == "DataFrame":
        return _open_frame(X.columns, X.height, X.to_series, _raw_polars, where)
    if library == "pyarrow" and kind in ("Table", "RecordBatch"):
        return _open_frame(X.schema.names, X.num_rows, X.column, _raw_arrow, where)
    return _open_numpy(X, where)


def _open_sparse(X: Any, where: str) -> Source:
    if getattr(X, "ndim", 2) != 2:
        raise InvalidInput(f"Expected 2D array, got {X.ndim}D sparse array instead ({where}).")
    csc = X.tocsc()
    try:
        csc.check_format(full_check=True)  # kernels go by these numbers
    except ValueError as problem:
        raise InvalidInput(f"{where} is not a sparse matrix: {problem}") from None
    if not csc.has_canonical_format:
        csc = csc.copy()  # else it may be the caller's
        csc.sum_duplicates()
    n_rows, n_features = csc.shape
    rows, stored = csc.indices.astype(ROW_ID), csc.data
    starts = csc.indptr.tolist()
    raws = [Sparse(n_rows, rows[a:b], stored[a:b]) for a, b in pairwise(starts)]
    return Source(default_names(n_features), False, n_rows, raws, text_is_categorical=False)


def _open_numpy(X: Any, where: str) -> Source:
    try:
        array = np.asarray(_unmasked(X) if hasattr(X, "filled") else X)
    except ValueError as problem:
        raise InvalidInput(f"{where} is not a table of numbers: {problem}") from problem
    if array.dtype.kind == "c":
        raise InvalidInput(f"Complex data not supported: {where} is {array.dtype}")
    if array.ndim < 2:
        shape = "scalar" if array.ndim == 0 else "1D"
        raise InvalidInput(
            f"Expected 2D array, got {shape} array instead ({where}). Reshape your data either using "
            "array.reshape(-1, 1) if your data has a single feature "
            "or array.reshape(1, -1) if it contains a single sample."
        )
    if array.ndim > 2:
        raise InvalidInput(f"Found array with dim {array.ndim}, while dim <= 2 is required ({where}).")
    n_rows, n_features = array.shape
    if array.dtype.kind in "iub" and _exact_in_float32(array):
        array = array.astype(np.float32)  # in one piece, so that the rows stay together
    elif array.dtype.kind == "f":
        array = as_floats(array, where)
    raws: Iterable[Raw] = list(array.T)
    if array.dtype.kind in "OUT":
        raws = map(coded_objects, array.T)
    elif array.dtype.kind in "Mm":
        raws = [times(column, where) for column in array.T]
    return Source(default_names(n_features), False, n_rows, raws, text_is_categorical=False)


def _unmasked(X: Any) -> Any:
    """Masked means missing."""
    return X.astype(object).filled(None) if X.dtype.kind in "OUTMm" else X.astype(float).filled(np.nan)


def _open_frame(
    given: list[Any], n_rows: int, column: Callable[[int], Any], read: Callable[[Any, str], Raw], where: str
) -> Source:
    names, has_names = _column_names(given, where)
    raws = (read(column(j), f"{where}: column {name!r}") for j, name in enumerate(names))
    return Source(names, has_names, n_rows, raws, text_is_categorical=True)


def _column_names(given: list[Any], where: str) -> tuple[tuple[str, ...], bool]:
    """scikit-learn's rule: names count if all are strings, are ignored if none is, and must not be mixed."""
    kinds = sorted({type(name).__name__ for name in given})
    if all(isinstance(name, str) for name in given) and given:
        return tuple(str(name) for name in given), True
    if any(isinstance(name, str) for name in given):
        raise InvalidType(
            "Feature names are only supported if all input features have string names, but your input has "
            f"{kinds} as feature name / column name types ({where}). Convert them all to strings, "
            "for example by X.columns = X.columns.astype(str)."
        )
    return default_names(len(given)), False


def _raw_pandas(series: Any, label: str) -> Raw:
    dtype = series.dtype
    if type(dtype).__name__ == "CategoricalDtype":
        codes = series.cat.codes.to_numpy()
        return Coded(codes, series.cat.categories.tolist(), declared=True)
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return coded_objects(series.to_numpy())
    kind = getattr(dtype, "kind", "O")
    if kind in "fiub":
        if isinstance(dtype, np.dtype):
            return np.asarray(series.to_numpy())
        if series.isna().any():  # a nullable type with holes
            holes = series.to_numpy(dtype=np.float64, na_value=np.nan)
            return _narrowed(holes) if kind in "iub" else np.asarray(holes)
        return np.asarray(series.to_numpy(dtype=np.dtype(f"{kind}{dtype.itemsize}")))
    if type(dtype).__name__ == "ArrowDtype" and str(dtype).startswith(_ARROW_TIMES):
        return _raw_arrow(series.array.__arrow_array__(), label)
    if kind in "mM":
        utc = series if isinstance(dtype, np.dtype) else series.dt.tz_convert("UTC").dt.tz_localize(None)
        return times(utc.to_numpy(), label)
    if kind == "c":
        raise _refusal(dtype, label)
    codes, distinct = series.factorize()
    is_text = str(dtype).startswith(("str", "large_str"))
    return Coded(np.asarray(codes), distinct.tolist(), declared=is_text)


def _raw_polars(series: Any, label: str) -> Raw:
    dtype = series.dtype
    kind = str(dtype.base_type())
    if kind == "Boolean":
        return _narrowed(series.cast(float).to_numpy())
    if kind == "Null":
        return _nothing(len(series))
    if kind in ("Date", "Datetime", "Duration"):
        return times(series.to_numpy(), label)
    if kind == "Time":
        return _raw_arrow(series.to_arrow(), label)
    if kind in ("String", "Categorical", "Enum"):
        text = series.cast(str)
        distinct = dtype.categories.to_list() if kind == "Enum" else text.drop_nulls().unique().to_list()
        codes = text.replace_strict(distinct, list(range(len(distinct))), default=-1) if distinct else None
        coded = np.full(len(series), -1, np.int32) if codes is None else np.asarray(codes.to_numpy()).astype(np.int32)
        return Coded(coded, distinct, declared=True)
    if dtype.is_integer():
        return _narrowed(series.to_numpy())
    if dtype.is_float():
        return np.asarray(series.to_numpy())
    raise _refusal(dtype, label)


def _raw_arrow(column: Any, label: str) -> Raw:
    import pyarrow as pa  # loaded already, for the caller holds one of its tables

    kind = column.type
    if pa.types.is_boolean(kind):
        return np.asarray(column.cast(pa.float32()).to_numpy(zero_copy_only=False))
    if pa.types.is_integer(kind):
        return _narrowed(column.to_numpy(zero_copy_only=False))
    if pa.types.is_floating(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if pa.types.is_null(kind):
        return _nothing(len(column))
    if pa.types.is_time(kind):  # of the day
        column = column.cast(pa.time64("ns")).cast(pa.int64()).cast(pa.duration("ns"))
    if pa.types.is_temporal(kind):
        return times(column.to_numpy(zero_copy_only=False), label)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _coded_arrow(column.cast(pa.large_string()).dictionary_encode())
    if pa.types.is_dictionary(kind):
        return _coded_arrow(column)
    raise _refusal(kind, label)


def _coded_arrow(column: Any) -> Coded:
    """Chunks may each have a dictionary of their own: put them one after another and shift the codes."""
    chunks = getattr(column, "chunks", [column])
    values: list[Any] = []
    codes = [np.empty(0, np.int32)]
    for chunk in chunks:
        local = chunk.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
        codes.append(np.where(local < 0, -1, local + len(values)).astype(np.int32))
        values.extend(chunk.dictionary.to_pylist())
    return Coded(np.concatenate(codes), values, declared=True)


def times(values: np.ndarray, label: str) -> Times:
    """Dates, times or durations of numpy's types."""
    try:
        return Times(seconds_of(values), rule_of_dtype(values.dtype))
    except TypeError:  # durations of months and years
        raise _refusal(values.dtype, label) from None


def _nothing(n_rows: int) -> Coded:
    """A column of a type that has no values: it fits every kind of column."""
    return Coded(np.full(n_rows, -1, np.int32), [], declared=False)


def default_names(count: int) -> tuple[str, ...]:
    """What columns without names are called: x0, x1, ..."""
    return tuple(f"x{j}" for j in range(count))


# --- values ---------------------------------------------------------------------------------------------------------


def family_of(values: Iterable[Any], label: str) -> str:
    """What the values are: "text", "number", "time", "duration", or "nothing" where all are missing; else refuses."""
    found = ""
    for value in values:
        if is_missing(value):
            continue
        family = "text" if isinstance(value, str) else time_rule(value) or ("number" if _is_number(value) else "")
        if not family:
            raise InvalidType(
                f"{label} holds a value of type {type(value).__name__!r} (a float() argument must be a string or a "
                "real number); turn the column into numbers or text first"
            )
        if found and found != family:
            two = " and ".join(words for each, words in _FAMILIES.items() if each in (found, family))
            raise InvalidInput(f"{label} mixes {two}; make it all text or all numbers")
        found = family
    return found or "nothing"


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)


def is_missing(value: Any) -> bool:
    """None, NaN, or the NA and NaT of pandas and numpy."""
    if type(value).__name__ in _MISSING_TYPES:
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and math.isnan(value)


def as_floats(values: np.ndarray, label: str) -> np.ndarray:
    """float32 or float64 in native byte order, the narrower one only where it is exact; a view if nothing changes."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "f":
        return values.astype(np.float32 if size <= 4 else np.float64, copy=False)
    if kind == "b" or (kind in "iu" and size <= 2):
        return values.astype(np.float32)
    if kind in "iu":
        return values.astype(np.float32 if _exact_in_float32(values) else np.float64)
    if kind == "c":
        raise InvalidInput(f"Complex data not supported: {label} is {values.dtype}")
    raise _refusal(values.dtype, label)


def narrowest(numbers: np.ndarray) -> np.ndarray:
    """float32 where that is exact for all numbers, else as they are."""
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
    return narrow if np.array_equal(narrow, numbers, equal_nan=True) else numbers


def _exact_in_float32(whole: np.ndarray) -> bool:
    return whole.size == 0 or (int(whole.max()) <= _EXACT_IN_FLOAT32 and int(whole.min()) >= -_EXACT_IN_FLOAT32)


def _narrowed(whole: Any) -> np.ndarray:
    """Whole numbers that became float64 only because some are missing, as float32 where that is exact."""
    values = np.asarray(whole)
    if values.dtype != np.float64:
        return values
    too_large = (np.abs(values) > _EXACT_IN_FLOAT32).any()  # NaN is not
    return values if too_large else values.astype(np.float32)


def _refusal(dtype: Any, label: str) -> InvalidInput:
    return InvalidInput(f"{label} has dtype {dtype}, which is neither numbers nor levels; turn it into numbers first")


def coded_objects(values: Iterable[Any]) -> Coded:
    """Python objects of any kind, coded in order of appearance; values of different types are never confused."""
    index: dict[tuple[type, Any], int] = {}
    distinct: list[Any] = []
    codes = []
    for value in values:
        if is_missing(value):
            codes.append(-1)
            continue
        try:
            code = index.setdefault((type(value), value), len(distinct))
        except TypeError:  # unhashable: a list, a dict, an array; `family_of` will not take it
            code = len(distinct)
        if code == len(distinct):
            distinct.append(value)
        codes.append(code)
    return Coded(np.array(codes, np.int32), distinct, declared=False)


def coded_values(values: np.ndarray, label: str) -> Coded:
    """Values of any type as codes; a type that is neither numbers nor text is refused."""
    kind = values.dtype.kind
    if kind == "O":
        return coded_objects(values)
    if kind not in "biufUT":
        as_floats(values, label)  # raises the error that names the type
    distinct, codes = np.unique(values, return_inverse=True)
    return Coded(codes.reshape(-1), distinct.tolist(), declared=False)
