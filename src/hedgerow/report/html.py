"""HTML and SVG, written by calls. What comes from data is text, and stays text.

    tag("p", "5 < 6", class_="note")                <p class="note">5 &lt; 6</p>
    tag("ul", (tag("li", name) for name in names))

A child that is a `Markup` was made by `tag` and goes in as it is; anything else is escaped. So a column that is called
`<script>` is shown under that name, and does nothing. There are no event handlers, no addresses but those inside the
page, and nothing that a browser would have to fetch: `tag` refuses them.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

VOID = frozenset({"br", "hr", "meta"})
"""Elements that have no end."""

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")
_BY_ADDRESS = ("src", "srcset", "action", "formaction", "data", "xlink-href", "style", "srcdoc", "ping", "background")
_REFUSED = ("script", "iframe", "object", "embed", "link", "base", "form", "img", "image", "foreignObject", "use")


class Markup(str):
    """HTML that was made here, and is not escaped again."""

    __slots__ = ()


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element. `class_` is the attribute class, `aria_label` is aria-label; None and False leave an attribute out.

    Children are texts, numbers, elements, or iterables of them; None is nothing. ValueError for what a report must not
    hold: scripts, handlers, addresses outside the page.
    """
    _check_element(name)
    opening = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = _attribute(key)
        if attribute == "href" and not str(value).startswith("#"):
            raise ValueError(f"a link must stay inside the page, got {value!r}")
        opening.append(f" {attribute}" if value is True else f' {attribute}="{text(value)}"')
    opening.append(">")
    if name in VOID:
        return Markup("".join(opening))
    return Markup(f"{''.join(opening)}{joined(*children)}</{name}>")


def joined(*children: Any) -> Markup:
    """Children one after the other, without an element around them."""
    return Markup("".join(_inside(children)))


def text(value: Any) -> Markup:
    """A text, escaped; characters that hide or turn round others are replaced by a sign that shows it."""
    return Markup(html.escape(shown(str(value)), quote=True))


def shown(words: str) -> str:
    """The text without control characters and half characters; line ends stay."""
    if words.isprintable():
        return words
    return "".join(
        c if c.isprintable() or c == "\n" else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in words
    )


def _inside(children: Iterable[Any]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, Iterable) and not isinstance(child, str):
            yield from _inside(child)
        else:
            yield text(child)


@lru_cache(maxsize=256)
def _check_element(name: str) -> None:
    if not _NAME.fullmatch(name) or name in _REFUSED:
        raise ValueError(f"a report has no element {name!r}")


@lru_cache(maxsize=256)
def _attribute(key: str) -> str:
    name = key.rstrip("_").replace("_", "-")
    if not _NAME.fullmatch(name) or name.lower().startswith("on") or name.lower() in _BY_ADDRESS:
        raise ValueError(f"a report has no attribute {name!r}")
    return name
