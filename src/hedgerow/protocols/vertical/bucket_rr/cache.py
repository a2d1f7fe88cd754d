"""Transfers that outlive a run: kept buckets serve every later training on the same rows, and none is forgotten.

    FOLDER/shop/transfers.jsonl     a feature holder's book: one line for every transfer it ever made, never deleted
    FOLDER/shop/<transfer>.json     the edges and levels of that transfer
    FOLDER/bank/shop.<job>.npz      what the label holder keeps of it: packed buckets, kinds, event

Each party uses its own sub-folder only, and in production has a folder of its own. A transfer is in the book, and on
the disk, before its first byte is sent: what may have left the house is charged, also if the run then fails. So nothing
is sent twice without being charged twice. A file that cannot be read is an error, never a reason to send again.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import secrets
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hedgerow.codec import from_json, to_json
from hedgerow.engine.dtypes import Bytes
from hedgerow.engine.model_file import write_file
from hedgerow.engine.table import Table
from hedgerow.errors import InvalidInput
from hedgerow.privacy.events import Event, NonPrivate, from_dict
from hedgerow.protocols.vertical.bucket_rr.buckets import MOST_VALUES, Bucketing, History, Kinds, packed_sizes
from hedgerow.protocols.vertical.bucket_rr.job import Job, told
from hedgerow.runtime.saved_files import damage_told

BOOK = "transfers.jsonl"
_FORMAT = "hedgerow transferred buckets"
_VERSION = 1
_AGAIN = "transfer='again' sends anew, which costs epsilon again"


# --- the feature holder's book ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transfer:
    """One line of the book."""

    transfer: str
    to: str
    at: str
    data: str  # fingerprint of names, types and values
    settings: str  # fingerprint of epsilon, buckets and all that decides about the edges, their epsilon included
    per_element: float
    per_record: float
    event: Mapping[str, Any]


@dataclass(frozen=True)
class Fingerprints:
    """What a transfer is made from: the values, and how they are put into buckets and randomised."""

    data: str
    settings: str


def fingerprints(party: str, table: Table, job: Job) -> Fingerprints:
    """SHA-256 of a party's columns in their order, and of everything in the job that its buckets depend on."""
    data = hashlib.sha256()
    for column in table.columns:
        levels = None if column.levels is None else list(column.levels)
        values = np.ascontiguousarray(column.values)
        about = [column.name, values.dtype.str, len(values), levels, *([] if column.rule is None else [column.rule])]
        data.update(json.dumps(about).encode() + b"\n")
        data.update(values.data)
    described = [job.described(party, column.name) for column in table.columns]
    settings = [
        job.noise,
        job.buckets,
        *_edges_of(job),
        [job.edges_of(party, column.name) for column in table.columns],
        [None if entry is None else entry.to_dict() for entry in described],
    ]
    return Fingerprints(data.hexdigest(), hashlib.sha256(json.dumps(to_json(settings)).encode()).hexdigest())


def _edges_of(job: Job) -> list[str | float]:
    """Where edges come from, and what that costs if anything."""
    return [job.edges_mode] if job.edges_epsilon is None else [job.edges_mode, job.edges_epsilon]


class Book:
    """All transfers that a party has ever made from here."""

    def __init__(self, party: str, folder: str | Path) -> None:
        self._party = party
        self._folder = Path(folder) / party
        self._path = self._folder / BOOK
        _make_folder(self._folder)

    def transfers(self) -> list[Transfer]:
        """Every line; InvalidInput, naming the line, for one that cannot be read."""
        if not self._path.exists():
            return []
        text = _read(self._party, self._path).decode("utf-8", "replace")
        *lines, rest = text.split("\n")
        found = [self._transfer(line, number) for number, line in enumerate(lines, start=1)]
        if rest:
            raise self._damaged(len(lines) + 1, "it has no end")
        return found

    def _transfer(self, line: str, number: int) -> Transfer:
        try:
            entry: Transfer = from_json(Transfer, json.loads(line))
            from_dict(entry.event)
        except (ValueError, TypeError, RecursionError) as problem:
            raise self._damaged(number, str(problem)) from None
        if not (entry.per_element > 0 and entry.per_record > 0):
            raise self._damaged(number, "a cost is not a positive number")
        return entry

    def _damaged(self, number: int, why: str) -> InvalidInput:
        return InvalidInput(
            f"{self._party}: line {number} of {self._path} cannot be read ({why}); without it nobody knows what was "
            "sent before, so nothing is sent now. Put the file back from a copy"
        )

    def find(self, transfer_id: str, label_holder: str, now: Fingerprints) -> Bucketing:
        """The buckets of a transfer that the label holder has kept; InvalidInput unless made from what is here now."""
        for entry in self.transfers():
            if entry.transfer != transfer_id or entry.to != label_holder:
                continue
            if (entry.data, entry.settings) == (now.data, now.settings):
                return self._bucketing(transfer_id)
            what = "values" if entry.data != now.data else "bounds, levels or edges"
            raise InvalidInput(
                f"{self._party}: the cached transfer of {entry.at} was made from other data: the {what} have changed "
                f"since; {_AGAIN}"
            )
        raise InvalidInput(
            f"{self._party}: {label_holder} has kept a transfer that {self._path} does not know of; put the right file "
            f"back, or {_AGAIN}"
        )

    def check_not_sent(self, label_holder: str, now: Fingerprints) -> None:
        """InvalidInput if the very same was sent before, and the label holder no longer has it."""
        for entry in self.transfers():
            if (entry.to, entry.data, entry.settings) == (label_holder, now.data, now.settings):
                raise InvalidInput(
                    f"{self._party}: these buckets were sent to {label_holder} before ({entry.at}), but it has not "
                    f"kept them; {_AGAIN}"
                )

    def write(
        self, label_holder: str, now: Fingerprints, bucketing: Bucketing, cost: tuple[float, float], event: Event
    ) -> str:
        """Charge a transfer; afterwards it may be made. Returns its number, which is random."""
        self.transfers()  # a damaged book is not written to
        number = secrets.token_hex(16)
        write_file(json.dumps(to_json(bucketing)).encode(), self._folder / f"{number}.json")
        at = datetime.now(UTC).isoformat(timespec="seconds")
        entry = Transfer(number, label_holder, at, now.data, now.settings, *cost, event.to_dict())
        # Appending, in one piece: two runs at the same time both get their lines.
        line = (json.dumps(to_json(entry)) + "\n").encode()
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            written = os.write(file, line)
            os.fsync(file)
        finally:
            os.close(file)
        if written != len(line):
            raise InvalidInput(f"{self._party}: {self._path} could not be written, the disk may be full")
        return number

    def history(self, now: Fingerprints) -> History:
        """What was sent of the present values so far."""
        entries = self.transfers()
        mine = [entry for entry in entries if entry.data == now.data]
        per_element = math.fsum(entry.per_element for entry in mine)
        per_record = math.fsum(entry.per_record for entry in mine)
        is_bound = not any(isinstance(leaf, NonPrivate) for e in mine for leaf, _ in from_dict(e.event).leaves())
        return History(len(mine), len(entries) - len(mine), per_element, per_record, is_bound)

    def _bucketing(self, transfer_id: str) -> Bucketing:
        path = self._folder / f"{transfer_id}.json"
        try:
            found: Bucketing = from_json(Bucketing, json.loads(_read(self._party, path)))
        except (ValueError, TypeError, RecursionError) as problem:
            raise InvalidInput(f"{self._party}: {path} cannot be read: {problem}; {_AGAIN}") from None
        if len(found.may_be_missing) != len(found.features):
            raise InvalidInput(f"{self._party}: {path} does not say which columns may be missing; {_AGAIN}")
        return found


