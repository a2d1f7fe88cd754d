"""What numbers from a peer may be. A message states it; `Party.recv` checks it before anything else sees the message.

    codes: Annotated[UInt8s, Shape("n_columns", "n_rows"), Index("n_buckets")]
    seed: Annotated[bytes, Shape(32)]
    n_rows: Annotated[int, Within(1, "most_rows")]

A name is a symbol: a number, or an array that broadcasts over the field, which the receiver knows from the job, its own
table or an earlier message, and must pass to `recv`. A whole number that was checked is a symbol for the fields after
it. A `Free` size is the sender's choice within limits; the first field that has it fixes it for the others.

Every number, array and sequence of bytes or texts states its range. `Anything` is one too: all values of the type are
fine, as they are for masked words.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

from hedgerow.errors import InvalidType, ProtocolError
from hedgerow.transport.fields import ArrayOf
from hedgerow.transport.frames import Message

Symbols: TypeAlias = Mapping[str, Any]

MOST = 2**31 - 1
"""What a free size may be where nothing smaller is known: frames have a limit of their own."""


# --- marks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Free:
    """A size that the sender chooses, within limits."""

    name: str
    at_least: int | str = 0
    at_most: int | str = MOST


Size: TypeAlias = int | str | Free


class Shape(tuple[Size, ...]):
    """The sizes of an array; the length of bytes or of a text, or the number of texts. Without it: a single number."""

    __slots__ = ()

    def __new__(cls, *sizes: Size) -> Self:
        """`Shape("n_nodes", 32)`: sizes as arguments."""
        return super().__new__(cls, sizes)


@dataclass(frozen=True)
class Anything:
    """All values of the field's type are fine."""

    def __str__(self) -> str:
        return "anything"


@dataclass(frozen=True)
class Within:
    """low <= value <= high, which NaN never is. `Within(-math.inf, math.inf)` is any number, but not NaN."""

    low: float | str
    high: float | str

    def __str__(self) -> str:
        return f"between {self.low} and {self.high}"


@dataclass(frozen=True)
class Index:
    """0 <= value < size. With `by`, an earlier field, sizes differ: that of element i is size[by[i]].

    `lowest` is smaller where negative numbers have a meaning (-1: none).
    """

    size: int | str
    by: str | None = None
    lowest: int = 0

    def __str__(self) -> str:
        return f"an index below {self.size}" + (f" from {self.lowest} on" if self.lowest else "")


@dataclass(frozen=True)
class Ends:
    """Where the parts of an earlier field end: never less than the one before, and the last is that field's length."""

    of: str

    def __str__(self) -> str:
        return f"where parts of {self.of} end, in order and to its end"


Limits: TypeAlias = Anything | Within | Index | Ends
FINITE = Within(-np.finfo(np.float64).max, np.finfo(np.float64).max)
"""Any float64 but NaN and the infinities."""

_SIZED = (bytes, str, tuple[str, ...])

F = TypeVar("F", bound=Callable[..., Any])


def _cached(function: F) -> F:
    """functools.cache under the function's own type; mypy does not accept classes as arguments of the plain one."""
    return functools.cache(function)  # type: ignore[return-value]  # as just said


# --- a message class's marks -----------------------------------------------------------------------------------------


@_cached
def marks_of(kind: type[Message]) -> dict[str, tuple[Shape | None, Limits | None]]:
    """Shape and range of each field that has any; None for what it does not state."""
    found = {}
    hints = typing.get_type_hints(kind, include_extras=True)
    for name in (field.name for field in fields(kind)):  # type: ignore[arg-type]  # every message is a dataclass
        marks = getattr(hints[name], "__metadata__", ())
        shape = next((mark for mark in marks if isinstance(mark, Shape)), None)
        limits = next((mark for mark in marks if isinstance(mark, Limits)), None)
        if shape is not None or limits is not None:
            found[name] = (shape, limits)
    return found


def unstated(kind: type[Message]) -> list[str]:
    """Fields that do not say what they may be: numbers and arrays without limits, arrays and bytes without a shape."""
    missing = []
    hints, marks = typing.get_type_hints(kind, include_extras=True), marks_of(kind)
    for name in (field.name for field in fields(kind)):  # type: ignore[arg-type]  # as above
        plain = _plain(hints[name])
        scalar = next((m.scalar for m in getattr(hints[name], "__metadata__", ()) if isinstance(m, ArrayOf)), None)
        shape, limits = marks.get(name, (None, None))
        has_numbers = plain in (int, float) or scalar not in (None, np.bool_)
        has_size = plain in _SIZED or scalar is not None
        if (has_numbers and limits is None) or (has_size and shape is None):
            missing.append(name)
    return missing


