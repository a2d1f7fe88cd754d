"""Trees that grow where every party sums its own columns, and the conversation about splits that everybody may see.

Each party knows the rows of every node, nobody another's values. All hold the same gradients, so each finds the best
split of its own columns by itself. Somebody compares their gains; the winner of a node says which of its rows go right,
one bit each, and all parties move their rows alike:

    best()                    the best split of each node among its own columns      (gains are compared elsewhere)
    rows.write_sides(...)     bits of the nodes that were won here                   (bits of the others are received)
    divide(...)               rows descend by the bits; sums of both sides follow from them

The bits of a level lie in one spare column: nodes of a level have no row in common.

Two protocols have the conversation in common, each with messages of its own that have the same fields:

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.binning import FeatureBins, bin_counts
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, RowIds
from hedgerow.engine.ensemble import Ensemble, Tree, TreeStack
from hedgerow.engine.growth import LevelSplits, TreeGrower
from hedgerow.engine.histogram import PackedColumns, pack, with_spare_column
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser
from hedgerow.engine.rows import Rows, translate
from hedgerow.engine.splitting import MIN_GAIN
from hedgerow.errors import ProtocolError
from hedgerow.protocols.made_up import made_up_rows
from hedgerow.protocols.vertical.common.agreement import VerticalJob
from hedgerow.protocols.vertical.common.drawing import ColumnRules, RowDraw
from hedgerow.protocols.vertical.common.messages import LEAF, MOST_GAIN, OTHERS, YOURS, SplitColumns, bytes_for
from hedgerow.protocols.vertical.common.parts import (
    EITHER_WAY,
    LabelHolderPart,
    OwnerPart,
    Question,
    Questions,
    composite_features,
    with_handles,
)
from hedgerow.protocols.vertical.common.states import ForestState, OwnerState
from hedgerow.protocols.vertical.common.watching import Watch
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import Rehearsal

# --- growth ----------------------------------------------------------------------------------------------------------


def packed_columns(codes: Bytes, features: Sequence[FeatureBins], n_threads: int = 1) -> PackedColumns:
    """A party's own codes as rows want them, with a column to spare."""
    return with_spare_column(pack(codes, *bin_counts(features), n_threads=n_threads))


class JointRows(Rows):
    """One party's columns of rows that all parties have.

    Those that are not `counted` are in no sum and no number of rows. They walk down the trees as the others do, and
    have scores.
    """

    counted: Bools | None = None  # None: all. To be set before a tree is started
    sizes_of_all = False  # whether numbers of rows are of all rows, because others do not know which are counted

    def start_tree(self, output: int = 0, **sample: Any) -> None:
        """All rows stand at the root."""
        super().start_tree(output, **sample)
        self.take_values(output)
        if self.counted is not None and not self.sizes_of_all:
            self.node_counts = np.array([self.counted.sum()], np.int64)

    def take_values(self, output: int = 0) -> None:
        """Sum the present gradients of an output from now on."""
        self.values = self.gradients_packed[output]
        if self.counted is not None:
            self.values = np.where(self.counted, self.values, 0)

    def histograms(self, nodes: Ints, slots: Ints, cells: Ints, *, counts: bool = False) -> None:
        """Of rows that count."""
        if not counts or self.counted is None:
            super().histograms(nodes, slots, cells, counts=counts)
            return
        values, self.values = self.values, self.counted.astype(np.int64)
        super().histograms(nodes, slots, cells)
        self.values = values

    def descend(self, feature: Ints, goes_left: Bytes, *, last: bool = False) -> None:
        """Move to the next level; its numbers of rows are of those that count."""
        super().descend(feature, goes_left, last=last)
        if self.counted is not None and not self.sizes_of_all:
            self.node_counts = np.zeros(len(self.node_counts), np.int64)
            for segment in self.segments():
                count_marked(self.counted, *segment, self.node_counts)

    def leaf_quantiles(self, n_leaves: int, counted: Bools | None = None) -> Floats:
        """Of rows that count."""
        return super().leaf_quantiles(n_leaves, self.counted if counted is None else counted)

    @property
    def spare_feature(self) -> int:
        """The feature that stands for every other party's splits."""
        return self.layout.n_features - 1

    @property
    def sides(self) -> Bytes:
        """By row: 1 if it goes right at this level. To be written by the caller, or by `write_sides`."""
        spare: Bytes = self.columns[-1]
        return spare

    def write_sides(self, feature: Ints, goes_left: Bytes) -> None:
        """The sides of the rows of nodes that split on a feature of this party (-1: another's node, or a leaf)."""
        decisions = self.decisions(feature, goes_left)
        tasks = [(*decisions, *segment, self.sides) for segment in self.segments()]
        self.run(write_sides, tasks, updates=self.n_rows)

    def count_sides(self, sides: Bytes, nodes: Bools) -> int:
        """How many rows of these nodes go right by `sides`, which need not be the present ones."""
        return sum(count_sides(sides, *segment, nodes) for segment in self.segments())

    def sums_of_sides(self, wanted: Bools) -> tuple[Ints, Ints]:
        """Packed sums and numbers of rows of the left and of the right side of wanted nodes: [nodes, 2] each."""
        segments = self.segments()
        sums, counts = np.zeros((2, len(segments), len(wanted), 2), np.int64)
        marks = np.ones(self.n_rows, np.bool_) if self.counted is None else self.counted
        tasks = [
            (self.values, marks, self.sides, *segment, wanted, sums[t], counts[t]) for t, segment in enumerate(segments)
        ]
        self.run(sum_sides, tasks, updates=self.n_rows)
        return sums.sum(axis=0), counts.sum(axis=0)


