"""A progress bar with the time to go, on a terminal; nothing where stderr is a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hedgerow.runtime.progress import EvalsLog


class _Bar:
    """A training callback that moves the bar and shows the newest metric of the last evaluation set."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress = progress
        self._task = task

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:  # noqa: ARG002 - XGBoost's signature
        metric = ""
        for name, log in evals_log.items():
            metric = " ".join(f"{name}-{key} {values[-1]:.4f}" for key, values in log.items() if values)
        self._progress.update(self._task, completed=epoch + 1, description="training", metric=metric)
        return False


@contextmanager
def progress_bar(n_iterations: int, *, wanted: bool = True) -> Iterator[list[Any]]:
    """Callbacks for `fit`: one that draws a bar, or none where there is no terminal to draw on."""
    if not wanted or not sys.stderr.isatty():
        yield []
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
        # Until the first tree is there, time goes into binning and, once per machine, into compiling.
        task = progress.add_task("preparing", total=n_iterations, metric="")
        yield [_Bar(progress, task)]


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
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{what}: starting processes", total=None)

        def told(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, description=what)

        yield told
