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

Whatever is yielded is `Masked`: uniform to who receives it. A result is returned as a share, and opened by who names
the message that says so (`protocols.shares.mesh`). `Masked` is made in this package alone.

A talk draws what was dealt while it goes on, so its step stays open until it is over. Who works ahead meanwhile, or
holds several conversations at once, does so in other lanes (`dealing`).

The words go from party to party. The dealer must not see them: it knows every mask.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hedgerow.crypto.shares import Array, Kind, Share
from hedgerow.errors import InvalidType, ProtocolError

Bytes = npt.NDArray[np.uint8]
Result = TypeVar("Result")


class Masked(NamedTuple):
    """Words that a party sends to all, under masks of which it knows its own share only. Each mask is used once."""

    name: str  # what they are for, in tests and errors: "lift", "sign", "and", ...
    words: Array
    kind: Kind
    n_bits: int | None = None  # of packed bits: how many count


Talk = Generator[list[Masked], list[Array], Result]
"""A party's side of a conversation: yields what it sends, gets what all sent make, and returns a result."""


def masked(name: str, x: Share, mask: Share) -> Masked:
    """[x]_m - [a]_m: the words that party m sends so that x - a is opened; never use the mask a again."""
    return Masked(name, (x - mask).words, x.kind)


def opened(part: Masked) -> Talk[Array]:
    """One round: what the words of all parties make."""
    (value,) = yield [part]
    return value


class Conversation(Generic[Result]):
    """A talk as two calls per round, for who carries the messages.

    1. `send()`: what this party sends to all others in this round.
    2. `receive(sent)`: what all parties sent, in their order and this party's among it. Then the next round begins.
       `go_on(values)` instead, for who has put the words of all parties together (`total_of`).
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
        self._begin_round(lambda: next(talk))

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
        return joined(self.parts)

    def receive(self, sent: Sequence[Bytes]) -> None:
        """Put together what all parties sent, and go on."""
        sizes = [part.words.nbytes for part in self.parts]
        lengths = sorted({len(message) for message in sent})
        if self.is_over or lengths != [sum(sizes)]:
            raise ProtocolError(
                f"round {self.rounds + 1} of a conversation has {sum(sizes)} bytes from each party, got {lengths}"
            )
        self.go_on(total_of(self.parts, sent))

    def go_on(self, values: list[Array]) -> None:
        """Begin the next round with what was opened in this one."""
        self.rounds += 1
        self.opened = values
        self._begin_round(lambda: self._talk.send(values))

    def _begin_round(self, resume: Callable[[], list[Masked]]) -> None:
        try:
            self.parts = resume()
        except StopIteration as end:
            self.parts = []
            self._result.append(end.value)
        check_masked(self.parts)


def check_masked(parts: Sequence[Masked]) -> None:
    """InvalidType for anything that is not under a mask: a result is opened by who names what it tells."""
    for part in parts:
        if not isinstance(part, Masked):
            raise InvalidType(f"only masked words can be opened without saying what they tell, got {part!r:.60}")


def joined(parts: Sequence[Masked]) -> Bytes:
    """Words of one round as bytes, little-endian, one part after another."""
    pieces = [np.ascontiguousarray(part.words).reshape(-1).view(np.uint8) for part in parts]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def total_of(parts: Sequence[Masked], sent: Sequence[Bytes]) -> list[Array]:
    """What all parties sent in a round makes, part by part."""
    values = []
    start = 0
    for part in parts:
        end = start + part.words.nbytes
        pieces = [message[start:end].view(part.kind.dtype).reshape(part.words.shape) for message in sent]
        values.append(part.kind.total(pieces))
        start = end
    return values
