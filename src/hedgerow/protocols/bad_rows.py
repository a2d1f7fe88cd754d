"""Rows that do not fit the schema: each becomes one that does, or one that does not count, whatever it holds.

    a number beyond its bounds                       the nearest bound
    a gap, a level that is not listed, text where    the column's cell of missing values; where it has none, a public
    a number should be                               default: the middle of the bounds, the level "other" or the first
    a label that is no listed class, or is missing   the row does not count: it adds nothing to any sum

What becomes of a row depends on the row and on the schema, and on no other row. So two tables that differ by one row
still differ by at most one row afterwards, and every bound on what one row can do to a sum holds for what was given,
not only for what fits. No error says anything about a row either; how many rows did not fit may be released with noise.

Where columns are divided, a row can be left out only by a label holder that trains alone. Elsewhere a label that is
unknown becomes the first class or the middle of the range, and each party is told its own number of misfits, nobody
else (`protocols.vertical.common.tables`).

`on_bad_rows="raise"` is for rows that are public: the first kind of misfit that is found is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.engine.sources import coded_values
from hedgerow.engine.table import Column as TableColumn
from hedgerow.engine.table import Table, read_table
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.protocols.tolerant import numbers_of, places, places_of, read_tolerantly, without_rows
from hedgerow.runtime.options import option
from hedgerow.schema import Column, NumericColumn, Schema

OnBadRows = Literal["map", "raise"]


def on_bad_rows() -> Any:
    """The option of a job that says what becomes of rows that do not fit."""
    meaning = "what becomes of rows that do not fit what is public: mapped, or an error, which gives the guarantee up"
    return option("map", meaning, words="'map' or 'raise'")


RAISED = (
    "on_bad_rows='raise': that every row fits the schema was told exactly, since any other row would have been an error"
)
"""Why a training that raises is not private, for statements."""

MISFITS = "Rows with a value or a label that the schema does not allow."
MISFITS_FACT = "rows that did not fit the schema (noisy estimate)"
"""What statements call their number, which is released with noise."""

OTHER = "other"
_ROWS_AT_A_TIME = 1 << 14


class FittedRows(NamedTuple):
    """A table and its labels after all of this."""

    table: Table
    """Gaps are only where the schema allows them. Numbers may still lie beyond their bounds; bins clip them."""
    labels: Floats
    """The place in the schema's list of classes; or a number, clipped to the label's bounds."""
    counts: Bools
    """[rows]: whether the row counts. One that does not must add nothing to any sum."""
    misfits: Bools
    """[rows]: which rows did not fit, but for numbers beyond the bounds of a column. Not private."""


class FittedLabels(NamedTuple):
    """Labels as the schema has them; see `FittedRows`."""

    values: Floats
    counts: Bools
    misfits: Bools


def check_on_bad_rows(value: Any) -> None:
    """InvalidParameter unless it is one of the two ways."""
    if value not in get_args(OnBadRows):
        raise InvalidParameter(f"on_bad_rows must be 'map' or 'raise', got {value!r}")


def stamp_of(stamp: str | None, on_bad_rows: str) -> str | None:
    """The stamp of a federated run: what it would be, unless rows that did not fit were errors."""
    if on_bad_rows == "map" or (stamp is not None and stamp.startswith(("NOT PRIVATE", "NO NOISE"))):
        return stamp
    return f"NOT PRIVATE: {RAISED}"


def check_columns(X: Any, schema: Schema, where: str = "X") -> None:
    """Refuse a table for its columns' names or types, without a look at a row; lists of rows have neither."""
    empty = without_rows(X)
    if empty is not None:
        read_tolerantly(empty, like=features_of(schema.columns), where=where)


def fit_rows(X: Any, y: Any, schema: Schema, *, where: str = "X", on_bad_rows: OnBadRows = "map") -> FittedRows:
    """Read a table and its labels so that every row fits the schema, or does not count.

    A table without rows becomes one row that does not count: nobody need treat it as a special case.
    """
    table, misfits = fit_table(X, schema.columns, where=where, on_bad_rows=on_bad_rows)
    labels = fit_labels(y, schema, where=where, on_bad_rows=on_bad_rows)
    if len(labels.values) != table.n_rows:  # how many there are of each is not for logs
        raise InvalidInput(f"{where}: rows and labels are not equally many")
    if table.n_rows == 0:
        columns = tuple(
            replace(column, values=np.array([_default(described)], column.values.dtype))
            for column, described in zip(table.columns, schema.columns, strict=True)
        )
        nobody = np.zeros(1, np.bool_)
        return FittedRows(replace(table, columns=columns, n_rows=1), np.zeros(1), nobody, nobody)
    return FittedRows(table, labels.values, labels.counts, misfits | labels.misfits)


