"""The shape of a training of grown trees, and how epsilon and delta are spent on it. All of it is public.

What is released, in order, with how much noise:

One row weighs in a sum with its gradient, |g| <= g* (`largest_gradient`: 1, and what the logistic function on shares
may be wrong by), and with 1 where rows are counted. Rows of a level's nodes are disjoint, so a level costs what a node
does.

    edges      rows in the cells of columns          each party by itself; discrete Gaussian noise, sqrt(its columns)
    start      the number of positive rows           discrete Gaussian noise, sensitivity 1
    winner     the best split of all nodes of a      Gumbel noise, utility: sum over nodes of |G_L| + |G_R|
               level
    survey     G of every bin of all columns at      discrete Gaussian noise, g* sqrt(columns): which columns matter
               the first root
    histogram  G of every bin of a few columns       discrete Gaussian noise, g* sqrt(those columns)
    leaves     G and n of each leaf                  discrete Gaussian noise

There are either winners, or a survey and histograms.

**Neighbours.** Two sets of rows are neighbours if one has a row whose values, label included, count for nothing in the
other. How many rows there are is known to all parties (they have matched them), and is not protected.

**Utility of a split.** A row is at one node and goes to one side. There it moves |G| by at most |g| <= g*, up or down,
whatever the split. So all candidates move within an interval of length 2 g*. Half of it is the sensitivity of the
choice: g*. Gains, G^2 / n, would move by up to 4 g*^2 where they are compared with something far smaller: a side's
|G| is n times its mean residual, its gain is n times the square of that.

**One label.** Feature holders may know a row but for its label. If that changes from 0 to 1, a gradient changes by
just 1 and no number of rows does. A sum, or a size of a sum, moves by 1 < g*, less than by a row. So what is proved for
neighbours holds, with the same noise, for another label of one row. (Edges do not depend on labels at all.)

**Why gradients may be used.** That of a row follows from its own label, from released leaf values and its own path
through released splits, and from what was opened under masks, which does not depend on data: from the row itself and
what is public, never from another row.

**Edges before the plan.** Noise of all else is planned when all have told their numbers of columns, edges come before.
So edges have a share of the budget that depends on nothing but the job. Noise sqrt(k) times as large on k columns costs
what noise on one does, or (discrete noise: the wider the better) a little less; the plan counts with the former.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from hedgerow.crypto.compare import Circuit
from hedgerow.crypto.shares import SUM32, SUM64
from hedgerow.crypto.sigmoid import BLOCK, BOUND, FRACTION_BITS, N_SINES, Sigmoid
from hedgerow.crypto.tournament import MAX_GROUP, Select
from hedgerow.crypto.tournament import Plan as Tournament
from hedgerow.engine.dtypes import Ints
from hedgerow.errors import BudgetExceeded, InvalidParameter
from hedgerow.privacy.accountants import Accountant, GaussianDP, ZeroConcentratedDP
from hedgerow.privacy.calibrate import mu_for, rho_for, sigma_for_mu, sigma_for_rho
from hedgerow.privacy.events import Composed, DiscreteGaussian, Event, NonPrivate, Repeated
from hedgerow.privacy.gumbel import GumbelNoise
from hedgerow.protocols.shares.columns import Cuts, Matrices, OfAllColumns, Sizes
from hedgerow.protocols.shares.scales import Bounds
from hedgerow.protocols.vertical.private_histograms.job import WINNER, PrivateHistogramsJob
from hedgerow.transport.frames import MAX_FRAME_BYTES

EDGE_SHARE = 0.05
START_SHARE = 0.02
SURVEY_SHARE = 0.1
COLUMNS_PER_LEVEL = 2
"""Whose histograms are released."""

COUNT_UNIT = Fraction(1, 2)
"""A row counts for half of a largest gradient where both are released together."""

MOST_CELLS = 256
"""Of a column."""

SAFE_SIGMAS = 40
"""Noise is never this many times as large as its scale: the chance is below 2^-1000."""

_A_LITTLE_LESS = 1.0 - 2.0**-20
_TRIES = 200
_LEAST = 2.0**-100


@dataclass(frozen=True)
class Released:
    """Sizes of what is released."""

    n_columns: tuple[int, ...]  # of each holder
    n_candidates: int  # possible splits of a level
    n_bins: int  # of all columns, missing values included
    most_bins: int  # of COLUMNS_PER_LEVEL columns

    @classmethod
    def most(cls, job: PrivateHistogramsJob) -> Released:
        """The largest that a job allows, whoever has which columns and whatever bins noise leaves."""
        n_columns = 0 if job.schema is None else len(job.schema.columns)
        all_columns, codes = n_columns * len(job.holders), job.max_bins + 1
        return cls(
            (n_columns,) * len(job.holders), 2 * job.max_bins * all_columns, codes * all_columns,
            codes * COLUMNS_PER_LEVEL,
        )  # fmt: skip


@dataclass(frozen=True)
class Spending:
    """Noise of each release, and the events that they are. Without noise all sigmas are 0 and `choice` is None."""

    job: PrivateHistogramsJob
    largest_gradient: Fraction  # g*
    gradient_bits: int  # gradients are in units of 2**-gradient_bits
    released: Released
    start_sigma: float = 0.0  # in rows
    choice: GumbelNoise | None = None  # of a winner, in units of gradients
    survey_sigma: float = 0.0  # in units of gradients, as those after it
    histogram_sigma: float = 0.0
    leaf_sigma: float = 0.0

    @classmethod
    def of(cls, job: PrivateHistogramsJob, gradient_bits: int, released: Released) -> Spending:
        """For a job; BudgetExceeded if no noise keeps the plan within epsilon and delta.

        Noise is for the most that the job allows: it depends on no number that follows from noisy counts.
        """
        largest = 1 + Fraction(Sigmoid(1, gradient_bits).error) + Fraction(1, 1 << gradient_bits)
        spending = cls(job, largest, gradient_bits, released)
        if not job.is_noisy:
            return spending
        whole = _whole(job)
        for _ in range(_TRIES):
            most = spending.with_noise(whole, Released.most(job))
            accountant = accountant_of(job)
            accountant.compose(most.planned())
            if accountant.delta(job.noise) <= job.delta:
                return spending.with_noise(whole, released)
            whole *= _A_LITTLE_LESS  # roundings, and what discrete and clipped noise costs beyond what is ideal
        raise BudgetExceeded(
            f"{job.NAME}: no noise was found that keeps what is released within epsilon={job.epsilon} and "
            f"delta={job.delta}"
        )

    def with_noise(self, whole: float, released: Released) -> Spending:
        """The same with noise that costs about this much, for releases of these sizes."""
        job = self.job
        trees, levels = job.boosting.n_iterations, job.boosting.n_iterations * job.depth
        rest = 1.0 - EDGE_SHARE - START_SHARE - (0.0 if job.is_zcdp else SURVEY_SHARE)
        splits, leaves = job.split_share * rest * whole, (1.0 - job.split_share) * rest * whole
        start, leaf = _sigma(job, 1.0, START_SHARE * whole), _sigma(job, self._both, leaves / trees)
        made = replace(self, released=released, start_sigma=start, leaf_sigma=leaf)
        if job.is_zcdp:
            epsilon = math.sqrt(8.0 * splits / levels)
            return replace(made, choice=_gumbel(self.largest_gradient, epsilon, self.gradient_bits))
        survey = _sigma(job, made.sensitivity(math.inf), SURVEY_SHARE * whole)
        return replace(
            made, survey_sigma=survey, histogram_sigma=_sigma(job, made.sensitivity(COLUMNS_PER_LEVEL), splits / levels)
        )

    @property
    def largest_release(self) -> int:
        """No released number is larger with noise, but for a chance of no account; of sums alone it is 2**30."""
        sigma = max(self.start_sigma, self.survey_sigma, self.histogram_sigma, self.leaf_sigma)
        return (1 << 30) + math.ceil(SAFE_SIGMAS * sigma)

    @property
    def count_unit(self) -> int:
        """What a row counts for beside gradients, in their units."""
        return int(COUNT_UNIT * (1 << self.gradient_bits))

    # --- events ------------------------------------------------------------------------------------------------------

    def start_event(self) -> Event:
        """Of the number of positive rows."""
        return self._gaussian(1.0, self.start_sigma, 1)

    def leaf_event(self) -> Event:
        """Of all leaves of a tree."""
        return self._gaussian(self._both, self.leaf_sigma, 2 << self.job.depth)

    def survey_event(self) -> Event:
        """Of the histograms of all columns at the first root."""
        return self._gaussian(self.sensitivity(math.inf), self.survey_sigma, self.released.n_bins)

    def histogram_event(self, level: int) -> Event:
        """Of all histograms of a level."""
        n_sums = self.released.most_bins << level
        return self._gaussian(self.sensitivity(COLUMNS_PER_LEVEL), self.histogram_sigma, n_sums)

    def choice_event(self) -> Event:
        """Of the winner of a level."""
        if self.choice is None:
            return NonPrivate("no noise was asked for")
        return self.choice.event(sensitivity=self.largest_gradient, n_noises=self.released.n_candidates)

    def level_event(self, level: int) -> Event:
        """Of what is released to split the nodes of a level."""
        return self.choice_event() if self.job.reveal == WINNER else self.histogram_event(level)

    def tree_event(self) -> Event:
        """Of all that a tree releases."""
        return Composed((*(self.level_event(level) for level in range(self.job.depth)), self.leaf_event()))

    def releases(self) -> tuple[Event, ...]:
        """All sorts of releases but edges: the start, levels, leaves, and the survey if there is one."""
        survey = [] if self.job.reveal == WINNER else [self.survey_event()]
        return (self.start_event(), *self.tree_event().parts(), *survey)

    def planned(self) -> Event:
        """All that a run releases."""
        sigma = _edge_sigma(self.job)
        edges = [self._gaussian(1.0, sigma, MOST_CELLS * n) for n in self.released.n_columns]
        survey = [] if self.job.reveal == WINNER else [self.survey_event()]
        trees = Repeated(self.tree_event(), self.job.boosting.n_iterations)
        return Composed((*edges, self.start_event(), *survey, trees))

    def _gaussian(self, sensitivity: float, sigma: float, coordinates: int) -> Event:
        if not self.job.is_noisy:
            return NonPrivate("no noise was asked for")
        return DiscreteGaussian(sensitivity, sigma, coordinates)

    @property
    def _both(self) -> float:
        """The length of what a row adds to a pair of sums, G and n, in units of gradients; rounded up."""
        square = float(self.largest_gradient**2 + COUNT_UNIT**2)
        return math.sqrt(square) * 2.0**self.gradient_bits * (1.0 + 2.0**-40)

    def sensitivity(self, most_columns: float) -> float:
        """Of the histograms of all columns, or of this many, in units of gradients; rounded up."""
        each = float(self.largest_gradient) * 2.0**self.gradient_bits * (1.0 + 2.0**-40)
        return _over_columns(each, min(most_columns, sum(self.released.n_columns)))


def edge_sigma(job: PrivateHistogramsJob, n_counted: int) -> float:
    """Noise of the counts from which one party's edges follow: known from the job before anything is sent; 0: none."""
    wider = 1.0 + 2.0**-30  # so that rounding never makes it cost more than was planned
    return _over_columns(_edge_sigma(job), n_counted) * wider if job.is_noisy else 0.0


