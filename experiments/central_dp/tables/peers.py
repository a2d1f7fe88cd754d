"""Our private classifiers beside other people's, at the same (epsilon, delta), on the same splits: AUC and seconds."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from experiments.central_dp.cells import Cell, Result, grouped
from experiments.central_dp.show import Line, Panel, bold_best, plot, table
from experiments.central_dp.tables.common import dataset_order, line_of, method_summaries

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
REPETITIONS = 5
DATASETS = ("adult", "default_credit_card", "bank_marketing", "give_me_some_credit")
METHODS = (
    "central.gaussian", "DP-EBM", "central.dpboost", "DP-XGBoost", "diffprivlib forest", "diffprivlib logistic",
)  # fmt: skip
WITH_DELTA = ("central.gaussian", "DP-EBM")


def cells(*, quick: bool) -> list[Cell]:
    """adult: its official split with five seeds of noise; the others: five random splits, each with its own noise."""
    datasets, epsilons, repetitions = (("adult",), (1.0,), 1) if quick else (DATASETS, EPSILONS, REPETITIONS)
    found: list[Cell] = []
    for repetition in range(repetitions):
        for dataset in datasets:
            kind = "official" if dataset == "adult" else "random"
            split, seed = (0, repetition) if dataset == "adult" else (repetition, 0)
            if seed == 0:
                found.append(Cell(dataset, "engine", None, split_kind=kind, split=split))
            found += [
                Cell(dataset, method, epsilon, DELTA if method in WITH_DELTA else 0.0, kind, split, seed)
                for method in METHODS
                for epsilon in epsilons
            ]
    return found


def report(results: Sequence[Result], folder: Path, link: str) -> str:
    """Per dataset: AUC, the winner of each column, median seconds."""
    parts: list[str] = []
    panels, winners = [], Counter[str]()
    for dataset in dataset_order(results):
        some = [result for result in results if result.cell.dataset == dataset]
        rows = method_summaries(some, "auc")
        epsilons = sorted({e for row in rows.values() for e in row if e is not None})
        panel, lines = Panel(dataset, "AUC", log_x=True, lowest=0.5), []
        best_of = {epsilon: bold_best(rows, epsilon, METHODS, lowest=False) for epsilon in epsilons}
        winners.update(name for name in best_of.values() if name is not None)
        for method in METHODS:
            if method not in rows:
                continue
            cells_shown = []
            for epsilon in epsilons:
                text = str(rows[method].get(epsilon, "-"))
                cells_shown.append(f"**{text}**" if method == best_of[epsilon] else text)
            seconds = statistics.median(result.seconds for result in some if result.cell.method == method)
            lines.append([method, *cells_shown, f"{seconds:.2f}"])
            found = sorted((e, s) for e, s in rows[method].items() if e is not None)
            panel.lines.append(line_of(method, found))
        plain = rows.get("engine", {}).get(None)
        if plain is not None:
            panel.lines.append(Line("engine, not private", epsilons, [plain.mean] * len(epsilons), dashed=True))
        panels.append(panel)
        runs = max(len(group) for group in grouped(some, "method", "epsilon").values())
        how = "seeds of noise on the official split" if dataset == "adult" else "random splits"
        parts += [
            f"**{dataset}**, AUC, {runs} {how}; not private: {'-' if plain is None else plain}",
            "",
            table(["epsilon", *(f"{e:g}" for e in epsilons), "seconds"], lines),
            "",
        ]
    plot(panels, folder / "peers.png", columns=2)
    won = ", ".join(f"{name} in {n}" for name, n in winners.most_common())
    head = [f"![AUC against epsilon]({link}/peers.png)", "", f"Highest mean of {winners.total()} cells: {won}.", ""]
    return "\n".join(head + parts)
