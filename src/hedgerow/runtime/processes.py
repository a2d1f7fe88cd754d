"""A federation as processes of this machine: started, connected over mutual TLS on loopback, watched to their end.

Each process gets its own key and rows and nothing of the others', through pipes and files without a name: nothing of a
run lies on disk where it could outlive it, however it ends. What the user reads in the end is the root cause: the party
that failed first, not those that failed because of it.
"""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hedgerow import errors
from hedgerow.aborts import Reason
from hedgerow.errors import DeadlineExceeded, HedgerowError, InvalidParameter, PeerFailed, ProcessEnded
from hedgerow.ledger import Ledger, Meter
from hedgerow.runtime.budgets import Budgets, written
from hedgerow.runtime.forks import Forks, PartyProcess, forks_for
from hedgerow.runtime.party import LOGGER, named
from hedgerow.runtime.party_process import describe, rows_file
from hedgerow.runtime.protocol import PartyData, Protocol
from hedgerow.runtime.recording import Records
from hedgerow.runtime.running import Outcome, check_results
from hedgerow.transport.emulate import Link
from hedgerow.transport.mtls import Identity

if TYPE_CHECKING:
    from hedgerow.runtime.checkpoint import Checkpoints

PREPARE_SECONDS = 900.0  # importing and compiling on a busy machine
START_SECONDS = 180.0  # connecting
GRACE_SECONDS = 5.0  # how long a local process may be out of reach
AFTERMATH_SECONDS = 15.0  # how long the others may take to end once the first result or failure is there
RAY_SECONDS = 60.0  # how much longer that is where somebody has to let go of a Ray cluster


def run_in_processes(
    protocol: Protocol,
    job: Any,
    data: Mapping[str, PartyData],
    link: Link | None,
    deadline: float,
    on_progress: Callable[[int, int], None] | None,
    *,
    after_start: Callable[[dict[str, PartyProcess]], None] | None = None,
    records: Records | None = None,
    budgets: Budgets | None = None,
    attempt: int = 1,
    checkpoints: Mapping[str, Checkpoints] | None = None,
) -> Outcome:
    """Run all roles of a job as processes; `after_start` gets them once training has begun (tests kill one).

    `records` gets the transcript of everybody who came to its end. `checkpoints` are files: a process has no other way
    to leave something behind.
    """
    names = protocol.parties(job)
    with contextlib.ExitStack() as files:
        # A transcript goes into the user's folder, or into a file without a name until the run is over.
        kept = {} if records is None else {name: records.path(name) or _nameless_file(files) for name in names}
        fleet = _Fleet(names, files, on_progress, forks_for(protocol.name, job.to_dict(), PREPARE_SECONDS))
        try:
            orders = _orders(protocol, job, data, link, deadline, kept, budgets or {})
            if attempt > 1 or checkpoints:
                _add_checkpoints(orders, attempt, checkpoints or {})
            if any(brought.backend is not None for brought in data.values()):
                fleet.aftermath += RAY_SECONDS
            fleet.start(orders, data, job.links, kept)
            if after_start is not None:
                after_start(fleet.processes)
            fleet.wait()
        finally:
            fleet.stop()
        results = {name: protocol.result(event["result"]) for name, event in fleet.done.items()}
        check_results(names, results, fleet.errors, fleet.ledgers, records)
        if records is not None:
            for name in fleet.done:
                records.take(kept[name])
    ledgers = {name: fleet.ledgers[name] for name in names if name in fleet.done}
    started = min(event["started"] for event in fleet.done.values())
    ended = max(event["ended"] for event in fleet.done.values())
    return results, ledgers, {name: Meter(ledger) for name, ledger in ledgers.items()}, ended - started


def _nameless_file(files: contextlib.ExitStack) -> IO[bytes]:
    return files.enter_context(tempfile.TemporaryFile())


def _orders(
    protocol: Protocol,
    job: Any,
    data: Mapping[str, PartyData],
    link: Link | None,
    deadline: float,
    kept: Mapping[str, Path | IO[bytes]],
    budgets: Budgets,
) -> dict[str, dict[str, Any]]:
    """What each party is told at its start. Keys are made afresh for every run."""
    identities = {name: Identity.create(name, days=1) for name in protocol.parties(job)}
    orders = {}
    for name, identity in identities.items():
        orders[name] = {
            "name": name,
            "key": identity.key_pem.decode(),
            "protocol": protocol.name,
            "job": job.to_dict(),
            "certificates": {n: i.certificate.pem.decode() for n, i in identities.items()},
            "deadline": deadline,
            "grace": GRACE_SECONDS,
            "link": None if link is None else asdict(link),
        }
        if name in data:
            orders[name]["data"] = describe(data[name])
        if name in budgets:
            orders[name]["budget"] = written(budgets[name])
        if isinstance(place := kept.get(name), Path):
            orders[name]["record"] = str(place)
    return orders


def _add_checkpoints(orders: dict[str, dict[str, Any]], attempt: int, checkpoints: Mapping[str, Checkpoints]) -> None:
    """Which attempt it is, and where each party's files are."""
    from hedgerow.runtime.checkpoint import CheckpointFiles

    for name, about in orders.items():
        about["attempt"] = attempt
        if (kept := checkpoints.get(name)) is not None:
            if not isinstance(kept, CheckpointFiles):
                raise InvalidParameter(f"the checkpoints of {name} must be CheckpointFiles, because it is a process")
            about["checkpoints"] = str(kept.folder)


