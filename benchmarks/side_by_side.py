"""What the benchmarks of protocols share: contenders on pooled rows, measuring in turn, and writing what came out.

Used by horizontal.py, vertical.py (with vertical_protocols.py and vertical_homomorphic.py), secret_shared.py and
masked_xgboost.py, which bring their federations, sections and tables. Nothing is run from here.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime as dt
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

# XGBoost's idle threads otherwise spin and take the cores from whoever is measured next.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

LEARNING_RATE, THREADS = 0.3, 2
GIB = 1 << 30
ROUND_TRIP, BANDWIDTH = 0.1, 20e6
XGBOOST, LINK_ALONE = "xgboost", "link alone"
HOW_TO_READ = "## How to read this"


# --- contenders on pooled rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """Rows and the trees to be grown on them.

    `bins` are for values. Ours need one more code, for missing ones, and have at most 256: 255 stand beside XGBoost's
    usual 256.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    trees: int
    depth: int
    bins: int = 255
    held_out: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def title(self) -> str:
        """How it is called in tables."""
        n_rows, n_columns = self.X.shape
        return f"{self.name} {n_rows:,} x {n_columns}, {self.trees} trees of {self.depth} levels"

    def small(self) -> Self:
        """Its first rows and two trees: enough to compile, load libraries and touch memory."""
        return dataclasses.replace(self, X=self.X[:1000], y=self.y[:1000], trees=2, held_out=None)


@dataclass
class Fitted:
    """Seconds, a way to score rows, and what a federated run says about itself."""

    seconds: float
    predict: Callable[[np.ndarray], np.ndarray]
    about: dict[str, Any] = field(default_factory=dict)


Contender = Callable[[Workload], Fitted]


def synthetic(name: str, n_train: int, n_test: int, n_columns: int, trees: int) -> Workload:
    from sklearn.datasets import make_classification

    X, y = make_classification(n_train + n_test, n_columns, n_informative=8, random_state=0)
    X, y = np.ascontiguousarray(X, np.float32), y.astype(np.float64)
    return Workload(name, X[:n_train], y[:n_train], trees, 4, held_out=(X[n_train:], y[n_train:]))


def fit_pooled(workload: Workload) -> Fitted:
    from hedgerow.engine.binning import BinMapper
    from hedgerow.engine.boosting import train
    from hedgerow.engine.losses import BoostingParams
    from hedgerow.engine.table import read_table

    start = time.perf_counter()
    table = read_table(workload.X)
    mapper = BinMapper.fit(table, workload.bins + 1, n_threads=THREADS)
    codes = mapper.transform(table, n_threads=THREADS)
    params = BoostingParams(
        n_iterations=workload.trees, learning_rate=LEARNING_RATE, max_depth=workload.depth, n_threads=THREADS
    )
    model = train(params, mapper, codes, workload.y).ensemble
    seconds = time.perf_counter() - start
    return Fitted(seconds, lambda rows: model.raw_scores(rows, n_threads=THREADS)[:, 0])


def fit_xgboost(workload: Workload, *, quantile_matrix: bool = False) -> Fitted:
    import xgboost

    bins = 256 if workload.bins == 255 else workload.bins
    start = time.perf_counter()
    if quantile_matrix:
        matrix = xgboost.QuantileDMatrix(workload.X, workload.y, max_bin=bins, nthread=THREADS)
    else:
        matrix = xgboost.DMatrix(workload.X, workload.y, nthread=THREADS)
    parameters = {
        "objective": "binary:logistic", "tree_method": "hist", "max_bin": bins, "max_depth": workload.depth,
        "eta": LEARNING_RATE, "nthread": THREADS,
    }  # fmt: skip
    booster = xgboost.train(parameters, matrix, workload.trees)
    seconds = time.perf_counter() - start
    return Fitted(seconds, lambda rows: booster.inplace_predict(rows, predict_type="margin"))


