"""Is a message within the ranges that its class states? The first field that is not makes a ProtocolError.

A quick function (`written_out`) passes nearly all messages; what it does not pass is looked at field by field here, for
the sentence that says what is wrong, or because it takes a closer look.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hedgerow.errors import InvalidType, ProtocolError
from hedgerow.transport.frames import Message
from hedgerow.transport.ranges import Anything, Ends, Free, Index, Shape, Size, Symbols, Within, marks_of, symbols_of
from hedgerow.transport.written_out import FEW, are_ends, quick_check


def require(kind: type[Message], given: Symbols) -> None:
    """InvalidType unless exactly the symbols of this kind of message are given: a mistake in a role, not of a peer."""
    needed = symbols_of(kind)
    if needed != given.keys():
        raise InvalidType(f"recv of {kind.NAME} takes the symbols {sorted(needed)}, got {sorted(given)}")


def check(sender: str, message: Message, given: Symbols) -> None:
    """ProtocolError, with sender, message, field and value, for the first field that is not as its class says."""
    if not quick_check(type(message))(message, given):
        look_closely(sender, message, given)


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
