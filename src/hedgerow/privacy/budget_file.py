"""A budget that outlives a training: what may be learned from a dataset, what was, in a file that several may share.

    file = BudgetFile("budgets.sqlite")
    file.open("patients 2024", epsilon=3.0, delta=1e-6)
    with file.dataset("patients 2024").reserve(planned, what="central.dpboost, 50 trees") as charge:
        model = ...                      # rows are read here, and not before
        charge.settle(event)             # optional: what really happened, if that was less

Trainings on the same rows add up, whoever runs them. So the whole planned event is charged before a row is read, in one
transaction that also checks that it fits. What crashes, or is killed, in between stays charged: rows may have been
read, and something released. Entries are never deleted; settling lowers one, once.

The file is SQLite, with journal_mode=DELETE and synchronous=FULL: when `reserve` returns, the entry is on the disk.
WAL would be quicker, but keeps part of the truth in a second file, which a careless copy leaves behind; reservations
are rare, so speed does not matter. BEGIN IMMEDIATE takes the right to write before anything is read, so two processes
cannot both see the last epsilon. All this needs a folder whose locks work, which not every network folder has; and
nothing here stops somebody who deletes the file or puts an old copy in its place.

What is spent is the smallest of several bounds: every entry's own (epsilon, delta) added up, or all events by one
accountant that understands all of them (pure: basic composition; Gaussian noise: Gaussian DP; mixtures: zCDP; with
Poisson samples: privacy loss distributions). Each holds for trainings that were planned beforehand. If later ones are
chosen after looking at the results of earlier ones, the totals of one accountant still hold as accountants.py says, but
WHICH bound is smallest may then depend on those results, and each that uses a delta may fail once: count the dataset's
delta up to four times in that case. The two adjacencies do not imply each other, so that of a dataset is fixed.

A dataset whose rows were used without a guarantee (`allow_not_private=True`) says so for ever: its epsilon is infinite.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, get_args

from hedgerow.errors import BudgetExceeded, InvalidInput, InvalidParameter
from hedgerow.privacy.accountants import (
    Accountant,
    BasicComposition,
    GaussianDP,
    PrivacyLoss,
    ZeroConcentratedDP,
)
from hedgerow.privacy.events import Adjacency, Event, NonPrivate, PoissonSampled, from_dict, walk

APPLICATION_ID = 0x48656467
"""Tells our files from other SQLite files: "Hedg"."""

VERSION = 1

_BUSY_SECONDS = 30.0
_ROUNDING = 1e-9
"""A total that exceeds the budget by this part of it is the rounding of numbers that were calibrated to use it up."""

_TABLES = """
CREATE TABLE datasets (
    name TEXT PRIMARY KEY, epsilon REAL NOT NULL, delta REAL NOT NULL, adjacency TEXT NOT NULL, opened TEXT NOT NULL
) STRICT;
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, dataset TEXT NOT NULL REFERENCES datasets (name), at TEXT NOT NULL,
    what TEXT NOT NULL, event TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('reserved', 'settled', 'kept'))
) STRICT;
CREATE TRIGGER entries_stay BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END;
CREATE TRIGGER datasets_stay BEFORE DELETE ON datasets BEGIN SELECT RAISE(ABORT, 'datasets are never deleted'); END;
"""


class Spent(NamedTuple):
    """Everything that was charged, as one guarantee."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Entry:
    """One charge. `state`: reserved (running, or crashed), settled (lowered to what happened), kept (in full)."""

    number: int
    at: str
    what: str
    event: Event
    state: str


