"""An owner's table, wherever its rows are. All that leaves it is whole numbers, the same ones wherever that is.

    HeldTable      in memory; trees grow here, or in actors to which the codes pass through Ray's object store
    StoredTable    in Parquet files, read some rows at a time: here, or by actors of a Ray cluster, each its own part.
                   Codes are in scratch files here, or in the actors' memory. Columns are never all in one place.

Both answer the same questions: what columns are like, how many rows lie below some probes or in the cells of a public
grid; and in the end they give the rows that trees grow on. Labels are in memory here in either case. Nothing here is
masked or has noise: that is for the owner's own process, whatever else takes part in the counting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins, rounded_up
from hedgerow.engine.blocks import Blocks
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, Scores
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.engine.rows_ray.actors import Crew, Holder, Merge, Setup, Task, add_arrays, give_memory_back
from hedgerow.engine.rows_ray.cluster import RayBackend, connected, n_actors_of
from hedgerow.engine.rows_ray.placing import placed_rows
from hedgerow.engine.rows_ray.rows import RayRows
from hedgerow.engine.rows_ray.stored import LabelColumn, StoredBlock, join_levels, levels_of, stored_blocks
from hedgerow.engine.scratch import Scratch
from hedgerow.engine.sparse import SparseCodes
from hedgerow.engine.streaming import COLUMNS_READ, RowChoice, code_blocks, in_groups
from hedgerow.engine.table import Column, Level, Table, read_table
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidInput
from hedgerow.protocols.horizontal.secure_sum.agreement import HASHED, LEVELS
from hedgerow.protocols.horizontal.secure_sum.quantile_search import SortedColumn, counts_below, sorted_values
from hedgerow.protocols.number_line import kind_of
from hedgerow.runtime.protocol import PartyData


class Rules(NamedTuple):
    """What all owners go by once training starts."""

    loss: Loss
    base_scores: Floats
    quantiser: Quantiser


class Learned(NamedTuple):
    """What an owner's rows that are learned from have beside their columns, as all have agreed on it."""

    labels: Floats
    classes: tuple[Level, ...] | None
    weight: Floats | None
    scores: Scores | None  # [outputs, rows] if there are trees already


def learned_from(data: PartyData) -> Bools | None:
    """Which rows are: those that have a weight and are not watched; None: all."""
    if data.validation is None:
        return None if data.weight is None or data.weight.all() else data.weight > 0
    return ~data.validation if data.weight is None else (data.weight > 0) & ~data.validation


def table_of(where: str, data: PartyData) -> HeldTable | StoredTable:
    """What an owner brings; `where` names it in errors. With actors, they are there when this returns."""
    return HeldTable(where, data) if data.blocks is None else StoredTable(data.blocks, data)


def _kind(column: Column) -> str:
    """What a column is, for the others to compare."""
    if column.levels is not None:
        return HASHED if column.rule == "hash" else LEVELS
    return column.rule or kind_of(column.values)


def some_rows(table: Table, rows: Bools | None) -> Table:
    """Those rows of a table; None: all."""
    return table if rows is None else table.taken(np.flatnonzero(rows))


# --- in memory -------------------------------------------------------------------------------------------------------


class HeldTable:
    """Columns in memory."""

    def __init__(self, where: str, data: PartyData) -> None:
        self._where, self._data = where, data
        self._table = table = some_rows(data.table, learned_from(data))
        self.n_rows = table.n_rows
        self.names = tuple(column.name for column in table.columns)
        self.levels = tuple(column.levels for column in table.columns)
        self.kinds = tuple(map(_kind, table.columns))
        self._numeric = [column for column in table.columns if column.levels is None]
        self._sorted: list[SortedColumn] = []
        self.opened = ExitStack()
        """Actors, if there are any, until it is closed."""

    def n_present(self) -> Ints:
        """Values that are there, in each numeric column."""
        self._sorted = [sorted_values(column) for column in self._numeric]
        return np.array([len(values) for values in self._sorted], np.int64)

    def counts_below(self, points: Floats, offsets: Ints) -> Ints:
        """Rows below each probe; those of numeric column j are `points[offsets[j]:offsets[j + 1]]`, increasing."""
        return counts_below(self._sorted, points, offsets)

    def cell_counts(self, features: Sequence[FeatureBins]) -> list[Ints]:
        """Rows in each cell of numeric columns, by the edges of `features`; missing values are in none."""
        return [cells_of(feature, column.values) for feature, column in zip(features, self._numeric, strict=True)]

    def codes(self, mapper: BinMapper, *, watched: bool = False) -> Bytes | SparseCodes:
        """Of the rows that are learned from, or of those that are watched: uint8 [features, rows]."""
        self._sorted = []
        some = some_rows(self._data.table, self._data.validation) if watched else self._table
        table = read_table(some, like=mapper.features, where=self._where)
        return mapper.sparse_codes(table) if table.is_sparse else mapper.transform(table, self._data.n_threads)

    def rows(self, mapper: BinMapper, learned: Learned, rules: Rules) -> Rows | RayRows:
        """What trees grow on."""
        rows = placed_rows(
            self._data.backend,
            mapper,
            self.codes(mapper),
            learned.labels,
            learned.weight,
            **rules._asdict(),
            n_threads=self._data.n_threads,
            scores=learned.scores,
        )
        return self.opened.enter_context(rows)


