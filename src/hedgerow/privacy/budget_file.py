"""A budget that outlives a training: what may be learned from a dataset, what was, in a file that several may share.

    file = BudgetFile("budgets.sqlite")
    file.open("patients 2024", epsilon=3.0, delta=1e-5)
    with file.dataset("patients 2024").reserve(planned, what="central.gaussian", delta=1e-6) as charge:
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

A seal, the SHA-256 of all datasets and entries, is written in the same transaction as every change, and compared before
every use: a bit that a disk has turned over could otherwise lower what was spent. A file that does not agree with its
seal is not used. The seal finds accidents; somebody who can write the file can seal it again. A file of version 2 had
none, and gets one when it is first opened.

How entries add up is fixed when a dataset is opened, and holds whoever chooses later trainings, events and deltas after
seeing the results of earlier ones:

- composition="basic". Each entry has its own (epsilon, delta), known before its training; both are added up, and
  neither sum may exceed the dataset's. That is (epsilon, delta)-DP for everything together. Proof, from the last
  training back: let e and d be what is left when a training is chosen, and (e1, d1) its own. After any outcome o what
  follows is, by induction, (e - e1, d - d1)-DP: P(S | o) <= min(1, e^(e - e1) Q(S | o)) + d - d1. The minimum, as a
  function of o, lies between 0 and 1, so its mean under P is at most e^e1 times its mean under Q, plus d1. Hence
  P(S) <= e^e Q(S) + d. (A privacy filter: Rogers, Roth, Ullman and Vadhan 2016.)
- composition="gaussian". All entries together by Gaussian DP, at the dataset's delta: tighter for many trainings with
  Gaussian noise. The same induction: the rest is mu'-GDP with mu'^2 = mu^2 - mu1^2 whatever the outcome, and the two
  compose to mu-GDP (Dong, Roth and Su 2022, theorem 3.2; as a filter, Smith and Thakurta 2022). Poisson samples have no
  place in it and are refused.

Trainings that run at the same time count as one after the other in the order of their reservations: what a training
releases does not depend on others that began later.

An entry's own epsilon is the smallest that any accountant proves for its planned event at its delta: one event, fixed
beforehand, so the choice of accountant tells nothing. (Loss distributions are asked only about samples, which nobody
else understands: they are slow, and need a package.) A total is compared with a tolerance of a billionth of the budget.

Settling. Where mechanisms add up one by one, pure epsilons in a basic entry of delta 0, and everything under Gaussian
DP, a mechanism that did not run costs nothing, even if results decided that. Not so for a basic entry with a delta: a
training that stops early after an unlucky outcome, and otherwise goes on, could be unlucky twice, once at the epsilon
of each ending, with a chance of twice its delta. Such an entry keeps its epsilon, unless nothing ran at all.

The two adjacencies do not imply each other, so that of a dataset is fixed.

A dataset whose rows were used without a guarantee (`allow_not_private=True`) says so for ever: its epsilon is infinite.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from hedgerow.errors import BudgetExceeded, InvalidInput, InvalidParameter
from hedgerow.privacy import accountants, events
from hedgerow.privacy.events import Adjacency, Event

APPLICATION_ID = 0x48656467
"""Tells our files from other SQLite files: "Hedg"."""

VERSION = 3
UNSEALED_VERSION = 2

Composition = Literal["basic", "gaussian"]

_BUSY_SECONDS = 30.0
_ROUNDING = 1e-9
"""A total that exceeds the budget by this part of it is the rounding of numbers that were calibrated to use it up."""

_STAYS = "; the reservation stays"

_SEAL = "CREATE TABLE seal (only INTEGER PRIMARY KEY CHECK (only = 1), digest TEXT NOT NULL) STRICT"
_TABLES = f"""
{_SEAL};
CREATE TABLE datasets (
    name TEXT PRIMARY KEY, epsilon REAL NOT NULL, delta REAL NOT NULL, adjacency TEXT NOT NULL,
    composition TEXT NOT NULL, opened TEXT NOT NULL
) STRICT;
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, dataset TEXT NOT NULL REFERENCES datasets (name), at TEXT NOT NULL,
    what TEXT NOT NULL, event TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'settled', 'kept'))
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
    """One charge. `state`: reserved (running, or crashed), settled (lowered to what happened), kept (in full).

    `epsilon` and `delta` are its own. Under basic composition they add up; under Gaussian DP they are what this entry
    alone would cost at the dataset's delta, for information.
    """

    number: int
    at: str
    what: str
    event: Event
    epsilon: float
    delta: float
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
        with self._begun() as cursor:
            _check_file(cursor, self.path)
        with self.transaction():
            pass  # whole, and sealed

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: where the file is, from whatever folder; what was spent stays in the file."""
        return {"path": self.path.absolute()}

    def open(
        self,
        dataset: str,
        epsilon: float,
        delta: float,
        adjacency: Adjacency = "add_remove",
        composition: Composition = "basic",
    ) -> Dataset:
        """Give a dataset its budget, once; again with the same values changes nothing, with others is refused."""
        if not isinstance(dataset, str) or not dataset.strip():
            raise InvalidParameter(f"dataset must be a name, got {dataset!r}")
        if not events.is_number(epsilon) or not 0.0 < epsilon < math.inf:
            raise InvalidParameter(f"epsilon must be a finite number above 0, got {epsilon!r}")
        events.check_delta(delta)
        events.check_adjacency(adjacency)
        if composition not in get_args(Composition):
            raise InvalidParameter(f"composition must be one of {get_args(Composition)}, got {composition!r}")
        if composition == "gaussian" and delta == 0.0:
            raise InvalidParameter("composition='gaussian' needs a delta above 0; at 0 it can prove nothing")
        asked = (float(epsilon), float(delta), adjacency, composition)
        with self.transaction() as cursor:
            found = _terms(cursor, dataset)
            if found is None:
                cursor.execute("INSERT INTO datasets VALUES (?, ?, ?, ?, ?, ?)", (dataset, *asked, _now()))
            elif found != asked:
                raise InvalidParameter(
                    f"dataset {dataset!r} was opened with epsilon = {found[0]}, delta = {found[1]}, {found[2]} and "
                    f"{found[3]} composition; a budget cannot be changed, got {asked}"
                )
        return Dataset(self, dataset, *asked)

    def dataset(self, name: str) -> Dataset:
        """A dataset that was opened."""
        with self.transaction() as cursor:
            found = _terms(cursor, name)
        if found is None:
            raise InvalidParameter(f"{self.path} has no dataset {name!r}; known are {self.datasets()}")
        return Dataset(self, name, *found)

    def datasets(self) -> list[str]:
        """The names of all datasets."""
        with self.transaction() as cursor:
            return [name for (name,) in cursor.execute("SELECT name FROM datasets ORDER BY name")]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """Everything inside happens at once, on disk, or not at all, to a file that agrees with its seal."""
        with self._begun() as cursor:
            found = cursor.execute("SELECT digest FROM seal").fetchall()
            before = _digest(cursor)
            if found != [(before,)]:
                raise InvalidInput(
                    f"the budget file {self.path} is damaged: what it holds does not agree with its seal, so what was "
                    "spent is not known; put back a copy that is whole and up to date"
                )
            yield cursor
            after = _digest(cursor)
            if after != before:
                cursor.execute("UPDATE seal SET digest = ?", (after,))

    @contextlib.contextmanager
    def _begun(self) -> Iterator[sqlite3.Cursor]:
        """A transaction."""
        connection = None
        try:
            # rw: what is gone, or was never here, is an error, and no new and empty file.
            where = f"{self.path.absolute().as_uri()}?mode=rw"
            connection = sqlite3.connect(where, timeout=_BUSY_SECONDS, isolation_level=None, uri=True)
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
        except (sqlite3.Error, UnicodeError) as error:  # the library's own messages quote what is damaged
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
    composition: Composition = "basic"

    def entries(self) -> tuple[Entry, ...]:
        """All charges so far, in order."""
        with self.file.transaction() as cursor:
            return entries_of(cursor, self.name)

    def spent(self) -> Spent:
        """What all charges come to together: both sums, or under Gaussian DP the epsilon at the dataset's delta."""
        return self.together(self.entries())

    @property
    def remaining(self) -> float:
        """The epsilon that is left; 0 if none is, or if rows were used without a guarantee."""
        return max(self.epsilon - self.spent().epsilon, 0.0)

    @property
    def is_private(self) -> bool:
        """Whether every use of these rows had a guarantee."""
        return all(math.isfinite(entry.epsilon) for entry in self.entries())

    @contextlib.contextmanager
    def reserve(
        self, event: Event, *, what: str, delta: float = 0.0, allow_not_private: bool = False
    ) -> Iterator[Charge]:
        """Charge the dataset with all that is planned, or raise BudgetExceeded; nothing may be read before.

        `delta` is what this entry may use of the dataset's, and 0 is enough for pure events. Under Gaussian DP all
        entries have the dataset's delta together, and it is not used.
        """
        own = self.own(event, delta, allow_not_private=allow_not_private)
        with self.file.transaction() as cursor:
            charge = self.enter(cursor, event, own, what=what, allow_not_private=allow_not_private)
        try:
            yield charge
        finally:
            charge.close()

    def enter(
        self, cursor: sqlite3.Cursor, event: Event, own: Spent, *, what: str, allow_not_private: bool = False
    ) -> Charge:
        """Within a transaction of the file, the charge of `reserve`, which the caller closes.

        One transaction may enter charges in several datasets: if one of them does not fit, none is charged.
        """
        found, kind = _terms(cursor, self.name), (self.adjacency, self.composition)
        # A pickle may have come to another file of the same name. Less than a file allows may be asked of it, not more.
        if found is None or found[2:] != kind or self.epsilon > found[0] or self.delta > found[1]:
            raise InvalidInput(
                f"{self.file.path} is not the file that dataset {self.name!r} is from: it allows {found or 'nothing'}, "
                f"not {(self.epsilon, self.delta, *kind)}; take the budget of the file that is here, "
                "BudgetFile(path).dataset(name)"
            )
        self._must_fit(entries_of(cursor, self.name), event, own, allow_not_private=allow_not_private)
        cursor.execute(
            "INSERT INTO entries (dataset, at, what, event, epsilon, delta, state) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self.name, _now(), what, json.dumps(event.to_dict()), *own, "reserved"),
        )
        return Charge(self, int(cursor.lastrowid or 0), event, own)

    def take_up(self, cursor: sqlite3.Cursor, entry: Entry) -> Charge:
        """Within a transaction, the charge of a training that goes on after it was interrupted. Nothing is added."""
        cursor.execute("UPDATE entries SET state = 'reserved' WHERE id = ? AND dataset = ?", (entry.number, self.name))
        return Charge(self, entry.number, entry.event, Spent(entry.epsilon, entry.delta))

    def check(self, event: Event, *, delta: float = 0.0) -> None:
        """BudgetExceeded unless `reserve` would take this now. Nothing is charged."""
        own = self.own(event, delta, allow_not_private=False)
        self._must_fit(self.entries(), event, own, allow_not_private=False)

    def own(self, event: Event, delta: float, *, allow_not_private: bool) -> Spent:
        """What one entry has for itself. Refused if that is nothing finite, although the event has a guarantee."""
        _check_event(event)
        events.check_delta(delta)
        lacks_guarantee = accountants.holds(event, events.NonPrivate)
        if lacks_guarantee and not allow_not_private:
            raise BudgetExceeded(
                f"a release without guarantee cannot be charged to dataset {self.name!r}; with allow_not_private=True "
                "it is recorded, and the dataset is not private from then on"
            )
        own = self.cost(event, float(delta))
        if math.isinf(own.epsilon) and not lacks_guarantee:
            more = "; give the entry a larger part of the dataset's: reserve(..., delta=...)"
            raise InvalidParameter(
                f"no finite epsilon can be proved for this event at delta = {own.delta:.6g}"
                f"{more if self.composition == 'basic' else ''}"
            )
        return own

    def cost(self, event: Event, delta: float) -> Spent:
        """What this event alone would cost here."""
        if self.composition == "basic":
            return Spent(epsilon_of(event, delta, self.adjacency), delta)
        if accountants.holds(event, events.PoissonSampled):
            raise InvalidParameter(
                f"dataset {self.name!r} was opened with composition='gaussian', which cannot take poisson_sampled "
                "events; charge them to a dataset with basic composition"
            )
        accountant = accountants.GaussianDP(self.adjacency)
        accountant.compose(event)
        return Spent(accountant.epsilon(self.delta), self.delta)

    def together(self, entries: Sequence[Entry]) -> Spent:
        """What these entries come to."""
        delta = accountants.sum_above(entry.delta for entry in entries)
        if any(math.isinf(entry.epsilon) for entry in entries):
            return Spent(math.inf, delta if self.composition == "basic" else self.delta)
        if self.composition == "basic":
            return Spent(accountants.sum_above(entry.epsilon for entry in entries), delta)
        accountant = accountants.GaussianDP(self.adjacency)
        accountant.compose_all(entry.event for entry in entries)
        return Spent(accountant.epsilon(self.delta), self.delta)

    def _must_fit(self, earlier: Sequence[Entry], event: Event, own: Spent, *, allow_not_private: bool) -> None:
        before = self.together(earlier)
        after = self.together((*earlier, Entry(0, "", "", event, *own, "reserved")))
        if allow_not_private and math.isinf(after.epsilon):
            return
        problems = [
            f"{name} does not fit: asked {_up(asks)}, spent {_up(spent)}, left {max(allowed - spent, 0.0):.6g}, "
            f"together {_up(total)}, allowed {allowed:.6g}"
            for name, asks, spent, total, allowed in zip(
                ("epsilon", "delta"), own, before, after, (self.epsilon, self.delta), strict=True
            )
            if not total <= allowed * (1.0 + _ROUNDING)
        ]
        if problems:
            raise BudgetExceeded(f"dataset {self.name!r}: {'; '.join(problems)}")

    def to_text(self) -> str:
        """The entries as a table: when, its state, its own epsilon and delta, what; and what all come to."""
        entries = self.entries()
        spent = self.together(entries)
        told = "  NOT PRIVATE: rows were used without a guarantee" if math.isinf(spent.epsilon) else ""
        own = {
            "basic": "basic composition: epsilons and deltas add up",
            "gaussian": "Gaussian DP: each epsilon below is what the entry alone would cost",
        }
        lines = [
            f"dataset {self.name!r}: epsilon {self.epsilon:.6g}, delta {self.delta:.6g}, {self.adjacency}{told}",
            own[self.composition],
        ]
        lines += [
            f"{entry.number:>4}  {entry.at}  {entry.state:<8}  epsilon {_up(entry.epsilon):>9}  "
            f"delta {_up(entry.delta):>7}  {' '.join(entry.what.split())}"
            for entry in entries
        ]
        if not entries:
            lines.append("   nothing was charged yet")
        lines.append(f"spent: epsilon {_up(spent.epsilon)}, delta {_up(spent.delta)}")
        return "\n".join(lines)


