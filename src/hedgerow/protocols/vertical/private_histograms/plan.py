"""The shape of a training with vertical.private_histograms, which is public."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hedgerow.crypto import widths
from hedgerow.crypto.compare import Circuit
from hedgerow.crypto.shares import SUM32, SUM64
from hedgerow.crypto.sigmoid import BLOCK, BOUND, FRACTION_BITS, N_SINES, Sigmoid
from hedgerow.crypto.tournament import MAX_GROUP, Select
from hedgerow.crypto.tournament import Plan as Tournament
from hedgerow.engine.dtypes import Ints
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.events import Event
from hedgerow.protocols.shares.columns import Cuts
from hedgerow.protocols.shares.masked_columns import Matrices
from hedgerow.protocols.shares.sizes import OfAllColumns, Sizes, check_splits
from hedgerow.protocols.vertical.private_histograms.job import WINNER, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.spending import COLUMNS_PER_LEVEL, Released, Spending
from hedgerow.transport.frames import MAX_FRAME_BYTES

LARGEST_SCORE = BOUND
"""Scores stay within -+ this, so that the logistic function of shares is right: leaf values are cut to fit."""
SCORE_BITS = FRACTION_BITS
"""Scores and leaf values are in units of 2**-SCORE_BITS."""
FINEST = 10
COARSEST = 6
"""Bits of gradients: a thousandth is far below all noise, and sums and their noise fit words of 32 bits."""
AT_ONCE = 1 << 16
"""Sums whose sizes are found together: each takes some hundred bytes meanwhile."""
MANY_CANDIDATES = 4096
"""Beyond this many the first groups are chosen from with less that is dealt, and a round more."""
QUICK = Circuit(6, 6)
_ROOM = 1 << 16  # of a frame, for what is not an array


class Lane:
    """Of what is dealt; those of sizes of sums are `Plan.lane`."""

    COLUMNS, START, GRADIENTS, SUMS, SIDES, LEAVES = "columns", "start", "gradients", "sums", "sides", "leaves"
    SURVEY, HISTOGRAMS, WINNER = "survey", "histograms", "winner"


@dataclass(frozen=True)
class Plan(OfAllColumns):
    """Sizes of a training, its noise, and what follows."""

    reveal: str
    depth: int
    n_trees: int
    lambda_int: int
    gradient_bits: int
    spending: Spending

    @classmethod
    def of(cls, job: PrivateHistogramsJob, sizes: Sizes) -> Plan:
        """For the columns of all holders; InvalidParameter, naming epsilon, if noise does not fit the numbers."""
        check_splits(job, sizes)
        bits = gradient_bits(job, sizes.n_rows)
        n_cuts = sum(len(Cuts.of(bins, gaps).bin) for bins, gaps in zip(sizes.n_bins, sizes.gaps, strict=True))
        n_codes = sizes.codes
        most_bins = sum(sorted(n_codes)[-COLUMNS_PER_LEVEL:])
        released = Released(tuple(len(bins) for bins in sizes.n_bins), n_cuts, sum(n_codes), most_bins)
        spending = Spending.of(job, bits, Sigmoid(1, bits).error, released)
        lambda_int = int(job.boosting.l2)
        plan = cls(sizes, job.reveal, job.depth, job.boosting.n_iterations, lambda_int, bits, spending)
        n_bytes = plan.largest_message
        if n_bytes > MAX_FRAME_BYTES - _ROOM:
            raise InvalidParameter(
                f"{job.NAME}: max_depth={plan.depth} with {sizes.n_rows:,} rows needs {n_bytes >> 20:,} MB in one "
                f"message of the dealer, and {MAX_FRAME_BYTES >> 20} MB are available: use less depth or fewer rows"
            )
        widths.require_sum_bits(32, sizes.n_rows, plan.largest_gradient, spending.count_unit)
        if spending.largest_release >= 1 << 31 or plan.largest_utility >= 1 << 31:
            raise InvalidParameter(
                f"{job.NAME}: epsilon={job.epsilon} and delta={job.delta} for {plan.n_trees} trees of depth "
                f"{plan.depth} ask for so much noise that it does not fit the numbers; use more epsilon or fewer trees"
            )
        return plan

    @cached_property
    def matrices(self) -> Matrices:
        """The one-hot matrices of all holders."""
        return Matrices(self.sizes.bins, self.n_rows, SUM32)

    @property
    def largest_gradient(self) -> int:
        """Of a row, in units of 2**-gradient_bits."""
        return math.ceil(self.spending.largest_gradient * (1 << self.gradient_bits))

    @property
    def n_candidates(self) -> int:
        """Possible splits of a level."""
        return len(self.all_cuts.bin)

    @cached_property
    def codes(self) -> list[int]:
        """Bins of each of all columns, missing values included."""
        return self.sizes.codes

    @cached_property
    def bins_of_column(self) -> list[slice]:
        """Where each of all columns has its bins among those of all; all but its last, which is what is left."""
        ends = np.cumsum([n - 1 for n in self.codes]).tolist()
        return [slice(end - n + 1, end) for n, end in zip(self.codes, ends, strict=True)]

    @cached_property
    def column_of_cut(self) -> Ints:
        """The column of each possible split, among all."""
        first = np.cumsum([0, *(len(bins) for bins in self.sizes.n_bins[:-1])])
        return np.asarray(self.all_cuts.column + first[self.owner_of_cut])

    @property
    def sigmoid(self) -> Sigmoid:
        """Of the scores of all rows."""
        return Sigmoid(self.n_rows, self.gradient_bits)

    # --- winners -----------------------------------------------------------------------------------------------------

    @cached_property
    def most_noise(self) -> int:
        """What noise adds to a utility at most, beginning with 0: noises are moved up by the lowest."""
        choice = self.spending.choice
        return 0 if choice is None else choice.highest - choice.lowest

    @property
    def largest_utility(self) -> int:
        """With noise; the sum over nodes of |G_L| + |G_R| is at most that of all rows' |g|."""
        return self.n_rows * self.largest_gradient + self.most_noise

    @staticmethod
    def lane(block: int) -> str:
        """The lane of the sizes of a block's sums."""
        return f"sizes {block}"

    def block_nodes(self, level: int) -> int:
        """Nodes whose sums' sizes are found together."""
        most = max(AT_ONCE // (2 * self.n_candidates), 1)
        return min(1 << (most.bit_length() - 1), 1 << level)

    def n_blocks(self, level: int) -> int:
        """Blocks of nodes of a level."""
        return (1 << level) // self.block_nodes(level)

    def block_sums(self, level: int) -> int:
        """Left and right sums of all possible splits at the nodes of a block."""
        return 2 * self.block_nodes(level) * self.n_candidates

    @cached_property
    def tournament(self) -> Tournament:
        """Of all possible splits of a level: the fewest rounds, and among those the fewest bytes opened.

        There is one contest in a level, not one for each node: what is dealt and opened is little, and rounds count.
        Digits of 6 bits make comparisons of utilities, whole numbers of 32 bits, take two rounds.
        """
        n, n_levels = self.n_candidates, 1
        while MAX_GROUP**n_levels < n:
            n_levels += 1
        sizes = itertools.combinations_with_replacement(range(2, MAX_GROUP + 1), n_levels)
        select: tuple[Select, ...] = ("table",) if n <= MANY_CANDIDATES else ("lean", "table")
        plans = [Tournament(1, n, 1, groups, select, QUICK) for groups in sizes if math.prod(groups) >= n]
        return min(plans, key=lambda plan: (plan.opened_bytes(), plan.groups))

    # --- what is dealt -----------------------------------------------------------------------------------------------

    @property
    def largest_message(self) -> int:
        """Bytes that the dealer sends to one party at a time: for rows of the deepest level, or for gradients."""
        sides = 2 * SUM32.number_bytes * self.n_rows << (self.depth - 1)
        sines = 2 * N_SINES * SUM64.number_bytes * (self.n_rows // self.n_holders + BLOCK)
        return max(sides, sines + 2 * SUM64.number_bytes * self.n_rows)

    @property
    def n_stages(self) -> int:
        """Of a tree: gradients, its levels, and its leaves."""
        return self.depth + 2

    def n_parcels(self, tree: int, stage: int) -> int:
        """Messages that the dealer sends to each party: stage 0 is gradients, then levels, then leaves."""
        if stage in {0, self.depth + 1}:
            return 1 if stage else 2
        if self.reveal != WINNER:
            return 3 if self.has_survey(tree, stage - 1) else 2
        return 1 + self.n_blocks(stage - 1) + 1 + sum(1 for _ in self.tournament.levels())

    def has_survey(self, tree: int, level: int) -> bool:
        """Whether histograms of all columns are released here."""
        return self.reveal != WINNER and tree == 0 and level == 0


def gradient_bits(job: PrivateHistogramsJob, n_rows: int) -> int:
    """How fine gradients are, so that sums of this many rows fit."""
    bits = min(FINEST, 30 - (2 * n_rows - 1).bit_length())
    if bits < COARSEST:
        raise InvalidParameter(f"{job.NAME}: {n_rows:,} rows are too many for sums of 32 bits")
    return bits


def most_spent(job: PrivateHistogramsJob, n_rows: int) -> Event:
    """All that a run can release, whatever columns and bins there are."""
    bits = gradient_bits(job, n_rows)
    return Spending.of(job, bits, Sigmoid(1, bits).error, Released.most(job)).planned()
