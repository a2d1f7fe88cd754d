"""Made-up tables in place of parties' own: drawn within public bounds and levels, so that nobody's rows are needed.

    cast = cast_of(read_job_file(path), schemas, home)       # who would bring which columns
    made = make_up(cast, rows=1_000)                         # tables, labels, and a Federation of them

A column is described by a schema, which is public. Labels depend on some columns, so that trees find something to
split; nothing else about them means anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hedgerow.errors import JobError
from hedgerow.federation.federation import Federation
from hedgerow.node import sources
from hedgerow.node.words import columns_of
from hedgerow.runtime.protocol import COORDINATOR, DEALER, LABEL_HOLDER, ROWS, find
from hedgerow.schema import CategoricalColumn, Column, NumericColumn, Schema

if TYPE_CHECKING:
    from hedgerow.node.home import Home
    from hedgerow.node.job_file import JobFile
    from hedgerow.node.party_file import Dataset

STAMP = "MADE-UP ROWS"
"""On everything that a rehearsal says."""
ID = "made_up_id"
_GAPS = 0.05  # share of missing values where a column may have them
_COMMON = 0.9  # share of a party's rows that all others have too, where rows are matched
_SIGNAL_COLUMNS = 3


@dataclass(frozen=True)
class Cast:
    """Who would bring what to a run, from schemas alone."""

    job: JobFile
    schemas: Mapping[str, Schema]  # of those who bring data, in the order of the job file
    label_holder: str | None  # None where rows are split
    params: Mapping[str, Any]
    classes: tuple[Any, ...] | None  # None for a regression
    label_bounds: tuple[float, float] = (0.0, 1.0)
    notes: tuple[str, ...] = ()  # what was assumed, for people
    rows: Mapping[str, int] = field(default_factory=dict)  # what is known of parties' own numbers of rows


class MadeUp(NamedTuple):
    """Tables and labels that nobody owns, and a federation of them."""

    federation: Federation
    tables: dict[str, Any]  # with the ids, where rows are matched
    labels: dict[str, Any]


# --- who brings what -------------------------------------------------------------------------------------------------


def cast_of(job: JobFile, schemas: Mapping[str, Schema], home: Home | None = None) -> Cast:
    """From a job file and schemas: those given here, those that the file names, this party's own from party.toml."""
    notes: list[str] = []
    rows: dict[str, int] = {}
    found: dict[str, Schema] = {}
    for name, seat in job.parties.items():
        if seat.role == DEALER or (seat.role == COORDINATOR and seat.dataset is None and name == COORDINATOR):
            continue
        if name in schemas:
            found[name] = schemas[name]
        elif seat.schema is not None:
            found[name] = Schema.load(seat.schema)
        elif home is not None and name == home.name:
            found[name], rows[name] = _own(home, seat.dataset, notes)
        else:
            raise JobError(
                f'{job.path}: nothing is known of the columns of {name}: give [parties.{name}] schema = "FILE", or '
                f"--schema {name}=FILE"
            )
    unknown = [name for name in schemas if name not in found]
    if unknown:
        raise JobError(f"--schema names {unknown[0]!r}, which brings no data in {job.path}")
    rows = {name: n_rows for name, n_rows in rows.items() if n_rows}
    is_rows = find(job.protocol).partition == ROWS
    holder = None if is_rows else _label_holder(job, found, home)
    about = found[holder or next(iter(found))]
    params = dict(job.options)
    for name, seat in job.parties.items():
        if seat.role == DEALER:
            params.setdefault("dealer", name)
        if seat.role == COORDINATOR and name in found:
            params["coordinator"] = name
    classes = None
    if job.task == "classification":
        classes = about.classes or (0, 1)
        if about.classes is None:
            notes.append("no schema lists classes: labels are 0 and 1")
    bounds = about.label_bounds or params.get("label_range") or (0.0, 1.0)
    return Cast(job, found, holder, params, classes, tuple(bounds), tuple(notes), rows)


def _label_holder(job: JobFile, schemas: Mapping[str, Schema], home: Home | None) -> str:
    said = [name for name, seat in job.parties.items() if seat.role == LABEL_HOLDER]
    said += [name for name, schema in schemas.items() if schema.classes is not None or schema.label_bounds is not None]
    if home is not None and home.name in schemas:
        dataset = home.party_file.data.get(job.parties[home.name].dataset or "")
        said += [home.name] if dataset is not None and dataset.label is not None else []
    if not said or said[0] not in schemas:
        raise JobError(
            f"{job.path}: nobody holds the labels: give one of [parties.*] role = {LABEL_HOLDER!r}, or classes in its "
            "schema"
        )
    return said[0]


