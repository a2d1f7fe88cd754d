"""Waiting for a moment without going to sleep.

A sleeping thread takes 50 microseconds and more to wake up, which is as long as a whole phase of a small tree. Between
phases, threads of a team therefore watch a counter in memory for a fraction of a millisecond, without the GIL, before
they really go to sleep: first in a tight loop, then offering the core to others between looks.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hedgerow.compiling import kernel
from hedgerow.engine.dtypes import Ints

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