class Charge:
    """A reservation that is held. `settle` may lower it to what really happened; otherwise it stays in full."""

    def __init__(self, dataset: Dataset, number: int, event: Event, own: Spent) -> None:
        self.dataset, self.number, self.event = dataset, number, event
        self.epsilon, self.delta = own
        self._open = True

    def settle(self, event: Event) -> None:
        """Charge what really happened in place of what was planned; it must not cost more.

        `Composed(())`, nothing at all, costs nothing. What else is lowered: see the top of this file.
        """
        if not self._open:
            raise InvalidParameter("this charge is closed; it can be settled once, and only inside its `with` block")
        _check_event(event)
        own = self._settled(event)
        with self.dataset.file.transaction() as cursor:
            cursor.execute(
                "UPDATE entries SET event = ?, epsilon = ?, delta = ?, state = 'settled' "
                "WHERE id = ? AND state = 'reserved'",
                (json.dumps(event.to_dict()), *own, self.number),
            )
        self.event, (self.epsilon, self.delta) = event, own
        self._open = False

    def _settled(self, event: Event) -> Spent:
        """The entry's own epsilon and delta from now on; never above what they were."""
        if next(event.leaves(), None) is None:
            return Spent(0.0, 0.0)
        own = Spent(self.epsilon, self.delta)
        if math.isinf(own.epsilon):
            return own  # planned without a guarantee, and something ran: that is remembered
        dataset = self.dataset
        if dataset.composition == "basic" and own.delta > 0.0:
            if not _is_within(event, own, dataset.adjacency):
                raise BudgetExceeded(f"more was used than epsilon {_up(own.epsilon)} at delta {own.delta:.6g}{_STAYS}")
            return own
        real = dataset.cost(event, own.delta).epsilon
        if real > own.epsilon * (1.0 + _ROUNDING):
            raise BudgetExceeded(f"epsilon {_up(real)} was used, but only {_up(own.epsilon)} reserved{_STAYS}")
        return Spent(min(real, own.epsilon), own.delta)

    def close(self) -> None:
        """An unsettled reservation is kept in full, also after an error: something may have been released."""
        if self._open:
            self._open = False
            with self.dataset.file.transaction() as cursor:
                cursor.execute("UPDATE entries SET state = 'kept' WHERE id = ? AND state = 'reserved'", (self.number,))


