"""vertical.closed_scoring: its job, what each party brings to it, its three roles, and what they end with.

Rows are scored in blocks, and everybody derives the same blocks from the sizes that the label holder tells. What a
party brings, whatever kind of part it has, are bits of leaves and words of their values; a value v that the label
holder enters itself is round(v 2**FRACTION_BITS), modulo 2**64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hedgerow.codec import AsJson
from hedgerow.crypto.choosing import DEALT_BYTES, Choosing, chosen, deal_choosing
from hedgerow.crypto.dealing import Label
from hedgerow.crypto.shares import SUM64, Share
from hedgerow.engine.dtypes import Bytes, Floats
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import Table
from hedgerow.errors import FixedPointOverflow, InvalidInput, ProtocolError
from hedgerow.protocols.services.score_closed import messages
from hedgerow.protocols.services.score_closed.messages import ScoreShare
from hedgerow.protocols.shares.mesh import Mesh
from hedgerow.protocols.shares.supply import DealingOut, Supply, deal_ahead
from hedgerow.protocols.vertical.common import agreement, shared_parts
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart
from hedgerow.protocols.vertical.common.shared_parts import PartialTree, SharedLeavesPart, Words
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, option
from hedgerow.transport.ranges import MOST

NAME = "vertical.closed_scoring"
BATCH_ROWS = 1 << 16
BLOCK_BYTES = 1 << 24
"""What is dealt for a block, at most; but a block has one row at least."""
AHEAD = 2
"""Blocks that the dealer may be ahead of the label holder: what it has sent waits in the others' memory."""

FRACTION_BITS = 40
LARGEST_SCORE = 1 << 22
"""Of values that the label holder enters itself: what the leaves of all trees may add up to, without the base score."""
_NEVER_MISSING = 2  # an answer is 0 or 1


@dataclass(frozen=True)
class ClosedScoringJob(agreement.WithDealer, agreement.ServiceJob):
    """What all parties of a closed scoring must agree on. JSON-able; nothing in it is secret."""

    NAME = NAME
    MODEL_IS: ClassVar[str] = "to be scored with"
    TAKES_PART_IN: ClassVar[str] = "the scoring"

    dealer: str = option("dealer", "the party that deals correlated randomness and has no data")
    batch_rows: int = option(BATCH_ROWS, "rows in one block, at most; fewer if there are many leaves", at_least=1)


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


# --- blocks of rows --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Blocks:
    """The sizes of a scoring."""

    n_rows: int
    block_rows: int
    n_leaves: tuple[int, ...]  # by output
    n_parties: int

    @classmethod
    def planned(cls, job: ClosedScoringJob, n_rows: int, n_leaves: tuple[int, ...]) -> Blocks:
        """As large as memory and the job allow."""
        room = BLOCK_BYTES // (DEALT_BYTES * max(sum(n_leaves), 1))
        return cls(n_rows, max(min(room, job.batch_rows, n_rows), 1), n_leaves, len(job.holders))

    @classmethod
    def told(cls, job: ClosedScoringJob, me: Party, n_rows: int | None = None) -> Blocks:
        """What the label holder says, about this many rows if they are known; ProtocolError if it does not add up."""
        least, most = (1, MOST) if n_rows is None else (n_rows, n_rows)
        wanted = me.recv(job.label_holder, messages.ScoresWanted, least_rows=least, most_rows=most)
        blocks = cls.planned(job, wanted.n_rows, tuple(wanted.n_leaves.tolist()))
        if blocks.block_rows != wanted.block_rows or sum(blocks.n_leaves) > messages.MOST_LEAVES:
            raise ProtocolError(
                f"{job.label_holder} wants scores of {wanted.block_rows} rows at a time, by {sum(blocks.n_leaves)} "
                f"leaves; {blocks.block_rows} rows can be"
            )
        return blocks

    def rows(self) -> Iterator[slice]:
        """The rows of each block."""
        starts = range(0, self.n_rows, self.block_rows)
        return (slice(start, min(start + self.block_rows, self.n_rows)) for start in starts)

    def plans(self, rows: slice) -> dict[str, Choosing]:
        """What is chosen of these rows, by output: outputs are chosen side by side, so each has a lane of its own."""
        n_rows = rows.stop - rows.start
        return {f"output {k}": Choosing(n_rows, n, self.n_parties) for k, n in enumerate(self.n_leaves)}


def dealer(me: Party, job: ClosedScoringJob, data: PartyData | None = None) -> TookPart:  # noqa: ARG001 - it has none
    """Deal for all blocks, never far ahead of the others."""
    me.wait_longer(agreement.PATIENCE)
    blocks = Blocks.told(job, me)
    out = DealingOut(me, job.holders)
    rows = list(blocks.rows())

    def deal(number: int) -> None:
        for lane, plan in blocks.plans(rows[number]).items():
            with out.parcel(lane, Label(tree=1 + number)) as step:
                deal_choosing(step, plan)

    deal_ahead(me, job.label_holder, messages.BlockDone, range(len(rows)), deal, AHEAD)
    return TookPart(blocks.n_rows)


