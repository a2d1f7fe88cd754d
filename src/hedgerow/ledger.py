"""The ledger: what each party gave away and what it got to know, message by message. And how many bytes that took.

Sending writes a *disclosed* line at the sender, receiving a *learned* line at the receiver; `reconcile` puts the books
of all parties side by side. The sender's line is the privacy record, the receiver's is the evidence for it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

from hedgerow.aborts import ABORT
from hedgerow.errors import HedgerowError, InvalidInput, plain


class LedgerMismatch(HedgerowError, AssertionError):
    """Two parties' books about the same channel differ."""


# --- what a message discloses --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What the receiver of a message learns. Every message class states one, of a kind that says what protects it."""

    PROTECTION: ClassVar[str] = ""
    """How it is protected, in words; names in braces are fields."""

    of: str

    def __init_subclass__(cls, protection: str | None = None) -> None:
        if protection is not None:  # dataclass(slots=True) makes a class a second time, without the keyword
            cls.PROTECTION = protection

    def __post_init__(self) -> None:
        if not self.PROTECTION:
            raise TypeError(f"{type(self).__name__} is abstract: it does not say how what it discloses is protected")

    @property
    def protection(self) -> str:
        """How it is protected, in words."""
        return self.PROTECTION.format(**asdict(self))

    @property
    def words(self) -> str:
        """The whole statement."""
        return f"{self.of} ({self.protection})"


class Public(Disclosure, protection="public"):
    """Known to everybody anyway: parameters, positions, who takes part."""


class Exact(Disclosure, protection="in the clear"):
    """The receiver learns it as it is."""


@dataclass(frozen=True, slots=True)
class SecureSum(Disclosure, protection="only the sum over all owners, against {against}"):
    """One message alone is uniformly random; the receiver learns only the sum over all who send."""

    against: str = "an honest-but-curious coordinator"


class Sealed(Disclosure, protection="sealed for another party"):
    """The receiver passes it on to somebody else and cannot read it."""


class Randomised(Disclosure, protection="randomised by its owner; the event in the ledger says how much"):
    """Its owner made it random before it left: what the receiver learns of one value is what epsilon allows."""


class Encrypted(Disclosure, protection="encrypted; only the sender has the key"):
    """The receiver can add it up without reading it."""


class Result(Disclosure, protection="part of the result"):
    """Follows from what the sender has learned: part of the model that all parties get."""


# --- the book ------------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """One message, seen from one side."""

    direction: str  # "disclosed" or "learned"
    peer: str
    number: int  # counts the messages of this direction and peer, from 1
    message: str
    version: int
    n_bytes: int  # of the encoded frame
    what: str
    protection: str
    event: Mapping[str, Any] | None  # of the mechanism whose noise is in it


class Kind(NamedTuple):
    """What all messages of a class have in common."""

    message: str
    version: int
    what: str
    protection: str


