"""How a party's process begins: tied to the life of its parent, away from the parent's working directory.

    python -E -P .../hedgerow/local_start.py NAME PARENT_PID ROWS_FD

Three things happen before anything else is imported. The process asks the kernel to end it with its parent, and watches
its standard input, which ends when the parent does; so it never runs on alone. It switches off core dumps, which would
hold keys and rows. And it loads the very package that this file belongs to, wherever else one may be installed.

-P keeps the working directory and this folder off the import path, so a file that somebody left there cannot pass for a
module of the standard library. -E makes Python ignore PYTHONPATH, which may hold relative folders; the absolute ones
that the parent lets through come last, where they can add packages but replace none.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1


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


def end_with(parent: int) -> None:
    """Let the kernel end this process together with its parent, where it can; end now if the parent is gone already."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)


def leave_no_core_dump() -> None:
    """A crash must not write keys and rows to a file."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def load_this_package() -> None:
    """Make `import hedgerow` mean the package of this file."""
    package = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        "hedgerow", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no package in {package}")
    sys.modules["hedgerow"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def main(parent: int, rows: int | None) -> int:
    """Play one party's role; 0 if it came to its end."""
    end_with(parent)
    orders = Orders()
    leave_no_core_dump()
    sys.path += [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    load_this_package()
    from hedgerow.local_party import play

    return play(orders, rows)


if __name__ == "__main__":
    _, _, parent_pid, rows_fd = sys.argv
    raise SystemExit(main(int(parent_pid), int(rows_fd) if rows_fd != "-" else None))
