"""The label holder: it alone has labels, learns the rows of every node, and ends with trees and leaf values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hedgerow.crypto.beaver import PrivateMasks, hidden_input, private_product, take_as_reader
from hedgerow.crypto.ring import rows_times
from hedgerow.crypto.shares import XOR8, Array, as_bytes
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, Scores
from hedgerow.engine.ensemble import Tree, TreeStack
from hedgerow.engine.growth import LevelSplits
from hedgerow.engine.losses import check_weight
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.protocols.shares.columns import BYTES_OF_CUTS, Cuts, children_of, masked_rows
from hedgerow.protocols.shares.mesh import received
from hedgerow.protocols.shares.playing import check_rows_kept, checked_labels
from hedgerow.protocols.shares.scales import Weighing
from hedgerow.protocols.vertical.common.agreement import begin_as_label_holder, check_table, going_on
from hedgerow.protocols.vertical.common.drawing import RowDraw
from hedgerow.protocols.vertical.common.joint_forest import ForeignSplits
from hedgerow.protocols.vertical.common.messages import MOST_CLASSES, Onward
from hedgerow.protocols.vertical.common.parts import LabelHolderPart
from hedgerow.protocols.vertical.common.watching import Watch, watched_rows
from hedgerow.protocols.vertical.secret_shared import messages
from hedgerow.protocols.vertical.secret_shared.allowed import AllowedColumns
from hedgerow.protocols.vertical.secret_shared.growing import Growing
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.own_rows import OwnRows, renumbered, with_room_for
from hedgerow.protocols.vertical.secret_shared.shape import (
    HISTOGRAMS,
    LABEL_HOLDERS,
    SPLITS,
    Shape,
    most_bins_of,
    shape_of,
    tells_columns,
)
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_memory, check_room


@dataclass(frozen=True, eq=False)
class KeptForest:
    """The label holder's state after an iteration: what it knows in the clear. None of it is a share, or was dealt."""

    trees: TreeStack  # as they were grown
    foreign: Ints  # as `ForeignSplits` has them
    scores: Scores
    rounds: int
    levels: int
    curve: tuple[float, ...] = ()  # of rows that are watched: the metric of each iteration


def label_holder(me: Party, job: SecretSharedJob, data: PartyData | None) -> LabelHolderPart:
    """The label holder, from its table to its part of the model."""
    data, earlier = going_on(me.name, check_table(me.name, data))
    labels = checked_labels(me.name, job, data, most_classes=MOST_CLASSES)
    watched = watched_rows(me.name, job, data)
    draw = RowDraw(job.boosting, data.table.n_rows, _left_out(me.name, data, watched))
    table, trees = data.table, job.boosting
    check_memory(me.name, table.n_rows, len(table.columns), job.max_bins, trees.max_depth, trees.max_leaves)
    mapper = _own_bins(job, data, draw)
    done, kept = me.go_on(KeptForest, job)
    n_columns = begin_as_label_holder(me, job, data)
    shape, cuts = _agreed_shape(me, job, data, draw, n_columns)
    n_before = 0 if earlier is None else earlier.n_trees // shape.n_outputs
    own = OwnRows(me.name, job, shape, mapper, data, labels, draw, n_before)
    watch = None
    if watched is not None:
        curve = () if kept is None else kept.curve
        loss, base_scores = shape.scales.loss, own.base_scores
        watch = Watch(job, loss, data, watched, base_scores, me, done, first=n_before, known=curve)
    forest = _Forest(me, job, data.n_threads, shape, cuts, own, watch, ForeignSplits(job.holders, me.name, earlier))
    if kept is not None:
        forest.take_up(kept)
    n_trees = forest.train(done) * shape.n_outputs
    forest.foreign.keep_first(n_trees)
    meta = {
        "privacy": None,
        "stamp": None,
        "disclosure": job.disclosure,
        "gradient_bits": shape.scales.gradient_bits,
        "l2": own.params.l2,
        "rounds": {"setup": 2, "training": forest.rounds},
        "levels": forest.levels,
    }
    meta |= {"weighted": True} if data.weight is not None else {}
    meta |= {} if watch is None else watch.record
    meta |= {} if earlier is None else {"continues": earlier.run_id}
    loss, grown = shape.scales.loss, forest.grown[:n_trees]
    return forest.foreign.part(job, mapper.features, grown, loss, own.base_scores, data.classes, meta)


