"""What an endpoint asks of grpcio: streams of messages, and the two ends that they come from.

There are two implementations: grpc_calls.py, the fast one, and grpc_public.py, for the versions of grpcio that the
fast one was not tried with (grpc_versions.py chooses). Whatever both have to do alike is here.

    Stream       one two-way call, seen from either side; tells its owner what happens on it
    StreamOwner  whom it tells
    Dialler      makes streams to a listening peer
    Listener     a port, and the streams that come in on it
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol

from hedgerow.transport.envelope import HELLO_KEY
from hedgerow.transport.places import Places
from hedgerow.transport.pump import Pump

METHOD = "/hedgerow.Transport/Talk"
WRONG_METHOD = "this is a Hedgerow endpoint"
TOO_MANY = "too many calls at once"
STOP_SECONDS = 5.0  # how long the end of the last calls may take when an endpoint is closed

Options = tuple[tuple[str, int | str], ...]


class StreamOwner(Protocol):
    """Whom a stream tells what happens. Called by the watching thread, one event at a time per pump."""

    def on_message(self, stream: Stream, message: bytes) -> bool:
        """A message came. False: no more until `stream.resume()`."""
        ...

    def wants_more(self) -> bool:
        """May messages come?"""
        ...

    def on_written(self, stream: Stream) -> None:
        """The message given to `write` is on its way; the next one may be written."""
        ...

    def on_end(self, stream: Stream, code: str, details: str) -> None:
        """Nothing more will come or go."""
        ...


class Stream(ABC):
    """One two-way call. `write` one message at a time; the owner hears of the rest."""

    LISTENS: ClassVar[bool]  # which side of the call this is

    def __init__(self, owner: StreamOwner) -> None:
        self.owner = owner
        self.peer_certificate: bytes | None = None  # PEM; only a listening side can see it
        self.hello = b""  # what came in the header of the call; only a listening side has it
        self.ended = False
        self._finished = False  # we said that we write no more
        self._paused = False
        self._gate = threading.Lock()

    @abstractmethod
    def write(self, message: bytes) -> None:
        """Send a message; `on_written` follows. The one before must have been written."""

    @abstractmethod
    def read(self) -> None:
        """Ask for the next message."""

    @abstractmethod
    def finish(self) -> None:
        """End the call in good order: what was written arrives first. `on_end` follows when the peer has agreed."""

    @abstractmethod
    def end(self, code: str, details: str) -> None:
        """End the call now; the peer gets the code and the sentence if it is the one that dialled."""

    def resume(self) -> None:
        """Let messages come again after `on_message` gave False."""
        with self._gate:
            paused, self._paused = self._paused, False
        if paused:
            self.read()

    # Events, for the implementations to call

    def _arrived(self, message: bytes | None) -> None:
        """A message, or None: the peer has finished."""
        if self.ended:
            return
        if message is None:
            if self.LISTENS:  # one that dialled is told the status next
                self.finish()
        elif self.owner.on_message(self, message):
            self.read()
        else:
            self._paused = True
            if self.owner.wants_more():  # again since it said no; its `resume` may have come before we paused
                self.resume()

    def _wrote(self) -> None:
        if not self.ended:
            self.owner.on_written(self)

    def _over(self, code: str, details: str) -> None:
        if not self.ended:
            self.ended = True
            self.owner.on_end(self, code, details)


class Dialler(Pump):
    """A channel to one listening peer, and the calls on it. Nothing can be dialled before `connect`."""

    is_ready = False

    @abstractmethod
    def connect(self, credentials: Any) -> None:
        """Make the channel, with credentials that accept the certificate of this peer and no other."""

    @abstractmethod
    def open_stream(self, owner: StreamOwner, hello: bytes) -> Stream:
        """Start a call with this HELLO in its header; its owner hears of its end if it cannot be made."""


Receive = Callable[[Stream], bool]
"""What a listener does with a call that came in: take it and let it read, or end it, at once. Whether it was taken."""


class Listener(Pump):
    """A listening port, and the calls that come in on it."""

    port: int
    places: Places


def hello_in(metadata: Iterable[tuple[Any, Any]]) -> bytes:
    """The HELLO in the header of a call; empty unless there is exactly one."""
    found = [value for key, value in metadata if key == HELLO_KEY]
    return found[0] if len(found) == 1 and isinstance(found[0], bytes) else b""


class Nobody:
    """The owner of a call that has none yet, or is refused at once."""

    def on_message(self, stream: Stream, message: bytes) -> bool:  # noqa: ARG002 - the interface
        """Take no more."""
        return False

    def wants_more(self) -> bool:
        """Never."""
        return False

    def on_written(self, stream: Stream) -> None:
        """Nothing follows."""

    def on_end(self, stream: Stream, code: str, details: str) -> None:
        """Nothing is lost."""
