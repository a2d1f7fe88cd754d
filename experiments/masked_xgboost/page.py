"""Writes the page: tables between markers in docs/results/masked_xgboost.md, the plots, and one HTML file with all."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from experiments.central_dp.page import DOCS, as_html, filled
from experiments.central_dp.show import table
from experiments.masked_xgboost.cells import read_results
from experiments.masked_xgboost.tables import TABLES
from experiments.masked_xgboost.tables.common import Results

PAGE = DOCS / "masked_xgboost.md"
PLOTS = DOCS / "masked_xgboost"
HTML = DOCS / "masked_xgboost.html"


def write_page(folder: Path, wanted: Collection[str]) -> list[str]:
    """Put what there is of these tables between the markers; the names of those that were written."""
    results = {name: read_results(folder, name) for name in TABLES}
    there = [name for name in TABLES if name in wanted and results[name]]
    text = filled(PAGE.read_text(), "measured", _measured(results))
    for name in there:
        text = filled(text, name, TABLES[name].report(results, PLOTS, PLOTS.name))
    PAGE.write_text(text)
    HTML.write_text(as_html(text))
    return there


def _measured(results: Results) -> str:
    """How many cells of each table there are, and what is missing."""
    rows = []
    for name, module in TABLES.items():
        planned = module.cells(quick=False)
        done = {result.cell.key for result in results[name]}
        missing = [cell for cell in planned if cell.key not in done]
        kinds = sorted({f"{cell.method} on {cell.dataset}" for cell in missing})
        words = "nothing" if not kinds else "; ".join(kinds[:6]) + ("; and more" if len(kinds) > 6 else "")
        rows.append([name, str(len(planned)), str(len(planned) - len(missing)), words])
    return table(["", "cells", "measured", "missing"], rows)
