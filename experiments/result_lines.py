"""Results of long experiments, one JSON line for each training, and running what has none yet.

A line holds the cell (what is trained on what) and what came out of it, so a run that was interrupted goes on where it
stopped, and the tables can be written at any time from what there is. Each experiment has cells and results of its own.
"""

from __future__ import annotations

import datetime as dt
import json
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar


class Cell(Protocol):
    """What is trained on what; its text is for lines of progress."""

    @property
    def key(self) -> str:
        """The cell as text, the same for the same cell."""


class Result(Protocol):
    """A cell and what came out of it."""

    @property
    def cell(self) -> Cell:
        """What was trained."""

    @property
    def summary(self) -> str:
        """Its measures in a few words, for lines of progress."""

    def to_line(self) -> str:
        """One line of JSON."""


AnyCell = TypeVar("AnyCell", bound=Cell)
AnyResult = TypeVar("AnyResult", bound=Result)


def key_of(cell: Any) -> str:
    """All fields of a dataclass as text."""
    return json.dumps(asdict(cell), sort_keys=True)


def unusual(thing: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults."""
    out: dict[str, Any] = {}
    for own in fields(thing):
        value = getattr(thing, own.name)
        usual = own.default_factory() if own.default_factory is not MISSING else own.default
        if value != usual:
            out[own.name] = value
    return out


def as_line(data: Any) -> str:
    """JSON without spaces."""
    return json.dumps(data, separators=(",", ":"))


def rounded(value: Any) -> Any:
    """Numbers that were measured, to six digits, however deep they are."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


@dataclass(frozen=True)
class Measured:
    """A cell and what was measured: the result of most experiments."""

    cell: Any
    measures: dict[str, Any] = field(default_factory=dict)
    when: str = ""

    @property
    def summary(self) -> str:
        """For lines of progress."""
        return " ".join(f"{what} {value:.4g}" for what, value in self.measures.items() if isinstance(value, float))

    def to_line(self) -> str:
        """One line of JSON; of the cell only what is not as usual."""
        return as_line({"cell": unusual(self.cell), "measures": rounded(self.measures), "when": self.when})


def now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def read_lines(path: Path, from_line: Callable[[str], AnyResult]) -> list[AnyResult]:
    """All finished cells of one file; the last line may be half written, if the run was killed."""
    if not path.is_file():
        return []
    found: dict[str, AnyResult] = {}
    for line in path.read_text().splitlines():
        try:
            result = from_line(line)
        except json.JSONDecodeError:
            continue
        found[result.cell.key] = result
    return list(found.values())


def run_rest(
    path: Path, cells: Sequence[AnyCell], run: Callable[[AnyCell], AnyResult], from_line: Callable[[str], AnyResult]
) -> int:
    """Run the cells that have no line yet; the number of those that failed, each reported and left out."""
    name = path.stem
    done = {result.cell.key for result in read_lines(path, from_line)}
    todo = [cell for cell in cells if cell.key not in done]
    print(f"{name}: {len(cells)} cells, {len(cells) - len(todo)} of them finished before", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    failed = 0
    with path.open("a") as lines:
        if lines.tell() and not path.read_text().endswith("\n"):
            lines.write("\n")  # after a line that was cut off
        for number, cell in _numbered(name, todo):
            try:
                result = run(cell)
            except Exception:  # noqa: BLE001 - one cell that fails must not cost the night's other cells
                failed += 1
                print(f"{number} {cell}: FAILED\n{traceback.format_exc()}", flush=True)
                continue
            lines.write(result.to_line() + "\n")
            lines.flush()
            print(f"{number} {cell}: {result.summary}", flush=True)
    return failed


def _numbered(name: str, cells: Sequence[AnyCell]) -> Iterator[tuple[str, AnyCell]]:
    """With how many there are and how long the rest may take."""
    start = time.perf_counter()
    for number, cell in enumerate(cells):
        rest = (time.perf_counter() - start) / number * (len(cells) - number) / 60 if number else 0.0
        yield f"[{name} {number + 1}/{len(cells)}, {rest:.0f} min left]", cell
