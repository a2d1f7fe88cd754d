"""Tables read so that no row can make the reading fail: what a cell holds that its column cannot, counts as missing.

`table.read_table` refuses text among numbers, since whoever trains a plain model wants to know. Where rows are secret,
an error that depends on them tells something about them. So here only what a table is without its rows can be refused:
the names of its columns, and types that no column of numbers or levels can have.

One odd cell often changes the type of a whole column (a file with the age "n/a" has a column of text). The other cells
must not suffer from it, or one row would move all others: text that reads as a number is that number, and a number that
reads as a level of text is that level.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.engine.sources import Coded, as_floats, coded_values, is_missing, narrowest, open_source
from hedgerow.engine.table import Column, Table, columns_like, has_own_names, plain_level, source_of_table
from hedgerow.errors import InvalidInput

if TYPE_CHECKING:
    from hedgerow.engine.binning import FeatureBins

_WORDS = {"true": 1.0, "false": 0.0}
"""numpy writes booleans so when text stands beside them."""


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
            if feature.levels is None and isinstance(raw, np.ndarray):
                columns.append(Column(feature.name, as_floats(raw, label)))
                continue
            coded = raw if isinstance(raw, Coded) else coded_values(raw, label)
            read: tuple[np.ndarray, Bools] = (
                numbers_of(coded) if feature.levels is None else places_of(coded, places(feature.levels))
            )
            odd |= read[1]
            columns.append(Column(feature.name, read[0], feature.levels))
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


def numbers_of(coded: Coded) -> tuple[Floats, Bools]:
    """Each row's number, NaN where there is none, and which rows have something that is not a number."""
    found = np.array([*map(number_of, coded.values), math.nan])  # the last place answers code -1
    there = np.array([*(not is_missing(value) for value in coded.values), False])
    return narrowest(found)[coded.codes], (there & np.isnan(found))[coded.codes]


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


def places(levels: Sequence[Any]) -> dict[Any, int]:
    """Where each level is in its list."""
    return {level: place for place, level in enumerate(levels)}


def places_of(coded: Coded, index: Mapping[Any, int]) -> tuple[Ints, Bools]:
    """Each row's place in a list of levels, -1 where there is none, and which rows have a level that is not listed."""
    # The last place answers code -1.
    found = np.array([*(_place_of(value, index) for value in coded.values), -1], np.int32)
    there = np.array([*(not is_missing(value) for value in coded.values), False])
    return found[coded.codes], (there & (found < 0))[coded.codes]


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