# --- what one event costs --------------------------------------------------------------------------------------------


def epsilon_of(event: Event, delta: float, adjacency: Adjacency = "add_remove") -> float:
    """The smallest epsilon that an accountant proves for this event at this delta; infinite if there is none."""
    if accountants.holds(event, events.NonPrivate):
        return math.inf
    return min(accountant.epsilon(delta) for accountant in _accounts(event, adjacency))


def _is_within(event: Event, own: Spent, adjacency: Adjacency) -> bool:
    """Whether an accountant proves this for the event; far quicker than a search for the smallest epsilon."""
    epsilon, delta = own.epsilon * (1.0 + _ROUNDING), own.delta * (1.0 + _ROUNDING)
    return any(accountant.delta(epsilon) <= delta for accountant in _accounts(event, adjacency))


def _accounts(event: Event, adjacency: Adjacency) -> list[accountants.Accountant]:
    """The event in the books of everybody who understands it."""
    books: list[accountants.Accountant] = []
    refusals: list[str] = []
    sampled = accountants.holds(event, events.PoissonSampled)
    for make in accountants.FOR_SAMPLES if sampled else accountants.FOR_ALL_ROWS:
        accountant = make(adjacency)
        try:
            accountant.compose(event)
        except InvalidParameter as refused:
            refusals.append(str(refused))
        else:
            books.append(accountant)
    if not books:
        raise InvalidParameter(f"no accountant understands this event under the dataset's adjacency: {refusals[-1]}")
    return books


