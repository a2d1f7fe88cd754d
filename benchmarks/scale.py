"""How far it goes: time and memory against rows, columns, bins, depth, owners and actors; protocols; the cost model.

    make bench-scale                                       every curve (more than an hour on 2 quiet cores)
    python benchmarks/scale.py rows --sizes 1 5 20 50      millions of rows x 28 in Parquet files, out of core
    python benchmarks/scale.py xgboost --rows 20000000     beside XGBoost's external memory mode, on the same files
    python benchmarks/scale.py actors                      rows on Ray's actors beside the same rows on threads
    python benchmarks/scale.py columns | bins | depth | trees   one of them at a time
    python benchmarks/scale.py owners                      horizontal.secure_sum, owners as processes, then in memory
    python benchmarks/scale.py protocols [NAME ...]        small runs of every protocol over gRPC, for the cost model
    python benchmarks/scale.py model                       fits the cost model to these, and checks it on the other half
    python benchmarks/scale.py show                        all points as tables
    python benchmarks/scale.py all --quick                 every curve, as small as it can be: does it run at all?

Each point is a process of its own (of a protocol, each party), and one line of benchmarks/results/scale.jsonl (--out).
Rows are made up, some at a time, and written as single precision to Parquet files in a folder that is removed
afterwards (with --data they stay); disk space is asked for first. Smaller numbers of rows are the first files of the
same folder.

What is counted. Seconds of a fit: from the call to the model, with reading, edges, codes and trees; a small fit comes
first and compiles. `free_cores` is the share of the machine that was free right before and after; where it is below
0.85, seconds mean little, and below 0.5 the cost model does not learn from them. Seconds of processors are all that the
threads of a fit used, which other work moves less. Memory: the largest that the process ever had (VmHWM), and apart
from it the largest that was not pages of files (RssAnon, looked at every 50 ms). With --limit GIB the fit runs in a
control group that has no more memory than that, for the process and for cached pages of all files it reads and writes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # XGBoost's idle threads otherwise spin

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

RESULTS = Path(__file__).parent / "results" / "scale.jsonl"
COSTS = Path(__file__).parents[1] / "src" / "hedgerow" / "node" / "costs.json"
VALUES_PER_FILE = 28_000_000
LABEL = "label"
MIB, GIB = 1 << 20, 1 << 30
ALLOWED_MIB = 700
PATIENCE = 3.0
"""Seconds after which a run of a protocol is not repeated."""
BARS = {"xgboost": 0.6, "actors": 1.3, "linear": 0.1}


# --- rows in files ---------------------------------------------------------------------------------------------------


def make_files(folder: Path, n_rows: int, n_columns: int) -> list[Path]:
    """The first files of a learnable problem, as many as hold these rows; those that are there already are kept."""
    size = min(VALUES_PER_FILE // n_columns, n_rows)
    folder = folder / f"{n_columns}_columns_{size}_rows"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"part-{first // size:06}.parquet" for first in range(0, n_rows, size)]
    missing = [number for number, path in enumerate(paths) if not path.exists()]
    needed = len(missing) * size * n_columns * 5
    free = shutil.disk_usage(folder).free
    if needed > free:
        sys.exit(f"{folder}: {needed / GIB:.1f} GiB are needed for rows, but {free / GIB:.1f} GiB are free; see --data")
    for number in missing:
        partial = paths[number].with_suffix(".partial")
        pq.write_table(made_up(number, size, n_columns), partial, row_group_size=size)
        partial.rename(paths[number])
    if n_rows % size == 0:
        return paths
    rest = folder / f"rest-{n_rows}.parquet"
    whole = pq.read_table(paths.pop())
    pq.write_table(whole.slice(0, n_rows % size), rest, row_group_size=size)
    return [*paths, rest]


def made_up(seed: int, n_rows: int, n_columns: int) -> pa.Table:
    """Normal columns; four of them decide about the label, with noise."""
    rng = np.random.default_rng(seed)
    columns = {f"c{j}": rng.standard_normal(n_rows, dtype=np.float32) for j in range(n_columns)}
    score = columns["c0"] + columns["c1"] * columns["c2"] + np.abs(columns["c3"]) - 1
    return pa.table(columns | {LABEL: (score + rng.standard_normal(n_rows, dtype=np.float32) > 0).astype(np.int8)})


# --- memory ----------------------------------------------------------------------------------------------------------


def _status() -> dict[str, int]:
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


@contextmanager
def memory_watched() -> Iterator[dict[str, float]]:
    """Fills in, in MiB: the peak of this process, and that of what is not pages of files; and seconds of processors."""
    found: dict[str, float] = {}
    most, is_over = [_status()["RssAnon"]], threading.Event()

    def look() -> None:
        while not is_over.wait(0.05):
            most[0] = max(most[0], _status()["RssAnon"])

    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on
    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    start = time.process_time()
    try:
        yield found
    finally:
        found["processor_seconds"] = time.process_time() - start
        is_over.set()
        watcher.join()
        found["peak_mib"] = _status()["VmHWM"] / MIB
        found["peak_mib_without_files"] = most[0] / MIB


@contextmanager
def memory_limited(gib: float | None) -> Iterator[dict[str, float]]:
    """All memory of this process, cached pages of files included, by a control group of its own; Linux, as root."""
    if gib is None:
        yield {}
        return
    is_first = Path("/sys/fs/cgroup/memory").is_dir()  # the first version has a folder for each kind of limit
    root = Path("/sys/fs/cgroup/memory" if is_first else "/sys/fs/cgroup")
    limit, peak = ("memory.limit_in_bytes", "memory.max_usage_in_bytes") if is_first else ("memory.max", "memory.peak")
    group = root / f"hedgerow-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(int(gib * GIB)))
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        sys.exit(f"--limit needs a control group, and {group} cannot be used: {error}")
    found: dict[str, float] = {}
    try:
        yield found
    finally:
        found["peak_mib_of_group"] = int((group / peak).read_text()) / MIB
        (root / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


# --- points: each runs in a process of its own -----------------------------------------------------------------------


class Clock:
    """A callback that knows when trees were grown."""

    def before_training(self, _model: Any) -> None:
        """Everything is read and binned."""
        self.first = self.last = time.perf_counter()

    def after_iteration(self, _model: Any, _epoch: int, _log: Any) -> bool:
        """One more."""
        self.last = time.perf_counter()
        return False


@contextmanager
def phases_timed() -> Iterator[dict[str, float]]:
    """Seconds of finding edges and of writing codes."""
    from hedgerow.estimators.streamed import BlockRows

    found: dict[str, float] = {}

    def timed(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            start = time.perf_counter()
            result = method(*args)
            found[name] = time.perf_counter() - start
            return result

        return call

    with (
        mock.patch.object(BlockRows, "bins", timed("edges", BlockRows.bins)),
        mock.patch.object(BlockRows, "codes", timed("codes", BlockRows.codes)),
    ):
        yield found


def fit_files(paths: list[str], given: dict[str, Any], **how: Any) -> tuple[Any, dict[str, float]]:
    """A fit on files, and how long its parts took."""
    from hedgerow import Blocks, BoostedTreesClassifier

    clock, start = Clock(), time.perf_counter()
    names = {"max_iter": "trees", "max_depth": "depth", "max_bins": "bins"}
    options = {option: given[name] for option, name in names.items()} | how
    with phases_timed() as phases:
        model = BoostedTreesClassifier(callbacks=[clock], **options).fit(Blocks(paths, target=LABEL, scratch=scratch()))
    end = time.perf_counter()
    return model, {"seconds": end - start, **phases, "trees": clock.last - clock.first}


def scratch() -> str:
    """A folder on a disk."""
    return os.environ.get("SCALE_SCRATCH", tempfile.gettempdir())


def small_file(folder: str, given: dict[str, Any]) -> str:
    """Few rows of as many columns, to compile with; enough of them for all that many rows need."""
    path = Path(folder) / "small.parquet"
    n_rows = min(given["rows"], 600_000, max(2_000, 20_000_000 // given["columns"]))
    pq.write_table(made_up(0, n_rows, given["columns"]), path)
    return str(path)


def fit_point(given: dict[str, Any]) -> dict[str, Any]:
    """Trees on files, out of core."""
    with tempfile.TemporaryDirectory() as folder:
        fit_files([small_file(folder, given)], {**given, "trees": 2}, n_jobs=given["threads"])
    with memory_limited(given.get("limit_gib")) as group, memory_watched() as memory:
        _, seconds = fit_files(given["paths"], given, n_jobs=given["threads"])
    return {**seconds, **memory, **group}


def xgboost_point(given: dict[str, Any]) -> dict[str, Any]:
    """XGBoost's external memory mode: an iterator over row groups, and quantised pages on the disk."""
    import xgboost

    class RowGroups(xgboost.DataIter):
        """Some rows at a time, from the files."""

        def __init__(self, paths: list[str], cache: str) -> None:
            self._groups = [(p, g) for p in paths for g in range(pq.ParquetFile(p).metadata.num_row_groups)]
            self._next = 0
            super().__init__(cache_prefix=cache)

        def next(self, input_data: Callable[..., Any]) -> bool:
            """One row group more."""
            if self._next == len(self._groups):
                return False
            path, group = self._groups[self._next]
            self._next += 1
            table = pq.ParquetFile(path).read_row_group(group)
            input_data(data=table.drop_columns([LABEL]), label=table.column(LABEL).to_numpy())
            return True

        def reset(self) -> None:
            """From the beginning."""
            self._next = 0

    def train(paths: list[str], trees: int, cache: str) -> float:
        rows = RowGroups(paths, cache)
        matrix = xgboost.ExtMemQuantileDMatrix(rows, max_bin=given["bins"], nthread=given["threads"])
        options = {
            "objective": "binary:logistic", "tree_method": "hist", "max_bin": given["bins"], "eta": 0.1,
            "max_depth": given["depth"], "nthread": given["threads"],
        }  # fmt: skip
        coded = time.perf_counter()
        xgboost.train(options, matrix, trees)
        return coded

    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        train([small_file(folder, given)], 2, f"{folder}/small")
        with memory_watched() as memory:
            start = time.perf_counter()
            coded = train(given["paths"], given["trees"], f"{folder}/pages")
            end = time.perf_counter()
    return {"seconds": end - start, "edges and codes": coded - start, "trees": end - coded, **memory}