POOLED: dict[str, Contender] = {
    XGBOOST: fit_xgboost,
    "xgboost, QuantileDMatrix": lambda workload: fit_xgboost(workload, quantile_matrix=True),
    "pooled engine": fit_pooled,
}


# --- links -----------------------------------------------------------------------------------------------------------


def slow_link() -> Any:
    """The emulated wide-area link."""
    from hedgerow.transport.emulate import Link

    return Link(round_trip=ROUND_TRIP, bandwidth=BANDWIDTH)


def seconds_on_slow_link(rounds: int, n_bytes: int) -> float:
    """What the link alone takes."""
    return rounds * ROUND_TRIP + n_bytes * 8 / BANDWIDTH


def traffic(meters: Mapping[str, Any], ends: Iterable[str], busiest: str) -> dict[str, int]:
    """What went over all links; as `busiest`, over those of the one of `ends` that had most to send and receive."""
    totals = {party: meter["total"] for party, meter in meters.items()}
    return {
        "bytes": sum(total["bytes_sent"] for total in totals.values()),
        "messages": sum(total["messages_sent"] for total in totals.values()),
        busiest: max(totals[end]["bytes_sent"] + totals[end]["bytes_received"] for end in ends),
    }


# --- measuring -------------------------------------------------------------------------------------------------------


class Stalls:
    """Notes while it is open, in seconds, when this process did not run at all: stopped from outside, or no core free.

    Nothing is left out because of them; they are written beside the times, so that an odd one can be told from a slow
    one. (Parties over gRPC are processes of their own, which this does not see.)
    """

    LONGEST = 0.5

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._closed.wait(0.1):
            now = time.monotonic()
            if now - last > self.LONGEST:
                self.seconds.append(round(now - last, 2))
            last = now

    def __enter__(self) -> list[float]:
        self._watcher.start()
        return self.seconds

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._watcher.join()


@dataclass
class Measured:
    """Contenders that took turns: all seconds of each, its last run, and when nothing ran."""

    seconds: dict[str, list[float]]
    last: dict[str, Fitted]
    stalls: list[float]

    @property
    def medians(self) -> dict[str, float]:
        """Of the seconds."""
        return {name: statistics.median(seconds) for name, seconds in self.seconds.items()}

    def extra(self) -> dict[str, Any]:
        """What is kept beside the medians."""
        repetitions = max(len(seconds) for seconds in self.seconds.values())
        about = {name: fitted.about for name, fitted in self.last.items() if fitted.about}
        return {"repetitions": repetitions, "seconds": self.seconds, "stalls": self.stalls, **about}


def measure_in_turn(
    workload: Workload,
    contenders: Mapping[str, Contender],
    repetitions: int,
    after: Callable[[str, Fitted], None] | None = None,
    once: Collection[str] = (),
) -> Measured:
    """All contenders one after the other, `repetitions` times; `after` each run, what is wanted of its model.

    Those that are named in `once` are slow, and run in the first turn only.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    last: dict[str, Fitted] = {}
    with Stalls() as stalls:
        for turn in range(repetitions):
            for name, fit in contenders.items():
                if turn and name in once:
                    continue
                last[name] = fit(workload)
                seconds[name].append(last[name].seconds)
                if after is not None:
                    after(name, last[name])
    return Measured(seconds, last, stalls)


def _children(process: int | str) -> set[str]:
    """The processes that this one has started."""
    return {pid for task in Path(f"/proc/{process}/task").glob("*/children") for pid in _read(task).split()}


class Used(NamedTuple):
    """What a process has used so far: resident bytes at its peak, and seconds of a processor, its start included."""

    memory: int
    processor: float


@contextlib.contextmanager
def used_by_processes() -> Iterator[dict[str, Used]]:
    """Party -> what its process has used, as far as seen by a look every 20 ms; filled at the end. Linux only."""
    used: dict[str, Used] = {}
    seen: dict[str, tuple[str, Used]] = {}
    closed = threading.Event()

    def look() -> None:
        while not closed.wait(0.02):
            # Parties are forked, and named, by a child of this process.
            for process in (grandchild for child in _children(os.getpid()) for grandchild in _children(child)):
                about = dict(line.partition(":")[::2] for line in _read(Path(f"/proc/{process}/status")).splitlines())
                ticks = (
                    _read(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()[11:13]
                )  # in Python, in the kernel
                if "VmHWM" in about and ticks:
                    seconds = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
                    memory = int(about["VmHWM"].split()[0]) * 1024
                    seen[process] = about["Name"].strip(), Used(memory, seconds)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield used
    finally:
        closed.set()
        watcher.join()
        used |= dict(seen.values())


def peak_in_own_process(script: str, *arguments: str) -> tuple[int, int]:
    """Bytes before the training and at its peak, as `print_peak` says them in a process that does nothing else."""
    command = [sys.executable, script, *arguments]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - one of our benchmarks
    before, peak = (int(word) for word in answer.stdout.split()[-2:])
    return before, peak


def print_peak(warm_up: Callable[[], object], work: Callable[[], object]) -> None:
    """For a process of its own: bytes that were there after `warm_up`, and the peak during `work`. Linux only."""
    warm_up()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on
    before = _resident("VmRSS")
    work()
    print(before, _resident("VmHWM"))


def _resident(which: str) -> int:
    """Bytes of this process, by the kernel's own name for the count."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which))
    return int(line.split()[1]) * 1024


