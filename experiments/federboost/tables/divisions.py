"""Other divisions of the columns: the figures above hold for one, and what joining is worth depends on it."""

from __future__ import annotations

from pathlib import Path

from experiments.central_dp.show import summary, table
from experiments.federboost.cells import Cell
from experiments.federboost.tables.common import DATASETS, Results, shown

N_ORDERS = 5
KINDS: dict[str, dict[str, object]] = {
    "label holder alone": {"method": "label holder alone"},
    "no noise": {"method": "bucket_rr"},
    "epsilon 4": {"method": "bucket_rr", "epsilon": 4.0},
    "epsilon 4, not debiased": {"method": "bucket_rr", "epsilon": 4.0, "debias": False},
    "epsilon 1": {"method": "bucket_rr", "epsilon": 1.0},
    "epsilon 1, not debiased": {"method": "bucket_rr", "epsilon": 1.0, "debias": False},
}


def cells(*, quick: bool) -> list[Cell]:
    """Five more orders of the columns, each with a random split of its own."""
    return [
        Cell(dataset, index=order, seed=order, order=order, **kind)  # type: ignore[arg-type]  # fields by name
        for dataset in (("adult",) if quick else DATASETS)
        for order in range(1 if quick else N_ORDERS)
        for kind in KINDS.values()
    ]


def report(results: Results, folder: Path, link: str) -> str:
    """Means, and their range over the orders."""
    del folder, link
    rows = []
    for dataset in DATASETS:
        row = [dataset]
        for kind in KINDS.values():
            wanted = {"epsilon": None, "debias": True} | kind
            values = [
                r.measures["auc"]
                for r in results["divisions"]
                if r.cell.dataset == dataset and all(getattr(r.cell, name) == v for name, v in wanted.items())
            ]
            row.append(f"{shown(summary(values))} ({min(values):.3f} to {max(values):.3f})" if values else "")
        rows.append(row)
    return table(["", *KINDS], rows)