def actors_point(given: dict[str, Any]) -> dict[str, Any]:
    """Threads first, then actors, on the same files: seconds of trees, the largest actor, and whether models agree."""
    import ray

    from hedgerow.engine.rows_ray.actors import Crew, Holder
    from hedgerow.engine.rows_ray.cluster import RayBackend

    peaks: list[float] = []
    close = Crew.close

    def peak_mib(_holder: Holder) -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def look_and_close(crew: Crew) -> None:
        peaks.extend(crew.each(peak_mib))
        close(crew)

    fit_files(given["paths"][:1], {**given, "trees": 1}, n_jobs=given["threads"])
    one, local = fit_files(given["paths"], given, n_jobs=given["threads"])
    # More actors than processors take turns.
    ray.init(num_cpus=max(given["actors"], machine()["cores"]), include_dashboard=False, logging_level="ERROR")
    with mock.patch.object(Crew, "close", look_and_close):
        model, there = fit_files(given["paths"], given, backend=RayBackend(actors=given["actors"]))
    ray.shutdown()
    share = given["rows"] * given["columns"] / given["actors"] / MIB
    return {
        **there,
        "seconds of threads": local["seconds"],
        "trees of threads": local["trees"],
        "times threads": there["trees"] / local["trees"],
        "peak_mib": max(peaks),
        "allowed_mib": share + ALLOWED_MIB,
        "same model": model.ensemble_.trees == one.ensemble_.trees,
    }


