"""Is a message within the ranges that its class states? The first field that is not makes a ProtocolError.

There is a message for every level of every tree, and going through marks takes several times as long as the comparisons
themselves. So each class gets a function of its own without loops and look-ups, in the way that dataclasses get their
methods. What is written there comes from the class alone: names that are identifiers, and numbers.

    class Splits(Message, ...):                                  def fits(_message, _given):
        n_rows: Annotated[int, Within(1, "most_rows")]               _value = _message.n_rows
        feature: Annotated[Int64s, Shape(Free("n")), Index(8)]       if not 1 <= _value <= _given["most_rows"]: ...

It passes nearly all messages. What it does not pass is looked at field by field, for the sentence that says what is
wrong, or because it takes a closer look.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from hedgerow.errors import InvalidType, ProtocolError
from hedgerow.transport.frames import Message, plain_type, scalar_of
from hedgerow.transport.ranges import (
    FINITE,
    MOST,
    Anything,
    Ends,
    Free,
    Index,
    Limits,
    Shape,
    Size,
    Symbols,
    Within,
    cached,
    marks_of,
    symbols_of,
)

FEW = 128
"""Numbers that are compared one by one sooner than numpy begins."""


def require(kind: type[Message], given: Symbols) -> None:
    """InvalidType unless exactly the symbols of this kind of message are given: a mistake in a role, not of a peer."""
    needed = symbols_of(kind)
    if needed != given.keys():
        raise InvalidType(f"recv of {kind.NAME} takes the symbols {sorted(needed)}, got {sorted(given)}")


def check(sender: str, message: Message, given: Symbols) -> None:
    """ProtocolError, with sender, message, field and value, for the first field that is not as its class says."""
    if not quick_check(type(message))(message, given):
        look_closely(sender, message, given)


# --- the quick function of a class -----------------------------------------------------------------------------------


@cached
def quick_check(kind: type[Message]) -> Callable[[Message, Symbols], bool]:
    """Whether all fields are as they should be; False also where it takes a closer look."""
    hints = typing.get_type_hints(kind, include_extras=True)
    writer = _Writer(set())
    for symbol in sorted(symbols_of(kind)):
        writer.lines.append(f"{writer.local(symbol)} = _given[{symbol!r}]")
    for name, (shape, limits) in marks_of(kind).items():
        is_array = scalar_of(hints[name]) is not None
        writer.lines.append(f"_value = _message.{name}")
        if shape is not None:
            writer.sizes(shape, "_value.shape" if is_array else "(len(_value),)")
        writer.limits(limits, is_array=is_array)
        if plain_type(hints[name]) is int:
            writer.lines.append(f"{writer.local(name)} = _value")
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

    def local(self, symbol: str) -> str:
        """The variable for a symbol, known from here on."""
        if not symbol.isidentifier() or symbol.startswith("_"):
            raise InvalidType(f"{symbol!r} is not a name for a number of a message")
        self._known.add(symbol)
        return symbol

    def sizes(self, shape: Shape, of: str) -> None:
        """Refuse other sizes; free ones become known."""
        if all(isinstance(size, int | str) for size in shape):
            self.lines.append(f"if {of} != ({', '.join(map(str, shape))},): return False")
            return
        self.lines.append(f"_sizes = {of}")
        self.lines.append(f"if len(_sizes) != {len(shape)}: return False")
        for place, size in enumerate(shape):
            name = size.name if isinstance(size, Free) else size
            if isinstance(size, Free) and name not in self._known:
                self.lines.append(f"{self.local(size.name)} = _sizes[{place}]")
                if (size.at_least, size.at_most) != (0, MOST):
                    self.lines.append(f"if not {size.at_least} <= {name} <= {size.at_most}: return False")
            else:
                self.lines.append(f"if _sizes[{place}] != {name}: return False")

    def limits(self, limits: Limits | None, *, is_array: bool) -> None:
        """Refuse other values; those with a limit each are for the closer look."""
        if limits is None or isinstance(limits, Anything):
            return
        if isinstance(limits, Ends):
            self.lines.append(f"if not _are_ends(_value, len(_message.{limits.of})): return False")
        elif isinstance(limits, Index) and limits.by is not None:
            self.lines.append("return False")
        elif limits == FINITE and is_array:  # a finite sum has finite parts
            self.lines.append(f"_few = _value.size <= {FEW} and _value.ndim == 1")
            self.lines.append(
                "if not _isfinite(sum(_value.tolist()) if _few else sum(_extremes(_value))): return False"
            )
        else:
            low, high = (limits.low, limits.high) if isinstance(limits, Within) else (limits.lowest, limits.size)
            below = "<=" if isinstance(limits, Within) else "<"
            for end in (low, high):
                if isinstance(end, str):
                    self.lines.append(f"if type({end}) is _array: return False")
            if is_array:
                self.lines.append("if _value.size:")
                self.lines.append("    _low, _high = _extremes(_value)")
                self.lines.append(f"    if not ({low} <= _low and _high {below} {high}): return False")
            else:
                self.lines.append(f"if not {low} <= _value {below} {high}: return False")


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


# --- the closer look -------------------------------------------------------------------------------------------------


def look_closely(sender: str, message: Message, given: Symbols) -> None:
    """As `check`, field by field."""
    known = dict(given)
    for name, (shape, limits) in marks_of(type(message)).items():
        value = getattr(message, name)
        if shape is not None:
            _check_shape(sender, message, name, value, shape, known)
        if limits is not None and not isinstance(limits, Anything):
            _check_limits(sender, message, name, value, limits, known)
        if type(value) is int:
            known[name] = value


def _check_shape(sender: str, message: Message, name: str, value: Any, shape: Shape, known: dict[str, Any]) -> None:
    got = value.shape if isinstance(value, np.ndarray) else (len(value),)
    if len(got) != len(shape):
        raise ProtocolError(f"{sender} sent {message.NAME} with {name} of {len(got)} dimensions, expected {len(shape)}")
    for size, length in zip(shape, got, strict=True):
        if isinstance(size, Free) and size.name not in known:
            low, high = (known[end] if isinstance(end, str) else end for end in (size.at_least, size.at_most))
            if not low <= length <= high:
                raise ProtocolError(
                    f"{sender} sent {message.NAME} with {name} of length {length}, expected {low} to {high}"
                )
            known[size.name] = length
        elif length != _size(size, known):
            expected = tuple("any" if isinstance(s, Free) and s.name not in known else _size(s, known) for s in shape)
            raise ProtocolError(f"{sender} sent {message.NAME} with {name} of shape {got}, expected {expected}")


def _size(size: Size, known: Symbols) -> int:
    if isinstance(size, Free):
        size = size.name
    return int(known[size]) if isinstance(size, str) else size


def _check_limits(
    sender: str, message: Message, name: str, value: Any, limits: Within | Index | Ends, known: Symbols
) -> None:
    if isinstance(limits, Ends):
        wrong, said = _not_ends(value, len(getattr(message, limits.of))), ""
    else:
        low, high = _ends(limits, message, known)
        wrong = _outside(value, low, high)
        if wrong is None:
            return
        known_ends = np.ndim(low) == 0 and np.ndim(high) == 0 and f"{low} and {high}" not in str(limits)
        said = f", from {low} to {high}" if known_ends else ""
    if wrong is not None:
        raise ProtocolError(f"{sender} sent {message.NAME} with {name} = {wrong}, which is not {limits}{said}")


def _not_ends(value: Any, length: int) -> Any:
    """The first of them, unless they are where parts of this length end; then None."""
    return None if are_ends(value, length) else np.asarray(value).tolist()[:8]


def _ends(limits: Within | Index, message: Message, known: Symbols) -> tuple[Any, Any]:
    if isinstance(limits, Within):
        low, high = limits.low, limits.high
        return known[low] if isinstance(low, str) else low, known[high] if isinstance(high, str) else high
    size = known[limits.size] if isinstance(limits.size, str) else limits.size
    if limits.by is not None:
        size = np.asarray(size)[getattr(message, limits.by)]
    return limits.lowest, size - 1


def _outside(value: Any, low: Any, high: Any) -> Any:
    """One value that is not between the two; None if all are."""
    if not isinstance(value, np.ndarray):
        return None if low <= value <= high else value
    if isinstance(low, np.ndarray) or isinstance(high, np.ndarray):
        inside = (low <= value) & (value <= high)
        return None if inside.all() else value[~inside].flat[0].item()
    # As Python's numbers: numpy would round a limit to the type of the array.
    if value.size <= FEW:
        for number in value.reshape(-1).tolist():
            if not low <= number <= high:
                return number
        return None
    smallest, largest = value.min().item(), value.max().item()
    if low <= smallest and largest <= high:
        return None
    return smallest if not low <= smallest else largest
