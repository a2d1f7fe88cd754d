"""What numbers from a peer may be. A message states it; `Party.recv` checks it before anything else sees the message.

    codes: Annotated[UInt8s, Shape("n_columns", "n_rows"), Index("n_buckets")]
    seed: Annotated[bytes, Shape(32)]
    n_rows: Annotated[int, Within(1, "most_rows")]

A name is a symbol: a number, or an array that broadcasts over the field, which the receiver knows from the job, its own
table or an earlier message, and must pass to `recv`. A whole number that was checked is a symbol for the fields after
it. A `Free` size is the sender's choice within limits; the first field that has it fixes it for the others.

Every number, array and sequence of bytes or texts states its range. `Anything` is one too: all values of the type are
fine, as they are for masked words.

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
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self, TypeAlias, cast

import numpy as np

from hedgerow.errors import InvalidType, ProtocolError
from hedgerow.transport.frames import Message, cached, plain_type, scalar_of

Symbols: TypeAlias = Mapping[str, Any]

MOST = 2**31 - 1
"""What a free size may be where nothing smaller is known: frames have a limit of their own."""
FEW = 128
"""Numbers that are compared one by one sooner than numpy begins."""


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

    @property
    def ends(self) -> tuple[float | str, float | str]:
        """The first and the last value."""
        return self.low, self.high

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

    @property
    def ends(self) -> tuple[float | str, float | str]:
        """The first value, and the one after the last."""
        return self.lowest, self.size

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

# --- a message class's marks -----------------------------------------------------------------------------------------


class Stated(NamedTuple):
    """What a field says about itself; None for what it does not."""

    plain: Any  # its type without marks
    scalar: type[np.generic] | None  # of an array
    shape: Shape | None
    limits: Limits | None


@cached
def stated(kind: type[Message]) -> dict[str, Stated]:
    """Of each field of a message."""
    found = {}
    hints = typing.get_type_hints(kind, include_extras=True)
    for name in (field.name for field in fields(kind)):  # type: ignore[arg-type]  # every message is a dataclass
        marks = getattr(hints[name], "__metadata__", ())
        shape = next((mark for mark in marks if isinstance(mark, Shape)), None)
        limits = next((mark for mark in marks if isinstance(mark, Limits)), None)
        found[name] = Stated(plain_type(hints[name]), scalar_of(hints[name]), shape, limits)
    return found


@cached
def symbols_of(kind: type[Message]) -> frozenset[str]:
    """The symbols that `recv` takes for this kind of message."""
    needed: set[str] = set()
    known: set[str] = set()
    for name, (plain, _, shape, limits) in stated(kind).items():
        for size in shape or ():
            if isinstance(size, Free):
                needed |= _names(size.at_least, size.at_most) - known
                known.add(size.name)
            else:
                needed |= _names(size) - known
        if isinstance(limits, Within | Index):
            needed |= _names(*limits.ends) - known
        if plain is int:
            known.add(name)
    return frozenset(needed)


def _names(*ends: float | str) -> set[str]:
    return {end for end in ends if isinstance(end, str)}


# --- checking --------------------------------------------------------------------------------------------------------


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
    lines = [f"{_local(symbol)} = _given[{symbol!r}]" for symbol in sorted(symbols_of(kind))]
    known = set(symbols_of(kind))
    for name, (plain, scalar, shape, limits) in stated(kind).items():
        if shape is None and limits is None:
            continue
        lines.append(f"_value = _message.{name}")
        if shape is not None:
            lines += _size_lines(shape, "_value.shape" if scalar is not None else "(len(_value),)", known)
        lines += _limit_lines(limits, is_array=scalar is not None)
        if plain is int:
            lines.append(f"{_local(name)} = _value")
            known.add(name)
    source = "def fits(_message, _given):\n    " + "\n    ".join([*lines, "return True"])
    space: dict[str, Any] = {
        "inf": math.inf, "_array": np.ndarray,
        "_isfinite": math.isfinite, "_extremes": _extremes, "_are_ends": _are_ends,
    }  # fmt: skip
    exec(source, space)  # noqa: S102 - nothing in it comes from a message
    return cast("Callable[[Message, Symbols], bool]", space["fits"])


def _local(symbol: str) -> str:
    """The variable for a symbol."""
    if not symbol.isidentifier() or symbol.startswith("_"):
        raise InvalidType(f"{symbol!r} is not a name for a number of a message")
    return symbol


def _size_lines(shape: Shape, of: str, known: set[str]) -> list[str]:
    """Refuse other sizes; free ones become known."""
    if all(isinstance(size, int | str) for size in shape):
        return [f"if {of} != ({', '.join(map(str, shape))},): return False"]
    lines = [f"_sizes = {of}", f"if len(_sizes) != {len(shape)}: return False"]
    for place, size in enumerate(shape):
        name = size.name if isinstance(size, Free) else size
        if isinstance(size, Free) and name not in known:
            known.add(size.name)
            lines.append(f"{_local(size.name)} = _sizes[{place}]")
            if (size.at_least, size.at_most) != (0, MOST):
                lines.append(f"if not {size.at_least} <= {name} <= {size.at_most}: return False")
        else:
            lines.append(f"if _sizes[{place}] != {name}: return False")
    return lines


def _limit_lines(limits: Limits | None, *, is_array: bool) -> list[str]:
    """Refuse other values; those with a limit each are for the closer look."""
    if limits is None or isinstance(limits, Anything):
        return []
    if isinstance(limits, Ends):
        return [f"if not _are_ends(_value, len(_message.{limits.of})): return False"]
    if isinstance(limits, Index) and limits.by is not None:
        return ["return False"]
    if limits == FINITE and is_array:  # a finite sum has finite parts
        return [
            f"_few = _value.size <= {FEW} and _value.ndim == 1",
            "if not _isfinite(sum(_value.tolist()) if _few else sum(_extremes(_value))): return False",
        ]
    low, high = limits.ends
    below = "<=" if isinstance(limits, Within) else "<"
    lines = [f"if type({end}) is _array: return False" for end in (low, high) if isinstance(end, str)]
    if not is_array:
        return [*lines, f"if not {low} <= _value {below} {high}: return False"]
    return [
        *lines,
        "if _value.size:",
        "    _low, _high = _extremes(_value)",
        f"    if not ({low} <= _low and _high {below} {high}): return False",
    ]


def _extremes(value: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """The smallest and the largest number, or NaN twice if one of them is NaN; 0 if there are none."""
    if value.size > FEW:
        flat = value.reshape(-1)
        return np.minimum.reduce(flat).item(), np.maximum.reduce(flat).item()
    numbers = value.reshape(-1).tolist() or [0]
    total = sum(numbers) if value.dtype.kind == "f" else 0.0  # min and max would pass over a NaN
    return (min(numbers), max(numbers)) if total == total else (total, total)  # noqa: PLR0124 - NaN is not itself


def _are_ends(value: np.ndarray[Any, Any], length: int) -> bool:
    """Whether these are where parts of something of this length end: in order, from 0 to its end."""
    ends: list[int] = value.tolist()
    return (ends[-1] == length and ends[0] >= 0 and sorted(ends) == ends) if ends else length == 0


# --- the closer look -------------------------------------------------------------------------------------------------


def look_closely(sender: str, message: Message, given: Symbols) -> None:
    """As `check`, field by field."""
    known = dict(given)
    for name, (_, _, shape, limits) in stated(type(message)).items():
        value = getattr(message, name)
        problem = None if shape is None else _wrong_shape(value, shape, known)
        if problem is None and limits is not None and not isinstance(limits, Anything):
            problem = _wrong_value(message, value, limits, known)
        if problem is not None:
            raise ProtocolError(f"{sender} sent {message.NAME} with {name} {problem}")
        if type(value) is int:
            known[name] = value


def _number(end: Any, known: Symbols) -> Any:
    return known[end] if isinstance(end, str) else end


def _wrong_shape(value: Any, shape: Shape, known: dict[str, Any]) -> str | None:
    """What is wrong with the sizes; those that are free become known."""
    got = value.shape if isinstance(value, np.ndarray) else (len(value),)
    if len(got) != len(shape):
        return f"of {len(got)} dimensions, expected {len(shape)}"
    for size, length in zip(shape, got, strict=True):
        if isinstance(size, Free) and size.name not in known:
            low, high = _number(size.at_least, known), _number(size.at_most, known)
            if not low <= length <= high:
                return f"of length {length}, expected {low} to {high}"
            known[size.name] = length
        elif length != _size(size, known):
            return f"of shape {got}, expected {tuple(_size(each, known) for each in shape)}"
    return None


def _size(size: Size, known: Symbols) -> int | str:
    if isinstance(size, Free):
        return int(known[size.name]) if size.name in known else "any"
    return int(_number(size, known))


def _wrong_value(message: Message, value: Any, limits: Within | Index | Ends, known: Symbols) -> str | None:
    """The first value that is not as stated, and what is."""
    if isinstance(limits, Ends):
        fits = _are_ends(value, len(getattr(message, limits.of)))
        return None if fits else f"= {np.asarray(value).tolist()[:8]}, which is not {limits}"
    low, high = (_number(end, known) for end in limits.ends)
    if isinstance(limits, Index):
        high = (high if limits.by is None else np.asarray(high)[getattr(message, limits.by)]) - 1
    wrong = _outside(value, low, high)
    if wrong is None:
        return None
    known_ends = np.ndim(low) == 0 and np.ndim(high) == 0 and f"{low} and {high}" not in str(limits)
    return f"= {wrong}, which is not {limits}" + (f", from {low} to {high}" if known_ends else "")


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
