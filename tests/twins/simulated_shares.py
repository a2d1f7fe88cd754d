"""vertical.secret_shared for one party alone: a simulator sends it all that it would get, and knows no other data.

    me = Simulated("ben", job, leaked, ideal, coins)
    part = PROTOCOL.play(me, job, data["ben"])          its role runs to the end and does not notice
    me.received                                         what it was sent

The simulator knows the public sizes, what the party ends up with, and the party's own random bytes. Everything under a
mask is drawn uniformly at random. What is opened follows from the result: the last share of a winner's handle makes the
handle of whoever won in the end, and the answer of a foreign split makes the rows that went left. If nobody can tell
this from what a party gets in a real run, then a real run tells it no more than its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.crypto import limits
from hedgerow.crypto.beaver import take_as_reader
from hedgerow.crypto.csprng import KEY_BYTES, SecureRandom
from hedgerow.crypto.dealing import Hand, Label
from hedgerow.crypto.shares import SUM32, XOR8, Kind, limbs_kind
from hedgerow.crypto.tournament import secret_handles
from hedgerow.engine.dtypes import Bytes
from hedgerow.protocols.shares.columns import Cuts
from hedgerow.protocols.shares.messages import Dealt, MaskedWords, Seed
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart
from hedgerow.protocols.vertical.secret_shared.dealer import dealer
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import (
    ColumnShapes,
    LevelDone,
    LevelInput,
    MaskedColumns,
    Sizes,
    WhichWay,
    WinnerShare,
)
from hedgerow.protocols.vertical.secret_shared.shape import LABEL_HOLDERS, SPLITS, STOP, Shape, shape_of
from hedgerow.runtime.protocol import PartyData
from hedgerow.transport.frames import Message
from hedgerow.transport.ranges import check

# --- what is sent in the rounds of a level ---------------------------------------------------------------------------


class Piece(NamedTuple):
    """A part of the message of one round: how many numbers of which kind; of packed bits, how many of them count."""

    name: str
    kind: Kind
    n: int
    n_bits: int | None = None

    @property
    def n_bytes(self) -> int:
        """Its bytes on the wire."""
        return self.n * self.kind.number_bytes


def rounds_of(shape: Shape, level: int) -> Iterator[list[Piece]]:
    """What each party sends in the rounds of a level, which is public; winners' handles come last.

    For levels of one block of nodes.
    """
    plan, n_checks = shape.plan(level), shape.limits.n_checks
    if n_checks:
        n = plan.n_nodes * shape.n_candidates
        wide = limbs_kind(shape.scales.sums.number_bytes // 4)
        yield [Piece("sign", wide, n_checks * n)]
        for layer in limits.CIRCUIT.layers(wide.limbs):
            yield [_packed("and", n_checks * n * layer.n_blocks * layer.opened_bits)]
        yield [_packed("limits", n_checks * n), Piece("limited", shape.scales.sums, 2 * n)]
    yield [Piece("lift", shape.scales.sums, 4 * plan.n_nodes * shape.n_candidates)]
    for each in plan.levels():
        n_pairs = each.n_groups * each.n_pairs
        n_members = each.n_groups * each.group
        yield [Piece("fractions", plan.kind, 2 * n_members), Piece("handles", SUM32, n_members)]
        yield [Piece("sign", plan.kind, n_pairs)]
        for layer in plan.circuit.layers(plan.n_limbs):
            yield [_packed("and", n_pairs * layer.n_blocks * layer.opened_bits)]
        yield [_packed("pairs", n_pairs)]
        if each.asks_twice:
            yield [_packed("winners", n_members - each.n_groups)]
    yield [Piece("winner", SUM32, plan.n_nodes)]


def _packed(name: str, n_bits: int) -> Piece:
    return Piece(name, XOR8, -(-n_bits // 8), n_bits)


def counting_bits(pieces: Iterable[Piece]) -> npt.NDArray[np.bool_]:
    """Which bits of a round's message count, from the lowest of each byte; the rest is 0."""
    masks = []
    for piece in pieces:
        mask = np.ones(8 * piece.n_bytes, np.bool_)
        mask[piece.n_bits :] = piece.n_bits is None
        masks.append(mask)
    return np.concatenate(masks)


# --- what a training ends with ---------------------------------------------------------------------------------------


