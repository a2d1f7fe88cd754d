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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from experiments.central_dp.datasets import SplitKind, load, split
from experiments.central_dp.methods import METHODS, Problem
from experiments.central_dp.objective import measure

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
    """At most so many rows of the dataset, training and test together."""
    settings: dict[str, Any] = field(default_factory=dict)
    curve: tuple[int, ...] = ()
    """Also measured after so many trees."""

    @property
    def key(self) -> str:
        """The cell as text, the same for the same cell."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def secret(self) -> bytes:
        """32 bytes for the noise: a fixed function of the cell, so that every figure can be had again.

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

    def to_line(self) -> str:
        """One line of JSON, without what is as usual."""
        return json.dumps({**_unusual(self), "cell": _unusual(self.cell)}, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> Result:
        """The inverse of `to_line`."""
        data = json.loads(line)
        cell = data.pop("cell")
        cell["curve"] = tuple(cell.get("curve", ()))
        data["curve"] = {int(trees): measures for trees, measures in data.get("curve", {}).items()}
        return cls(cell=Cell(**cell), **data)


def _unusual(thing: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults; numbers that were measured, to six digits."""
    out: dict[str, Any] = {}
    for own in fields(thing):
        value = getattr(thing, own.name)
        usual = own.default_factory() if own.default_factory is not MISSING else own.default
        if value != usual:
            out[own.name] = value if isinstance(thing, Cell) else _rounded(value)
    return out


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


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
        dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )


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
    path = folder / f"{name}.jsonl"
    done = {result.cell.key for result in read_results(path)}
    todo = [cell for cell in cells if cell.key not in done]
    print(f"{name}: {len(cells)} cells, {len(cells) - len(todo)} of them finished before", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    with path.open("a") as lines:
        if lines.tell() and not path.read_text().endswith("\n"):
            lines.write("\n")  # after a line that was cut off
        for number, cell in _numbered(name, todo):
            try:
                result = run_cell(cell)
            except Exception:  # noqa: BLE001 - one method that fails must not cost the night's other cells
                failed += 1
                print(f"{number} {cell}: FAILED\n{traceback.format_exc()}", flush=True)
                continue
            lines.write(result.to_line() + "\n")
            lines.flush()
            shown = " ".join(f"{name} {value:.4f}" for name, value in result.measures.items())
            print(f"{number} {cell}: {shown} ({result.seconds:.2f} s)", flush=True)
    return failed


def _numbered(name: str, cells: Sequence[Cell]) -> Iterator[tuple[str, Cell]]:
    """With how many there are and how long the rest may take."""
    start = time.perf_counter()
    for number, cell in enumerate(cells):
        rest = (time.perf_counter() - start) / number * (len(cells) - number) / 60 if number else 0.0
        yield f"[{name} {number + 1}/{len(cells)}, {rest:.0f} min left]", cell


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
