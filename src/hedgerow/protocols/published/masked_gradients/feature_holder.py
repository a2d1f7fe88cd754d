"""A feature holder: columns but no labels. It makes the noise, scores its candidates, and ends with its questions."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hedgerow.engine.dtypes import MAX_BINS, Floats
from hedgerow.engine.growth import LevelSplits
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.protocols.published.masked_gradients import messages, vectors
from hedgerow.protocols.published.masked_gradients.candidates import Candidates, best_of_level
from hedgerow.protocols.published.masked_gradients.job import STAMP, UNDER_WAY, MaskedGradientsJob
from hedgerow.protocols.vertical.common.agreement import OwnColumns, begin_as_feature_holder, check_table, going_on
from hedgerow.protocols.vertical.common.joint_forest import Asked, told_gains
from hedgerow.protocols.vertical.common.parts import OwnerPart
from hedgerow.protocols.vertical.common.states import OwnerState
from hedgerow.protocols.vertical.common.watching import hear
from hedgerow.protocols.vertical.noised_gradients.training import Learning, Trainer, hear_learning
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def feature_holder(me: Party, job: MaskedGradientsJob, data: PartyData | None) -> OwnerPart:
    """A feature holder, from its table to its part of the model."""
    data, earlier = going_on(me.name, check_table(me.name, data))
    columns = OwnColumns(me.name, job, data)
    begin_as_feature_holder(me, job, data)
    learning = hear_learning(me, job, columns)
    n_trees, state = me.go_on(OwnerState, job)
    grower = _Grower(me, job, columns, Asked(state, earlier), learning)
    n_outputs = 1 if learning.n_classes == 2 else learning.n_classes
    stops_early = job.boosting.early_stopping_rounds is not None
    for done in range(n_trees, job.boosting.n_iterations * n_outputs + stops_early):
        if stops_early and done and done % n_outputs == 0 and (n_kept := hear(me, job)):
            grower.asked.keep_first(n_kept * n_outputs)
            break
        grower.grow(done, n_outputs)
        grower.asked.end_tree()
        if (done + 1) % n_outputs == 0:
            me.keep(done + 1, grower.asked.state())
    meta = {"privacy": None, "stamp": STAMP, "n_candidates": grower.candidates.n}
    questions = grower.asked.questions()
    return OwnerPart(me.name, job.label_holder, job.NAME, job.run_id, columns.features, questions, meta)


class _Piece(NamedTuple):
    """What one message holds."""

    first: int  # candidates first .. stop
    stop: int
    first_vector: int
    stop_vector: int


class _Grower:
    """Plays this party's role in one tree after the other."""

    def __init__(
        self, me: Party, job: MaskedGradientsJob, columns: OwnColumns, asked: Asked, learning: Learning
    ) -> None:
        self._me, self._job, self._codes, self._n_threads = me, job, columns.codes, columns.n_threads
        self.candidates = Candidates.of(columns.features, columns.codes)
        self.asked, self._weighted, self._learning = asked, learning.weight is not None, learning
        noise = job.noise_for(columns.n_rows)
        root = math.sqrt(4.0 * noise.sigma1**2 + noise.sigma2**2)
        alpha, beta = np.float32((root + noise.sigma2) / 2.0), np.float32((root - noise.sigma2) / 2.0)
        self._strength = (alpha, beta, np.float32(math.sqrt(2.0 * noise.sigma1**2 + noise.sigma2**2)))
        self._sends_hessians = job.sends_hessians(weighted=self._weighted)
        scales = me.recv(job.label_holder, messages.Scales)
        self._one = scales.hessian_scale
        unknown, rules = Loss("squared"), job.boosting
        quantiser = Quantiser(scales.gradient_scale, scales.hessian_scale)
        self._trainer = Trainer(job, columns, unknown, 0.0, np.zeros(1), quantiser, learning=learning, party=me.name)
        rules_by_column = learning.columns
        self._signs = np.empty(0, np.int64) if rules_by_column is None else rules_by_column.signs(me.name)
        self._rules = self._trainer.grower.split_rules._replace(
            min_child_weight=rules.min_child_weight,
            min_samples_leaf=rules.min_samples_leaf,  # at least 1: numbers of rows are known here, no child is empty
        )

    def grow(self, number: int, n_outputs: int) -> None:
        """One tree, by its number in this run."""
        me, to, trainer = self._me, self._job.label_holder, self._trainer
        self._learning.begin_tree(trainer.rows, number, n_outputs)
        trainer.begin_tree()
        self._bounds, self._split_signs = np.array([[-np.inf], [np.inf]]), np.empty(0, np.int64)
        goes_on = True
        while goes_on:
            self._level = vectors.LevelRows.of(trainer.rows)
            self._codes_here = self._codes.take(self._level.order, axis=1)
            splits = self._best()
            me.send(to, messages.BestScores(told_gains(splits)))
            goes_on = trainer.settle_level(me, to, messages, splits, self.asked)
            if trainer.signs is not None:
                self._split_signs = trainer.signs[trainer.was_split]
                self._bounds = np.repeat(self._bounds[:, trainer.was_split], 2, axis=1)

    # --- candidates ------------------------------------------------------------------------------------------------

    def _best(self) -> LevelSplits:
        """The best candidate of every node, by sums of masked gradients."""
        level, candidates = self._level, self.candidates
        shape = (level.n_nodes, MAX_BINS)
        first = MAX_BINS * np.repeat(np.arange(level.n_nodes), level.counts)
        rows = self._trainer.rows
        which = slice(None) if rows.counted is None else np.flatnonzero(rows.counted[level.order])
        counted = [np.bincount((first + codes)[which], minlength=math.prod(shape)) for codes in self._codes_here]
        counts = np.reshape(counted, (-1, *shape))  # by column, node and code
        gradients = np.zeros((candidates.n, level.n_nodes))
        hessians = np.zeros_like(gradients) if self._sends_hessians else self._counted(counts)
        totals = (np.zeros(level.n_nodes, np.int64), np.zeros(level.n_nodes, np.int64))
        under_way: deque[_Piece] = deque()
        for piece in self._pieces():
            self._send_noise(piece)
            under_way.append(piece)
            if len(under_way) == UNDER_WAY:
                totals = self._take_answer(under_way.popleft(), gradients, hessians) or totals
        while under_way:
            totals = self._take_answer(under_way.popleft(), gradients, hessians) or totals
        splits = LevelSplits.room_for(level.n_nodes)
        both = (totals[0].astype(np.float64), totals[1].astype(np.float64))
        self._bound_children(*both)
        by_column, allowed = self._learning.columns, np.ones((1, len(self._codes)), np.bool_)
        if by_column is not None:
            by_column.begin_level(level.n_nodes)
            allowed = by_column.allowed(self._me.name)
        how = (candidates, self._rules, allowed, self._signs, *self._bounds)
        best_of_level(gradients, hessians, counts, *both, rows.node_counts, *how, splits)
        return splits

    def _bound_children(self, gradients: Floats, hessians: Floats) -> None:
        """No value below one child of a monotone split crosses the middle between both; from the nodes' own sums."""
        if not self._split_signs.any():
            return
        rules, (lower, upper) = self._rules, self._bounds
        weight = hessians * rules.hessian_unit + rules.l2
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.where(weight > 0.0, -(gradients * rules.gradient_unit) / weight, 0.0)
        halves = np.minimum(np.maximum(value, lower), upper) / 2.0
        for pair, sign in enumerate(self._split_signs.tolist()):
            if sign:
                left, right = 2 * pair, 2 * pair + 1
                below, above = (left, right) if sign > 0 else (right, left)
                upper[below] = lower[above] = halves[left] + halves[right]

    def _pieces(self) -> Iterator[_Piece]:
        """Messages small enough that two of them, and their answers, stay within the job's block_bytes."""
        n, n_vectors = self.candidates.n, self._job.n_vectors
        at_once = self._job.candidates_at_once(self._level.n_rows, weighted=self._weighted)
        if at_once >= 1 or n_vectors == 1 or not n:
            step = max(at_once, 1)
            for first in range(0, max(n, 1), step):
                yield _Piece(first, min(n, first + step), 0, n_vectors)
            return
        vector = 4 * max(self._level.n_rows, 1)
        answer = vector * (2 if self._sends_hessians else 1)
        step = max((self._job.block_bytes // UNDER_WAY - answer) // vector, 1)
        for candidate in range(n):
            for first in range(0, n_vectors, step):
                yield _Piece(candidate, candidate + 1, first, min(n_vectors, first + step))

    def _send_noise(self, piece: _Piece) -> None:
        shape = (piece.stop - piece.first, piece.stop_vector - piece.first_vector, self._level.n_rows)
        noise = np.empty(shape, np.float32)
        task = (vectors.random_words(self._me.rng, shape), *self._active(piece), *self._strength, noise)
        vectors.side_by_side(self._n_threads, vectors.fill_noise, shape[0], noise.size, *task)
        last = piece.stop == self.candidates.n and piece.stop_vector == self._job.n_vectors
        self._me.send(self._job.label_holder, messages.NoiseVectors(piece.first_vector, last, noise))

    def _active(self, piece: _Piece) -> tuple[np.ndarray, ...]:
        """Which rows of the level are in the active sets of some candidates, for kernels."""
        chosen = slice(piece.first, piece.stop)
        return self.candidates.active[chosen], self.candidates.column[chosen], self._codes_here, self._level.starts

    def _take_answer(
        self, piece: _Piece, gradients: np.ndarray, hessians: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Add up what came back for a piece; the sums of nodes, unless more vectors are to follow."""
        to, level, chosen = self._job.label_holder, self._level, slice(piece.first, piece.stop)
        if piece.stop_vector < self._job.n_vectors:
            self._me.recv(to, messages.NextVectors)
            return None
        n_candidates = piece.stop - piece.first
        answer = self._me.recv(
            to,
            messages.MaskedGradients,
            n_candidates=n_candidates,
            n_rows=level.n_rows,
            n_hessians=n_candidates if self._sends_hessians else 0,
            n_hessian_rows=level.n_rows if self._sends_hessians else 0,
            n_nodes=level.n_nodes,
        )
        masked = [(answer.gradients, gradients)]
        if self._sends_hessians:
            masked.append((answer.hessians, hessians))
        for values, sums in masked:
            task = (values, *self._active(piece), sums[chosen])
            vectors.side_by_side(self._n_threads, vectors.sum_active, n_candidates, values.size, *task)
        return answer.gradient_sums, answer.hessian_sums

    def _counted(self, counts: np.ndarray) -> np.ndarray:
        """Sums of hessians that are all 1: numbers of rows, which are known here exactly."""
        rows = np.einsum("cd,cnd->cn", self.candidates.active.astype(np.int64), counts[self.candidates.column])
        hessians: np.ndarray = rows * self._one
        return hessians
