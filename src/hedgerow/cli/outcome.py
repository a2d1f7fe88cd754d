"""How a command ends: its result on stdout, an error on stderr, an exit code, no half-written file."""

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
from typer.core import TyperGroup

from hedgerow.cli.telling import manner, say
from hedgerow.errors import (
    BudgetExceeded,
    ExportRefused,
    HedgerowError,
    InvalidParameter,
    JobError,
    ModelFileError,
    TransportError,
)


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
    REPLAY = 11
    INTERNAL = 70
    INTERRUPTED = 130


EXIT_CODES_HELP = (
    "Exit codes: 0 ok; 2 wrong usage or job file; 3 data or output file; 4 model file; 5 export refused; "
    "6 privacy budget exceeded; 7 an attack refutes a claim; 8 another party; 9 an audit trail is broken; "
    "10 a step of the doctor failed; 11 a repeated run is another one; "
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


_AS_JSON = "hedgerow.as_json"
UsageError: Any = typer.BadParameter.__base__
"""Of click, which some versions of typer bring along under a name of their own."""
_QUIET = ("--quiet", "-q", "No progress and no summary; errors, and what --json prints, are still told.")


class Outcome(NamedTuple):
    """What a verb ends with: the result for machines, what prints it for people, and what the shell gets."""

    result: dict[str, Any]
    show: Callable[[], None]
    code: ExitCode = ExitCode.OK


def not_done(result: dict[str, Any], line: str) -> Outcome:
    """What a dry run ends with."""
    return Outcome({**result, "dry_run": True}, lambda: print_lines([line]))


def verb(json_help: str, *, is_long: bool = False) -> Callable[[Callable[..., Outcome]], Callable[..., None]]:
    """Make a verb of a function from options to an outcome: adds --json, prints, answers for errors and exit codes.

    One whose work may take long, and shows its progress, also gets --quiet.

    @verb("The same as JSON on stdout.")
    def ledger(run: Annotated[Path, typer.Argument(...)]) -> Outcome:
        ...
        return Outcome(result, lambda: print_lines(_lines(result)))
    """
    flags = {"as_json": ("--json", json_help)} | ({"quiet": _QUIET} if is_long else {})

    def as_verb(function: Callable[..., Outcome]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(*, as_json: bool, quiet: bool = False, **options: Any) -> None:
            with one_line_errors(as_json=as_json), manner(is_quiet=quiet, as_json=as_json):
                outcome = function(**options)
                if as_json:
                    print_json(outcome.result)
                elif not quiet:
                    outcome.show()
                if outcome.code:
                    raise typer.Exit(outcome.code)

        kinds = {name: Annotated[bool, typer.Option(*words[:-1], help=words[-1])] for name, words in flags.items()}
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
            for name, kind in kinds.items()
        ]
        signature = inspect.signature(function, eval_str=True)
        run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[attr-defined]  # not in the stubs
        run.__annotations__ = {**function.__annotations__, **kinds}
        return run

    return as_verb


class Verbs(TyperGroup):
    """The command with its verbs. Also wrong usage, which is found before a verb runs, is told as JSON with --json."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The options of the command itself."""
        ctx.meta[_AS_JSON] = "--json" in args
        with _usage_as_json(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """The verb and its options."""
        with _usage_as_json(ctx):
            return super().invoke(ctx)


@contextmanager
def _usage_as_json(context: Any) -> Iterator[None]:
    try:
        yield
    except UsageError as problem:
        if context.meta[_AS_JSON] and problem.format_message():
            print_error(problem, problem.format_message(), ExitCode.USAGE)
        raise


def print_error(problem: BaseException, message: str, code: ExitCode) -> None:
    """An error for machines, on stdout."""
    print_json({"error": {"type": type(problem).__name__, "message": message, "exit_code": int(code)}})


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
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last stop before the shell
        # Ctrl-C while numba hands over a result is told as a SystemError because of it.
        problem = error.__cause__ if isinstance(error.__cause__, KeyboardInterrupt) else error
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
            print_error(problem, message, code)
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
