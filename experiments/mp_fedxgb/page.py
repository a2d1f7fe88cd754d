"""Writes the page: tables between markers in docs/results/mp_fedxgb.md, the plots, and one HTML file with all."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from experiments.central_dp.page import DOCS, as_html, filled
from experiments.mp_fedxgb.cells import read_results
from experiments.mp_fedxgb.tables import TABLES

PAGE = DOCS / "mp_fedxgb.md"
PLOTS = DOCS / "mp_fedxgb"
HTML = DOCS / "mp_fedxgb.html"

COUNTED = ("table2",)
"""Needs no results."""


def write_page(folder: Path, wanted: Collection[str]) -> list[str]:
    """Put what there is of these tables between the markers; the names of those that were written."""
    results = {name: read_results(folder, name) for name in TABLES}
    there = [name for name in TABLES if name in wanted and (results[name] or name in COUNTED)]
    text = PAGE.read_text()
    for name in there:
        text = filled(text, name, TABLES[name].report(results, PLOTS, PLOTS.name))
    PAGE.write_text(text)
    HTML.write_text(as_html(text))
    return there
