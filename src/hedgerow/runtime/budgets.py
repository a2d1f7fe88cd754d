"""Budgets of the parties of a run: what each may lose is charged before its role begins, and stays charged.

    Federation(...).fit(..., budget={"clinic_a": BudgetFile("a.sqlite").dataset("patients 2024")})

Each party keeps its own file. A protocol says what a run can cost the rows of a party at most (`Protocol.planned`);
that is charged by the party itself, in its own process, before it has sent anything. A run that fails afterwards has
been paid for all the same: peers may have learned something, if only from the error. So noise cannot be averaged away
over runs that are broken off. A later attempt of a run is not charged again if the party has kept anything of it: what
it may have released is part of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from typing import Protocol as Interface

from hedgerow.errors import InvalidParameter
from hedgerow.privacy import budget_file
from hedgerow.privacy.budget_file import BudgetFile, Dataset
from hedgerow.privacy.events import Adjacency, Event
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Planned, Protocol

Budgets = Mapping[str, Dataset]
"""Name of a party -> its own budget."""


class Held(Interface):
    """A charge that may be lowered once, to what really happened."""

    def settle(self, event: Event) -> None:
        """Charge this in place of what was planned."""
        ...


class Budget(Interface):
    """What a role is played on: one dataset of a file, or all limits of a party that apply to a run."""

    def reserve(self, event: Event, *, what: str, delta: float = 0.0) -> AbstractContextManager[Held]:
        """Charge all that is planned, or raise BudgetExceeded."""
        ...


def refuse_raising(options: Mapping[str, Any]) -> None:
    """A training that raises because of rows has no guarantee: refused with a budget before a row is looked at."""
    if options.get("on_bad_rows") == "raise":
        raise InvalidParameter(
            "budget is for trainings with a guarantee, and on_bad_rows='raise' gives it up; leave out one of the two"
        )


def checked_budgets(budget: Budgets, protocol: Protocol, job: Any, data: Mapping[str, PartyData]) -> Budgets:
    """The budgets of a run. BudgetExceeded before anything is charged, sent or started if one of them is too small."""
    if not isinstance(budget, Mapping):
        raise InvalidParameter(
            f"budget must be a dict: name of a party -> BudgetFile(path).dataset(name), got {type(budget).__name__}"
        )
    for party, dataset in budget.items():
        if party not in data:
            raise InvalidParameter(f"budget names {party!r}, which brings no data; those who do are {list(data)}")
        if not isinstance(dataset, Dataset):
            raise InvalidParameter(
                f"the budget of {party} must be that of a dataset, BudgetFile(path).dataset(name), got {dataset!r}"
            )
        planned = protocol.planned(job, party, data[party])
        if planned is None:
            raise InvalidParameter(
                f"{protocol.name} releases nothing of what {party} brings, so there is nothing to charge; leave it out "
                "of budget"
            )
        if not protocol.charges_itself(job, party):
            dataset.check(planned.event, delta=planned.delta)
    return dict(budget)


def play_on(budget: Budget, protocol: Protocol, me: Party, job: Any, data: PartyData | None) -> Any:
    """The role of a party that brings data, on its budget."""
    if data is None:
        return protocol.play(me, job, data)
    what = f"{protocol.name}, run {job.run_id}"
    charges: list[tuple[Held, Event]] = []
    with ExitStack() as open_charges:

        def charge(event: Event, delta: float) -> None:
            has_kept = me.attempt > 1 and me.checkpoints is not None and bool(me.checkpoints.trees)
            if has_kept and isinstance(budget, Dataset) and any(entry.what == what for entry in budget.entries()):
                return  # what was released is kept, and released again as it was, or counted by the role itself
            reserved = budget.reserve(event, what=what, delta=delta)
            charges.append((open_charges.enter_context(reserved), event))

        me.on_charge = charge
        planned = protocol.planned(job, me.name, data)
        if planned is not None and not protocol.charges_itself(job, me.name):
            me.charge(planned.event, planned.delta)
        result = protocol.play(me, job, data)
        for reserved, event in charges:
            reserved.settle(event)
    return result


def written(dataset: Dataset) -> dict[str, str]:
    """Where a budget is, for a party's process."""
    return {"path": str(dataset.file.path.resolve()), "dataset": dataset.name}


def read(about: Mapping[str, str] | None) -> Dataset | None:
    """The inverse of `written`."""
    return None if about is None else BudgetFile(about["path"]).dataset(about["dataset"])


# --- what a run costs ------------------------------------------------------------------------------------------------


def epsilon_of(planned: Planned) -> float:
    """The smallest epsilon that an accountant proves for what is planned, at its delta; infinite without a guarantee.

    It is that of the notion of neighbours that the event itself states.
    """
    return budget_file.epsilon_of(planned.event, planned.delta, notion_of(planned.event))


def notion_of(event: Event) -> Adjacency:
    """What a neighbouring table is to this event. InvalidParameter if its mechanisms do not agree on that."""
    found = {notion for leaf, _ in event.leaves() if (notion := getattr(leaf, "adjacency", None)) is not None}
    if len(found) > 1:
        raise InvalidParameter("an event with two notions of neighbours cannot be charged: neither implies the other")
    return next(iter(found), "add_remove")