def _left_out(party: str, data: PartyData, watched: Bools | None) -> Bools | None:
    """Rows that nothing is learned from: those that are watched, and those of weight 0. None: there are none."""
    if data.weight is None:
        return watched
    check_weight(party, data.weight, data.table.n_rows)
    left_out = data.weight == 0 if watched is None else watched | (data.weight == 0)
    if left_out.all():
        raise InvalidInput(f"{party}: every sample_weight of rows to learn from is zero")
    return left_out if left_out.any() else None


def _own_bins(job: SecretSharedJob, data: PartyData, draw: RowDraw) -> BinMapper:
    """Of its own columns: by the rows that are learned from, or as those of an earlier model."""
    if data.part is not None:
        return BinMapper(data.part.features)
    seen, weight = data.table, data.weight
    if not isinstance(draw.learned, slice):
        seen, weight = seen.taken(draw.learned), None if weight is None else weight[draw.learned]
    return BinMapper.fit(seen, job.max_bins, weight, data.n_threads)


def _agreed_shape(
    me: Party, job: SecretSharedJob, data: PartyData, draw: RowDraw, n_columns: Mapping[str, int]
) -> tuple[Shape, Cuts]:
    """What all parties must know about each other's columns; the possible splits of all feature holders."""
    cuts, bins = [], []
    for party in job.feature_holders:
        if n_columns[party] > job.most_columns:
            raise ProtocolError(
                f"{party} says that it has {n_columns[party]} columns; a party may have {job.most_columns}"
            )
        columns = me.recv(party, messages.ColumnShapes, n_columns=n_columns[party], max_bins=most_bins_of(job))
        if (columns.n_bins[columns.has_levels == 0] > job.max_bins).any():
            raise ProtocolError(f"{party} says that a column of numbers has more bins than max_bins={job.max_bins}")
        n_bins = columns.n_bins.tolist()
        has_missing, has_levels = (each.astype(np.bool_).tolist() for each in (columns.has_missing, columns.has_levels))
        bins.append(masked_rows(n_bins, has_missing))
        check_room(me.name, BYTES_OF_CUTS * bins[-1], f"possible splits of {bins[-1]:,} bins of {party}")
        cuts.append(Cuts.of(n_bins, has_missing, has_levels))
        if not bins[-1]:
            raise InvalidInput(f"{party}: no column has values in two bins, so there is nothing to split by")
    n_classes = 2 if data.classes is None else max(len(data.classes), 2)
    weighing = Weighing.of(job.loss(n_classes), None if data.weight is None else data.weight[draw.learned])
    told = tells_columns(job)
    sizes = messages.Sizes(
        data.table.n_rows,
        np.array(bins, np.int64),
        np.array([len(each.bin) for each in cuts], np.int64),
        n_classes,
        *weighing,
        np.array([n_columns[party] * told for party in job.holders], np.int64),
        data.part.n_trees * told if data.part is not None else 0,
    )
    shape = shape_of(job, sizes)
    shape.check_room(me.name, job.depth, sum(bins))
    me.send_all((*job.feature_holders, job.dealer), sizes)
    return shape, Cuts.joined(cuts, bins)


# --- trees -----------------------------------------------------------------------------------------------------------


