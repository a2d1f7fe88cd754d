"""How epsilon and delta are spent: what is released, in order, with how much noise. All of it is public.

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

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from hedgerow.errors import BudgetExceeded, InvalidParameter
from hedgerow.privacy.accountants import Accountant, GaussianDP, ZeroConcentratedDP
from hedgerow.privacy.calibrate import mu_for, rho_for, sigma_for_mu, sigma_for_rho
from hedgerow.privacy.events import Composed, DiscreteGaussian, Event, NonPrivate, Repeated
from hedgerow.privacy.gumbel import GumbelNoise
from hedgerow.protocols.vertical.private_histograms.job import WINNER, PrivateHistogramsJob

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
    edge_sigma: float = 0.0  # in rows, of one column
    choice: GumbelNoise | None = None  # of a winner, in units of gradients
    survey_sigma: float = 0.0  # in units of gradients, as those after it
    histogram_sigma: float = 0.0
    leaf_sigma: float = 0.0

    @classmethod
    def of(cls, job: PrivateHistogramsJob, gradient_bits: int, error: float, released: Released) -> Spending:
        """For a job; BudgetExceeded if no noise keeps the plan within epsilon and delta.

        Noise is for the most that the job allows: it depends on no number that follows from noisy counts.
        """
        largest = 1 + Fraction(error) + Fraction(1, 1 << gradient_bits)
        spending = cls(job, largest, gradient_bits, released)
        if not job.is_noisy:
            return spending
        whole = _whole(job)
        for _ in range(_TRIES):
            most = spending.with_noise(whole, Released.most(job))
            accountant = most.accountant()
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
        job, is_choice = self.job, self.job.reveal == WINNER
        trees, levels = job.boosting.n_iterations, job.boosting.n_iterations * job.depth
        sigma, largest = _sigma_for(job.reveal), self._units(self.largest_gradient)
        rest = 1.0 - EDGE_SHARE - START_SHARE - (0.0 if is_choice else SURVEY_SHARE)
        splits, leaves = job.split_share * rest * whole, (1.0 - job.split_share) * rest * whole
        noise, survey, histogram = None, 0.0, 0.0
        if is_choice:
            noise = _gumbel(self.largest_gradient, math.sqrt(8.0 * splits / levels), self.gradient_bits)
        else:
            survey = sigma(_over_columns(largest, sum(released.n_columns)), SURVEY_SHARE * whole)
            histogram = sigma(_over_columns(largest, _level_columns(released)), splits / levels)
        return replace(
            self,
            released=released,
            start_sigma=sigma(1.0, START_SHARE * whole),
            edge_sigma=_edge_sigma(job),
            choice=noise,
            survey_sigma=survey,
            histogram_sigma=histogram,
            leaf_sigma=sigma(self._both, leaves / trees),
        )

    def accountant(self) -> Accountant:
        """A new one: for choices zCDP is best, for Gaussian noise alone Gaussian DP."""
        return _accountant(self.job.reveal)

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
        n_columns = sum(self.released.n_columns)
        sensitivity = _over_columns(self._units(self.largest_gradient), n_columns)
        return self._gaussian(sensitivity, self.survey_sigma, self.released.n_bins)

    def histogram_event(self, level: int) -> Event:
        """Of all histograms of a level."""
        sensitivity = _over_columns(self._units(self.largest_gradient), _level_columns(self.released))
        return self._gaussian(sensitivity, self.histogram_sigma, self.released.most_bins << level)

    def choice_event(self) -> Event:
        """Of the winner of a level."""
        if self.choice is None:
            return NonPrivate("no noise was asked for")
        return self.choice.event(sensitivity=self.largest_gradient, n_noises=self.released.n_candidates)

    def level_event(self, level: int) -> Event:
        """Of what is released to split the nodes of a level."""
        return self.choice_event() if self.job.reveal == WINNER else self.histogram_event(level)

    def planned(self) -> Event:
        """All that a run releases."""
        edges = [self._gaussian(1.0, self.edge_sigma, MOST_CELLS * n) for n in self.released.n_columns]
        survey = [] if self.job.reveal == WINNER else [self.survey_event()]
        tree = Composed((*(self.level_event(level) for level in range(self.job.depth)), self.leaf_event()))
        return Composed((*edges, self.start_event(), *survey, Repeated(tree, self.job.boosting.n_iterations)))

    def _gaussian(self, sensitivity: float, sigma: float, coordinates: int) -> Event:
        if not self.job.is_noisy:
            return NonPrivate("no noise was asked for")
        return DiscreteGaussian(sensitivity, sigma, coordinates)

    @property
    def _both(self) -> float:
        """The length of what a row adds to a pair of sums, G and n, in units of gradients; rounded up."""
        square = float(self.largest_gradient**2 + COUNT_UNIT**2)
        return math.sqrt(square) * 2.0**self.gradient_bits * (1.0 + 2.0**-40)

    def _units(self, gradient: Fraction) -> float:
        return float(gradient) * 2.0**self.gradient_bits * (1.0 + 2.0**-40)


class EdgeNoise:
    """Of the counts from which one party's edges follow; known from the job, before anything is sent."""

    def __init__(self, job: PrivateHistogramsJob, n_counted: int) -> None:
        wider = 1.0 + 2.0**-30  # so that rounding never makes it cost more than was planned
        self.sigma = _over_columns(_edge_sigma(job), n_counted) * wider if job.is_noisy else 0.0
        self.n_counted, self._job = n_counted, job

    def event(self) -> Event | None:
        """What they cost; None if there are none. BudgetExceeded if that alone were more than was allowed."""
        if not self.n_counted:
            return None
        if not self.sigma:
            return NonPrivate("no noise was asked for")
        event = DiscreteGaussian(_over_columns(1.0, self.n_counted), self.sigma, MOST_CELLS * self.n_counted)
        accountant = _accountant(self._job.reveal)
        accountant.compose(event)
        if not accountant.delta(self._job.noise) <= self._job.delta:
            raise BudgetExceeded(
                f"{self._job.NAME}: counts of rows alone would cost more than epsilon={self._job.epsilon}"
            )
        return event


