"""How many rows each peer has had scored today: what `[policy] rows_per_day` is held against, over all processes.

    counts = DayCounts(home.path / "scored.json")
    counts.take("bank", 500, limit=10_000)       # False, and nothing is counted, if that were too many

A day is one of UTC. The count is on the disk before a row is answered. A service that answers a row at a time takes
some in advance (`Allowance`) and gives back what is left when it ends; if it is killed, what it had taken counts as
answered, so a limit can be reached too early, and never too late.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from hedgerow.errors import InvalidInput
from hedgerow.node import documents

FORMAT = "hedgerow rows scored today"
_FIELDS: dict[str, type | tuple[type, ...]] = {"day": str, "rows": dict}
_PARTS = 100
"""What is taken in advance is the hundredth part of a limit."""


def today() -> str:
    """The day, in UTC."""
    return dt.datetime.now(dt.UTC).date().isoformat()


class DayCounts:
    """The counts of a party, in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self, peer: str, n_rows: int, limit: int) -> bool:
        """Count these rows of a peer, unless that were more than the limit for today; whether they were counted."""
        with self._locked():
            rows = self._today()
            if rows.get(peer, 0) + n_rows > limit:
                return False
            self._write({**rows, peer: rows.get(peer, 0) + n_rows})
        return True

    def give_back(self, peer: str, n_rows: int, day: str) -> None:
        """Count fewer rows of a peer: those that were taken on this day, and not answered."""
        with self._locked():
            rows = self._today()
            if day == today():
                self._write({**rows, peer: max(rows.get(peer, 0) - n_rows, 0)})

    def _today(self) -> dict[str, int]:
        if not self.path.exists():
            return {}
        found = documents.read(self.path, FORMAT, _FIELDS)
        rows: dict[str, int] = found["rows"]
        if not all(type(count) is int and count >= 0 for count in rows.values()):
            raise InvalidInput(f"{self.path} is damaged: {json.dumps(rows)[:100]} are no counts of rows")
        return rows if found["day"] == today() else {}

    def _write(self, rows: dict[str, int]) -> None:
        document = {"format": FORMAT, "version": documents.VERSION, "day": today(), "rows": rows}
        documents.write(self.path, document)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.path.with_name(f".{self.path.name}.lock")
        with os.fdopen(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class Allowance:
    """What a service may still answer to one peer today, taken in parts; without a limit, everything."""

    def __init__(self, counts: DayCounts, peer: str, limit: int | None) -> None:
        self._counts, self._peer, self._limit = counts, peer, limit
        self._left, self._day = 0, today()

    def take(self, n_rows: int) -> bool:
        """Whether this many rows may be answered; they are counted then."""
        if self._limit is None:
            return True
        if self._day != today():
            self._left, self._day = 0, today()
        lacking = n_rows - self._left
        if lacking > 0:
            for more in (max(lacking, self._limit // _PARTS), lacking):
                if self._counts.take(self._peer, more, self._limit):
                    self._left += more
                    break
            else:
                return False
        self._left -= n_rows
        return True

    def close(self) -> None:
        """Give back what was not needed."""
        if self._limit is not None and self._left:
            self._counts.give_back(self._peer, self._left, self._day)
            self._left = 0
