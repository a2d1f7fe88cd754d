"""Sources: a data frame or array of any supported library as named columns, before it is decided what each column is.

A column comes as a numpy array of numbers (a view of the caller's memory where possible) or as codes into a list of
values. Arrays are numpy's; data frames are pandas', polars' or pyarrow's, recognised by the module of the object given:
none of the three is ever imported on our own account.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from hedgerow.errors import InvalidInput, InvalidType

_EXACT_IN_FLOAT32 = 2**24
_MISSING_TYPES = ("NoneType", "NAType", "NaTType")


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
    if library == "pandas" and kind == "DataFrame":
        return _open_pandas(X, where)
    if library == "polars" and kind == "DataFrame":
        return _open_polars(X, where)
    if library == "polars" and kind == "LazyFrame":
        raise InvalidType(f"{where} is a polars LazyFrame; call .collect() first")
    if library == "pyarrow" and kind in ("Table", "RecordBatch"):
        return _open_arrow(X, where)
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
    if array.dtype.kind in "OUT":
        names = default_names(n_features)
        raws: Iterable[Raw] = (coded_objects(array[:, j]) for j in range(n_features))
        return Source(names, False, n_rows, raws, text_is_categorical=False)
    if array.dtype.kind in "iub" and _exact_in_float32(array):
        array = array.astype(np.float32)  # in one piece, so that the rows stay together
    elif array.dtype.kind == "f":
        array = as_floats(array, where)
    return Source(default_names(n_features), False, n_rows, list(array.T), text_is_categorical=False)


def _unmasked(X: Any) -> Any:
    """Masked means missing."""
    return X.astype(object).filled(None) if X.dtype.kind in "OUT" else X.astype(float).filled(np.nan)


def _open_pandas(X: Any, where: str) -> Source:
    names, has_names = _column_names(list(X.columns), where)
    raws = (_raw_pandas(X.iloc[:, j], f"{where}: column {name!r}") for j, name in enumerate(names))
    return Source(names, has_names, len(X), raws, text_is_categorical=True)


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
            return _numpy(series.to_numpy())
        if series.isna().any():  # a nullable type with holes
            holes = series.to_numpy(dtype=np.float64, na_value=np.nan)
            return _narrowed(holes) if kind in "iub" else _numpy(holes)
        return _numpy(series.to_numpy(dtype=np.dtype(f"{kind}{dtype.itemsize}")))
    if kind in "mMc":
        raise _refusal(dtype, label)
    codes, distinct = series.factorize()
    is_text = str(dtype).startswith(("str", "large_str"))
    return Coded(np.asarray(codes), distinct.tolist(), declared=is_text)


def _open_polars(X: Any, where: str) -> Source:
    raws = (_raw_polars(X[name], f"{where}: column {name!r}") for name in X.columns)
    return Source(tuple(X.columns), True, X.height, raws, text_is_categorical=True)


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
        coded = np.full(len(series), -1, np.int32) if codes is None else _numpy(codes.to_numpy()).astype(np.int32)
        return Coded(coded, distinct, declared=True)
    if dtype.is_integer():
        return _narrowed(series.to_numpy())
    if dtype.is_float():
        return _numpy(series.to_numpy())
    raise _refusal(dtype, label)


def _open_arrow(X: Any, where: str) -> Source:
    names, has_names = _column_names(list(X.schema.names), where)
    raws = (_raw_arrow(X.column(j), f"{where}: column {name!r}") for j, name in enumerate(names))
    return Source(names, has_names, X.num_rows, raws, text_is_categorical=True)


def _raw_arrow(column: Any, label: str) -> Raw:
    import pyarrow as pa  # loaded already, for the caller holds one of its tables

    kind = column.type
    if pa.types.is_boolean(kind):
        return _numpy(column.cast(pa.float32()).to_numpy(zero_copy_only=False))
    if pa.types.is_integer(kind):
        return _narrowed(column.to_numpy(zero_copy_only=False))
    if pa.types.is_floating(kind):
        return _numpy(column.to_numpy(zero_copy_only=False))
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


def _numpy(values: Any) -> np.ndarray:
    array: np.ndarray = np.asarray(values)
    return array


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
    values = _numpy(whole)
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
