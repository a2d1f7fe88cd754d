"""How numba kernels are compiled, in every part of the package, and where they are kept between processes.

No `fastmath` anywhere: a model must be the same, bit for bit, for any number of threads and any split of the rows, and
reassociated floating-point sums are not. `error_model="numpy"` gives IEEE division without a branch per division.
Kernels release the GIL; parallelism comes from Python threads, because numba's own thread layers either abort when
entered from two threads at once or break in forked children.

numba caches each function by the content of the one file it is in. Our kernels call kernels of other files and take
tuples defined elsewhere, so after an upgrade numba would go on using old machine code, or stumble over a class that is
gone. Here all kernels of one folder in one state share a cache folder whose name is a hash of all the sources that they
can depend on: code that does not match is never looked at, and the folders of earlier states are removed.

Compiling takes half a minute where a whole training does not, so a person who waits for it is told, in one line, once.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numba
from numba.core import caching

PREFIX = "hedgerow-kernels-"
KEPT_SECONDS = 3600.0
"""A folder of another state may be in use by a process that began before the sources changed."""

WAIT_SECONDS = 60.0
"""How long to wait for another process that compiles the same kernel; ours take some seconds each."""

QUIET = "HEDGEROW_QUIET"
"""Set, and not to 0, in the environment of whoever wants no word about compiling."""

LONG_SECONDS = 2.0
"""Of compiling, after which a line says what is going on."""

COMPILES = "Hedgerow compiles its kernels, once; later starts take seconds (hedgerow warmup does it ahead of time)"

ISLANDS = ("engine", "crypto")
"""Folders whose kernels call no others; kernels elsewhere may call theirs."""

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile on first use, keep on disk, run without the GIL."""
    compiled = numba.njit(nogil=True, boundscheck=False, error_model="numpy")(function)
    return cast("Function", keep_compiled(compiled))


def inline_kernel(function: Function) -> Function:
    """A helper pasted into its callers: no call in the inner loop, no entry of its own in the cache."""
    return cast("Function", numba.njit(inline="always", boundscheck=False, error_model="numpy")(function))


def is_compiled(compiled: Any) -> bool:
    """Whether a kernel is on disk, in some form."""
    return _caches[compiled].is_on_disk


class _Notice:
    """Tells people, once in a process, that kernels are being compiled; without a thread, for those who fork."""

    def __init__(self) -> None:
        self._seconds, self.is_done = 0.0, False

    def count(self, seconds: float) -> None:
        """One more kernel took so long."""
        self._seconds += seconds
        if self._seconds >= LONG_SECONDS and not self.is_done:
            self.is_done = True
            if os.environ.get(QUIET, "0") in ("", "0") and sys.stderr is not None:
                sys.stderr.write(COMPILES + "\n")
                sys.stderr.flush()


_notice = _Notice()


def told_otherwise() -> None:
    """Whoever calls this tells people himself that kernels are being compiled, or has nobody to tell."""
    _notice.is_done = True


_beside: dict[str, subprocess.Popen[bytes]] = {}
_starting = threading.Lock()


def compile_beside(module: str) -> subprocess.Popen[bytes]:
    """Let another process compile kernels, by `module.rehearse()`, while the caller compiles others: one, once.

    numba compiles one kernel at a time in a process. What both want is compiled once: one waits for the other. Nobody
    waits for the process, and no thread either: a thread would be a danger to whoever forks meanwhile.
    """
    package = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    with _starting:  # parties that are threads come at the same time
        if module not in _beside:
            _beside[module] = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-c", f"from {module} import rehearse; rehearse()"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )
        return _beside[module]


# --- the cache -----------------------------------------------------------------------------------------------------


