"""What the services of a trained vertical model have in common: their jobs, and whether parts and rows fit together.

vertical.scoring, vertical.closed_scoring and vertical.explaining begin alike. Every party brings its part of one model,
and its columns of the same rows. The label holder goes on when everybody's part and rows fit its own. Where it then
gets answers about the rows, it gets them batch by batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from hedgerow.engine.dtypes import Bytes
from hedgerow.engine.table import Table
from hedgerow.errors import InvalidInput
from hedgerow.protocols.made_up import MADE_UP, made_up_model
from hedgerow.protocols.vertical.common.job import HoldersJob
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart, Part
from hedgerow.protocols.vertical.common.shared_parts import SharedLeavesPart
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Rehearsal

# --- jobs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServiceJob(HoldersJob):
    """What all parties of a service must agree on. A service's job is a subclass with fields of its own."""

    MODEL_IS: ClassVar[str] = "to be used"  # what the job wants with its model, as errors put it
    TAKES_PART_IN: ClassVar[str] = "the service"  # what parties do together, likewise

    model_run_id: str  # of the training that the model comes from; `run_id` is that of the service


# --- does everything fit? --------------------------------------------------------------------------------------------


def own_part(party: str, job: ServiceJob, data: PartyData | None) -> tuple[Part, PartyData]:
    """A party's own part of the right model, of any kind, with all that it brings. InvalidInput if it is another."""
    if data is None or data.part is None:
        raise InvalidInput(f"{party}: brings no part of a model")
    part: Part = data.part
    if part.party != party:
        raise InvalidInput(f"{party}: brings the part of {part.party}")
    if part.run_id != job.model_run_id:
        raise InvalidInput(
            f"{party}: its part is of another model, that of run {part.run_id!r}; "
            f"{job.MODEL_IS} is that of run {job.model_run_id!r}"
        )
    return part, data


def as_feature_holder(part: Part, job: ServiceJob) -> OwnerPart:
    """The part, if it is that of a feature holder."""
    _check_is_open(part, job)
    if not isinstance(part, OwnerPart) or part.label_holder != job.label_holder:
        raise InvalidInput(f"{part.party}: brings a part that is not one of a feature holder of {job.label_holder}")
    return part


def as_label_holder(part: Part, job: ServiceJob) -> LabelHolderPart:
    """The part, if it is the label holder's and everybody takes part whose columns are asked about."""
    _check_is_open(part, job)
    if not isinstance(part, LabelHolderPart):
        raise InvalidInput(f"{part.party}: brings the part of a feature holder, but holds the labels")
    absent = [other for other, n_handles in part.handles.items() if n_handles and other not in job.feature_holders]
    unknown = [other for other in job.feature_holders if other not in part.handles]
    if absent:
        raise InvalidInput(
            f"{absent[0]}: the model asks about its columns, but it does not take part in {job.TAKES_PART_IN}"
        )
    if unknown:
        raise InvalidInput(f"{unknown[0]}: took no part in the training of the model")
    return part


def _check_is_open(part: Part, job: ServiceJob) -> None:
    if isinstance(part, SharedLeavesPart):
        raise InvalidInput(
            f"{part.party}: the leaf values of its model are shared, and nobody knows them: {job.NAME} cannot use it, "
            "vertical.closed_scoring can"
        )


def rows_of(part: Part, table: Table) -> Table:
    """The table with the columns and levels of the part; as it is, if it was read so already."""
    as_needed = [(feature.name, feature.levels) for feature in part.features]
    if [(column.name, column.levels) for column in table.columns] != as_needed:
        return part.read(table, part.party)
    if table.n_rows == 0:
        raise InvalidInput(f"{part.party}: brings no rows")
    return table


class Ready(Protocol):
    """What a feature holder's first message says, in every service."""

    @property
    def n_rows(self) -> int:
        """Rows that it brings; 0 where none are needed."""

    @property
    def model_run_id(self) -> str:
        """Which model its part is of."""

    @property
    def n_handles(self) -> int:
        """Questions that it can answer."""


def check_ready(party: str, ready: Ready, part: LabelHolderPart, n_rows: int) -> None:
    """InvalidInput unless what a feature holder says it brings fits the label holder's part and number of rows."""
    if ready.model_run_id != part.run_id or ready.n_handles != part.handles[party]:
        raise InvalidInput(
            f"{party}: its part is of another model: it is of run {ready.model_run_id!r} with {ready.n_handles} "
            f"handles, that of {part.party} is of run {part.run_id!r} and has {part.handles[party]} of them"
        )
    check_rows(party, ready.n_rows, part.party, n_rows)


def wait_for_all(me: Party, job: ServiceJob, kind: type[Any], part: LabelHolderPart, n_rows: int) -> None:
    """Nothing about the model is said before everybody's part and rows fit; `kind` is the service's `Ready`."""
    for party in job.feature_holders:
        check_ready(party, me.recv(party, kind), part, n_rows)


def check_rows(party: str, brings: int, label_holder: str, n_rows: int) -> None:
    """InvalidInput unless a feature holder brings as many rows as the label holder."""
    if brings != n_rows:
        raise InvalidInput(
            f"{party}: has {brings} rows, but {label_holder} has {n_rows}; the rows of all parties must be the same "
            "ones in the same order"
        )


# --- answers ---------------------------------------------------------------------------------------------------------


def answers_of_all(me: Party, part: LabelHolderPart, kind: type[Any], start: int, stop: int) -> dict[str, Bytes]:
    """Everybody's answers about some rows, uint8 [handles, rows]; who is asked nothing sends no message.

    `kind` is the service's message, with fields `first_row` and `bits` (`common.messages`).
    """
    answers = {}
    for party, n_handles in part.handles.items():
        if n_handles == 0:
            answers[party] = np.empty((0, stop - start), np.uint8)
            continue
        message = me.recv(party, kind, start=start, n_handles=n_handles, n_bytes=(stop - start + 7) // 8)
        answers[party] = np.unpackbits(message.bits, axis=1, count=stop - start)
    return answers


# --- warm-up ---------------------------------------------------------------------------------------------------------


def warmup(job: Any, **changes: Any) -> Rehearsal:
    """The same service on a few made-up rows, with a made-up model of two parties."""
    small = replace(job, parties=("a", "b"), label_holder="a", model_run_id=MADE_UP, **changes)
    return small, lambda: made_up_model(job.NAME)
