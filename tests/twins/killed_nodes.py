"""Node processes that are killed with SIGKILL wherever they are, and started again until the run is over.

    nodes = Nodes(homes, folder)
    n_killed = nodes.play(proposal, [Death("shop", step=40), Death("bank", before="run.json"), Death("shop", after=1)])
    nodes.acts                              # what they all did to the world outside, in the order of time

Each process is a fork of one that has everything loaded and compiled (`warm_nodes.py`), and runs `hedgerow resume` as a
person would type it: real processes, real mutual TLS, real files. Every process writes down what it does to the world
outside: frames that it sends and receives, files that it puts on the disk, renames and removes, transactions on its
budget. One that is to die kills itself right before one of these steps, so every gap between two of them is a place to
die in; or it is killed by the clock.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hedgerow.cli
from hedgerow.node import desk
from hedgerow.node.home import Home
from hedgerow.node.proposal import Proposal
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.transport.frames import peek
from hedgerow.transport.grpc import GrpcEndpoint

GRACE = 2.0
"""Seconds that a peer may be out of reach; a minute in real life, which a test has not."""
WAIT = 20.0
MOST_STARTS = 10
"""Of one party in one run, beyond all deaths: a run that needs more does not get anywhere."""
_SHORT = 256  # frames up to this many bytes are written down as they are


class Death(NamedTuple):
    """Who dies: before which of its steps, by number (from 1) or by how its name ends, or after how many seconds."""

    party: str
    step: int | None = None
    before: str | None = None
    after: float | None = None


class Act(NamedTuple):
    """A step of a process: when, whose, what; of a frame its receiver, name and digest, and itself if it is short."""

    at: float
    party: str
    what: str
    name: str
    to: str = ""
    digest: str = ""
    frame: str = ""


class Nodes:
    """Processes of all parties, one each at a time."""

    def __init__(self, homes: Mapping[str, Home], folder: Path) -> None:
        self.homes, self._folder = homes, folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["twins.warm_nodes"])
        self._told: list[str] = []
        self.n_killed = dict.fromkeys(homes, 0)
        self._diary = folder / "diary.jsonl"
        self._diary.touch()

    @property
    def acts(self) -> list[Act]:
        """Everything that was done."""
        return sorted(Act(**json.loads(line)) for line in self._diary.read_text().splitlines())

    def play(self, proposal: Proposal, deaths: Sequence[Death] = ()) -> int:
        """Everybody's command, again and again as by a service manager, until all have come to the end.

        Each start of a party has the next of its deaths before it, until that has happened. Whoever is done already is
        called again when another one fails, as people call each other. How many were killed.
        """
        left = {name: [death for death in deaths if death.party == name] for name in self.homes}
        starts, running, waiting, n_killed = dict.fromkeys(self.homes, 0), {}, set(self.homes), 0
        try:
            while waiting or running:
                for name in sorted(waiting):
                    death = left[name][0] if left[name] else Death(name)
                    starts[name] += 1
                    assert starts[name] <= MOST_STARTS + len(deaths), "\n".join(self._told[-8:])
                    running[name] = self._start(name, proposal, death)
                waiting = set()
                time.sleep(0.01)
                ended = {name: process for name, process in running.items() if process.is_over()}
                for name, process in ended.items():
                    del running[name]
                    code = process.process.exitcode
                    self._told.append(f"{name} {code} {process.words()}")
                    if code == -signal.SIGKILL:
                        n_killed += 1
                        self.n_killed[name] += 1
                        left[name].pop(0)
                    if code != 0 and "is over; its result" not in process.words():
                        waiting.add(name)
                if waiting:  # also those that had come to the end
                    waiting = set(self.homes) - set(running)
        finally:
            for process in running.values():
                process.process.kill()
                process.process.join()
        return n_killed

    def _start(self, name: str, proposal: Proposal, death: Death) -> _Started:
        words = ["resume", proposal.hash, "--home", str(self.homes[name].path), "--wait", str(WAIT), "--json"]
        out = self._folder / f"{name}.out"
        process = self._context.Process(target=_command, args=(words, str(out), str(self._diary), death), daemon=True)
        process.start()
        return _Started(process, out, death.after)


class _Started:
    """A process, and the moment at which it is killed."""

    def __init__(self, process: Any, out: Path, after: float | None) -> None:
        self.process, self._out = process, out
        self._until = None if after is None else time.monotonic() + after

    def is_over(self) -> bool:
        """Whether it has ended; kills it if its time has come."""
        if self._until is not None and time.monotonic() >= self._until:
            self.process.kill()
        return self.process.exitcode is not None

    def words(self) -> str:
        """The last that it said."""
        return self._out.read_text()[-500:] if self._out.exists() else ""


# --- in the forked process -------------------------------------------------------------------------------------------


def _command(words: list[str], out: str, diary: str, death: Death) -> None:
    """`hedgerow` with these words."""
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ["HEDGEROW_NUM_THREADS"] = "1"
    desk.GRACE_SECONDS = GRACE
    _write_diary(diary, death)
    sys.argv = ["hedgerow", *words]
    hedgerow.cli.main()


def _write_diary(diary: str, death: Death) -> None:
    """Write down what this process does to the world outside; before its last step it is gone."""
    file, count = os.open(diary, os.O_WRONLY | os.O_APPEND), [0]

    def watched(owner: Any, what: str, about: Callable[..., dict[str, str]]) -> None:
        function = getattr(owner, what)

        def step(*args: Any, **named: Any) -> Any:
            count[0] += 1
            act = Act(time.monotonic(), death.party, what, **about(*args))
            if count[0] == death.step or (death.before is not None and act.name.endswith(death.before)):
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(file, json.dumps(act._asdict()).encode() + b"\n")
            return function(*args, **named)

        setattr(owner, what, step)

    def of_frame(_endpoint: Any, to: str, frame: bytes) -> dict[str, str]:
        whole = frame.hex() if len(frame) <= _SHORT else ""
        return {"name": peek(frame)[0], "to": to, "digest": hashlib.sha256(frame).hexdigest(), "frame": whole}

    for what in ("fsync", "unlink", "mkdir", "rmdir"):
        watched(os, what, lambda place, *_: {"name": str(place)})
    watched(os, "replace", lambda _, place: {"name": str(place)})
    watched(GrpcEndpoint, "send", of_frame)
    watched(GrpcEndpoint, "recv", lambda _, sender, *__: {"name": sender})
    watched(GrpcEndpoint, "close", lambda _: {"name": ""})
    watched(BudgetFile, "transaction", lambda _: {"name": "budget"})
