"""All parties of a job on this machine: as threads that pass a baton, or as processes over mutual TLS."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from hedgerow.errors import InvalidParameter
from hedgerow.ledger import Ledger, Meter, reconcile
from hedgerow.runtime.backends import one_connection
from hedgerow.runtime.budgets import Budget, Budgets, play_on
from hedgerow.runtime.party import DEADLINE, Party, named, root_cause
from hedgerow.runtime.progress import OnProgress, say
from hedgerow.runtime.protocol import PartyData, Protocol, agreed
from hedgerow.runtime.recording import Records
from hedgerow.transport.emulate import Link
from hedgerow.transport.endpoint import Agreed, Endpoint
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.mtls import Identity, TrustStore, check_party_names

if TYPE_CHECKING:
    from hedgerow.runtime.checkpoint import Checkpoints

TRANSPORTS = ("memory", "grpc")
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
    attempt: int = 1,
    checkpoints: Mapping[str, Checkpoints] | None = None,
) -> Outcome:
    """Let all parties play their roles; raises the root cause if one of them has no result, and was not given up.

    `records` gets everybody's transcript, `budgets` are charged by those whose they are. A run that was broken off goes
    on as its next `attempt` with the same `checkpoints`.
    """
    check_how(transport, deadline)
    check_party_names(protocol.parties(job))
    if transport == "grpc":
        from hedgerow.runtime.processes import run_in_processes

        how: dict[str, Any] = {"records": records, "budgets": budgets, "attempt": attempt, "checkpoints": checkpoints}
        return run_in_processes(protocol, job, data, link, deadline, on_progress, **how)
    warm_up(protocol, job)
    names = protocol.parties(job)
    on_ray = any(brought.backend is not None for brought in data.values())
    single = link is None and not on_ray and all(brought.n_threads == 1 for brought in data.values())
    network = MemoryNetwork(names, link=link, one_core=single)
    with one_connection(data) if on_ray else nullcontext(), records or nullcontext():
        around = None if records is None else records.around
        how = {"deadline": deadline, "on_progress": on_progress, "attempt": attempt}
        parties = in_memory(network, names, around=around, checkpoints=checkpoints, **how)
        same, budgets = agreed(protocol, job, attempt), budgets or {}
        roles = {name: role(protocol, parties[name], job, data.get(name), budgets.get(name), same) for name in names}
        started = time.perf_counter()
        outcomes = network.run(roles)
        seconds = time.perf_counter() - started
        errors = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
        results = {name: outcome.value for name, outcome in outcomes.items() if outcome.value is not None}
        ledgers = {name: party.ledger for name, party in parties.items()}
        check_results(names, results, errors, ledgers, records)
    return results, ledgers, {name: party.meter for name, party in parties.items()}, seconds


def check_results(
    names: tuple[str, ...],
    results: Mapping[str, Any],
    errors: Mapping[str, BaseException],
    ledgers: Mapping[str, Ledger],
    records: Records | None,
) -> None:
    """Raise the root cause unless everybody came to the end whom the others did not go on without; books must agree.

    The error's `ledgers` has the book of each party that could still hand it over; `records` keeps them in its folder.
    """
    given_up = getattr(results.get(names[0]), "meta", {}).get("lost_owners", {})
    unexpected = {name: errors[name] for name in names if name in errors and name not in given_up}
    if not unexpected:
        reconcile({name: ledger for name, ledger in ledgers.items() if name not in given_up})
        return
    party, error = root_cause(unexpected)
    failure = named(party, error, names)
    failure.ledgers = dict(ledgers)  # type: ignore[attr-defined]  # HedgerowError has it; others may get it as well
    if records is not None:
        records.keep_ledgers(ledgers)
    raise failure


# --- threads of this process -----------------------------------------------------------------------------------------


def in_memory(
    network: MemoryNetwork,
    names: tuple[str, ...],
    *,
    around: Callable[[Endpoint], Endpoint] | None = None,
    checkpoints: Mapping[str, Checkpoints] | None = None,
    **how: Any,
) -> dict[str, Party]:
    """Parties on a memory network, each with an identity of its own that all others have pinned.

    `around` puts something around every endpoint, `checkpoints` are each party's own, `how` goes to every Party.
    """
    ends: dict[str, Endpoint] = {name: network.endpoint(name) for name in names}
    if around is not None:
        ends = {name: around(endpoint) for name, endpoint in ends.items()}
    how = {"check": network.check, **how}
    kept = checkpoints or {}
    with _MAKING:
        return {
            name: Party(ends[name], _identity(name), _trust(names), checkpoints=kept.get(name), **how) for name in names
        }


_MAKING = threading.Lock()  # two threads that make the same identity at once would make two


@functools.cache
def _identity(name: str) -> Identity:
    """Who a party in memory is. Made once in a process: its key never leaves it."""
    return Identity.create(name, days=3650)


@functools.lru_cache(maxsize=64)
def _trust(names: tuple[str, ...]) -> TrustStore:
    trust = TrustStore()
    for name in names:
        trust.pin(name, _identity(name).certificate.pem)
    return trust


def role(
    protocol: Protocol,
    me: Party,
    job: Any,
    data: PartyData | None,
    budget: Budget | None = None,
    same: Agreed | None = None,
) -> Callable[[], Any]:
    """A party's role as a function without arguments, as networks run it: who fails in it tells its peers.

    `same` has the digests of the job, where they are known already.
    """
    me.join(same or agreed(protocol, job, me.attempt))

    def playing() -> Any:
        try:
            return protocol.play(me, job, data) if budget is None else play_on(budget, protocol, me, job, data)
        except BaseException as error:
            me.abort(error)
            raise

    return playing


# --- warm-up ---------------------------------------------------------------------------------------------------------

_warm: set[str] = set()
"""Small jobs that have been played in this process: their kernels are compiled and loaded."""
GETTING_READY = "getting kernels ready: compiled once per machine, for half a minute or so"
LONG_SECONDS = 3.0
_ANY = (
    *("learning_rate", "l2", "min_gain", "min_child_weight", "min_samples_leaf", "min_rows_per_sum"),
    *("base_score", "seed", "tol"),
)
"""Parameters of trees whose values no kernel is compiled for."""


def get_ready(protocol: Protocol, job: Any, transport: str, tell: Callable[[str], None] | None = say) -> None:
    """What `run_together` would begin with, before it; whoever waits for it is told so, if it takes long."""
    told = threading.Timer(LONG_SECONDS, tell or (lambda _words: None), (GETTING_READY,))
    told.daemon = True
    told.start()
    try:
        if transport == "grpc":
            from hedgerow.runtime.forks import forks_for
            from hedgerow.runtime.processes import PREPARE_SECONDS

            forks_for(protocol.name, job.to_dict(), PREPARE_SECONDS)
        else:
            warm_up(protocol, job)
    finally:
        told.cancel()


def warm_up(protocol: Protocol, job: Any) -> None:
    """Get every kernel compiled that a run of this job needs, on made-up rows; once in a process."""
    rehearsal = protocol.warmup(job)
    if rehearsal is None:
        return
    from hedgerow.compiling import told_otherwise

    told_otherwise()
    small, make_up = rehearsal
    about = {**vars(small), "run_id": ""}
    if (trees := about.get("boosting")) is not None:
        about["boosting"] = [getattr(trees, field.name) for field in fields(trees) if field.name not in _ANY]
    key = repr((protocol.name, about))
    if key in _warm:
        return
    names, data = protocol.parties(small), make_up()
    network = MemoryNetwork(names)
    parties = in_memory(network, names)
    outcomes = network.run({name: role(protocol, parties[name], small, data.get(name)) for name in names})
    errors = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
    if errors:
        raise root_cause(errors)[1]
    _warm.add(key)
