"""From a party's table to buckets, from buckets to randomised ones, and how those are written down.

    edges="public"      numeric: equally wide cells between the schema's bounds; whole numbers: at most one per number
                        categorical: one per level of the schema
    edges={...}         the edges that the job gives; other columns as above
    edges="private"     numeric: about equally many rows in each, by noisy quantiles (private_edges.py)
                        categorical: one per level of the schema
    edges="quantile"    about equally many rows in each; one per distinct value where there are few

A column that may have gaps has one bucket more, for them, and one fewer for values. Whether it may is public as well
(`may_be_missing`), but for "private", where every column has that bucket, and "quantile", where the data says it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import MAX_BINS, Bools, Bytes, Floats, Int32s, Ints
from hedgerow.engine.table import Column, Table, read_table
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Composed, Event, NonPrivate, RandomisedResponse, Released
from hedgerow.privacy.mechanisms import randomised_response
from hedgerow.protocols.bad_rows import OTHER, feature_of, gaps_of
from hedgerow.protocols.vertical.bucket_rr.job import NAME, PRIVATE, PUBLIC, QUANTILE, Job, told
from hedgerow.protocols.vertical.bucket_rr.private_edges import Candidates, planned, private_edges
from hedgerow.schema import CategoricalColumn, NumericColumn

MOST_VALUES = MAX_BINS - 1  # one code is the engine's own for missing values
MESSAGE_BYTES = 16 << 20  # of packed buckets; a column is never torn apart
DATA_EDGES = NonPrivate("equal-frequency edges follow the values, so the buckets of others tell of one value too")


class Kinds(NamedTuple):
    """How columns that are sent are bucketed: all that the label holder learns of them beside the buckets."""

    n_values: Int32s  # buckets of values
    has_levels: Bools
    may_be_missing: Bools

    @property
    def categories(self) -> Ints:
        """Buckets of each column, that of missing values included where there may be any."""
        found: Ints = self.n_values.astype(np.int64) + self.may_be_missing
        return found

    def of_columns(self, start: int, stop: int) -> Kinds:
        """Those of some columns."""
        return Kinds(self.n_values[start:stop], self.has_levels[start:stop], self.may_be_missing[start:stop])


@dataclass(frozen=True)
class Bucketing:
    """How a party's columns are put into buckets. Those with one bucket only tell nothing, and stay at home."""

    features: tuple[FeatureBins, ...]  # of all columns
    may_be_missing: tuple[bool, ...]

    @property
    def categories(self) -> Ints:
        """Buckets of each column, that of missing values included where there may be any."""
        n_values = [feature.n_value_bins for feature in self.features]
        return np.array(n_values, np.int64) + np.array(self.may_be_missing, np.int64)

    @property
    def sent(self) -> Ints:
        """Places of the columns that are sent."""
        return np.flatnonzero(self.categories > 1)

    @property
    def kinds(self) -> Kinds:
        """Of the columns that are sent."""
        sent = [(self.features[j], self.may_be_missing[j]) for j in self.sent.tolist()]
        n_values = np.array([feature.n_value_bins for feature, _ in sent], np.int32)
        has_levels = np.array([feature.is_categorical for feature, _ in sent], np.bool_)
        return Kinds(n_values, has_levels, np.array([gaps for _, gaps in sent], np.bool_))


# --- buckets ---------------------------------------------------------------------------------------------------------


def bucketing_of(
    party: str, table: Table, job: Job, n_threads: int = 1, random: RandomBytes | None = None
) -> Bucketing:
    """The buckets of a party's columns; errors name party and column. Private edges are drawn anew with each call."""
    _check_names(party, table, job)
    if job.edges_mode == QUANTILE:
        gaps = tuple(bool(gaps_of(column).any()) for column in table.columns)
        features = _quantile_bins(party, table, gaps, job.buckets, n_threads)
    elif job.edges_mode == PRIVATE:
        if random is None:
            raise InvalidParameter("random must be given: private edges are drawn")
        gaps = (True,) * len(table.columns)  # whether any is missing would be told otherwise
        features = tuple(_private_bins(party, column, job, random) for column in table.columns)
    else:
        described = [_public_bins(party, column, job) for column in table.columns]
        features, gaps = tuple(entry[0] for entry in described), tuple(entry[1] for entry in described)
    found = Bucketing(features, gaps)
    if not len(found.sent):
        raise InvalidInput(f"{party}: every column has one bucket only, so there is nothing to train on")
    return found


