"""Blocks that actors read by themselves: row groups of Parquet files, or blocks of a dataset of Ray Data.

Each actor has a run of neighbouring pieces. It answers questions about its columns, from which the driver finds bins as
`streaming.fit_bins` does on one machine, and then codes its rows. The driver reads no features at all; of labels and
weights it has its own copy, a few bytes a row, and tells actors only how to read theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins, WeightSteps, steps_of
from hedgerow.engine.blocks import Blocks, Piece, check_names
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints
from hedgerow.engine.edge_search import Question, Summary, merge
from hedgerow.engine.rows_ray.actors import CodedRows, Crew, Holder, give_memory_back
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.engine.rows_ray.rows import check_allowed
from hedgerow.engine.streaming import Answers, LevelsSeen, RowChoice, ask, code_blocks, see_levels
from hedgerow.engine.table import open_source
from hedgerow.errors import InvalidInput

COLUMNS_AT_A_TIME = 2
"""Numeric columns whose edges are searched together. What passes through the object store stays mapped into an actor's
memory, and answers about a column take some megabytes."""


@dataclass(frozen=True)
class LabelColumn:
    """How an actor reads labels that the driver has looked at: as places in `classes`, or as numbers."""

    classes: tuple[Any, ...] | None

    def __call__(self, column: Any) -> Floats:
        """A column that arrow has read."""
        if self.classes is None:
            numbers: Floats = column.to_numpy().astype(np.float64)
            return numbers
        coded = column.combine_chunks()
        coded = coded if hasattr(coded, "dictionary") else coded.dictionary_encode()
        place = {label: code for code, label in enumerate(self.classes)}
        # Levels that a type declares and no row has are not among the classes.
        by_code = np.array([place.get(label, -1) for label in coded.dictionary.to_pylist()], np.float64)
        labels: Floats = by_code[coded.indices.to_numpy()]
        return labels


class DatasetBlocks(Blocks):
    """A dataset of Ray Data, as `Blocks`: each of its blocks is a piece, and stays where Ray has it.

    The dataset is executed here, once. Its blocks are in Ray's object store, as all that Ray Data works on.
    """

    def __init__(self, dataset: Any, *, target: str | None = None, weight: str | None = None) -> None:
        self.where = "the Ray dataset"
        self.files = []
        self.target, self.weight, self.scratch = target, weight, None
        bundles = list(dataset.materialize().iter_internal_ref_bundles())
        self._refs = [ref for bundle in bundles for ref in bundle.block_refs]
        counts = [metadata.num_rows for bundle in bundles for metadata in bundle.metadata]
        firsts = np.cumsum([0, *counts])
        self.pieces = tuple(
            Piece(number, 0, int(firsts[number]), int(n_rows)) for number, n_rows in enumerate(counts) if n_rows
        )
        self.n_rows = int(firsts[-1])
        if not self.n_rows:
            raise InvalidInput(f"{self.where}: there are no rows")
        schema = dataset.schema()
        self.types: dict[str, Any] = dict(zip(schema.names, schema.types, strict=True))
        check_names(schema.names, self.where)
        self.names = tuple(name for name in schema.names if name not in (target, weight))
        for name in (target, weight):
            if name is not None:
                self.require(name)
        list(open_source(self.empty(), self.where).columns)  # refuses types that are neither numbers nor levels

    def batches(self, names: Sequence[str], pieces: Sequence[Piece] | None = None) -> Iterator[tuple[int, Any]]:
        """One block after the other: the number of its first row, and an arrow table of these columns."""
        import pyarrow as pa
        import ray

        schema = pa.schema([(name, self.types[name]) for name in names])
        for piece in self.pieces if pieces is None else pieces:
            block = ray.get(self._refs[piece.file])
            table = block if isinstance(block, pa.Table) else pa.Table.from_pandas(block, preserve_index=False)
            yield piece.first_row, table.select(list(names)).cast(schema)


@dataclass(frozen=True)
class StoredBlock:
    """Neighbouring pieces of one table: what one actor holds."""

    blocks: Blocks
    pieces: tuple[Piece, ...]
    target: str
    weight: str | None
    read_labels: LabelColumn
    steps: WeightSteps | None
    first_number: int  # of its first row among those of the whole table that have a weight
    n_threads: int
    keep: Bools | None = None  # which of its rows take part; None: those that have a weight

    @property
    def name(self) -> str:
        """What errors call it."""
        last = self.pieces[-1]
        return f"rows {self.pieces[0].first_row:,} to {last.first_row + last.n_rows - 1:,} of {self.blocks.where}"

    def weights(self) -> Floats | None:
        """Of all its rows."""
        if self.weight is None:
            return None
        columns = [batch.column(0).to_numpy() for _, batch in self.blocks.batches([self.weight], self.pieces)]
        return np.concatenate(columns).astype(np.float64)

    def choice(self, weights: Floats | None) -> RowChoice:
        """Rows of weight 0 take no part; for edges, weights are whole numbers."""
        keep = self.keep
        if keep is None and weights is not None and not weights.all():
            keep = weights > 0
        whole = None if self.steps is None or weights is None else self.steps.whole(weights)
        return RowChoice(keep, whole, self.pieces[0].first_row)

    def read(self, mapper: BinMapper, n_threads: int) -> CodedRows:
        """The rows that take part, coded; piece by piece, so values are never all in memory."""
        weights = self.weights()
        choice = self.choice(weights)
        kept = weights if weights is None or choice.keep is None else weights[choice.keep]
        n_rows = sum(piece.n_rows for piece in self.pieces) if choice.keep is None else int(choice.keep.sum())
        codes: Bytes = np.empty((len(mapper.features), n_rows), np.uint8)
        code_blocks(self.blocks, mapper, choice, codes, pieces=self.pieces, n_threads=n_threads)
        found = [choice.part(first, batch)[0] for first, batch in self.blocks.batches([self.target], self.pieces)]
        labels = np.concatenate([self.read_labels(batch.column(0)) for batch in found if batch.num_rows])
        return CodedRows(codes, labels, kept, np.array([[n_rows, self.first_number]]))


def stored_blocks(
    blocks: Blocks,
    backend: RayBackend,
    n_actors: int,
    *,
    target: str,
    weight: str | None = None,
    keep: Bools | None = None,
    weights: Floats | None = None,
    read_labels: LabelColumn = LabelColumn(None),  # noqa: B008 - it is frozen
    tell_kept: bool = False,
) -> list[StoredBlock]:
    """One for each actor; fewer if there are fewer pieces.

    `keep` (by row of the blocks) and `weights` (of the rows that are kept) are what the driver read of the column of
    weights: where a block's rows are among all that count. `tell_kept`: they are not kept for their weights alone, so
    actors are told which they are.
    """
    if isinstance(blocks, DatasetBlocks):
        check_allowed(backend, "the blocks of a Ray dataset are in Ray's object store")
    steps = None if weights is None else steps_of(weights)
    numbers: Ints | None = None if keep is None else np.concatenate([[0], np.cumsum(keep)])
    sources = []
    for pieces in blocks.parts(n_actors):
        first, stop = pieces[0].first_row, pieces[-1].first_row + pieces[-1].n_rows
        number, end = (first, stop) if numbers is None else (int(numbers[first]), int(numbers[stop]))
        if end > number:
            how = (target, weight, read_labels, steps, number, backend.threads)
            own = keep[first:stop] if tell_kept and keep is not None else None
            sources.append(StoredBlock(blocks, pieces, *how, keep=own))
    return sources


# --- questions about columns ------------------------------------------------------------------------------------------


class CrewAnswers(Answers):
    """What all actors' rows say about columns, merged pairwise among them."""

    at_a_time = COLUMNS_AT_A_TIME

    def __init__(self, crew: Crew, total_weight: int) -> None:
        self._crew, self.total_weight = crew, total_weight

    def levels(self, names: Sequence[str]) -> dict[str, LevelsSeen]:
        """The levels of categorical columns."""
        found: dict[str, LevelsSeen] = self._crew.merged(levels_of, {"names": names}, join_levels)
        return found

    def ask(self, features: Sequence[FeatureBins], questions: Mapping[str, Question]) -> dict[str, Summary]:
        """Answers about numeric columns."""
        asked = {"features": features, "questions": questions}
        found: dict[str, Summary] = self._crew.merged(answers_of, asked, merge_answers)
        return found


