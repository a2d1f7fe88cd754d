"""Tables: bins merged from noisy cells, and one-feature functions over them, smoothed as noise demands.

Everything here is arithmetic on released numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.dtypes import Bytes, Floats, Ints

RIDGE = 1.0
"""Prior precision of each bin's value in a numeric feature."""

LEVEL_VARIANCE = 0.25
"""Prior variance of a level's value in a categorical feature, before the feature has shown how much it matters."""

LEVELS_WORTH = 2.0
"""That prior variance counts as much as so many well known levels."""

TREND_VARIANCE = 6.0
"""Prior variance of a straight line's rise from the first to the last row, of all numeric features together."""

SMOOTHNESS = 1.0 / 6.0
"""Prior precision of a step between neighbouring bins, per bin of the feature and per numeric feature."""

FEWEST, MOST = 3, 18
"""Numbers of numeric features beyond which the prior does not follow."""

LEARNING_RATE = 0.25


@dataclass(frozen=True, eq=False)
class Bins:
    """How the cells of one feature are put together."""

    of_cell: Bytes
    """[256]: the bin of each cell."""
    n_bins: int
    n_ordered: int
    """The first bins, which have neighbours: those of values of a numeric feature; 0 for a categorical one."""
    mass: Floats
    """Noisy number of rows per bin, at least 1."""

    @property
    def share(self) -> Floats:
        """`mass` as shares of all."""
        shares: Floats = self.mass / self.mass.sum()
        return shares


def merged(counts: Floats, *, n_ordered: int, target: float) -> Bins:
    """Bins of about `target` rows each from noisy counts per cell.

    The first `n_ordered` cells are merged from left to right; the others (levels, missing) stay as they are.
    """
    of_cell = np.zeros(256, np.uint8)
    bin_, held = 0, 0.0
    for cell in range(n_ordered):
        # A cell that fills a bin alone, as a popular value does, is not mixed with what came before it.
        if held > 0.0 and counts[cell] >= target and held >= 0.3 * target:
            bin_, held = bin_ + 1, 0.0
        of_cell[cell] = bin_
        held += counts[cell]
        if held >= target and cell < n_ordered - 1:
            bin_, held = bin_ + 1, 0.0
    if held < 0.5 * target and bin_ > 0:
        of_cell[:n_ordered][of_cell[:n_ordered] == bin_] = bin_ - 1
        bin_ -= 1
    values = bin_ + 1 if n_ordered else 0
    n_others = len(counts) - n_ordered
    of_cell[n_ordered : len(counts)] = np.arange(values, values + n_others)
    mass = np.bincount(of_cell[: len(counts)], counts, values + n_others)
    return Bins(of_cell, values + n_others, values, np.maximum(mass, 1.0))


@dataclass(eq=False)
class FeatureTable:
    """The function of one feature that is being learned, and its running estimate of hessians."""

    bins: Bins
    hessians: Floats
    n_numeric: int
    """Numeric features, this one or not: the more of them make up a score, the less is expected of each."""
    values: Floats = field(init=False)
    line: Floats = field(init=False)
    """The rank of each ordered bin's middle row, from -1/2 to 1/2, as far as noisy counts tell; 0 for other bins."""
    _updates: int = 0

    def __post_init__(self) -> None:
        self.values = np.zeros(self.bins.n_bins)
        self.line = np.zeros(self.bins.n_bins)
        ordered = self.bins.mass[: self.bins.n_ordered]
        self.line[: len(ordered)] = (np.cumsum(ordered) - 0.5 * ordered) / max(float(ordered.sum()), 1.0) - 0.5

    def update(self, gradients: Floats, hessians: Floats, noise_variance: float) -> Floats:
        """Take noisy sums per bin into account; what was added to the values, per bin.

        The step solves (w H + K) d = w G - K f with the prior precision K, so that the whole function f is shrunk and
        smoothed, not the step alone. `noise_variance` is that of the gradients over the whole stage: w = H / (H + it)
        trusts a bin as far as its information outweighs all the noise it will ever get.

        Levels share one prior variance, estimated from those that are known so far: the levels of a feature that does
        not matter are held near 0, those of one that does are set free.
        """
        keep = max(1.0 / (self._updates + 2.0), 0.1)
        self._updates += 1
        self.hessians = (1.0 - keep) * self.hessians + keep * hessians
        known = np.maximum(self.hessians, 1.0)
        trust = known / (known + noise_variance)
        step = np.empty(self.bins.n_bins)
        together = min(max(self.n_numeric, FEWEST), MOST)
        _smooth_step(
            trust * known, trust * gradients, self.values, self.bins.n_ordered, self._ridge(trust * known),
            SMOOTHNESS * together, self.line, TREND_VARIANCE / together, step,
        )  # fmt: skip
        step *= LEARNING_RATE
        self.values = self.values + step
        return step

    def _ridge(self, information: Floats) -> float:
        """Prior precision of each value: fixed for numeric features, learned for categorical ones."""
        if self.bins.n_ordered:
            return RIDGE
        well_known = np.minimum(information, 1.0)
        squares = LEVELS_WORTH * LEVEL_VARIANCE + well_known @ self.values**2
        return float((LEVELS_WORTH + well_known.sum()) / squares)


