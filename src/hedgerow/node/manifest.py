"""The egress manifest: what leaves whose house, to whom, before a run and after it.

    before(spec, cast)      kinds of messages that each party may send, what they disclose, how large they can be
    after(books)            how many of them went and how many bytes, as the ledgers have it
    unannounced(...)        what went and was not announced: nothing, or the program is broken
    of_run(home, proposal)  all of it, as one party sees a run

Before a run it follows from the message classes of the protocol alone; after it from the ledgers, line by line, so it
adds up to what they say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hedgerow.ledger import Ledger
from hedgerow.node.documents import told_of
from hedgerow.node.words import leaving, matching_cast
from hedgerow.runtime.party import Abort
from hedgerow.runtime.protocol import Protocol, find
from hedgerow.transport.frames import Message
from hedgerow.transport.ranges import MOST, Free, stated

if TYPE_CHECKING:
    from hedgerow.node.home import Home
    from hedgerow.node.proposal import Proposal

BOOKS = ("matching", "ledger")
"""Of a run, in the order in which they were written."""


class Announced(NamedTuple):
    """One kind of message that a party may send."""

    sender: str
    to: str  # a role, or everybody
    message: str
    what: str
    protection: str
    size: str  # of what is in it, as far as its class says; a heading of some hundred bytes comes on top


class Sent(NamedTuple):
    """All messages of one kind that went from one party to another."""

    sender: str
    receiver: str
    message: str
    what: str
    protection: str
    messages: int
    bytes: int


def before(protocols: Iterable[Protocol], cast: Mapping[str, str]) -> list[Announced]:
    """What parties may send in these protocols, one after the other, in their roles."""
    found: list[Announced] = []
    for spec in protocols:
        kinds: tuple[type[Message], ...] = (*spec.messages, Abort)
        sizes = {kind.NAME: size_of(kind) for kind in kinds}
        for name, role in cast.items():
            found += [
                Announced(name, e.to, e.message, e.what, e.protection, sizes[e.message]) for e in leaving(spec, role)
            ]
    return found


def after(books: Mapping[str, Ledger], direction: str = "disclosed") -> list[Sent]:
    """What went, from the books of parties: what each sent, or with "learned" what each received."""
    found = []
    for party, book in books.items():
        for entry in book.summary():
            if entry["direction"] == direction:
                sender, receiver = (party, entry["peer"]) if direction == "disclosed" else (entry["peer"], party)
                told = {key: entry[key] for key in ("message", "what", "protection", "messages", "bytes")}
                found.append(Sent(sender, receiver, **told))
    return found


def unannounced(announced: Iterable[Announced], sent: Iterable[Sent]) -> list[Sent]:
    """What a party sent though nothing said before that it might, or with other words."""
    known = {(each.sender, each.message, each.what, each.protection) for each in announced}
    senders = {each.sender for each in announced}
    return [s for s in sent if s.sender in senders and (s.sender, s.message, s.what, s.protection) not in known]


def announced_by(proposal: Proposal) -> list[Announced]:
    """What parties may send in all parts of a run."""
    job = proposal.matching_job
    found = [] if job is None else before([find(job.NAME)], matching_cast(job))
    return [*found, *before([proposal.chosen.protocol], proposal.job.cast)]


def books_of(home: Home, run_id: str) -> list[Ledger]:
    """The ledgers of a run, of its matching and of its training, as far as they are there."""
    books = []
    for path in (home.runs / run_id / f"{name}.jsonl" for name in BOOKS):
        if path.exists():
            with told_of(path):
                books.append(Ledger.from_json_lines(home.name, path.read_text(encoding="utf-8")))
    return books


def of_run(home: Home, proposal: Proposal) -> dict[str, Any]:
    """What may leave this party's house in a run, what left it and what came, for programs."""
    announced, books = announced_by(proposal), books_of(home, proposal.run_id)
    own = [each for each in announced if each.sender == home.name]
    left = [each for book in books for each in after({home.name: book})]
    came = [each for book in books for each in after({home.name: book}, "learned")]
    return {
        "hash": proposal.hash,
        "run_id": proposal.run_id,
        "protocol": proposal.protocol,
        "party": home.name,
        "announced": [each._asdict() for each in announced],
        "has_run": bool(books),
        "sent": [each._asdict() for each in left],
        "received": [each._asdict() for each in came],
        "unannounced": [each._asdict() for each in unannounced(own, left)],
    }


def size_of(kind: type[Message]) -> str:
    """How large a message can be, in the symbols that its class states: "8 bytes x n_nodes x n_bins"."""
    parts = []
    fixed = 0
    for about in stated(kind).values():
        width = 8 if about.scalar is None else int(np.dtype(about.scalar).itemsize)
        if about.shape is None:
            fixed += width
            continue
        is_text = about.scalar is None
        numbers, names = 1 if is_text else width, []
        for size in about.shape:
            limit: Any = size.at_most if isinstance(size, Free) else size
            if isinstance(limit, int) and limit < MOST:
                numbers *= limit
            else:
                names.append(size.name if isinstance(size, Free) else str(size))
        if names:
            parts.append(" x ".join([f"{numbers:,} byte{'s' * (numbers > 1)}", *names]))
        else:
            fixed += 8 * math.ceil(numbers / 8)
    told = [*dict.fromkeys(parts), *([f"{fixed:,} bytes"] if fixed else [])]
    return "at most " + " + ".join(told) if told else "a heading alone"
