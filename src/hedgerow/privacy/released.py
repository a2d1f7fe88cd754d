"""What a mechanism returns: the value that may leave the private side, and the event that says what it is worth."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from hedgerow.privacy.events import Event

Value = TypeVar("Value")


class Released(NamedTuple, Generic[Value]):
    """What left the private side, and what is known about it."""

    values: Value
    event: Event
