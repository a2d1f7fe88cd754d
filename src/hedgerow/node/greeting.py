"""What two nodes say first whenever they meet, so that a node that is up answers the doctor of another.

    About     both     versions, and which proposals are open between the two
    Moment    both     what time it is there: asked and answered as often as the one asks that wants to know most

Most verbs want no round trips, and then nothing but `About` is sent. Nothing is read for it but papers that the two
hand over anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from hedgerow._version import __version__
from hedgerow.ledger import Exact, Public
from hedgerow.node.papers import MOST_PAPERS
from hedgerow.runtime.party import Party
from hedgerow.transport.frames import Message
from hedgerow.transport.ranges import Free, Shape, Within

MOST_ROUND_TRIPS = 16
_HASH_BYTES = 32
_MOST_VERSION = 64
_MOST_NANOSECONDS = 2**62

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class About(Message, name="node.about", version=1):
    """Either node to the other: its version, open proposals of both, and how often it will ask for the time."""

    discloses = Exact("the program's version, and the hashes of proposals in which both have a seat")
    hedgerow: Annotated[str, Shape(Free("n_version", at_least=1, at_most=_MOST_VERSION))]
    proposals: Annotated[bytes, Shape(Free("n_hashes", at_most=_HASH_BYTES * MOST_PAPERS))]
    round_trips: Annotated[int, Within(0, MOST_ROUND_TRIPS)]


@dataclass(frozen=True, slots=True)
class Moment(Message, name="node.moment", version=1):
    """Either node to the other: what time it is here, in nanoseconds since 1970."""

    discloses = Public("the time")
    at: Annotated[int, Within(0, _MOST_NANOSECONDS)]


@dataclass(frozen=True)
class Greeted:
    """What a peer said of itself, and how far its clock is ahead; None if nobody asked for the time."""

    hedgerow: str
    proposals: tuple[str, ...]  # hashes
    ahead: float | None = None  # seconds
    uncertain: float = 0.0  # seconds by which `ahead` may be off, either way
    round_trip: float = 0.0  # seconds; the shortest


def greet(me: Party, peer: str, proposals: Sequence[str], *, round_trips: int = 0, clock: Clock = time.time) -> Greeted:
    """Greet a peer and be greeted. Whoever wants the time asks for `round_trips`, and the other answers."""
    hashes = b"".join(map(bytes.fromhex, proposals[:MOST_PAPERS]))
    me.send(peer, About(__version__, hashes, round_trips))
    about = me.recv(peer, About)
    found = about.proposals
    listed = tuple(found[k : k + _HASH_BYTES].hex() for k in range(0, len(found), _HASH_BYTES))
    best: tuple[float, float] | None = None  # round trip, and how far the peer is ahead
    for _ in range(max(round_trips, about.round_trips)):
        asked, started = clock(), time.perf_counter()
        me.send(peer, Moment(_nanoseconds(asked)))
        me.recv(peer, Moment)  # its question
        me.send(peer, Moment(_nanoseconds(clock())))
        answer = me.recv(peer, Moment).at / 1e9
        took = time.perf_counter() - started
        measured = (took, answer - asked - took / 2)
        best = measured if best is None else min(best, measured)
    if best is None:
        return Greeted(about.hedgerow, listed)
    return Greeted(about.hedgerow, listed, ahead=best[1], uncertain=best[0] / 2, round_trip=best[0])


def _nanoseconds(seconds: float) -> int:
    return min(max(int(seconds * 1e9), 0), _MOST_NANOSECONDS)
