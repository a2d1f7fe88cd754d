"""A feature holder: columns but no labels. It ends with its own questions, not with trees or leaf values."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.beaver import PrivateMasks, answer_to_reader, hidden_input, take_as_other
from hedgerow.crypto.shares import XOR8, Array, as_bytes
from hedgerow.crypto.tournament import secret_handles
from hedgerow.engine.dtypes import Bytes, Ints
from hedgerow.errors import ProtocolError
from hedgerow.protocols.shares.columns import OneHotColumns, children_of
from hedgerow.protocols.vertical.common.agreement import begin_as_feature_holder, check_table, going_on
from hedgerow.protocols.vertical.common.joint_forest import Asked
from hedgerow.protocols.vertical.common.parts import OwnerPart
from hedgerow.protocols.vertical.common.states import OwnerState
from hedgerow.protocols.vertical.common.watching import hear
from hedgerow.protocols.vertical.secret_shared.growing import Growing
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import (
    ColumnShapes,
    LevelInput,
    MaskedColumns,
    NodesKept,
    WhichWay,
)
from hedgerow.protocols.vertical.secret_shared.shape import (
    COLUMNS,
    HISTOGRAMS,
    SPLITS,
    Shape,
    received_shape,
)
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def feature_holder(me: Party, job: SecretSharedJob, data: PartyData | None) -> OwnerPart:
    """A feature holder, from its table to its part of the model."""
    data, earlier = going_on(me.name, check_table(me.name, data))
    like = None if earlier is None else earlier.features
    columns = OneHotColumns.by_quantiles(me.name, job, data, one_hot=True, like=like)
    done, kept = me.go_on(OwnerState, job)
    begin_as_feature_holder(me, job, data)
    gaps, levels = np.array(columns.gaps, np.uint8), np.array(columns.has_levels, np.uint8)
    me.send(job.label_holder, ColumnShapes(np.array(columns.n_bins, np.int32), gaps, levels))
    shape = received_shape(me, job, columns.n_rows)
    _check_own_sizes(me, job, shape, columns)
    shape.check_room(me.name, job.depth, sum(columns.n_codes))
    asked = Asked(kept, earlier)  # columns are binned as before, and nothing else lasts
    growing = _WithColumns(me, job, data.n_threads, shape, columns, asked)
    growing.send_masked()
    asked.keep_first(growing.train(done))
    meta = {"privacy": None, "stamp": None, "disclosure": job.disclosure}
    return OwnerPart(me.name, job.label_holder, job.NAME, job.run_id, columns.features, asked.questions(), meta)


def _check_own_sizes(me: Party, job: SecretSharedJob, shape: Shape, columns: OneHotColumns) -> None:
    """ProtocolError unless the label holder says about this party what it said itself."""
    place = job.holders.index(me.name)
    if shape.bins[place - 1] != sum(columns.n_codes) - len(columns.n_codes):
        raise ProtocolError(f"{job.label_holder} speaks of {shape.bins[place - 1]} bins of {me.name}, which has others")
    if shape.candidates[place - 1] != len(columns.cuts.bin):
        raise ProtocolError(
            f"{job.label_holder} speaks of {shape.candidates[place - 1]} possible splits of {me.name}, which has others"
        )
    if shape.n_columns and shape.n_columns[place] != len(columns.features):
        raise ProtocolError(f"{job.label_holder} speaks of {shape.n_columns[place]} columns of {me.name}")


class _WithColumns(Growing):
    """Takes part in growing trees of which it learns the shape and its own splits."""

    def __init__(
        self,
        me: Party,
        job: SecretSharedJob,
        n_threads: int,
        shape: Shape,
        columns: OneHotColumns,
        asked: Asked,
    ) -> None:
        super().__init__(me, job, n_threads, shape)
        self._columns, self._asked = columns, asked

    def begin_iteration(self) -> None:
        """It has no scores."""

    def keep(self, n_iterations: int) -> None:
        """Questions so far."""
        self._asked.end_tree()
        self.me.keep(n_iterations, self._asked.state())

    def onward(self) -> int:
        """The label holder says so."""
        return hear(self.me, self.job)

    def send_masked(self) -> None:
        """E = X - A, block by block."""
        shape, sums, place = self.shape, self.shape.scales.sums, self.place
        step = self.supply.without_parcel(COLUMNS)
        for bins in shape.matrices.blocks(place):
            masks = step.mask((bins.stop - bins.start, shape.n_rows), sums, (place,)).words
            self.me.send(self.job.label_holder, MaskedColumns(as_bytes(self._columns.minus(masks, bins))))

    def grow_level(self, level: int, parents: Array | None) -> Array:
        """All nodes of a level; shares of the histograms of those that split."""
        shape, place = self.shape, self.place
        n_nodes = 1 if parents is None else 2 * len(parents)
        bits = (shape.n_nodes(level), shape.bytes_of_bits)
        masks = take_as_other(self.supply.step(SPLITS), bits, XOR8, reader=0, me=place)
        made, members = self._receive_input(level, 1 if parents is None else len(parents), n_nodes)
        histograms = made if parents is None else children_of(parents, made)
        handles = secret_handles(self.me.rng, n_nodes, shape.first_handle(place), shape.candidates[place - 1])
        won = self._play(level, histograms, handles)
        owners = shape.owners(won)
        cuts = np.argmax(handles == won[:, None], axis=1)  # where it has won
        known, mine = self._asked.n_handles, np.flatnonzero(owners == place)
        if len(mine):
            self._answer(mine, cuts[mine], members, masks)
        if self.room(owners) is not None:
            owners = self._kept(owners)
            self._asked.forget_after(known)
            self._asked.handles_of([self._columns.question(cut) for cut in cuts[owners == place].tolist()])
        return self.go_on(level, owners, self._columns.cuts.column[cuts], histograms)

    def _kept(self, owners: Ints) -> Ints:
        """Whose each node is, once the label holder has said which of them split after all."""
        splitting = np.flatnonzero(owners >= 0)
        kept = self.me.recv(self.job.label_holder, NodesKept, n_won=len(splitting)).kept
        if int(kept.sum()) != self.room(owners):
            raise ProtocolError(f"{self.job.label_holder} splits {int(kept.sum())} nodes; room is for another number")
        owners[splitting[kept == 0]] = -1
        return owners

    def _receive_input(self, level: int, n_families: int, n_nodes: int) -> tuple[Array, Bytes]:
        """Shares of histograms of left children, and the masked rows of all nodes."""
        shape, sums, sender = self.shape, self.shape.scales.sums, self.job.label_holder
        n_bins = shape.bins[self.place - 1]
        dealt = self.supply.step(HISTOGRAMS).share((shape.n_vectors(level), n_bins), sums, (0, self.place))
        made = np.empty((shape.limits.n_vectors * n_families, n_bins), sums.dtype)
        rows = np.zeros(0, np.uint8)
        for piece in shape.family_pieces(n_families):
            size = (piece.stop - piece.start, shape.n_rows)
            n_bytes, is_first = size[0] * size[1] * sums.number_bytes, piece.start == 0
            message = self.me.recv(
                sender, LevelInput, n_bytes=n_bytes, n_row_bytes=n_nodes * shape.bytes_of_bits if is_first else 0
            )
            vectors = message.sums.view(sums.dtype).reshape(size)
            made[piece] = self._columns.histograms(vectors, self.n_threads)
            rows = message.rows if is_first else rows
        made += dealt.words[: len(made)]
        return made.reshape(n_families, -1, n_bins), rows.reshape(n_nodes, shape.bytes_of_bits)

    def _play(self, level: int, histograms: Array, handles: Array) -> Array:
        """The winning handle of each node."""
        shape, n_nodes = self.shape, len(histograms)
        mine = shape.candidates_of(self.place)
        left = np.zeros((shape.limits.n_vectors, n_nodes, shape.n_candidates), histograms.dtype)
        left[:, :, mine] = np.moveaxis(self._columns.cuts.left(histograms), 1, 0)
        if self.allowed is not None:
            self.allowed.begin_level(n_nodes)
            left[:, :, mine] *= self.allowed.cuts_of(self.place, self._columns.cuts.column)
        words = np.zeros((n_nodes, 1 + shape.n_candidates), np.uint32)
        words[:, 1:][:, mine] = handles
        nothing = np.zeros((n_nodes, shape.scales.wide.limbs), np.uint32)
        return self.play(level, left, left[:, :, 0] * 0, (nothing, nothing), words)

    def _answer(self, nodes: Ints, cuts: Ints, members: Bytes, masks: PrivateMasks) -> None:
        """Which way the rows of nodes go that this party won, so that only the label holder can read it."""
        handles = self._asked.handles_of([self._columns.question(cut) for cut in cuts.tolist()])
        left = np.stack([self._columns.goes_left(cut) for cut in cuts.tolist()])
        used = PrivateMasks(masks.mine[nodes], masks.z[nodes])
        answers = answer_to_reader(members[nodes], left, used)
        self.me.send(self.job.label_holder, WhichWay(handles, hidden_input(left, used), answers))
