"""What a party sent and received: messages and bytes, per peer and per kind of message.

Counted on encoded frames, before a transport adds its own envelopes and encryption. So a run has the same traffic in
memory and over gRPC, and two parties' meters agree about what went between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hedgerow.errors import InvalidInput


class Traffic(NamedTuple):
    """Messages and bytes, in both directions."""

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0


class Meter:
    """Counts frames: `.sent(peer, message_name, n_bytes)` and `.received(...)`; meters can be added."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}  # (peer, message): in the order of Traffic

    def sent(self, peer: str, message: str, n_bytes: int) -> None:
        """Count a frame to a peer."""
        counts = self._counts.get((peer, message))
        if counts is None:
            counts = self._counts[peer, message] = [0, 0, 0, 0]
        counts[0] += 1
        counts[1] += n_bytes

    def received(self, peer: str, message: str, n_bytes: int) -> None:
        """Count a frame from a peer."""
        counts = self._counts.get((peer, message))
        if counts is None:
            counts = self._counts[peer, message] = [0, 0, 0, 0]
        counts[2] += 1
        counts[3] += n_bytes

    # --- totals ------------------------------------------------------------------------------------------------------

    def total(self) -> Traffic:
        """Everything."""
        return self._sum(list(self._counts))

    def by_peer(self) -> dict[str, Traffic]:
        """Totals for each peer, sorted by name."""
        peers = sorted({peer for peer, _ in self._counts})
        return {peer: self._sum([key for key in self._counts if key[0] == peer]) for peer in peers}

    def by_message(self) -> dict[str, Traffic]:
        """Totals for each kind of message, sorted by name."""
        messages = sorted({message for _, message in self._counts})
        return {message: self._sum([key for key in self._counts if key[1] == message]) for message in messages}

    def _sum(self, keys: list[tuple[str, str]]) -> Traffic:
        return Traffic(*map(sum, zip(*(self._counts[key] for key in keys), strict=True))) if keys else Traffic()

    # --- several meters, and files -----------------------------------------------------------------------------------

    def __add__(self, other: Meter) -> Meter:
        """A new meter that has counted what both did."""
        if not isinstance(other, Meter):
            return NotImplemented
        result = Meter()
        for meter in (self, other):
            for key, counts in meter._counts.items():
                have = result._counts.get(key, (0, 0, 0, 0))
                result._counts[key] = [a + b for a, b in zip(have, counts, strict=True)]
        return result

    def __eq__(self, other: object) -> bool:
        return self._counts == other._counts if isinstance(other, Meter) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes with every frame

    def __repr__(self) -> str:
        total = self.total()
        return f"<Meter: {total.bytes_sent} bytes sent, {total.bytes_received} bytes received>"

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and numbers: the totals, and the counts per peer and kind of message that they are made of."""
        return {
            "total": self.total()._asdict(),
            "by_message": {message: traffic._asdict() for message, traffic in self.by_message().items()},
            "by_peer": {peer: traffic._asdict() for peer, traffic in self.by_peer().items()},
            "counts": [
                {"peer": peer, "message": message, **Traffic(*counts)._asdict()}
                for (peer, message), counts in sorted(self._counts.items())
            ],
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Meter:
        """The meter that wrote this dict. InvalidInput if none did."""
        meter = cls()
        try:
            for entry in document["counts"]:
                counts = [entry[field] for field in Traffic._fields]
                if not all(type(count) is int and count >= 0 for count in counts):
                    raise InvalidInput(f"traffic is counted in whole numbers, got {counts}")
                meter._counts[str(entry["peer"]), str(entry["message"])] = counts
        except (KeyError, TypeError) as failure:
            raise InvalidInput(f"not the document of a meter: {failure!r}") from failure
        if meter.to_dict() != document:
            raise InvalidInput("the document of a meter whose totals are not the sums of its counts")
        return meter