# --- what parties with data bring ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Side:
    """One party's trees, words and rows."""

    trees: tuple[PartialTree, ...]
    leaves: tuple[Words, ...]  # by tree
    codes: Bytes  # [columns, rows]
    answering: OwnerPart | None = None  # who turns codes into the columns of the trees, if these are answers
    missing_codes: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        me: Party,
        job: ClosedScoringJob,
        part: OwnerPart | LabelHolderPart | SharedLeavesPart,
        table: Table,
        n_threads: int,
    ) -> Side:
        """Leaves are shared, or the label holder's own; then it tells feature holders where their handles stand."""
        codes = part.codes(table, n_threads)
        if isinstance(part, SharedLeavesPart):
            return cls(part.trees, part.leaves, codes, None, part.missing_codes)
        if isinstance(part, LabelHolderPart):
            trees = shared_parts.partial_trees_of(part)[part.party]
            return cls(trees, encoded_leaves(part.party, part.ensemble), codes, shared_parts.as_owner(part)[0])
        trees = _trees_told(me, job, part)
        return cls(trees, tuple(np.zeros(tree.n_leaves, np.uint64) for tree in trees), codes, part)

    def bits(self, rows: slice, n_outputs: int) -> list[Bytes]:
        """By output: which leaves own splits leave for each of some rows, uint8 [rows, leaves of its trees]."""
        codes, missing = self.codes[:, rows], self.missing_codes
        if self.answering is not None:
            codes = self.answering.answers(codes)
            missing = (_NEVER_MISSING,) * len(codes)
        return [shared_parts.all_indicators(self.trees[k::n_outputs], codes, missing) for k in range(n_outputs)]

    def values(self, n_outputs: int) -> list[Words]:
        """By output: this party's words of the values of all leaves of its trees."""
        none = np.zeros(0, np.uint64)
        return [np.concatenate([none, *self.leaves[k::n_outputs]]) for k in range(n_outputs)]

    def n_leaves(self, n_outputs: int) -> tuple[int, ...]:
        """By output: leaves of all its trees."""
        return tuple(sum(tree.n_leaves for tree in self.trees[k::n_outputs]) for k in range(n_outputs))


def encoded_leaves(party: str, ensemble: Ensemble) -> tuple[Words, ...]:
    """The leaf values of each tree as words; FixedPointOverflow if scores could leave the range."""
    values = [tree.value[tree.is_leaf].astype(np.float64) for tree in ensemble.trees]
    for k in range(ensemble.n_outputs):
        largest = sum(float(np.abs(leaves).max()) for leaves in values[k :: ensemble.n_outputs])
        if not largest < LARGEST_SCORE:
            raise FixedPointOverflow(
                f"{party}: leaf values may add up to {largest:.3g}, but closed scoring has room for scores below "
                f"{LARGEST_SCORE:.3g} only"
            )
    return tuple(np.rint(np.ldexp(leaves, FRACTION_BITS)).astype(np.int64).view(np.uint64) for leaves in values)


def _trees_told(me: Party, job: ClosedScoringJob, part: OwnerPart) -> tuple[PartialTree, ...]:
    """The trees in which the handles of a part stand; ProtocolError if these are none."""
    told = me.recv(job.label_holder, messages.QuestionsInTrees, n_handles=part.n_handles)
    said = f"{job.label_holder} sent {part.party} what are not trees"
    if len(told.handles) != told.n_nodes.sum():
        raise ProtocolError(said)
    try:
        return tuple(map(shared_parts.tree_of_handles, np.split(told.handles, np.cumsum(told.n_nodes))[:-1]))
    except InvalidInput as problem:
        raise ProtocolError(f"{said}: {problem}") from problem


def _shares(me: Party, job: ClosedScoringJob, mesh: Mesh, side: Side, blocks: Blocks) -> Iterator[tuple[slice, Share]]:
    """A party's side of all blocks: the rows of each, and shares of their scores [rows, outputs]."""
    supply, n_outputs, place = Supply(me, job.dealer, job.holders), len(blocks.n_leaves), job.holders.index(me.name)
    values = [Share(words, SUM64) for words in side.values(n_outputs)]
    for number, rows in enumerate(blocks.rows(), start=1):
        bits = side.bits(rows, n_outputs)
        supply.begin(number, 0, n_outputs)
        talks = [
            chosen(supply.step(lane), bits[output], values[output], plan, me=place)
            for output, (lane, plan) in enumerate(blocks.plans(rows).items())
        ]
        found = mesh.talks(talks)
        supply.finish()
        yield rows, Share(np.stack([share.words for share in found], axis=1), SUM64)