class _Forest(Growing):
    """Grows trees together with the feature holders, and remembers whose each split is."""

    def __init__(
        self,
        me: Party,
        job: SecretSharedJob,
        n_threads: int,
        shape: Shape,
        cuts: Cuts,
        own: OwnRows,
        watch: Watch | None,
        foreign: ForeignSplits,
    ) -> None:
        super().__init__(me, job, n_threads, shape)
        self._cuts, self._own, self._watch, self.foreign = cuts, own, watch, foreign
        self._hidden = self._masked_columns()
        self.grown: list[Tree] = []  # as they were grown, without handles of foreign splits
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

    def begin_iteration(self) -> None:
        """New gradients of all outputs."""
        self._own.begin_iteration(len(self.grown) // self.shape.n_outputs)

    def grow(self, tree: int) -> None:
        """One tree."""
        self._own.begin_tree(tree % self.shape.n_outputs)
        super().grow(tree)
        self.grown.append(self._own.grower.finish())

    def keep(self, n_iterations: int) -> None:
        """Trees and scores; and how the rows that are watched fare with them."""
        if self._watch is not None:
            self._watch.see(self._own.scores)
        self.me.keep(n_iterations, self.state)

    def onward(self) -> int:
        """Tell all whether it goes on."""
        if self._watch is None:
            return 0
        n_kept = self._watch.tell(self.me, self.job)
        self.me.send(self.job.dealer, Onward(n_kept))
        self._other_rounds += 1
        return n_kept

    @property
    def state(self) -> KeptForest:
        """After an iteration."""
        trees, foreign = TreeStack.of(self.grown), self.foreign.splits
        curve = () if self._watch is None else self._watch.curve
        return KeptForest(trees, foreign, self._own.scores, self.rounds, self.levels, curve)

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
        if self.allowed is not None:
            self.allowed.begin_level(own.grower.n_active)
        splits = own.grower.best(None if self.allowed is None else self.allowed.allowed(self.me.name))
        winners = self._play(level, histograms, splits)
        own.rows.sides[:] = 0
        own.rows.write_sides(np.where(winners == 0, splits.feature, -1), splits.goes_left)
        handles = self._ask_winners(winners, members, masks)
        self.levels += 1
        self._other_rounds += 1 + bool((winners > 0).any())
        gains = own.gains_of(splits, winners)
        winners = self._with_room(winners, gains)
        self._remember(winners, handles)
        columns = splits.feature.copy()
        own.divide(splits, winners, gains)
        return self.go_on(level, winners, columns, histograms)

    def _with_room(self, winners: Ints, gains: Floats) -> Ints:
        """Whose each node is, once those are out for which there is no room; all are told which."""
        room = self.room(winners)
        kept = with_room_for(winners, gains, room)
        if room is not None:
            told = kept[winners >= 0] >= 0
            self.me.send_all(self.job.feature_holders, messages.NodesKept(told.astype(np.uint8)))
            self._other_rounds += 1
        return kept

    def _remember(self, winners: Ints, handles: Ints) -> None:
        """Whose the level's splits are, and what they are called; their owners number what is kept alike."""
        for place in range(1, len(self.job.holders)):
            nodes = winners == place
            handles[nodes] = renumbered(handles[nodes], self.foreign.n_handles_of(place))
        foreign = winners > 0
        self.foreign.add_level(len(self.grown), winners[foreign], handles[foreign])

    def _send_input(self, level: int, members: Bytes, masks: Mapping[int, PrivateMasks]) -> Array:
        """Masked gradients of left children and masked rows of all nodes; shares of their histograms."""
        shape, own, sums = self.shape, self._own, self.shape.scales.sums
        step = self.supply.step(HISTOGRAMS)
        n_vectors, each = shape.n_vectors(level), shape.limits.n_vectors
        b = step.mask((n_vectors, shape.n_rows), sums, (0,)).words
        dealt = [step.share((n_vectors, n), sums, (0, place)).words for place, n in enumerate(shape.bins, start=1)]
        nodes = range(0, own.grower.n_active, 2)  # the root, or left children
        b = b[: each * len(nodes)]
        one = masks[1]
        rows = hidden_input(members, PrivateMasks(one.mine[: len(members)], one.z))
        for piece in shape.family_pieces(len(nodes)):
            vectors = own.minus(nodes[piece.start // each : piece.stop // each], b[piece])
            self.me.send_all(self.job.feature_holders, messages.LevelInput(as_bytes(vectors), as_bytes(rows)))
            rows = rows[:0]
        products = rows_times(self._hidden, b, n_threads=self.n_threads)
        products += np.concatenate(dealt, axis=1)[: len(b)]
        return products.reshape(len(nodes), each, -1)

    def _play(self, level: int, histograms: Array, splits: LevelSplits) -> Ints:
        """Who won each node, as `Shape.owners`; the label holder only where it entered a split of its own."""
        shape, (mine, first) = self.shape, self._own.candidates(splits)
        totals = self._own.totals()
        left = np.moveaxis(self._cuts.left(histograms), 1, 0) + totals[:, :, None] * self._cuts.plus_all
        if self.allowed is not None:
            left *= self._allowed_cuts(self.allowed)
        handles = np.zeros((len(mine), 1 + shape.n_candidates), np.uint32)
        handles[:, 0] = mine
        won = self.play(level, left, totals, first, handles)
        own = won <= LABEL_HOLDERS
        if (won[own] != mine[own]).any():
            raise ProtocolError(
                f"a node was won by what {self.me.name} did not enter: some party sent words that are not shares of it"
            )
        return shape.owners(won)

    def _allowed_cuts(self, allowed: AllowedColumns) -> Bools:
        """Which possible splits of feature holders the nodes of the level may have: [nodes or 1, splits]."""
        places = range(1, self.shape.n_holders)
        of_party = [self._cuts.column[self.shape.candidates_of(place)] for place in places]
        return np.concatenate([allowed.cuts_of(*each) for each in zip(places, of_party, strict=True)], axis=1)

    def _ask_winners(self, winners: Ints, members: Bytes, masks: Mapping[int, PrivateMasks]) -> Ints:
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
        return handles
