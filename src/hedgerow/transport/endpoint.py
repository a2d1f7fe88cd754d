"""What every transport offers to a party: numbered, ordered frames to and from named peers."""

from __future__ import annotations

from typing import Protocol

from hedgerow.errors import TransportError
from hedgerow.transport.agreed import Agreed


class LastWord(TransportError):
    """What a peer said when it stopped: a frame that only a party can read, empty if it gave no reason."""

    def __init__(self, party: str, frame: bytes) -> None:
        super().__init__(f"{party} stopped")
        self.party = party
        self.frame = frame


class Endpoint(Protocol):
    """One party's end of all its channels. Frames of a pair arrive in order, each exactly once."""

    @property
    def name(self) -> str:
        """The party whose end this is."""
        ...

    @property
    def peers(self) -> tuple[str, ...]:
        """Everybody it can talk to."""
        ...

    def agree(self, job: Agreed) -> None:
        """Say which job this party has. JobDiffers, here or at the first message, for a peer that has another one."""
        ...

    def send(self, to: str, frame: bytes) -> None:
        """Hand over a frame; may wait while the peer is slow. PeerLost or LastWord if there is nobody to take it."""
        ...

    def recv(self, sender: str, timeout: float) -> bytes:
        """The sender's next frame. What had arrived before it failed is still given out first.

        DeadlineExceeded after `timeout` seconds, PeerLost or LastWord when no further frame can come.
        """
        ...

    def drop(self, peer: str) -> None:
        """Close the channel to a peer for good: no later frame of it is ever read."""
        ...

    def abort(self, last_word: bytes) -> None:
        """End all channels with this frame, which peers get after all others as a LastWord. Never raises."""
        ...

    def close(self) -> None:
        """Orderly end: what was sent is delivered first, within a bounded wait."""
        ...
