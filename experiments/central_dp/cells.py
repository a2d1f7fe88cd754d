"""One cell is one training and its measures. Cells are run one after the other; each leaves one JSON line.

To measure a table again, delete its file of results. How lines are kept: experiments/result_lines.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.central_dp.datasets import SplitKind, load, split
from experiments.central_dp.methods import METHODS, Problem
from experiments.central_dp.objective import measure
from experiments.result_lines import as_line, key_of, now, read_lines, rounded, run_rest, unusual

RESULTS = Path(__file__).parent / "results"
SHOWN_SETTINGS = ("n_trees", "filtering", "leaf_clipping")
"""In lines of progress."""


@dataclass(frozen=True)
class Cell:
    """What is trained on what. `epsilon` is None where nothing is private; `settings` go to the method."""

    dataset: str
    method: str
    epsilon: float | None
    delta: float = 0.0
    split_kind: SplitKind = "folds"
    split: int = 0
    seed: int = 0
    rows: int | None = None
    """At most this many rows of the dataset, training and test together."""
    settings: dict[str, Any] = field(default_factory=dict)
    curve: tuple[int, ...] = ()
    """Also measured after this many trees."""

    @property
    def key(self) -> str:
        """The cell as text, the same for the same cell."""
        return key_of(self)

    @property
    def secret(self) -> bytes:
        """32 bytes for the noise: a fixed function of the cell, so that every figure can be made again.

        Only for experiments: a model that is given away takes its noise from the operating system.
        """
        return hashlib.sha256(self.key.encode()).digest()

    def __str__(self) -> str:
        epsilon = "" if self.epsilon is None else f" eps {self.epsilon:g}"
        settings = "".join(f" {name}={value}" for name, value in self.settings.items() if name in SHOWN_SETTINGS)
        return f"{self.dataset} {self.method}{epsilon}{settings}, {self.split_kind} {self.split}, seed {self.seed}"


@dataclass(frozen=True)
class Result:
    """A cell and what came out: measures on the test rows, seconds of training, and more for some tables."""

    cell: Cell
    measures: dict[str, float]
    seconds: float
    curve: dict[int, dict[str, float]] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    when: str = ""

    @property
    def summary(self) -> str:
        """For lines of progress."""
        shown = " ".join(f"{name} {value:.4f}" for name, value in self.measures.items())
        return f"{shown} ({self.seconds:.2f} s)"

    def to_line(self) -> str:
        """One line of JSON, without what is as usual; numbers that were measured, to six digits."""
        return as_line({**{name: rounded(v) for name, v in unusual(self).items()}, "cell": unusual(self.cell)})

    @classmethod
    def from_line(cls, line: str) -> Result:
        """The inverse of `to_line`."""
        data = json.loads(line)
        cell = data.pop("cell")
        cell["curve"] = tuple(cell.get("curve", ()))
        data["curve"] = {int(trees): measures for trees, measures in data.get("curve", {}).items()}
        return cls(cell=Cell(**cell), **data)


def run_cell(cell: Cell) -> Result:
    """Train and measure."""
    data = load(cell.dataset, cell.rows)
    train, test = split(data, cell.split_kind, cell.split)
    problem = Problem(
        X=train.X, y=train.y, schema=data.schema, task=data.task, epsilon=cell.epsilon, delta=cell.delta,
        secret=cell.secret, X_test=test.X, curve=cell.curve, settings=cell.settings,
    )  # fmt: skip
    outcome = METHODS[cell.method](problem)
    bounds = data.schema.label_bounds
    return Result(
        cell,
        measure(test.y, outcome.scores, bounds),
        outcome.seconds,
        {trees: measure(test.y, scores, bounds) for trees, scores in outcome.curve.items()},
        outcome.facts,
        now(),
    )


def read_results(path: Path) -> list[Result]:
    """All finished cells of one file."""
    return read_lines(path, Result.from_line)


def run_cells(name: str, cells: Sequence[Cell], folder: Path) -> int:
    """Run those that have no result yet; the number of cells that failed, each reported and left out."""
    return run_rest(folder / f"{name}.jsonl", cells, run_cell, Result.from_line)


def grouped(results: Iterable[Result], *fields: str) -> dict[tuple[Any, ...], list[Result]]:
    """Results by fields of their cells; a field may also be one of the settings."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        key = tuple(
            getattr(result.cell, name) if hasattr(result.cell, name) else result.cell.settings.get(name)
            for name in fields
        )
        groups.setdefault(key, []).append(result)
    return groups
