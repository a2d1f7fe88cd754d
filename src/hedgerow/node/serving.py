"""A standing service: scores of single records within milliseconds, one message each way between two parties.

    feature holder -> label holder   ReadyToServe      which model its part is of
    label holder -> feature holder   RecordsAsked      ids, of one request or of several that came at once
    feature holder -> label holder   RecordsAnswered   which of them it has, and which way each goes at its splits

Rows are read once, when the service starts, and kept in memory by their ids: by the label holder as bins, by a feature
holder as answers to all questions of the model, a bit each. So a batch costs a look-up on each side and one round trip,
on a connection that stays open. One that breaks is taken up again by the transport, unnoticed if that is soon enough; a
party that was started anew is met anew.

What each ends up knowing. Label holder: the scores; for every record that it asks about, whether the feature holder has
it, and which way it goes at each of the feature holder's splits, in the clear. Feature holder: which records are asked
about, and when; nothing about scores, labels or other parties' columns. `vertical.scoring` tells a feature holder less
(it knows no ids, and the order of rows is mixed by matching), and its answers can be randomised; so a service needs its
own word in the proposal, scoring = "standing".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from hedgerow.crypto.identifiers import plain_blocks
from hedgerow.engine.dtypes import Bytes
from hedgerow.errors import DeadlineExceeded, HedgerowError, InvalidInput, JobError, ProtocolError
from hedgerow.ledger import Exact
from hedgerow.node.day_counts import Allowance
from hedgerow.node.desk import Node
from hedgerow.node.proposal import NOT_SERVED
from hedgerow.node.serving_book import Book
from hedgerow.node.trained import OwnRows, Trained
from hedgerow.protocols.vertical.common.messages import MOST_COLUMNS, RunId
from hedgerow.protocols.vertical.common.parts import OwnerPart
from hedgerow.runtime.party import Party
from hedgerow.transport.endpoint import Agreed
from hedgerow.transport.frames import Bools, Message, UInt8s
from hedgerow.transport.grpc import GrpcEndpoint
from hedgerow.transport.ranges import Anything, Free, Index, Shape, Within

MOST_ROWS = 4096
"""In one message."""
MOST_LETTERS = 1 << 10
"""Of one id."""
ANSWERED, LIMITED = 0, 1
"""What became of a batch: it is answered, or the policy of the feature holder allows no more rows today."""
REPLY_SECONDS = 5.0
"""For one batch: a partner that takes longer is away."""
_BEAT_SECONDS = 2.0  # an empty batch now and then tells whether the partner is still there
_LOOK_SECONDS = 0.5
_AGAIN_SECONDS = 0.2
_CHUNK = 1 << 16
Tell = Callable[[str], None]


# --- messages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadyToServe(Message, name="node.ready_to_serve", version=1):
    """Feature holder to label holder: my rows are in memory, ask me."""

    discloses = Exact("that the feature holder is there, and which model its part is of")
    model_run_id: RunId
    n_handles: Annotated[int, Within(1, MOST_COLUMNS)]


@dataclass(frozen=True, slots=True)
class RecordsAsked(Message, name="node.records_asked", version=1):
    """Label holder to feature holder: score these records with me. None of them: are you still there?"""

    discloses = Exact("which records are scored, and when")
    number: Annotated[int, Within("number", "number")]
    ids: Annotated[tuple[str, ...], Shape(Free("n_rows", 0, MOST_ROWS))]  # as the rule for ids writes them


@dataclass(frozen=True, slots=True)
class RecordsAnswered(Message, name="node.records_answered", version=1):
    """Feature holder to label holder: which of the records I have, and which way each goes at each of my splits."""

    discloses = Exact("which records the feature holder has, and which way each goes at each of its splits")
    number: Annotated[int, Within("number", "number")]
    code: Annotated[int, Index(2)]
    known: Annotated[Bools, Shape(Free("n_answered", 0, "n_rows"))]
    bits: Annotated[UInt8s, Shape("n_answered", "n_bytes"), Anything()]  # 8 splits in a byte; 0 for what is not known


MESSAGES = (ReadyToServe, RecordsAsked, RecordsAnswered)


# --- rows in memory --------------------------------------------------------------------------------------------------


class Places:
    """Where each record stands, by its id as the rule writes it."""

    def __init__(self, trained: Trained, rows: OwnRows) -> None:
        self._rule = trained.rule
        where = f"{rows.part.party}: column {rows.dataset.id!r}"
        self._place: dict[str, int] = {}
        place = -1
        for block in plain_blocks(rows.ids, where):
            for value in block:
                place += 1
                try:
                    written = self.written(value)
                except InvalidInput as problem:
                    raise InvalidInput(f"{where} holds an id that cannot be used: {problem}") from None
                if self._place.setdefault(written, place) != place and trained.duplicates == "refuse":
                    raise InvalidInput(f"{where} holds an id twice, after normalisation; make ids unique")

    def __len__(self) -> int:
        return len(self._place)

    def written(self, value: object) -> str:
        """An id as parties write it to each other; InvalidInput for what is none. The value is not quoted."""
        try:
            written = self._rule.normalised(value)
        except (TypeError, ValueError):
            raise InvalidInput(f"an id must be {self._rule.kind}, as the model's rule for ids says") from None
        if not written:
            raise InvalidInput("an id is missing or empty")
        if len(written) > MOST_LETTERS:
            raise InvalidInput(f"an id has {len(written)} letters, {MOST_LETTERS} at most are allowed")
        return written

    def of(self, ids: Iterable[str]) -> Any:
        """Their places, -1 for those that are not there: int64 [ids]."""
        find = self._place.get
        return np.array([find(each, -1) for each in ids], np.int64)


class Answers:
    """A feature holder's answers about all its records: a bit for each question of the model."""

    def __init__(self, trained: Trained, rows: OwnRows) -> None:
        part = rows.part
        if not isinstance(part, OwnerPart):
            raise JobError(f"{part.party}: {NOT_SERVED}")
        if not part.n_handles:
            raise JobError(f"{part.party}: the model asks nothing about its columns, so there is nothing to serve")
        self.n_handles = part.n_handles
        self.places = Places(trained, rows)
        codes = part.codes(rows.read())
        blocks = [
            np.packbits(part.answers(codes[:, start : start + _CHUNK]).T, axis=1)
            for start in range(0, codes.shape[1], _CHUNK)
        ]
        self._bits: Bytes = np.ascontiguousarray(np.concatenate(blocks))

    def about(self, ids: Sequence[str]) -> tuple[Any, Bytes]:
        """Which of them are known, bool [ids], and the answers, uint8 [ids, bytes]."""
        places = self.places.of(ids)
        known = places >= 0
        bits = self._bits[places] if len(ids) else np.zeros((0, self._bits.shape[1]), np.uint8)
        bits[~known] = 0
        return known, bits


