"""Figure 3 of the paper: 1000 trees in 20 ensembles, epsilon 5 for each of them, 100 in all; error against trees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.central_dp.cells import Cell, Result, grouped
from experiments.central_dp.datasets import TASKS
from experiments.central_dp.objective import main_measure
from experiments.central_dp.show import Line, Panel, plot, summary, table
from experiments.central_dp.tables.common import (
    MEASURE_NAMES,
    PAPERS,
    PLAIN,
    PRIVATE,
    SETTINGS,
    SHORT,
    UNFILTERED,
    dataset_order,
)

N_TREES, PER_ENSEMBLE, EPSILON_PER_ENSEMBLE = 1000, 50, 5.0
CURVE = (1, 2, 5, 10, 20, 35, 50, 75, 100, 150, 200, 300, 400, 500, 600, 700, 800, 900, 1000)
SHOWN = (20, 50, 100, 200, 500, 1000)
FOLDS = {"abalone": 5, "adult": 5, "susy_30k": 5, "cod_rna": 5, "covtype": 2}
"""The paper's first five datasets, as far as they are here, and abalone; how many of the five folds."""


def cells(*, quick: bool) -> list[Cell]:
    """All of them; one, with 100 trees in 2 ensembles, when quick."""
    return growing({"abalone": 1}, 100, PER_ENSEMBLE) if quick else growing(FOLDS, N_TREES, PER_ENSEMBLE)


def growing(folds: dict[str, int], n_trees: int, per_ensemble: int) -> list[Cell]:
    """The four methods with this many trees, measured on the way."""
    settings = {**SETTINGS, "n_trees": n_trees, "trees_per_ensemble": per_ensemble}
    epsilon = EPSILON_PER_ENSEMBLE * n_trees / per_ensemble
    curve = tuple(point for point in CURVE if point <= n_trees)
    return [
        Cell(dataset, method, None if method == PLAIN else epsilon, split=fold, settings=settings, curve=curve)
        for dataset, n_folds in folds.items()
        for fold in range(n_folds)
        for method in (PLAIN, *PRIVATE, PAPERS, UNFILTERED)
    ]


def report(results: Sequence[Result], folder: Path, link: str) -> str:
    """Curves, and a table of some of their points."""
    return report_growing(results, folder / "figure3.png", f"{link}/figure3.png")


def report_growing(results: Sequence[Result], picture: Path, link: str) -> str:
    """As `report`, for any such results."""
    panels, parts = [], []
    for dataset in dataset_order(results):
        measure = main_measure(TASKS[dataset])
        panel, rows, about = Panel(dataset, MEASURE_NAMES[measure], x_label="trees", log_x=True), [], ""
        by_method = grouped([r for r in results if r.cell.dataset == dataset], "method")
        for method in (*PRIVATE, PAPERS, UNFILTERED, PLAIN):
            some = by_method.get((method,), [])
            if not some:
                continue
            points = {trees: summary([r.curve[trees][measure] for r in some]) for trees in some[0].curve}
            means = [point.mean for point in points.values()]
            panel.lines.append(Line(SHORT[method], [float(t) for t in points], means, dashed=method == PLAIN))
            rows.append([SHORT[method], *(str(points[t]) if t in points else "-" for t in SHOWN)])
            about = f"{len(some)} of 5 folds"
        panels.append(panel)
        parts += [f"**{dataset}**, {MEASURE_NAMES[measure]}, {about}", ""]
        parts += [table(["trees", *(str(t) for t in SHOWN)], rows), ""]
    plot(panels, picture)
    return "\n".join([f"![test error against trees]({link})", "", *parts])
