"""The plain engine beside XGBoost (hist) and LightGBM: training, prediction, memory, start-up, growth.

Everything is measured side by side in one run, interleaved, so that a noisy machine disturbs all alike; medians of
five (of fifteen for the smallest). Absolute times mean little on a shared machine: read the ratios.

    python benchmarks/engine.py                         all of it (about 20 minutes on 2 cores)
    python benchmarks/engine.py --only train --quick    one part, fewer repetitions
    python benchmarks/engine.py --json benchmarks/results/engine.json --markdown docs/benchmarks.md

covtype needs HEDGEROW_DATA (a folder with covtype.parquet) and is left out, with a message, where that is not set.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# XGBoost's and LightGBM's idle threads otherwise spin and take the cores from whoever is measured next.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

TREES, BINS, LEARNING_RATE = 100, 256, 0.3
LIBRARIES = ("hedgerow", "xgboost", "lightgbm")
AUC_SPLITS = 8
HOW_TO_READ = "## How to read this"
BARS = {"training": 0.45, "with binning": 0.45, "prediction": 0.7, "peak memory": 1.2}


# --- data ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """Data with a fixed seed, and the depth its trees have."""

    name: str
    n_rows: int
    n_columns: int
    depth: int
    missing: float = 0.0

    @property
    def title(self) -> str:
        """How it is called in tables."""
        gaps = f", {self.missing:.0%} missing" if self.missing else ""
        return f"{self.name} {self.n_rows:,} x {self.n_columns}, depth {self.depth}{gaps}"

    def load(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Training rows and a fifth as many held-out rows (for covtype, a fifth of the training rows is held out)."""
        X, y = _covtype() if self.name == "covtype" else _synthetic(self.n_rows * 6 // 5, self.n_columns)
        if self.missing:
            X[np.random.default_rng(1).random(X.shape) < self.missing] = np.nan
        if self.name == "covtype":
            return X, y, X[:100_000], y[:100_000]
        return X[: self.n_rows], y[: self.n_rows], X[self.n_rows :], y[self.n_rows :]


def _synthetic(n_rows: int, n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import make_classification

    informative = min(8, n_columns)
    X, y = make_classification(n_rows, n_columns, n_informative=informative, n_redundant=0, random_state=0)
    return np.ascontiguousarray(X, np.float32), y.astype(np.float64)


def _covtype() -> tuple[np.ndarray, np.ndarray]:
    from pyarrow import parquet

    from hedgerow.datasets import find_dataset

    table = parquet.read_table(find_dataset("covtype"))
    y = table.column("label").to_numpy().astype(np.float64)
    X = np.column_stack([table.column(name).to_numpy() for name in table.column_names if name != "label"])
    order = np.random.default_rng(0).permutation(len(y))  # the file is in order of place
    return np.ascontiguousarray(X[order], np.float32), y[order]


def workloads(*, missing: bool) -> list[Workload]:
    shares = (0.0, 0.2) if missing else (0.0,)
    found = [Workload("synthetic", 50_000, 15, 4, m) for m in shares]
    found += [Workload("synthetic", 500_000, 28, 6, m) for m in shares]
    if (Path(os.environ.get("HEDGEROW_DATA", "")) / "covtype.parquet").is_file():
        found += [Workload("covtype", 500_000, 54, 6, m) for m in shares]
    else:
        print("covtype is left out: HEDGEROW_DATA names no folder with covtype.parquet", file=sys.stderr)
    return found


# --- the three libraries ---------------------------------------------------------------------------------------------


@dataclass
class Fitted:
    """A model, the seconds its two stages took, and how to predict with it."""

    bin_seconds: float
    train_seconds: float
    predict: Callable[[np.ndarray, int], np.ndarray]


def fit_hedgerow(X: np.ndarray, y: np.ndarray, depth: int, threads: int, trees: int) -> Fitted:
    from hedgerow.engine.binning import BinMapper
    from hedgerow.engine.boosting import train
    from hedgerow.engine.losses import BoostingParams
    from hedgerow.engine.table import read_table

    start = time.perf_counter()
    table = read_table(X)
    mapper = BinMapper.fit(table, BINS, n_threads=threads)
    codes = mapper.transform(table, n_threads=threads)
    binned = time.perf_counter()
    params = BoostingParams(n_iterations=trees, learning_rate=LEARNING_RATE, max_depth=depth, n_threads=threads)
    model = train(params, mapper, codes, y).ensemble
    end = time.perf_counter()
    return Fitted(binned - start, end - binned, lambda rows, n: model.raw_scores(rows, n_threads=n)[:, 0])


def fit_xgboost(X: np.ndarray, y: np.ndarray, depth: int, threads: int, trees: int) -> Fitted:
    import xgboost

    start = time.perf_counter()
    matrix = xgboost.QuantileDMatrix(X, y, max_bin=BINS, nthread=threads)
    binned = time.perf_counter()
    parameters = {
        "objective": "binary:logistic", "tree_method": "hist", "max_bin": BINS, "max_depth": depth,
        "eta": LEARNING_RATE, "nthread": threads,
    }  # fmt: skip
    booster = xgboost.train(parameters, matrix, trees)
    end = time.perf_counter()

    def predict(rows: np.ndarray, n: int) -> np.ndarray:
        booster.set_param({"nthread": n})
        return booster.inplace_predict(rows, predict_type="margin")

    return Fitted(binned - start, end - binned, predict)


def fit_lightgbm(X: np.ndarray, y: np.ndarray, depth: int, threads: int, trees: int) -> Fitted:
    import lightgbm

    start = time.perf_counter()
    parameters = {
        "max_bin": BINS - 1, "num_threads": threads, "verbose": -1, "objective": "binary", "num_leaves": 2**depth,
        "max_depth": depth, "learning_rate": LEARNING_RATE, "lambda_l2": 1.0, "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": 1.0,
    }  # fmt: skip
    data = lightgbm.Dataset(X, y, params=parameters, free_raw_data=False).construct()
    binned = time.perf_counter()
    booster = lightgbm.train(parameters, data, trees)
    end = time.perf_counter()
    return Fitted(binned - start, end - binned, lambda rows, n: booster.predict(rows, raw_score=True, num_threads=n))


FIT: dict[str, Callable[..., Fitted]] = {"hedgerow": fit_hedgerow, "xgboost": fit_xgboost, "lightgbm": fit_lightgbm}


# --- parts of the benchmark ------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One line of the table: seconds (or bytes) per library and ratios of ours to theirs."""

    part: str
    what: str
    threads: int
    values: dict[str, float]
    unit: str = "s"
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def ratios(self) -> dict[str, float]:
        """Ours to each of theirs."""
        return {name: self.values["hedgerow"] / self.values[name] for name in LIBRARIES[1:] if name in self.values}


def measure_training(repetitions: int, trees: int) -> list[Row]:
    """Training alone and with binning; held-out AUC beside it."""
    rows: list[Row] = []
    for workload in workloads(missing=True):
        X, y, X_test, y_test = workload.load()
        for threads in (2, 1):
            seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in LIBRARIES}
            for name in LIBRARIES:  # compile, load libraries, touch memory
                FIT[name](X[:2000], y[:2000], workload.depth, threads, 2)
            # Short runs are disturbed most by whatever else the machine does: more of them.
            for _ in range(repetitions * (3 if workload.n_rows < 100_000 else 1)):
                for name in LIBRARIES:
                    fitted = FIT[name](X, y, workload.depth, threads, trees)
                    seconds[name].append((fitted.bin_seconds, fitted.train_seconds))
            trained = {name: statistics.median(train for _, train in pairs) for name, pairs in seconds.items()}
            whole = {name: statistics.median(sum(pair) for pair in pairs) for name, pairs in seconds.items()}
            rows.append(Row("training", workload.title, threads, trained))
            rows.append(Row("with binning", workload.title, threads, whole))
            for row in rows[-2:]:
                show(row)
        rows.append(measure_auc(workload, np.concatenate([X, X_test]), np.concatenate([y, y_test]), trees))
        show(rows[-1])
    return rows


def measure_auc(workload: Workload, X: np.ndarray, y: np.ndarray, trees: int) -> Row:
    """Held-out AUC, the mean over several random splits: on one split the last digits of any library are luck."""
    from sklearn.metrics import roc_auc_score

    if workload.name == "covtype":
        X, y = X[: workload.n_rows], y[: workload.n_rows]  # the rest are the first rows once more
    compared = LIBRARIES[:2]  # LightGBM's trees have other shapes, so its AUC is no yardstick
    scores: dict[str, list[float]] = {name: [] for name in compared}
    for split in range(AUC_SPLITS):
        order = np.random.default_rng(split).permutation(len(y))
        held_out, kept = order[: len(y) // 6], order[len(y) // 6 :]
        for name in compared:
            fitted = FIT[name](X[kept], y[kept], workload.depth, 2, trees)
            scores[name].append(float(roc_auc_score(y[held_out], fitted.predict(X[held_out], 2))))
    differences = np.subtract(scores["hedgerow"], scores["xgboost"])
    error = float(differences.std(ddof=1) / np.sqrt(AUC_SPLITS))
    extra = {"splits": scores, "ours minus xgboost": float(differences.mean()), "standard error": error}
    return Row("held-out AUC", workload.title, 2, {k: statistics.mean(v) for k, v in scores.items()}, "AUC", extra)


def measure_prediction(repetitions: int, trees: int) -> list[Row]:
    """Raw scores of 500,000 float32 rows."""
    rows: list[Row] = []
    for workload in workloads(missing=True):
        if workload.n_rows < 500_000:
            continue
        X, y, _, _ = workload.load()
        models = {name: FIT[name](X[:100_000], y[:100_000], workload.depth, 2, trees) for name in LIBRARIES}
        for threads in (2, 1):
            seconds: dict[str, list[float]] = {name: [] for name in LIBRARIES}
            for name in LIBRARIES:
                models[name].predict(X[:5000], threads)
            for _ in range(repetitions):
                for name in LIBRARIES:
                    start = time.perf_counter()
                    models[name].predict(X, threads)
                    seconds[name].append(time.perf_counter() - start)
            rows.append(
                Row("prediction", workload.title, threads, {name: statistics.median(s) for name, s in seconds.items()})
            )
            show(rows[-1])
    return rows


def measure_memory(trees: int) -> list[Row]:
    """Peak resident memory of a process that loads the data, bins and trains; one process per library."""
    rows: list[Row] = []
    for workload in workloads(missing=False):
        X, y, _, _ = workload.load()
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder) / "X.npy", X)
            np.save(Path(folder) / "y.npy", y)
            values = {}
            for name in LIBRARIES:
                command = [sys.executable, __file__, "--child", name, folder, str(workload.depth), str(trees)]
                values[name] = float(json.loads(_run(command))["peak_bytes"])
        rows.append(Row("peak memory", workload.title, 2, values, unit="bytes"))
        show(rows[-1])
    return rows


