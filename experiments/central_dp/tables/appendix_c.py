"""Appendix C of the paper: ensembles of 20 and of 40 trees in place of 50."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.central_dp.cells import Cell, Result
from experiments.central_dp.tables.common import EPSILONS, four_methods, report_four
from experiments.central_dp.tables.figure3 import N_TREES, growing, report_growing

SIZES = (20, 40)
DATASETS = ("abalone", "adult", "susy_30k", "cod_rna", "protein_casp")
GROWING_FOLDS = {"abalone": 2, "adult": 2, "susy_30k": 2, "cod_rna": 2}


def cells(*, quick: bool) -> list[Cell]:
    """One ensemble, then 1000 trees; the larger datasets are left to Figures 2 and 3."""
    if quick:
        return four_methods(("abalone",), (1.0, 10.0), 1, SIZES[0])
    one = [cell for size in SIZES for cell in four_methods(DATASETS, EPSILONS, 5, size)]
    return one + [cell for size in SIZES for cell in growing(GROWING_FOLDS, N_TREES, size)]


def report(results: Sequence[Result], folder: Path, link: str) -> str:
    """The paper's figures 5 to 8."""
    parts = []
    for number, size in enumerate(SIZES):
        some = [result for result in results if result.cell.settings["n_trees"] == size]
        if some:
            name = f"figure{5 + number}.png"
            parts += [f"### Figure {5 + number}: {size} trees, one ensemble", ""]
            parts += [report_four(some, folder / name, f"{link}/{name}")]
    for number, size in enumerate(SIZES):
        some = [r for r in results if r.cell.curve and r.cell.settings["trees_per_ensemble"] == size]
        if some:
            name = f"figure{7 + number}.png"
            parts += [f"### Figure {7 + number}: {N_TREES} trees in ensembles of {size}, epsilon 5 each", ""]
            parts += [report_growing(some, folder / name, f"{link}/{name}")]
    return "\n".join(parts)
