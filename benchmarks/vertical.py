"""The vertical protocols: time, rounds, bytes, memory and held-out AUC, beside each other and beside pooled XGBoost.

Everything is measured side by side in one run, interleaved, so that a noisy machine disturbs all alike; medians.
Absolute times mean little on a shared machine: read the ratios. Each section can be run again by itself; its rows in
the results file are replaced and the others kept.

    HEDGEROW_DATA=/folder/of/parquet/files python benchmarks/vertical.py
                                                             all sections (about 25 minutes on 2 quiet cores)
    python benchmarks/vertical.py A B --repetitions 9        two of them, more repetitions
    python benchmarks/vertical.py --quick                    one repetition of the most important, a minute or two
    python benchmarks/vertical.py --json benchmarks/results/vertical.json --markdown docs/benchmarks_vertical.md

    protocols, slow_link
             all vertical protocols with the same trees (vertical_protocols.py)
    homomorphic, schemes
             vertical.homomorphic and its bars (vertical_homomorphic.py)
    A, B     vertical.bucket_rr and vertical.noised_gradients on two synthetic workloads, 3 parties with a third of the
             columns each, in memory and over gRPC with mutual TLS (one process per party)
    wan      these two over an emulated link: 100 ms round trip, 20 Mbit/s in each direction
    scale    vertical.bucket_rr on 500,000 x 30, with the memory of each party's process
    scoring  1,000,000 rows through 100 trees, by all parties together

What is timed. XGBoost: construction of a DMatrix and training (hist, 2 threads); also with a QuantileDMatrix, shown
apart. Ours: from the first message to the last party's part of the model, with buckets, noise and transfer; starting
processes and compiling is left out. In memory the label holder has 2 threads where nothing else is said, over gRPC 1.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from by_columns import BUSIEST, PARTIES, columns, federated
from side_by_side import (
    LEARNING_RATE,
    LINK_ALONE,
    POOLED,
    THREADS,
    XGBOOST,
    Contender,
    Fitted,
    MeasuredRow,
    Stalls,
    auc_of,
    check_files,
    chosen_sections,
    fit_pooled,
    fit_xgboost,
    make_parser,
    measure_in_turn,
    measured_on,
    run_sections,
    seconds_on_slow_link,
    show_row,
    synthetic,
    table,
    traffic,
)
from vertical_homomorphic import (
    OTHERS,
    costs_table,
    homomorphic_tables,
    measure_homomorphic,
    measure_schemes,
    schemes_tables,
)
from vertical_protocols import leaks, measure_protocols, measure_slow_link, peers, protocols_table, slow_link_table

BUCKETS = 16
HOMOMORPHIC_PAGE = Path(__file__).parents[1] / "docs" / "protocols" / "vertical_homomorphic.md"
LINK_AND_WORK = "link alone + the same without link"
BAR_MEMORY, BAR_GRPC, BAR_WAN = 1.0, 2.5, 1.3


# --- contenders ------------------------------------------------------------------------------------------------------


WORKLOADS: dict[str, tuple[int, int, int, int]] = {"A": (8192, 4096, 11, 200), "B": (50_000, 10_000, 15, 32)}


RR, NOISED = "vertical.bucket_rr", "vertical.noised_gradients"
WITHOUT_NOISE = {"epsilon": math.inf, "buckets": BUCKETS, "edges": "quantile"}
DEBIASED = {"epsilon": 4.0, "debias": True, "buckets": BUCKETS, "edges": "quantile"}
AS_PAPER = {**DEBIASED, "debias": False}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bucket_rr, no noise": (RR, WITHOUT_NOISE),
    "bucket_rr, eps 4, debias": (RR, DEBIASED),
    "bucket_rr, eps 4, no debias": (RR, AS_PAPER),
    "noised_gradients, eps 4": (NOISED, {"epsilon": 4.0, "delta": 1e-5}),
}


# --- sections --------------------------------------------------------------------------------------------------------


def measure_workload(name: str, repetitions: int, *, quick: bool) -> list[MeasuredRow]:
    """All contenders in turn, `repetitions` times; medians of their seconds, means of their AUCs."""
    from sklearn.metrics import roc_auc_score

    workload = synthetic(name, *WORKLOADS[name])
    contenders, bars = dict(POOLED), {}
    for what, (protocol, options) in VARIANTS.items():
        contenders[f"memory, {what}"] = federated(protocol, "memory", **options)
        if protocol == RR:
            bars |= {f"memory, {what}": BAR_MEMORY, f"grpc, {what}": BAR_GRPC}
    public = "memory, bucket_rr, eps 4, debias, public edges"
    contenders[public] = federated(RR, "memory", needs_schema=True, **{**DEBIASED, "edges": "public"})
    bars[public] = BAR_MEMORY
    contenders["memory, 1 thread, bucket_rr, eps 4, debias"] = federated(RR, "memory", threads=1, **DEBIASED)
    for what, (protocol, options) in VARIANTS.items():
        if not quick or what == "bucket_rr, eps 4, debias":
            contenders[f"grpc, {what}"] = federated(protocol, "grpc", **options)
    for what, fit in contenders.items():  # compile, load libraries, touch memory
        if not what.startswith("grpc"):  # these compile in processes of their own, before they are timed
            fit(workload.small())
    aucs: dict[str, list[float]] = {what: [] for what in contenders}
    X_test, y_test = workload.held_out or (workload.X, workload.y)

    def score(what: str, fitted: Fitted) -> None:
        aucs[what].append(float(roc_auc_score(y_test, fitted.predict(X_test))))

    measured = measure_in_turn(workload, contenders, repetitions, after=score)
    row = MeasuredRow(name, workload.title, measured.medians, extra=measured.extra(), yardstick=XGBOOST)
    row.bars = {what: bar for what, bar in bars.items() if what in contenders}
    row.extra["AUC"] = {what: statistics.mean(values) for what, values in aucs.items()}
    show(row)
    return [row]


def measure_a(repetitions: int, *, quick: bool) -> list[MeasuredRow]:
    """Few rows and many trees."""
    return measure_workload("A", repetitions, quick=quick)


def measure_b(repetitions: int, *, quick: bool) -> list[MeasuredRow]:
    """More rows and fewer trees."""
    return measure_workload("B", repetitions, quick=quick)


def measure_wan(repetitions: int, *, quick: bool) -> list[MeasuredRow]:
    """Over a slow link, beside what the link alone takes, and beside that and the time of the same without a link.

    link alone = rounds x round trip + bytes of the busiest link, both directions / bandwidth

    Each feature holder has a line of its own in each direction, and all work at the same time, so the slowest counts.
    What goes up is there before anything comes down (buckets, then splits; or level by level), so both directions add.
    """
    repetitions = min(repetitions, 3)
    plan = [(name, what, transport) for name in WORKLOADS for what in VARIANTS for transport in ("memory", "grpc")]
    slow = "noised_gradients, eps 4"  # up to a minute
    plan = [(n, w, t) for n, w, t in plan if t == "memory" or w != "bucket_rr, eps 4, no debias"]
    plan = [(n, w, t) for n, w, t in plan if w != slow or (n == "B" and t == "memory" and not quick)]
    if quick:
        plan = [(n, w, t) for n, w, t in plan if t == "memory" and w == "bucket_rr, eps 4, debias"]
    rows = []
    for name, what, transport in plan:
        workload = synthetic(name, *WORKLOADS[name])
        protocol, options = VARIANTS[what]
        near, far = (federated(protocol, transport, wan=wan, **options) for wan in (False, True))
        if transport == "memory":
            near(workload)  # compile
        with Stalls() as stalls:
            n_pairs = 1 if what == slow else min(repetitions, 2) if transport == "grpc" else repetitions
            pairs = [(near(workload), far(workload)) for _ in range(n_pairs)]
        about = pairs[-1][1].about
        alone = seconds_on_slow_link(about["rounds"], about[BUSIEST])
        without = statistics.median(one.seconds for one, _ in pairs)
        seconds = [other.seconds for _, other in pairs]
        measured = f"{transport}, {what}, link"
        values = {LINK_ALONE: alone, LINK_AND_WORK: alone + without, measured: statistics.median(seconds)}
        row = MeasuredRow("wan", f"{workload.title}: {transport}, {what}", values, yardstick=LINK_AND_WORK)
        row.bars = {measured: BAR_WAN}
        row.extra = {measured: about, "repetitions": len(pairs), "seconds": {measured: seconds}, "stalls": stalls}
        row.extra |= {"ratio to link alone": values[measured] / alone, "seconds without link": without}
        rows.append(row)
        show(row)
    return rows


def measure_scale(repetitions: int, *, quick: bool) -> list[MeasuredRow]:
    """Half a million rows: seconds, bytes, and the memory of each process."""
    workload = synthetic("scale", 50_000 if quick else 500_000, 0, 30, 20)
    contenders: dict[str, Contender] = {XGBOOST: fit_xgboost, "pooled engine": fit_pooled}
    contenders |= {f"memory, {what}": federated(p, "memory", **o) for what, (p, o) in VARIANTS.items() if p == RR}
    values: dict[str, float] = {}
    extra: dict[str, Any] = {}
    for what, fit in contenders.items():
        runs = [fit(workload) for _ in range(min(repetitions, 2))]
        values[what] = statistics.mean(run.seconds for run in runs)
        extra[what] = runs[-1].about
    for what in ("bucket_rr, no noise", "bucket_rr, eps 4, debias"):
        fitted = federated(RR, "grpc", watched=True, **VARIANTS[what][1])(workload)
        values[f"grpc, {what}"] = fitted.seconds
        extra[f"grpc, {what}"] = fitted.about
    extra = {what: about for what, about in extra.items() if about}
    extra["bytes of the table"] = {
        party: int(X.nbytes) + (workload.y.nbytes if party == PARTIES[0] else 0)
        for party, X in columns(workload.X).items()
    }
    extra["repetitions"] = min(repetitions, 2)
    row = MeasuredRow("scale", workload.title, values, extra=extra, yardstick=XGBOOST)
    show(row)
    return [row]


def measure_scoring(repetitions: int, *, quick: bool) -> list[MeasuredRow]:
    """Joint predictions: the label holder asks, both others answer, all trees in one round trip per batch."""
    trained = synthetic("scoring", 20_000, 0, 15, 100)
    n_rows = 100_000 if quick else 1_000_000
    rows = np.ascontiguousarray(np.tile(trained.X, (n_rows // 20_000, 1)))
    from hedgerow.federation.federation import Federation

    federation = Federation.vertical(columns(trained.X), labels=(PARTIES[0], trained.y))
    boosting = {"n_estimators": trained.trees, "max_depth": trained.depth, "learning_rate": LEARNING_RATE}
    model = federation.fit(RR, **boosting, **WITHOUT_NOISE).model
    booster = fit_xgboost(trained)
    start = time.perf_counter()
    booster.predict(rows)
    values = {XGBOOST: time.perf_counter() - start}
    extra: dict[str, Any] = {}
    model.scoring(columns(rows[:1000]))  # compile
    ways: dict[str, dict[str, Any]] = {
        "memory": {"n_jobs": THREADS},
        "memory, predict_epsilon 4": {"n_jobs": THREADS, "predict_epsilon": 4.0},
        "grpc": {"transport": "grpc"},
    }
    for what, how in ways.items():
        times = []
        for _ in range(1 if what == "grpc" else min(repetitions, 3)):
            scored = model.scoring(columns(rows), **how)
            times.append(scored.seconds)
        values[what] = statistics.median(times)
        extra[what] = traffic(scored.traffic, PARTIES[1:], BUSIEST)
    what = f"{n_rows:,} x 15, {trained.trees} trees of {trained.depth} levels"
    row = MeasuredRow("scoring", what, values, extra=extra, yardstick=XGBOOST)
    show(row)
    return [row]


SECTIONS: dict[str, Callable[..., list[MeasuredRow]]] = {
    "protocols": measure_protocols, "slow_link": measure_slow_link, "homomorphic": measure_homomorphic,
    "schemes": measure_schemes,
    "A": measure_a, "B": measure_b, "wan": measure_wan, "scale": measure_scale, "scoring": measure_scoring,
}  # fmt: skip


# --- results ---------------------------------------------------------------------------------------------------------


def show(row: MeasuredRow) -> None:
    """A few lines per result, as it comes."""
    show_row(row, _described, width=46)
    if "ratio to link alone" in row.extra:
        print(f"        to link alone x {row.extra['ratio to link alone']:.2f}", flush=True)


def _described(row: MeasuredRow, name: str) -> str:
    about = row.extra.get(name, {})
    rounds = f"  {about['rounds']} rounds" if "rounds" in about else ""
    megabytes = f"  {about['bytes'] / 1e6:.3f} MB" if about else ""
    peak = "".join(f"  {party} {peak / 1e6:.0f} MB" for party, peak in about.get("peak memory", {}).items())
    return rounds + megabytes + auc_of(row, name) + peak


def markdown(rows: list[MeasuredRow], about: dict[str, Any]) -> str:
    """The page with all tables."""
    lines = [
        "# Benchmarks of the vertical protocols",
        "",
        "Written by `HEDGEROW_DATA=/folder/of/parquet/files make bench-vertical ARGS='--json",
        "benchmarks/results/vertical.json --markdown docs/benchmarks_vertical.md'`. All contenders of a section in one",
        f"run, interleaved, medians; learning rate 0.3. In sections A to Scoring {BUCKETS} buckets, {len(PARTIES)}",
        "parties with a third of the columns each, equal-frequency edges unless said, and ratios to pooled XGBoost",
        "(DMatrix and training, hist, 2 threads). AUCs are means over the repetitions, each with noise of its own.",
        "",
        *measured_on(about),
        f"Load average before the run: {about['load before the run']}.",
        "",
        "## Bars",
        "",
        *bars(rows),
    ]
    for section in dict.fromkeys(row.section for row in rows):
        chosen = [row for row in rows if row.section == section]
        lines += ["", f"## {section[0].upper()}{section[1:].replace('_', ' ')}"]
        lines += [] if chosen[0].date == about["date"] else ["", f"Measured {chosen[0].date}."]
        lines += ["", *TABLES.get(section, all_tables)(chosen)]
    return "\n".join(lines) + "\n"


def all_tables(rows: list[MeasuredRow]) -> list[str]:
    """One after the other."""
    return [line for row in rows for line in (*one_table(row), "")][:-1]


def protocols_tables(rows: list[MeasuredRow]) -> list[str]:
    """Per workload, all figures per tree; then who learns what, and others."""
    lines = ["All figures are per tree, of the whole training by its number of trees."]
    for row in rows:
        remark = f" (the {row.stood_still})" if row.stood_still else ""
        lines += ["", f"{row.what}{remark}", "", *protocols_table(row)]
    return [
        *lines, "", "What is given away, in the words of [who learns what](who_learns_what.md):", "", *leaks(), "",
        "Others on the same rows, as measured before on a machine of this kind (2 cores, single runs), all parties on",
        "one machine; where more than one tree was timed, the whole training by its number of trees:", "", *peers(),
    ]  # fmt: skip


def one_table(row: MeasuredRow) -> list[str]:
    """Everything that was measured about one workload."""
    header = ["", "seconds", "ratio", "bar", "rounds", "MB"] + (["AUC"] if "AUC" in row.extra else [])
    stalls = f" (the {row.stood_still})" if row.stood_still else ""
    repeated = f", repeated {row.extra['repetitions']} times" if "repetitions" in row.extra else ""
    contenders = []
    for name, value in row.values.items():
        about = row.extra.get(name, {})
        cells = [
            name,
            f"{value:.3f}",
            f"{row.ratios[name]:.2f}" if name in row.ratios else "",
            f"{row.bars[name]:g} ({_verdict(met=row.verdicts[name])})" if name in row.bars else "",
            f"{about['rounds']}" if "rounds" in about else "",
            f"{about['bytes'] / 1e6:.3f}" if about else "",
            *([f"{row.extra['AUC'][name]:.4f}"] if "AUC" in row.extra else []),
        ]
        contenders.append(cells)
    lines = [f"{row.what}{repeated}{stalls}", "", *table(header, contenders)]
    runs = {name: row.extra[name] for name in row.values if name in row.extra}
    memory = {name: about["peak memory"] for name, about in runs.items() if "peak memory" in about}
    if memory:
        peaks = {"its table and labels alone": row.extra["bytes of the table"]} | memory
        shown = [
            [name, *(f"{peak[party] / 1e6:.0f}" if party in peak else "" for party in PARTIES)]
            for name, peak in peaks.items()
        ]
        lines += ["", *table(["peak memory of the process, MB", *PARTIES], shown)]
    return lines


def wan_table(rows: list[MeasuredRow]) -> list[str]:
    """One line per run over the emulated link."""
    header = ["", "rounds", "MB of the busiest link", LINK_ALONE, "without link", "measured", "to link alone",
              "to link alone + without link"]  # fmt: skip
    lines = []
    for row in rows:
        (measured,) = row.bars
        about = row.extra[measured]
        bar, to_link = row.bars[measured], row.extra["ratio to link alone"]
        cells = [
            row.what,
            f"{about['rounds']}",
            f"{about[BUSIEST] / 1e6:.3f}",
            f"{row.values[LINK_ALONE]:.3f} s",
            f"{row.extra['seconds without link']:.3f} s",
            f"{row.values[measured]:.3f} s",
            f"{to_link:.2f} ({_verdict(met=to_link <= bar)})",
            f"{row.ratios[measured]:.2f} ({_verdict(met=row.verdicts[measured])})",
        ]
        lines.append(cells)
    return table(header, lines)


TABLES: dict[str, Callable[[list[MeasuredRow]], list[str]]] = {
    "protocols": protocols_tables, "slow_link": slow_link_table, "homomorphic": homomorphic_tables,
    "schemes": schemes_tables, "wan": wan_table,
}  # fmt: skip
"""Of sections that do not have `one_table` for each row."""


def bars(rows: list[MeasuredRow]) -> list[str]:
    """What we set ourselves, and whether it was reached."""
    lines = []
    for row in (row for row in rows if row.section in {"homomorphic", "schemes"}):
        for name, bar in row.bars.items():
            measured = row.values if row.yardstick is None else row.ratios
            unit = row.unit if row.yardstick is None else f"x {row.yardstick}"
            others = f" ({OTHERS[row.extra['case']]})" if row.extra.get("case") in OTHERS else ""
            what = f"homomorphic, {row.what}; {name}: at most {bar:g} {unit}"
            lines.append([what, f"{measured[name]:.3g}{others}", _verdict(met=row.verdicts[name])])
    for row in (row for row in rows if row.section in WORKLOADS):
        for transport, bar in (("memory", BAR_MEMORY), ("grpc", BAR_GRPC)):
            found = {n: row.ratios[n] for n in row.bars if n.startswith(transport)}
            if found:
                measured = "; ".join(f"{n.removeprefix(transport + ', ')}: {r:.2f}" for n, r in found.items())
                met = _verdict(
                    met=max(found.values()) <= bar, n_met=sum(r <= bar for r in found.values()), of=len(found)
                )
                lines.append([f"{row.section}, {transport}: at most {bar:g} x XGBoost", measured, met])
    wan = [row for row in rows if row.section == "wan"]
    if wan:
        alone = [row.extra["ratio to link alone"] for row in wan]
        whole = [row.ratios[name] for row in wan for name in row.bars]
        for what, found in {
            "bytes / bandwidth + rounds x round trip": alone,
            "that + the same without link": whole,
        }.items():
            n_met = sum(ratio <= BAR_WAN for ratio in found)
            met = _verdict(met=n_met == len(found), n_met=n_met, of=len(found))
            lines.append([f"WAN: at most {BAR_WAN:g} x ({what})", f"{min(found):.2f} to {max(found):.2f}", met])
    return table(["bar", "measured", "verdict"], lines)


def _verdict(*, met: bool, n_met: int = 0, of: int = 0) -> str:
    partly = f" by all, met by {n_met} of {of}" if n_met else ""
    return "met" if met else f"not met{partly}"


def write_costs(rows: list[MeasuredRow]) -> None:
    """The table on the page of vertical.homomorphic."""
    from experiments.central_dp.page import filled

    if any(row.section == "homomorphic" for row in rows):
        HOMOMORPHIC_PAGE.write_text(filled(HOMOMORPHIC_PAGE.read_text(), "costs", "\n".join(costs_table(rows))))


def main() -> None:
    parser = make_parser(__doc__, SECTIONS, repetitions=7)
    parser.add_argument("--quick", action="store_true", help="one repetition of the most important, smaller tables")
    arguments = parser.parse_args()
    wanted = chosen_sections(parser, arguments, list(SECTIONS))
    check_files(parser, arguments)
    if arguments.quick and not arguments.sections:
        wanted = [name for name in wanted if name not in {"slow_link", "schemes"}]
    rows = run_sections(arguments, wanted, SECTIONS, MeasuredRow, bars, markdown)
    if arguments.markdown:
        write_costs(rows)


if __name__ == "__main__":
    main()
