"""Canaries: records made to be noticed, whose presence an audit tries to tell from the outcome of a training.

A guarantee holds for every record, so the adversary may choose the one that a training is most likely to betray: alone
at the edge of the public bounds, with the rarest level and the label that nobody expects there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.errors import InvalidInput
from hedgerow.schema import CategoricalColumn, NumericColumn, Schema


@dataclass(frozen=True)
class Canary:
    """One record, its values in the order of the schema's columns, and its label."""

    values: tuple[Any, ...]
    label: Any

    def appended_to(self, X: Any, y: Any) -> tuple[Any, npt.NDArray[Any]]:
        """The table and the labels with this record at their end; `X` is a matrix, or a frame of pandas."""
        return append([self], X, y)


def append(canaries: Sequence[Canary], X: Any, y: Any) -> tuple[Any, npt.NDArray[Any]]:
    """The table and the labels with these records at their end."""
    labels = np.concatenate([np.asarray(y), np.array([canary.label for canary in canaries], np.asarray(y).dtype)])
    rows = [canary.values for canary in canaries]
    if isinstance(X, np.ndarray):
        return np.concatenate([X, np.array(rows, X.dtype).reshape(len(rows), X.shape[1])]), labels
    if not hasattr(X, "iloc"):
        raise InvalidInput(f"canaries can be added to matrices and to pandas frames, not to {type(X).__name__}")
    import pandas as pd

    more = pd.DataFrame(rows, columns=X.columns).astype(X.dtypes.to_dict())
    return pd.concat([X, more], ignore_index=True), labels


def canary_for(schema: Schema, X: Any = None, y: Any = None) -> Canary:
    """The record that sticks out most.

    From the schema alone: every number at its upper bound, the last of the levels and of the classes. An adversary who
    knows the other rows passes them: then each number is at the bound that is farther from the middle of the rows, and
    level and label are those that occur least.
    """
    columns = [None] * len(schema.columns) if X is None else _columns(X, len(schema.columns))
    values = [
        _rarest(column.levels, known) if isinstance(column, CategoricalColumn) else _far_end(column, known)
        for column, known in zip(schema.columns, columns, strict=True)
    ]
    if schema.classes is not None:
        return Canary(tuple(values), _rarest(schema.classes, y))
    if schema.label_bounds is None:
        raise InvalidInput("a canary needs a label: the schema must state classes or label_bounds")
    low, high = schema.label_bounds
    return Canary(tuple(values), low if y is not None and np.mean(np.asarray(y)) > (low + high) / 2.0 else high)


def _columns(X: Any, n_columns: int) -> list[npt.NDArray[Any]]:
    if X.shape[1] != n_columns:
        raise InvalidInput(f"the schema describes {n_columns} columns, but the table has {X.shape[1]}")
    return [np.asarray(X[:, j] if isinstance(X, np.ndarray) else X.iloc[:, j]) for j in range(n_columns)]


def _rarest(levels: Sequence[Any], known: Any) -> Any:
    """The level that occurs least among the known values, the last of several; the last of all if none are known."""
    if known is None:
        return levels[-1]
    values = np.asarray(known)
    counts = [np.count_nonzero(values == level) for level in levels]
    return levels[len(levels) - 1 - int(np.argmin(counts[::-1]))]


def _far_end(column: NumericColumn, known: npt.NDArray[Any] | None) -> float:
    if known is None:
        return column.high
    middle = float(np.nanmedian(known.astype(np.float64)))
    return column.low if middle > (column.low + column.high) / 2.0 else column.high
