"""Conversations in which all parties open masked words to each other, one message per round.

    talk = Conversation(signs(step, d, circuit, is_first=me == 0))
    while not talk.is_over:
        sent = exchange(talk.send())          one array of bytes to every other party, and one from each
        talk.receive(sent)                    what all parties sent, one's own among it
    bits = talk.result

What a party does in a conversation on shares is a generator: it yields what it wants to have opened, is sent back what
the words of all parties make, and returns its share of the result. So each protocol stands in one place, and one may
be part of another (`yield from`). All parties yield words of the same kinds and shapes in every round: these follow
from public numbers alone.

A talk draws what was dealt while it goes on, so its step stays open until it is over. Who works ahead meanwhile, or
holds several conversations at once, does so in other lanes (`dealing`).

The words go from party to party. The dealer must not see them: it knows every mask.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hedgerow.crypto import limbs
from hedgerow.crypto.shares import Array, Kind
from hedgerow.errors import ProtocolError

Bytes = npt.NDArray[np.uint8]
Result = TypeVar("Result")


class Masked(NamedTuple):
    """Words that a party sends to all, under masks of which it knows its own share only."""

    name: str  # what they are for: "lift", "sign", "and", ...
    words: Array
    kind: Kind
    n_bits: int | None = None  # of packed bits: how many count


Talk = Generator[list[Masked], list[Array], Result]
"""A party's side of a conversation: yields what it sends, gets what all sent make, and returns a result."""


def opened(part: Masked) -> Talk[Array]:
    """One round: what the words of all parties make."""
    (value,) = yield [part]
    return value


class Conversation(Generic[Result]):
    """A talk as two calls per round, for who carries the messages.

    1. `send()`: what this party sends to all others in this round.
    2. `receive(sent)`: what all parties sent, in their order and this party's among it. Then the next round begins.
    3. `is_over`, and then `result`.
    """

    def __init__(self, talk: Talk[Result]) -> None:
        self._talk = talk
        self._result: list[Result] = []
        self.rounds = 0
        self.parts: list[Masked] = []
        """What is sent in this round, before it is put together."""
        self.opened: list[Array] = []
        """What was opened in the round before."""
        try:
            self.parts = next(talk)
        except StopIteration as end:
            self._result.append(end.value)

    @property
    def is_over(self) -> bool:
        """True when nothing is to be sent any more."""
        return bool(self._result)

    @property
    def result(self) -> Result:
        """What the conversation came to."""
        if not self._result:
            raise ProtocolError(f"the conversation has no result yet, after {self.rounds} rounds")
        return self._result[0]

    def send(self) -> Bytes:
        """The words of this round as bytes, little-endian, one part after another."""
        if self.is_over:
            raise ProtocolError(f"the conversation was over after {self.rounds} rounds")
        pieces = [np.ascontiguousarray(part.words).reshape(-1).view(np.uint8) for part in self.parts]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def receive(self, sent: Sequence[Bytes]) -> None:
        """Put together what all parties sent, and go on."""
        sizes = [part.words.nbytes for part in self.parts]
        lengths = sorted({len(message) for message in sent})
        if self.is_over or lengths != [sum(sizes)]:
            raise ProtocolError(
                f"round {self.rounds + 1} of a conversation has {sum(sizes)} bytes from each party, got {lengths}"
            )
        values = []
        start = 0
        for part, size in zip(self.parts, sizes, strict=True):
            pieces = [message[start : start + size].view(part.kind.dtype) for message in sent]
            values.append(_total(pieces, part.kind).reshape(part.words.shape))
            start += size
        self.rounds += 1
        self.opened = values
        try:
            self.parts = self._talk.send(values)
        except StopIteration as end:
            self.parts = []
            self._result.append(end.value)


def _total(pieces: Sequence[Array], kind: Kind) -> Array:
    """What the words of all parties make, one array for each, without a copy of all of them; `Kind.total`, flat."""
    if kind.limbs:
        return limbs.add_up(np.stack(pieces).reshape(len(pieces), -1, kind.limbs))
    add = np.bitwise_xor if kind.is_xor else np.add
    total = pieces[0].copy()
    for words in pieces[1:]:
        add(total, words, out=total)
    return total
