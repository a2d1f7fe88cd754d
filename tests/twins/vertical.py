"""Made-up columns of several parties, and runs of a protocol on them in memory, with random bytes from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.protocols.vertical.common.agreement import VerticalJob
from hedgerow.runtime.party import Party, root_cause
from hedgerow.runtime.protocol import PartyData, Protocol, agreed
from hedgerow.runtime.running import in_memory, role
from hedgerow.transport.frames import Message
from hedgerow.transport.memory import MemoryNetwork, Outcome
from hedgerow.transport.ranges import check
from twins.parties import connect_star, make_identities, trust_in

NAMES = ("anna", "ben", "carla", "dora", "emil", "fred", "gina", "hugo")

Job = TypeVar("Job", bound=VerticalJob)
Watch = Callable[[str, str, Message], None]
"""Receiver, sender and message."""
Spoil = Callable[[Message], Message]
"""What a party receives instead of a message."""


def table_of(columns: Sequence[Column]) -> Table:
    """A table with these columns."""
    return Table(tuple(columns), len(columns[0].values), tuple(c.name for c in columns), has_names=True)


def make_columns(rng: np.random.Generator, n_rows: int, n_columns: int, *, missing: float = 0.0) -> list[Column]:
    """Numbers of several kinds: continuous, few values, skewed, copies and mirror images of the column before."""
    columns: list[Column] = []
    for k in range(n_columns):
        kind = k % 5
        if kind == 0:
            values = rng.normal(size=n_rows)
        elif kind == 1:
            values = rng.integers(0, 4, n_rows).astype(np.float64)
        elif kind == 2:
            values = np.exp(rng.normal(size=n_rows))
        elif kind == 3:
            values = columns[-1].values.copy()
        else:
            values = -columns[-1].values
        if missing and kind in (0, 1):
            values = np.where(rng.random(n_rows) < missing, np.nan, values)
        columns.append(Column(f"x{k}", values))
    return columns


def make_data(
    n_parties: int,
    n_rows: int = 300,
    n_columns: int = 8,
    *,
    task: str = "classification",
    missing: float = 0.0,
    seed: int = 1,
    holder: str = NAMES[0],
) -> dict[str, PartyData]:
    """What each party has; the label follows from columns of several of them."""
    rng = np.random.default_rng(seed)
    columns = make_columns(rng, n_rows, n_columns, missing=missing)
    signal = sum(np.nan_to_num(c.values) * rng.normal() for c in columns) + rng.normal(size=n_rows)
    cuts = np.linspace(0, n_columns, n_parties + 1).astype(int)
    data = {name: PartyData(table_of(columns[cuts[k] : cuts[k + 1]])) for k, name in enumerate(NAMES[:n_parties])}
    if task == "classification":
        data[holder] = replace(data[holder], labels=(signal > np.median(signal)).astype(np.float64), classes=(0, 1))
    else:
        data[holder] = replace(data[holder], labels=np.clip(signal, -5.0, 5.0))
    return data


def make_job(kind: type[Job], data: Mapping[str, PartyData], holder: str = NAMES[0], **changes: Any) -> Job:
    """A small job of this kind; `changes` are parameters of trees and of the job alike."""
    known = set(BoostingParams.__dataclass_fields__)
    trees = {name: changes.pop(name) for name in list(changes) if name in known}
    if changes.get("task") == "regression":
        trees = {"loss": "squared", "label_range": (-5.0, 5.0), **trees}
    small = {"n_iterations": 2, "max_depth": 3, "learning_rate": 0.3, "min_child_weight": 0.0}
    boosting = BoostingParams(**{**small, **trees})
    return kind(tuple(data), holder, "a test", boosting=boosting, **{"max_bins": 8, **changes})


def play(
    protocol: Protocol, job: Any, data: Mapping[str, PartyData], **how: Any
) -> tuple[dict[str, Any], dict[str, Party]]:
    """All parties in memory, as `outcomes_of`: their results, and the parties. The error of who failed is raised."""
    outcomes, parties = outcomes_of(protocol, job, data, **how)
    errors = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
    if errors:
        raise root_cause(errors)[1]
    return {name: outcome.value for name, outcome in outcomes.items()}, parties


def outcomes_of(
    protocol: Protocol,
    job: Any,
    data: Mapping[str, PartyData],
    *,
    seed: int = 3,
    steady: str | None = None,
    watch: Watch | None = None,
    spoil: Spoil | None = None,
    jobs: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Outcome[Any]], dict[str, Party]]:
    """How each party ended, and the parties with their ledgers. `watch` gets each message, and `spoil` may change it.

    With another `seed` all draw other random bytes, but for the party that is `steady`. Who is among `jobs` plays
    another one, and says that it is this one.
    """
    names = protocol.parties(job)
    network = MemoryNetwork(names)
    parties = in_memory(network, names)
    for number, (name, party) in enumerate(parties.items()):
        party.rng = _random(number, 0 if name == steady else seed)
        if watch is not None or spoil is not None:
            watched = _watching(name, party.recv, watch, spoil)
            party.recv = watched
    same = agreed(protocol, job)
    played = {name: (jobs or {}).get(name, job) for name in names}
    roles = {name: role(protocol, parties[name], played[name], data.get(name), same=same) for name in names}
    return network.run(roles), parties


def play_over_grpc(protocol: Protocol, job: Any, data: Mapping[str, PartyData], *, seed: int = 3) -> dict[str, Any]:
    """The same over gRPC on loopback, each party in a thread, with the first one listening: their results."""
    names = protocol.parties(job)
    identities = make_identities(names)
    trust = trust_in(identities.values())
    endpoints = connect_star(names[0], names[1:], identities=identities, job=agreed(protocol, job))

    def run(number: int, name: str) -> Any:
        party = Party(endpoints[name], identities[name], trust, deadline=30.0)
        party.rng = _random(number, seed)
        return role(protocol, party, job, data.get(name))()

    try:
        with ThreadPoolExecutor(len(names)) as threads:
            running = {name: threads.submit(run, number, name) for number, name in enumerate(names)}
            return {name: future.result(60.0) for name, future in running.items()}
    finally:
        for endpoint in endpoints.values():
            endpoint.close()


def _random(number: int, seed: int) -> SecureRandom:
    """The random bytes of the party with this number."""
    return SecureRandom.from_seed(bytes([seed, number]) * 16)


def _watching(name: str, recv: Callable[..., Any], watch: Watch | None, spoil: Spoil | None) -> Callable[..., Any]:
    """A `recv` that passes every message to `watch` too, and returns what `spoil` makes of it, if that is in range."""

    def received(sender: str, kind: type[Message], *, timeout: float | None = None, **symbols: Any) -> Any:
        message = recv(sender, kind, timeout=timeout, **symbols)
        if watch is not None:
            watch(name, sender, message)
        if spoil is not None:
            message = spoil(message)
            check(sender, message, symbols)
        return message

    return received