def fit_table(
    X: Any, columns: Sequence[Column], *, where: str = "X", on_bad_rows: OnBadRows = "map"
) -> tuple[Table, Bools]:
    """The table with gaps only where `columns` allow them, and which rows had something that did not fit."""
    check_on_bad_rows(on_bad_rows)
    like = features_of(columns)
    if on_bad_rows == "raise":
        table = read_table(X, like=like, where=where)
        misfits = np.zeros(table.n_rows, np.bool_)
    else:
        table, misfits = read_tolerantly(X, like=like, where=where)
    filled = []
    for column, described, has_gaps in zip(table.columns, columns, _have_gaps(table), strict=True):
        if described.may_be_missing or not has_gaps:
            filled.append(column)
            continue
        if on_bad_rows == "raise":
            raise InvalidInput(
                f"{where}: column {column.name!r} has missing values or levels that the schema does not list; "
                "name it in may_be_missing, or list all levels"
            )
        gaps = _gaps(column)
        misfits = misfits | gaps
        # As float64, whatever the column is: else the default could be rounded as other rows have it.
        values = column.values.astype(np.float64) if column.levels is None else column.values
        filled.append(replace(column, values=np.where(gaps, np.asarray(_default(described), values.dtype), values)))
    return replace(table, columns=tuple(filled)), misfits


def fit_described(
    table: Table, described: Sequence[Column | None], *, where: str, on_bad_rows: OnBadRows = "map"
) -> tuple[Table, Bools]:
    """The same for a table that was read already: columns that have no entry in `described` stay as they are."""
    check_on_bad_rows(on_bad_rows)
    pairs = zip(table.columns, described, strict=True)
    entries = {column.name: replace(entry, name=column.name) for column, entry in pairs if entry is not None}
    if not entries:
        return table, np.zeros(table.n_rows, np.bool_)
    known = tuple(column for column in table.columns if column.name in entries)
    part = Table(known, table.n_rows, tuple(entries), table.has_names)
    fitted, misfits = fit_table(part, list(entries.values()), where=where, on_bad_rows=on_bad_rows)
    found = {column.name: column for column in fitted.columns}
    return replace(table, columns=tuple(found.get(column.name, column) for column in table.columns)), misfits


def fit_labels(y: Any, schema: Schema, *, where: str = "y", on_bad_rows: OnBadRows = "map") -> FittedLabels:
    """Labels as the schema has them, and which rows count."""
    check_on_bad_rows(on_bad_rows)
    values = _one_per_row(y, where)
    if schema.classes is not None:
        found, _ = places_of(coded_values(values, f"{where}: the label"), places(schema.classes))
        counts = found >= 0
        if on_bad_rows == "raise" and not counts.all():  # which, is not for logs
            raise InvalidInput(f"{where}: a label is not one of the schema's classes {list(schema.classes)}")
        return FittedLabels(np.maximum(found, 0).astype(np.float64), counts, ~counts)
    if schema.label_bounds is None:
        raise InvalidParameter("the schema must state either classes (classification) or label_bounds (regression)")
    low, high = schema.label_bounds
    numbers, unread = _numbers(values, where)
    counts = ~np.isnan(numbers)
    if on_bad_rows == "raise" and not counts.all():
        what = "labels of a regression must be numbers" if unread.any() else "a label is missing"
        raise InvalidInput(f"{where}: {what}")
    clipped = np.where(counts, np.clip(numbers, low, high), low + (high - low) / 2.0)
    return FittedLabels(clipped, counts, (numbers < low) | (numbers > high) | ~counts)


def features_of(columns: Sequence[Column]) -> tuple[FeatureBins, ...]:
    """Names and levels, for the reading; how numbers are binned does not matter to it."""
    return tuple(feature_of(column, column.name) for column in columns)


