"""The process that parties are forked from: tied to the life of its parent, away from the parent's working directory.

    python -E -P .../hedgerow/runtime/party_start.py PARENT_PID

Importing numpy and numba and loading compiled kernels takes longer than most runs. This process does that once, for all
parties of all runs that one thread of its parent starts. It never reads a key or a row, and has one thread when it
forks. What the parent asks for comes as JSON lines on a socket, its standard input, and each line is answered by one:

    <- {"prepare": {"protocol": "...", "job": {...}}}     load or compile what all parties of a run need
    <- {"fork": {"name": "shop", "rows": true, ...}}      and the party's files: stdin, stdout, stderr, rows, transcript
    -> {"pid": 4711}
    <- {"wait": 4711}                                     once its output has ended
    -> {"code": 0}

Two things happen before anything else is imported. The process asks the kernel to end it with its parent; and it
switches off core dumps, which would hold keys and rows of the parties. Then it loads the very package that this file
belongs to, wherever else one may be installed. A forked party asks to be ended with this process, and watches its own
standard input, which ends when the parent does; so it never runs on alone.

-P keeps the working directory and this folder off the import path, so a file that somebody left there cannot pass for a
module of the standard library. -E makes Python ignore PYTHONPATH, which may hold relative folders; the absolute ones
that the parent lets through come last, where they can add packages but replace none.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

IDLE_SECONDS = 300.0  # with no party alive and nothing asked for, the memory is given back

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_MOST_FILES = 5


class Orders:
    """What the parent says, line by line on standard input. When the parent is gone, so is this process."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, key: str) -> Any:
        """The next thing it says, which must be this."""
        return json.loads(self._lines.get())[key]

    def _read(self) -> None:
        # Not sys.stdin: a daemon thread that waits inside it holds its lock when the interpreter wants to end.
        begun: list[bytes] = []
        while chunk := os.read(0, 1 << 16):
            first, *others = chunk.split(b"\n")
            begun.append(first)
            for line in others:
                self._lines.put(b"".join(begun))
                begun = [line]
        os._exit(1)


def end_with(parent: int, name: str | None = None) -> None:
    """Let the kernel end this process together with its parent, where it can; end now if the parent is gone already.

    A `name` is what `ps` and `top` show.
    """
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if name is not None:
            prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)


def leave_no_core_dump() -> None:
    """A crash must not write keys and rows to a file."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def load_this_package() -> None:
    """Make `import hedgerow` mean the package of this file."""
    package = Path(__file__).resolve().parents[1]
    spec = importlib.util.spec_from_file_location(
        "hedgerow", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no package in {package}")
    sys.modules["hedgerow"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def next_request(connection: socket.socket, seconds: float | None) -> tuple[dict[str, Any], list[int]] | None:
    """What the parent asks for, with the open files that come with it; None if it is gone, or silent for this long."""
    connection.settimeout(seconds)
    line, files = b"", list[int]()
    while not line.endswith(b"\n"):
        try:
            chunk, handed, _, _ = socket.recv_fds(connection, 1 << 16, _MOST_FILES)
        except TimeoutError:
            return None
        if not chunk:
            return None
        line, files = line + chunk, files + handed
    return json.loads(line), files


def serve(connection: socket.socket) -> int:
    """Prepare and fork until the parent is gone; in a forked party, play its role. The exit code."""
    from hedgerow.runtime import party_process

    alive = 0
    while (request := next_request(connection, None if alive else IDLE_SECONDS)) is not None:
        (asked, files), answer = request, {}
        if "prepare" in asked:
            party_process.prepare(**asked["prepare"])
            gc.freeze()  # what is there now is shared with the parties, unless a collection writes to it
        elif "fork" in asked:
            _wait_for_threads()
            me, pid = os.getpid(), os.fork()
            if pid == 0:
                connection.detach()  # the socket is not the party's own, and its descriptor becomes another file
                return _party(me, files, **asked["fork"])
            for file in files:
                os.close(file)
            alive += 1
            answer = {"pid": pid}
        else:
            _, status = os.waitpid(asked["wait"], 0)
            alive -= 1
            answer = {"code": os.waitstatus_to_exitcode(status)}
        connection.sendall(json.dumps(answer).encode() + b"\n")
    return 0


def _wait_for_threads() -> None:
    """A joined thread may still be on its way out of the C library, holding a lock that a fork would copy."""
    threads, until = Path("/proc/self/task"), time.monotonic() + 1.0
    while threads.is_dir() and len(list(threads.iterdir())) > 1 and time.monotonic() < until:
        time.sleep(0.001)


def _party(parent: int, files: list[int], *, name: str, rows: bool, transcript: bool) -> int:
    """Play one party's role with these files; 0 if it came to its end."""
    from hedgerow.runtime.party_process import play

    end_with(parent, name)
    for descriptor, file in enumerate(files[:3]):
        os.dup2(file, descriptor)
        os.close(file)
    others = iter(files[3:])
    code = play(Orders(), next(others) if rows else None, next(others) if transcript else None)
    if code == 0:
        os._exit(0)  # all is said and closed; taking the interpreter apart would take longer than some roles
    return code


def main(parent: int) -> int:
    """Serve the parent to its end."""
    end_with(parent)
    leave_no_core_dump()
    sys.path += [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    load_this_package()
    return serve(socket.socket(fileno=0))


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))