class Leaked(NamedTuple):
    """Sizes that a party is told, or knows of its own columns: of all feature holders, and of the columns of some."""

    sizes: Sizes
    columns: Mapping[str, ColumnShapes]

    def shape(self, job: SecretSharedJob) -> Shape:
        """All that follows from them."""
        return shape_of(job, self.sizes)

    def cuts(self, party: str) -> Cuts:
        """The possible splits of a party whose columns are known."""
        columns = self.columns[party]
        bits = [each.astype(np.bool_).tolist() for each in (columns.has_missing, columns.has_levels)]
        return Cuts.of(columns.n_bins.tolist(), *bits)


class Node(NamedTuple):
    """A node of a finished tree."""

    owner: int  # -1 for a leaf, 0 for the label holder, 1, 2, ... for feature holders
    question: tuple[int, int, bool] | None  # of feature holders: column, bin, whether missing values go left
    handle: int  # of the question in the owner's list
    left: npt.NDArray[np.bool_]  # rows of the node that go left; of a leaf none


Level = list[Node]


def ideal(
    parts: Mapping[str, LabelHolderPart | OwnerPart], job: SecretSharedJob, data: Mapping[str, PartyData]
) -> list[list[Level]]:
    """The nodes of all trees by level, without those at the greatest depth: from finished parts and the rows."""
    mine = parts[job.label_holder]
    owners = {party: part for party in job.feature_holders if isinstance(part := parts[party], OwnerPart)}
    if not isinstance(mine, LabelHolderPart):
        raise TypeError(f"the part of {job.label_holder} is not that of a label holder")
    answers = {party: part.answers(part.codes(data[party].table)) for party, part in owners.items()}
    codes = mine.all_codes(mine.codes(data[job.label_holder].table), answers)
    trees = []
    for tree in mine.ensemble.trees:
        levels: list[Level] = []
        front = [(0, np.ones(codes.shape[1], np.bool_))]
        while front and len(levels) < job.depth:
            level, after = [], []
            for node, rows in front:
                feature = int(tree.feature[node])
                if feature < 0:
                    level.append(Node(-1, None, 0, np.zeros_like(rows)))
                    continue
                missing = codes[feature] > len(mine.ensemble.features[feature].edges)
                left = rows & np.where(missing, tree.missing_left[node], codes[feature] <= tree.bin[node])
                level.append(_node(feature, left, mine, owners))
                after += [(int(tree.left[node]), left), (int(tree.right[node]), rows & ~left)]
            levels.append(level)
            front = after
        trees.append(levels)
    return trees


def _node(feature: int, left: npt.NDArray[np.bool_], mine: LabelHolderPart, owners: Mapping[str, OwnerPart]) -> Node:
    if feature < mine.n_own:
        return Node(0, None, 0, left)
    place, party = next(
        (place, party)
        for place, party in enumerate(owners, start=1)
        if 0 <= feature - mine.first_column(party) < mine.handles[party]
    )
    handle = feature - mine.first_column(party)
    asked = owners[party].questions
    question = (int(asked.column[handle]), int(asked.bin[handle]), bool(asked.missing_left[handle]))
    return Node(place, question, handle, left)


def without_others(trees: Sequence[list[Level]], place: int) -> list[list[Level]]:
    """What one party gets to know of it: of others' splits the owner; rows of nodes only if it is the label holder."""

    def seen(node: Node) -> Node:
        if place == 0:
            return node._replace(question=None)
        if node.owner == place:
            return node._replace(left=node.left[:0])
        return Node(node.owner, None, 0, node.left[:0])

    return [[[seen(node) for node in level] for level in levels] for levels in trees]


# --- parties that are alone ------------------------------------------------------------------------------------------


