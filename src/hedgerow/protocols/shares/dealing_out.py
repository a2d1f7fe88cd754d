"""The dealer's side of every protocol on shares: seeds of all parties, and a message for every step that it deals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hedgerow.crypto.dealing import Dealer, DealerStep, Label
from hedgerow.errors import ProtocolError
from hedgerow.protocols.shares.messages import Dealt, Seed
from hedgerow.runtime.party import Party


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

    def send(self, lane: str, step: DealerStep) -> None:
        """What was dealt in a step, to everybody."""
        corrections, label = step.corrections(), step.label
        for place, party in enumerate(self._holders):
            mine = corrections.get(place, np.zeros(0, np.uint8))
            self._me.send(party, Dealt(label.tree, label.level, lane, label.step, mine))
