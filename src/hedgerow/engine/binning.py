"""Bins: each value of a table becomes one byte, its bin's code.

A numeric value x gets the code #{edges <= x}, so a split "after bin b" is the question x < edges[b] (XGBoost's
convention). A level gets its place among the feature's levels. The code after the last is reserved for missing
values (NaN, an unseen level) in every feature, whether or not any value is missing.

Where to cut a numeric column: if the distinct values fit the budget, each gets a bin of its own. Otherwise cuts are set
from the smallest value upwards, each at the boundary of two distinct values nearest to an even share of the rows (or of
their weight) left:

    value    0       1   2   3   4   5   6         a value heavier than two shares ends up alone in its bin,
    rows     ####    #   #   #   #   #   #         what it took beyond its share is missing from the others' alike,
    bins     ----    -----   -----   -----         and the budget is always used up

Everything is computed from all rows, out of whole numbers over sorted values, so the edges depend neither on the order
of rows nor on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.dtypes import BIN, MAX_BINS, ROW_ID, Bools, Bytes, Ints
from hedgerow.engine.level_groups import GROUP_RULES, groups_fit
from hedgerow.engine.sparse import SparseCodes
from hedgerow.engine.table import Column, Level, Rule, SparseColumn, Table
from hedgerow.engine.threads import Team
from hedgerow.engine.vectors import BLOCK, LANES, count_edges
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.times import TIME_RULES

_GROUP = 4
_GROUP_BYTES = 2**25
"""Columns that are copied and sorted together, and the most memory per thread that this may take."""
_ROWS_AT_A_TIME = 4096
_LARGEST = float(np.finfo(np.float64).max)
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class FeatureBins:
    """How one feature is binned: `edges` (numeric) or `levels` (categorical), never both.

    `rule` says what becomes of values first: dates and durations become seconds (`times.py`), levels become groups of
    levels (`level_groups.py`).
    """

    MOST_EDGES: ClassVar[int] = MAX_BINS - 2

    name: str
    edges: np.ndarray | None = None
    levels: tuple[Level, ...] | None = None
    rule: Rule | None = None

    def __post_init__(self) -> None:
        if (self.edges is None) == (self.levels is None):
            raise InvalidParameter(f"feature {self.name!r} needs either edges or levels, and not both")
        if self.edges is not None:
            object.__setattr__(self, "edges", _checked_edges(self.name, self.edges, self.MOST_EDGES))
        else:
            object.__setattr__(self, "levels", _checked_levels(self.name, self.levels or ()))
        _check_rule(self)

    @property
    def n_value_bins(self) -> int:
        """Bins for values that are there; at least 1 for a numeric feature."""
        return len(self.edges) + 1 if self.edges is not None else len(self.levels or ())

    @property
    def missing_code(self) -> int:
        """The code of a missing value."""
        return self.n_value_bins

    @property
    def n_codes(self) -> int:
        """All codes, the one for missing values included."""
        return self.n_value_bins + 1

    @property
    def is_categorical(self) -> bool:
        """Whether the feature has levels rather than edges."""
        return self.levels is not None

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; Python's shortest float representation is read back exactly. The rule is there if there is one."""
        rule = {} if self.rule is None else {"rule": self.rule}
        if self.edges is not None:
            return {"name": self.name, "edges": self.edges.tolist(), **rule}
        return {"name": self.name, "levels": list(self.levels or ()), **rule}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeatureBins:
        """The inverse of `to_dict`."""
        keys = sorted(set(data) - {"rule"}) if isinstance(data, Mapping) else data
        if keys not in (["edges", "name"], ["levels", "name"]) or not isinstance(data["name"], str):
            raise InvalidInput(f"a feature is described by its name and either edges or levels, got {keys}")
        edges, levels = data.get("edges"), data.get("levels")
        if not isinstance(levels if edges is None else edges, list):
            raise InvalidInput(f"the edges or levels of feature {data['name']!r} must be a list")
        return cls(data["name"], edges, None if levels is None else tuple(levels), data.get("rule"))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FeatureBins):
            return NotImplemented
        return self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.name, self.levels, None if self.edges is None else self.edges.tobytes(), self.rule


