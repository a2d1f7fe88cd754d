"""What is opened to one party alone: everybody else sends it shares, and it puts them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hedgerow.crypto.shares import Array, Share
from hedgerow.errors import ProtocolError
from hedgerow.protocols.published.mp_fedxgb.job import MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.messages import Better, NumeratorSigns
from hedgerow.protocols.shares.mesh import as_bytes, as_words
from hedgerow.runtime.party import Party

Bools = np.ndarray


class Openings:
    """Openings to P1 or P2, and the two bits by which all learn what their signs say."""

    def __init__(self, me: Party, job: MpFedXgbJob) -> None:
        self._me, self._job = me, job
        self.rounds = 0

    def to(self, receiver: str, share: Share, kind: type[Any], **fields: int) -> Array | None:
        """The value at the receiver, None at all others. `kind` has `words` and these fields."""
        if self._me.name != receiver:
            self._me.send(receiver, kind(**fields, words=as_bytes(share.words)))
            return None
        parts = [share.words]
        for party in self._job.holders:
            if party != receiver:
                sent = self._me.recv(party, kind, n_bytes=share.words.nbytes)
                if any(getattr(sent, name) != value for name, value in fields.items()):
                    raise ProtocolError(f"{party} sent shares of another step than {fields}")
                parts.append(as_words(party, sent.words, share.kind.dtype, share.words.shape))
        value = share.kind.total(parts)
        self._me.note(lambda: kind(**fields, words=as_bytes(value)))
        return value

    def signs(
        self, numerators: Array | None, denominators: Array | None, n: int, judge: Callable[[Array], Bools]
    ) -> Bools:
        """P2 judges numerators and tells P1; P1, whose denominators are all positive, tells everybody."""
        p1, p2, n_bytes = self._job.label_holder, self._job.numerators_to, -(-n // 8)
        self.rounds += 3  # both openings are one round
        if numerators is not None:
            self._me.send(p1, NumeratorSigns(np.packbits(judge(numerators).reshape(-1))))
        if denominators is not None:
            if not is_positive(denominators).all():
                raise ProtocolError("a denominator is not positive: some party sent words that are no shares of it")
            bits = self._me.recv(p2, NumeratorSigns, n_bytes=n_bytes).bits
            self._me.send_all(self._job.feature_holders, Better(bits))
        else:
            bits = self._me.recv(p1, Better, n_bytes=n_bytes).bits
        return np.unpackbits(bits, count=n).astype(np.bool_)


def is_negative(words: Array) -> Bools:
    """Of numbers in limbs, or 64-bit words: whether the top bit is 1."""
    return np.asarray(words[..., -1] >> 31 == 1)


def is_positive(words: Array) -> Bools:
    """Neither negative nor zero."""
    return np.asarray(~is_negative(words) & words.any(axis=-1))
