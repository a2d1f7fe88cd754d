"""central.dpboost with records on a Ray cluster: each actor holds `Records` of its own files and runs the same kernels.

    driver                                                             each actor
    which records serve which tree, drawn in secret     ---  its own rows of the tree  --->     gradients, sums
    noisy choices and leaves, from sums over actors     <---  exact sums  ---

A record is (q << 24) + 1 and sums are added up, so that the model is that of one machine, bit for bit, if its
randomness is. Which records serve a tree reaches the actors through Ray's object store, 4 bytes a row, each actor its
own; it must stay as secret as the rows, and so the cluster is trusted with it as with them. It is forgotten with its
tree.

An actor that is lost reads its files again, takes the trees released so far, and follows the one that is growing.
Scores are made when a record's turn comes, from released trees alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import boost
from hedgerow.engine.dtypes import ROW_ID, Bools, Bytes, Ints, RowIds, Scores
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.losses import BoostingParams, Quantiser
from hedgerow.engine.rows_ray.actors import CodedRows, Command, Crew, HeldRows, Holder, Own, Setup, add_arrays
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.engine.rows_ray.rows import RayRows
from hedgerow.engine.rows_ray.stored import StoredBlock
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.protocols.bad_rows import OnBadRows
from hedgerow.protocols.central.dpboost.growth import Candidates, list_candidates
from hedgerow.protocols.central.dpboost.records import CodedRecords, Labelled, Records, check_size, read_labelled
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings, LossName
from hedgerow.protocols.central.on_ray import actors_for, check_files
from hedgerow.schema import NumericColumn, Schema


@dataclass(frozen=True)
class _DescribedBlock:
    """What one actor reads, and what the schema makes of it."""

    stored: StoredBlock
    schema: Schema
    loss: LossName
    on_bad_rows: OnBadRows

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.stored.name

    def labelled(self) -> Iterator[Labelled]:
        """Its rows, some at a time; every row keeps its place."""
        names, target = [column.name for column in self.schema.columns], self.stored.target
        for _, batch in self.stored.blocks.batches([*names, target], self.stored.pieces):
            if batch.num_rows:  # a table of none would become one row that does not count
                yield read_labelled(batch.select(names), batch.column(target), self.schema, self.loss, self.on_bad_rows)

    def coded(self, bins: BinMapper, n_threads: int) -> CodedRecords:
        """All its rows, by their bins."""
        read = [some.coded(bins, n_threads) for some in self.labelled()]
        return CodedRecords(
            np.concatenate([some.codes for some in read], axis=1),
            np.concatenate([some.labels for some in read]),
            np.concatenate([some.counts for some in read]),
            sum(some.n_misfits for some in read),
        )

    def read(self, mapper: BinMapper, n_threads: int) -> CodedRows:
        """Those that count, for the plain engine."""
        codes, labels = self.coded(mapper, n_threads).that_count()
        return CodedRows(np.ascontiguousarray(codes), labels, None, np.array([[len(labels), 0]]))


class _Released(NamedTuple):
    """What actors are told of a released tree."""

    chosen: Ints
    missing_left: Bools
    child: Ints
    values: Scores


class _HeldRecords(Records, HeldRows):
    """Records in an actor, which follow commands as all rows of actors do."""


@dataclass(frozen=True)
class _RecordsLoader:
    """Makes `Records` of an actor's files."""

    mapper: BinMapper
    settings: DPBoostSettings
    n_threads: int

    quantiser = Quantiser(1.0, 1.0)
    """Not used: gradients have a scale of their own."""

    def load(self, source: _DescribedBlock, released: Sequence[_Released] | None) -> Records:
        """Codes and labels; with trees, as they are after those."""
        coded, candidates = source.coded(self.mapper, self.n_threads), list_candidates(source.schema, self.mapper)
        records = _HeldRecords(self.mapper, coded, candidates, self.settings, self.n_threads, bundle=False)
        for tree in released or ():
            own: list[Any] = [array.copy() for array in tree]  # what comes from Ray is read-only
            records.add_released(*own)
        return records


