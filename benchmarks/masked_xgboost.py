"""Masked gradients as published, and what stands beside them: seconds per tree, memory, rounds and bytes.

Everything is measured side by side in one run, interleaved, so that a noisy machine disturbs all alike; medians. Each
section can be run again by itself; its rows in the results file are replaced and the others kept.

    HEDGEROW_DATA=/folder/of/parquet/files python benchmarks/masked_xgboost.py
                                                             all sections (about 10 minutes on 2 quiet cores)
    python benchmarks/masked_xgboost.py adult B              two of them
    python benchmarks/masked_xgboost.py --quick              one repetition of adult and B, a minute or so
    python benchmarks/masked_xgboost.py --json benchmarks/results/masked_xgboost.json --markdown
        docs/benchmarks_masked_xgboost.md

    adult, give_me_some_credit, higgs_11k, bank_marketing, default_credit_card, nomao
             seconds per tree of 6 levels, all rows, 32 candidates per column, two parties with half of the columns
             each: the paper's Table 3. The methods are those of experiments/masked_xgboost; W = 1
    memory   the peak while masked gradients train on give_me_some_credit, in a process of its own
    B        private_histograms beside secret_shared: 50,000 x 15, 32 bins, 4 levels, 3 parties and a dealer

All but adult and B need HEDGEROW_DATA; what is not there is left out, with a message.

What is timed. XGBoost: construction of a DMatrix and training (hist, 2 threads). The plain engine: bins and training,
2 threads. Protocols: in memory, from the first message to the last party's part of the model; compiling is left out.
Seconds per tree are those of the whole training by its number of trees: what is done once (bins, masked columns) is in
them.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The experiments know the paper's datasets and methods; they are no package that is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import numpy as np
from secret_shared import CASES, MEMORY, columns, federated, spoken
from side_by_side import (
    GIB,
    THREADS,
    Contender,
    Fitted,
    MeasuredRow,
    Workload,
    check_files,
    chosen_sections,
    fit_pooled,
    fit_xgboost,
    make_parser,
    measure_in_turn,
    measured_on,
    peak_in_own_process,
    print_peak,
    run_sections,
    say,
    show_row,
    table,
    used_by_processes,
)

from experiments.masked_xgboost.cells import (
    DEPTH,
    ELGAMAL,
    FED_LDP,
    FEDERBOOST,
    HISTOGRAM,
    LDP,
    SHARED,
    VECTOR,
    WINNER,
    XGBOOST,
    Cell,
)
from experiments.masked_xgboost.datasets import DATASETS, FEATURE_HOLDER, LABEL_HOLDER, Split, split
from experiments.masked_xgboost.methods import HISTOGRAMS, fit
from experiments.masked_xgboost.tables.common import PAPER_NAMES
from experiments.masked_xgboost.tables.table3 import EPSILON, HE, PAPER
from experiments.running import left_out
from hedgerow.schema import Schema

ENGINE = "plain engine"
METHODS = (VECTOR, ELGAMAL, LDP, FED_LDP, FEDERBOOST, HISTOGRAM, WINNER, SHARED)
ORDER = (XGBOOST, ENGINE, VECTOR, HE, *METHODS[1:])
"""Of Table 3; that of the paper's encryption stands before ours."""
TREES, QUICK_TREES = 5, 2
CANDIDATES = 32
BINS = CANDIDATES + 1
"""For values. Cuts between them are the candidates; one more code is for missing values."""
MASKED_AT_MOST, MEMORY_AT_MOST = 1.5, 2.0
"""Seconds per tree on adult, and GiB on the largest table."""
MOST_OF_A_DATASET = 3
"""Repetitions, because some of the methods are slow."""

LARGEST, TREES_FOR_MEMORY = "give_me_some_credit", 2
SHARED_MINIMAL = "secret_shared, minimal"
RATIO_AT_MOST = 2.0
TREES_ON_B = (10, 20)
DELTA = 1e-5
BOUND = 12.0
"""Public bounds of the synthetic columns, whose values are seldom beyond 8."""
NOTHING = Workload("nothing", np.empty((0, 0)), np.empty(0), 0, 0)
"""For contenders that know their tables already."""
REVEALED = {WINNER: {"reveal": "winner"}, HISTOGRAM: {"reveal": "histogram"}}


# --- Table 3 ---------------------------------------------------------------------------------------------------------


