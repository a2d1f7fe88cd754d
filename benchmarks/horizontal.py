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

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from side_by_side import (
    LEARNING_RATE,
    LINK_ALONE,
    POOLED,
    XGBOOST,
    Contender,
    Fitted,
    MeasuredRow,
    Stalls,
    Workload,
    auc_of,
    chosen_sections,
    fit_pooled,
    fit_xgboost,
    machine,
    make_parser,
    measure_in_turn,
    measured_on,
    merged,
    seconds_on_slow_link,
    show_row,
    slow_link,
    synthetic,
    table,
    traffic,
    write_json,
    write_markdown,
)

WAN_TRANSPORT = "memory"  # the link is emulated either way; in memory nothing else is measured
AUC_SEEDS = 10
BUSIEST = "busiest owner's bytes"


@dataclass
class Row(MeasuredRow):
    """Seconds or AUCs."""

    unit: str = "s"

    @property
    def measured_against(self) -> str | None:
        """XGBoost, where it was timed; over a WAN, what the link alone takes."""
        yardstick = XGBOOST if XGBOOST in self.values else LINK_ALONE
        return yardstick if self.unit == "s" and yardstick in self.values else None

    @property
    def verdicts(self) -> dict[str, bool]:
        """Per bar: met or not. Times must not be above theirs, AUCs not below."""
        if self.unit == "AUC":
            return {name: self.values[name] >= bar for name, bar in self.bars.items()}
        return super().verdicts


# --- data ------------------------------------------------------------------------------------------------------------


def dataset(name: str, trees: int, depth: int, bins: int, *, shuffled: bool = True) -> Workload | None:
    """A dataset of HEDGEROW_DATA in random order (or the file's); None, with a message, where it is not."""
    from pyarrow import parquet

    from hedgerow.datasets import DatasetNotFound, find_dataset

    try:
        frame = parquet.read_table(find_dataset(name)).to_pandas()
    except DatasetNotFound as missing:
        print(f"{name} is left out: {missing}", file=sys.stderr)
        return None
    y = frame.pop("label").to_numpy(np.float64)
    X = frame.to_numpy(np.float64, na_value=np.nan)
    order = np.random.default_rng(0).permutation(len(y)) if shuffled else np.arange(len(y))
    return Workload(name, np.ascontiguousarray(X[order]), y[order], trees, depth, bins)


def credit(name: str, bins: int | None = None, *, shuffled: bool = True) -> Workload | None:
    """The two credit datasets with FederBoost's settings."""
    buckets = bins or {"give_me_some_credit": 26, "default_credit_card": 24}[name]
    return dataset(name, 20, 3, buckets, shuffled=shuffled)


def present(workloads: Iterable[Workload | None]) -> list[Workload]:
    return [workload for workload in workloads if workload is not None]


def title(workload: Workload) -> str:
    """How it is called in tables."""
    return f"{workload.title}, {workload.bins} bins"