class WideBins(FeatureBins):
    """A numeric feature of a model that was trained elsewhere, with more edges than a byte can tell apart.

    Nothing is trained on it. Prediction looks at it through several features of few edges (`wide.py`).
    """

    MOST_EDGES = 1 << 20


def bin_counts(features: Sequence[FeatureBins]) -> tuple[Ints, Bools]:
    """Bins for values, and whether they are levels, of each feature: what a layout is made from."""
    n_value_bins = np.array([feature.n_value_bins for feature in features], np.int64)
    return n_value_bins, np.array([feature.is_categorical for feature in features], np.bool_)


def _checked_edges(name: str, edges: Any, most: int) -> np.ndarray:
    given = np.array(edges, dtype=object) if isinstance(edges, str) else np.array(edges)
    if given.dtype.kind not in "iuf":
        raise InvalidInput(f"the edges of feature {name!r} must be a list of numbers")
    checked = given.astype(np.float64) + 0.0  # no negative zeros
    if checked.ndim != 1 or not np.isfinite(checked).all() or (checked[1:] <= checked[:-1]).any():
        raise InvalidInput(f"the edges of feature {name!r} must be finite and strictly increasing")
    if len(checked) > most:
        raise InvalidInput(f"feature {name!r} has {len(checked)} edges, but at most {most} are supported")
    checked.flags.writeable = False
    return checked


def _checked_levels(name: str, levels: Sequence[Level]) -> tuple[Level, ...]:
    kinds = {isinstance(level, str) for level in levels}
    usable = all(
        isinstance(level, str | bool | int) or (isinstance(level, float) and math.isfinite(level)) for level in levels
    )
    if not usable or len(kinds) > 1 or len(set(levels)) < len(levels):
        raise InvalidInput(f"the levels of feature {name!r} must be all text or all numbers, without repetition")
    if len(levels) > MAX_BINS - 1:
        raise InvalidInput(f"feature {name!r} has {len(levels)} levels, but at most {MAX_BINS - 1} are supported")
    return tuple(levels)


def _check_rule(feature: FeatureBins) -> None:
    rule, levels = feature.rule, feature.levels
    if rule is None:
        return
    if rule not in (TIME_RULES if levels is None else GROUP_RULES):
        rules = TIME_RULES if levels is None else GROUP_RULES
        raise InvalidInput(f"the rule of feature {feature.name!r} must be one of {', '.join(rules)}, got {rule!r}")
    if levels is not None and not groups_fit(levels, rule):
        raise InvalidInput(f"the levels of feature {feature.name!r} are not those of its rule, {rule!r}")


