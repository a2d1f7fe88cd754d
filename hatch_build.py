"""What a package index shows: the README with links that work there, and the project's addresses.

Links of the README go to files beside it, which an index does not have. With HEDGEROW_REPOSITORY, the address of the
repository's files (where `.../README.md` is the README), they become links to that place, and so do the links in the
metadata. Without it they become plain text, so that none leads nowhere.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINKED_PICTURE = re.compile(r"\[!\[[^\]]*\]\([^)]+\)\]\([^)]+\)\n*")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)([^)]+)\)")


def readme_for_an_index(text: str, repository: str | None) -> str:
    """The README as it can stand alone."""
    if repository:
        place = repository.rstrip("/")
        return re.sub(r"\]\((?!https?://|#)([^)]+)\)", lambda found: f"]({place}/{found[1]})", text)
    return _LINK.sub(r"\1", _LINKED_PICTURE.sub("", text))


class ForAnIndex(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by the build backend."""
        repository = os.environ.get("HEDGEROW_REPOSITORY")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme_for_an_index(text, repository)}
        if repository:
            place = repository.rstrip("/")
            pages = {"Documentation": "docs/README.md", "Changelog": "CHANGELOG.md", "Source": "README.md"}
            metadata["urls"] = {name: f"{place}/{page}" for name, page in pages.items()}