class JointGrower(TreeGrower):
    """Grows one tree after the other on a party's own columns and on what it is told about the others'.

    The tree that `finish` returns has the spare feature (the one after all its own) where another party's split won,
    with 0 for left; `mark_foreign_splits` marks such nodes in a `LevelSplits`. By a column with a monotone constraint,
    it is one of the two features after that.
    """

    def __init__(
        self,
        rows: JointRows,
        rules: BoostingParams,
        loss: Loss,
        quantiser: Quantiser,
        features: Sequence[FeatureBins],
        *,
        weighted: bool = False,
        signs: Ints | None = None,
    ) -> None:
        """`signs` of its own columns, where some columns of the job are monotone."""
        edges = [*(feature.edges for feature in features), *[EITHER_WAY] * len(FOREIGN_SIGNS)]
        has_signs = signs is not None and len(signs)
        own = (*map(int, signs), *FOREIGN_SIGNS) if signs is not None and has_signs else None
        local = replace(rules, monotone=own, interaction=None)
        super().__init__(rows, local, loss, quantiser, edges, weighted=weighted)
        self.joint = rows

    def begin(self) -> None:
        """A new tree from the rows' present gradients; `rows.start_tree` has been called."""
        super().begin()
        self.rows_of_nodes = [self.joint.node_counts]  # by level
        self._row_counts = np.empty((0, 2), np.int64)

    @property
    def totals(self) -> Ints:
        """Packed sums of the nodes of the newest level."""
        return self.tree.newest.total

    @property
    def n_active(self) -> int:
        """Nodes of the newest level."""
        return len(self.totals)

    @property
    def n_leaves(self) -> int:
        """Leaves of the tree so far."""
        return self.tree.n_leaves

    @property
    def room(self) -> int:
        """How many nodes may still split."""
        limit = self.rules.max_leaves
        return self.n_active if limit is None else limit - self.n_leaves

    def is_last(self, n_splitting: int) -> bool:
        """Whether the children of this level are leaves, if this many of its nodes split."""
        return self.depth + 1 == self.max_depth or self.n_leaves + n_splitting == self.rules.max_leaves

    def best(self, allowed: Bools | None = None) -> LevelSplits:
        """The best split of every node of the newest level among this party's columns, or the `allowed` ones."""
        return self.evaluate(self.tree.newest, None if allowed is None else with_spare(allowed))

    def divide(self, splits: LevelSplits, *, last: bool = False) -> bool:
        """Split the nodes of the level that have a feature by the rows' `sides`; whether the tree goes on."""
        splitting = splits.feature >= 0
        sums, self._row_counts = self.joint.sums_of_sides(splitting)
        splits.left_sum[:] = sums[:, 0]
        return super().divide(splits, last=last or self.is_last(int(np.count_nonzero(splitting))))

    def descend(self, feature: Ints, splits: LevelSplits, *, last: bool) -> None:  # noqa: ARG002 - sides say it all
        """Rows go where their sides say."""
        self.rows_of_nodes.append(self._row_counts[feature >= 0].reshape(-1))
        descend_by_sides(self.joint, feature >= 0, last=last)


