"""Contenders whose columns are divided between parties: for vertical.py and its two longest sections.

Nothing is run from here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from side_by_side import (
    LEARNING_RATE,
    THREADS,
    Contender,
    Fitted,
    Workload,
    slow_link,
    traffic,
    used_by_processes,
)

PARTIES = ("label_holder", "second", "third")
BOUND = 12.0  # public bounds of the synthetic columns, whose values are seldom beyond 8
BUSIEST = "bytes of the busiest link"
TOGETHER = "all parties"


def columns(X: np.ndarray, parties: Sequence[str] = PARTIES) -> dict[str, np.ndarray]:
    """The columns dealt out to the parties in their order, as evenly as can be."""
    return dict(zip(parties, np.array_split(X, len(parties), axis=1), strict=True))


def public_schema(workload: Workload) -> Any:
    from hedgerow.schema import Schema

    names = [f"{party}.x{i}" for party, X in columns(workload.X[:1]).items() for i in range(X.shape[1])]
    return Schema.from_public(bounds=dict.fromkeys(names, (-BOUND, BOUND)), classes=(0, 1))


def federated(
    protocol: str,
    transport: str,
    *,
    parties: Sequence[str] = PARTIES,
    wan: bool = False,
    threads: int | None = None,
    needs_schema: bool = False,
    watched: bool = False,
    look: Callable[[Any, Workload], dict[str, Any]] | None = None,
    **options: Any,
) -> Contender:
    """A contender that trains by a protocol.

    `watched`: also what it uses of processors and memory, over gRPC by party. `look`: what else is wanted of its run.
    """

    def fit(workload: Workload) -> Fitted:
        from hedgerow.federation.federation import Federation

        federation = Federation.vertical(columns(workload.X, parties), labels=(parties[0], workload.y))
        own = options | ({"schema": public_schema(workload)} if needs_schema else {})
        watching = used_by_processes() if watched and transport == "grpc" else contextlib.nullcontext({})
        with watching as used:
            start, busy = time.perf_counter(), time.process_time()
            run = federation.fit(
                protocol,
                n_estimators=workload.trees,
                max_depth=workload.depth,
                learning_rate=LEARNING_RATE,
                n_jobs=threads or (THREADS if transport == "memory" else None),
                transport=transport,
                link=slow_link() if wan else None,
                **own,
            )
            wall, busy = time.perf_counter() - start, time.process_time() - busy
        about: dict[str, Any] = traffic(run.traffic, parties[1:], BUSIEST)
        about |= {"rounds": sum(run.rounds.values()), "wall": wall}
        if watched and transport == "memory":
            about["processor"] = {TOGETHER: busy}
        elif watched:
            about["processor"] = {party: own.processor for party, own in sorted(used.items())}
            about["peak memory"] = {party: own.memory for party, own in sorted(used.items())}
        about |= {} if look is None else look(run, workload)
        return Fitted(run.seconds, lambda rows: run.model.decision_function(columns(rows, parties)), about)

    return fit
