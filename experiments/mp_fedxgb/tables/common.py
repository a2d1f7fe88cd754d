"""What several tables need: choosing results, means with their spread, tables from rows of another's making."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.central_dp.show import summary, table
from experiments.mp_fedxgb.cells import Result
from experiments.mp_fedxgb.datasets import SIZES

DATASETS = tuple(SIZES)
DEPTHS = (3, 4, 5)

Results = Mapping[str, list[Result]]


def chosen(results: Iterable[Result], **wanted: Any) -> list[Result]:
    """Those whose cells have these fields."""
    return [r for r in results if all(getattr(r.cell, name) == value for name, value in wanted.items())]


def measured(results: Iterable[Result], what: str, **wanted: Any) -> list[float]:
    """One measure of those whose cells have these fields."""
    return [r.measures[what] for r in chosen(results, **wanted)]


def mean_and_spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation, to four digits."""
    found = summary(values) if values else None
    return "" if found is None else f"{found.mean:.4f} ± {found.sd:.4f}" if found.n > 1 else f"{found.mean:.4f}"


def signed(difference: float) -> str:
    """To four digits, without a minus before nothing."""
    return f"{round(difference, 4) + 0.0:+.4f}"


def median(values: Sequence[float]) -> float | None:
    """None of none."""
    return statistics.median(values) if values else None


def seconds(value: float | None) -> str:
    """With two digits that count, or nothing."""
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def table_of_lines(lines: Sequence[Mapping[str, Any]]) -> str:
    """Rows as dicts with the same keys, which are the headings."""
    return table(list(lines[0]), [[_as_text(value) for value in line.values()] for line in lines]) if lines else ""


def lines_of(results: Iterable[Result]) -> list[dict[str, Any]]:
    """The rows that were kept with the results, one after the other."""
    return [line for result in results for line in result.measures["lines"]]


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
