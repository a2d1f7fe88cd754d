"""Rows on Ray's actors against the same rows on threads of one machine: time, memory of each actor, and the same model.

    python benchmarks/ray_actors.py                          5,000,000 x 28, depth 6, 20 trees, 2 actors and 2 threads
    python benchmarks/ray_actors.py --rows 1000000 --actors 1 2 4 --trees 10

Both read the same Parquet files, which are made first, and are timed from the first tree to the last; `fit` is all of
it, with reading, binning and the start of the actors. Memory is the largest that an actor's process ever had, against
its share of the codes (one byte a value) and the 700 MiB that it may take beside.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hedgerow import BoostedTreesClassifier
from hedgerow.engine.rows_ray.actors import Crew, Holder
from hedgerow.engine.rows_ray.cluster import RayBackend, connected

ROWS_PER_FILE = 500_000
ALLOWED_MIB = 700


class Clock:
    """A callback that knows when trees were grown."""

    def before_training(self, _model: Any) -> None:
        """Everything is read and binned."""
        self.first = time.perf_counter()

    def after_iteration(self, _model: Any, _epoch: int, _log: Any) -> bool:
        """One more."""
        self.last = time.perf_counter()
        return False


def peak_mib(_holder: Holder) -> float:
    """The most memory that the process of an actor ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def looking_at(peaks: list[float], close: Callable[[Crew], None]) -> Callable[[Crew], None]:
    """Look at actors before they end."""

    def look_and_close(crew: Crew) -> None:
        peaks.extend(crew.each(peak_mib))
        close(crew)

    return look_and_close


def write_files(folder: Path, n_rows: int, n_columns: int) -> None:
    """A learnable problem in many files, made some rows at a time."""
    for first in range(0, n_rows, ROWS_PER_FILE):
        rng = np.random.default_rng(first)
        X = rng.normal(size=(min(ROWS_PER_FILE, n_rows - first), n_columns)).astype(np.float32)
        y = X[:, 0] + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) - 1 + rng.normal(size=len(X)) > 0
        columns = {f"c{j}": X[:, j] for j in range(n_columns)} | {"label": y.astype(np.int8)}
        pq.write_table(pa.table(columns), folder / f"part-{first:012}.parquet", row_group_size=100_000)


def run(folder: Path, n_trees: int, depth: int, **how: Any) -> tuple[Any, dict[str, float]]:
    """A fit, and how long it took."""
    clock, start = Clock(), time.perf_counter()
    model = BoostedTreesClassifier(max_iter=n_trees, max_depth=depth, callbacks=[clock], **how).fit(folder, "label")
    return model, {"fit": time.perf_counter() - start, "trees": clock.last - clock.first}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--columns", type=int, default=28)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--actors", type=int, nargs="+", default=[2])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_files(folder, args.rows, args.columns)
        run(folder, 1, args.depth, n_jobs=args.threads)  # compiles
        one, local = run(folder, args.trees, args.depth, n_jobs=args.threads)
        print(json.dumps({"threads": args.threads} | local), flush=True)
        with connected(RayBackend()) as ray:
            for n_actors in args.actors:
                peaks: list[float] = []
                with mock.patch.object(Crew, "close", looking_at(peaks, Crew.close)):
                    model, there = run(folder, args.trees, args.depth, backend=RayBackend(actors=n_actors))
                share = args.rows * args.columns / n_actors / 2**20
                found = {
                    "actors": n_actors,
                    **there,
                    "times threads": there["trees"] / local["trees"],
                    "peak MiB": max(peaks),
                    "allowed MiB": share + ALLOWED_MIB,
                    "same model": model.ensemble_.trees == one.ensemble_.trees,
                    "processors of the cluster": ray.cluster_resources()["CPU"],
                }
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
