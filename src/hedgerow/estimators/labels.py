"""Labels and weights: from what people pass as `y` and `sample_weight` to checked one-dimensional arrays.

Lists, numpy arrays, pandas, polars and arrow columns are taken; neither pandas nor polars need be installed. What
cannot be trained on is refused in a sentence that names the first offending row.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import DataConversionWarning

from hedgerow.engine.dtypes import Floats
from hedgerow.errors import InvalidInput

Array = npt.NDArray[Any]

SMALL_SPAN = 4096
"""Integer labels within such a span are encoded by counting instead of sorting."""


LARGEST = 1e37
"""Gradients and leaf values are single precision, which ends at 3e38."""


def read_classes(y: Any, n_rows: int, where: str = "y") -> Array:
    """Class labels as given: strings, booleans or whole numbers, none missing."""
    values = _one_dimensional(y, n_rows, where)
    if values.dtype.kind == "f" and (values != np.floor(values)).any():
        example = values[values != np.floor(values)][0]
        raise InvalidInput(
            f"Unknown label type: continuous. A classifier needs classes, but {where} holds numbers with fractions "
            f"such as {example:g}; round them to classes, or use BoostedTreesRegressor"
        )
    if values.dtype.kind in "mMSV":
        raise InvalidInput(
            f"Unknown label type: {values.dtype}. A classifier needs strings, booleans or whole numbers in {where}"
        )
    return values


def encode_classes(values: Array, where: str = "y") -> tuple[Array, Floats]:
    """The sorted distinct classes, and each row's class as 0.0, 1.0, ..."""
    if values.dtype.kind in "bui" and values.size:
        wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
        low = wide.min()
        span = int(wide.max()) - int(low) + 1
        if span <= SMALL_SPAN:
            offsets = (wide - low).astype(np.intp)
            present = np.bincount(offsets, minlength=span) > 0
            classes = (np.flatnonzero(present).astype(wide.dtype) + low).astype(values.dtype)
            positions: Floats = np.cumsum(present).astype(np.float64) - 1.0
            return classes, positions[offsets]
    try:
        classes, codes = np.unique(values, return_inverse=True)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values})
        raise InvalidInput(
            f"Unknown label type: {where} mixes {' and '.join(kinds)}; make all labels of one kind"
        ) from None
    return classes, codes.astype(np.float64)


def encode_like(values: Array, classes: Array, where: str) -> Floats:
    """Each row's position in `classes`; a label that is not among them is an error."""
    known = {label: position for position, label in enumerate(classes.tolist())}
    found, inverse = encode_classes(values)
    unknown = [label for label in found.tolist() if label not in known]
    if unknown:
        raise InvalidInput(
            f"{where} holds the label {unknown[0]!r}, which is not among the classes of the training labels: "
            + ", ".join(repr(label) for label in classes.tolist()[:10])
        )
    positions = np.array([known[label] for label in found.tolist()], dtype=np.float64)
    return positions[inverse.astype(np.intp)]


def read_targets(y: Any, n_rows: int, where: str = "y") -> Floats:
    """Regression targets as finite float64."""
    values = _one_dimensional(y, n_rows, where)
    if values.dtype.kind not in "buif":
        example = values.tolist()[0]
        raise InvalidInput(f"{where} must hold numbers, got {example!r} of type {type(example).__name__} in row 0")
    targets = values.astype(np.float64)
    if targets.size and np.abs(targets).max() > LARGEST:
        row = int(np.argmax(np.abs(targets)))
        raise InvalidInput(f"{where} is {targets[row]:g} in row {row}; beyond {LARGEST:g} divide by a constant first")
    return targets


def read_weights(sample_weight: Any, n_rows: int, where: str = "sample_weight") -> Floats | None:
    """Weights as finite, non-negative float64 that are not all zero; None stays None."""
    if sample_weight is None:
        return None
    if np.isscalar(sample_weight):
        sample_weight = np.full(n_rows, sample_weight)
    weights = read_targets(sample_weight, n_rows, where)
    if (weights < 0).any():
        row = int(np.argmax(weights < 0))
        raise InvalidInput(
            f"Negative values in data passed to {where}: {weights[row]:g} in row {row}; weights must be at least 0"
        )
    if not weights.any():
        raise InvalidInput(f"all weights in {where} are zero: at least one row must count")
    return weights


def _one_dimensional(values: Any, n_rows: int, where: str) -> Array:
    """One value per row, none of them missing or infinite, as an array of the plainest dtype that holds them."""
    if values is None:
        raise InvalidInput(f"fit requires {where} to be passed, but the target {where} is None")
    array = _as_array(values)
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn(
            f"A column-vector {where} was passed when a 1d array was expected. Please change the shape of {where} to "
            "(n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=6,
        )
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidInput(f"{where} should be a 1d array with one value per row, got shape {array.shape}")
    if array.shape[0] != n_rows:
        raise InvalidInput(f"X and {where} must have as many rows: X has {n_rows}, {where} has {array.shape[0]}")
    if array.dtype.kind == "c":
        raise InvalidInput(f"Complex data not supported: {where} has dtype {array.dtype}")
    if array.dtype.kind == "O":
        array = _plain(array, where)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        _refuse_first(~np.isfinite(array), where, array)
    return array


def _as_array(values: Any) -> Array:
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "dictionary_decode"):  # arrow's dictionary arrays convert to their codes otherwise
        values = values.dictionary_decode()
    if hasattr(values, "to_numpy"):  # pandas, polars and arrow columns
        try:
            return np.asarray(values.to_numpy(zero_copy_only=False))
        except TypeError:
            return np.asarray(values.to_numpy())
    return exact_array(values)


def exact_array(values: Any) -> Array:
    """`np.array(values)` in which whole numbers keep their values: numpy makes floats of those beyond 2^63."""
    array = np.asarray(values)
    if array.dtype.kind != "f" or array.ndim != 1 or not array.size or not np.abs(array).max() >= 2**53:
        return array
    plain = list(values)
    if not all(isinstance(value, int | np.integer) for value in plain):
        return array
    fits = all(0 <= value < 2**64 for value in plain)
    return np.array(plain, np.uint64 if fits else object)


def _plain(array: Array, where: str) -> Array:
    """Python objects as numbers or booleans where they are; strings stay objects."""
    missing = np.fromiter((_is_missing(value) for value in array), dtype=np.bool_, count=array.size)
    if missing.any():
        _refuse_first(missing, where, array)
    if all(isinstance(value, str) for value in array):
        return array
    plain = exact_array(array.tolist())
    return plain if plain.dtype.kind in "buif" and plain.ndim == 1 else array


def _is_missing(value: object) -> bool:
    try:
        return value is None or bool(value != value)  # noqa: PLR0124 - only NaN and NaT differ from themselves
    except (TypeError, ValueError):  # pandas.NA refuses to be a truth value; an array in a cell has many
        return True


def _refuse_first(bad: npt.NDArray[np.bool_], where: str, array: Array) -> None:
    row = int(np.argmax(bad))
    word = "infinity" if array.dtype.kind == "f" and np.isinf(array[row]) else "NaN"
    raise InvalidInput(
        f"Input {where} contains {word}: {int(bad.sum())} of {bad.size} rows, the first is row {row}; "
        "drop these rows or fill them in"
    )
