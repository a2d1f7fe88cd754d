"""Bins: each value of a table becomes one byte, its bin's code.

A numeric value x gets the code #{edges <= x}, so a split "after bin b" is the question x < edges[b] (XGBoost's
convention). A level gets its place among the feature's levels. The code after the last is reserved for missing
values (NaN, an unseen level) in every feature, whether or not any value is missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.cuts import choose_edges, whole_weights
from hedgerow.engine.dtypes import BIN, MAX_BINS
from hedgerow.engine.table import Column, Level, Table
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidInput, InvalidParameter

_BLOCK = 256
"""Rows per step of the search: a block of values, positions and edges stays in the first-level cache."""

_GROUP = 4
_GROUP_BYTES = 2**25
"""Columns that are copied and sorted together, and the most memory per thread that this may take."""


@dataclass(frozen=True, eq=False)
class FeatureBins:
    """How one feature is binned: `edges` (numeric) or `levels` (categorical), never both."""

    name: str
    edges: np.ndarray | None = None
    levels: tuple[Level, ...] | None = None

    def __post_init__(self) -> None:
        if (self.edges is None) == (self.levels is None):
            raise InvalidParameter(f"feature {self.name!r} needs either edges or levels, and not both")
        if self.edges is not None:
            object.__setattr__(self, "edges", _checked_edges(self.name, self.edges))
        else:
            object.__setattr__(self, "levels", _checked_levels(self.name, self.levels or ()))

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
        """JSON-able; Python's shortest float representation is read back exactly."""
        if self.edges is not None:
            return {"name": self.name, "edges": self.edges.tolist()}
        return {"name": self.name, "levels": list(self.levels or ())}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeatureBins:
        """The inverse of `to_dict`."""
        keys = sorted(data) if isinstance(data, Mapping) else data
        if keys not in (["edges", "name"], ["levels", "name"]) or not isinstance(data["name"], str):
            raise InvalidInput(f"a feature is described by its name and either edges or levels, got {keys}")
        edges, levels = data.get("edges"), data.get("levels")
        if not isinstance(levels if edges is None else edges, list):
            raise InvalidInput(f"the edges or levels of feature {data['name']!r} must be a list")
        return cls(data["name"], edges, None if levels is None else tuple(levels))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FeatureBins):
            return NotImplemented
        same_edges = np.array_equal(_or_empty(self.edges), _or_empty(other.edges))
        return self.name == other.name and self.levels == other.levels and same_edges

    def __hash__(self) -> int:
        return hash((self.name, self.levels, _or_empty(self.edges).tobytes()))


def _or_empty(edges: np.ndarray | None) -> np.ndarray:
    return np.empty(0) if edges is None else edges


def _checked_edges(name: str, edges: Any) -> np.ndarray:
    given = np.array(edges, dtype=object) if isinstance(edges, str) else np.array(edges)
    if given.dtype.kind not in "iuf":
        raise InvalidInput(f"the edges of feature {name!r} must be a list of numbers")
    checked = given.astype(np.float64) + 0.0  # no negative zeros
    if checked.ndim != 1 or not np.isfinite(checked).all() or (checked[1:] <= checked[:-1]).any():
        raise InvalidInput(f"the edges of feature {name!r} must be finite and strictly increasing")
    if len(checked) > MAX_BINS - 2:
        raise InvalidInput(f"feature {name!r} has {len(checked)} edges, but at most {MAX_BINS - 2} are supported")
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