FOREIGN_SIGNS = (0, 1, -1)
"""Of foreign columns: without a monotone constraint, rising, falling; each has a feature of its own in trees."""


def with_spare(allowed: Bools) -> Bools:
    """[nodes, columns] with one more column, for the spare feature."""
    return np.pad(allowed, ((0, 0), (0, 1)), constant_values=True)


def mark_foreign_splits(splits: LevelSplits, nodes: Bools, spare_feature: int, signs: Ints | None = None) -> None:
    """Write down that other parties' splits won these nodes; `signs` [nodes] are those of monotone columns."""
    splits.feature[nodes] = spare_feature if signs is None else (spare_feature + signs % len(FOREIGN_SIGNS))[nodes]
    splits.bin[nodes] = 0
    splits.missing_left[nodes] = False


def descend_by_sides(rows: JointRows, splitting: Bools, *, last: bool) -> None:
    """Rows of splitting nodes go where their sides say; the other nodes are leaves."""
    goes_left = np.zeros((len(splitting), 256), np.uint8)
    goes_left[:, 0] = 1
    rows.descend(np.where(splitting, rows.spare_feature, -1), goes_left, last=last)


def choose_winners(gains: Floats, room: int, min_gain: float) -> Ints:
    """Per node the place of the winner among gains [places, nodes], -1 where nobody splits it.

    The first of equals wins, as the first column does in one table. Where leaves are limited, the best nodes go first.
    """
    winner: Ints = np.argmax(gains, axis=0)
    top = gains.max(axis=0)
    winner[~((top > MIN_GAIN) & (top >= min_gain))] = -1
    best_first = np.argsort(-top, kind="stable")
    splitting = best_first[winner[best_first] >= 0]
    winner[splitting[max(room, 0) :]] = -1
    return winner


@kernel
def count_marked(
    marks: Bools,  # in  [rows]
    row_ids: RowIds,  # in
    starts: Ints,  # in  [nodes] this thread's segments
    stops: Ints,
    counts: Ints,  # in/out [nodes]
) -> None:
    """Add to each node's number that of its rows that are marked."""
    for node in range(counts.shape[0]):
        rows = row_ids[starts[node] : stops[node]]
        for k in range(rows.shape[0]):
            counts[node] += marks[np.uint64(rows[k])]


@kernel
def write_sides(
    columns: Bytes,  # in  [columns, rows]
    column_of_feature: Ints,
    bin_of_code: Bytes,
    feature: Ints,  # in  [nodes] -1: the node's rows are left alone
    goes_left: Bytes,  # in  [nodes, 256] by the feature's bin
    row_ids: RowIds,  # in
    starts: Ints,  # in  [nodes] this thread's segments
    stops: Ints,
    sides: Bytes,  # out [rows]
) -> None:
    """sides[row] = 1 for the rows that go right."""
    by_code = np.empty(256, np.uint8)
    for node in range(feature.shape[0]):
        if feature[node] < 0:
            continue
        column = columns[column_of_feature[feature[node]]]
        translate(goes_left[node], bin_of_code[feature[node]], by_code)
        rows = row_ids[starts[node] : stops[node]]
        for k in range(rows.shape[0]):
            row = np.uint64(rows[k])
            sides[row] = 1 - by_code[np.uint64(column[row])]


@kernel
def sum_sides(
    values: Ints,  # in  [rows] packed gradients
    marks: Bools,  # in  [rows] those that count
    sides: Bytes,  # in  [rows]
    row_ids: RowIds,  # in
    starts: Ints,  # in  [nodes] this thread's segments
    stops: Ints,
    wanted: Bools,  # in  [nodes]
    sums: Ints,  # out [nodes, 2]
    counts: Ints,  # out [nodes, 2]
) -> None:
    """Sums over the rows of both sides of each wanted node."""
    for node in range(wanted.shape[0]):
        if not wanted[node]:
            continue
        total = np.int64(0)
        right = np.int64(0)
        n_rows = np.int64(0)
        n_right = np.int64(0)
        rows = row_ids[starts[node] : stops[node]]
        for k in range(rows.shape[0]):
            row = np.uint64(rows[k])
            side, mark = np.int64(sides[row]), np.int64(marks[row])
            value = values[row]
            total += value
            right += value & -side
            n_rows += mark
            n_right += side & mark
        sums[node, 0] = total - right
        sums[node, 1] = right
        counts[node, 0] = n_rows - n_right
        counts[node, 1] = n_right


