"""The label holder: it alone has labels, learns the rows of every node, and ends with trees and leaf values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hedgerow.crypto import limbs
from hedgerow.crypto.beaver import PrivateMasks, hidden_input, private_product, take_as_reader
from hedgerow.crypto.ring import rows_times
from hedgerow.crypto.shares import XOR8, Array, as_bytes
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bytes, Floats, Ints, Scores
from hedgerow.engine.ensemble import Tree, TreeStack
from hedgerow.engine.growth import LevelSplits
from hedgerow.engine.splitting import MIN_GAIN, SplitRules
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.protocols.shares.columns import BYTES_OF_CUTS, Cuts, children_of, masked_rows
from hedgerow.protocols.shares.mesh import received
from hedgerow.protocols.shares.playing import check_rows_kept, checked_labels
from hedgerow.protocols.shares.scales import Scales
from hedgerow.protocols.vertical.common.agreement import begin_as_label_holder, check_table
from hedgerow.protocols.vertical.common.joint_forest import (
    ForeignSplits,
    JointGrower,
    JointRows,
    mark_foreign_splits,
    packed_columns,
)
from hedgerow.protocols.vertical.common.parts import LabelHolderPart
from hedgerow.protocols.vertical.secret_shared import messages
from hedgerow.protocols.vertical.secret_shared.growing import Growing
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.shape import HISTOGRAMS, LABEL_HOLDERS, SPLITS, STOP, Shape
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_memory, check_room


@dataclass(frozen=True, eq=False)
class KeptForest:
    """The label holder's state after a tree: what it knows in the clear. Nothing in it is a share, or was dealt."""

    trees: TreeStack  # as they were grown
    foreign: Ints  # as `ForeignSplits` has them
    scores: Scores
    rounds: int
    levels: int


def label_holder(me: Party, job: SecretSharedJob, data: PartyData | None) -> LabelHolderPart:
    """The label holder, from its table to its part of the model."""
    data = check_table(me.name, data)
    labels = checked_labels(me.name, job, data)
    table, trees = data.table, job.boosting
    check_memory(me.name, table.n_rows, len(table.columns), job.max_bins, trees.max_depth, trees.max_leaves)
    mapper = BinMapper.fit(table, job.max_bins, n_threads=data.n_threads)
    done, kept = me.go_on(KeptForest, job)
    n_columns = begin_as_label_holder(me, job, data)
    shape, cuts = _agreed_shape(me, job, table.n_rows, n_columns)
    own = _OwnRows(job, shape.scales, mapper, data, labels)
    forest = _Forest(me, job, data.n_threads, shape, cuts, own)
    if kept is not None:
        forest.take_up(kept)
    for tree in forest.trees(done):
        forest.grow(tree)
        me.keep(tree + 1, forest.state)
    meta = {
        "privacy": None,
        "stamp": None,
        "disclosure": job.disclosure,
        "gradient_bits": shape.scales.gradient_bits,
        "l2": own.params.l2,
        "rounds": {"setup": 2, "training": forest.rounds},
        "levels": forest.levels,
    }
    loss = shape.scales.loss
    return forest.foreign.part(job, mapper.features, forest.grown, loss, [own.base_score], data.classes, meta)


def _agreed_shape(me: Party, job: SecretSharedJob, n_rows: int, n_columns: Mapping[str, int]) -> tuple[Shape, Cuts]:
    """What all parties must know about each other's columns; the possible splits of all feature holders."""
    cuts, bins = [], []
    for party in job.feature_holders:
        if n_columns[party] > job.most_columns:
            raise ProtocolError(
                f"{party} says that it has {n_columns[party]} columns; a party may have {job.most_columns}"
            )
        columns = me.recv(party, messages.ColumnShapes, n_columns=n_columns[party], max_bins=job.max_bins)
        n_bins, has_missing = columns.n_bins.tolist(), columns.has_missing.astype(np.bool_).tolist()
        bins.append(masked_rows(n_bins, has_missing))
        check_room(me.name, BYTES_OF_CUTS * bins[-1], f"possible splits of {bins[-1]:,} bins of {party}")
        cuts.append(Cuts.of(n_bins, has_missing))
        if not bins[-1]:
            raise InvalidInput(f"{party}: no column has values in two bins, so there is nothing to split by")
    candidates = tuple(len(each.bin) for each in cuts)
    shape = Shape(n_rows, tuple(bins), candidates, Scales.of(job, n_rows))
    shape.check_room(me.name, job.depth, sum(bins))
    message = messages.Sizes(n_rows, np.array(bins, np.int64), np.array(candidates, np.int64))
    me.send_all((*job.feature_holders, job.dealer), message)
    return shape, Cuts.joined(cuts, bins)


# --- what it knows in the clear --------------------------------------------------------------------------------------


