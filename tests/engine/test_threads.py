"""Teams of threads: order of results, failures, forks, limits."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from hedgerow.engine import threads
from hedgerow.engine.threads import Team, available_cores, resolve_n_jobs
from hedgerow.errors import InvalidParameter


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("n_tasks", [0, 1, 2, 17])
def test_results_come_in_the_order_of_tasks(n_threads, n_tasks):
    """Whatever thread does a task, its result stands where the task stood; no tasks, no results."""
    assert Team(n_threads).run(lambda a, b: a * b, [(k, 2) for k in range(n_tasks)]) == [2 * k for k in range(n_tasks)]


def test_helpers_really_take_part():
    """Two tasks that wait for each other finish only if two threads run them at once."""
    meeting = threading.Barrier(2, timeout=20)
    assert sorted(Team(2).run(meeting.wait, [(), ()])) == [0, 1]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_first_failure_is_raised_and_the_team_goes_on(n_threads):
    """The failure of the earliest task reaches the caller; the next batch works."""

    def fail(number):
        if number >= 2:
            raise ValueError(f"task {number}")
        return number

    with pytest.raises(ValueError, match="task 2"):
        Team(n_threads).run(fail, [(k,) for k in range(6)])
    assert Team(n_threads).run(fail, [(0,), (1,)]) == [0, 1]


def test_a_task_may_use_a_team_itself():
    """Nested use does not deadlock: the caller of a batch always works on it."""
    inner = Team(2)
    assert Team(2).run(lambda k: sum(inner.run(lambda x: x, [(k,), (1,)])), [(k,) for k in range(4)]) == [1, 2, 3, 4]


def test_many_callers_at_once():
    """Teams are shared by all threads of a process."""
    results = []

    def call(seed):
        results.append(Team(3).run(lambda k: k + seed, [(k,) for k in range(50)]) == [k + seed for k in range(50)])

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=30)
    assert results == [True] * 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_team_of_its_own():
    """Threads do not survive a fork; the child starts new ones."""
    Team(2).run(np.sum, [(np.ones(3),), (np.ones(3),)])
    answers = multiprocessing.get_context("fork").SimpleQueue()

    def child():
        answers.put(Team(2).run(lambda k: k, [(1,), (2,)]))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(timeout=30)
    assert process.exitcode == 0
    assert answers.get() == [1, 2]


def test_helpers_end_before_the_interpreter_does():
    """A process that is interrupted waits for a helper that is in the middle of a task, instead of crashing in it."""
    script = """
import threading, time
from hedgerow.engine.threads import Team
def task(seconds):
    time.sleep(seconds)
    print("done", flush=True)
caller = threading.Thread(target=lambda: Team(2).run(task, [(1.0,), (1.0,)]), daemon=True)
caller.start()
time.sleep(0.3)
raise KeyboardInterrupt
"""
    ended = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60)
    assert "done" in ended.stdout
    assert ended.stderr.strip().endswith("KeyboardInterrupt")


def test_watching_ends_when_the_counter_moves_or_patience_does():
    """A counter that already differs ends the wait at once; one that never moves ends it after a moment."""
    counter = np.array([3])
    assert threads.watch_until_changed(counter, 2)
    assert not threads.watch_until_changed(counter, 3)
    assert not threads.watch_until_zero(counter)
    counter[0] = 0
    assert threads.watch_until_zero(counter)


def test_a_helper_that_fell_asleep_is_woken():
    """Batches far apart are worked on as well as batches close together."""
    for pause in (0.0, 0.05, 0.0, 0.05):
        time.sleep(pause)
        meeting = threading.Barrier(2, timeout=20)
        assert sorted(Team(2).run(meeting.wait, [(), ()])) == [0, 1]


def test_cores_can_be_limited_by_the_environment(monkeypatch):
    """HEDGEROW_NUM_THREADS caps what None and -1 mean; anything but a positive number is refused."""
    monkeypatch.setenv("HEDGEROW_NUM_THREADS", "1")
    assert available_cores() == resolve_n_jobs(None) == resolve_n_jobs(-1) == 1
    for wrong in ("0", "many", "-2"):
        monkeypatch.setenv("HEDGEROW_NUM_THREADS", wrong)
        with pytest.raises(InvalidParameter, match="HEDGEROW_NUM_THREADS"):
            available_cores()


def test_n_jobs_follows_scikit_learn(monkeypatch):
    """Positive numbers are taken as they are, negative ones count from all cores."""
    monkeypatch.setattr(threads, "available_cores", lambda: 4)
    assert [resolve_n_jobs(n) for n in (1, 3, 9, -1, -2, -4)] == [1, 3, 9, 4, 3, 1]
    for wrong in (0, -5):
        with pytest.raises(InvalidParameter, match="n_jobs"):
            resolve_n_jobs(wrong)


def test_a_team_needs_a_thread():
    """Zero threads are refused."""
    with pytest.raises(InvalidParameter, match="at least one thread"):
        Team(0)
