"""One cell is one training and its measures. Cells are run one after the other; each leaves one JSON line.

To measure a table again, delete its file of results. How lines are kept: experiments/result_lines.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.federboost.datasets import COLUMN_ORDER
from experiments.result_lines import Measured, key_of, now, read_lines, run_rest

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Cell:
    """What is trained on what. `epsilon` is None where there is no noise."""

    dataset: str
    method: str
    split: str = "random"
    index: int = 0
    """Of the random split."""
    seed: int = 0
    """Of the noise; several in one split."""
    epsilon: float | None = None
    buckets: int = 16
    edges: str = "quantile"
    debias: bool = True
    order: int = COLUMN_ORDER
    """Of the columns: who has which."""
    timing: tuple[tuple[str, Any], ...] = ()
    """What else is needed where time is measured."""

    @property
    def key(self) -> str:
        """The cell as text, the same for the same cell."""
        return key_of(self)

    @property
    def secret(self) -> bytes:
        """32 bytes for the noise: a fixed function of the cell, so that every figure can be made again.

        With and without debiasing it is the same, so that the two are compared on the same transfer. Only for
        experiments: parties otherwise take their noise from the operating system.
        """
        described = {name: value for name, value in asdict(self).items() if name != "debias"}
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).digest()

    def __str__(self) -> str:
        where = self.split if self.split == "file" else f"{self.split} {self.index}"
        noise = "" if self.epsilon is None else f" eps {self.epsilon:g}{'' if self.debias else ', no debias'}"
        timing = "".join(f" {name}={value}" for name, value in self.timing)
        return f"{self.dataset} {self.method} q {self.buckets} {self.edges}{noise}, {where}, seed {self.seed}{timing}"


class Result(Measured):
    """A cell and what came out."""

    @classmethod
    def from_line(cls, line: str) -> Result:
        """The inverse of `to_line`."""
        data = json.loads(line)
        cell = data["cell"]
        cell["timing"] = tuple((name, value) for name, value in cell.get("timing", ()))
        return cls(Cell(**cell), data["measures"], data["when"])


def run_cell(cell: Cell) -> Result:
    """Train and measure."""
    from experiments.federboost.methods import METHODS

    return Result(cell, METHODS[cell.method](cell), now())


def read_results(path: Path) -> list[Result]:
    """All finished cells of one file."""
    return read_lines(path, Result.from_line)


def run_cells(name: str, cells: Sequence[Cell], folder: Path) -> int:
    """Run those that have no result yet; the number of cells that failed, each reported and left out."""
    return run_rest(folder / f"{name}.jsonl", cells, run_cell, Result.from_line)
