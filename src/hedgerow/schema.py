"""What is public about a table: which columns there are, and what values they may hold.

A private training may look at nothing else before it has paid for a look at the rows. Bounds read off the data would
tell who earns most; so they are stated by somebody who knows the field, not the file. Values outside the bounds count
as the nearest bound; a level that is not listed counts as missing.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hedgerow.errors import InvalidInput, InvalidParameter

Level = str | int | float | bool

MAX_LEVELS = 255
"""Codes are bytes, and one of the 256 is kept for missing values."""


@dataclass(frozen=True, slots=True)
class NumericColumn:
    """Numbers between `low` and `high`; whole ones if `integer`."""

    name: str
    low: float
    high: float
    integer: bool = False
    may_be_missing: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        low, high = _interval(f"bounds of column {self.name!r}", (self.low, self.high))
        if self.integer and not (low.is_integer() and high.is_integer()):
            raise InvalidParameter(f"bounds of the integer column {self.name!r} must be whole numbers, got {low, high}")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "name": self.name,
            "bounds": [self.low, self.high],
            "integer": self.integer,
            "may_be_missing": self.may_be_missing,
        }


@dataclass(frozen=True, slots=True)
class CategoricalColumn:
    """One of the listed levels, all text or all numbers."""

    name: str
    levels: tuple[Level, ...]
    may_be_missing: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        levels = _level_list(f"levels of column {self.name!r}", self.levels)
        if not 1 <= len(levels) <= MAX_LEVELS:
            raise InvalidParameter(f"column {self.name!r} must have 1 to {MAX_LEVELS} levels, got {len(levels)}")
        object.__setattr__(self, "levels", levels)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"name": self.name, "levels": list(self.levels), "may_be_missing": self.may_be_missing}


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
        repeated = sorted({name for name in names if names.count(name) > 1})
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
        bounds: Mapping[str, tuple[float, float]] | None = None,
        levels: Mapping[str, Sequence[Level]] | None = None,
        integers: Iterable[str] = (),
        may_be_missing: Iterable[str] | bool = (),
        label_bounds: tuple[float, float] | None = None,
        classes: Sequence[Level] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Schema:
        """State what everybody may know.

            Schema.from_public(bounds={"age": (0, 120)}, levels={"sex": ["f", "m"]}, integers=["age"], classes=[0, 1])

        `bounds` and `levels` together name every column. `integers`: which of the bounded columns hold whole numbers
        only. `may_be_missing`: columns that may have gaps, or True for all. `label_bounds` is needed for regression,
        `classes` for classification. `columns`: their order, for tables without names; by default as written.
        """
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
        described: dict[str, Column] = {
            name: NumericColumn(name, *_pair(f"bounds of column {name!r}", given), name in whole, name in gaps)
            for name, given in bounds.items()
        }
        for name, given_levels in levels.items():
            if isinstance(given_levels, str):
                raise InvalidParameter(f"levels of column {name!r} must be a list, got the text {given_levels!r}")
            described[name] = CategoricalColumn(name, tuple(given_levels), name in gaps)
        order = names if columns is None else list(columns)
        label = None if label_bounds is None else _pair("label_bounds", label_bounds)
        return cls(tuple(described[name] for name in order), label, None if classes is None else tuple(classes))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """The levels of the categorical columns."""
        return {column.name: column.levels for column in self.columns if isinstance(column, CategoricalColumn)}

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise InvalidParameter(f"the schema has no column {name!r}")

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
        return cls(
            tuple(_column_from(entry) for entry in data["columns"]),
            None if label is None else _pair("label_bounds", label),
            None if classes is None else tuple(classes),
        )


def _column_from(data: Any) -> Column:
    if isinstance(data, Mapping) and "levels" in data:
        _check_keys("a column with levels", data, {"name", "levels", "may_be_missing"})
        _check_flag("may_be_missing", data)
        if not isinstance(data["levels"], list):
            raise InvalidInput(f"levels of column {data['name']!r} must be a list")
        return CategoricalColumn(data["name"], tuple(data["levels"]), data["may_be_missing"])
    _check_keys("a column with bounds", data, {"name", "bounds", "integer", "may_be_missing"})
    _check_flag("may_be_missing", data)
    _check_flag("integer", data)
    low, high = _pair(f"bounds of column {data['name']!r}", data["bounds"])
    return NumericColumn(data["name"], low, high, data["integer"], data["may_be_missing"])


# --- checks --------------------------------------------------------------------------------------------------------


def _check_keys(what: str, data: Any, wanted: set[str]) -> None:
    found = sorted(data) if isinstance(data, Mapping) else data
    if not isinstance(data, Mapping) or set(data) != wanted:
        raise InvalidInput(f"{what} is described by {sorted(wanted)}, got {found!r}")


def _check_flag(key: str, data: Mapping[str, Any]) -> None:
    if not isinstance(data[key], bool):
        raise InvalidInput(f"{key} of column {data['name']!r} must be true or false, got {data[key]!r}")


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


def _pair(what: str, given: Any) -> tuple[float, float]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise InvalidParameter(f"{what} must be a pair (lowest, highest), got {given!r}")
    return given[0], given[1]


def _interval(what: str, given: tuple[float, float]) -> tuple[float, float]:
    low, high = given
    usable = all(_is_number(end) for end in given)
    if not usable or not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidParameter(f"{what} must be two finite numbers, the lower one first, got {given!r}")
    if not math.isfinite(float(high) - float(low)):
        raise InvalidParameter(f"{what} lie too far apart for floating point, got {given!r}")
    return float(low), float(high)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


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
