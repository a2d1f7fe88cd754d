"""Words opened on shares. There are two verbs, the message's type says what is learned, and nothing is a default.

    mesh.masked(parts)                          uniform to every receiver; takes `Masked` alone, which `crypto` makes
    mesh.reveal(WinnerShare, share)             everybody learns what WinnerShare.discloses says
    mesh.reveal(StepShare, share, to="anna")    anna does

A talk of `crypto` is held with the first verb, round by round, and ends with shares of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from hedgerow.crypto.shares import (
    Array,
    Kind,
    Masked,
    Share,
    Talk,
    as_bytes,
    blocks_of,
    check_masked,
    joined,
    masked,
    total_of,
)
from hedgerow.errors import InvalidType, ProtocolError
from hedgerow.privacy.events import Event
from hedgerow.protocols.shares.messages import MaskedWords, Revealed
from hedgerow.runtime.party import Party

Bytes = np.ndarray
Result = TypeVar("Result")
WordsMessage = type[Any]
"""A class of messages whose only field is `words`."""
MESSAGE_BYTES = 16 << 20
"""What takes several messages is cut into pieces of about this size."""


class Mesh:
    """All parties with data, each of which sends one message to each other in every round."""

    def __init__(self, me: Party, holders: Sequence[str]) -> None:
        self.me, self.holders = me, tuple(holders)
        self._others = [party for party in holders if party != me.name]
        self.rounds = 0
        """In which all parties sent each other words."""

    def masked(self, parts: Sequence[Masked]) -> list[Array]:
        """One round: what everybody's masked words make, part by part."""
        check_masked(parts)
        words = joined(parts)
        self.me.send_all(self._others, MaskedWords(words))
        self.rounds += 1
        return total_of(parts, [words, *self._received(MaskedWords, len(words), {})])

    @overload
    def reveal(self, kind: type[Revealed], share: Share, *, event: Event | None = None) -> Array: ...

    @overload
    def reveal(
        self, kind: type[Revealed], share: Share, *, to: str, fields: Mapping[str, int] | None = None
    ) -> Array | None: ...

    def reveal(
        self,
        kind: type[Revealed],
        share: Share,
        *,
        event: Event | None = None,
        to: str | None = None,
        fields: Mapping[str, int] | None = None,
    ) -> Array | None:
        """What everybody's shares make: at all parties, in one round, or at one of them, and None at the others.

        `event` is that of the noise in it; `fields` are those of the message beside its words, the same from all.
        """
        if not (isinstance(kind, type) and issubclass(kind, Revealed)):
            raise InvalidType(f"what is revealed needs a message that says so, a subclass of Revealed, got {kind!r}")
        message: Callable[..., Revealed] = kind
        words, fields = as_bytes(share.words), fields or {}
        if to not in (None, self.me.name):
            self.me.send(to, message(**fields, words=words))
            return None
        if to is None:
            for party in self._others:
                self.me.send(party, message(words=words), event=event)
            self.rounds += 1
        own = share.words
        others = [sent.view(own.dtype).reshape(own.shape) for sent in self._received(kind, own.nbytes, fields)]
        value = share.kind.total([own, *others])
        if to is not None:
            self.me.note(lambda: message(**fields, words=as_bytes(value)))  # its own share was on no wire
        return value

    def talk(self, talk: Talk[Result]) -> Result:
        """Hold a conversation until it is over; what it came to."""
        return self.talks([talk])[0]

    def talks(self, talks: Sequence[Talk[Result]]) -> list[Result]:
        """Hold conversations of equally many rounds side by side, all in the same messages; what each came to."""
        values: list[Any] = [None] * len(talks)
        while True:
            said, results = [], []
            for talk, opened in zip(talks, values, strict=True):
                try:
                    said.append(talk.send(opened))
                except StopIteration as end:
                    results.append(end.value)
            if results:
                return results
            in_order = iter(self.masked([part for parts in said for part in parts]))
            values = [[next(in_order) for _ in parts] for parts in said]

    def masked_rows(self, kind: Kind, *hidden: tuple[Array, Array]) -> list[Array]:
        """Open x - a of some pairs of shares and masks [..., rows], in messages of bounded size."""
        n_vectors = sum(x[..., 0].size for x, _ in hidden)
        pieces = blocks(hidden[0][0].shape[-1], n_vectors * kind.number_bytes)
        found = [
            self.masked([masked("rows", Share(x[..., rows], kind), Share(a[..., rows], kind)) for x, a in hidden])
            for rows in pieces
        ]
        return found[0] if len(found) == 1 else [np.concatenate(each, axis=-1) for each in zip(*found, strict=True)]

    def _received(self, kind: type[MaskedWords | Revealed], n_bytes: int, fields: Mapping[str, int]) -> list[Bytes]:
        """The words of all others."""
        words = []
        for party in self._others:
            sent = self.me.recv(party, kind, n_bytes=n_bytes)
            if any(getattr(sent, name) != value for name, value in fields.items()):
                raise ProtocolError(f"{party} sent shares of another step than {fields}")
            words.append(sent.words)
        return words


def received(me: Party, sender: str, kind: WordsMessage, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    """Words of this type and shape from a message that has nothing but `words`."""
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    words: Array = me.recv(sender, kind, n_bytes=n_bytes).words.view(dtype)
    return words.reshape(shape)


def blocks(n: int, bytes_each: int, most_bytes: int | None = None) -> list[slice]:
    """0..n in blocks of at most this many bytes, of MESSAGE_BYTES if none are given, or of one."""
    return blocks_of(n, max(1, (most_bytes or MESSAGE_BYTES) // bytes_each))