def levels_of(holder: Holder, names: Sequence[str]) -> dict[str, LevelsSeen]:
    """The levels in an actor's rows."""
    block = _stored(holder)
    return see_levels(block.blocks.batches(names, block.pieces), block.blocks.where)


def join_levels(mine: dict[str, LevelsSeen], theirs: dict[str, LevelsSeen]) -> dict[str, LevelsSeen]:
    """Levels that one of two actors has seen."""
    for name, seen in theirs.items():
        mine[name].join(seen)
    return mine


def answers_of(
    holder: Holder, features: Sequence[FeatureBins], questions: Mapping[str, Question]
) -> dict[str, Summary]:
    """What an actor's rows answer."""
    block = _stored(holder)
    batches = block.blocks.batches(list(questions), block.pieces)
    choice = block.choice(block.weights())
    found = ask(batches, features, questions, choice, n_threads=block.n_threads, where=block.blocks.where)
    give_memory_back()
    return found


def merge_answers(mine: dict[str, Summary], theirs: dict[str, Summary]) -> dict[str, Summary]:
    """Two actors' answers as one."""
    return {name: merge([mine[name], theirs[name]]) for name in mine}


def code_ranges(holder: Holder) -> tuple[Ints, Ints]:
    """The smallest and the largest code of each column in an actor's rows."""
    columns = holder.rows.packed.columns
    return columns.min(axis=1), columns.max(axis=1)


def join_ranges(mine: tuple[Ints, Ints], theirs: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Of two actors' rows."""
    return np.minimum(mine[0], theirs[0]), np.maximum(mine[1], theirs[1])


def _stored(holder: Holder) -> StoredBlock:
    if not isinstance(holder.source, StoredBlock):
        raise InvalidInput(f"{holder.source.name} has no columns to ask about")
    return holder.source
