"""Runs of a protocol in memory with a look at the wire: what a party really sent and received, and parties that vanish.

    played = play(PROTOCOL, job, data, around={"coordinator": Recording})
    played.results["anna"], played.errors, played.parties["anna"].ledger
    played.recording("coordinator").transcript()        all that the coordinator saw

A wrapper around a party's endpoint sees every frame that passes; the protocol knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hedgerow.runtime.checkpoint import Checkpoints
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Protocol, agreed
from hedgerow.transport.endpoint import Endpoint
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.mtls import Identity, TrustStore
from hedgerow.transport.transcripts import Recording, Replaying


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
    again = Replaying(recording.transcript())
    party = Party(again, identity_of(recording.name), TrustStore())
    party.join(agreed(protocol, job))
    return protocol.play(party, job, data)


def play(
    protocol: Protocol,
    job: Any,
    data: Mapping[str, PartyData],
    *,
    around: Mapping[str, Callable[[Endpoint], Endpoint]] | None = None,
    checkpoints: Mapping[str, Checkpoints] | None = None,
    **how: Any,
) -> Played:
    """Run a job in memory; `around` wraps endpoints, `how` goes to every Party. Errors are handed over, not raised.

    `checkpoints` are each party's own.
    """
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
        kept = (checkpoints or {}).get(name)
        played.parties[name] = Party(played.endpoints[name], identity_of(name), trust, checkpoints=kept, **how)

    def role(name: str) -> Callable[[], Any]:
        party = played.parties[name]
        party.join(agreed(protocol, job, party.attempt))

        def live() -> Any:
            try:
                return protocol.play(party, job, data.get(name))
            except Vanished:
                return None
            except BaseException as error:
                party.abort(error)
                raise

        return live

    for name, outcome in network.run({name: role(name) for name in names}).items():
        if outcome.error is not None:
            played.errors[name] = outcome.error
        elif outcome.value is not None:
            played.results[name] = outcome.value
    return played
