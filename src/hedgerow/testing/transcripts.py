"""Runs of a protocol in memory with a look at the wire: what a party really sent and received, and parties that vanish.

    played = play(PROTOCOL, job, data, around={"coordinator": Recording})
    played.results["anna"], played.errors, played.parties["anna"].ledger
    summed_levels(played.endpoints["coordinator"])      what the coordinator could add up, level by level

A wrapper around a party's endpoint sees every frame that passes; the protocol knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

import numpy as np

from hedgerow.attacks.singleton_cells import SeenLevel
from hedgerow.engine.dtypes import Ints, Words
from hedgerow.party import Party
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.messages import Agreement, MaskedHistogram, NextStep, Plan, Start
from hedgerow.protocols.horizontal.secure_sum.owner import Owner
from hedgerow.protocols.protocol import PartyData, Protocol
from hedgerow.protocols.vertical.noised_gradients import feature_holder
from hedgerow.protocols.vertical.noised_gradients.job import NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.protocol import PROTOCOL as NOISED_GRADIENTS
from hedgerow.protocols.vertical.noised_gradients.training import Trainer
from hedgerow.transport.endpoint import Endpoint
from hedgerow.transport.frames import Message, decode, peek
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.mtls import Identity, TrustStore

M = TypeVar("M", bound=Message)


class Passed(NamedTuple):
    """One frame, as one party saw it."""

    direction: str  # "sent" or "received"
    peer: str
    frame: bytes


class Recording:
    """An endpoint that keeps every frame that it sent or received, in order."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._inner = endpoint
        self.name, self.peers = endpoint.name, endpoint.peers
        self.passed: list[Passed] = []

    def send(self, to: str, frame: bytes) -> None:
        """Hand over a frame."""
        self.passed.append(Passed("sent", to, frame))
        self._inner.send(to, frame)

    def recv(self, sender: str, timeout: float) -> bytes:
        """The sender's next frame."""
        frame = self._inner.recv(sender, timeout)
        self.passed.append(Passed("received", sender, frame))
        return frame

    def drop(self, peer: str) -> None:
        """Close the channel to a peer."""
        self._inner.drop(peer)

    def abort(self, reason: str) -> None:
        """Tell every peer that this party failed."""
        self._inner.abort(reason)

    def close(self) -> None:
        """Orderly end."""
        self._inner.close()

    def messages(self, kind: type[M], direction: str, peer: str | None = None) -> list[M]:
        """All messages of one kind that went one way, with one peer or with all."""
        return [
            decode(passed.frame, kind)
            for passed in self.passed
            if passed.direction == direction and peer in (None, passed.peer) and peek(passed.frame)[0] == kind.NAME
        ]


class Replaying:
    """An endpoint that hands a party what it received before, from a record; what it sends goes nowhere.

    So a role can be played again by one party alone, which shows what that party could know.
    """

    def __init__(self, recording: Recording) -> None:
        self.name, self.peers = recording.name, recording.peers
        self._frames = [passed for passed in recording.passed if passed.direction == "received"]

    def send(self, to: str, frame: bytes) -> None:
        """Nobody listens."""

    def recv(self, sender: str, timeout: float) -> bytes:  # noqa: ARG002 - nothing has to be waited for
        """The sender's next frame of those in the record."""
        place = next(k for k, passed in enumerate(self._frames) if passed.peer == sender)
        return self._frames.pop(place).frame

    def drop(self, peer: str) -> None:
        """There is no channel."""

    def abort(self, reason: str) -> None:
        """Nobody is told."""

    def close(self) -> None:
        """There is nothing to close."""


class Vanished(Exception):
    """Ends the role of a party that is to disappear without a word."""


class Vanishing(Recording):
    """An endpoint whose party is gone, for all peers, once `when` says so of a frame that is about to pass.

    `when(direction, frame)` is asked before a frame is sent ("sending") and after one has been received ("received").
    """

    def __init__(self, endpoint: Endpoint, when: Callable[[str, bytes], bool]) -> None:
        super().__init__(endpoint)
        self._when = when

    def send(self, to: str, frame: bytes) -> None:
        """Hand over a frame, or go."""
        if self._when("sending", frame):
            raise Vanished
        super().send(to, frame)

    def recv(self, sender: str, timeout: float) -> bytes:
        """The sender's next frame, or go."""
        frame = super().recv(sender, timeout)
        if self._when("received", frame):
            raise Vanished
        return frame


def vanishing_at(tree: int, level: int, *, having_sent: bool = False) -> Callable[[Endpoint], Vanishing]:
    """A party that is asked for the sums of this level and answers with silence, or goes right after its answer."""

    def wrap(endpoint: Endpoint) -> Vanishing:
        asked: list[tuple[int, int]] = []

        def when(direction: str, frame: bytes) -> bool:
            if direction == "received" and peek(frame)[0] == NextStep.NAME:
                if having_sent and (tree, level) in asked:
                    return True
                plan = plan_of(decode(frame, NextStep))
                asked.append((plan.tree, plan.level))
                return not having_sent and asked[-1] == (tree, level)
            return False

        return Vanishing(endpoint, when)

    return wrap


@dataclass
class Played:
    """How a run ended for every party."""

    results: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    parties: dict[str, Party] = field(default_factory=dict)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)

    def recording(self, party: str) -> Recording:
        """What a party that was wrapped in a Recording saw."""
        endpoint = self.endpoints[party]
        if not isinstance(endpoint, Recording):
            raise TypeError(f"{party} was not recorded")
        return endpoint


@cache
def identity_of(name: str) -> Identity:
    """A party's identity, made once."""
    return Identity.create(name, days=1)


