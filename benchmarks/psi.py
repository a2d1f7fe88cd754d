"""Private record linkage: how long it takes to find the common ids of two or three parties, and how much memory.

    python benchmarks/psi.py                                     2 and 3 parties with 1,000,000 ids each
    python benchmarks/psi.py --ids 20000 --parties 2 --threads 1
    python benchmarks/psi.py --json benchmarks/results/psi.json

All parties run in this one process, one after the other (`align_locally`), so the time shown is that of all of them.
Where each party has a machine like this one, they work at the same time: "each party" is the time divided by their
number. Networks are left out; the bytes that each party sends are shown. Half of the ids are held by all.
The largest memory is that of the process, with the ids of all parties as Python texts.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from hedgerow.crypto.identifiers import IdRule, prepare_ids
from hedgerow.crypto.psi import BlindingKey, align_locally

SAMPLE = 8_000  # points to measure the two operations with


@dataclass(frozen=True)
class Run:
    """One linkage of all parties' ids."""

    parties: int
    ids_each: int
    threads: int
    in_common: int
    seconds: float
    cpu_seconds: float
    megabytes_sent_by_each: float
    peak_megabytes: float

    @property
    def seconds_each(self) -> float:
        """The time of one party, if all have a machine like this one."""
        return self.seconds / self.parties


def columns(n_parties: int, n_ids: int) -> dict[str, list[str]]:
    """Half of the ids are common to all, the others are each party's own; in random order."""
    common = n_ids // 2
    ids = {}
    for party in range(n_parties):
        order = np.random.default_rng(party).permutation(n_ids)
        own = np.where(order < common, order, order + party * n_ids)
        ids[f"party_{party}"] = [f"{number:012}" for number in own.tolist()]
    return ids


def link(n_parties: int, n_ids: int, threads: int) -> Run:
    ids = columns(n_parties, n_ids)
    sent = dict.fromkeys(ids, 0)

    def count(sender: str, receiver: str, what: np.ndarray) -> None:
        if sender != receiver:
            sent[sender] += what.nbytes

    start, cpu = time.perf_counter(), time.process_time()
    rows = align_locally(ids, n_threads=threads, on_send=count)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    found = [[ids[party][row] for row in rows[party]] for party in ids]
    if any(one != found[0] for one in found) or len(set(found[0])) != n_ids // 2:
        sys.exit("the parties did not find the ids that they have in common")
    return Run(
        n_parties, n_ids, threads, len(found[0]), seconds, cpu_seconds, max(sent.values()) / 1e6, peak_megabytes()
    )


def peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)  # bytes there, kilobytes elsewhere


def rates(threads: int) -> dict[str, float]:
    """Points per second of the two operations."""
    digests = prepare_ids(map(str, range(SAMPLE)), IdRule(), context="rates", party="one").digests
    key = BlindingKey.generate()
    start = time.perf_counter()
    points = key.blind(digests, n_threads=threads)
    middle = time.perf_counter()
    key.reblind(points, sender="one", n_threads=threads)
    end = time.perf_counter()
    return {"hash and blind": SAMPLE / (middle - start), "blind again": SAMPLE / (end - middle)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=1_000_000, help="ids of each party")
    parser.add_argument("--parties", type=int, nargs="*", default=[2, 3])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the results to this file, after each run")
    chosen = parser.parse_args()

    per_second = {threads: rates(threads) for threads in sorted({1, chosen.threads})}
    for threads, found in per_second.items():
        words = ", ".join(f"{name} {rate:,.0f}" for name, rate in found.items())
        print(f"points per second with {threads} threads: {words}", flush=True)
    results = {
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "cryptography": version("cryptography"),
        "points_per_second": per_second,
        "runs": [],
    }
    for n_parties in chosen.parties:
        run = link(n_parties, chosen.ids, chosen.threads)
        print(
            f"{n_parties} parties, {run.ids_each:,} ids each, {run.threads} threads: {run.seconds:.1f} s for all, "
            f"{run.seconds_each:.1f} s for each party, {run.cpu_seconds:.1f} s of CPU, "
            f"{run.megabytes_sent_by_each:.0f} MB sent by each, at most {run.peak_megabytes:.0f} MB in memory, "
            f"{run.in_common:,} ids in common",
            flush=True,
        )
        results["runs"].append(asdict(run) | {"seconds_each": run.seconds_each})
        if chosen.json:
            chosen.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
