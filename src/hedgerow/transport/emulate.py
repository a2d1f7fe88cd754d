"""Slow links, emulated between parties of one machine: what would a run cost over a wide-area network?

    sender                        line (one per direction of each pair)                  receiver
    send ---- waits until the line is free ---- size / bandwidth ---- round trip / 2 ---- recv returns

Nothing is slept away on the sending side: a party goes on computing while its frame is on its way, as it would with a
real network card. The time of arrival travels with the frame, and `recv` gives the frame out no sooner.
"""

from __future__ import annotations

import math
import struct
import time
from dataclasses import dataclass

from hedgerow.errors import DeadlineExceeded, FrameError, InvalidParameter
from hedgerow.transport.endpoint import Endpoint, Wrapped

_PREFIX = struct.Struct("<q")  # nanoseconds; 8 bytes, so that the frame behind it stays aligned


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two parties: `round_trip` in seconds, `bandwidth` in bits per second and direction."""

    round_trip: float
    bandwidth: float = math.inf

    def __post_init__(self) -> None:
        if not 0 <= self.round_trip < math.inf:
            raise InvalidParameter(f"round_trip must be 0 or more seconds, got {self.round_trip}")
        if not self.bandwidth > 0:
            raise InvalidParameter(f"bandwidth must be more than 0 bits per second, got {self.bandwidth}")


class Line:
    """One direction of a link, which carries one frame after the other."""

    __slots__ = ("_half_trip", "_seconds_per_byte", "busy_until")

    def __init__(self, link: Link) -> None:
        self._half_trip = link.round_trip / 2
        self._seconds_per_byte = 8 / link.bandwidth
        self.busy_until = -math.inf

    def arrival(self, n_bytes: int, now: float) -> float:
        """When a frame that is sent now will have arrived; the line is busy until its last bit has left."""
        self.busy_until = max(now, self.busy_until) + n_bytes * self._seconds_per_byte
        return self.busy_until + self._half_trip


class Emulated(Wrapped):
    """An endpoint whose frames take as long as they would over `link`.

    Both ends must be emulated, and on one machine: they have to read the same monotonic clock.
    """

    def __init__(self, endpoint: Endpoint, link: Link) -> None:
        super().__init__(endpoint)
        self._lines = {peer: Line(link) for peer in endpoint.peers}
        self._early: dict[str, bytes] = {}  # frames that are here, but not yet due when their receiver gave up

    def send(self, to: str, frame: bytes) -> None:
        """Put a frame on the line to a peer."""
        line = self._lines.get(to)
        if line is None:
            raise InvalidParameter(f"{self.name} has no peer called {to!r}")
        arrival = line.arrival(len(frame), time.monotonic())
        super().send(to, _PREFIX.pack(round(arrival * 1e9)) + frame)

    def recv(self, sender: str, timeout: float) -> bytes:
        """The sender's next frame, when it would have arrived."""
        deadline = time.monotonic() + timeout
        carried = self._early.pop(sender, None)
        if carried is None:
            carried = super().recv(sender, timeout)
        if len(carried) < _PREFIX.size:
            raise FrameError(f"{sender} does not emulate the link: its frame has no time of arrival")
        arrival = _PREFIX.unpack_from(carried)[0] / 1e9
        if arrival > deadline:
            self._early[sender] = carried
            time.sleep(max(0.0, deadline - time.monotonic()))
            raise DeadlineExceeded(f"{self.name} waited {timeout:g} s for {sender}, whose frame is still on its way")
        while (wait := arrival - time.monotonic()) > 0:
            time.sleep(wait)
        return carried[_PREFIX.size :]

    def drop(self, peer: str) -> None:
        """Close the channel to a peer for good."""
        self._early.pop(peer, None)
        super().drop(peer)
