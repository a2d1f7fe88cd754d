"""Streams over grpcio's public layer alone: slower than grpc_calls.py, but at home with any release.

grpcio takes the messages to send from an iterator, in a thread of its own, and gives those that come from another one,
on which a thread of ours has to wait. Each end of a stream puts what happens into the queue of its pump, from where
the leader takes it (pump.py): the owners see the same events in the same order, one at a time, as with the fast calls.

    sender -> _outgoing -> grpcio's thread ~~ network ~~ our reader -> the pump's queue -> leader -> owner
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from concurrent import futures
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from hedgerow.errors import TransportError
from hedgerow.transport.envelope import HELLO_KEY
from hedgerow.transport.places import Place, Places, host_of
from hedgerow.transport.pump import Pump
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

_SLICE_SECONDS = 1.0  # how long one look at the queue may last
_CALLS_WITHOUT_A_PLACE = 100


def dial(address: str, options: Options) -> Dialler:
    """A channel to the peer that listens at `address`."""
    return _QueueDialler(address, options)


def listen(address: str, credentials: Any, options: Options, receive: Receive, most_calls: int) -> Listener:
    """Listen at `address`; `receive` decides on each stream that comes in. Each call takes two threads."""
    return _QueueListener(address, credentials, options, receive, most_calls)


class _QueuePump(Pump):
    """A pump whose events are functions to call, put into a queue by any thread."""

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self.live: set[_QueueStream] = set()  # streams whose last event has not been taken
        self._events: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def post(self, event: Callable[[], None]) -> None:
        """Have the leader call this."""
        self._events.put(event)

    def poll(self, until: float) -> None:
        """One event, or none within a while."""
        left = min(until - time.monotonic(), _SLICE_SECONDS)
        try:
            event = self._events.get(timeout=max(left, 0.0))
        except Empty:
            return
        if event is not None:
            event()

    def interrupt(self) -> None:
        """An event that does nothing."""
        self._events.put(None)

    def stop(self) -> None:
        """End every call; take their last events."""
        self.stopped = True
        self.take_over()
        self.lead()
        self._shut_down()
        patience = time.monotonic() + STOP_SECONDS
        while self.live and time.monotonic() < patience:
            self.poll(patience)

    @abstractmethod
    def _shut_down(self) -> None:
        """Cancel every call."""


class _QueueStream(Stream):
    """What both sides have in common: a queue of messages to send, and a thread that reads those that come."""

    def __init__(self, owner: StreamOwner, pump: _QueuePump) -> None:
        super().__init__(owner)
        self._pump = pump
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()  # None: nothing follows
        self._permits: SimpleQueue[None] = SimpleQueue()  # one for each message that may be read

    def write(self, message: bytes) -> None:
        """Send a message; `on_written` follows. The one before must have been written."""
        if not self._finished:
            self._outgoing.put(message)

    def read(self) -> None:
        """Ask for the next message."""
        self._permits.put(None)

    def _start_reader(self, incoming: Iterator[bytes], call: Any) -> None:
        self._pump.live.add(self)
        if not call.add_callback(self._call_ended):
            self._call_ended()  # it had ended before we looked
        threading.Thread(target=self._read_all, args=(incoming,), daemon=True, name="hedgerow-reader").start()

    def _to_send(self) -> Iterator[bytes]:
        """What grpcio takes the messages from: when it asks for the next one, the one before is on its way."""
        while (message := self._outgoing.get()) is not None:
            yield message
            self._pump.post(self._wrote)

    def _read_all(self, incoming: Iterator[bytes]) -> None:
        """The reader: only it tells of the end, and so after every message."""
        try:
            while True:
                self._permits.get()
                message = next(incoming, None)
                if message is None:
                    break
                self._pump.post(partial(self._arrived, message))
        except Exception as error:  # noqa: BLE001 - grpcio ends a broken call with RpcError; whatever it is, it is over
            broken: Exception | None = error
        else:
            broken = None
        code, details = self._how_it_ended(broken)
        self._pump.post(partial(self._last_event, code, details))

    @abstractmethod
    def _how_it_ended(self, broken: Exception | None) -> tuple[str, str]:
        """Called by the reader when nothing more comes; waits for the end of the call."""

    def _call_ended(self) -> None:
        """Called by a thread of grpcio's: let the threads that wait for this stream see that it is over."""
        self._outgoing.put(None)
        self._permits.put(None)  # the next read gives no message any more

    def _last_event(self, code: str, details: str) -> None:
        self._pump.live.discard(self)
        self._over(code, details)


class _QueueClientStream(_QueueStream):
    """The dialling side of a call."""

    LISTENS = False

    def __init__(self, owner: StreamOwner, hello: bytes, pump: _QueuePump, talk: Callable[..., Any]) -> None:
        super().__init__(owner, pump)
        self._call = talk(self._to_send(), metadata=((HELLO_KEY, hello),))
        self._start_reader(self._call, self._call)

    def finish(self) -> None:
        """Say that nothing more will be written; the listening side then ends the call."""
        self._finished = True
        self._outgoing.put(None)

    def end(self, code: str, details: str) -> None:  # noqa: ARG002 - a listening peer is told of neither
        """Cancel the call."""
        if not self.ended:
            self._call.cancel()

    def _how_it_ended(self, broken: Exception | None) -> tuple[str, str]:  # noqa: ARG002 - the call knows it better
        return self._call.code().name.lower(), str(self._call.details())


