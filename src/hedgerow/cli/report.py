"""`hedgerow report`: a run, or a model, as a page for people who sign."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.outcome import Outcome, print_lines, verb
from hedgerow.cli.unlocking import HomeOption
from hedgerow.errors import InvalidInput, InvalidParameter, JobError

if TYPE_CHECKING:
    from hedgerow.report.told import Quality, Told

_MOST_BYTES = 16 << 20


@verb("What was written, as JSON on stdout.")
def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A folder that run.save wrote, a run of this home (the beginning of its id), or a model.",
        ),
    ],
    *,
    party: Annotated[str | None, typer.Option(metavar="NAME", help="What this party knows, and no more.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write the page; otherwise into the run's folder.")
    ] = None,
    scored: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Rows that hedgerow predict has scored, with their labels, to judge them by."
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of labels in --scored.")] = None,
    attacks: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What hedgerow attack --json has printed.")
    ] = None,
    home: HomeOption = None,
) -> Outcome:
    """Write one HTML file: what is guaranteed, who learned what, traffic, the model, budgets, how to repeat it.

    It needs no network and no other file; a browser shows it, and prints it as PDF.

    Example: hedgerow report runs/loans --party shop
    """
    from hedgerow.report.sections import page

    told, place = _told(run, party, home, _read_attacks(attacks), _read_scored(scored, label))
    made = page(told)
    path = made.save(out or place)
    result = {
        "command": "report",
        "run": run,
        "out": path,
        "bytes": path.stat().st_size,
        "party": told.party,
        "protocol": told.protocol,
        "stamp": None if told.statement is None else told.statement.stamp,
        "guarantee": [] if told.statement is None else list(told.statement.guarantee),
        "sections": [each.heading for each in made.sections],
    }
    return Outcome(result, lambda: print_lines([f"The report is {path.resolve().as_uri()}"]))


def _told(
    run: str,
    party: str | None,
    home: Path | None,
    attacks: Sequence[Mapping[str, Any]],
    quality: Quality | None,
) -> tuple[Told, Path]:
    """The facts, and where the page goes if nothing else is said."""
    folder = Path(run)
    if folder.is_file():
        return _of_model_file(folder, party, attacks, quality)
    if (folder / "ledgers").is_dir():
        from hedgerow.cli.files import read_run
        from hedgerow.report.of_run import told_of_run

        kept = {f"SHA-256 of {name}": _digest(folder / name) for name in _files(folder, party)}
        told = told_of_run(read_run(folder), party, attacks=attacks, quality=quality, place=run, digests=kept)
        return told, folder / (f"report-{party}.html" if party else "report.html")
    from hedgerow.node.home import Home
    from hedgerow.report.of_node import told_of_node

    place = Home(folder.resolve().parent.parent) if (folder / "run.json").is_file() else Home.find(home)
    if party not in (None, place.name):
        raise InvalidParameter(f"--party {party!r}: this is the home of {place.name}, which reports for itself only")
    told = told_of_node(place, folder.name, attacks=attacks, quality=quality)
    return told, place.runs / told.facts["run"] / "report.html"


def _of_model_file(
    path: Path, party: str | None, attacks: Sequence[Mapping[str, Any]], quality: Quality | None
) -> tuple[Told, Path]:
    from hedgerow.cli.files import read_model
    from hedgerow.report.of_model import told_of_model

    if party is not None or attacks:
        raise InvalidParameter(f"--party and --attacks are for runs, and {path} is a model; leave them out")
    told = told_of_model(read_model(path), name=path.name, quality=quality)
    return told, path.with_name(f"{path.stem}.report.html")


def _files(folder: Path, party: str | None) -> list[str]:
    """Of a saved run, those that a party would have at home."""
    if party is None:
        return [name for name in ("run.json", "model.json") if (folder / name).exists()]
    own = (f"ledgers/{party}.jsonl", f"model/{party}/part.json", "model.json")
    return [name for name in own if (folder / name).exists()]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- what is given beside the run ------------------------------------------------------------------------------------


def _read_attacks(path: Path | None) -> list[dict[str, Any]]:
    if path is None:
        return []
    from hedgerow.node.documents import read_bounded
    from hedgerow.runtime.saved_files import damage_told

    with damage_told(f"{path} is not what hedgerow attack --json prints"):
        found = json.loads(read_bounded(path, _MOST_BYTES))
        outcomes = [dict(outcome) for outcome in found["outcomes"]]
        for outcome in outcomes:
            _check_outcome(outcome)
    return outcomes


def _check_outcome(outcome: Mapping[str, Any]) -> None:
    """ValueError, KeyError or TypeError for what no attack has printed."""
    if not all(isinstance(outcome[name], str) for name in ("attack", "attacker", "target", "verdict")):
        raise ValueError("attack, attacker, target and verdict must be text")
    numbers = [outcome.get(name) for name in ("chance", "ceiling")]
    if outcome.get("value") is not None:
        numbers += [outcome["value"][name] for name in ("estimate", "low", "high")]
        numbers.append(0.0 if isinstance(outcome["measure"], str) else "")
    if not all(number is None or (isinstance(number, int | float) and float(number) > -1) for number in numbers):
        raise ValueError("results must be numbers from 0 on")


def _read_scored(path: Path | None, label: str | None) -> Quality | None:
    """From a table with labels and what `hedgerow predict` says of them."""
    if path is None:
        if label is not None:
            raise JobError("--label is a column of --scored FILE, which is not given")
        return None
    import numpy as np

    from hedgerow.node.sources import read_file, require_columns
    from hedgerow.report.measure import quality_of_classes, quality_of_numbers

    if label is None:
        raise JobError("--scored needs --label, the name of the column of labels")
    table = read_file(path)
    require_columns(table.column_names, [label], path, "is the label")
    rows = f"{table.num_rows:,} rows of {path.name}"
    shares = [name for name in table.column_names if name.startswith(PROBABILITY)]
    if not shares:
        require_columns(table.column_names, ["prediction"], path, "is what was predicted")
        predicted = np.asarray(table.column("prediction").to_numpy(zero_copy_only=False))
        if predicted.dtype.kind not in "fiu":
            raise InvalidInput(f"{path}: classes are judged by probabilities; predict them with --proba")
        return quality_of_numbers(predicted.astype(np.float64), table.column(label), rows)
    values = np.column_stack([table.column(name).to_numpy(zero_copy_only=False) for name in shares]).astype(np.float64)
    if not np.isfinite(values).all() or values.min(initial=0.0) < 0 or values.max(initial=1.0) > 1:
        raise InvalidInput(f"{path}: {', '.join(shares)} must be probabilities, between 0 and 1")
    names = [name.removeprefix(PROBABILITY) for name in shares]
    labels = np.array([str(value) for value in table.column(label).to_pylist()], dtype=object)
    return quality_of_classes(values, np.array(names, dtype=object), labels, rows)


PROBABILITY = "probability_"
"""How `hedgerow predict --proba` begins the names of its columns."""
