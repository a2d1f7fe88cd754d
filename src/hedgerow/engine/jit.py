"""The two decorators every numba kernel of the engine, and of what is built on it, is made with."""

from __future__ import annotations

from hedgerow.compiling import inline_kernel, kernel

__all__ = ["inline_kernel", "kernel"]