@kernel
def _smooth_step(
    information: Any, pull: Any, values: Any, n_ordered: int, ridge: float, smoothness: float, line: Any, trend: float,
    step: Any,
) -> None:  # fmt: skip
    """Solve (diag(information) + K) step = pull - K values.

    K is the precision of a sum of two independent functions: K^-1 = T^-1 + trend * line line'. T is `ridge` on the
    diagonal, plus for neighbouring ordered bins a random walk whose steps have Student-t weights with one degree of
    freedom, so that a jump which the data insist on is not smoothed away:
    q = 2 / (1 / (smoothness * n_ordered) + (f[i+1] - f[i])^2).
    The straight line is the part that many bins agree on, so it may be known where no single bin is. With
    u = T line, K = T - u u' / (1 / trend + line' u): tridiagonal but for one rank, which costs a second right side.
    """
    n = len(values)
    diagonal = np.empty(n)
    right = np.empty(n)
    beside = np.zeros(n)  # the entry between i and i + 1
    bent = ridge * line  # u
    for i in range(n):
        diagonal[i] = information[i] + ridge
        right[i] = pull[i] - ridge * values[i]
    for i in range(n_ordered - 1):
        rise = values[i + 1] - values[i]
        q = 2.0 / (1.0 / (smoothness * n_ordered) + rise * rise)
        diagonal[i] += q
        diagonal[i + 1] += q
        beside[i] = -q
        right[i] += q * rise
        right[i + 1] -= q * rise
        slope = q * (line[i + 1] - line[i])
        bent[i] -= slope
        bent[i + 1] += slope
    scale = 1.0 / trend + np.sum(bent * line)
    right += bent * (np.sum(bent * values) / scale)
    # Elimination forwards, substitution backwards, for both right sides; T is positive definite, so no pivot is 0.
    other = bent.copy()
    for i in range(1, n):
        factor = beside[i - 1] / diagonal[i - 1]
        diagonal[i] -= factor * beside[i - 1]
        right[i] -= factor * right[i - 1]
        other[i] -= factor * other[i - 1]
    step[n - 1] = right[n - 1] / diagonal[n - 1]
    other[n - 1] /= diagonal[n - 1]
    for i in range(n - 2, -1, -1):
        step[i] = (right[i] - beside[i] * step[i + 1]) / diagonal[i]
        other[i] = (other[i] - beside[i] * other[i + 1]) / diagonal[i]
    # Sherman and Morrison. The divisor is at least 1 / trend: with D = diag(information), T (D + T)^-1 T <= T.
    step += other * (np.sum(bent * step) / (scale - np.sum(bent * other)))


def spread(table: Floats, bins: Bins) -> float:
    """Standard deviation of a table's values over the rows, as far as noisy counts tell."""
    mean = float(bins.share @ table)
    return float(np.sqrt(bins.share @ (table - mean) ** 2))


def order_of(table: Floats, bins: Bins) -> Ints:
    """Bins of values from low to high: by value of the column, or for levels by their effect."""
    if bins.n_ordered:
        return np.arange(bins.n_ordered)
    return np.argsort(table, kind="stable")


def split_shares(table: Floats, bins: Bins) -> Floats:
    """How much a random threshold should care for each bin in `order_of`: mass, and where the table is steep."""
    order = order_of(table, bins)
    weights: Floats = bins.mass[order] / bins.mass[order].sum()
    if len(order) > 1:
        steep = np.abs(np.gradient(table[order]))
        if steep.sum() > 0.0:
            weights = 0.7 * weights + 0.3 * steep / steep.sum()
    return weights


def padded(tables: Sequence[Floats]) -> Floats:
    """Tables as rows of [features, 256], zeros behind their bins."""
    out = np.zeros((len(tables), 256))
    for row, table in zip(out, tables, strict=True):
        row[: len(table)] = table
    return out