@dataclass(frozen=True)
class BinMapper:
    """The bins of every feature of a table, in the table's order."""

    features: tuple[FeatureBins, ...]

    @classmethod
    def fit(
        cls, table: Table, max_bins: int = MAX_BINS, sample_weight: np.ndarray | None = None, n_threads: int = 1
    ) -> BinMapper:
        """Choose the bins from all rows of `table`; see `cuts.py` for where the edges go.

        `max_bins` counts the bin of missing values, so a numeric column gets at most `max_bins - 1` bins of values;
        the levels of a categorical column are kept as they are. Rows of weight zero do not take part.
        """
        if isinstance(max_bins, bool) or not isinstance(max_bins, int | np.integer) or not 2 <= max_bins <= MAX_BINS:
            raise InvalidParameter(f"max_bins must be a whole number between 2 and {MAX_BINS}, got {max_bins!r}")
        weights = None if sample_weight is None else whole_weights(_checked_weights(sample_weight, table.n_rows))

        numeric = [column for column in table.columns if column.levels is None]
        groups = _column_groups(numeric, n_threads)

        def edges_of(group: Sequence[Column]) -> list[np.ndarray]:
            return choose_edges([column.values for column in group], int(max_bins) - 1, weights)

        found = Team(n_threads).run(edges_of, [(group,) for group in groups]) if groups else []
        edges = {
            column.name: e for group, es in zip(groups, found, strict=True) for column, e in zip(group, es, strict=True)
        }
        return cls(tuple(FeatureBins(column.name, edges.get(column.name), column.levels) for column in table.columns))

    @classmethod
    def from_edges(
        cls,
        edges: Mapping[str, Sequence[float]] | Sequence[Sequence[float] | None],
        levels: Mapping[str, Sequence[Level]] | None = None,
        names: Sequence[str] | None = None,
    ) -> BinMapper:
        """Bins given from outside, for instance agreed between parties.

        `edges`: by feature name, or one entry per feature in order (None for a categorical one).
        `levels`: by feature name. `names`: the order of the features; by default that of `edges`, then of `levels`.
        """
        levels = dict(levels or {})
        if isinstance(edges, Mapping):
            by_name: dict[str, Any] = dict(edges)
            order = list(names) if names is not None else [*by_name, *(name for name in levels if name not in by_name)]
        else:
            order = list(names) if names is not None else [f"x{j}" for j in range(len(edges))]
            if len(order) != len(edges):
                raise InvalidParameter(f"names has {len(order)} entries, but edges has {len(edges)}")
            by_name = {name: given for name, given in zip(order, edges, strict=True) if given is not None}
        unplaced = sorted({*by_name, *levels} - set(order))
        if unplaced or len(set(order)) < len(order):
            raise InvalidParameter(f"names must list every feature once, got {order} without {unplaced}")
        return cls(
            tuple(
                FeatureBins(name, by_name.get(name), tuple(levels[name]) if name in levels else None) for name in order
            )
        )

    def transform(self, table: Table, n_threads: int = 1) -> np.ndarray:
        """The codes of every value: uint8 [n_features, n_rows], C-contiguous."""
        self._check_columns(table)
        codes = np.empty((len(self.features), table.n_rows), BIN)
        tasks: list[tuple[Any, ...]] = []
        if table.grid is not None:
            tasks += _row_ranges(table.grid.reshape(-1), len(self.features), self.features, codes, n_threads)
        else:
            for j, (feature, column) in enumerate(zip(self.features, table.columns, strict=True)):
                if feature.edges is None:
                    tasks.append((_code_levels, column.values, feature.missing_code, codes[j]))
                else:
                    tasks += _row_ranges(*_span(column.values), [feature], codes[j : j + 1], n_threads)
        Team(n_threads).run(_call, tasks)
        return codes

    def _check_columns(self, table: Table) -> None:
        if len(table.columns) != len(self.features):
            raise InvalidInput(f"the table has {len(table.columns)} columns, but the bins are for {len(self.features)}")
        for feature, column in zip(self.features, table.columns, strict=True):
            if feature.levels != column.levels:
                raise InvalidInput(
                    f"column {column.name!r} does not have the levels that feature {feature.name!r} was binned with; "
                    "read the table with like=mapper.features"
                )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; `from_dict` gives the same bins back, exactly."""
        return {"features": [feature.to_dict() for feature in self.features]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BinMapper:
        """The inverse of `to_dict`."""
        features = data.get("features") if isinstance(data, Mapping) else None
        if not isinstance(features, list):
            raise InvalidInput("bins are described by a list of features")
        return cls(tuple(FeatureBins.from_dict(feature) for feature in features))


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
    values: np.ndarray, step: int, features: Sequence[FeatureBins], codes: np.ndarray, n_threads: int
) -> list[tuple[Any, ...]]:
    """A few ranges of rows per thread, so that a thread held up by other work does not hold up all."""
    edges = np.stack([_padded(feature.edges, values.dtype) for feature in features])
    n_edges = np.array([_or_empty(feature.edges).size for feature in features], np.int64)
    n_rows = codes.shape[1]
    n_ranges = 1 if n_threads == 1 else max(1, min(4 * n_threads, n_rows // 16384))
    bounds = np.linspace(0, n_rows, n_ranges + 1).astype(int)
    return [
        (assign_codes, values, step, edges, n_edges, int(start), int(stop), codes) for start, stop in pairwise(bounds)
    ]


def _padded(edges: np.ndarray | None, dtype: np.dtype[Any]) -> np.ndarray:
    """Edges for values of `dtype`, followed by +inf up to 256.

    For float32 values an edge is rounded up to float32: x >= edge holds for exactly the same x.
    """
    padded = np.full(MAX_BINS, np.inf, dtype)
    exact = _or_empty(edges)
    with np.errstate(over="ignore"):  # beyond the largest float32 only infinity is at or above the edge
        rounded = exact.astype(dtype)
        rounded = np.where(rounded < exact, np.nextafter(rounded, dtype.type(np.inf)), rounded)
    padded[: len(exact)] = rounded
    return padded


@kernel
def assign_codes(values: Any, step: int, edges: Any, n_edges: Any, start: int, stop: int, codes: Any) -> None:
    """Codes of rows `start` to `stop` of k neighbouring columns.

    In: `values` flat, row i of column f at i * step + f; `edges` [k, 256] padded with +inf. Out: `codes` [k, rows].
    NaN fails every comparison of the search and is put right at the end; +inf also counts the padding, hence the clamp.
    """
    x = np.zeros(_BLOCK, values.dtype)
    position = np.empty(_BLOCK, np.uint16)
    for block in range(start, stop, _BLOCK):
        size = min(_BLOCK, stop - block)
        for f in range(len(edges)):
            first = np.uint64(block * step + f)
            for i in range(size):
                x[i] = values[first + np.uint64(i) * np.uint64(step)]
            if n_edges[f] >= 16:
                _search(x, edges[f], np.uint64(128), position)
            elif n_edges[f] >= 2:
                _search(x, edges[f], np.uint64(8), position)
            else:
                _search(x, edges[f], np.uint64(1), position)
            last = np.uint16(n_edges[f])
            missing = np.uint16(n_edges[f] + 1)
            out = codes[f, block : block + size]
            for i in range(size):
                out[i] = missing if x[i] != x[i] else min(position[i], last)  # NaN is not itself


@inline_kernel
def _search(x: Any, edges: Any, widest: Any, position: Any) -> None:
    """Number of edges <= x, for each x of a block, by a binary search that starts with a jump of `widest`.

    `widest` is a constant at every call, so that the steps are unrolled, and a step is a product, not a branch: with
    branches half of them are mispredicted, and the search takes ten times as long. Indices are unsigned, so that no
    wrap-around of negative ones is compiled in.
    """
    for i in range(_BLOCK):
        value = x[i]
        p = np.uint64(0)
        jump = widest
        while jump > np.uint64(0):
            p += jump * np.uint64(edges[p + jump - np.uint64(1)] <= value)
            jump >>= np.uint64(1)
        position[i] = p
