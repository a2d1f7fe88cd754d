"""A private training's rows on a Ray cluster: Parquet files, of which each actor reads some row groups.

Sums over rows are sums of whole numbers, so those of all actors together are those of one machine, bit for bit. Noise
is drawn by the driver alone, on the sum over all actors, as if it had been summed here: the statement is the same.
Exact sums pass through Ray's object store on their way: the cluster belongs to the owner of the rows, and is trusted as
the rows' own machine is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hedgerow.engine.blocks import Blocks
from hedgerow.engine.rows_ray.actors import Crew
from hedgerow.engine.rows_ray.cluster import RayBackend, connected, n_actors_of
from hedgerow.engine.rows_ray.stored import StoredBlock, stored_blocks
from hedgerow.errors import InvalidType
from hedgerow.schema import Schema

ON_RAY_FROM_FILES = (
    "backend: a private training on Ray reads Parquet files, and labels from a column of theirs: fit(folder, 'label')"
)


def check_files(X: Any, y: Any, schema: Schema) -> None:
    """Raise for what cannot run on Ray; without a look at rows, and so before anything is paid for."""
    if not isinstance(X, Blocks) or not isinstance(y, str):
        raise InvalidType(ON_RAY_FROM_FILES)
    for name in (y, *(column.name for column in schema.columns)):
        X.require(name)


@contextmanager
def actors_for(backend: RayBackend, X: Blocks, y: str) -> Iterator[tuple[Crew, Sequence[StoredBlock]]]:
    """Actors, for as long as the training lasts, and what each of them is to read."""
    with connected(backend) as ray:
        sources = stored_blocks(X, backend, n_actors_of(ray, backend), target=y)
        crew = Crew(ray, backend, len(sources))
        try:
            yield crew, sources
        finally:
            crew.close()
