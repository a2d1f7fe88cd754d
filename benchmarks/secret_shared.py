"""vertical.secret_shared: seconds per tree, rounds, bytes and memory, beside the pooled engine and what others report.

Every figure is of minimal disclosure with cryptographic randomness; all parties and the dealer work on this machine.
Each section can be run again by itself; its rows in the results file are replaced and the others kept.

    python benchmarks/secret_shared.py                       all sections (about 10 minutes on 2 quiet cores)
    python benchmarks/secret_shared.py B traffic             two of them
    python benchmarks/secret_shared.py --only wide           one
    python benchmarks/secret_shared.py --quick               one repetition, without the large tables: a minute or two
    python benchmarks/secret_shared.py --json benchmarks/results/secret_shared.json --markdown
        docs/benchmarks_secret_shared.md

    reference  10,000 x 10, 10 bins, 3 trees of 3 levels, 4 parties: what MP-FedXGB's own code was timed with
    A, B       8,192 x 11 and 50,000 x 15, 32 bins, 4 levels, 3 parties
    million    1,000,000 x 15, 32 bins, 4 levels, 3 parties
    wide       25,000 x 300, 128 bins, 4 levels, 2 parties
    traffic    rounds and bytes on B, for 2, 3, 4 and 8 parties, beside the study from which this protocol was built
    kernels    arithmetic on shares (shares.py)

What is timed: from the first message to the last party's part of the model; starting processes and compiling is left
out. Seconds per tree are those of the whole training by its number of trees: what is done once (bins, masks of columns)
is in them, so they are an upper bound of what one more tree takes, and the fewer trees the more so. Beside them stands
the same without set-up, which ends when the label holder begins the first tree; the dealer works ahead meanwhile, so
that figure lacks up to one tree of its work. (A longer training minus a shorter one would have neither fault, but the
first training in a process takes longer than the next, by seconds where gigabytes are touched for the first time: such
differences came out below zero.) Medians over repetitions. Processor seconds are of the last run in memory, its
rehearsal included: on a busy machine they say more than the clock. "reference" is the whole training. Memory is the
peak of a process of its own, in which all roles run, or the sum of the peaks of all processes.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from shares import kernel_rates
from side_by_side import (
    GIB,
    LEARNING_RATE,
    THREADS,
    Contender,
    Fitted,
    MeasuredRow,
    Workload,
    check_files,
    chosen_sections,
    fit_pooled,
    make_parser,
    measure_in_turn,
    measured_on,
    peak_in_own_process,
    print_peak,
    run_sections,
    say,
    show_row,
    synthetic,
    table,
    used_by_processes,
)

PROTOCOL = "vertical.secret_shared"
POOLED_ENGINE, MEMORY, GRPC = "pooled engine", "memory", "grpc"
ROUNDS_AT_MOST, TRAFFIC_AT_MOST = 26, 1.2


@dataclass(frozen=True)
class Case:
    """A table, its parties, how many trees are grown, and the bars in seconds."""

    n_rows: int
    n_columns: int
    bins: int
    depth: int
    n_parties: int
    trees: int
    bars: dict[str, float]
    whole: bool = False  # whether bars are for all trees together
    over_grpc: bool = False
    most_memory: int | None = None

    def workload(self, name: str) -> Workload:
        """Its rows. make_classification has no fewer than 8 informative columns here, as in the other benchmarks."""
        made = synthetic(name, self.n_rows, 0, self.n_columns, self.trees)
        return dataclasses.replace(made, depth=self.depth, bins=self.bins, held_out=None)


CASES = {
    "reference": Case(10_000, 10, 10, 3, 4, 3, {MEMORY: 0.5}, whole=True, over_grpc=True),
    "A": Case(8_192, 11, 32, 4, 3, 12, {MEMORY: 0.2}, over_grpc=True),
    "B": Case(50_000, 15, 32, 4, 3, 10, {MEMORY: 0.5, GRPC: 0.9}, over_grpc=True),
    "million": Case(1_000_000, 15, 32, 4, 3, 3, {MEMORY: 5.0}),
    "wide": Case(25_000, 300, 128, 4, 2, 3, {MEMORY: 15.0}, over_grpc=True, most_memory=8 * GIB),
}
LARGE = ("million", "wide")

OTHERS = {
    "reference": "MP-FedXGB's own code: 148 s, of it building the trees 44 s (measured, a machine of this kind)",
    "A": "SecretFlow's SS-XGB: 7.0 s per tree (measured, a machine of this kind)",
    "B": "SecretFlow's SS-XGB: 19.5 s per tree (measured, a machine of this kind)",
    "wide": "XORBoost: less than 90 s per tree (its paper, other machines)",
}

STUDY = {
    2: {"opened": 446e3, "input": 3247e3, "dealt": 6.1e6},
    3: {"opened": 630e3, "input": 3261e3, "dealt": 8.6e6},
    4: {"opened": 703e3, "input": 3261e3, "dealt": 9.7e6},
    8: {"opened": 843e3, "input": 3277e3, "dealt": 12.4e6},
}
"""Bytes of a tree on B for so many parties, as counted in a simulation: what each party opens to each other, what the
label holder sends to each feature holder, and what the dealer sends to all."""


@dataclass
class Row(MeasuredRow):
    """Figures of one unit, the smaller the better, and bars that are figures too."""

    unit: str = "seconds per tree"

    @property
    def measured_against(self) -> str | None:
        """The pooled engine, where it was measured."""
        return POOLED_ENGINE if POOLED_ENGINE in self.values else None

    @property
    def verdicts(self) -> dict[str, bool]:
        """Here a bar is no ratio."""
        return {name: self.values[name] <= bar for name, bar in self.bars.items()}


# --- contenders ------------------------------------------------------------------------------------------------------


def columns(X: np.ndarray, n_parties: int) -> dict[str, np.ndarray]:
    """The columns dealt out as evenly as can be; the label holder is the first, and has one more if some have."""
    names = ["label_holder", *(f"holder_{k}" for k in range(2, n_parties + 1))]
    return dict(zip(names, np.array_split(X, n_parties, axis=1), strict=True))


def federated(
    n_parties: int, transport: str, trees: int | None = None, *, protocol: str = PROTOCOL, **options: Any
) -> Contender:
    """A contender with so many parties; `trees` instead of the workload's. Others on shares can stand in its place."""

    def fit(workload: Workload) -> Fitted:
        from hedgerow.federation.federation import Federation

        data = columns(workload.X, n_parties)
        federation = Federation.vertical(data, labels=("label_holder", workload.y))
        news: list[float] = []
        busy = time.process_time()
        run = federation.fit(
            protocol,
            n_estimators=trees or workload.trees,
            max_depth=workload.depth,
            max_bins=workload.bins + 1,
            learning_rate=LEARNING_RATE,
            n_jobs=THREADS if transport == MEMORY else None,
            transport=transport,
            on_progress=lambda *_: news.append(time.perf_counter()),
            **options,
        )
        totals = [meter["total"]["bytes_sent"] for meter in run.traffic.values()]
        about = {
            "set-up": run.seconds - (news[-1] - news[0]),
            "processor": time.process_time() - busy if transport == MEMORY else None,
            "rounds": run.rounds["training"],
            "levels": run.meta.get("levels"),
            "bytes": sum(totals),
            "traffic": sent(run.traffic, run.job),
        }
        return Fitted(run.seconds, lambda rows: run.model.decision_function(columns(rows, n_parties)), about)

    return fit


