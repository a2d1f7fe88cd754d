"""How a command talks and ends: results on stdout, words and bars on stderr, an exit code, no half-written file."""

from __future__ import annotations

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
from typing import Any

import typer

from hedgerow.errors import BudgetExceeded, ExportRefused, HedgerowError, InvalidParameter, JobError, ModelFileError
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
    INTERNAL = 70
    INTERRUPTED = 130


EXIT_CODES_HELP = (
    "Exit codes: 0 ok; 2 wrong usage or job file; 3 data or output file; 4 model file; 5 export refused; "
    "6 privacy budget exceeded; 7 an attack refutes a claim; 70 internal error; 130 interrupted."
)


_CODES: dict[type[BaseException] | tuple[type[BaseException], ...], ExitCode] = {
    KeyboardInterrupt: ExitCode.INTERRUPTED,
    (JobError, InvalidParameter): ExitCode.USAGE,
    ModelFileError: ExitCode.MODEL_FILE,
    ExportRefused: ExitCode.EXPORT_REFUSED,
    BudgetExceeded: ExitCode.BUDGET_EXCEEDED,
    (HedgerowError, OSError): ExitCode.DATA,
    BaseException: ExitCode.INTERNAL,
}
"""What an exception ends with: the first that it is."""


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
        message = _sentence(problem, code)
        if os.environ.get("HEDGEROW_TRACEBACK"):
            traceback.print_exc()
        say(f"hedgerow: {message}")
        if as_json:
            print_json({"error": {"type": type(problem).__name__, "message": message, "exit_code": int(code)}})
        raise typer.Exit(int(code)) from None


def _sentence(problem: BaseException, code: ExitCode) -> str:
    if code is ExitCode.INTERRUPTED:
        return "interrupted; no output was written"
    text = " ".join(str(problem).split())
    if code is ExitCode.INTERNAL:
        return f"internal error, {type(problem).__name__}: {text} (HEDGEROW_TRACEBACK=1 shows where)"
    return text


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


@contextmanager
def _progress(*, wanted: bool = True) -> Iterator[Any]:
    """Bars on stderr, or None where there is no terminal to draw on."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[metric]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield progress


@contextmanager
def progress_bar(n_iterations: int, *, wanted: bool = True) -> Iterator[list[Any]]:
    """Callbacks for `fit`: one that draws a bar, or none where there is no terminal to draw on."""
    with _progress(wanted=wanted) as progress:
        yield [] if progress is None else [_Bar(progress, n_iterations)]


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
def progress_of_parties(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A function that parties' progress is told to, and that draws it; None where there is no terminal to draw on."""
    with _progress() as progress:
        task = None if progress is None else progress.add_task(f"{what}: starting processes", total=None, metric="")

        def told(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, description=what)

        yield None if progress is None else told