@_cached
def symbols_of(kind: type[Message]) -> frozenset[str]:
    """The symbols that `recv` takes for this kind of message."""
    needed: set[str] = set()
    known: set[str] = set()
    hints = typing.get_type_hints(kind, include_extras=True)
    for name, (shape, limits) in marks_of(kind).items():
        for size in shape or ():
            if isinstance(size, Free):
                needed |= {end for end in (size.at_least, size.at_most) if isinstance(end, str)} - known
                known.add(size.name)
            elif isinstance(size, str):
                needed |= {size} - known
        ends: tuple[object, ...] = ()
        if isinstance(limits, Within):
            ends = (limits.low, limits.high)
        elif isinstance(limits, Index):
            ends = (limits.size,)
        needed |= {end for end in ends if isinstance(end, str)} - known
        if _plain(hints[name]) is int:
            known.add(name)
    return frozenset(needed)


def _plain(hint: Any) -> Any:
    """The type under the marks."""
    return typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


# --- checking --------------------------------------------------------------------------------------------------------


def require(kind: type[Message], given: Symbols) -> None:
    """InvalidType unless exactly the symbols of this kind of message are given: a mistake in a role, not of a peer."""
    needed = symbols_of(kind)
    if needed != given.keys():
        raise InvalidType(f"recv of {kind.NAME} takes the symbols {sorted(needed)}, got {sorted(given)}")


def check(sender: str, message: Message, given: Symbols) -> None:
    """ProtocolError, with sender, message, field and value, for the first field that is not as its class says."""
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
        if isinstance(size, int):
            wanted = size
        elif isinstance(size, str):
            wanted = known[size]
        elif size.name in known:
            wanted = known[size.name]
        else:
            low, high = _value(size.at_least, known), _value(size.at_most, known)
            if not low <= length <= high:
                raise ProtocolError(
                    f"{sender} sent {message.NAME} with {name} of length {length}, expected {low} to {high}"
                )
            wanted = known[size.name] = length
        if length != wanted:
            sizes = ", ".join(str(_size(size, known)) for size in shape) + "," * (len(shape) == 1)
            raise ProtocolError(f"{sender} sent {message.NAME} with {name} of shape {got}, expected ({sizes})")


def _size(size: Size, known: Symbols) -> Any:
    """As a number, if it is known already."""
    name = size.name if isinstance(size, Free) else size
    return known.get(name, f"any {name}") if isinstance(name, str) else name


def _value(end: Any, known: Symbols) -> Any:
    return known[end] if isinstance(end, str) else end


def _check_limits(
    sender: str, message: Message, name: str, value: Any, limits: Within | Index | Ends, known: Symbols
) -> None:
    wrong: Any = None
    said = ""
    if isinstance(limits, Ends):
        length = len(getattr(message, limits.of))
        last = value[-1] if len(value) else 0
        # Each compared with the one before, without subtracting: differences of extreme numbers overflow.
        if last != length or (len(value) and value[0] < 0) or bool(np.any(value[1:] < value[:-1])):
            wrong = np.asarray(value).tolist()[:8]
    else:
        low, high = _ends(limits, message, known)
        wrong = _outside(value, low, high)
        if wrong is not None and np.ndim(low) == np.ndim(high) == 0 and str(limits) != f"between {low} and {high}":
            said = f", from {low} to {high}"
    if wrong is not None:
        raise ProtocolError(f"{sender} sent {message.NAME} with {name} = {wrong}, which is not {limits}{said}")


def _ends(limits: Within | Index, message: Message, known: Symbols) -> tuple[Any, Any]:
    if isinstance(limits, Within):
        return _value(limits.low, known), _value(limits.high, known)
    size = known[limits.size] if isinstance(limits.size, str) else limits.size
    if limits.by is not None:
        size = np.asarray(size)[getattr(message, limits.by)]
    return limits.lowest, size - 1


def _outside(value: Any, low: Any, high: Any) -> Any:
    """One value that is not between the two; None if all are."""
    if not isinstance(value, np.ndarray):
        return None if low <= value <= high else value
    if value.size == 0:
        return None
    if np.ndim(low) == 0 and np.ndim(high) == 0:
        smallest, largest = value.min(), value.max()
        if low <= smallest and largest <= high:
            return None
        return (smallest if not low <= smallest else largest).item()
    inside = (low <= value) & (value <= high)
    return None if inside.all() else value[~inside].flat[0].item()