@dataclass(frozen=True)
class BinMapper:
    """The bins of every feature of a table, in the table's order."""

    features: tuple[FeatureBins, ...]

    @classmethod
    def fit(
        cls, table: Table, max_bins: int = MAX_BINS, sample_weight: np.ndarray | None = None, n_threads: int = 1
    ) -> BinMapper:
        """Choose the bins from all rows of `table`; see above for where the edges go.

        `max_bins` counts the bin of missing values, so a numeric column gets at most `max_bins - 1` bins of values;
        the levels of a categorical column are kept as they are. Rows of weight zero do not take part.
        """
        check_max_bins(max_bins)
        weights = None if sample_weight is None else whole_weights(_checked_weights(sample_weight, table.n_rows))

        numeric = [column for column in table.columns if column.levels is None]
        groups = _column_groups([column for column in numeric if not isinstance(column, SparseColumn)], n_threads)

        def edges_of(group: Sequence[Column]) -> list[np.ndarray]:
            return choose_edges([column.values for column in group], int(max_bins) - 1, weights)

        found = Team(n_threads).run(edges_of, [(group,) for group in groups]) if groups else []
        edges = {
            column.name: e for group, es in zip(groups, found, strict=True) for column, e in zip(group, es, strict=True)
        }
        for column in numeric:
            if isinstance(column, SparseColumn):
                edges[column.name] = _edges_of_sparse(column, int(max_bins) - 1, weights)
        return cls(tuple(FeatureBins(c.name, edges.get(c.name), c.levels, c.rule) for c in table.columns))

    def sparse_codes(self, table: Table) -> SparseCodes:
        """The codes of a sparse table, without those of most zeros."""
        self._check_columns(table)
        parts = []
        for feature, column in zip(self.features, table.columns, strict=True):
            if isinstance(column, SparseColumn):
                parts.append((*sparse_codes_of(feature, column), column.rows))
            else:  # a column of a sparse matrix that was declared to have levels
                only = Table((column,), table.n_rows, (column.name,), table.has_names)
                codes = BinMapper((feature,)).transform(only)[0]
                parts.append((int(np.bincount(codes).argmax()), codes, np.arange(len(codes), dtype=ROW_ID)))
        return SparseCodes.of(parts, table.n_rows)

    def transform(self, table: Table, n_threads: int = 1) -> np.ndarray:
        """The codes of every value: uint8 [n_features, n_rows], C-contiguous."""
        codes = np.empty((len(self.features), table.n_rows), BIN)
        self.transform_into(codes, 0, table, n_threads)
        return codes

    def transform_into(self, codes: np.ndarray, at: int, table: Table, n_threads: int = 1) -> None:
        """Write the codes of every value into `codes`, C-contiguous, from row `at` on."""
        self._check_columns(table)
        if not 0 <= at <= codes.shape[1] - table.n_rows or len(codes) != len(self.features):
            raise InvalidInput(f"{table.n_rows} rows from {at} on do not fit codes of shape {codes.shape}")
        tasks: list[tuple[Any, ...]] = []
        limits = (at, at + table.n_rows, n_threads)
        if table.grid is not None:
            tasks += _row_ranges(table.grid.reshape(-1), len(self.features), self.features, codes, *limits)
        else:
            for j, (feature, column) in enumerate(zip(self.features, table.columns, strict=True)):
                if isinstance(column, SparseColumn):
                    tasks.append((_code_sparse, feature, column, codes[j, at : at + table.n_rows]))
                elif feature.edges is None:
                    own = codes[j, at : at + table.n_rows]
                    tasks.append((_code_levels, column.values, feature.missing_code, own))
                else:
                    tasks += _row_ranges(*_span(column.values), [feature], codes[j : j + 1], *limits)
        Team(n_threads).run(_call, tasks)

    def _check_columns(self, table: Table) -> None:
        if len(table.columns) != len(self.features):
            raise InvalidInput(f"the table has {len(table.columns)} columns, but the bins are for {len(self.features)}")
        for feature, column in zip(self.features, table.columns, strict=True):
            if (feature.levels, feature.rule) != (column.levels, column.rule):
                raise InvalidInput(
                    f"column {column.name!r} does not have the levels that feature {feature.name!r} was binned with; "
                    "read the table with like=mapper.features"
                )


def check_max_bins(max_bins: int) -> None:
    """Raise unless a column can have this many bins."""
    if isinstance(max_bins, bool) or not isinstance(max_bins, int | np.integer) or not 2 <= max_bins <= MAX_BINS:
        raise InvalidParameter(f"max_bins must be a whole number between 2 and {MAX_BINS}, got {max_bins!r}")


def _checked_weights(sample_weight: Any, n_rows: int) -> np.ndarray:
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_rows,):
        raise InvalidInput(f"sample_weight must have one entry per row, got shape {weights.shape} for {n_rows} rows")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise InvalidInput("sample_weight must be finite and not negative")
    if not weights.any():
        raise InvalidInput("sample_weight is zero for every row")
    return weights


def _call(function: Any, *arguments: Any) -> None:
    function(*arguments)


def _code_levels(values: np.ndarray, missing_code: int, codes: np.ndarray) -> None:
    codes[:] = values  # -1 wraps round to 255 and is put right in the next line
    codes[values < 0] = missing_code


def sparse_codes_of(feature: FeatureBins, column: SparseColumn) -> tuple[int, Bytes]:
    """The code of a zero, and the codes of what is stored."""
    if feature.edges is None:
        raise InvalidInput(f"feature {feature.name!r} has levels, but its column is a sparse one of numbers")
    _refuse_wide(feature)
    codes = np.searchsorted(feature.edges, column.stored, side="right").astype(BIN)  # compares in float64, exactly
    codes[np.isnan(column.stored)] = feature.missing_code
    return int(np.searchsorted(feature.edges, 0.0, side="right")), codes


