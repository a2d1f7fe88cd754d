"""What passes between a party and others while a run goes on, in a file of the run's folder, for whoever watches it.

    with Passing(folder / FILE, books, attempt, progress):       # in the process that plays the run
        play the role

    followed = Followed(folder / FILE)                           # in another process, `hedgerow watch`
    followed.look()                                              # lines that have come since the last look

A thread looks at the party's ledgers twice a second, later on less often, and appends one line with what has passed
since: kinds of messages, to and from whom, how many, how many bytes, what they tell. It counts what the ledgers have
and adds nothing but times to what is kept of a run (`books` has every message). Roles do not wait for it. If the file
cannot be written, the run goes on without.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from hedgerow.codec import from_json
from hedgerow.errors import InvalidInput
from hedgerow.ledger import Ledger
from hedgerow.node.documents import told_of

FILE = "passing.jsonl"
SHORTEST, LONGEST, SLOWER = 0.5, 5.0, 1000.0
"""Seconds between two lines: at first the shortest, then a thousandth of what has gone by, at most the longest."""
MOST_LINE, MOST_LOOK = 1 << 18, 1 << 22
"""Bytes of a line, and of what one look takes in."""


@dataclass(frozen=True)
class Passed:
    """Messages of one kind that went to one peer, or came from it, since the line before."""

    direction: str  # "disclosed" or "learned", as in the ledger
    peer: str
    message: str
    messages: int
    bytes: int
    noised: int  # how many of them have noise in them, as their sender wrote it down
    what: str | None  # what they tell, and how that is protected: where the kind first appears in an attempt
    protection: str | None


@dataclass(frozen=True)
class Line:
    """What has passed in one stretch of time."""

    at: float  # seconds since 1970, by the clock of the party
    attempt: int
    done: int  # steps of the run, mostly trees
    total: int  # 0 while that is not known
    rounds: int  # how often this party has sent something and then waited for an answer, in this attempt so far
    passed: tuple[Passed, ...]


# --- writing ---------------------------------------------------------------------------------------------------------


class Passing:
    """Writes the file while a run goes on. For a `with` statement."""

    def __init__(
        self, path: Path, books: Mapping[str, Ledger], attempt: int, progress: Callable[[], tuple[int, int]]
    ) -> None:
        self._path, self._books, self._attempt, self._progress = path, books, attempt, progress
        self._seen: dict[str, int] = {}  # by book, how many of its entries have been counted
        self._told: set[tuple[str, str, str]] = set()  # kinds whose words are in the file
        self._last: dict[str, str] = {}  # by peer, the direction of the last message
        self._rounds = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="hedgerow passing", daemon=True)
        self._file: int | None = None

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is None:
            return
        self._stop.set()
        self._thread.join()
        os.close(self._file)

    def _write_on(self) -> None:
        """Until the run has ended, and once more then. What goes wrong here is no reason to stop a run."""
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while not self._stop.wait(min(max(SHORTEST, (time.monotonic() - began) / SLOWER), LONGEST)):
                self._write()
            self._write()

    def _write(self) -> None:
        done, total = self._progress()
        line = Line(round(time.time(), 3), self._attempt, done, total, 0, tuple(self._new()))
        document = {**asdict(line), "rounds": self._rounds}
        if self._file is not None:
            os.write(self._file, json.dumps(document, separators=(",", ":")).encode() + b"\n")

    def _new(self) -> list[Passed]:
        """What has passed since the last time, kind by kind."""
        counts: dict[tuple[str, str, Any], list[int]] = {}
        for name, book in tuple(self._books.items()):
            for direction, peer, kind, n_bytes, event in book.entries(self._seen.get(name, 0)):
                self._seen[name] = self._seen.get(name, 0) + 1
                self._rounds += (self._last.get(peer), direction) == ("disclosed", "learned")
                self._last[peer] = direction
                count = counts.setdefault((direction, peer, kind), [0, 0, 0])
                for place, more in enumerate((1, n_bytes, event is not None)):
                    count[place] += more
        return [self._passed(direction, peer, kind, count) for (direction, peer, kind), count in counts.items()]

    def _passed(self, direction: str, peer: str, kind: Any, count: list[int]) -> Passed:
        key = (direction, peer, kind.message)
        what, protection = (None, None) if key in self._told else (kind.what, kind.protection)
        self._told.add(key)
        messages, n_bytes, noised = count
        return Passed(direction, peer, kind.message, messages, n_bytes, noised, what, protection)


# --- reading ---------------------------------------------------------------------------------------------------------


class Followed:
    """Reads the file as it grows, from its beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self._words: dict[tuple[str, str, str], tuple[str, str]] = {}

    def look(self) -> list[Line]:
        """Lines that are whole and new. InvalidInput, naming the file, for what no run has written."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._at:
                    raise InvalidInput(f"{self.path} is shorter than it was")
                file.seek(self._at)
                content = file.read(MOST_LOOK)
        except FileNotFoundError:
            return []
        whole, end, rest = content.rpartition(b"\n")
        if len(rest) > MOST_LINE:
            raise InvalidInput(f"{self.path} is damaged: a line is too long")
        with told_of(self.path):
            lines = [self._read(line) for line in whole.splitlines() if line]
        self._at += len(whole) + len(end)
        return lines

    def _read(self, line: bytes) -> Line:
        read: Line = from_json(Line, json.loads(line), "a line")
        return Line(**{**vars(read), "passed": tuple(map(self._worded, read.passed))})

    def _worded(self, each: Passed) -> Passed:
        """With the words that an earlier line has."""
        key = (each.direction, each.peer, each.message)
        if each.what is not None and each.protection is not None:
            self._words[key] = (each.what, each.protection)
        what, protection = self._words.get(key, ("not told", "not told"))
        return Passed(**{**vars(each), "what": what, "protection": protection})