def memory_child(name: str, folder: str, depth: int, trees: int) -> None:
    """Run in a process of its own by `measure_memory`."""
    X, y = np.load(Path(folder) / "X.npy"), np.load(Path(folder) / "y.npy")
    FIT[name](X, y, depth, 2, trees)
    print(json.dumps({"peak_bytes": peak_resident_bytes()}))


def peak_resident_bytes() -> int:
    """High-water mark of this process; getrusage would also count the parent's memory from before the exec."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


START_UP = """
import time; start = time.perf_counter()
import numpy as np
rng = np.random.default_rng(0)
X, y = rng.normal(size=(2000, 15)).astype(np.float32), rng.integers(0, 2, 2000)
import sklearn.base
imported = time.perf_counter()
from hedgerow import BoostedTreesClassifier
BoostedTreesClassifier(max_iter=5).fit(X, y).predict(X)
first = time.perf_counter()
BoostedTreesClassifier(max_iter=5).fit(X, y).predict(X)
print(imported - start, first - imported, time.perf_counter() - first)
"""


def measure_start_up() -> list[Row]:
    """First fit and predict of a process: with nothing compiled yet, and with the cache of an earlier process.

    What importing numpy and scikit-learn takes is shown apart: it is the same without us.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        for what in ("nothing compiled", "compiled before", "compiled before"):
            words = _run([sys.executable, "-c", START_UP], environment).split()
            imports, first, again = (float(word) for word in words)
            values = {"hedgerow": first - again, "importing scikit-learn": imports}
            rows.append(Row("first fit and predict", what, 2, values))
            show(rows[-1])
    return rows


