"""Does a job fit the memory of the party that is to do it? Asked before anything is sent."""

from __future__ import annotations

import os
from pathlib import Path

from hedgerow.errors import InvalidInput

BYTES_PER_VALUE = 8 + 1 + 3  # the sorted copy while edges are searched (freed later), codes, and codes packed thrice
BYTES_PER_ROW = 40  # labels, scores, gradients, row numbers
HISTOGRAM_LIMIT = 512 * 2**20  # what the engine keeps of histograms at most
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_MEMINFO = Path("/proc/meminfo")


def memory_needed(
    n_rows: int, n_columns: int, max_bins: int, max_depth: int | None, max_leaves: int | None = None
) -> int:
    """Bytes that training takes beside the table itself, roughly and rather too much than too little."""
    nodes = min(1 << min(max_depth or 64, 64), max_leaves or n_rows, n_rows)
    histograms = min(8 * max_bins * n_columns * nodes, HISTOGRAM_LIMIT)
    return n_rows * (n_columns * BYTES_PER_VALUE + BYTES_PER_ROW) + 3 * histograms  # kept, to be sent, on the wire


def memory_available() -> int | None:
    """Bytes that this process may still take, if the system tells."""
    limits = []
    try:
        lines = _MEMINFO.read_text().splitlines()
        limits += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        allowed = _CGROUP_LIMIT.read_text().strip()
        if allowed != "max":
            limits.append(int(allowed))
    except (OSError, ValueError):
        pass
    if not limits and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def check_room(
    party: str, n_bytes: int, what: str, beside: str = "", advice: str = "a smaller max_bins or fewer columns"
) -> None:
    """InvalidInput, naming the party, if something of this size would not fit: before it is allocated."""
    available = memory_available()
    if available is not None and n_bytes > available:
        raise InvalidInput(
            f"{party}: {what} need about {n_bytes / 2**30:.1f} GiB{beside}, but only {available / 2**30:.1f} GiB are "
            f"available here; {advice} take less"
        )


def check_memory(
    party: str, n_rows: int, n_columns: int, max_bins: int, max_depth: int | None, max_leaves: int | None = None
) -> None:
    """InvalidInput, naming the party, if the job would not fit."""
    needed = memory_needed(n_rows, n_columns, max_bins, max_depth, max_leaves)
    what = f"{n_rows:,} rows x {n_columns:,} columns with max_bins={max_bins} and max_depth={max_depth}"
    check_room(party, needed, what, " beside the table", "fewer bins, less depth or fewer columns")
