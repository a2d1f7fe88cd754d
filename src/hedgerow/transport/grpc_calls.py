"""The calls inside grpcio, made so that the thread that waits for a message is the one that takes it off the socket.

grpcio's own Python layer hands every message from the thread that watches the sockets to a second one, and every write
to a third; here there is one (pump.py). The price: this module uses `grpc._cython.cygrpc`, the layer below grpcio's
public one, which may change with any release. It is used nowhere else, and only with releases that it was tested with
(grpc_versions.py); everything that is not typed ends here.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from hedgerow.errors import TransportError
from hedgerow.transport.envelope import HELLO_KEY
from hedgerow.transport.places import Places, host_of
from hedgerow.transport.streams import (
    METHOD,
    STOP_SECONDS,
    TOO_MANY,
    WRONG_METHOD,
    Dialler,
    Listener,
    Nobody,
    Options,
    Receive,
    Stream,
    StreamOwner,
    hello_in,
)

_SLICE_SECONDS = 0.05  # how long one look at a server's queue may last before deadlines are looked at again
# Without its "event engine" grpcio watches sockets in the thread that asks for events, not in threads of its own, which
# takes half as long. It reads this on first use, so it has no effect if the process has used grpcio before.
_EXPERIMENTS = "-event_engine_client,-event_engine_listener"
_CODES = (
    "ok",
    "cancelled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "unauthenticated",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
)
# Everything of cygrpc that is used here: if any of it is missing, this module is not used.
_NAMES_USED = (
    "Channel.close",
    "Channel.integrated_call",
    "Channel.next_call_event",
    "CompletionQueue.poll",
    "CompletionQueue.shutdown",
    "CompletionType.queue_timeout",
    "ReceiveCloseOnServerOperation",
    "ReceiveInitialMetadataOperation",
    "ReceiveMessageOperation",
    "ReceiveStatusOnClientOperation",
    "SendCloseFromClientOperation",
    "SendInitialMetadataOperation",
    "SendMessageOperation",
    "SendStatusFromServerOperation",
    "Server.add_http2_port",
    "Server.cancel_all_calls",
    "Server.destroy",
    "Server.register_completion_queue",
    "Server.request_call",
    "Server.shutdown",
    "Server.start",
    "auth_context",
    *(f"StatusCode.{code}" for code in _CODES),
)


def load_grpc() -> tuple[Any, Any]:
    """grpcio and the layer below it, loaded on first use."""
    if "grpc" in sys.modules or "GRPC_EXPERIMENTS" in os.environ:
        return importlib.import_module("grpc"), importlib.import_module("grpc._cython.cygrpc")
    os.environ["GRPC_EXPERIMENTS"] = _EXPERIMENTS
    try:
        grpc, cygrpc = importlib.import_module("grpc"), importlib.import_module("grpc._cython.cygrpc")
        cygrpc.CompletionQueue()  # the setting is read with the first object
    finally:
        del os.environ["GRPC_EXPERIMENTS"]
    return grpc, cygrpc


def missing_names(grpc: Any, cygrpc: Any) -> list[str]:
    """What this module uses and the installed grpcio does not have."""
    missing = []
    for name in _NAMES_USED:
        holder, found = cygrpc, True
        for part in name.split("."):
            found = found and hasattr(holder, part)
            holder = getattr(holder, part, None)
        if not found:
            missing.append(f"cygrpc.{name}")
    if not hasattr(grpc.ssl_channel_credentials(), "_credentials"):
        missing.append("ChannelCredentials._credentials")
    return missing


def dial(address: str, options: Options) -> Dialler:
    """A channel to the peer that listens at `address`."""
    _, cygrpc = load_grpc()
    return _CoreDialler(address, options, cygrpc)


def listen(address: str, credentials: Any, options: Options, receive: Receive, most_calls: int) -> Listener:
    """Listen at `address`; `receive` decides on each stream that comes in."""
    _, cygrpc = load_grpc()
    inner = credentials._credentials  # noqa: SLF001 - what cygrpc takes
    return _CoreListener(address, inner, options, receive, most_calls, cygrpc)


class _CoreStream(Stream):
    """What both sides have in common: operations are started, and their tags called when they are done."""

    def __init__(self, owner: StreamOwner, cygrpc: Any) -> None:
        super().__init__(owner)
        self._cygrpc = cygrpc

    @abstractmethod
    def _start(self, operations: tuple[Any, ...], tag: Callable[[Any], None]) -> None:
        """Start operations; `tag` is called with the event when they are done."""

    def write(self, message: bytes) -> None:
        """Send a message; `on_written` follows. The one before must have been written."""
        if not self._finished:
            self._start((self._cygrpc.SendMessageOperation(message, 0),), self._on_sent)

    def read(self) -> None:
        """Ask for the next message."""
        if not self.ended:
            self._start((self._cygrpc.ReceiveMessageOperation(0),), self._on_received)

    def _on_sent(self, event: Any) -> None:
        if event.success:
            self._wrote()

    def _on_received(self, event: Any) -> None:
        self._arrived(event.batch_operations[0].message())


class _CoreClientStream(_CoreStream):
    """The dialling side of a call."""

    LISTENS = False

    def __init__(self, owner: StreamOwner, hello: bytes, channel: Any, due: _EventsDue, cygrpc: Any) -> None:
        super().__init__(owner, cygrpc)
        self._due = due
        header = ((HELLO_KEY, hello),)
        opening = (cygrpc.SendInitialMetadataOperation(header, 0), cygrpc.ReceiveStatusOnClientOperation(0))
        batches = ((opening, self._status), ((cygrpc.ReceiveInitialMetadataOperation(0),), _ignore))
        due.add(len(batches))
        self._call = channel.integrated_call(0, METHOD.encode(), None, None, (), None, batches, None, None)

    def _start(self, operations: tuple[Any, ...], tag: Callable[[Any], None]) -> None:
        self._due.add(1)
        if not self._call.operate(operations, tag):  # the call is over
            self._due.add(-1)

    def finish(self) -> None:
        """Say that nothing more will be written; the listening side then ends the call."""
        if not self._finished:
            self._finished = True
            self._start((self._cygrpc.SendCloseFromClientOperation(0),), _ignore)

    def end(self, code: str, details: str) -> None:
        """Cancel the call."""
        if not self.ended:
            self._call.cancel(getattr(self._cygrpc.StatusCode, code), details)

    def _status(self, event: Any) -> None:
        status = event.batch_operations[1]
        self._over(_code_name(self._cygrpc, status.code()), str(status.details()))


class _CoreServerStream(_CoreStream):
    """The listening side of a call."""

    LISTENS = True

    def __init__(self, event: Any, on_closed: Callable[[], None], cygrpc: Any) -> None:
        super().__init__(Nobody(), cygrpc)
        self._call = call = event.call
        self._on_closed = on_closed
        self.hello = hello_in(event.invocation_metadata)
        certificates = cygrpc.auth_context(call).get(b"x509_pem_cert", ())
        self.peer_certificate = certificates[0] if certificates else None
        self._start((cygrpc.ReceiveCloseOnServerOperation(0),), self._closed)
        self._start((cygrpc.SendInitialMetadataOperation(None, 0),), _ignore)

    def _start(self, operations: tuple[Any, ...], tag: Callable[[Any], None]) -> None:
        self._call.start_server_batch(operations, tag)

    def finish(self) -> None:
        """End the call with the status of success."""
        self.end("ok", "")

    def end(self, code: str, details: str) -> None:
        """End the call with a status, which the peer sees after everything written before."""
        if not self.ended and not self._finished:
            self._finished = True
            status = getattr(self._cygrpc.StatusCode, code)
            self._start((self._cygrpc.SendStatusFromServerOperation((), status, details.encode(), 0),), _ignore)

    def _closed(self, event: Any) -> None:
        self._on_closed()
        self._over("cancelled" if event.batch_operations[0].cancelled() else "ok", "the stream ended")


class _EventsDue:
    """How many events a channel's queue will still give; changed by any thread, always before they can come."""

    def __init__(self) -> None:
        self.number = 0
        self._lock = threading.Lock()

    def add(self, n: int) -> None:
        """So many more (or fewer)."""
        with self._lock:
            self.number += n


