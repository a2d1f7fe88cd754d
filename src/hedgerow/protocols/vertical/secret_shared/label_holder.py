"""The label holder: it alone has labels, learns the rows of every node, and ends with trees and leaf values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hedgerow.crypto import limbs
from hedgerow.crypto.beaver import PrivateMasks, hidden_input, private_product, rows_times, take_as_reader
from hedgerow.crypto.shares import XOR8, Array
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.splitting import MIN_GAIN, LevelSplits, SplitRules
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.protocols.shares.columns import BYTES_OF_CUTS, Cuts, children_of, masked_rows
from hedgerow.protocols.shares.mesh import Mesh, as_bytes, received
from hedgerow.protocols.shares.playing import checked_labels
from hedgerow.protocols.shares.scales import Scales
from hedgerow.protocols.shares.supply import Supply
from hedgerow.protocols.vertical.common.joint_forest import ForeignSplits
from hedgerow.protocols.vertical.common.joint_growth import (
    JointGrower,
    JointRows,
    mark_foreign_splits,
    packed_columns,
)
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, composite_features
from hedgerow.protocols.vertical.common.tables import begin_as_label_holder, check_table
from hedgerow.protocols.vertical.secret_shared.hands import play_level
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import (
    ColumnShapes,
    LevelDone,
    LevelInput,
    MaskedColumns,
    Sizes,
    WhichWay,
)
from hedgerow.protocols.vertical.secret_shared.shape import (
    HISTOGRAMS,
    LABEL_HOLDERS,
    SPLITS,
    STOP,
    Shape,
)
from hedgerow.protocols.vertical.secret_shared.stopping import Stopping
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_memory, check_room


def label_holder(me: Party, job: SecretSharedJob, data: PartyData | None) -> LabelHolderPart:
    """The label holder, from its table to its part of the model."""
    data = check_table(me.name, data)
    labels = checked_labels(me.name, job, data)
    table, trees = data.table, job.boosting
    check_memory(me.name, table.n_rows, len(table.columns), job.max_bins, trees.max_depth, trees.max_leaves)
    mapper = BinMapper.fit(table, job.max_bins, n_threads=data.n_threads)
    n_columns = begin_as_label_holder(me, job, data)
    shape, cuts = _agreed_shape(me, job, table.n_rows, n_columns)
    supply = Supply(me, job.dealer, job.holders)
    hidden = _masked_columns(me, job, shape)
    own = _OwnRows(job, shape.scales, mapper, data, labels)
    forest = _Forest(me, job, shape, cuts, supply, hidden, own, n_threads=data.n_threads)
    for done in range(trees.n_iterations):
        me.report(done, trees.n_iterations)
        forest.grow(done)
    me.report(trees.n_iterations, trees.n_iterations)
    handles = forest.foreign.n_handles
    meta = {
        "privacy": None,
        "stamp": None,
        "disclosure": job.disclosure,
        "gradient_bits": shape.scales.gradient_bits,
        "l2": own.params.l2,
        "rounds": {"setup": 2, "training": forest.rounds},
        "levels": forest.levels,
    }
    ensemble = Ensemble(
        composite_features(mapper.features, handles),
        shape.scales.loss.name,
        [own.base_score],
        trees=forest.foreign.in_trees(forest.trees, len(mapper.features)),
        classes=data.classes,
        meta=meta,
    )
    return LabelHolderPart(me.name, job.NAME, job.run_id, ensemble, handles)


def _agreed_shape(me: Party, job: SecretSharedJob, n_rows: int, n_columns: Mapping[str, int]) -> tuple[Shape, Cuts]:
    """What all parties must know about each other's columns; the possible splits of all feature holders."""
    cuts, bins = [], []
    for party in job.feature_holders:
        if n_columns[party] > job.most_columns:
            raise ProtocolError(
                f"{party} says that it has {n_columns[party]} columns; a party may have {job.most_columns}"
            )
        columns = me.recv(party, ColumnShapes, n_columns=n_columns[party], max_bins=job.max_bins)
        n_bins, has_missing = columns.n_bins.tolist(), columns.has_missing.astype(np.bool_).tolist()
        bins.append(masked_rows(n_bins, has_missing))
        check_room(me.name, BYTES_OF_CUTS * bins[-1], f"possible splits of {bins[-1]:,} bins of {party}")
        cuts.append(Cuts.of(n_bins, has_missing))
        if not bins[-1]:
            raise InvalidInput(f"{party}: no column has values in two bins, so there is nothing to split by")
    candidates = tuple(len(each.bin) for each in cuts)
    shape = Shape(n_rows, tuple(bins), candidates, Scales.of(job, n_rows))
    shape.check_room(me.name, job.depth, sum(bins))
    message = Sizes(n_rows, np.array(bins, np.int64), np.array(candidates, np.int64))
    me.send_all((*job.feature_holders, job.dealer), message)
    return shape, Cuts.joined(cuts, bins)