def codes_of(party: str, table: Table, bucketing: Bucketing, n_threads: int = 1) -> Bytes:
    """The buckets of all values: uint8 [columns that are sent, rows].

    A gap where none is stated, or a level that is not listed, goes to a public bucket: the middle one, or that of the
    level "other" or the first. No error depends on a value.
    """
    features = bucketing.features
    if any((f.levels, f.rule) != (c.levels, c.rule) for f, c in zip(features, table.columns, strict=True)):
        table = read_table(table, like=features, where=f"{party}: X")  # levels that are not listed become missing
    codes = BinMapper(features).transform(table, n_threads)
    for row, feature, n in zip(codes, features, bucketing.categories.tolist(), strict=True):
        np.putmask(row, row >= n, _default_bucket(feature))
    sent = bucketing.sent
    return codes if len(sent) == len(codes) else codes[sent]


def _default_bucket(feature: FeatureBins) -> int:
    if feature.levels is None:
        return feature.n_value_bins // 2
    return feature.levels.index(OTHER) if OTHER in feature.levels else 0


def _check_names(party: str, table: Table, job: Job) -> None:
    names = {column.name for column in table.columns}
    described = () if job.schema is None else tuple(column.name for column in job.schema.columns)
    for name in (*described, *(() if isinstance(job.edges, str) else job.edges)):
        if name.startswith(f"{party}.") and name not in names and name[len(party) + 1 :] not in names:
            raise InvalidParameter(f"{NAME}: edges or schema name {name!r}, but {party} has no such column")


def _quantile_bins(
    party: str, table: Table, gaps: Sequence[bool], buckets: int, n_threads: int
) -> tuple[FeatureBins, ...]:
    found: dict[str, FeatureBins] = {}
    for with_gaps in (False, True):
        columns = tuple(c for c, has in zip(table.columns, gaps, strict=True) if has == with_gaps)
        if columns:
            part = Table(columns, table.n_rows, tuple(c.name for c in columns), table.has_names)
            # The engine counts a bin of missing values always, we only where there are any.
            mapper = BinMapper.fit(part, min(buckets + (not with_gaps), MAX_BINS), n_threads=n_threads)
            found |= {feature.name: feature for feature in mapper.features}
    features = tuple(found[column.name] for column in table.columns)
    for feature, has in zip(features, gaps, strict=True):
        _check_level_count(party, feature, has, buckets)
    return features


def _private_bins(party: str, column: Column, job: Job, random: RandomBytes) -> FeatureBins:
    """A column's buckets by what is public about it and by its noisy quantiles; one bucket is for missing values."""
    described = job.described(party, column.name)
    if column.levels is None and not isinstance(described, CategoricalColumn):
        n_values = min(job.buckets - 1, MOST_VALUES)
        edges = private_edges(column.values, n_values, job.edges_noise, Candidates.of(described), random)
        return FeatureBins(column.name, edges=edges.values, rule=column.rule)
    if described is None:
        raise InvalidInput(
            f"{party}: column {column.name!r} has levels, but no entry in the schema; edges='private' does not take "
            f"levels from the data: schema=Schema.from_public(levels={{{column.name!r}: [...]}})"
        )
    feature, _ = _public_bins(party, column, job)
    _check_level_count(party, feature, gaps=True, buckets=job.buckets)
    return feature


def _public_bins(party: str, column: Column, job: Job) -> tuple[FeatureBins, bool]:
    """A column's buckets by what is public about it, and whether it may be missing."""
    name = column.name
    described, given = job.described(party, name), job.edges_of(party, name)
    gaps = described is not None and described.may_be_missing
    if described is None and given is None:
        where = "the schema" if job.edges == PUBLIC else "edges or the schema"
        has_levels = column.levels is not None
        described_by = f"levels={{{name!r}: [...]}}" if has_levels else f"bounds={{{name!r}: (low, high)}}"
        raise InvalidParameter(
            f"{NAME}: column {name!r} of {party} has no entry in {where}, neither as {name!r} nor as "
            f"'{party}.{name}'; its buckets must be public: schema=Schema.from_public({described_by})"
            f"{'' if has_levels else ', or must be chosen with noise: edges=' + repr(PRIVATE)}"
        )
    if given is not None:
        if column.levels is not None:
            raise InvalidParameter(f"{NAME}: edges are given for column {name!r} of {party}, which has levels")
        return FeatureBins(name, edges=np.array(given, np.float64), rule=column.rule), gaps
    if isinstance(described, NumericColumn):
        edges = _even_edges(described, min(job.buckets - gaps, MOST_VALUES))
        return FeatureBins(name, edges=edges, rule=column.rule), gaps
    feature = FeatureBins(name, levels=()) if described is None else feature_of(described, name)
    _check_level_count(party, feature, gaps, job.buckets)
    return feature, gaps


