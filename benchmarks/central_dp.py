"""central.dpboost beside LightGBM: seconds per tree on the same rows.

Both train 50 trees of depth 6 with the squared loss on rows that are read and binned already (noise, choices and the
drawing of subsets count as training). LightGBM sees all rows in each tree, has 63 leaves and, in one column, as many
bins as ours, in the other its own 255. Everything is measured side by side in one run, interleaved, so that a noisy
machine disturbs all alike; medians. Absolute times mean little on a shared machine: read the ratios.

    python benchmarks/central_dp.py                                  all datasets (about 5 minutes on 2 cores)
    python benchmarks/central_dp.py adult susy_30k --repetitions 9   some of them, more repetitions
    python benchmarks/central_dp.py --large                          also 1,000,000 x 100, with peak memory
    python benchmarks/central_dp.py --threads 1 --clock cpu          processor time, for a machine that others use too
    python benchmarks/central_dp.py --json benchmarks/results/central_dp.json

All datasets but adult and the synthetic ones need HEDGEROW_DATA (a folder of Parquet files) and are left out, with a
message, where that is not set. Bounds are round numbers just outside each column's values: good enough for timing on
public data, not a pattern for private data.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import math
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# LightGBM's idle threads otherwise spin and take the cores from whoever is measured next.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

TREES, DEPTH, EPSILON = 50, 6, 2.0
DATASETS = ("adult", "adult_123", "covtype", "cod_rna", "w8a", "susy_30k", "abalone", "protein_casp", "synthetic")
BAR = 1.0
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


# --- data ------------------------------------------------------------------------------------------------------------


@dataclass
class Data:
    """A table, labels in -1 to 1 for LightGBM, and what is public about them."""

    X: Any
    y: np.ndarray
    schema: Any
    numbers: np.ndarray
    """The table as LightGBM gets it: levels as codes."""
    categorical: list[int]

    @property
    def size(self) -> str:
        """Rows and columns."""
        return f"{len(self.y):,} x {self.numbers.shape[1]}"


def load(name: str) -> Data:
    """One of the datasets, all rows."""
    if name.startswith("synthetic"):
        n_rows, n_columns = (1_000_000, 100) if name.endswith("large") else (200_000, 50)
        return _numeric(*_synthetic(n_rows, n_columns))
    if name in {"adult", "adult_123"}:
        return _adult(one_hot=name == "adult_123")
    from pyarrow import parquet

    from hedgerow.datasets import find_dataset

    table = parquet.read_table(find_dataset(name))
    y = table.column("label").to_numpy().astype(np.float64)
    columns = []
    for column in table.drop_columns(["label"]).columns:
        coded = column.combine_chunks().dictionary_encode().indices if _is_text(column.type) else column
        columns.append(coded.to_numpy().astype(np.float32))
    order = np.random.default_rng(0).permutation(len(y))  # some files are in order of class or place
    return _numeric(np.column_stack(columns)[order], y[order])


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)


def _synthetic(n_rows: int, n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import make_classification

    X, y = make_classification(n_rows, n_columns, n_informative=8, n_redundant=0, random_state=0)
    return np.ascontiguousarray(X, np.float32), y.astype(np.float64)


def _numeric(X: np.ndarray, y: np.ndarray) -> Data:
    from hedgerow.schema import Schema

    bounds, integers = {}, []
    for j in range(X.shape[1]):
        low, high = _round_outwards(float(np.nanmin(X[:, j])), float(np.nanmax(X[:, j])))
        bounds[f"x{j}"] = (low, high)
        whole = bool((X[:, j] == np.floor(X[:, j])).all())
        integers += [f"x{j}"] if whole and float(low).is_integer() and float(high).is_integer() else []
    classes = [0, 1] if set(np.unique(y)) <= {0.0, 1.0} else None
    label_bounds = None if classes else _round_outwards(float(y.min()), float(y.max()))
    schema = Schema.from_public(bounds=bounds, integers=integers, classes=classes, label_bounds=label_bounds)
    low, high = (0.0, 1.0) if classes else label_bounds
    return Data(X, y, schema, X, []) if classes else Data(X, np.clip(y, low, high), schema, X, [])


def _round_outwards(low: float, high: float) -> tuple[float, float]:
    """The same range or a little more, in steps of a tenth of its order of magnitude."""
    if low >= high:
        return low, low + 1.0
    step = 10.0 ** math.floor(math.log10(high - low)) / (10.0 if high - low > 100 else 1.0)
    return math.floor(low / step) * step, math.ceil(high / step) * step


def _adult(*, one_hot: bool) -> Data:
    import pyarrow as pa

    from hedgerow.datasets import adult_schema, load_adult
    from hedgerow.schema import Schema

    X, y = load_adult("train")
    coded = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in X.columns]
    levels = [pa.types.is_dictionary(c.type) for c in coded]
    numbers = [
        (c.indices if by_level else c).to_numpy(zero_copy_only=False).astype(np.float32)
        for c, by_level in zip(coded, levels, strict=True)
    ]
    if not one_hot:
        return Data(X, y.astype(np.float64), adult_schema(), np.column_stack(numbers), np.flatnonzero(levels).tolist())
    # As in LIBSVM's a9a: numbers cut into five, levels one by one.
    wide = []
    for values, by_level in zip(numbers, levels, strict=True):
        cuts = (
            np.unique(values[~np.isnan(values)])
            if by_level
            else np.unique(np.quantile(values, [0, 0.2, 0.4, 0.6, 0.8]))
        )
        place = values if by_level else cuts[np.searchsorted(cuts, values, side="right") - 1]
        wide += [place == cut for cut in cuts]
    X_wide = np.column_stack(wide).astype(np.float32)
    names = [f"x{j}" for j in range(X_wide.shape[1])]
    schema = Schema.from_public(bounds=dict.fromkeys(names, (0, 1)), integers=names, classes=[0, 1])
    return Data(X_wide, y.astype(np.float64), schema, X_wide, [])


# --- the two libraries -----------------------------------------------------------------------------------------------


def seconds_of_hedgerow(data: Data, threads: int, trees: int, clock: str) -> float:
    from hedgerow.crypto.csprng import SecureRandom
    from hedgerow.protocols.central.dpboost.fit import CentralTraining
    from hedgerow.protocols.central.dpboost.settings import DPBoostSettings

    settings = DPBoostSettings(epsilon=EPSILON, n_trees=trees, trees_per_ensemble=TREES, max_depth=DEPTH)
    training = CentralTraining(data.schema, settings, SecureRandom(), threads)
    records = training.load(training.read(data.X, data.y))
    start = CLOCKS[clock]()
    training.boost(records)
    return (CLOCKS[clock]() - start) / trees


def seconds_of_lightgbm(data: Data, threads: int, trees: int, bins: int, clock: str) -> float:
    import lightgbm

    parameters = {
        "objective": "regression", "num_leaves": 63, "max_depth": DEPTH, "learning_rate": 0.1, "lambda_l2": 0.1,
        "num_threads": threads, "max_bin": bins, "verbose": -1,
    }  # fmt: skip
    y = 2.0 * (data.y - data.y.min()) / (data.y.max() - data.y.min()) - 1.0
    dataset = lightgbm.Dataset(
        data.numbers, y, params=parameters, categorical_feature=data.categorical, free_raw_data=False
    ).construct()
    start = CLOCKS[clock]()
    lightgbm.train(parameters, dataset, trees)
    return (CLOCKS[clock]() - start) / trees


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One dataset: milliseconds per tree."""

    dataset: str
    size: str
    hedgerow: float
    lightgbm_same_bins: float
    lightgbm: float
    peak_megabytes: float | None = None

    @property
    def ratio(self) -> float:
        """Ours to LightGBM's with as many bins."""
        return self.hedgerow / self.lightgbm_same_bins

    def __str__(self) -> str:
        ours = f"{self.hedgerow:9.2f} {self.lightgbm_same_bins:9.2f} {self.lightgbm:9.2f}"
        memory = f"   peak {self.peak_megabytes:,.0f} MB" if self.peak_megabytes else ""
        return (
            f"{self.dataset:16} {self.size:>17} {ours} {self.ratio:7.2f} {self.hedgerow / self.lightgbm:7.2f}{memory}"
        )


