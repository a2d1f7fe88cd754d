"""Words made of seeds: what the dealer sends, on both sides, and what parties share with each other without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from hedgerow.crypto.csprng import KEY_BYTES
from hedgerow.crypto.dealing import Dealer, DealerStep, Hand, HandStep, Label
from hedgerow.crypto.shares import Array, Kind, Shape, Share
from hedgerow.errors import ProtocolError
from hedgerow.protocols.shares.messages import Dealt, Seed, SharingSeed
from hedgerow.runtime.party import Party
from hedgerow.transport.frames import Message

AHEAD = 4
"""Stages that the dealer may be ahead of the label holder: what it has sent waits in the others' memory."""

Bytes = np.ndarray
Parcel = tuple[str, int]  # lane and step

_TWO = 2  # each seed is known to two: who shares, and who takes


class Supply:
    """All that is dealt to this party. The seed is new for every run, and no label is used twice with it.

    1. `begin(tree, level, n_parcels)`: what is taken from now on is for this level, for which this many messages come.
    2. `step(lane, step)`: the next step of a lane.
    3. `finish()`: the level is over.
    """

    def __init__(self, me: Party, dealer: str, holders: Sequence[str]) -> None:
        seed = me.rng.bytes(KEY_BYTES)
        me.send(dealer, Seed(seed))
        self._me, self._dealer = me, dealer
        self._seed, self._place, self._n_holders = seed, list(holders).index(me.name), len(holders)
        self._hands: dict[str, Hand] = {}
        self._label = Label()
        self._waiting: dict[Parcel, Bytes] = {}
        self._left = 0  # parcels of this level that have not come yet
        self._taken: list[HandStep] = []

    def without_parcel(self, lane: str) -> HandStep:
        """A step for masks alone, for which nothing is sent."""
        return self._hand(lane).step(Label())

    def begin(self, tree: int, level: int, n_parcels: int) -> None:
        """What is taken from now on is for this level."""
        self._label = Label(tree=tree, level=level)
        self._left = n_parcels

    def step(self, lane: str, step: int = 0) -> HandStep:
        """The next step of a lane."""
        while (lane, step) not in self._waiting:
            self._receive()
        corrections = self._waiting.pop((lane, step))
        try:
            taken = self._hand(lane).step(self._label._replace(step=step), corrections if len(corrections) else None)
        except ProtocolError as problem:
            raise ProtocolError(f"{self._dealer} dealt what cannot be used: {problem}") from problem
        self._taken.append(taken)
        return taken

    def finish(self) -> None:
        """The level is over: what was dealt for it and not used is thrown away."""
        while self._left:
            self._receive()
            self._waiting.clear()
        try:
            for step in self._taken:
                step.finish()
        except ProtocolError as problem:
            raise ProtocolError(f"{self._dealer} dealt what cannot be used: {problem}") from problem
        self._waiting.clear()
        self._taken.clear()

    def _hand(self, lane: str) -> Hand:
        if lane not in self._hands:
            self._hands[lane] = Hand(self._seed, self._place, self._n_holders, lane=lane)
        return self._hands[lane]

    def _receive(self) -> None:
        if not self._left:
            raise ProtocolError(f"{self._dealer} has not dealt all that is needed at {self._label}")
        dealt = self._me.recv(self._dealer, Dealt)
        if (dealt.tree, dealt.level) != (self._label.tree, self._label.level):
            raise ProtocolError(
                f"{self._dealer} dealt for tree {dealt.tree}, level {dealt.level}, when {self._label} had its turn"
            )
        if (dealt.lane, dealt.step) in self._waiting:
            raise ProtocolError(f"{self._dealer} dealt step {dealt.step} of {dealt.lane!r} twice at {self._label}")
        self._waiting[dealt.lane, dealt.step] = dealt.corrections
        self._left -= 1


class Sharing:
    """SHR: of a value x that party m has, every other party holds words of a stream that it has in common with m.

    1. Once: every party sends a seed to every other.
    2. m shares x: [x]_j = the next words of the stream of m and j, and [x]_m = x minus all of these.

    Labels must increase, as they do in dealing.
    """

    def __init__(self, me: Party, holders: Sequence[str]) -> None:
        others = [party for party in holders if party != me.name]
        seeds = {other: me.rng.bytes(KEY_BYTES) for other in others}
        for other, seed in seeds.items():
            me.send(other, SharingSeed(seed))
        self._giving = [Hand(seed, 0, _TWO, lane="sharing") for seed in seeds.values()]
        self._taking = {other: Hand(me.recv(other, SharingSeed).seed, 0, _TWO, lane="sharing") for other in others}

    def share(self, value: Array, kind: Kind, label: Label) -> Share:
        """Its own share of a value of its own."""
        words = kind.check(value).copy()
        shape = words.shape[:-1] if kind.limbs else words.shape
        for hand in self._giving:
            kind.sub(words, hand.step(label).mask(shape, kind, (0,)).words, out=words)
        return Share(words, kind)

    def take(self, giver: str, shape: Shape, kind: Kind, label: Label) -> Share:
        """Its own share of a value of somebody else."""
        return self._taking[giver].step(label).mask(shape, kind, (0,))


# --- the dealer's side -----------------------------------------------------------------------------------------------


class DealingOut:
    """Lanes of the dealer, begun as they are needed."""

    def __init__(self, me: Party, holders: Sequence[str]) -> None:
        self._me, self._holders = me, holders
        self._seeds = [me.recv(party, Seed).seed for party in holders]
        for place, seed in enumerate(self._seeds):
            if seed in self._seeds[:place]:
                first = holders[self._seeds.index(seed)]
                raise ProtocolError(f"{first} and {holders[place]} sent the same seed; each needs its own")
        self._lanes: dict[str, Dealer] = {}

    def step(self, lane: str, label: Label) -> DealerStep:
        """Begin a step of a lane."""
        if lane not in self._lanes:
            self._lanes[lane] = Dealer(self._seeds, lane=lane)
        return self._lanes[lane].step(label)

    @contextmanager
    def parcel(self, lane: str, label: Label, number: int = 0) -> Iterator[DealerStep]:
        """A step of a lane, of which everybody gets what was dealt when it is over."""
        step = self.step(lane, label._replace(step=number))
        yield step
        corrections, label = step.corrections(), step.label
        for place, party in enumerate(self._holders):
            mine = corrections.get(place, np.zeros(0, np.uint8))
            self._me.send(party, Dealt(label.tree, label.level, lane, label.step, mine))


def deal_ahead(
    me: Party, label_holder: str, done: type[Message], stages: range, deal: Callable[[int], None], ahead: int = AHEAD
) -> None:
    """Deal for one stage after the other, never far ahead of the label holder, who says when one is over."""
    for number in stages:
        if number >= stages.start + ahead:
            me.recv(label_holder, done)
        deal(number)
    for _ in stages[:ahead]:
        me.recv(label_holder, done)
