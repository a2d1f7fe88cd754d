"""What is public about a table: which columns there are, and what values they may hold.

A private training may look at nothing else before it has paid for a look at the rows. Bounds read off the data would
tell who earns most; so they are stated by somebody who knows the field, not the file. Values outside the bounds count
as the nearest bound; a level that is not listed counts as missing. In a private training a gap where the schema has
none is no error either: protocols/bad_rows.py says what becomes of it.

    Schema.from_public(bounds=..., levels=...)    state it
    Schema.from_public(census_sample)             or read it off a table that is public itself
    Schema.outline(people)                        names and kinds of the columns of a private table, to fill in
"""

from __future__ import annotations

import json
import math
import numbers
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hedgerow.errors import InvalidInput, InvalidParameter

if TYPE_CHECKING:
    from hedgerow.times import TimeRule

Level = str | int | float | bool

MAX_LEVELS = 255
"""Codes are bytes, and one of the 256 is kept for missing values."""

MOST_GROUPS = 254
"""Public groups of levels that are not listed."""


@dataclass(frozen=True, slots=True)
class NumericColumn:
    """Numbers between `low` and `high`; whole ones if `integer`.

    With the rule "time" or "duration" they are dates or durations, as seconds (`times.py`).
    """

    name: str
    low: float
    high: float
    integer: bool = False
    may_be_missing: bool = False
    rule: TimeRule | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        low, high = _interval(f"bounds of column {self.name!r}", (self.low, self.high))
        _check_rule(self.name, self.rule, ("time", "duration"))
        if self.integer and not (low.is_integer() and high.is_integer()):
            raise InvalidParameter(f"bounds of the integer column {self.name!r} must be whole numbers, got {low, high}")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; times are written as people read them, and the rule is there if there is one."""
        bounds: list[Any] = [self.low, self.high]
        if self.rule == "time":
            from hedgerow.times import written

            bounds = [written(self.low), written(self.high)]
        about = {"name": self.name, "bounds": bounds, "integer": self.integer, "may_be_missing": self.may_be_missing}
        return about if self.rule is None else {**about, "rule": self.rule}


@dataclass(frozen=True, slots=True)
class CategoricalColumn:
    """One of the listed levels, all text or all numbers.

    With the rule "hash" they are public groups of levels that nobody has listed (`engine/level_groups.py`).
    """

    name: str
    levels: tuple[Level, ...]
    may_be_missing: bool = False
    rule: Literal["hash"] | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        levels = _level_list(f"levels of column {self.name!r}", self.levels)
        if not 1 <= len(levels) <= MAX_LEVELS:
            raise InvalidParameter(
                f"column {self.name!r} must have 1 to {MAX_LEVELS} levels, got {len(levels)}; "
                f"levels={{{self.name!r}: 'hash'}} puts any number of them into {MOST_GROUPS} public groups"
            )
        _check_rule(self.name, self.rule, ("hash",))
        if self.rule is not None and levels != _hash_groups(self.name, len(levels)):
            raise InvalidParameter(f"levels of column {self.name!r} are not those of its rule, {self.rule!r}")
        object.__setattr__(self, "levels", levels)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; of groups their number alone."""
        levels: Any = list(self.levels) if self.rule is None else len(self.levels)
        about = {"name": self.name, "levels": levels, "may_be_missing": self.may_be_missing}
        return about if self.rule is None else {**about, "rule": self.rule}


Column = NumericColumn | CategoricalColumn