class _Fleet:
    """The processes, and what they have told."""

    def __init__(
        self,
        names: tuple[str, ...],
        files: contextlib.ExitStack,
        on_progress: Callable[[int, int], None] | None,
        forks: Forks,
    ) -> None:
        self._names = names
        self._forks = forks
        self._on_progress = on_progress
        self._stderr = {name: _nameless_file(files) for name in names}
        self._told: queue.Queue[tuple[str, dict[str, Any] | None]] = queue.Queue()
        self.processes: dict[str, PartyProcess] = {}
        self.done: dict[str, dict[str, Any]] = {}
        self.ledgers: dict[str, Ledger] = {}  # also of those who failed
        self.errors: dict[str, BaseException] = {}
        self._readers: list[threading.Thread] = []
        self.aftermath = AFTERMATH_SECONDS

    # --- start -------------------------------------------------------------------------------------------------------

    def start(
        self,
        orders: Mapping[str, dict[str, Any]],
        data: Mapping[str, PartyData],
        links: tuple[tuple[str, str], ...],
        kept: Mapping[str, Path | IO[bytes]],
    ) -> None:
        """Start all, connect them, and let them go when the last one is ready."""
        for name in self._names:
            self._spawn(name, data.get(name), kept.get(name))
        for name in self._names:
            self._say(name, {"start": orders[name]})
        ports: dict[str, int] = {}
        ready: set[str] = set()
        dialling: set[str] = set()
        until = time.monotonic() + START_SECONDS
        while len(ready) < len(self.processes):
            name, event = self._next(until)
            if event is None or event["event"] == "failed":
                self._note_end(name, event)
                raise named(name, self.errors[name], self.processes)
            if event["event"] == "listening":
                ports[name] = event["port"]
            elif event["event"] == "ready":
                ready.add(name)
            for dialler in {b for _, b in links} - dialling:
                wanted = [a for a, b in links if b == dialler]
                if all(a in ports for a in wanted):
                    dialling.add(dialler)
                    self._say(dialler, {"dial": {a: f"127.0.0.1:{ports[a]}" for a in wanted}})
        for name in self.processes:
            self._say(name, {"go": True})

    def _spawn(self, name: str, data: PartyData | None, kept: Path | IO[bytes] | None) -> None:
        with contextlib.ExitStack() as ours:  # closed here once the process has it
            rows = None if data is None else ours.enter_context(rows_file(data)).fileno()
            transcript = None if kept is None or isinstance(kept, Path) else kept.fileno()
            process = self._forks.fork(name, self._stderr[name].fileno(), rows, transcript)
        self.processes[name] = process
        reader = threading.Thread(target=self._listen, args=(name, process), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _listen(self, name: str, process: PartyProcess) -> None:
        for line in process.stdout:
            self._told.put((name, json.loads(line)))
        process.wait()
        self._told.put((name, None))

    def _say(self, name: str, what: dict[str, Any]) -> None:
        stdin = self.processes[name].stdin
        with contextlib.suppress(BrokenPipeError):  # it has ended; that event comes too
            stdin.write(json.dumps(what) + "\n")
            stdin.flush()

    # --- watch -------------------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Until every process has ended, or the others take too long after the first end."""
        first_end: float | None = None
        ended: set[str] = set()
        while len(ended) < len(self.processes):
            try:
                name, event = self._next(first_end and first_end + self.aftermath)
            except DeadlineExceeded:
                break
            if event is not None and event["event"] == "progress":
                if self._on_progress is not None and name == self._names[0]:
                    self._on_progress(event["done"], event["total"])
                continue
            if event is None:
                ended.add(name)
            self._note_end(name, event)
            if name == self._names[0] and first_end is None:
                first_end = time.monotonic()

    def _next(self, until: float | None) -> tuple[str, dict[str, Any] | None]:
        timeout = None if until is None else max(0.0, until - time.monotonic())
        try:
            name, event = self._told.get(timeout=timeout)
        except queue.Empty:
            raise DeadlineExceeded("the parties' processes did not answer in time") from None
        if event is not None and event["event"] == "log":
            LOGGER.log(event["level"], "%s: %s", name, event["message"])
            return self._next(until)
        return name, event

    def _note_end(self, name: str, event: dict[str, Any] | None) -> None:
        if event is not None:
            self.ledgers[name] = Ledger.from_json_lines(name, event["ledger"])
        if event is not None and event["event"] == "done":
            self.done[name] = event
        elif event is not None:
            self.errors[name] = _as_error(event)
        elif name not in self.done and name not in self.errors:
            self._stderr[name].seek(0)
            told = self._stderr[name].read().decode(errors="replace")
            self.errors[name] = _sudden_end(name, self.processes[name].returncode, told)

    def stop(self) -> None:
        """No process outlives the run. One that has to be ended came to no end of its own."""
        for name, process in self.processes.items():
            if process.returncode is None:
                process.kill()
                if name not in self.done and name not in self.errors:
                    self.errors[name] = DeadlineExceeded(
                        f"{name}: did not come to its end within {self.aftermath:g} s after {self._names[0]} did"
                    )
        for process in self.processes.values():
            process.wait()
        for reader in self._readers:
            reader.join(timeout=5)
        for process in self.processes.values():
            process.close()


def _as_error(event: Mapping[str, Any]) -> BaseException:
    """A process's error as one of ours."""
    if event["error"] == "PeerFailed":
        return PeerFailed(event["party"], Reason(event["code"]))
    kind = getattr(errors, event["error"], None)
    if isinstance(kind, type) and issubclass(kind, HedgerowError):
        return kind(event["message"])
    return HedgerowError(f"{event['error']}: {event['message']}")


def _sudden_end(name: str, code: int | None, told: str) -> BaseException:
    if code is not None and code < 0:
        return ProcessEnded(f"{name}: the process was killed by {signal.Signals(-code).name}")
    last = told.strip().splitlines()[-1:]
    return ProcessEnded(f"{name}: the process ended with exit code {code}: {''.join(last) or 'no message'}")
