"""horizontal.secure_sum beside the pooled engine and pooled XGBoost: time, rounds, bytes, held-out AUC.

Everything is measured side by side in one run, interleaved, so that a noisy machine disturbs all alike; medians.
Absolute times mean little on a shared machine: read the ratios. Each section can be run again by itself; its rows in
the results file are replaced and the others kept.

    python benchmarks/horizontal.py                          all sections (about 20 minutes on 2 cores)
    python benchmarks/horizontal.py A B --repetitions 9      two of them, more repetitions
    python benchmarks/horizontal.py --json benchmarks/results/horizontal.json --markdown docs/benchmarks_horizontal.md

    A, B     two synthetic workloads, 3 owners, in memory and over gRPC with mutual TLS (one process per party)
    owners   2 to 32 owners on two credit datasets
    susy     60 trees of 4 levels on physics data, 2 to 8 owners
    paper    FederBoost's 8,192 x 11, beside its own time
    wan      an emulated link: 100 ms round trip, 20 Mbit/s in each direction
    auc      two thirds train, one third test, 20 trees of 3 levels: in the order of the file, and random splits

What is timed. XGBoost: construction of a DMatrix and training (hist, 2 threads); also with a QuantileDMatrix, shown
apart. Pooled engine: reading, binning, training, 2 threads. Federations: from the first message of the protocol (keys,
search for edges and all) to the model; starting processes and compiling is left out.
The datasets need HEDGEROW_DATA (a folder of Parquet files); without it their sections are left out, with a message.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# XGBoost's idle threads otherwise spin and take the cores from whoever is measured next.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

LEARNING_RATE, THREADS = 0.3, 2
ROUND_TRIP, BANDWIDTH = 0.1, 20e6
WAN_TRANSPORT = "memory"  # the link is emulated either way; in memory nothing else is measured
AUC_SEEDS = 10
XGBOOST = "xgboost"
HOW_TO_READ = "## How to read this"


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
    bins: int
    held_out: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def title(self) -> str:
        """How it is called in tables."""
        n_rows, n_columns = self.X.shape
        return f"{self.name} {n_rows:,} x {n_columns}, {self.trees} trees of {self.depth} levels, {self.bins} bins"

    def owners(self, n_owners: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The rows dealt out to owners, equally many each."""
        parts = zip(np.array_split(self.X, n_owners), np.array_split(self.y, n_owners), strict=True)
        return {f"owner_{i + 1}": part for i, part in enumerate(parts)}


@dataclass
class Row:
    """One line of a table: seconds per contender (or AUC), a bar for one ratio, and what else is known."""

    section: str
    what: str
    values: dict[str, float]
    unit: str = "s"
    bars: dict[str, float] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def ratios(self) -> dict[str, float]:
        """Each contender to XGBoost, where both were timed; over a WAN, the time to what the link alone takes."""
        yardstick = XGBOOST if XGBOOST in self.values else "link alone"
        if self.unit != "s" or yardstick not in self.values:
            return {}
        return {name: value / self.values[yardstick] for name, value in self.values.items() if name != yardstick}

    @property
    def verdicts(self) -> dict[str, bool]:
        """Per bar: met or not. Times must not be above theirs, AUCs not below."""
        if self.unit == "AUC":
            return {name: self.values[name] >= bar for name, bar in self.bars.items()}
        return {name: self.ratios[name] <= bar for name, bar in self.bars.items()}


# --- data ------------------------------------------------------------------------------------------------------------


def synthetic(name: str, n_train: int, n_test: int, n_columns: int, trees: int) -> Workload:
    from sklearn.datasets import make_classification

    X, y = make_classification(n_train + n_test, n_columns, n_informative=8, random_state=0)
    X, y = np.ascontiguousarray(X, np.float32), y.astype(np.float64)
    return Workload(name, X[:n_train], y[:n_train], trees, 4, 255, (X[n_train:], y[n_train:]))