def _own(home: Home, dataset: str | None, notes: list[str]) -> tuple[Schema, int]:
    """Columns of this party: its public schema, or kinds of columns as a look at the source tells them."""
    datasets = home.party_file.data
    chosen: Dataset | None = datasets.get(dataset or "") or (
        next(iter(datasets.values())) if len(datasets) == 1 else None
    )
    if chosen is None:
        raise JobError(f"{home.party_toml}: there is no dataset {dataset!r}, only {', '.join(datasets) or 'none'}")
    look = sources.look(chosen, home.path)
    if chosen.schema is not None:
        return Schema.load(chosen.schema), look.n_rows or 0
    notes.append(f"[data.{chosen.name}] has no schema: bounds and levels of its columns are made up too")
    columns: list[Column] = []
    for name in columns_of(chosen, look.columns):
        kind = look.columns[name]
        has_levels = "string" in kind or kind.startswith(("dictionary", "bool")) or name in chosen.categorical
        columns.append(CategoricalColumn(name, tuple("abcdefgh")) if has_levels else NumericColumn(name, 0.0, 1.0))
    return Schema(tuple(columns)), look.n_rows or 0


def plain_columns(name: str, n_columns: int) -> Schema:
    """Columns of numbers, as many as this, where no more is known of a party."""
    return Schema(tuple(NumericColumn(f"{name}_{k}", 0.0, 1.0) for k in range(n_columns)))


# --- making it up ----------------------------------------------------------------------------------------------------


def make_up(cast: Cast, rows: int | Mapping[str, int], seed: int = 0) -> MadeUp:
    """Tables of this many rows; where columns are split, all have the same number, unless they are matched by ids."""
    rng = np.random.default_rng(seed)
    counts = {name: rows if isinstance(rows, int) else rows[name] for name in cast.schemas}
    job = cast.job
    if cast.label_holder is None:
        pairs, labels = {}, {}
        for name, schema in cast.schemas.items():
            table = table_of(schema, counts[name], rng)
            labels[name] = _labels(cast, [table], counts[name], rng)
            pairs[name] = (table, labels[name])
        federation = Federation.horizontal(pairs, task=job.task)
        return MadeUp(federation, {name: table for name, (table, _) in pairs.items()}, labels)
    n_rows = counts[cast.label_holder]
    tables = {name: table_of(schema, n_rows, rng) for name, schema in cast.schemas.items()}
    y = _labels(cast, list(tables.values()), n_rows, rng)
    how: dict[str, Any] = {}
    if job.matching is not None:
        tables = {name: _with_ids(table, k, rng) for k, (name, table) in enumerate(tables.items())}
        how = {"id": ID, "id_rule": job.matching.rule, "duplicates": job.matching.duplicates}
        how["minimum"] = min(job.matching.minimum, int(_COMMON * n_rows) // 2)
    federation = Federation.vertical(tables, labels=(cast.label_holder, y), task=job.task, **how)
    return MadeUp(federation, tables, {cast.label_holder: y})


def table_of(schema: Schema, n_rows: int, rng: np.random.Generator) -> Any:
    """Rows drawn within the bounds and levels, as an arrow table."""
    import pyarrow as pa

    columns = {}
    for column in schema.columns:
        gaps = rng.random(n_rows) < _GAPS if column.may_be_missing else None
        if isinstance(column, CategoricalColumn):
            codes = rng.integers(0, len(column.levels), n_rows)
            values = [column.levels[code] for code in codes]
            columns[column.name] = pa.array(values, mask=gaps).dictionary_encode()
        elif column.integer:
            drawn = rng.integers(int(column.low), int(column.high), n_rows, endpoint=True)
            columns[column.name] = pa.array(drawn, mask=gaps)
        else:
            columns[column.name] = pa.array(rng.uniform(column.low, column.high, n_rows), mask=gaps)
    return pa.table(columns)


def _labels(cast: Cast, tables: list[Any], n_rows: int, rng: np.random.Generator) -> Any:
    """Labels that follow some columns, with noise."""
    score = rng.normal(size=n_rows)
    for table in tables:
        for name in table.column_names[:_SIGNAL_COLUMNS]:
            column = table.column(name).combine_chunks()
            codes = column.indices if hasattr(column, "indices") else column
            values = np.nan_to_num(np.asarray(codes.to_numpy(zero_copy_only=False), dtype=np.float64))
            score += (values - values.mean()) / (values.std() or 1.0)
    if cast.classes is None:
        low, high = cast.label_bounds
        share = (score - score.min()) / (np.ptp(score) or 1.0)
        return low + (high - low) * share
    places = np.argsort(np.argsort(score)) * len(cast.classes) // n_rows
    return np.asarray(cast.classes)[places]


def _with_ids(table: Any, place: int, rng: np.random.Generator) -> Any:
    """With a column of ids, of which the other parties have most; the first party's rows keep their order."""
    import pyarrow as pa

    n_rows = table.num_rows
    common = int(_COMMON * n_rows)
    ids = [f"{k}" if k < common else f"{place}-{k}" for k in range(n_rows)]
    order = np.arange(n_rows) if place == 0 else rng.permutation(n_rows)
    return table.append_column(ID, pa.array(ids)).take(pa.array(order))
