"""vertical.homomorphic and its bars: two sections of vertical.py.

    homomorphic  A, B, default_credit_card, adult (one-hot, 6 levels) and a million rows: processor seconds per tree of
                 all parties together, in memory and over gRPC, with peaks of memory. Bytes of a training beside the
                 formula, plain and compressed. The first training of a machine, in a process of its own with an empty
                 folder for compiled kernels
    schemes      ElGamal beside Okamoto-Uchiyama of 2,048 bits in turn, and beside the package phe

32 bins, trees of 4 levels unless said. Seconds per tree are those of the whole training by its number of trees: random
points of rows and tables, which are made once, are in them. Over gRPC a party's processor seconds are those of its
process from its start on. default_credit_card needs HEDGEROW_DATA; without it it is left out, with a message.

A tree with phe would take minutes, so its seconds are counted: what one operation takes in a sample, times how many a
tree of B has. They are too few rather than too many: every row is added to its bins at the root only.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from by_columns import PARTIES, federated
from side_by_side import (
    Fitted,
    MeasuredRow,
    Workload,
    measure_in_turn,
    say,
    show_row,
    synthetic,
    table,
)
from vertical_protocols import BINS, HOMOMORPHIC, SCHEMES

# The experiments know the datasets; they are no package that is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

PROCESSOR, WALL = "processor seconds per tree, all parties", "seconds per tree"
MOST_REPETITIONS = 3
TREES_OF_SCHEMES, OTHER = 3, "ou 2048"
PHE, PHE_BITS = "phe 2048, counted", 2048
WALL_ON_B, TO_OTHER, TO_PHE, OF_FORMULA, COLD = 1.0, 1 / 4, 1 / 100, 1.02, 40.0
FIRST_RUN = "first training, nothing compiled"
CREDIT = "default_credit_card"


class Case(NamedTuple):
    """A table, how it is divided and grown, and the bar in processor seconds per tree."""

    make: Callable[[], Workload]
    parties: tuple[str, ...]
    bar: float
    once: bool = False


def made(name: str, n_rows: int, n_columns: int, trees: int = 10) -> Workload:
    return dataclasses.replace(synthetic(name, n_rows, 0, n_columns, trees), bins=BINS, held_out=None)


def credit() -> Workload:
    from experiments.federboost.datasets import load

    data = load(CREDIT)
    return Workload(data.name, data.X, data.y, 10, 4, BINS)


def adult() -> Workload:
    """Levels as columns of zeros and ones, as the experiments of MP-FedXGB have them."""
    from experiments.mp_fedxgb.datasets import load

    data = load("adult")
    return Workload("adult, one-hot", data.X, data.y.astype(np.float64), 10, 6, BINS)


CASES = {
    "A": Case(functools.partial(made, "A", 8_192, 11), PARTIES, 0.5),
    "B": Case(functools.partial(made, "B", 50_000, 15), PARTIES, 1.3),
    CREDIT: Case(credit, PARTIES[:2], 1.0),
    "adult": Case(adult, PARTIES[:2], 1.5),
    "million": Case(functools.partial(made, "million", 1_000_000, 30, 2), PARTIES[:2], 15.0, once=True),
}
OTHERS = {
    "A": "SecretFlow's SGB, Okamoto-Uchiyama 2048: 3.3 seconds per tree (measured, a machine of this kind)",
    "B": "SecretFlow's SGB, Okamoto-Uchiyama 2048: 4.3 seconds per tree (measured, a machine of this kind)",
}


def trained(transport: str, parties: tuple[str, ...] = PARTIES, **options: Any) -> Callable[[Workload], Fitted]:
    return federated(
        HOMOMORPHIC, transport, parties=parties, watched=True, look=shape_and_traffic, max_bins=BINS + 1, **options
    )


def processor(fitted: Fitted, workload: Workload) -> float:
    return sum(fitted.about["processor"].values()) / workload.trees


# --- sections --------------------------------------------------------------------------------------------------------


def measure_homomorphic(repetitions: int, *, quick: bool) -> list[MeasuredRow]:
    """All of it; with `quick` A alone, and its traffic."""
    repetitions = min(repetitions, MOST_REPETITIONS)
    if quick:
        small = dataclasses.replace(CASES["A"].make(), trees=2)
        return [*measure_case("A", small, 1), *measure_traffic(small)]
    from experiments.running import left_out

    rows = []
    absent = left_out([CREDIT])
    for name, case in CASES.items():
        if name not in absent:
            rows += measure_case(name, case.make(), repetitions)
    return [*rows, *measure_traffic(CASES["B"].make()), *measure_compiling()]


def measure_case(name: str, workload: Workload, repetitions: int) -> list[MeasuredRow]:
    case = CASES[name]
    contenders = {transport: trained(transport, case.parties) for transport in ("memory", "grpc")}
    contenders["memory"](workload.small())  # compile
    busy: dict[str, list[float]] = {transport: [] for transport in contenders}

    def note(transport: str, fitted: Fitted) -> None:
        say(name, f"{transport}: {fitted.seconds:.2f} s for {workload.trees} trees")
        busy[transport].append(processor(fitted, workload))

    measured = measure_in_turn(workload, contenders, 1 if case.once else repetitions, note)
    values = {transport: statistics.median(found) for transport, found in busy.items()}
    extra = measured.extra() | {"case": name, "processor seconds": busy, "trees": workload.trees}
    extra["wall"] = {transport: median / workload.trees for transport, median in measured.medians.items()}
    extra["bytes of the table"] = int(workload.X.nbytes + workload.y.nbytes)
    extra["bytes of encrypted rows"] = len(workload.y) * bytes_of_a_row()
    what = f"{workload.title}, {BINS} bins, {len(case.parties)} parties"
    rows = [MeasuredRow("homomorphic", what, values, dict.fromkeys(values, case.bar), extra, PROCESSOR)]
    if name == "B":
        wall = {"grpc": extra["wall"]["grpc"]}
        rows.append(MeasuredRow("homomorphic", what, wall, {"grpc": WALL_ON_B}, {"case": name}, WALL))
    return shown(rows)


def bytes_of_a_row() -> int:
    """What a feature holder keeps of it, encrypted, as long as a tree grows."""
    from hedgerow.crypto.additive import VALUES
    from hedgerow.crypto.edwards25519 import POINT

    return (1 + VALUES) * POINT * np.dtype(np.uint32).itemsize


def measure_schemes(repetitions: int, *, quick: bool) -> list[MeasuredRow]:
    """In memory on B (quick: A), in turn, at most twice each; then phe, counted."""
    from experiments.phe_operations import SAMPLE, operations

    workload = dataclasses.replace(CASES["A" if quick else "B"].make(), trees=TREES_OF_SCHEMES)
    contenders = {name: trained("memory", **SCHEMES[name]) for name in ("elgamal", OTHER)}
    for fit in contenders.values():
        fit(workload.small())  # compile
    busy: dict[str, list[float]] = {name: [] for name in contenders}

    def note(name: str, fitted: Fitted) -> None:
        say("schemes", f"{name}: {fitted.seconds:.2f} s for {workload.trees} trees")
        busy[name].append(processor(fitted, workload))

    measured = measure_in_turn(workload, contenders, min(repetitions, 2), note)
    values = {name: statistics.median(found) for name, found in busy.items()}
    what = f"{workload.title}, {BINS} bins, {len(PARTIES)} parties, in memory"
    extra = measured.extra() | {"processor seconds": busy}
    one = MeasuredRow("schemes", what, values, {"elgamal": TO_OTHER}, extra, PROCESSOR, OTHER)
    say("schemes", "a sample of phe's operations")
    seconds, counts = operations(PHE_BITS), phe_counts(workload, measured.last["elgamal"].about)
    by_phe = {"elgamal": values["elgamal"], PHE: sum(seconds[what] * count for what, count in counts.items())}
    about = {"seconds of one": seconds, "of a tree": counts, "measured on": SAMPLE}
    other = MeasuredRow("schemes", what, by_phe, {"elgamal": TO_PHE}, about, PROCESSOR, PHE)
    return shown([one, other])


def phe_counts(workload: Workload, about: dict[str, Any]) -> dict[str, float]:
    """Of a tree: gradient and hessian of every row, those of the root's rows in each foreign column, every sum."""
    n_rows, n_columns = workload.X.shape
    n_foreign = n_columns - np.array_split(np.arange(n_columns), len(PARTIES))[0].size
    return {"encrypt": 2 * n_rows, "add": 2 * n_rows * n_foreign, "decrypt": 2 * about["sums"] / workload.trees}