def _masked_columns(me: Party, job: SecretSharedJob, shape: Shape) -> Array:
    """E of all feature holders, one below the other: [bins, rows]."""
    matrices = shape.matrices
    hidden = matrices.empty()
    for place, party in enumerate(job.holders):
        of_party = hidden[matrices.of(place)]
        for bins in matrices.blocks(place):
            of_party[bins] = received(me, party, MaskedColumns, hidden.dtype, of_party[bins].shape)
    return hidden


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
        self._stopping = Stopping(scales, data.table.n_rows)

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
            P, Q = self._stopping.fraction(*_halves(total))
            handle = STOP
            if feature >= 0:
                P_own, Q_own = _fraction_of_split(total, left, scales.lambda_int)
                if P_own * Q > P * Q_own:
                    P, Q, handle = P_own, Q_own, LABEL_HOLDERS
            numerators.append(limbs.constant(P, scales.wide.limbs))
            denominators.append(limbs.constant(Q, scales.wide.limbs))
            handles.append(handle)
        return np.array(handles, np.uint32), (np.stack(numerators), np.stack(denominators))

    def divide(self, splits: LevelSplits, owner: Ints) -> bool:
        """Split the nodes that somebody won by the rows' sides; whether the tree goes on."""
        foreign = owner > 0
        sums, _ = self.rows.sums_of_sides(foreign)
        splits.gain[foreign] = _gains(self.grower.totals[foreign], sums[foreign, 0], self._rules)
        mark_foreign_splits(splits, foreign, self.rows.spare_feature)
        # The tournament has decided, without rounding; the engine must not decide otherwise in the last bit.
        enough = max(np.nextafter(MIN_GAIN, np.inf), self.params.min_gain)
        np.maximum(splits.gain, enough, out=splits.gain)
        splits.feature[owner < 0] = -1
        return self.grower.divide(splits)


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


# --- trees -----------------------------------------------------------------------------------------------------------