class Alone:
    """Stands for a Party without any other: keeps what it sends, and asks `answer` for what it gets."""

    def __init__(self, name: str, rng: SecureRandom) -> None:
        self.name, self.rng = name, rng
        self.attempt, self.checkpoints = 1, None
        self.sent: list[tuple[str, Message]] = []
        self.received: list[tuple[str, Message]] = []

    def wait_longer(self, times: float) -> None:
        """Nothing has to be waited for."""

    def go_on(self, *_: Any, **__: Any) -> tuple[int, None]:
        """It is the first attempt."""
        return 0, None

    def keep(self, n_trees: int, state: Any) -> None:
        """There are no checkpoints."""

    def report(self, done: int, total: int) -> None:
        """Nobody watches."""

    def send(self, to: str, message: Message, *, event: Any = None) -> None:  # noqa: ARG002 - as a Party
        """Keep it."""
        self.sent.append((to, message))

    def send_all(self, peers: Iterable[str], message: Message) -> None:
        """Keep it."""
        self.sent += [(to, message) for to in peers]

    def recv(self, sender: str, kind: type[Message], **symbols: Any) -> Message:
        """What the sender would send next."""
        message = self.answer(sender, kind)
        check(sender, message, symbols)
        self.received.append((sender, message))
        return message

    def answer(self, sender: str, kind: type[Message]) -> Message:
        """To be said by who simulates."""
        raise NotImplementedError


class DealerAlone(Alone):
    """A dealer that is given sizes and seeds."""

    def __init__(self, job: SecretSharedJob, sizes: Sizes, seeds: Mapping[str, bytes]) -> None:
        super().__init__(job.dealer, SecureRandom.from_seed(bytes(KEY_BYTES)))
        self._sizes, self._seeds = sizes, seeds

    def answer(self, sender: str, kind: type[Message]) -> Message:
        """Sizes, seeds, and that it may go on."""
        if kind is Sizes:
            return self._sizes
        return Seed(self._seeds[sender]) if kind is Seed else LevelDone()


def dealt_by_itself(job: SecretSharedJob, sizes: Sizes, seeds: Mapping[str, bytes]) -> dict[str, list[Dealt]]:
    """All that a dealer sends who knows sizes and seeds: party -> messages."""
    alone: Any = DealerAlone(job, sizes, seeds)
    dealer(alone, job, 0)
    return {party: [message for to, message in alone.sent if to == party] for party in job.holders}


@dataclass(frozen=True, slots=True)
class _Played:
    """A level that was played."""

    tree: int
    level: int
    nodes: Level