def dataset(name: str, trees: int, depth: int, bins: int, *, shuffled: bool = True) -> Workload | None:
    """A dataset of HEDGEROW_DATA in random order (or the file's); None, with a message, where it is not."""
    from pyarrow import parquet

    from hedgerow.datasets import find_dataset
    from hedgerow.datasets.folder import DatasetNotFound

    try:
        table = parquet.read_table(find_dataset(name)).to_pandas()
    except DatasetNotFound as missing:
        print(f"{name} is left out: {missing}", file=sys.stderr)
        return None
    y = table.pop("label").to_numpy(np.float64)
    X = table.to_numpy(np.float64, na_value=np.nan)
    order = np.random.default_rng(0).permutation(len(y)) if shuffled else np.arange(len(y))
    return Workload(name, np.ascontiguousarray(X[order]), y[order], trees, depth, bins)


def credit(name: str, bins: int | None = None, *, shuffled: bool = True) -> Workload | None:
    """The two credit datasets with FederBoost's settings."""
    buckets = bins or {"give_me_some_credit": 26, "default_credit_card": 24}[name]
    return dataset(name, 20, 3, buckets, shuffled=shuffled)


def present(workloads: Iterable[Workload | None]) -> list[Workload]:
    return [workload for workload in workloads if workload is not None]


# --- contenders ------------------------------------------------------------------------------------------------------


@dataclass
class Fitted:
    """Seconds, a way to score rows, and what a federated run says about itself."""

    seconds: float
    predict: Callable[[np.ndarray], np.ndarray]
    about: dict[str, Any] = field(default_factory=dict)


Contender = Callable[[Workload], Fitted]


def fit_pooled(workload: Workload) -> Fitted:
    from hedgerow.engine.binning import BinMapper
    from hedgerow.engine.boosting import BoostingParams, train
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


def federated(n_owners: int, transport: str, *, wan: bool = False, apart: bool = True) -> Contender:
    """A contender that trains with so many owners; a party of its own (`apart`) or the first owner coordinates."""

    def fit(workload: Workload) -> Fitted:
        from hedgerow.federation import Federation
        from hedgerow.transport.emulate import Link

        federation = Federation.horizontal(workload.owners(n_owners))
        start = time.perf_counter()
        run = federation.fit(
            "horizontal.secure_sum",
            n_estimators=workload.trees,
            max_depth=workload.depth,
            learning_rate=LEARNING_RATE,
            max_bins=workload.bins + 1,
            transport=transport,
            link=Link(round_trip=ROUND_TRIP, bandwidth=BANDWIDTH) if wan else None,
            **({"accept_no_masking": True} if n_owners < 3 else {}),
            **({} if apart else {"coordinator": federation.parties[0]}),
        )
        wall = time.perf_counter() - start
        about = {**traffic(run.traffic, federation.parties), **rounds(run.rounds, workload.trees), "wall": wall}
        return Fitted(run.seconds, lambda rows: run.model.predict_proba(rows)[:, 1], about)

    return fit


def traffic(meters: Mapping[str, Any], owners: Iterable[str]) -> dict[str, int]:
    """What went over all links, and over those of the owner that had most to send and receive."""
    totals = {party: meter["total"] for party, meter in meters.items()}
    return {
        "bytes": sum(total["bytes_sent"] for total in totals.values()),
        "messages": sum(total["messages_sent"] for total in totals.values()),
        "busiest owner's bytes": max(totals[o]["bytes_sent"] + totals[o]["bytes_received"] for o in owners),
    }


def rounds(counted: Mapping[str, int], trees: int) -> dict[str, float]:
    return {
        "rounds before the trees": counted["setup"],
        "rounds": counted["setup"] + counted["training"],
        "rounds per tree": counted["training"] / trees,
    }


POOLED: dict[str, Contender] = {
    XGBOOST: fit_xgboost,
    "xgboost, QuantileDMatrix": lambda workload: fit_xgboost(workload, quantile_matrix=True),
    "pooled engine": fit_pooled,
}


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


# --- sections --------------------------------------------------------------------------------------------------------


