"""Table 3 and Figure 4 of the paper: what gradient-based filtering and geometric leaf clipping are worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.central_dp.cells import Cell, Result, grouped
from experiments.central_dp.datasets import TASKS
from experiments.central_dp.objective import main_measure
from experiments.central_dp.show import Panel, plot, summary, table
from experiments.central_dp.tables.common import EPSILONS, MEASURE_NAMES, SETTINGS, dataset_order, line_of

DATASETS = ("abalone", "protein_casp", "synthetic_reg", "adult", "cod_rna", "covtype")
VARIANTS = {
    (True, True): "filtering and leaf clipping (the paper)",
    (False, True): "leaf clipping alone (DPBoost here)",
    (True, False): "filtering alone",
    (False, False): "neither",
}


def cells(*, quick: bool) -> list[Cell]:
    """The regression tasks, as in the paper, and three classifications; 50 trees in one ensemble."""
    datasets, epsilons, folds = (("abalone",), (1.0,), 1) if quick else (DATASETS, EPSILONS, 5)
    return [
        Cell(
            dataset, "central.dpboost", epsilon, split=fold,
            settings={
                **SETTINGS, "n_trees": 50, "trees_per_ensemble": 50, "filtering": filtering,
                "leaf_clipping": leaf_clipping, "count_filtered": True,
            },
        )
        for dataset in datasets
        for fold in range(folds)
        for filtering, leaf_clipping in VARIANTS
        for epsilon in epsilons
    ]  # fmt: skip


def report(results: Sequence[Result], folder: Path, link: str) -> str:
    """Errors of the four variants, and the share of rows above the bound."""
    panels, parts, shares = [], [], []
    for dataset in dataset_order(results):
        measure = main_measure(TASKS[dataset])
        some = [result for result in results if result.cell.dataset == dataset]
        groups = grouped(some, "filtering", "leaf_clipping", "epsilon")
        epsilons = sorted({result.cell.epsilon for result in some if result.cell.epsilon is not None})
        panel, rows = Panel(dataset, MEASURE_NAMES[measure]), []
        for variant, name in VARIANTS.items():
            groups_here = {e: groups[*variant, e] for e in epsilons if (*variant, e) in groups}
            found = {e: summary([r.measures[measure] for r in group]) for e, group in groups_here.items()}
            rows.append([name, *(str(found.get(e, "-")) for e in epsilons)])
            panel.lines.append(line_of(name, list(found.items())))
        panels.append(panel)
        parts += [f"**{dataset}**, {MEASURE_NAMES[measure]}", ""]
        parts += [table(["epsilon", *(f"{e:g}" for e in epsilons)], rows), ""]
        for fact in ("filtered, mean over trees", "filtered, last tree"):
            means = [_mean_fact(groups.get((True, True, e), []), fact) for e in epsilons]
            shares.append([f"{dataset}: {fact}", *means])
    plot(panels, folder / "figure4.png", columns=2)
    epsilons = sorted({result.cell.epsilon for result in results if result.cell.epsilon is not None})
    head = ["share of training rows with a gradient above the bound", *(f"{e:g}" for e in epsilons)]
    picture = f"![with and without filtering and leaf clipping]({link}/figure4.png)"
    return "\n".join([picture, "", table(head, shares), "", *parts])


def _mean_fact(results: Sequence[Result], fact: str) -> str:
    return f"{100 * summary([r.facts[fact] for r in results]).mean:.2f} %" if results else "-"