@functools.cache
def source_hash(folder: Path) -> str:
    """A name for the present state of the sources in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@functools.cache
def state_of(folder: Path) -> str:
    """A name for the state of all that a kernel in this folder can depend on.

    That is this file, which sets the options; the files beside the kernel; and, unless it is on an island, the islands.
    """
    package = Path(__file__).resolve().parent
    islands = [package / name for name in ISLANDS]
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for source in [folder] if folder in islands else [*islands, folder]:
        digest.update(source_hash(source).encode())
    return PREFIX + digest.hexdigest()[:16]


def _unused_for(folder: Path) -> float:
    """Seconds since something was last written there; 0 if it has just gone."""
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0


class _PerState:
    """Mixed into numba's locators: a sub-folder for each state of the sources."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._folder = Path(py_file).resolve().parent
        super().__init__(py_func, py_file)  # type: ignore[call-arg]  # the locator comes next in line

    def get_cache_path(self) -> str:
        return str(Path(super().get_cache_path()) / state_of(self._folder))  # type: ignore[misc]  # as above

    def ensure_cache_path(self) -> None:
        mine = Path(self.get_cache_path())
        if not mine.is_dir():
            for stale in mine.parent.glob(f"{PREFIX}*"):
                if _unused_for(stale) > KEPT_SECONDS:
                    shutil.rmtree(stale, ignore_errors=True)
        super().ensure_cache_path()  # type: ignore[misc]  # as above


def _locators() -> list[type[object]]:
    """numba's own order: a folder the user chose, beside the sources, or the user's cache folder."""
    names = ("UserProvidedCacheLocator", "InTreeCacheLocator", "UserWideCacheLocator")
    found = [getattr(caching, name, None) or getattr(caching, f"_{name}") for name in names]  # older: with underscore
    return [type(f"PerState{base.__name__}", (_PerState, base), {}) for base in found]


class _KernelCacheImpl(caching.CompileResultCacheImpl):
    _locator_classes = _locators()


class KernelCache(caching.FunctionCache):
    """numba's function cache in the folder of the present state.

    Of several processes that want a kernel which is not there, one compiles it and the others wait for it: from a miss
    in `load_overload` to `save_overload` it holds a lock on a file beside the kernel. numba lets one thread at a time
    compile, and kernels do not call each other in circles, so nobody waits for a process that waits for it. A process
    that ends loses its lock; after WAIT_SECONDS the others compile all the same.
    """

    _impl_class = _KernelCacheImpl
    _lock: IO[bytes] | None = None
    _began: float | None = None

    @property
    def is_on_disk(self) -> bool:
        """Whether there is anything of this kernel."""
        return Path(self._cache_path, f"{self._impl.filename_base}.nbi").exists()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel from disk, perhaps from another process that compiles it just now; None if we are to compile."""
        found = super().load_overload(sig, target_context)
        if found is None and self._lock is None and self._enabled:
            self._lock = self._take_turn()
            found = super().load_overload(sig, target_context)
            if found is not None:
                self._end_turn()
        if found is None:
            self._began = time.monotonic()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what we have compiled, and let the others have it."""
        try:
            super().save_overload(sig, data)
        finally:
            self._end_turn()
            if self._began is not None:
                _notice.count(time.monotonic() - self._began)
                self._began = None

    def _take_turn(self) -> IO[bytes] | None:
        until = time.monotonic() + WAIT_SECONDS
        try:
            self._impl.locator.ensure_cache_path()
            lock = Path(self._cache_path, f"{self._impl.filename_base}.lock").open("wb")  # noqa: SIM115 - held until the kernel is saved
        except OSError:
            return None  # nothing can be kept there, so nobody's work is worth waiting for
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    return lock
                time.sleep(0.02)
            except OSError:
                return lock  # a file system without locks
            else:
                return lock

    def _end_turn(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


_caches: dict[Any, KernelCache] = {}


def keep_compiled(dispatcher: Any) -> Any:
    """Let a compiled function be kept on disk."""
    _caches[dispatcher] = KernelCache(dispatcher.py_func)
    dispatcher._cache = _caches[dispatcher]  # noqa: SLF001 - what its enable_caching() does, with our cache
    return dispatcher
