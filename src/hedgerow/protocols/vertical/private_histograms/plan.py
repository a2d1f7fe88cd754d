"""The shape of a training with vertical.private_histograms, which is public."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hedgerow.crypto import widths
from hedgerow.crypto.limbs import LIMB_BITS, MAX_LIMBS
from hedgerow.crypto.shares import SUM32, SUM64, Kind, limbs_kind
from hedgerow.crypto.sigmoid import BLOCK, Sigmoid
from hedgerow.crypto.tournament import Plan as Tournament
from hedgerow.engine.dtypes import Ints
from hedgerow.errors import FixedPointOverflow, InvalidParameter
from hedgerow.protocols.vertical.on_shares.cuts import Cuts
from hedgerow.protocols.vertical.on_shares.masked_columns import Matrices
from hedgerow.protocols.vertical.on_shares.sizes import Sizes, check_splits
from hedgerow.protocols.vertical.private_histograms.job import WINNER, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.spending import Released, Spending
from hedgerow.protocols.vertical.secret_shared.shape import BLOCK_NODES, MANY_CANDIDATES, thrifty_groups
from hedgerow.transport.frames import MAX_FRAME_BYTES

COLUMNS, START, GRADIENTS, SUMS, SIDES, LEAVES = "columns", "start", "gradients", "sums", "sides", "leaves"
"""Lanes of what is dealt; those of tournaments are `Plan.lane`, of histograms `HISTOGRAMS`."""
HISTOGRAMS = "histograms"

LARGEST_SCORE = 12
"""Scores stay within -+ this, so that the logistic function of shares is right: leaf values are cut to fit."""
SCORE_BITS = 20
"""Scores and leaf values are in units of 2**-SCORE_BITS."""
N_SINES = 12
FINEST = 10
COARSEST = 6
"""Bits of gradients: a thousandth is far below all noise, and narrow numbers are compared quicker."""
_ROOM = 1 << 16  # of a frame, for what is not an array
_MOST_NOISE_BITS = 62  # what fits the dealer's numbers


@dataclass(frozen=True)
class Plan:
    """Sizes of a training, its noise, and what follows."""

    sizes: Sizes
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
        bits = min(FINEST, 30 - (2 * sizes.n_rows - 1).bit_length())
        if bits < COARSEST:
            raise InvalidParameter(f"{job.NAME}: {sizes.n_rows:,} rows are too many for sums of 32 bits")
        n_cuts = sum(len(Cuts.of(bins, gaps).bin) for bins, gaps in zip(sizes.n_bins, sizes.gaps, strict=True))
        released = Released(sum(len(bins) for bins in sizes.n_bins), n_cuts, sum(sizes.bins) + 1)
        spending = Spending.of(job, bits, _sigmoid(1, bits).error, released)
        lambda_int = int(job.boosting.l2)
        plan = cls(sizes, job.reveal, job.depth, job.boosting.n_iterations, lambda_int, bits, spending)
        n_bytes = plan.largest_message
        if n_bytes > MAX_FRAME_BYTES - _ROOM:
            raise InvalidParameter(
                f"{job.NAME}: max_depth={plan.depth} with {sizes.n_rows:,} rows needs {n_bytes >> 20:,} MB in one "
                f"message of the dealer, and {MAX_FRAME_BYTES >> 20} MB can be had: use less depth or fewer rows"
            )
        widths.require_sum_bits(32, sizes.n_rows, plan.largest_gradient, spending.count_unit)
        too_much = spending.largest_release >= 1 << 31 or plan.most_noise.bit_length() > _MOST_NOISE_BITS
        if too_much or (job.reveal == WINNER and plan.comparison_bits > LIMB_BITS * MAX_LIMBS):
            raise InvalidParameter(
                f"{job.NAME}: epsilon={job.epsilon} and delta={job.delta} for {plan.n_trees} trees of depth "
                f"{plan.depth} ask for so much noise that it does not fit the numbers; use more epsilon or fewer trees"
            )
        return plan

    @property
    def n_rows(self) -> int:
        """Rows of the tables."""
        return self.sizes.n_rows

    @property
    def n_holders(self) -> int:
        """Parties with data."""
        return len(self.sizes.n_bins)

    @cached_property
    def matrices(self) -> Matrices:
        """The one-hot matrices of all holders."""
        return Matrices(self.sizes.bins, self.n_rows, SUM32)

    @property
    def n_released_bins(self) -> int:
        """Of a noisy histogram: all bins, and the node as a whole."""
        return self.spending.released.n_bins

    @property
    def largest_gradient(self) -> int:
        """Of a row, in units of 2**-gradient_bits."""
        return math.ceil(self.spending.largest_gradient * (1 << self.gradient_bits))

    @cached_property
    def _cuts_by_holder(self) -> list[Cuts]:
        return [Cuts.of(bins, gaps) for bins, gaps in zip(self.sizes.n_bins, self.sizes.gaps, strict=True)]

    @cached_property
    def cuts(self) -> Cuts:
        """All possible splits."""
        return Cuts.joined(self._cuts_by_holder, self.matrices.bins)

    @property
    def n_candidates(self) -> int:
        """Possible splits of a node."""
        return len(self.cuts.bin)

    @cached_property
    def owner_of_cut(self) -> Ints:
        """The holder of each possible split."""
        return np.repeat(np.arange(self.n_holders), [len(cuts.bin) for cuts in self._cuts_by_holder])

    @cached_property
    def first_cut(self) -> Ints:
        """Each holder's first possible split."""
        return np.cumsum([0, *(len(cuts.bin) for cuts in self._cuts_by_holder[:-1])])

    @property
    def sigmoid(self) -> Sigmoid:
        """Of the scores of all rows."""
        return _sigmoid(self.n_rows, self.gradient_bits)

    # --- winners -----------------------------------------------------------------------------------------------------

    @cached_property
    def most_noise(self) -> int:
        """What noise adds to a gain at most, beginning with 0: noises are moved up by the lowest."""
        choice = self.spending.choice
        return 0 if choice is None else (choice.highest - choice.lowest) << self.spending.shift

    @property
    def comparison_bits(self) -> int:
        """Bits of every difference P_1 Q_2 - P_2 Q_1 of noisy gains, and one for the sign.

        `widths` has the bounds of P and Q without noise: with it, P is larger by at most most_noise Q, whatever splits.
        """
        public = (self.n_rows, self.largest_gradient, 1, self.lambda_int, 0)
        denominator = widths.largest_denominator(self.n_rows, 1, self.lambda_int)
        numerator = widths.largest_numerator(*public) + self.most_noise * denominator
        return max((numerator * denominator).bit_length() + 1, LIMB_BITS)

    @cached_property
    def wide(self) -> Kind:
        """The ring of P and Q: wide enough for every comparison of noisy gains."""
        n_limbs = -(-self.comparison_bits // LIMB_BITS)
        if n_limbs > MAX_LIMBS:
            raise FixedPointOverflow(f"comparisons of noisy gains need {self.comparison_bits} bits")
        return limbs_kind(n_limbs)

    @staticmethod
    def lane(block: int) -> str:
        """The lane of a block's tournament."""
        return f"tournament {block}"

    @staticmethod
    def block_nodes(level: int) -> int:
        """Nodes of a block."""
        return min(BLOCK_NODES, 1 << level)

    def n_blocks(self, level: int) -> int:
        """Blocks of nodes of a level."""
        return (1 << level) // self.block_nodes(level)

    def tournament(self, level: int) -> Tournament:
        """Of a block of nodes."""
        n = self.n_candidates
        groups = thrifty_groups(min(n, MANY_CANDIDATES), self.wide.limbs)
        return Tournament(self.block_nodes(level), n, self.wide.limbs, groups)

    # --- what is dealt -----------------------------------------------------------------------------------------------

    @property
    def largest_message(self) -> int:
        """Bytes that the dealer sends to one party at a time: for rows of the deepest level, or for gradients."""
        sides = 2 * SUM32.number_bytes * self.n_rows << (self.depth - 1)
        sigmoid = self.sigmoid
        sines = 2 * sigmoid.n_sines * SUM64.number_bytes * (self.n_rows // self.n_holders + BLOCK)
        return max(sides, sines + 2 * SUM64.number_bytes * self.n_rows)

    @property
    def n_stages(self) -> int:
        """Of a tree: gradients, its levels, and its leaves."""
        return self.depth + 2

    def n_parcels(self, stage: int) -> int:
        """Messages that the dealer sends to each party: stage 0 is gradients, then levels, then leaves."""
        if stage in {0, self.depth + 1}:
            return 1 if stage else 2
        level = stage - 1
        if self.reveal != WINNER:
            return 2
        return 1 + self.n_blocks(level) * (2 + sum(1 for _ in self.tournament(level).levels()))


def _sigmoid(n_rows: int, bits: int) -> Sigmoid:
    return Sigmoid(n_rows, bound=float(LARGEST_SCORE), fraction_bits=SCORE_BITS, n_sines=N_SINES, result_bits=bits)
