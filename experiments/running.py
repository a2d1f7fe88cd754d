"""What the programs of several experiments have in common: their arguments, datasets that are not here, their end."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from hedgerow.datasets import DatasetNotFound, find_dataset

SHIPPED = {"adult"}
"""Comes with the library."""


@dataclass(frozen=True)
class Asked:
    """What was asked for on the command line."""

    tables: tuple[str, ...]
    datasets: frozenset[str]
    quick: bool
    page_only: bool
    results: Path

    @staticmethod
    def verdict(failed: int) -> int:
        """What the program returns after this many cells have failed."""
        if failed:
            print(f"{failed} cells failed: see above; they are tried again in the next run", file=sys.stderr)
        return 1 if failed else 0


def asked(description: str | None, tables: Collection[str], results: Path, datasets: Collection[str] = ()) -> Asked:
    """Read the command line; results of a quick run go into a new folder, if none is named."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="table", help=f"of {', '.join(tables)}; all by default")
    if datasets:
        parser.add_argument("--datasets", nargs="+", choices=sorted(datasets), metavar="NAME", help="only these")
    parser.add_argument("--quick", action="store_true", help="a small part of each; no page is written")
    parser.add_argument("--page-only", action="store_true", help="write the page from the results, run nothing")
    parser.add_argument("--results", type=Path, help="folder of the results (default: beside the code)")
    given = parser.parse_args()
    unknown = sorted(set(given.tables) - set(tables))
    if unknown:
        parser.error(f"{unknown[0]!r} is no table; there are {', '.join(tables)}")
    return Asked(
        tuple(name for name in tables if not given.tables or name in given.tables),
        frozenset(getattr(given, "datasets", None) or datasets),
        given.quick,
        given.page_only,
        given.results or (Path(tempfile.mkdtemp()) if given.quick else results),
    )


def left_out(datasets: Iterable[str]) -> set[str]:
    """Which of these datasets are not here; each is named once, with what to do."""
    missing = set()
    for name in sorted(set(datasets) - SHIPPED):
        try:
            find_dataset(name)
        except DatasetNotFound as why:
            missing.add(name)
            print(f"left out: {why}", file=sys.stderr)
    return missing
