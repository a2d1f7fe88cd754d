"""The experiments of central differential privacy: `python -m experiments.central_dp`, in the project's folder.

    python -m experiments.central_dp                       everything, then the page; goes on where it was interrupted
    python -m experiments.central_dp figure2 peers         only these
    python -m experiments.central_dp figure2 --datasets abalone adult
    python -m experiments.central_dp --quick               a small part of each, in two minutes, kept nowhere
    python -m experiments.central_dp --page-only           docs/results/central_dp.md and its plots from what there is
    python -m experiments.central_dp --json results.json   all finished cells in one file

All but adult and the synthetic sets need HEDGEROW_DATA: a folder with abalone.parquet and the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from experiments.central_dp.cells import RESULTS, Cell, read_results, run_cells
from experiments.central_dp.datasets import TASKS
from experiments.central_dp.page import write_page
from experiments.central_dp.peer_methods import missing_peers
from experiments.central_dp.tables import TABLES
from hedgerow.datasets import DatasetNotFound, find_dataset


def left_out(cells: list[Cell]) -> set[str]:
    """Datasets and methods of these cells that are not here; each is named once, with what to do."""
    missing = {name: why for name, why in missing_peers().items() if any(cell.method == name for cell in cells)}
    for name in sorted({cell.dataset for cell in cells}):
        try:
            if name != "adult" and not name.startswith("synthetic"):
                find_dataset(name)
        except DatasetNotFound as why:
            missing[name] = str(why)
    for why in missing.values():
        print(f"left out: {why}", file=sys.stderr)
    return set(missing)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="table", help=f"of {', '.join(TABLES)}; all by default")
    parser.add_argument("--datasets", nargs="+", choices=sorted(TASKS), metavar="NAME", help="only these datasets")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="only these methods")
    parser.add_argument("--quick", action="store_true", help="a small part of each; no page is written")
    parser.add_argument("--page-only", action="store_true", help="write the page from the results, run nothing")
    parser.add_argument("--results", type=Path, help="folder of the results (default: beside the code)")
    parser.add_argument("--json", type=Path, help="write all finished cells of the chosen tables to this file")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.tables) - set(TABLES))
    if unknown:
        parser.error(f"{unknown[0]!r} is no table; there are {', '.join(TABLES)}")
    names = [name for name in TABLES if not arguments.tables or name in arguments.tables]
    folder = arguments.results or (Path(tempfile.mkdtemp()) if arguments.quick else RESULTS)
    failed = 0
    if not arguments.page_only:
        plans = {
            name: [
                cell
                for cell in TABLES[name].cells(quick=arguments.quick)
                if (not arguments.datasets or cell.dataset in arguments.datasets)
                and (not arguments.methods or cell.method in arguments.methods)
            ]
            for name in names
        }
        missing = left_out([cell for plan in plans.values() for cell in plan])
        for name, plan in plans.items():
            here = [cell for cell in plan if cell.dataset not in missing and cell.method not in missing]
            failed += run_cells(name, here, folder)
    if arguments.json:
        everything = {name: [asdict(r) for r in read_results(folder / f"{name}.jsonl")] for name in names}
        arguments.json.write_text(json.dumps(everything, indent=1) + "\n")
    if not arguments.quick:
        print(f"page written: {', '.join(write_page(folder)) or 'nothing, no results yet'}")
    if failed:
        print(f"{failed} cells failed: see above; they are tried again in the next run", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
