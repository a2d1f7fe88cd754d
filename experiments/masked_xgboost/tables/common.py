"""What several tables need: choosing results, means, the names of things."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.central_dp.show import Line, summary
from experiments.masked_xgboost.cells import Result
from experiments.masked_xgboost.datasets import DATASETS

EPSILONS = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0)
N_SPLITS = 2
QUICK = {"trees": 2, "depth": 3, "rows": 1_000}
QUICK_DATASETS = ("adult",)

PAPER_NAMES = dict(zip(DATASETS, ("Credit 1", "Adult", "Higgs", "Bank", "Credit 2", "Nomao"), strict=True))

Results = Mapping[str, list[Result]]


def chosen(results: Iterable[Result], **wanted: Any) -> list[Result]:
    """Those whose cells have these fields."""
    return [r for r in results if all(getattr(r.cell, name) == value for name, value in wanted.items())]


def measured(results: Iterable[Result], what: str, **wanted: Any) -> list[float]:
    """One measure of those whose cells have these fields."""
    return [r.measures[what] for r in chosen(results, **wanted) if what in r.measures]


def mean(values: Sequence[float]) -> float | None:
    """None of none."""
    return summary(values).mean if values else None


def shown(values: Sequence[float], digits: int = 3) -> str:
    """The mean, or nothing."""
    found = mean(values)
    return "" if found is None else f"{found:.{digits}f}"


def line(label: str, points: Mapping[float, Sequence[float]], *, dashed: bool = False) -> Line | None:
    """A curve with standard deviations, of the points that there are."""
    there = {x: summary(values) for x, values in points.items() if values}
    if not there:
        return None
    spread = None if dashed else [found.sd for found in there.values()]
    return Line(label, list(there), [found.mean for found in there.values()], spread, dashed)
