"""Dates and durations as numbers: seconds, whatever unit and library they come from.

    time        seconds since 1970-01-01 00:00 UTC; a date is its first second, a time without a zone is taken for UTC
    duration    seconds

The unit is part of what a model knows of a column (`table.Rule`), so a date, a datetime of microseconds and a timestamp
of nanoseconds that mean the same instant fall into the same bin. Whole seconds and the rest are converted apart, each
exactly or correctly rounded, so the number does not depend on the unit either. Float64 then tells times of our century
apart that are a quarter of a microsecond from each other.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any, Literal

import numpy as np

TimeRule = Literal["time", "duration"]
TIME_RULES: tuple[TimeRule, ...] = ("time", "duration")

_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def rule_of_dtype(dtype: np.dtype[Any]) -> TimeRule:
    """What numpy's datetime64 and timedelta64 mean."""
    return "time" if dtype.kind == "M" else "duration"


def seconds_of(values: np.ndarray) -> np.ndarray:
    """datetime64 or timedelta64 of any unit as seconds, float64; NaT becomes NaN."""
    missing = np.isnat(values)
    unit = np.datetime_data(values.dtype)[0]
    if unit == "generic":  # numpy has no unit for NaT alone
        return np.full(values.shape, np.nan)
    if unit in ("Y", "M") and values.dtype.kind == "m":
        raise TypeError("months and years are not always equally long")
    per_second = _PER_SECOND.get(unit, 1)
    kind = "datetime64" if values.dtype.kind == "M" else "timedelta64"
    ticks = values.astype(f"{kind}[{unit if per_second > 1 else 's'}]").astype(np.int64)
    whole = np.sign(ticks) * (np.abs(ticks) // per_second)
    seconds: np.ndarray = whole + (ticks - whole * per_second) / per_second
    seconds[missing] = np.nan
    return seconds


def time_rule(value: Any) -> TimeRule | None:
    """Whether a Python, numpy or pandas value is a date, a time or a duration."""
    if isinstance(value, dt.date | np.datetime64):
        return "time"
    return "duration" if isinstance(value, dt.timedelta | np.timedelta64) else None


def seconds_of_value(value: Any) -> float:
    """One such value as seconds, the same number as in an array."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return float(seconds_of(np.array([value]))[0])
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    nanoseconds = getattr(value, "nanosecond", getattr(value, "nanoseconds", 0))  # those of pandas
    if isinstance(value, dt.datetime):
        utc = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value
        value = utc - _EPOCH
    ticks = (value.days * 86_400 + value.seconds) * 10**9 + value.microseconds * 1000 + nanoseconds
    whole, rest = divmod(abs(ticks), 10**9)
    return math.copysign(whole + rest / 10**9, ticks) if ticks else 0.0


def seconds_of_text(text: str) -> float:
    """A date or time written as ISO 8601 has it; NaN for any other text."""
    try:
        return seconds_of_value(dt.datetime.fromisoformat(text.strip()))
    except ValueError:
        return math.nan


def written(seconds: float) -> str:
    """A time as ISO 8601 text, to the microsecond; `seconds_of_text` reads it back."""
    return (_EPOCH + dt.timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