def measure(
    section: str, workload: Workload, contenders: Mapping[str, Contender], repetitions: int, bars: Mapping[str, float]
) -> Row:
    """All contenders in turn, `repetitions` times; medians of their seconds."""
    warm = Workload(workload.name, workload.X[:1000], workload.y[:1000], 2, workload.depth, workload.bins)
    for fit in contenders.values():  # compile, load libraries, touch memory
        fit(warm)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    last: dict[str, Fitted] = {}
    with Stalls() as stalls:
        for _ in range(repetitions):
            for name, fit in contenders.items():
                last[name] = fit(workload)
                seconds[name].append(last[name].seconds)
    row = Row(section, workload.title, {name: statistics.median(s) for name, s in seconds.items()}, bars=dict(bars))
    row.extra = {"repetitions": repetitions, "seconds": seconds, "stalls": stalls}
    row.extra |= {name: fitted.about for name, fitted in last.items() if fitted.about}
    if workload.held_out is not None:
        from sklearn.metrics import roc_auc_score

        X, y = workload.held_out
        row.extra["AUC"] = {name: float(roc_auc_score(y, fitted.predict(X))) for name, fitted in last.items()}
    show(row)
    return row


def both_transports(n_owners: int = 3) -> dict[str, Contender]:
    """Three owners of whom one coordinates, as in the paper; and with a coordinator that has no rows."""
    return {
        f"{transport}{', coordinator apart' if apart else ''}": federated(n_owners, transport, apart=apart)
        for transport in ("memory", "grpc")
        for apart in (False, True)
    }


def bars_for(**bars: float) -> dict[str, float]:
    """The same bar for both kinds of coordinator."""
    return {name + kind: bar for name, bar in bars.items() for kind in ("", ", coordinator apart")}


def measure_a(repetitions: int, bins: int | None) -> list[Row]:
    """Many small levels: overhead per round counts."""
    del bins
    workload = synthetic("A", 8192, 4096, 11, 200)
    return [measure("A", workload, POOLED | both_transports(), repetitions, bars_for(memory=2.0, grpc=5.0))]


def measure_b(repetitions: int, bins: int | None) -> list[Row]:
    """More rows and fewer levels: histograms count."""
    del bins
    workload = synthetic("B", 50_000, 10_000, 15, 32)
    return [measure("B", workload, POOLED | both_transports(), repetitions, bars_for(memory=1.0, grpc=3.0))]


def measure_owners(repetitions: int, bins: int | None) -> list[Row]:
    """How time grows with the number of owners of the same rows."""
    rows = []
    for workload in present(credit(name, bins) for name in ("give_me_some_credit", "default_credit_card")):
        some = {f"{n} owners": federated(n, "memory") for n in (2, 3, 4, 8, 16, 32)}
        bars = {"32 owners": 10.0} if workload.name == "give_me_some_credit" else {}
        rows.append(measure("owners", workload, POOLED | some, repetitions, bars))
    return rows


def measure_susy(repetitions: int, bins: int | None) -> list[Row]:
    """The paper's SUSY settings; it has 290,000 rows, this file 30,000."""
    some = {f"{n} owners": federated(n, "memory") for n in (2, 3, 8)} | {"3 owners, grpc": federated(3, "grpc")}
    found = present([dataset("susy_30k", 60, 4, bins or 24)])
    return [measure("susy", workload, POOLED | some, repetitions, {}) for workload in found]


def measure_paper(repetitions: int, bins: int | None) -> list[Row]:
    """The paper's first timing: 8,192 x 11 with its 200 trees of 4 levels, on rows like those of A."""
    workload = synthetic("paper", 8192, 4096, 11, 200)
    if bins:
        workload = Workload(workload.name, workload.X, workload.y, 200, 4, bins, workload.held_out)
    row = measure("paper", workload, POOLED | both_transports(), repetitions, {})
    row.extra["FederBoost's own, 3 owners on a LAN, seconds"] = 21.59
    return [row]


