"""`hedgerow attack`: what curious parties of a recorded run can find out, beside what its statement allows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.files import read_run
from hedgerow.cli.outcome import ExitCode, Outcome, aligned, print_lines, verb, wrapped
from hedgerow.cli.telling import progress
from hedgerow.errors import JobError
from hedgerow.node.sources import read_file, require_columns

if TYPE_CHECKING:
    from hedgerow.federation.run import Run


@verb("The outcomes as JSON on stdout.", is_long=True)
def attack(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of a recorded run: fit(..., record=True).")],
    *,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="True labels, to count with; .parquet or .csv.")
    ] = None,
    column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The column of labels, in --labels or in every --table.")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTY=FILE", help="A party's table: the attacker's own, or truth; repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--attack", metavar="NAME", help="Only this attack; repeatable.")
    ] = None,
) -> Outcome:
    """Attack a recorded run with what its parties really received.

    Example: hedgerow attack runs/loans --labels loans.csv --column repaid
    """
    result = _result(run, labels, column, table or [], tuple(only or ()))
    code = ExitCode.CLAIM_BROKEN if result["broken"] else ExitCode.OK
    return Outcome(result, lambda: print_lines(_lines(result)), code)


def _result(
    folder: Path, labels: Path | None, column: str | None, tables: list[str], only: tuple[str, ...]
) -> dict[str, Any]:
    from hedgerow.attacks.registry import BROKEN, Context, applicable, attacked

    run = read_run(folder)
    files = {}
    for text in tables:
        party, _, path = text.partition("=")
        if not party or not path:
            raise JobError(f"--table takes PARTY=FILE, got {text!r}")
        files[party] = Path(path)
    given = {party: read_file(path) for party, path in files.items()}
    truth = _labels(run, labels, column, files, given)
    if column is not None:  # labels are no column of a table that was trained on without names
        given = {party: X.drop_columns([column]) if column in X.column_names else X for party, X in given.items()}
    context = Context(run, truth, given)
    names = applicable(run.protocol)
    if not run.transcripts or not set(only) <= set(names):
        attacked(context, only)  # which says what is wrong, before any attack takes its time
    wanted = [name for name in names if name in (only or names)]
    outcomes = []
    with progress("attacking") as on_progress:
        for done, name in enumerate(wanted, start=1):
            outcomes += attacked(context, (name,))
            on_progress(done, len(wanted))
    return {
        "command": "attack",
        "run": str(folder),
        "run_id": run.job.run_id,
        "protocol": run.protocol,
        "stamp": run.statement().facts.get("stamp"),
        "outcomes": [outcome.to_dict() for outcome in outcomes],
        "broken": any(outcome.verdict == BROKEN for outcome in outcomes),
    }


def _labels(
    run: Run, path: Path | None, column: str | None, files: dict[str, Path], tables: dict[str, Any]
) -> dict[str, Any]:
    """Party -> its labels: of the label holder, or of every owner of rows whose table has them."""
    holder = getattr(run.job, "label_holder", None)
    if path is not None:
        if column is None:
            raise JobError("--labels needs --column, the name of the column of labels")
        if holder is None:
            raise JobError("--labels is for columns that are divided; here each --table has its own labels (--column)")
        found = read_file(path)
        require_columns(found.column_names, [column], path, "is the label")
        return {holder: found.column(column)}
    if column is None:
        return {}
    wanted = [party for party in tables if holder in (None, party)]
    if not wanted:
        raise JobError(f"--column names labels, but neither --labels nor --table {holder or 'OWNER'}=FILE is given")
    for party in wanted:
        require_columns(tables[party].column_names, [column], files[party], "is the label")
    return {party: tables[party].column(column) for party in wanted}


# --- for people ------------------------------------------------------------------------------------------------------


def _lines(result: dict[str, Any]) -> list[str]:
    stamp = f" It is stamped: {result['stamp']}." if result["stamp"] else ""
    lines = wrapped(f"Attacks on a run of {result['protocol']}.{stamp}")
    if not result["outcomes"]:
        return [*lines, "There are none for this protocol."]
    header = ("attack", "by", "result", "chance", "ceiling", "verdict")
    rows = [header, *(_row(outcome) for outcome in result["outcomes"])]
    head, *body = aligned(rows, n_left=len(header))
    lines += ["", head]
    for row, outcome in zip(body, result["outcomes"], strict=True):
        lines.append(row)
        for words in _words(outcome):
            lines += wrapped(words, "    ")
    return [*lines, "", *_legend({outcome["verdict"] for outcome in result["outcomes"]})]


def _row(outcome: dict[str, Any]) -> tuple[str, ...]:
    value, digits = outcome["value"], _digits(outcome)
    shown = "" if value is None else f"{outcome['measure']} {value['estimate']:.{digits}f}"
    numbers = ("-" if number is None else f"{number:.{digits}f}" for number in (outcome["chance"], outcome["ceiling"]))
    return (outcome["attack"], outcome["attacker"], shown or "-", *numbers, outcome["verdict"])


def _words(outcome: dict[str, Any]) -> list[str]:
    """The interval and what follows from it, if there is one; what was attacked and found."""
    words = [f"{outcome['target']}: {outcome['found']}"]
    if (value := outcome["value"]) is None:
        return words
    digits = _digits(outcome)
    interval = f"{value['confidence']:.2%} interval {value['low']:.{digits}f} to {value['high']:.{digits}f}"
    return [f"{interval}: {outcome['reason']}" if outcome["reason"] else interval, *words]


def _digits(outcome: dict[str, Any]) -> int:
    """Three, or as many as show on which side of the ceiling the lower end of the interval is."""
    value, ceiling = outcome["value"], outcome["ceiling"]
    looks_equal = value is not None and ceiling is not None and f"{value['low']:.3f}" == f"{ceiling:.3f}"
    return 6 if looks_equal else 3


def _legend(verdicts: set[str]) -> list[str]:
    from hedgerow.report.sections import VERDICTS

    meanings = {**VERDICTS, "not scored": "the truth was not given (--labels, --column, --table)"}
    return [f"{verdict}: {meaning}" for verdict, meaning in meanings.items() if verdict in verdicts]
