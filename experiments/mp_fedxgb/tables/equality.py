"""Trees of the parties beside those of the pooled engine, on real datasets and for several numbers of parties."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from experiments.mp_fedxgb.cells import Cell
from experiments.mp_fedxgb.tables.common import Results, lines_of, table_of_lines


def cells(*, quick: bool) -> list[Cell]:
    """One, of which each line is a comparison."""
    return [Cell("", "equality", quick=quick)] if find_spec("experiments.mp_fedxgb.equality") else []


def report(results: Results, folder: Path, link: str) -> str:
    """As the comparison describes itself."""
    del folder, link
    return table_of_lines(lines_of(results["equality"]))
