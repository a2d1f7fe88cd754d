"""How much memory parties take that run as processes of this machine: a look at the kernel's own count, now and then.

with peaks_of_processes() as peaks:
federation.fit(..., transport="grpc")
peaks["shop"]                                         # bytes
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LONGEST_NAME = 15
"""Where the kernel cuts the names of processes."""
_LOOK_SECONDS = 0.01


@contextmanager
def peaks_of_processes() -> Iterator[dict[str, int]]:
    """Party -> peak resident bytes of its process, as far as seen meanwhile. Linux only; elsewhere it stays empty."""
    peaks: dict[str, int] = {}
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(_LOOK_SECONDS):
            # Parties are forked, and named, by a child of this process.
            for process in (each for child in _children(os.getpid()) for each in _children(child)):
                party, peak = _name_and_peak(process)
                peaks[party] = max(peaks.get(party, 0), peak)

    watcher = threading.Thread(target=look, daemon=True, name="hedgerow-peaks")
    watcher.start()
    try:
        yield peaks
    finally:
        is_over.set()
        watcher.join()


def _children(process: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def _name_and_peak(process: int) -> tuple[str, int]:
    with suppress(OSError):
        about = dict(line.partition(":")[::2] for line in Path(f"/proc/{process}/status").read_text().splitlines())
        if "VmHWM" in about:
            return about["Name"].strip(), int(about["VmHWM"].split()[0]) * 1024
    return "", 0
