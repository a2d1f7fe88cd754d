"""Arithmetic on shares: how fast the kernels are that vertical boosting on secret shares is made of.

    python benchmarks/shares.py                                  all, on one core and on all
    python benchmarks/shares.py --repeats 20 --json benchmarks/results/shares.json

Rates are the best of several runs, for on a busy machine most are slow. A multiplication of numbers of L limbs is
L (L + 1) / 2 products of limbs; a product of a matrix and S right-hand sides reads the matrix once.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from hedgerow.crypto import limbs, ring

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
        out = np.empty((n_sides, n_rows), dtype)
        cells = np.empty((n_sides, COLUMNS, BINS), dtype)
        taken = seconds(lambda s=sides, o=out: ring.products(matrix, s, o, n_threads=n_threads), repeats)
        name = f"{bits} bits, {n_sides} sides"
        rates.append(Rate(f"products, {name}", n_rows * n_sides * ROWS / taken, "multiply-adds", n_threads))
        taken = seconds(lambda s=sides, o=cells: ring.histogram(codes, s, BINS, o, n_threads=n_threads), repeats)
        rates.append(Rate(f"histogram, {name}", COLUMNS * n_sides * ROWS / taken, "additions", n_threads))
    if n_threads == 1:
        taken = seconds(lambda: ring.one_hot_minus(codes, matrix, BINS), repeats)
        rates.append(Rate(f"one_hot_minus, {bits} bits", matrix.nbytes / taken, "bytes"))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    chosen = parser.parse_args()

    load = os.getloadavg()[0]
    rates = [rate for n_limbs in (4, 5, 6, 8) for rate in limb_rates(n_limbs, chosen.repeats)]
    for n_threads in sorted({1, len(os.sched_getaffinity(0))}):
        for dtype in (np.uint32, np.uint64):
            rates += ring_rates(dtype, n_threads, chosen.repeats)
    for rate in rates:
        threads = "1 thread" if rate.threads == 1 else f"{rate.threads} threads"
        print(f"{rate.kernel:30} {rate.per_second / 1e9:7.2f} G {rate.unit} per second, {threads}", flush=True)
    if chosen.json:
        results = {
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "python": platform.python_version(),
            "numba": version("numba"),
            "load_before": load,
            "rates": [asdict(rate) for rate in rates],
        }
        chosen.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
