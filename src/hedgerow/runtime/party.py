"""Party: all that a role function sees of the world - its name, send, recv, randomness, signatures, ledger, log.

`send`, `recv` and `abort` are the only doors. `recv` names the sender and the type of the message, channels keep their
order, and nobody can receive "from anyone"; so a result does not depend on scheduling, and what a party can know is
visible in its code: its arguments plus its `recv` lines. All doors write the ledger, so nothing passes unrecorded.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from hedgerow.aborts import ABORT, Reason, reason_of
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
    plain,
)
from hedgerow.ledger import Disclosure, Exact, Kind, Ledger, Meter
from hedgerow.privacy.events import Event
from hedgerow.transport.endpoint import NOTHING, Agreed, Endpoint, LastWord
from hedgerow.transport.frames import Message, cached, decode, encode
from hedgerow.transport.mtls import Certificate, Identity, TrustStore
from hedgerow.transport.ranges import Index, check, require
from hedgerow.transport.transcripts import Recording

if TYPE_CHECKING:
    from hedgerow.runtime.checkpoint import Checkpoints

M = TypeVar("M", bound=Message)
S = TypeVar("S")

DEADLINE = 300.0
"""Seconds that a party waits for a message unless the job says otherwise."""

LOGGER = logging.getLogger("hedgerow")


@dataclass(frozen=True, slots=True)
class Abort(Message, name=ABORT, version=1):
    """Anybody to all peers: I stop, in place of my next message."""

    discloses = Exact("that the sender stopped early, and which one of a public list of reasons it had")
    reason: Annotated[int, Index(len(Reason))]


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
        check: Callable[[], None] | None = None,
        attempt: int = 1,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        """`check` is called with every report, and raises once the run has been called off.

        A run that was broken off is taken up again as its next `attempt`, from what `checkpoints` have kept.
        """
        self.name = endpoint.name
        self.peers = endpoint.peers
        self.ledger = Ledger(endpoint.name)
        self.log = logging.LoggerAdapter(LOGGER, {"party": endpoint.name})
        self._endpoint = endpoint
        self._recording = endpoint if isinstance(endpoint, Recording) else None
        self._identity, self._trust = identity, trust
        self.job = NOTHING
        self._deadline = deadline
        self._on_progress = on_progress
        self._check = check
        self.attempt, self.checkpoints = attempt, checkpoints
        self.most_kept = 0  # the largest number of trees that anybody is known to have kept, once all go on
        self._ended: set[str] = set()  # peers with which there is nothing more to say
        self._has_stopped = False
        self.on_charge: Callable[[Event, float], None] | None = None

    @functools.cached_property
    def rng(self) -> SecureRandom:
        """Randomness that nobody else knows."""
        return SecureRandom()

    def join(self, job: Agreed) -> None:
        """Take part in this job: peers that have another one are refused, and what this party signs is for it alone."""
        self.job = job
        self._endpoint.agree(job)

    # --- the doors -------------------------------------------------------------------------------------------------

    def send(self, to: str, message: Message, *, event: Event | None = None) -> None:
        """Disclose a message to a peer; `event` is that of the mechanism whose noise is in it."""
        self._send(to, message, encode(message), event)

    def send_all(self, peers: Iterable[str], message: Message, *, even_if_lost: bool = False) -> None:
        """The same message to several peers, written down once; `even_if_lost` passes over those that are gone."""
        frame = encode(message)
        for to in peers:
            with contextlib.suppress(*((PeerLost,) if even_if_lost else ())):
                self._send(to, message, frame, None)

    def _send(self, to: str, message: Message, frame: bytes, event: Event | None) -> None:
        # The line is written first: a frame that may have left the house must be in the book, even if sending fails.
        self.ledger.write("disclosed", to, _kind_of(type(message)), len(frame), event)
        try:
            self._endpoint.send(to, frame)
        except LastWord as last:
            raise self._heard(last) from None

    def recv(self, sender: str, kind: type[M], *, timeout: float | None = None, **symbols: Any) -> M:
        """Learn the next message of a peer, which must be of this kind; waits until the job's deadline at most.

        `symbols` are what the ranges of its fields refer to (`transport.ranges`); what is outside of them is a
        ProtocolError, and nobody gets to see it.
        """
        require(kind, symbols)
        try:
            frame = self._endpoint.recv(sender, self._deadline if timeout is None else timeout)
        except DeadlineExceeded as problem:
            raise DeadlineExceeded(
                f"{self.name} timed out waiting for {kind.NAME} from {sender}: {problem}"
            ) from problem
        except LastWord as last:
            raise self._heard(last) from None
        message = self._decoded(sender, frame, kind)
        self.ledger.write("learned", sender, _kind_of(kind), len(frame))
        check(sender, message, symbols)
        return message

    def _decoded(self, sender: str, frame: bytes, kind: type[M]) -> M:
        try:
            return decode(frame, kind)
        except (FrameError, VersionMismatch) as problem:
            raise type(problem)(f"{self.name} cannot take what {sender} sent: {plain(str(problem))}") from problem

    def _heard(self, last: LastWord) -> PeerFailed:
        """What a peer's last word means; it is written down when it is first read."""
        if not last.frame:
            return PeerFailed(last.party, Reason.INTERNAL)
        abort = self._decoded(last.party, last.frame, Abort)
        check(last.party, abort, {})
        if last.party not in self._ended:
            self._ended.add(last.party)
            self.ledger.write("learned", last.party, _kind_of(Abort), len(last.frame))
        return PeerFailed(last.party, Reason(abort.reason))

    def abort(self, error: BaseException) -> None:
        """Tell all peers that this party stops: a code, never the sentence, which may quote data. Never raises."""
        if self._has_stopped:
            return
        self._has_stopped = True
        try:
            frame = encode(Abort(reason_of(error)))
            for peer in self.peers:
                if peer not in self._ended:
                    self.ledger.write("disclosed", peer, _kind_of(Abort), len(frame))
            self._endpoint.abort(frame)
        except Exception:
            self.log.exception("%s: telling the peers of a failure failed", self.name)

    def common_deadline(self) -> Callable[[], float]:
        """What is left of one deadline for several messages: those who are late are late together, not in turn."""
        until = time.monotonic() + self._deadline
        return lambda: max(0.0, until - time.monotonic())

    def wait_longer(self, times: float) -> None:
        """Be more patient than the others: for a party whose messages come only after somebody else's."""
        self._deadline *= times

    def drop(self, peer: str) -> None:
        """Have nothing more to do with a peer: later messages of it are never read."""
        self._ended.add(peer)
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
        return Meter(self.ledger)

    # --- budget ----------------------------------------------------------------------------------------------------

    def charge(self, event: Event, delta: float = 0.0) -> None:
        """Charge what is about to be released to this party's budget, if it has one; BudgetExceeded if it is too small.

        `event` is that of the mechanisms, `delta` what it may use of the budget's. The charge stays, whatever follows.
        """
        if self.on_charge is not None:
            self.on_charge(event, delta)

    # --- checkpoints -----------------------------------------------------------------------------------------------

    def keep(self, n_trees: int, state: Any) -> None:
        """Keep what this party needs to go on after this many trees, where there are checkpoints."""
        if self.checkpoints is not None:
            self.checkpoints.keep(n_trees, state)

    def kept(self, n_trees: int | None, kind: type[S]) -> S | None:
        """What this party kept under this number (None: the last one), in any attempt; None if it did not."""
        if self.checkpoints is None or not (trees := self.checkpoints.trees):
            return None
        number = trees[-1] if n_trees is None else n_trees
        return self.checkpoints.load(number, kind) if number in trees else None

    def go_on(self, kind: type[S], job: Any, *, without: Iterable[str] = ()) -> tuple[int, S | None]:
        """How many trees there are already, as all parties of the job agree, and this party's state after them.

        (0, None) in the first attempt, and where something is missing somewhere: then all begin anew. Nothing is heard
        of those whom the first party goes on `without`.
        """
        if self.attempt == 1:
            return 0, None
        from hedgerow.runtime.checkpoint import agree_on

        for peer in without:
            self.drop(peer)
        trees = () if self.checkpoints is None else self.checkpoints.trees
        n_trees, self.most_kept = agree_on(self, job, trees, frozenset(without))
        return n_trees, self.kept(n_trees, kind) if n_trees else None

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
        """Tell whoever watches how far the work is. Raises if the run has been called off meanwhile."""
        if self._check is not None:
            self._check()
        if self._on_progress is not None:
            self._on_progress(done, total)


@cached
def _kind_of(message: type[Message]) -> Kind:
    disclosure = getattr(message, "discloses", None)
    if not isinstance(disclosure, Disclosure):
        raise ProtocolError(f"{message.__name__} does not state what it discloses, so it cannot be sent")
    return Kind(message.NAME, message.VERSION, disclosure.of, disclosure.protection)


def root_cause(errors: Mapping[str, BaseException]) -> tuple[str, BaseException]:
    """Of the parties' errors the one that all others follow from, and whose it is.

    A party that failed by itself comes before one that timed out, and that before one that was told; among equals
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
