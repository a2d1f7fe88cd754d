"""FederBoost's experiments with columns split: `python -m experiments.federboost`, in the project's folder.

    python -m experiments.federboost                       everything, then the page; goes on where it was interrupted
    python -m experiments.federboost figure5 edges         only these
    python -m experiments.federboost figure5 --datasets adult
    python -m experiments.federboost --quick               a small part of each, within a minute, kept nowhere
    python -m experiments.federboost --page-only           docs/results/federboost.md and its plots from what there is

All but adult need HEDGEROW_DATA: a folder with give_me_some_credit.parquet and the others. What is not there is left
out, with a message.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

# XGBoost's idle threads otherwise spin and take the cores from whoever is measured next.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from experiments.federboost.cells import RESULTS, Cell, read_results, run_cells
from experiments.federboost.datasets import TREES
from experiments.federboost.page import write_page
from experiments.federboost.tables import TABLES, bars
from hedgerow.datasets import DatasetNotFound, find_dataset


def left_out(cells: list[Cell]) -> set[str]:
    """Datasets of these cells that are not here; each is named once, with what to do."""
    missing = set()
    for name in sorted({cell.dataset for cell in cells} - {"adult"}):  # adult comes with the library
        try:
            find_dataset(name)
        except DatasetNotFound as why:
            missing.add(name)
            print(f"left out: {why}", file=sys.stderr)
    return missing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="table", help=f"of {', '.join(TABLES)}; all by default")
    parser.add_argument("--datasets", nargs="+", choices=sorted(TREES), metavar="NAME", help="only these datasets")
    parser.add_argument("--quick", action="store_true", help="a small part of each; no page is written")
    parser.add_argument("--page-only", action="store_true", help="write the page from the results, run nothing")
    parser.add_argument("--results", type=Path, help="folder of the results (default: beside the code)")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.tables) - set(TABLES))
    if unknown:
        parser.error(f"{unknown[0]!r} is no table; there are {', '.join(TABLES)}")
    names = [name for name in TABLES if not arguments.tables or name in arguments.tables]
    folder = arguments.results or (Path(tempfile.mkdtemp()) if arguments.quick else RESULTS)
    failed = 0
    if not arguments.page_only:
        plans = {name: TABLES[name].cells(quick=arguments.quick) for name in names}
        missing = left_out([cell for plan in plans.values() for cell in plan])
        chosen = set(arguments.datasets or TREES) - missing
        for name, plan in plans.items():
            if plan:
                failed += run_cells(name, [cell for cell in plan if cell.dataset in chosen], folder)
    for bar in bars.lines(read_results(folder / "figure5.jsonl")):
        print(" | ".join(bar))
    if not arguments.quick:
        print(f"page written: {', '.join(write_page(folder)) or 'nothing, no results yet'}")
    if failed:
        print(f"{failed} cells failed: see above; they are tried again in the next run", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
