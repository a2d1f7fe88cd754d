"""vertical.secret_shared for parties that work together: a simulator plays all others, and knows none of their data.

    together = Coalition(["ben", "carla"], job, leaked, trees, coins, random)
    parts = together.play(data)                    the members' roles run to the end, among themselves and with it
    together.members["ben"].received               what ben was sent, by members and by the simulator

As in `simulated_shares`, but what several parties get must fit together: outsiders send the same words to all of them,
the dealer works with the members' true seeds, and the outsiders' shares of a handle make it with those of all members.
The simulator knows the members' random bytes, public sizes, and what the members end up with between them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.crypto.csprng import KEY_BYTES, SecureRandom
from hedgerow.crypto.tournament import secret_handles
from hedgerow.engine.dtypes import Bytes
from hedgerow.protocols.shares.messages import Dealt, MaskedWords
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import (
    ColumnShapes,
    LevelInput,
    MaskedColumns,
    Sizes,
    WhichWay,
    WinnerShare,
)
from hedgerow.protocols.vertical.secret_shared.shape import LABEL_HOLDERS, STOP
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as PROTOCOL
from hedgerow.runtime.protocol import PartyData
from hedgerow.transport.frames import Message
from twins.simulated_shares import (
    Alone,
    Leaked,
    Level,
    Node,
    counting_bits,
    dealt_by_itself,
    reader_masks,
    rounds_of,
)

Handles = npt.NDArray[np.uint32]

SECONDS = 30.0
"""How long a member waits for another one."""


def known_together(trees: Sequence[list[Level]], places: Sequence[int]) -> list[list[Level]]:
    """What some parties get to know of the trees between them: rows only if the label holder (0) is one of them."""

    def seen(node: Node) -> Node:
        left = node.left if 0 in places else node.left[:0]
        if node.owner in places and node.owner > 0:
            return node._replace(left=left)
        return Node(node.owner, None, node.handle if 0 in places else 0, left)

    return [[[seen(node) for node in level] for level in levels] for levels in trees]


class Coalition:
    """Members, and the simulator of everybody else. `trees` is what `known_together` gives, `coins` the members'."""

    def __init__(
        self,
        members: Sequence[str],
        job: SecretSharedJob,
        leaked: Leaked,
        trees: Sequence[list[Level]],
        coins: Mapping[str, bytes],
        random: bytes,
    ) -> None:
        self.job, self.names = job, tuple(members)
        self._leaked, self._shape = leaked, leaked.shape(job)
        self._random = SecureRandom.from_seed(random)
        self._played = [(tree, level, nodes) for tree, levels in enumerate(trees) for level, nodes in enumerate(levels)]
        rounds = [pieces for _, level, _ in self._played for pieces in list(rounds_of(self._shape, level))[:-1]]
        self._counting = [np.packbits(counting_bits(pieces), bitorder="little") for pieces in rounds]
        draws = {name: SecureRandom.from_seed(coins[name]) for name in self.names}
        self._seeds = {name: draw.bytes(KEY_BYTES) for name, draw in draws.items()}
        seeds = {name: self._seeds.get(name) or self._random.bytes(KEY_BYTES) for name in job.holders}
        self._parcels = dealt_by_itself(job, leaked.sizes, seeds)
        self.winners = [self._handles_of(level, nodes, draws) for _, level, nodes in self._played]
        self._said: dict[tuple[str, type[Message], int], Message] = {}
        self._changed = threading.Condition()
        self.members = {name: Member(name, self, SecureRandom.from_seed(coins[name])) for name in self.names}

    def play(self, data: Mapping[str, PartyData]) -> dict[str, Any]:
        """The members' parts."""
        parts: dict[str, Any] = {}
        errors: list[BaseException] = []

        def live(me: Any) -> None:
            try:
                parts[me.name] = PROTOCOL.play(me, self.job, data[me.name])
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)

        threads = [threading.Thread(target=live, args=(member,), daemon=True) for member in self.members.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * SECONDS)
        if errors:
            raise errors[0]
        return parts

    # --- what outsiders say ----------------------------------------------------------------------------------------

    def told(self) -> None:
        """A member has sent something."""
        with self._changed:
            self._changed.notify_all()

    def answer(self, member: str, sender: str, kind: type[Message], number: int) -> Message:
        """The message of this kind, and of this number, of a sender who is not there."""
        if kind is Dealt:
            return self._parcels[member][number]
        with self._changed:
            if kind is WinnerShare and not self._changed.wait_for(lambda: self._have_sent(number), SECONDS):
                raise TimeoutError(f"members have not sent their shares of handles number {number}")
            key = (sender, kind, number)
            if key not in self._said:
                self._said[key] = self._new(sender, kind, number)
            return self._said[key]

    def _new(self, sender: str, kind: type[Message], number: int) -> Message:
        shape, place = self._shape, self.job.holders.index(sender)
        if kind is MaskedWords:
            counting = self._counting[number]
            return MaskedWords(self._uniform(len(counting)) & counting)
        if kind is WinnerShare:
            return self._winner_share(sender, number)
        if kind is LevelInput:
            nodes = self._played[number][2]
            sums = 2 * max(1, len(nodes) // 2) * shape.n_rows * shape.scales.sums.number_bytes
            return LevelInput(self._uniform(sums), self._uniform(len(nodes) * shape.bytes_of_bits))
        if kind is MaskedColumns:
            return MaskedColumns(self._uniform(shape.bins[place - 1] * shape.n_rows * shape.scales.sums.number_bytes))
        if kind is WhichWay:
            return self._which_way(place, number)
        known: dict[type[Message], Message] = {
            GoAhead: GoAhead(self._leaked.sizes.n_rows),
            Sizes: self._leaked.sizes,
        }
        if sender in self._leaked.columns:
            columns = self._leaked.columns[sender]
            known |= {ReadyToTrain: ReadyToTrain(shape.n_rows, len(columns.n_bins)), ColumnShapes: columns}
        return known[kind]

    def _uniform(self, n_bytes: int) -> Bytes:
        return np.frombuffer(self._random.bytes(n_bytes), np.uint8)

    def _handles_of(self, level: int, nodes: Level, draws: Mapping[str, SecureRandom]) -> Handles:
        """The handle that is opened for each node of a block: members' are known, those of outsiders uniform."""
        shape, holders = self._shape, self.job.holders
        handles = np.full(shape.block_nodes(level), STOP, np.uint32)
        drawn = {}
        for name, draw in draws.items():
            if place := holders.index(name):
                drawn[place] = secret_handles(draw, len(nodes), shape.first_handle(place), shape.candidates[place - 1])
        for k, node in enumerate(nodes):
            if node.owner == 0:
                handles[k] = LABEL_HOLDERS
            elif node.owner in drawn:
                cuts = self._leaked.cuts(holders[node.owner])
                listed = zip(cuts.column.tolist(), cuts.bin.tolist(), cuts.missing_left.tolist(), strict=True)
                place = next(k for k, cut in enumerate(listed) if cut == node.question)
                handles[k] = drawn[node.owner][k][place]
            elif node.owner > 0:
                handles[k] = shape.first_handle(node.owner) + self._random.integer(shape.candidates[node.owner - 1])
        return handles

    def _shares_sent(self, number: int) -> list[Handles]:
        """Of each member that has sent this many of them."""
        found = []
        for member in self.members.values():
            to = next(name for name in self.job.holders if name != member.name)
            sent = [message for name, message in list(member.sent) if name == to and isinstance(message, WinnerShare)]
            found += [message.words.view(np.uint32) for message in sent[number : number + 1]]
        return found

    def _have_sent(self, number: int) -> bool:
        return len(self._shares_sent(number)) == len(self.names)

    def _winner_share(self, sender: str, number: int) -> WinnerShare:
        """Uniform, but for the last outsider's, which makes the handle with all others."""
        outsiders = [name for name in self.job.holders if name not in self.names]
        handles = self.winners[number]
        if sender != outsiders[-1]:
            return WinnerShare(self._uniform(handles.nbytes))
        share = handles - np.sum(self._shares_sent(number), axis=0, dtype=np.uint32)
        for name in outsiders[:-1]:
            message = self._said.get((name, WinnerShare, number)) or self._winner_share(name, number)
            self._said[name, WinnerShare, number] = message
            share = share - message.words.view(np.uint32)
        return WinnerShare(share.view(np.uint8))

    def _which_way(self, place: int, number: int) -> WhichWay:
        """T is uniform; u = s t + b T + z_1, of which the label holder has b and z_1 and ends up with s t."""
        won = [played for played in self._played if any(node.owner == place for node in played[2])][number]
        tree, level, all_nodes = won
        nodes = [k for k, node in enumerate(all_nodes) if node.owner == place]
        holder = self.job.label_holder
        masks = reader_masks(self.job, self._shape, self._seeds[holder], self._parcels[holder], tree, level)
        b, z = masks[place]
        hidden = self._uniform(len(nodes) * self._shape.bytes_of_bits).reshape(len(nodes), -1)
        left = np.packbits(np.stack([all_nodes[k].left for k in nodes]), axis=1)
        handles = np.array([all_nodes[k].handle for k in nodes], np.int32)
        return WhichWay(handles, hidden, left ^ (b[nodes] & hidden) ^ z[nodes])


class Member(Alone):
    """Stands for the Party of a member: what other members send it comes from them, all else from the simulator."""

    def __init__(self, name: str, together: Coalition, rng: SecureRandom) -> None:
        super().__init__(name, rng)
        self._together = together
        self._inboxes: dict[str, queue.Queue[Message]] = {other: queue.Queue() for other in together.names}
        self._asked: dict[tuple[str, type[Message]], int] = {}

    def send(self, to: str, message: Message, *, event: Any = None) -> None:  # noqa: ARG002 - as a Party
        """Keep it, and hand it to a member."""
        self.send_all([to], message)

    def send_all(self, peers: Iterable[str], message: Message) -> None:
        """Keep it, and hand it to members."""
        for to in peers:
            self.sent.append((to, message))
            if to in self._together.names:
                self._together.members[to].hand_over(self.name, message)
        self._together.told()

    def hand_over(self, sender: str, message: Message) -> None:
        """A member's message has come."""
        self._inboxes[sender].put(message)

    def answer(self, sender: str, kind: type[Message]) -> Message:
        """What comes next, from a member or from the simulator."""
        if sender in self._together.names:
            message = self._inboxes[sender].get(timeout=SECONDS)
            if not isinstance(message, kind):
                raise TypeError(f"{sender} sent {message.NAME} to {self.name}, which waits for {kind.NAME}")
            return message
        number = self._asked[sender, kind] = self._asked.get((sender, kind), -1) + 1
        return self._together.answer(self.name, sender, kind, number)
