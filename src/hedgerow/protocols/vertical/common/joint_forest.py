"""A conversation about splits that everybody may see: gains are compared, winners say which way the rows go.

Two protocols have it in common, each with messages of its own that have the same fields:

    every feature holder -> label holder    how much its best split of each node gains
    label holder -> each of them            what becomes of each node: `Winners`
    winners -> label holder                 which rows go right, and a number for each question: `WhichWay`
    label holder -> those who need it       which rows go right in all nodes: `Partition`

`JointForest` is the label holder's side. A feature holder tells its gains with `told_gains`, takes its roles with
`receive_roles`, and keeps what it was asked in `Asked`. Both take sides with `new_sides`, which refuses those of rows
that the sender has no say in. What the fields may hold: `messages`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import MAX_BINS, Bytes, Floats, Ints
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.losses import Loss
from hedgerow.engine.splitting import LevelSplits
from hedgerow.errors import ProtocolError
from hedgerow.protocols.made_up import made_up_rows
from hedgerow.protocols.vertical.common.job import VerticalJob
from hedgerow.protocols.vertical.common.joint_growth import (
    JointGrower,
    JointRows,
    choose_winners,
    mark_foreign_splits,
)
from hedgerow.protocols.vertical.common.messages import LEAF, MOST_GAIN, OTHERS, YOURS, bytes_for
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, Questions, composite_features, with_handles
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Rehearsal

# --- both sides ------------------------------------------------------------------------------------------------------


def new_sides(
    sender: str, message: Any, n_rows: int, count_in_question: Callable[[Bytes], int], known: Bytes | None = None
) -> Bytes:
    """By row: the sides that a peer tells of nodes in question; `count_in_question` counts the bits of their rows.

    Elsewhere a side must be 0, or the one that is `known` here; ProtocolError if it is not.
    """
    told: Bytes = np.unpackbits(message.sides)
    sides = told[:n_rows]
    if known is not None:
        sides ^= known
    n_elsewhere = int(np.count_nonzero(told)) - count_in_question(sides)
    if n_elsewhere:
        raise ProtocolError(
            f"{sender} sent {message.NAME} with sides of {n_elsewhere} rows that are not in the nodes in question"
        )
    return sides


# --- the label holder ------------------------------------------------------------------------------------------------


class ForeignSplits:
    """Whose each foreign split of the label holder's trees is, and what its owner calls it.

    Kept tree by tree and level by level while trees grow; parties go by their places.
    """

    def __init__(self, parties: Sequence[str], label_holder: str) -> None:
        self._parties, self._label_holder = tuple(parties), label_holder
        self._n_handles = np.zeros(len(parties), np.int64)
        self._levels: list[list[Ints]] = []  # per tree and level: [foreign nodes, (place, handle)]

    def begin_tree(self) -> None:
        """What comes now belongs to a new tree."""
        self._levels.append([])

    def n_handles_of(self, place: int) -> int:
        """Questions of a party so far."""
        return int(self._n_handles[place])

    def add_level(self, place: Ints, handle: Ints) -> None:
        """The foreign splits of a level, in the order of nodes."""
        np.maximum.at(self._n_handles, place, handle + 1)
        self._levels[-1].append(np.column_stack([place, handle]))

    @property
    def n_handles(self) -> dict[str, int]:
        """Questions of each feature holder."""
        named = zip(self._parties, self._n_handles.tolist(), strict=True)
        return {party: n for party, n in named if party != self._label_holder}

    def in_trees(self, trees: Sequence[Tree], n_own: int) -> list[Tree]:
        """Trees over its own columns and handles, from trees with column `n_own` for all foreign splits."""
        first = n_own + np.cumsum([0, *self._n_handles[:-1]])
        finished = []
        for tree, levels in zip(trees, self._levels, strict=True):
            place, handle = np.concatenate([*levels, np.empty((0, 2), np.int64)]).T
            columns = tree.feature.copy()
            columns[tree.feature == n_own] = first[place] + handle
            finished.append(with_handles(tree, columns, n_own))
        return finished


class JointForest(ABC):
    """Grows trees together with the feature holders, and remembers whose each split is."""

    WINNERS: ClassVar[type[Any]]
    WHICH_WAY: ClassVar[type[Any]]
    PARTITION: ClassVar[type[Any]]

    def __init__(
        self, me: Party, job: VerticalJob, rows: JointRows, grower: JointGrower, *, tells_leaves: bool
    ) -> None:
        """`tells_leaves`: whether feature holders must know the rows of leaves, as who keeps scores must."""
        self.me, self._parties = me, job.parties
        self._n_trees, self._min_gain = job.boosting.n_iterations, job.boosting.min_gain
        self.rows, self.grower, self._tells_leaves = rows, grower, tells_leaves
        self._place = job.parties.index(me.name)
        self._trees: list[Tree] = []
        self._foreign = ForeignSplits(job.parties, job.label_holder)
        self.rounds = 0

    @abstractmethod
    def begin_tree(self) -> None:
        """Gradients, and all rows at the root."""

    @abstractmethod
    def own_best(self) -> LevelSplits:
        """The best splits of its own columns; the feature holders have what they need to find theirs."""

    @abstractmethod
    def gains_of(self, party: str, n_nodes: int) -> Floats:
        """What a feature holder sends: the gain of its best split of each node."""

    def grow(self) -> None:
        """All trees."""
        for done in range(self._n_trees):
            self.me.report(done, self._n_trees)
            self.begin_tree()
            self._foreign.begin_tree()
            while self._grow_level():
                pass
            self._trees.append(self.grower.finish())
        self.me.report(self._n_trees, self._n_trees)

    def _grow_level(self) -> bool:
        me, grower, rows = self.me, self.grower, self.rows
        splits = self.own_best()
        own = np.where(splits.feature >= 0, splits.gain, -1.0)
        gains = np.array([own if party == me.name else self._checked_gains(party, len(own)) for party in self._parties])
        winner = choose_winners(gains, grower.room, self._min_gain)
        for place, party in enumerate(self._parties):
            if party != me.name:
                roles = np.where(winner < 0, LEAF, np.where(winner == place, YOURS, OTHERS)).astype(np.uint8)
                me.send(party, self.WINNERS(roles))
        splits.gain[:] = gains.max(axis=0)
        splits.feature[winner != self._place] = -1
        rows.sides[:] = 0
        rows.write_sides(splits.feature, splits.goes_left)
        self._ask_winners(winner)
        mark_foreign_splits(splits, (winner >= 0) & (winner != self._place), rows.spare_feature)
        if self._tells_leaves or not grower.is_last(int((winner >= 0).sum())):
            self.tell_sides(winner)
        self.rounds += 2
        return grower.divide(splits)

    def _checked_gains(self, party: str, n_nodes: int) -> Floats:
        gains = self.gains_of(party, n_nodes)
        if (gains[self.rows.node_counts == 0] > 0.0).any():  # it would go on splitting it, level after level
            raise ProtocolError(f"{party} says that splitting a node without rows gains something")
        return gains

    def _ask_winners(self, winner: Ints) -> None:
        """Which way the rows go in nodes that others won, and what they call those splits."""
        rows = self.rows
        handles = np.zeros(len(winner), np.int64)
        for place, party in enumerate(self._parties):
            nodes = np.flatnonzero(winner == place)
            if party == self.me.name or not len(nodes):
                continue
            most = self._foreign.n_handles_of(place) + len(nodes)  # if every question is new
            answer = self.me.recv(
                party, self.WHICH_WAY, n_won=len(nodes), most_handles=most, n_bytes=bytes_for(rows.n_rows)
            )
            handles[nodes] = answer.handles
            rows.sides[:] |= new_sides(party, answer, rows.n_rows, partial(rows.count_sides, nodes=winner == place))
        foreign = (winner >= 0) & (winner != self._place)
        self._foreign.add_level(winner[foreign], handles[foreign])

    def tell_sides(self, winner: Ints) -> None:
        """Everybody's bits to those who need them: not to the winner of all nodes."""
        message: Any = None
        for place, party in enumerate(self._parties):
            if party != self.me.name and ((winner >= 0) & (winner != place)).any():
                message = message or self.PARTITION(np.packbits(self.rows.sides))
                self.me.send(party, message)

    def part(
        self,
        job: VerticalJob,
        data: PartyData,
        features: Sequence[FeatureBins],
        loss: Loss,
        base_score: float,
        meta: dict[str, Any],
    ) -> LabelHolderPart:
        """The label holder's part of the model: all trees over its own columns and handles."""
        handles = self._foreign.n_handles
        ensemble = Ensemble(
            composite_features(features, handles),
            loss.name,
            [base_score],
            trees=self._foreign.in_trees(self._trees, len(features)),
            classes=data.classes,
            meta=meta,
        )
        return LabelHolderPart(self.me.name, job.NAME, job.run_id, ensemble, handles)


