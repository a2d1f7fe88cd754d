"""What several tables need: choosing results, means with standard errors, the names of things."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from experiments.central_dp.show import Summary, summary
from experiments.federboost.cells import Cell, Result
from experiments.federboost.datasets import N_SPLITS, TREES

DATASETS = tuple(TREES)
POOLED = ("XGBoost, pooled", "engine, pooled", "label holder alone")
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
BUCKETS = (2, 4, 8, 12, 16, 20, 24, 28, 32)

Results = Mapping[str, list[Result]]
Values = dict[tuple[int, int], float]


def repeated(split: str, **cell: Any) -> list[Cell]:
    """One cell for each random split, or for each seed of the noise in the file's order."""
    if split == "random":
        return [Cell(split=split, index=i, seed=i, **cell) for i in range(N_SPLITS)]
    n_seeds = 1 if cell.get("epsilon") is None else N_SPLITS
    return [Cell(split=split, seed=i, **cell) for i in range(n_seeds)]


def aucs(results: Iterable[Result], **wanted: Any) -> Values:
    """AUC by split and seed, of cells with these fields; the others are as usual."""
    usual: dict[str, Any] = {"method": "bucket_rr", "split": "random", "epsilon": None, "buckets": 16}
    usual |= {"edges": "quantile", "debias": True, "order": Cell.order} | wanted
    chosen = [r for r in results if all(getattr(r.cell, name) == value for name, value in usual.items())]
    return {(r.cell.index, r.cell.seed): r.measures["auc"] for r in chosen}


def mean(values: Values) -> Summary | None:
    return summary(list(values.values())) if values else None


def gain(one: Values, other: Values) -> Summary | None:
    """By how much one is better, split by split."""
    both = [one[key] - other[key] for key in one if key in other]
    return summary(both) if both else None


def shown(found: Summary | None, *, signed: bool = False) -> str:
    """Mean ± standard error."""
    if found is None:
        return ""
    number = f"{found.mean:+.4f}" if signed else f"{found.mean:.4f}"
    return number if found.n == 1 else f"{number} ± {found.error:.4f}"