def protocol_point(given: dict[str, Any]) -> dict[str, Any]:
    """A protocol between parties that are processes over gRPC, or threads; seconds of the fastest of three runs."""
    from estimate import BOUND, measured, options, tables

    from hedgerow import Schema

    names = tuple(f"p{number:03}" for number in range(given["parties"]))
    drawn = made_up(0, given["rows"], given["columns"])
    X = np.column_stack([drawn.column(j).to_numpy() for j in range(given["columns"])])
    X, y = np.clip(X, -BOUND, BOUND), drawn.column(LABEL).to_numpy().astype(np.int64)
    schema = Schema.from_public(bounds={f"x{k}": (-BOUND, BOUND) for k in range(given["columns"])}, classes=[0, 1])
    own = options(schema)[given["protocol"]]
    trees = {"n_estimators": given["trees"], "max_depth": given["depth"], "max_bins": given["bins"]}
    federation, _, _ = tables(given["protocol"], X, y, names)
    began, runs = time.perf_counter(), []
    while not runs or (len(runs) < 3 and time.perf_counter() - began < PATIENCE):
        runs.append(measured(federation, given["protocol"], {**trees, **own}, given.get("transport", "grpc")))
    middle = {name: statistics.median(getattr(run, name) for run in runs) for name in runs[0]._fields}
    seconds = [run.seconds for run in runs]
    return {**middle, "seconds": min(seconds), "all seconds": seconds}


KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "fit": fit_point,
    "xgboost": xgboost_point,
    "actors": actors_point,
}


def play(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """One point in a process of its own."""
    command = [sys.executable, __file__, "point", kind, json.dumps(given)]
    answer = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603 - this very script
    if answer.returncode:
        return {"failed": answer.returncode}
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


# --- curves ----------------------------------------------------------------------------------------------------------


class Curves:
    """Plays points, shows them and writes them down."""

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self.asked, self.folder = asked, folder

    def point(self, curve: str, kind: str, **given: Any) -> dict[str, Any]:
        """One more line."""
        paths = {}
        if kind != "protocol":
            paths["paths"] = [str(path) for path in make_files(self.folder, given["rows"], given["columns"])]
        free = free_cores()
        # Parties are processes of their own already.
        found = protocol_point(given) if kind == "protocol" else play(kind, given | paths)
        free = min(free, free_cores())
        line = {"curve": curve, "kind": kind, **given, "found": found, "machine": machine(), "free_cores": free}
        with self.asked.out.open("a") as out:
            out.write(json.dumps(line) + "\n")
        shown = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in found.items() if k != "all seconds"}
        print(curve, json.dumps(given), json.dumps(shown), flush=True)
        return found

    def fit(self, curve: str, **changed: Any) -> dict[str, Any]:
        """Trees on files, of the usual size but for what is changed."""
        usual = {"rows": 2_000_000, "columns": 28, "bins": 256, "depth": 6, "trees": 10, "threads": 2}
        return self.point(curve, "fit", **(usual | ({"rows": 20_000, "trees": 2} if self.quick else {}) | changed))

    @property
    def quick(self) -> bool:
        """As small as it can be."""
        return bool(self.asked.quick)

    def rows(self) -> None:
        """To 50 million; the largest in no more than 8 GiB."""
        for millions in [0.02, 0.05] if self.quick else self.asked.sizes:
            limit = {"limit_gib": self.asked.limit} if self.asked.limit else {}
            self.fit("rows", rows=round(millions * 1_000_000), **limit)

    def columns(self) -> None:
        """To 5,000."""
        for n_columns in [4, 40] if self.quick else [28, 280, 1_000, 5_000]:
            self.fit("columns", rows=5_000 if self.quick else 100_000, columns=n_columns)

    def bins(self) -> None:
        """To 256."""
        for n_bins in [16, 256] if self.quick else [16, 32, 64, 128, 256]:
            self.fit("bins", bins=n_bins)

    def depth(self) -> None:
        """To 10 levels."""
        for depth in [2, 4] if self.quick else [2, 4, 6, 8, 10]:
            self.fit("depth", depth=depth)

    def trees(self) -> None:
        """To 100."""
        for n_trees in [2, 4] if self.quick else [2, 5, 20, 50, 100]:
            self.fit("trees", trees=n_trees)

    def xgboost(self) -> None:
        """In turn, on the same files."""
        sizes = {"columns": 28, "bins": 256, "depth": 6, "threads": 2, "trees": self.asked.trees}
        sizes |= {"rows": self.asked.rows} | ({"rows": 20_000, "trees": 2} if self.quick else {})
        for _ in range(self.asked.repetitions):
            ours = self.point("xgboost", "fit", **sizes)
            theirs = self.point("xgboost", "xgboost", **sizes)
            if "seconds" in ours and "seconds" in theirs:
                ratio = ours["seconds"] / theirs["seconds"]
                print(f"{ratio:.2f} times XGBoost's external memory mode; the bar is {BARS['xgboost']}", flush=True)

    def actors(self) -> None:
        """From 1 to 4."""
        sizes = {"rows": 5_000_000, "columns": 28, "bins": 256, "depth": 6, "trees": 10, "threads": 2}
        sizes |= {"rows": 20_000, "trees": 2} if self.quick else {}
        for n_actors in [2] if self.quick else self.asked.actors:
            self.point("actors", "actors", actors=n_actors, **sizes)

    def owners(self) -> None:
        """To 64 as processes, and to 256 in memory; each brings 1,000 rows."""
        trees = {"protocol": "horizontal.secure_sum", "columns": 10, "bins": 32, "depth": 4, "trees": 5}
        counts = {"grpc": [3], "memory": [8]} if self.quick else {"grpc": [4, 16, 64], "memory": [4, 16, 64, 256]}
        for transport, each in counts.items():
            for n_owners in each:
                rows = n_owners * (100 if self.quick else 1_000)
                self.point("owners", "protocol", rows=rows, parties=n_owners, transport=transport, **trees)

    def protocols(self) -> None:
        """Points of the cost model."""
        from hedgerow.runtime.protocol import names

        for protocol in self.asked.names or names():
            for given in points_of(protocol)[: 1 if self.quick else None]:
                self.point("protocols", "protocol", protocol=protocol, **given)

    def model(self) -> None:
        """The coefficients that `hedgerow estimate` uses, from the points that were written down."""
        from cost_model import fit_all

        self.asked.costs.write_text(json.dumps(fit_all(self.asked.out, machine()), indent=1) + "\n")

    def show(self) -> None:
        """All points that were written down, a Markdown table for each curve."""
        lines = [json.loads(line) for line in self.asked.out.read_text().splitlines()]
        for curve in dict.fromkeys(line["curve"] for line in lines):
            points = [line for line in lines if line["curve"] == curve]
            given = [name for name in points[0] if name not in NOT_SHOWN]
            found = [name for name in points[-1]["found"] if name not in NOT_SHOWN]
            print(f"\n{curve}\n\n| {' | '.join([*given, *found])} |\n{'|---' * len([*given, *found])}|")
            for line in points:
                values = [line.get(name, "") for name in given] + [line["found"].get(name, "") for name in found]
                cells = [f"{v:,}" if isinstance(v, int) else f"{v:.3g}" if isinstance(v, float) else v for v in values]
                print(f"| {' | '.join(cells)} |")

    def all(self) -> None:
        """Every curve."""
        for name in CURVES[: CURVES.index("model")]:
            getattr(self, name)()


