"""Parties as threads of one process, of which one runs at a time.

A role computes while it holds the baton. `send` puts a frame into the receiver's queue and goes on; `recv` takes one
from the queue or, if there is none, hands the baton to the next role that can go on, in a fixed circular order:

    coordinator   recv(a) ......................... a's frame, then b's, then c's: computes, sends, recv(a) ...
    a             .......... sends, recv(coordinator) .....................................................
    b             ............................. sends, recv(coordinator) ..................................

So a run takes the same course every time, kernels that start threads of their own are never entered by two parties at
once, and the processor time of a party is its own. All that is shared is changed by the holder of the baton only,
which is why there are no locks but the one that each role sleeps on.

Time spent by other roles does not count against the deadline of a `recv`, since roles wait for their turn. What ends
a wait without end: when no role can go on and nothing is on its way, all are told at once, with DeadlineExceeded.

An interrupt from the keyboard reaches the caller of `run`. It raises a flag that every role meets at its next message
or report of progress (`check`), as a KeyboardInterrupt of its own; nothing that a role catches hides it.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NoReturn, TypeAlias, TypeVar

from hedgerow.errors import DeadlineExceeded, InvalidParameter, PeerLost, TransportError
from hedgerow.transport.emulate import Line, Link
from hedgerow.transport.endpoint import NOTHING, Agreed, LastWord

T = TypeVar("T")
_Ending: TypeAlias = Callable[[], TransportError]
_STAT = Path("/proc/thread-self/stat")

_LOOK_SECONDS = 0.5  # between two looks for signals
_SECONDS_TO_STOP = 5.0  # for a role that is in the middle of a long computation when the run is interrupted


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How a role ended: with a value, or with an error."""

    value: T | None = None
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class _Channel:
    """One direction of a pair. The two ends learn at different times that it is closed if the link is slow."""

    sender: _Role
    receiver: _Role
    line: Line | None
    compared: bool = False  # have both the same job?
    frames: deque[bytes] = field(default_factory=deque)
    # Functions rather than errors: an error that is raised again drags its former traceback along.
    end: _Ending | None = None  # why the receiver will get no more than `frames`
    refusal: _Ending | None = None  # why the sender may send nothing any more


@dataclass(slots=True, eq=False)
class _Role:
    """One party's place in the circle."""

    index: int
    name: str
    job: Agreed = NOTHING
    thread: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)  # released by whoever hands over the baton
    waits_for: _Channel | None = None
    deadline: float = math.inf
    told: str | None = None  # why it need not wait any longer
    bit: int = 0

    def __post_init__(self) -> None:
        self.bit = 1 << self.index
        self.turn.acquire()


