"""The conversation with one peer: numbers, what is not acknowledged yet, what has come, and what is to be told.

A channel outlives its streams. While there is none, frames to be sent are kept; when there is one again, both sides
say which number they received last, and the rest is sent again. So no frame is lost or given out twice. It ends for
good with an error: the peer failed, said goodbye, was away for too long, or broke the rules.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from hedgerow.errors import (
    DeadlineExceeded,
    FrameError,
    JobDiffers,
    PeerLost,
    PeerRefused,
    TransportError,
    VersionMismatch,
    plain,
)
from hedgerow.transport import envelope
from hedgerow.transport.agreed import Agreed
from hedgerow.transport.endpoint import LastWord
from hedgerow.transport.envelope import Hello
from hedgerow.transport.pump import Pump
from hedgerow.transport.streams import Dialler, Stream

_log = logging.getLogger("hedgerow")

_LATE_ACK_SECONDS = 0.05  # frames that nothing went back for are acknowledged after this long
_DIAL_SECONDS = 0.05  # between two attempts
_LARGE_FRAME = 16 << 10  # may not fit the socket's buffer: see that it leaves before turning to other work
_PATIENCE_SECONDS = 0.002
_STALL_SECONDS = 3600.0  # a peer may be at work and read nothing, but not for ever

# How a listening party ends the call of one that it turns away for these reasons.
ANOTHER_VERSION, ANOTHER_JOB = "failed_precondition", "not_found"


@dataclass(frozen=True, slots=True)
class Terms:
    """What all channels of an endpoint have in common."""

    me: str
    run_id: str
    incarnation: int
    grace: float
    connect_timeout: float
    max_unacked_bytes: int
    wire_version: int
    job: Agreed


class PeerChannel:
    """One peer's channel, used by senders, the thread that takes events and the clock; `_lock` guards its state."""

    def __init__(self, peer: str, terms: Terms, pump: Pump) -> None:
        self.peer = peer
        self.terms = terms
        self.pump = pump
        self.error: Callable[[], TransportError] | None = None  # makes the error that ended the channel
        self.talking = False  # a stream is there and both have said HELLO
        self.has_talked = False
        self.gone = False  # the peer said that it ends: nothing need be delivered any more
        self.trouble = ""  # why there is no stream, as far as known
        self.failed_dials = 0
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._writing = False
        self._ack_due = False
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._last_received = 0
        self._last_reported = 0
        self._received_at = 0.0
        self._unreported_bytes = 0
        self._last_number = 0
        self._unsent: deque[tuple[int, int, bytes]] = deque()  # kind, number, frame
        self._unacked: deque[tuple[int, int, bytes]] = deque()
        self._held_bytes = 0
        self._taken_at = 0.0  # when the peer last acknowledged something new
        self._peer_incarnation: int | None = None
        self._down_since = time.monotonic()
        self._next_dial = 0.0

    # What an endpoint does

    def send(self, frame: bytes, kind: int = envelope.DATA) -> None:
        """Number a frame and send it; waits while too much is not acknowledged. PeerLost if nothing is for an hour."""
        began = time.monotonic()
        while True:
            with self._lock:
                if self.error is not None:
                    raise self.error()
                if self._has_room(_cost(frame)):
                    self._last_number += 1
                    self._unsent.append((kind, self._last_number, frame))
                    self._held_bytes += _cost(frame)
                    self._flush()
                    under_way = self._writing and (bool(self._unsent) or len(frame) > _LARGE_FRAME)
                    break
            until = max(began, self._taken_at) + _STALL_SECONDS
            self.pump.wait(lambda: self.error is not None or self._has_room(_cost(frame)), until)
            if time.monotonic() >= max(began, self._taken_at) + _STALL_SECONDS:
                began = time.monotonic()
                if self.talking:  # else it is away, and the grace period decides
                    self._give_up()
        if under_way and not self.pump.wait(lambda: not self._writing, time.monotonic() + _PATIENCE_SECONDS):
            self.pump.take_over()

    def _give_up(self) -> None:
        why = f"{self.peer} is there, but took nothing that {self.terms.me} sent for {_STALL_SECONDS:g} s"
        _log.warning("%s: %s", self.terms.me, why)
        self.fail(lambda: PeerLost(why))

    def recv(self, timeout: float) -> bytes:
        """The next frame."""
        inbox = self._inbox
        if not inbox and self.error is None:
            self.pump.wait(lambda: inbox or self.error is not None, time.monotonic() + timeout)
        with self._lock:
            if inbox:
                frame = inbox.popleft()
                self._inbox_bytes -= _cost(frame)
                stream = self._stream if self.wants_more() else None
            elif self.error is not None:
                raise self.error()
            else:
                link = "" if self.talking else f", with which there is no connection ({self.trouble or 'not yet'})"
                raise DeadlineExceeded(f"{self.terms.me} got no message of {self.peer} within {timeout:g} s{link}")
        if stream is not None:
            stream.resume()
        return frame

    def drop(self) -> None:
        """End it for good, and forget what has come."""
        with self._lock:
            stream, self._stream = self._stream, None
            self._inbox.clear()
            self._inbox_bytes = 0
            self._fail(lambda: PeerLost(f"{self.terms.me} has closed the channel to {self.peer}"))
        if stream is not None:
            stream.end("aborted", f"{self.terms.me} has closed the channel to {self.peer}")
        self.pump.tell()

    def is_decided(self) -> bool:
        """Has the peer come, or is it clear that it cannot?"""
        return self.has_talked or self.error is not None

    def is_settled(self) -> bool:
        """Has everything been delivered, or is there nobody to deliver it to?"""
        if self.gone and self._stream is not None:
            # The peer has closed too, and waits until it knows that we heard: that has to leave before we hang up.
            return not (self._ack_due or self._writing)
        return self.error is not None or not (self._unsent or self._unacked)

    def say_last(self, kind: int, text: bytes = b"") -> None:
        """Queue an ABORT or a BYE behind everything else, however much that is."""
        with self._lock:
            if self.error is None:
                self._last_number += 1
                self._unsent.append((kind, self._last_number, text))
                self._held_bytes += _cost(text)
                self._flush()

    def fail(self, make_error: Callable[[], TransportError]) -> None:
        """End the channel with an error, unless it has ended."""
        with self._lock:
            stream, self._stream = self._stream, None
            self._fail(make_error)
        if stream is not None:
            stream.end("cancelled", "the channel has ended")
        self.pump.tell()

    def tick(self, now: float) -> None:
        """What time brings about: late acknowledgements, the end of the grace period."""
        if self.error is not None:
            return
        if self.talking:
            if self._last_reported != self._last_received and now - self._received_at > _LATE_ACK_SECONDS:
                with self._lock:
                    self._ack_due = True
                    self._flush()
            return
        away = now - self._down_since
        if self.has_talked and away > self.terms.grace:
            why = f"{self.peer} went away and did not come back within {self.terms.grace:g} s"
        elif not self.has_talked and away > self.terms.connect_timeout:
            why = f"{self.peer} could not be reached within {self.terms.connect_timeout:g} s"
        else:
            return
        trouble = f" ({self.trouble})" if self.trouble else ""
        _log.warning("%s: %s%s", self.terms.me, why, trouble)
        self.fail(lambda: PeerLost(f"{why}{trouble}"))

    # Streams

    def dial(self, pump: Dialler, now: float) -> None:
        """Try for a stream, if there is none and the last attempt is long enough ago."""
        with self._lock:
            if self._stream is None and self.error is None and now >= self._next_dial:
                self._next_dial = now + _DIAL_SECONDS
                self._stream = pump.open_stream(self, self._hello().encode())
                pump.take_over()  # connecting takes several events, and perhaps nobody is waiting yet

    def accept(self, stream: Stream, hello: Hello) -> tuple[str, str] | None:
        """Take the stream of a peer that dialled, or say why not: a status and a sentence."""
        me, peer = self.terms.me, self.peer
        with self._lock:
            if self.error is not None:
                return "aborted", f"{me} has ended its channel to {peer}"
            if self._stream is not None:
                return "already_exists", f"{peer} is connected with {me} already"
            if self._peer_incarnation not in (None, hello.incarnation):
                return "permission_denied", f"{peer} was started anew and cannot go on where it was"
            self._check_place(hello)
            self._stream = stream
            stream.owner = self
            self._writing = True
            stream.write(self._hello().encode())
            self._start_talking(hello)
        return None

    def hang_up(self) -> None:
        """End the stream in good order; nothing is sent or given out any more."""
        with self._lock:
            self._end_softly(lambda: TransportError(f"{self.terms.me} has closed its endpoint"))
            stream = self._stream
        if stream is not None:
            stream.finish()

    def has_hung_up(self) -> bool:
        """Is the stream gone?"""
        return self._stream is None

    # Events of a stream

    def on_message(self, stream: Stream, message: bytes) -> bool:
        """Act on an envelope."""
        broken: TransportError | None = None
        with self._lock:
            if stream is not self._stream:
                return False
            try:
                if self.talking:
                    self._take(message)
                else:
                    self._answered(message)
            except (FrameError, VersionMismatch, PeerLost, PeerRefused) as error:
                broken = error
        if broken is not None:
            self._refuse(stream, broken)
            return False
        return self.wants_more()

    def wants_more(self) -> bool:
        """No more while so much waits to be read: then the peer's sends wait too."""
        return self._inbox_bytes <= self.terms.max_unacked_bytes

    def on_written(self, stream: Stream) -> None:
        """Send the next one."""
        with self._lock:
            if stream is self._stream:
                self._writing = False
                self._flush()

    def on_end(self, stream: Stream, code: str, details: str) -> None:
        """Keep what is not acknowledged for the next stream, or end for good if the peer said so."""
        details = plain(details)
        with self._lock:
            if stream is not self._stream:
                return
            if self.talking:
                self._down_since = time.monotonic()
            if self.talking and self.error is None:
                _log.info("%s: the connection with %s broke (%s)", self.terms.me, self.peer, details)
            self._stream = None
            self.talking = self._writing = False
            if code != "resource_exhausted":  # too many calls there, which is no matter of certificates
                self.failed_dials += 1
            self.trouble = details
            self._unacked.extend(self._unsent)
            self._unsent, self._unacked = self._unacked, deque()
            self._next_dial = time.monotonic() + _DIAL_SECONDS
            if code == "aborted":
                self._fail(lambda: PeerLost(details))
            elif code == "invalid_argument":
                self._fail(lambda: FrameError(f"{self.peer} refused what {self.terms.me} sent: {details}"))
            elif code in ("permission_denied", "unauthenticated", "unimplemented") or (
                code == "already_exists" and not self.has_talked
            ):
                self._fail(lambda: PeerRefused(f"{self.peer} refused {self.terms.me}: {details}"))
            elif code == ANOTHER_VERSION:
                self._fail(lambda: VersionMismatch(f"{self.peer} refused {self.terms.me}: {details}"))
            elif code == ANOTHER_JOB:
                self._fail(lambda: JobDiffers(f"{self.peer} refused {self.terms.me}: {details}"))

    # Inside; the lock is held

    def _has_room(self, size: int) -> bool:
        return self._held_bytes == 0 or self._held_bytes + size <= self.terms.max_unacked_bytes

    def _hello(self) -> Hello:
        terms = self.terms
        who = (terms.run_id, terms.me, self.peer)
        return Hello(terms.wire_version, terms.incarnation, self._last_received, *who, terms.job)

    def _fail(self, make_error: Callable[[], TransportError]) -> None:
        if self.error is None:
            self.error = make_error
            self.talking = False
            self._unsent.clear()
            self._unacked.clear()
            self._held_bytes = 0

    def _refuse(self, stream: Stream, error: TransportError) -> None:
        kind, text = type(error), str(error)
        _log.warning("%s: refused %s: %s", self.terms.me, self.peer, text)
        with self._lock:
            self._stream = None
            self._fail(lambda: kind(text))
        stream.end("invalid_argument", text)

    def _check_place(self, hello: Hello) -> None:
        if not self._last_number - len(self._unsent) <= hello.last_received <= self._last_number:
            raise FrameError(
                f"{self.peer} says that it received number {hello.last_received} "
                f"of {self.terms.me}, which has sent {self._last_number}"
            )

    def _start_talking(self, hello: Hello) -> None:
        self._peer_incarnation = hello.incarnation
        while self._unsent and self._unsent[0][1] <= hello.last_received:
            self._held_bytes -= _cost(self._unsent.popleft()[2])
        _log.info("%s: %s with %s", self.terms.me, "reconnected" if self.has_talked else "connected", self.peer)
        self._last_reported = self._last_received
        self.talking = self.has_talked = True
        self.failed_dials = 0
        self.trouble = ""
        self._flush()

    def _answered(self, message: bytes) -> None:
        check_version(message, self.terms, self.peer)
        hello = envelope.decode_hello(message)
        if (hello.speaker, hello.listener, hello.run_id) != (self.peer, self.terms.me, self.terms.run_id):
            answered = plain(f"{hello.speaker!r} answered {hello.listener!r} for the run {hello.run_id!r}")
            raise PeerRefused(f"{self.terms.me} dialled {self.peer} for the run {self.terms.run_id!r}, but {answered}")
        self.terms.job.check(self.peer, hello.job, self.terms.me)
        if self._peer_incarnation not in (None, hello.incarnation):
            raise PeerLost(f"{self.peer} was started anew and cannot go on where it was")
        self._check_place(hello)
        self._start_talking(hello)

    def _take(self, message: bytes) -> None:
        if len(message) < envelope.HEADER_BYTES:
            raise FrameError(f"an envelope of {self.peer} is only {len(message)} bytes long")
        kind, number, received = envelope.unpack_numbered(message)
        self._acknowledge(received)
        if kind == envelope.ACK:
            return
        if number != self._last_received + 1:
            what = "sent again (a replay)" if number <= self._last_received else "sent out of order"
            raise FrameError(f"number {number} of {self.peer} was {what}: {self._last_received + 1} is the next")
        self._last_received = number
        self._received_at = time.monotonic()
        if kind == envelope.DATA:
            self._inbox.append(message[envelope.HEADER_BYTES :])
            self._inbox_bytes += len(message)
            self._unreported_bytes += len(message)
            if self._unreported_bytes > self.terms.max_unacked_bytes // 8:
                self._ack_due = True
                self._flush()
            return
        # The last word of the peer: it waits for the acknowledgement, and nothing need be delivered to it any more.
        if kind not in (envelope.ABORT, envelope.BYE):
            raise FrameError(f"{self.peer} sent an envelope of the unknown kind {kind}")
        self._ack_due = True
        self._flush()
        self.gone = True
        if kind == envelope.ABORT:
            last_word = envelope.check_last_word(message[envelope.HEADER_BYTES :])
            self._end_softly(lambda: LastWord(self.peer, last_word))
        else:
            self._end_softly(lambda: PeerLost(f"{self.peer} has ended its part and closed the connection"))

    def _end_softly(self, make_error: Callable[[], TransportError]) -> None:
        """End the channel, but let the acknowledgement that is under way leave."""
        talking = self.talking
        self._fail(make_error)
        self.talking = talking

    def _acknowledge(self, received: int) -> None:
        unacked = self._unacked
        while unacked and unacked[0][1] <= received:
            self._held_bytes -= _cost(unacked.popleft()[2])
            self._taken_at = time.monotonic()
        if received > self._last_number:
            raise FrameError(f"{self.peer} acknowledges number {received}, which was never sent")

    def _flush(self) -> None:
        """Write the next envelope, if the stream is free."""
        if self._writing or not self.talking or self._stream is None:
            return
        if self._unsent:
            kind, number, frame = self._unsent[0]
            # In this order: `is_settled` looks without the lock, and must never find the frame in neither.
            self._unacked.append(self._unsent[0])
            self._unsent.popleft()
        elif self._ack_due:
            kind, number, frame = envelope.ACK, 0, b""
        else:
            return
        self._writing = True
        self._ack_due = False
        self._unreported_bytes = 0
        self._last_reported = self._last_received
        self._stream.write(envelope.pack_numbered(kind, number, self._last_received) + frame)


def _cost(frame: bytes) -> int:
    """What a frame counts for in the limits; an empty one counts too, or any number of them could be kept."""
    return len(frame) + envelope.HEADER_BYTES


def check_version(message: bytes, terms: Terms, peer: str) -> None:
    """VersionMismatch, naming both, unless this is a HELLO of our version."""
    version = envelope.hello_version(message)
    if version != terms.wire_version:
        raise VersionMismatch(
            f"{peer} speaks version {version} of the wire format, {terms.me} speaks version {terms.wire_version}"
        )
