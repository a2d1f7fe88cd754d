"""What all trainings on shares do alike: how they begin, go from stage to stage and warm up; the dealer's role."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from hedgerow.crypto.dealing import HandStep
from hedgerow.engine.dtypes import Floats
from hedgerow.errors import InvalidInput
from hedgerow.protocols.made_up import made_up_rows
from hedgerow.protocols.shares.job import SharesJob
from hedgerow.protocols.shares.mesh import Mesh
from hedgerow.protocols.shares.messages import LevelDone
from hedgerow.protocols.shares.supply import Supply, deal_ahead
from hedgerow.protocols.vertical.common.agreement import (
    PATIENCE,
    begin_as_feature_holder,
    begin_as_label_holder,
    finite_labels,
)
from hedgerow.protocols.vertical.common.messages import Onward
from hedgerow.protocols.vertical.common.parts import Part, part_from_dict
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import DEALER, FEATURE_HOLDER, LABEL_HOLDER, PartyData, Rehearsal, Role
from hedgerow.transport.frames import Message

Job = TypeVar("Job", bound=SharesJob)

NOT_ON_RAY = {
    **dict.fromkeys(
        (LABEL_HOLDER, FEATURE_HOLDER),
        "masked words of all rows come to its machine or leave it at every level; actors would have to be sent them",
    ),
    DEALER: "it has no rows",
}
"""Why roles of trainings on shares work on one machine."""


class Player(Generic[Job]):
    """A party with data: what it is dealt and what it opens with the others, stage by stage of each tree."""

    DONE: ClassVar[type[Message]] = LevelDone  # what the dealer hears when a stage is over

    def __init__(self, me: Party, job: Job, n_threads: int) -> None:
        self.me, self.job, self.n_threads = me, job, n_threads
        self.place = job.holders.index(me.name)
        self.is_first = self.place == 0  # the label holder, who also adds what is public
        self.supply, self.mesh = Supply(me, job.dealer, job.holders), Mesh(me, job.holders)

    def trees(self, done: int = 0, n_trees: int | None = None) -> Iterator[int]:
        """The numbers of all trees that are still to be grown, in order; the label holder reports how far it is."""
        n_trees = self.job.boosting.n_iterations if n_trees is None else n_trees
        for tree in range(done, n_trees + 1):
            if self.is_first:
                self.me.report(tree, n_trees)
            if tree < n_trees:
                yield tree

    @contextmanager
    def stage(self, tree: int, number: int, n_parcels: int) -> Iterator[None]:
        """What is taken within is dealt for this stage, in this many messages; then the dealer may go on."""
        self.supply.begin(tree, number, n_parcels)
        yield
        self.supply.finish()
        if self.is_first:
            self.me.send(self.job.dealer, self.DONE())

    def steps(self, lane: str, first: int = 0) -> Callable[[int], HandStep]:
        """The steps of a lane at this stage, by number, beginning with `first`."""
        return lambda number: self.supply.step(lane, first + number)


@dataclass(frozen=True)
class NothingToKeep:
    """What the dealer has in the end."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"role": DEALER}


def dealing(deal: Callable[[Party, Any, int], None]) -> Role:
    """The dealer's role, from the function that deals for all trees after those that are done."""

    def dealer(me: Party, job: Any, data: PartyData | None) -> NothingToKeep:  # noqa: ARG001 - it has no data
        me.wait_longer(PATIENCE)
        done, _ = me.go_on(NothingToKeep, job)
        deal(me, job, done)
        return NothingToKeep()

    return dealer


def deal_iterations(
    me: Party, job: SharesJob, done_with: type[Message], done: int, n_stages: int, deal: Callable[[int], None]
) -> None:
    """Deal for the stages of all iterations after those that are done, so many of each.

    With early stopping never ahead of what may be the last iteration: the label holder says whether it goes on.
    """
    n_iterations = job.boosting.n_iterations

    def deal_some(first: int, last: int) -> None:
        deal_ahead(me, job.label_holder, done_with, range(first * n_stages, last * n_stages), deal)

    if not job.stops_early:
        deal_some(done, n_iterations)
        return
    for iteration in range(done, n_iterations + 1):
        if iteration and me.recv(job.label_holder, Onward, n_iterations=n_iterations).n_kept:
            return
        deal_some(iteration, min(iteration + 1, n_iterations))


def result(data: Mapping[str, Any]) -> Part | NothingToKeep:
    """What a role returned: a party's part of the model, or nothing."""
    return NothingToKeep() if data.get("role") == DEALER else part_from_dict(data)


def small(job: SharesJob, *, levels: bool = False, **options: Any) -> Rehearsal:
    """The same job with one tree, on a few made-up rows of as many parties.

    `levels`: whether the label holder may have columns with levels. `options` must fit the made-up rows.
    """
    names = tuple(f"party-{k}" for k in range(len(job.parties)))
    unbound: dict[str, Any] = {"interaction": None, "early_stopping_rounds": None}  # those of other columns and rows
    trees = replace(job.boosting, n_iterations=1, max_depth=2, **unbound)
    rehearsed = replace(job, parties=names, label_holder=names[0], dealer="dealer", boosting=trees, **options)
    return rehearsed, lambda: {
        name: made_up_rows(rehearsed, has_labels=name == names[0], levels=levels and name == names[0]) for name in names
    }


def check_rows_kept(party: str, n_kept: int, n_rows: int) -> None:
    """InvalidInput unless what an earlier attempt has kept is about as many rows as there are now."""
    if n_kept != n_rows:
        raise InvalidInput(f"{party}: an earlier attempt of this run had {n_kept:,} rows, and now there are {n_rows:,}")


def begin(me: Party, job: SharesJob, data: PartyData) -> None:
    """Go on when everybody's table is in order, and all have equally many rows."""
    if me.name == job.label_holder:
        begin_as_label_holder(me, job, data)
    else:
        begin_as_feature_holder(me, job, data)


def checked_labels(party: str, job: SharesJob, data: PartyData, *, most_classes: int = 2) -> Floats:
    """Labels that are there and within the public range, if there is one."""
    labels = finite_labels(party, job, data, most_classes=most_classes)
    if job.task == "regression" and job.boosting.label_range is None:
        return labels
    low, high = (0.0, most_classes - 1.0) if job.task == "classification" else job.loss().label_range
    if labels.min() < low or labels.max() > high:
        raise InvalidInput(f"{party}: some labels lie outside the declared label_range {(low, high)}")
    return labels