class Simulated(Alone):
    """A label holder or feature holder among simulated others.

    `trees` is what it gets to know of the trees, `coins` its own random bytes, `random` the simulator's.
    """

    def __init__(
        self, name: str, job: SecretSharedJob, leaked: Leaked, trees: Sequence[list[Level]], coins: bytes, random: bytes
    ) -> None:
        super().__init__(name, SecureRandom.from_seed(coins))
        self._job, self._leaked, self._shape = job, leaked, leaked.shape(job)
        self._place = job.holders.index(name)
        self._random = SecureRandom.from_seed(random)
        self._played = [
            _Played(tree, level, nodes) for tree, levels in enumerate(trees) for level, nodes in enumerate(levels)
        ]
        self._rounds = [pieces for played in self._played for pieces in list(rounds_of(self._shape, played.level))[:-1]]
        seeds = {party: self._random.bytes(KEY_BYTES) for party in job.holders}
        self._parcels = dealt_by_itself(job, leaked.sizes, seeds)[name]
        self._counts: dict[tuple[str, type[Message]], int] = {}
        self._own = SecureRandom.from_seed(coins)  # to know what the party will draw
        self._seed = self._own.bytes(KEY_BYTES)
        self.winners = [self._handles_of(played) for played in self._played]
        self._shares: dict[int, npt.NDArray[np.uint32]] = {}

    def _uniform(self, n_bytes: int) -> Bytes:
        return np.frombuffer(self._random.bytes(n_bytes), np.uint8)

    def answer(self, sender: str, kind: type[Message]) -> Message:
        """What comes next from a sender who is not there."""
        number = self._counts[sender, kind] = self._counts.get((sender, kind), -1) + 1
        shape = self._shape
        if kind is Dealt:
            return self._parcels[number]
        if kind is MaskedWords:
            counting = counting_bits(self._rounds[number])
            drawn = self._uniform(len(counting) // 8)
            return MaskedWords(drawn & np.packbits(counting, bitorder="little"))
        if kind is WinnerShare:
            return self._winner_share(sender, number)
        if kind is LevelInput:
            played = self._played[number]
            n_families = max(1, len(played.nodes) // 2)
            sums = shape.limits.n_vectors * n_families * shape.n_rows * shape.scales.sums.number_bytes
            return LevelInput(self._uniform(sums), self._uniform(len(played.nodes) * shape.bytes_of_bits))
        if kind is MaskedColumns:
            n_bins = shape.bins[self._job.holders.index(sender) - 1]
            return MaskedColumns(self._uniform(n_bins * shape.n_rows * shape.scales.sums.number_bytes))
        if kind is WhichWay:
            return self._which_way(self._job.holders.index(sender), number)
        return self._about_sizes(sender, kind)

    def _about_sizes(self, sender: str, kind: type[Message]) -> Message:
        if kind is ReadyToTrain:
            return ReadyToTrain(self._leaked.sizes.n_rows, len(self._leaked.columns[sender].n_bins))
        if kind is GoAhead:
            return GoAhead(self._leaked.sizes.n_rows)
        if kind is ColumnShapes:
            return self._leaked.columns[sender]
        if kind is Sizes:
            return self._leaked.sizes
        raise TypeError(f"{self.name} asks {sender} for {kind.NAME}, of which the simulator knows nothing")

    def _handles_of(self, played: _Played) -> npt.NDArray[np.uint32]:
        """The handle that is opened for each node of a block: its own are known, those of others uniform."""
        shape, place = self._shape, self._place
        handles = np.full(shape.block_nodes(played.level), STOP, np.uint32)
        own: npt.NDArray[np.uint32] = np.empty((0, 0), np.uint32)
        if place:
            n_own, first = shape.candidates[place - 1], shape.first_handle(place)
            own = secret_handles(self._own, len(played.nodes), first, n_own)
        for k, node in enumerate(played.nodes):
            if node.owner == 0:
                handles[k] = LABEL_HOLDERS
            elif node.owner > 0 and node.owner == place:
                handles[k] = own[k, self._cut(node)]
            elif node.owner > 0:
                handles[k] = shape.first_handle(node.owner) + self._random.integer(shape.candidates[node.owner - 1])
        return handles

    def _cut(self, node: Node) -> int:
        cuts = self._leaked.cuts(self.name)
        listed = zip(cuts.column.tolist(), cuts.bin.tolist(), cuts.missing_left.tolist(), strict=True)
        return next(k for k, cut in enumerate(listed) if cut == node.question)

    def _winner_share(self, sender: str, number: int) -> WinnerShare:
        """Uniform, but for the last one to come, which makes the handle."""
        handles = self.winners[number]
        own = [message for _, message in self.sent if isinstance(message, WinnerShare)][-1]
        last = [party for party in self._job.holders if party != self.name][-1]
        known = self._shares.get(number, np.zeros_like(handles)) + own.words.view(np.uint32) * (sender == last)
        share = handles - known if sender == last else self._uniform(handles.nbytes).view(np.uint32)
        self._shares[number] = known + share
        return WinnerShare(share.view(np.uint8))

    def _which_way(self, place: int, number: int) -> WhichWay:
        """T is uniform; u = s t + b T + z_1, of which the party has b and z_1 and ends up with s t."""
        won = [played for played in self._played if any(node.owner == place for node in played.nodes)][number]
        nodes = [k for k, node in enumerate(won.nodes) if node.owner == place]
        b, z = reader_masks(self._job, self._shape, self._seed, self._parcels, won.tree, won.level)[place]
        hidden = self._uniform(len(nodes) * self._shape.bytes_of_bits).reshape(len(nodes), -1)
        left = np.packbits(np.stack([won.nodes[k].left for k in nodes]), axis=1)
        handles = np.array([won.nodes[k].handle for k in nodes], np.int32)
        return WhichWay(handles, hidden, left ^ (b[nodes] & hidden) ^ z[nodes])


def reader_masks(
    job: SecretSharedJob, shape: Shape, seed: bytes, parcels: Iterable[Dealt], tree: int, level: int
) -> dict[int, tuple[Bytes, Bytes]]:
    """What the label holder makes of its seed and of what was dealt to it: place -> b and z_1 of all nodes."""
    corrections = next(d.corrections for d in parcels if (d.lane, d.tree, d.level) == (SPLITS, tree, level))
    step = Hand(seed, 0, len(job.holders), lane=SPLITS).step(
        Label(tree=tree, level=level), corrections if len(corrections) else None
    )
    size = (shape.n_nodes(level), shape.bytes_of_bits)
    taken = take_as_reader(step, size, XOR8, reader=0, others=range(1, len(job.holders)))
    return {place: (masks.mine.words, masks.z.words) for place, masks in taken.items()}
