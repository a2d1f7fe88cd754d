"""Rounds in which all parties with data send each other words, and each puts together what all have sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from hedgerow.crypto.rounds import Conversation
from hedgerow.crypto.shares import Array
from hedgerow.errors import ProtocolError
from hedgerow.protocols.shares.messages import MaskedWords
from hedgerow.runtime.party import Party

Bytes = np.ndarray
Result = TypeVar("Result")
WordsMessage = type[Any]
"""A class of messages whose only field is `words`."""


class Mesh:
    """All parties with data, each of which sends one message to each other in every round.

    `results` names openings whose words are not masked: opening name -> the message that says what everybody learns.
    """

    def __init__(self, me: Party, holders: Sequence[str], results: Mapping[str, WordsMessage] | None = None) -> None:
        self._me, self._holders = me, tuple(holders)
        self._others = [party for party in holders if party != me.name]
        self._results = dict(results or {})
        self.rounds = 0

    def talk(
        self, conversations: Sequence[Conversation[Result]], event: Mapping[str, Any] | None = None
    ) -> list[Result]:
        """Hold conversations side by side until they are over, all in the same messages; what each came to.

        `event` is that of the noise in what is opened as a result.
        """
        while not conversations[0].is_over:
            pieces = [conversation.send() for conversation in conversations]
            ends = np.cumsum([len(piece) for piece in pieces])
            kind = self._results.get(conversations[0].parts[0].name, MaskedWords)
            words = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            sent = self._exchange(words, kind, None if kind is MaskedWords else event)
            for conversation, end, piece in zip(conversations, ends.tolist(), pieces, strict=True):
                conversation.receive([each[end - len(piece) : end] for each in sent])
            self.rounds += 1
        return [conversation.result for conversation in conversations]

    def _exchange(self, words: Bytes, kind: WordsMessage, event: Mapping[str, Any] | None) -> list[Bytes]:
        """What all parties sent in this round, in their order."""
        if event is None:
            self._me.send_all(self._others, kind(words))
        else:
            for party in self._others:
                self._me.send(party, kind(words), event=event)
        return [
            words if party == self._me.name else self._me.recv(party, kind, n_bytes=len(words)).words
            for party in self._holders
        ]


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


def received(me: Party, sender: str, kind: WordsMessage, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    """Words of this type and shape from a message that has nothing but `words`."""
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return as_words(sender, me.recv(sender, kind, n_bytes=n_bytes).words, dtype, shape)


def blocks(n: int, bytes_each: int, most_bytes: int) -> list[slice]:
    """0..n in blocks of at most so many bytes, or of one."""
    step = max(1, most_bytes // bytes_each)
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]