def _check_level_count(party: str, feature: FeatureBins, gaps: bool, buckets: int) -> None:
    if feature.levels is None or feature.n_value_bins + gaps <= buckets:
        return
    raise InvalidParameter(
        f"{NAME}: column {feature.name!r} of {party} has {feature.n_value_bins} levels{' and missing values' * gaps}, "
        f"more than buckets={buckets}; raise buckets (at most {MAX_BINS}), or group levels: in a schema, "
        f"levels={{{feature.name!r}: {buckets - 1}}} puts them into as many public groups"
    )


def _even_edges(column: NumericColumn, n_cells: int) -> Floats:
    """At most n_cells - 1 edges between equally wide cells; whole numbers are not torn apart."""
    low, high = column.low, column.high
    if column.integer and high - low < n_cells:
        edges = np.arange(low + 1.0, high + 0.5)
    elif column.integer:
        edges = np.ceil(np.linspace(low, high + 1.0, n_cells + 1)[1:-1])
    else:
        edges = np.linspace(low, high, n_cells + 1)[1:-1]
        with np.errstate(over="ignore"):  # float32 and float64 tables then have the same buckets
            short = edges.astype(np.float32).astype(np.float64)
        edges = np.where(np.isfinite(short), short, edges)
    edges = np.unique(edges)
    inside: Floats = edges[(edges > low) & (edges <= high)]
    return inside


# --- noise -----------------------------------------------------------------------------------------------------------


def together(job: Job, events: Sequence[Event], has_levels: Iterable[bool]) -> Event:
    """What columns that are sent together cost one record: their buckets, and their edges if the data has a part."""
    if job.edges_mode == QUANTILE:
        return Composed((DATA_EDGES, *events))
    if job.edges_mode == PRIVATE:
        edges = planned(min(job.buckets - 1, MOST_VALUES), job.edges_noise)
        pairs = zip(events, has_levels, strict=True)
        return Composed(tuple(event if by_levels else Composed((edges, event)) for event, by_levels in pairs))
    return Composed(tuple(events))


def event_of(job: Job, kinds: Kinds) -> Event:
    """What one transfer of these columns costs a record, known before any noise is drawn."""
    events: list[Event] = [
        RandomisedResponse(n, job.noise) if job.is_noisy else NonPrivate("buckets without noise")
        for n in kinds.categories.tolist()
    ]
    return together(job, events, kinds.has_levels.tolist())


def randomise(codes: Bytes, categories: Ints, epsilon: float, random: RandomBytes) -> Released[Bytes]:
    """Each column by itself: a code stays, or any other one of its column takes its place."""
    if math.isinf(epsilon):
        return Released(codes, Composed((NonPrivate("buckets without noise"),) * len(codes)))
    released = [
        randomised_response(column, categories=int(n), epsilon=epsilon, random=random)
        for column, n in zip(codes, categories, strict=True)
    ]
    return Released(np.stack([r.values for r in released]), Composed(tuple(r.event for r in released)))


def keep_probability(categories: int, epsilon: float) -> float:
    """The chance that randomised response leaves a code as it is."""
    return 1.0 / (1.0 + (categories - 1) * math.exp(-epsilon))


def costs(job: Job, n_columns: int, n_with_levels: int = 0) -> tuple[float, float]:
    """Epsilon of one element, and of one record in this many columns; with edges="quantile" no less than this.

    Private edges cost an element of numbers edges_epsilon more, and one of levels, which are public, nothing. With
    equal-frequency edges a value that moves from one end to the other takes one other value over each edge, so as
    many elements change as there are buckets. Where values tie it can be more.
    """
    of_bucket = job.noise * (job.buckets if job.edges_mode == QUANTILE else 1)
    n_numeric = n_columns - n_with_levels
    per_element = of_bucket + (job.edges_noise if n_numeric else 0.0)
    return per_element, n_columns * of_bucket + n_numeric * job.edges_noise


