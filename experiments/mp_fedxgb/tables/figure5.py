"""Figure 5 of the paper: seconds over rows and columns, the ten columns repeated; 3 trees of depth 3, 10 buckets."""

from __future__ import annotations

from pathlib import Path

from experiments.central_dp.show import Line, Panel, plot, table
from experiments.mp_fedxgb.cells import Cell
from experiments.mp_fedxgb.tables.common import Results, median, seconds
from experiments.mp_fedxgb.tables.runs import curves, of, repeated

ROWS = (5_000, 10_000, 30_000)
COLUMNS = (10, 50, 100, 500, 1_000)
MANY_COLUMNS = 100
"""With more than these only `minimal` in memory."""


def cells(*, quick: bool) -> list[Cell]:
    """Every size; or two in memory."""
    return [
        cell
        for rows in (ROWS[:1] if quick else ROWS)
        for columns in (COLUMNS[:2] if quick else COLUMNS)
        for cell in repeated(quick=quick or columns > MANY_COLUMNS, rows=rows, columns=columns)
    ]


def report(results: Results, folder: Path, link: str) -> str:
    """A picture, a table for each way, and what is sent."""
    found = results["figure5"]
    panels, parts = [], []
    for curve in curves():
        lines, rows = [], []
        for n_rows in ROWS:
            values = {n: median(of(found, curve, "seconds", rows=n_rows, columns=n)) for n in COLUMNS}
            there = {float(n): value for n, value in values.items() if value is not None}
            if there:
                lines.append(Line(f"{n_rows:,} rows", list(there), list(there.values())))
                rows.append([f"{n_rows:,} rows", *(seconds(value) for value in values.values())])
        if rows:
            panels.append(Panel(str(curve), "seconds", lines, "columns", log_x=True, log_y=True))
            parts += [f"**{curve}**, seconds", table(["columns", *(f"{n:,}" for n in COLUMNS)], rows)]
    plot(panels, folder / "figure5.png", columns=2)
    rows = []
    for n_rows in ROWS:
        sent = [median(of(found, curves()[0], "bytes", rows=n_rows, columns=n)) for n in COLUMNS]
        rows.append([f"{n_rows:,} rows", *("" if value is None else f"{value / 1e6:,.0f}" for value in sent)])
    parts += [
        "**What all parties and the dealer send**, `minimal`, MB",
        table(["columns", *(f"{n:,}" for n in COLUMNS)], rows),
    ]
    return "\n\n".join([f"![Seconds over columns]({link}/figure5.png)", *parts])
