"""The label holder: it alone has labels and keys, opens sums, compares gains, and ends with trees and leaf values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from hedgerow.crypto import elgamal
from hedgerow.crypto.field25519 import Words
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.engine.growth import Children, HistogramStore, LevelSplits
from hedgerow.engine.histogram import Histograms, Layout
from hedgerow.engine.splitting import SplitRules, evaluate_families
from hedgerow.engine.threads import Team
from hedgerow.errors import ProtocolError
from hedgerow.protocols.vertical.common.agreement import (
    OwnColumns,
    begin_as_label_holder,
    check_table,
    labels_and_loss,
)
from hedgerow.protocols.vertical.common.joint_forest import (
    ForestState,
    JointForest,
    JointGrower,
    JointRows,
    packed_columns,
)
from hedgerow.protocols.vertical.common.parts import LabelHolderPart
from hedgerow.protocols.vertical.homomorphic import messages
from hedgerow.protocols.vertical.homomorphic.job import BLOCK_ROWS, HomomorphicJob
from hedgerow.protocols.vertical.homomorphic.messages import KEYS
from hedgerow.protocols.vertical.noised_gradients.noise import exact_start, plain_quantiser
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def label_holder(me: Party, job: HomomorphicJob, data: PartyData | None) -> LabelHolderPart:
    """The label holder, from its table to its part of the model."""
    data = check_table(me.name, data)
    labels, loss = labels_and_loss(me.name, job, data)
    columns = OwnColumns(me.name, job, data)
    n_columns = begin_as_label_holder(me, job, data)
    _, state = me.go_on(ForestState, job)
    quantiser = plain_quantiser(job, loss, columns.n_rows)
    base_score = exact_start(job, loss, labels)
    rows = JointRows(
        packed_columns(columns.codes, columns.features, columns.n_threads),
        labels,
        None,
        loss,
        np.array([base_score]),
        quantiser,
        n_threads=columns.n_threads,
        scores=None if state is None else state.scores,
    )
    grower = JointGrower(rows, job.boosting, loss, quantiser, columns.features)
    forest = _Forest(me, job, rows, grower, n_columns)
    if state is not None:
        forest.go_on(state)
    forest.grow()
    meta = {"privacy": None, "stamp": None, "rounds": {"setup": 1, "training": forest.rounds}}
    return forest.foreign.part(job, columns.features, forest.trees, loss, base_score, data.classes, meta)


class _Forest(JointForest):
    """Trees by sums that feature holders make of encrypted gradients."""

    WORDS = messages

    def __init__(
        self, me: Party, job: HomomorphicJob, rows: JointRows, grower: JointGrower, n_columns: dict[str, int]
    ) -> None:
        super().__init__(me, job, rows, grower, self._begin, tells_leaves=False)
        self._job, self._n_columns, self._team = job, n_columns, Team(grower.rows.n_parts)
        self._randomness: elgamal.RowRandomness | None = None
        self._foreign: dict[str, ForeignColumns] = {}
        self._best: dict[str, list[LevelSplits]] = {}

    def state(self) -> ForestState:
        """How the rows stand too; never a key or a random number."""
        state = super().state()
        return ForestState(trees=state.trees, foreign=state.foreign, rounds=state.rounds, scores=self.rows.scores[0:1])

    def _begin(self) -> None:
        """New keys, under which every row's gradient and hessian go to all feature holders."""
        me, job, rows = self.me, self._job, self.rows
        rows.gradients()
        if self._randomness is None or job.fresh_randomness:
            self._randomness = elgamal.RowRandomness(me.rng, rows.n_rows)
            self._send_blocks(messages.RowPoints, self._randomness.points)
        for party in job.feature_holders:
            told = me.recv(party, messages.ColumnOrder, n_columns=self._n_columns[party])
            self._foreign[party] = ForeignColumns(party, told, self.grower.split_rules)
        key = self._key = elgamal.TreeKey(me.rng, KEYS)
        me.send_all(job.feature_holders, messages.TreeKeys(elgamal.to_wire(key.public, compressed=job.compressed)))
        values, randomness = unpacked(rows.gradients_packed[0]), self._randomness
        self._send_blocks(
            messages.EncryptedRows, lambda first, last: key.encrypt(randomness, first, values[first:last])
        )
        rows.start_tree()
        self.grower.begin()

    def _send_blocks(self, kind: Any, made: Callable[[int, int], Words]) -> None:
        """Blocks of points to everybody, as they are made."""
        n_rows, job = self.rows.n_rows, self._job
        for first in range(0, n_rows, BLOCK_ROWS):
            points = elgamal.to_wire(made(first, min(first + BLOCK_ROWS, n_rows)), compressed=job.compressed)
            self.me.send_all(job.feature_holders, kind(first, points))

    def own_best(self) -> LevelSplits:
        """The feature holders first get what they need besides the rows: the sums of nodes."""
        totals = unpacked(self.grower.totals[self.grower.where.built])
        points = elgamal.to_wire(self._key.encrypt_anew(totals), compressed=self._job.compressed)
        self.me.send_all(self._job.feature_holders, messages.NodeTotals(points))
        return self.grower.best()

    def gains_of(self, party: str, n_nodes: int) -> Floats:  # noqa: ARG002 - the tree knows how many there are
        """From the sums of its columns, as from one's own."""
        foreign, where = self._foreign[party], self.grower.where
        n_sums = len(where.built) * foreign.n_sums
        told = self.me.recv(party, messages.EncryptedSums, n_sums=n_sums, n_words=self._job.n_words)
        points = elgamal.from_wire(told.points)
        cuts = [n_sums * k // self._team.n_threads for k in range(self._team.n_threads + 1)]
        opened = self._team.run(self._key.decrypt, [(points[a:b],) for a, b in itertools.pairwise(cuts)])
        foreign.take(where, np.concatenate(opened), self.grower.totals)
        self._best[party] = foreign.best(where, self.grower.tree.newest, self.rows.node_counts)
        first = self._best[party][0]
        return np.where(first.feature >= 0, first.gain, -1.0)

    def ask_winners(self, winner: Ints) -> None:
        """Whoever won is told by which of its columns, before it says which way rows go."""
        for place, party in enumerate(self._job.parties):
            nodes = np.flatnonzero(winner == place)
            if party != self.me.name and len(nodes):
                self.me.send(party, your_splits(self._best[party], nodes))
        super().ask_winners(winner)


def unpacked(sums: Ints) -> Ints:
    """[n, (gradient, hessian)] of packed sums."""
    return np.column_stack([sums >> 32, sums & 0xFFFFFFFF])


def your_splits(best: list[LevelSplits], nodes: Ints) -> messages.YourSplits:
    """All splits that are as good as the best one of each of these nodes."""
    tied = [(splits, nodes[splits.feature[nodes] >= 0]) for splits in best]
    return messages.YourSplits(
        np.concatenate([which for _, which in tied]).astype(np.int32),
        np.concatenate([splits.feature[which] for splits, which in tied]).astype(np.int32),
        np.concatenate([splits.bin[which] for splits, which in tied]).astype(np.int32),
        np.concatenate([splits.missing_left[which] for splits, which in tied]),
        np.packbits(np.concatenate([splits.goes_left[which] for splits, which in tied]), axis=1, bitorder="little"),
    )


class ForeignColumns:
    """A feature holder's columns as the label holder sees them: sums per code, in an order of this tree's."""

    def __init__(self, party: str, told: messages.ColumnOrder, rules: SplitRules) -> None:
        self._party, self._rules = party, rules
        self._layout = Layout.plain(told.n_bins.astype(np.int64), told.is_categorical)
        n_codes = self._layout.n_codes
        self.n_sums = int(n_codes.sum())
        self._starts = np.cumsum(n_codes) - n_codes
        within = np.arange(self.n_sums) - np.repeat(self._starts, n_codes)
        self._cells = np.repeat(self._layout.first_cell, n_codes) + within
        self._store = HistogramStore(self._layout, 1, with_counts=False)

    def take(self, where: Histograms, opened: Ints, totals: Ints) -> None:
        """Sums [nodes x sums, 2] of the nodes that were summed; ProtocolError unless they add up."""
        sums = opened.reshape(len(where.built), self.n_sums, 2)
        expected = unpacked(totals[where.built])
        added = np.add.reduceat(sums, self._starts, axis=1)
        hessians = sums[:, :, 1]
        if (added != expected[:, None]).any() or (hessians < 0).any() or (hessians > expected[:, 1:]).any():
            raise ProtocolError(f"{self._party} sent sums of bins that do not add up to those of their nodes")
        self._store.reserve(len(where.slot))
        slots = where.slot[where.built]
        self._store.cells[np.ix_(slots, self._cells)] = (sums[:, :, 0] << 32) + hessians

    def best(self, where: Histograms, nodes: Children, counts: Ints) -> list[LevelSplits]:
        """The best split of every node, then those of other columns that are exactly as good, one each, until none is.

        In a later list a node has feature -1 if there is no further one.
        """
        n_nodes, allowed = len(nodes.total), np.ones((len(nodes.total), self._layout.n_features), np.bool_)
        first = self._evaluated(where, nodes, counts, allowed)
        found, open_ = [first], np.flatnonzero(first.feature >= 0)
        while len(open_):
            allowed[open_, found[-1].feature[open_]] = False
            built = Histograms(where.slot, open_, np.full(len(open_), -1))
            splits = self._evaluated(built, nodes, counts, allowed)
            is_tied = np.zeros(n_nodes, np.bool_)
            is_tied[open_] = (splits.feature[open_] >= 0) & (splits.gain[open_] == first.gain[open_])
            splits.feature[~is_tied] = -1
            open_ = np.flatnonzero(is_tied)
            found.append(splits)
        return found

    def _evaluated(self, where: Histograms, nodes: Children, counts: Ints, allowed: Bools) -> LevelSplits:
        splits, store = LevelSplits.none(len(nodes.total)), self._store
        evaluate_families(
            0, len(where.built), where.built, where.derived, where.slot, store.cells, store.count_cells, nodes.total,
            counts, allowed, np.empty(0, np.int64), nodes.lower, nodes.upper, self._rules, self._layout, splits,
        )  # fmt: skip
        return splits
