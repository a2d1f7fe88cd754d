"""Tables in, columns out: whatever library a person keeps data in, the engine sees named columns of numbers or codes.

A numeric column is float32 or float64 with NaN for "missing"; it is a view of the caller's memory wherever that is
possible. A categorical column is int32 codes into its levels, -1 for "missing" (or, for a trained model, "never seen").
Whole numbers become float32 only where every value survives exactly, else float64; float64 itself is exact up to 2**53
and beyond that rounds to the nearest representable number, which never changes the order of two values.

Levels are sorted (numbers by value, text by code point), so they do not depend on the order of rows. Levels that a
pandas category, a polars Enum or an arrow dictionary declares are kept although no row has them, unless that makes more
than 255; text, object and polars Categorical columns have the levels that occur.

A table is read in two steps. `open_source` gives the columns as they are: numpy arrays of numbers, or codes into a list
of values. Arrays are numpy's; data frames are pandas', polars' or pyarrow's, recognised by the module of the object
given: none of the three is ever imported on our own account. `read_table` then decides what each column is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType

if TYPE_CHECKING:
    from hedgerow.engine.binning import FeatureBins

Level = str | int | float | bool
MAX_LEVELS = MAX_BINS - 1
_EXACT_IN_FLOAT32 = 2**24
_MISSING_TYPES = ("NoneType", "NAType", "NaTType")


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

    def with_values(self, place: int, values: np.ndarray) -> Table:
        """The same table, but for the values (or codes of levels) of one column."""
        columns = list(self.columns)
        columns[place] = Column(columns[place].name, values, columns[place].levels)
        return Table(tuple(columns), self.n_rows, self.names, self.has_names)

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
    parse_text: bool = False,
    where: str = "X",
) -> Table:
    """Read a numpy array, a pandas or polars data frame or a pyarrow table.

    `categorical_features`: "from_dtype" (category, text, dictionary and enum columns are categorical), names or indices
    of columns that are categorical too, None (no column is), or a boolean mask: exactly those.
    `like`: the features of a trained model. Columns are found by name (by position where either side has no names),
    put into the model's order, and levels are mapped onto the model's; unseen ones become -1. Text where the model has
    numbers is refused unless `parse_text`.
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
    wanted = _wanted_categorical(source, categorical_features, where)
    columns = []
    for name, raw, wish in zip(source.names, source.columns, wanted, strict=True):
        label = f"{where}: column {name!r}"
        is_categorical = _has_levels(raw, wish, source, label)
        columns.append(_categorical(name, raw, None, label) if is_categorical else _numeric(name, raw, label))
    return Table(tuple(columns), source.n_rows, source.names, source.has_names)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


# --- which column is what ------------------------------------------------------------------------------------------


def are_categorical(X: Any, categorical_features: Any, where: str = "X") -> list[bool]:
    """Which columns `read_table` would take for categorical; of a data frame whose types tell, it needs no rows."""
    source = open_source(X, where)
    wanted = zip(source.names, source.columns, _wanted_categorical(source, categorical_features, where), strict=True)
    return [_has_levels(raw, wish, source, f"{where}: column {name!r}") for name, raw, wish in wanted]


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
            columns.append(_numeric(feature.name, raw, label, for_model=not parse_text))
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
        levels = sorted_levels(plain, coded, label)
    elif family != "nothing" and levels and isinstance(levels[0], str) != (family == "text"):
        theirs = "text" if isinstance(levels[0], str) else "numbers"
        raise InvalidInput(f"{label} has levels that are {theirs} in the model, but holds {family} here")
    index = {level: code for code, level in enumerate(levels)}
    # The last place answers code -1.
    lookup = np.array([-1 if value is None else index.get(value, -1) for value in plain] + [-1], np.int32)
    return Column(name, lookup[coded.codes], levels)


def sorted_levels(plain: Sequence[Level | None], coded: Coded, label: str) -> tuple[Level, ...]:
    """The levels of a column whose values are `plain` (None: missing): those declared; if too many, those in rows."""
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


# --- sources: a data frame or array of any supported library ---------------------------------------------------------


class Coded(NamedTuple):
    """Codes into a list of Python values, -1 for missing; the values may repeat, be missing, or occur in no row."""

    codes: np.ndarray
    values: list[Any]
    declared: bool  # the column's type says that these are levels; else the values have to be looked at


Raw = np.ndarray | Coded


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
    if library == "scipy" or hasattr(X, "tocsr"):
        raise InvalidType(
            f"Sparse data was passed for {where}, but dense data is required; densify it with X.toarray()"
        )
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
    raws: Iterable[Raw] = map(coded_objects, array.T) if array.dtype.kind in "OUT" else list(array.T)
    return Source(default_names(n_features), False, n_rows, raws, text_is_categorical=False)


def _unmasked(X: Any) -> Any:
    """Masked means missing."""
    return X.astype(object).filled(None) if X.dtype.kind in "OUT" else X.astype(float).filled(np.nan)


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
    if kind in "mMc":
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
        return np.full(len(series), np.nan, np.float32)
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
        return np.full(len(column), np.nan, np.float32)
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


def default_names(count: int) -> tuple[str, ...]:
    """What columns without names are called: x0, x1, ..."""
    return tuple(f"x{j}" for j in range(count))


# --- values ---------------------------------------------------------------------------------------------------------


def family_of(values: Iterable[Any], label: str) -> str:
    """What the values are: "text", "number", or "nothing" where all are missing. Refuses anything else."""
    found = ""
    for value in values:
        if is_missing(value):
            continue
        family = "text" if isinstance(value, str) else "number" if _is_number(value) else ""
        if not family:
            raise InvalidType(
                f"{label} holds a value of type {type(value).__name__!r} (a float() argument must be a string or a "
                "real number); turn the column into numbers or text first"
            )
        if found and found != family:
            raise InvalidInput(f"{label} mixes text and numbers; make it all text or all numbers")
        found = family
    return found or "nothing"


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)


def is_missing(value: Any) -> bool:
    """None, NaN, or the NA and NaT of pandas."""
    if type(value).__name__ in _MISSING_TYPES:
        return True
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