# --- parties with data -----------------------------------------------------------------------------------------------


def feature_holder(me: Party, job: ClosedScoringJob, data: PartyData | None) -> TookPart:
    """Say which leaves own splits rule out, on shares, and send the label holder shares of the scores."""
    whole, brought = agreement.own_part(me.name, job, data)
    part: OwnerPart | SharedLeavesPart
    if isinstance(whole, SharedLeavesPart):
        part = _checked(whole, job)
        n_handles, shapes = 0, shared_parts.shapes_of(part.trees)
    else:
        part = agreement.as_feature_holder(whole, job)
        n_handles, shapes = part.n_handles, b""
    table = agreement.rows_of(part, brought.table)
    me.wait_longer(agreement.PATIENCE)
    me.send(job.label_holder, messages.ReadyToScore(table.n_rows, part.run_id, n_handles, shapes))
    blocks = Blocks.told(job, me, table.n_rows)
    side = Side.of(me, job, part, table, brought.n_threads)
    if blocks.n_leaves != side.n_leaves(len(blocks.n_leaves)):
        raise ProtocolError(f"{job.label_holder} speaks of other leaves than those of {me.name}")
    mesh = Mesh(me, job.holders)
    for _, share in _shares(me, job, mesh, side, blocks):
        mesh.reveal(ScoreShare, share, to=job.label_holder)
    return TookPart(table.n_rows)


def label_holder(me: Party, job: ClosedScoringJob, data: PartyData | None) -> ClosedScores:
    """The same as the others, and add up everybody's shares of the scores."""
    whole, brought = agreement.own_part(me.name, job, data)
    part: LabelHolderPart | SharedLeavesPart
    part = _checked(whole, job) if isinstance(whole, SharedLeavesPart) else agreement.as_label_holder(whole, job)
    table = agreement.rows_of(part, brought.table)
    side = Side.of(me, job, part, table, brought.n_threads)
    base, step = _scale(part)
    for party in job.feature_holders:
        _check_ready(party, me.recv(party, messages.ReadyToScore), part, table.n_rows)
    blocks = Blocks.planned(job, table.n_rows, side.n_leaves(len(base)))
    wanted = messages.ScoresWanted(blocks.n_rows, blocks.block_rows, np.array(blocks.n_leaves, np.int64))
    me.send_all((*job.feature_holders, job.dealer), wanted)
    if isinstance(part, LabelHolderPart):
        _tell_trees(me, job, part)
    mesh = Mesh(me, job.holders)
    raw = np.empty((table.n_rows, len(base)))
    for rows, share in _shares(me, job, mesh, side, blocks):
        me.send(job.dealer, messages.BlockDone())
        total = mesh.reveal(ScoreShare, share, to=me.name)
        if total is not None:
            raw[rows] = base + step * total.view(np.int64)
        me.report(rows.stop, table.n_rows)
    return ClosedScores(raw, mesh.rounds)


def _scale(part: LabelHolderPart | SharedLeavesPart) -> tuple[Floats, float]:
    """The base scores, and what one unit of the sum of leaf values adds to them."""
    if isinstance(part, LabelHolderPart):
        return part.ensemble.base_scores, 2.0**-FRACTION_BITS
    if part.target is None:
        raise InvalidInput(f"{part.party}: its part does not say what scores are for")
    return np.array(part.target.base_scores), part.target.learning_rate * 2.0**-part.fraction_bits


def _tell_trees(me: Party, job: ClosedScoringJob, part: LabelHolderPart) -> None:
    trees = shared_parts.partial_trees_of(part)
    n_nodes = np.array([tree.n_nodes for tree in part.ensemble.trees], np.int32)
    for party in job.feature_holders:
        columns = [tree.column for tree in trees[party]]
        me.send(party, messages.QuestionsInTrees(n_nodes, np.concatenate([np.zeros(0, np.int32), *columns])))


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


def _check_ready(
    party: str, ready: messages.ReadyToScore, part: LabelHolderPart | SharedLeavesPart, n_rows: int
) -> None:
    """InvalidInput unless what a feature holder says it brings fits the label holder's part and number of rows."""
    if bool(ready.shapes) != isinstance(part, SharedLeavesPart):
        raise InvalidInput(f"{party}: its part is of another kind than that of {part.party}")
    if isinstance(part, LabelHolderPart):
        agreement.check_ready(party, ready, part, n_rows)
        return
    if ready.model_run_id != part.run_id or ready.shapes != shared_parts.shapes_of(part.trees):
        raise InvalidInput(f"{party}: its part is of another model: its trees are not those of {part.party}")
    agreement.check_rows(party, ready.n_rows, part.party, n_rows)
