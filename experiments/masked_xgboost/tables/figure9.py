"""Figures 9 and 15 of the paper: test AUC of MaskedXGBoost over eps_pp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.central_dp.show import Panel, plot, table
from experiments.masked_xgboost.cells import ALONE, PAPER_TREES, POOLED, RECORD, VECTOR, Cell, Result
from experiments.masked_xgboost.datasets import DATASETS
from experiments.masked_xgboost.tables.common import QUICK, QUICK_DATASETS, Results, chosen, line, measured, shown

EPS_AP = 4.0
EPSILONS_PP = (1.0, 2.0, 4.0, 8.0)
"""The first is among the cells of Figure 4."""


def cells(*, quick: bool) -> list[Cell]:
    """Both readings, one split of the rows."""
    datasets, epsilons = (QUICK_DATASETS, EPSILONS_PP[-1:]) if quick else (DATASETS, EPSILONS_PP[1:])
    size: dict[str, Any] = QUICK if quick else {"trees": PAPER_TREES}
    return [
        Cell(dataset, method, EPS_AP, eps_pp=eps_pp, **size)
        for dataset in datasets
        for method in (VECTOR, RECORD)
        for eps_pp in epsilons
    ]


def report(results: Results, folder: Path, link: str) -> str:
    """A picture and a table."""
    found = [*results["figure9"], *chosen(results["figure4"], epsilon=EPS_AP, index=0)]
    flat = chosen(results["figure4"], index=0, epsilon=None)
    there = [dataset for dataset in DATASETS if chosen(results["figure9"], dataset=dataset)]
    plot([_panel(found, flat, dataset) for dataset in there], folder / "figure9.png")
    rows = []
    for dataset in there:
        for method in (VECTOR, RECORD):
            values = [measured(found, "auc", dataset=dataset, method=method, eps_pp=e) for e in EPSILONS_PP]
            ends = [measured(flat, "auc", dataset=dataset, method=other) for other in (ALONE, POOLED)]
            rows.append([dataset, method, *(shown(each) for each in (*values, *ends))])
    header = ["", "eps_pp", *(f"{e:g}" for e in EPSILONS_PP), ALONE, POOLED]
    return "\n\n".join([f"![AUC over eps_pp]({link}/figure9.png)", table(header, rows)])


def _panel(found: list[Result], flat: list[Result], dataset: str) -> Panel:
    lines = [
        line(method, {e: measured(found, "auc", dataset=dataset, method=method, eps_pp=e) for e in EPSILONS_PP})
        for method in (VECTOR, RECORD)
    ]
    for method in (POOLED, ALONE):
        values = measured(flat, "auc", dataset=dataset, method=method)
        lines.append(line(method, {EPSILONS_PP[0]: values, EPSILONS_PP[-1]: values}, dashed=True))
    return Panel(dataset, "test AUC", [each for each in lines if each], "eps_pp")
