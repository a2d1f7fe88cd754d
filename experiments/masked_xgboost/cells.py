"""One cell is one training and its measures, or one recorded run and what attacks made of it.

Cells are run one after the other; each leaves one JSON line. To measure a table again, delete its file of results.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from experiments.result_lines import Measured, key_of, now, read_lines

RESULTS = Path(__file__).parent / "results"

POOLED, ALONE = "pooled", "label holder alone"
LDP, FED_LDP, FEDERBOOST = "XGBoost-LDP", "FedXGBoost-LDP", "FederBoost"
VECTOR, RECORD = "Masked, vector", "Masked, record"
NOISED, SHALLOW, CENTRAL = "noised_gradients", "noised_gradients, depth 3", "central.gaussian"
WINNER, HISTOGRAM = "private_histograms, winner", "private_histograms, histogram"
SMOOTH = "private_histograms, smooth_then_trees"
MANY_TREES, BUCKETS = "noised_gradients, 100 trees", "bucket_rr"
SHARED, XGBOOST = "secret_shared", "XGBoost"
ELGAMAL, OU, PAILLIER = "homomorphic, elgamal", "homomorphic, ou 2048", "homomorphic, paillier 2048"
LABELS, SETS = "attack on labels", "attack on active sets"

TREES, DEPTH, ROWS = 20, 6, 20_000
"""The paper has 60 trees, as Figures 4 and 9 have here, and all rows."""
PAPER_TREES = 60
ALL_ROWS = 10**9


@dataclass(frozen=True)
class Cell:
    """What is trained on what."""

    dataset: str
    method: str
    epsilon: float | None = None
    """eps_ap of the published methods, for one message; of the others of all that is released."""
    index: int = 0
    """Of the split of rows and columns, or of the repetition where time is measured."""
    eps_pp: float = 1.0
    vectors: int = 1
    """The paper's W."""
    trees: int = TREES
    depth: int = DEPTH
    rows: int = ROWS
    """At most this many to train."""
    timed: bool = False

    @property
    def key(self) -> str:
        """The cell as text, the same for the same cell."""
        return key_of(self)

    @property
    def secret(self) -> bytes:
        """32 bytes for the noise, a fixed function of the cell. Only for experiments."""
        return hashlib.sha256(self.key.encode()).digest()

    def __str__(self) -> str:
        epsilon = "" if self.epsilon is None else f" eps {self.epsilon:g}"
        more = f", {self.trees} trees of depth {self.depth}, {self.rows} rows" if self.timed else ""
        return f"{self.dataset} {self.method}{epsilon} eps_pp {self.eps_pp:g} W {self.vectors}{more}, {self.index}"


class Result(Measured):
    """A cell and what came out."""

    @classmethod
    def of(cls, cell: Cell) -> Result:
        """Do what the cell says."""
        from experiments.masked_xgboost.methods import measure

        return cls(cell, measure(cell), now())

    @classmethod
    def from_line(cls, line: str) -> Result:
        """The inverse of `to_line`."""
        data = json.loads(line)
        return cls(Cell(**data["cell"]), data["measures"], data["when"])


def read_results(folder: Path, name: str) -> list[Result]:
    """All finished cells of one table."""
    return read_lines(folder / f"{name}.jsonl", Result.from_line)
