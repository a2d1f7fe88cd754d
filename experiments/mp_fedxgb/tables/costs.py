"""Bytes and rounds of `minimal` beside the formula that its shape gives."""

from __future__ import annotations

from pathlib import Path

from experiments.central_dp.show import table
from experiments.mp_fedxgb.cells import Cell
from experiments.mp_fedxgb.tables.common import Results

SHAPES = ((10_000, 10, 10, 3), (10_000, 10, 32, 4), (30_000, 50, 10, 3), (30_000, 100, 32, 4))
"""Rows, columns, buckets of each, depth."""
KINDS = {
    "opened": "each to each other, opened words",
    "input": "label holder to each, masked gradients",
    "dealt": "dealer to all together",
}


def cells(*, quick: bool) -> list[Cell]:
    """One training of each shape."""
    return [
        Cell("give_me_some_credit", "costs", rows=rows, columns=columns, buckets=float(bins), depth=depth)
        for rows, columns, bins, depth in (SHAPES[:1] if quick else SHAPES)
    ]


def report(results: Results, folder: Path, link: str) -> str:
    """One line per shape."""
    del folder, link
    rows = []
    for result in results["costs"]:
        cell, m = result.cell, result.measures
        rows.append([
            f"{cell.rows:,} x {cell.columns}, {cell.buckets:g} bins, depth {cell.depth}",
            f"{m['candidates']:,}",
            f"{m['rounds']:.1f} / {m['rounds_formula']:.1f}",
            *(f"{m[kind] / 1e3:,.1f} / {m[kind + '_formula'] / 1e3:,.1f}" for kind in KINDS),
            f"{m['first'] / 1e3:,.1f} in {m['rounds_first']:.0f} rounds",
        ])  # fmt: skip
    header = ["", "foreign candidates", "rounds per level", *(f"{words}, kB" for words in KINDS.values())]
    return table([*header, "a simpler design: each to each other, kB"], rows)
