"""The two decorators every numba kernel on shares is made with; the same as the engine's."""

from __future__ import annotations

from hedgerow.compiling import inline_kernel, kernel

__all__ = ["inline_kernel", "kernel"]
