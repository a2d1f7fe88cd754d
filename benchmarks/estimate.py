"""`hedgerow estimate` beside what then happens: seconds, rounds, bytes and memory of every protocol, on A and B.

    make bench-estimate                                        all (6 to 8 minutes on 2 quiet cores)
    python benchmarks/estimate.py vertical.secret_shared       one protocol
    python benchmarks/estimate.py --only A --json benchmarks/results/estimate.json

    A    8,192 x 11, 32 bins, 12 trees of 4 levels, 3 parties
    B    50,000 x 15, 32 bins, 10 trees of 4 levels, 3 parties

The estimate sees a schema (bounds, classes) and numbers of rows, nothing else; then the same job is trained on the rows
of the benchmarks, by local processes over mutual TLS. A ratio is predicted by measured; the bars are a factor of 1.5
for seconds and memory and of 1.1 for rounds and bytes, either way. Measured seconds are the median of the repetitions,
of which one comes before the estimate and the others after it: a machine that gets slower meanwhile is not held against
it. A run of more than ten seconds is measured once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from side_by_side import synthetic

from hedgerow import Federation, Schema
from hedgerow.node.estimate import estimate
from hedgerow.node.job_file import JobFile, Seat
from hedgerow.node.links import longest_chain
from hedgerow.node.made_up import Cast, cast_of
from hedgerow.node.peaks import peaks_of_processes

CASES = {"A": (8_192, 11, 12), "B": (50_000, 15, 10)}
TREES: dict[str, Any] = {"max_depth": 4, "learning_rate": 0.3, "max_bins": 32}
NAMES = ("anna", "ben", "carla")
BOUND = 12.0
LONG_SECONDS = 10.0
BARS = {"seconds": 1.5, "memory": 1.5, "rounds": 1.1, "bytes": 1.1}


def options(schema: Schema) -> dict[str, dict[str, Any]]:
    """All protocols, with what each needs; the schema is of all columns."""
    return {
        "horizontal.secure_sum": {},
        "vertical.bucket_rr": {"epsilon": 4.0, "edges": "quantile"},
        "vertical.noised_gradients": {"epsilon": 4.0, "delta": 1e-5},
        "vertical.homomorphic": {},
        "vertical.masked_gradients": {"sigma1": 0.1, "sigma2": 0.1, "C": 1.0, "accept_known_leaks": True},
        "vertical.private_histograms": {"epsilon": 4.0, "delta": 1e-5, "schema": schema},
        "vertical.secret_shared": {},
        "vertical.mp_fedxgb": {"accept_known_leaks": True},
    }


class Taken(NamedTuple):
    """What a run takes, predicted or measured."""

    seconds: float
    rounds: float
    bytes: float
    memory: float


def tables(
    protocol: str, X: np.ndarray, y: np.ndarray, names: tuple[str, ...] = NAMES
) -> tuple[Federation, dict[str, list[int]], dict[str, int]]:
    """The federation, which columns each party has, and how many rows."""
    if protocol.startswith("horizontal"):
        parts = np.array_split(np.arange(len(X)), len(names))
        data = {name: (named(X[rows]), y[rows]) for name, rows in zip(names, parts, strict=True)}
        everything = list(range(X.shape[1]))
        counts = {name: len(rows) for name, rows in zip(names, parts, strict=True)}
        return Federation.horizontal(data), dict.fromkeys(names, everything), counts
    parts = np.array_split(np.arange(X.shape[1]), len(names))
    split = {name: part.tolist() for name, part in zip(names, parts, strict=True)}
    columns = named(X)
    data = {name: columns.select([f"x{k}" for k in own]) for name, own in split.items()}
    return Federation.vertical(data, labels=(names[0], y)), split, dict.fromkeys(names, len(X))


def named(X: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.table({f"x{k}": X[:, k] for k in range(X.shape[1])})


def cast(protocol: str, columns: dict[str, list[int]], given: dict[str, Any]) -> Cast:
    schemas = {
        name: Schema.from_public(bounds={f"x{k}": (-BOUND, BOUND) for k in own}, classes=[0, 1])
        for name, own in columns.items()
    }
    is_rows = protocol.startswith("horizontal")
    seats = {name: Seat("owner" if is_rows else None) for name in NAMES}
    if not is_rows:
        seats[NAMES[0]] = Seat("label holder")
    job = JobFile(Path("benchmark"), protocol, MappingProxyType(seats), options=MappingProxyType(given))
    return cast_of(job, schemas)


def measured(federation: Federation, protocol: str, given: dict[str, Any], transport: str = "grpc") -> Taken:
    with peaks_of_processes() as peaks:
        run = federation.fit(protocol, transport=transport, **given)
    sent = sum(meter.total().bytes_sent for meter in run.meters.values())
    memory = max(peaks.get(name, 0) for name in run.ledgers)
    return Taken(run.seconds, longest_chain(run.ledgers).rounds, sent, memory)


def middle(runs: list[Taken]) -> Taken:
    return Taken(*(statistics.median(values) for values in zip(*runs, strict=True)))


def compared(case: str, protocol: str, repetitions: int, seconds: float) -> dict[str, Any]:
    n_rows, n_columns, trees = CASES[case]
    workload = synthetic(case, n_rows, 0, n_columns, trees)
    X, y = np.clip(workload.X, -BOUND, BOUND), workload.y.astype(np.int64)
    schema = Schema.from_public(bounds={f"x{k}": (-BOUND, BOUND) for k in range(n_columns)}, classes=[0, 1])
    given = {**TREES, "n_estimators": trees, **options(schema)[protocol]}
    federation, columns, counts = tables(protocol, X, y)
    runs = [measured(federation, protocol, given)]
    began = time.perf_counter()
    found = estimate(cast(protocol, columns, given), counts, seconds=seconds)
    took = time.perf_counter() - began
    parties = found.whole.parties.values()
    predicted = Taken(
        found.seconds,
        found.whole.rounds,
        sum(about.bytes_sent for about in parties),
        max(about.memory for about in parties),
    )
    while len(runs) < repetitions and sum(run.seconds for run in runs) < LONG_SECONDS:
        runs.append(measured(federation, protocol, given))
    real = middle(runs)
    ratios = {name: getattr(predicted, name) / max(getattr(real, name), 1e-9) for name in Taken._fields}
    return {
        "case": case,
        "protocol": protocol,
        "predicted": predicted._asdict(),
        "measured": real._asdict(),
        "ratios": ratios,
        "outside": [name for name, bar in BARS.items() if not 1 / bar <= ratios[name] <= bar],
        "largest_probe": max(probe.share for probe in found.probes),
        "estimate_took": took,
    }


def line(row: dict[str, Any]) -> str:
    cells = [f"| {row['case']} | {row['protocol']}"]
    for name, digits in (("seconds", 2), ("rounds", 0)):
        cells.append(
            f"{row['predicted'][name]:.{digits}f} / {row['measured'][name]:.{digits}f} = {row['ratios'][name]:.2f}"
        )
    for name in ("bytes", "memory"):
        pair = f"{row['predicted'][name] / 1e6:.2f} / {row['measured'][name] / 1e6:.2f}"
        cells.append(f"{pair} = {row['ratios'][name]:.3f}")
    cells += [f"{row['largest_probe']:.0%}", f"{row['estimate_took']:.0f}", ", ".join(row["outside"]) or "-"]
    return " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocols", nargs="*", help="only these")
    parser.add_argument("--only", choices=tuple(CASES), help="only this workload")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="what an estimate may take, about")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no row after that")
    parser.add_argument("--json", type=Path, help="write what came out there")
    asked = parser.parse_args()
    any_schema = Schema.from_public(bounds={"x0": (0, 1)}, classes=[0, 1])
    wanted = asked.protocols or list(options(any_schema))
    print("| | protocol | seconds | rounds | MB sent | peak MB of a party | probed rows | took s | outside |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows, until = [], time.monotonic() + 60.0 * asked.minutes
    cases = [(case, protocol) for case in ([asked.only] if asked.only else CASES) for protocol in wanted]
    for case, protocol in cases:
        if time.monotonic() < until:
            rows.append(compared(case, protocol, asked.repetitions, asked.seconds))
            print(line(rows[-1]), flush=True)
    if len(rows) < len(cases):
        print(f"\n{len(cases) - len(rows)} of {len(cases)} rows were left out: {asked.minutes:g} minutes are over.")
    print()
    for name, bar in BARS.items():
        found = sorted(row["ratios"][name] for row in rows)
        within = sum(1 / bar <= ratio <= bar for ratio in found)
        print(f"{name}: {within} of {len(rows)} within {bar:g}; from {found[0]:.2f} to {found[-1]:.2f}")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(bool([row for row in rows if row["outside"]]))


if __name__ == "__main__":
    main()
