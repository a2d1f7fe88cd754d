"""A federation as processes of this machine: started, connected over mutual TLS on loopback, watched to their end.

Each process gets a folder that holds its own key and rows and nothing of the others'. What the user reads in the end is
the root cause: the party that failed first, not those that failed because of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hedgerow import errors
from hedgerow.budgets import Budgets, written
from hedgerow.errors import DeadlineExceeded, HedgerowError, PeerFailed, ProcessEnded
from hedgerow.ledger import Ledger
from hedgerow.local_party import LEDGER, RESULT, TRANSCRIPT, write_folder
from hedgerow.party import LOGGER, named, root_cause
from hedgerow.protocols.protocol import PartyData, Protocol
from hedgerow.records import Records
from hedgerow.transport.emulate import Link
from hedgerow.transport.meter import Meter
from hedgerow.transport.mtls import Identity

START_SECONDS = 180.0  # importing and compiling on a busy machine
GRACE_SECONDS = 5.0  # how long a local process may be out of reach
AFTERMATH_SECONDS = 15.0  # how long the others may take to end once the first result or failure is there

Outcome = tuple[dict[str, Any], dict[str, Ledger], dict[str, Meter], float]
"""Each party's result, ledger and traffic; seconds from the first message to the last result."""


def run_in_processes(
    protocol: Protocol,
    job: Any,
    data: Mapping[str, PartyData],
    link: Link | None,
    deadline: float,
    on_progress: Callable[[int, int], None] | None,
    *,
    after_start: Callable[[dict[str, subprocess.Popen[str]]], None] | None = None,
    records: Records | None = None,
    budgets: Budgets | None = None,
) -> Outcome:
    """Run all roles of a job as processes; `after_start` gets them once training has begun (tests kill one).

    `records` gets the transcript of everybody who came to its end.
    """
    names = protocol.parties(job)
    with tempfile.TemporaryDirectory(prefix="hedgerow-") as place:
        folders = _write_folders(Path(place), protocol, job, data, link, deadline, records, budgets or {})
        fleet = _Fleet(folders, on_progress)
        try:
            fleet.start(protocol.links(job))
            if after_start is not None:
                after_start(fleet.processes)
            fleet.wait()
        finally:
            fleet.stop()
        if names[0] not in fleet.done:
            party, error = root_cause({name: fleet.errors[name] for name in names if name in fleet.errors})
            raise named(party, error, names)
        if records is not None:
            for name in fleet.done:
                records.take(records.path(name) or folders[name] / TRANSCRIPT)
        return _read_results(protocol, folders, fleet)


def _write_folders(
    place: Path,
    protocol: Protocol,
    job: Any,
    data: Mapping[str, PartyData],
    link: Link | None,
    deadline: float,
    records: Records | None,
    budgets: Budgets,
) -> dict[str, Path]:
    names, links = protocol.parties(job), protocol.links(job)
    identities = {name: Identity.create(name, days=1) for name in names}
    folders = {}
    for name in names:
        peers = [b if a == name else a for a, b in links if name in (a, b)]
        about = {
            "name": name,
            "protocol": protocol.name,
            "job": job.to_dict(),
            "run_id": job.run_id,
            "peers": peers,
            "listens": any(a == name for a, _ in links),
            "dials": [a for a, b in links if b == name],
            "certificates": {n: i.certificate.pem.decode() for n, i in identities.items()},
            "deadline": deadline,
            "grace": GRACE_SECONDS,
            "link": None if link is None else {"round_trip": link.round_trip, "bandwidth": link.bandwidth},
        }
        folders[name] = place / name
        if name in budgets:
            about["budget"] = written(budgets[name])
        if records is not None:
            about["record"] = str((records.path(name) or folders[name] / TRANSCRIPT).resolve())
        write_folder(folders[name], about, identities[name], data.get(name))
    return folders


class _Fleet:
    """The processes, and what they have told."""

    def __init__(self, folders: Mapping[str, Path], on_progress: Callable[[int, int], None] | None) -> None:
        self._folders = folders
        self._on_progress = on_progress
        self._told: queue.Queue[tuple[str, dict[str, Any] | None]] = queue.Queue()
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.done: dict[str, dict[str, Any]] = {}
        self.errors: dict[str, BaseException] = {}
        self._readers: list[threading.Thread] = []

    # --- start -------------------------------------------------------------------------------------------------------

    def start(self, links: tuple[tuple[str, str], ...]) -> None:
        """Start all, connect them, and let them go when the last one is ready."""
        for name, folder in self._folders.items():
            self._spawn(name, folder)
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

    def _spawn(self, name: str, folder: Path) -> None:
        with (folder / "stderr.txt").open("w") as stderr:
            process = subprocess.Popen(  # noqa: S603 - our own module, with a path that we made
                [sys.executable, "-m", "hedgerow.local_party", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        self.processes[name] = process
        reader = threading.Thread(target=self._listen, args=(name, process), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101 - it was opened with a pipe
        for line in process.stdout:
            self._told.put((name, json.loads(line)))
        process.wait()
        self._told.put((name, None))

    def _say(self, name: str, what: dict[str, Any]) -> None:
        stdin = self.processes[name].stdin
        assert stdin is not None  # noqa: S101 - it was opened with a pipe
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
                name, event = self._next(first_end and first_end + AFTERMATH_SECONDS)
            except DeadlineExceeded:
                break
            if event is not None and event["event"] == "progress":
                if self._on_progress is not None and name == next(iter(self._folders)):
                    self._on_progress(event["done"], event["total"])
                continue
            if event is None:
                ended.add(name)
            self._note_end(name, event)
            if name == next(iter(self._folders)) and first_end is None:
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
        if event is not None and event["event"] == "done":
            self.done[name] = event
        elif event is not None:
            self.errors[name] = _as_error(event)
        elif name not in self.done and name not in self.errors:
            self.errors[name] = _sudden_end(name, self.processes[name].returncode, self._folders[name])

    def stop(self) -> None:
        """No process outlives the run."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
        for process in self.processes.values():
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        for reader in self._readers:
            reader.join(timeout=5)


def _as_error(event: Mapping[str, Any]) -> BaseException:
    """A process's error as one of ours."""
    if event["error"] == "PeerFailed":
        return PeerFailed(event["party"] or "a peer", event["message"])
    kind = getattr(errors, event["error"], None)
    if isinstance(kind, type) and issubclass(kind, HedgerowError):
        return kind(event["message"])
    return HedgerowError(f"{event['error']}: {event['message']}")


def _sudden_end(name: str, code: int | None, folder: Path) -> BaseException:
    if code is not None and code < 0:
        return ProcessEnded(f"{name}: the process was killed by {signal.Signals(-code).name}")
    last = (folder / "stderr.txt").read_text().strip().splitlines()[-1:]
    return ProcessEnded(f"{name}: the process ended with exit code {code}: {''.join(last) or 'no message'}")


def _read_results(protocol: Protocol, folders: Mapping[str, Path], fleet: _Fleet) -> Outcome:
    results, ledgers, meters = {}, {}, {}
    for name, folder in folders.items():
        if name not in fleet.done:
            continue
        event = fleet.done[name]
        results[name] = protocol.result_from_dict(json.loads((folder / RESULT).read_text()))
        ledgers[name] = Ledger.from_json_lines(name, (folder / LEDGER).read_text())
        meters[name] = Meter.from_dict(event["traffic"])
    started = min(event["started"] for event in fleet.done.values())
    ended = max(event["ended"] for event in fleet.done.values())
    return results, ledgers, meters, ended - started
