"""Digests of all messages between two parties, so that their trails can be compared.

    endpoint = Digesting(endpoint)                    # the role that uses it notices nothing
    exchange_salts(Party(endpoint, ...))
    ...
    for peer, facts in endpoint.digests().items():
        trail.append("message_digests", run_id=run_id, peer=peer, **facts)

For each peer there are two, one of what was sent and one of what was received: SHA-256 over all frames in order, each
with its length (8 bytes, little-endian) before it. What one party sent is what the other received, so after a run that
came to its end the digests of both agree, crosswise. Frames that were sent and never read, because a run was broken
off, are in the sender's digest alone; the numbers of frames show that.

The first frame each way is a salt of 32 random bytes, another one for every peer. So a digest tells nothing to who
does not know the salt, also where messages could be guessed, such as values of a small table in the clear; the two that
talk know it, and know the messages anyway. And a digest commits to the messages: who kept a transcript can show what
was said. The last word of a party that stops (`Endpoint.abort`) is not in it: its reason has a line of its own.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Annotated, Any

from hedgerow.ledger import Public
from hedgerow.runtime.party import Party
from hedgerow.transport.endpoint import Endpoint, Wrapped
from hedgerow.transport.frames import Message
from hedgerow.transport.ranges import Shape

SALT_BYTES = 32


@dataclass(frozen=True, slots=True)
class Salt(Message, name="node.salt", version=1):
    """Either node to the other: random bytes, before the first message of a role."""

    discloses = Public("random bytes")
    salt: Annotated[bytes, Shape(SALT_BYTES)]


def exchange_salts(me: Party) -> None:
    """The first message to and from every peer; nobody can guess what the digests of all messages are of."""
    try:
        for peer in me.peers:
            me.send(peer, Salt(secrets.token_bytes(SALT_BYTES)))
        for peer in me.peers:
            me.recv(peer, Salt)
    except BaseException as error:
        me.abort(error)
        raise


class _Running:
    """The digest of what went one way so far."""

    def __init__(self) -> None:
        self.n_frames, self._hash = 0, hashlib.sha256()

    def add(self, frame: bytes) -> None:
        self.n_frames += 1
        self._hash.update(len(frame).to_bytes(8, "little"))
        self._hash.update(frame)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


class Digesting(Wrapped):
    """An endpoint that computes digests of what passes. A `Recording` goes around it, not into it."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._sent = {peer: _Running() for peer in endpoint.peers}
        self._received = {peer: _Running() for peer in endpoint.peers}

    def send(self, to: str, frame: bytes) -> None:
        """Hand over a frame. It counts before it is handed over: it may have left the house even if that fails."""
        if to in self._sent:
            self._sent[to].add(frame)
        self.inner.send(to, frame)

    def recv(self, sender: str, timeout: float) -> bytes:
        """The sender's next frame."""
        frame = self.inner.recv(sender, timeout)
        self._received[sender].add(frame)
        return frame

    def digests(self) -> dict[str, dict[str, Any]]:
        """Peer -> the facts of a line `message_digests`: digests and numbers of frames, both ways."""
        return {
            peer: {
                "sent": sent.digest,
                "n_sent": sent.n_frames,
                "received": self._received[peer].digest,
                "n_received": self._received[peer].n_frames,
            }
            for peer, sent in self._sent.items()
        }
