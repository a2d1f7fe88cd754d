"""Streams of envelopes over grpcio's public API: one two-way call for each pair of parties, seen from either side.

    Stream    one call: messages to write, and a reader that hands those that come to the call's owner
    Dialler   a channel to a listening peer, and the calls on it
    Listener  a port, and the calls that come in on it

grpcio takes the messages to send from an iterator, in a thread of its own, and has those that come iterated by a thread
of ours. There is one hand-over more on each side than with grpcio's private layer, and nothing that a new release of it
may change (docs/decisions/0023).

    sender -> outgoing -> grpcio's thread ~~ network ~~ grpcio's thread -> reader -> owner -> who waits for a frame

A listening port has a limit of calls in total, and a small one for each address before it is let in. A call that is
turned away is over at once, unless whoever made it does not take the answer; then it stays for some seconds. Without
the second limit somebody at one address could so take all places and keep the others out. It does not count calls that
were let in: any number of parties may be behind one address, that of a network or a proxy. Should many of them come in
the same moment, some are asked to come again, which they do after a fraction of a second.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from hedgerow.errors import TransportError
from hedgerow.transport.grpc_envelope import HELLO_KEY
from hedgerow.transport.mtls import Identity

if TYPE_CHECKING:
    from hedgerow.transport.grpc_channel import PeerChannel

_log = logging.getLogger("hedgerow")

METHOD = "/hedgerow.Transport/Talk"
TOO_MANY = "too many calls at once"
MOST_NOT_LET_IN = 4
"""Calls of one address that are not over and were not let in; with this many, no further one of it is looked at."""

_STOP_SECONDS = 5.0  # how long the end of the last calls may take when an endpoint is closed
_LAST_STATUS_SECONDS = 0.5  # how long calls that were ended here may take to tell their makers
_CALLS_WITHOUT_A_PLACE = 100

Options = tuple[tuple[str, int | str], ...]


class Stream(ABC):
    """One two-way call."""

    _incoming: Iterator[bytes]

    def __init__(self, running: set[Stream]) -> None:
        self.is_over = threading.Event()
        self._running = running  # all streams of this end whose owners have not heard of the end
        self._finished = False  # we said that we write no more
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()  # None: nothing follows
        self._reader: threading.Thread | None = None

    def write(self, message: bytes) -> None:
        """Send a message after those before it."""
        if not self._finished:
            self._outgoing.put(message)

    def discard(self) -> None:
        """Forget what was written and is not on its way yet."""
        try:
            while True:
                self._outgoing.get_nowait()
        except Empty:
            pass
        if self.is_over.is_set():  # then what was just taken may have been the mark of the end
            self._outgoing.put(None)

    @abstractmethod
    def finish(self) -> None:
        """End the call in good order: what was written arrives first. `on_end` follows when the peer has agreed."""

    @abstractmethod
    def end(self, code: str, details: str) -> None:
        """End the call now; the peer gets the code and the sentence if it is the one that dialled."""

    def join(self, timeout: float) -> None:
        """Wait until the owner has heard of the end."""
        if self._reader is not None:
            self._reader.join(timeout)

    def read_for(self, owner: PeerChannel) -> None:
        """Read messages in a thread: the owner gets one at a time (`on_message`), then hears of the end (`on_end`)."""
        self._running.add(self)
        self._reader = threading.Thread(target=self._read_all, args=(owner,), daemon=True, name="hedgerow-reader")
        self._reader.start()

    def _read_all(self, owner: PeerChannel) -> None:
        """The reader: only it tells of the end, and so after every message."""
        import grpc

        finished = False
        try:
            for message in self._incoming:
                if not owner.on_message(self, message):
                    break
            else:
                finished = True
        except grpc.RpcError:
            pass  # the call broke
        except Exception:  # noqa: BLE001 - without this thread nobody would notice a peer that goes
            _log.exception("a message could not be handled")
            self.end("internal", "a message could not be handled")
        code, details = self._how_it_ended(finished=finished)
        self._running.discard(self)
        owner.on_end(self, code, details)

    @abstractmethod
    def _how_it_ended(self, *, finished: bool) -> tuple[str, str]:
        """Called by the reader when nothing more comes, `finished`: as the peer said; waits for the end of the call."""

    def _call_ended(self) -> None:
        """Called by a thread of grpcio's: let the one that waits for messages to send see that it is over."""
        self.is_over.set()
        self._outgoing.put(None)

    def _to_send(self) -> Iterator[bytes]:
        """What grpcio takes the messages from."""
        while (message := self._outgoing.get()) is not None:
            yield message


