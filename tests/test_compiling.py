"""Compiled kernels are kept on disk, per state of the sources that they depend on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hedgerow import compiling, crypto, engine, protocols
from hedgerow.compiling import KEPT_SECONDS, PREFIX, source_hash, state_of
from hedgerow.engine.histogram import mark_combinations

USE_A_KERNEL = """
import numpy as np
from hedgerow.engine.histogram import mark_combinations
codes, seen = np.zeros(3, np.uint8), np.zeros(4, np.bool_)
mark_combinations(codes, codes, 2, seen)
print(sum(mark_combinations.stats.cache_hits.values()), seen[0], mark_combinations.stats.cache_path)
"""


def use_a_kernel(folder: Path) -> tuple[int, Path]:
    """Run a kernel in a new process: hits in the cache, and where that is."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    finished = subprocess.run(
        [sys.executable, "-c", USE_A_KERNEL], env=environment, capture_output=True, text=True, check=True
    )
    hits, seen, path = finished.stdout.split()
    assert seen == "True"
    return int(hits), Path(path)


@pytest.fixture(scope="module")
def used_once(tmp_path_factory):
    """A folder that one process has used, hits in it, and where the kernel was written."""
    folder = tmp_path_factory.mktemp("used_once")
    return folder, *use_a_kernel(folder)


def test_the_second_process_finds_the_kernel(used_once):
    """The first process compiles and writes, the second reads; the folder is named after the sources."""
    folder, hits, first_path = used_once
    assert hits == 0
    assert first_path.name == state_of(Path(engine.__file__).parent)
    assert list(first_path.glob("*.nbi"))
    assert use_a_kernel(folder) == (1, first_path)


def test_kernels_of_another_state_are_removed(used_once, tmp_path):
    """Folders of earlier states go when a new one begins, unless they were just written; other things stay."""
    folder, _, path = used_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / path.relative_to(folder)
    stale, recent, other = path.with_name(f"{PREFIX}0123"), path.with_name(f"{PREFIX}4567"), path.with_name("other")
    path.rename(stale)
    recent.mkdir()
    other.mkdir()
    long_ago = time.time() - 2 * KEPT_SECONDS
    for folder in (stale, other):
        os.utime(folder, (long_ago, long_ago))
    assert use_a_kernel(tmp_path) == (0, path)
    assert not stale.exists()
    assert recent.exists()
    assert other.exists()


def test_any_change_of_a_source_changes_the_state(tmp_path):
    """A changed, a new and a renamed file each give another hash; other files do not count."""
    (tmp_path / "a.py").write_text("x = 1")
    states = {_hash(tmp_path)}
    (tmp_path / "notes.txt").write_text("no source")
    assert _hash(tmp_path) in states
    (tmp_path / "a.py").write_text("x = 2")
    states.add(_hash(tmp_path))
    (tmp_path / "b.py").write_text("")
    states.add(_hash(tmp_path))
    (tmp_path / "a.py").rename(tmp_path / "c.py")
    states.add(_hash(tmp_path))
    assert len(states) == 4


def _hash(folder: Path) -> str:
    source_hash.cache_clear()
    return source_hash(folder)


def test_a_state_is_that_of_all_a_kernel_may_call(monkeypatch):
    """The engine's kernels depend on the engine alone, those of crypto on crypto alone, those above on both."""
    folders = [Path(module.__file__).parent for module in (engine, crypto, protocols)]
    before = [_state(folder) for folder in folders]
    assert len(set(before)) == 3
    for changed, expected in ((0, [True, False, True]), (1, [False, True, True]), (2, [False, False, True])):
        with monkeypatch.context() as patch:
            patch.setattr(
                compiling, "source_hash", lambda folder, it=folders[changed]: "x" if folder == it else _hash(folder)
            )
            assert [_state(folder) != old for folder, old in zip(folders, before, strict=True)] == expected
    state_of.cache_clear()


def _state(folder: Path) -> str:
    state_of.cache_clear()
    return state_of(folder)


def test_processes_that_start_at_once_compile_a_kernel_once(tmp_path):
    """One compiles, the others wait for it and read; nobody waits for a process that has ended with the lock."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", USE_A_KERNEL]
    together = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    hits = sorted(int(process.communicate()[0].split()[0]) for process in together)
    assert hits == [0, 1, 1]
    (path,) = tmp_path.rglob("*mark_combinations*.nbi")
    path.unlink()
    assert list(path.parent.glob("*mark_combinations*.lock"))
    assert use_a_kernel(tmp_path) == (0, path.parent)


def test_whoever_holds_the_lock_for_too_long_is_not_waited_for(tmp_path):
    """A process that stopped in the middle delays others, and blocks nobody."""
    _, folder = use_a_kernel(tmp_path)
    for path in folder.glob("*.nbi"):
        path.unlink()
    code = USE_A_KERNEL.replace("codes,", "from hedgerow import compiling; compiling.WAIT_SECONDS = 0.5\ncodes,", 1)
    with contextlib.ExitStack() as held:
        for path in folder.glob("*.lock"):
            fcntl.flock(held.enter_context(path.open()), fcntl.LOCK_EX)
        started = time.monotonic()
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("0 True")
    assert time.monotonic() - started > 0.5


def test_another_process_rehearses_once(tmp_path, monkeypatch):
    """It imports the module from where this process would, and calls its rehearsal, however many wish it at once."""
    seen = tmp_path / "seen"
    (tmp_path / "rehearsed_beside.py").write_text(
        f"def rehearse():\n    with open({str(seen)!r}, 'a') as file:\n        file.write('once')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with ThreadPoolExecutor(8) as parties:
        started = {id(each) for each in parties.map(compiling.compile_beside, ["rehearsed_beside"] * 8)}
    assert len(started) == 1
    until = time.monotonic() + 60.0
    while not seen.exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.2)
    assert seen.read_text() == "once"


def test_what_is_on_disk_is_known():
    """A kernel that has run is there, and one that nobody has called in this form of it is not."""

    @compiling.kernel
    def never_called(x):
        return x + 1

    assert not compiling.is_compiled(never_called)
    codes = np.zeros(3, np.uint8)
    mark_combinations(codes, codes, 2, np.zeros(4, np.bool_))
    assert compiling.is_compiled(mark_combinations)


SLOW_KERNELS = """
import numpy as np
from hedgerow import compiling
compiling.LONG_SECONDS = {seconds}
from hedgerow.engine.histogram import mark_combinations
codes, seen = np.zeros(3, np.uint8), np.zeros(4, np.bool_)
{before}
mark_combinations(codes, codes, 2, seen)
mark_combinations(codes, codes, np.int32(2), seen)
"""


@pytest.mark.parametrize(
    ("seconds", "before", "quiet", "n_lines"),
    [
        (0.0, "", "0", 1),
        (0.0, "", "1", 0),
        (3600.0, "", "0", 0),
        (0.0, "compiling.told_otherwise()", "0", 0),
    ],
)
def test_people_are_told_once_that_kernels_are_compiled(seconds, before, quiet, n_lines, tmp_path):
    """One line on stderr once it takes long, and none where it does not, is not wanted, or somebody else tells."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "HEDGEROW_QUIET": quiet}
    program = SLOW_KERNELS.format(seconds=seconds, before=before)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == [compiling.COMPILES] * n_lines
    assert not done.stdout


def test_nobody_is_told_about_kernels_that_are_there(used_once):
    """A second start compiles nothing, and says nothing."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(used_once[0]), "HEDGEROW_QUIET": "0"}
    program = "from hedgerow import compiling; compiling.LONG_SECONDS = 0.0\n" + USE_A_KERNEL
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert not done.stderr
