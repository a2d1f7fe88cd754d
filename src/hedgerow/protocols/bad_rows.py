"""Rows that do not fit the schema: each becomes one that does, or one that does not count, whatever it holds.

    a number beyond its bounds                       the nearest bound
    a gap, a level that is not listed, text where    the column's cell of missing values; where it has none, a public
    a number should be                               default: the middle of the bounds, the level "other" or the first
    a label that is not a listed class, or is missing   the row does not count: it adds nothing to any sum

What becomes of a row depends on the row and on the schema, and on no other row. So two tables that differ by one row
still differ by at most one row afterwards, and every bound on what one row can do to a sum holds for what was given,
not only for what fits. No error says anything about a row either; how many rows did not fit may be released with noise.

Where columns are divided, a row can be left out only by a label holder that trains alone. Elsewhere a label that is
unknown becomes the first class or the middle of the range, and each party is told its own number of misfits, nobody
else (`protocols.vertical.common.agreement`).

`on_bad_rows="raise"` is for rows that are public: the first kind of misfit that is found is an error.

Tables are read so that no row can make the reading fail. `table.read_table` refuses text among numbers, since whoever
trains a plain model wants to know. Where rows are secret, an error that depends on them tells something about them. So
here only what a table is without its rows can be refused: the names of its columns, and types that no column of numbers
or levels can have. What a cell holds that its column cannot, counts as missing.

One odd cell often changes the type of a whole column (a file with the age "n/a" has a column of text). The other cells
must not suffer from it, or one row would move all others: text that reads as a number is that number, and a number that
reads as a level of text is that level.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.engine.level_groups import GROUP_RULES, places, text_of
from hedgerow.engine.table import (
    Coded,
    Rule,
    SparseColumn,
    Table,
    as_coded,
    check_groups,
    check_rule,
    coded_values,
    columns_like,
    has_own_names,
    is_missing,
    narrowest,
    numeric,
    open_source,
    plain_level,
    read_table,
    source_of_table,
)
from hedgerow.engine.table import Column as TableColumn
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.runtime.protocol import option
from hedgerow.schema import Column, NumericColumn, Schema
from hedgerow.statement import Statement
from hedgerow.times import seconds_of_text, seconds_of_value, time_rule

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
_WORDS = {"true": 1.0, "false": 0.0}
"""numpy writes booleans so when text stands beside them."""


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


def about_misfits(statement: Statement, on_bad_rows: str, *sentences: str) -> Statement:
    """The same statement with sentences on what became of rows that do not fit.

    With on_bad_rows="raise" nothing is claimed: that the run came to its end tells something about all rows, exactly.
    """
    facts = {**statement.facts, "on_bad_rows": on_bad_rows}
    if statement.stamp is None or RAISED not in statement.stamp:
        told = sentences if on_bad_rows == "map" else ()
        return replace(statement, guarantee=(*statement.guarantee, *told), facts=facts)
    facts |= {name: nothing for name, nothing in _CLAIMS.items() if name in facts}
    registry = statement.registry and replace(statement.registry, flavour="none", loss={}, accounting="none")
    return replace(statement, guarantee=(f"{statement.stamp}.", _NOTHING), facts=facts, registry=registry)


_NOTHING = "Nothing is guaranteed. Noise is where it would be otherwise, and what it is worth is not stated."
_CLAIMS = {
    "model_is_private": False, "privacy": None, "labels_towards_feature_holders": None,
    "records_towards_label_holder": None, "epsilon_replace_one": None, "is_bound": False, "per_element": None,
}  # fmt: skip
"""Facts that claim something, and what they are where nothing is claimed."""


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
            column.with_values(np.array([_default(described)], column.dtype))
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
        gaps = gaps_of(column)
        misfits = misfits | gaps
        # As float64, whatever the column is: else the default could be rounded as other rows have it.
        values = column.values.astype(np.float64) if column.levels is None else column.values
        filled.append(column.with_values(np.where(gaps, np.asarray(_default(described), values.dtype), values)))
    return replace(table, columns=tuple(filled)), misfits


def fit_described(
    table: Table, entries: Sequence[Column | None], *, where: str, on_bad_rows: OnBadRows = "map"
) -> tuple[Table, Bools]:
    """The same for a table that was read already, under its own names: columns that have no entry stay as they are."""
    check_on_bad_rows(on_bad_rows)
    pairs = [(column, entry) for column, entry in zip(table.columns, entries, strict=True) if entry is not None]
    if not pairs:
        return table, np.zeros(table.n_rows, np.bool_)
    known = tuple(column for column, _ in pairs)
    as_named = [entry if entry.name == column.name else replace(entry, name=column.name) for column, entry in pairs]
    part = Table(known, table.n_rows, tuple(column.name for column in known), table.has_names)
    fitted, misfits = fit_table(part, as_named, where=where, on_bad_rows=on_bad_rows)
    found = {column.name: column for column in fitted.columns}
    return replace(table, columns=tuple(found.get(column.name, column) for column in table.columns)), misfits


def fit_labels(y: Any, schema: Schema, *, where: str = "y", on_bad_rows: OnBadRows = "map") -> FittedLabels:
    """Labels as the schema has them, and which rows count."""
    check_on_bad_rows(on_bad_rows)
    values = _one_per_row(y, where)
    if schema.classes is not None:
        found, _ = places_of(coded_values(values, f"{where}: the label"), schema.classes)
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


def entry_for(schema: Schema | None, party: str, name: str) -> Column | None:
    """What a schema says about a party's column, under "party.name" or "name"; None if that is nothing."""
    known = {} if schema is None else schema.by_name
    return known.get(f"{party}.{name}", known.get(name))


