"""What every transport offers to a party: numbered, ordered frames to and from named peers."""

from __future__ import annotations

from typing import Protocol


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

    def send(self, to: str, frame: bytes) -> None:
        """Hand over a frame; may wait while the peer is slow. PeerLost or PeerFailed if there is nobody to take it."""
        ...

    def recv(self, sender: str, timeout: float) -> bytes:
        """The sender's next frame. What had arrived before it failed is still given out first.

        DeadlineExceeded after `timeout` seconds, PeerLost or PeerFailed when no further frame can come.
        """
        ...

    def drop(self, peer: str) -> None:
        """Close the channel to a peer for good: no later frame of it is ever read."""
        ...

    def abort(self, reason: str) -> None:
        """Tell every peer that this party failed, and why. Never raises."""
        ...

    def close(self) -> None:
        """Orderly end: what was sent is delivered first, within a bounded wait."""
        ...