CURVES = (
    "rows", "columns", "bins", "depth", "trees", "xgboost", "actors", "owners", "protocols", "model", "show", "all",
)  # fmt: skip
NOT_SHOWN = {"curve", "found", "machine", "free_cores", "all seconds", "threads"}

# rows, columns, depth, parties, bins, trees: one thing at a time from the middle, and some where all differ. Every
# second one is for checking, so neighbours are alike.
_SHAPES = (
    (20_000, 12, 4, 3, 32, 5), (10_000, 12, 4, 3, 32, 5), (80_000, 12, 4, 3, 32, 5), (50_000, 12, 4, 3, 32, 5),
    (20_000, 48, 4, 3, 32, 5), (20_000, 24, 4, 3, 32, 5), (20_000, 12, 2, 3, 32, 5), (20_000, 12, 3, 3, 32, 5),
    (20_000, 12, 6, 3, 32, 5), (20_000, 12, 5, 3, 32, 5), (20_000, 24, 4, 8, 32, 5), (20_000, 18, 4, 6, 32, 5),
    (20_000, 12, 4, 2, 64, 5), (10_000, 10, 3, 4, 16, 15), (5_000, 8, 3, 2, 16, 20),
)  # fmt: skip
_SMALLER = {
    "vertical.masked_gradients": 0.1,
    "vertical.mp_fedxgb": 0.1,
    "vertical.homomorphic": 0.2,
    "vertical.secret_shared": 0.4,
    "vertical.private_histograms": 0.2,
    "horizontal.secure_sum": 5.0,
    "vertical.bucket_rr": 2.5,
    "vertical.noised_gradients": 2.5,
}