def all_rows(dataset: str) -> Split:
    """Nothing is kept for tests; columns are divided as in the experiments."""
    here = split(dataset, 0, 1)
    return dataclasses.replace(here, train=np.arange(len(here.data.y)), test=here.test[:0])


def some_rows(here: Split) -> Split:
    """About a thousand: enough to compile and load libraries."""
    return dataclasses.replace(here, train=here.train[:: max(1, len(here.train) // 1_000)])


def pooled(here: Split, trees: int) -> Workload:
    """All columns in one table, for those who may have it."""
    rows = here.data.X[np.ix_(here.train, np.concatenate(list(here.columns.values())))]
    return Workload(here.data.name, rows, here.y.astype(np.float64), trees, DEPTH, bins=BINS)


def by_parties(method: str, here: Split, trees: int, **how: Any) -> Contender:
    """One of the methods of the experiments, in memory if nothing else is said. It knows its tables already."""
    cell = Cell(here.data.name, method, EPSILON, trees=trees, timed=True)
    sizes = {"buckets": BINS} if method == FEDERBOOST else {"max_bins": BINS + 1}

    def fit_cell(_: Workload) -> Fitted:
        run = fit(cell, here, **sizes, **({"n_jobs": THREADS} | how))
        sent = sum(meter["total"]["bytes_sent"] for meter in run.traffic.values())
        about = {"bytes": sent, "rounds": run.rounds["training"]}
        if method == VECTOR:
            about["candidates"] = run.model.parts[FEATURE_HOLDER].meta["n_candidates"]
            about["nodes"] = sum(int((~tree.is_leaf).sum()) for tree in run.model.parts[LABEL_HOLDER].ensemble.trees)
        return Fitted(run.seconds, run.model.decision_function, about)

    return fit_cell


def all_methods(here: Split, trees: int) -> dict[str, Contender]:
    """Those of Table 3 that there are."""
    return {XGBOOST: fit_xgboost, ENGINE: fit_pooled} | {name: by_parties(name, here, trees) for name in METHODS}


def measure_dataset(name: str, repetitions: int, *, quick: bool) -> list[MeasuredRow]:
    """A column of Table 3."""
    here, trees = all_rows(name), QUICK_TREES if quick else TREES
    workload = pooled(here, trees)
    say(name, f"{workload.title}, compiling")
    for fit_one in all_methods(some_rows(here), 2).values():
        fit_one(pooled(some_rows(here), 2))
    said = {what: spoken(f"{name}, {what}", fit_one) for what, fit_one in all_methods(here, trees).items()}
    title = f"{workload.title}, up to {CANDIDATES} candidates per column"
    row = timed(name, title, workload, said, min(repetitions, MOST_OF_A_DATASET))
    row.bars = {VECTOR: MASKED_AT_MOST} if name == "adult" else {}
    show(row)
    return [row]


def timed(name: str, title: str, workload: Workload, contenders: dict[str, Contender], repetitions: int) -> MeasuredRow:
    """Medians of what contenders took in turn, by the number of trees."""
    load = round(os.getloadavg()[0], 1)
    measured = measure_in_turn(workload, contenders, repetitions)
    values = {what: median / workload.trees for what, median in measured.medians.items()}
    extra = measured.extra() | {"trees": workload.trees, "load": load}
    return MeasuredRow(name, title, values, {}, extra, "seconds per tree")


# --- memory ----------------------------------------------------------------------------------------------------------


def measure_memory(_: int, *, quick: bool) -> list[MeasuredRow]:
    """Peaks: both roles in one process that does nothing else, and each in its own."""
    say("memory", "both roles in one process")
    before, peak = peak_in_own_process(__file__, "--own-peak")
    values, extra = {"both roles in one process": peak / GIB}, {"before the training": before / GIB}
    here = all_rows(LARGEST)
    if not quick:
        say("memory", "a process for each role")
        with used_by_processes() as used:
            by_parties(VECTOR, here, TREES_FOR_MEMORY, transport="grpc", n_jobs=None)(NOTHING)
        values |= {f"process of {party}": own.memory / GIB for party, own in sorted(used.items())}
    title = f"{pooled(here, TREES_FOR_MEMORY).title}, up to {CANDIDATES} candidates per column; {VECTOR}"
    row = MeasuredRow("memory", title, values, dict.fromkeys(values, MEMORY_AT_MOST), extra, "GiB at the peak")
    show(row)
    return [row]


def print_own_peak() -> None:
    """For a process of its own: the table, both parties, and nothing else."""
    here = all_rows(LARGEST)
    print_peak(
        lambda: by_parties(VECTOR, some_rows(here), 1)(NOTHING),
        lambda: by_parties(VECTOR, here, TREES_FOR_MEMORY)(NOTHING),
    )


# --- private histograms beside secret_shared -------------------------------------------------------------------------


def measure_b(repetitions: int, *, quick: bool) -> list[MeasuredRow]:
    """Both reveals beside minimal disclosure, for two numbers of trees."""
    case = CASES["B"]
    workload = case.workload("B")
    noise = {"epsilon": EPSILON, "delta": DELTA, "schema": synthetic_schema(workload, case.n_parties)}
    contenders = {SHARED_MINIMAL: federated(case.n_parties, MEMORY)} | {
        what: federated(case.n_parties, MEMORY, protocol=HISTOGRAMS, **noise, **how) for what, how in REVEALED.items()
    }
    for fit_one in contenders.values():
        fit_one(workload.small())  # compile, load libraries
    said = {what: spoken(f"B, {what}", fit_one) for what, fit_one in contenders.items()}
    rows = []
    for trees in TREES_ON_B[:1] if quick else TREES_ON_B:
        sized = dataclasses.replace(workload, trees=trees)
        title = f"{sized.title}, {case.bins} bins, {case.n_parties} parties and a dealer"
        row = timed("B", title, sized, said, repetitions)
        row.yardstick, row.bars = SHARED_MINIMAL, dict.fromkeys(REVEALED, RATIO_AT_MOST)
        show(row)
        rows.append(row)
    return rows


def synthetic_schema(workload: Workload, n_parties: int) -> Schema:
    parts = columns(workload.X[:1], n_parties)
    names = [f"{party}.x{i}" for party, part in parts.items() for i in range(part.shape[1])]
    return Schema.from_public(bounds=dict.fromkeys(names, (-BOUND, BOUND)), classes=(0, 1))


def section(name: str) -> Callable[..., list[MeasuredRow]]:
    return lambda repetitions, *, quick: measure_dataset(name, repetitions, quick=quick)


SECTIONS: dict[str, Callable[..., list[MeasuredRow]]] = {
    **{name: section(name) for name in DATASETS},
    "memory": measure_memory,
    "B": measure_b,
}
QUICK = ("adult", "B")
"""If nothing is named."""


# --- results ---------------------------------------------------------------------------------------------------------


def show(row: MeasuredRow) -> None:
    """A few lines per result, as it comes."""
    show_row(row, _described, width=30)


def _described(row: MeasuredRow, name: str) -> str:
    about = row.extra.get(name)
    return f"  {row.unit}" + (f", {_talk(row, about)}" if about else "")


def _talk(row: MeasuredRow, about: dict[str, Any]) -> str:
    trees = row.extra["trees"]
    return f"{about['rounds'] / trees:.1f} rounds and {about['bytes'] / trees / 1e6:.2f} MB per tree"


def markdown(rows: list[MeasuredRow], about: dict[str, Any]) -> str:
    """The page with all tables."""
    lines = [
        "# Benchmarks of masked gradients and private histograms",
        "",
        "Written by `HEDGEROW_DATA=/folder/of/parquet/files make bench-masked-xgboost ARGS='--json",
        "benchmarks/results/masked_xgboost.json --markdown docs/benchmarks_masked_xgboost.md'`. Parties and the dealer",
        "on one machine, in memory unless said. All contenders of a section in one run, interleaved, medians.",
        "",
        *measured_on(about),
        f"Load average before the run: {about['load before the run']}.",
        "",
        "## Bars",
        "",
        *bars(rows),
    ]
    timings = [row for row in rows if row.section in DATASETS]
    if timings:
        lines += ["", "## Table 3 of the paper", "", *table3(timings)]
    beside = [row for row in rows if row.section == "B"]
    if beside:
        lines += ["", "## private_histograms beside secret_shared", "", *beside_table(beside)]
    memory = [row for row in rows if row.section == "memory"]
    for row in memory:
        cells = [[name, f"{value:.2f}"] for name, value in (row.values | row.extra).items()]
        lines += ["", "## Memory", "", row.what, "", *table(["", "GiB"], cells)]
    return "\n".join(lines) + "\n"


def bars(rows: list[MeasuredRow]) -> list[str]:
    """What we set ourselves, and whether it was reached."""
    lines = []
    for row in rows:
        for name, bar in row.bars.items():
            held = (
                f"{row.ratios[name]:.2f} x {row.yardstick}" if row.yardstick else f"{row.values[name]:.2f} {row.unit}"
            )
            paper = f"{paper_seconds(name)[row.section]:g} s on 40 cores" if row.section in DATASETS else ""
            verdict = "met" if row.verdicts[name] else "not met"
            lines.append([f"{row.what}; {name}", held, f"{bar:g}", verdict, paper])
    return table(["", "measured", "at most", "verdict", "the paper"], lines)


def paper_seconds(method: str) -> dict[str, float]:
    """Of one tree, by dataset; nothing if the paper has no such method."""
    return dict(zip(DATASETS, PAPER[method], strict=True)) if method in PAPER else {}


def table3(rows: list[MeasuredRow]) -> list[str]:
    """Seconds per tree with the paper's in brackets, MB per tree, and what was trained."""
    header = ["", *(f"{row.section} ({PAPER_NAMES[row.section]})" for row in rows)]
    seconds = [[method, *(_beside_paper(method, row) for row in rows)] for method in ORDER]
    sent = [[method, *(_megabytes(method, row) for row in rows)] for method in METHODS]
    seconds, sent = ([line for line in lines if any(line[1:])] for lines in (seconds, sent))
    trained = [
        [
            row.what,
            f"{row.extra[VECTOR]['candidates']}",
            f"{row.extra[VECTOR]['nodes'] / row.extra['trees']:.1f}",
            f"{row.extra['repetitions']}" + (f"; the {row.stood_still}" if row.stood_still else ""),
            f"{row.extra['load']}",
        ]
        for row in rows
    ]
    what = ["", "candidates of the feature holder", "nodes that Masked split, per tree", "repeated", "load before"]
    return [
        "Seconds per tree, in brackets the paper's (40 cores):",
        "",
        *table(header, seconds),
        "",
        "MB per tree, all parties together:",
        "",
        *table(header, sent),
        "",
        "What was trained:",
        "",
        *table(what, trained),
    ]


def _megabytes(method: str, row: MeasuredRow) -> str:
    return f"{row.extra[method]['bytes'] / row.extra['trees'] / 1e6:,.2f}" if method in row.extra else ""


def _beside_paper(method: str, row: MeasuredRow) -> str:
    ours = f"{row.values[method]:.3f}" if method in row.values else ""
    theirs = paper_seconds(method).get(row.section)
    return ours if theirs is None else f"{ours} ({theirs:g})".strip()


def beside_table(rows: list[MeasuredRow]) -> list[str]:
    """One line for each number of trees and way to reveal."""
    lines = []
    for row in rows:
        for name, value in row.values.items():
            ratio = f"{row.ratios[name]:.2f}" if name in row.ratios else ""
            told, trees = row.extra[name], row.extra["trees"]
            lines.append([
                row.what, name, f"{value:.4f} s", ratio, f"{told['rounds'] / trees:.1f}",
                f"{told['bytes'] / trees / 1e6:.2f}", f"{row.extra['load']}",
            ])  # fmt: skip
    return table(["", "", "per tree", f"to {SHARED_MINIMAL}", "rounds per tree", "MB per tree", "load before"], lines)


def main() -> None:
    parser = make_parser(__doc__, SECTIONS, repetitions=5)
    parser.add_argument("--quick", action="store_true", help="one repetition; only adult and B if nothing is named")
    parser.add_argument("--own-peak", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.own_peak:
        print_own_peak()
        return
    wanted = chosen_sections(parser, arguments, list(SECTIONS))
    check_files(parser, arguments)
    if arguments.quick and not arguments.sections:
        wanted = [name for name in wanted if name in QUICK]
    needs = {name: name if name in DATASETS else LARGEST for name in wanted if name != "B"}
    absent = left_out(needs.values())
    there = [name for name in wanted if needs.get(name) not in absent]
    run_sections(arguments, there, SECTIONS, MeasuredRow, bars, markdown)


if __name__ == "__main__":
    main()