def measure_traffic(workload: Workload) -> list[MeasuredRow]:
    """The largest ratio of bytes to those of the formula, over feature holders."""
    workload = dataclasses.replace(workload, trees=2)
    values, extra = {}, {}
    for what, how in {"plain": {}, "compressed": {"compressed": True}}.items():
        about = trained("memory", **how)(workload).about
        for way, pairs in about["traffic"].items():
            values[f"{way}, {what}"] = max(counted / formula for counted, formula in pairs.values())
        extra[what] = about["traffic"]
    bars, what = dict.fromkeys(values, OF_FORMULA), f"traffic on {workload.title}, {BINS} bins"
    return shown([MeasuredRow("homomorphic", what, values, bars, extra, "of the formula's bytes")])


def shape_and_traffic(run: Any, workload: Workload) -> dict[str, Any]:
    """How many sums were opened; and bytes from and to each feature holder, counted and by the formula.

    A point takes w = 64 bytes, or 32. To a feature holder: w n once, 2 w (n + 1) per tree, 3 w per node that is summed,
    n / 8 per level in which others won. From it: 3 w per node, column and bin, n / 8 per level that it won.
    """
    job, parts = run.job, run.model.parts
    trees = parts[job.label_holder].ensemble.trees
    summed = sum(1 + sum(splits_by_level(tree)[: job.boosting.max_depth - 1]) for tree in trees)
    n_bins = {p: sum(feature.n_value_bins + 1 for feature in parts[p].features) for p in job.feature_holders}
    about: dict[str, Any] = {"sums": summed * sum(n_bins.values())}
    if getattr(job, "scheme", "elgamal") != "elgamal":
        return about
    point = 32 if job.compressed else 64
    n_rows = len(workload.y)
    sides = -(-n_rows // 8)
    ways: dict[str, dict[str, tuple[int, int]]] = {"to a feature holder": {}, "from it": {}}
    for party in job.feature_holders:
        sent, got = (messages(run, *pair) for pair in ((job.label_holder, party), (party, job.label_holder)))
        to = point * (n_rows + 2 * len(trees) * (n_rows + 1) + 3 * summed) + sides * sent["partition"][0]
        back = 3 * point * summed * n_bins[party] + sides * got["which_way"][0]
        ways["to a feature holder"][party] = (sum(n_bytes for _, n_bytes in sent.values()), to)
        ways["from it"][party] = (sum(n_bytes for _, n_bytes in got.values()), back)
    return about | {"traffic": ways}


def splits_by_level(tree: Any) -> list[int]:
    """How many nodes of each level split."""
    level, counts = [0], []
    while level:
        splitting = [node for node in level if not tree.is_leaf[node]]
        counts.append(len(splitting))
        level = [int(child) for node in splitting for child in (tree.left[node], tree.right[node])]
    return counts


def messages(run: Any, sender: str, receiver: str) -> dict[str, tuple[int, int]]:
    """Kind -> how many and how many bytes; none of a kind is nothing."""
    sent = [entry for entry in run.traffic[sender]["counts"] if entry["peer"] == receiver]
    counted = {entry["message"].rpartition(".")[2]: (entry["messages_sent"], entry["bytes_sent"]) for entry in sent}
    return defaultdict(lambda: (0, 0), counted)


def measure_compiling() -> list[MeasuredRow]:
    """A process of its own trains twice: first with an empty folder for compiled kernels, then with them."""
    say("compiling", "a process that has to compile everything")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__]
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603 - this file
    wall, busy, again = (float(word) for word in answer.stdout.split()[-3:])
    extra = {"processor seconds": busy, "the same again": again}
    row = MeasuredRow("homomorphic", "1,000 x 11, one tree, in memory", {FIRST_RUN: wall}, {FIRST_RUN: COLD}, extra)
    return shown([row])


