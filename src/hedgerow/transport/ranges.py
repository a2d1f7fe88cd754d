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

from hedgerow.transport.frames import Message, plain_type, scalar_of

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

F = TypeVar("F", bound=Callable[..., Any])


def cached(function: F) -> F:
    """functools.cache under the function's own type; mypy does not accept classes as arguments of the plain one."""
    return functools.cache(function)  # type: ignore[return-value]  # as just said


# --- a message class's marks -----------------------------------------------------------------------------------------


@cached
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
        plain = plain_type(hints[name])
        scalar = scalar_of(hints[name])
        shape, limits = marks.get(name, (None, None))
        has_numbers = plain in (int, float) or scalar not in (None, np.bool_)
        has_size = plain in _SIZED or scalar is not None
        if (has_numbers and limits is None) or (has_size and shape is None):
            missing.append(name)
    return missing


@cached
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
        if plain_type(hints[name]) is int:
            known.add(name)
    return frozenset(needed)