# --- a connection that stays -----------------------------------------------------------------------------------------


def open_end(node: Node, trained: Trained, feature_holder: str) -> GrpcEndpoint:
    """An end of the conversation between the label holder and one feature holder."""
    holder = trained.label_holder
    links = ((holder, feature_holder),)
    facts = {
        "proposal": trained.proposal.hash,
        "rule": trained.rule.canonical,
        "messages": sorted((kind.NAME, kind.VERSION) for kind in MESSAGES),
    }
    peer = feature_holder if trained.is_asking else holder
    run_id = f"{trained.proposal.run_id}-serving-{feature_holder}"
    dial = trained.proposal.dials(node.name, links)
    return node.open(run_id, [peer], dial, job=Agreed.of(facts), timeout=3600.0)


def _connected(endpoint: GrpcEndpoint, stop: threading.Event) -> bool:
    """Wait for the peer, however long that takes; False if the service ends before."""
    while not stop.is_set():
        try:
            endpoint.wait_connected(_LOOK_SECONDS)
        except DeadlineExceeded:
            continue
        return True
    return False


class Told:
    """Tells a sentence when it is a new one, so that a partner that is away for a night does not fill a log."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._last = tell, ""

    def __call__(self, sentence: str) -> None:
        """Tell it, unless it was the last one."""
        if sentence != self._last:
            self._tell(sentence)
        self._last = sentence


# --- the feature holder ----------------------------------------------------------------------------------------------


def answer(
    node: Node, trained: Trained, answers: Answers, book: Book, allowance: Allowance, stop: threading.Event, tell: Tell
) -> None:
    """Answer the label holder until `stop` is set, over as many connections as that takes."""
    holder, told = trained.label_holder, Told(tell)
    try:
        while not stop.is_set():
            try:
                with open_end(node, trained, node.name) as endpoint:
                    if _connected(endpoint, stop):
                        told(f"{holder} is there")
                        me = Party(endpoint, node.identity, node.trust, deadline=REPLY_SECONDS)
                        _answer_on(me, trained, answers, book, allowance, stop)
            except (HedgerowError, OSError) as problem:
                told(f"the connection with {holder} has ended: {problem}")
                stop.wait(_AGAIN_SECONDS)
    finally:
        allowance.close()


def _answer_on(
    me: Party, trained: Trained, answers: Answers, book: Book, allowance: Allowance, stop: threading.Event
) -> None:
    """One connection, until it ends."""
    holder = trained.label_holder
    me.send(holder, ReadyToServe(trained.proposal.run_id, answers.n_handles))
    number = 0
    while not stop.is_set():
        try:
            asked = me.recv(holder, RecordsAsked, timeout=_LOOK_SECONDS, number=number)
        except DeadlineExceeded:
            continue
        found = _answered(asked, answers, allowance)
        book.add(me, len(found.known))  # before it leaves: what may have left the house is in the book
        me.send(holder, found)
        book.add(me)
        number += 1


def _answered(asked: RecordsAsked, answers: Answers, allowance: Allowance) -> RecordsAnswered:
    if asked.ids and not allowance.take(len(asked.ids)):
        known, bits = answers.about(())
        return RecordsAnswered(asked.number, LIMITED, known, bits)
    return RecordsAnswered(asked.number, ANSWERED, *answers.about(asked.ids))


# --- the label holder ------------------------------------------------------------------------------------------------


class Absent(HedgerowError):
    """A partner is not there, or did not answer in time."""


class Limited(HedgerowError):
    """A partner's policy allows no more rows today."""