def _read(path: Path) -> str:
    """A file of /proc; nothing if its process is gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass
class MeasuredRow:
    """One line of a table: figures of one unit per contender, the smaller the better, and what else is known.

    Bars are for ratios to the yardstick, or for the figures themselves where there is none.
    """

    section: str
    what: str
    values: dict[str, float]
    bars: dict[str, float] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    unit: str = "seconds"
    yardstick: str | None = None
    date: str = ""

    @property
    def measured_against(self) -> str | None:
        """The contender that ratios are to; None where there are no ratios."""
        return self.yardstick

    @property
    def ratios(self) -> dict[str, float]:
        """Each contender to the yardstick."""
        yardstick = self.measured_against
        if yardstick is None:
            return {}
        return {name: value / self.values[yardstick] for name, value in self.values.items() if name != yardstick}

    @property
    def verdicts(self) -> dict[str, bool]:
        """Per bar: met or not."""
        held = self.values if self.measured_against is None else self.ratios
        return {name: held[name] <= bar for name, bar in self.bars.items()}

    @property
    def stood_still(self) -> str:
        """A remark, if the process did."""
        return f"process stood still for {self.extra['stalls']} s" if self.extra.get("stalls") else ""


AnyRow = TypeVar("AnyRow", bound=MeasuredRow)


def say(name: str, what: str) -> None:
    """Something is going on, and may take a while."""
    print(f"{time.strftime('%H:%M:%S')} {name}: {what} ...", file=sys.stderr, flush=True)


def show_row(row: AnyRow, describe: Callable[[AnyRow, str], str], *, width: int) -> None:
    """A few lines per result, as it comes; `describe` adds what is known of a contender, whose names have `width`."""
    print(f"{row.section:7s} {row.what}" + (f"  (this {row.stood_still})" if row.stood_still else ""), flush=True)
    for name, value in row.values.items():
        ratio = f"  x {row.ratios[name]:.2f}" if name in row.ratios else ""
        bar = f"  bar {row.bars[name]:g}: {'met' if row.verdicts[name] else 'MISSED'}" if name in row.bars else ""
        print(f"        {name:{width}s} {value:9.4f}{ratio}{bar}{describe(row, name)}", flush=True)


def auc_of(row: MeasuredRow, name: str) -> str:
    """For `show_row`: a contender's AUC, where there is one."""
    return f"  AUC {row.extra['AUC'][name]:.4f}" if name in row.extra.get("AUC", {}) else ""


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    return ["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *("| " + " | ".join(c) + " |" for c in lines)]


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    from hedgerow import __version__

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    packages = ("numpy", "numba", "xgboost-cpu", "grpcio", "cryptography", "scikit-learn")
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "processor": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {"hedgerow": __version__, **{name: importlib.metadata.version(name) for name in packages}},
        "OMP_WAIT_POLICY": os.environ["OMP_WAIT_POLICY"],
    }