def measure_wan(repetitions: int, bins: int | None) -> list[Row]:
    """Time over a slow link beside what the link alone takes: rounds x round trip + bytes / bandwidth.

    Owners' links are lines of their own and work at the same time, so the bytes are those of the busiest owner.
    """
    both = [credit(name, bins) for name in ("give_me_some_credit", "default_credit_card")]
    workloads = [*both, dataset("susy_30k", 60, 4, bins or 24), synthetic("A", 8192, 4096, 11, 200)]
    name = f"3 owners, {WAN_TRANSPORT}, link"
    rows = []
    for workload in present(workloads):
        federated(3, WAN_TRANSPORT)(workload)  # compile
        with Stalls() as stalls:  # up to minutes each, so at most three
            runs = [federated(3, WAN_TRANSPORT, wan=True)(workload) for _ in range(min(repetitions, 3))]
        about = runs[-1].about
        on_the_way = about["rounds"] * ROUND_TRIP + about["busiest owner's bytes"] * 8 / BANDWIDTH
        seconds = [run.seconds for run in runs]
        row = Row("wan", workload.title, {"link alone": on_the_way, name: statistics.median(seconds)})
        row.bars = {name: 1.3}
        row.extra = {name: about, "repetitions": len(runs), "seconds": {name: seconds}, "stalls": stalls}
        rows.append(row)
        show(row)
    return rows


def measure_auc(repetitions: int, bins: int | None) -> list[Row]:
    """Held-out AUC with the paper's settings: first two thirds of the file against the rest, and random splits."""
    from sklearn.metrics import roc_auc_score

    del repetitions
    rows = []
    contenders = {XGBOOST: fit_xgboost, "pooled engine": fit_pooled, "3 owners": federated(3, "memory")}
    bars = {"give_me_some_credit": 0.8625, "default_credit_card": 0.7825}
    for workload in present(credit(name, bins, shuffled=False) for name in bars):
        scores: dict[str, list[float]] = {name: [] for name in contenders}
        n_rows = len(workload.y)
        orders = [np.arange(n_rows), *(np.random.default_rng(seed).permutation(n_rows) for seed in range(AUC_SEEDS))]
        for order in orders:
            n_train = len(order) * 2 // 3
            kept, held_out = order[:n_train], order[n_train:]
            part = Workload(workload.name, workload.X[kept], workload.y[kept], 20, 3, workload.bins)
            for name, fit in contenders.items():
                score = roc_auc_score(workload.y[held_out], fit(part).predict(workload.X[held_out]))
                scores[name].append(float(score))
        differences = np.subtract(scores["3 owners"], scores["pooled engine"])[1:]
        extra = {
            "splits": scores,
            "owners minus pooled engine": float(differences.mean()),
            "standard error": float(differences.std(ddof=1) / np.sqrt(AUC_SEEDS)),
            "standard deviation over random splits": float(np.std(scores["3 owners"][1:], ddof=1)),
        }
        for what, values in {
            "split in the order of the file": {name: s[0] for name, s in scores.items()},
            f"mean of {AUC_SEEDS} random splits": {name: statistics.mean(s[1:]) for name, s in scores.items()},
        }.items():
            bar = {"3 owners": bars[workload.name]}
            rows.append(Row("auc", f"{part.title}, {what}", values, "AUC", bar, extra))
            show(rows[-1])
    return rows


SECTIONS: dict[str, Callable[[int, int | None], list[Row]]] = {
    "A": measure_a, "B": measure_b, "owners": measure_owners, "susy": measure_susy, "paper": measure_paper,
    "wan": measure_wan, "auc": measure_auc,
}  # fmt: skip


# --- results ---------------------------------------------------------------------------------------------------------


