"""What the label holder knows in the clear: its rows, scores and trees, as the pooled engine has them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from hedgerow.crypto import limbs
from hedgerow.crypto.shares import Array
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bytes, Floats, Ints, Scores
from hedgerow.engine.growth import LevelSplits
from hedgerow.engine.splitting import MIN_GAIN, SplitRules
from hedgerow.protocols.shares.scales import Scales
from hedgerow.protocols.vertical.common.agreement import start_of
from hedgerow.protocols.vertical.common.drawing import RowDraw
from hedgerow.protocols.vertical.common.joint_forest import (
    JointGrower,
    JointRows,
    mark_foreign_splits,
    packed_columns,
)
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.shape import LABEL_HOLDERS, STOP, Shape
from hedgerow.runtime.protocol import PartyData


class OwnRows:
    """The label holder's rows. Those that are watched, or not drawn, walk down the trees and are in no sum."""

    def __init__(
        self,
        party: str,
        job: SecretSharedJob,
        shape: Shape,
        mapper: BinMapper,
        data: PartyData,
        labels: Floats,
        draw: RowDraw,
        n_before: int,
    ) -> None:
        """`n_before` iterations are those of an earlier model."""
        scales = shape.scales
        params, loss, weight = scales.boosting(job.boosting), scales.loss, data.weight
        learned_weight = None if weight is None else weight[draw.learned]
        quantiser = scales.quantiser_for(draw.n_learned, learned_weight)
        self.base_scores, scores = start_of(party, job, loss, labels[draw.learned], learned_weight, data)
        packed = packed_columns(mapper.transform(data.table, data.n_threads), mapper.features, data.n_threads)
        how: dict[str, Any] = {"n_threads": data.n_threads, "scores": scores}
        self.rows = JointRows(packed, labels, weight, loss, self.base_scores, quantiser, **how)
        self.grower = JointGrower(self.rows, params, loss, quantiser, mapper.features, weighted=weight is not None)
        self.params, self._rules = params, self.grower.split_rules
        self._scales, self._n_vectors, self._draw, self._n_before = scales, shape.limits.n_vectors, draw, n_before

    def begin_iteration(self, iteration: int) -> None:
        """New gradients, of the rows that are drawn."""
        self.rows.counted = self._draw.for_iteration(self._n_before + iteration)
        self.rows.gradients()

    def begin_tree(self, output: int) -> None:
        """All rows stand at the root of a new tree."""
        self.rows.start_tree(output)
        self.grower.begin()
        self._vectors = list(self._scales.words(self.rows.values))
        if self._n_vectors > len(self._vectors):
            every = np.ones(self.rows.n_rows, np.bool_)
            self._vectors.append(every if self.rows.counted is None else self.rows.counted)

    def minus(self, nodes: range, masks: Array) -> Array:
        """Gradients and hessians of the rows of some nodes, and rows if they count, minus masks: [vectors, rows]."""
        out: Array = np.subtract(0, masks, dtype=masks.dtype)
        for k, node in enumerate(nodes):
            rows = self.rows.of_node(node)
            for place, vector in enumerate(self._vectors, start=k * self._n_vectors):
                out[place, rows] += vector[rows]
        return out

    def members(self) -> Bytes:
        """Which rows each node has: one byte per row, [nodes, rows]."""
        members = np.zeros((self.grower.n_active, self.rows.n_rows), np.uint8)
        for node in range(len(members)):
            members[node, self.rows.of_node(node)] = 1
        return members

    def totals(self) -> Array:
        """Sums of gradients and hessians of each node, and of rows if they count, as words: [2 or 3, nodes]."""
        gradients, hessians = self._scales.words(self.grower.totals)
        counts = self.rows.node_counts.astype(gradients.dtype)
        return np.stack([gradients, hessians, counts][: self._n_vectors])

    def candidates(self, splits: LevelSplits) -> tuple[Array, tuple[Array, Array]]:
        """For each node the better of its own best split and stopping, which wins if they are equal.

        Handles [nodes]; numerators and denominators [nodes, limbs].
        """
        scales = self._scales
        numerators, denominators, handles = [], [], []
        totals, lefts = self.grower.totals.tolist(), splits.left_sum.tolist()
        for total, left, feature in zip(totals, lefts, splits.feature.tolist(), strict=True):
            P, Q = stopping(scales, *_halves(total))
            handle = STOP
            if feature >= 0:
                P_own, Q_own = _fraction_of_split(total, left, scales.lambda_int)
                if P_own * Q > P * Q_own:
                    P, Q, handle = P_own, Q_own, LABEL_HOLDERS
            numerators.append(limbs.constant(P, scales.wide.limbs))
            denominators.append(limbs.constant(Q, scales.wide.limbs))
            handles.append(handle)
        return np.array(handles, np.uint32), (np.stack(numerators), np.stack(denominators))

    def gains_of(self, splits: LevelSplits, owner: Ints) -> Floats:
        """Of the split of each node that somebody won, now that the sides of its rows are known; the engine's."""
        foreign, gains = owner > 0, splits.gain.copy()
        sums, _ = self.rows.sums_of_sides(foreign)
        gains[foreign] = _gains(self.grower.totals[foreign], sums[foreign, 0], self._rules)
        return gains

    def divide(self, splits: LevelSplits, owner: Ints, gains: Floats) -> None:
        """Split the nodes that somebody won by the rows' sides."""
        mark_foreign_splits(splits, owner > 0, self.rows.spare_feature)
        # The tournament has decided, without rounding; the engine must not decide otherwise in the last bit.
        enough = max(np.nextafter(MIN_GAIN, np.inf), self.params.min_gain)
        np.maximum(gains, enough, out=splits.gain)
        splits.feature[owner < 0] = -1
        self.grower.divide(splits)

    @property
    def scores(self) -> Scores:
        """Of all rows, without base scores: [outputs, rows]."""
        return self.rows.scores


