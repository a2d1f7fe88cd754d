"""What passed between parties, from their ledgers: kinds of messages, and arrows for a picture.

    told = flows({"shop": ledger})            # one party's book, or everybody's
    arrows(told, groups(cast, own="shop"))    # what went one way between two parties, or groups of them

Nothing is added to what the ledgers say. Many parties of one role are one group, so that 64 owners are one box.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hedgerow.ledger import Exact, Kind, Ledger, Public, Result

MOST_SINGLE = 6
"""Parties of one role that are shown one by one."""

PROTECTIONS = {
    "clear": "in the clear",
    "noise": "with noise",
    "result": "part of the result",
    "covered": "covered: masked, summed, sealed, blinded or encrypted",
    "public": "public",
}
"""Kinds of protection, from what shows most to what shows least, with words for a legend."""


class Flow(NamedTuple):
    """All messages of one kind from one party to another."""

    sender: str
    receiver: str
    message: str
    what: str
    protection: str
    number: int
    n_bytes: int
    with_noise: int | None  # how many carry noise, which only the sender's book says

    @property
    def kind(self) -> str:
        """How it is protected, as one of `PROTECTIONS`."""
        return protection_of(self.protection)


class Arrow(NamedTuple):
    """All that went from one party, or group of parties, to another."""

    sender: str
    receiver: str
    flows: tuple[Flow, ...]

    @property
    def number(self) -> int:
        """Messages."""
        return sum(flow.number for flow in self.flows)

    @property
    def n_bytes(self) -> int:
        """Bytes."""
        return sum(flow.n_bytes for flow in self.flows)

    @property
    def kind(self) -> str:
        """That of what is protected least in it."""
        order = list(PROTECTIONS)
        return min((flow.kind for flow in self.flows), key=order.index)


def protection_of(words: str) -> str:
    """Which of `PROTECTIONS` the words of a ledger are; what is not known by its words is taken for clear."""
    exact = {Public.PROTECTION: "public", Exact.PROTECTION: "clear", Result.PROTECTION: "result"}
    if words in exact:
        return exact[words]
    if words.startswith(("randomised", "with noise")):
        return "noise"
    hidden = ("only the sum", "sealed", "encrypted", "blinded", "under a mask", "a share", "shared")
    return "covered" if words.startswith(hidden) else "clear"


def flows(books: Mapping[str, Ledger]) -> list[Flow]:
    """One for each sender, receiver and kind of message, as the sender wrote it; without its book, as received."""
    found = []
    for party, book in books.items():
        totals: dict[tuple[str, str, Kind], list[int]] = {}  # messages, bytes, messages with noise
        for direction, peer, kind, n_bytes, event in book.entries():
            total = totals.get((direction, peer, kind))
            if total is None:
                total = totals[direction, peer, kind] = [0, 0, 0]
            total[0] += 1
            total[1] += n_bytes
            total[2] += event is not None
        for (direction, peer, kind), (number, n_bytes, noisy) in totals.items():
            is_sender = direction == "disclosed"
            if is_sender or peer not in books:
                ends = (party, peer) if is_sender else (peer, party)
                about = (kind.message, kind.what, kind.protection)
                found.append(Flow(*ends, *about, number, n_bytes, noisy if is_sender else None))
    return found


def groups(cast: Mapping[str, str], own: str | None = None) -> dict[str, str]:
    """Party -> what it is shown as: its name, or "64 owners" where there are many of one role."""
    many = Counter(role for party, role in cast.items() if party != own)
    return {
        party: party if party == own or many[role] <= MOST_SINGLE else f"{many[role]} {role}s"
        for party, role in cast.items()
    }


def arrows(told: Iterable[Flow], group_of: Mapping[str, str]) -> list[Arrow]:
    """What went each way between parties, those of a group together; the order is that of the flows."""
    found: dict[tuple[str, str], list[Flow]] = {}
    for flow in told:
        ends = (group_of.get(flow.sender, flow.sender), group_of.get(flow.receiver, flow.receiver))
        found.setdefault(ends, []).append(flow)
    return [Arrow(*ends, tuple(between)) for ends, between in found.items()]


def by_kind(told: Iterable[Flow]) -> list[Flow]:
    """The same summed over parties: one for each kind of message; sender and receiver are the first ones'."""
    found: dict[tuple[str, str, str], Flow] = {}
    for flow in told:
        key = (flow.message, flow.what, flow.protection)
        before = found.get(key)
        if before is None:
            found[key] = flow
        else:
            noisy = [n for n in (before.with_noise, flow.with_noise) if n is not None]
            found[key] = before._replace(
                number=before.number + flow.number,
                n_bytes=before.n_bytes + flow.n_bytes,
                with_noise=sum(noisy) if noisy else None,
            )
    return list(found.values())