def points_of(protocol: str) -> list[dict[str, Any]]:
    """Sizes of small runs; rows as many as take seconds."""
    scale, keys = _SMALLER.get(protocol, 1.0), ("rows", "columns", "depth", "parties", "bins", "trees")
    found = [dict(zip(keys, (round(scale * shape[0]), *shape[1:]), strict=True)) for shape in _SHAPES]
    fewest = 3 if protocol.startswith("horizontal") else 2  # sums of two owners would protect nothing
    return [{**point, "parties": max(point["parties"], fewest)} for point in found]


def free_cores() -> float:
    """Which share of the cores a busy thread on each really gets; less than 1 while others are at work."""
    n_cores, values = len(os.sched_getaffinity(0)), np.random.default_rng(0).random(1_000_000)
    used: list[float] = []

    def sort() -> None:  # without the GIL
        start = time.thread_time()
        for _ in range(5):
            np.sort(values)
        used.append(time.thread_time() - start)

    threads = [threading.Thread(target=sort) for _ in range(n_cores)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(used) / n_cores / (time.perf_counter() - start)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory / GIB)}


def main() -> None:
    if sys.argv[1:2] == ["point"]:
        print(json.dumps(KINDS[sys.argv[2]](json.loads(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curve", choices=CURVES)
    parser.add_argument("names", nargs="*", help="of protocols")
    parser.add_argument("--quick", action="store_true", help="as small as it can be")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1, 2, 5, 10, 20, 50], help="millions of rows")
    parser.add_argument("--limit", type=float, help="GiB of memory that a fit may take, cached files included")
    parser.add_argument("--rows", type=int, default=20_000_000, help="beside XGBoost")
    parser.add_argument("--trees", type=int, default=10, help="beside XGBoost")
    parser.add_argument("--repetitions", type=int, default=1, help="beside XGBoost")
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--data", type=Path, help="where files of rows are made, and stay; else a temporary folder")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where lines are added")
    parser.add_argument("--costs", type=Path, default=COSTS, help="where the cost model's coefficients go")
    asked = parser.parse_args()
    if asked.data is not None:
        getattr(Curves(asked, asked.data), asked.curve)()
        return
    with tempfile.TemporaryDirectory(dir=scratch(), prefix="scale-") as folder:
        getattr(Curves(asked, Path(folder)), asked.curve)()


if __name__ == "__main__":
    main()