def replay(protocol: Protocol, job: Any, data: PartyData, recording: Recording) -> Any:
    """The result of one party's role, played again on what it received."""
    return protocol.play(Party(Replaying(recording), identity_of(recording.name), TrustStore()), job, data)


def play(
    protocol: Protocol,
    job: Any,
    data: Mapping[str, PartyData],
    *,
    around: Mapping[str, Callable[[Endpoint], Endpoint]] | None = None,
    **how: Any,
) -> Played:
    """Run a job in memory; `around` wraps endpoints, `how` goes to every Party. Errors are handed over, not raised."""
    names = protocol.parties(job)
    network = MemoryNetwork(names)
    trust = TrustStore()
    for name in names:
        trust.pin(name, identity_of(name).certificate.pem)
    played = Played()
    for name in names:
        endpoint: Endpoint = network.endpoint(name)
        wrap = (around or {}).get(name)
        played.endpoints[name] = endpoint if wrap is None else wrap(endpoint)
        played.parties[name] = Party(played.endpoints[name], identity_of(name), trust, **how)

    def role(name: str) -> Callable[[], Any]:
        def live() -> Any:
            try:
                return protocol.play(played.parties[name], job, data.get(name))
            except Vanished:
                return None

        return live

    for name, outcome in network.run({name: role(name) for name in names}).items():
        if outcome.error is not None:
            played.errors[name] = outcome.error
        elif outcome.value is not None:
            played.results[name] = outcome.value
    return played


# --- horizontal.secure_sum: what a coordinator can add up ----------------------------------------------------------


def plan_of(step: NextStep) -> Plan:
    """The numbers of a step by their names."""
    return Plan(*step.plan.tolist())


@dataclass(frozen=True, eq=False)
class SummedLevel:
    """What the coordinator asked for in one step of training, and what came."""

    step: NextStep
    parts: Mapping[str, Words]  # owner -> the masked vector that came from it; those of lost owners are missing
    asked: tuple[str, ...]

    @property
    def plan(self) -> Plan:
        """The numbers of the step."""
        return plan_of(self.step)

    @property
    def is_complete(self) -> bool:
        """Whether everybody who was asked has answered, so that masks cancel."""
        return set(self.parts) == set(self.asked)

    @property
    def sums(self) -> Words:
        """The sum over all who answered; without masks only if that is everybody."""
        total: Words = np.sum(list(self.parts.values()), axis=0, dtype=np.uint64)
        return total


def summed_levels(recording: Recording) -> Iterator[SummedLevel]:
    """The levels of all trees from a coordinator's record, in order."""
    order: list[tuple[NextStep, list[str], dict[str, Words]]] = []
    current: tuple[NextStep, list[str], dict[str, Words]] | None = None
    last_frame = b""
    for direction, peer, frame in recording.passed:
        name = peek(frame)[0]
        if direction == "sent" and name == NextStep.NAME:
            if current is None or frame != last_frame:
                current = (decode(frame, NextStep), [], {})
                order.append(current)
                last_frame = frame
            current[1].append(peer)
        elif direction == "received" and name == MaskedHistogram.NAME and current is not None:
            current[2][peer] = decode(frame, MaskedHistogram).values
    for step, owners, parts in order:
        if len(step.build):
            yield SummedLevel(step, parts, tuple(owners))


def positions(levels: Iterable[SummedLevel]) -> dict[tuple[int, int, int], list[SummedLevel]]:
    """(tree, level, part) -> all attempts to sum it."""
    found: dict[tuple[int, int, int], list[SummedLevel]] = {}
    for level in levels:
        plan = level.plan
        found.setdefault((plan.tree, plan.level, plan.part), []).append(level)
    return found


# --- the same as an adversary of `attacks.singleton_cells` sees it -----------------------------------------------


def as_seen(levels: Iterable[SummedLevel], take: Callable[[SummedLevel], Words]) -> list[SeenLevel]:
    """The levels with the sums that `take` gives for each: of all who answered, or of one of them."""
    seen = []
    for summed in levels:
        plan, step = summed.plan, summed.step
        sums = take(summed)[: len(step.build)].view(np.int64)  # counts of rows, if any, come after the gradients
        goes_left = np.unpackbits(step.goes_left, axis=1) if plan.level else np.empty((0, 256), np.uint8)
        splits = np.asarray(step.feature, np.int64) if plan.level else np.empty(0, np.int64)
        seen.append(SeenLevel(plan.tree, plan.level, splits, goes_left, np.asarray(step.build, np.int64), sums))
    return seen


def own_parts(recording: Recording, data: PartyData, job: Job) -> list[Words]:
    """What an owner itself contributed to each level, from its rows and the messages it received."""
    owner = Owner(recording.name, data, job)
    owner.agree(recording.messages(Agreement, "received")[0])
    owner.totals()
    owner.start(recording.messages(Start, "received")[0])
    parts = [owner.take(step, plan_of(step)) for step in recording.messages(NextStep, "received")]
    return [part for part in parts if part is not None]


# --- vertical.noised_gradients: what a feature holder knows beside the noise -----------------------------------------


def gradients_of_scores(recording: Recording, data: PartyData, job: NoisedGradientsJob) -> Ints:
    """[trees, rows] what the scores before each tree add to gradients, in units, by the feature holder's own account.

    Its role is played again on what it received, so all of this follows from released numbers.
    """
    seen: list[Ints] = []

    class Watched(Trainer):
        def gradients(self) -> Ints:
            """As always, and remembered."""
            seen.append(super().gradients().copy())
            return seen[-1]

    with patch.object(feature_holder, "Trainer", Watched):
        replay(NOISED_GRADIENTS, job, data, recording)
    return np.array(seen)
