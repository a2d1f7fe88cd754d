"""What the site needs beyond mkdocs: pages for files that lie outside docs/, and nothing fetched from elsewhere.

Pages of docs/ link to files of the repository (`../CONTRIBUTING.md`, `../../src/hedgerow/crypto/psi.py`), as a code
host wants it. Here each such file becomes a page under `repository/`, a Markdown file as it is and any other as a
listing, and links are turned to lead there. So one text serves both, and mkdocs checks every link and anchor.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
PLACE = "repository"
LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)\s#]+)")
FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
FETCHED = re.compile(
    r"<(?:script|img|iframe)\b[^>]*\ssrc=[\"']?(?:https?:)?//"
    r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*\shref=[\"']?(?:https?:)?//"
    r"|class=[\"']?mermaid\b"  # a picture that the theme would draw with a script from elsewhere
)


def place_of(path: str) -> str:
    """Where a file of the repository is in the site, as mkdocs names sources."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"{PLACE}/{path}" if path.endswith(".md") else f"{PLACE}/{path}.md"


def links(text: str, path: str) -> list[str]:
    """The files of the repository that a page leads to; code is left out."""
    outside_code = FENCE.sub("", text)
    return [posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) for _, link in LINK.findall(outside_code)]


def turned(text: str, path: str) -> str:
    """A page with its links leading to the places that files have in the site."""
    here = posixpath.dirname(place_of(path))

    def turn(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[2]))
        return found[1] + posixpath.relpath(place_of(target), here or ".")

    parts = FENCE.split(text)  # every second one is code
    return "".join(part if number % 2 else LINK.sub(turn, part) for number, part in enumerate(parts))


def listing(path: str) -> str:
    """A page that shows a file which is not Markdown."""
    language = "python" if path.endswith(".py") else "text"
    return f"# `{path}`\n\n````{language}\n{(ROOT / path).read_text(encoding='utf-8')}````\n"


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each file outside docs/ that a page leads to, directly or through another such page."""
    pages = [f"docs/{file.src_uri}" for file in files if file.is_documentation_page()]
    ahead = [(page, link) for page in pages for link in links((ROOT / page).read_text(encoding="utf-8"), page)]
    known = set()
    while ahead:
        page, path = ahead.pop()
        if path.startswith("docs/") or path in known:
            continue
        if not (ROOT / path).is_file():
            raise PluginError(f"{page} leads to {path}, which is not a file of the repository")
        known.add(path)
        if path.endswith(".md"):
            content = (ROOT / path).read_text(encoding="utf-8")
            ahead += [(path, link) for link in links(content, path)]
        else:
            content = listing(path)
        listed = InclusionLevel.INCLUDED if f"'{place_of(path)}'" in str(config.nav) else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, place_of(path), content=content, inclusion=listed))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a page, wherever its file lies."""
    place = page.file.src_uri
    if not place.startswith(f"{PLACE}/"):
        return turned(markdown, f"docs/{place}")
    path = place.removeprefix(f"{PLACE}/")
    return turned(markdown, path) if (ROOT / path).is_file() else markdown


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that would fetch something from elsewhere when somebody reads it."""
    if found := FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} would fetch from elsewhere: {found.group()}")
    return output
