"""Saved runs, as commands read them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hedgerow.errors import InvalidInput

if TYPE_CHECKING:
    from hedgerow.federation.run import Run


def read_run(folder: Path) -> Run:
    """The run in a folder that `run.save(folder)` wrote."""
    from hedgerow.federation.run import Run

    if not (folder / "run.json").is_file():
        raise InvalidInput(f"{folder}: there is no saved run in it; run.save(folder) writes one")
    return Run.load(folder)
