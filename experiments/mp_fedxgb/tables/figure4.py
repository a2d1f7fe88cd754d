"""Figure 4 of the paper: seconds over the number of trees and over their depth, 10,000 rows and 10 columns."""

from __future__ import annotations

from pathlib import Path

from experiments.central_dp.show import Line, Panel, plot, table
from experiments.mp_fedxgb.cells import Cell
from experiments.mp_fedxgb.tables.common import Results, median, seconds
from experiments.mp_fedxgb.tables.runs import PAPER_SECONDS, curves, of, repeated, shown_rounds

TREES = tuple(range(1, 11))
DEPTHS = tuple(range(2, 8))
USUAL = 3
"""Trees where depth is varied, and depth where trees are."""
SIZE = {"rows": 10_000, "columns": 10}


def cells(*, quick: bool) -> list[Cell]:
    """Every curve; or two points in memory."""
    points = [{"trees": n, "depth": USUAL} for n in (TREES[:2] if quick else TREES)]
    points += [{"trees": USUAL, "depth": depth} for depth in (() if quick else DEPTHS)]
    unique = {cell.key: cell for point in points for cell in repeated(quick=quick, **SIZE, **point)}
    return list(unique.values())


def report(results: Results, folder: Path, link: str) -> str:
    """A picture of both, and tables."""
    over_trees = {n: {"trees": n, "depth": USUAL} for n in TREES}
    over_depth = {n: {"trees": USUAL, "depth": n} for n in DEPTHS}
    panels = [
        Panel("(a) depth 3", "seconds", _lines(results, over_trees), "trees", log_y=True),
        Panel("(b) 3 trees", "seconds", _lines(results, over_depth), "depth", log_y=True),
    ]
    plot(panels, folder / "figure4.png", columns=2)
    return "\n\n".join([
        f"![Seconds over trees and over depth]({link}/figure4.png)",
        "**(a) Number of trees**, depth 3, seconds",
        _table(results, over_trees, "trees"),
        "**(b) Depth**, 3 trees, seconds",
        _table(results, over_depth, "depth"),
    ])  # fmt: skip


def _lines(results: Results, points: dict[int, dict[str, int]]) -> list[Line]:
    out = []
    for curve in curves():
        values = {n: median(of(results["figure4"], curve, "seconds", **point)) for n, point in points.items()}
        there = {float(n): value for n, value in values.items() if value is not None}
        if there:
            out.append(Line(str(curve), list(there), list(there.values())))
    ends = [float(n) for n in points]
    return [*out, Line("paper, 3 trees of depth 3", [ends[0], ends[-1]], [PAPER_SECONDS] * 2, dashed=True)]


def _table(results: Results, points: dict[int, dict[str, int]], axis: str) -> str:
    rows = []
    for curve in curves():
        row = [seconds(median(of(results["figure4"], curve, "seconds", **point))) for point in points.values()]
        if any(row):
            rows.append([str(curve), *row])
    rows += shown_rounds(results["figure4"], points.values())
    return table([axis, *map(str, points)], rows)
