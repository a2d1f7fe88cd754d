"""MP-FedXGB's experiments: `python -m experiments.mp_fedxgb`, in the project's folder.

    python -m experiments.mp_fedxgb                     everything, then the page; goes on where it was interrupted
    python -m experiments.mp_fedxgb table3 figure4      only these, on the page too
    python -m experiments.mp_fedxgb --quick             a small part of each, within a minute or two, kept nowhere
    python -m experiments.mp_fedxgb --page-only         docs/results/mp_fedxgb.md and its plots from what there is

give_me_some_credit needs HEDGEROW_DATA: a folder with give_me_some_credit.parquet (and for the comparison of trees
also default_credit_card and abalone). What is not there is left out, with a message.
"""

from __future__ import annotations

import os
import sys

# XGBoost's idle threads otherwise spin and take the cores from whoever is measured next.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from experiments.mp_fedxgb.cells import RESULTS, Result, read_results
from experiments.mp_fedxgb.methods import PUBLISHED, published_is_there
from experiments.mp_fedxgb.page import write_page
from experiments.mp_fedxgb.tables import TABLES, table3
from experiments.result_lines import run_rest
from experiments.running import Asked, asked, left_out


def main() -> int:
    wanted = asked(__doc__, TABLES, RESULTS)
    failed = 0 if wanted.page_only else _run(wanted)
    met = table3.verdicts(read_results(wanted.results, "table3"))
    print(f"Table 3: AUC within {table3.WITHIN:g} of the paper's in {sum(met)} of {len(met)} cells")
    if not wanted.quick:
        print(f"page written: {', '.join(write_page(wanted.results, wanted.tables))}")
    return wanted.verdict(failed)


def _run(wanted: Asked) -> int:
    """The number of cells that failed."""
    if not published_is_there():
        print(f"left out: all that needs {PUBLISHED}, which is not in this version", file=sys.stderr)
    plans = {name: TABLES[name].cells(quick=wanted.quick) for name in wanted.tables}
    missing = left_out({cell.dataset for plan in plans.values() for cell in plan} - {""})
    failed = 0
    for name, plan in plans.items():
        here = [cell for cell in plan if cell.dataset not in missing]
        failed += run_rest(wanted.results / f"{name}.jsonl", here, Result.of, Result.from_line) if here else 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