class _QueueServerStream(_QueueStream):
    """The listening side of a call."""

    LISTENS = True

    def __init__(
        self, pump: _QueuePump, incoming: Iterator[bytes], context: Any, codes: Any, on_closed: Callable[[], None]
    ) -> None:
        super().__init__(Nobody(), pump)
        self._on_closed = on_closed
        self._context = context
        self._codes = codes
        self._status: tuple[str, str] | None = None
        self._is_over = threading.Event()
        certificates = context.auth_context().get("x509_pem_cert", ())
        self.peer_certificate = certificates[0] if certificates else None
        self.hello = hello_in(context.invocation_metadata())
        self._start_reader(incoming, context)

    def answers(self) -> Iterator[bytes]:
        """What grpcio sends: every message, then the status."""
        yield from self._to_send()
        if self._status is not None:
            code, details = self._status
            self._context.set_code(self._codes[code.upper()])
            self._context.set_details(details)

    def finish(self) -> None:
        """End the call with the status of success."""
        self.end("ok", "")

    def end(self, code: str, details: str) -> None:
        """End the call with a status, which the peer sees after everything written before."""
        if not self.ended and not self._finished:
            self._finished = True
            self._status = (code, details)
            self._outgoing.put(None)

    def _how_it_ended(self, broken: Exception | None) -> tuple[str, str]:
        if broken is None:
            self._pump.post(partial(self._arrived, None))
        self._is_over.wait()
        return "ok" if broken is None else "cancelled", "the stream ended"

    def _call_ended(self) -> None:
        self._is_over.set()
        super()._call_ended()

    def _last_event(self, code: str, details: str) -> None:
        self._on_closed()
        super()._last_event(code, details)


class _QueueDialler(_QueuePump, Dialler):
    """A channel to one listening peer, and the calls on it."""

    def __init__(self, address: str, options: Options) -> None:
        super().__init__(f"dial-{address}")
        self._address, self._options = address, options
        self._connecting = threading.Lock()
        self._channel: Any = None
        self._talk: Any = None

    def connect(self, credentials: Any) -> None:
        """Make the channel."""
        import grpc

        with self._connecting:
            if self.stopped:
                return
            self._channel = grpc.secure_channel(self._address, credentials, self._options)
            self._talk = self._channel.stream_stream(METHOD)
            self.is_ready = True

    def open_stream(self, owner: StreamOwner, hello: bytes) -> Stream:
        """Start a call; its owner hears of its end if it cannot be made."""
        stream = _QueueClientStream(owner, hello, self, self._talk)
        stream.read()
        return stream

    def _shut_down(self) -> None:
        with self._connecting:
            if self.is_ready:
                self._channel.close()


class _QueueListener(_QueuePump, Listener):
    """A listening port, and the calls that come in on it."""

    def __init__(self, address: str, credentials: Any, options: Options, receive: Receive, most_calls: int) -> None:
        import grpc

        super().__init__(f"listen-{address}")
        self._receive = receive
        self._codes = grpc.StatusCode
        self._handler = grpc.stream_stream_rpc_method_handler(self._talk)
        self._wrong_handler = grpc.stream_stream_rpc_method_handler(self._refuse)
        self.places = Places(most_calls)
        # grpcio's own limit is higher, so that calls without a place, which are over at once, take nobody else's.
        most = _CALLS_WITHOUT_A_PLACE + most_calls
        self._server = grpc.server(_ThreadPerCall(), handlers=(self,), options=options, maximum_concurrent_rpcs=most)
        try:
            self.port = int(self._server.add_secure_port(address, credentials))
        except RuntimeError:  # what it raises when it cannot; older versions give 0
            self.port = 0
        if self.port == 0:
            raise TransportError(f"cannot listen on {address}")
        self._server.start()

    def service(self, details: Any) -> Any:
        """Which function answers a call: grpcio asks for each."""
        return self._handler if details.method == METHOD else self._wrong_handler

    def _talk(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        place = self.places.take(host_of(context.peer()))
        if place is None:
            return self._ended(context, "RESOURCE_EXHAUSTED", TOO_MANY)
        stream = _QueueServerStream(self, incoming, context, self._codes, place.leave)
        self.post(partial(self._begin, stream, place))
        return stream.answers()

    def _begin(self, stream: _QueueServerStream, place: Place) -> None:
        # By the leader, not by grpcio's thread: nobody leads before the endpoint knows whom it expects.
        if self._receive(stream):
            place.let_in()

    def _refuse(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:  # noqa: ARG002 - what grpcio gives
        return self._ended(context, "UNIMPLEMENTED", WRONG_METHOD)

    def _ended(self, context: Any, code: str, details: str) -> Iterator[bytes]:
        context.set_code(self._codes[code])
        context.set_details(details)
        return iter(())

    def _shut_down(self) -> None:
        self._server.stop(0).wait(STOP_SECONDS)


class _ThreadPerCall(futures.ThreadPoolExecutor):
    """A thread for each call, none shared: a call lasts as long as the connection, and would starve others in a pool.

    They are daemon threads, unlike a pool's: a program that ends without closing its endpoint is not held up.
    """

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> futures.Future[Any]:
        """Call it in a thread of its own."""
        future: futures.Future[Any] = futures.Future()

        def run() -> None:
            try:
                future.set_result(function(*arguments, **named))
            except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
                future.set_exception(error)

        threading.Thread(target=run, daemon=True, name="hedgerow-call").start()
        return future
