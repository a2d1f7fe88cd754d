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
from hedgerow.engine.blocks import Blocks
from hedgerow.engine.dtypes import Bytes, Floats, Ints, Scores
from hedgerow.engine.rows_ray.actors import CodedRows, Command, Crew, Holder, join_parts
from hedgerow.engine.rows_ray.cluster import RayBackend, connected, n_actors_of
from hedgerow.engine.rows_ray.rows import InMemory, blocks_in_memory
from hedgerow.engine.rows_ray.stored import StoredBlock
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.bad_rows import OnBadRows
from hedgerow.protocols.central.bins import cells_of, grid_of
from hedgerow.protocols.central.gaussian.requests import NodeRequest, SumRequest
from hedgerow.protocols.central.gaussian.rows import GrowingRows, loss_of
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
        rows = GrowingRows.read_some(tables, self.schema, n_threads=self.n_threads, multiclass=True, **how)
        return Answering(rows, source.first_number)


@dataclass(frozen=True)
class _CodedLoader:
    """The same of codes that somebody had in memory."""

    schema: Schema
    n_misfits: int  # of all rows; the first block answers for them
    n_threads: int

    def load(self, source: InMemory, _ensemble: object) -> Answering:
        """A part of the rows."""
        grid = grid_of(self.schema)
        codes, labels, _, pieces = source.read(grid, self.n_threads)
        first_row, classes = int(pieces[0, 1]), self.schema.classes or (0, 1)
        loss = loss_of(self.schema, multiclass=True)
        rows = GrowingRows(codes, labels, cells_of(self.schema, grid), loss, self.n_threads, len(classes))
        rows.n_misfits = self.n_misfits if first_row == 0 else 0
        return Answering(rows, first_row)


class Answering:
    """An actor's rows, and what they have last answered: a request is answered once, but may be asked for again."""

    def __init__(self, rows: GrowingRows, first_row: int) -> None:
        self.rows, self.n_rows, self.first_row = rows, rows.n_rows, first_row
        self.last: Ints = np.empty(0, np.int64)

    def answer(self, request: SumRequest) -> None:
        """Exact sums, which stay here until they are fetched."""
        self.last = self.rows.answer(request)

    def go_on(self, starts: dict[int, int], scores: Scores, leaves: Bytes, **more: Any) -> None:
        """Stand as after an earlier request; arrays are of all rows, and `starts` says where each actor's are."""
        mine = slice(starts[self.first_row], starts[self.first_row] + self.n_rows)
        self.rows.go_on(scores=scores[:, mine], leaves=leaves[mine], **more)


def last_answer(holder: Holder, first: int, commands: Sequence[Command]) -> list[Ints]:
    """Follow what was asked, and give the answer away."""
    holder.follow(first, commands)
    return [holder.rows.last]


def standing_of(holder: Holder, first: int, commands: Sequence[Command]) -> dict[int, dict[str, Any]]:
    """How an actor's rows stand after some commands, by the number of its first row in the whole table."""
    holder.follow(first, commands)
    return {holder.rows.first_row: holder.rows.rows.standing()}


def kept_rows(holder: Holder, first: int, commands: Sequence[Command]) -> dict[int, int]:
    """How many of an actor's rows count, by the number of its first row in the whole table."""
    holder.follow(first, commands)
    return {holder.rows.first_row: holder.rows.n_rows}


class RayAnswers:
    """All actors' rows, for whoever releases sums of them."""

    def __init__(self, crew: Crew, loader: _PrivateLoader | _CodedLoader) -> None:
        self._crew = crew
        self.n_rows = sum(crew.prepare(loader))

    def standing(self) -> dict[str, Any]:
        """How all rows stand after the last request, by the names of what `go_on` takes."""
        parts = self._crew.after_commands(standing_of, join_parts)
        of_each = [parts[first] for first in sorted(parts)]
        scores = np.concatenate([each["scores"] for each in of_each], axis=1)
        return {**of_each[0], "scores": scores, "leaves": np.concatenate([each["leaves"] for each in of_each])}

    def go_on(self, last_number: int, started: SumRequest | None, scores: Scores, leaves: Bytes, n_leaves: int) -> None:
        """Stand as after an earlier request, whichever actors held which rows then."""
        counts = self._crew.after_commands(kept_rows, join_parts)
        firsts = sorted(counts)
        starts = dict(zip(firsts, np.cumsum([0, *(counts[first] for first in firsts)]).tolist(), strict=False))
        how = {"last_number": last_number, "started": started, "n_leaves": n_leaves}
        self._crew.queue("go_on", starts=starts, scores=scores, leaves=leaves, **how)

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
    with answering_actors(backend, X, y, schema, on_bad_rows) as rows:
        yield rows


@contextmanager
def answering_actors(
    backend: RayBackend, blocks: Blocks, target: str, schema: Schema, on_bad_rows: OnBadRows
) -> Iterator[RayAnswers]:
    """Actors that have read the rows of Parquet files, and answer requests."""
    with actors_for(backend, blocks, target) as (crew, sources):
        crew.assign(sources)
        yield RayAnswers(crew, _PrivateLoader(schema, on_bad_rows, backend.threads))


@contextmanager
def answering_coded(
    backend: RayBackend, codes: Bytes, labels: Floats, n_misfits: int, schema: Schema
) -> Iterator[RayAnswers]:
    """The same of rows in memory, coded on the public grid: through the object store, where that is allowed."""
    with connected(backend) as ray:
        crew = Crew(ray, backend, max(1, min(n_actors_of(ray, backend), len(labels))))
        try:
            held = CodedRows(codes, labels, None, np.empty((0, 2), np.int64))
            crew.assign(blocks_in_memory(ray, backend, held, len(crew.actors)))
            yield RayAnswers(crew, _CodedLoader(schema, n_misfits, backend.threads))
        finally:
            crew.close()
