"""What the logger `hedgerow` says, on stderr: as text for people, or as JSON for programs (`log = "json"`).

    {"time": "2026-05-04T09:12:44.120Z", "level": "warning", "party": "bank", "run_id": "3f9a...", "message": "..."}

One object per line. `run_id` is there once a run is known. Of an exception only the class is told: its sentence and
its traceback may quote what is in a row, and log lines are collected where rows must not go. As text, warnings are
shown and nothing below them; as JSON also what is merely good to know, such as that a connection is there.

The words of a verb (what it waits for, questions, the error that it ends with) are not log lines and stay text.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hedgerow.node.home import Home

LOGGER = logging.getLogger("hedgerow")


class _AsText(logging.Formatter):
    """A line such as any other word of a command."""

    def format(self, record: logging.LogRecord) -> str:
        message = " ".join(record.getMessage().split())
        return f"hedgerow: {record.levelname.lower()}: {message}{_exception_of(record)}"


class _AsJson(logging.Formatter):
    """An object on one line."""

    def __init__(self, party: str) -> None:
        super().__init__()
        self.party = party
        self.run_id: str | None = None

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "party": self.party,
            **({} if self.run_id is None else {"run_id": self.run_id}),
            "message": record.getMessage() + _exception_of(record),
        }
        return json.dumps(told)


def _exception_of(record: logging.LogRecord) -> str:
    kind = record.exc_info[0] if record.exc_info else None
    return "" if kind is None else f" ({kind.__name__})"


class _OnStderr(logging.Handler):
    """Writes to what stderr is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more: no reason to end a run
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()


def start(home: Home) -> None:
    """Log as this party's file says, from now on; the last call counts."""
    as_json = home.party_file.log == "json"
    handler = _OnStderr()
    handler.setFormatter(_AsJson(home.name) if as_json else _AsText())
    for old in [each for each in LOGGER.handlers if isinstance(each, _OnStderr)]:
        LOGGER.removeHandler(old)
    handler.setLevel(logging.INFO if as_json else logging.WARNING)
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO if as_json else logging.NOTSET)


def of_run(run_id: str) -> None:
    """From now on lines are about this run."""
    for handler in LOGGER.handlers:
        if isinstance(handler.formatter, _AsJson):
            handler.formatter.run_id = run_id
