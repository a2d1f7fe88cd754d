"""The ledger: what each party gave away and what it got to know, message by message.

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
from hedgerow.errors import HedgerowError


class LedgerMismatch(HedgerowError, AssertionError):
    """Two parties' books about the same channel differ."""


# --- what a message discloses --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What the receiver of a message learns. Every message class states one, of a kind that says what protects it."""

    PROTECTION: ClassVar[str] = ""
    """How it is protected, in words; names in braces are fields."""

    of: str

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


class Public(Disclosure):
    """Known to everybody anyway: parameters, positions, who takes part."""

    PROTECTION: ClassVar[str] = "public"


class Exact(Disclosure):
    """The receiver learns it as it is."""

    PROTECTION: ClassVar[str] = "in the clear"


@dataclass(frozen=True, slots=True)
class SecureSum(Disclosure):
    """One message alone is uniformly random; the receiver learns only the sum over all who send."""

    PROTECTION: ClassVar[str] = "only the sum over all owners, against {against}"

    against: str = "an honest-but-curious coordinator"


class Sealed(Disclosure):
    """The receiver passes it on to somebody else and cannot read it."""

    PROTECTION: ClassVar[str] = "sealed for another party"


class Randomised(Disclosure):
    """Its owner made it random before it left: what the receiver learns of one value is what epsilon allows."""

    PROTECTION: ClassVar[str] = "randomised by its owner; the event in the ledger says how much"


class Result(Disclosure):
    """Follows from what the sender has learned: part of the model that all parties get."""

    PROTECTION: ClassVar[str] = "part of the result"


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

    def write(
        self, direction: str, peer: str, kind: Kind, n_bytes: int, event: Mapping[str, Any] | None = None
    ) -> None:
        """Add a line; its number follows from the order."""
        self._written += (direction, peer, kind, n_bytes, event)

    def __iter__(self) -> Iterator[Line]:
        numbers: Counter[tuple[str, str]] = Counter()
        entries = iter(self._written)
        for direction, peer, kind, n_bytes, event in zip(*[entries] * 5, strict=True):
            number = numbers[direction, peer] = numbers[direction, peer] + 1
            yield Line(direction, peer, number, kind.message, kind.version, n_bytes, kind.what, kind.protection, event)

    def __len__(self) -> int:
        return len(self._written) // 5

    def __repr__(self) -> str:
        return f"Ledger({self.party!r}, {len(self)} lines)"

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
                raise LedgerMismatch(f"line {number} of the ledger of {party} belongs to {entry['party']}")
        return cls(party, lines)


def _check_line(line: Line) -> None:
    """TypeError or ValueError for what no ledger has written."""
    if line.direction not in ("disclosed", "learned"):
        raise ValueError(f"its direction is {line.direction!r}")
    if not all(isinstance(text, str) for text in (line.peer, line.message, line.what, line.protection)):
        raise TypeError("its peer, message, what and protection must be text")
    if not all(type(number) is int and number >= 0 for number in (line.number, line.version, line.n_bytes)):
        raise TypeError("its number, version and n_bytes must be whole numbers")
    if line.event is not None and not isinstance(line.event, Mapping):
        raise TypeError("its event must be an object")


def reconcile(ledgers: Mapping[str, Ledger]) -> None:
    """Raise LedgerMismatch unless, for every pair, what one disclosed is exactly what the other learned.

    Where one of the two stopped early (it told somebody so), what was on its way may never have been read: then the
    other's book is the beginning of what was disclosed.
    """
    stopped = {
        party for party, book in ledgers.items() if any(line.message == ABORT for line in book.lines("disclosed"))
    }
    for sender, book in ledgers.items():
        for receiver, other in ledgers.items():
            if sender == receiver:
                continue
            said = [_facts(line) for line in book.lines("disclosed", receiver)]
            heard = [_facts(line) for line in other.lines("learned", sender)]
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


def _facts(line: Line) -> tuple[Any, ...]:
    return line.number, line.message, line.version, line.n_bytes, line.what, line.protection
