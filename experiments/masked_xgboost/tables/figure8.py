"""Figures 8 and 14 of the paper: which rows a split sends left, guessed by the label holder, over eps_pp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.central_dp.show import Panel, plot, table
from experiments.masked_xgboost.cells import SETS, Cell, Result
from experiments.masked_xgboost.datasets import DATASETS
from experiments.masked_xgboost.tables.common import QUICK_DATASETS, Results, chosen, line, measured, shown

EPSILONS_PP = (1.0, 2.0, 4.0, 6.0, 8.0)
ROWS = 4_000
ATTACKERS = {"sum": "the paper's smallest sum", "chain": "chain, one tree", "trees": "chain, 20 trees"}


def cells(*, quick: bool) -> list[Cell]:
    """Twenty roots each; eps_ap plays no part in the noise vectors."""
    datasets, epsilons = (QUICK_DATASETS, EPSILONS_PP[-1:]) if quick else (DATASETS, EPSILONS_PP)
    size: dict[str, Any] = {"depth": 1, "rows": 500, "trees": 3} if quick else {"depth": 1, "rows": ROWS}
    return [Cell(dataset, SETS, 4.0, eps_pp=eps_pp, **size) for dataset in datasets for eps_pp in epsilons]


def report(results: Results, folder: Path, link: str) -> str:
    """Pictures and a table of accuracies."""
    found = results["figure8"]
    there = [dataset for dataset in DATASETS if chosen(found, dataset=dataset)]
    plot([_panel(found, dataset) for dataset in there], folder / "figure8.png")
    rows = []
    for dataset in there:
        for eps_pp in EPSILONS_PP:
            wanted = {"dataset": dataset, "eps_pp": eps_pp}
            areas = {name: shown(measured(found, f"{name}_auc", **wanted)) for name in ATTACKERS}
            values = [
                shown(measured(found, name, **wanted)) + (f" / {area}" if area else "") for name, area in areas.items()
            ]
            ends = [shown(measured(found, name, **wanted)) for name in ("same_size", "chance", "claimed", "ratio")]
            if values[0]:
                rows.append([dataset, f"{eps_pp:g}", *values, *ends])
    ends = ["a random set of that size", "the same for all rows", "one tree, by the claim", "sigma1² / sigma2²"]
    return "\n\n".join([
        f"![Accuracy of attackers on active sets]({link}/figure8.png)",
        "Accuracy / AUC of the side of every row, mean of four candidates, each of its own column and near a half",
        table(["", "eps_pp", *ATTACKERS.values(), *ends], rows),
    ])  # fmt: skip


def _panel(found: list[Result], dataset: str) -> Panel:
    lines = [
        line(words, {e: measured(found, name, dataset=dataset, eps_pp=e) for e in EPSILONS_PP})
        for name, words in ATTACKERS.items()
    ]
    for name, words in (("same_size", "random set"), ("claimed", "most by the claim, one tree")):
        points = {e: measured(found, name, dataset=dataset, eps_pp=e) for e in EPSILONS_PP}
        lines.append(line(words, points, dashed=True))
    return Panel(dataset, "accuracy", [each for each in lines if each], "eps_pp")