class _OwnRows:
    """The label holder's rows, scores and trees, as the pooled engine has them."""

    def __init__(
        self, job: SecretSharedJob, scales: Scales, mapper: BinMapper, data: PartyData, labels: Floats
    ) -> None:
        params, loss, quantiser = scales.boosting(job.boosting), scales.loss, scales.quantiser
        self.params = params
        self.base_score = scales.base_score(labels, params)
        packed = packed_columns(mapper.transform(data.table, data.n_threads), mapper.features, data.n_threads)
        base = np.array([self.base_score])
        self.rows = JointRows(packed, labels, None, loss, base, quantiser, n_threads=data.n_threads)
        self.grower = JointGrower(self.rows, params, loss, quantiser, mapper.features)
        self._rules = self.grower.split_rules
        self._scales = scales

    def begin_tree(self) -> None:
        """All rows stand at the root of a new tree, with new gradients."""
        self.rows.gradients()
        self.rows.start_tree()
        self.grower.begin()
        self._gradients, self._hessians = self._scales.words(self.rows.gradients_packed[0])

    def minus(self, nodes: range, masks: Array) -> Array:
        """Gradients and hessians of the rows of some nodes, minus masks: [2 x nodes, rows]."""
        out: Array = np.subtract(0, masks, dtype=masks.dtype)
        for k, node in enumerate(nodes):
            rows = self.rows.of_node(node)
            out[2 * k, rows] += self._gradients[rows]
            out[2 * k + 1, rows] += self._hessians[rows]
        return out

    def members(self) -> Bytes:
        """Which rows each node has: one byte per row, [nodes, rows]."""
        members = np.zeros((self.grower.n_active, self.rows.n_rows), np.uint8)
        for node in range(len(members)):
            members[node, self.rows.of_node(node)] = 1
        return members

    def totals(self) -> tuple[Array, Array]:
        """Sums of gradients and hessians of each node, as words."""
        return self._scales.words(self.grower.totals)

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

    def divide(self, splits: LevelSplits, owner: Ints) -> None:
        """Split the nodes that somebody won by the rows' sides."""
        foreign = owner > 0
        sums, _ = self.rows.sums_of_sides(foreign)
        splits.gain[foreign] = _gains(self.grower.totals[foreign], sums[foreign, 0], self._rules)
        mark_foreign_splits(splits, foreign, self.rows.spare_feature)
        # The tournament has decided, without rounding; the engine must not decide otherwise in the last bit.
        enough = max(np.nextafter(MIN_GAIN, np.inf), self.params.min_gain)
        np.maximum(splits.gain, enough, out=splits.gain)
        splits.feature[owner < 0] = -1
        self.grower.divide(splits)


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
    enough = scales.threshold > Fraction(MIN_GAIN) * Fraction(2) ** scales.gradient_bits
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


# --- trees -----------------------------------------------------------------------------------------------------------