class MemoryNetwork:
    """`MemoryNetwork(["coordinator", "a", "b"]).run({name: function, ...})`, with `.endpoint(name)` for each."""

    def __init__(self, names: Sequence[str], *, link: Link | None = None, one_core: bool = False) -> None:
        """`link`: an emulated network. `one_core`: keep all roles on the core that is at work now.

        Only one role runs at a time, and handing over within a core costs a fifth of waking up another one. Not for
        roles that compute in several threads, which would be kept on that core too.
        """
        if len(set(names)) != len(names) or not names:
            raise InvalidParameter(f"parties need names that differ, got {', '.join(names) or 'none'}")
        self._roles = {name: _Role(index, name) for index, name in enumerate(names)}
        self._circle = tuple(self._roles.values())
        self._channels = {
            (a, b): _Channel(self._roles[a], self._roles[b], None if link is None else Line(link))
            for a, b in itertools.permutations(names, 2)
        }
        self._ready = 0  # a bit for each role that can go on
        # Frames and ends that are on their way, as a heap: the earliest arrival first.
        self._flying: list[tuple[float, int, _Channel, bytes | _Ending]] = []
        self._flights = itertools.count()  # keeps frames that arrive together in the order in which they were sent
        self._unfinished = 0
        self._all_done = threading.Lock()
        self._alarm = threading.Lock()  # ends the sleep until the next arrival
        self._started = False
        self._interrupted = False  # written by the caller of `run`, read by the roles
        self._core = _core_at_work() if one_core else None
        self._endpoints = {name: MemoryEndpoint(self, self._roles[name], self._channels) for name in names}

    def endpoint(self, name: str) -> MemoryEndpoint:
        """A party's end of all its channels."""
        if name not in self._endpoints:
            raise InvalidParameter(f"no party is called {name!r}; there are {', '.join(self._roles)}")
        return self._endpoints[name]

    def run(self, roles: Mapping[str, Callable[[], T]]) -> dict[str, Outcome[T]]:
        """Run every party's role to its end; the first in the order of names begins. A network runs once."""
        if set(roles) != set(self._roles):
            raise InvalidParameter(f"roles are given for {', '.join(roles)}, the parties are {', '.join(self._roles)}")
        if self._started:
            raise InvalidParameter("a memory network runs once; make a new one")
        self._started = True
        outcomes: dict[str, Outcome[T]] = {}
        threads = [
            threading.Thread(target=self._live, args=(role, roles[name], outcomes), name=f"party-{name}", daemon=True)
            for name, role in self._roles.items()
        ]
        self._unfinished = len(threads)
        self._ready = (1 << len(threads)) - 1
        self._all_done.acquire()
        self._alarm.acquire()
        for thread in threads:
            thread.start()
        try:
            self._circle[0].turn.release()
            # Not for ever at a time: a signal that comes just before the wait begins would be noticed after it only.
            while not self._all_done.acquire(timeout=_LOOK_SECONDS):
                pass
        except BaseException:  # an interrupt from the keyboard, mostly
            self._interrupted = True
            self._alarm.release()
            until = time.monotonic() + _SECONDS_TO_STOP
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
            raise
        for thread in threads:
            thread.join()
        return {name: outcomes[name] for name in self._roles}

    def _live(self, role: _Role, function: Callable[[], T], outcomes: dict[str, Outcome[T]]) -> None:
        """The life of a role's thread."""
        role.thread = threading.get_ident()
        if self._core is not None:
            os.sched_setaffinity(0, {self._core})  # of this thread alone
        role.turn.acquire()
        try:
            outcomes[role.name] = Outcome(value=function())
        except BaseException as error:  # noqa: BLE001 - handed to the caller of `run`
            outcomes[role.name] = Outcome(error=error)
            self.tell_all(role, lambda: LastWord(role.name, b""))  # unless it has said more by itself
        else:
            self.tell_all(role, lambda: PeerLost(f"{role.name} has finished"))
        self._ready &= ~role.bit
        self._unfinished -= 1
        if self._unfinished == 0:
            self._all_done.release()
        else:
            self._next_role(role).turn.release()

    def check(self) -> None:
        """KeyboardInterrupt if somebody has interrupted the run."""
        if self._interrupted:
            raise KeyboardInterrupt("the run was interrupted")

    # --- channels: called by endpoints, whose role holds the baton ---------------------------------------------------

    def put(self, channel: _Channel, item: bytes | _Ending) -> None:
        """Take a frame to its receiver or, after all that was sent to it, the news that it is the end."""
        if channel.line is None:
            self._arrive(channel, item)
        else:
            arrival = channel.line.arrival(0 if callable(item) else len(item), time.monotonic())
            heapq.heappush(self._flying, (arrival, next(self._flights), channel, item))

    def tell_all(self, role: _Role, end: _Ending) -> None:
        """Let every peer know that it is the end."""
        for (sender, _), channel in self._channels.items():
            if sender == role.name:
                self.put(channel, end)

    def _arrive(self, channel: _Channel, item: bytes | _Ending) -> None:
        if channel.end is not None:  # the receiver has closed its end meanwhile, or has already been told
            return
        if callable(item):
            channel.end = item
            back = self._channels[channel.receiver.name, channel.sender.name]
            back.refusal = back.refusal or item
        else:
            channel.frames.append(item)
        if channel.receiver.waits_for is channel:
            self._ready |= channel.receiver.bit

    # --- the baton ---------------------------------------------------------------------------------------------------

    def wait(self, role: _Role, channel: _Channel, timeout: float) -> bytes:
        """Let others run until a frame has come."""
        if role.thread != threading.get_ident():
            raise DeadlineExceeded(
                f"nothing has come from {channel.sender.name}, and {role.name} can only wait for it within `run`"
            )
        if channel.line is not None:
            role.deadline = time.monotonic() + timeout
        role.waits_for = channel
        self._ready &= ~role.bit
        successor = self._next_role(role)
        if successor is not role:
            successor.turn.release()
            role.turn.acquire()
        role.waits_for = None
        self.check()
        if role.told is not None:
            told, role.told = role.told, None
            raise DeadlineExceeded(told)
        if channel.frames:
            return channel.frames.popleft()
        assert channel.end is not None  # noqa: S101 - there is no other reason to be woken up
        raise channel.end()

    def _next_role(self, role: _Role) -> _Role:
        """The next role after this one in the circle that can go on."""
        if self._flying or not self._ready or self._interrupted:
            self._let_time_pass()
        # The lowest bit among those above the role's own, else the lowest of all.
        above = self._ready >> (role.index + 1) << (role.index + 1)
        ready = above or self._ready
        return self._circle[(ready & -ready).bit_length() - 1]

    def _let_time_pass(self) -> None:
        """Deliver what has arrived; if nobody can go on, sleep until somebody can."""
        self._deliver()
        while not self._ready or self._interrupted:
            waiting = [role for role in self._circle if role.waits_for is not None]
            if self._interrupted or not self._flying:
                self._give_up(waiting)
                return
            now = time.monotonic()
            wake = min(self._flying[0][0], *(role.deadline for role in waiting))
            if wake > now:
                self._alarm.acquire(timeout=min(wake - now, threading.TIMEOUT_MAX))
            self._deliver()
            now = time.monotonic()
            for role in waiting:
                if role.deadline <= now and not self._ready & role.bit:
                    role.told = f"the time is over: {_wait(role)}"
                    self._ready |= role.bit

    def _deliver(self) -> None:
        """Let arrive whatever has had the time to."""
        now = time.monotonic()
        while self._flying and self._flying[0][0] <= now:
            _, _, channel, item = heapq.heappop(self._flying)
            self._arrive(channel, item)

    def _give_up(self, waiting: Sequence[_Role]) -> None:
        told = f"nobody can go on: {', '.join(_wait(role) for role in waiting)}"
        for role in waiting:
            role.told = told
            self._ready |= role.bit


