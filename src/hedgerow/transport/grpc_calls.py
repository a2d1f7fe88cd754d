"""The calls inside grpcio, made so that the thread that waits for a message is the one that takes it off the socket.

grpcio's own Python layer hands every message from the thread that watches the sockets to a second one, and every write
to a third; here there is one (pump.py). The price: this module uses `grpc._cython.cygrpc`, the layer below grpcio's
public one, which may change with any release. It is used nowhere else, and everything that is not typed ends here.

    ClientPump  a channel to a listening peer
    ServerPump  a listening port
    Stream      one two-way call, seen from either side; tells its owner what happens on it
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from hedgerow.errors import TransportError
from hedgerow.transport.pump import Pump

METHOD = "/hedgerow.Transport/Talk"
_STOP_SECONDS = 5.0
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


class Stream:
    """One two-way call. `write` one message at a time; the owner hears of the rest."""

    def __init__(self, owner: StreamOwner, start_batch: Callable[[tuple[Any, ...], Any], bool], cygrpc: Any) -> None:
        self.owner = owner
        self.peer_certificate: bytes | None = None  # PEM; only a listening side can see it
        self.ended = False
        self._start = start_batch
        self._cygrpc = cygrpc
        self._paused = False
        self._finished = False
        self._gate = threading.Lock()

    def write(self, message: bytes) -> None:
        """Send a message; `on_written` follows. The one before must have been written."""
        if not self._finished:
            self._start((self._cygrpc.SendMessageOperation(message, 0),), self._wrote)

    def resume(self) -> None:
        """Let messages come again after `on_message` gave False."""
        with self._gate:
            paused, self._paused = self._paused, False
        if paused:
            self.read()

    def read(self) -> None:
        """Ask for the next message."""
        if not self.ended:
            self._start((self._cygrpc.ReceiveMessageOperation(0),), self._received)

    def finish(self) -> None:
        """End the call in good order: what was written arrives first. `on_end` follows when the peer has agreed."""
        raise NotImplementedError

    def end(self, code: str, details: str) -> None:
        """End the call now; the peer gets the code and the sentence if it is the one that dialled."""
        raise NotImplementedError

    def _wrote(self, event: Any) -> None:
        if event.success and not self.ended:
            self.owner.on_written(self)

    def _received(self, event: Any) -> None:
        message = event.batch_operations[0].message()
        if self.ended:
            return
        if message is None:
            self._no_more()
            return
        if self.owner.on_message(self, message):
            self.read()
        else:
            self._paused = True
            if self.owner.wants_more():  # again since it said no; its `resume` may have come before we paused
                self.resume()

    def _no_more(self) -> None:
        """The peer has finished."""

    def _finish(self, code: str, details: str) -> None:
        if not self.ended:
            self.ended = True
            self.owner.on_end(self, code, details)


class ClientStream(Stream):
    """The dialling side of a call."""

    def __init__(self, owner: StreamOwner, channel: Any, cygrpc: Any) -> None:
        super().__init__(owner, self._operate, cygrpc)
        opening = (cygrpc.SendInitialMetadataOperation((), 0), cygrpc.ReceiveStatusOnClientOperation(0))
        batches = ((opening, self._status), ((cygrpc.ReceiveInitialMetadataOperation(0),), _ignore))
        self._call = channel.integrated_call(0, METHOD.encode(), None, None, (), None, batches, None, None)

    def _operate(self, operations: tuple[Any, ...], tag: Any) -> bool:
        return bool(self._call.operate(operations, tag))

    def finish(self) -> None:
        """Say that nothing more will be written; the listening side then ends the call."""
        if not self._finished:
            self._finished = True
            self._operate((self._cygrpc.SendCloseFromClientOperation(0),), _ignore)

    def end(self, code: str, details: str) -> None:
        """Cancel the call."""
        if not self.ended:
            self._call.cancel(getattr(self._cygrpc.StatusCode, code), details)

    def _status(self, event: Any) -> None:
        status = event.batch_operations[1]
        self._finish(_code_name(self._cygrpc, status.code()), str(status.details()))


class ServerStream(Stream):
    """The listening side of a call."""

    def __init__(self, owner: StreamOwner, call: Any, cygrpc: Any) -> None:
        super().__init__(owner, self._start_server, cygrpc)
        self._call = call
        certificates = cygrpc.auth_context(call).get(b"x509_pem_cert", ())
        self.peer_certificate = certificates[0] if certificates else None
        self._start_server((cygrpc.ReceiveCloseOnServerOperation(0),), self._closed)
        self._start_server((cygrpc.SendInitialMetadataOperation(None, 0),), _ignore)

    def _start_server(self, operations: tuple[Any, ...], tag: Any) -> bool:
        self._call.start_server_batch(operations, tag)
        return True

    def finish(self) -> None:
        """End the call with the status of success."""
        self.end("ok", "")

    def end(self, code: str, details: str) -> None:
        """End the call with a status, which the peer sees after everything written before."""
        if not self.ended and not self._finished:
            self._finished = True
            status = getattr(self._cygrpc.StatusCode, code)
            self._start_server((self._cygrpc.SendStatusFromServerOperation((), status, details.encode(), 0),), _ignore)

    def _no_more(self) -> None:
        self.finish()

    def _closed(self, event: Any) -> None:
        self._finish("cancelled" if event.batch_operations[0].cancelled() else "ok", "the stream ended")


class ClientPump(Pump):
    """A channel to one listening peer, and the calls on it."""

    def __init__(self, address: str, credentials: Any, options: tuple[tuple[str, Any], ...], cygrpc: Any) -> None:
        super().__init__(f"dial-{address}")
        self._cygrpc = cygrpc
        self._channel = cygrpc.Channel(address.encode(), options, credentials)

    def open_stream(self, owner: StreamOwner) -> Stream:
        """Start a call; its owner hears of its end if it cannot be made."""
        stream = ClientStream(owner, self._channel, self._cygrpc)
        stream.read()
        return stream

    def poll(self, until: float) -> None:
        """One event; there is no way to give up earlier, so somebody has to `interrupt` at `leader_until`."""
        self.leader_until = until
        try:
            event = self._channel.next_call_event()
        finally:
            self.leader_until = None
        if event.completion_type != self._cygrpc.CompletionType.queue_timeout and event.tag is not None:
            event.tag(event)

    def interrupt(self) -> None:
        """A call that has expired before it begins ends at once, without any traffic: that wakes the leader."""
        opening = (self._cygrpc.SendInitialMetadataOperation((), 0), self._cygrpc.ReceiveStatusOnClientOperation(0))
        try:
            self._channel.integrated_call(0, b"/", None, time.time() - 1, (), None, ((opening, _ignore),), None, None)
        except ValueError:  # the channel is closed, and with it every wait has ended
            return

    def stop(self) -> None:
        """Cancel every call and close the channel."""
        self.stopped = True
        self.take_over()
        self.lead()
        # close() waits for the last event of each call; somebody has to take them meanwhile.
        closing = threading.Thread(
            target=self._channel.close, args=(self._cygrpc.StatusCode.cancelled, "the endpoint was closed"), daemon=True
        )
        closing.start()
        while closing.is_alive():
            self.poll(0.0)
            closing.join(0.001)


class ServerPump(Pump):
    """A listening port, and the calls that come in on it."""

    def __init__(
        self,
        address: str,
        credentials: Any,
        options: tuple[tuple[str, Any], ...],
        accept: Callable[[], StreamOwner],
        cygrpc: Any,
    ) -> None:
        super().__init__(f"listen-{address}")
        self._cygrpc = cygrpc
        self._accept = accept
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
        patience = time.monotonic() + _STOP_SECONDS
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
        stream = ServerStream(_Nobody(), event.call, self._cygrpc)
        if event.call_details.method != METHOD.encode():
            stream.end("unimplemented", "this is a Hedgerow endpoint")
            return
        stream.owner = self._accept()
        stream.read()


class _Nobody:
    """The owner of a call that is refused at once."""

    def on_message(self, stream: Stream, message: bytes) -> bool:  # noqa: ARG002 - the interface
        return False

    def wants_more(self) -> bool:
        return False

    def on_written(self, stream: Stream) -> None:
        pass

    def on_end(self, stream: Stream, code: str, details: str) -> None:
        pass


def _ignore(event: Any) -> None:
    pass


def _code_name(cygrpc: Any, code: int) -> str:
    names = (name for name in _CODES if getattr(cygrpc.StatusCode, name) == code)
    return next(names, f"code {code}")