def with_room_for(owner: Ints, gains: Floats, room: int | None) -> Ints:
    """Whose each node is, with as many as there is room for: those that gain most, and of equal ones the first."""
    if room is None:
        return owner
    best_first = np.argsort(-gains, kind="stable")
    splitting = best_first[owner[best_first] >= 0]
    owner = owner.copy()
    owner[splitting[room:]] = -1
    return owner


def renumbered(handles: Ints, known: int) -> Ints:
    """Handles of which some new ones have fallen out: the others are numbered anew, in the order of their first use."""
    anew = {handle: handle for handle in range(known)}
    return np.array([anew.setdefault(handle, len(anew)) for handle in handles.tolist()], np.int64)


def _halves(packed: int) -> tuple[int, int]:
    return packed >> 32, packed & 0xFFFFFFFF


def _fraction_of_split(total: int, left: int, lambda_int: int) -> tuple[int, int]:
    """P = G_L^2 (H_R + lambda) + G_R^2 (H_L + lambda), Q = (H_L + lambda) (H_R + lambda)."""
    (gradient, hessian), (gl, hl) = _halves(total), _halves(left)
    dl, dr = hl + lambda_int, hessian - hl + lambda_int
    return gl**2 * dr + (gradient - gl) ** 2 * dl, dl * dr


def _gains(totals: Ints, lefts: Ints, rules: SplitRules) -> Floats:
    """The engine's gain of splits whose sums are known."""
    gradient, hessian = (totals >> 32) * rules.gradient_unit, (totals & 0xFFFFFFFF) * rules.hessian_unit
    gl, hl = (lefts >> 32) * rules.gradient_unit, (lefts & 0xFFFFFFFF) * rules.hessian_unit
    gr, dl, dr = gradient - gl, hl + rules.l2, hessian - hl + rules.l2
    gains: Floats = (gl * gl * dr + gr * gr * dl) / (dl * dr) - gradient * gradient / (hessian + rules.l2)
    return gains


def stopping(scales: Scales, gradient: int, hessian: int) -> tuple[int, int]:
    """(P, Q) of stopping at a node with these sums; a split is worth making if its own P / Q is larger.

    A fraction that fits the ring and decides as the exact number does. Only the label holder knows the sums of nodes,
    so only it can tell. A split is worth making if P / Q, its gain and what the node has already, reaches

        T = G^2 / (H + lambda) + threshold

    where `threshold` is the least gain, as the engine's 64-bit float says it: T by itself has up to 50 bits too many
    for the ring. But every split of the node has Q = (H_L + lambda) (H_R + lambda) <= (H / 2 + lambda)^2 = B. So T may
    be replaced by the next smaller fraction whose denominator is at most B: no split lies between the two, and the
    comparison comes out as with T. If a gain of just the threshold is enough, as it is for the engine where somebody
    asks for a least gain, the fraction must be smaller than T and not only at most T.

    What is next to a fraction a / b among all with denominators up to B: c / d with a d - b c = 1 and d as large as it
    may be (neighbours in a Farey sequence). Where the ring is too narrow for the next smaller fraction (gradients of
    all rows at their bound, or a threshold beyond all gains), the next smaller one that it holds.
    """
    bounds, lambda_int = scales.bounds, scales.lambda_int
    exact = Fraction(gradient**2, hessian + lambda_int) + scales.threshold
    fits = min(bounds.largest_denominator, int(bounds.largest_numerator / exact))
    # The engine asks for more than MIN_GAIN, but for no more than what somebody asked for.
    enough = scales.threshold > Fraction(MIN_GAIN) * scales.scale
    below = next_below(exact, min((hessian + 2 * lambda_int) ** 2 // 4, fits), or_equal=not enough)
    return below.numerator, below.denominator


def next_below(value: Fraction, most: int, *, or_equal: bool) -> Fraction:
    """The largest fraction below `value` (or equal to it, if that will do) whose denominator is at most `most`."""
    near = value.limit_denominator(most)
    if near < value or (or_equal and near == value):
        return near
    a, b = near.numerator, near.denominator
    inverse = pow(a, -1, b) if b > 1 else 0
    d = most - (most - inverse) % b
    return Fraction((a * d - 1) // b, d)
