"""How each party of a run does the work on its own rows: here, or on a Ray cluster of its own.

    Federation(...).fit(..., backend="ray")                                  everybody
    Federation(...).fit(..., backend={"clinic_a": "10.0.0.5:6379"})          one party, the others as always

It is a party's own affair: not part of the job, and told to nobody. Which roles can is declared by their protocol
(`Protocol.on_ray`). What cannot be is refused before anything is charged or sent: a role that runs on one machine only,
a package that is missing, an address where nobody answers.

Parties that are threads of one process share its connection to Ray, which is made before they start and ends after the
last of them. Parties that are processes have one each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import Any

from hedgerow.engine.rows_ray.cluster import RayBackend, chosen_backend, connected, reachable
from hedgerow.engine.rows_ray.rows import check_allowed
from hedgerow.errors import HedgerowError, InvalidParameter
from hedgerow.runtime.protocol import PartyData, Protocol

ONE_MACHINE = "it runs on one machine"


def backends_of(given: object, parties: tuple[str, ...], n_jobs: int | None) -> dict[str, RayBackend]:
    """What `Federation.fit` was given as `backend`, by party; those on this machine are left out."""
    if not isinstance(given, Mapping):
        given = dict.fromkeys(parties, given)
    found = {}
    for party, backend in given.items():
        if party not in parties:
            raise InvalidParameter(f"backend names {party!r}, which is not one of {list(parties)}")
        with _naming(party):
            if (chosen := chosen_backend(backend, n_jobs)) is not None:
                found[party] = chosen
    return found


def with_backends(
    protocol: Protocol, job: Any, data: Mapping[str, PartyData], backends: Mapping[str, RayBackend]
) -> dict[str, PartyData]:
    """What everybody brings, with how it works on it; InvalidParameter or ClusterError if somebody cannot so."""
    reached = {}
    for party, backend in backends.items():
        check_role(protocol, job, party)
        with _naming(party):
            if passes_rows(data[party]):
                check_allowed(backend, "a table in memory reaches Ray's actors only through its object store")
            reached[party] = replace(backend, address=reachable(backend))
    addresses = [backend.address for backend in reached.values()]
    reached = {party: replace(each, sharing=addresses.count(each.address)) for party, each in reached.items()}
    return {party: replace(brought, backend=reached.get(party)) for party, brought in data.items()}


def passes_rows(data: PartyData) -> bool:
    """Whether what a party brings reaches actors only through Ray's object store."""
    return data.blocks is None and data.ids is None


def check_role(protocol: Protocol, job: Any, party: str) -> None:
    """InvalidParameter, with the reason, unless the role of a party can do its work on Ray."""
    role, reason = job.cast[party], why_not(protocol, job, party)
    if reason is not None:
        raise InvalidParameter(
            f"{party}: backend: the {role} of {protocol.name} cannot use Ray: {reason}; leave backend out for {party}"
        )


def why_not(protocol: Protocol, job: Any, party: str) -> str | None:
    """Why the role of a party cannot do its work on Ray; None if it can."""
    return protocol.on_ray.get(job.cast[party], ONE_MACHINE)


@contextmanager
def one_connection(data: Mapping[str, PartyData]) -> Iterator[None]:
    """The connection that all parties of this process share, for as long as they play; none if nobody needs it."""
    with ExitStack() as stack:
        for party, brought in data.items():
            if brought.backend is not None:
                with _naming(party):
                    stack.enter_context(connected(brought.backend))
        yield


@contextmanager
def _naming(party: str) -> Iterator[None]:
    """Errors begin with the name of the party that they are about."""
    try:
        yield
    except HedgerowError as problem:
        raise type(problem)(f"{party}: {problem}") from problem


def written(backend: RayBackend | None) -> dict[str, Any] | None:
    """For a party's process, as JSON."""
    return None if backend is None else asdict(backend)


def read(about: Mapping[str, Any] | None) -> RayBackend | None:
    """The inverse of `written`."""
    return None if about is None else RayBackend(**about)