class _Forest:
    """Grows trees together with the feature holders, and remembers whose each split is."""

    def __init__(
        self,
        me: Party,
        job: SecretSharedJob,
        shape: Shape,
        cuts: Cuts,
        supply: Supply,
        hidden: Array,
        own: _OwnRows,
        *,
        n_threads: int,
    ) -> None:
        self._me, self._job, self._shape, self._cuts = me, job, shape, cuts
        self._supply, self._mesh = supply, Mesh(me, job.holders)
        self._hidden, self._own, self._n_threads = hidden, own, n_threads
        self.trees: list[Tree] = []  # as they were grown, without handles of foreign splits
        self.foreign = ForeignSplits(job.holders, job.label_holder)
        self.levels = 0
        self._other_rounds = 0

    @property
    def rounds(self) -> int:
        """Of all levels together."""
        return self._mesh.rounds + self._other_rounds

    def grow(self, tree: int) -> None:
        """One tree."""
        self._own.begin_tree()
        self.foreign.begin_tree()
        goes_on, parents = True, None
        for level in range(self._job.depth):
            self._supply.begin(tree, level, self._shape.n_parcels(level))
            if goes_on:
                goes_on, parents = self._grow_level(level, parents)
            self._supply.finish()
            self._me.send(self._job.dealer, LevelDone())
        self.trees.append(self._own.grower.finish())

    def _grow_level(self, level: int, parents: Array | None) -> tuple[bool, Array]:
        """All nodes of a level; whether the tree goes on, and shares of the histograms of those that split."""
        own, shape, supply = self._own, self._shape, self._supply
        masks = take_as_reader(
            supply.step(SPLITS),
            (shape.n_nodes(level), shape.bytes_of_bits),
            XOR8,
            reader=0,
            others=range(1, shape.n_holders),
        )
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
        return own.divide(splits, winners), histograms[winners >= 0]

    def _send_input(self, level: int, members: Bytes, masks: Mapping[int, PrivateMasks]) -> Array:
        """Masked gradients of left children and masked rows of all nodes; shares of their histograms."""
        shape, own, sums = self._shape, self._own, self._shape.scales.sums
        step = self._supply.step(HISTOGRAMS)
        n_vectors = 2 * shape.n_families(level)
        b = step.mask((n_vectors, shape.n_rows), sums, (0,)).words
        dealt = [step.share((n_vectors, n), sums, (0, place)).words for place, n in enumerate(shape.bins, start=1)]
        nodes = range(0, own.grower.n_active, 2)  # the root, or left children
        b = b[: 2 * len(nodes)]
        one = masks[1]
        rows = hidden_input(members, PrivateMasks(one.mine[: len(members)], one.z))
        for piece in shape.family_pieces(len(nodes)):
            vectors = own.minus(nodes[piece.start // 2 : piece.stop // 2], b[piece])
            self._me.send_all(self._job.feature_holders, LevelInput(as_bytes(vectors), as_bytes(rows)))
            rows = rows[:0]
        products = rows_times(self._hidden, b, sums, n_threads=self._n_threads)
        products += np.concatenate(dealt, axis=1)[: len(b)]
        return products.reshape(len(nodes), 2, -1)

    def _play(self, level: int, histograms: Array, splits: LevelSplits) -> Ints:
        """Who won each node, as `Shape.owners`; the label holder only where it entered a split of its own."""
        shape, (mine, first) = self._shape, self._own.candidates(splits)
        left = self._cuts.left(histograms)
        gradient, hessian = (total[:, None] for total in self._own.totals())
        gl = left[:, 0] + gradient * self._cuts.missing_left
        hl = left[:, 1] + hessian * self._cuts.missing_left
        handles = np.zeros((len(left), 1 + shape.n_candidates), np.uint32)
        handles[:, 0] = mine
        won = play_level(
            self._supply,
            self._mesh,
            shape,
            level,
            np.stack([gl, hl, gradient - gl, hessian - hl]),
            first,
            handles,
            is_first=True,
        )
        own = won <= LABEL_HOLDERS
        if (won[own] != mine[own]).any():
            raise ProtocolError(
                f"a node was won by what {self._me.name} did not enter: some party sent words that are no shares of it"
            )
        return shape.owners(won)

    def _ask_winners(self, winners: Ints, members: Bytes, masks: Mapping[int, PrivateMasks]) -> None:
        """Which way the rows go in nodes that others won, and what they call those splits."""
        rows, n_bytes = self._own.rows, self._shape.bytes_of_bits
        handles = np.zeros(len(winners), np.int64)
        right = np.zeros(n_bytes, np.uint8)
        for place, party in enumerate(self._job.feature_holders, start=1):
            nodes = np.flatnonzero(winners == place)
            if not len(nodes):
                continue
            known = self.foreign.n_handles_of(place)
            answer = self._me.recv(party, WhichWay, n_won=len(nodes), n_bytes=n_bytes, n_handles=known + len(nodes))
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
        self.foreign.add_level(winners[foreign], handles[foreign])
