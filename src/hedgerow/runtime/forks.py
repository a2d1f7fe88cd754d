"""The process that parties are forked from, and the parties' processes, as the program that runs them sees them.

Each thread that runs federations in processes has one of its own: the kernel takes the end of the thread that started a
process for the end of its parent. It stays for the next run, so that a second run starts at once, and ends with the
thread, or after some minutes without work. `hedgerow.runtime.party_start` is what it does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from hedgerow.errors import DeadlineExceeded, ProcessEnded

_START = Path(__file__).with_name("party_start.py")
_mine = threading.local()


def forks_for(protocol: str, job: Mapping[str, Any], seconds: float) -> Forks:
    """The process that this thread forks parties from, with everything loaded that a run of this job needs."""
    forks = _current()
    try:
        forks.prepare(protocol, job, seconds)
    except ProcessEnded:  # it had nothing to do for long, or somebody ended it
        forks = _current(anew=True)
        forks.prepare(protocol, job, seconds)
    return forks


def begin_preparing(jobs: Iterable[tuple[str, Mapping[str, Any]]], seconds: float) -> threading.Thread:
    """Load, or compile, what this thread's runs of these jobs will need, beside what it does until it joins."""
    forks, listed = _current(), list(jobs)

    def prepare() -> None:
        with contextlib.suppress(ProcessEnded, DeadlineExceeded):  # the run itself will meet it, and say so
            for protocol, job in listed:
                forks.prepare(protocol, job, seconds)

    thread = threading.Thread(target=prepare, daemon=True)
    thread.start()
    return thread


def _current(*, anew: bool = False) -> Forks:
    environment = _environment()
    forks: Forks | None = None if anew else getattr(_mine, "forks", None)
    if forks is None or not forks.fits(environment):
        _mine.forks = forks = Forks(environment)
    return forks


class Forks:
    """A process to fork from: a request at a time, each of which is answered."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._owner, self._environment = os.getpid(), environment
        self._socket, theirs = socket.socketpair()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, with arguments that we made
                [
                    *(sys.executable, "-E", "-P", *(["-B"] if sys.dont_write_bytecode else [])),
                    *(str(_START), str(os.getpid())),
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                cwd="/",
                env=environment,
            )
        self._answers = self._socket.makefile("rb")
        self._turn = threading.Lock()
        weakref.finalize(self, _end, self._owner, self._process, self._socket, self._answers, self._stderr)

    def fits(self, environment: dict[str, str]) -> bool:
        """Whether it is ours, and not that of a process we were forked from, and lives in this environment."""
        return self._owner == os.getpid() and self._environment == environment

    def prepare(self, protocol: str, job: Mapping[str, Any], seconds: float) -> None:
        """Load, or compile, what all parties of a run need; DeadlineExceeded if it takes longer."""
        self._ask({"prepare": {"protocol": protocol, "job": job}}, seconds=seconds)

    def fork(self, name: str, stderr: int, rows: int | None, transcript: int | None) -> PartyProcess:
        """A process for one party, which gets these open files and no others."""
        (their_input, our_output), (our_input, their_output) = os.pipe(), os.pipe()
        files = [their_input, their_output, stderr, *(file for file in (rows, transcript) if file is not None)]
        about = {"name": name, "rows": rows is not None, "transcript": transcript is not None}
        try:
            pid = self._ask({"fork": about}, files)["pid"]
        except BaseException:
            os.close(our_output)
            os.close(our_input)
            raise
        finally:
            os.close(their_input)
            os.close(their_output)
        return PartyProcess(self, pid, os.fdopen(our_output, "w"), os.fdopen(our_input))

    def wait(self, pid: int) -> int:
        """How a party's process ended, as soon as it has; if this process has ended, so has that."""
        try:
            return int(self._ask({"wait": pid})["code"])
        except ProcessEnded:
            return self._process.wait()

    def _ask(self, what: dict[str, Any], files: list[int] | None = None, *, seconds: float | None = None) -> Any:
        with self._turn:
            self._socket.settimeout(seconds)
            line = json.dumps(what).encode() + b"\n"
            try:
                sent = socket.send_fds(self._socket, [line], files) if files else 0
                self._socket.sendall(line[sent:])
                answer = self._answers.readline()
            except TimeoutError:
                self._process.kill()  # an answer that comes later would be taken for another one's
                raise DeadlineExceeded(f"the parties' processes did not answer in {seconds:g} s") from None
            except OSError:
                answer = b""
            except BaseException:  # an interrupt from the keyboard, mostly
                self._process.kill()  # as above
                raise
        if not answer:
            raise ProcessEnded(self._last_words())
        return json.loads(answer)

    def _last_words(self) -> str:
        code = self._process.wait()
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        return f"the process that parties are forked from ended with exit code {code}: {''.join(last) or 'no message'}"


class PartyProcess:
    """The process of one party: what it is told, what it tells, how it ended."""

    def __init__(self, forks: Forks, pid: int, stdin: IO[str], stdout: IO[str]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        """As that of `subprocess.Popen`: negative if a signal ended it, None as long as nobody has waited for it."""
        self._forks = forks
        self._waiting = threading.Lock()

    def wait(self) -> int:
        """How it ended, once it has."""
        with self._waiting:
            if self.returncode is None:
                self.returncode = self._forks.wait(self.pid)
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing if it has ended; until it has been waited for, no other process has its number."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close both pipes."""
        with contextlib.suppress(BrokenPipeError):  # something that it was told has not been read
            self.stdin.close()
        self.stdout.close()


def _end(
    owner: int, process: subprocess.Popen[bytes], connection: socket.socket, answers: IO[bytes], stderr: IO[bytes]
) -> None:
    """End a process to fork from, with all its parties; in a fork of the owner, leave it alone."""
    if owner == os.getpid():
        process.kill()
        process.wait()
    for each in (answers, connection, stderr):
        each.close()


def _environment() -> dict[str, str]:
    """Ours, but for folders of modules that are not named in full, or that are the working directory."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    named_in_full = [entry for entry in entries if Path(entry).is_absolute() and not _is_here(Path(entry))]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(named_in_full)}


def _is_here(folder: Path) -> bool:
    try:
        return folder.samefile(Path.cwd())
    except OSError:
        return False