@dataclass(frozen=True)
class Schema:
    """Public facts about a table and its labels. `Schema.from_public` is the usual way to make one."""

    columns: tuple[Column, ...]
    label_bounds: tuple[float, float] | None = None
    classes: tuple[Level, ...] | None = None

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not names:
            raise InvalidParameter("a schema needs at least one column: pass bounds, levels or both")
        repeated = sorted(name for name, times in Counter(names).items() if times > 1)
        if repeated:
            raise InvalidParameter(f"column {repeated[0]!r} is described twice; it has either bounds or levels")
        object.__setattr__(self, "columns", tuple(self.columns))
        if self.label_bounds is not None:
            object.__setattr__(self, "label_bounds", _interval("label_bounds", self.label_bounds))
        if self.classes is not None:
            classes = _level_list("classes", self.classes)
            if len(classes) < 2:
                raise InvalidParameter(f"classes must list at least two, got {list(classes)}")
            object.__setattr__(self, "classes", classes)

    @classmethod
    def from_public(
        cls,
        table: Any = None,
        *,
        bounds: Mapping[str, tuple[Any, Any]] | None = None,
        levels: Mapping[str, Sequence[Level] | Literal["hash"] | int] | None = None,
        integers: Iterable[str] = (),
        may_be_missing: Iterable[str] | bool = (),
        label_bounds: tuple[float, float] | None = None,
        classes: Sequence[Level] | None = None,
        columns: Sequence[str] | None = None,
        label: str | None = None,
    ) -> Schema:
        """State what everybody may know.

            Schema.from_public(bounds={"age": (0, 120)}, levels={"sex": ["f", "m"]}, integers=["age"], classes=[0, 1])

        `bounds` and `levels` together name every column. `integers`: which of the bounded columns hold whole numbers
        only. Bounds may be dates or times, for a column of such (`"since": (date(2000, 1, 1), date(2030, 1, 1))`), or
        durations (timedelta). Levels that are not to be listed, or too many, are "hash", or a number of groups up to
        254: public groups by a hash of the level's text. `may_be_missing`: columns that may have gaps, or True for
        all. `label_bounds` is needed for regression, `classes` for classification. `columns`: their order, for tables
        without names; by default as written.

        With a `table` (pandas, polars, arrow) that is PUBLIC itself, a published sample or an older release, columns,
        bounds, levels and gaps are read off it, and classes or label bounds off its column `label`; what is stated
        beside it takes precedence. Never pass the rows to be protected: their bounds are secrets.
        """
        if isinstance(table, Mapping):
            raise InvalidParameter("bounds and levels are given by name: from_public(bounds={...}, levels={...})")
        if table is not None:
            read = _describe(table, label)
            stated = {*(bounds or {}), *(levels or {})}
            names = list(read.columns) if columns is None else list(columns)
            bounds = {n: b for n, b in read.bounds.items() if n not in stated} | dict(bounds or {})
            levels = {n: v for n, v in read.levels.items() if n not in stated} | dict(levels or {})
            integers = {n for n in read.integers if n not in stated} | set(integers)
            if not isinstance(may_be_missing, bool):
                may_be_missing = {*read.gaps, *may_be_missing}
            if label_bounds is None and classes is None:
                label_bounds, classes = read.label_bounds, read.classes
            columns = [name for name in names if name in bounds or name in levels]
            columns += [name for name in [*bounds, *levels] if name not in columns]
        elif label is not None:
            raise InvalidParameter(f"label={label!r} names a column of a public table, but no table is given")
        bounds, levels = dict(bounds or {}), dict(levels or {})
        names = [*bounds, *levels]
        both = sorted(set(bounds) & set(levels))
        if both:
            raise InvalidParameter(f"column {both[0]!r} has bounds and levels; give one of them")
        whole = _known("integers", integers, bounds, "with bounds")
        if isinstance(may_be_missing, bool):
            gaps = set(names) if may_be_missing else set()
        else:
            gaps = _known("may_be_missing", may_be_missing, names, "of the schema")
        if columns is not None and sorted(columns) != sorted(names):
            raise InvalidParameter(f"columns must list every column once: {sorted(names)}, got {list(columns)}")
        described: dict[str, Column] = {}
        for name, given in bounds.items():
            low, high, rule = _in_seconds(f"bounds of column {name!r}", given)
            described[name] = NumericColumn(name, low, high, name in whole, name in gaps, rule)
        for name, given_levels in levels.items():
            if given_levels == "hash" or (isinstance(given_levels, int) and not isinstance(given_levels, bool)):
                groups = _hash_groups(name, MOST_GROUPS if given_levels == "hash" else given_levels)
                described[name] = CategoricalColumn(name, groups, name in gaps, "hash")
                continue
            if isinstance(given_levels, str | bool):
                raise InvalidParameter(
                    f"levels of column {name!r} must be a list, 'hash' or a number of groups, got {given_levels!r}"
                )
            described[name] = CategoricalColumn(name, tuple(given_levels), name in gaps)
        order = names if columns is None else list(columns)
        span = None if label_bounds is None else _pair("label_bounds", label_bounds)
        return cls(tuple(described[name] for name in order), span, None if classes is None else tuple(classes))

    @staticmethod
    def outline(table: Any) -> str:
        """The call that is to be filled in for a table: names and kinds of its columns, and no value of any row.

        >>> import pyarrow as pa
        >>> print(Schema.outline(pa.table({"age": [33], "sex": ["f"]})))
        Schema.from_public(
            bounds={"age": (LOWEST, HIGHEST)},
            levels={"sex": [EVERY, LEVEL]},
            integers=["age"],
            may_be_missing=[NAMES],
            classes=[FIRST, SECOND],  # or label_bounds=(LOWEST, HIGHEST) for a regression
        )
        """
        kinds = {name: _kind_of(kind) for name, kind in _types(table).items()}
        numeric = [name for name, kind in kinds.items() if kind != "levels"]
        bounds = ", ".join(f"{json.dumps(name)}: (LOWEST, HIGHEST)" for name in numeric)
        levels = ", ".join(f"{json.dumps(name)}: [EVERY, LEVEL]" for name, kind in kinds.items() if kind == "levels")
        whole = ", ".join(json.dumps(name) for name in numeric if kinds[name] == "integers")
        return (
            f"Schema.from_public(\n    bounds={{{bounds}}},\n    levels={{{levels}}},\n    integers=[{whole}],\n"
            "    may_be_missing=[NAMES],\n"
            "    classes=[FIRST, SECOND],  # or label_bounds=(LOWEST, HIGHEST) for a regression\n)"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the schema as a JSON file, for somebody to read and sign."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Schema:
        """Read a file that `save` has written, or that somebody wrote in the same form."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as problem:
            raise InvalidInput(f"{path}: the schema cannot be read: {problem}") from None
        except (ValueError, RecursionError) as problem:
            raise InvalidInput(f"{path}: not a schema, because not JSON: {problem}") from None
        return cls.from_dict(content)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """The levels of the categorical columns."""
        return {column.name: column.levels for column in self.columns if isinstance(column, CategoricalColumn)}

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """The columns, by their names."""
        return {column.name: column for column in self.columns}

    def __getitem__(self, name: str) -> Column:
        if name not in self.by_name:
            raise InvalidParameter(f"the schema has no column {name!r}")
        return self.by_name[name]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; `from_dict` gives an equal schema back."""
        return {
            "columns": [column.to_dict() for column in self.columns],
            "label_bounds": None if self.label_bounds is None else list(self.label_bounds),
            "classes": None if self.classes is None else list(self.classes),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """The inverse of `to_dict`; anything else is refused."""
        _check_keys("a schema", data, {"columns", "label_bounds", "classes"})
        if not isinstance(data["columns"], list):
            raise InvalidInput("the columns of a schema must be a list")
        label, classes = data["label_bounds"], data["classes"]
        if classes is not None and not isinstance(classes, list):
            raise InvalidInput("the classes of a schema must be a list, or null")
        return cls(
            tuple(_column_from(entry) for entry in data["columns"]),
            None if label is None else _pair("label_bounds", label),
            None if classes is None else tuple(classes),
        )


# --- a public table ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Described:
    """What a public table says about its columns."""

    columns: tuple[str, ...]
    bounds: dict[str, tuple[Any, Any]]
    levels: dict[str, list[Level] | Literal["hash"]]
    integers: set[str]
    gaps: set[str]
    label_bounds: tuple[float, float] | None = None
    classes: list[Level] | None = None


def _describe(table: Any, label: str | None) -> _Described:
    found = _arrow(table)
    if label is not None and label not in found.column_names:
        raise InvalidParameter(f"label={label!r} is not a column of the public table")
    described = _Described(tuple(name for name in found.column_names if name != label), {}, {}, set(), set())
    for name in described.columns:
        column = found.column(name)
        kind = _kind_of(column.type)
        distinct = column.unique().to_pylist()
        values = [value for value in distinct if not _is_gap(value)]
        if not values:
            raise InvalidInput(f"column {name!r} of the public table is empty, so nothing can be read off it")
        if len(values) < len(distinct):
            described.gaps.add(name)
        if kind == "levels":
            described.levels[name] = sorted(values) if len(values) <= MAX_LEVELS else "hash"
        elif kind == "times":
            described.bounds[name] = _later(min(values), max(values))
        else:
            described.bounds[name] = (0.0, 1.0) if isinstance(values[0], bool) else _wide(min(values), max(values))
            if kind == "integers":
                described.integers.add(name)
    if label is None:
        return described
    values = [value for value in found.column(label).unique().to_pylist() if not _is_gap(value)]
    if _kind_of(found.column(label).type) == "numbers":
        return replace(described, label_bounds=_wide(min(values), max(values)))
    return replace(described, classes=sorted(values))


def _later(first: Any, last: Any) -> tuple[Any, Any]:
    """Bounds of a column with one date or duration must still be two."""
    return (first, last) if first < last else (first, first + timedelta(days=1))


def _is_gap(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _wide(low: float, high: float) -> tuple[float, float]:
    """Bounds of a column with one value must still be two numbers."""
    return (float(low), float(high)) if low < high else (float(low), float(low) + 1.0)


def _types(table: Any) -> dict[str, Any]:
    """By column. No row is looked at: a column of Python objects has no type of its own, and is taken for levels."""
    if hasattr(table, "iloc"):
        table = table.iloc[:0]
    elif hasattr(table, "to_arrow"):
        table = table[:0]
    elif hasattr(table, "slice"):
        table = table.slice(0, 0)
    found = _arrow(table)
    return dict(zip(found.column_names, found.schema.types, strict=True))


def _kind_of(arrow_type: Any) -> str:
    """One of "levels", "times", "integers" and "numbers"; truth values are integers, 0 and 1."""
    import pyarrow as pa

    if pa.types.is_date(arrow_type) or pa.types.is_timestamp(arrow_type) or pa.types.is_duration(arrow_type):
        return "times"
    if pa.types.is_integer(arrow_type) or pa.types.is_boolean(arrow_type):
        return "integers"
    if pa.types.is_floating(arrow_type) or pa.types.is_decimal(arrow_type):
        return "numbers"
    return "levels"


def _arrow(table: Any) -> Any:
    import pyarrow as pa

    if isinstance(table, pa.Table):
        return table
    if hasattr(table, "to_arrow"):  # polars; its interchange has string views, whose gaps pyarrow's `unique` loses
        return table.to_arrow()
    try:
        if hasattr(table, "iloc"):  # pandas: rows may have names, which are no column
            return pa.Table.from_pandas(table, preserve_index=False)
        return pa.table(table)
    except (TypeError, ValueError, pa.ArrowException):
        raise InvalidInput(
            f"a table with named columns is needed (pandas, polars, arrow), got {type(table).__name__}"
        ) from None


# --- files ---------------------------------------------------------------------------------------------------------


def _column_from(data: Any) -> Column:
    has_levels = isinstance(data, Mapping) and "levels" in data
    values, flags = ("levels", ["may_be_missing"]) if has_levels else ("bounds", ["may_be_missing", "integer"])
    rule = data.get("rule") if isinstance(data, Mapping) else None
    _check_keys(f"a column with {values}", data, {"name", values, *flags, *({"rule"} if rule is not None else ())})
    for flag in flags:
        if not isinstance(data[flag], bool):
            raise InvalidInput(f"{flag} of column {data['name']!r} must be true or false, got {data[flag]!r}")
    if not has_levels:
        low, high = _pair(f"bounds of column {data['name']!r}", data["bounds"])
        if rule == "time":
            from hedgerow.times import seconds_of_text

            low, high = (seconds_of_text(str(each)) for each in (low, high))
        return NumericColumn(data["name"], low, high, data["integer"], data["may_be_missing"], rule)
    if rule is not None:
        _check_name(data["name"])
        groups = _hash_groups(data["name"], data["levels"])
        return CategoricalColumn(data["name"], groups, data["may_be_missing"], rule)
    if not isinstance(data["levels"], list):
        raise InvalidInput(f"levels of column {data['name']!r} must be a list")
    return CategoricalColumn(data["name"], tuple(data["levels"]), data["may_be_missing"])


# --- checks --------------------------------------------------------------------------------------------------------


def _check_keys(what: str, data: Any, wanted: set[str]) -> None:
    found = sorted(data) if isinstance(data, Mapping) else data
    if not isinstance(data, Mapping) or set(data) != wanted:
        raise InvalidInput(f"{what} is described by {sorted(wanted)}, got {found!r}")


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidParameter(f"a column's name must be text, got {name!r}")


def _known(parameter: str, given: Iterable[str], names: Iterable[str], which: str) -> set[str]:
    if isinstance(given, str):
        raise InvalidParameter(f"{parameter} must be a list of columns, got the text {given!r}")
    wanted, known = list(given), set(names)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise InvalidParameter(f"{parameter} names {unknown[0]!r}, which is not a column {which}")
    return set(wanted)


def _check_rule(name: str, rule: Any, known: tuple[str, ...]) -> None:
    if rule is not None and rule not in known:
        raise InvalidParameter(f"the rule of column {name!r} must be one of {', '.join(known)}, got {rule!r}")


def hash_groups(count: int) -> tuple[str, ...]:
    """What groups of levels are called, in the order of their codes (`engine/level_groups.py`)."""
    return tuple(f"hash {group} of {count}" for group in range(count))


def _hash_groups(name: str, count: Any) -> tuple[Level, ...]:
    if not isinstance(count, int) or isinstance(count, bool) or not 2 <= count <= MOST_GROUPS:
        raise InvalidParameter(f"levels of column {name!r} can be 2 to {MOST_GROUPS} public groups, got {count!r}")
    return hash_groups(count)


def _in_seconds(what: str, given: Any) -> tuple[Any, Any, TimeRule | None]:
    """Bounds as numbers, and what these are where they were given as dates or durations."""
    low, high = _pair(what, given)
    if not any(isinstance(each, date | timedelta) or type(each).__module__ == "numpy" for each in (low, high)):
        return low, high, None
    from hedgerow.times import seconds_of_value, time_rule

    rule = time_rule(low)
    if rule != time_rule(high):
        raise InvalidParameter(f"{what} must be two dates, two durations or two numbers, got {given!r}")
    return (low, high, None) if rule is None else (seconds_of_value(low), seconds_of_value(high), rule)


def _pair(what: str, given: Any) -> tuple[Any, Any]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise InvalidParameter(f"{what} must be a pair (lowest, highest), got {given!r}")
    return given[0], given[1]


def _interval(what: str, given: tuple[float, float]) -> tuple[float, float]:
    low, high = given
    if not (_is_finite(low) and _is_finite(high) and low < high):
        raise InvalidParameter(f"{what} must be two finite numbers, the lower one first, got {given!r}")
    if not math.isfinite(float(high) - float(low)):
        raise InvalidParameter(f"{what} lie too far apart for floating point, got {given!r}")
    return float(low), float(high)


def _is_finite(value: Any) -> bool:
    """Whether it is a number that a float can hold; a whole number of 400 digits is none."""
    try:
        return not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value)
    except OverflowError:
        return False


def _level_list(what: str, given: tuple[Level, ...]) -> tuple[Level, ...]:
    levels = tuple(_plain(level) for level in given)
    for level in levels:
        if not isinstance(level, str | bool | int | float) or (isinstance(level, float) and not math.isfinite(level)):
            raise InvalidParameter(f"{what} must be text or finite numbers, got {level!r}")
    if len({isinstance(level, str) for level in levels}) > 1 or len(set(levels)) < len(levels):
        raise InvalidParameter(f"{what} must be all text or all numbers, without repetition, got {list(levels)}")
    return levels


def _plain(level: Any) -> Any:
    """A numpy scalar becomes Python's; 3.0 and 3 are the same level, written 3, as everywhere in the package."""
    item = level.item() if hasattr(level, "item") else level
    return int(item) if isinstance(item, float) and item.is_integer() else item
