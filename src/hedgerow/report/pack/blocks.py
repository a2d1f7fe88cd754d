"""What the pages of a pack are made of, before they are HTML or Markdown: text, lists, tables, boxes to fill in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """A paragraph; with `loud`, one that nobody must overlook."""

    words: str
    loud: bool = False


@dataclass(frozen=True)
class Points:
    """Sentences below each other."""

    sentences: tuple[str, ...]

    @classmethod
    def of(cls, sentences: Iterable[str], otherwise: str = "none") -> Points:
        """These; with none, a word that there are none."""
        return cls(tuple(sentences) or (otherwise,))


@dataclass(frozen=True)
class Grid:
    """A table; the first cell of a row names it."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Facts:
    """Names, and what each is."""

    caption: str
    facts: dict[str, object]


@dataclass(frozen=True)
class Fill:
    """A box that a person has to fill in; nobody else can know."""

    by: str
    what: str


@dataclass(frozen=True)
class Title:
    """The heading of a part of a page."""

    words: str


Block = Text | Points | Grid | Facts | Fill | Title


@dataclass(frozen=True)
class Page:
    """One page of the pack, which is a chapter of pack.html."""

    name: str  # of its anchor, and of its file if it has one
    title: str
    blocks: tuple[Block, ...]


def shown(value: object) -> str:
    """A fact as a person reads it."""
    if value is None:
        return "not known here"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value)) or "none"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {shown(inner)}" for key, inner in value.items()) or "none"
    return str(value)


# --- Markdown --------------------------------------------------------------------------------------------------------


def as_markdown(page: Page) -> str:
    """A page for whoever wants to go on writing."""
    parts = [f"# {_escaped(page.title)}"]
    for block in page.blocks:
        if isinstance(block, Title):
            parts.append(f"## {_escaped(block.words)}")
        elif isinstance(block, Text):
            parts.append(f"**{_escaped(block.words)}**" if block.loud else _escaped(block.words))
        elif isinstance(block, Points):
            parts.append("\n".join(f"- {_escaped(sentence)}" for sentence in block.sentences))
        elif isinstance(block, Fill):
            parts.append(f"> **To be filled in by: {_escaped(block.by)}.** {_escaped(block.what)}")
        elif isinstance(block, Facts):
            facts = [f"- {_escaped(name)}: {_escaped(shown(value))}" for name, value in block.facts.items()]
            parts.append("\n".join([f"{_escaped(block.caption)}:", "", *facts]))
        else:
            lines = [block.head, ("---",) * len(block.head), *block.rows]
            table = ["| " + " | ".join(_escaped(cell) for cell in line) + " |" for line in lines]
            parts.append("\n".join([_escaped(block.caption), "", *table]))
    return "\n\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    """In one line, and as it stands: nothing in it is a mark."""
    line = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in line) if line != "---" else line