class Ledger:
    """The book of one party."""

    def __init__(self, party: str, lines: Iterable[Line] = ()) -> None:
        self.party = party
        # Five entries per line, one after the other: thousands of tuples would keep the garbage collector busy.
        self._written: list[Any] = []
        for line in lines:
            kind = Kind(line.message, line.version, line.what, line.protection)
            self.write(line.direction, line.peer, kind, line.n_bytes, line.event)

    def write(self, direction: str, peer: str, kind: Kind, n_bytes: int, event: Any = None) -> None:
        """Add a line; its number follows from the order. `event` is one of `privacy.events`, or its dict."""
        self._written += (direction, peer, kind, n_bytes, event)

    def entries(self, start: int = 0) -> Iterator[tuple[str, str, Kind, int, Any]]:
        """Direction, peer, kind, bytes and event of each line from `start` on, as they were written."""
        entries = iter(self._written[5 * start :])
        return zip(*[entries] * 5, strict=True)

    def __iter__(self) -> Iterator[Line]:
        numbers: Counter[tuple[str, str]] = Counter()
        for direction, peer, kind, n_bytes, event in self.entries():
            number = numbers[direction, peer] = numbers[direction, peer] + 1
            noise = event.to_dict() if hasattr(event, "to_dict") else event
            yield Line(direction, peer, number, kind.message, kind.version, n_bytes, kind.what, kind.protection, noise)

    def __len__(self) -> int:
        return len(self._written) // 5

    def __repr__(self) -> str:
        return f"Ledger({self.party!r}, {len(self)} lines)"

    def _repr_html_(self) -> str:
        from hedgerow.report.page import fragment
        from hedgerow.report.sections import ledger_part

        return fragment(ledger_part(self))

    def lines(self, direction: str, peer: str | None = None) -> list[Line]:
        """The lines of one direction, with one peer or with all."""
        return [line for line in self if line.direction == direction and peer in (None, line.peer)]

    def events(self) -> list[Mapping[str, Any]]:
        """The noise that this party added to what it disclosed, in order."""
        return [line.event for line in self if line.direction == "disclosed" and line.event is not None]

    def summary(self) -> list[dict[str, Any]]:
        """One entry per direction, peer and kind of message: how many, how many bytes, what they tell."""
        grouped: dict[tuple[str, ...], dict[str, Any]] = {}
        for line in self:
            about = {"direction": line.direction, "peer": line.peer, "message": line.message}
            told = {"what": line.what, "protection": line.protection}
            entry = grouped.setdefault(tuple(about.values()), {**about, "messages": 0, "bytes": 0, **told})
            entry["messages"] += 1
            entry["bytes"] += line.n_bytes
        return list(grouped.values())

    def to_text(self) -> str:
        """The summary as a table for people."""
        header = ("", "with", "message", "count", "bytes", "what", "protection")
        body = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in e.values()] for e in self.summary()]
        widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
        right = {3, 4}
        rows = [
            "  ".join(
                cell.rjust(w) if k in right else cell.ljust(w)
                for k, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in [header, *body]
        ]
        return "\n".join([f"Ledger of {self.party}", *(row.rstrip() for row in rows)])

    def to_json_lines(self) -> str:
        """One JSON object per message."""
        return "".join(json.dumps({"party": self.party, **line._asdict()}) + "\n" for line in self)

    @classmethod
    def from_json_lines(cls, party: str, text: str) -> Ledger:
        """The inverse of `to_json_lines`."""
        lines = []
        for number, row in enumerate(text.splitlines(), start=1):
            try:
                entry = json.loads(row)
                line = Line(**{name: entry[name] for name in Line._fields})
                _check_line(line)
                lines.append(line)
                right_party = entry["party"] == party
            except (ValueError, KeyError, TypeError, RecursionError) as problem:
                raise LedgerMismatch(f"line {number} of the ledger of {party} cannot be read: {problem}") from problem
            if not right_party:
                raise LedgerMismatch(f"line {number} of the ledger of {party} belongs to {plain(str(entry['party']))}")
        return cls(party, lines)


def _check_line(line: Line) -> None:
    """TypeError or ValueError for what no ledger has written."""
    if line.direction not in ("disclosed", "learned"):
        raise ValueError(f"its direction is {line.direction!r}")
    if not all(isinstance(text, str) for text in (line.peer, line.message, line.what, line.protection)):
        raise TypeError("its peer, message, what and protection must be text")
    for text in (line.peer, line.message, line.what, line.protection):
        text.encode()  # UnicodeError for half a character
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in (line.number, line.version, line.n_bytes)):
        raise TypeError("its number, version and n_bytes must be whole numbers of at most 63 bits")
    if line.event is not None and not isinstance(line.event, Mapping):
        raise TypeError("its event must be an object")


