"""How a command ends: results on stdout, words on stderr, an exit code, and never a half-written file."""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import typer

from hedgerow.errors import BudgetExceeded, ExportRefused, HedgerowError, InvalidParameter, JobError, ModelFileError


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


def code_of(problem: BaseException) -> ExitCode:
    """The exit code for an exception."""
    if isinstance(problem, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(problem, (JobError, InvalidParameter)):
        return ExitCode.USAGE
    if isinstance(problem, ModelFileError):
        return ExitCode.MODEL_FILE
    if isinstance(problem, ExportRefused):
        return ExitCode.EXPORT_REFUSED
    if isinstance(problem, BudgetExceeded):
        return ExitCode.BUDGET_EXCEEDED
    if isinstance(problem, (HedgerowError, OSError)):
        return ExitCode.DATA
    return ExitCode.INTERNAL


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
        code = code_of(problem)
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
