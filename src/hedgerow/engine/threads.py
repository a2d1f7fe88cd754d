"""A team of Python threads that run GIL-free kernels side by side.

The caller works too: a team of two has one helper thread. Helper threads belong to the process, whichever team asks for
them; they start on first use, and anew in a forked child, where threads do not survive.

A sleeping thread takes 50 microseconds and more to wake up, which is as long as a whole phase of a small tree. Between
phases, threads of a team therefore watch a counter in memory for a fraction of a millisecond, without the GIL, before
they really go to sleep: first in a tight loop, then offering the core to others between looks.

When the process ends, after Ctrl-C too, helper threads end before the interpreter does: it would take the machine code
away under a thread that is still in a kernel.
"""

from __future__ import annotations

import atexit
import os
import platform
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hedgerow.compiling import kernel
from hedgerow.engine.dtypes import Ints
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
        self._batches: deque[_Batch | None] = deque()  # None: no more
        self._given = np.zeros(1, np.int64)  # how many batches so far; watched without the GIL
        self._lock = threading.Lock()
        self._asleep = False
        self._alarm = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._serve, daemon=True, name=f"hedgerow-engine-{number}")
        self._thread.start()

    def end(self) -> None:
        """Let the thread finish what it has, and wait for that; a kernel takes well under a second."""
        self.give(None)
        self._thread.join(timeout=10.0)

    def give(self, batch: _Batch | None) -> None:
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
                batch = self._batches.popleft()
                if batch is None:
                    return
                batch.work()
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


@atexit.register
def _end_helpers() -> None:
    """Of this process; a forked child that has asked for none has none."""
    if _owner_pid == os.getpid():
        while _running:
            _running.pop().end()


# --- waiting for a moment without going to sleep ---------------------------------------------------------------------

_HAS_PAUSE = platform.machine().lower() in {"x86_64", "amd64"}
_CAN_YIELD = os.name == "posix"

TIGHT_LOOKS = 500 if _HAS_PAUSE else 20_000
"""About 20 microseconds: with the processor's pause instruction a look takes some 40 ns, without it about 1."""

YIELDING_LOOKS = 400
"""About 0.2 ms, if nobody else wants the core."""

GRACE = 100 if _HAS_PAUSE else 4_000
"""Looks to wait once the counter has changed, about 4 microseconds: whoever changed it still holds the GIL and is about
to release it for a kernel. Asking for the GIL at once would mean going to sleep after all."""


def _look(_context: Any, array: Any) -> tuple[Any, Callable[..., Any]]:
    """`array[0]`, read from memory each time, with a hint to the processor that this is a waiting loop."""
    signature = types.int64(array)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _HAS_PAUSE:
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, pause, "llvm.x86.sse2.pause"), [])
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load_atomic(data, "acquire", 8)

    return signature, generate


def _offer_core(_context: Any) -> tuple[Any, Callable[..., Any]]:
    """Let another thread have the core, if one is waiting for it."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        if _CAN_YIELD:
            sched_yield = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, sched_yield, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


look = cast("Callable[[Ints], int]", intrinsic(_look))
offer_core = cast("Callable[[], None]", intrinsic(_offer_core))


@kernel
def watch_until_changed(counter: Ints, seen: int) -> bool:
    """Wait until counter[0] is no longer `seen`; False if that did not happen in time."""
    for number in range(TIGHT_LOOKS + YIELDING_LOOKS):
        if look(counter) != seen:
            for _ in range(GRACE):
                look(counter)
            return True
        if number >= TIGHT_LOOKS:
            offer_core()
    return False


@kernel
def watch_until_zero(counter: Ints) -> bool:
    """Wait until counter[0] is 0; False if that did not happen in time."""
    for number in range(TIGHT_LOOKS + YIELDING_LOOKS):
        if look(counter) == 0:
            for _ in range(GRACE if number > 0 else 0):
                look(counter)
            return True
        if number >= TIGHT_LOOKS:
            offer_core()
    return False
