"""A protocol on a few made-up rows, all parties as threads: afterwards every kernel of the real run is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hedgerow.privacy.budget_file import Dataset
from hedgerow.runtime.budgets import play
from hedgerow.runtime.party import Party, root_cause
from hedgerow.runtime.protocol import PartyData, Protocol
from hedgerow.runtime.same_job import agreed
from hedgerow.transport.endpoint import Endpoint
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.mtls import Identity, TrustStore


def rehearse(protocol: Protocol, job: Any, data: Mapping[str, PartyData]) -> None:
    """Run the job in memory and forget the result."""
    names = protocol.parties(job)
    network = MemoryNetwork(names)
    parties = in_memory(network, names)
    outcomes = network.run({name: role(protocol, parties[name], job, data.get(name)) for name in names})
    errors = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
    if errors:
        raise root_cause(errors)[1]


def role(
    protocol: Protocol, me: Party, job: Any, data: PartyData | None, budget: Dataset | None = None
) -> Callable[[], Any]:
    """A party's role as a function without arguments, as networks run it: who fails in it tells its peers."""
    me.join(agreed(protocol, job))

    def playing() -> Any:
        try:
            return play(protocol, me, job, data, budget)
        except BaseException as error:
            me.abort(error)
            raise

    return playing


def in_memory(
    network: MemoryNetwork,
    names: tuple[str, ...],
    *,
    around: Callable[[Endpoint], Endpoint] | None = None,
    **how: Any,
) -> dict[str, Party]:
    """Parties on a memory network, each with an identity of its own that all others have pinned.

    `around` puts something around every endpoint, `how` goes to every Party.
    """
    identities = {name: Identity.create(name, days=1) for name in names}
    trust = TrustStore()
    for name, identity in identities.items():
        trust.pin(name, identity.certificate.pem)
    ends: dict[str, Endpoint] = {name: network.endpoint(name) for name in names}
    if around is not None:
        ends = {name: around(endpoint) for name, endpoint in ends.items()}
    how = {"check": network.check, **how}
    return {name: Party(ends[name], identities[name], trust, **how) for name in names}