# --- what the label holder keeps -------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """One party's buckets as they came."""

    transfer_id: str
    kinds: Kinds
    packed: Bytes  # of all columns

    def is_whole(self, n_rows: int) -> bool:
        """Whether there are columns of at least two buckets, and bytes for all their rows."""
        n_values, has_levels, may_be_missing = self.kinds
        if not 0 < len(n_values) == len(has_levels) == len(may_be_missing):
            return False
        categories = self.kinds.categories
        if n_values.min() < 1 or n_values.max() > MOST_VALUES or categories.min() < 2:
            return False
        return len(self.packed) == sum(packed_sizes(categories, n_rows))


_DAMAGED = (ValueError, LookupError, TypeError, EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error)
_ARRAYS = {"n_values": np.int32, "has_levels": np.bool_, "may_be_missing": np.bool_, "packed": np.uint8}


class Shelf:
    """The transfers that the label holder has kept, one per party and kind of job."""

    def __init__(self, party: str, folder: str | Path, job: Job, n_rows: int) -> None:
        self._party = party
        self._folder = Path(folder) / party
        self._about: dict[str, Any] = {
            "format": _FORMAT,
            "version": _VERSION,
            "epsilon": told(job.noise),
            "buckets": job.buckets,
            "edges": ", ".join(map(str, _edges_of(job))),
            "n_rows": n_rows,
        }
        self._key = hashlib.sha256(json.dumps(self._about).encode()).hexdigest()[:16]
        _make_folder(self._folder)

    def _path(self, holder: str) -> Path:
        return self._folder / f"{holder}.{self._key}.npz"

    def keep(self, holder: str, kept: Kept, event: Event) -> None:
        """Put a transfer on the shelf, in place of an older one for such a job."""
        about = {**self._about, "transfer": kept.transfer_id, "from": holder, "event": event.to_dict()}
        content = io.BytesIO()
        heading = np.frombuffer(json.dumps(about).encode(), np.uint8)
        np.savez(content, about=heading, **kept.kinds._asdict(), packed=kept.packed)
        write_file(content.getvalue(), self._path(holder))

    def find(self, holder: str) -> Kept | None:
        """What was kept of a party for such a job; None if nothing was. InvalidInput for a damaged file."""
        path = self._path(holder)
        if not path.exists():
            return None
        try:
            with np.load(io.BytesIO(_read(self._party, path)), allow_pickle=False) as stored:
                about = json.loads(stored["about"].tobytes())
                arrays = {name: stored[name] for name in _ARRAYS}
            from_dict(about["event"])
            fits = all(about[name] == value for name, value in self._about.items()) and about["from"] == holder
            fits = fits and all(a.dtype == _ARRAYS[name] and a.ndim == 1 for name, a in arrays.items())
            packed, number = arrays.pop("packed"), about["transfer"]
            kept = Kept(number, Kinds(**arrays), packed)
            fits = fits and isinstance(number, str) and bool(number) and kept.is_whole(self._about["n_rows"])
        except _DAMAGED as problem:
            raise self._damaged(path, str(problem)) from None
        if not fits:
            raise self._damaged(path, "it does not hold what its name says")
        return kept

    def _damaged(self, path: Path, why: str) -> InvalidInput:
        return InvalidInput(f"{self._party}: {path} cannot be read ({why}); put it back from a copy, or {_AGAIN}")


# --- files -----------------------------------------------------------------------------------------------------------


def _make_folder(folder: Path) -> None:
    with damage_told(f"cache: the folder {folder} cannot be made"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _read(party: str, path: Path) -> bytes:
    with damage_told(f"{party}: {path} cannot be read"):
        return path.read_bytes()