@dataclass(frozen=True)
class History:
    """What a party has sent of its present values, over all runs that its book knows of."""

    transfers: int
    others: int  # transfers of other values that are in the same book
    per_element: float  # epsilons of all transfers of these values together (basic composition)
    per_record: float
    is_bound: bool  # False: no less than these, because some of the edges were taken from the data as they are

    @classmethod
    def told(cls, message: Any) -> History:
        """From a message that has these fields among others."""
        return cls(*(getattr(message, field.name) for field in fields(cls)))


def about_transfer(job: Job, kinds: Kinds, history: History) -> dict[str, Any]:
    """JSON-able: what one transfer of these columns costs, and what all that the book knows of add up to."""
    n_columns, n_with_levels = len(kinds.n_values), int(kinds.has_levels.sum())
    per_element, per_record = costs(job, n_columns, n_with_levels)
    totals = {"per_element": told(history.per_element), "per_record": told(history.per_record)}
    return {
        "columns": n_columns,
        "columns_with_levels": n_with_levels,
        "per_element": told(per_element),
        "per_record": told(per_record),
        "history": {**asdict(history), **totals},
    }


# --- packing ---------------------------------------------------------------------------------------------------------


def bits_for(categories: int) -> int:
    """Bits that a code takes on its way: 1, 2, 4 or 8."""
    return next(bits for bits in (1, 2, 4, 8) if categories <= 1 << bits)


def packed_sizes(categories: Ints, n_rows: int) -> list[int]:
    """Bytes of each column."""
    return [(n_rows * bits_for(int(n)) + 7) // 8 for n in categories]


def portions(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(start, stop) of the columns of each message: as many as fit, and at least one."""
    start, total = 0, 0
    for j, size in enumerate(sizes):
        if j > start and total + size > MESSAGE_BYTES:
            yield start, j
            start, total = j, 0
        total += size
    yield start, len(sizes)


def pack(codes: Bytes, categories: Ints, n_threads: int = 1) -> Bytes:
    """Columns of codes, each packed as densely as its number of buckets allows, one after the other."""
    out = np.empty(sum(packed_sizes(categories, codes.shape[1])), np.uint8)
    tasks = [(column, bits, packed) for packed, bits, column in _by_column(out, categories, codes)]
    Team(n_threads).run(pack_codes, tasks)
    return out


def unpack(packed: Bytes, categories: Ints, out: Bytes, n_threads: int = 1) -> None:
    """The inverse of `pack`, into `out` [columns, rows]; InvalidInput for what `pack` cannot have written."""
    n_bytes = sum(packed_sizes(categories, out.shape[1]))
    if packed.shape != (n_bytes,):
        raise InvalidInput(f"{n_bytes} bytes of packed buckets were announced, {packed.size} came")
    largest = Team(n_threads).run(unpack_codes, _by_column(packed, categories, out))
    if any(code >= n for code, n in zip(largest, categories, strict=True)):
        raise InvalidInput("a bucket is not one of those that were announced for its column")


def _by_column(packed: Bytes, categories: Ints, codes: Bytes) -> list[tuple[Bytes, int, Bytes]]:
    """Of each column: where it is packed, bits of a code, and its codes."""
    stops = np.cumsum(packed_sizes(categories, codes.shape[1]))
    bits = [bits_for(int(n)) for n in categories]
    return list(zip(np.split(packed, stops[:-1]), bits, codes, strict=True))


@kernel
def pack_codes(codes: Any, bits: int, out: Any) -> None:
    """Codes of `bits` bits each into bytes, the first in the lowest bits."""
    per_byte = 8 // bits
    n_codes = len(codes)
    for k in range(len(out)):
        byte = np.uint8(0)
        for i in range(min(per_byte, n_codes - k * per_byte)):
            byte |= codes[k * per_byte + i] << np.uint8(bits * i)
        out[k] = byte


@kernel
def unpack_codes(packed: Any, bits: int, out: Any) -> int:
    """The inverse of `pack_codes`; returns the largest code."""
    per_byte = 8 // bits
    mask = np.uint8((1 << bits) - 1)
    n_codes = len(out)
    largest = np.uint8(0)
    for k in range(len(packed)):
        byte = packed[k]
        for i in range(min(per_byte, n_codes - k * per_byte)):
            code = (byte >> np.uint8(bits * i)) & mask
            out[k * per_byte + i] = code
            largest = max(largest, code)
    return int(largest)