@kernel
def count_sides(
    sides: Bytes,  # in  [rows]
    row_ids: RowIds,  # in
    starts: Ints,  # in  [nodes]
    stops: Ints,
    wanted: Bools,  # in  [nodes]
) -> int:
    """Rows of wanted nodes whose side is 1."""
    n_right = 0
    for node in range(wanted.shape[0]):
        if not wanted[node]:
            continue
        rows = row_ids[starts[node] : stops[node]]
        for k in range(rows.shape[0]):
            n_right += sides[np.uint64(rows[k])]
    return n_right


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
    """Whose each foreign split of the label holder's trees is, and what its owner calls it; parties go by places."""

    def __init__(self, parties: Sequence[str], label_holder: str, earlier: LabelHolderPart | None = None) -> None:
        """`earlier`: a part whose trees come first, and whose parties need not take part any more."""
        asked = {} if earlier is None else earlier.handles
        self._parties, self._label_holder = (
            (*parties, *(party for party in asked if party not in parties)),
            label_holder,
        )
        self._earlier, self._n_earlier = earlier, np.array([asked.get(party, 0) for party in self._parties], np.int64)
        self._n_handles = self._n_earlier.copy()
        self._levels = [np.empty((0, 3), np.int64)]  # [foreign nodes, (tree, place, handle)] each

    def n_handles_of(self, place: int) -> int:
        """Questions of a party so far."""
        return int(self._n_handles[place])

    def add_level(self, tree: int, place: Ints, handle: Ints) -> None:
        """The foreign splits of the next level, in the order of nodes."""
        self.add(np.column_stack([np.full(len(place), tree), place, handle]))

    def add(self, splits: Ints) -> None:
        """Some more: [foreign splits, (tree, place, handle)]."""
        np.maximum.at(self._n_handles, splits[:, 1], splits[:, 2] + 1)
        self._levels.append(splits)

    @property
    def splits(self) -> Ints:
        """All of them, tree by tree and level by level: [foreign splits, (tree, place, handle)]."""
        return np.concatenate(self._levels)

    def keep_first(self, n_trees: int) -> None:
        """Forget what only later trees ask: handles are numbered in the order of their first use."""
        splits = self.splits
        self._n_handles, self._levels = self._n_earlier.copy(), [np.empty((0, 3), np.int64)]
        self.add(splits[splits[:, 0] < n_trees])

    @property
    def n_handles(self) -> dict[str, int]:
        """Questions of each feature holder."""
        named = zip(self._parties, self._n_handles.tolist(), strict=True)
        return {party: n for party, n in named if party != self._label_holder}

    def in_trees(self, trees: Sequence[Tree], n_own: int) -> list[Tree]:
        """Trees over its own columns and handles, from trees with columns from `n_own` on for all foreign splits.

        Those of the earlier part come first.
        """
        first = n_own + np.cumsum([0, *self._n_handles[:-1]])
        splits, finished = self.splits, self._earlier_trees(n_own, first)
        ends = np.searchsorted(splits[:, 0], np.arange(len(trees)), side="right")
        for tree, of_tree in zip(trees, np.split(splits, ends)[:-1], strict=True):
            _, place, handle = of_tree.T
            columns = tree.feature.copy()
            columns[tree.feature >= n_own] = first[place] + handle
            finished.append(with_handles(tree, columns, n_own))
        return finished

    def _earlier_trees(self, n_own: int, first: Ints) -> list[Tree]:
        if self._earlier is None:
            return []
        moved = np.arange(len(self._earlier.ensemble.features))
        for party, n_handles in self._earlier.handles.items():
            before = self._earlier.first_column(party)
            moved[before : before + n_handles] = first[self._parties.index(party)] + np.arange(n_handles)
        trees = self._earlier.ensemble.trees
        columns = [np.where(tree.feature >= 0, moved[tree.feature], -1).astype(np.int32) for tree in trees]
        return [with_handles(tree, column, n_own) for tree, column in zip(trees, columns, strict=True)]

    def part(
        self,
        job: VerticalJob,
        features: Sequence[FeatureBins],
        trees: Sequence[Tree],
        loss: Loss,
        base_scores: Floats | Sequence[float],
        classes: Sequence[Any] | None,
        meta: dict[str, Any],
    ) -> LabelHolderPart:
        """The label holder's part of the model: all trees over its own columns and handles."""
        mapper, over_all = composite_features(features, self.n_handles), self.in_trees(trees, len(features))
        ensemble = Ensemble(mapper, loss.name, base_scores, trees=over_all, classes=classes, meta=meta)
        return LabelHolderPart(self._label_holder, job.NAME, job.run_id, ensemble, self.n_handles)


