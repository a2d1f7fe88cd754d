"""A dealer, all parties and the wires between them, in one process: for tests and benchmarks of work on shares.

    table = Table(3)
    results = table.talk(
        lambda step: deal_signs(step, 5, kind, circuit),
        lambda step, me: signs(step, d[me], circuit, is_first=me == 0),
    )

Every conversation runs under a label of its own, and is metered: rounds, bytes that each party sends to each other,
bytes of the dealer's corrections, seconds of the dealer and of all parties together. What was opened is kept for
`repeated_masks`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.dealing import Dealer, DealerStep, Hand, HandStep, Label
from hedgerow.crypto.shares import Array, Kind, Masked, Shape, Share, Talk
from hedgerow.crypto.tournament import Plan, deal_level
from twins.conversation import Conversation
from twins.openings import Opening

Result = TypeVar("Result")


@dataclass
class Meter:
    """What conversations took."""

    rounds: int = 0
    sent_bytes: int = 0  # by one party to each other party
    dealt_bytes: int = 0  # corrections, to all parties together
    dealer_seconds: float = 0.0
    party_seconds: float = 0.0  # all parties together


class Table:
    """Runs conversations with M parties; `run` sets all seeds."""

    def __init__(self, n_parties: int, run: int = 0, *, keeps_openings: bool = True) -> None:
        self.random = SecureRandom.from_seed(run.to_bytes(32, "little"))
        seeds = [self.random.bytes(32) for _ in range(n_parties)]
        self.n_parties = n_parties
        self.dealer = Dealer(seeds)
        self.hands = [Hand(seed, me, n_parties) for me, seed in enumerate(seeds)]
        self.opened: list[Opening] = []
        self.meter = Meter()
        self._keeps_openings = keeps_openings
        self._steps = 0

    def words(self, kind: Kind, shape: Shape) -> Array:
        """Uniform words."""
        full = kind.words_shape(shape)
        raw = self.random.bytes(int(np.prod(full, dtype=np.int64)) * kind.dtype.itemsize)
        return np.frombuffer(raw, kind.dtype).reshape(full)

    def split(self, value: Array, kind: Kind) -> list[Share]:
        """Shares of a value, one per party."""
        rest, shares = value, []
        for _ in range(self.n_parties - 1):
            words = self.words(kind, value.shape[:-1] if kind.limbs else value.shape)
            rest = kind.sub(rest, words)
            shares.append(Share(words, kind))
        return [*shares, Share(rest, kind)]

    def talk(
        self, deal: Callable[[DealerStep], object], take_part: Callable[[HandStep, int], Talk[Result]]
    ) -> list[Result]:
        """Deal, let all parties talk until they are done, and give back what each has."""
        self._steps += 1
        label, meter = Label(tree=self._steps), self.meter
        start = time.perf_counter()
        step = self.dealer.step(label)
        deal(step)
        parcels = step.corrections()
        meter.dealer_seconds += time.perf_counter() - start
        meter.dealt_bytes += sum(parcel.nbytes for parcel in parcels.values())
        start = time.perf_counter()
        steps = [hand.step(label, parcels.get(me)) for me, hand in enumerate(self.hands)]
        parties = [Conversation(take_part(steps[me], me)) for me in range(self.n_parties)]
        while not parties[0].is_over:
            parts = parties[0].parts
            sent = [party.send() for party in parties]
            for party in parties:
                party.receive(sent)
            meter.sent_bytes += sent[0].nbytes
            if self._keeps_openings:
                self.opened += map(_opening, parts, parties[0].opened)
        for each in steps:
            each.finish()
        meter.party_seconds += time.perf_counter() - start
        meter.rounds += parties[0].rounds
        return [party.result for party in parties]


def deal_tournament(steps: Callable[[int], DealerStep], plan: Plan) -> None:
    """Deal for all levels; `steps` gives the step for level 0, 1, ..., which may be one for all of them."""
    for place, level in enumerate(plan.levels()):
        deal_level(steps(place), level, plan)


def value_of(shares: list[Share]) -> Array:
    """The value behind the shares of all parties."""
    return shares[0].kind.total([share.words for share in shares])


def _opening(part: Masked, value: Array) -> Opening:
    if part.kind.limbs:
        return Opening(part.name, value, "limbs")
    if part.kind.is_xor:
        bits = np.unpackbits(value.reshape(-1).view(np.uint8), count=part.n_bits, bitorder="little")
        return Opening(part.name, bits, "bits", used_bits=1)
    return Opening(part.name, value, "sum")
