"""What messages cost on a link: how many wait for each other, and how long that takes, from the books of a run.

    longest_chain(run.ledgers)                            # rounds
    longest_chain(run.ledgers, link_of("100Mbit/10ms"))   # and the seconds that such a link adds

No clock is read: the messages are sent again in thought, in the order in which each party's own ledger has them.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from hedgerow.errors import InvalidParameter
from hedgerow.ledger import Ledger
from hedgerow.transport.emulate import Line, Link

_BANDWIDTHS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


class Chain(NamedTuple):
    """The longest chain of messages that wait for each other: how many, and how long they take on the link."""

    rounds: int
    seconds: float


def longest_chain(books: Mapping[str, Ledger], link: Link | None = None) -> Chain:
    """Send all messages of all books again, in the order of each party's own book, each as soon as it could be.

    Work takes no time. A message is received when it has arrived; a party does the next line of its book after that.
    """
    lines: dict[tuple[str, str], Line] = {}
    on_the_way: dict[tuple[str, str], deque[tuple[int, float]]] = {}
    entries = {party: [(way, peer, size) for way, peer, _, size, _ in book.entries()] for party, book in books.items()}
    at = dict.fromkeys(books, (0, 0.0))  # depth and time
    next_line = dict.fromkeys(books, 0)
    is_moving = True
    while is_moving:
        is_moving = False
        for party, book in entries.items():
            k, (depth, now) = next_line[party], at[party]
            while k < len(book):
                way, peer, size = book[k]
                if way == "disclosed":
                    arrival = now
                    if link is not None:
                        arrival = lines.setdefault((party, peer), Line(link)).arrival(size, now)
                    on_the_way.setdefault((party, peer), deque()).append((depth + 1, arrival))
                else:
                    waiting = on_the_way.get((peer, party))
                    if not waiting:
                        break
                    depth_there, arrival = waiting.popleft()
                    depth, now = max(depth, depth_there), max(now, arrival)
                k += 1
            is_moving = is_moving or k > next_line[party]
            next_line[party], at[party] = k, (depth, now)
    return Chain(max((d for d, _ in at.values()), default=0), max((now for _, now in at.values()), default=0.0))


def link_of(text: str) -> Link:
    """A link from "100Mbit/10ms": bandwidth in each direction, and round trip."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kmg]bit)(?:/s)?\s*/\s*([0-9.]+)\s*(ms|s)\s*", text, re.IGNORECASE)
    try:
        if found is None:
            raise ValueError(text)  # noqa: TRY301 - told below
        bandwidth = float(found[1]) * _BANDWIDTHS[found[2].lower()]
        return Link(float(found[3]) * (1e-3 if found[4].lower() == "ms" else 1.0), bandwidth)
    except ValueError:
        raise InvalidParameter(
            f"a link is its bandwidth and its round trip, as in 100Mbit/10ms, got {text!r}"
        ) from None


def told_bytes(n_bytes: float) -> str:
    """For people."""
    if n_bytes < 1e3:
        return f"{n_bytes:.0f} B"
    power = min(int(math.log10(n_bytes) // 3), 4)
    return f"{n_bytes / 1e3**power:.3g} {' kMGT'[power]}B"
