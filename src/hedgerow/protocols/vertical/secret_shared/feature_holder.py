"""A feature holder: columns but no labels. It ends with its own questions, not with trees or leaf values."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.beaver import PrivateMasks, answer_to_reader, hidden_input, take_as_other
from hedgerow.crypto.shares import XOR8, Array
from hedgerow.crypto.tournament import secret_handles
from hedgerow.engine.dtypes import MAX_BINS, Bytes, Ints
from hedgerow.errors import ProtocolError
from hedgerow.protocols.shares.columns import OneHotColumns, children_of
from hedgerow.protocols.shares.mesh import Mesh, as_bytes, as_words
from hedgerow.protocols.shares.supply import Supply
from hedgerow.protocols.vertical.common.parts import OwnerPart, Questions
from hedgerow.protocols.vertical.common.tables import begin_as_feature_holder, check_table
from hedgerow.protocols.vertical.secret_shared.dealer import received_shape
from hedgerow.protocols.vertical.secret_shared.hands import play_level
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import (
    ColumnShapes,
    LevelInput,
    MaskedColumns,
    WhichWay,
)
from hedgerow.protocols.vertical.secret_shared.shape import COLUMNS, HISTOGRAMS, SPLITS, Shape
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def feature_holder(me: Party, job: SecretSharedJob, data: PartyData | None) -> OwnerPart:
    """A feature holder, from its table to its part of the model."""
    data = check_table(me.name, data)
    columns = OneHotColumns.by_quantiles(me.name, job, data)
    begin_as_feature_holder(me, job, data)
    me.send(job.label_holder, ColumnShapes(np.array(columns.n_bins, np.int32), np.array(columns.gaps, np.uint8)))
    shape = received_shape(me, job, columns.n_rows)
    _check_own_sizes(me, job, shape, columns)
    shape.check_room(me.name, job.depth, sum(columns.n_codes))
    supply = Supply(me, job.dealer, job.holders)
    _send_masked(me, job, shape, supply, columns)
    growing = _Growing(me, job, shape, supply, columns, n_threads=data.n_threads)
    for tree in range(job.boosting.n_iterations):
        growing.grow(tree)
    meta = {"privacy": None, "stamp": None, "disclosure": job.disclosure}
    return OwnerPart(me.name, job.label_holder, job.NAME, job.run_id, columns.features, growing.questions(), meta)


def _check_own_sizes(me: Party, job: SecretSharedJob, shape: Shape, columns: OneHotColumns) -> None:
    """ProtocolError unless the label holder says about this party what it said itself."""
    place = job.holders.index(me.name)
    if shape.bins[place - 1] != sum(columns.n_codes) - len(columns.n_codes):
        raise ProtocolError(f"{job.label_holder} speaks of {shape.bins[place - 1]} bins of {me.name}, which has others")
    if shape.candidates[place - 1] != len(columns.cuts.bin):
        raise ProtocolError(
            f"{job.label_holder} speaks of {shape.candidates[place - 1]} possible splits of {me.name}, which has others"
        )


def _send_masked(me: Party, job: SecretSharedJob, shape: Shape, supply: Supply, columns: OneHotColumns) -> None:
    """E = X - A, block by block."""
    sums, place = shape.scales.sums, job.holders.index(me.name)
    step = supply.without_parcel(COLUMNS)
    for bins in shape.matrices.blocks(place):
        masks = step.mask((bins.stop - bins.start, shape.n_rows), sums, (place,)).words
        me.send(job.label_holder, MaskedColumns(as_bytes(columns.minus(masks, bins))))


class _Growing:
    """Takes part in growing trees of which it learns the shape and its own splits."""

    def __init__(
        self, me: Party, job: SecretSharedJob, shape: Shape, supply: Supply, columns: OneHotColumns, *, n_threads: int
    ) -> None:
        self._me, self._job, self._shape, self._columns = me, job, shape, columns
        self._place = job.holders.index(me.name)
        self._supply, self._mesh = supply, Mesh(me, job.holders)
        self._n_threads = n_threads
        self._asked: dict[tuple[int, int, bool], int] = {}

    def grow(self, tree: int) -> None:
        """One tree."""
        parents: Array | None = None
        for level in range(self._job.depth):
            self._supply.begin(tree, level, self._shape.n_parcels(level))
            if parents is None or len(parents):
                parents = self._grow_level(level, parents)
            self._supply.finish()

    def _grow_level(self, level: int, parents: Array | None) -> Array:
        """All nodes of a level; shares of the histograms of those that split."""
        shape, place = self._shape, self._place
        n_nodes = 1 if parents is None else 2 * len(parents)
        masks = take_as_other(
            self._supply.step(SPLITS), (shape.n_nodes(level), shape.bytes_of_bits), XOR8, reader=0, me=place
        )
        made, members = self._receive_input(level, 1 if parents is None else len(parents), n_nodes)
        histograms = made if parents is None else children_of(parents, made)
        handles = secret_handles(self._me.rng, n_nodes, shape.first_handle(place), shape.candidates[place - 1])
        won = self._play(level, histograms, handles)
        owners = shape.owners(won)
        nodes = np.flatnonzero(owners == place)
        if len(nodes):
            self._answer(nodes, np.argmax(handles[nodes] == won[nodes, None], axis=1), members, masks)
        return histograms[owners >= 0]

    def _receive_input(self, level: int, n_families: int, n_nodes: int) -> tuple[Array, Bytes]:
        """Shares of histograms of left children, and the masked rows of all nodes."""
        shape, sums, sender = self._shape, self._shape.scales.sums, self._job.label_holder
        n_bins = shape.bins[self._place - 1]
        dealt = self._supply.step(HISTOGRAMS).share((2 * shape.n_families(level), n_bins), sums, (0, self._place))
        made = np.empty((2 * n_families, n_bins), sums.dtype)
        rows = np.zeros(0, np.uint8)
        for piece in shape.family_pieces(n_families):
            size = (piece.stop - piece.start, shape.n_rows)
            n_bytes, is_first = size[0] * size[1] * sums.number_bytes, piece.start == 0
            message = self._me.recv(
                sender, LevelInput, n_bytes=n_bytes, n_row_bytes=n_nodes * shape.bytes_of_bits if is_first else 0
            )
            vectors = as_words(sender, message.sums, sums.dtype, size)
            made[piece] = self._columns.histograms(vectors, self._n_threads)
            rows = message.rows if is_first else rows
        made += dealt.words[: len(made)]
        members = as_words(sender, rows, np.dtype(np.uint8), (n_nodes, shape.bytes_of_bits))
        return made.reshape(n_families, 2, n_bins), members

    def _play(self, level: int, histograms: Array, handles: Array) -> Array:
        """The winning handle of each node."""
        shape, n_nodes = self._shape, len(histograms)
        mine = shape.candidates_of(self._place)
        left = np.zeros((2, n_nodes, shape.n_candidates), histograms.dtype)
        left[:, :, mine] = np.moveaxis(self._columns.cuts.left(histograms), 1, 0)
        right = np.subtract(0, left, dtype=left.dtype)
        words = np.zeros((n_nodes, 1 + shape.n_candidates), np.uint32)
        words[:, 1:][:, mine] = handles
        nothing = np.zeros((n_nodes, shape.scales.wide.limbs), np.uint32)
        return play_level(
            self._supply,
            self._mesh,
            shape,
            level,
            np.concatenate([left, right]),
            (nothing, nothing),
            words,
            is_first=False,
        )

    def _answer(self, nodes: Ints, cuts: Ints, members: Bytes, masks: PrivateMasks) -> None:
        """Which way the rows of nodes go that this party won, so that only the label holder can read it."""
        own = self._columns.cuts
        questions = [(int(own.column[c]), int(own.bin[c]), bool(own.missing_left[c])) for c in cuts.tolist()]
        handles = [self._asked.setdefault(question, len(self._asked)) for question in questions]
        left = np.stack([self._columns.goes_left(cut) for cut in cuts.tolist()])
        used = PrivateMasks(masks.mine[nodes], masks.z[nodes])
        answers = answer_to_reader(members[nodes], left, used)
        self._me.send(self._job.label_holder, WhichWay(np.array(handles, np.int32), hidden_input(left, used), answers))

    def questions(self) -> Questions:
        """All questions that were asked, by handle."""
        if not self._asked:
            return Questions.none()
        column, last_bin, missing_left = zip(*self._asked, strict=True)
        return Questions(
            np.array(column, np.int32),
            np.array(last_bin, np.int32),
            np.array(missing_left, np.bool_),
            np.zeros((len(column), MAX_BINS), np.bool_),
        )