def show(row: Row) -> None:
    """A few lines per result, as it comes."""
    stalls = f"  (this process stood still for {row.extra['stalls']} s)" if row.extra.get("stalls") else ""
    print(f"{row.section:7s} {row.what}{stalls}", flush=True)
    for name, value in row.values.items():
        ratio = f"  x {row.ratios[name]:.2f}" if name in row.ratios else ""
        bar = f"  bar {row.bars[name]:g}: {'met' if row.verdicts[name] else 'MISSED'}" if name in row.bars else ""
        about = row.extra.get(name, {})
        sent = (
            f"  {about['rounds']} rounds ({about['rounds per tree']:.2f} per tree), {about['bytes'] / 1e6:.2f} MB"
            if about
            else ""
        )
        auc = f"  AUC {row.extra['AUC'][name]:.4f}" if name in row.extra.get("AUC", {}) else ""
        print(f"        {name:28s} {value:9.4f}{ratio}{bar}{sent}{auc}", flush=True)


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


def merged(path: Path, fresh: list[Row]) -> list[Row]:
    """The rows of an earlier results file, with those of the sections that were run again replaced."""
    old = json.loads(path.read_text())["results"] if path.is_file() else []
    names = {f for f in Row.__dataclass_fields__ if f != "section"}
    kept = [Row(row["section"], **{name: row[name] for name in names}) for row in old]
    again = {row.section for row in fresh}
    rows = [row for row in kept if row.section not in again] + fresh
    return sorted(rows, key=lambda row: list(SECTIONS).index(row.section))


def markdown(rows: list[Row], about: dict[str, Any]) -> str:
    """The page with all tables."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [
        "# Benchmarks of horizontal.secure_sum",
        "",
        "Written by `python benchmarks/horizontal.py --json benchmarks/results/horizontal.json --markdown` and this",
        "page. All contenders of a section in one run, interleaved, medians; learning rate 0.3. Ratios are to pooled",
        "XGBoost (DMatrix and training, hist, 2 threads), over a WAN to what the link alone takes.",
        "",
        f"Measured {about['date']} on {about['processor']}, {about['cores']} cores; Python {about['python']},",
        f"{versions}; `OMP_WAIT_POLICY={about['OMP_WAIT_POLICY']}`.",
    ]
    for section in dict.fromkeys(row.section for row in rows):
        lines += ["", f"## {section[0].upper()}{section[1:]}"]
        for row in (row for row in rows if row.section == section):
            header = ["", "AUC" if row.unit == "AUC" else "seconds", "ratio", "bar", "rounds", "per tree", "MB"]
            stalls = f" (the process stood still for {row.extra['stalls']} s)" if row.extra.get("stalls") else ""
            lines += ["", f"{row.what}{stalls}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
            for name, value in row.values.items():
                about_run = row.extra.get(name, {})
                bar = f"{row.bars[name]:g} ({'met' if row.verdicts[name] else 'missed'})" if name in row.bars else ""
                cells = [
                    name,
                    f"{value:.4f}" if row.unit == "AUC" else f"{value:.3f}",
                    f"{row.ratios[name]:.2f}" if name in row.ratios else "",
                    bar,
                    f"{about_run['rounds']}" if about_run else "",
                    f"{about_run['rounds per tree']:.2f}" if about_run else "",
                    f"{about_run['bytes'] / 1e6:.2f}" if about_run else "",
                ]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"some of {', '.join(SECTIONS)}; default all")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--bins", type=int, help="bins for values, where the paper's are not wanted")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    wanted = [name for name in SECTIONS if name in (arguments.sections or SECTIONS)]
    rows = [row for name in wanted for row in SECTIONS[name](arguments.repetitions, arguments.bins)]
    about = machine()
    if arguments.json:
        rows = merged(arguments.json, rows)
        results = [{**asdict(row), "ratios": row.ratios, "verdicts": row.verdicts} for row in rows]
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"machine": about, "results": results}, indent=1) + "\n")
    if arguments.markdown:
        old = arguments.markdown.read_text() if arguments.markdown.is_file() else ""
        _, heading, explanation = old.partition(HOW_TO_READ)  # written by hand, kept
        arguments.markdown.write_text(markdown(rows, about) + (f"\n{heading}{explanation}" if heading else ""))


if __name__ == "__main__":
    main()
