"""Private record linkage: how long it takes to find the common ids of two or three parties, and how much memory.

    python benchmarks/psi.py                                     2 and 3 parties with 1,000,000 ids each, over gRPC
    python benchmarks/psi.py --ids 20000 --parties 2 --transport memory
    python benchmarks/psi.py --json benchmarks/results/psi.json

With --transport grpc every party is a process, and they talk over mutual TLS on this machine: the time is that of the
whole conversation, without starting the processes, and the memory that of the largest process. With memory all parties
are threads that take turns, so the time is the sum over parties. Half of the ids are held by all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from hedgerow.crypto.identifiers import IdRule, prepare_ids
from hedgerow.crypto.psi import BlindingKey
from hedgerow.federation.alignment import align

SAMPLE, REPEATS = 1_000, 15  # points to measure the two operations with, and how often


@dataclass(frozen=True)
class Run:
    """One linkage of all parties' ids."""

    transport: str
    parties: int
    ids_each: int
    threads_each: int
    in_common: int
    seconds: float
    cpu_seconds: float  # of all parties, with starting their processes
    megabytes_sent_by_each: float
    peak_megabytes: float  # of the largest process; in memory, of the only one
    load_before: float  # processes that wanted a core in the minute before


def columns(n_parties: int, n_ids: int) -> dict[str, np.ndarray]:
    """Half of the ids are common to all, the others are each party's own; in random order."""
    common = n_ids // 2
    ids = {}
    for party in range(n_parties):
        order = np.random.default_rng(party).permutation(n_ids)
        own = np.where(order < common, order, order + party * n_ids)
        ids[f"party_{party}"] = np.char.zfill(own.astype("U12"), 12)
    return ids


def link(transport: str, n_parties: int, n_ids: int, threads: int) -> Run:
    ids = columns(n_parties, n_ids)
    who = resource.RUSAGE_CHILDREN if transport == "grpc" else resource.RUSAGE_SELF
    before, load = resource.getrusage(who), os.getloadavg()[0]
    found = align(ids, transport=transport, n_jobs=threads)
    after = resource.getrusage(who)
    lists = [column[found.rows[party]] for party, column in ids.items()]
    if any(not np.array_equal(one, lists[0]) for one in lists) or len(np.unique(lists[0])) != n_ids // 2:
        sys.exit("the parties did not find the ids that they have in common")
    sent = max(meter.total().bytes_sent for meter in found.meters.values())
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes elsewhere
    peak = after.ru_maxrss / unit
    return Run(transport, n_parties, n_ids, threads, found.n_common, found.seconds, cpu, sent / 1e6, peak, load)


def rates(threads: int) -> dict[str, float]:
    """Points per second of the two operations: the best of several short runs, for on a busy machine most are slow."""
    digests = prepare_ids(map(str, range(SAMPLE)), IdRule(), context="rates", party="one").digests
    key = BlindingKey.generate()
    points = key.blind(digests)
    operations = {
        "hash and blind": lambda: key.blind(digests, n_threads=threads),
        "blind again": lambda: key.reblind(points, sender="one", n_threads=threads),
    }
    best = dict.fromkeys(operations, 0.0)
    for name, operation in operations.items():
        for _ in range(REPEATS):
            start = time.perf_counter()
            operation()
            best[name] = max(best[name], SAMPLE / (time.perf_counter() - start))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, nargs="*", default=[1_000_000], help="ids of each party")
    parser.add_argument("--parties", type=int, nargs="*", default=[2, 3])
    parser.add_argument("--threads", type=int, default=1, help="of each party")
    parser.add_argument("--transport", choices=["grpc", "memory"], default="grpc")
    parser.add_argument("--json", type=Path, help="write the results to this file, after each run")
    chosen = parser.parse_args()

    per_second = {threads: rates(threads) for threads in (1, 2)}
    for threads, found in per_second.items():
        words = ", ".join(f"{name} {rate:,.0f}" for name, rate in found.items())
        print(f"points per second with {threads} threads: {words}", flush=True)
    results = {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "cryptography": version("cryptography"),
        "points_per_second": per_second,
        "runs": [],
    }
    for n_ids in chosen.ids:
        for n_parties in chosen.parties:
            run = link(chosen.transport, n_parties, n_ids, chosen.threads)
            print(
                f"{run.transport}, {n_parties} parties, {n_ids:,} ids each, {run.threads_each} threads each: "
                f"{run.seconds:.1f} s, {run.cpu_seconds:.1f} s of CPU, "
                f"{run.megabytes_sent_by_each:.0f} MB sent by each, at most {run.peak_megabytes:.0f} MB in memory, "
                f"{run.in_common:,} ids in common",
                flush=True,
            )
            results["runs"].append(asdict(run))
            if chosen.json:
                chosen.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