class Course(NamedTuple):
    """What the trees of a run go by, besides sums: who is drawn, what is allowed, when it ends, what was before."""

    draw: RowDraw
    columns: ColumnRules | None = None  # None where it does not matter which column is which
    watch: Watch | None = None
    earlier: LabelHolderPart | None = None

    @property
    def n_earlier(self) -> int:
        """Trees of the earlier part."""
        return 0 if self.earlier is None else self.earlier.n_trees


class JointForest(ABC):
    """Grows trees together with the feature holders, and remembers whose each split is."""

    WORDS: ModuleType  # the protocol's messages
    KEEPS_ALL_TREES = False  # or only iterations: of several classes each has a tree, from the same scores
    OTHERS_CHOOSE = True  # whether feature holders look for splits themselves, and so go by rules that follow splits

    def __init__(
        self,
        me: Party,
        job: VerticalJob,
        rows: JointRows,
        grower: JointGrower,
        begin_tree: Callable[[], None],
        *,
        tells_leaves: bool,
        course: Course,
    ) -> None:
        """`begin_tree` puts all rows at the root of a new tree, with its gradients.

        `tells_leaves`: whether feature holders must know the rows of leaves, as who keeps scores must.
        """
        self._begin_tree, self.course, self._all = begin_tree, course, job
        self.me, self._parties = me, job.parties
        self._n_trees, self._min_gain = job.boosting.n_iterations * rows.loss.n_outputs, job.boosting.min_gain
        self.rows, self.grower, self._tells_leaves = rows, grower, tells_leaves
        self._follows_splits = ColumnRules.follow_splits(job.boosting)
        self._place = job.parties.index(me.name)
        self.trees: list[Tree] = []
        self.foreign = ForeignSplits(job.parties, job.label_holder, course.earlier)
        self.rounds = 0

    def go_on(self, state: ForestState) -> None:
        """Begin with what there was after some trees; the rows stand there already."""
        self.trees, self.rounds = state.trees.trees(), state.rounds
        if state.foreign is not None:
            self.foreign.add(state.foreign)

    def state(self) -> ForestState:
        """What there is after the last tree."""
        curve = () if self.course.watch is None else self.course.watch.curve
        return ForestState(trees=TreeStack.of(self.trees), foreign=self.foreign.splits, rounds=self.rounds, curve=curve)

    def keep_released(self, released: Mapping[str, int]) -> None:
        """Keep that this much will have been released, before it is: a tree that is broken off stays in the count."""
        if self.me.checkpoints is not None:
            before = self.me.kept(len(self.trees), ForestState) or ForestState()
            self.me.keep(len(self.trees), replace(before, released=released))

    @abstractmethod
    def own_best(self) -> LevelSplits:
        """The best splits of its own columns; the feature holders have what they need to find theirs."""

    @abstractmethod
    def gains_of(self, party: str, n_nodes: int) -> Floats:
        """What a feature holder sends: the gain of its best split of each node."""

    @property
    def record(self) -> dict[str, Any]:
        """What the model says of its trees, where there is something to say."""
        return {} if self.course.watch is None else self.course.watch.record

    @property
    def own_allowed(self) -> Bools | None:
        """Which of its own columns nodes of the level may ask about; None: all."""
        return None if self.course.columns is None else self.course.columns.allowed(self.me.name)

    @property
    def number(self) -> int:
        """Of the next tree, among those of an earlier part too."""
        return self.course.n_earlier + len(self.trees)

    def grow(self) -> None:
        """All trees, or as many as rows that are watched are the better for."""
        while not self._ends():
            done = len(self.trees)
            self.me.report(done, self._n_trees)
            self.rows.counted = self.course.draw.for_iteration(self.number // self.rows.loss.n_outputs)
            if self.course.columns is not None:
                self.course.columns.begin_tree(self.number)
            self._begin_tree()
            while self._grow_level():
                pass
            self.trees.append(self.grower.finish())
            if self.course.watch is not None and self._is_between_iterations:
                self.course.watch.see(self.rows.scores)
            # An earlier attempt may have drawn what comes next, and sent it.
            if self.me.checkpoints is not None and (self.KEEPS_ALL_TREES or self._is_between_iterations):
                before = self.me.kept(done + 1, ForestState)
                self.me.keep(done + 1, replace(self.state(), drawn=None if before is None else before.drawn))
        self.me.report(self._n_trees, self._n_trees)

    @property
    def _is_between_iterations(self) -> bool:
        return len(self.trees) % self.rows.loss.n_outputs == 0

    def _ends(self) -> bool:
        """Whether there are all trees, or watched rows say so; then only what is kept is left."""
        watch = self.course.watch
        if watch is None or not self.trees or not self._is_between_iterations:
            return len(self.trees) == self._n_trees
        n_kept = watch.tell(self.me, self._all) * self.rows.loss.n_outputs
        if n_kept:
            self.trees = self.trees[:n_kept]
            self.foreign.keep_first(n_kept)
        return n_kept > 0

    def _grow_level(self) -> bool:
        me, grower, rows = self.me, self.grower, self.rows
        if self.course.columns is not None:
            self.course.columns.begin_level(grower.n_active)
        splits = self.own_best()
        own = np.where(splits.feature >= 0, splits.gain, -1.0)
        gains = np.array([own if party == me.name else self._checked_gains(party, len(own)) for party in self._parties])
        winner = choose_winners(gains, grower.room, self._min_gain)
        for place, party in enumerate(self._parties):
            if party != me.name:
                roles = np.where(winner < 0, LEAF, np.where(winner == place, YOURS, OTHERS)).astype(np.uint8)
                me.send(party, self.WORDS.Winners(roles))
        splits.gain[:] = gains.max(axis=0)
        splits.feature[winner != self._place] = -1
        rows.sides[:] = 0
        rows.write_sides(splits.feature, splits.goes_left)
        self.ask_winners(winner)
        signs = self._signs_of_splits(winner, splits.feature) if self._follows_splits else None
        mark_foreign_splits(splits, (winner >= 0) & (winner != self._place), rows.spare_feature, signs)
        if self._tells_leaves or not grower.is_last(int((winner >= 0).sum())):
            self.tell_sides(winner)
        self.rounds += 2
        return grower.divide(splits)

    def _checked_gains(self, party: str, n_nodes: int) -> Floats:
        gains = self.gains_of(party, n_nodes)
        if (gains[self.rows.node_counts == 0] > 0.0).any():  # it would go on splitting it, level after level
            raise ProtocolError(f"{party} says that splitting a node without rows gains something")
        return gains

    def ask_winners(self, winner: Ints) -> None:
        """Which way the rows go in nodes that others won, and what they call those splits."""
        rows = self.rows
        handles = np.zeros(len(winner), np.int64)
        for place, party in enumerate(self._parties):
            nodes = np.flatnonzero(winner == place)
            if party == self.me.name or not len(nodes):
                continue
            most = self.foreign.n_handles_of(place) + len(nodes)  # if every question is new
            answer = self.me.recv(
                party, self.WORDS.WhichWay, n_won=len(nodes), most_handles=most, n_bytes=bytes_for(rows.n_rows)
            )
            handles[nodes] = answer.handles
            rows.sides[:] |= new_sides(party, answer, rows.n_rows, partial(rows.count_sides, nodes=winner == place))
        foreign = (winner >= 0) & (winner != self._place)
        self.foreign.add_level(len(self.trees), winner[foreign], handles[foreign])

    def _signs_of_splits(self, winner: Ints, own: Ints) -> Ints:
        """By which column each node splits: what its winner says; and if need be everybody is told."""
        rules = self.course.columns
        if rules is None:
            raise ProtocolError("columns have constraints, but nobody knows which are whose")
        columns = np.full(len(winner), -1, np.int64)
        for place, party in enumerate(self._parties):
            nodes = np.flatnonzero(winner == place)
            if len(nodes):
                chosen = own[nodes] if party == self.me.name else self.columns_of(party, nodes)
                columns[nodes] = rules.first(party) + chosen
        if self.OTHERS_CHOOSE:
            self.me.send_all(self._all.feature_holders, SplitColumns(columns.astype(np.int32)))
        return rules.split(columns)

    def columns_of(self, party: str, nodes: Ints) -> Ints:
        """By which of its columns a feature holder splits the nodes that it won, as it says itself."""
        rules = self.course.columns
        if rules is None:
            raise ProtocolError("columns have constraints, but nobody knows which are whose")
        ends = {"first": rules.first(party), "last": rules.first(party) + rules.n_columns[party] - 1}
        told = self.me.recv(party, SplitColumns, n_nodes=len(nodes), **ends)
        return told.columns.astype(np.int64) - rules.first(party)

    def tell_sides(self, winner: Ints) -> None:
        """Everybody's bits to those who need them: not to the winner of all nodes."""
        message: Any = None
        for place, party in enumerate(self._parties):
            if party != self.me.name and ((winner >= 0) & (winner != place)).any():
                message = message or self.WORDS.Partition(np.packbits(self.rows.sides))
                self.me.send(party, message)


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
    """The splits that this party won, in the order in which they were first used; equal ones have one handle.

    Questions of an `earlier` part come first.
    """

    def __init__(self, state: OwnerState | None = None, earlier: OwnerPart | None = None) -> None:
        before = [] if earlier is None else list(earlier.questions.each())
        asked = before if state is None else [Question(*q[:3], bytes.fromhex(q[3])) for q in state.questions]
        self._handles = {question: k for k, question in enumerate(asked)}
        self._n_before, self._n_asked = len(before), [] if state is None else list(state.n_asked)

    def end_tree(self) -> None:
        """So many questions serve the trees so far."""
        self._n_asked.append(len(self._handles))

    def keep_first(self, n_trees: int) -> None:
        """Forget what only later trees ask."""
        n_kept = self._n_asked[n_trees - 1] if n_trees else self._n_before
        self._handles = dict(list(self._handles.items())[:n_kept])

    def state(self, **standing: Any) -> OwnerState:
        """What is kept of them, and how the rows stand."""
        asked = tuple((*q[:3], q.levels.hex()) for q in self._handles)
        return OwnerState(questions=asked, n_asked=tuple(self._n_asked), **standing)

    def handles(self, splits: LevelSplits, nodes: Ints) -> np.ndarray:
        """The handles of some nodes' splits."""
        found = []
        for node in nodes.tolist():
            column, last_bin, missing_left = splits.feature[node], splits.bin[node], splits.missing_left[node]
            found.append(Question.by(int(column), int(last_bin), bool(missing_left), splits.goes_left[node]))
        return self.handles_of(found)

    def handles_of(self, questions: Sequence[Question]) -> np.ndarray:
        """Those of some questions, new or not."""
        return np.array([self._handles.setdefault(each, len(self._handles)) for each in questions], np.int32)

    @property
    def n_handles(self) -> int:
        """How many there are."""
        return len(self._handles)

    def forget_after(self, n_handles: int) -> None:
        """Keep the first ones only."""
        self._handles = dict(list(self._handles.items())[:n_handles])

    def questions(self) -> Questions:
        """All of them, by handle."""
        return Questions.of(self._handles)


# --- warm-up ---------------------------------------------------------------------------------------------------------


def warmup(job: Any) -> Rehearsal:
    """The same job with two trees, on a few made-up rows of two parties."""
    unbound = {"monotone": None, "interaction": None, "early_stopping_rounds": None}  # those of other columns and rows
    trees = replace(job.boosting, n_iterations=2, max_depth=3, min_rows_per_sum=1, **unbound)
    small = replace(job, parties=("a", "b"), label_holder="a", boosting=trees)
    classes = getattr(job, "classes", None)
    return small, lambda: {
        name: made_up_rows(small, has_labels=name == "a", n_rows=400, classes=classes) for name in small.parties
    }