def edge_event(job: PrivateHistogramsJob, n_counted: int) -> Event | None:
    """What they cost; None if there are none. BudgetExceeded if that alone were more than was allowed."""
    if not n_counted:
        return None
    if not job.is_noisy:
        return NonPrivate("no noise was asked for")
    event = DiscreteGaussian(_over_columns(1.0, n_counted), edge_sigma(job, n_counted), MOST_CELLS * n_counted)
    accountant = accountant_of(job)
    accountant.compose(event)
    if not accountant.delta(job.noise) <= job.delta:
        raise BudgetExceeded(f"{job.NAME}: counts of rows alone would cost more than epsilon={job.epsilon}")
    return event


def _over_columns(each: float, n_columns: float) -> float:
    """The length of a vector of this many numbers; rounded up."""
    return each * math.sqrt(n_columns) * (1.0 + 2.0**-40)


def accountant_of(job: PrivateHistogramsJob) -> Accountant:
    """A new one: for choices zCDP is best, for Gaussian noise alone Gaussian DP."""
    return ZeroConcentratedDP() if job.is_zcdp else GaussianDP()


def _sigma(job: PrivateHistogramsJob, sensitivity: float, cost: float) -> float:
    """The noise for a sensitivity and what it may cost, in units of `_whole`."""
    return (sigma_for_rho if job.is_zcdp else sigma_for_mu)(sensitivity, cost)


