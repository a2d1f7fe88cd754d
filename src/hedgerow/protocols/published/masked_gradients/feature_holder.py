"""A feature holder: columns but no labels. It makes the noise, scores its candidates, and ends with its questions."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Bytes
from hedgerow.engine.growth import DEEPEST
from hedgerow.engine.splitting import LevelSplits, SplitRules
from hedgerow.protocols.published.masked_gradients import messages
from hedgerow.protocols.published.masked_gradients.candidates import Candidates, best_of_level
from hedgerow.protocols.published.masked_gradients.job import STAMP, UNDER_WAY, MaskedGradientsJob
from hedgerow.protocols.published.masked_gradients.vectors import (
    LevelRows,
    count_codes,
    fill_noise,
    random_words,
    side_by_side,
    sum_active,
    take_codes,
    write_sides,
)
from hedgerow.protocols.vertical.common.joint_forest import Asked, new_sides, receive_roles, told_gains
from hedgerow.protocols.vertical.common.messages import LEAF, OTHERS, YOURS, bytes_for
from hedgerow.protocols.vertical.common.parts import OwnerPart
from hedgerow.protocols.vertical.common.tables import OwnColumns, begin_as_feature_holder, check_table
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def feature_holder(me: Party, job: MaskedGradientsJob, data: PartyData | None) -> OwnerPart:
    """A feature holder, from its table to its part of the model."""
    data = check_table(me.name, data)
    columns = OwnColumns(me.name, job, data)
    begin_as_feature_holder(me, job, data)
    candidates = Candidates.of(columns.features, columns.codes)
    grower = _Grower(me, job, columns.codes, candidates, data.n_threads)
    asked = Asked()
    for _ in range(job.boosting.n_iterations):
        grower.grow(asked)
    meta = {"privacy": None, "stamp": STAMP, "n_candidates": candidates.n}
    return OwnerPart(me.name, job.label_holder, job.NAME, job.run_id, columns.features, asked.questions(), meta)


class _Piece(NamedTuple):
    """What one message holds."""

    first: int  # candidates first .. stop
    stop: int
    first_vector: int
    stop_vector: int


class _Grower:
    """Plays this party's role in one tree after the other."""

    def __init__(
        self, me: Party, job: MaskedGradientsJob, codes: Bytes, candidates: Candidates, n_threads: int
    ) -> None:
        self._me, self._job, self._codes, self._candidates = me, job, codes, candidates
        self._n_threads = n_threads
        self._level = LevelRows(codes.shape[1])
        noise = job.noise_for(codes.shape[1])
        root = math.sqrt(4.0 * noise.sigma1**2 + noise.sigma2**2)
        self._alpha, self._beta = np.float32((root + noise.sigma2) / 2.0), np.float32((root - noise.sigma2) / 2.0)
        self._off = np.float32(math.sqrt(2.0 * noise.sigma1**2 + noise.sigma2**2))
        self._sends_hessians = job.sends_hessians
        scales = me.recv(job.label_holder, messages.Scales)
        self._one = scales.hessian_scale
        rules = job.boosting
        self._rules = SplitRules(
            1.0 / scales.gradient_scale,
            1.0 / scales.hessian_scale,
            rules.l2,
            rules.min_child_weight,
            rules.min_samples_leaf,  # at least 1: numbers of rows are known here, and no child is empty
            rules.missing_unseen == "right",
        )

    def grow(self, asked: Asked) -> None:
        """One tree."""
        self._level.restart()
        n_leaves = 1
        for depth in range(1, (self._job.boosting.max_depth or DEEPEST) + 1):
            last = depth == (self._job.boosting.max_depth or DEEPEST)
            n_splitting = self._grow_level(asked, n_leaves, last=last)
            n_leaves += n_splitting
            if not n_splitting or n_leaves == self._job.boosting.max_leaves:
                break

    def _grow_level(self, asked: Asked, n_leaves: int, *, last: bool) -> int:
        me, to, level = self._me, self._job.label_holder, self._level
        self._codes_here = np.empty((len(self._codes), level.n_rows), np.uint8)
        take_codes(self._codes, level.order, self._codes_here)
        splits = self._best()
        me.send(to, messages.BestScores(told_gains(splits)))
        limit = self._job.boosting.max_leaves
        room = level.n_nodes if limit is None else limit - n_leaves
        roles = receive_roles(me, to, messages.Winners, splits, room=room, counts=level.counts)
        mine, splitting = roles == YOURS, roles != LEAF
        sides = np.zeros(self._codes.shape[1], np.uint8)
        if mine.any():
            own = np.where(mine, splits.feature, -1)
            write_sides(level.order, level.starts, self._codes_here, own, splits.goes_left, sides)
            me.send(to, messages.WhichWay(asked.handles(splits, np.flatnonzero(mine)), np.packbits(sides)))
        n_splitting = int(splitting.sum())
        if last or n_leaves + n_splitting == self._job.boosting.max_leaves:
            return n_splitting
        others = roles == OTHERS
        if others.any():
            partition = me.recv(to, messages.Partition, n_bytes=bytes_for(len(sides)))
            in_others = partial(level.count_sides, nodes=others)
            sides |= new_sides(to, partition, len(sides), in_others, known=sides)
        level.descend(splitting, sides)
        return n_splitting

    # --- candidates ------------------------------------------------------------------------------------------------

    def _best(self) -> LevelSplits:
        """The best candidate of every node, by sums of masked gradients."""
        level, candidates = self._level, self._candidates
        counts = np.zeros((len(self._codes), level.n_nodes, 256), np.int64)
        count_codes(self._codes_here, level.starts, counts)
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
        best_of_level(gradients, hessians, counts, *both, level.counts, candidates, self._rules, splits)
        return splits

    def _pieces(self) -> Iterator[_Piece]:
        """Messages small enough that two of them, and their answers, stay within the job's block_bytes."""
        n, n_vectors = self._candidates.n, self._job.n_vectors
        at_once = self._job.candidates_at_once(self._level.n_rows)
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
        chosen = slice(piece.first, piece.stop)
        shape = (piece.stop - piece.first, piece.stop_vector - piece.first_vector, self._level.n_rows)
        noise = np.empty(shape, np.float32)
        side_by_side(
            self._n_threads,
            fill_noise,
            shape[0],
            noise.size,
            random_words(self._me.rng, shape),
            self._candidates.active[chosen],
            self._candidates.column[chosen],
            self._codes_here,
            self._level.starts,
            self._alpha,
            self._beta,
            self._off,
            noise,
        )
        last = piece.stop == self._candidates.n and piece.stop_vector == self._job.n_vectors
        self._me.send(self._job.label_holder, messages.NoiseVectors(piece.first_vector, last, noise))

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
        where = (self._candidates.active[chosen], self._candidates.column[chosen], self._codes_here, level.starts)
        masked = [(answer.gradients, gradients)]
        if self._sends_hessians:
            masked.append((answer.hessians, hessians))
        for values, sums in masked:
            side_by_side(self._n_threads, sum_active, n_candidates, values.size, values, *where, sums[chosen])
        return answer.gradient_sums, answer.hessian_sums

    def _counted(self, counts: np.ndarray) -> np.ndarray:
        """Sums of hessians that are all 1: numbers of rows, which are known here exactly."""
        rows = np.einsum("cd,cnd->cn", self._candidates.active.astype(np.int64), counts[self._candidates.column])
        hessians: np.ndarray = rows * self._one
        return hessians
