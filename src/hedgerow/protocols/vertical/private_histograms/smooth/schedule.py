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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hedgerow.crypto.shares import SUM32
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.calibrate import mu_for, sigma_for_mu
from hedgerow.privacy.events import Event
from hedgerow.protocols.central.gaussian.recipe import PASSES, Size, orders_of
from hedgerow.protocols.vertical.private_histograms.accounts import event_of
from hedgerow.protocols.vertical.private_histograms.job import SMOOTH, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.smooth.columns import Layout
from hedgerow.protocols.vertical.private_histograms.smooth.series import (
    COARSEST,
    DEALT_ROWS,
    FINEST,
    N_SINES,
    Precision,
    largest_gradient,
    largest_slope,
)
from hedgerow.schema import NumericColumn
from hedgerow.transport.frames import MAX_FRAME_BYTES

COUNTS_SHARE, START_SHARE = 0.05, 0.01
SHARES = {"counts": COUNTS_SHARE, "positives": START_SHARE, "bin_sums": 0.465, "leaf_sums": 0.465, "mean": 0.01}
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
    bits = min((_LARGEST // largest).bit_length() - 1, FINEST)
    if bits < COARSEST:
        raise InvalidParameter(
            f"policy smooth_then_trees: {n_rows:,} rows with the noise of epsilon={epsilon:g} and delta={delta:g} are "
            "too much for sums of 32 bits"
        )
    return Precision.of(bits)


def sensitivity_squared(kind: str, n_columns: int, precision: Precision) -> int:
    """How far one row can move the exact sums, L2 and squared, in their units. `n_columns`: that were counted."""
    if kind == "counts":
        return n_columns * COUNT_UNIT**2
    if kind == "positives":
        return COUNT_UNIT**2
    gradient = largest_gradient(precision) ** 2
    if kind == "bin_sums":
        return gradient
    if kind == "mean":
        return gradient + largest_slope(precision) ** 2
    return gradient + (1 << (precision.bits - ROW_WEIGHT_BITS)) ** 2


@dataclass(frozen=True)
class Schedule:
    """Public, and the same at every party: kinds, noise and sizes of all requests."""

    job: PrivateHistogramsJob
    layout: Layout
    n_rows: int

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
    def n_trees(self) -> int:
        """Requests for sums of leaves."""
        return self.size.n_trees

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

    def mask_rows(self, place: int) -> list[int]:
        """Rows of the masked matrix that each of a party's columns has at most."""
        return [self.caps[j] - 1 for j in self.layout.of(place)]

    # --- requests ----------------------------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The column of each request for sums of bins."""
        orders = orders_of(np.random.default_rng(self.job.boosting.seed), len(self.layout.owners))
        return tuple(feature for order in orders for feature in order)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Of all requests."""
        return ("counts", "positives", *["bin_sums"] * len(self.columns), *["leaf_sums"] * self.n_trees, "mean")

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
            kind: sigma_for_mu(math.sqrt(self.sensitivity_squared(kind)), share * mu_squared / self.kinds.count(kind))
            for kind, share in SHARES.items()
        }

    def sigma(self, kind: str) -> float:
        """The noise of each number in an answer; 0 for none at all."""
        return self._sigmas[kind]

    def sensitivity_squared(self, kind: str) -> int:
        """How far one row can move an answer."""
        return sensitivity_squared(kind, len(self.layout.owners), self.precision)

    def event(self, kind: str, n_sums: int) -> Event:
        """What an answer of this many numbers costs; counts have one for each party (`counts_event`)."""
        return event_of(self.sensitivity_squared(kind), self.sigma(kind), n_sums)

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
        sines = 2 * N_SINES * min(self.n_rows, DEALT_ROWS)
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
