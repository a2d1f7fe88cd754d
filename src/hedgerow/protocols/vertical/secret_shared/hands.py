"""What label holder and feature holders do alike: draw what was dealt, and open masked words to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hedgerow.crypto.dealing import Hand, HandStep, Label
from hedgerow.crypto.lifting import gains
from hedgerow.crypto.rounds import Conversation, Masked, Talk, opened
from hedgerow.crypto.shares import SUM32, Array, Share
from hedgerow.crypto.tournament import tournament
from hedgerow.errors import ProtocolError
from hedgerow.party import Party
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import Dealt, MaskedWords, Seed, WinnerShare
from hedgerow.protocols.vertical.secret_shared.shape import Shape

SEED_BYTES = 32
_HANDLE = "handle"

Bytes = np.ndarray
Parcel = tuple[str, int]  # lane and step


class Supply:
    """What the dealer sends to this party, level by level, and the words that it makes of its seed."""

    def __init__(self, me: Party, job: SecretSharedJob, shape: Shape) -> None:
        seed = me.rng.bytes(SEED_BYTES)
        me.send(job.dealer, Seed(seed))
        self._me, self._dealer, self._shape = me, job.dealer, shape
        self._seed, self._place = seed, job.holders.index(me.name)
        self._hands: dict[str, Hand] = {}
        self._label = Label()
        self._waiting: dict[Parcel, Bytes] = {}
        self._left = 0  # parcels of this level that have not come yet
        self._taken: list[HandStep] = []

    def without_parcel(self, lane: str) -> HandStep:
        """A step for masks alone, for which nothing is sent."""
        return self._hand(lane).step(Label())

    def begin(self, tree: int, level: int) -> None:
        """What is taken from now on is for this level."""
        self._label = Label(tree=tree, level=level)
        self._left = self._shape.n_parcels(level)

    def step(self, lane: str, step: int = 0) -> HandStep:
        """The next step of a lane."""
        while (lane, step) not in self._waiting:
            self._receive()
        corrections = self._waiting.pop((lane, step))
        taken = self._hand(lane).step(self._label._replace(step=step), corrections if len(corrections) else None)
        self._taken.append(taken)
        return taken

    def finish(self) -> None:
        """The level is over: what was dealt for it and not used is thrown away."""
        while self._left:
            self._receive()
        for step in self._taken:
            step.finish()
        self._waiting.clear()
        self._taken.clear()

    def _hand(self, lane: str) -> Hand:
        if lane not in self._hands:
            self._hands[lane] = Hand(self._seed, self._place, self._shape.n_holders, lane=lane)
        return self._hands[lane]

    def _receive(self) -> None:
        if not self._left:
            raise ProtocolError(f"{self._dealer} has not dealt all that is needed at {self._label}")
        dealt = self._me.recv(self._dealer, Dealt)
        if (dealt.tree, dealt.level) != (self._label.tree, self._label.level):
            raise ProtocolError(
                f"{self._dealer} dealt for tree {dealt.tree}, level {dealt.level}, when {self._label} had its turn"
            )
        self._waiting[dealt.lane, dealt.step] = dealt.corrections
        self._left -= 1


class Mesh:
    """All parties with data, each of which sends one message to each other in every round."""

    def __init__(self, me: Party, job: SecretSharedJob) -> None:
        self._me, self._holders = me, job.holders
        self._others = [party for party in job.holders if party != me.name]
        self.rounds = 0

    def talk(self, conversations: Sequence[Conversation[Array]]) -> list[Array]:
        """Hold conversations side by side until they are over, all in the same messages; what each came to."""
        while not conversations[0].is_over:
            pieces = [conversation.send() for conversation in conversations]
            ends = np.cumsum([len(piece) for piece in pieces])
            last = conversations[0].parts[0].name == _HANDLE
            sent = self._exchange(np.concatenate(pieces), WinnerShare if last else MaskedWords)
            for conversation, end, piece in zip(conversations, ends.tolist(), pieces, strict=True):
                conversation.receive([words[end - len(piece) : end] for words in sent])
            self.rounds += 1
        return [conversation.result for conversation in conversations]

    def _exchange(self, words: Bytes, kind: type[MaskedWords | WinnerShare]) -> list[Bytes]:
        """What all parties sent in this round, in their order."""
        self._me.send_all(self._others, kind(words))
        sent = []
        for party in self._holders:
            theirs = words if party == self._me.name else self._me.recv(party, kind).words
            if theirs.shape != words.shape:
                raise ProtocolError(f"{party} sent {theirs.shape} bytes in a round in which all send {words.shape}")
            sent.append(theirs)
        return sent


def contest(
    steps: Callable[[int], HandStep],
    sums: tuple[Share, Share, Share, Share],
    first: tuple[Array, Array],
    handles: Array,
    shape: Shape,
    level: int,
    *,
    is_first: bool,
) -> Talk[Array]:
    """The handle of the winner of each node of a block, which all parties get to know.

    In: G_L, H_L, G_R, H_R of all foreign candidates [nodes, candidates] as shares; words of P and Q of the label
    holder's candidate, [nodes, limbs] each, and of all handles [nodes, 1 + candidates], its own among them: as they are
    at who knows them, 0 at the others.
    """
    scales, plan = shape.scales, shape.plan(level)
    P, Q = yield from gains(steps(0), sums, scales.lambda_int, scales.wide, is_first=is_first)
    numerators, denominators = (
        Share(np.concatenate([own[:, None], share.words], axis=1), scales.wide)
        for own, share in zip(first, (P, Q), strict=True)
    )
    winner = yield from tournament(
        lambda place: steps(place + 1), numerators, denominators, Share(handles, SUM32), plan, is_first=is_first
    )
    return (yield from opened(Masked(_HANDLE, winner.words, SUM32)))


def play_level(
    supply: Supply,
    mesh: Mesh,
    shape: Shape,
    level: int,
    sums: tuple[Array, Array, Array, Array],
    first: tuple[Array, Array],
    handles: Array,
    *,
    is_first: bool,
) -> Array:
    """The winning handle of each node of a level, all blocks side by side; arrays as for `contest`, of all nodes."""
    n_nodes, per_block = len(handles), shape.block_nodes(level)
    conversations = []
    for block in range(shape.n_blocks(level, n_nodes)):
        nodes = slice(block * per_block, (block + 1) * per_block)
        shares = [Share(_filled(words[nodes], per_block), shape.scales.sums) for words in sums]
        numerators, denominators = (_filled(words[nodes], per_block) for words in first)
        if is_first:
            denominators[len(handles[nodes]) :, 0] = 1  # nodes without rows stop: P / Q = 0 / 1 comes first
        talk = contest(
            _steps_of(supply, shape.lane(block)),
            (shares[0], shares[1], shares[2], shares[3]),
            (numerators, denominators),
            _filled(handles[nodes], per_block),
            shape,
            level,
            is_first=is_first,
        )
        conversations.append(Conversation(talk))
    return np.concatenate(mesh.talk(conversations))[:n_nodes]


def _steps_of(supply: Supply, lane: str) -> Callable[[int], HandStep]:
    return lambda step: supply.step(lane, step)


def _filled(words: Array, n_nodes: int) -> Array:
    """The words of a block's nodes, with zeros for nodes that are not there."""
    if len(words) == n_nodes:
        return words
    filled = np.zeros((n_nodes, *words.shape[1:]), words.dtype)
    filled[: len(words)] = words
    return filled


def children_of(parents: Array, left: Array) -> Array:
    """Histograms of children, left and right in turn, from those of their parents and of the left ones."""
    children = np.empty((2 * len(left), *left.shape[1:]), left.dtype)
    children[::2] = left
    np.subtract(parents, left, out=children[1::2])
    return children


def as_bytes(words: Array) -> Bytes:
    """The words as they are sent: little-endian bytes, flat."""
    words = np.ascontiguousarray(words)
    return (words if np.little_endian else words.byteswap()).reshape(-1).view(np.uint8)


def as_words(sender: str, sent: Bytes, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    """The inverse of `as_bytes`; ProtocolError if there are too many or too few."""
    if sent.shape != (int(np.prod(shape, dtype=np.int64)) * dtype.itemsize,):
        raise ProtocolError(f"{sender} sent {sent.shape} bytes, which are not words of shape {shape}")
    words = np.ascontiguousarray(sent).view(dtype).reshape(shape)
    return words if np.little_endian else words.byteswap()
