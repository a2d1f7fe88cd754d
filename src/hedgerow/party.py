"""Party: all that a role function sees of the world - its name, send, recv, randomness, signatures, ledger, log.

`send` and `recv` are the only doors. `recv` names the sender and the type of the message, channels keep their order,
and nobody can receive "from anyone"; so a result does not depend on scheduling, and what a party can know is visible in
its code: its arguments plus its `recv` lines. Both doors write the ledger, so nothing passes unrecorded.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.errors import (
    DeadlineExceeded,
    FrameError,
    HedgerowError,
    PeerFailed,
    PeerLost,
    ProcessEnded,
    ProtocolError,
    VersionMismatch,
)
from hedgerow.ledger import Disclosure, Kind, Ledger
from hedgerow.transport.endpoint import Endpoint
from hedgerow.transport.frames import Message, decode, encode
from hedgerow.transport.meter import Meter
from hedgerow.transport.mtls import Certificate, Identity, TrustStore
from hedgerow.transport.ranges import check, require
from hedgerow.transport.transcripts import Recording

M = TypeVar("M", bound=Message)

DEADLINE = 300.0
"""Seconds that a party waits for a message unless the job says otherwise."""

LOGGER = logging.getLogger("hedgerow")


class Party:
    """One party of one run."""

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        trust: TrustStore,
        *,
        deadline: float = DEADLINE,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.name = endpoint.name
        self.peers = endpoint.peers
        self.rng = SecureRandom()
        self.ledger = Ledger(endpoint.name)
        self.log = logging.LoggerAdapter(LOGGER, {"party": endpoint.name})
        self._endpoint = endpoint
        self._recording = endpoint if isinstance(endpoint, Recording) else None
        self._identity, self._trust = identity, trust
        self._deadline = deadline
        self._on_progress = on_progress
        self.on_charge: Callable[[Any, float], None] | None = None

    # --- the doors -------------------------------------------------------------------------------------------------

    def send(self, to: str, message: Message, *, event: Mapping[str, Any] | None = None) -> None:
        """Disclose a message to a peer; `event` is that of the mechanism whose noise is in it."""
        self._send(to, message, encode(message), event)

    def send_all(self, peers: Iterable[str], message: Message, *, even_if_lost: bool = False) -> None:
        """The same message to several peers, written down once; `even_if_lost` passes over those that are gone."""
        frame = encode(message)
        for to in peers:
            with contextlib.suppress(*((PeerLost,) if even_if_lost else ())):
                self._send(to, message, frame, None)

    def _send(self, to: str, message: Message, frame: bytes, event: Mapping[str, Any] | None) -> None:
        # The line is written first: a frame that may have left the house must be in the book, even if sending fails.
        self.ledger.write("disclosed", to, _kinds.get(type(message)) or _kind_of(type(message)), len(frame), event)
        self._endpoint.send(to, frame)

    def recv(self, sender: str, kind: type[M], *, timeout: float | None = None, **symbols: Any) -> M:
        """Learn the next message of a peer, which must be of this kind; waits until the job's deadline at most.

        `symbols` are what the ranges of its fields refer to (`transport.ranges`); what is outside of them is a
        ProtocolError, and nobody gets to see it.
        """
        require(kind, symbols)
        try:
            frame = self._endpoint.recv(sender, self._deadline if timeout is None else timeout)
        except DeadlineExceeded as problem:
            raise DeadlineExceeded(f"{self.name} waited in vain for {kind.NAME} from {sender}: {problem}") from problem
        try:
            message = decode(frame, kind)
        except (FrameError, VersionMismatch) as problem:
            raise type(problem)(f"{self.name} cannot take what {sender} sent: {problem}") from problem
        self.ledger.write("learned", sender, _kinds.get(kind) or _kind_of(kind), len(frame))
        check(sender, message, symbols)
        return message

    def common_deadline(self) -> Callable[[], float]:
        """What is left of one deadline for several messages: those who are late are late together, not in turn."""
        until = time.monotonic() + self._deadline
        return lambda: max(0.0, until - time.monotonic())

    def wait_longer(self, times: float) -> None:
        """Be more patient than the others: for a party whose messages come only after somebody else's."""
        self._deadline *= times

    def drop(self, peer: str) -> None:
        """Have nothing more to do with a peer: later messages of it are never read."""
        self._endpoint.drop(peer)

    def note(self, made: Callable[[], Message]) -> None:
        """Where the run is recorded, keep in the transcript what this party got to know with shares of its own.

        Those are on no wire, so frames alone do not tell. It is sent to nobody, and `made` is called only if needed.
        """
        if self._recording is not None:
            self._recording.note(encode(made()))

    @property
    def meter(self) -> Meter:
        """Bytes and messages, as the ledger has them."""
        meter = Meter()
        for line in self.ledger:
            count = meter.sent if line.direction == "disclosed" else meter.received
            count(line.peer, line.message, line.n_bytes)
        return meter

    # --- budget ----------------------------------------------------------------------------------------------------

    def charge(self, event: Any, delta: float = 0.0) -> None:
        """Charge what is about to be released to this party's budget, if it has one; BudgetExceeded if it is too small.

        `event` is that of the mechanisms, `delta` what it may use of the budget's. The charge stays, whatever follows.
        """
        if self.on_charge is not None:
            self.on_charge(event, delta)

    # --- identity --------------------------------------------------------------------------------------------------

    def sign(self, data: bytes) -> tuple[bytes, bytes]:
        """A signature with this party's identity key, and the certificate (PEM) that it can be checked against."""
        return self._identity.sign(data), self._identity.certificate.pem

    def verify(self, peer: str, signature: bytes, certificate: bytes, data: bytes) -> None:
        """PeerRefused unless the certificate is the peer's, as this party accepts it, and its key signed the data."""
        shown = Certificate.from_pem(certificate)
        self._trust.check(peer, shown)
        shown.verify(signature, data)

    # --- progress --------------------------------------------------------------------------------------------------

    def report(self, done: int, total: int) -> None:
        """Tell whoever watches how far the work is."""
        if self._on_progress is not None:
            self._on_progress(done, total)


_kinds: dict[type[Message], Kind] = {}


def _kind_of(message: type[Message]) -> Kind:
    disclosure = getattr(message, "discloses", None)
    if not isinstance(disclosure, Disclosure):
        raise ProtocolError(f"{message.__name__} does not state what it discloses, so it cannot be sent")
    kind = _kinds[message] = Kind(message.NAME, message.VERSION, disclosure.of, disclosure.protection)
    return kind


def root_cause(errors: Mapping[str, BaseException]) -> tuple[str, BaseException]:
    """Of the parties' errors the one that all others follow from, and whose it is.

    A party that failed by itself comes before one that waited in vain, and that before one that was told; among equals
    the first in the given order.
    """

    def order(item: tuple[str, BaseException]) -> int:
        error = item[1]
        if isinstance(error, PeerFailed):
            return 2
        waited = isinstance(error, (PeerLost, DeadlineExceeded)) and not isinstance(error, ProcessEnded)
        return 1 if waited else 0

    return min(errors.items(), key=order)


def named(party: str, error: BaseException, others: Iterable[str] = ()) -> BaseException:
    """The error, saying whose it is: with the party's name in front, unless it begins with that of a party already."""
    names = (party, *others)
    is_named = isinstance(error, PeerFailed) or str(error).startswith(
        (*(f"{name}:" for name in names), *(f"{name} " for name in names))
    )
    if is_named or not isinstance(error, HedgerowError):
        error.add_note(f"raised in the role of {party}")
        return error
    said = type(error)(f"{party}: {error}")
    said.__cause__ = error
    return said