def feature_of(column: Column, name: str) -> FeatureBins:
    """One column, under the name that it has in the table."""
    if isinstance(column, NumericColumn):
        return FeatureBins(name, edges=np.empty(0), rule=column.rule)
    return FeatureBins(name, levels=column.levels, rule=column.rule)


def read_labels(y: Any, classes: Sequence[Any] | None, *, where: str = "y") -> Floats:
    """Labels as numbers, whatever they are, for whoever fits them later.

    The place in `classes`, and one place beyond for what is not listed; or numbers, NaN for what is not a number.
    """
    values = _one_per_row(y, where)
    if classes is None:
        return _numbers(values, where)[0]
    found, _ = places_of(coded_values(values, f"{where}: the label"), classes)
    return np.where(found >= 0, found, len(classes)).astype(np.float64)


def outside_bounds(table: Table, schema: Schema, n_threads: int = 1) -> Bools:
    """Which rows have a number outside its column's public bounds. A missing value is not outside."""
    outside = np.zeros(table.n_rows, np.bool_)
    bounded = [(j, column) for j, column in enumerate(schema.columns) if isinstance(column, NumericColumn)]
    if table.grid is None:
        for j, column in bounded:
            own = table.columns[j]
            if isinstance(own, SparseColumn) and column.low <= 0.0 <= column.high:  # zeros are inside
                outside[own.rows[(own.stored < column.low) | (own.stored > column.high)]] = True
                continue
            values = own.values
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


# --- tables that are read whatever rows hold --------------------------------------------------------------------------


def read_tolerantly(X: Any, *, like: Sequence[FeatureBins], where: str = "X") -> tuple[Table, Bools]:
    """The table as `read_table(X, like=like)` has it, and which rows have a cell that could not be read as its column.

    A table without rows is welcome.
    """
    with np.errstate(all="ignore"):  # a warning about a number tells something about a row as well
        source = source_of_table(X) if isinstance(X, Table) else open_source(X, where)
        repeated = [name for name, times in Counter(source.names).items() if times > 1]
        if not source.names or repeated:
            what = f"more than one column named {repeated[0]!r}" if repeated else "no columns"
            raise InvalidInput(f"{where} has {what}")
        odd = np.zeros(source.n_rows, np.bool_)
        columns = []
        for feature, raw in zip(like, columns_like(source, like, where), strict=True):
            label = f"{where}: column {feature.name!r}"
            if feature.levels is None and not isinstance(raw, Coded):
                check_rule(raw, feature.rule, label)
                columns.append(numeric(feature.name, raw, label))
                continue
            coded = as_coded(raw, label)
            if coded.rule is not None:  # a table that was read already
                check_groups(coded, feature.levels, feature.rule, label)
                columns.append(TableColumn(feature.name, coded.codes, feature.levels, feature.rule))
                continue
            levels, rule = feature.levels, feature.rule
            read: tuple[np.ndarray, Bools] = (
                numbers_of(coded, rule) if levels is None else places_of(coded, levels, rule)
            )
            odd |= read[1]
            columns.append(TableColumn(feature.name, read[0], feature.levels, feature.rule))
    names = tuple(feature.name for feature in like)
    return Table(tuple(columns), source.n_rows, names, has_names=has_own_names(names)), odd


