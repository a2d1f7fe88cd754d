"""Writes the page: tables between markers in docs/results/federboost.md, the plots, and one HTML file with all."""

from __future__ import annotations

from pathlib import Path

from experiments.central_dp.page import DOCS, as_html, filled
from experiments.federboost.cells import read_results
from experiments.federboost.tables import TABLES

PAGE = DOCS / "federboost.md"
PLOTS = DOCS / "federboost"
HTML = DOCS / "federboost.html"


def write_page(folder: Path) -> list[str]:
    """Put what there is between the markers; the names of the tables that were written."""
    results = {name: read_results(folder / f"{name}.jsonl") for name in TABLES}
    text = PAGE.read_text()
    written = []
    for name, module in TABLES.items():
        if not results["figure5" if name == "bars" else name]:
            continue
        text = filled(text, name, module.report(results, PLOTS, PLOTS.name))
        written.append(name)
    PAGE.write_text(text)
    HTML.write_text(as_html(text))
    return written
