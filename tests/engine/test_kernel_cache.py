"""Compiled kernels are kept on disk, per state of the engine's sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hedgerow.engine import kernel_cache
from hedgerow.engine.kernel_cache import PREFIX, source_hash

USE_A_KERNEL = """
import numpy as np
from hedgerow.engine.layout import mark_combinations
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


def test_the_second_process_finds_the_kernel(tmp_path):
    """The first process compiles and writes, the second reads; the folder is named after the sources."""
    hits, first_path = use_a_kernel(tmp_path)
    assert hits == 0
    assert first_path.name == PREFIX + source_hash(Path(kernel_cache.__file__).parent)
    assert list(first_path.glob("*.nbi"))
    assert use_a_kernel(tmp_path) == (1, first_path)


def test_kernels_of_another_state_are_removed(tmp_path):
    """Folders of earlier states go when a new one begins; other things beside them stay."""
    _, path = use_a_kernel(tmp_path)
    stale, other = path.with_name(f"{PREFIX}0123"), path.with_name("something else")
    path.rename(stale)
    other.mkdir()
    assert use_a_kernel(tmp_path) == (0, path)
    assert not stale.exists()
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
