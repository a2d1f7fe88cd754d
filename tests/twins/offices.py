"""Offices of organisations: commands that people type there, as processes of their own.

bank = Office(tmp_path / "bank")
bank.say("init", "bank", "--data", "customers.parquet")
running = bank.start("run", "--json")                     # goes on in the background
result = json.loads(bank.finish(running))
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_IMPATIENT = (
    "from hedgerow.node import desk; desk.GRACE_SECONDS = {grace}; from hedgerow.cli import main; main()"  # as __main__
)


def typed_in(folder: Path, words: Sequence[str], **environment: str) -> subprocess.Popen[str]:
    """A command as it is printed somewhere, typed in a folder; it goes on in the background."""
    assert words[0] == "hedgerow", words
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEDGEROW_")}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-m", "hedgerow.cli", *words[1:]]
    return subprocess.Popen(command, cwd=folder, env={**kept, **environment}, text=True, **pipes)


def code_of(waiting: subprocess.Popen[str]) -> str:
    """The code that the listening side of a pairing shows."""
    assert waiting.stderr is not None
    for line in waiting.stderr:
        if found := re.search(r"Code: (\S+)", line):
            return found[1]
    raise AssertionError(waiting.communicate())


class Office:
    """The working directory of one organisation, its home, which is in there if no other is given, and its commands.

    `around` is what commands are started with, as `ip netns exec NAME`; `grace` how many seconds a peer may be out of
    reach, where a test has no minute to wait.
    """

    def __init__(
        self, folder: Path, home: Path | None = None, around: Sequence[str] = (), grace: float | None = None
    ) -> None:
        self.folder, self.home = folder, home or folder / "home"
        self._around = tuple(around)
        self._program = ["-m", "hedgerow.cli"] if grace is None else ["-c", _IMPATIENT.format(grace=grace)]
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("HEDGEROW_")}
        folder.mkdir(exist_ok=True)

    def start(self, *words: Any) -> subprocess.Popen[str]:
        """A command that goes on in the background."""
        command = [*self._around, sys.executable, *self._program, *map(str, words), "--home", str(self.home)]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(command, cwd=self.folder, env=self._environment, text=True, **pipes)

    def say(self, *words: Any, told: str = "", code: int = 0) -> str:
        """A command to its end; what it printed."""
        return self.finish(self.start(*words), told=told, code=code)

    @staticmethod
    def finish(process: subprocess.Popen[str], told: str = "", code: int = 0) -> str:
        """The end of a command that was started."""
        try:
            out, problems = process.communicate(told, timeout=170)
        finally:
            process.kill()
        assert process.returncode == code, out + problems
        return out


def pair(listening: Office, dialling: Office, address: str) -> None:
    """By the code that the one shows and the other types."""
    waiting = listening.start("pair")
    dialling.say("pair", address, told=f"{code_of(waiting)}\n")
    Office.finish(waiting)


def agree(proposing: Office, others: Sequence[Office], job: str, *, inspect: bool = False) -> dict[str, Any]:
    """One proposes, the others accept, having read it first if they `inspect` it; what the proposer is told."""
    (proposing.folder / "job.toml").write_text(job)
    waiting = proposing.start("propose", "job.toml", "--json")
    if inspect:
        for office in others:
            assert "What would leave your house" in office.say("inspect", "--wait", "100")
    accepting = [office.start("accept", "--wait", "100") for office in others]
    for process in accepting:
        Office.finish(process, told="y\n")
    result: dict[str, Any] = json.loads(Office.finish(waiting))
    assert result["state"] == "agreed"
    return result


def run_all(offices: Mapping[str, Office], verb: str, *words: str, codes: Mapping[str, int] | None = None) -> Any:
    """The same command at all of them at once; what each says, as JSON."""
    running = {name: office.start(verb, *words, "--json") for name, office in offices.items()}
    return ended(running, codes)


def ended(running: Mapping[str, subprocess.Popen[str]], codes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """What commands say that were started with --json, in the end."""
    return {name: json.loads(Office.finish(p, code=(codes or {}).get(name, 0))) for name, p in running.items()}


def wait_for_trees(folder: Path, n_trees: int, seconds: float = 150.0) -> None:
    """Until a party that takes part in a run has kept this many trees."""
    until = time.monotonic() + seconds
    while not any(int(path.stem.rpartition("-")[2]) >= n_trees for path in folder.glob("checkpoints/trees-*.kept")):
        assert time.monotonic() < until, f"no {n_trees} trees in {folder}"
        time.sleep(0.02)
