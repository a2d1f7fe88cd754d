"""Rows wherever their party works on them: on this machine, or in actors of a Ray cluster. One call for both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bytes, Floats, Scores
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.engine.rows_ray.actors import CodedRows, Crew, Setup
from hedgerow.engine.rows_ray.cluster import RayBackend, connected, n_actors_of
from hedgerow.engine.rows_ray.rows import RayRows, blocks_in_memory, check_allowed
from hedgerow.engine.sparse import SparseCodes, written_out


@contextmanager
def placed_rows(
    backend: RayBackend | None,
    mapper: BinMapper,
    codes: Bytes | SparseCodes,
    labels: Floats,
    weight: Floats | None,
    *,
    loss: Loss,
    base_scores: Floats,
    quantiser: Quantiser,
    n_threads: int = 1,
    ensemble: Ensemble | None = None,
    scores: Scores | None = None,
    counts_first: bool = False,
) -> Iterator[Rows | RayRows]:
    """Rows that somebody has in memory, coded by `mapper`: uint8 [features, rows]. Actors live as long as the block.

    Without a backend they stay here. With one they pass through Ray's object store, which it must allow. With an
    `ensemble` they stand as after its trees, with `scores` [outputs, rows] as these say. `counts_first` is that of
    `RayRows`.
    """
    if backend is None:
        rules: dict[str, Any] = {"loss": loss, "base_scores": base_scores, "quantiser": quantiser}
        here = Rows.from_codes(mapper, codes, labels, weight, **rules, n_threads=n_threads, scores=scores)
        for number, tree in enumerate(() if ensemble is None else ensemble.trees):
            Ensemble(mapper, "squared", np.zeros(1)).add_binned(
                codes, tree, here.scores[number % loss.n_outputs], n_threads=n_threads
            )
        yield here
        return
    check_allowed(backend, "a table in memory reaches Ray's actors only through its object store")
    with connected(backend) as ray:
        crew = Crew(ray, backend, min(n_actors_of(ray, backend), len(labels)))
        try:
            held = CodedRows(written_out(codes), labels, weight, np.empty((0, 2), np.int64))
            crew.assign(blocks_in_memory(ray, backend, held, len(crew.actors)))
            setup = Setup(mapper, loss, base_scores, quantiser, backend.threads)
            scored = ensemble or Ensemble(mapper, loss.name, base_scores)
            rows = RayRows(crew, setup, scored, n_threads=n_threads, counts_first=counts_first)
            if scores is not None:
                rows.set_scores(scores)
            yield rows
        finally:
            crew.close()