class Partner:
    """One feature holder, as the label holder sees it: a thread keeps a connection with it, whatever happens."""

    def __init__(
        self, node: Node, trained: Trained, name: str, n_handles: int, book: Book, stop: threading.Event, tell: Tell
    ) -> None:
        self.name, self.n_handles = name, n_handles
        self._node, self._trained, self._book, self._stop = node, trained, book, stop
        self._told = Told(tell)
        self.lock = threading.Lock()  # of the conversation: for a batch, nobody else speaks with it meanwhile
        self._me: Party | None = None
        self._number = 0
        self._spoke = 0.0
        self._trouble = "it has not connected yet"
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look for it."""
        self._thread = threading.Thread(target=self._keep, name=f"hedgerow-partner-{self.name}", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the connection is closed, once the service has been stopped."""
        if self._thread is not None:
            self._thread.join()

    @property
    def is_there(self) -> bool:
        """Whether it can be asked now."""
        return self._me is not None

    def present(self) -> Party:
        """The end of the conversation with it; Absent if there is none."""
        if (me := self._me) is None:
            raise Absent(f"{self.name} is not there: {self._trouble}")
        return me

    def send(self, ids: tuple[str, ...]) -> None:
        """Ask about records; `answers` has to follow. Absent if it is not there."""
        me = self.present()
        try:
            me.send(self.name, RecordsAsked(self._number, ids))
        except HedgerowError as problem:
            raise self._lost(problem) from problem
        self._book.add(me)

    def answers(self, n_rows: int) -> tuple[Any, Bytes]:
        """Which records it has, bool [rows], and its answers, uint8 [handles, rows]. Absent or Limited without."""
        me = self.present()
        try:
            found = me.recv(
                self.name, RecordsAnswered, number=self._number, n_rows=n_rows, n_bytes=-(-self.n_handles // 8)
            )
            if len(found.known) != (n_rows if found.code == ANSWERED else 0):
                raise ProtocolError(f"{self.name} answered {len(found.known)} of {n_rows} records")
        except HedgerowError as problem:
            raise self._lost(problem) from problem
        self._number += 1
        self._spoke = time.monotonic()
        self._book.add(me, len(found.known))
        if found.code == LIMITED:
            raise Limited(f"{self.name} lets no more rows be scored today")
        return found.known, np.ascontiguousarray(np.unpackbits(found.bits, axis=1, count=self.n_handles).T)

    def _lost(self, problem: HedgerowError) -> Absent:
        """The connection is of no more use: what the partner says next would be about something else."""
        if self._me is not None:
            self._book.add(self._me)
        self._me, self._trouble = None, str(problem)
        return Absent(f"{self.name} is not there: {problem}")

    # In a thread

    def _keep(self) -> None:
        while not self._stop.is_set():
            try:
                with open_end(self._node, self._trained, self.name) as endpoint:
                    if _connected(endpoint, self._stop):
                        self._begin(endpoint)
                        self._watch()
            except (HedgerowError, OSError) as problem:
                self._trouble = str(problem)
                self._told(f"the connection with {self.name} has ended: {problem}")
            finally:
                self._me = None
            self._stop.wait(_AGAIN_SECONDS)

    def _begin(self, endpoint: GrpcEndpoint) -> None:
        me = Party(endpoint, self._node.identity, self._node.trust, deadline=REPLY_SECONDS)
        ready = me.recv(self.name, ReadyToServe)
        if ready.model_run_id != self._trained.proposal.run_id or ready.n_handles != self.n_handles:
            raise ProtocolError(f"{self.name} serves another model than that of {self._trained.proposal.run_id[:12]}")
        self._book.add(me)
        self._number, self._spoke = 0, time.monotonic()
        self._me = me
        self._told(f"{self.name} is there")

    def _watch(self) -> None:
        """Until the connection is of no more use: ask now and then whether the partner is still there."""
        while not self._stop.wait(_LOOK_SECONDS):
            if self._me is None:
                raise Absent(self._trouble)
            if time.monotonic() - self._spoke > _BEAT_SECONDS:
                with self.lock:
                    self.send(())
                    self.answers(0)