def reconcile(ledgers: Mapping[str, Ledger]) -> None:
    """Raise LedgerMismatch unless, for every pair, what one disclosed is exactly what the other learned.

    Where one of the two stopped early (it told somebody so), what was on its way may never have been read: then the
    other's book is the beginning of what was disclosed.
    """
    stopped = {
        party
        for party, book in ledgers.items()
        if any(e[0] == "disclosed" and e[2].message == ABORT for e in book.entries())
    }
    for sender, book in ledgers.items():
        for receiver, other in ledgers.items():
            if sender == receiver:
                continue
            said, heard = _facts(book, "disclosed", receiver), _facts(other, "learned", sender)
            for number, (one, two) in enumerate(zip(said, heard, strict=False), start=1):
                if one != two:
                    raise LedgerMismatch(
                        f"message {number} from {sender} to {receiver}: {sender} wrote {one}, {receiver} wrote {two}"
                    )
            unread = len(said) > len(heard) and not stopped.isdisjoint((sender, receiver))
            if len(said) != len(heard) and not unread:
                raise LedgerMismatch(
                    f"{sender} disclosed {len(said)} messages to {receiver}, who learned {len(heard)} of them"
                )


def _facts(book: Ledger, direction: str, peer: str) -> list[tuple[Any, ...]]:
    """What both sides of a channel must have written alike; the noise in it is the sender's affair."""
    lines = ((kind, n_bytes) for way, other, kind, n_bytes, _ in book.entries() if (way, other) == (direction, peer))
    return [
        (number, kind.message, kind.version, n_bytes, kind.what, kind.protection)
        for number, (kind, n_bytes) in enumerate(lines, start=1)
    ]


# --- traffic -------------------------------------------------------------------------------------------------------


class Traffic(NamedTuple):
    """Messages and bytes, in both directions."""

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0

    @classmethod
    def sum(cls, parts: Iterable[Iterable[int]]) -> Traffic:
        """All of them together."""
        return cls(*map(sum, zip(cls(), *parts, strict=True)))


class Meter:
    """Counts frames, per peer and per kind of message; meters can be added.

    Frames are counted as they are encoded, before a transport adds its own envelopes and encryption. So a run has the
    same traffic in memory and over gRPC, and two parties' meters agree about what went between them.
    """

    __slots__ = ("_counts",)

    def __init__(self, ledger: Ledger | None = None) -> None:
        """One that has counted the messages in a ledger."""
        self._counts: dict[tuple[str, str], list[int]] = {}  # (peer, message): in the order of Traffic
        for direction, peer, kind, n_bytes, _ in () if ledger is None else ledger.entries():
            count = self.sent if direction == "disclosed" else self.received
            count(peer, kind.message, n_bytes)

    def sent(self, peer: str, message: str, n_bytes: int) -> None:
        """Count a frame to a peer."""
        self._add((peer, message), (1, n_bytes, 0, 0))

    def received(self, peer: str, message: str, n_bytes: int) -> None:
        """Count a frame from a peer."""
        self._add((peer, message), (0, 0, 1, n_bytes))

    def _add(self, key: tuple[str, str], more: Iterable[int]) -> None:
        counts = self._counts.setdefault(key, [0, 0, 0, 0])
        for place, count in enumerate(more):
            counts[place] += count

    def total(self) -> Traffic:
        """Everything."""
        return Traffic.sum(self._counts.values())

    def by_peer(self) -> dict[str, Traffic]:
        """Totals for each peer, sorted by name."""
        return self._grouped(0)

    def by_message(self) -> dict[str, Traffic]:
        """Totals for each kind of message, sorted by name."""
        return self._grouped(1)

    def _grouped(self, by: int) -> dict[str, Traffic]:
        names = sorted({key[by] for key in self._counts})
        return {name: Traffic.sum(c for key, c in self._counts.items() if key[by] == name) for name in names}

    def __add__(self, other: Meter) -> Meter:
        """A new meter that has counted what both did."""
        if not isinstance(other, Meter):
            return NotImplemented
        result = Meter()
        for meter in (self, other):
            for key, counts in meter._counts.items():
                result._add(key, counts)
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
