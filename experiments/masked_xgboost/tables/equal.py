"""Beside the paper: test AUC where epsilon and delta are those of all that is released, for protocols that hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.central_dp.show import Panel, plot, table
from experiments.masked_xgboost.cells import (
    ALL_ROWS,
    ALONE,
    BUCKETS,
    CENTRAL,
    HISTOGRAM,
    MANY_TREES,
    POOLED,
    SHALLOW,
    SMOOTH,
    WINNER,
    Cell,
    Result,
)
from experiments.masked_xgboost.datasets import DATASETS
from experiments.masked_xgboost.tables.common import (
    QUICK,
    QUICK_DATASETS,
    Results,
    chosen,
    line,
    mean,
    measured,
    shown,
)

EPSILONS = (1.0, 2.0, 4.0, 8.0)
N_SPLITS = 3
FLAT = (POOLED, ALONE)
ONE_SIDE = {MANY_TREES: "labels", SHALLOW: "labels", BUCKETS: "columns"}
"""Protect one side only."""
METHODS = (CENTRAL, WINNER, SMOOTH, HISTOGRAM, *ONE_SIDE)


def cells(*, quick: bool) -> list[Cell]:
    """Every method at every epsilon; one split of all datasets at a time, so that an interrupted run has means."""
    datasets, epsilons = (QUICK_DATASETS, EPSILONS[1:2]) if quick else (DATASETS, EPSILONS)
    size: dict[str, Any] = QUICK if quick else {"rows": ALL_ROWS}
    plan = []
    for index in range(1 if quick else N_SPLITS):
        for dataset in datasets:
            plan += [Cell(dataset, method, None, index, **size) for method in FLAT]
            plan += [Cell(dataset, method, epsilon, index, **size) for method in METHODS for epsilon in epsilons]
    return plan


def report(results: Results, folder: Path, link: str) -> str:
    """A picture, the means of all datasets, how far they are apart, and each dataset."""
    found = results["equal"]
    there = [dataset for dataset in DATASETS if chosen(found, dataset=dataset)]
    plot([_panel(found, dataset) for dataset in there], folder / "equal.png")
    return "\n\n".join([
        f"![AUC over epsilon of all that is released]({link}/equal.png)",
        f"**Means of {len(there)} datasets**",
        _means(found, there),
        "**private_histograms (winner) minus others**, mean of the datasets, and the least and largest of them",
        _differences(found, there),
        "**Each dataset**",
        _each(found, there),
    ])  # fmt: skip


def _panel(found: list[Result], dataset: str) -> Panel:
    lines = [
        line(method, {e: measured(found, "auc", dataset=dataset, method=method, epsilon=e) for e in EPSILONS})
        for method in METHODS
    ]
    for method in FLAT:
        values = measured(found, "auc", dataset=dataset, method=method)
        lines.append(line(method, {EPSILONS[0]: values, EPSILONS[-1]: values}, dashed=True))
    return Panel(dataset, "test AUC", [each for each in lines if each is not None], log_x=True)


def _by_dataset(found: list[Result], datasets: Sequence[str], method: str, epsilon: float | None) -> list[float]:
    """The mean AUC on each dataset; nothing unless all are there."""
    means = [mean(measured(found, "auc", dataset=each, method=method, epsilon=epsilon)) for each in datasets]
    values = [value for value in means if value is not None]
    return values if len(values) == len(means) else []


def _means(found: list[Result], datasets: Sequence[str]) -> str:
    rows = []
    for method in (*METHODS, *FLAT):
        epsilons = [None if method in FLAT else epsilon for epsilon in EPSILONS]
        values = [shown(_by_dataset(found, datasets, method, epsilon), 4) for epsilon in epsilons]
        protects = ONE_SIDE.get(method, "nothing" if method in FLAT else "rows")
        rows.append([method, protects, *values])
    return table(["", "protects", *(f"{e:g}" for e in EPSILONS)], rows)


def _differences(found: list[Result], datasets: Sequence[str]) -> str:
    rows = []
    for method in (CENTRAL, SMOOTH, HISTOGRAM, *ONE_SIDE):
        row = []
        for epsilon in EPSILONS:
            ours, theirs = (_by_dataset(found, datasets, each, epsilon) for each in (WINNER, method))
            apart = [a - b for a, b in zip(ours, theirs, strict=True)] if ours and theirs else []
            row.append(f"{mean(apart):+.4f} ({min(apart):+.3f}, {max(apart):+.3f})" if apart else "")
        rows.append([method, *row])
    return table(["", *(f"{e:g}" for e in EPSILONS)], rows)


def _each(found: list[Result], datasets: Sequence[str]) -> str:
    rows = []
    for dataset in datasets:
        for method in (*METHODS, *FLAT):
            epsilons = [None if method in FLAT else epsilon for epsilon in EPSILONS]
            values = [measured(found, "auc", dataset=dataset, method=method, epsilon=e) for e in epsilons]
            if any(values):
                rows.append([dataset, method, *(shown(each) for each in values)])
    return table(["", "epsilon", *(f"{e:g}" for e in EPSILONS)], rows)