def print_first_runs() -> None:
    """For a process of its own: seconds and processor seconds of the first training, and seconds of the second."""
    workload, fit = made("first", 1_000, 11, 1), trained("memory")
    start, busy = time.perf_counter(), time.process_time()
    fit(workload)
    first, busy = time.perf_counter() - start, time.process_time() - busy
    start = time.perf_counter()
    fit(workload)
    print(first, busy, time.perf_counter() - start)


# --- results ---------------------------------------------------------------------------------------------------------


def shown(rows: list[MeasuredRow]) -> list[MeasuredRow]:
    """Rows, once they have been printed."""
    for row in rows:
        show_row(row, lambda row, _: f"  {row.unit}", width=42)
    return rows


def homomorphic_tables(rows: list[MeasuredRow]) -> list[str]:
    """What each table takes; traffic and compiling are in the bars."""
    lines = []
    for row in _cases(rows):
        about = row.extra["grpc"]
        lines.append([
            row.what, f"{row.values['memory']:.3f}", f"{row.values['grpc']:.3f}",
            *(f"{row.extra['wall'][transport]:.3f}" for transport in ("memory", "grpc")),
            *(f"{about[what] / row.extra['trees'] / size:,.1f}" for what, size in (("rounds", 1), ("bytes", 1e6))),
            ", ".join(f"{party} {peak / 1e6:,.0f}" for party, peak in about["peak memory"].items()),
            *(f"{row.extra[f'bytes of {what}'] / 1e6:,.0f}" for what in ("encrypted rows", "the table")),
        ])  # fmt: skip
    header = [
        "per tree", "processor seconds, in memory", "processor seconds over gRPC", "seconds in memory",
        "seconds over gRPC", "rounds", "MB sent", "peak of each process, MB",
        "of a feature holder's encrypted rows, MB", "all columns and labels, MB",
    ]  # fmt: skip
    return table(header, lines)


