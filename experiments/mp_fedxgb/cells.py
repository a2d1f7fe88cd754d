"""One cell is one training and its measures, or another thing that takes time and gives numbers or rows of a table.

Cells are run one after the other; each leaves one JSON line. To measure a table again, delete its file of results.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from experiments.result_lines import Measured, key_of, now, read_lines

RESULTS = Path(__file__).parent / "results"

MINIMAL, PAPER, MASKED = "minimal", "paper", "paper, first layer masked"
"""Methods: `vertical.secret_shared`; the published protocol; the same with the root split by the label holder."""
ELGAMAL, OU, PAILLIER = "homomorphic, elgamal", "homomorphic, ou 2048", "homomorphic, paillier 2048"
PHE = "phe"
"""A sample of operations of that package."""

IN_BUCKETS = 0.1
"""The published program's buckets: less than so large a share of the rows in each."""


@dataclass(frozen=True)
class Cell:
    """What is trained on what; defaults are those of the published program."""

    dataset: str
    method: str
    split: str = "file"
    index: int = 0
    """Of the random split, or of the repetition where time is measured."""
    depth: int = 3
    trees: int = 3
    learning_rate: float = 1.0
    buckets: float = IN_BUCKETS
    """Below 1 a share of the rows (`datasets.bucket_ends`), else the number of the engine's quantile bins."""
    as_they_are: str = ""
    """Columns, with commas between them, whose values are not put into buckets."""
    rows: int = 0
    columns: int = 0
    transport: str = ""
    """These three only where time is measured."""
    key_bits: int = 0
    """Of what is no training but a sample of a scheme's operations."""
    quick: bool = False
    """For cells that are not one training: a small part."""

    @property
    def key(self) -> str:
        """The cell as text, the same for the same cell."""
        return key_of(self)

    def __str__(self) -> str:
        if self.key_bits:
            return f"{self.method}, {self.key_bits} bits"
        if self.rows:
            return (
                f"{self.method} {self.rows} x {self.columns}, {self.trees} trees of depth {self.depth}, "
                f"{self.transport}, {self.index}"
            )
        where = self.split if self.split == "file" else f"{self.split} {self.index}"
        return (
            f"{self.dataset} {self.method} depth {self.depth} rate {self.learning_rate:g} buckets {self.buckets:g}"
            f"{' but ' + self.as_they_are if self.as_they_are else ''}, {where}"
        )


class Result(Measured):
    """A cell and what came out."""

    @classmethod
    def of(cls, cell: Cell) -> Result:
        """Do what the cell says."""
        from experiments.mp_fedxgb.methods import METHODS

        return cls(cell, METHODS[cell.method](cell), now())

    @classmethod
    def from_line(cls, line: str) -> Result:
        """The inverse of `to_line`."""
        data = json.loads(line)
        return cls(Cell(**data["cell"]), data["measures"], data["when"])


def read_results(folder: Path, name: str) -> list[Result]:
    """All finished cells of one table."""
    return read_lines(folder / f"{name}.jsonl", Result.from_line)