# --- in files --------------------------------------------------------------------------------------------------------


class _Here:
    """All of a table's blocks in this process: what a crew of actors does, done by nobody else."""

    def __init__(self, source: StoredBlock) -> None:
        self._holder = Holder()
        self._holder.assign(source)

    def merged(self, task: Task, arguments: dict[str, Any], _how: Merge) -> Any:
        return task(self._holder, **arguments)


class StoredTable:
    """Parquet files, and who reads them."""

    def __init__(self, blocks: Blocks, data: PartyData) -> None:
        self._blocks, self._backend, self._n_threads = blocks, data.backend, data.n_threads
        self._keep, self._watched = learned_from(data), data.validation
        self.names = blocks.names
        self.n_rows = blocks.n_rows if self._keep is None else int(np.count_nonzero(self._keep))
        self.opened = ExitStack()
        """Actors, if there are any, until it is closed."""
        try:
            self._crew = self._start()
            by_levels = [column.name for column in data.table.columns if column.levels is not None]
            seen: dict[str, Any] = {}
            for group in in_groups(by_levels, COLUMNS_READ):
                seen |= self._crew.merged(levels_of, {"names": group}, join_levels)
            found = {name: levels.levels(f"{blocks.where}: column {name!r}", "hash") for name, levels in seen.items()}
            nothing = (None, None)
            self.levels: tuple[tuple[Level, ...] | None, ...] = tuple(found.get(n, nothing)[0] for n in self.names)
            numeric = [column for column in data.table.columns if column.name not in found]
            self._numeric = [FeatureBins(column.name, np.empty(0), rule=column.rule) for column in numeric]
            about: list[SeenNumbers] = self._crew.merged(see_numbers, {"features": self._numeric}, join_seen)
        except BaseException:
            self.opened.close()
            raise
        self._n_present = np.array([seen.n_present for seen in about], np.int64)
        kinds: dict[str, str] = {name: HASHED if rule == "hash" else LEVELS for name, (_, rule) in found.items()}
        kinds |= {feature.name: feature.rule or seen.kind for feature, seen in zip(self._numeric, about, strict=True)}
        self.kinds = tuple(kinds[name] for name in self.names)

    def _start(self) -> Crew | _Here:
        blocks, backend = self._blocks, self._backend
        if backend is None:
            words = 2 * 8 * -(-len(blocks.names) // 8)
            Scratch(blocks.scratch).check(blocks.n_rows * (len(blocks.names) + words))
            return _Here(stored_blocks(blocks, RayBackend(threads=self._n_threads), 1, **self._which)[0])
        ray = self.opened.enter_context(connected(backend))
        sources = stored_blocks(blocks, backend, n_actors_of(ray, backend), **self._which)
        crew = Crew(ray, backend, len(sources))
        self.opened.callback(crew.close)
        crew.assign(sources)
        return crew

    @property
    def _target(self) -> str:
        if self._blocks.target is None:
            raise InvalidInput(f"{self._blocks.where}: no column of labels is named")
        return self._blocks.target

    @property
    def _which(self) -> dict[str, Any]:
        """Rows that actors are to read."""
        return {"target": self._target, "keep": self._keep, "tell_kept": True}

    def n_present(self) -> Ints:
        """Values that are there, in each numeric column."""
        return self._n_present

    def counts_below(self, points: Floats, offsets: Ints) -> Ints:
        """As in memory; every file is read once for it."""
        probes = np.split(points, offsets[1:-1])
        found = self._crew.merged(count_below, {"features": self._numeric, "probes": probes}, add_arrays)
        return np.concatenate([*found, np.empty(0, np.int64)])

    def cell_counts(self, features: Sequence[FeatureBins]) -> list[Ints]:
        """As in memory."""
        found: list[Ints] = self._crew.merged(count_cells, {"features": list(features)}, add_arrays)
        return found

    def codes(self, mapper: BinMapper, *, watched: bool = False) -> Bytes:
        """Of the rows that are learned from, or of those that are watched, in a scratch file."""
        keep = self._watched if watched else self._keep
        n_rows = self._blocks.n_rows if keep is None else int(np.count_nonzero(keep))
        codes: Bytes = Scratch(self._blocks.scratch).empty((len(mapper.features), n_rows), np.uint8)
        code_blocks(self._blocks, mapper, RowChoice(keep), codes, n_threads=self._n_threads)
        return codes

    def rows(self, mapper: BinMapper, learned: Learned, rules: Rules) -> Rows | RayRows:
        """What trees grow on. Actors read labels and weights themselves, labels as places in the classes."""
        if self._backend is None or isinstance(self._crew, _Here):
            how: dict[str, Any] = {**rules._asdict(), "n_threads": self._n_threads, "scores": learned.scores}
            room = Scratch(self._blocks.scratch).empty
            return Rows.from_codes(mapper, self.codes(mapper), learned.labels, learned.weight, room=room, **how)
        weight = None if learned.weight is None else self._blocks.weight
        how = {**self._which, "read_labels": LabelColumn(learned.classes), "weight": weight}
        self._crew.assign(stored_blocks(self._blocks, self._backend, len(self._crew.actors), **how))
        setup = Setup(mapper, *rules, self._backend.threads)
        rows = RayRows(self._crew, setup, Ensemble(mapper, rules.loss.name, rules.base_scores))
        if learned.scores is not None:
            rows.set_scores(learned.scores)
        return rows


# --- what actors do, each with its own files -------------------------------------------------------------------------


class SeenNumbers(NamedTuple):
    """What some rows of a numeric column are like."""

    is_whole: bool = True
    is_wide: bool = False  # some are float64
    n_present: int = 0

    @property
    def kind(self) -> str:
        """As `kind_of` says of the whole column."""
        return "integer" if self.is_whole else "float64" if self.is_wide else "float32"


def see_numbers(holder: Holder, features: Sequence[FeatureBins]) -> list[SeenNumbers]:
    """What numeric columns are like in some rows."""

    def look(_feature: FeatureBins, values: np.ndarray) -> SeenNumbers:
        n_present = len(values) - int(np.isnan(values).sum())
        return SeenNumbers(kind_of(values) == "integer", values.dtype == np.float64, n_present)

    return over_columns(holder, features, look, lambda a, b: join_seen([a], [b])[0], [SeenNumbers()] * len(features))


def join_seen(mine: list[SeenNumbers], theirs: list[SeenNumbers]) -> list[SeenNumbers]:
    """Of two actors' rows."""
    return [
        SeenNumbers(a.is_whole and b.is_whole, a.is_wide or b.is_wide, a.n_present + b.n_present)
        for a, b in zip(mine, theirs, strict=True)
    ]


def count_below(holder: Holder, features: Sequence[FeatureBins], probes: Sequence[Floats]) -> list[Ints]:
    """Rows below each probe, by column. Values are not sorted but looked up among the probes, which are few."""
    asked = {feature.name: some.copy() for feature, some in zip(features, probes, strict=True)}

    def count(feature: FeatureBins, values: np.ndarray) -> Ints:
        some = rounded_up(asked[feature.name], values.dtype)  # in the values' own type, which divide them alike
        first_above = np.searchsorted(some, values[~np.isnan(values)], side="right")
        return np.cumsum(np.bincount(first_above, minlength=len(some) + 1)[:-1])

    wanted = [feature for feature in features if len(asked[feature.name])]
    nothing = {feature.name: np.zeros(len(asked[feature.name]), np.int64) for feature in features}
    counted = over_columns(holder, wanted, count, np.add, [nothing[feature.name] for feature in wanted])
    found = nothing | {feature.name: counts for feature, counts in zip(wanted, counted, strict=True)}
    return list(found.values())


def count_cells(holder: Holder, features: Sequence[FeatureBins]) -> list[Ints]:
    """Rows in each cell, by column."""
    nothing = [np.zeros(feature.n_value_bins, np.int64) for feature in features]
    return over_columns(holder, features, cells_of, np.add, nothing)


def cells_of(feature: FeatureBins, values: np.ndarray) -> Ints:
    """Rows in each cell of one column; missing values are in none."""
    codes = np.searchsorted(np.asarray(feature.edges), values[~np.isnan(values)], side="right")
    return np.bincount(codes, minlength=feature.n_value_bins)


def over_columns(
    holder: Holder,
    features: Sequence[FeatureBins],
    look: Callable[[FeatureBins, np.ndarray], Any],
    join: Callable[[Any, Any], Any],
    nothing: Sequence[Any],
) -> list[Any]:
    """What `look` says of numeric columns, by column: of some rows at a time, joined."""
    block: StoredBlock = holder.source
    team, found, choice = Team(block.n_threads), list(nothing), block.choice(None)
    for first in range(0, len(features), COLUMNS_READ):
        some = features[first : first + COLUMNS_READ]
        for first_row, batch in block.blocks.batches([feature.name for feature in some], block.pieces):
            rows, _ = choice.part(first_row, batch)
            table = read_table(rows, like=some, parse_text=True, where=block.blocks.where)
            seen = team.run(look, [(f, column.values) for f, column in zip(some, table.columns, strict=True)])
            for number, each in enumerate(seen, first):
                found[number] = join(found[number], each)
    give_memory_back()
    return found
