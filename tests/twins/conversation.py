"""One party's side of a talk on shares, with the messages carried by hand.

talk = Conversation(signs(step, d, circuit, is_first=me == 0))
while not talk.is_over:
sent = exchange(talk.send())          one array of bytes to every other party, and one from each
talk.receive(sent)                    what all parties sent, one's own among it
bits = talk.result
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from hedgerow.crypto.shares import Array, Bytes, Masked, Talk, check_masked, joined, total_of
from hedgerow.errors import ProtocolError

Result = TypeVar("Result")


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
