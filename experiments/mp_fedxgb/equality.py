"""Is every node of `vertical.secret_shared` that of the pooled engine? Real tables, dealt out to 2, 3, 4 and 8 parties.

    python -m experiments.mp_fedxgb.equality [--quick]

Texts become a column of zeros and ones for each level; missing numbers stay missing. Columns are dealt out at random.
Compared are all nodes of all trees: whose column is asked, threshold, where missing values go, gain, cover and value.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from experiments.central_dp import datasets
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as PROTOCOL
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.running import run_together
from tests.twins.pooled_trees import first_difference, pooled_twin

PARTIES = (2, 3, 4, 8)
QUICK_ROWS, QUICK_TREES = 3_000, 2
COLUMN_ORDER = 6
BINS = 32


@dataclass(frozen=True)
class Case:
    """One dataset, and how its trees are grown."""

    dataset: str
    rows: int | None  # None: all
    trees: int
    depth: int
    l2: float = 1.0
    min_gain: float = 0.0
    label_range: tuple[float, float] | None = None  # of a regression


CASES = (
    Case("give_me_some_credit", 30_000, 10, 3),
    Case("give_me_some_credit", None, 5, 5, l2=0.3),
    Case("adult", None, 5, 4),
    Case("default_credit_card", None, 5, 4, min_gain=1.0),
    Case("abalone", None, 10, 5, label_range=(0.0, 30.0)),
)


def run(quick: bool) -> list[dict[str, Any]]:
    """One row for each case and number of parties."""
    return list(rows(quick))


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    """The same one after the other."""
    for whole in CASES:
        case = replace(whole, rows=QUICK_ROWS, trees=QUICK_TREES) if quick else whole
        columns, labels = load(case)
        for n_parties in PARTIES:
            yield compare(case, n_parties, columns, labels)


def load(case: Case) -> tuple[list[Column], np.ndarray]:
    """All columns as numbers, and labels; the first rows in an order drawn once."""
    data = datasets.load(case.dataset)
    columns: list[Column] = []
    for name in data.X.column_names:
        values = data.X.column(name).combine_chunks()
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            texts = np.array(values.to_pylist(), object)
            levels = sorted({text for text in texts if text is not None})
            columns += [Column(f"{name}={level}", (texts == level).astype(np.float64)) for level in levels]
        else:
            columns.append(Column(name, values.cast(pa.float64()).to_numpy(zero_copy_only=False)))
    kept = np.random.default_rng(0).permutation(len(data.y))[: case.rows]
    columns = [replace(column, values=np.ascontiguousarray(column.values[kept])) for column in columns]
    return [column for column in columns if len(np.unique(column.values)) > 1], data.y[kept]


def compare(case: Case, n_parties: int, columns: list[Column], labels: np.ndarray) -> dict[str, Any]:
    """Train together and in one table."""
    order = np.random.default_rng(COLUMN_ORDER).permutation(len(columns))
    data = {}
    for k in range(n_parties):
        own = tuple(columns[c] for c in order[k::n_parties])
        table = Table(own, len(labels), tuple(column.name for column in own), has_names=True)
        is_holder, regression = k == 0, case.label_range is not None
        data[f"P{k + 1}"] = PartyData(table, labels, None if regression else (0, 1)) if is_holder else PartyData(table)
    boosting = BoostingParams(
        loss="logistic" if case.label_range is None else "squared",
        label_range=case.label_range,
        n_iterations=case.trees,
        max_depth=case.depth,
        l2=case.l2,
        min_gain=case.min_gain,
        min_child_weight=0.0,
    )
    task = "classification" if case.label_range is None else "regression"
    job = SecretSharedJob(tuple(data), "P1", "equality", task=task, boosting=boosting, max_bins=BINS)
    parts, _, _, seconds = run_together(PROTOCOL, job, data)
    twin = pooled_twin(job, data)
    different = first_difference(parts, job, twin)
    trees = twin.ensemble.trees
    splits = [twin.owners[feature] for tree in trees for feature in tree.feature[tree.feature >= 0]]
    return {
        "dataset": case.dataset,
        "M": n_parties,
        "rows": len(labels),
        "columns": len(columns),
        "depth": case.depth,
        "trees": len(trees),
        "nodes": sum(tree.n_nodes for tree in trees),
        "splits": len(splits),
        "foreign": sum(owner != "P1" for owner in splits),
        "equal": different is None,
        "difference": different or "",
        "seconds": round(seconds, 2),
    }


def main() -> int:
    """Print a line for each comparison; 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows, {QUICK_TREES} trees")
    quick, all_equal = parser.parse_args().quick, True
    for number, row in enumerate(rows(quick)):
        if number == 0:
            print(_line(list(row)))
        print(_line(list(row.values())), flush=True)
        all_equal &= row["equal"]
    return 0 if all_equal else 1


def _line(values: list[Any]) -> str:
    first, *others = values
    return f"{first:<20}" + " ".join(f"{value!s:>10}" for value in others)


if __name__ == "__main__":
    sys.exit(main())