class BudgetFile:
    """The file. Made if it does not exist; a file that is not one of ours is refused and left as it is."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise InvalidInput(f"{self.path} is a folder, not a budget file")
        if not self.path.parent.is_dir():
            raise InvalidInput(f"the folder of {self.path} does not exist")
        if not self.path.exists():
            _make(self.path)
        with self._transaction() as cursor:
            _check_file(cursor, self.path)

    def open(self, dataset: str, epsilon: float, delta: float, adjacency: Adjacency = "add_remove") -> Dataset:
        """Give a dataset its budget, once; again with the same numbers changes nothing, with others is refused."""
        if not isinstance(dataset, str) or not dataset.strip():
            raise InvalidParameter(f"dataset must be a name, got {dataset!r}")
        if not _is_number(epsilon) or not 0.0 < epsilon < math.inf:
            raise InvalidParameter(f"epsilon must be a finite number above 0, got {epsilon!r}")
        if not _is_number(delta) or not 0.0 <= delta < 1.0:
            raise InvalidParameter(f"delta must be at least 0 and below 1, got {delta!r}")
        if adjacency not in get_args(Adjacency):
            raise InvalidParameter(f"adjacency must be one of {get_args(Adjacency)}, got {adjacency!r}")
        asked = (float(epsilon), float(delta), adjacency)
        with self._transaction() as cursor:
            found = cursor.execute(
                "SELECT epsilon, delta, adjacency FROM datasets WHERE name = ?", (dataset,)
            ).fetchone()
            if found is None:
                cursor.execute("INSERT INTO datasets VALUES (?, ?, ?, ?, ?)", (dataset, *asked, _now()))
            elif tuple(found) != asked:
                raise InvalidParameter(
                    f"dataset {dataset!r} was opened with epsilon = {found[0]}, delta = {found[1]} and {found[2]}; "
                    f"a budget cannot be changed, got {asked}"
                )
        return Dataset(self, dataset, *asked)

    def dataset(self, name: str) -> Dataset:
        """A dataset that was opened."""
        with self._transaction() as cursor:
            found = cursor.execute("SELECT epsilon, delta, adjacency FROM datasets WHERE name = ?", (name,)).fetchone()
        if found is None:
            raise InvalidParameter(f"{self.path} has no dataset {name!r}; known are {self.datasets()}")
        return Dataset(self, name, *found)

    def datasets(self) -> list[str]:
        """The names of all datasets."""
        with self._transaction() as cursor:
            return [name for (name,) in cursor.execute("SELECT name FROM datasets ORDER BY name")]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        """Everything inside happens at once, on disk, or not at all."""
        connection = None
        try:
            connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            cursor = connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")
        except sqlite3.Error as error:
            raise InvalidInput(f"the budget file {self.path} cannot be used: {_told(error)}") from error
        finally:
            if connection is not None:
                connection.close()


@dataclass(frozen=True)
class Dataset:
    """The rows that share one budget."""

    file: BudgetFile
    name: str
    epsilon: float
    delta: float
    adjacency: Adjacency

    def entries(self) -> tuple[Entry, ...]:
        """All charges so far, in order."""
        with self.file._transaction() as cursor:  # noqa: SLF001 - the two classes are one, in two parts
            return _entries(cursor, self.name)

    def spent(self) -> Spent:
        """What all charges come to together, at this dataset's delta where that is needed."""
        return spent_by([entry.event for entry in self.entries()], self.delta, self.adjacency)

    @property
    def remaining(self) -> float:
        """The epsilon that is left; 0 if none is, or if rows were used without a guarantee."""
        return max(self.epsilon - self.spent().epsilon, 0.0)

    @property
    def is_private(self) -> bool:
        """Whether every use of these rows had a guarantee."""
        return not any(isinstance(part, NonPrivate) for entry in self.entries() for part in walk(entry.event))

    @contextlib.contextmanager
    def reserve(self, event: Event, *, what: str, allow_not_private: bool = False) -> Iterator[Charge]:
        """Charge the dataset with all that is planned, or raise BudgetExceeded; nothing may be read before."""
        charge = self._charge(event, what, allow_not_private=allow_not_private)
        try:
            yield charge
        finally:
            charge._close()  # noqa: SLF001 - as above

    def _charge(self, event: Event, what: str, *, allow_not_private: bool) -> Charge:
        if not isinstance(event, Event):
            raise InvalidParameter(f"only events can be charged, got {event!r}")
        if any(isinstance(part, NonPrivate) for part in walk(event)) and not allow_not_private:
            raise BudgetExceeded(
                f"a release without guarantee cannot be charged to dataset {self.name!r}; with allow_not_private=True "
                "it is recorded, and the dataset is not private from then on"
            )
        with self.file._transaction() as cursor:  # noqa: SLF001 - as above
            earlier = [entry.event for entry in _entries(cursor, self.name)]
            together = spent_by([*earlier, event], self.delta, self.adjacency)
            if not (allow_not_private and math.isinf(together.epsilon)):
                self._must_fit(event, earlier, together)
            cursor.execute(
                "INSERT INTO entries (dataset, at, what, event, state) VALUES (?, ?, ?, ?, 'reserved')",
                (self.name, _now(), what, json.dumps(event.to_dict())),
            )
            return Charge(self, int(cursor.lastrowid or 0), event)

    def _must_fit(self, event: Event, earlier: list[Event], after: Spent) -> None:
        limit = self.epsilon * (1.0 + _ROUNDING), self.delta * (1.0 + _ROUNDING)
        if after.epsilon <= limit[0] and after.delta <= limit[1]:
            return
        before = spent_by(earlier, self.delta, self.adjacency)
        alone = spent_by([event], self.delta, self.adjacency)
        raise BudgetExceeded(
            f"dataset {self.name!r}: asked epsilon {alone.epsilon:.6g} (delta {alone.delta:.3g}), "
            f"spent {before.epsilon:.6g} ({before.delta:.3g}), left {max(self.epsilon - before.epsilon, 0.0):.6g}, "
            f"together {after.epsilon:.6g} ({after.delta:.3g}), allowed {self.epsilon:.6g} ({self.delta:.3g})"
        )

    def to_text(self) -> str:
        """The entries as a table: when, what, its state, and the epsilon that was spent after it."""
        entries = self.entries()
        told = "" if self.is_private else "  NOT PRIVATE: rows were used without a guarantee"
        lines = [f"dataset {self.name!r}: epsilon {self.epsilon:.6g}, delta {self.delta:.3g}, {self.adjacency}{told}"]
        events: list[Event] = []
        for entry in entries:
            events.append(entry.event)
            so_far = spent_by(events, self.delta, self.adjacency)
            lines.append(f"{entry.number:>4}  {entry.at}  {entry.state:<8}  {so_far.epsilon:>10.6g}  {entry.what}")
        if not entries:
            lines.append("   nothing was charged yet")
        return "\n".join(lines)


