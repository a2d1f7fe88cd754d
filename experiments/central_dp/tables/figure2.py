"""Figure 2 of the paper: 50 trees in one ensemble, epsilon from 1 to 10, five folds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.central_dp.cells import Cell, Result
from experiments.central_dp.datasets import PAPER
from experiments.central_dp.tables.common import DELTA, EPSILONS, GAUSSIAN, four_methods, report_four

N_TREES = 50


def cells(*, quick: bool) -> list[Cell]:
    """All datasets of the paper, and our own method beside; or two datasets at two epsilons."""
    if quick:
        return four_methods(("abalone", "adult"), (1.0, 10.0), 1, N_TREES)
    ours = [
        Cell(dataset, GAUSSIAN, epsilon, DELTA, split=fold)
        for dataset in PAPER
        for fold in range(5)
        for epsilon in EPSILONS
    ]
    return four_methods(PAPER, EPSILONS, 5, N_TREES) + ours


def report(results: Sequence[Result], folder: Path, link: str) -> str:
    """Tables and picture."""
    return report_four(results, folder / "figure2.png", f"{link}/figure2.png")
