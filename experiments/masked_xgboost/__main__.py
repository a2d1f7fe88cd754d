"""MaskedXGBoost's experiments: `python -m experiments.masked_xgboost`, in the project's folder.

    python -m experiments.masked_xgboost                     everything, then the page; goes on where it was interrupted
    python -m experiments.masked_xgboost figure4 table3      only these, on the page too
    python -m experiments.masked_xgboost --datasets adult    only this dataset
    python -m experiments.masked_xgboost --quick             a small part of each, within a minute, kept nowhere
    python -m experiments.masked_xgboost --page-only         the page and its plots from what there is

All but adult need HEDGEROW_DATA: a folder with give_me_some_credit.parquet, higgs_11k, bank_marketing,
default_credit_card and nomao. What is not there is left out, with a message.
"""

from __future__ import annotations

import os
import sys

# XGBoost's idle threads otherwise spin and take the cores from whoever is measured next.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from experiments.masked_xgboost.cells import RESULTS, Result
from experiments.masked_xgboost.datasets import DATASETS
from experiments.masked_xgboost.page import write_page
from experiments.masked_xgboost.tables import TABLES
from experiments.result_lines import run_rest
from experiments.running import Asked, asked, left_out


def main() -> int:
    wanted = asked(__doc__, TABLES, RESULTS, DATASETS)
    failed = 0 if wanted.page_only else _run(wanted)
    if not wanted.quick:
        print(f"page written: {', '.join(write_page(wanted.results, wanted.tables))}")
    return wanted.verdict(failed)


def _run(wanted: Asked) -> int:
    """The number of cells that failed."""
    plans = {name: TABLES[name].cells(quick=wanted.quick) for name in wanted.tables}
    datasets = {cell.dataset for plan in plans.values() for cell in plan} & wanted.datasets
    datasets -= left_out(datasets)
    failed = 0
    for name, plan in plans.items():
        here = [cell for cell in plan if cell.dataset in datasets]
        failed += run_rest(wanted.results / f"{name}.jsonl", here, Result.of, Result.from_line) if here else 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
