"""The label holder: it alone has labels and keys, opens sums, compares gains, and ends with trees and leaf values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.crypto.additive import VALUES, Words
from hedgerow.engine.dtypes import Bools, Floats, Int32s, Ints, Scores
from hedgerow.engine.growth import Children, HistogramStore, LevelSplits
from hedgerow.engine.histogram import Histograms, Layout
from hedgerow.engine.losses import Quantiser
from hedgerow.engine.splitting import SplitRules, evaluate_families
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.protocols.vertical.common.agreement import (
    OwnColumns,
    begin_as_label_holder,
    check_table,
    going_on,
    labels_and_loss,
    start_of,
    tell_classes,
)
from hedgerow.protocols.vertical.common.drawing import ColumnRules, RowDraw
from hedgerow.protocols.vertical.common.joint_forest import (
    Course,
    JointForest,
    JointGrower,
    JointRows,
    packed_columns,
)
from hedgerow.protocols.vertical.common.messages import MOST_CLASSES
from hedgerow.protocols.vertical.common.parts import LabelHolderPart
from hedgerow.protocols.vertical.common.states import ForestState
from hedgerow.protocols.vertical.common.watching import Watch, watched_rows
from hedgerow.protocols.vertical.homomorphic import messages
from hedgerow.protocols.vertical.homomorphic.job import BLOCK_ROWS, HomomorphicJob
from hedgerow.protocols.vertical.homomorphic.noisy_sums import SumNoise, check_nothing_is_drawn_again, consistent
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_room

BYTES_PER_OUTPUT = 16  # of a row: its score, that at the beginning of the iteration, and its packed gradient


def label_holder(me: Party, job: HomomorphicJob, data: PartyData | None) -> LabelHolderPart:
    """The label holder, from its table to its part of the model."""
    job.check_installed()
    data, earlier = going_on(me.name, check_table(me.name, data))
    watched = watched_rows(me.name, job, data)
    draw = RowDraw(job.boosting, data.table.n_rows, watched)
    labels, loss, weight = labels_and_loss(me.name, job, data, most_classes=MOST_CLASSES, learned=draw.learned)
    if job.has_noise and (weight is not None or loss != job.public_loss(max(loss.n_outputs, 2))):
        raise InvalidInput(f"{me.name}: dp is for rows without weights, of classes or of numbers within label_range")
    columns = OwnColumns(me.name, job, data, learned=draw.learned)
    what = f"scores and gradients of {loss.n_outputs:,} classes"
    check_room(me.name, BYTES_PER_OUTPUT * loss.n_outputs * columns.n_rows, what, advice="fewer classes")
    n_columns = begin_as_label_holder(me, job, data)
    tell_classes(me, job, loss)
    if job.counts_rows:
        bits = np.empty(0, np.uint8) if watched is None else np.packbits(watched)
        me.send_all(job.feature_holders, messages.CountedRows(0 if earlier is None else earlier.n_trees, bits))
    noises = {party: SumNoise.plan(job, loss, columns.n_rows, n_columns[party]) for party in job.feature_holders}
    n_trees, state = me.go_on(ForestState, job)
    if job.has_noise:
        check_nothing_is_drawn_again(me, n_trees)
    n_learned = columns.n_rows if job.has_noise else draw.n_learned  # noise is planned for the rows that all know of
    learned_weight = None if weight is None else weight[draw.learned]
    quantiser = Quantiser.for_rows(loss, n_learned, learned_weight, gradient_bits=job.boosting.gradient_bits)
    base_scores, scores = start_of(me.name, job, loss, labels[draw.learned], learned_weight, data)
    packed = packed_columns(columns.codes, columns.features, columns.n_threads)
    rows = JointRows(packed, labels, weight, loss, base_scores, quantiser, n_threads=columns.n_threads, scores=scores)
    rows.sizes_of_all, weighted = not job.counts_rows, weight is not None
    rules = ColumnRules(job.NAME, job.boosting, n_columns) if ColumnRules.matter(job.boosting) else None
    signs = None if rules is None else rules.signs(me.name)
    grower = JointGrower(rows, job.boosting, loss, quantiser, columns.features, weighted=weighted, signs=signs)
    watch = None
    if watched is not None:
        first = 0 if earlier is None else earlier.ensemble.n_iterations
        watch = Watch(job, loss, data, watched, base_scores, me, n_trees // loss.n_outputs, first=first)
    forest = _Forest(me, job, rows, grower, n_columns, noises, Course(draw, rules, watch, earlier))
    if state is not None:
        forest.go_on(state)
    forest.grow()
    meta: dict[str, Any] = {"privacy": None, "stamp": None, "rounds": {"setup": 1, "training": forest.rounds}}
    if job.has_noise:
        meta["noise"] = {party: noise.facts(job) for party, noise in noises.items() if noise is not None}
    meta |= {"weighted": True} if weighted else {}
    meta |= forest.record
    return forest.foreign.part(job, columns.features, forest.trees, loss, base_scores, data.classes, meta)


class _Forest(JointForest):
    """Trees by sums that feature holders make of encrypted gradients."""

    WORDS = messages
    KEEPS_ALL_TREES = True
    OTHERS_CHOOSE = False

    def __init__(
        self,
        me: Party,
        job: HomomorphicJob,
        rows: JointRows,
        grower: JointGrower,
        n_columns: dict[str, int],
        noises: dict[str, SumNoise | None],
        course: Course,
    ) -> None:
        super().__init__(me, job, rows, grower, self._begin, tells_leaves=False, course=course)
        self._noises = noises
        self._job, self._n_columns, self._team = job, n_columns, Team(grower.rows.n_parts)
        self._has_keys = False
        self._foreign: dict[str, ForeignColumns] = {}
        self._best: dict[str, list[LevelSplits]] = {}
        self._began: Scores | None = None

    @property
    def _output(self) -> int:
        """What the next tree is for: 0 begins an iteration, all of whose trees are from the same scores."""
        return len(self.trees) % self.rows.loss.n_outputs

    def state(self) -> ForestState:
        """How the rows stand too; never a key or a random number."""
        began = self._began if self._output else None
        return replace(super().state(), scores=self.rows.scores, began=began)

    def go_on(self, state: ForestState) -> None:
        """In the middle of an iteration gradients are made again from the scores that it began with."""
        super().go_on(state)
        self._began = state.began
        if state.began is not None:
            self.rows.scores[:] = state.began
            self.rows.gradients()
        self.rows.scores[:] = state.scores

    def _begin(self) -> None:
        """Every row's gradient and hessian go to all feature holders, under keys of this tree or of the run."""
        me, job, rows, output = self.me, self._job, self.rows, self._output
        if output == 0:
            self._began = rows.scores.copy()
            rows.gradients()
        if job.fresh_randomness or not self._has_keys:
            self._begin_keys()
        for party in job.feature_holders:
            told = me.recv(party, messages.ColumnOrder, n_columns=self._n_columns[party])
            rules, columns = self.grower.split_rules, self.course.columns
            signs = None if columns is None else columns.signs(party)
            self._foreign[party] = ForeignColumns(party, told, rules, self._noises[party], signs)
        keys = self._keys
        of_tree = keys.begin_tree()
        if keys.sizes.tree:
            me.send_all(job.feature_holders, messages.TreeKeys(of_tree))
        rows.start_tree(output)
        values = unpacked(rows.values)
        for noise in filter(None, self._noises.values()):
            noise.check_rows(me.name, values)
        self._send_blocks(messages.EncryptedRows, lambda first, last: keys.encrypt_rows(first, values[first:last]))
        self.grower.begin()

    def _begin_keys(self) -> None:
        """New keys, and what all may know of them."""
        keys = self._keys = self._job.keys(self.me.rng, self.rows.n_rows)
        self._has_keys = True
        if keys.sizes.key:
            self.me.send_all(self._job.feature_holders, messages.PublicKey(keys.key))
        if keys.sizes.point:
            self._send_blocks(messages.RowPoints, keys.row_points)

    def _send_blocks(self, kind: Any, made: Callable[[int, int], Words]) -> None:
        """Blocks of rows to everybody, as they are made."""
        n_rows = self.rows.n_rows
        for first in range(0, n_rows, BLOCK_ROWS):
            words = made(first, min(first + BLOCK_ROWS, n_rows))
            self.me.send_all(self._job.feature_holders, kind(first, words))

    def own_best(self) -> LevelSplits:
        """The feature holders first get what they need besides the rows: the sums of nodes."""
        totals = unpacked(self.grower.totals[self.grower.where.built])
        if len(totals):
            self.me.send_all(self._job.feature_holders, messages.NodeTotals(self._keys.encrypt_totals(totals)))
        return self.grower.best(self.own_allowed)

    def gains_of(self, party: str, n_nodes: int) -> Floats:
        """From the sums of its columns, as from one's own."""
        foreign, where, keys = self._foreign[party], self.grower.where, self._keys
        if not len(where.built):
            return np.full(n_nodes, -1.0)
        n = len(where.built) * keys.sizes.ciphertexts(foreign.n_sums)
        kind: type[messages.NoisySums | messages.EncryptedSums]
        kind = messages.NoisySums if self._job.has_noise else messages.EncryptedSums
        told = self.me.recv(party, kind, n_ciphertexts=n, n_words=keys.sizes.sums)
        cuts = [n * k // self._team.n_threads for k in range(self._team.n_threads + 1)]
        opened = self._team.run(keys.open, [(told.words[a:b],) for a, b in itertools.pairwise(cuts)])
        sums = np.concatenate(opened).reshape(len(where.built), -1, VALUES)
        foreign.take(where, sums[:, : foreign.n_sums], self.grower.totals)
        if self._job.boosting.min_samples_leaf > 1:
            shape = {"n_summed": len(where.built), "n_sums": foreign.n_sums, "n_rows": self.rows.n_rows}
            foreign.take_counts(where, self.me.recv(party, messages.BinCounts, **shape).counts, self.rows.node_counts)
        columns = self.course.columns
        allowed = None if columns is None else columns.allowed(party)
        self._best[party] = foreign.best(where, self.grower.tree.newest, self.rows.node_counts, allowed)
        first = self._best[party][0]
        return np.where(first.feature >= 0, first.gain, -1.0)

    def ask_winners(self, winner: Ints) -> None:
        """Whoever won is told by which of its columns, before it says which way rows go."""
        for place, party in enumerate(self._job.parties):
            nodes = np.flatnonzero(winner == place)
            if party != self.me.name and len(nodes):
                self.me.send(party, your_splits(self._best[party], nodes))
        super().ask_winners(winner)

    def columns_of(self, party: str, nodes: Ints) -> Ints:
        """The first of equally good ones, which its owner takes; columns come in their own order here."""
        tied = np.array([splits.feature[nodes] for splits in self._best[party]])
        columns: Ints = np.where(tied >= 0, tied, tied.max() + 1).min(axis=0)
        return columns


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

    def __init__(
        self,
        party: str,
        told: messages.ColumnOrder,
        rules: SplitRules,
        noise: SumNoise | None = None,
        signs: Ints | None = None,
    ) -> None:
        """`signs` of monotone columns, in the same order."""
        self._party, self._rules, self._has_noise = party, rules, noise is not None
        self._layout = Layout.plain(
            told.n_bins.astype(np.int64), told.is_categorical.copy()
        )  # or kernels compile again
        n_codes = self._layout.n_codes
        self.n_sums = int(n_codes.sum())
        self._starts = np.cumsum(n_codes) - n_codes
        within = np.arange(self.n_sums) - np.repeat(self._starts, n_codes)
        self._cells = np.repeat(self._layout.first_cell, n_codes) + within
        self._store = HistogramStore(self._layout, 1, with_counts=rules.min_samples_leaf > 0)
        self._signs = np.empty(0, np.int64) if signs is None else np.ascontiguousarray(signs)

    def take(self, where: Histograms, sums: Ints, totals: Ints) -> None:
        """Sums [nodes, sums, 2] of the nodes that were summed; ProtocolError unless they add up, or have noise."""
        expected = unpacked(totals[where.built])
        self._store.reserve(len(where.slot))
        if self._has_noise:
            sums = consistent(sums, self._starts, expected, self._parents(where))
        added = np.add.reduceat(sums, self._starts, axis=1)
        hessians = sums[:, :, 1]
        wrong = added[:, :, int(self._has_noise) :] != expected[:, None, int(self._has_noise) :]
        if wrong.any() or (hessians < 0).any() or (hessians > expected[:, 1:]).any():
            raise ProtocolError(f"{self._party} sent sums of bins that do not add up to those of their nodes")
        slots = where.slot[where.built]
        self._store.cells[np.ix_(slots, self._cells)] = (sums[:, :, 0] << 32) + hessians

    def take_counts(self, where: Histograms, counts: Ints | Int32s, totals: Ints) -> None:
        """Numbers of rows [nodes, sums] of the same nodes; ProtocolError unless they add up."""
        added = np.add.reduceat(counts.astype(np.int64), self._starts, axis=1)
        if (added != totals[where.built][:, None]).any():
            raise ProtocolError(f"{self._party} sent numbers of rows that do not add up to those of their nodes")
        if self._rules.min_samples_leaf > 0:
            self._store.count_cells[np.ix_(where.slot[where.built], self._cells)] = counts

    def _parents(self, where: Histograms) -> Ints | None:
        """[nodes, sums, 2] of the parents of those that were summed; None at the root."""
        if (where.derived < 0).any():
            return None
        cells = self._store.cells[np.ix_(where.slot[where.derived], self._cells)]
        return np.stack([cells >> 32, cells & 0xFFFFFFFF], axis=2)

    def best(
        self, where: Histograms, nodes: Children, counts: Ints, may_split: Bools | None = None
    ) -> list[LevelSplits]:
        """The best split of every node, then those of other columns that are exactly as good, one each, until none is.

        In a later list a node has feature -1 if there is no further one.
        """
        n_nodes, allowed = len(nodes.total), np.ones((len(nodes.total), self._layout.n_features), np.bool_)
        if may_split is not None:
            allowed &= may_split
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
            counts, allowed, self._signs, nodes.lower, nodes.upper, self._rules, self._layout, splits,
        )  # fmt: skip
        return splits