def schemes_tables(rows: list[MeasuredRow]) -> list[str]:
    """Processor seconds per tree; and what was counted of phe."""
    lines = [[row.what, name, f"{value:,.3f}"] for row in rows for name, value in row.values.items()]
    tables = table(["", "", PROCESSOR], list(map(list, dict.fromkeys(map(tuple, lines)))))
    for row in (row for row in rows if PHE in row.values):
        of_one, of_tree = row.extra["seconds of one"], row.extra["of a tree"]
        cells = [[what, f"{of_one[what] * 1e6:,.1f}", f"{of_tree[what]:,.0f}"] for what in of_one]
        tables += ["", *table(["phe", "microseconds of one", "in a tree"], cells)]
    return tables


def _cases(rows: list[MeasuredRow]) -> list[MeasuredRow]:
    return [row for row in rows if row.section == "homomorphic" and row.unit == PROCESSOR]


def costs_table(rows: list[MeasuredRow]) -> list[str]:
    """For the page of the protocol: processor seconds and seconds per tree."""
    header = [
        "", "processor seconds per tree, all parties together (in memory)",
        "seconds per tree over gRPC, a process per party",
    ]  # fmt: skip
    return table(
        header, [[r.what, f"{r.values['memory']:.2f}", f"{r.extra['wall']['grpc']:.2f}"] for r in _cases(rows)]
    )


if __name__ == "__main__":
    print_first_runs()