class _CoreDialler(Dialler):
    """A channel to one listening peer, and the calls on it."""

    def __init__(self, address: str, options: Options, cygrpc: Any) -> None:
        super().__init__(f"dial-{address}")
        self._cygrpc = cygrpc
        self._due = _EventsDue()
        self._closing = False
        self._address, self._options = address, options
        self._channel: Any = None
        self._connecting = threading.Condition()

    def connect(self, credentials: Any) -> None:
        """Make the channel."""
        with self._connecting:
            if self.stopped:
                return
            inner = credentials._credentials  # noqa: SLF001 - what cygrpc takes
            self._channel = self._cygrpc.Channel(self._address.encode(), self._options, inner)
            self.is_ready = True
            self._connecting.notify_all()

    def open_stream(self, owner: StreamOwner, hello: bytes) -> Stream:
        """Start a call; its owner hears of its end if it cannot be made."""
        stream = _CoreClientStream(owner, hello, self._channel, self._due, self._cygrpc)
        stream.read()
        return stream

    def poll(self, until: float) -> None:
        """One event; there is no way to give up earlier, so somebody has to `interrupt` at `leader_until`."""
        if not self.is_ready:
            with self._connecting:
                self._connecting.wait(max(0.0, min(until - time.monotonic(), _SLICE_SECONDS)))
            return
        self.leader_until = until
        try:
            event = self._channel.next_call_event()
        finally:
            self.leader_until = None
        if event.completion_type != self._cygrpc.CompletionType.queue_timeout and event.tag is not None:
            self._due.add(-1)
            event.tag(event)

    def interrupt(self) -> None:
        """A call that has expired before it begins ends at once, without any traffic: that wakes the leader."""
        if self._closing or not self.is_ready:
            return
        opening = (self._cygrpc.SendInitialMetadataOperation((), 0), self._cygrpc.ReceiveStatusOnClientOperation(0))
        self._due.add(1)
        try:
            self._channel.integrated_call(0, b"/", None, time.time() - 1, (), None, ((opening, _ignore),), None, None)
        except ValueError:  # the channel is closed, and with it every wait has ended
            self._due.add(-1)

    def stop(self) -> None:
        """Cancel every call and close the channel."""
        with self._connecting:
            self.stopped = True
        self.take_over()
        self.lead()
        if not self.is_ready:
            return
        self._closing = True
        # close() waits for the last event of each call; somebody has to take them meanwhile. Those and no more: after
        # the last one it destroys the queue, and whoever looked there then would read memory that was given back.
        closing = threading.Thread(
            target=self._channel.close, args=(self._cygrpc.StatusCode.cancelled, "the endpoint was closed"), daemon=True
        )
        closing.start()
        while self._due.number > 0 and closing.is_alive():
            self.poll(0.0)
        closing.join(STOP_SECONDS)