def measured_on(about: Mapping[str, Any]) -> list[str]:
    """The same as two lines of a page."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return [
        f"Measured {about['date']} on {about['processor']}, {about['cores']} cores; Python {about['python']},",
        f"{versions}; `OMP_WAIT_POLICY={about['OMP_WAIT_POLICY']}`.",
    ]


def merged(path: Path, fresh: Sequence[AnyRow], kind: type[AnyRow], sections: Iterable[str]) -> list[AnyRow]:
    """The rows of an earlier results file, with those of the sections that were run again replaced."""
    old = json.loads(path.read_text()) if path.is_file() else {"results": []}
    names = [own.name for own in dataclasses.fields(kind)]
    kept = [kind(**{name: row[name] for name in names if name in row}) for row in old["results"]]
    for row in kept:
        row.date = row.date or old["machine"]["date"]
    again, order = {row.section for row in fresh}, list(sections)
    rows = [row for row in kept if row.section not in again] + list(fresh)
    return sorted(rows, key=lambda row: order.index(row.section))


def write_json(path: Path, rows: Iterable[MeasuredRow], about: Mapping[str, Any]) -> None:
    results = [{**asdict(row), "ratios": row.ratios, "verdicts": row.verdicts} for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": about, "results": results}, indent=1) + "\n")


def write_markdown(path: Path, page: str) -> None:
    """The page; how to read it is written by hand and kept."""
    old = path.read_text() if path.is_file() else ""
    _, heading, explanation = old.partition(HOW_TO_READ)
    path.write_text(page + (f"\n{heading}{explanation}" if heading else ""))


# --- command line ----------------------------------------------------------------------------------------------------


def make_parser(description: str | None, sections: Iterable[str], repetitions: int) -> argparse.ArgumentParser:
    """The arguments that all have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"some of {', '.join(sections)}; default all")
    parser.add_argument("--repetitions", type=int, default=repetitions)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    return parser


def chosen_sections(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, sections: Sequence[str]
) -> list[str]:
    """Those that were named, or all, in their usual order."""
    unknown = [name for name in arguments.sections if name not in sections]
    if unknown:
        parser.error(f"no section is called {', '.join(unknown)}; there are {', '.join(sections)}")
    return [name for name in sections if name in (arguments.sections or sections)]


def check_files(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Refuse to write what is not worth it."""
    if arguments.quick and (arguments.json or arguments.markdown):
        parser.error("--quick is for a look; its figures are not written to files")
    if arguments.markdown and not arguments.json:
        parser.error("--markdown is written from all results, so it needs --json too")


def run_sections(
    arguments: argparse.Namespace,
    wanted: Iterable[str],
    sections: Mapping[str, Callable[..., list[AnyRow]]],
    kind: type[AnyRow],
    bars: Callable[[list[AnyRow]], list[str]],
    markdown: Callable[[list[AnyRow], dict[str, Any]], str],
) -> list[AnyRow]:
    """Measure, print the table of `bars`, and write the files that were asked for; all rows that there are."""
    about = machine() | {"load before the run": round(os.getloadavg()[0], 1)}
    rows: list[AnyRow] = []
    for name in wanted:
        found = sections[name](1 if arguments.quick else arguments.repetitions, quick=arguments.quick)
        rows += [dataclasses.replace(row, date=about["date"]) for row in found]
        if arguments.json:  # after every section, so that nothing is lost if a later one fails
            write_json(arguments.json, merged(arguments.json, rows, kind, sections), about)
    if arguments.json:
        rows = merged(arguments.json, [], kind, sections)
    print("", *bars(rows), sep="\n")
    if arguments.markdown:
        write_markdown(arguments.markdown, markdown(rows, about))
    return rows