class _ClientStream(Stream):
    """The dialling side of a call."""

    def __init__(self, owner: PeerChannel, hello: bytes, running: set[Stream], talk: Callable[..., Any]) -> None:
        super().__init__(running)
        self._incoming = self._call = talk(self._to_send(), metadata=((HELLO_KEY, hello),))
        if not self._call.add_callback(self._call_ended):
            self._call_ended()  # it had ended before we looked
        self.read_for(owner)

    def finish(self) -> None:
        """Say that nothing more will be written; the listening side then ends the call."""
        self._finished = True
        self._outgoing.put(None)

    def end(self, code: str, details: str) -> None:  # noqa: ARG002 - a listening peer is told of neither
        """Cancel the call."""
        self._call.cancel()

    def _how_it_ended(self, *, finished: bool) -> tuple[str, str]:  # noqa: ARG002 - the call knows it better
        return self._call.code().name.lower(), str(self._call.details())


class ServerStream(Stream):
    """The listening side of a call."""

    def __init__(
        self, incoming: Iterator[bytes], context: Any, running: set[Stream], on_over: Callable[[], None]
    ) -> None:
        super().__init__(running)
        self._incoming, self._context, self._on_over = incoming, context, on_over
        self._status: tuple[str, str] | None = None
        certificates = context.auth_context().get("x509_pem_cert", ())
        self.peer_certificate: bytes | None = certificates[0] if certificates else None  # PEM
        hellos = [value for key, value in context.invocation_metadata() if key == HELLO_KEY]
        is_right = len(hellos) == 1 and isinstance(hellos[0], bytes)
        self.hello: bytes = hellos[0] if is_right else b""  # what came in the header of the call
        if not context.add_callback(self._call_ended):
            self._call_ended()  # it had ended before we looked

    def answers(self) -> Iterator[bytes]:
        """What grpcio sends: every message, then the status."""
        yield from self._to_send()
        if self._status is not None:
            _set_status(self._context, *self._status)

    def finish(self) -> None:
        """End the call with the status of success."""
        self.end("ok", "")

    def end(self, code: str, details: str) -> None:
        """End the call with a status, which the peer sees after everything written before."""
        if not self._finished:
            self._finished = True
            self._status = (code, details)
            self._outgoing.put(None)

    def _how_it_ended(self, *, finished: bool) -> tuple[str, str]:
        if finished:
            self.finish()
        self.is_over.wait()
        return "ok" if finished else "cancelled", "the stream ended"

    def _call_ended(self) -> None:
        super()._call_ended()
        self._on_over()


class Dialler:
    """A channel to one listening peer, and the calls on it. Nothing can be dialled before `connect`."""

    def __init__(self, address: str, options: Options) -> None:
        self.is_ready = False
        self.address, self._options = address, options
        self._connecting = threading.Lock()
        self._stopped = False
        self._running: set[Stream] = set()
        self._channel: Any = None
        self._talk: Any = None

    def connect(self, identity: Identity, accepted: bytes) -> None:
        """Make the channel, in place of an earlier one; it accepts the certificate of this peer and no other."""
        import grpc

        with self._connecting:
            if self._stopped:
                return
            if self.is_ready:
                self._channel.close()
            credentials = grpc.ssl_channel_credentials(accepted, identity.key_pem, identity.certificate.pem)
            self._channel = grpc.secure_channel(self.address, credentials, self._options)
            self._talk = self._channel.stream_stream(METHOD)
            self.is_ready = True

    def open_stream(self, owner: PeerChannel, hello: bytes) -> Stream:
        """Start a call with this HELLO in its header; its owner hears of its end if it cannot be made."""
        return _ClientStream(owner, hello, self._running, self._talk)

    def stop(self) -> None:
        """Cancel every call and close the channel."""
        with self._connecting:
            self._stopped = True
            if self.is_ready:
                self._channel.close()
        _join(self._running)


