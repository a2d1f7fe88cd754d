"""The three roles of vertical.closed_scoring, and what each of them ends with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hedgerow.codec import AsJson
from hedgerow.crypto.choosing import chosen, deal_choosing
from hedgerow.crypto.dealing import Label
from hedgerow.crypto.shares import SUM64, Share
from hedgerow.engine.dtypes import Floats
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.protocols.services.score_closed.job import Blocks, ClosedScoringJob, lane_of
from hedgerow.protocols.services.score_closed.messages import (
    BlockDone,
    QuestionsInTrees,
    ReadyToScore,
    ScoreShare,
)
from hedgerow.protocols.services.score_closed.sides import (
    FRACTION_BITS,
    Side,
    label_holder_side,
    owner_side,
    shared_side,
)
from hedgerow.protocols.shares.mesh import Mesh
from hedgerow.protocols.shares.supply import DealingOut, Supply, deal_ahead
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart, partial_trees_of, tree_of_handles
from hedgerow.protocols.vertical.common.serving import (
    as_feature_holder,
    as_label_holder,
    check_ready,
    check_rows,
    own_part,
    rows_of,
)
from hedgerow.protocols.vertical.common.shared_parts import PartialTree, SharedLeavesPart, shapes_of
from hedgerow.protocols.vertical.common.tables import PATIENCE
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData

AHEAD = 2
"""Blocks that the dealer may be ahead of the label holder: what it has sent waits in the others' memory."""


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClosedScores(AsJson):
    """What the label holder has in the end."""

    KIND: ClassVar[str] = "scores"

    raw: Floats  # [rows, outputs]
    rounds: int  # in which all parties with data sent each other words


@dataclass(frozen=True)
class TookPart(AsJson):
    """What everybody else has in the end."""

    KIND: ClassVar[str] = "took part"

    n_rows: int


# --- the dealer ------------------------------------------------------------------------------------------------------


def dealer(me: Party, job: ClosedScoringJob, data: PartyData | None = None) -> TookPart:  # noqa: ARG001 - it has none
    """Deal for all blocks, never far ahead of the others."""
    me.wait_longer(PATIENCE)
    blocks = Blocks.told(job, me)
    out = DealingOut(me, job.holders)
    rows = list(blocks.rows())

    def deal(number: int) -> None:
        for output, plan in enumerate(blocks.plans(rows[number])):
            with out.parcel(lane_of(output), Label(tree=1 + number)) as step:
                deal_choosing(step, plan)

    deal_ahead(me, job.label_holder, BlockDone, len(rows), deal, AHEAD)
    return TookPart(blocks.n_rows)


# --- parties with data -----------------------------------------------------------------------------------------------


class _Choosing:
    """A party's side of all blocks."""

    def __init__(self, me: Party, job: ClosedScoringJob, side: Side, blocks: Blocks) -> None:
        self._side, self._blocks = side, blocks
        self._place = job.holders.index(me.name)
        self._supply, self.mesh = Supply(me, job.dealer, job.holders), Mesh(me, job.holders)
        self._values = [Share(words, SUM64) for words in side.values(blocks.n_outputs)]

    def shares(self, number: int, rows: slice) -> Share:
        """Shares of the scores of a block, [rows, outputs]. Blocks are numbered from 1."""
        bits = self._side.bits(rows, self._blocks.n_outputs)
        self._supply.begin(number, 0, self._blocks.n_outputs)
        talks = []
        for output, (values, plan) in enumerate(zip(self._values, self._blocks.plans(rows), strict=True)):
            step = self._supply.step(lane_of(output))
            talks.append(chosen(step, bits[output], values, plan, me=self._place))
        found = self.mesh.talks(talks)
        self._supply.finish()
        return Share(np.stack([share.words for share in found], axis=1), SUM64)


def feature_holder(me: Party, job: ClosedScoringJob, data: PartyData | None) -> TookPart:
    """Say which leaves own splits rule out, on shares, and send the label holder shares of the scores."""
    part, brought = own_part(me.name, job, data)
    part = _checked(part, job) if isinstance(part, SharedLeavesPart) else as_feature_holder(part, job)
    table = rows_of(part, brought.table)
    me.wait_longer(PATIENCE)
    if isinstance(part, SharedLeavesPart):
        me.send(job.label_holder, ReadyToScore(table.n_rows, part.run_id, 0, shapes_of(part.trees)))
    else:
        me.send(job.label_holder, ReadyToScore(table.n_rows, part.run_id, part.n_handles, b""))
    blocks = Blocks.told(job, me, table.n_rows)
    if isinstance(part, SharedLeavesPart):
        side = shared_side(part, table, brought.n_threads)
    else:
        side = owner_side(part, _trees_told(me, job, part), table, brought.n_threads)
    if blocks.n_leaves != side.n_leaves(blocks.n_outputs):
        raise ProtocolError(f"{job.label_holder} speaks of other leaves than those of {me.name}")
    choosing = _Choosing(me, job, side, blocks)
    for number, rows in enumerate(blocks.rows(), start=1):
        choosing.mesh.reveal(ScoreShare, choosing.shares(number, rows), to=job.label_holder)
    return TookPart(side.n_rows)