def _over_columns(each: float, n_columns: int) -> float:
    """The length of a vector of this many numbers; rounded up."""
    return each * math.sqrt(n_columns) * (1.0 + 2.0**-40)


def _level_columns(released: Released) -> int:
    return min(COLUMNS_PER_LEVEL, sum(released.n_columns))


def _accountant(reveal: str) -> Accountant:
    return ZeroConcentratedDP() if reveal == WINNER else GaussianDP()


def _sigma_for(reveal: str) -> Callable[[float, float], float]:
    """The noise for a sensitivity and what it may cost, in units of `_whole`."""
    return sigma_for_rho if reveal == WINNER else sigma_for_mu


def _whole(job: PrivateHistogramsJob) -> float:
    """What is spent adds up to this: rho of zero-concentrated DP, or the square of mu of Gaussian DP."""
    whole = rho_for(job.noise, job.delta) if job.reveal == WINNER else mu_for(job.noise, job.delta) ** 2
    if whole < _LEAST:
        raise InvalidParameter(
            f"{job.NAME}: epsilon={job.epsilon} and delta={job.delta} ask for more noise than any number holds"
        )
    return whole


def _edge_sigma(job: PrivateHistogramsJob) -> float:
    """Of one column; the share for edges is divided between the holders evenly."""
    return _sigma_for(job.reveal)(1.0, EDGE_SHARE / len(job.holders) * _whole(job))


def _gumbel(largest: Fraction, epsilon: float, gradient_bits: int) -> GumbelNoise:
    """Noise in units of gradients."""
    try:
        return GumbelNoise.for_choice(sensitivity=largest, epsilon=epsilon, grid_bits=gradient_bits)
    except InvalidParameter as problem:
        raise InvalidParameter(
            f"epsilon={epsilon:.3g} for each choice of a split cannot be had: {problem}"
        ) from problem