def sent(traffic: dict[str, Any], job: Any) -> dict[str, int]:
    """Frames of a run: what a party opens to each other, what the label holder sends to one other, what is dealt."""
    second = job.feature_holders[0]

    def between(party: str, peer: str | None, *kinds: str) -> int:
        counts = traffic[party]["counts"]
        chosen = [c for c in counts if peer in (None, c["peer"]) and c["message"].rpartition(".")[2] in kinds]
        return sum(c["bytes_sent"] for c in chosen)

    return {
        "opened": between(second, job.label_holder, "masked_words", "winner_share"),
        "input": between(job.label_holder, second, "level_input"),
        "dealt": between(job.dealer, None, "dealt"),
        "masked columns": sum(between(party, None, "masked_columns") for party in job.feature_holders),
    }


# --- sections --------------------------------------------------------------------------------------------------------


def measure_case(name: str, repetitions: int, *, quick: bool) -> list[Row]:
    """One case: seconds in memory and over gRPC, beside the pooled engine; then memory."""
    case = CASES[name]
    say(name, f"making {case.n_rows:,} x {case.n_columns}")
    workload = case.workload(name)
    transports = (MEMORY, GRPC) if case.over_grpc and not (quick and GRPC not in case.bars) else (MEMORY,)
    contenders: dict[str, Contender] = {POOLED_ENGINE: fit_pooled}
    contenders |= {transport: spoken(name, federated(case.n_parties, transport)) for transport in transports}
    small = dataclasses.replace(workload.small(), depth=case.depth)
    fit_pooled(small)  # compile, load libraries; processes do it before they are timed
    federated(case.n_parties, MEMORY)(small)
    load = round(os.getloadavg()[0], 1)
    set_up: dict[str, list[float]] = {transport: [] for transport in transports}

    def note(what: str, fitted: Fitted) -> None:
        if what in set_up:
            set_up[what].append(fitted.about["set-up"])

    measured = measure_in_turn(workload, contenders, min(repetitions, 3) if name in LARGE else repetitions, note)
    values = {what: median / (1 if case.whole else case.trees) for what, median in measured.medians.items()}
    extra = measured.extra() | {"trees": case.trees, "whole": measured.medians, "set-up": set_up, "load": load}
    unit = f"seconds for {case.trees} trees" if case.whole else "seconds per tree"
    title = f"{case.n_rows:,} x {case.n_columns}, {case.bins} bins, {case.depth} levels, {case.n_parties} parties"
    rows = [Row(name, title, values, {k: bar for k, bar in case.bars.items() if k in values}, extra, unit)]
    show(rows[0])
    if not quick or case.most_memory:
        rows.append(measure_memory(name, title, transports, workload))
        show(rows[-1])
    return rows