class _CoreListener(Listener):
    """A listening port, and the calls that come in on it."""

    def __init__(
        self,
        address: str,
        credentials: Any,
        options: Options,
        receive: Receive,
        most_calls: int,
        cygrpc: Any,
    ) -> None:
        super().__init__(f"listen-{address}")
        self._cygrpc = cygrpc
        self._receive = receive
        self.places = Places(most_calls)
        self._down = False
        self._queue = cygrpc.CompletionQueue()
        self._server = cygrpc.Server(options, False)
        self._server.register_completion_queue(self._queue)
        self.port = int(self._server.add_http2_port(address.encode(), credentials))
        if self.port == 0:
            raise TransportError(f"cannot listen on {address}")
        self._server.start()
        self._request_call()

    def poll(self, until: float) -> None:
        """One event, or none within a short while."""
        left = min(until - time.monotonic(), _SLICE_SECONDS)
        event = self._queue.poll(time.time() + max(left, 0.0))
        if event.completion_type != self._cygrpc.CompletionType.queue_timeout and event.tag is not None:
            event.tag(event)

    def interrupt(self) -> None:
        """Nothing to do: no look at the queue lasts long."""

    def stop(self) -> None:
        """End every call and give the port back."""
        self.stopped = True
        self.take_over()
        self.lead()
        self._server.shutdown(self._queue, self._shut_down)
        self._server.cancel_all_calls()
        patience = time.monotonic() + STOP_SECONDS
        while not self._down and time.monotonic() < patience:
            self.poll(time.monotonic() + _SLICE_SECONDS)
        self._server.destroy()
        self._queue.shutdown()

    def _shut_down(self, event: Any) -> None:  # noqa: ARG002 - every tag is called with its event
        self._down = True

    def _request_call(self) -> None:
        self._server.request_call(self._queue, self._queue, self._called)

    def _called(self, event: Any) -> None:
        if self.stopped or not event.success:
            return
        self._request_call()
        place = self.places.take(host_of(event.call.peer().decode()))
        stream = _CoreServerStream(event, _nothing if place is None else place.leave, self._cygrpc)
        if place is None:
            stream.end("resource_exhausted", TOO_MANY)
        elif event.call_details.method != METHOD.encode():
            stream.end("unimplemented", WRONG_METHOD)
        elif self._receive(stream):
            place.let_in()


def _nothing() -> None:
    pass


def _ignore(event: Any) -> None:
    pass


def _code_name(cygrpc: Any, code: int) -> str:
    names = (name for name in _CODES if getattr(cygrpc.StatusCode, name) == code)
    return next(names, f"code {code}")
