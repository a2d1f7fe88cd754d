"""Figures 4, 11 and 12 of the paper: test AUC over epsilon; and 5 and 11: AUC after each tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.central_dp.show import Line, Panel, plot, table
from experiments.masked_xgboost.cells import (
    ALONE,
    FED_LDP,
    FEDERBOOST,
    LDP,
    NOISED,
    PAPER_TREES,
    POOLED,
    RECORD,
    VECTOR,
    Cell,
    Result,
)
from experiments.masked_xgboost.datasets import DATASETS
from experiments.masked_xgboost.tables.common import (
    EPSILONS,
    N_SPLITS,
    QUICK,
    QUICK_DATASETS,
    Results,
    chosen,
    line,
    measured,
    shown,
)

FLAT = (POOLED, ALONE, FEDERBOOST)
"""Do not depend on epsilon."""
PUBLISHED = (LDP, FED_LDP, VECTOR, RECORD)
SHOWN_CURVES = (0.5, 8.0)
NOISE_ALONE = 1e-3
"""An eps_ap with so much noise that no sum shows through: what splits at random give, with exact leaves."""


def cells(*, quick: bool) -> list[Cell]:
    """Every method at every epsilon; one dataset at a time, so that an interrupted run has whole datasets."""
    datasets, epsilons = (QUICK_DATASETS, EPSILONS[2:3]) if quick else (DATASETS, EPSILONS)
    size: dict[str, Any] = QUICK if quick else {"trees": PAPER_TREES}
    plan = []
    for dataset in datasets:
        for index in range(1 if quick else N_SPLITS):
            plan += [Cell(dataset, method, None, index, **size) for method in FLAT]
            plan += [
                Cell(dataset, method, epsilon, index, **size) for method in (*PUBLISHED, NOISED) for epsilon in epsilons
            ]
            plan += [Cell(dataset, method, NOISE_ALONE, index, **size) for method in (LDP, VECTOR, RECORD)]
    return plan


def report(results: Results, folder: Path, link: str) -> str:
    """A picture, tables, who won the splits, and the course of training."""
    found = results["figure4"]
    there = [dataset for dataset in DATASETS if chosen(found, dataset=dataset)]
    plot([_panel(found, dataset, PUBLISHED, FLAT) for dataset in there], folder / "figure4.png")
    parts = [
        "**Epsilon of one message**, as the paper's proofs have it: eps_ap of the methods as published, delta_ap 0.001",
        f"![AUC over eps_ap]({link}/figure4.png)",
        _table(found, there, PUBLISHED, FLAT),
        f"**Noise alone**: the same with eps_ap {NOISE_ALONE:g}. AUC, and share of splits that the feature holder wins",
        _noise_alone(found, there),
        "**Share of splits that the feature holder wins**; without noise it would be about a half",
        _foreign(found, there),
        "**Course of training** (Figures 5 and 11), first split of the rows, AUC after each tree",
    ]
    panels = [_course(found, dataset, epsilon) for epsilon in SHOWN_CURVES for dataset in there]
    plot([panel for panel in panels if panel.lines], folder / "figure5.png")
    return "\n\n".join([*parts, f"![AUC after each tree]({link}/figure5.png)"])


def _panel(found: list[Result], dataset: str, methods: Sequence[str], flat: Sequence[str]) -> Panel:
    lines = []
    for method in methods:
        points = {e: measured(found, "auc", dataset=dataset, method=method, epsilon=e) for e in EPSILONS}
        lines.append(line(method, points))
    for method in flat:
        values = measured(found, "auc", dataset=dataset, method=method)
        lines.append(line(method, {EPSILONS[0]: values, EPSILONS[-1]: values}, dashed=True))
    return Panel(dataset, "test AUC", [each for each in lines if each is not None], log_x=True)


def _table(found: list[Result], datasets: Sequence[str], methods: Sequence[str], flat: Sequence[str]) -> str:
    rows = []
    for dataset in datasets:
        for method in flat:
            value = shown(measured(found, "auc", dataset=dataset, method=method))
            rows.append([dataset, method, *([value] * len(EPSILONS))])
        for method in methods:
            values = [measured(found, "auc", dataset=dataset, method=method, epsilon=e) for e in EPSILONS]
            if any(values):
                rows.append([dataset, method, *(shown(each) for each in values)])
    return table(["", "epsilon", *(f"{e:g}" for e in EPSILONS)], rows)


def _noise_alone(found: list[Result], datasets: Sequence[str]) -> str:
    rows = []
    for method in (LDP, VECTOR, RECORD):
        row = []
        for dataset in datasets:
            wanted = {"dataset": dataset, "method": method, "epsilon": NOISE_ALONE}
            both = (shown(measured(found, "auc", **wanted)), shown(measured(found, "foreign", **wanted), 2))
            row.append(" / ".join(both) if both[0] else "")
        rows.append([method, *row])
    alone = [shown(measured(found, "auc", dataset=dataset, method=ALONE)) for dataset in datasets]
    return table(["", *datasets], [*rows, [ALONE, *alone]])


def _foreign(found: list[Result], datasets: Sequence[str]) -> str:
    rows = []
    for method in (*PUBLISHED, NOISED):
        for epsilon in SHOWN_CURVES:
            wanted = {"method": method, "epsilon": epsilon}
            row = [shown(measured(found, "foreign", dataset=dataset, **wanted), 2) for dataset in datasets]
            rows.append([method, f"{epsilon:g}", *row])
    flat = [shown(measured(found, "foreign", dataset=dataset, method=FEDERBOOST), 2) for dataset in datasets]
    return table(["", "epsilon", *datasets], [*rows, [FEDERBOOST, "eps_pp 1", *flat]])


def _course(found: list[Result], dataset: str, epsilon: float) -> Panel:
    lines = []
    for method in (*PUBLISHED, NOISED, *FLAT):
        wanted = {"dataset": dataset, "method": method, "index": 0}
        results = chosen(found, **wanted, epsilon=None if method in FLAT else epsilon)
        curves = [result.measures["curve"] for result in results if "curve" in result.measures]
        if curves:
            numbers = [float(n + 1) for n in range(len(curves[0]))]
            lines.append(Line(method, numbers, curves[0], dashed=method in FLAT))
    return Panel(f"{dataset}, epsilon {epsilon:g}", "test AUC", lines, "trees")
