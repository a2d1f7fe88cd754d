"""A pack as one page that needs nothing else and prints well: its chapters, the bill of software, the list of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hedgerow.report.html import Markup, joined, tag
from hedgerow.report.pack.blocks import Block, Facts, Fill, Grid, Page, Points, Text, Title, shown
from hedgerow.report.pack.subject import Subject
from hedgerow.report.page import Page as Sheet
from hedgerow.report.page import Section

_STYLE = """
& .ask strong { display: block; }
& .room { min-height: 2.5em; }
& main .long { overflow-wrap: anywhere; }
@media screen and (max-width: 860px) {
  & main table, & main caption, & main tbody, & main tr, & main tbody th, & main tbody td { display: block; }
  & main thead { position: absolute; left: -9999px; }
  & main tr { border-bottom: 1px solid var(--line); padding: 7px 0; }
  & main tbody th, & main tbody td { border: 0; padding: 1px 0; text-align: left; overflow-wrap: anywhere; }
  & main td::before { content: attr(data-head) ": "; color: var(--quiet); }
}
@media print {
  & main table { font-size: 0.8rem; }
  & main > section { break-before: page; }
  & main > section:first-child { break-before: auto; }
  & .ask { break-inside: avoid; }
  & .room { min-height: 5em; }
}
"""
_LONG_WORD = 40
_NUMBERS = ("bytes", "number", "chance", "ceiling")


def as_html(subject: Subject, chapters: Sequence[Page], bill: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """The whole file."""
    sections = [Section(page.name, page.title, joined(map(_block, page.blocks))) for page in chapters]
    components = [(each["name"], each["version"], _licence(each), each["scope"]) for each in bill["components"]]
    software = Grid("As installed where the pack was made", ("name", "version", "licence", "is"), tuple(components))
    listed = Grid("SHA-256", ("file", "digest"), tuple(digests.items()))
    sections += [
        Section("software", f"Bill of software ({bill['bomFormat']} {bill['specVersion']})", _block(software)),
        Section("files", "Files of this pack", _block(listed)),
    ]
    title = f"Pack of run {subject.run_id[:12]}"
    return Sheet(title, sections, f"{subject.protocol}, seen by {subject.whose}", style=_STYLE).html


def _licence(component: Mapping[str, Any]) -> str:
    told = (each.get("expression") or each["license"]["name"] for each in component.get("licenses", ()))
    return ", ".join(told) or "not told"


def _block(block: Block) -> Markup:
    if isinstance(block, Title):
        return tag("h3", block.words)
    if isinstance(block, Text):
        return tag("p", block.words, class_="stamp" if block.loud else None)
    if isinstance(block, Points):
        return tag("ul", (tag("li", sentence) for sentence in block.sentences))
    if isinstance(block, Facts):
        facts = ((tag("dt", name), tag("dd", shown(value))) for name, value in block.facts.items())
        return joined(tag("p", block.caption, class_="quiet small"), tag("dl", facts, class_="facts"))
    if isinstance(block, Fill):
        return tag(
            "div",
            tag("strong", f"To be filled in by: {block.by}"),
            tag("span", block.what),
            tag("div", class_="room", aria_hidden="true"),
            class_="ask",
            role="note",
        )
    return _grid(block)


def _width(cell: str) -> str | None:
    """A digest is broken anywhere; words are not."""
    return "long" if max(map(len, cell.split()), default=0) > _LONG_WORD else None


def _grid(grid: Grid) -> Markup:
    """A table. Its roles are said again: on a telephone rows are blocks, and a browser would forget what they are."""
    kinds = ["number" if name in _NUMBERS else None for name in grid.head]
    heads = (
        tag("th", name, scope="col", role="columnheader", class_=kind)
        for name, kind in zip(grid.head, kinds, strict=True)
    )
    rows = (
        tag(
            "tr",
            tag("th", first, scope="row", role="rowheader", class_=kinds[0]),
            (
                tag("td", cell, role="cell", class_=kind or _width(cell), data_head=name)
                for name, cell, kind in zip(grid.head[1:], rest, kinds[1:], strict=True)
            ),
            role="row",
        )
        for first, *rest in grid.rows
    )
    table = tag(
        "table",
        tag("caption", grid.caption),
        tag("thead", tag("tr", heads, role="row"), role="rowgroup"),
        tag("tbody", rows, role="rowgroup"),
        role="table",
    )
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=grid.caption)
