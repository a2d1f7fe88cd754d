"""All vertical protocols on the same rows, with the same trees: two sections of vertical.py.

    protocols   A (8,192 x 11) and B (50,000 x 15), 32 bins, trees of 4 levels, 3 parties (and a dealer, where one is
                needed): in memory, and over gRPC with a process for each party
    slow_link   the same with 2 trees over an emulated link: 100 ms round trip, 20 Mbit/s in each direction

Seconds per tree are those of the whole training by its number of trees, so that what is done once is in them.
Processor seconds are those of all threads of a process: in memory of the one in which all parties are, over gRPC of
each party's own from its start on, with reading its rows and connecting. Slow schemes grow fewer trees, once. A run
over the slow link that would take the link alone more than `LONGEST` seconds is not made; what the link alone takes
stands in its place.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

from by_columns import BUSIEST, PARTIES, TOGETHER, federated
from side_by_side import (
    LINK_ALONE,
    XGBOOST,
    Contender,
    Fitted,
    MeasuredRow,
    Workload,
    auc_of,
    fit_pooled,
    fit_xgboost,
    measure_in_turn,
    say,
    seconds_on_slow_link,
    show_row,
    synthetic,
    table,
)

SIZES = {"A": (8_192, 4_096, 11), "B": (50_000, 10_000, 15)}
BINS = 32
TREES, TREES_OF_SLOW, TREES_ON_SLOW_LINK = 5, 2, 2
MOST_REPETITIONS = 3
LONGEST = 45.0
ENGINE = "pooled engine"
EPSILON, DELTA = 4.0, 1e-5
HOMOMORPHIC = "vertical.homomorphic"
SCHEMES: dict[str, dict[str, Any]] = {
    "elgamal": {},
    "ou 2048": {"scheme": "ou", "key_bits": 2048},
    "paillier 2048": {"scheme": "paillier", "key_bits": 2048},
}


class Variant(NamedTuple):
    """A protocol and what it is given beside the trees; whether it is too slow to be repeated."""

    protocol: str
    options: dict[str, Any]
    slow: bool = False
    only_slow_link: bool = False

    def contender(self, transport: str, trees: int, **how: Any) -> Contender:
        """It, with this many trees."""
        bins = {"buckets" if self.protocol == "vertical.bucket_rr" else "max_bins": BINS + 1}  # one is for gaps
        fit = federated(self.protocol, transport, watched=True, **bins, **self.options, **how)
        return lambda workload: fit(dataclasses.replace(workload, trees=trees))

    @property
    def trees(self) -> int:
        """Where the link is fast."""
        return TREES_OF_SLOW if self.slow else TREES


VARIANTS: dict[str, Variant] = {
    "bucket_rr, no noise": Variant("vertical.bucket_rr", {"epsilon": math.inf, "edges": "quantile"}),
    "bucket_rr, eps 4": Variant("vertical.bucket_rr", {"epsilon": EPSILON, "edges": "quantile"}),
    "noised_gradients, eps 4": Variant("vertical.noised_gradients", {"epsilon": EPSILON, "delta": DELTA}),
    "secret_shared": Variant("vertical.secret_shared", {}),
    **{f"homomorphic, {name}": Variant(HOMOMORPHIC, how, slow=bool(how)) for name, how in SCHEMES.items()},
    "homomorphic, elgamal, compressed": Variant(HOMOMORPHIC, {"compressed": True}, only_slow_link=True),
    "private_histograms, eps 4": Variant(
        "vertical.private_histograms", {"epsilon": EPSILON, "delta": DELTA, "needs_schema": True}
    ),
    "masked_gradients, as published": Variant(
        "vertical.masked_gradients",
        {
            "eps_ap": EPSILON, "delta_ap": 1e-3, "eps_pp": 1.0, "n_vectors": 1, "reading": "vector",
            "accept_low_snr": True, "accept_known_leaks": True,
        },
    ),
    "mp_fedxgb, as published": Variant("vertical.mp_fedxgb", {"accept_known_leaks": True}),
}  # fmt: skip
QUICK = ("bucket_rr, no noise", "homomorphic, elgamal")

PEERS = (
    ("FedTree 1.0.5, vertical, no protection", "0.022", "0.16", "nothing"),
    ("xgboost federated, vertical", "0.065", "0.069", "the wire only; every party's model has all thresholds"),
    ("NVFlare 2.9, vertical", "2.2", "1.8", "the wire; its encryption plugin was not there, and nothing said so"),
    ("FedTree 1.0.5, vertical, HE", "3.4", "27 (processor seconds)", "Paillier of 512 bits"),
    ("SecretFlow 1.14, SGB", "3.3", "4.3", "Okamoto-Uchiyama of 2,048 bits; by default not the first tree"),
    ("SecretFlow 1.14, SS-XGB", "7.0", "19.5", "secret shares of three parties (ABY3)"),
)
"""Seconds per tree on A and B, measured before on a machine of this kind (2 cores), single runs; those of the first two
are whole trainings (200 trees on A, 32 on B) by their number of trees."""
WHO_LEARNS_WHAT = Path(__file__).parents[1] / "docs" / "who_learns_what.md"


# --- measuring -------------------------------------------------------------------------------------------------------


def sized(name: str, trees: int = TREES) -> Workload:
    n_train, n_test, n_columns = SIZES[name]
    return dataclasses.replace(synthetic(name, n_train, n_test, n_columns, trees), bins=BINS)


def title(name: str) -> str:
    n_rows, _, n_columns = SIZES[name]
    return f"{name} {n_rows:,} x {n_columns}, {BINS} bins, 4 levels, {len(PARTIES)} parties"


def clocked(fit: Contender) -> Contender:
    """With the processor seconds of what it does in this process."""

    def fit_by_the_clock(workload: Workload) -> Fitted:
        busy = time.process_time()
        fitted = fit(workload)
        fitted.about["processor"] = {TOGETHER: time.process_time() - busy}
        return fitted

    return fit_by_the_clock


def measure_protocols(repetitions: int, *, quick: bool) -> list[MeasuredRow]:
    """Both workloads, everybody in turn: medians of seconds and of processor seconds per tree, means of AUCs."""
    return [measure_one(name, repetitions, quick=quick) for name in (["A"] if quick else SIZES)]


def measure_one(name: str, repetitions: int, *, quick: bool) -> MeasuredRow:
    from sklearn.metrics import roc_auc_score

    workload = sized(name)
    wanted = {what: one for what, one in VARIANTS.items() if not one.only_slow_link and (not quick or what in QUICK)}
    contenders = {XGBOOST: clocked(fit_xgboost), ENGINE: clocked(fit_pooled)}
    trees, once = dict.fromkeys(contenders, TREES), set()
    for transport in ("memory", "grpc"):
        for what, variant in wanted.items():
            run = f"{transport}, {what}"
            contenders[run], trees[run] = variant.contender(transport, variant.trees), variant.trees
            once |= {run} if variant.slow else set()
    for what, fit in contenders.items():
        if not what.startswith("grpc"):  # these compile in processes of their own, before they are timed
            say(name, f"{what}, compiling")
            fit(workload.small())
    aucs: dict[str, list[float]] = {what: [] for what in contenders}
    processor: dict[str, list[dict[str, float]]] = {what: [] for what in contenders}
    X_test, y_test = workload.held_out or (workload.X, workload.y)

    def note(what: str, fitted: Fitted) -> None:
        say(name, f"{what}: {fitted.seconds:.2f} s")
        processor[what].append(fitted.about["processor"])
        aucs[what].append(float(roc_auc_score(y_test, fitted.predict(X_test))))

    measured = measure_in_turn(workload, contenders, min(repetitions, MOST_REPETITIONS), note, once)
    values = {what: median / trees[what] for what, median in measured.medians.items()}
    row = MeasuredRow("protocols", title(name), values, extra=measured.extra(), unit="seconds per tree")
    row.extra["trees"] = trees
    row.extra["AUC"] = {what: statistics.mean(found) for what, found in aucs.items()}
    row.extra["processor"] = {
        what: {party: statistics.median(one[party] for one in runs) / trees[what] for party in runs[0]}
        for what, runs in processor.items()
    }
    show(row)
    return row


def measure_slow_link(_: int, *, quick: bool) -> list[MeasuredRow]:
    """Each once with a fast link, which says what the slow one alone would take; then with the slow one."""
    rows = []
    for name in ["A"] if quick else SIZES:
        workload = sized(name)
        values, extra = {}, {}
        for what, variant in VARIANTS.items():
            if quick and what not in QUICK:
                continue
            near = variant.contender("memory", 1)
            near(workload.small())  # compile
            about = near(workload).about
            alone = TREES_ON_SLOW_LINK * seconds_on_slow_link(about["rounds"], about[BUSIEST])
            say(name, f"{what}: about {alone:.1f} s on the link alone")
            if alone <= LONGEST:
                fitted = variant.contender("memory", TREES_ON_SLOW_LINK, wan=True)(workload)
                values[what] = fitted.seconds / TREES_ON_SLOW_LINK
                about = fitted.about
                alone = seconds_on_slow_link(about["rounds"], about[BUSIEST])
            n_trees = TREES_ON_SLOW_LINK if what in values else 1
            extra[what] = {**about, "trees": n_trees, LINK_ALONE: alone / TREES_ON_SLOW_LINK}
        row = MeasuredRow("slow_link", title(name), values, extra=extra, unit="seconds per tree")
        show(row)
        rows.append(row)
    return rows


# --- results ---------------------------------------------------------------------------------------------------------


def show(row: MeasuredRow) -> None:
    """A few lines per result, as it comes."""
    show_row(row, _described, width=42)


def _described(row: MeasuredRow, name: str) -> str:
    processor = sum(row.extra.get("processor", {}).get(name, {}).values())
    return f" s per tree, {processor:.3f} processor seconds" * bool(processor) + auc_of(row, name)


def protocols_table(row: MeasuredRow) -> list[str]:
    """One line per protocol: in memory, then over gRPC, what it sent, and how good its trees are."""
    header = [
        "", "trees", "seconds in memory", "processor, all parties", "seconds over gRPC", "processor, label holder",
        "processor, busiest other", "processor, dealer", "rounds", "MB, all links", "MB, busiest party", "AUC",
    ]  # fmt: skip
    names = dict.fromkeys(what.removeprefix("memory, ").removeprefix("grpc, ") for what in row.values)
    return table(header, [_protocol_cells(row, name) for name in names])


def _protocol_cells(row: MeasuredRow, name: str) -> list[str]:
    near = name if name in row.values else f"memory, {name}"
    far, trees = f"grpc, {name}", row.extra["trees"][near]
    by_party = dict(row.extra["processor"].get(far, {}))
    own, dealer = by_party.pop(PARTIES[0], None), by_party.pop("dealer", None)
    others = max(by_party.values(), default=None)
    about = row.extra.get(far, {})
    sent = [
        _shown(about[what] / trees / size, digits) if about else ""
        for what, size, digits in (("rounds", 1, 1), ("bytes", 1e6, 2), (BUSIEST, 1e6, 2))
    ]
    return [
        name, f"{trees}", _shown(row.values[near]), _shown(sum(row.extra["processor"][near].values())),
        _shown(row.values.get(far)), _shown(own), _shown(others), _shown(dealer), *sent,
        f"{row.extra['AUC'][near]:.4f}",
    ]  # fmt: skip


def slow_link_table(rows: list[MeasuredRow]) -> list[str]:
    """One line per protocol, all per tree."""
    lines = []
    for row in rows:
        for name, about in row.extra.items():
            if not isinstance(about, dict):
                continue
            sent = [f"{about['rounds'] / about['trees']:.1f}", f"{about[BUSIEST] / about['trees'] / 1e6:.2f}"]
            measured = _shown(row.values[name], 2) if name in row.values else "not run"
            lines.append([row.what, name, *sent, _shown(about[LINK_ALONE], 2), measured])
    header = ["", "", "rounds", "MB, busiest party", "seconds, link alone", "seconds, measured"]
    return table(header, lines)


def _shown(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def leaks() -> list[str]:
    """Who learns what, in the words of the page that says it of all protocols."""
    rows = [line.split(" | ") for line in WHO_LEARNS_WHAT.read_text().splitlines() if line.startswith("| `vertical.")]
    return table(["", "who learns what"], [[row[0].removeprefix("| "), row[1]] for row in rows])


def peers() -> list[str]:
    """What others take, where they ran on a machine of this kind."""
    return table(["seconds per tree", "A", "B", "what protects"], PEERS)