class Charge:
    """A reservation that is held. `settle` may lower it to what really happened; otherwise it stays in full."""

    def __init__(self, dataset: Dataset, number: int, event: Event) -> None:
        self.dataset, self.number, self.event = dataset, number, event
        self._open = True

    def settle(self, event: Event) -> None:
        """Charge what really happened in place of what was planned; it must not cost more."""
        if not self._open:
            raise InvalidParameter("this charge is closed; it can be settled once, and only inside its `with` block")
        delta, adjacency = self.dataset.delta, self.dataset.adjacency
        planned, real = (spent_by([each], delta, adjacency) for each in (self.event, event))
        if real.epsilon > planned.epsilon * (1.0 + _ROUNDING) or real.delta > planned.delta * (1.0 + _ROUNDING):
            raise BudgetExceeded(
                f"epsilon {real.epsilon:.6g} was used, delta {real.delta:.3g}, but only {planned.epsilon:.6g}, "
                f"{planned.delta:.3g} reserved; the reservation stays"
            )
        with self.dataset.file._transaction() as cursor:  # noqa: SLF001 - the classes are one, in parts
            others = [e.event for e in _entries(cursor, self.dataset.name) if e.number != self.number]
            before = spent_by([*others, self.event], delta, adjacency)
            after = spent_by([*others, event], delta, adjacency)
            # Alone it costs no more, but with the other entries another accountant may apply; then nothing changes.
            if after.epsilon <= before.epsilon and after.delta <= before.delta:
                cursor.execute(
                    "UPDATE entries SET event = ?, state = 'settled' WHERE id = ? AND state = 'reserved'",
                    (json.dumps(event.to_dict()), self.number),
                )
                self.event = event
            else:
                cursor.execute("UPDATE entries SET state = 'kept' WHERE id = ?", (self.number,))
        self._open = False

    def _close(self) -> None:
        """An unsettled reservation is kept in full, also after an error: something may have been released."""
        if self._open:
            self._open = False
            with self.dataset.file._transaction() as cursor:  # noqa: SLF001 - as above
                cursor.execute("UPDATE entries SET state = 'kept' WHERE id = ? AND state = 'reserved'", (self.number,))


# --- what many events come to ----------------------------------------------------------------------------------------


def spent_by(events: list[Event], delta: float, adjacency: Adjacency = "add_remove") -> Spent:
    """All events together, by the best accountant that understands all of them.

    Where none does (Poisson samples beside anything else), every event is accounted for alone, at an equal part of
    delta, and the results are added up: that is also one of the bounds that are compared.
    """
    if not events:
        return Spent(0.0, 0.0)
    if any(isinstance(part, NonPrivate) for event in events for part in walk(event)):
        return Spent(math.inf, delta)
    found: list[Spent] = []
    pure = _spent_with(BasicComposition, events, 0.0, adjacency)
    if pure is not None:
        found.append(Spent(pure, 0.0))
    sampled = any(isinstance(part, PoissonSampled) for event in events for part in walk(event))
    for make in (PrivacyLoss,) if sampled else (GaussianDP, ZeroConcentratedDP):
        together = _spent_with(make, events, delta, adjacency)
        if together is not None:
            found.append(Spent(together, delta))
    found.extend(_each_alone(events, delta, adjacency))
    if not found:
        raise InvalidParameter("no accountant understands these events under the dataset's adjacency")
    return min(found, key=lambda spent: (spent.epsilon, spent.delta))