class RayRecords(RayRows):
    """All actors' records, for the driver to grow trees on."""

    def __init__(self, crew: Crew, loader: _RecordsLoader, first_rows: Sequence[int]) -> None:
        super().__init__(crew, loader)
        self._bounds = [*first_rows, self.n_rows]
        self._released: list[_Released] = []

    @property
    def n_misfits(self) -> int:
        """Rows with a value or a label that the schema does not allow. Not private."""
        return int(self.crew.merged(misfits_of, {}, add_arrays)[0][0])

    def start_subset(self, ids: RowIds, bound: int, *, filtering: bool) -> None:
        """Let these rows stand at the root: every actor gets the numbers of its own. They come in ascending order."""
        self.crew.queue("start_subset", ids=self._own(ids), bound=bound, filtering=filtering)

    def show_output(self, output: int) -> None:
        """Whose gradients are summed from now on."""
        self.crew.queue("show_output", output=output)

    def losses_of(self, ids: RowIds) -> tuple[int, int]:
        """What these rows lose by the trees so far, and how many they are, by weight."""
        lost, size = self.crew.sums(losses_of_block, ids=self._own(ids))[0].tolist()
        return lost, size

    def start_from(self, scores_of: Callable[[Bytes], Scores]) -> None:  # noqa: ARG002 - as of `Records`
        """Not offered here: actors would need the model."""
        raise InvalidParameter("warm_start is for rows on this machine, and backend='ray' is for rows elsewhere")

    def _own(self, ids: RowIds) -> Own:
        """Each actor's of these rows, by its own numbers."""
        cuts = np.searchsorted(ids, np.array(self._bounds, np.int64)).tolist()
        ranges = zip(itertools.pairwise(cuts), self._bounds[:-1], strict=True)
        return Own([ids[start:stop] - ROW_ID(first) for (start, stop), first in ranges])

    def add_released(self, chosen: Ints, missing_left: Bools, child: Ints, values: Scores) -> None:
        """Add a released tree to the scores; who is lost from now on need not know how it was grown."""
        self._released.append(_Released(chosen, missing_left, child, values))
        self.crew.queue("add_released", **self._released[-1]._asdict())
        self.crew.settle_as(tuple(self._released))


class RayTable:
    """The files of a training, each actor its own; as `records.Labelled`, and nothing that it says is private."""

    def __init__(self, crew: Crew, sources: Sequence[_DescribedBlock], n_threads: int) -> None:
        self._crew, self._n_threads = crew, n_threads
        self._first_rows = [source.stored.first_number for source in sources]
        crew.assign(sources)

    def cell_counts(self, columns: Mapping[int, NumericColumn]) -> Ints:
        """Rows in each cell of these columns."""
        counts: list[Ints] = self._crew.merged(cells_of_block, {"columns": columns}, add_arrays)
        return counts[0]

    def records(
        self, bins: BinMapper, _candidates: Candidates, settings: DPBoostSettings, _n_threads: int
    ) -> RayRecords:
        """The rows in the form that trees are grown on; threads are those of an actor."""
        return RayRecords(self._crew, _RecordsLoader(bins, settings, self._n_threads), self._first_rows)

    def train(self, params: BoostingParams, bins: BinMapper) -> Ensemble:
        """The engine's model of the rows that count. Its loss and base score need no labels."""
        n_rows = int(self._crew.merged(rows_that_count, {}, add_arrays)[0][0])
        if not n_rows:
            raise InvalidInput("training: there are no rows")
        loss = params.loss_for(np.zeros(1))
        ensemble = Ensemble(bins, loss.name, params.base_scores(loss, np.zeros(1)))
        quantiser = Quantiser.for_rows(loss, n_rows, gradient_bits=params.gradient_bits)
        setup = Setup(bins, loss, ensemble.base_scores, quantiser, self._n_threads)
        rows = RayRows(self._crew, setup, n_threads=params.n_threads)
        after: dict[str, Any] = {"weighted": False, "after_iteration": self._crew.settle}
        return boost(params, loss, rows, ensemble, rows.add_tree, **after).ensemble


def cells_of_block(holder: Holder, columns: Mapping[int, NumericColumn]) -> list[Ints]:
    """Rows of an actor in each cell."""
    return [np.sum([some.cell_counts(columns) for some in holder.source.labelled()], axis=0)]


def rows_that_count(holder: Holder) -> list[Ints]:
    """How many an actor has."""
    return [np.array([sum(int(np.count_nonzero(some.counts)) for some in holder.source.labelled())])]


def misfits_of(holder: Holder) -> list[Ints]:
    """How many rows of an actor did not fit the schema."""
    return [np.array([holder.rows.n_misfits])]


def losses_of_block(holder: Holder, first: int, commands: Sequence[Command], ids: RowIds) -> list[Ints]:
    """What these rows of an actor lose, and how many they are."""
    holder.follow(first, commands)
    return [np.array(holder.rows.losses_of(ids))]


@contextmanager
def rows_on_ray(
    backend: RayBackend, X: Any, y: Any, schema: Schema, loss: LossName, on_bad_rows: OnBadRows
) -> Iterator[RayTable]:
    """The rows of Parquet files in actors, for as long as the training lasts."""
    check_files(X, y, schema)
    check_size(X.n_rows)
    with actors_for(backend, X, y) as (crew, stored):
        sources = [_DescribedBlock(block, schema, loss, on_bad_rows) for block in stored]
        yield RayTable(crew, sources, backend.threads)
