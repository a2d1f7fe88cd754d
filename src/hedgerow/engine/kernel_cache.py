"""Where compiled kernels are kept between processes.

numba caches each function by the content of the one file it is in. Our kernels call kernels of other files and take
tuples defined elsewhere, so after an upgrade numba would go on using old machine code, or stumble over a class that is
gone. Here all kernels of one state of the engine share a folder whose name is a hash of all its sources, and for
kernels of other parts of the package, which may call the engine's, of the sources beside them as well: code that does
not match is never looked at, and the folders of earlier states are removed.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
from pathlib import Path
from typing import Any

from numba.core import caching

PREFIX = "hedgerow-kernels-"


@functools.cache
def source_hash(folder: Path) -> str:
    """A name for the present state of the sources in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class _PerState:
    """Mixed into numba's locators: a sub-folder for each state of the sources."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._folder = Path(py_file).resolve().parent
        super().__init__(py_func, py_file)  # type: ignore[call-arg]  # the locator comes next in line

    def get_cache_path(self) -> str:
        engine = Path(__file__).resolve().parent
        name = PREFIX + source_hash(engine)
        if self._folder != engine and self._folder.is_dir():
            name += source_hash(self._folder)
        return str(Path(super().get_cache_path()) / name)  # type: ignore[misc]  # the locator comes next in line

    def ensure_cache_path(self) -> None:
        mine = Path(self.get_cache_path())
        if not mine.is_dir():
            for stale in mine.parent.glob(f"{PREFIX}*"):
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
    """numba's function cache in the folder of this state of the engine."""

    _impl_class = _KernelCacheImpl


def keep_compiled(dispatcher: Any) -> Any:
    """Let a compiled function be kept on disk."""
    dispatcher._cache = KernelCache(dispatcher.py_func)  # noqa: SLF001 - what its enable_caching() does, with our cache
    return dispatcher