def _wait(role: _Role) -> str:
    assert role.waits_for is not None  # noqa: S101 - only asked about those that wait
    return f"{role.name} waits for {role.waits_for.sender.name}"


class MemoryEndpoint:
    """One party's end of all its channels in a MemoryNetwork."""

    def __init__(self, network: MemoryNetwork, role: _Role, channels: Mapping[tuple[str, str], _Channel]) -> None:
        self.name = role.name
        self._network, self._role = network, role
        self._incoming = {a: channel for (a, b), channel in channels.items() if b == role.name}
        self._outgoing = {b: channel for (a, b), channel in channels.items() if a == role.name}
        self.peers = tuple(self._outgoing)

    def agree(self, job: Agreed) -> None:
        """Say which job this party has; compared with a peer's at the first message between the two."""
        self._role.job = job

    def send(self, to: str, frame: bytes) -> None:
        """Put a frame into the peer's queue; never waits."""
        channel = self._outgoing.get(to) or self._unknown(to)
        self._network.check()
        if not channel.compared:
            self._compare(channel, to)
        if channel.refusal is not None:
            raise channel.refusal()
        self._network.put(channel, frame)

    def recv(self, sender: str, timeout: float) -> bytes:
        """The sender's next frame; others run until it is there."""
        channel = self._incoming.get(sender) or self._unknown(sender)
        self._network.check()
        if not channel.compared:
            self._compare(channel, sender)
        if channel.frames:
            return channel.frames.popleft()
        if channel.end is not None:
            raise channel.end()
        return self._network.wait(self._role, channel, timeout)

    def drop(self, peer: str) -> None:
        """Close the channel to a peer for good, in both directions."""
        name = self.name
        outgoing = self._outgoing.get(peer) or self._unknown(peer)
        outgoing.refusal = lambda: PeerLost(f"{name} has dropped {peer}")
        incoming = self._incoming[peer]
        incoming.end = outgoing.refusal
        incoming.frames.clear()
        self._network.put(outgoing, lambda: PeerLost(f"{peer} was dropped by {name}"))

    def abort(self, last_word: bytes) -> None:
        """End all channels with this frame."""
        name = self.name
        self._leave(lambda: LastWord(name, last_word))

    def close(self) -> None:
        """Orderly end: peers still get what was sent, and know that nothing follows."""
        name = self.name
        self._leave(lambda: PeerLost(f"{name} has finished"))

    def _compare(self, channel: _Channel, peer: str) -> None:
        other = channel.sender if channel.receiver is self._role else channel.receiver
        if other.job is not self._role.job:
            self._role.job.check(peer, other.job, self.name)
        channel.compared = True

    def _leave(self, end: _Ending) -> None:
        name = self.name
        for channel in self._outgoing.values():
            channel.refusal = channel.refusal or (lambda: PeerLost(f"{name} has closed its channels"))
        self._network.tell_all(self._role, end)

    def _unknown(self, peer: str) -> NoReturn:
        raise InvalidParameter(f"{self.name} has no peer called {peer!r}; it has {', '.join(self.peers)}")


def _core_at_work() -> int | None:
    """The core that this thread runs on, where the system tells (Linux) and lets threads be kept there."""
    try:
        return int(_STAT.read_text().rpartition(")")[2].split()[36]) if hasattr(os, "sched_setaffinity") else None
    except (OSError, ValueError, IndexError):
        return None