class Listener:
    """A listening port, and the calls that come in on it from `start` on."""

    def __init__(self, address: str, identity: Identity, accepted: bytes, options: Options, most_calls: int) -> None:
        import grpc

        self.places = Places(most_calls)
        self._running: set[Stream] = set()
        self._receive: Callable[[ServerStream], bool] | None = None
        self._handler = grpc.stream_stream_rpc_method_handler(self._talk)
        self._wrong_handler = grpc.stream_stream_rpc_method_handler(_refuse)
        # grpcio's own limit is higher, so that calls without a place, which are over at once, take nobody else's.
        most = _CALLS_WITHOUT_A_PLACE + most_calls
        self._server = grpc.server(_ThreadPerCall(), handlers=(self,), options=options, maximum_concurrent_rpcs=most)
        credentials = grpc.ssl_server_credentials(
            [(identity.key_pem, identity.certificate.pem)], root_certificates=accepted, require_client_auth=True
        )
        try:
            self.port = int(self._server.add_secure_port(address, credentials))
        except RuntimeError:  # what it raises when it cannot; older versions give 0
            self.port = 0
        if self.port == 0:
            raise TransportError(f"cannot listen on {address}")

    def start(self, receive: Callable[[ServerStream], bool]) -> None:
        """Take calls. `receive` has each of them read, or ends it, at once; it gives whether the call was let in."""
        self._receive = receive
        self._server.start()

    def stop(self) -> None:
        """End every call and give the port back; who was just turned away is told so first."""
        self._server.stop(_LAST_STATUS_SECONDS).wait(_STOP_SECONDS)
        _join(self._running)

    def service(self, details: Any) -> Any:
        """Which function answers a call: grpcio asks for each."""
        return self._handler if details.method == METHOD else self._wrong_handler

    def _talk(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        assert self._receive is not None  # noqa: S101 - no call comes before `start`
        place = self.places.take(host_of(context.peer()))
        if place is None:
            _set_status(context, "resource_exhausted", TOO_MANY)
            return iter(())
        stream = ServerStream(incoming, context, self._running, place.leave)
        if self._receive(stream):
            place.let_in()
        return stream.answers()


def _refuse(incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:  # noqa: ARG001 - what grpcio gives
    _set_status(context, "unimplemented", "this is a Hedgerow endpoint")
    return iter(())


def _set_status(context: Any, code: str, details: str) -> None:
    import grpc

    context.set_code(grpc.StatusCode[code.upper()])
    context.set_details(details)


def _join(running: set[Stream]) -> None:
    until = time.monotonic() + _STOP_SECONDS
    for stream in tuple(running):
        stream.join(max(0.0, until - time.monotonic()))


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


class Places:
    """Room for the calls of one port: those that are not over."""

    def __init__(self, most: int) -> None:
        self.taken = 0
        self._most = most
        self._not_let_in: Counter[str] = Counter()  # by address
        self._lock = threading.Lock()

    def take(self, address: str) -> Place | None:
        """A place for a call that has come from this address, if there is one."""
        with self._lock:
            if self.taken >= self._most or self._not_let_in[address] >= MOST_NOT_LET_IN:
                return None
            self.taken += 1
            self._not_let_in[address] += 1
        return Place(self, address)

    def give_back(self, place: Place, *, is_over: bool) -> None:
        """A call is over, or let in; in both cases it does not count for its address any more."""
        with self._lock:
            self.taken -= is_over
            if place.counts:
                place.counts = False
                self._not_let_in[place.address] -= 1
                if not self._not_let_in[place.address]:
                    del self._not_let_in[place.address]


@dataclass(eq=False)
class Place:
    """The place of one call."""

    places: Places
    address: str
    counts: bool = True  # for its address

    def let_in(self) -> None:
        """The call is that of a party which is expected."""
        self.places.give_back(self, is_over=False)

    def leave(self) -> None:
        """The call is over."""
        self.places.give_back(self, is_over=True)


def host_of(peer: str) -> str:
    """The address in what grpcio says of a peer, without its port: "ipv4:10.0.0.7:50412" is "ipv4:10.0.0.7"."""
    return peer.rpartition(":")[0]
