"""Room for calls at a listening port: a limit in total, and a small one for each address before it is let in.

A call that is turned away is over at once, unless whoever made it does not take the answer; then it stays for some
seconds. Without the second limit somebody at one address could so take all places and keep the others out. It does not
count calls that were let in: any number of parties may be behind one address, that of a network or a proxy. Should many
of them come in the same moment, some are asked to come again, which they do after a fraction of a second.
"""

from __future__ import annotations

import threading
from collections import Counter

MOST_NOT_LET_IN = 4
"""Calls of one address that are not over and were not let in; with this many, no further one of it is looked at."""


class Places:
    """The calls of one port that are not over."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._not_let_in: Counter[str] = Counter()  # by address
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """Calls that are not over."""
        return self._taken

    def take(self, address: str) -> Place | None:
        """A place for a call that has come from this address, if there is one."""
        with self._lock:
            if self._taken >= self._most or self._not_let_in[address] >= MOST_NOT_LET_IN:
                return None
            self._taken += 1
            self._not_let_in[address] += 1
        return Place(self, address)

    def let_in(self, address: str) -> None:
        """One call of this address does not count for it any more."""
        with self._lock:
            self._not_let_in[address] -= 1
            if not self._not_let_in[address]:
                del self._not_let_in[address]

    def leave(self) -> None:
        """A call is over."""
        with self._lock:
            self._taken -= 1


class Place:
    """The place of one call."""

    def __init__(self, places: Places, address: str) -> None:
        self._places, self._address = places, address
        self._counts = True  # for its address

    def let_in(self) -> None:
        """The call is that of a party which is expected."""
        if self._counts:
            self._counts = False
            self._places.let_in(self._address)

    def leave(self) -> None:
        """The call is over."""
        self.let_in()
        self._places.leave()


def host_of(peer: str) -> str:
    """The address in what grpcio says of a peer, without its port: "ipv4:10.0.0.7:50412" is "ipv4:10.0.0.7"."""
    return peer.rpartition(":")[0]
