"""A team of Python threads that run GIL-free kernels side by side.

The caller works too: a team of two has one helper thread. Helper threads belong to the
process, whichever team asks for them; they start on first use, and anew in a forked child, where threads do not
survive.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hedgerow.engine.spinning import watch_until_changed, watch_until_zero
from hedgerow.errors import InvalidParameter


def available_cores() -> int:
    """Cores this process may use, at most HEDGEROW_NUM_THREADS if that is set."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    limit = os.environ.get("HEDGEROW_NUM_THREADS")
    if limit:
        if not limit.isdigit() or int(limit) < 1:
            raise InvalidParameter(f"HEDGEROW_NUM_THREADS must be a positive whole number, got {limit!r}")
        cores = min(cores, int(limit))
    return cores


def resolve_n_jobs(n_jobs: int | None) -> int:
    """scikit-learn's meaning of `n_jobs`, except that None means every core we may use."""
    cores = available_cores()
    if n_jobs is None or n_jobs == -1:
        return cores
    if n_jobs == 0 or n_jobs < -cores:
        raise InvalidParameter(f"n_jobs must be a positive number of threads, -1 or None, got {n_jobs}")
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


class Team:
    """`Team(n).run(function, tasks)` calls `function(*task)` for each task over `n` threads; results are in order."""

    def __init__(self, n_threads: int) -> None:
        if n_threads < 1:
            raise InvalidParameter(f"a team needs at least one thread, got {n_threads}")
        self.n_threads = n_threads

    def run(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run every task; when some fail, the first failure (in task order) is raised after all have ended."""
        if self.n_threads == 1 or len(tasks) <= 1:
            return [function(*task) for task in tasks]
        batch = _Batch(function, tasks)
        for helper in _helpers(min(self.n_threads, len(tasks)) - 1):
            helper.give(batch)
        batch.work()
        return batch.wait()


class _Batch:
    """Tasks handed out one by one to whoever asks; done when the last one has ended, whichever threads took part."""

    def __init__(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> None:
        self._function = function
        self._tasks = tasks
        self._next = 0
        self._open = np.array([len(tasks)])  # an array, because it is watched without the GIL
        self._lock = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._results: list[Any] = [None] * len(tasks)
        self._failures: dict[int, BaseException] = {}

    def work(self) -> None:
        """Take tasks until there are none left."""
        while True:
            with self._lock:
                index = self._next
                self._next += 1
            if index >= len(self._tasks):
                return
            try:
                self._results[index] = self._function(*self._tasks[index])
            except BaseException as failure:  # noqa: BLE001 - handed to the caller, who raises it
                self._failures[index] = failure
            with self._lock:
                self._open[0] -= 1
                if self._open[0] == 0:
                    self._done.release()

    def wait(self) -> list[Any]:
        """Results in the order of tasks, once all are done."""
        watch_until_zero(self._open)
        self._done.acquire()
        if self._failures:
            raise self._failures[min(self._failures)]
        return self._results


class _Helper:
    """A thread that works on the batches it is given, in turn."""

    def __init__(self, number: int) -> None:
        self._batches: deque[_Batch] = deque()
        self._given = np.zeros(1, np.int64)  # how many batches so far; watched without the GIL
        self._lock = threading.Lock()
        self._asleep = False
        self._alarm = threading.Semaphore(0)
        threading.Thread(target=self._serve, daemon=True, name=f"hedgerow-engine-{number}").start()

    def give(self, batch: _Batch) -> None:
        """Put a batch in the queue, and wake the thread if it sleeps."""
        with self._lock:
            self._batches.append(batch)
            self._given[0] += 1
            asleep, self._asleep = self._asleep, False
        if asleep:
            self._alarm.release()

    def _serve(self) -> None:
        while True:
            given = int(self._given[0])  # read before the queue is emptied: what comes later changes it
            while self._batches:
                self._batches.popleft().work()
            if watch_until_changed(self._given, given):
                continue
            with self._lock:
                self._asleep = not self._batches
                asleep = self._asleep
            if asleep:
                self._alarm.acquire()


_running: list[_Helper] = []
_owner_pid = -1
_start_lock = threading.Lock()


def _helpers(count: int) -> list[_Helper]:
    """`count` helper threads, starting those that are missing."""
    global _owner_pid  # noqa: PLW0603 - threads do not survive a fork, so the process that owns them is remembered
    with _start_lock:
        if _owner_pid != os.getpid():
            _running.clear()
            _owner_pid = os.getpid()
        while len(_running) < count:
            _running.append(_Helper(len(_running)))
        return _running[:count]