def without_rows(X: Any) -> Any | None:
    """The same table with its columns and none of its rows; None if what was given has no columns apart from rows."""
    library = type(X).__module__.partition(".")[0]
    kind = type(X).__name__
    if library == "pandas" and kind == "DataFrame":
        return X.iloc[:0]
    if library == "pyarrow" and kind in ("Table", "RecordBatch"):
        return X.slice(0, 0)
    if (library == "polars" and kind == "DataFrame") or isinstance(X, np.ndarray):
        return X[:0]
    return None


# --- cells ---------------------------------------------------------------------------------------------------------


def numbers_of(coded: Coded, rule: Rule | None = None) -> tuple[Floats, Bools]:
    """Each row's number, NaN where there is none, and which rows have something that is not a number.

    Where the rule says so, they are times or durations instead.
    """
    read = number_of if rule is None else lambda value: _seconds_of(value, rule)
    found = np.array([*map(read, coded.values), math.nan])  # the last place answers code -1
    there = np.array([*(not is_missing(value) for value in coded.values), False])
    return narrowest(found)[coded.codes], (there & np.isnan(found))[coded.codes]


def _seconds_of(value: Any, rule: Rule) -> float:
    """A cell as a time or a duration; NaN if it is none. Text may be a time, as ISO 8601 writes it."""
    if rule == "time" and isinstance(value, str):
        return seconds_of_text(value)
    return seconds_of_value(value) if time_rule(value) == rule and not is_missing(value) else math.nan


def number_of(value: Any) -> float:
    """A cell as a number; NaN if it is none. One too large for a float is infinite."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _WORDS:
            return _WORDS[word]
    elif not isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating | Decimal):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except ValueError:
        return math.nan


def places_of(coded: Coded, levels: Sequence[Any], rule: Rule | None = None) -> tuple[Ints, Bools]:
    """Each row's place in a list of levels, -1 where there is none, and which rows have a level that is not listed.

    Where the rule says so, levels are put into groups, and then every one that can be read has its place.
    """
    if rule in GROUP_RULES and rule is not None:
        plain = [_level_text(value) for value in coded.values]
        there = np.array([*(not is_missing(value) for value in coded.values), False])
        groups = np.array([*places(plain, levels, rule), -1], np.int32)
        return groups[coded.codes], (there & (groups < 0))[coded.codes]
    index = {level: place for place, level in enumerate(levels)}
    # The last place answers code -1.
    found = np.array([*(_place_of(value, index) for value in coded.values), -1], np.int32)
    there = np.array([*(not is_missing(value) for value in coded.values), False])
    return found[coded.codes], (there & (found < 0))[coded.codes]


def _level_text(value: Any) -> str | None:
    """A cell as the text of a level: depends on the value alone, and 3, 3.0 and "3" are one level."""
    if isinstance(value, str):
        return value
    number = number_of(value)
    if not math.isfinite(number):
        return None
    return text_of(plain_level(value if isinstance(value, bool | int | np.integer) else number))


def _place_of(value: Any, index: Mapping[Any, int]) -> int:
    """Depends on the value alone: as it is, as a number, as the text of that number."""
    if isinstance(value, str) and value in index:
        return index[value]
    number = number_of(value)
    if math.isnan(number):
        return -1
    plain = plain_level(value if isinstance(value, bool | int | np.integer) else number)
    if plain in index or math.isinf(number):  # Python refuses to write whole numbers of more than 4,300 digits
        return index.get(plain, -1)
    return index.get(str(plain), -1)


# --- pieces --------------------------------------------------------------------------------------------------------


def _have_gaps(table: Table) -> Sequence[bool]:
    """Which columns have any."""
    if table.grid is None:
        return [
            bool(np.isnan(column.stored).any() if isinstance(column, SparseColumn) else gaps_of(column).any())
            for column in table.columns
        ]
    # All columns lie together in memory, row by row, and are read so.
    found = np.zeros(len(table.columns), np.bool_)
    for start in range(0, table.n_rows, _ROWS_AT_A_TIME):
        found |= np.isnan(table.grid[start : start + _ROWS_AT_A_TIME]).any(axis=0)
    has: list[bool] = found.tolist()
    return has


def gaps_of(column: TableColumn) -> Bools:
    """Which rows have no value."""
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
