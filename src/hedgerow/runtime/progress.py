"""Progress while training: one line per iteration, `[12] train-logloss:0.31 valid-logloss:0.33 ETA 4s`.

Lines go to the logger `hedgerow`. Where nobody has switched that logger on, as in most scripts, they are printed on
stderr, so that `verbose=1` is all a person needs and a service can still send them where it likes.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

LOGGER = logging.getLogger("hedgerow")

EvalsLog = Mapping[str, Mapping[str, list[float]]]


class ProgressLines:
    """A callback that says after every `every`-th iteration what the metrics are and how long it will take."""

    def __init__(self, n_iterations: int, every: int = 1) -> None:
        self.n_iterations = n_iterations
        self.every = every
        self._started: float | None = None
        self._first = 0

    def before_training(self, model: Any) -> Any:
        """Remember when it began, and with how many iterations already there."""
        self._started, self._first = time.monotonic(), model.n_iterations
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:  # noqa: ARG002 - XGBoost's signature
        """Say the line if it is time for one; never stops the training."""
        if self._started is None:
            self._started, self._first = time.monotonic(), epoch + 1
        if epoch % self.every == 0 or epoch + 1 == self.n_iterations:
            say(progress_line(epoch, evals_log, self._seconds_left(epoch)))
        return False

    def _seconds_left(self, epoch: int) -> float:
        done = epoch + 1 - self._first
        elapsed = time.monotonic() - (self._started or 0.0)
        return (self.n_iterations - epoch - 1) * elapsed / done if done > 0 else 0.0


def progress_line(epoch: int, evals_log: EvalsLog, seconds_left: float) -> str:
    """One iteration in XGBoost's manner, with the time still to go."""
    metrics = [
        f"{name}-{metric}:{values[-1]:.5f}"
        for name, log in evals_log.items()
        for metric, values in log.items()
        if values
    ]
    return " ".join([f"[{epoch}]", *metrics, f"ETA {duration(seconds_left)}"])


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
