"""What the tables share: the paper's settings, and the comparison of the four methods at several epsilons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.central_dp.cells import Cell, Result, grouped
from experiments.central_dp.datasets import TASKS
from experiments.central_dp.objective import main_measure
from experiments.central_dp.show import Line, Panel, Summary, bold_best, plot, summary, table

SETTINGS: dict[str, Any] = {"max_depth": 6, "learning_rate": 0.1, "l2": 0.1, "loss": "squared"}
PRIVATE = ("central.dpboost", "central.sequential", "central.parallel")
PLAIN = "central.plain"
PAPERS = "central.dpboost with filtering"
UNFILTERED = "central.parallel without filtering"
CONSTANT = "constant"
GAUSSIAN = "central.gaussian"
DELTA = 1e-5
SHOWN = (*PRIVATE, PAPERS, UNFILTERED, GAUSSIAN)
SHORT = {
    "central.dpboost": "DPBoost",
    "central.sequential": "SEQ",
    "central.parallel": "PARA",
    "central.dpboost with filtering": "DPBoost with filtering",
    "central.parallel without filtering": "PARA without filtering",
    "central.plain": "NP (no privacy)",
    "constant": "constant",
    "central.gaussian": "central.gaussian, delta 1e-5",
}
EPSILONS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
MEASURE_NAMES = {"error": "test error", "rmse": "test RMSE"}


def four_methods(
    datasets: Sequence[str], epsilons: Sequence[float], folds: int, n_trees: int, rows: int | None = None
) -> list[Cell]:
    """DPBoost with one ensemble, with and without filtering, so PARA too; SEQ; the engine without privacy."""
    settings = {**SETTINGS, "n_trees": n_trees, "trees_per_ensemble": n_trees}
    cells: list[Cell] = []
    for dataset in datasets:
        for fold in range(folds):
            cells.append(Cell(dataset, PLAIN, None, split=fold, rows=rows, settings=settings))
            cells.append(Cell(dataset, CONSTANT, None, split=fold, rows=rows, settings={"n_trees": n_trees}))
            cells += [
                Cell(dataset, method, epsilon, split=fold, rows=rows, settings=settings)
                for method in (*PRIVATE, PAPERS, UNFILTERED)
                for epsilon in epsilons
            ]
    return cells


def dataset_order(results: Sequence[Result]) -> list[str]:
    """Those with results, in the order in which they are always named."""
    present = {result.cell.dataset for result in results}
    return [name for name in TASKS if name in present]


def method_summaries(results: Sequence[Result], measure: str) -> dict[str, dict[float | None, Summary]]:
    """method -> epsilon -> mean and sd."""
    out: dict[str, dict[float | None, Summary]] = {}
    for (method, epsilon), some in grouped(results, "method", "epsilon").items():
        out.setdefault(method, {})[epsilon] = summary([result.measures[measure] for result in some])
    return out


def report_four(results: Sequence[Result], picture: Path, link: str) -> str:
    """A table per dataset, a count of who is better, and the picture."""
    parts = [f"![test error or RMSE against epsilon]({link})", "", count_wins(results), ""]
    panels = []
    for dataset in dataset_order(results):
        some = [result for result in results if result.cell.dataset == dataset]
        measure = main_measure(TASKS[dataset])
        rows = method_summaries(some, measure)
        epsilons = sorted({e for row in rows.values() for e in row if e is not None})
        lines = []
        for method in SHOWN:
            if method not in rows:
                continue
            cells = []
            for epsilon in epsilons:
                best = bold_best(rows, epsilon, PRIVATE, lowest=True)
                found = rows.get(method, {}).get(epsilon)
                text = "-" if found is None else str(found)
                cells.append(f"**{text}**" if method == best else text)
            lines.append([SHORT[method], *cells])
        flat = {method: rows[method][None] for method in (PLAIN, CONSTANT) if method in rows}
        folds = max(len(group) for group in grouped(some, "method", "epsilon").values())
        sampled = next((result.cell.rows for result in some if result.cell.rows is not None), None)
        about = f"{folds} of 5 folds" + ("" if sampled is None else f", a sample of {sampled:,} rows")
        levels = "; ".join(f"{SHORT[method]}: {found}" for method, found in flat.items())
        parts += [
            f"**{dataset}**, {MEASURE_NAMES[measure]}, {about}. {levels}",
            "",
            table(["epsilon", *(f"{e:g}" for e in epsilons)], lines),
            "",
        ]
        panels.append(_panel(dataset, measure, rows, epsilons, flat))
    plot(panels, picture)
    return "\n".join(parts)


def _panel(
    dataset: str,
    measure: str,
    rows: dict[str, dict[float | None, Summary]],
    epsilons: list[float],
    flat: dict[str, Summary],
) -> Panel:
    panel = Panel(dataset, MEASURE_NAMES[measure])
    for method in SHOWN:
        if method not in rows:
            continue
        found = [(e, rows[method][e]) for e in epsilons if e in rows.get(method, {})]
        panel.lines.append(line_of(SHORT[method], found))
    for method, found_flat in flat.items():
        panel.lines.append(Line(SHORT[method], epsilons, [found_flat.mean] * len(epsilons), dashed=True))
    return panel


def line_of(label: str, points: Sequence[tuple[float, Summary]]) -> Line:
    """Means with their standard deviations as bars."""
    return Line(label, [x for x, _ in points], [s.mean for _, s in points], [s.sd for _, s in points])


def count_wins(results: Sequence[Result]) -> str:
    """Of all (dataset, epsilon): where DPBoost has the lower mean than each rival, and by more than the noise."""
    pairs = [(PRIVATE[0], rival) for rival in (*PRIVATE[1:], UNFILTERED, PAPERS, CONSTANT)]
    pairs += [(PAPERS, rival) for rival in (*PRIVATE[1:], CONSTANT)]
    pairs += [(GAUSSIAN, rival) for rival in (PRIVATE[0], CONSTANT)]
    return "\n".join(line for ours, theirs in pairs if (line := _compared(results, ours, theirs)))


def _compared(results: Sequence[Result], one: str, other: str) -> str:
    gaps: dict[str, tuple[float, bool]] = {}
    for dataset in dataset_order(results):
        rows = method_summaries([r for r in results if r.cell.dataset == dataset], main_measure(TASKS[dataset]))
        for epsilon, ours in sorted(rows.get(one, {}).items(), key=lambda item: item[0] or 0.0):
            theirs = rows.get(other, {}).get(None if other == CONSTANT else epsilon)
            if theirs is not None:
                noise = 2 * (ours.error**2 + theirs.error**2) ** 0.5
                gap = theirs.mean - ours.mean
                gaps[f"{dataset} at {epsilon:g}"] = (gap, min(ours.n, theirs.n) > 1 and abs(gap) > noise)
    if not gaps:
        return ""
    lower = [where for where, (gap, _) in gaps.items() if gap > 0]
    clearly = sum(gap > 0 and beyond for gap, beyond in gaps.values())
    clearly_not = sum(gap <= 0 and beyond for gap, beyond in gaps.values())
    others = ", ".join(where for where in gaps if where not in lower)
    return (
        f"- {SHORT[one]} against {SHORT[other]}: lower mean in {len(lower)} of {len(gaps)} cells, by more than two "
        f"standard errors in {clearly}; higher by more than two in {clearly_not}."
        + (f" Not lower: {others}." if others else "")
    )