def owners(workload: Workload, n_owners: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The rows dealt out to owners, equally many each."""
    parts = zip(np.array_split(workload.X, n_owners), np.array_split(workload.y, n_owners), strict=True)
    return {f"owner_{i + 1}": part for i, part in enumerate(parts)}


# --- contenders ------------------------------------------------------------------------------------------------------


def federated(n_owners: int, transport: str, *, wan: bool = False, apart: bool = True) -> Contender:
    """A contender that trains with so many owners; a party of its own (`apart`) or the first owner coordinates."""

    def fit(workload: Workload) -> Fitted:
        from hedgerow.federation.federation import Federation

        federation = Federation.horizontal(owners(workload, n_owners))
        start = time.perf_counter()
        run = federation.fit(
            "horizontal.secure_sum",
            n_estimators=workload.trees,
            max_depth=workload.depth,
            learning_rate=LEARNING_RATE,
            max_bins=workload.bins + 1,
            transport=transport,
            link=slow_link() if wan else None,
            **({"accept_no_masking": True} if n_owners < 3 else {}),
            **({} if apart else {"coordinator": federation.parties[0]}),
        )
        wall = time.perf_counter() - start
        sent = traffic(run.traffic, federation.parties, BUSIEST)
        about = {**sent, **rounds(run.rounds, workload.trees), "wall": wall}
        return Fitted(run.seconds, lambda rows: run.model.predict_proba(rows)[:, 1], about)

    return fit


def rounds(counted: Mapping[str, int], trees: int) -> dict[str, float]:
    return {
        "rounds before the trees": counted["setup"],
        "rounds": counted["setup"] + counted["training"],
        "rounds per tree": counted["training"] / trees,
    }


# --- sections --------------------------------------------------------------------------------------------------------


def measure(
    section: str, workload: Workload, contenders: Mapping[str, Contender], repetitions: int, bars: Mapping[str, float]
) -> Row:
    """All contenders in turn, `repetitions` times; medians of their seconds."""
    for fit in contenders.values():  # compile, load libraries, touch memory
        fit(workload.small())
    measured = measure_in_turn(workload, contenders, repetitions)
    row = Row(section, title(workload), measured.medians, dict(bars), measured.extra())
    if workload.held_out is not None:
        from sklearn.metrics import roc_auc_score

        X, y = workload.held_out
        row.extra["AUC"] = {name: float(roc_auc_score(y, fitted.predict(X))) for name, fitted in measured.last.items()}
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
        workload = dataclasses.replace(workload, bins=bins)
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
        on_the_way = seconds_on_slow_link(about["rounds"], about[BUSIEST])
        seconds = [run.seconds for run in runs]
        row = Row("wan", title(workload), {LINK_ALONE: on_the_way, name: statistics.median(seconds)})
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
            rows.append(Row("auc", f"{title(part)}, {what}", values, bar, extra, unit="AUC"))
            show(rows[-1])
    return rows


SECTIONS: dict[str, Callable[[int, int | None], list[Row]]] = {
    "A": measure_a, "B": measure_b, "owners": measure_owners, "susy": measure_susy, "paper": measure_paper,
    "wan": measure_wan, "auc": measure_auc,
}  # fmt: skip


# --- results ---------------------------------------------------------------------------------------------------------


def show(row: Row) -> None:
    """A few lines per result, as it comes."""
    show_row(row, _described, width=28)


def _described(row: Row, name: str) -> str:
    about = row.extra.get(name, {})
    sent = (
        f"  {about['rounds']} rounds ({about['rounds per tree']:.2f} per tree), {about['bytes'] / 1e6:.2f} MB"
        if about
        else ""
    )
    return sent + auc_of(row, name)


def markdown(rows: list[Row], about: dict[str, Any]) -> str:
    """The page with all tables."""
    lines = [
        "# Benchmarks of horizontal.secure_sum",
        "",
        "Written by `python benchmarks/horizontal.py --json benchmarks/results/horizontal.json --markdown` and this",
        "page. All contenders of a section in one run, interleaved, medians; learning rate 0.3. Ratios are to pooled",
        "XGBoost (DMatrix and training, hist, 2 threads), over a WAN to what the link alone takes.",
        "",
        *measured_on(about),
    ]
    for section in dict.fromkeys(row.section for row in rows):
        lines += ["", f"## {section[0].upper()}{section[1:]}"]
        for row in (row for row in rows if row.section == section):
            stalls = f" (the {row.stood_still})" if row.stood_still else ""
            lines += ["", f"{row.what}{stalls}", "", *one_table(row)]
    return "\n".join(lines) + "\n"


def one_table(row: Row) -> list[str]:
    """Everything that was measured about one workload."""
    header = ["", "AUC" if row.unit == "AUC" else "seconds", "ratio", "bar", "rounds", "per tree", "MB"]
    lines = []
    for name, value in row.values.items():
        about = row.extra.get(name, {})
        cells = [
            name,
            f"{value:.4f}" if row.unit == "AUC" else f"{value:.3f}",
            f"{row.ratios[name]:.2f}" if name in row.ratios else "",
            f"{row.bars[name]:g} ({'met' if row.verdicts[name] else 'missed'})" if name in row.bars else "",
            f"{about['rounds']}" if about else "",
            f"{about['rounds per tree']:.2f}" if about else "",
            f"{about['bytes'] / 1e6:.2f}" if about else "",
        ]
        lines.append(cells)
    return table(header, lines)


def main() -> None:
    parser = make_parser(__doc__, SECTIONS, repetitions=5)
    parser.add_argument("--bins", type=int, help="bins for values, where the paper's are not wanted")
    arguments = parser.parse_args()
    wanted = chosen_sections(parser, arguments, list(SECTIONS))
    rows = [row for name in wanted for row in SECTIONS[name](arguments.repetitions, arguments.bins)]
    about = machine()
    if arguments.json:
        rows = merged(arguments.json, rows, Row, SECTIONS)
        write_json(arguments.json, rows, about)
    if arguments.markdown:
        write_markdown(arguments.markdown, markdown(rows, about))


if __name__ == "__main__":
    main()
