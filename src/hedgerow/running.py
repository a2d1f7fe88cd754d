"""All parties of a job on this machine: as threads that pass a baton, or as processes over mutual TLS."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from hedgerow.budgets import Budgets, play
from hedgerow.errors import InvalidParameter
from hedgerow.ledger import Ledger
from hedgerow.party import DEADLINE, named, root_cause
from hedgerow.progress import duration, say
from hedgerow.protocols.protocol import PartyData, Protocol
from hedgerow.protocols.rehearsal import in_memory
from hedgerow.records import Records
from hedgerow.transport.emulate import Link
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.meter import Meter

TRANSPORTS = ("memory", "grpc")
OnProgress = Callable[[int, int], None]
Outcome = tuple[dict[str, Any], dict[str, Ledger], dict[str, Meter], float]
"""Each party's result, ledger and traffic; seconds from the first message to the last result."""


def check_how(transport: str, deadline: float) -> None:
    """InvalidParameter for a way to run that there is not."""
    if transport not in TRANSPORTS:
        raise InvalidParameter(f"transport must be one of {', '.join(TRANSPORTS)}, got {transport!r}")
    if not isinstance(deadline, int | float) or not deadline > 0:
        raise InvalidParameter(f"deadline must be a positive number of seconds, got {deadline!r}")


def run_together(
    protocol: Protocol,
    job: Any,
    data: Mapping[str, PartyData],
    *,
    transport: str = "memory",
    link: Link | None = None,
    deadline: float = DEADLINE,
    on_progress: OnProgress | None = None,
    records: Records | None = None,
    budgets: Budgets | None = None,
) -> Outcome:
    """Let all parties play their roles; raises the root cause if the first one has no result.

    `records` gets everybody's transcript, `budgets` are charged by those whose they are.
    """
    check_how(transport, deadline)
    if transport == "grpc":
        from hedgerow.local_processes import run_in_processes

        return run_in_processes(protocol, job, data, link, deadline, on_progress, records=records, budgets=budgets)
    with records or nullcontext():
        return _run_in_memory(protocol, job, data, link, deadline, on_progress, records, budgets or {})


def _run_in_memory(
    protocol: Protocol,
    job: Any,
    data: Mapping[str, PartyData],
    link: Link | None,
    deadline: float,
    on_progress: OnProgress | None,
    records: Records | None,
    budgets: Budgets,
) -> Outcome:
    """Parties as threads that pass a baton."""
    protocol.rehearse(job)
    names = protocol.parties(job)
    single = link is None and all(brought.n_threads == 1 for brought in data.values())
    network = MemoryNetwork(names, link=link, one_core=single)
    around = None if records is None else records.around
    parties = in_memory(network, names, around=around, deadline=deadline, on_progress=on_progress)
    roles = {name: partial(play, protocol, parties[name], job, data.get(name), budgets.get(name)) for name in names}
    started = time.perf_counter()
    outcomes = network.run(roles)
    seconds = time.perf_counter() - started
    errors = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
    if names[0] in errors:
        party, error = root_cause(errors)
        raise named(party, error, names)
    results = {
        name: outcome.value for name, outcome in outcomes.items() if outcome.error is None and outcome.value is not None
    }
    ledgers = {name: party.ledger for name, party in parties.items()}
    return results, ledgers, {name: party.meter for name, party in parties.items()}, seconds


def watcher(verbose: int, on_progress: OnProgress | None, what: str = "") -> OnProgress | None:
    """`on_progress` that also says every `verbose` steps how far it is, and how long it will take."""
    if not verbose:
        return on_progress
    first: list[tuple[float, int]] = []  # when the first news came, and how much was done by then

    def watch(done: int, total: int) -> None:
        if not first:
            first.append((time.monotonic(), done))
        if done % verbose == 0 or done == total:
            started, before = first[0]
            left = (total - done) * (time.monotonic() - started) / max(done - before, 1)
            say(f"[{done}/{total}{what}] ETA {duration(left)}")
        if on_progress is not None:
            on_progress(done, total)

    return watch
