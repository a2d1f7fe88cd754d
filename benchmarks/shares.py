"""Arithmetic on shares: how fast the kernels are that vertical boosting on secret shares is made of.

    python benchmarks/shares.py                                  all, on one core and on all
    python benchmarks/shares.py --only conversations             lifting and tournaments alone
    python benchmarks/shares.py --repeats 20 --json benchmarks/results/shares.json

Rates are the best of several runs, for on a busy machine most are slow. A multiplication of numbers of L limbs is
L (L + 1) / 2 products of limbs; a product of a matrix and S right-hand sides reads the matrix once.

Conversations: the dealer and all parties in one process and one thread, a message an array that is handed on. Times are
of the dealer, and of all parties together. "A tree" is a depth of 4, its 1, 2, 4 and 8 nodes each with 310 candidates
of others and one of the label holder (50,000 x 15 with 32 bins and three parties), in a ring of 160 bits. "A wide
level" is 8 nodes with 19,050 candidates and one (25,000 x 300 with 128 bins and two parties).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from hedgerow.crypto import limbs, ring
from hedgerow.crypto.compare import Circuit
from hedgerow.crypto.lifting import deal_gains, gains
from hedgerow.crypto.shares import SUM32, Share, limbs_kind
from hedgerow.crypto.tournament import Plan, Select, tournament

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from twins.share_table import Meter, Table, deal_tournament

NUMBERS = 200_000
ROWS, COLUMNS, BINS = 50_000, 10, 32


@dataclass(frozen=True)
class Rate:
    """One kernel's best rate."""

    kernel: str
    per_second: float
    unit: str
    threads: int = 1


def seconds(work: Callable[[], object], repeats: int) -> float:
    work()  # compiled, and all pages there
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def limb_rates(n_limbs: int, repeats: int) -> list[Rate]:
    draw = np.random.default_rng(0)
    x, y = (draw.integers(0, 2**32, (NUMBERS, n_limbs), dtype=np.uint32) for _ in range(2))
    out = np.empty_like(x)
    cut = np.empty((NUMBERS, limbs.n_digits(n_limbs, 5)), np.uint8)
    products, touched = NUMBERS * n_limbs * (n_limbs + 1) / 2, 3 * x.nbytes
    name = f"{32 * n_limbs} bits"
    return [
        Rate(f"multiply, {name}", products / seconds(lambda: limbs.multiply(x, y, out), repeats), "products of limbs"),
        Rate(f"add_product, {name}", products / seconds(lambda: limbs.add_product(out, x, y), repeats),
             "products of limbs"),
        Rate(f"add, {name}", touched / seconds(lambda: limbs.add(x, y, out), repeats), "bytes"),
        Rate(f"subtract, {name}", touched / seconds(lambda: limbs.subtract(x, y, out), repeats), "bytes"),
        Rate(f"digits of 5 bits, {name}", NUMBERS / seconds(lambda: limbs.digits(x, 5, cut), repeats), "numbers"),
    ]  # fmt: skip


def ring_rates(dtype: type[np.unsignedinteger], n_threads: int, repeats: int) -> list[Rate]:
    draw = np.random.default_rng(0)
    bits = 8 * np.dtype(dtype).itemsize
    n_rows = COLUMNS * (BINS - 1)
    codes = draw.integers(0, BINS, (COLUMNS, ROWS), dtype=np.uint8)
    matrix = draw.integers(0, 2**bits - 1, (n_rows, ROWS), dtype=dtype)
    rates = []
    for n_sides in (2, 4, 8, 16):
        sides = draw.integers(0, 2**bits - 1, (n_sides, ROWS), dtype=dtype)
        taken = seconds(lambda s=sides: ring.rows_times(matrix, s, n_threads=n_threads), repeats)
        name = f"{bits} bits, {n_sides} sides"
        rates.append(Rate(f"products, {name}", n_rows * n_sides * ROWS / taken, "multiply-adds", n_threads))
        taken = seconds(lambda s=sides: ring.histogram(codes, s, BINS, n_threads=n_threads), repeats)
        rates.append(Rate(f"histogram, {name}", COLUMNS * n_sides * ROWS / taken, "additions", n_threads))
    if n_threads == 1:
        masks = matrix[: BINS - 1]
        taken = seconds(lambda: ring.one_hot_minus(codes[0], 0, masks), repeats)
        rates.append(Rate(f"one_hot_minus, {bits} bits", masks.nbytes / taken, "bytes"))
    return rates


def kernel_rates(repeats: int) -> list[Rate]:
    """Of all kernels, on one core and on all."""
    rates = [rate for n_limbs in (4, 5, 6, 8) for rate in limb_rates(n_limbs, repeats)]
    for n_threads in sorted({1, len(os.sched_getaffinity(0))}):
        for dtype in (np.uint32, np.uint64):
            rates += ring_rates(dtype, n_threads, repeats)
    return rates


