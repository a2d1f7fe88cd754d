"""One cell is one training and its measures. Cells are run one after the other; each leaves one JSON line.

A line holds the cell and what came out of it, so a run that was interrupted goes on where it stopped, and the tables
can be written at any time from what there is. To measure a table again, delete its file of results.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from experiments.federboost.datasets import COLUMN_ORDER

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
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def secret(self) -> bytes:
        """32 bytes for the noise: a fixed function of the cell, so that every figure can be had again.

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


@dataclass(frozen=True)
class Result:
    """A cell and what came out."""

    cell: Cell
    measures: dict[str, float] = field(default_factory=dict)
    when: str = ""

    def to_line(self) -> str:
        """One line of JSON; of the cell only what is not as usual."""
        usual = {own.name: own.default for own in fields(Cell)}
        cell = {name: value for name, value in asdict(self.cell).items() if value != usual[name]}
        measures = {name: float(f"{value:.6g}") for name, value in self.measures.items()}
        return json.dumps({"cell": cell, "measures": measures, "when": self.when}, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> Result:
        """The inverse of `to_line`."""
        data = json.loads(line)
        cell = data["cell"]
        cell["timing"] = tuple((name, value) for name, value in cell.get("timing", ()))
        return cls(Cell(**cell), data["measures"], data["when"])


def read_results(path: Path) -> list[Result]:
    """All finished cells of one file; the last line may be half written, if the run was killed."""
    if not path.is_file():
        return []
    found: dict[str, Result] = {}
    for line in path.read_text().splitlines():
        try:
            result = Result.from_line(line)
        except json.JSONDecodeError:
            continue
        found[result.cell.key] = result
    return list(found.values())


def run_cells(name: str, cells: Sequence[Cell], folder: Path) -> int:
    """Run those that have no result yet; the number of cells that failed, each reported and left out."""
    from experiments.federboost.methods import METHODS

    path = folder / f"{name}.jsonl"
    done = {result.cell.key for result in read_results(path)}
    todo = [cell for cell in cells if cell.key not in done]
    print(f"{name}: {len(cells)} cells, {len(cells) - len(todo)} of them finished before", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    failed, start = 0, time.perf_counter()
    with path.open("a") as lines:
        if lines.tell() and not path.read_text().endswith("\n"):
            lines.write("\n")  # after a line that was cut off
        for number, cell in enumerate(todo):
            rest = (time.perf_counter() - start) / number * (len(todo) - number) / 60 if number else 0.0
            told = f"[{name} {number + 1}/{len(todo)}, {rest:.0f} min left] {cell}"
            try:
                measures = METHODS[cell.method](cell)
            except Exception:  # noqa: BLE001 - one cell that fails must not cost the others
                failed += 1
                print(f"{told}: FAILED\n{traceback.format_exc()}", flush=True)
                continue
            result = Result(cell, measures, dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))
            lines.write(result.to_line() + "\n")
            lines.flush()
            print(f"{told}: " + " ".join(f"{what} {value:.4g}" for what, value in measures.items()), flush=True)
    return failed
