"""The ranges of a message class, written out as one Python function without loops and look-ups.

There is a message for every level of every tree, and going through marks takes several times as long as the comparisons
themselves. So each class gets a function of its own, in the way that dataclasses get their methods. What is written
there comes from the class alone: names that are identifiers, and numbers.

    class Splits(Message, ...):                                  def fits(_message, _given):
        n_rows: Annotated[int, Within(1, "most_rows")]               _value = _message.n_rows
        feature: Annotated[Int64s, Shape(Free("n")), Index(8)]       if not 1 <= _value <= _given["most_rows"]: ...
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from hedgerow.errors import InvalidType
from hedgerow.transport.fields import ArrayOf
from hedgerow.transport.frames import Message
from hedgerow.transport.ranges import (
    FINITE,
    MOST,
    Anything,
    Ends,
    Free,
    Index,
    Limits,
    Shape,
    Symbols,
    Within,
    cached,
    marks_of,
    plain_type,
    symbols_of,
)

FEW = 128
"""Numbers that are compared one by one sooner than numpy begins."""


@cached
def quick_check(kind: type[Message]) -> Callable[[Message, Symbols], bool]:
    """Whether all fields are as they should be; False also where it takes a closer look."""
    hints = typing.get_type_hints(kind, include_extras=True)
    writer = _Writer(set())
    for symbol in sorted(symbols_of(kind)):
        writer.write(f"{writer.local(symbol)} = _given[{symbol!r}]")
    for name, (shape, limits) in marks_of(kind).items():
        is_array = any(isinstance(mark, ArrayOf) for mark in getattr(hints[name], "__metadata__", ()))
        writer.write(f"_value = _message.{name}")
        if shape is not None:
            writer.sizes(shape, "_value.shape" if is_array else "(len(_value),)")
        writer.limits(limits, is_array=is_array)
        if plain_type(hints[name]) is int:
            writer.write(f"{writer.local(name)} = _value")
    source = "def fits(_message, _given):\n    " + "\n    ".join([*writer.lines, "return True"])
    space: dict[str, Any] = {
        "inf": math.inf, "_array": np.ndarray,
        "_isfinite": math.isfinite, "_extremes": _extremes, "_are_ends": are_ends,
    }  # fmt: skip
    exec(source, space)  # noqa: S102 - nothing in it comes from a message
    return cast("Callable[[Message, Symbols], bool]", space["fits"])


class _Writer:
    """The lines of one function, and which symbols they know so far."""

    def __init__(self, known: set[str]) -> None:
        self.lines: list[str] = []
        self._known = known

    def write(self, line: str) -> None:
        self.lines.append(line)

    def local(self, symbol: str) -> str:
        """The variable for a symbol, known from here on."""
        if not symbol.isidentifier() or symbol.startswith("_"):
            raise InvalidType(f"{symbol!r} is not a name for a number of a message")
        self._known.add(symbol)
        return symbol

    def sizes(self, shape: Shape, of: str) -> None:
        """Refuse other sizes; free ones become known."""
        if all(isinstance(size, int | str) for size in shape):
            self.write(f"if {of} != ({', '.join(map(str, shape))},): return False")
            return
        self.write(f"_sizes = {of}")
        self.write(f"if len(_sizes) != {len(shape)}: return False")
        for place, size in enumerate(shape):
            name = size.name if isinstance(size, Free) else size
            if isinstance(size, Free) and name not in self._known:
                self.write(f"{self.local(size.name)} = _sizes[{place}]")
                if (size.at_least, size.at_most) != (0, MOST):
                    self.write(f"if not {size.at_least} <= {name} <= {size.at_most}: return False")
            else:
                self.write(f"if _sizes[{place}] != {name}: return False")

    def limits(self, limits: Limits | None, *, is_array: bool) -> None:
        """Refuse other values; those with a limit each are for the closer look."""
        if limits is None or isinstance(limits, Anything):
            return
        if isinstance(limits, Ends):
            self.write(f"if not _are_ends(_value, len(_message.{limits.of})): return False")
        elif isinstance(limits, Index) and limits.by is not None:
            self.write("return False")
        elif limits == FINITE and is_array:  # a finite sum has finite parts
            self.write(f"_few = _value.size <= {FEW} and _value.ndim == 1")
            self.write("if not _isfinite(sum(_value.tolist()) if _few else sum(_extremes(_value))): return False")
        else:
            low, high = (limits.low, limits.high) if isinstance(limits, Within) else (limits.lowest, limits.size)
            below = "<=" if isinstance(limits, Within) else "<"
            for end in (low, high):
                if isinstance(end, str):
                    self.write(f"if type({end}) is _array: return False")
            if is_array:
                self.write("if _value.size:")
                self.write("    _low, _high = _extremes(_value)")
                self.write(f"    if not ({low} <= _low and _high {below} {high}): return False")
            else:
                self.write(f"if not {low} <= _value {below} {high}: return False")


def _extremes(value: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """The smallest and the largest number, or NaN twice if one of them is NaN; 0 if there are none."""
    if value.size > FEW:
        flat = value.reshape(-1)
        return np.minimum.reduce(flat).item(), np.maximum.reduce(flat).item()
    numbers = value.reshape(-1).tolist() or [0]
    total = sum(numbers) if value.dtype.kind == "f" else 0.0  # min and max would pass over a NaN
    return (min(numbers), max(numbers)) if total == total else (total, total)  # noqa: PLR0124 - NaN is not itself


def are_ends(value: np.ndarray[Any, Any], length: int) -> bool:
    """Whether these are where parts of something of this length end: in order, from 0 to its end."""
    ends: list[int] = value.tolist()
    return (ends[-1] == length and ends[0] >= 0 and sorted(ends) == ends) if ends else length == 0
