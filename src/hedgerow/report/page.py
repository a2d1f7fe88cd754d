"""A page of its own, in one file: no network, no script, no font or picture from elsewhere. Or the same in a notebook.

    page = Page("Report of shop", sections)
    page.save("report.html")                  # for the eyes of the file's owner only
    page                                      # at the end of a cell of a notebook: the same parts

A browser that reads the file is told to fetch nothing and to run nothing (`CSP`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hedgerow._version import __version__
from hedgerow.report.html import Markup, joined, tag
from hedgerow.report.style import PAGE, ROOT, sheet

CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Section(NamedTuple):
    """One part of a page, with a heading that the contents list."""

    id: str
    heading: str
    body: Markup
    shows_heading: bool = True  # the first screen has headings of its own

    def markup(self) -> Markup:
        """As a landmark of its own."""
        if not self.shows_heading:
            return tag("section", self.body, id=self.id, aria_label=self.heading)
        heading = tag("h2", self.heading, id=f"{self.id}-heading")
        return tag("section", heading, self.body, id=self.id, aria_labelledby=f"{self.id}-heading")


@dataclass(frozen=True)
class Page:
    """A title, a line below it, and sections."""

    title: str
    sections: Sequence[Section]
    subtitle: str = ""
    style: str = ""  # rules of its own, beside the common ones

    @property
    def html(self) -> str:
        """The whole file."""
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=CSP),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="generator", content=f"Hedgerow {__version__}"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", self.title),
            tag("style", Markup(PAGE + sheet(self.style))),
        )
        contents = [tag("li", tag("a", each.heading, href=f"#{each.id}")) for each in self.sections]
        body = tag(
            "body",
            tag("a", "Skip to the report", href="#main", class_="skip"),
            tag(
                "header",
                tag("div", self._title(), tag("nav", tag("ul", contents), aria_label="Contents"), class_="wide"),
            ),
            tag("main", (each.markup() for each in self.sections), id="main", class_="wide"),
            tag("footer", tag("div", _CLOSING, class_="wide")),
            class_=ROOT,
        )
        return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"

    def _title(self) -> Markup:
        return joined(tag("h1", self.title), tag("p", self.subtitle, class_="quiet") if self.subtitle else None)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file, whole or not at all, for nobody else to read; gives its path."""
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_name(f".{place.name}.{os.getpid()}.partial")
        try:
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as f:
                f.write(self.html)
            partial.replace(place)
        finally:
            partial.unlink(missing_ok=True)
        return place

    @property
    def fragment(self) -> str:
        """The same for a notebook."""
        return fragment(self._title(), (each.markup() for each in self.sections))

    def _repr_html_(self) -> str:
        return self.fragment


_CLOSING = f"Written by Hedgerow {__version__}. This page fetches nothing, runs nothing and sends nothing."
_NAMES = re.compile(r'(?<= )(id="|href="#|aria-labelledby="|aria-describedby=")([^"]*)')


def fragment(*parts: object) -> str:
    """Parts of a page for a notebook, with a style that stays inside them, and names that no other output has."""
    inside = tag("div", *parts, class_="wide")
    own = "r" + hashlib.sha256(inside.encode()).hexdigest()[:8]
    # Quotes in texts are escaped, so these are attributes.
    renamed = _NAMES.sub(lambda m: m[1] + " ".join(f"{own}-{name}" for name in m[2].split(" ")), inside)
    return tag("div", tag("style", Markup(sheet())), Markup(renamed), class_=ROOT)
