"""central.gaussian with rows on a Ray cluster: actors answer requests exactly, and their answers are added up.

An actor that is lost reads its files again and follows all requests so far, of which only the updates matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.engine.rows_ray.actors import Command, Crew, Holder
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.engine.rows_ray.stored import StoredBlock
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.bad_rows import OnBadRows
from hedgerow.protocols.central.gaussian.requests import NodeRequest, SumRequest
from hedgerow.protocols.central.gaussian.rows import GrowingRows
from hedgerow.protocols.central.gaussian.training import GaussianSettings
from hedgerow.protocols.central.on_ray import actors_for, check_files
from hedgerow.schema import Schema

_REFUSED = (
    "backend: policy={policy!r} runs on one machine; with backend='ray' use policy='smooth_then_trees', "
    "all others are for study"
)


@dataclass(frozen=True)
class _PrivateLoader:
    """Makes rows that answer requests of an actor's files, some rows at a time."""

    schema: Schema
    on_bad_rows: OnBadRows
    n_threads: int

    def load(self, source: StoredBlock, _ensemble: object) -> Answering:
        """Codes on the public grid, and labels; nothing else is kept."""
        names = [column.name for column in self.schema.columns]
        batches = source.blocks.batches([*names, source.target], source.pieces)
        tables = ((batch.select(names), batch.column(source.target)) for _, batch in batches)
        how: dict[str, Any] = {"on_bad_rows": self.on_bad_rows, "where": source.blocks.where}
        return Answering(GrowingRows.read_some(tables, self.schema, n_threads=self.n_threads, multiclass=True, **how))


class Answering:
    """An actor's rows, and what they have last answered: a request is answered once, but may be asked for again."""

    def __init__(self, rows: GrowingRows) -> None:
        self._rows, self.n_rows = rows, rows.n_rows
        self.last: Ints = np.empty(0, np.int64)

    def answer(self, request: SumRequest) -> None:
        """Exact sums, which stay here until they are fetched."""
        self.last = self._rows.answer(request)


def last_answer(holder: Holder, first: int, commands: Sequence[Command]) -> list[Ints]:
    """Follow what was asked, and give the answer away."""
    holder.follow(first, commands)
    return [holder.rows.last]


class RayAnswers:
    """All actors' rows, for whoever releases sums of them."""

    def __init__(self, crew: Crew, loader: _PrivateLoader) -> None:
        self._crew = crew
        self.n_rows = sum(crew.prepare(loader))

    def answer(self, request: SumRequest, *, chosen: Bytes | None = None) -> Ints:
        """The exact sums over all rows: NOT private."""
        if chosen is not None:
            raise InvalidParameter("backend: samples of rows are drawn on one machine only; leave subsample out")
        self._crew.queue("answer", request=request)
        return self._crew.sums(last_answer)[0]

    def node_answer(self, request: NodeRequest) -> Ints:
        """Not on Ray."""
        raise InvalidParameter(_REFUSED.format(policy=request.kind))

    def node_gains(self, request: NodeRequest, described: BinMapper) -> Floats:
        """Not on Ray."""
        raise InvalidParameter(_REFUSED.format(policy=request.kind) + f" ({len(described.features)} columns)")


def check_policy(settings: GaussianSettings) -> None:
    """Raise for a policy that cannot run on Ray."""
    if settings.policy != "smooth_then_trees":
        raise InvalidParameter(_REFUSED.format(policy=settings.policy))


@contextmanager
def rows_on_ray(
    backend: RayBackend, X: Any, y: Any, schema: Schema, settings: GaussianSettings, on_bad_rows: OnBadRows
) -> Iterator[RayAnswers]:
    """The rows of Parquet files in actors, for as long as the training lasts."""
    check_policy(settings)
    check_files(X, y, schema)
    with actors_for(backend, X, y) as (crew, sources):
        crew.assign(sources)
        yield RayAnswers(crew, _PrivateLoader(schema, on_bad_rows, backend.threads))
