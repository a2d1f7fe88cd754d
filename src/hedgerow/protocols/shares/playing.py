"""What all trainings on shares do alike: how they begin and warm up, and that the dealer's role ends with nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hedgerow.engine.dtypes import Floats
from hedgerow.errors import InvalidInput
from hedgerow.protocols.made_up import made_up_rows
from hedgerow.protocols.shares.job import SharesJob
from hedgerow.protocols.vertical.common.parts import Part, part_from_dict
from hedgerow.protocols.vertical.common.tables import begin_as_feature_holder, begin_as_label_holder, finite_labels
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import DEALER, PartyData, Rehearsal, Role


@dataclass(frozen=True)
class NothingToKeep:
    """What the dealer has in the end."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"role": DEALER}


def dealing(deal: Callable[[Party, Any], None]) -> Role:
    """The dealer's role, from the function that deals."""

    def dealer(me: Party, job: Any, data: PartyData | None) -> NothingToKeep:  # noqa: ARG001 - it has no data
        deal(me, job)
        return NothingToKeep()

    return dealer


def result(data: Mapping[str, Any]) -> Part | NothingToKeep:
    """What a role returned: a party's part of the model, or nothing."""
    return NothingToKeep() if data.get("role") == DEALER else part_from_dict(data)


def small(job: SharesJob, *, levels: bool = False, **options: Any) -> Rehearsal:
    """The same job with one tree, on a few made-up rows of as many parties.

    `levels`: whether the label holder may have columns with levels. `options` must fit the made-up rows.
    """
    names = tuple(f"party-{k}" for k in range(len(job.parties)))
    trees = replace(job.boosting, n_iterations=1, max_depth=2)
    rehearsed = replace(job, parties=names, label_holder=names[0], dealer="dealer", boosting=trees, **options)
    return rehearsed, lambda: {
        name: made_up_rows(rehearsed, has_labels=name == names[0], levels=levels and name == names[0]) for name in names
    }


def begin(me: Party, job: SharesJob, data: PartyData) -> None:
    """Go on when everybody's table is in order, and all have equally many rows."""
    if me.name == job.label_holder:
        begin_as_label_holder(me, job, data)
    else:
        begin_as_feature_holder(me, job, data)


def checked_labels(party: str, job: SharesJob, data: PartyData) -> Floats:
    """Labels that are there and within the public range."""
    labels = finite_labels(party, job, data)
    low, high = job.loss().label_range
    if labels.min() < low or labels.max() > high:
        raise InvalidInput(f"{party}: some labels lie outside the declared label_range {(low, high)}")
    return labels