@dataclass(frozen=True)
class Cost:
    """What a conversation costs: the fastest of some."""

    work: str
    rounds: int
    opened_bytes: int  # that each party sends to each other
    dealt_bytes: int
    dealer_seconds: float
    party_seconds: float


def talks(
    n_parties: int, nodes: tuple[int, ...], n_candidates: int, groups: tuple[int, ...], select: Select, circuit: Circuit
) -> tuple[Meter, Meter]:
    """What lifting and the tournaments of some levels took, with one candidate more at position 0."""
    table = Table(n_parties, keeps_openings=False)
    lifting, choosing = Meter(), Meter()
    kind, draw = limbs_kind(5), np.random.default_rng(0)
    for n_nodes in nodes:
        shape = (n_nodes, n_candidates)
        sums = [table.split(draw.integers(0, 2**20, shape, dtype=np.uint32), SUM32) for _ in range(4)]
        table.meter = lifting
        lifted = table.talk(
            lambda step, n=n_nodes * n_candidates: deal_gains(step, n, SUM32, kind),
            lambda step, me, sums=sums: gains(step, tuple(x[me] for x in sums), 2**14, kind, is_first=me == 0),
        )
        table.meter = choosing
        plan = Plan(n_nodes, n_candidates + 1, 5, groups, select, circuit)
        own = np.zeros((n_nodes, 1, 5), np.uint32)
        entries = []
        for me, both in enumerate(lifted):
            own[..., 0] = me == 0  # 1 / 1 of the first party
            P, Q = (Share(np.concatenate([own, x.words], axis=1), kind) for x in both)
            entries.append((P, Q, Share(P.words[..., 0].copy(), SUM32)))
        table.talk(
            lambda step, plan=plan: deal_tournament(lambda _: step, plan),
            lambda step, me, plan=plan, entries=entries: tournament(
                lambda _: step, *entries[me], plan, is_first=me == 0
            ),
        )
    return lifting, choosing


def costs(repeats: int) -> list[Cost]:
    deep, short = Circuit(4, 4), Circuit(5, 6)
    cases: list[tuple[str, int, tuple[int, ...], int, tuple[int, ...], Select, Circuit]] = [
        *(("a tree", m, (1, 2, 4, 8), 310, (4, 4, 4, 5), "table", short) for m in (2, 3, 4, 8)),
        ("a tree", 3, (1, 2, 4, 8), 310, (4, 4, 4, 5), "lean", short),
        ("a tree", 3, (1, 2, 4, 8), 310, (7, 7, 7), "lean", short),
        ("a tree", 3, (1, 2, 4, 8), 310, (6, 7, 8), "table", short),
        ("a wide level", 2, (8,), 19_050, (4,), "lean", deep),
        ("a wide level", 2, (8,), 19_050, (4,), "table", short),
    ]
    found = []
    for name, *case in cases:
        talks(*case)  # compiled
        runs = [talks(*case) for _ in range(repeats if name == "a tree" else 2)]
        for which, part in enumerate(("lifting", "tournament")):
            meter = min((run[which] for run in runs), key=lambda each: each.party_seconds + each.dealer_seconds)
            n_parties, _, _, groups, select, (w, q) = case
            how = f", groups {groups}, {select}, digits of {w}, blocks of {q}" if which else ""
            found.append(Cost(f"{part}, {name}, {n_parties} parties{how}", meter.rounds, meter.sent_bytes,
                              meter.dealt_bytes, meter.dealer_seconds, meter.party_seconds))  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--only", choices=("kernels", "conversations"), help="leave the other part out")
    chosen = parser.parse_args()

    load = os.getloadavg()[0]
    rates = kernel_rates(chosen.repeats) if chosen.only != "conversations" else []
    for rate in rates:
        threads = "1 thread" if rate.threads == 1 else f"{rate.threads} threads"
        print(f"{rate.kernel:30} {rate.per_second / 1e9:7.2f} G {rate.unit} per second, {threads}", flush=True)
    taken = costs(chosen.repeats) if chosen.only != "kernels" else []
    for cost in taken:
        print(
            f"{cost.work}\n    {cost.rounds} rounds, {cost.opened_bytes / 1e3:,.0f} KB opened, "
            f"{cost.dealt_bytes / 1e6:,.2f} MB dealt, dealer {1e3 * cost.dealer_seconds:,.1f} ms, "
            f"parties together {1e3 * cost.party_seconds:,.1f} ms"
        )
    if chosen.json:
        results = {
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "python": platform.python_version(),
            "numba": version("numba"),
            "load_before": load,
            "rates": [asdict(rate) for rate in rates],
            "conversations": [asdict(cost) for cost in taken],
        }
        chosen.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