def measure(name: str, threads: int, repetitions: int, clock: str) -> Row:
    from hedgerow.protocols.central.dpboost.settings import DPBoostSettings

    bins = DPBoostSettings(epsilon=1.0).max_bins
    data = load(name)
    large = name.endswith("large")
    peak = None
    seconds: dict[str, list[float]] = {"hedgerow": [], "same": [], "lightgbm": []}
    seconds_of_hedgerow(data, threads, 5, clock)  # compile, load libraries, touch memory
    if large:
        seconds_of_hedgerow(data, threads, TREES, clock)
        peak = _peak_megabytes()  # before LightGBM makes its own copy
    seconds_of_lightgbm(data, threads, 3, bins, clock)
    for _ in range(1 if large else repetitions):
        seconds["hedgerow"].append(seconds_of_hedgerow(data, threads, TREES, clock))
        seconds["same"].append(seconds_of_lightgbm(data, threads, TREES, bins, clock))
        seconds["lightgbm"].append(seconds_of_lightgbm(data, threads, TREES, 255, clock))
    ours, same, theirs = (1000.0 * statistics.median(values) for values in seconds.values())
    return Row(name, data.size, ours, same, theirs, peak)


def _peak_megabytes() -> float:
    """High-water mark of this process."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=DATASETS, help=", ".join(DATASETS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: of all threads together")
    parser.add_argument("--large", action="store_true", help="also 1,000,000 x 100")
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args()
    where = f"{options.threads} threads" if options.threads > 1 else "1 thread"
    what = f"milliseconds ({options.clock}) per tree, {where}, {TREES} trees of depth {DEPTH}"
    print(f"{what}; bar: at most {BAR:g}")
    print(
        f"{'dataset':16} {'rows x columns':>17} {'hedgerow':>9} {'LightGBM':>9} {'255 bins':>9} {'ratio':>7} {'255':>7}"
    )
    rows = []
    for name in [*options.datasets, *(["synthetic_large"] if options.large else [])]:
        try:
            rows.append(measure(name, options.threads, options.repetitions, options.clock))
        except FileNotFoundError as reason:
            print(f"{name} is left out: {reason}", file=sys.stderr)
            continue
        print(rows[-1], flush=True)
    if options.json:
        versions = {name: importlib.metadata.version(name) for name in ("hedgerow", "lightgbm", "numpy")}
        about = {
            "when": dt.datetime.now(dt.UTC).date().isoformat(),
            "machine": platform.machine(),
            "versions": versions,
        }
        text = json.dumps({"about": about, "rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}, indent=1)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