def _check_event(event: Any) -> None:
    if not isinstance(event, Event):
        raise InvalidParameter(f"only events can be charged, got {event!r}")


# --- the file --------------------------------------------------------------------------------------------------------


def _make(path: Path) -> None:
    """A new file appears whole or not at all, so that an empty one is never taken for a new one."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-budget-") as folder:
            made = Path(folder) / "budget"
            connection = sqlite3.connect(made, isolation_level=None)
            try:
                connection.execute("PRAGMA synchronous = FULL")
                connection.executescript(_TABLES)
                connection.execute("INSERT INTO seal VALUES (1, ?)", (_digest(connection.cursor()),))
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
            finally:
                connection.close()
            made.chmod(0o600)
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
    if version not in (VERSION, UNSEALED_VERSION):
        raise InvalidInput(f"{path} is a budget file of version {version}; this Hedgerow reads version {VERSION}")
    if journal != "delete":
        raise InvalidInput(f"{path} was changed to journal_mode={journal}; a budget file has journal_mode=delete")
    (damage,) = cursor.execute("PRAGMA quick_check(1)").fetchone()
    if damage != "ok":
        raise InvalidInput(f"{path} is damaged: {damage}")
    if version == UNSEALED_VERSION:
        cursor.execute(_SEAL)  # fails if there is one: then only the version was damaged
        cursor.execute("INSERT INTO seal VALUES (1, ?)", (_digest(cursor),))
        cursor.execute(f"PRAGMA user_version = {VERSION}")


def _digest(cursor: sqlite3.Cursor) -> str:
    """Of all that counts: every field of every dataset and entry."""
    digest = hashlib.sha256()
    for table, order in (("datasets", "name"), ("entries", "id")):
        for row in cursor.execute(f"SELECT * FROM {table} ORDER BY {order}"):  # noqa: S608 - two fixed names
            digest.update(json.dumps([table, *row], default=repr).encode() + b"\n")
    return digest.hexdigest()


def entries_of(cursor: sqlite3.Cursor, dataset: str) -> tuple[Entry, ...]:
    """All charges of a dataset, in order, as a transaction finds them."""
    rows = cursor.execute(
        "SELECT id, at, what, event, epsilon, delta, state FROM entries WHERE dataset = ? ORDER BY id", (dataset,)
    ).fetchall()
    return tuple(Entry(number, at, what, _event(text), *rest) for number, at, what, text, *rest in rows)


def _terms(cursor: sqlite3.Cursor, dataset: str) -> tuple[float, float, Adjacency, Composition] | None:
    """What a dataset was opened with."""
    found = cursor.execute(
        "SELECT epsilon, delta, adjacency, composition FROM datasets WHERE name = ?", (dataset,)
    ).fetchone()
    return None if found is None else tuple(found)


def _event(text: str) -> Event:
    try:
        return events.from_dict(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"a damaged budget file: an entry cannot be read ({error})") from error


def _told(error: Exception) -> str:
    text = str(error)
    if "locked" in text:
        return f"another process has held it for {_BUSY_SECONDS:.0f} seconds"
    if "not a database" in text or "malformed" in text:
        return f"it is damaged or not a budget file ({text})"
    if "readonly" in text or "unable to open" in text:
        return f"it cannot be written to ({text})"
    return text


def _up(value: float) -> str:
    """In six digits, rounded up after dropping what is beyond the ninth: a computer's own rounding is no news."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return f"{float(Context(6, ROUND_CEILING).create_decimal(f'{value:.9g}')):.6g}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
