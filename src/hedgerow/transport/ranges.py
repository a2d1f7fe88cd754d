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
import sys
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
FINITE = Within(-sys.float_info.max, sys.float_info.max)
"""Any float64 but NaN and the infinities."""

_SIZED = (bytes, str, tuple[str, ...])
_FEW = 128  # numbers that are compared one by one sooner than numpy begins

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
    if _plainly_fits(message, dict(given)):
        return
    known = dict(given)
    for name, (shape, limits) in marks_of(type(message)).items():
        value = getattr(message, name)
        if shape is not None:
            _check_shape(sender, message, name, value, shape, known)
        if limits is not None and not isinstance(limits, Anything):
            _check_limits(sender, message, name, value, limits, known)
        if type(value) is int:
            known[name] = value


@_cached
def _plain_marks(kind: type[Message]) -> tuple[tuple[Any, ...], ...] | None:
    """Each field's name, sizes as (name or number, least, most), lowest and highest, and what to take off the latter.

    None if there is more to it in any of them.
    """
    found = []
    for name, (shape, limits) in marks_of(kind).items():
        if isinstance(limits, Ends) or (isinstance(limits, Index) and limits.by is not None):
            return None
        sizes = tuple((s.name, s.at_least, s.at_most) if isinstance(s, Free) else (s, None, None) for s in shape or ())
        low = high = None
        if isinstance(limits, Within):
            low, high = limits.low, limits.high
        elif isinstance(limits, Index):
            low, high = limits.lowest, limits.size
        found.append((name, sizes, low, high, int(isinstance(limits, Index))))
    return tuple(found)


def _plainly_fits(message: Message, known: dict[str, Any]) -> bool:
    """Whether all fields are as they should be, decided quickly; False where it takes a closer look."""
    marks = _plain_marks(type(message))
    if marks is None:
        return False
    for name, sizes, low, high, off in marks:
        value = getattr(message, name)
        is_array = type(value) is np.ndarray
        if sizes and not _plain_sizes(value.shape if is_array else (len(value),), sizes, known):
            return False
        if low is not None:
            smallest = largest = value
            if is_array:
                if not value.size:
                    continue
                smallest, largest = _extremes(value)
            lowest = known[low] if low.__class__ is str else low
            highest = known[high] if high.__class__ is str else high
            if type(lowest) is np.ndarray or type(highest) is np.ndarray:
                return False
            if not (lowest <= smallest and largest <= highest - off):  # NaN is neither
                return False
        if type(value) is int:
            known[name] = value
    return True


def _extremes(value: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """The smallest and the largest number, or NaN twice if one of them is NaN."""
    if value.size > _FEW:
        flat = value.reshape(-1)
        return np.minimum.reduce(flat).item(), np.maximum.reduce(flat).item()
    numbers = value.tolist() if value.ndim == 1 else value.reshape(-1).tolist()
    total = sum(numbers) if value.dtype.kind == "f" else 0.0  # min and max would pass over a NaN
    return (min(numbers), max(numbers)) if total == total else (total, total)  # noqa: PLR0124 - NaN is not itself


def _plain_sizes(got: tuple[int, ...], sizes: tuple[Any, ...], known: dict[str, Any]) -> bool:
    if len(got) != len(sizes):
        return False
    for (size, least, most), length in zip(sizes, got, strict=False):
        if size.__class__ is int:
            if size != length:
                return False
        elif least is None or size in known:
            if known[size] != length:
                return False
        else:
            known[size] = length
            low = known[least] if least.__class__ is str else least
            high = known[most] if most.__class__ is str else most
            if not low <= length <= high:
                return False
    return True


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
    last = value[-1] if len(value) else 0
    # Each compared with the one before, without subtracting: differences of extreme numbers overflow.
    wrong = last != length or (len(value) and value[0] < 0) or bool(np.any(value[1:] < value[:-1]))
    return np.asarray(value).tolist()[:8] if wrong else None


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
    if value.size <= _FEW:
        for number in value.reshape(-1).tolist():
            if not low <= number <= high:
                return number
        return None
    smallest, largest = value.min().item(), value.max().item()
    if low <= smallest and largest <= high:
        return None
    return smallest if not low <= smallest else largest
