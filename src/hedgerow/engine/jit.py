"""The two decorators every numba kernel of the engine is made with, so that compiler options are set in one place.

No `fastmath` anywhere: a model must be the same, bit for bit, for any number of threads and any split of the rows, and
reassociated floating-point sums are not. `error_model="numpy"` gives IEEE division without a branch per division.
Kernels release the GIL; parallelism comes from Python threads (`threads.Team`), because numba's own thread layers
either abort when entered from two threads at once or break in forked children.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from hedgerow.engine.kernel_cache import keep_compiled

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile on first use, keep on disk, run without the GIL."""
    compiled = numba.njit(nogil=True, boundscheck=False, error_model="numpy")(function)
    return cast("Function", keep_compiled(compiled))


def inline_kernel(function: Function) -> Function:
    """A helper pasted into its callers: no call in the inner loop, no entry of its own in the cache."""
    return cast("Function", numba.njit(inline="always", boundscheck=False, error_model="numpy")(function))
