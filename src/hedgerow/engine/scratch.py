"""Arrays that lie in files, for what does not fit memory: the operating system keeps as much of them there as fits.

A file has no name from the moment it is there (or as near to it as the system allows), so nothing has to be removed
afterwards, whether the work ends well, with an error or by being killed: the space is free again once nobody holds the
array. All of it is taken from the disk at once. A disk that is full is then an error that says so, and not a crash when
a page is written that has no place.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InvalidInput

Room = Callable[[tuple[int, ...], Any], "np.ndarray[Any, Any]"]
"""Makes an array of a shape and a type, with anything in it: `np.empty`, or `Scratch(...).empty`."""


class Scratch:
    """Room for arrays in a folder; by default the system's one for temporary files (TMPDIR).

    `instead` is what errors tell to do if the folder is too small.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        instead: str = "name another folder: Blocks(..., scratch=FOLDER)",
    ) -> None:
        self.folder = Path(tempfile.gettempdir() if folder is None else folder)
        self._instead = instead
        if not self.folder.is_dir():
            raise InvalidInput(f"scratch: {self.folder} is not a folder")

    def check(self, n_bytes: int) -> None:
        """Raise if this much does not fit the disk; to be asked before the work begins."""
        free = shutil.disk_usage(self.folder).free
        if n_bytes > free:
            raise self._too_small(n_bytes, f"only {free / 2**30:.1f} GiB are free")

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """An array in a file of its own."""
        n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        if not n_bytes:
            return np.empty(shape, dtype)
        try:
            with tempfile.TemporaryFile(dir=self.folder, prefix="hedgerow-") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, n_bytes)
                else:  # macOS
                    self.check(n_bytes)
                    os.truncate(file.fileno(), n_bytes)
                memory = mmap.mmap(file.fileno(), n_bytes)
        except OSError as problem:
            if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise self._too_small(n_bytes, os.strerror(problem.errno)) from None
            raise InvalidInput(f"scratch: {self.folder} cannot be written to: {problem}") from None
        return np.frombuffer(memory, dtype).reshape(shape)

    def _too_small(self, n_bytes: int, why: str) -> InvalidInput:
        return InvalidInput(
            f"scratch: {n_bytes / 2**30:.1f} GiB are needed in {self.folder}, but {why}; make room, or {self._instead}"
        )