def _code_sparse(feature: FeatureBins, column: SparseColumn, codes: np.ndarray) -> None:
    codes[:], codes[column.rows] = sparse_codes_of(feature, column)


def _column_groups(columns: Sequence[Column], n_threads: int) -> list[list[Column]]:
    """Runs of a few neighbouring columns of one type: enough to share memory lines, few enough to bound the copies."""
    runs: list[list[Column]] = []
    for column in columns:
        if not runs or runs[-1][0].values.dtype != column.values.dtype:
            runs.append([])
        runs[-1].append(column)
    groups: list[list[Column]] = []
    for run in runs:
        width = max(1, min(_GROUP, _GROUP_BYTES // run[0].values.nbytes))
        n_groups = n_threads * math.ceil(len(run) / (width * n_threads))
        bounds = np.linspace(0, len(run), min(n_groups, len(run)) + 1).astype(int)
        groups += [run[a:b] for a, b in pairwise(bounds)]
    return groups


def _span(values: np.ndarray) -> tuple[np.ndarray, int]:
    """A 1-D strided array as contiguous memory and a step, so that the kernel is compiled for one layout only."""
    step, rest = divmod(values.strides[0], values.itemsize)
    if rest or step < 1:
        values, step = np.ascontiguousarray(values), 1
    length = (len(values) - 1) * step + 1
    return np.lib.stride_tricks.as_strided(values, (length,), (values.itemsize,), writeable=False), step


def _row_ranges(
    values: np.ndarray,
    step: int,
    features: Sequence[FeatureBins],
    codes: np.ndarray,
    start: int,
    stop: int,
    n_threads: int,
) -> list[tuple[Any, ...]]:
    """A few ranges of rows per thread, so that a thread held up by other work does not hold up all."""
    tables = coding_tables(features, np.arange(len(features)), values.dtype)
    n_ranges = 1 if n_threads == 1 else max(1, min(4 * n_threads, (stop - start) // 16384))
    bounds = np.linspace(start, stop, n_ranges + 1).astype(int).tolist()
    return [(code_values, tables, values, (a - start) * step, step, 1, codes, a, b) for a, b in pairwise(bounds)]


# --- where to cut ----------------------------------------------------------------------------------------------------


def choose_edges(columns: Sequence[np.ndarray], n_bins: int, weights: np.ndarray | None = None) -> list[np.ndarray]:
    """For each of some columns of equal length and type at most `n_bins - 1` edges; NaN takes no part.

    `weights` are integers (`whole_weights`); rows of weight zero take no part, as if they were not there.
    Several columns at once only because neighbours in a row-wise array are read together.
    """
    copies = _contiguous_copies(columns)
    if weights is not None:
        return [edges_of(*sorted_with_weights(copy, weights), n_bins) for copy in copies]
    copies.sort(axis=1)  # NaN goes last
    nan = copies.dtype.type(np.nan)  # of the columns' own type, else searchsorted would convert them
    return [edges_of(ordered[: np.searchsorted(ordered, nan)], None, n_bins) for ordered in copies]


def _edges_of_sparse(column: SparseColumn, n_bins: int, weights: np.ndarray | None) -> np.ndarray:
    """The same edges, with one zero that weighs as much as all of them."""
    values, each = column.tally(weights)
    used = (each > 0) & ~np.isnan(values)
    values, each = values[used], each[used]
    order = np.argsort(values)
    return edges_of(values[order], each[order], n_bins)


def _contiguous_copies(columns: Sequence[np.ndarray]) -> np.ndarray:
    """The columns as rows of a new array, copied in blocks that stay in cache where they share their memory lines."""
    n_rows = len(columns[0])
    copies = np.empty((len(columns), n_rows), columns[0].dtype)
    block = n_rows if all(column.flags.c_contiguous for column in columns) else _ROWS_AT_A_TIME
    for start in range(0, n_rows, block):
        for copy, column in zip(copies, columns, strict=True):
            copy[start : start + block] = column[start : start + block]
    return copies


def sorted_with_weights(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values in order, with their weights; without NaN and without those of weight 0."""
    used = (weights > 0) & ~np.isnan(values)
    values, weights = values[used], weights[used]
    if values.dtype == np.float32:  # value and weight fit one integer, and sorting those is much faster than argsort
        packed = (_turned(values.view(np.int32)).astype(np.int64) << 32) | weights
        packed.sort()
        return _turned((packed >> 32).astype(np.int32)).view(np.float32), packed & 0xFFFFFFFF
    order = np.argsort(values)
    return values[order], weights[order]


def _turned(bits: np.ndarray) -> np.ndarray:
    """The bits of float32 numbers as integers of the same order, and back: turns round those of negative numbers."""
    turned: np.ndarray = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
    return turned


def edges_of(ordered: np.ndarray, weights: np.ndarray | None, n_bins: int) -> np.ndarray:
    """At most `n_bins - 1` edges between values in order, without NaN; each of weight 1 unless weights are given."""
    first_of_value = np.flatnonzero(ordered[1:] != ordered[:-1])
    first_of_value += 1
    if len(first_of_value) >= n_bins:
        below = first_of_value if weights is None else np.cumsum(weights)[first_of_value - 1]
        total = len(ordered) if weights is None else int(weights.sum())
        chosen = np.empty(n_bins - 1, np.int64)
        spread_cuts(below, total, chosen)
        first_of_value = first_of_value[chosen]
    return edges_between(ordered[first_of_value - 1], ordered[first_of_value])


class WeightSteps(NamedTuple):
    """How weights become integers whose sum is exact in float64. Only true zeros become 0."""

    heaviest: float
    bits: int  # 0: they are whole, and stay as they are, so that weight 2 is exactly the row twice

    def whole(self, weights: np.ndarray) -> np.ndarray:
        """These weights, all or some of those that the steps were made for."""
        if not self.bits:
            return weights.astype(np.int64)
        scaled = np.rint(weights / self.heaviest * float(2**self.bits)).astype(np.int64)
        return np.where(weights > 0, np.maximum(scaled, 1), 0)


def steps_of(weights: np.ndarray) -> WeightSteps | None:
    """The steps of all rows' weights; None if they are all the same."""
    heaviest = float(weights.max())
    if float(weights.min()) == heaviest:
        return None
    is_whole = np.array_equal(weights, np.floor(weights)) and weights.sum() < 2.0**52
    return WeightSteps(heaviest, 0 if is_whole else min(31, 52 - len(weights).bit_length()))


def whole_weights(weights: np.ndarray) -> np.ndarray | None:
    """Weights as integers; None if they are all the same."""
    steps = steps_of(weights)
    return None if steps is None else steps.whole(weights)


@kernel
def spread_cuts(below: Any, total: int, chosen: Any) -> None:
    """Choose len(chosen) of the boundaries between distinct values.

    In: `below[j]`, the weight of all rows before boundary j, increasing. Out: `chosen`, increasing boundary numbers.
    Weights stand multiplied by the number of bins left, so that shares are whole: below 2**52 * 2**8, no overflow.
    """
    n_cuts = len(chosen)
    first = 0
    reached = 0
    for k in range(n_cuts):
        bins_left = n_cuts + 1 - k
        target = reached * bins_left + (total - reached)
        low = first
        high = len(below) - (n_cuts - k)  # leave a boundary for each cut to come
        while low < high:  # the first boundary that reaches the target
            middle = (low + high) // 2
            if below[middle] * bins_left >= target:
                high = middle
            else:
                low = middle + 1
        if low > first and target - below[low - 1] * bins_left <= below[low] * bins_left - target:
            low -= 1
        chosen[k] = low
        first = low + 1
        reached = below[low]


def edges_between(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """One finite edge per pair of neighbouring values, with lower < edge <= upper.

    The midpoint rounded to float32, if it separates the two values as float32 too: then float32 data, float64 data and
    an exported XGBoost model all agree. Otherwise the upper value rounded to float32 if that is not above it, else the
    upper value itself. Infinities count as the largest finite number, which puts them into the outermost bins.
    """
    a = np.clip(lower.astype(np.float64), -_LARGEST, _LARGEST)
    b = np.clip(upper.astype(np.float64), -_LARGEST, _LARGEST)
    a32, b32, middle = (_to_float32(v) for v in (a, b, a * 0.5 + b * 0.5))
    edge = np.where(middle > a32, middle, b32)
    edge = np.where((edge > a32) & (edge <= b), edge, b)
    distinct = a < b  # the largest finite number and infinity are the same here
    return edge[distinct] + 0.0  # no negative zeros


def _to_float32(values: np.ndarray) -> np.ndarray:
    """Rounded to float32 without overflow to infinity, as float64."""
    rounded: np.ndarray = np.clip(values, -_LARGEST_FLOAT32, _LARGEST_FLOAT32).astype(np.float32)
    return rounded.astype(np.float64)


# --- values to codes -------------------------------------------------------------------------------------------------


class CodingTables(NamedTuple):
    """The edges of some features, for values of one dtype."""

    feature: Any  # int64[U]
    column: Any  # int64[U]: of the values that are coded
    edges: Any  # float32 or float64 [U, 256], padded with +inf
    n_edges: Any  # int32[U]; -1 for a categorical feature
    missing_code: Any  # uint8[U]


def coding_tables(
    features: Sequence[FeatureBins], used: Ints, dtype: np.dtype[Any], column_of_feature: Ints | None = None
) -> CodingTables:
    """The edges of the `used` features, by number, for values of `dtype`; feature j is column j unless told."""
    edges = np.full((len(used), MAX_BINS), np.inf, dtype)
    n_edges = np.full(len(used), -1, np.int32)
    for row, feature in enumerate(used.tolist()):
        exact = features[feature].edges
        _refuse_wide(features[feature])
        if exact is not None:
            edges[row, : len(exact)] = rounded_up(exact, dtype)
            n_edges[row] = len(exact)
    missing = np.array([features[feature].missing_code for feature in used.tolist()], np.uint8)
    column = used if column_of_feature is None else column_of_feature[used]
    return CodingTables(used.astype(np.int64), column.astype(np.int64), edges, n_edges, missing)


def _refuse_wide(feature: FeatureBins) -> None:
    if isinstance(feature, WideBins):
        raise InvalidInput(
            f"column {feature.name!r} has {feature.n_value_bins - 1} thresholds, more than a "
            "byte can tell apart: a model trained elsewhere predicts from values, but cannot be trained on"
        )


def rounded_up(numbers: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The next number of `dtype` that is not below: as an edge, it divides numbers of that type in the same way."""
    with np.errstate(over="ignore"):  # beyond the largest float32 only infinity is at or above the edge
        rounded = numbers.astype(dtype)
        return np.where(rounded < numbers, np.nextafter(rounded, dtype.type(np.inf)), rounded)


@kernel
def code_values(
    tables: Any, values: Any, offset: int, row_stride: int, column_stride: int, codes: Any, start: int, stop: int
) -> None:
    """Codes of `values` (in) into columns start..stop of the used rows of `codes` uint8 [features, rows] (out).

    `values` are flat: those of row `start` and column c at offset + c * column_stride, strides in elements. A level is
    a whole number below the number of levels; any other value of a categorical feature is unseen and gets the missing
    code.
    """
    x = np.zeros(BLOCK, tables.edges.dtype)
    found = np.empty(BLOCK, np.uint8)
    flat_edges = tables.edges.reshape(-1)
    for first in range(start, stop, BLOCK):
        size = min(BLOCK, stop - first)
        for u in range(tables.feature.shape[0]):
            feature = tables.feature[u]
            n_edges, missing = tables.n_edges[u], tables.missing_code[u]
            at = np.uint64(offset + (first - start) * row_stride + tables.column[u] * column_stride)
            for i in range(size):
                x[i] = values[at + np.uint64(i) * np.uint64(row_stride)]
            out = codes[feature, first : first + size]
            if n_edges < 0:
                for i in range(size):
                    inside = (x[i] >= 0) & (x[i] < missing)
                    level = np.uint8(x[i]) if inside else missing
                    out[i] = level if level == x[i] else missing
            else:
                step = np.int32(1)
                while step <= n_edges:
                    step *= np.int32(2)
                step //= np.int32(2)
                into = out if size == BLOCK else found  # only whole vectors are written
                for i in range(0, size, LANES):
                    count_edges(
                        x, np.int64(i), flat_edges, np.int64(u * MAX_BINS), into,
                        np.int32(step), np.uint8(n_edges), missing,
                    )  # fmt: skip
                if size < BLOCK:
                    out[:] = found[:size]