def measure_growth(trees: int) -> list[Row]:
    """How training time grows with rows, columns and depth."""
    rows: list[Row] = []
    sizes = [
        *((n, 28, 6) for n in (31_250, 62_500, 125_000, 250_000, 500_000)),
        *((125_000, columns, 6) for columns in (7, 14, 56, 112)),
        *((125_000, 28, depth) for depth in (2, 4, 8, 10)),
    ]
    for n_rows, n_columns, depth in sizes:
        X, y = _synthetic(n_rows, n_columns)
        seconds: dict[str, list[float]] = {name: [] for name in LIBRARIES}
        for _ in range(3):
            for name in LIBRARIES:
                seconds[name].append(FIT[name](X, y, depth, 2, trees).train_seconds)
        medians = {name: statistics.median(s) for name, s in seconds.items()}
        rows.append(Row("growth", f"{n_rows:,} x {n_columns}, depth {depth}, {trees} trees", 2, medians))
        show(rows[-1])
    return rows


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)  # noqa: S603 - our own script and interpreter
    if finished.returncode:
        raise SystemExit(f"a measuring process failed:\n{finished.stderr}")
    return finished.stdout.strip().splitlines()[-1]


# --- results ---------------------------------------------------------------------------------------------------------


def show(row: Row) -> None:
    """One line per result, as it comes."""
    scale, digits = (1e6, 0) if row.unit == "bytes" else (1.0, 4)
    values = "  ".join(f"{name} {value / scale:.{digits}f}" for name, value in row.values.items())
    ratios = "  ".join(f"/{name} {ratio:.3f}" for name, ratio in row.ratios.items())
    if row.unit == "AUC":
        ratios = f"ours - xgboost {row.extra['ours minus xgboost']:+.4f} +- {row.extra['standard error']:.4f}"
    print(f"{row.part:22s} {row.what:48s} {row.threads} thr  {values}  {ratios}", flush=True)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    from hedgerow import __version__

    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    packages = ("numpy", "numba", "xgboost-cpu", "lightgbm", "scikit-learn")
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "versions": {"hedgerow": __version__, **{name: importlib.metadata.version(name) for name in packages}},
        "OMP_WAIT_POLICY": os.environ["OMP_WAIT_POLICY"],
    }