def _whole(job: PrivateHistogramsJob) -> float:
    """What is spent adds up to this: rho of zero-concentrated DP, or the square of mu of Gaussian DP."""
    whole = rho_for(job.noise, job.delta) if job.is_zcdp else mu_for(job.noise, job.delta) ** 2
    if whole < _LEAST:
        raise InvalidParameter(
            f"{job.NAME}: epsilon={job.epsilon} and delta={job.delta} ask for more noise than any number holds"
        )
    return whole


def _edge_sigma(job: PrivateHistogramsJob) -> float:
    """Of one column; the share for edges is divided between the holders evenly."""
    return _sigma(job, 1.0, EDGE_SHARE / len(job.holders) * _whole(job))


def _gumbel(largest: Fraction, epsilon: float, gradient_bits: int) -> GumbelNoise:
    """Noise in units of gradients."""
    try:
        return GumbelNoise.for_choice(sensitivity=largest, epsilon=epsilon, grid_bits=gradient_bits)
    except InvalidParameter as problem:
        raise InvalidParameter(
            f"epsilon={epsilon:.3g} for each choice of a split is not available: {problem}"
        ) from problem


# --- the shape -------------------------------------------------------------------------------------------------------

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
    """Of what is dealt, with either policy; those of sizes of sums are `Plan.lane`."""

    COLUMNS, START, GRADIENTS, SUMS, SIDES, LEAVES = "columns", "start", "gradients", "sums", "sides", "leaves"
    SURVEY, HISTOGRAMS, WINNER = "survey", "histograms", "winner"
    SINES, VALUES, NOISE = "sines", "values", "noise"


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
        bits = gradient_bits(job, sizes.n_rows)
        n_cuts = sum(len(Cuts.of(bins, gaps).bin) for bins, gaps in zip(sizes.n_bins, sizes.gaps, strict=True))
        n_codes = sizes.codes
        most_bins = sum(sorted(n_codes)[-COLUMNS_PER_LEVEL:])
        released = Released(tuple(len(bins) for bins in sizes.n_bins), n_cuts, sum(n_codes), most_bins)
        spending = Spending.of(job, bits, released)
        lambda_int = int(job.boosting.l2)
        plan = cls(sizes, job.reveal, job.depth, job.boosting.n_iterations, lambda_int, bits, spending)
        n_bytes = plan.largest_message
        if n_bytes > MAX_FRAME_BYTES - _ROOM:
            raise InvalidParameter(
                f"{job.NAME}: max_depth={plan.depth} with {sizes.n_rows:,} rows needs {n_bytes >> 20:,} MB in one "
                f"message of the dealer, and {MAX_FRAME_BYTES >> 20} MB are available: use less depth or fewer rows"
            )
        Bounds(sizes.n_rows, plan.largest_gradient, spending.count_unit).sum_bits(32)
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
        return min(plans, key=lambda plan: (sum(plan.openings()), plan.groups))

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
    return Spending.of(job, gradient_bits(job, n_rows), Released.most(job)).planned()