# --- a feature holder ------------------------------------------------------------------------------------------------


def told_gains(splits: LevelSplits) -> Floats:
    """The gains of this party's best splits, as they are sent."""
    return np.where(splits.feature >= 0, np.minimum(splits.gain, MOST_GAIN), -1.0)


def receive_roles(
    me: Party, label_holder: str, winners: type[Any], splits: LevelSplits, *, room: int, counts: Ints
) -> Bytes:
    """What the label holder says becomes of each node, `room` of which may split; `counts` are their rows.

    ProtocolError where it says that a node was won which has no split here, or that one splits which has no rows.
    """
    roles: Bytes = me.recv(label_holder, winners, n_nodes=len(splits.feature)).roles
    splitting = roles != LEAF
    cannot = (roles == YOURS) & (splits.feature < 0) | splitting & (counts == 0)
    if cannot.any() or int(splitting.sum()) > room:
        raise ProtocolError(
            f"{label_holder} splits {int(splitting.sum())} nodes of {len(roles)}, {int(cannot.sum())} of which cannot "
            f"be split; there is room for {room}"
        )
    return roles


class Asked:
    """The splits that this party won, in the order in which they were first used; equal ones have one handle."""

    def __init__(self) -> None:
        self._handles: dict[tuple[int, int, bool, bytes], int] = {}

    def handles(self, splits: LevelSplits, nodes: Ints) -> np.ndarray:
        """The handles of some nodes' splits."""
        found = []
        for node in nodes.tolist():
            last_bin = int(splits.bin[node])
            levels = np.packbits(splits.goes_left[node]).tobytes() if last_bin < 0 else bytes(MAX_BINS // 8)
            question = (int(splits.feature[node]), last_bin, bool(splits.missing_left[node]), levels)
            found.append(self._handles.setdefault(question, len(self._handles)))
        return np.array(found, np.int32)

    def questions(self) -> Questions:
        """All of them, by handle."""
        if not self._handles:
            return Questions.none()
        column, last_bin, missing_left, levels = zip(*self._handles, strict=True)
        bits = np.frombuffer(b"".join(levels), np.uint8).reshape(len(levels), -1)
        return Questions(
            np.array(column, np.int32),
            np.array(last_bin, np.int32),
            np.array(missing_left, np.bool_),
            np.unpackbits(bits, axis=1).astype(np.bool_),
        )


# --- warm-up ---------------------------------------------------------------------------------------------------------


def warmup(job: Any) -> Rehearsal:
    """The same job with two trees, on a few made-up rows of two parties."""
    small = replace(
        job, parties=("a", "b"), label_holder="a", boosting=replace(job.boosting, n_iterations=2, max_depth=3)
    )
    classes = getattr(job, "classes", None)
    return small, lambda: {
        name: made_up_rows(small, has_labels=name == "a", n_rows=400, classes=classes) for name in small.parties
    }
