"""A party's budgets: what all runs together, those with one peer and those on one dataset may cost its rows.

    budgets = Budgets(home / "budget.sqlite", policy)
    mine = budgets.of_run(peers=("shop",), dataset="customers")
    role(protocol, me, job, data, budget=mine)         # charges every limit that applies, or none of them

One file (`privacy.budget_file`) has all limits of a party, each a dataset of that file: "all", "peer:shop",
"data:customers". A run is charged to all that apply in one transaction, before anything is released: if one of them is
too small, none is charged. What is killed in between stays charged.

A limit is for sums over runs, and runs come with two notions of what a neighbouring table is. Neither implies the
other, so each limit has two datasets in the file, the second one named "replace_one:all" and so on, and the epsilons of
both add up to the limit at most. So everything that adds or removes a record is within the limit, and so is everything
that exchanges one; and nobody gets the limit twice by a choice of protocols.

Limits that change in party.toml:

- A lower one takes effect at once. If more than that has been spent, nothing fits any more.
- A higher one than the file was opened with is refused, whoever writes it. That runs add up to epsilon, although each
  is chosen after the results of those before, is proved for an epsilon that is fixed beforehand (top of
  `privacy.budget_file`). A limit that is raised once results have been seen has promised nothing to anybody.
- One that is left out stays in force as it was opened, for the same reason: left out is as high as can be.
- A new one counts from the first run after it was written. What ran before is not in it.

The way out is a budget file of its own for what is a new promise: new rows are a dataset of a new name, and to promise
something else about the same rows is to move the file away, by hand, and to answer for it.

A run is charged once. Its entries are known by their text, which has the id of the run: a run that goes on after a
crash (`resumed=True`) takes up the charges of the same events that it finds, and adds only what it does not find. A run
that does not go on, but is found in the file, is refused: it would draw its noise a second time.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from hedgerow.errors import BudgetExceeded, InvalidParameter, ProtocolError
from hedgerow.privacy.accountants import holds
from hedgerow.privacy.budget_file import BudgetFile, Charge, Dataset, Spent, entries_of
from hedgerow.privacy.events import Adjacency, Event, NonPrivate
from hedgerow.runtime.budgets import notion_of

if TYPE_CHECKING:
    from hedgerow.node.party_file import Limits, Policy

ALL = "all"
PEER, DATA = "peer:", "data:"
_NOTIONS: tuple[Adjacency, ...] = get_args(Adjacency)
_SECOND = "replace_one:"


class Charged(NamedTuple):
    """What was charged, and to which limits."""

    limits: tuple[str, ...]
    epsilon: float
    delta: float


class State(NamedTuple):
    """How much of a limit is used up."""

    limit: str
    epsilon: float
    delta: float
    spent_epsilon: float
    spent_delta: float


@dataclass(frozen=True)
class Limit:
    """One limit with its two datasets, by notion of neighbours."""

    name: str
    epsilon: float
    delta: float
    books: dict[Adjacency, Dataset]

    def left_for(self, cursor: sqlite3.Cursor, notion: Adjacency) -> Dataset:
        """The dataset of this notion, with what the other one leaves of the limit."""
        spent = [self._spent(cursor, other) for other in _NOTIONS if other != notion]
        return replace(
            self.books[notion],
            epsilon=max(self.epsilon - sum(each.epsilon for each in spent), 0.0),
            delta=max(self.delta - sum(each.delta for each in spent), 0.0),
        )

    def state(self, cursor: sqlite3.Cursor) -> State:
        """How much of it is used up."""
        spent = [self._spent(cursor, notion) for notion in _NOTIONS]
        used = (sum(each.epsilon for each in spent), sum(each.delta for each in spent))
        return State(self.name, self.epsilon, self.delta, *used)

    def _spent(self, cursor: sqlite3.Cursor, notion: Adjacency) -> Spent:
        book = self.books[notion]
        return book.together(entries_of(cursor, book.name))


@contextlib.contextmanager
def to_look_at(path: Path, policy: Policy) -> Iterator[Budgets]:
    """The limits as they are now, in a copy: a limit is opened, for ever, by a run and not by a look at it."""
    with tempfile.TemporaryDirectory(prefix="hedgerow-budget-") as folder:
        copy = Path(folder) / path.name
        if path.exists():
            with BudgetFile(path).transaction():  # nobody else writes meanwhile
                shutil.copyfile(path, copy)
        yield Budgets(path, policy, copy=copy)


class Budgets:
    """All limits of a party. Without a limit in the policy, and without a file, there is nothing to charge."""

    def __init__(self, path: str | Path, policy: Policy, *, copy: Path | None = None) -> None:
        self.path = Path(path)
        wanted = dict(limits_of(policy))
        self.file = BudgetFile(copy or self.path) if wanted or self.path.exists() else None
        self.limits: dict[str, Limit] = {}
        if self.file is not None:
            opened = [name for name in self.file.datasets() if not name.startswith(_SECOND)]
            for name, limit in wanted.items():
                if name not in opened:
                    self.file.open(name, limit.epsilon, limit.delta)
            self.limits = {
                name: self._in_force(self.file, name, wanted.get(name)) for name in dict.fromkeys([*opened, *wanted])
            }

    def _in_force(self, file: BudgetFile, name: str, limit: Limits | None) -> Limit:
        """What the file has for a limit, or less if the policy says so."""
        first = file.dataset(name)
        second = file.open(_SECOND + name, first.epsilon, first.delta, "replace_one")
        epsilon, delta = (first.epsilon, first.delta) if limit is None else (limit.epsilon, limit.delta)
        for what, now, then in (("epsilon", epsilon, first.epsilon), ("delta", delta, first.delta)):
            if not now <= then:
                raise InvalidParameter(
                    f"[policy.budget] allows {what} {now:g} for {name!r}, but {self.path} was opened with {then:g}: a "
                    f"limit can be lowered, not raised. Write {then:g} or less; new rows are a dataset of a new name"
                )
        return Limit(name, epsilon, delta, {"add_remove": first, "replace_one": second})

    def of_run(
        self,
        *,
        peers: Iterable[str],
        dataset: str | None,
        resumed: bool = False,
        on_charged: Callable[[Charged], None] | None = None,
    ) -> RunBudget:
        """What a run with these peers on this dataset is charged to.

        `on_charged` is told of every charge that is on the disk, unless the run had it before it was interrupted.
        """
        names = [ALL, *(PEER + peer for peer in dict.fromkeys(peers)), *([] if dataset is None else [DATA + dataset])]
        return RunBudget(self, tuple(name for name in names if name in self.limits), resumed, on_charged)

    def states(self) -> list[State]:
        """How much of each limit is used up."""
        if self.file is None:
            return []
        with self.file.transaction() as cursor:
            return [limit.state(cursor) for limit in self.limits.values()]


@dataclass(frozen=True)
class RunBudget:
    """All limits that apply to one run, charged together. Roles are played on it as on a `Dataset`."""

    budgets: Budgets
    names: tuple[str, ...]
    resumed: bool = False
    on_charged: Callable[[Charged], None] | None = None
    _taken: set[int] = field(default_factory=set)  # entries that are this run's, since it was made or taken up

    def check(self, event: Event, *, delta: float = 0.0) -> None:
        """BudgetExceeded unless `reserve` would take this now, of a run that begins. Nothing is charged."""
        with contextlib.suppress(_OnlyAsked), self._together() as cursor:
            self._charge(cursor, event, delta, "only asked")
            raise _OnlyAsked

    @contextlib.contextmanager
    def reserve(self, event: Event, *, what: str, delta: float = 0.0) -> Iterator[Reserved]:
        """Charge every limit with all that is planned, or none of them and raise BudgetExceeded.

        `what` must name the run: it tells a run that goes on from one that begins.
        """
        with self._together() as cursor:
            charges, added = self._charge(cursor, event, delta, what)
        self._taken.update(charge.number for charge in charges)
        try:
            if added and self.on_charged is not None:
                limits = tuple(charge.dataset.name.removeprefix(_SECOND) for charge in added)
                self.on_charged(Charged(limits, added[0].epsilon, added[0].delta))
            yield Reserved(charges)
        finally:
            for charge in charges:
                charge.close()

    @contextlib.contextmanager
    def _together(self) -> Iterator[sqlite3.Cursor | None]:
        """One transaction, if there is a limit at all."""
        if self.budgets.file is None:
            yield None
        else:
            with self.budgets.file.transaction() as cursor:
                yield cursor

    def _charge(
        self, cursor: sqlite3.Cursor | None, event: Event, delta: float, what: str
    ) -> tuple[list[Charge], list[Charge]]:
        """The charges of a run, in the order of its limits, and those among them that are new."""
        if cursor is None or not self.budgets.limits:
            return [], []
        if holds(event, NonPrivate):
            raise BudgetExceeded(
                f"this party has a limit on epsilon ({', '.join(self.budgets.limits)}), and the run releases something "
                "of its rows without a guarantee"
            )
        notion = notion_of(event)
        charges, added = [], []
        for name in self.names:
            book = self.budgets.limits[name].left_for(cursor, notion)
            own = book.own(event, delta, allow_not_private=False)
            found = [e for e in entries_of(cursor, book.name) if e.what == what and e.number not in self._taken]
            same = next((e for e in found if self.resumed and e.event == event and e.delta == own.delta), None)
            if found and not self.resumed:
                raise ProtocolError(
                    f"{what} is in {self.budgets.path} already, charged on {found[0].at}: resume it, or propose a new "
                    "run; run again, it would draw its noise a second time"
                )
            if same is not None:
                charges.append(book.take_up(cursor, same))
            else:
                charges.append(book.enter(cursor, event, own, what=what))
                added.append(charges[-1])
        return charges, added


class _OnlyAsked(Exception):
    """Leaves a transaction that was only to find out whether a charge fits."""


class Reserved:
    """The charges of a run in all of its limits."""

    def __init__(self, charges: Sequence[Charge]) -> None:
        self.charges = tuple(charges)

    def settle(self, event: Event) -> None:
        """Charge what really happened in place of what was planned; it must not cost more."""
        for charge in self.charges:
            charge.settle(event)


def limits_of(policy: Policy) -> Iterator[tuple[str, Limits]]:
    """All limits of a policy on sums over runs, by the name that they have in the file."""
    if policy.budget is not None:
        yield ALL, policy.budget
    yield from ((PEER + peer, limit) for peer, limit in policy.budget_of_peers.items())
    yield from ((DATA + name, limit) for name, limit in policy.budget_of_datasets.items())
