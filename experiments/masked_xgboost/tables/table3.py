"""Table 3 of the paper: seconds per tree; and bytes per node, for which it has formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.central_dp.show import table
from experiments.masked_xgboost.cells import (
    DEPTH,
    ELGAMAL,
    FED_LDP,
    FEDERBOOST,
    HISTOGRAM,
    LDP,
    OU,
    PAILLIER,
    SHARED,
    VECTOR,
    WINNER,
    XGBOOST,
    Cell,
    Result,
)
from experiments.masked_xgboost.datasets import DATASETS
from experiments.masked_xgboost.tables.common import PAPER_NAMES, QUICK, QUICK_DATASETS, Results, chosen, measured

HE = "HE-XGBoost"
"""The paper's own, with Paillier. Ours stand below it."""
ENCRYPTED = (PAILLIER, OU, ELGAMAL)
SLOW = (PAILLIER, OU)
METHODS = (XGBOOST, VECTOR, *ENCRYPTED, LDP, FED_LDP, FEDERBOOST, HISTOGRAM, WINNER, SHARED)
TREES, ROWS, REPETITIONS = 5, 10_000, 2
TREES_OF_SLOW = 2
EPSILON = 4.0
CIPHERTEXT = 4_096 // 8
PAPER: dict[str, tuple[float, ...]] = {
    XGBOOST: (0.25, 0.15, 0.58, 0.17, 0.38, 0.15),
    VECTOR: (3.95, 1.54, 11.17, 2.21, 5.17, 1.77),
    HE: (25.22, 7.43, 47.70, 11.71, 18.41, 11.91),
    LDP: (3.47, 1.41, 4.78, 1.29, 2.85, 1.45),
    FED_LDP: (3.27, 1.18, 3.72, 1.23, 2.22, 1.03),
    FEDERBOOST: (2.15, 1.11, 3.11, 1.05, 1.95, 0.95),
}
"""Seconds per tree of all rows, on 40 cores."""


def cells(*, quick: bool) -> list[Cell]:
    """The first repetition warms up; slow ones have none, and fewer trees."""
    datasets = QUICK_DATASETS if quick else DATASETS
    planned = []
    for dataset in datasets:
        for method in METHODS:
            size: dict[str, Any] = {"trees": TREES_OF_SLOW if method in SLOW else TREES, "rows": ROWS}
            size = QUICK if quick else size
            indices = range(1 if quick or method in SLOW else REPETITIONS)
            planned += [Cell(dataset, method, EPSILON, index, timed=True, **size) for index in indices]
    return planned


def report(results: Results, folder: Path, link: str) -> str:
    """Seconds beside the paper's, then bytes beside its formula."""
    del folder, link
    found = results["table3"]
    there = [dataset for dataset in DATASETS if chosen(found, dataset=dataset)]
    seconds = []
    for method in (*METHODS[:2], HE, *METHODS[2:]):
        paper = dict(zip(DATASETS, PAPER[method], strict=True)) if method in PAPER else {}
        row = [_seconds(found, dataset, method) for dataset in there]
        beside = (f" ({paper[dataset]:g})" if dataset in paper else "" for dataset in there)
        seconds.append([method, *("".join(each).strip() for each in zip(row, beside, strict=True))])
    sent = [[method, *(_kilobytes(found, dataset, method) for dataset in there)] for method in METHODS[1:]]
    sent.insert(1, ["the paper's formula for Masked", *(_formula(found, dataset) for dataset in there)])
    sent.insert(2, ["the paper's formula for HE", *(_formula_of_he(found, dataset) for dataset in there)])
    seconds, sent = ([row for row in rows if any(row[1:])] for rows in (seconds, sent))
    names = [f"{dataset} ({PAPER_NAMES[dataset]})" for dataset in there]
    return "\n\n".join([
        "**Seconds per tree**, in brackets the paper's (all rows, 40 cores)",
        table(["", *names], seconds),
        "**kB per node that was split**, all parties together",
        table(["", *names], sent),
    ])  # fmt: skip


def _seconds(found: list[Result], dataset: str, method: str) -> str:
    values = measured(found, "seconds", dataset=dataset, method=method)
    return f"{min(values):.3f}" if values else ""


def _kilobytes(found: list[Result], dataset: str, method: str) -> str:
    values = measured(found, "bytes", dataset=dataset, method=method)
    return "" if not values else f"{values[0] / 1e3:.1f}" if values[0] < 1e4 else f"{values[0] / 1e3:,.0f}"


def _formula(found: list[Result], dataset: str) -> str:
    """(l W + 2 l) n + l numbers of four bytes: each level has all rows, if no node becomes a leaf early."""
    here = chosen(found, dataset=dataset, method=VECTOR)
    if not here:
        return ""
    m, cell = here[0].measures, here[0].cell
    values = cell.trees * DEPTH * 3 * m["candidates"] * m["rows"] + m["nodes"] * m["candidates"]
    return f"{values * 4 / m['nodes'] / 1e3:,.0f}"


def _formula_of_he(found: list[Result], dataset: str) -> str:
    """2 n + 2 l ciphertexts of a node, each of the 4,096 bits that Paillier of 2,048 has; rows as above."""
    here = chosen(found, dataset=dataset, method=VECTOR)
    if not here:
        return ""
    m, cell = here[0].measures, here[0].cell
    ciphertexts = cell.trees * DEPTH * 2 * m["rows"] + m["nodes"] * 2 * m["candidates"]
    return f"{ciphertexts * CIPHERTEXT / m['nodes'] / 1e3:,.0f}"