def markdown(rows: list[Row], about: dict[str, Any]) -> str:
    """The page for docs/benchmarks.md."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [
        "# Benchmarks of the plain engine",
        "",
        "The tables are written by",
        "`make bench ARGS='--markdown docs/benchmarks.md --json benchmarks/results/engine.json'`.",
        "All libraries in one run, interleaved, medians; 100 trees, 256 bins, learning rate 0.3 unless said otherwise.",
        "Ratios are ours to theirs: below 1 we are faster, or use less. LightGBM grows leaf by leaf (2^depth leaves),",
        "so its trees are not the same; XGBoost's are level-wise like ours.",
        "",
        f"Measured {about['date']} on {about['processor']}, {about['cores']} cores, {about['memory_gib']} GiB; Python",
        f"{about['python']}, {versions}; `OMP_WAIT_POLICY={about['OMP_WAIT_POLICY']}`.",
    ]
    for part in dict.fromkeys(row.part for row in rows):
        some = [row for row in rows if row.part == part]
        names = list(some[0].values)
        unit = {"s": "seconds", "bytes": "MB", "AUC": "AUC"}[some[0].unit]
        compared = ["ours minus xgboost", "standard error"] if part == "held-out AUC" else list(some[0].ratios)
        titles = compared if part == "held-out AUC" else [f"ratio to {name}" for name in compared]
        header = ["workload", "threads", *(f"{name}, {unit}" for name in names), *titles]
        bar = f" (bar: at most {BARS[part]} of XGBoost)" if part in BARS else ""
        lines += ["", f"## {part[0].upper()}{part[1:]}{bar}", ""]
        lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        for row in some:
            scale, digits = (1e6, 0) if row.unit == "bytes" else (1.0, 4 if row.unit == "AUC" else 3)
            cells = [row.what, str(row.threads), *(f"{row.values[name] / scale:.{digits}f}" for name in names)]
            if part == "held-out AUC":
                cells += [f"{row.extra[name]:+.4f}" for name in compared]
            else:
                cells += [f"{row.ratios[name]:.2f}" for name in compared]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["train", "predict", "memory", "start", "growth"], action="append")
    parser.add_argument("--quick", action="store_true", help="one repetition, 20 trees")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, folder, depth, trees = arguments.child
        memory_child(name, folder, int(depth), int(trees))
        return
    repetitions, trees = (1, 20) if arguments.quick else (5, TREES)
    parts: dict[str, Callable[[], list[Row]]] = {
        "train": lambda: measure_training(repetitions, trees),
        "predict": lambda: measure_prediction(repetitions, trees),
        "memory": lambda: measure_memory(trees),
        "start": measure_start_up,
        "growth": lambda: measure_growth(20),
    }
    rows = [row for name, part in parts.items() if not arguments.only or name in arguments.only for row in part()]
    about = machine()
    if arguments.json:
        results = [{**asdict(row), "ratios": row.ratios} for row in rows]
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"machine": about, "results": results}, indent=1) + "\n")
    if arguments.markdown:
        old = arguments.markdown.read_text() if arguments.markdown.is_file() else ""
        _, heading, explanation = old.partition(HOW_TO_READ)  # written by hand, kept
        arguments.markdown.write_text(markdown(rows, about) + (f"\n{heading}{explanation}" if heading else ""))


if __name__ == "__main__":
    main()