def _each_alone(events: list[Event], delta: float, adjacency: Adjacency) -> Iterator[Spent]:
    """Sums of (epsilon, delta): pure events need no delta, the others share it."""
    alone = [_spent_with(BasicComposition, [event], 0.0, adjacency) for event in events]
    impure = [event for event, epsilon in zip(events, alone, strict=True) if epsilon is None]
    total = sum((Fraction(epsilon) for epsilon in alone if epsilon is not None), Fraction(0))
    part = delta / max(len(impure), 1)
    for event in impure:
        costs = [_spent_with(make, [event], part, adjacency) for make in (GaussianDP, ZeroConcentratedDP)]
        if all(cost is None for cost in costs):
            costs = [_spent_with(PrivacyLoss, [event], part, adjacency)]
        known = [cost for cost in costs if cost is not None]
        if not known or math.isinf(min(known)):
            return
        total += Fraction(min(known))
    yield Spent(math.nextafter(float(total), math.inf), delta if impure else 0.0)


def _spent_with(
    make: Callable[[Adjacency], Accountant], events: list[Event], delta: float, adjacency: Adjacency
) -> float | None:
    """By one accountant; None if it does not understand all of them."""
    accountant = make(adjacency)
    try:
        accountant.compose_all(events)
    except InvalidParameter:
        return None
    return accountant.epsilon(delta)


# --- the file --------------------------------------------------------------------------------------------------------


def _make(path: Path) -> None:
    """A new file appears whole or not at all, so that an empty one is never taken for a new one."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-budget-") as folder:
            made = Path(folder) / "budget"
            connection = sqlite3.connect(made, isolation_level=None)
            try:
                connection.execute("PRAGMA synchronous = FULL")
                for statement in _statements(_TABLES):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
            finally:
                connection.close()
            with contextlib.suppress(FileExistsError):  # another process was quicker; its file is as good
                path.hardlink_to(made)
    except (OSError, sqlite3.Error) as error:
        raise InvalidInput(f"the budget file {path} cannot be made: {error}") from error


def _check_file(cursor: sqlite3.Cursor, path: Path) -> None:
    (application,) = cursor.execute("PRAGMA application_id").fetchone()
    (version,) = cursor.execute("PRAGMA user_version").fetchone()
    (journal,) = cursor.execute("PRAGMA journal_mode").fetchone()
    if application != APPLICATION_ID:
        raise InvalidInput(f"{path} is empty, or a database that is not a budget file")
    if version != VERSION:
        raise InvalidInput(f"{path} is a budget file of version {version}; this Hedgerow reads version {VERSION}")
    if journal != "delete":
        raise InvalidInput(f"{path} was changed to journal_mode={journal}; a budget file has journal_mode=delete")
    (damage,) = cursor.execute("PRAGMA quick_check(1)").fetchone()
    if damage != "ok":
        raise InvalidInput(f"{path} is damaged: {damage}")


def _statements(script: str) -> Iterator[str]:
    """One by one; a trigger holds a semicolon of its own."""
    lines = ""
    for line in script.strip().splitlines():
        lines += line + "\n"
        if sqlite3.complete_statement(lines):
            yield lines
            lines = ""


def _entries(cursor: sqlite3.Cursor, dataset: str) -> tuple[Entry, ...]:
    rows = cursor.execute(
        "SELECT id, at, what, event, state FROM entries WHERE dataset = ? ORDER BY id", (dataset,)
    ).fetchall()
    return tuple(Entry(number, at, what, _event(text), state) for number, at, what, text, state in rows)


def _event(text: str) -> Event:
    try:
        return from_dict(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"a damaged budget file: an entry cannot be read ({error})") from error


def _told(error: sqlite3.Error) -> str:
    text = str(error)
    if "locked" in text:
        return f"another process has held it for {_BUSY_SECONDS:.0f} seconds"
    if "not a database" in text or "malformed" in text:
        return f"it is damaged or not a budget file ({text})"
    if "readonly" in text or "unable to open" in text:
        return f"it cannot be written to ({text})"
    return text


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
