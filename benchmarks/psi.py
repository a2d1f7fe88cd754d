"""Private record linkage: how long it takes to find the common ids of two or three parties, and how much memory.

    python benchmarks/psi.py                                     2 and 3 parties with 1,000,000 ids each, over gRPC
    python benchmarks/psi.py --ids 20000 --parties 2 --transport memory
    python benchmarks/psi.py --actors 1 2                        the same with 1 and with 2 Ray actors of each party
    python benchmarks/psi.py --share --ids 10000000 --actors 1 2 one party's multiplications alone, and what is beside
    python benchmarks/psi.py --json benchmarks/results/psi.json

With --transport grpc every party is a process, and they talk over mutual TLS on this machine: the time is that of the
whole conversation, without starting the processes, and the memory that of the largest process. With memory all parties
are threads that take turns, so the time is the sum over parties. Half of the ids are held by all.

--share measures what one of two parties does, without the other: it digests its ids, blinds them, blinds as many points
again (those it has just made: to the curve they are any points), shuffles that set and compares it with one as large,
half of which it shares. Processor time is that of this process and of its actors; where other programs use the same
cores, it is what to go by, and not the seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.identifiers import IdRule, prepare_ids
from hedgerow.crypto.piles import Gathered
from hedgerow.crypto.psi import (
    BLOCK,
    Blinder,
    BlinderHere,
    BlindingKey,
    Later,
    Points,
    common_places,
    one_ahead,
    secret_number,
    shuffled,
)
from hedgerow.engine.rows_ray.actors import Holder
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.federation.alignment import align
from hedgerow.protocols.services.align.on_ray import RayBlinder, crew_of
from hedgerow.protocols.services.align.roles import scratch

SAMPLE, REPEATS = 1_000, 15  # points to measure the two operations with, and how often


@dataclass(frozen=True)
class Run:
    """One linkage of all parties' ids."""

    transport: str
    parties: int
    ids_each: int
    threads_each: int
    actors_each: int  # 0: none, the party multiplies by itself
    in_common: int
    seconds: float
    cpu_seconds: float  # of all parties, with starting their processes; without actors, which are not theirs to count
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


def link(transport: str, n_parties: int, n_ids: int, threads: int, actors: int) -> Run:
    ids = columns(n_parties, n_ids)
    who = resource.RUSAGE_CHILDREN if transport == "grpc" else resource.RUSAGE_SELF
    before, load = resource.getrusage(who), os.getloadavg()[0]
    found = align(ids, transport=transport, n_jobs=threads, backend=RayBackend(actors=actors) if actors else None)
    after = resource.getrusage(who)
    lists = [column[found.rows[party]] for party, column in ids.items()]
    if any(not np.array_equal(one, lists[0]) for one in lists) or len(np.unique(lists[0])) != n_ids // 2:
        sys.exit("the parties did not find the ids that they have in common")
    sent = max(meter.total().bytes_sent for meter in found.meters.values())
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes elsewhere
    peak = after.ru_maxrss / unit
    return Run(transport, n_parties, n_ids, threads, actors, found.n_common, found.seconds, cpu, sent / 1e6, peak, load)


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


# --- one party's share -----------------------------------------------------------------------------------------------


def processor_seconds(_holder: Holder) -> float:
    """Of an actor so far."""
    return time.process_time()


class Share:
    """What one of two parties does, step by step."""

    def __init__(self, n_ids: int, actors: int, threads: int) -> None:
        self._n_ids, self._actors, self._threads = n_ids, actors, threads
        self._count = time.process_time
        self.steps: list[dict[str, object]] = []

    def run(self) -> None:
        """All steps; the set that is compared at the end has half of its points in common with the party's own."""
        with self._step("digest"):
            ids = prepare_ids(np.arange(self._n_ids), IdRule("integer"), context="share", party="one", room=scratch)
        number = secret_number(SecureRandom())
        with contextlib.ExitStack() as there:
            blinder: Blinder = BlinderHere(BlindingKey.from_number(number), self._threads)
            if self._actors:
                crew = there.enter_context(crew_of(RayBackend(actors=self._actors), "one", number))
                crew.each(processor_seconds)  # all is imported
                blinder = RayBlinder(crew, 1)
                self._count = lambda: time.process_time() + sum(crew.each(processor_seconds))
            with self._step("hash and blind"):
                left = self._multiplied(blinder.blind, [ids.digests])
            with self._step("blind again"):
                came = self._multiplied(lambda points: blinder.reblind(points, "other"), left)
            self._count = time.process_time
        with self._step("shuffle"):
            points, _ = shuffled(came, SecureRandom(), scratch)
        other = Gathered(scratch)
        for start in range(0, self._n_ids, BLOCK):
            block = points[start : start + BLOCK].copy()
            if start >= self._n_ids // 2:
                block[:, 1:] = np.frombuffer(os.urandom(block[:, 1:].size), np.uint8).reshape(block[:, 1:].shape)
            other.add(block)
        with self._step("compare"):
            found = common_places({"one": [points], "other": other.taken()}, scratch)
        if not self._n_ids // 2 <= len(found["one"]) <= self._n_ids // 2 + BLOCK:
            sys.exit("the comparison did not find the points that both sets have")

    def _multiplied(self, start: Callable[[Points], Later], sets: list[Points]) -> list[Points]:
        made = Gathered(scratch)
        blocks = (each[k : k + BLOCK] for each in sets for k in range(0, len(each), BLOCK))
        for points in one_ahead(map(start, blocks)):
            made.add(points)
        return made.taken()

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        used, started = self._count(), time.perf_counter()
        yield
        seconds, cpu = time.perf_counter() - started, self._count() - used
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
        how = {"ids": self._n_ids, "actors": self._actors, "threads": self._threads, "load": os.getloadavg()[0]}
        self.steps.append({"step": name, "seconds": seconds, "cpu_seconds": cpu, "peak_megabytes": peak, **how})
        print(
            f"{self._n_ids:,} ids, {self._actors} actors, {name}: {seconds:.1f} s, {cpu:.1f} s of CPU, "
            f"at most {peak:.0f} MB resident so far",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, nargs="*", default=[1_000_000], help="ids of each party")
    parser.add_argument("--parties", type=int, nargs="*", default=[2, 3])
    parser.add_argument("--threads", type=int, default=1, help="of each party")
    parser.add_argument("--actors", type=int, nargs="*", default=[0], help="of each party, on Ray; 0 is without")
    parser.add_argument("--share", action="store_true", help="one party's share of the work, without the other")
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
    for n_ids, actors in itertools.product(chosen.ids, chosen.actors):
        if chosen.share:
            share = Share(n_ids, actors, chosen.threads)
            share.run()
            results["runs"] += share.steps
            if chosen.json:
                chosen.json.write_text(json.dumps(results, indent=2) + "\n")
            continue
        for n_parties in chosen.parties:
            run = link(chosen.transport, n_parties, n_ids, chosen.threads, actors)
            print(
                f"{run.transport}, {n_parties} parties, {n_ids:,} ids each, {run.threads_each} threads and "
                f"{actors} actors each: {run.seconds:.1f} s, {run.cpu_seconds:.1f} s of CPU, "
                f"{run.megabytes_sent_by_each:.0f} MB sent by each, at most {run.peak_megabytes:.0f} MB in memory, "
                f"{run.in_common:,} ids in common",
                flush=True,
            )
            results["runs"].append(asdict(run))
            if chosen.json:
                chosen.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