def _trees_told(me: Party, job: ClosedScoringJob, part: OwnerPart) -> list[PartialTree]:
    """The trees in which the handles of a part stand; ProtocolError if these are none."""
    told = me.recv(job.label_holder, QuestionsInTrees, n_handles=part.n_handles)
    said = f"{job.label_holder} sent {part.party} what are no trees"
    if len(told.handles) != told.n_nodes.sum():
        raise ProtocolError(said)
    ends = np.cumsum(told.n_nodes).tolist()
    try:
        return [
            tree_of_handles(told.handles[end - n : end]) for end, n in zip(ends, told.n_nodes.tolist(), strict=True)
        ]
    except InvalidInput as problem:
        raise ProtocolError(f"{said}: {problem}") from problem


def label_holder(me: Party, job: ClosedScoringJob, data: PartyData | None) -> ClosedScores:
    """The same as the others, and add up everybody's shares of the scores."""
    part, brought = own_part(me.name, job, data)
    part = _checked(part, job) if isinstance(part, SharedLeavesPart) else as_label_holder(part, job)
    table = rows_of(part, brought.table)
    if isinstance(part, LabelHolderPart):
        side = label_holder_side(part, table, brought.n_threads)
    else:
        side = shared_side(part, table, brought.n_threads)
    base, step = _scale(part)
    for party in job.feature_holders:
        _check_ready(party, me.recv(party, ReadyToScore), part, table.n_rows)
    blocks = Blocks.planned(job, table.n_rows, side.n_leaves(len(base)))
    me.send_all((*job.feature_holders, job.dealer), blocks.message)
    if isinstance(part, LabelHolderPart):
        _tell_trees(me, job, part)
    choosing = _Choosing(me, job, side, blocks)
    raw = np.empty((table.n_rows, len(base)))
    for number, rows in enumerate(blocks.rows(), start=1):
        share = choosing.shares(number, rows)
        me.send(job.dealer, BlockDone())
        total = choosing.mesh.reveal(ScoreShare, share, to=me.name)
        if total is not None:
            raw[rows] = base + step * total.view(np.int64)
        me.report(rows.stop, table.n_rows)
    return ClosedScores(raw, choosing.mesh.rounds)


def _scale(part: LabelHolderPart | SharedLeavesPart) -> tuple[Floats, float]:
    """The base scores, and what one unit of the sum of leaf values adds to them."""
    if isinstance(part, LabelHolderPart):
        return part.ensemble.base_scores, 2.0**-FRACTION_BITS
    if part.target is None:
        raise InvalidInput(f"{part.party}: its part does not say what scores are for")
    return np.array(part.target.base_scores), part.target.learning_rate * 2.0**-part.fraction_bits


def _tell_trees(me: Party, job: ClosedScoringJob, part: LabelHolderPart) -> None:
    trees = partial_trees_of(part)
    n_nodes = np.array([tree.n_nodes for tree in part.ensemble.trees], np.int32)
    for party in job.feature_holders:
        columns = [tree.column for tree in trees[party]]
        me.send(party, QuestionsInTrees(n_nodes, np.concatenate([np.zeros(0, np.int32), *columns])))


def _checked(part: SharedLeavesPart, job: ClosedScoringJob) -> SharedLeavesPart:
    """The part, if its holders are those of the job."""
    if part.label_holder != job.label_holder:
        raise InvalidInput(f"{part.party}: the labels of its model are {part.label_holder}'s, not {job.label_holder}'s")
    for party in part.holders:
        if party not in job.holders:
            raise InvalidInput(f"{party}: has shares of the leaves, but does not take part in {job.TAKES_PART_IN}")
    for party in job.holders:
        if party not in part.holders:
            raise InvalidInput(f"{party}: took no part in the training of the model")
    return part


def _check_ready(party: str, ready: ReadyToScore, part: LabelHolderPart | SharedLeavesPart, n_rows: int) -> None:
    """InvalidInput unless what a feature holder says it brings fits the label holder's part and number of rows."""
    is_shared = isinstance(part, SharedLeavesPart)
    if bool(ready.shapes) != is_shared:
        raise InvalidInput(f"{party}: its part is of another kind than that of {part.party}")
    if isinstance(part, LabelHolderPart):
        check_ready(party, ready, part, n_rows)
        return
    if ready.model_run_id != part.run_id or ready.shapes != shapes_of(part.trees):
        raise InvalidInput(f"{party}: its part is of another model: its trees are not those of {part.party}")
    check_rows(party, ready.n_rows, part.party, n_rows)
