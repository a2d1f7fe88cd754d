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

import os
import sys

# XGBoost's idle threads otherwise spin and take the cores from whoever is measured next.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from experiments.federboost.cells import RESULTS, read_results, run_cells
from experiments.federboost.datasets import TREES
from experiments.federboost.page import write_page
from experiments.federboost.tables import TABLES, bars
from experiments.running import asked, left_out


def main() -> int:
    wanted = asked(__doc__, TABLES, RESULTS, TREES)
    failed = 0
    if not wanted.page_only:
        plans = {name: TABLES[name].cells(quick=wanted.quick) for name in wanted.tables}
        chosen = wanted.datasets - left_out(cell.dataset for plan in plans.values() for cell in plan)
        for name, plan in plans.items():
            if plan:
                failed += run_cells(name, [cell for cell in plan if cell.dataset in chosen], wanted.results)
    for bar in bars.lines(read_results(wanted.results / "figure5.jsonl")):
        print(" | ".join(bar))
    if not wanted.quick:
        print(f"page written: {', '.join(write_page(wanted.results)) or 'nothing, no results yet'}")
    return wanted.verdict(failed)


if __name__ == "__main__":
    sys.exit(main())
