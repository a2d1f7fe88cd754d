"""Emulated links: when a frame arrives, and that nothing else about an endpoint changes."""

from __future__ import annotations

import math
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.errors import DeadlineExceeded, FrameError, InvalidParameter
from hedgerow.transport import emulate
from hedgerow.transport.emulate import Emulated, Line, Link


class Clock:
    """Stands in for the module `time`: sleeping moves it on."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        """Seconds."""
        return self.now

    def sleep(self, seconds):
        """Let time pass."""
        assert seconds >= 0
        self.now += seconds


class Wire:
    """The ends of a channel that is infinitely fast: what "a" sends is what "b" gets."""

    def __init__(self):
        self.frames, self.calls = deque(), []

    def end(self, name, peer):
        """One of the ends."""
        return WireEnd(self, name, peer)


class WireEnd:
    """An endpoint with one peer."""

    def __init__(self, wire, name, peer):
        self.wire, self.name, self.peers = wire, name, (peer,)

    def send(self, _to, frame):
        """Append."""
        self.wire.frames.append(frame)

    def recv(self, sender, _timeout):
        """Take, or give up at once."""
        if not self.wire.frames:
            raise DeadlineExceeded(f"nothing from {sender}")
        return self.wire.frames.popleft()

    def drop(self, peer):
        """Remember the call."""
        self.wire.calls.append(("drop", peer))

    def abort(self, reason):
        """Remember the call."""
        self.wire.calls.append(("abort", reason))

    def close(self):
        """Remember the call."""
        self.wire.calls.append("close")


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when somebody sleeps."""
    clock = Clock()
    monkeypatch.setattr(emulate, "time", clock)
    return clock


def a_pair(link):
    """Two emulated ends, and the wire between them."""
    wire = Wire()
    return Emulated(wire.end("a", "b"), link), Emulated(wire.end("b", "a"), link), wire


@pytest.mark.parametrize("round_trip", [-0.001, math.inf, math.nan])
def test_round_trips_are_checked(round_trip):
    """A link that would never deliver, or before it was sent, is refused."""
    with pytest.raises(InvalidParameter, match=f"round_trip must be 0 or more seconds, got {round_trip}"):
        Link(round_trip, 1e6)


@pytest.mark.parametrize("bandwidth", [0, -1.0, math.nan])
def test_bandwidths_are_checked(bandwidth):
    """A link that carries nothing is refused."""
    with pytest.raises(InvalidParameter, match=f"bandwidth must be more than 0 bits per second, got {bandwidth}"):
        Link(0.1, bandwidth)


def test_a_frame_takes_its_size_and_half_a_round_trip(clock):
    """20 Mbit/s and 100 ms: 25,000 bytes take 10 ms to leave and 50 ms to travel; the sender does not wait."""
    a, b, _ = a_pair(Link(0.1, 20e6))
    a.send("b", bytes(25_000))
    assert clock.now == 1000.0
    assert b.recv("a", 10) == bytes(25_000)
    assert clock.now == pytest.approx(1000.06, abs=1e-6)


def test_frames_queue_on_their_line(clock):
    """A second frame leaves when the first one has left, and both travel at once."""
    a, b, _ = a_pair(Link(1.0, 8e6))
    for n_bytes in (100_000, 200_000):
        a.send("b", bytes(n_bytes))
    assert len(b.recv("a", 10)) == 100_000
    assert clock.now == pytest.approx(1000.6, abs=1e-6)
    assert len(b.recv("a", 10)) == 200_000
    assert clock.now == pytest.approx(1000.8, abs=1e-6)


def test_a_frame_that_is_due_is_given_out_at_once(clock):
    """Time that the receiver spent on something else counts."""
    a, b, _ = a_pair(Link(0.1, 1e9))
    a.send("b", b"frame")
    clock.sleep(5)
    assert b.recv("a", 0) == b"frame"
    assert clock.now == 1005.0


def test_the_other_direction_is_another_line(clock):
    """A long frame one way does not delay an answer the other way."""
    a, b, wire = a_pair(Link(0.0, 8.0))
    a.send("b", bytes(1000))
    wire.frames.clear()
    b.send("a", b"x")
    assert a.recv("b", 10) == b"x"
    assert clock.now == pytest.approx(1001.0, abs=1e-6)


def test_a_deadline_before_the_arrival(clock):
    """Who does not wait long enough is told when its time is over, and gets the frame the next time."""
    a, b, _ = a_pair(Link(2.0, math.inf))
    a.send("b", b"first")
    a.send("b", b"second")
    with pytest.raises(DeadlineExceeded, match=r"b waited 0\.25 s for a, whose frame is still on its way"):
        b.recv("a", 0.25)
    assert clock.now == pytest.approx(1000.25)
    assert [b.recv("a", 5), b.recv("a", 5)] == [b"first", b"second"]
    assert clock.now == pytest.approx(1001.0, abs=1e-6)


def test_the_rest_is_passed_on(clock):  # noqa: ARG001 - nobody may really sleep
    """Names, drop, abort and close are those of the endpoint; a dropped peer's early frame is gone."""
    a, b, wire = a_pair(Link(2.0))
    assert (a.name, a.peers) == ("a", ("b",))
    a.send("b", b"frame")
    with pytest.raises(DeadlineExceeded):
        b.recv("a", 0.5)
    b.drop("a")
    with pytest.raises(DeadlineExceeded, match="nothing from a"):
        b.recv("a", 5)
    b.abort("broken")
    b.close()
    assert wire.calls == [("drop", "a"), ("abort", "broken"), "close"]
    with pytest.raises(InvalidParameter, match="a has no peer called 'c'"):
        a.send("c", b"")


def test_a_peer_that_does_not_emulate_is_noticed():
    """A frame too short to hold a time of arrival is a typed error."""
    _, b, wire = a_pair(Link(0.0))
    wire.frames.append(b"short")
    with pytest.raises(FrameError, match="a does not emulate the link"):
        b.recv("a", 1)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 10), st.integers(0, 10**6)), min_size=1),
    st.floats(0, 2),
    st.floats(1e3, 1e9),
)
def test_lines_keep_order_and_never_exceed_their_bandwidth(frames, round_trip, bandwidth):
    """Arrivals are in the order of sending, at least half a round trip later, and no faster than the line."""
    line = Line(Link(round_trip, bandwidth))
    now = last = 0.0
    for pause, n_bytes in frames:
        now += pause
        arrival = line.arrival(n_bytes, now)
        assert arrival >= max(now + round_trip / 2, last)
        last = arrival
    carried = sum(n_bytes for _, n_bytes in frames) * 8
    assert (last - round_trip / 2 - frames[0][0]) * bandwidth >= carried * (1 - 1e-9) - 1e-3
