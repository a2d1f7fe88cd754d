"""Progress while training: one line per iteration, `[12] train-logloss:0.31 valid-logloss:0.33 ETA 4s`.

Lines go to the logger `hedgerow`. Where nobody has switched that logger on, as in most scripts, they are printed on
stderr, so that `verbose=1` is all a person needs and a service can still send them where it likes.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

LOGGER = logging.getLogger("hedgerow")

EvalsLog = Mapping[str, Mapping[str, list[float]]]
OnProgress = Callable[[int, int], None]
"""Takes how many steps are done, and how many there are."""


class Pace:
    """How long the rest of some steps will take, from how long those took that it has seen."""

    _first: tuple[float, int] | None = None

    def seconds_left(self, done: int, total: int) -> float | None:
        """None until a step has been seen to its end; the first call starts the clock, and so does one with fewer."""
        now = time.monotonic()
        if self._first is None or done < self._first[1]:
            self._first = now, done
        began, before = self._first
        if done >= total:
            return 0.0
        return (total - done) * (now - began) / (done - before) if done > before else None


class ProgressLines:
    """A callback that says after every `every`-th iteration what the metrics are and how long it will take."""

    def __init__(self, n_iterations: int, every: int = 1) -> None:
        self.n_iterations, self.every, self._pace = n_iterations, every, Pace()

    def before_training(self, model: Any) -> Any:
        """Remember when it began, and with how many iterations already there."""
        self._pace.seconds_left(model.n_iterations, self.n_iterations)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:  # noqa: ARG002 - XGBoost's signature
        """Say the line if it is time for one, in XGBoost's manner; never stops the training."""
        left = self._pace.seconds_left(epoch + 1, self.n_iterations)
        if epoch % self.every == 0 or epoch + 1 == self.n_iterations:
            logs = ((f"{name}-{key}", found) for name, log in evals_log.items() for key, found in log.items() if found)
            metrics = [f"{name}:{found[-1]:.5f}" for name, found in logs]
            say(" ".join([f"[{epoch}]", *metrics, f"ETA {duration(left or 0.0)}"]))
        return False


def watcher(verbose: int, on_progress: OnProgress | None, what: str = "") -> OnProgress | None:
    """`on_progress` that also says every `verbose` steps how far it is, and how long it will take."""
    if not verbose:
        return on_progress
    pace = Pace()

    def watch(done: int, total: int) -> None:
        left = pace.seconds_left(done, total)
        if done % verbose == 0 or done == total:
            say(f"[{done}/{total}{what}] ETA {'unknown' if left is None else duration(left)}")
        if on_progress is not None:
            on_progress(done, total)

    return watch


def duration(seconds: float) -> str:
    """Seconds as a person says them: 0.4s, 12s, 3m05s, 2h10m."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def say(line: str) -> None:
    """To the log if somebody listens there, else to stderr."""
    if LOGGER.isEnabledFor(logging.INFO) and LOGGER.hasHandlers():
        LOGGER.info(line)
    else:
        sys.stderr.write(line + "\n")