def feature_of(column: Column, name: str) -> FeatureBins:
    """One column, under the name that it has in the table."""
    if isinstance(column, NumericColumn):
        return FeatureBins(name, edges=np.empty(0))
    return FeatureBins(name, levels=column.levels)


def read_labels(y: Any, classes: Sequence[Any] | None, *, where: str = "y") -> Floats:
    """Labels as numbers, whatever they are, for whoever fits them later.

    The place in `classes`, and one place beyond for what is not listed; or numbers, NaN for what is not a number.
    """
    values = _one_per_row(y, where)
    if classes is None:
        return _numbers(values, where)[0]
    found, _ = places_of(coded_values(values, f"{where}: the label"), places(classes))
    return np.where(found >= 0, found, len(classes)).astype(np.float64)


def outside_bounds(table: Table, schema: Schema, n_threads: int = 1) -> Bools:
    """Which rows have a number outside its column's public bounds. A missing value is not outside."""
    outside = np.zeros(table.n_rows, np.bool_)
    bounded = [(j, column) for j, column in enumerate(schema.columns) if isinstance(column, NumericColumn)]
    if table.grid is None:
        for j, column in bounded:
            values = table.columns[j].values
            # Numbers of numpy's, so that float32 values are compared as they are: bounds are not rounded to float32.
            outside |= (values < np.float64(column.low)) | (values > np.float64(column.high))
        return outside
    # All columns lie together in memory, row by row, and are read so.
    low, high = np.array([(column.low, column.high) for _, column in bounded]).T.copy()
    limits = np.linspace(0, table.n_rows, n_threads + 1).astype(int).tolist()
    tasks = [(table.grid, low, high, start, stop, outside) for start, stop in pairwise(limits)]
    Team(n_threads).run(mark_outside, tasks)
    return outside


@kernel
def mark_outside(values: Any, low: Any, high: Any, start: int, stop: int, outside: Any) -> None:
    """Rows with a value beyond its column's bounds; NaN is not. In: `values` [rows, columns]. Out: `outside` [rows]."""
    for i in range(start, stop):
        for j in range(len(low)):
            if values[i, j] < low[j] or values[i, j] > high[j]:
                outside[i] = 1


# --- pieces --------------------------------------------------------------------------------------------------------


def _have_gaps(table: Table) -> Sequence[bool]:
    """Which columns have any."""
    if table.grid is None:
        return [bool(_gaps(column).any()) for column in table.columns]
    # All columns lie together in memory, row by row, and are read so.
    found = np.zeros(len(table.columns), np.bool_)
    for start in range(0, table.n_rows, _ROWS_AT_A_TIME):
        found |= np.isnan(table.grid[start : start + _ROWS_AT_A_TIME]).any(axis=0)
    has: list[bool] = found.tolist()
    return has


def _gaps(column: TableColumn) -> Bools:
    gaps: Bools = np.isnan(column.values) if column.levels is None else column.values < 0
    return gaps


def _default(column: Column) -> float:
    """What stands for a gap where there may be none: a number, or the place of a level."""
    if isinstance(column, NumericColumn):
        middle = column.low + (column.high - column.low) / 2.0
        return float(np.floor(middle)) if column.integer else middle
    return float(column.levels.index(OTHER)) if OTHER in column.levels else 0.0


def _numbers(values: np.ndarray, where: str) -> tuple[Floats, Bools]:
    """Labels as numbers, NaN for those that are none, and which rows have something that is not a number."""
    if values.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return values.astype(np.float64), np.zeros(len(values), np.bool_)
    found, unread = numbers_of(coded_values(values, f"{where}: the label"))
    return found.astype(np.float64), unread


def _one_per_row(y: Any, where: str) -> np.ndarray:
    if y is None:
        raise InvalidInput(f"{where}: there are no labels")
    given = y.dictionary_decode() if hasattr(y, "dictionary_decode") else y  # arrow would give codes otherwise
    try:
        values = np.asarray(given)
    except (ValueError, OverflowError):  # one label is a list, or a number too large for the others' type
        if not isinstance(given, list | tuple):
            raise InvalidInput(f"{where}: labels must be one value per row") from None
        values = np.empty(len(given), object)
        for row, label in enumerate(given):
            values[row] = label
    if values.ndim != 1:
        raise InvalidInput(f"{where}: labels must be one per row, got {values.ndim} dimensions")
    return values
