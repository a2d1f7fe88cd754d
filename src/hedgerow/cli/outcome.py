"""How a command talks and ends: results on stdout, words and bars on stderr, an exit code, no half-written file."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from hedgerow.errors import (
    BudgetExceeded,
    ExportRefused,
    HedgerowError,
    InvalidParameter,
    JobError,
    ModelFileError,
    TransportError,
)
from hedgerow.runtime.progress import EvalsLog


class ExitCode(IntEnum):
    """What the shell gets to see; documented in docs/reference/cli.md."""

    OK = 0
    USAGE = 2
    DATA = 3
    MODEL_FILE = 4
    EXPORT_REFUSED = 5
    BUDGET_EXCEEDED = 6
    CLAIM_BROKEN = 7
    PEER = 8
    TRAIL_BROKEN = 9
    DOCTOR = 10
    INTERNAL = 70
    INTERRUPTED = 130


EXIT_CODES_HELP = (
    "Exit codes: 0 ok; 2 wrong usage or job file; 3 data or output file; 4 model file; 5 export refused; "
    "6 privacy budget exceeded; 7 an attack refutes a claim; 8 another party; 9 an audit trail is broken; "
    "10 a step of the doctor failed; "
    "70 internal error; 130 interrupted."
)


_CODES: dict[type[BaseException] | tuple[type[BaseException], ...], ExitCode] = {
    KeyboardInterrupt: ExitCode.INTERRUPTED,
    (JobError, InvalidParameter): ExitCode.USAGE,
    ModelFileError: ExitCode.MODEL_FILE,
    ExportRefused: ExitCode.EXPORT_REFUSED,
    BudgetExceeded: ExitCode.BUDGET_EXCEEDED,
    TransportError: ExitCode.PEER,
    (HedgerowError, OSError): ExitCode.DATA,
    BaseException: ExitCode.INTERNAL,
}
"""What an exception ends with: the first that it is."""


class Outcome(NamedTuple):
    """What a verb ends with: the result for machines, what prints it for people, and what the shell gets."""

    result: dict[str, Any]
    show: Callable[[], None]
    code: ExitCode = ExitCode.OK


def verb(json_help: str) -> Callable[[Callable[..., Outcome]], Callable[..., None]]:
    """Make a verb of a function from options to an outcome: adds --json, prints, answers for errors and exit codes.

    @verb("The same as JSON on stdout.")
    def ledger(run: Annotated[Path, typer.Argument(...)]) -> Outcome:
        ...
        return Outcome(result, lambda: print_lines(_lines(result)))
    """

    def as_verb(function: Callable[..., Outcome]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(*, as_json: bool, **options: Any) -> None:
            with one_line_errors(as_json=as_json):
                outcome = function(**options)
                if as_json:
                    print_json(outcome.result)
                else:
                    outcome.show()
                if outcome.code:
                    raise typer.Exit(outcome.code)

        kind = Annotated[bool, typer.Option("--json", help=json_help)]
        added = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        signature = inspect.signature(function, eval_str=True)
        run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), added])  # type: ignore[attr-defined]  # not in the stubs
        run.__annotations__ = {**function.__annotations__, "as_json": kind}
        return run

    return as_verb


@contextmanager
def one_line_errors(*, as_json: bool) -> Iterator[None]:
    """Turn what goes wrong inside into one line on stderr (with --json also an object on stdout) and an exit code."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone (`hedgerow ... | head`): nothing to tell, and nobody to tell it
        raise typer.Exit(ExitCode.OK) from None
    except (Exception, KeyboardInterrupt) as problem:  # noqa: BLE001 - the last stop before the shell
        code = next(code for kinds, code in _CODES.items() if isinstance(problem, kinds))
        message = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(str(problem).split()))
        if code is ExitCode.INTERRUPTED:
            message = "interrupted; no output was written"
        elif code is ExitCode.INTERNAL:
            message = f"internal error, {type(problem).__name__}: {message} (HEDGEROW_TRACEBACK=1 shows where)"
        if os.environ.get("HEDGEROW_TRACEBACK"):
            traceback.print_exc()
        say(f"hedgerow: {message}")
        if as_json:
            print_json({"error": {"type": type(problem).__name__, "message": message, "exit_code": int(code)}})
        raise typer.Exit(int(code)) from None


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A place to write to that becomes `path` in one step when all went well, and disappears otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def say(line: str) -> None:
    """Words for people, on stderr."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


WIDTH = 80


def aligned(rows: Sequence[Sequence[str]], n_left: int) -> list[str]:
    """Cells in columns: the first ones to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if k < n_left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def print_lines(lines: Sequence[str]) -> None:
    """Words for people that are the result, on stdout."""
    typer.echo("\n".join(lines))


def wrapped(text: str, indent: str = "") -> list[str]:
    """Text in lines of at most 80 columns."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def print_json(result: Any) -> None:
    """The result for machines, on stdout."""
    sys.stdout.write(json_text(result))


def json_text(result: Any) -> str:
    """Strict JSON: NaN and infinity, which it lacks, become null."""
    return json.dumps(_strict(result), indent=2, ensure_ascii=False) + "\n"


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _strict(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


# --- what goes on, on a terminal; nothing where stderr is a file or a pipe -------------------------------------------


class _Bar:
    """A training callback that moves the bar and shows the newest metric of the last evaluation set."""

    def __init__(self, progress: Any, n_iterations: int) -> None:
        self._progress = progress
        # Until the first tree is there, time goes into binning and, once per machine, into compiling.
        self._task = progress.add_task("preparing", total=n_iterations, metric="")

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:  # noqa: ARG002 - XGBoost's signature
        metric = ""
        for name, log in evals_log.items():
            metric = " ".join(f"{name}-{key} {values[-1]:.4f}" for key, values in log.items() if values)
        self._progress.update(self._task, completed=epoch + 1, description="training", metric=metric)
        return False


def _progress(*, wanted: bool = True) -> Any:
    """Bars on stderr, of which nothing is drawn where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[metric]}"),
        console=Console(stderr=True),
        transient=True,
        disable=not wanted or not sys.stderr.isatty(),
    )


@contextmanager
def progress_bar(n_iterations: int, *, wanted: bool = True) -> Iterator[list[Any]]:
    """Callbacks for `fit` that draw a bar."""
    with _progress(wanted=wanted) as progress:
        yield [_Bar(progress, n_iterations)]


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """A line with a spinner while something runs whose length is not known; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


@contextmanager
def progress_of_parties(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function that parties' progress is told to, and that draws it."""
    with _progress() as progress:
        task = progress.add_task(f"{what}: starting processes", total=None, metric="")
        yield lambda done, total: progress.update(task, completed=done, total=total, description=what)
