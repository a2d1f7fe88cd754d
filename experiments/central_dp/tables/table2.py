"""Table 2 of the paper: seconds per tree, beside LightGBM and the engine without privacy on the same rows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from experiments.central_dp.cells import Cell, Result, grouped
from experiments.central_dp.datasets import PAPER, TASKS
from experiments.central_dp.show import table
from experiments.central_dp.tables.common import PLAIN, SETTINGS, dataset_order

N_TREES, REPETITIONS = 50, 3
METHODS = ("central.dpboost", PLAIN, "LightGBM")


def cells(*, quick: bool) -> list[Cell]:
    """Interleaved, three times, on one fold's training rows; binning is part of the time of all."""
    settings = {**SETTINGS, "n_trees": N_TREES, "trees_per_ensemble": N_TREES}
    light = {"n_trees": N_TREES, "max_depth": 6, "learning_rate": 0.1, "l2": 0.1}
    datasets, repetitions = (("abalone", "adult"), 1) if quick else (PAPER, REPETITIONS)
    return [
        Cell(dataset, method, 5.0 if method == METHODS[0] else None, seed=repetition,
             settings=light if method == "LightGBM" else settings)
        for dataset in datasets
        for repetition in range(repetitions)
        for method in METHODS
    ]  # fmt: skip


def report(results: Sequence[Result], folder: Path, link: str) -> str:
    """Medians, in milliseconds per tree."""
    del folder, link
    rows = []
    groups = grouped(results, "dataset", "method")
    for dataset in dataset_order(results):
        per_tree = {
            method: 1000 * statistics.median(r.seconds for r in groups[dataset, method]) / N_TREES
            for method in METHODS
            if (dataset, method) in groups
        }
        shown = [f"{per_tree[method]:.2f}" if method in per_tree else "-" for method in METHODS]
        ratios = [
            f"{per_tree[METHODS[0]] / per_tree[rival]:.2f}" if METHODS[0] in per_tree and rival in per_tree else "-"
            for rival in METHODS[1:]
        ]
        rows.append([dataset, TASKS[dataset], *shown, *ratios])
    header = ["dataset", "task", "DPBoost, ms", "NP, ms", "LightGBM, ms", "DPBoost / NP", "DPBoost / LightGBM"]
    return table(header, rows) + "\n"
