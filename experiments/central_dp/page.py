"""Writes the page: tables between markers in docs/results/central_dp.md, the plots, and one HTML file with all."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from pathlib import Path

from experiments.central_dp.cells import read_results
from experiments.central_dp.tables import TABLES

DOCS = Path(__file__).parents[2] / "docs" / "results"
PAGE = DOCS / "central_dp.md"
PLOTS = DOCS / "central_dp"
HTML = DOCS / "central_dp.html"


def begin(name: str) -> str:
    return f"<!-- {name}: written from the results, do not edit -->"


def end(name: str) -> str:
    return f"<!-- end of {name} -->"


def filled(text: str, name: str, content: str) -> str:
    """The page with this content between the markers of a name."""
    if begin(name) not in text or end(name) not in text:
        raise ValueError(f"the page has no markers for {name}: {begin(name)} ... {end(name)}")
    before, rest = text.split(begin(name), 1)
    after = rest.split(end(name), 1)[1]
    return f"{before}{begin(name)}\n\n{content.strip()}\n\n{end(name)}{after}"


def write_page(results: Path) -> list[str]:
    """Put what there is between the markers; the names of the tables that were written."""
    text = PAGE.read_text()
    written = []
    for name, module in TABLES.items():
        found = read_results(results / f"{name}.jsonl")
        if not found:
            continue
        text = filled(text, name, module.report(found, PLOTS, PLOTS.name))
        written.append(name)
    PAGE.write_text(text)
    HTML.write_text(as_html(text))
    return written


# --- Markdown as far as the page uses it -----------------------------------------------------------------------------

STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:.6rem 0 1.4rem;font-size:.85rem;font-variant-numeric:tabular-nums}
td,th{border-bottom:1px solid #ddd;padding:.25rem .6rem;text-align:left}th{background:#f6f6f6}
img{max-width:100%}code,pre{background:#f4f4f4;border-radius:3px;padding:.1rem .25rem}
pre{padding:.8rem;overflow-x:auto}"""


def as_html(markdown: str) -> str:
    """Headings, paragraphs, lists, tables, code and pictures, the pictures inside the file."""
    body: list[str] = []
    for block in re.split(r"\n\s*\n", re.sub(r"<!--.*?-->", "", markdown, flags=re.DOTALL)):
        lines = block.strip("\n").splitlines()
        if not "".join(lines).strip():
            continue
        body.append(_block(lines))
    title = html.escape(markdown.splitlines()[0].lstrip("# "))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _block(lines: Sequence[str]) -> str:
    first = lines[0]
    if first.startswith("#"):
        level = len(first) - len(first.lstrip("#"))
        rest = _block(lines[1:]) if len(lines) > 1 else ""
        return f"<h{level}>{_inline(first.lstrip('# '))}</h{level}>{rest}"
    if first.startswith(("    ", "```")):
        code = [line for line in lines if not line.startswith("```")]
        return "<pre>" + html.escape("\n".join(line.removeprefix("    ") for line in code)) + "</pre>"
    if first.startswith("|"):
        return _table(lines)
    if first.startswith("- "):
        items = re.split(r"\n- ", "\n".join(lines)[2:])
        return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
    return f"<p>{_inline(' '.join(lines))}</p>"


def _table(lines: Sequence[str]) -> str:
    rows = [[_inline(cell.strip()) for cell in line.strip().strip("|").split("|")] for line in lines]
    head = "".join(f"<th>{cell}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows[2:])
    return f"<table><tr>{head}</tr>{body}</table>"


def _inline(text: str) -> str:
    text = html.escape(text, quote=False)
    text = re.sub(r"!\[([^\]]*)\]\(([^)]+)\)", _picture, text)
    text = re.sub(r"\[([^\]]+)\]\(([^)]+)\)", r'<a href="\2">\1</a>', text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


def _picture(found: re.Match[str]) -> str:
    path = DOCS / found[2]
    data = base64.b64encode(path.read_bytes()).decode() if path.is_file() else ""
    return f'<img alt="{found[1]}" src="data:image/png;base64,{data}">'
