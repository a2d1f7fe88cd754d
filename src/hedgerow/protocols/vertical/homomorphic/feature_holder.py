"""A feature holder: columns but no labels and no key. It ends with its own questions, not with trees or leaf values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from hedgerow.crypto.additive import Words
from hedgerow.engine.binning import bin_counts
from hedgerow.engine.dtypes import Bools, Ints, RowIds
from hedgerow.engine.growth import LevelSplits
from hedgerow.engine.histogram import Histograms, are_summed, histograms_of
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.errors import ProtocolError
from hedgerow.protocols.vertical.common.agreement import (
    OwnColumns,
    begin_as_feature_holder,
    check_table,
    fitted,
    going_on,
    trees_to_grow,
)
from hedgerow.protocols.vertical.common.drawing import ColumnRules, RowDraw
from hedgerow.protocols.vertical.common.joint_forest import (
    Asked,
    JointRows,
    descend_by_sides,
    new_sides,
    packed_columns,
    receive_roles,
)
from hedgerow.protocols.vertical.common.messages import LEAF, OTHERS, YOURS, bytes_for
from hedgerow.protocols.vertical.common.parts import OwnerPart
from hedgerow.protocols.vertical.common.watching import hear
from hedgerow.protocols.vertical.homomorphic import messages
from hedgerow.protocols.vertical.homomorphic.job import BLOCK_ROWS, HomomorphicJob
from hedgerow.protocols.vertical.homomorphic.noisy_sums import HolderState, LevelNoise, SumNoise, begin_keeping
from hedgerow.protocols.vertical.homomorphic.sums import ColumnSums
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def feature_holder(me: Party, job: HomomorphicJob, data: PartyData | None) -> OwnerPart:
    """A feature holder, from its table to its part of the model."""
    job.check_installed()
    data = check_table(me.name, data, needs_values=not job.has_noise)
    described = job.own_columns(me.name, data.table)
    data, _ = fitted(me, job, data, described, classes=None, on_bad_rows="map")
    data, earlier = going_on(me.name, data)
    columns = OwnColumns(me.name, job, data, job.bins(me.name, data.table))
    noise = SumNoise.plan(job, job.public_loss(), columns.n_rows, len(columns.features))
    if noise is not None:
        begin_keeping(me)
    begin_as_feature_holder(me, job, data)
    n_trees = trees_to_grow(me, job)
    n_outputs = n_trees // job.boosting.n_iterations
    stops_early, watched, n_earlier = job.boosting.early_stopping_rounds is not None, None, 0
    if job.counts_rows:
        n_bytes = bytes_for(columns.n_rows) if stops_early else 0
        told = me.recv(job.label_holder, messages.CountedRows, n_watched_bytes=n_bytes)
        watched = np.unpackbits(told.watched, count=columns.n_rows).astype(np.bool_) if stops_early else None
        n_earlier = told.n_earlier
    draw = RowDraw(job.boosting, columns.n_rows, watched)
    if noise is not None:  # of more than two classes each has trees of its own
        loss = job.public_loss(max(n_outputs, 2))
        noise = SumNoise.plan(job, loss, columns.n_rows, len(columns.features))
    n_grown, state = me.go_on(HolderState, job)
    asked, level_noise = Asked(state, earlier), None if noise is None else LevelNoise(me, job, noise, n_grown)
    holding = _Holding(me, job, columns, asked, level_noise)

    def counted(number: int) -> Bools | None:
        return draw.for_iteration(number // n_outputs) if job.counts_rows else None

    for tree in range(n_grown, n_trees + stops_early):
        if stops_early and tree and tree % n_outputs == 0 and (n_kept := hear(me, job)):
            asked.keep_first(n_kept * n_outputs)
            break
        if tree == n_grown or job.fresh_randomness:
            holding.begin_keys()
        holding.begin_tree(tree, counted(n_earlier + tree))
        while holding.grow_level():
            pass
        holding.end_tree(tree)
    meta = {"stamp": None, **({} if noise is None else {"noise": noise.facts(job)})}
    return OwnerPart(me.name, job.label_holder, job.NAME, job.run_id, columns.features, holding.asked.questions(), meta)


class _Holding:
    """Encrypted rows, the party's own columns, and where the rows stand."""

    def __init__(
        self, me: Party, job: HomomorphicJob, columns: OwnColumns, asked: Asked, noise: LevelNoise | None
    ) -> None:
        self._me, self._job, self._to, self.asked, self._noise = me, job, job.label_holder, asked, noise
        features, self._codes = columns.features, columns.codes
        self._n_bins, self._is_categorical = bin_counts(features)
        self._sums = ColumnSums(columns.codes, self._n_bins + 1, columns.n_threads)
        self._encrypted = job.holder(columns.n_rows)
        nothing = (np.zeros(columns.n_rows), None, Loss("squared"), np.zeros(1), Quantiser(1.0, 1.0))
        self._rows = JointRows(
            packed_columns(columns.codes, features, columns.n_threads), *nothing, n_threads=columns.n_threads
        )

    def begin_keys(self) -> None:
        """What all may know of new keys."""
        sizes = self._encrypted.sizes
        if sizes.key:
            self._encrypted.take_key(self._me.recv(self._to, messages.PublicKey, n_words=sizes.key).words)
        if sizes.point:
            self._receive_rows(messages.RowPoints, sizes.point, self._encrypted.take_points)

    def _receive_rows(
        self,
        kind: type[messages.RowPoints | messages.EncryptedRows],
        n_words: int,
        take: Callable[[int, Words], None],
    ) -> None:
        """All rows, block by block, checked as they come."""
        n_rows = self._rows.n_rows
        for first in range(0, n_rows, BLOCK_ROWS):
            n_block = min(BLOCK_ROWS, n_rows - first)
            take(first, self._me.recv(self._to, kind, first_row=first, n_block=n_block, n_words=n_words).words)

    def begin_tree(self, tree: int, counted: Bools | None) -> None:
        """A new order of columns, keys of this tree, and the encrypted gradients; all rows stand at the root.

        Where it matters which column is which, they come in their own order. `counted`: rows that count, where numbers
        of rows decide something.
        """
        self._order = np.arange(len(self._n_bins))
        if not ColumnRules.matter(self._job.boosting):
            self._order = np.argsort(self._me.rng.words(len(self._n_bins)), kind="stable")
        self._rows.counted = counted
        self._sums.lay_out(self._order)
        n_bins, is_categorical = self._n_bins[self._order], self._is_categorical[self._order]
        self._me.send(self._to, messages.ColumnOrder(n_bins.astype(np.int32), is_categorical))
        sizes = self._encrypted.sizes
        if sizes.tree:
            self._encrypted.take_tree(self._me.recv(self._to, messages.TreeKeys, n_words=sizes.tree).words)
        self._receive_rows(messages.EncryptedRows, sizes.row, self._encrypted.take_rows)
        self._rows.start_tree()
        zero = np.zeros(1, np.int64)
        built = zero[are_summed(self._rows.node_counts, self._job.boosting.min_rows_per_sum)]
        self._where, self._depth, self._n_leaves = Histograms(zero, built, built - 1), 0, 1
        if self._noise is not None:
            self._noise.begin_tree(tree, self.asked.state())

    def end_tree(self, tree: int) -> None:
        """Keep what is needed to go on."""
        self.asked.end_tree()
        state = self.asked.state()
        kept = HolderState(questions=state.questions, n_asked=state.n_asked)
        if self._noise is not None:
            kept = self._noise.after_tree(state)
        self._me.keep(tree + 1, kept)

    def grow_level(self) -> bool:
        """Sums of the level, then what becomes of its nodes. Whether the tree goes on."""
        me, rows, job = self._me, self._rows, self._job
        if len(self._where.built):
            self._send_sums()
        n_nodes, fewest = len(rows.node_counts), job.boosting.min_rows_per_sum
        counts = np.where(are_summed(rows.node_counts, fewest), rows.node_counts, 0)  # who is not summed does not split
        possible = LevelSplits.none(n_nodes)
        possible.feature[:] = 0  # any node may be won: the label holder knows the sums
        most = job.boosting.max_leaves
        room = n_nodes if most is None else most - self._n_leaves
        roles = receive_roles(me, self._to, messages.Winners, possible, room=room, counts=counts)
        mine, others, splitting = roles == YOURS, roles == OTHERS, roles != LEAF
        rows.sides[:] = 0
        if mine.any():
            splits = self._own_splits(np.flatnonzero(mine), n_nodes)
            rows.write_sides(splits.feature, splits.goes_left)
            handles = self.asked.handles(splits, np.flatnonzero(mine))
            me.send(self._to, messages.WhichWay(handles, np.packbits(rows.sides)))
        self._depth += 1
        n_splitting = int(splitting.sum())
        self._n_leaves += n_splitting
        if self._depth == job.boosting.max_depth or self._n_leaves == most or not n_splitting:
            return False
        if others.any():
            partition = me.recv(self._to, messages.Partition, n_bytes=bytes_for(rows.n_rows))
            in_others = partial(rows.count_sides, nodes=others)
            rows.sides[:] |= new_sides(self._to, partition, rows.n_rows, in_others, known=rows.sides)
        descend_by_sides(rows, splitting, last=False)
        splits_here = np.where(splitting, 0, -1)
        self._where = histograms_of(rows.node_counts, splits_here, self._where.slot, fewest)
        return True

    def _send_sums(self) -> None:
        """Of the nodes of the level that are summed, by their numbers of rows and not by what anybody says."""
        me, summed, n_words = self._me, self._where.built, self._encrypted.sizes.total
        totals = me.recv(self._to, messages.NodeTotals, n_summed=len(summed), n_words=n_words).words
        nodes = [self._rows.of_node(int(node)) for node in summed]
        if self._noise is None:
            me.send(self._to, messages.EncryptedSums(self._sums.encrypted(self._encrypted, nodes, totals, me.rng)))
            if self._job.boosting.min_samples_leaf > 1:
                counts = [self._counts_of(rows) for rows in nodes]
                me.send(self._to, messages.BinCounts(np.array(counts, np.int32)))
            return
        noise = self._noise.for_level(nodes, self._sums.n_sums)
        words = self._sums.encrypted(self._encrypted, nodes, totals, me.rng, noise)
        me.send(self._to, messages.NoisySums(words), event=self._noise.event)

    def _counts_of(self, rows: RowIds) -> Ints:
        """How many of some rows, of those that count, have each code of each column, in this tree's order."""
        rows = rows if self._rows.counted is None else rows[self._rows.counted[rows]]
        columns = zip(self._codes[self._order], self._n_bins[self._order].tolist(), strict=True)
        return np.concatenate([np.bincount(codes[rows], minlength=n_bins + 1) for codes, n_bins in columns])

    def _own_splits(self, won: Ints, n_nodes: int) -> LevelSplits:
        """The splits of nodes that it won: of equally good ones the first of its columns. ProtocolError for others.

        A column of numbers is cut after one of its bins: codes that were picked would be looked up, not cut.
        """
        n_columns = len(self._order)
        told = self._me.recv(
            self._to, messages.YourSplits, n_nodes=n_nodes, n_columns=n_columns, most_splits=len(won) * n_columns
        )
        feature = self._order[told.place]
        first = np.lexsort((feature, told.node))
        _, starts = np.unique(told.node[first], return_index=True)
        chosen = first[starts]
        feature, node, last_bin, missing_left = (
            feature[chosen],
            told.node[chosen],
            told.bin[chosen],
            told.missing_left[chosen],
        )
        goes_left = np.unpackbits(told.goes_left[chosen], axis=1, bitorder="little")
        code, n_bins = np.arange(goes_left.shape[1]), self._n_bins[feature]
        after_bin = (code <= last_bin[:, None]) | (code == n_bins[:, None]) & missing_left[:, None]
        is_cut = (last_bin >= 0) & (last_bin < n_bins) & (goes_left == after_bin).all(axis=1)
        follows_gaps = (goes_left == missing_left[:, None]) | (code < n_bins[:, None])
        is_by_levels = (last_bin == -1) & follows_gaps.all(axis=1)
        fits = np.where(self._is_categorical[feature], is_by_levels, is_cut)
        if not np.array_equal(node, won) or not fits.all():
            raise ProtocolError(f"{self._to} sent {told.NAME} with splits that are not of the nodes that were won")
        splits = LevelSplits.none(n_nodes)
        splits.feature[node], splits.bin[node] = feature, last_bin
        splits.missing_left[node], splits.goes_left[node] = missing_left, goes_left
        return splits
