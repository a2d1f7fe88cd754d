"""What is asked for, in which order and with how much noise: all of it follows from the job and from public sizes.

    request          1        2           3 ...             ...           the last
    kind             counts   positives   bin_sums          leaf_sums     mean
    how many         1        1           10 per column     trees         1
    of which column                       by a public seed  as released sums say, which the dealer is not told

The dealer knows the noise of what it never sees. Whatever depends on released sums would let it take the noise off, so
it is told sizes and nothing else, and by every party with data: it refuses sizes that differ. It deals for the most
that can be asked for (`caps` bins of a column, every way in which the levels of a tree can be divided between parties),
and parties use what they need. Parties check each request of the label holder against the same schedule.

Numbers of trees and their depth are those of a task of this many rows of which one in ten is positive
(`ASSUMED_POSITIVE`): how many there are is not known before they were counted with noise.

The questions are those of the recipe of `central.gaussian`, with columns of a row that are with several parties. All
that differs from rows of one owner:

    stage 0    each party counts its own columns, without labels, and the number of positive rows is one number more:
               bins cost less so, and the number of rows is known to all
    stages     sums of gradients alone over the bins of a column, whose rows are known from stage 0 well enough; sums of
    1 and 2    gradients and numbers of rows in leaves. A row's hessian is that of the start, p0 (1 - p0)
    clip       there is none: |y - p| <= g*, 1 and what the series on shares can be wrong by (`series`)
    trees      as many as the schedule has, which does not know how many rows are positive

**One label.** Feature holders may know a row but for its label. If that changes, y - p changes by just 1, which is less
than g*, the number of positive rows by 1, and nothing else does: what is proved for a row that counts for nothing holds
for another label of one row, with the same noise. A clip at tau < 1 would break this: a label would move a gradient by
up to 1, and a row by tau only.

**What it costs.** On six public datasets, mean test AUC over three splits at epsilon 1, 2, 4 and 8, simulated: .8663
.8707 .8746 .8764; true hessians instead .8659 .8709 .8746 .8758; a clip at .6 or .75 as in the recipe, which protects
labels less, .8687 .8725 .8754 .8764; rows of one owner .8688 .8727 .8747 .8764.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hedgerow.crypto.shares import SUM32
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.calibrate import mu_for, sigma_for_mu
from hedgerow.privacy.events import Event
from hedgerow.protocols.central.gaussian.recipe import MEAN_CLIP, PASSES, Learned, Recipe, Size, orders_of
from hedgerow.protocols.central.gaussian.requests import AnyKind, SumRequest, event_of
from hedgerow.protocols.central.gaussian.tables import Bins
from hedgerow.protocols.vertical.private_histograms.columns import NOISES_PER_BIN, Layout, merged_at_most
from hedgerow.protocols.vertical.private_histograms.job import SMOOTH, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.smooth import series
from hedgerow.protocols.vertical.private_histograms.smooth.series import Precision
from hedgerow.schema import NumericColumn
from hedgerow.transport.frames import MAX_FRAME_BYTES

SHARES = {"counts": 0.05, "positives": 0.01, "bin_sums": 0.465, "leaf_sums": 0.465, "mean": 0.01}
"""Of the squared mu."""

COUNT_UNIT = 1 << 8
"""Fixed point of counts: noise must be wide in whole numbers."""

ROW_WEIGHT_BITS = 2
"""A row counts for 2**-ROW_WEIGHT_BITS beside its gradient in sums of leaves."""

ASSUMED_POSITIVE = 0.1
"""The share of positive rows that the number of trees is made for. Mean test AUC of three splits at epsilon 1 and 4,
against a number that follows from the noisy count: see docs/decisions/0021."""

MOST_TREES = 800
SAFE_SIGMAS = 40
_LARGEST_GRADIENT = 9 / 8  # with all rounding, at the coarsest
_LARGEST = 1 << 31
_ROOM = 1 << 16  # of a frame, for what is not an array


def precision_for(n_rows: int, n_columns: int, epsilon: float, delta: float) -> Precision:
    """As many bits as leave every sum, with its noise, within 32; InvalidParameter if there are too few."""
    mu_squared = mu_for(epsilon, delta) ** 2
    rounds = max(PASSES * n_columns, MOST_TREES)
    noise = 0.0 if math.isinf(mu_squared) else 1.25 * math.sqrt(rounds / (SHARES["leaf_sums"] * mu_squared))
    largest = math.ceil(_LARGEST_GRADIENT * n_rows + SAFE_SIGMAS * noise)
    bits = min((_LARGEST // largest).bit_length() - 1, series.FINEST)
    if bits < series.COARSEST:
        raise InvalidParameter(
            f"policy smooth_then_trees: {n_rows:,} rows with the noise of epsilon={epsilon:g} and delta={delta:g} are "
            "too much for sums of 32 bits"
        )
    return Precision.of(bits)


@dataclass(frozen=True)
class Schedule:
    """Public, and the same at every party: kinds, noise and sizes of all requests."""

    job: PrivateHistogramsJob
    layout: Layout
    n_rows: int
    n_trees_left_out: int = 0  # attempts that broke off have spent what they would cost
    has_mean: bool = True

    @classmethod
    def of(cls, job: PrivateHistogramsJob, layout: Layout, n_rows: int) -> Schedule:
        """InvalidParameter if noise or rows do not fit the numbers, or a tree does not fit a message."""
        made = cls(job, layout, n_rows)
        largest = made.largest_message
        if largest > MAX_FRAME_BYTES - _ROOM:
            raise InvalidParameter(
                f"{job.NAME}: policy={SMOOTH!r} with {n_rows:,} rows of {made.n_holders} parties needs "
                f"{largest >> 20:,} MB in one message of the dealer, and {MAX_FRAME_BYTES >> 20} MB is the most: use "
                "fewer rows, or policy='grown_trees'"
            )
        return made

    @cached_property
    def precision(self) -> Precision:
        """Of gradients."""
        return precision_for(self.n_rows, len(self.layout.owners), self.job.noise, self.job.delta)

    # --- sizes -------------------------------------------------------------------------------------------------------

    @cached_property
    def size(self) -> Size:
        """Of the task: trees and depth."""
        return Size.of_task("logistic", float(self.n_rows), ASSUMED_POSITIVE, mu_for(self.job.noise, self.job.delta))

    @property
    def n_holders(self) -> int:
        """Parties with data."""
        return len(self.job.holders)

    @property
    def depth(self) -> int:
        """Levels of every tree."""
        return min(self.size.depth, len(self.layout.owners))

    @cached_property
    def caps(self) -> tuple[int, ...]:
        """Bins of each column at most: `max_bins` of values of a number; levels and gaps have bins of their own."""
        return tuple(
            min(cells - column.may_be_missing, self.job.max_bins) + column.may_be_missing
            if isinstance(column, NumericColumn)
            else cells
            for column, cells in zip(self.layout.schema.columns, self.layout.n_cells, strict=True)
        )

    # --- requests ----------------------------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The column of each request for sums of bins."""
        orders = orders_of(np.random.default_rng(self.job.boosting.seed), len(self.layout.owners))
        return tuple(feature for order in orders for feature in order)

    @property
    def n_trees(self) -> int:
        """That are asked for."""
        return self.size.n_trees - self.n_trees_left_out

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Of all requests."""
        trees, mean = ["leaf_sums"] * self.n_trees, ["mean"] * self.has_mean
        return ("counts", "positives", *["bin_sums"] * len(self.columns), *trees, *mean)

    def shortened(self, n_requests: int) -> Schedule:
        """The same with so many requests, which it has to itself: each tree that is left out is one less."""
        return replace(self, n_trees_left_out=self.n_trees_left_out + len(self.kinds) - n_requests)

    def column(self, number: int) -> int:
        """Of request `number`, from 1, which is for sums of bins."""
        return self.columns[number - 3]

    def update(self, number: int) -> str:
        """What happens to scores before request `number` is answered."""
        kind, first_tree = self.kinds[number - 1], 3 + len(self.columns)
        if kind in ("counts", "positives"):
            return "none"
        if kind == "bin_sums":
            return "start" if number == 3 else "table"
        return "tables" if number == first_tree else "leaves"

    @cached_property
    def _sigmas(self) -> dict[str, float]:
        mu_squared = mu_for(self.job.noise, self.job.delta) ** 2
        return {
            kind: sigma_for_mu(
                math.sqrt(self.sensitivity_squared(kind)),
                share * mu_squared / {"bin_sums": len(self.columns), "leaf_sums": self.size.n_trees}.get(kind, 1),
            )
            for kind, share in SHARES.items()
        }

    def sigma(self, kind: str) -> float:
        """The noise of each number in an answer; 0 for none at all."""
        return self._sigmas[kind]

    def sensitivity_squared(self, kind: str) -> int:
        """How far one row can move the exact sums, L2 and squared, in their units."""
        gradient, bits = series.largest_gradient(self.precision) ** 2, self.precision.bits
        return {
            "counts": len(self.layout.owners) * COUNT_UNIT**2,
            "positives": COUNT_UNIT**2,
            "bin_sums": gradient,
            "leaf_sums": gradient + (1 << (bits - ROW_WEIGHT_BITS)) ** 2,
            "mean": gradient + series.largest_slope(self.precision) ** 2,
        }[kind]

    def event(self, kind: str, n_sums: int) -> Event:
        """What an answer of this many numbers costs; counts have one for each party (`counts_event`)."""
        return event_of(self.sensitivity_squared(kind), self.sigma(kind), n_sums)

    def largest_event(self, number: int) -> Event:
        """What request `number` costs at most, whatever bins there are."""
        kind = self.kinds[number - 1]
        n_sums = self.caps[self.column(number)] if kind == "bin_sums" else {"leaf_sums": 2 << self.depth}.get(kind, 2)
        return self.event(kind, n_sums)

    def counts_event(self, place: int) -> Event:
        """What a party's noisy counts cost."""
        theirs = self.layout.of(place)
        n_cells = sum(self.layout.n_cells[j] for j in theirs)
        return event_of(len(theirs) * COUNT_UNIT**2, self.sigma("counts"), n_cells)

    # --- what is dealt -----------------------------------------------------------------------------------------------

    @cached_property
    def expansions(self) -> list[tuple[int, int]]:
        """(ways, vectors) at most, for each party of a tree but the last; see `groups`."""
        return expansions_of(min(self.n_holders, self.depth), self.depth)

    @property
    def most_shared(self) -> int:
        """Levels of a tree that the party with most of them may leave to others."""
        return self.depth - -(-self.depth // self.n_holders)

    @property
    def largest_message(self) -> int:
        """Bytes that the dealer sends to one party at a time, at most."""
        expanded = max(((ways - 1) * vectors * self.n_rows for ways, vectors in self.expansions), default=0)
        values = self.most_shared * self.n_holders * self.n_rows
        sines = 2 * series.N_SINES * min(self.n_rows, series.DEALT_ROWS)
        return max(expanded, values, sines) * SUM32.number_bytes


def expansions_of(n_groups: int, depth: int) -> list[tuple[int, int]]:
    """For at most `n_groups` parties of a tree, those with fewest levels first: (ways, vectors before) at most."""
    found = []
    for position in range(n_groups - 1):
        # those before have at least one level each and not more than this one; one or more come after
        most = [
            (levels, before)
            for before in range(position, depth)
            for levels in range(1, depth)
            if before <= position * levels and levels <= depth - before - levels
        ]
        if not most:
            break
        ways = 1 << max(levels for levels, _ in most)
        vectors = 1 if not position else 2 << max(before for _, before in most)
        found.append((ways, vectors))
    return found


# --- questions -------------------------------------------------------------------------------------------------------


class SharedRecipe(Recipe):
    """Asks for sums that are computed on shares; see `holder` for who answers."""

    def __init__(self, schedule: Schedule) -> None:
        """The schema is that of all parties' columns together; the seed is public."""
        job = schedule.job
        super().__init__(schedule.layout.schema, epsilon=job.noise, delta=job.delta, seed=job.boosting.seed)
        self.precision = schedule.precision
        self._schedule = schedule
        self.shares = tuple(SHARES.values())
        self._kind = ""  # of the last request
        self._mass: Floats = np.empty(0)  # of the column's bins
        self._bins: list[Bins] = []
        self._hessian = 0.25  # of a row at the start

    # --- stages ------------------------------------------------------------------------------------------------------

    def stage_0(self) -> Generator[SumRequest, Ints, Learned]:
        """Noisy counts of cells and the noisy number of positive rows: bins, base score, size of the task."""
        n_rows = float(self._schedule.n_rows)
        cells = yield self.request("counts", sum(self.cells), self.shares[0], 1)
        noise = self.noise / COUNT_UNIT
        positives = yield self.request("positives", 1, self.shares[1], 1)
        share = min(max(float(positives[0]) / COUNT_UNIT, 1.0), n_rows - 1.0) / n_rows
        start = self.start_of_classes(np.array([share, 1.0 - share]), n_rows)
        start.size = self._schedule.size
        target = max(n_rows / self._schedule.job.max_bins, NOISES_PER_BIN * noise)
        parts = np.split(cells / COUNT_UNIT, np.cumsum(self.cells)[:-1])
        for column, cap, part in zip(self.schema.columns, self._schedule.caps, parts, strict=True):
            ordered = len(part) - column.may_be_missing if isinstance(column, NumericColumn) else 0
            start.bins.append(merged_at_most(cap, part, ordered, target, 1.05))
        self._bins, self._hessian = start.bins, float(start.hessians[0])
        return start

    def trees_asked(self, size: Size) -> int:  # noqa: ARG002 - as of all
        """Those that the schedule has."""
        return self._schedule.n_trees

    def stage_3(self, start: Learned, last_leaves: Floats) -> Generator[SumRequest, Ints, Floats]:
        """The last step of the base score, with gradients that are not clipped and true hessians."""
        if not self._schedule.has_mean:
            return np.zeros(1)
        sums = yield self.request(
            "mean", 2, self.shares[4], 1, MEAN_CLIP[self.loss], update="leaves", update_values=last_leaves[0]
        )
        gradients, hessians = self.gradients(sums)
        return self.shift(start, gradients[:, 0], hessians[:, 0])

    # --- pieces ------------------------------------------------------------------------------------------------------

    def request(
        self, kind: AnyKind, n_sums: int, share: float, rounds: int, clip: float = 0.0, **fields: Any
    ) -> SumRequest:
        """One of `rounds` requests that have `share` of the budget together; gradients are as they are (`clip`)."""
        del clip
        self._kind = kind
        if kind == "bin_sums":
            n_sums //= 2  # gradients alone
            self._mass = self._bins[int(fields["features"][0])].mass
        return super().request(kind, n_sums, share, rounds, **fields)

    def sensitivity_squared(self, kind: AnyKind, clip: int, fields: dict[str, Any]) -> int:  # noqa: ARG002 - as of all
        """How far one row can move the answer to a request."""
        return self._schedule.sensitivity_squared(kind)

    def gradients(self, sums: Ints) -> tuple[Floats, Floats]:
        """Noisy sums of minus gradients and of hessians, each [1, positions]."""
        numbers = np.ldexp(sums.astype(np.float64), -self.precision.bits)[np.newaxis]
        if self._kind == "bin_sums":
            return numbers, (self._mass * self._hessian)[np.newaxis]
        second = 1.0 if self._kind == "mean" else self._hessian * 2.0**ROW_WEIGHT_BITS
        return numbers[:, 0::2], numbers[:, 1::2] * second

    def meta(self, start: Learned) -> dict[str, Any]:
        """What the model file says about the training."""
        meta = super().meta(start)
        del meta["clips"], meta["n_rows_estimate"]  # there is none, and it is known
        return meta | {"n_trees": self._schedule.n_trees}

    @property
    def gradient_noise(self) -> float:
        """Standard deviation of the noise in what `gradients` made of the last sums."""
        return math.ldexp(self.noise, -self.precision.bits)

    @property
    def hessian_noise(self) -> float:
        """Standard deviation of the noise in the last hessians of leaves."""
        return self.gradient_noise * self._hessian * 2.0**ROW_WEIGHT_BITS