def measure_memory(name: str, title: str, transports: tuple[str, ...], workload: Workload) -> Row:
    """Peaks: all roles in one process that does nothing else, and the sum over processes."""
    case = CASES[name]
    say(name, "memory, all roles in one process")
    before, peak = peak_in_own_process(__file__, "--peak-of", name)
    values = {"all roles in one process": peak / GIB}
    extra: dict[str, Any] = {"before the training": before / GIB}
    if GRPC in transports:
        say(name, "memory, a process for each role")
        with used_by_processes() as used:
            federated(case.n_parties, GRPC, 2)(workload)
        extra["peaks"] = {party: own.memory / GIB for party, own in sorted(used.items())}
        values["sum of all processes"] = sum(extra["peaks"].values())
    bars = dict.fromkeys(values, case.most_memory / GIB) if case.most_memory else {}
    return Row(name, title, values, bars, extra, "GiB at the peak")


def print_own_peak(name: str) -> None:
    """For a process of its own."""
    case = CASES[name]
    workload = case.workload(name)
    small = dataclasses.replace(workload.small(), depth=case.depth)
    fit = federated(case.n_parties, MEMORY, 2)
    print_peak(lambda: fit(small), lambda: fit(workload))


def measure_traffic(_: int, *, quick: bool) -> list[Row]:
    """Rounds and bytes of a tree on B, as meters count them (with frames), and the formula beside."""
    case = CASES["B"]
    workload = case.workload("traffic")
    rows = []
    for n_parties, study in STUDY.items():
        if quick and n_parties != case.n_parties:
            continue
        say("traffic", f"{n_parties} parties")
        n_trees = 1 if quick else 2
        about = federated(n_parties, MEMORY, n_trees)(workload).about
        counted = {what: about["traffic"][what] / n_trees for what in study}
        formula = by_formula(case, n_parties)
        per_level = about["rounds"] / about["levels"]
        extra = {"counted": counted, "formula": formula, "study": study, "rounds per level": per_level}
        values = {what: counted[what] / figure for what, figure in study.items()}
        bars = dict.fromkeys(values, TRAFFIC_AT_MOST)
        rows.append(Row("traffic", f"{n_parties} parties", values, bars, extra, "of the study's bytes"))
        show(rows[-1])
        if n_parties == case.n_parties:
            values, bars = {"rounds per level": per_level}, {"rounds per level": float(ROUNDS_AT_MOST)}
            rows.append(Row("traffic", f"{n_parties} parties", values, bars, {}, "rounds"))
            show(rows[-1])
    return rows


