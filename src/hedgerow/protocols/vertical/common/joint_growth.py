"""Trees that grow where every party sums its own columns: each knows the rows of every node, nobody another's values.

All parties hold the same gradients, so each finds the best split of its own columns by itself. Somebody compares their
gains; the winner of a node says which of its rows go right, one bit each, and all parties move their rows alike:

    best()                    the best split of each node among its own columns      (gains are compared elsewhere)
    rows.write_sides(...)     bits of the nodes that were won here                   (bits of the others are received)
    divide(...)               rows descend by the bits; sums of both sides follow from them

The bits of a level lie in one spare column: nodes of a level have no row in common.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.binning import FeatureBins, bin_counts
from hedgerow.engine.boosting import BoostingParams
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, RowIds
from hedgerow.engine.growth import TreeGrower
from hedgerow.engine.layout import PackedColumns, pack, with_spare_column
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.partition import translate
from hedgerow.engine.rows import Rows
from hedgerow.engine.splitting import MIN_GAIN, LevelSplits

BETWEEN_SIDES = np.array([0.5])
"""The edge of the spare column: 0 means left, 1 means right."""


def packed_columns(codes: Bytes, features: Sequence[FeatureBins], n_threads: int = 1) -> PackedColumns:
    """A party's own codes as rows want them, with a column to spare."""
    return with_spare_column(pack(codes, *bin_counts(features), n_threads=n_threads))


class JointRows(Rows):
    """One party's columns of rows that all parties have."""

    @property
    def spare_feature(self) -> int:
        """The feature that stands for every other party's splits."""
        return self.layout.n_features - 1

    @property
    def sides(self) -> Bytes:
        """By row: 1 if it goes right at this level. To be written by the caller, or by `write_sides`."""
        spare: Bytes = self.packed.columns[-1]
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
        tasks = [(self.values, self.sides, *segment, wanted, sums[t], counts[t]) for t, segment in enumerate(segments)]
        self.run(sum_sides, tasks, updates=self.n_rows)
        return sums.sum(axis=0), counts.sum(axis=0)


class JointGrower(TreeGrower):
    """Grows one tree after the other on a party's own columns and on what it is told about the others'.

    The tree that `finish` returns has the spare feature (the one after all its own) where another party's split won,
    with 0 for left; `mark_foreign_splits` marks such nodes in a `LevelSplits`.
    """

    def __init__(
        self, rows: JointRows, rules: BoostingParams, loss: Loss, quantiser: Quantiser, features: Sequence[FeatureBins]
    ) -> None:
        edges = [*(feature.edges for feature in features), BETWEEN_SIDES]
        super().__init__(rows, rules, loss, quantiser, edges, weighted=False)
        self.joint = rows

    def begin(self) -> None:
        """A new tree from the rows' present gradients; `rows.start_tree` has been called."""
        super().begin()
        self.rows_of_nodes = [np.array([self.joint.n_rows], np.int64)]  # by level
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

    def best(self) -> LevelSplits:
        """The best split of every node of the newest level among this party's columns."""
        return self.evaluate(self.tree.newest)

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


def mark_foreign_splits(splits: LevelSplits, nodes: Bools | Ints, spare_feature: int) -> None:
    """Write down that other parties' splits won these nodes."""
    splits.feature[nodes] = spare_feature
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
        n_right = np.int64(0)
        rows = row_ids[starts[node] : stops[node]]
        for k in range(rows.shape[0]):
            row = np.uint64(rows[k])
            side = np.int64(sides[row])
            value = values[row]
            total += value
            right += value & -side
            n_right += side
        sums[node, 0] = total - right
        sums[node, 1] = right
        counts[node, 0] = rows.shape[0] - n_right
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
