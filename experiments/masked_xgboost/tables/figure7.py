"""Figures 7 and 13 of the paper: labels guessed by a feature holder, over eps_ap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.central_dp.show import Panel, plot, table
from experiments.masked_xgboost.cells import LABELS, Cell, Result
from experiments.masked_xgboost.datasets import DATASETS
from experiments.masked_xgboost.tables.common import (
    EPSILONS,
    QUICK_DATASETS,
    Results,
    chosen,
    line,
    measured,
    shown,
)

WAYS: dict[int, float] = {1: 1.0, 3: 4.0}
"""W -> eps_pp: the paper's W = 3 goes with no eps_pp below 3 ln 2 = 2.08 (Theorem 3)."""
ATTACKERS = {"network": "the paper's network", "one": "least squares, one message", "two": "two messages"}


def cells(*, quick: bool) -> list[Cell]:
    """One root of one tree each."""
    datasets, epsilons = (QUICK_DATASETS, EPSILONS[:1]) if quick else (DATASETS, EPSILONS)
    size: dict[str, Any] = {"trees": 1, "depth": 1} | ({"rows": 1_000} if quick else {})
    return [
        Cell(dataset, LABELS, epsilon, eps_pp=eps_pp, vectors=vectors, **size)
        for dataset in datasets
        for vectors, eps_pp in WAYS.items()
        for epsilon in epsilons
    ]


def report(results: Results, folder: Path, link: str) -> str:
    """Pictures of areas, a table of both ends."""
    found = results["figure7"]
    there = [dataset for dataset in DATASETS if chosen(found, dataset=dataset)]
    panels = [_panel(found, dataset, vectors) for vectors in WAYS for dataset in there]
    plot([panel for panel in panels if panel.lines], folder / "figure7.png")
    rows = []
    for dataset in there:
        for vectors in WAYS:
            for epsilon in (EPSILONS[0], EPSILONS[-1]):
                wanted = {"dataset": dataset, "vectors": vectors, "epsilon": epsilon}
                values = [
                    f"{shown(measured(found, name, **wanted))} / {shown(measured(found, f'{name}_auc', **wanted))}"
                    for name in ATTACKERS
                ]
                ends = [shown(measured(found, name, **wanted)) for name in ("chance", "claimed")]
                rows.append([dataset, str(vectors), f"{epsilon:g}", *values, *ends])
    header = ["", "W", "eps_ap", *ATTACKERS.values(), "accuracy of the commoner label", "AUC that the claim allows"]
    return "\n\n".join([
        f"![AUC of attackers on labels]({link}/figure7.png)",
        "Accuracy / AUC of every label from the messages about the root of the first tree",
        table(header, rows),
    ])  # fmt: skip


def _panel(found: list[Result], dataset: str, vectors: int) -> Panel:
    wanted = {"dataset": dataset, "vectors": vectors}
    lines = [
        line(words, {e: measured(found, f"{name}_auc", epsilon=e, **wanted) for e in EPSILONS})
        for name, words in ATTACKERS.items()
    ]
    lines.append(
        line("most by the claim", {e: measured(found, "claimed", epsilon=e, **wanted) for e in EPSILONS}, dashed=True)
    )
    return Panel(f"{dataset}, W = {vectors}", "AUC", [each for each in lines if each], "eps_ap", log_x=True)
