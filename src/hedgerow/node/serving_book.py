"""The ledger of a standing service, by the hour: it tells all that a ledger's summary tells, and does not grow.

    runs/<run id>/serving/2026-05-04T11-3f9a12.json

A run has a line for every message. A service that answers a hundred times a second would write ten gigabytes a year.
So lines are added up, per hour, direction, peer and kind of message: how many messages, how many bytes, what they tell,
and beside them how many rows and batches. That is what `Ledger.summary` gives of a run, and one small file an hour.

The file of the hour is written anew every few seconds. In between, what is new is added to `journal`, before an answer
leaves, so that a service that is killed has lost nothing (a power cut may take the last seconds); what is in the
journal and not in a file is taken over when the service starts again. When an hour is over, or the service ends, a line
`scored` goes into the trail, and the file says so; one that does not say so is entered at the next start.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hedgerow.errors import InvalidInput, JobError
from hedgerow.ledger import Ledger
from hedgerow.node import documents
from hedgerow.node.audit import Trail
from hedgerow.runtime.party import Party
from hedgerow.runtime.saved_files import damage_told, private_folder

FORMAT = "hedgerow hour of scoring"
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "party": str,
    "model": str,
    "proposal": str,
    "peers": list,
    "hour": str,
    "rows": int,
    "batches": int,
    "entries": int,
    "lines": list,
    "in_trail": bool,
}
_KEYS, _COUNTS = ("direction", "peer", "message"), ("messages", "bytes")
_MOST_COUNT = 1 << 62
_FILE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}-[0-9a-f]{6}\.json")
_WRITE_SECONDS = 5.0
_MOST_JOURNAL = 256 << 20


def this_hour() -> str:
    """The hour, in UTC."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H")


class Book:
    """What a service has disclosed and learned. One service at a time keeps the book of a run."""

    def __init__(
        self, folder: Path, trail: Trail, *, party: str, model: str, proposal: str, peers: Sequence[str]
    ) -> None:
        self._folder, self._trail = private_folder(folder), trail
        self._about = {"party": party, "model": model, "proposal": proposal, "peers": list(peers)}
        self._lock = threading.Lock()
        self._journal = os.open(folder / "journal", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._journal)
            raise JobError(f"the run {model[:12]} is being served by another process of {party}") from None
        self._take_up()
        for path in sorted(folder.glob("*.json")):
            self._enter(path)
        self._begin(this_hour())

    def add(self, me: Party, n_rows: int = 0) -> None:
        """Take over what a party has in its ledger, which is empty then; and a batch of rows, if it is one."""
        taken, me.ledger = me.ledger, Ledger(me.name)
        with self._lock:
            if self._hour["hour"] != (now := this_hour()):
                self._close_hour()
                self._begin(now)
            entry = {"file": self._name, "entry": self._hour["entries"] + 1, "rows": n_rows, "lines": taken.summary()}
            os.write(self._journal, json.dumps(entry).encode() + b"\n")
            _count(self._hour, entry)
            if time.monotonic() - self._written > _WRITE_SECONDS:
                self._write()

    def close(self) -> None:
        """The end of the service."""
        with self._lock:
            self._close_hour()
        os.close(self._journal)

    # Hours

    def _begin(self, hour: str) -> None:
        self._name, self._hour = f"{hour}-{secrets.token_hex(3)}.json", self._empty(hour)
        self._written = time.monotonic()

    def _empty(self, hour: str) -> dict[str, Any]:
        counts = {"hour": hour, "rows": 0, "batches": 0, "entries": 0, "lines": [], "in_trail": False}
        return {"format": FORMAT, "version": documents.VERSION, **self._about, **counts}

    def _close_hour(self) -> None:
        if self._hour["entries"]:
            self._write()
            self._enter(self._folder / self._name)

    def _write(self) -> None:
        documents.write(self._folder / self._name, self._hour)
        os.ftruncate(self._journal, 0)
        self._written = time.monotonic()

    def _take_up(self) -> None:
        """What a service that was killed had in its journal and not in a file. Its last line may have broken off."""
        content = os.pread(self._journal, _MOST_JOURNAL, 0)
        hours: dict[str, dict[str, Any]] = {}
        with damage_told(f"{self._folder / 'journal'} is damaged"):
            for line in content.split(b"\n")[:-1]:
                entry = json.loads(line)
                name = entry["file"]
                if not _FILE.fullmatch(name):
                    raise ValueError("it names a file that is not of an hour")
                counts = [entry["entry"], entry["rows"], *(each[key] for each in entry["lines"] for key in _COUNTS)]
                if not all(type(count) is int and 0 <= count < _MOST_COUNT for count in counts):
                    raise ValueError("it counts what cannot be counted")
                if name not in hours:
                    path = self._folder / name
                    hours[name] = self._read(path) if path.exists() else self._empty(name[:13])
                if entry["entry"] > hours[name]["entries"]:
                    _count(hours[name], entry)
            for hour in hours.values():
                documents.check_can_be_read(hour)
                if len(documents.text_of(hour)) > documents.MOST_BYTES:
                    raise ValueError("it holds more than an hour can")
        for name, hour in hours.items():
            documents.write(self._folder / name, hour)
        os.ftruncate(self._journal, 0)

    def _read(self, path: Path) -> dict[str, Any]:
        """The file of an hour. InvalidInput if it is damaged, or of another service."""
        found = documents.read(path, FORMAT, _FIELDS)
        if any(found[key] != value for key, value in self._about.items()) or not 0 <= found["rows"] < _MOST_COUNT:
            raise InvalidInput(f"{path} is damaged, or of another service than that of {self._about['model'][:12]}")
        return found

    def _enter(self, path: Path) -> None:
        """Into the trail, once."""
        found = self._read(path)
        if found["in_trail"]:
            return
        if found["rows"]:
            self._trail.append(
                "scored",
                peers=found["peers"],
                n_rows=found["rows"],
                n_batches=found["batches"],
                run_id=found["model"],
                proposal=found["proposal"],
            )
        documents.write(path, {**found, "in_trail": True})


def _count(hour: dict[str, Any], entry: Mapping[str, Any]) -> None:
    """Add what is new to the sums of an hour."""
    hour["entries"] = entry["entry"]
    hour["rows"] += entry["rows"]
    hour["batches"] += entry["rows"] > 0
    for line in entry["lines"]:
        same = (known for known in hour["lines"] if all(known[key] == line[key] for key in _KEYS))
        if (known := next(same, None)) is None:
            hour["lines"].append(dict(line))
        else:
            known["messages"] += line["messages"]
            known["bytes"] += line["bytes"]