def by_formula(case: Case, n_parties: int) -> dict[str, float]:
    """Payloads of a full tree, from the shape alone."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from experiments.mp_fedxgb import costs
    from hedgerow.engine.losses import BoostingParams
    from hedgerow.protocols.shares.scales import Scales
    from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
    from hedgerow.protocols.vertical.secret_shared.shape import Shape

    parts = columns(np.empty((1, case.n_columns)), n_parties)
    job = SecretSharedJob(
        tuple(parts),
        "label_holder",
        "costs",
        boosting=BoostingParams(n_iterations=1, max_depth=case.depth, min_child_weight=0.0),
        max_bins=case.bins + 1,
    )
    rows = tuple((case.bins - 1) * part.shape[1] for part in list(parts.values())[1:])
    tree = costs.full_tree(Shape(case.n_rows, rows, rows, Scales.of(job, case.n_rows)), case.depth)
    return {
        "opened": tree.opened,
        "input": tree.input,
        "dealt": tree.dealt,
        "rounds per level": tree.rounds / case.depth,
    }


def measure_kernels(repetitions: int, *, quick: bool) -> list[Row]:
    """How long a billion of each kernel's operations takes; see shares.py."""
    rates = kernel_rates(2 if quick else max(repetitions, 5))
    values = {
        f"{rate.kernel} ({rate.threads} thread{'s'[: rate.threads - 1]})": 1e9 / rate.per_second for rate in rates
    }
    extra = {"units": {f"{rate.kernel} ({rate.threads} thread{'s'[: rate.threads - 1]})": rate.unit for rate in rates}}
    row = Row("kernels", "arithmetic on shares", values, {}, extra, "seconds per billion")
    show(row)
    return [row]


def section(name: str) -> Callable[..., list[Row]]:
    return lambda repetitions, *, quick: measure_case(name, repetitions, quick=quick)


SECTIONS: dict[str, Callable[..., list[Row]]] = {
    **{name: section(name) for name in CASES},
    "traffic": measure_traffic,
    "kernels": measure_kernels,
}


# --- results ---------------------------------------------------------------------------------------------------------


def spoken(name: str, fit: Contender) -> Contender:
    """A contender that says when it is done."""

    def fit_and_say(workload: Workload) -> Fitted:
        fitted = fit(workload)
        say(name, f"a training took {fitted.seconds:.2f} s")
        return fitted

    return fit_and_say


def show(row: Row) -> None:
    """A few lines per result, as it comes."""
    show_row(row, _described, width=46)


def _described(row: Row, name: str) -> str:
    if "whole" not in row.extra:
        return f"  {row.unit}"
    about = row.extra.get(name, {})
    talked = (
        f", {about['rounds'] / about['levels']:.1f} rounds per level, {about['bytes'] / 1e6:.1f} MB" if about else ""
    )
    return f"  {row.unit}, whole {row.extra['whole'][name]:.3f} s" + talked


def markdown(rows: list[Row], about: dict[str, Any]) -> str:
    """The page with all tables."""
    lines = [
        "# Benchmarks of vertical.secret_shared",
        "",
        "Written by `make bench-shares ARGS='--json benchmarks/results/secret_shared.json --markdown",
        "docs/benchmarks_secret_shared.md'`. Minimal disclosure, cryptographic randomness, all parties and the dealer",
        "on one machine. Columns are divided as evenly as can be; the label holder is one of the parties.",
        "",
        *measured_on(about),
        f"Load average before the run: {about['load before the run']}.",
        "",
        "## Bars",
        "",
        *bars(rows),
        "",
        "## Seconds",
        "",
        *seconds_table(rows),
        "",
        "## Memory",
        "",
        *memory_table(rows),
    ]
    traffic = [row for row in rows if row.section == "traffic" and "counted" in row.extra]
    if traffic:
        lines += ["", "## Bytes and rounds of a tree on B", "", *traffic_table(traffic)]
    kernels = [row for row in rows if row.section == "kernels"]
    if kernels:
        units = kernels[0].extra["units"]
        cells = [[name, f"{1 / value:.2f}", units[name]] for name, value in kernels[0].values.items()]
        lines += ["", "## Kernels", "", *table(["", "billions per second", "of what"], cells)]
    return "\n".join(lines) + "\n"


