"""What people are told while a verb works, on stderr: words, and how far the work is, with the time left.

    with progress("scoring") as on_progress:
        for k, batch in enumerate(batches): ...; on_progress(k + 1, len(batches))

On a terminal that is a bar. In a pipe or a file it is a plain line for each tenth of the work, at most one a second and
at least one a minute. With --json and --quiet there is neither.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hedgerow.runtime.progress import EvalsLog, Pace, duration

OnProgress = Callable[..., None]
"""Takes how many steps are done, how many there are, and perhaps a few words to show beside them."""

SHORTEST, LONGEST = 1.0, 60.0
"""Seconds between two plain lines."""


@dataclass
class _Manner:
    """What the verb that runs was asked for."""

    is_quiet: bool = False
    draws: bool = True


_manner = _Manner()


@contextmanager
def manner(*, is_quiet: bool, as_json: bool) -> Iterator[None]:
    """How to talk inside: not at all if quiet, without progress if a machine reads."""
    before = (_manner.is_quiet, _manner.draws)
    _manner.is_quiet, _manner.draws = is_quiet, not (is_quiet or as_json)
    says_so = not _manner.draws and "HEDGEROW_QUIET" not in os.environ
    if says_so:
        os.environ["HEDGEROW_QUIET"] = "1"  # for what is compiled, here and in processes that this one starts
    try:
        yield
    finally:
        if says_so:
            os.environ.pop("HEDGEROW_QUIET", None)
        _manner.is_quiet, _manner.draws = before


def say(line: str) -> None:
    """Words that a person must see, whatever the verb was asked for: errors, warnings, questions, a code."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def mention(line: str) -> None:
    """Words that --quiet leaves out."""
    if not _manner.is_quiet:
        say(line)


def begin(line: str) -> None:
    """The first words of a step, where no bar shows them."""
    if _manner.draws and not sys.stderr.isatty():
        say(line)


@contextmanager
def progress(what: str, *, wanted: bool = True) -> Iterator[OnProgress]:
    """What to call with the steps done and the steps there are."""
    if not wanted or not _manner.draws:
        yield lambda _done, _total, _beside="": None
    elif sys.stderr.isatty():
        with _bars() as bars:
            task = bars.add_task(f"{what}: preparing", total=None, beside="")

            def draw(done: int, total: int, beside: str = "") -> None:
                bars.update(task, completed=done, total=total, description=what, beside=beside)

            yield draw
    else:
        yield _Lines(what).update


class FitCallback:
    """A training callback that reports iterations, with the newest metric of the last evaluation set."""

    def __init__(self, on_progress: OnProgress, n_iterations: int) -> None:
        self._on_progress, self._n_iterations = on_progress, n_iterations

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:  # noqa: ARG002 - XGBoost's signature
        """Report it; never stops the training."""
        metric = ""
        for name, log in evals_log.items():
            metric = " ".join(f"{name}-{key} {values[-1]:.4f}" for key, values in log.items() if values)
        self._on_progress(epoch + 1, self._n_iterations, metric)
        return False


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[beside]}"),
        console=Console(stderr=True),
        transient=True,
    )


class _Lines:
    """Progress where nothing can be drawn."""

    def __init__(self, what: str) -> None:
        self._what, self._pace = what, Pace()
        self._at, self._told = time.monotonic(), 0

    def update(self, done: int, total: int, beside: str = "") -> None:
        """Say a line if it is time for one."""
        left = self._pace.seconds_left(done, total)
        waited = time.monotonic() - self._at
        self._told = min(self._told, done)
        is_tenth = done >= total or 10 * (done - self._told) >= total
        if waited < SHORTEST or (waited < LONGEST and not is_tenth):
            return
        self._at, self._told = time.monotonic(), done
        parts = [f"{self._what}: {done} of {total}", "" if left is None else f"ETA {duration(left)}", beside]
        say(", ".join(filter(None, parts)))
