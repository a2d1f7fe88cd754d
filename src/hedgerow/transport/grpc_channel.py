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
from hedgerow.transport import grpc_envelope
from hedgerow.transport.endpoint import Agreed, LastWord
from hedgerow.transport.grpc_envelope import Hello
from hedgerow.transport.grpc_streams import Dialler, ServerStream, Stream

_log = logging.getLogger("hedgerow")

_LATE_ACK_SECONDS = 0.05  # frames that nothing went back for are acknowledged after this long
_DIAL_SECONDS = 0.05  # between two attempts
_STALL_SECONDS = 3600.0  # a peer may be at work and read nothing, but not for ever
_LOOK_SECONDS = 0.1  # a reader that waits for room looks this often whether its stream is over

# How a listening party ends the call of one that it turns away for these reasons; the last is asked to come again.
ANOTHER_VERSION, ANOTHER_JOB, NOT_NOW = "failed_precondition", "not_found", "out_of_range"
_REFUSALS: dict[str, type[TransportError]] = {
    ANOTHER_VERSION: VersionMismatch,
    ANOTHER_JOB: JobDiffers,
    **dict.fromkeys(("permission_denied", "unauthenticated", "unimplemented", "already_exists"), PeerRefused),
}


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
    """One peer's channel, used by senders, the reader of its stream and the clock; `_lock` guards its state."""

    def __init__(self, peer: str, terms: Terms) -> None:
        self.peer = peer
        self.terms = terms
        self.error: Callable[[], TransportError] | None = None  # makes the error that ended the channel
        self.talking = False  # a stream is there and both have said HELLO
        self.has_talked = False
        self.trouble = ""  # why there is no stream, as far as known
        self.failed_dials = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._stream: Stream | None = None
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._last_received = 0
        self._last_reported = 0
        self._received_at = 0.0
        self._unreported_bytes = 0
        self._last_number = 0
        self._kept: deque[tuple[int, bytes]] = deque()  # number and envelope of what is not acknowledged
        self._held_bytes = 0
        self._taken_at = 0.0  # when the peer last acknowledged something new
        self._peer_incarnation: int | None = None
        self._is_over = False  # one of the two has said goodbye
        self._down_since = time.monotonic()
        self._next_dial = 0.0

    # What an endpoint does

    def send(self, frame: bytes) -> None:
        """Number a frame and send it; waits while too much is not acknowledged. PeerLost if nothing is for an hour."""
        began = time.monotonic()
        with self._lock:
            while self.error is None and not self._has_room(_cost(frame)):
                now = time.monotonic()
                until = max(began, self._taken_at) + _STALL_SECONDS
                if now < until:
                    self._changed.wait(until - now)
                elif self.talking:
                    self._give_up()
                else:  # it is away, and the grace period decides
                    began = now
            if self.error is not None:
                raise self.error()
            self._queue(grpc_envelope.DATA, frame)

    def recv(self, timeout: float) -> bytes:
        """The next frame."""
        inbox = self._inbox
        with self._lock:
            if not inbox and self.error is None:
                self._changed.wait_for(lambda: inbox or self.error is not None, min(timeout, threading.TIMEOUT_MAX))
            if inbox:
                frame = inbox.popleft()
                had_room = self._inbox_has_room()
                self._inbox_bytes -= _cost(frame)
                if not had_room:
                    self._changed.notify_all()
                return frame
            if self.error is not None:
                raise self.error()
            link = "" if self.talking else f", with which there is no connection ({self.trouble or 'not yet'})"
            raise DeadlineExceeded(f"{self.terms.me} got no message of {self.peer} within {timeout:g} s{link}")

    def drop(self) -> None:
        """End it for good, and forget what has come."""
        why = f"{self.terms.me} has closed the channel to {self.peer}"
        self.fail(lambda: PeerLost(why), "aborted", why)
        with self._lock:
            self._inbox.clear()
            self._inbox_bytes = 0

    def wait(self, ready: Callable[[], bool], until: float) -> bool:
        """Wait until one of the states below is reached; False if it was not at `until` (monotonic)."""
        with self._lock:
            return self._changed.wait_for(ready, max(0.0, until - time.monotonic()))

    def is_decided(self) -> bool:
        """Has the peer come, or is it clear that it cannot?"""
        return self.has_talked or self.error is not None

    def is_settled(self) -> bool:
        """Has everything been delivered, or is there nobody to deliver it to?"""
        return self.error is not None or not self._kept

    def has_hung_up(self) -> bool:
        """Is the stream gone?"""
        return self._stream is None

    def say_last(self, kind: int, text: bytes = b"") -> None:
        """Queue an ABORT or a BYE behind everything else, however much that is."""
        with self._lock:
            if self.error is None:
                self._queue(kind, text)

    def fail(
        self, make_error: Callable[[], TransportError], code: str = "cancelled", told: str = "the channel has ended"
    ) -> None:
        """End the channel with an error, unless it has ended; the stream ends with the code and the sentence."""
        with self._lock:
            stream, self._stream = self._stream, None
            self._fail(make_error)
        if stream is not None:
            stream.end(code, told)

    def hang_up(self) -> None:
        """End the stream in good order; nothing is sent or given out any more."""
        with self._lock:
            self._is_over = True
            self._fail(lambda: TransportError(f"{self.terms.me} has closed its endpoint"), softly=True)
            stream = self._stream
        if stream is not None:
            stream.finish()

    def tick(self, now: float) -> None:
        """What time brings about: late acknowledgements, the end of the grace period."""
        if self.error is not None:
            return
        if self.talking:
            if self._last_reported != self._last_received and now - self._received_at > _LATE_ACK_SECONDS:
                with self._lock:
                    self._acknowledge()
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

    def dial(self, dialler: Dialler) -> None:
        """Try for a stream, if there is none and the last attempt is long enough ago."""
        now = time.monotonic()
        with self._lock:
            if self._stream is None and self.error is None and now >= self._next_dial:
                self._next_dial = now + _DIAL_SECONDS
                self._stream = dialler.open_stream(self, self._hello().encode())

    def accept(self, stream: ServerStream, hello: Hello) -> tuple[str, str] | None:
        """Take the stream of a peer that dialled, or say why not: a status and a sentence."""
        me, peer = self.terms.me, self.peer
        with self._lock:
            if self.error is not None and self._is_over and hello.incarnation != self._peer_incarnation:
                return NOT_NOW, f"{me} has just ended a conversation with {peer}; the next one may begin"
            if self.error is not None:
                return "aborted", f"{me} has ended its channel to {peer}"
            if self._stream is not None:
                return "already_exists", f"{peer} is connected with {me} already"
            if self._peer_incarnation not in (None, hello.incarnation):
                anew = f"{peer} was started anew and cannot go on where it was"
                self._fail(lambda: PeerLost(anew))  # whoever was there before will not come back
                return "permission_denied", anew
            self._check_place(hello)
            self._stream = stream
            stream.write(self._hello().encode())
            self._start_talking(hello)
            stream.read_for(self)
        return None

    def on_message(self, stream: Stream, message: bytes) -> bool:
        """Act on an envelope; then wait while too much is there to be read, and so let the peer's sends wait too."""
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
            self._changed.notify_all()
            while self.error is None and not (self._inbox_has_room() or broken or stream.is_over.is_set()):
                self._changed.wait(_LOOK_SECONDS)
        if broken is not None:
            kind, text = type(broken), str(broken)
            _log.warning("%s: refused %s: %s", self.terms.me, self.peer, text)
            self.fail(lambda: kind(text), "invalid_argument", text)
        return broken is None

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
            self.talking = False
            if code not in ("resource_exhausted", NOT_NOW):  # those are no matter of certificates
                self.failed_dials += 1
            self.trouble = details
            self._next_dial = time.monotonic() + _DIAL_SECONDS
            if code == "aborted":
                self._fail(lambda: PeerLost(details))
            elif code == NOT_NOW and self.has_talked:
                self._fail(lambda: PeerLost(f"{self.peer} is there, but not in this run any more: {details}"))
            elif code == "invalid_argument":
                self._fail(lambda: FrameError(f"{self.peer} refused what {self.terms.me} sent: {details}"))
            elif code in _REFUSALS and not (code == "already_exists" and self.has_talked):
                self._fail(lambda: _REFUSALS[code](f"{self.peer} refused {self.terms.me}: {details}"))
            self._changed.notify_all()

    # Inside; the lock is held

    def _has_room(self, size: int) -> bool:
        return self._held_bytes == 0 or self._held_bytes + size <= self.terms.max_unacked_bytes

    def _inbox_has_room(self) -> bool:
        return self._inbox_bytes <= self.terms.max_unacked_bytes

    def _hello(self) -> Hello:
        terms = self.terms
        who = (terms.run_id, terms.me, self.peer)
        return Hello(terms.wire_version, terms.incarnation, self._last_received, *who, terms.job)

    def _fail(self, make_error: Callable[[], TransportError], *, softly: bool = False) -> None:
        """End the channel; softly: let the acknowledgement that is under way leave."""
        if self.error is None:
            self.error = make_error
            self.talking = softly and self.talking
            self._kept.clear()
            self._held_bytes = 0
        self._changed.notify_all()

    def _give_up(self) -> None:
        why = f"{self.peer} is there, but took nothing that {self.terms.me} sent for {_STALL_SECONDS:g} s"
        _log.warning("%s: %s", self.terms.me, why)
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end("cancelled", "the channel has ended")
        self._fail(lambda: PeerLost(why))

    def _check_place(self, hello: Hello) -> None:
        if not self._last_number - len(self._kept) <= hello.last_received <= self._last_number:
            raise FrameError(
                f"{self.peer} says that it received number {hello.last_received} "
                f"of {self.terms.me}, which has sent {self._last_number}"
            )

    def _start_talking(self, hello: Hello) -> None:
        self._peer_incarnation = hello.incarnation
        self._forget_up_to(hello.last_received)
        _log.info("%s: %s with %s", self.terms.me, "reconnected" if self.has_talked else "connected", self.peer)
        self._last_reported = self._last_received
        self.talking = self.has_talked = True
        self.failed_dials = 0
        self.trouble = ""
        for _, envelope in self._kept:
            self._write(envelope)
        self._changed.notify_all()

    def _answered(self, message: bytes) -> None:
        check_version(message, self.terms, self.peer)
        hello = grpc_envelope.decode_hello(message)
        if (hello.speaker, hello.listener, hello.run_id) != (self.peer, self.terms.me, self.terms.run_id):
            answered = plain(f"{hello.speaker!r} answered {hello.listener!r} for the run {hello.run_id!r}")
            raise PeerRefused(f"{self.terms.me} dialled {self.peer} for the run {self.terms.run_id!r}, but {answered}")
        self.terms.job.check(self.peer, hello.job, self.terms.me)
        if self._peer_incarnation not in (None, hello.incarnation):
            raise PeerLost(f"{self.peer} was started anew and cannot go on where it was")
        self._check_place(hello)
        self._start_talking(hello)

    def _take(self, message: bytes) -> None:
        if len(message) < grpc_envelope.HEADER_BYTES:
            raise FrameError(f"an envelope of {self.peer} is only {len(message)} bytes long")
        kind, number, received = grpc_envelope.unpack_numbered(message)
        self._forget_up_to(received)
        if received > self._last_number:
            raise FrameError(f"{self.peer} acknowledges number {received}, which was never sent")
        if kind == grpc_envelope.ACK:
            return
        if number != self._last_received + 1:
            what = "sent again (a replay)" if number <= self._last_received else "sent out of order"
            raise FrameError(f"number {number} of {self.peer} was {what}: {self._last_received + 1} is the next")
        self._last_received = number
        self._received_at = time.monotonic()
        if kind == grpc_envelope.DATA:
            self._inbox.append(message[grpc_envelope.HEADER_BYTES :])
            self._inbox_bytes += len(message)
            self._unreported_bytes += len(message)
            if self._unreported_bytes > self.terms.max_unacked_bytes // 8:
                self._acknowledge()
            return
        # The last word of the peer: it waits for the acknowledgement, and nothing need be delivered to it any more.
        if kind not in (grpc_envelope.ABORT, grpc_envelope.BYE):
            raise FrameError(f"{self.peer} sent an envelope of the unknown kind {kind}")
        if self._stream is not None:
            self._stream.discard()
        self._acknowledge()
        if kind == grpc_envelope.ABORT:
            last_word = grpc_envelope.check_last_word(message[grpc_envelope.HEADER_BYTES :])
            self._fail(lambda: LastWord(self.peer, last_word), softly=True)
        else:
            self._is_over = True
            self._fail(lambda: PeerLost(f"{self.peer} has ended its part and closed the connection"), softly=True)

    def _forget_up_to(self, received: int) -> None:
        """The peer has these, so they need not be kept any longer."""
        kept = self._kept
        while kept and kept[0][0] <= received:
            self._held_bytes -= len(kept.popleft()[1])
            self._taken_at = time.monotonic()

    def _queue(self, kind: int, frame: bytes) -> None:
        self._last_number += 1
        envelope = grpc_envelope.pack_numbered(kind, self._last_number, self._last_received) + frame
        self._kept.append((self._last_number, envelope))
        self._held_bytes += len(envelope)
        if self.talking:
            self._reported()
            self._write(envelope)

    def _acknowledge(self) -> None:
        self._reported()
        self._write(grpc_envelope.pack_numbered(grpc_envelope.ACK, 0, self._last_received))

    def _reported(self) -> None:
        """What is written next tells the peer what has arrived."""
        self._unreported_bytes = 0
        self._last_reported = self._last_received

    def _write(self, envelope: bytes) -> None:
        if self.talking and self._stream is not None:
            self._stream.write(envelope)


def _cost(frame: bytes) -> int:
    """What a frame counts for in the limits; an empty one counts too, or any number of them could be kept."""
    return len(frame) + grpc_envelope.HEADER_BYTES


def check_version(message: bytes, terms: Terms, peer: str) -> None:
    """VersionMismatch, naming both, unless this is a HELLO of our version."""
    version = grpc_envelope.hello_version(message)
    if version != terms.wire_version:
        raise VersionMismatch(two_versions(peer, version, terms.me, terms.wire_version))


def two_versions(peer: str, theirs: int, me: str, ours: int) -> str:
    """Which of two parties speaks which version of the wire format, and who has to do what about it."""
    older = peer if theirs < ours else me
    return (
        f"{peer} speaks version {theirs} of the wire format, {me} speaks version {ours}, and they do not go together: "
        f"{older} needs a newer hedgerow (pip install -U hedgerow)"
    )