def bars(rows: list[Row]) -> list[str]:
    """What we set ourselves, whether it was reached, and what others need for the same."""
    lines = []
    for row in rows:
        for name, bar in row.bars.items():
            where = f"{row.section}: {row.what}; {name}"
            others = OTHERS.get(row.section, "") if row.unit.startswith("seconds") else ""
            verdict = "met" if row.verdicts[name] else "not met"
            lines.append([where, f"{row.values[name]:.2f} {row.unit}", f"{bar:g}", verdict, others])
    return table(["", "measured", "at most", "verdict", "others"], lines)


def seconds_table(rows: list[Row]) -> list[str]:
    """One line for each case and way to run it."""
    header = ["", "", "whole training", "trees", "per tree", "per tree without set-up", "to the pooled engine",
              "processor seconds of the whole", "load before",
              "rounds per level", "MB"]  # fmt: skip
    lines = []
    for row in (row for row in rows if "whole" in row.extra):
        trees = row.extra["trees"]
        for name, whole in row.extra["whole"].items():
            about, set_up = row.extra.get(name, {}), row.extra["set-up"].get(name)
            cells = [
                f"{row.section}: {row.what}",
                name,
                f"{whole:.3f} s" + (f" (the {row.stood_still})" if row.stood_still else ""),
                f"{trees}",
                f"{whole / trees:.4f} s",
                f"{without_set_up(row.extra['seconds'][name], set_up, trees):.4f} s" if set_up else "",
                f"{row.ratios[name]:.0f}" if name in row.ratios else "",
                f"{about['processor']:.2f}" if about.get("processor") else "",
                f"{row.extra['load']}",
                f"{about['rounds'] / about['levels']:.1f}" if about else "",
                f"{about['bytes'] / 1e6:.1f}" if about else "",
            ]
            lines.append(cells)
    return table(header, lines)


def without_set_up(seconds: list[float], set_up: list[float], trees: int) -> float:
    """Seconds per tree after the label holder began the first one, run by run; their median."""
    return statistics.median((whole - first) / trees for whole, first in zip(seconds, set_up, strict=True))


def memory_table(rows: list[Row]) -> list[str]:
    """One line for each case."""
    lines = []
    for row in (row for row in rows if "before the training" in row.extra):
        peaks = ", ".join(f"{party} {peak:.2f}" for party, peak in row.extra.get("peaks", {}).items())
        together = row.values.get("sum of all processes")
        cells = [f"{row.section}: {row.what}", f"{row.values['all roles in one process']:.2f}",
                 f"{row.extra['before the training']:.2f}"]  # fmt: skip
        lines.append([*cells, "" if together is None else f"{together:.2f} ({peaks})"])
    header = ["GiB", "all roles in one process, peak", "of it before the training", "sum of the peaks of processes"]
    return table(header, lines)


def traffic_table(rows: list[Row]) -> list[str]:
    """One line for each number of parties: counted, by the formula for full trees, and the study's."""
    whats = {"opened": "opened by a party to each other, KB", "input": "label holder to each feature holder, KB",
             "dealt": "dealt to all, KB"}  # fmt: skip
    lines = []
    for row in rows:
        cells = [row.what, f"{row.extra['rounds per level']:.1f}"]
        for what in whats:
            one = [row.extra[source][what] / 1e3 for source in ("counted", "formula", "study")]
            cells.append(f"{one[0]:,.0f} / {one[1]:,.0f} / {one[2]:,.0f} ({row.values[what]:.2f})")
        lines.append(cells)
    header = ["counted / formula / study (counted to study)", "rounds per level", *whats.values()]
    return table(header, lines)


def main() -> None:
    parser = make_parser(__doc__, SECTIONS, repetitions=5)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a section; may be repeated")
    parser.add_argument("--quick", action="store_true", help="one repetition, and large tables only if they are named")
    parser.add_argument("--peak-of", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak_of:
        print_own_peak(arguments.peak_of)
        return
    arguments.sections = [*arguments.sections, *arguments.only]
    named = bool(arguments.sections)
    wanted = chosen_sections(parser, arguments, list(SECTIONS))
    check_files(parser, arguments)
    if arguments.quick and not named:
        wanted = [name for name in wanted if name not in LARGE]
    run_sections(arguments, wanted, SECTIONS, Row, bars, markdown)


if __name__ == "__main__":
    main()