class _Forest(Growing):
    """Grows trees together with the feature holders, and remembers whose each split is."""

    def __init__(
        self, me: Party, job: SecretSharedJob, n_threads: int, shape: Shape, cuts: Cuts, own: _OwnRows
    ) -> None:
        super().__init__(me, job, n_threads, shape)
        self._cuts, self._own = cuts, own
        self._hidden = self._masked_columns()
        self.grown: list[Tree] = []  # as they were grown, without handles of foreign splits
        self.foreign = ForeignSplits(job.holders, job.label_holder)
        self.levels = 0
        self._other_rounds = 0

    def _masked_columns(self) -> Array:
        """E of all feature holders, one below the other: [bins, rows]."""
        matrices = self.shape.matrices
        hidden = matrices.empty()
        for place, party in enumerate(self.job.holders):
            of_party = hidden[matrices.of(place)]
            for bins in matrices.blocks(place):
                of_party[bins] = received(self.me, party, messages.MaskedColumns, hidden.dtype, of_party[bins].shape)
        return hidden

    @property
    def rounds(self) -> int:
        """Of all levels together."""
        return self.mesh.rounds + self._other_rounds

    def grow(self, tree: int) -> None:
        """One tree."""
        self._own.begin_tree()
        super().grow(tree)
        self.grown.append(self._own.grower.finish())

    @property
    def state(self) -> KeptForest:
        """After a tree."""
        trees, foreign = TreeStack.of(self.grown), self.foreign.splits
        return KeptForest(trees, foreign, self._own.rows.scores, self.rounds, self.levels)

    def take_up(self, kept: KeptForest) -> None:
        """Go on after the trees of an earlier attempt."""
        check_rows_kept(self.me.name, kept.scores.shape[1], self._own.rows.n_rows)
        self.grown, self.levels, self._other_rounds = kept.trees.trees(), kept.levels, kept.rounds
        self.foreign.add(kept.foreign)
        self._own.rows.scores[:] = kept.scores

    def grow_level(self, level: int, parents: Array | None) -> Array:
        """All nodes of a level; shares of the histograms of those that split."""
        own, shape, supply = self._own, self.shape, self.supply
        bits = (shape.n_nodes(level), shape.bytes_of_bits)
        masks = take_as_reader(supply.step(SPLITS), bits, XOR8, reader=0, others=range(1, shape.n_holders))
        members = np.packbits(own.members(), axis=1)
        made = self._send_input(level, members, masks)
        histograms = made if parents is None else children_of(parents, made)
        splits = own.grower.best()
        winners = self._play(level, histograms, splits)
        own.rows.sides[:] = 0
        own.rows.write_sides(np.where(winners == 0, splits.feature, -1), splits.goes_left)
        self._ask_winners(winners, members, masks)
        self.levels += 1
        self._other_rounds += 1 + bool((winners > 0).any())
        own.divide(splits, winners)
        return histograms[winners >= 0]

    def _send_input(self, level: int, members: Bytes, masks: Mapping[int, PrivateMasks]) -> Array:
        """Masked gradients of left children and masked rows of all nodes; shares of their histograms."""
        shape, own, sums = self.shape, self._own, self.shape.scales.sums
        step = self.supply.step(HISTOGRAMS)
        n_vectors = 2 * shape.n_families(level)
        b = step.mask((n_vectors, shape.n_rows), sums, (0,)).words
        dealt = [step.share((n_vectors, n), sums, (0, place)).words for place, n in enumerate(shape.bins, start=1)]
        nodes = range(0, own.grower.n_active, 2)  # the root, or left children
        b = b[: 2 * len(nodes)]
        one = masks[1]
        rows = hidden_input(members, PrivateMasks(one.mine[: len(members)], one.z))
        for piece in shape.family_pieces(len(nodes)):
            vectors = own.minus(nodes[piece.start // 2 : piece.stop // 2], b[piece])
            self.me.send_all(self.job.feature_holders, messages.LevelInput(as_bytes(vectors), as_bytes(rows)))
            rows = rows[:0]
        products = rows_times(self._hidden, b, n_threads=self.n_threads)
        products += np.concatenate(dealt, axis=1)[: len(b)]
        return products.reshape(len(nodes), 2, -1)

    def _play(self, level: int, histograms: Array, splits: LevelSplits) -> Ints:
        """Who won each node, as `Shape.owners`; the label holder only where it entered a split of its own."""
        shape, (mine, first) = self.shape, self._own.candidates(splits)
        left = self._cuts.left(histograms)
        gradient, hessian = (total[:, None] for total in self._own.totals())
        gl = left[:, 0] + gradient * self._cuts.missing_left
        hl = left[:, 1] + hessian * self._cuts.missing_left
        handles = np.zeros((len(left), 1 + shape.n_candidates), np.uint32)
        handles[:, 0] = mine
        won = self.play(level, np.stack([gl, hl, gradient - gl, hessian - hl]), first, handles)
        own = won <= LABEL_HOLDERS
        if (won[own] != mine[own]).any():
            raise ProtocolError(
                f"a node was won by what {self.me.name} did not enter: some party sent words that are not shares of it"
            )
        return shape.owners(won)

    def _ask_winners(self, winners: Ints, members: Bytes, masks: Mapping[int, PrivateMasks]) -> None:
        """Which way the rows go in nodes that others won, and what they call those splits."""
        rows, n_bytes = self._own.rows, self.shape.bytes_of_bits
        handles = np.zeros(len(winners), np.int64)
        right = np.zeros(n_bytes, np.uint8)
        for place, party in enumerate(self.job.feature_holders, start=1):
            nodes = np.flatnonzero(winners == place)
            if not len(nodes):
                continue
            known = self.foreign.n_handles_of(place)
            answer = self.me.recv(
                party, messages.WhichWay, n_won=len(nodes), n_bytes=n_bytes, n_handles=known + len(nodes)
            )
            before = np.maximum.accumulate([known - 1, *answer.handles.tolist()])
            if (answer.handles > before[:-1] + 1).any():
                raise ProtocolError(
                    f"{party} sent handles {answer.handles.tolist()}: a new question gets the next number"
                )
            handles[nodes] = answer.handles
            theirs_of = PrivateMasks(masks[place].mine[nodes], masks[place].z[nodes])
            left = private_product(answer.hidden, answer.answers, theirs_of)
            right |= np.bitwise_or.reduce(members[nodes] & ~left, axis=0)
        rows.sides[:] |= np.unpackbits(right, count=rows.n_rows)
        foreign = winners > 0
        self.foreign.add_level(len(self.grown), winners[foreign], handles[foreign])
