"""Edges that a feature holder takes from its own column with differential privacy: edges="private".

Quantiles by halving (Kaplan, Schnapp and Stemmer 2022): first an edge that has half of the values below it, then one in
each half, and so on. Each is chosen by the exponential mechanism from numbers that are fixed beforehand (`Candidates`).
A column that is mostly zero puts many edges around zero, with nothing between them; so twice as many cells are made as
there are to be buckets, their values counted with noise, and cells joined by what the noisy counts say:

    1  cells = 2 buckets; in level l every part of s > 1 cells is cut into s // 2 and s - s // 2
    2  the values in each cell, with discrete Laplace noise
    3  cells that look empty are joined to others; then cells are joined to about equally full buckets

Step 3 looks at nothing but what 1 and 2 released. `edges_epsilon` pays for all: the levels and step 2 get equal shares.

Privacy. Two columns differ in one value (or gap: a missing value is a value that lies nowhere). How many values there
are that are not missing is a secret too: it is used in 1 and 2 only, and covered as follows.

(1) One level. Parts are intervals between edges of earlier levels. Given those, parts are the same for both columns,
and so are their candidates; only counts differ. In a part of s cells let B(c) values be below candidate c and A(c) not
below, k = s // 2, f = k / s. The utility is u(c) = -|t(c)|, t(c) = (1 - f) B(c) - f A(c), which is the distance of B
from f times the values of the part, however many those are. t never falls as c grows.
  - A value comes into the part, or leaves it: then t moves by 1 - f in one direction for candidates above it and by f
    in the other for the rest. So u moves by d with |d| <= max(f, 1 - f): a width max d - min d of at most
    2 max(f, 1 - f), which is 1 for two halves, not 2.
  - A value moves within the part: t moves by 1 for the candidates it passes, all in one direction. Width at most 2.
  - A value moves from one part to another: two parts change, each as in the first case.
By (1) in privacy/choices.py losses are rate times width, added up over the parts that change. So half the widths of the
largest case is the sensitivity of a level: 1 for the second case, or the two largest max(f, 1 - f) together, which is 1
as well where all parts are cut into halves, and never more than 4/3 (`level_sensitivities`).

(2) Counts. A value that goes from one cell to another moves two counts by 1: an L1 distance of 2.

(3) Levels and counts are done one after the other, each for edges that are released already, so their epsilons add up
to edges_epsilon. What is sent after that depends on the column through the edges and through each row's own bucket:

    P(edges, answers | column) = P(edges | column) P(answers | edges, column)

The first factor changes by e^edges_epsilon at most. Given the edges, one value decides about one bucket, so the second
changes by e^epsilon at most. One element has epsilon + edges_epsilon, and columns have nothing to do with each other,
so a record has the sum over its columns. The number of buckets, which is sent, follows from what is released here.
Every column has a bucket for missing values, so whether there are any does not show.

Candidates. By the schema's bounds: whole numbers all, or as many as fit; others float32 numbers, or float64 ones where
there are few of those, at equal steps in their order (`number_line`). Without bounds every 64th float32 number,
of either sign and any size: some 2^26 with steps of at most 2^-17 of their size. Which type a column has, or whether
its values are whole, is never read off the values. Values beyond the bounds count as the nearest bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from hedgerow.engine.binning import spread_cuts
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.privacy.choices import MOST_CANDIDATES, exponential
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Adjacency, Composed, DiscreteLaplace, Exponential, Released
from hedgerow.privacy.mechanisms import discrete_laplace
from hedgerow.protocols.number_line import NumberLine
from hedgerow.schema import NumericColumn

CELLS_PER_BUCKET = 2
COUNT_SENSITIVITY = 2.0
EMPTY_BELOW = 6.0  # times the scale of the noise: a cell that is empty looks full once in eight hundred
ADJACENCY: Adjacency = "replace_one"

_FINE = 1 << 24  # fewer float32 numbers than this between bounds are too coarse


# --- candidates ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidates:
    """Numbers that may become edges, numbered 1 to `count`: those at every `grain`-th place after `base`."""

    line: NumberLine
    base: int
    grain: int
    count: int
    bounds: tuple[float, float]

    @classmethod
    def of(cls, described: NumericColumn | None) -> Candidates:
        """Those of a column, by what is public about it."""
        if described is None:
            largest = float(np.finfo(np.float32).max)
            return cls._between(NumberLine("float32"), (-largest, largest))
        bounds = (described.low, described.high)
        if described.integer:
            return cls._between(NumberLine("integer"), bounds)
        short = NumberLine("float32")
        low, high = short.places(np.array(bounds)).tolist()
        return cls._between(short if high - low >= _FINE else NumberLine("float64"), bounds)

    @classmethod
    def _between(cls, line: NumberLine, bounds: tuple[float, float]) -> Candidates:
        """Above the lower bound, not above the upper, at multiples of the smallest power of two that makes them fit."""
        low, high = line.places(np.array(bounds)).tolist()
        grain = 1
        while high // grain - low // grain > MOST_CANDIDATES:
            grain *= 2
        return cls(line, low // grain * grain, grain, max(high // grain - low // grain, 0), bounds)

    def cells(self, values: Floats) -> Ints:
        """How many candidates are not above each value."""
        places = self.line.places(np.clip(values, *self.bounds))
        found: Ints = (places - self.base) // self.grain
        return np.clip(found, 0, self.count)

    def numbers(self, which: Ints) -> Floats:
        """The candidates of some numbers."""
        return self.line.numbers(self.base + self.grain * which)


# --- the plan --------------------------------------------------------------------------------------------------------


@cache
def level_sensitivities(n_cells: int) -> tuple[float, ...]:
    """Of each level when this many cells are made; (1) at the top of this file."""
    found = []
    parts = [n_cells]
    while any(s > 1 for s in parts):
        larger = sorted((s - s // 2) / s for s in parts if s > 1)
        found.append(max(1.0, math.fsum(larger[-2:])))
        parts = [half for s in parts for half in (s // 2, s - s // 2) if half]
    return tuple(found)


def planned(n_buckets: int, edges_epsilon: float) -> Composed:
    """What the edges of one column cost, known beforehand; a column of few possible numbers may not need all of it."""
    levels = level_sensitivities(CELLS_PER_BUCKET * n_buckets)
    share = _share(n_buckets, edges_epsilon)
    choices = tuple(Exponential(sensitivity, share, ADJACENCY) for sensitivity in levels)
    # The same as `discrete_laplace` makes of it.
    counts = DiscreteLaplace(COUNT_SENSITIVITY, COUNT_SENSITIVITY / share * (1.0 + 2.0**-50), ADJACENCY)
    return Composed((*choices, counts))


def _share(n_buckets: int, edges_epsilon: float) -> float:
    """Epsilon of one level, and of the counts; rounded down, so that all together are not above `edges_epsilon`."""
    steps = len(level_sensitivities(CELLS_PER_BUCKET * n_buckets)) + 1
    return edges_epsilon / steps * (1.0 - 2.0**-48)


# --- edges -----------------------------------------------------------------------------------------------------------


def private_edges(
    values: Floats, n_buckets: int, edges_epsilon: float, candidates: Candidates, random: RandomBytes
) -> Released[Floats]:
    """At most n_buckets - 1 edges, increasing, for about equally many values between them; NaN is a missing value."""
    column = _Counts.of(candidates.cells(values[~np.isnan(values)].astype(np.float64)), len(values))
    n_cells = CELLS_PER_BUCKET * n_buckets
    share = _share(n_buckets, edges_epsilon)
    if candidates.count < n_cells:
        chosen = np.arange(1, candidates.count + 1)  # all there are, whatever the values
    else:
        chosen = _halve(column, n_cells, share, candidates.count, random)
    counts = discrete_laplace(
        np.diff(column.below(chosen), prepend=0, append=column.total),
        sensitivity=COUNT_SENSITIVITY,
        epsilon=share,
        random=random,
        adjacency=ADJACENCY,
    )
    empty = min(EMPTY_BELOW * COUNT_SENSITIVITY / share, column.n_rows / (4 * n_buckets))
    kept = _join(counts.values, n_buckets, empty)
    return Released(candidates.numbers(chosen[kept]), planned(n_buckets, edges_epsilon))


@dataclass(frozen=True)
class _Counts:
    """A column as places among the candidates: the distinct ones, and how many values are before each."""

    points: Ints
    before: Ints  # one more than points; the last is the number of values
    n_rows: int  # missing values included: public

    @classmethod
    def of(cls, cells: Ints, n_rows: int) -> _Counts:
        """Sorted once."""
        ordered = np.sort(cells)
        first = np.flatnonzero(np.diff(ordered, prepend=-1))
        return cls(ordered[first], np.append(first, len(ordered)), n_rows)

    @property
    def total(self) -> int:
        """Values that are not missing. A secret."""
        return int(self.before[-1])

    def below(self, which: Ints) -> Ints:
        """How many values are below candidates."""
        found: Ints = self.before[np.searchsorted(self.points, which)]
        return found


def _halve(column: _Counts, n_cells: int, share: float, n_candidates: int, random: RandomBytes) -> Ints:
    """Candidates that cut the column into cells of about equally many values, increasing; fewer where none are left.

    A part (low, high, cells) has the values from candidate `low` to below candidate `high`, which 0 and one beyond the
    last stand for, if there is none.
    """
    parts = [(0, n_candidates + 1, n_cells)]
    edges: list[int] = []
    for sensitivity in level_sensitivities(n_cells):
        parts = [part for part in parts if part[2] > 1 and part[1] - part[0] > 1]  # else there is nothing to choose
        if not parts:
            break
        groups = [_groups(column, *part) for part in parts]
        starts = np.cumsum([0, *(len(group[0]) for group in groups)])
        after, multiplicity, utilities = (np.concatenate(arrays) for arrays in zip(*groups, strict=True))
        found = exponential(
            utilities,
            starts=starts,
            multiplicity=multiplicity,
            sensitivity=sensitivity,
            epsilon=share,
            random=random,
            magnitude=float(max(column.n_rows, 1)),
            adjacency=ADJACENCY,
        ).values
        cuts = (after[found.group] + 1 + found.member).tolist()
        edges += cuts
        parts = [
            half
            for (low, high, cells), cut in zip(parts, cuts, strict=True)
            for half in ((low, cut, cells // 2), (cut, high, cells - cells // 2))
        ]
    return np.sort(np.array(edges, np.int64))


def _groups(column: _Counts, low: int, high: int, cells: int) -> tuple[Ints, Ints, Floats]:
    """Candidates of a part with equally many values below: the last one before them, how many, and their utility."""
    first, stop = np.searchsorted(column.points, (low, high)).tolist()
    breaks = np.concatenate([[low], column.points[first:stop], [high - 1]])
    below = column.before[first : stop + 1] - column.before[first]
    multiplicity = np.diff(breaks)
    utilities = np.abs(cells * below - cells // 2 * below[-1]) / -cells
    some = multiplicity > 0
    return breaks[:-1][some], multiplicity[some], utilities[some]


def _join(counts: Ints, n_buckets: int, empty: float) -> Ints:
    """Which of the edges between cells stay, by the noisy counts of the cells alone.

    Cells are put together from the left until there is more in them than noise, of which several cells have more. What
    is left over on the right goes to the last of them.
    """
    ends: list[int] = []
    sizes: list[int] = []
    size, n_cells = 0, 0
    for cell, count in enumerate(counts.tolist()):
        size, n_cells = size + count, n_cells + 1
        if max(count, size / math.sqrt(n_cells)) >= max(empty, 1.0):
            ends.append(cell)
            sizes.append(max(size, 1))
            size, n_cells = 0, 0
    if len(ends) <= n_buckets:
        return np.array(ends[:-1], np.int64)
    chosen = np.empty(n_buckets - 1, np.int64)
    sums = np.cumsum(sizes)
    spread_cuts(sums[:-1], int(sums[-1]), chosen)
    return np.array(ends, np.int64)[chosen]
