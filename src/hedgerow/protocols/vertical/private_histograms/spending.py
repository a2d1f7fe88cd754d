"""How epsilon and delta are spent: what is released, in order, with how much noise. All of it is public.

One row weighs in a sum with its gradient, |g| <= g* (`largest_gradient`: 1, and what the logistic function on shares
may be wrong by), and with 1 where rows are counted. Rows of a level's nodes are disjoint, so a level costs what a node
does.

    start      the number of positive rows             discrete Gaussian noise, sensitivity 1
    winner     the best split of each node of a level  Gumbel noise, utility G_L^2 / (n_L + l2) + G_R^2 / (n_R + l2)
    histogram  G and n of every bin of every column    discrete Gaussian noise
    leaves     G and n of each leaf                    discrete Gaussian noise

**Neighbours.** Two sets of rows are neighbours if one has a row whose values, label included, count for nothing in the
other. How many rows there are is known to all parties (they have matched them), and is not protected.

**Utility of a split.** A row more on one side changes it by d = (G + g)^2 / (n + 1) - G^2 / n, with |G| <= n g* and
|g| <= g* (n with l2 in it, at least 1). As d is concave in G, it is largest for G = n g, where it is g^2 <= g*^2, and
smallest at an end, G = -+ n g*. There (G + g)^2 is smallest for g = +- g*, since n >= 1: g*^2 (1 - 3 n) / (n + 1),
above -3 g*^2. So all candidates move within an interval of length 4 g*^2. Half of it is the sensitivity of the choice:
2 g*^2.

**One label.** Feature holders may know a row but for its label. If that changes from 0 to 1, a gradient changes by
just 1 and no number of rows does. A sum moves by 1 < g*, less than by a row. The utility of a split moves by
(G + G') / n, for sums G before and G' after, which is within -+ 2 g*: again an interval of length 4 g* <= 4 g*^2. So
what is proved for neighbours holds, with the same noise, for another label of one row.

**Why gradients may be used.** That of a row follows from its own label, from released leaf values and its own path
through released splits, and from what was opened under masks, which does not depend on data: from the row itself and
what is public, never from another row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from hedgerow.errors import BudgetExceeded, InvalidParameter
from hedgerow.privacy.accountants import Accountant, GaussianDP, ZeroConcentratedDP
from hedgerow.privacy.calibrate import mu_for, rho_for, sigma_for_mu, sigma_for_rho
from hedgerow.privacy.events import Composed, DiscreteGaussian, Event, NonPrivate, Repeated
from hedgerow.privacy.gumbel import GumbelNoise
from hedgerow.protocols.vertical.private_histograms.job import WINNER, PrivateHistogramsJob

START_SHARE = 0.02
GRID_BITS = 20
COUNT_UNIT = Fraction(1, 2)
"""A row counts for half of a largest gradient where both are released together."""

SAFE_SIGMAS = 40
"""Noise is never so many times its scale: the chance is below 2^-1000."""

_A_LITTLE_LESS = 1.0 - 2.0**-20
_TRIES = 200
_LEAST = 2.0**-100


@dataclass(frozen=True)
class Released:
    """Sizes of what is released."""

    n_columns: int  # of all holders
    n_candidates: int  # possible splits of a node
    n_bins: int  # of a noisy histogram, the node as a whole included


@dataclass(frozen=True)
class Spending:
    """Noise of each release, and the events that they are. Without noise all sigmas are 0 and `choice` is None."""

    is_noisy: bool
    epsilon: float
    delta: float
    reveal: str
    largest_gradient: Fraction  # g*
    gradient_bits: int  # gradients are in units of 2**-gradient_bits
    n_trees: int
    depth: int
    released: Released
    start_sigma: float = 0.0  # in rows
    choice: GumbelNoise | None = None  # of a winner: units of 2**-(2 gradient_bits - shift)
    shift: int = 0
    histogram_sigma: float = 0.0  # in units of gradients, as the one after it
    leaf_sigma: float = 0.0

    @classmethod
    def of(cls, job: PrivateHistogramsJob, gradient_bits: int, error: float, released: Released) -> Spending:
        """For a job; BudgetExceeded if no noise that can be had keeps the plan within epsilon and delta."""
        spending = cls(
            job.is_noisy,
            job.noise,
            job.delta,
            job.reveal,
            1 + Fraction(error) + Fraction(1, 1 << gradient_bits),
            gradient_bits,
            job.boosting.n_iterations,
            job.depth,
            released,
        )
        if not job.is_noisy:
            return spending
        # What is spent adds up to `whole`: rho of zero-concentrated DP, or the square of mu of Gaussian DP.
        whole = rho_for(job.noise, job.delta) if job.reveal == WINNER else mu_for(job.noise, job.delta) ** 2
        if whole < _LEAST:
            raise InvalidParameter(
                f"{job.NAME}: epsilon={job.epsilon} and delta={job.delta} ask for more noise than any number holds"
            )
        for _ in range(_TRIES):
            planned = spending._with_noise(whole, job.split_share)
            accountant = planned.accountant()
            accountant.compose(planned.planned())
            if accountant.delta(job.noise) <= job.delta:
                return planned
            whole *= _A_LITTLE_LESS  # roundings, and what discrete and clipped noise costs beyond what is ideal
        raise BudgetExceeded(
            f"{job.NAME}: no noise was found that keeps what is released within epsilon={job.epsilon} and "
            f"delta={job.delta}"
        )

    def _with_noise(self, whole: float, split_share: float) -> Spending:
        """The same with noise that costs about so much."""
        trees, levels, is_choice = self.n_trees, self.n_trees * self.depth, self.reveal == WINNER
        sigma = sigma_for_rho if is_choice else sigma_for_mu
        splits = split_share * (1.0 - START_SHARE) * whole
        leaves = (1.0 - split_share) * (1.0 - START_SHARE) * whole
        noise, shift, histogram = None, 0, 0.0
        if is_choice:
            noise, shift = _gumbel(self.largest_gradient, math.sqrt(8.0 * splits / levels), self.gradient_bits)
        else:
            histogram = sigma(self._histogram_sensitivity, splits / levels)
        return Spending(
            self.is_noisy, self.epsilon, self.delta, self.reveal, self.largest_gradient, self.gradient_bits,
            self.n_trees, self.depth, self.released, sigma(1.0, START_SHARE * whole), noise, shift, histogram,
            sigma(self._both, leaves / trees),
        )  # fmt: skip

    def accountant(self) -> Accountant:
        """A new one: for choices zCDP is best, for Gaussian noise alone Gaussian DP."""
        return ZeroConcentratedDP() if self.reveal == WINNER else GaussianDP()

    def require(self, accountant: Accountant) -> None:
        """BudgetExceeded unless what was counted is within epsilon and delta; without noise there is nothing to ask."""
        if self.is_noisy and not accountant.delta(self.epsilon) <= self.delta:
            raise BudgetExceeded(
                f"what was released costs epsilon={accountant.epsilon(self.delta):.6g} at delta={self.delta:g}, which "
                f"is above epsilon={self.epsilon:g}: the run ends here, and no model is kept"
            )

    def spent(self, accountant: Accountant) -> float:
        """Epsilon of all that a party saw released; BudgetExceeded if that is more than was allowed."""
        self.require(accountant)
        return min(accountant.epsilon(self.delta), self.epsilon)  # the search for it is right to some digits

    @property
    def largest_release(self) -> int:
        """No released number is larger with noise, but for a chance of no account; of sums alone it is 2**30."""
        sigma = max(self.start_sigma, self.histogram_sigma, self.leaf_sigma)
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
        return self._gaussian(self._both, self.leaf_sigma, 2 << self.depth)

    def histogram_event(self, level: int) -> Event:
        """Of all histograms of a level."""
        coordinates = (2 << level) * self.released.n_bins
        return self._gaussian(self._histogram_sensitivity, self.histogram_sigma, coordinates)

    def choice_event(self) -> Event:
        """Of the winners of all nodes of a level; a row moves the choice at one of them only."""
        if self.choice is None:
            return NonPrivate("no noise was asked for")
        sensitivity = _change_of_utility(self.largest_gradient)
        return self.choice.event(sensitivity=sensitivity, n_noises=self.released.n_candidates)

    def level_event(self, level: int) -> Event:
        """Of what is released to split the nodes of a level."""
        return self.choice_event() if self.reveal == WINNER else self.histogram_event(level)

    def planned(self) -> Event:
        """All that a run releases."""
        tree = Composed((*(self.level_event(level) for level in range(self.depth)), self.leaf_event()))
        return Composed((self.start_event(), Repeated(tree, self.n_trees)))

    def _gaussian(self, sensitivity: float, sigma: float, coordinates: int) -> Event:
        if not self.is_noisy:
            return NonPrivate("no noise was asked for")
        return DiscreteGaussian(sensitivity, sigma, coordinates)

    @property
    def _both(self) -> float:
        """The length of what a row adds to a pair of sums, G and n, in units of gradients; rounded up."""
        square = float(self.largest_gradient**2 + COUNT_UNIT**2)
        return math.sqrt(square) * 2.0**self.gradient_bits * (1.0 + 2.0**-40)

    @property
    def _histogram_sensitivity(self) -> float:
        """A row is in one bin of every column, and in the node as a whole."""
        return self._both * math.sqrt(self.released.n_columns + 1) * (1.0 + 2.0**-40)


def _change_of_utility(largest: Fraction) -> Fraction:
    return 2 * largest**2


def _gumbel(largest: Fraction, epsilon: float, gradient_bits: int) -> tuple[GumbelNoise, int]:
    """Noise in units of 2**-(2 gradient_bits - shift), of which its scale is at most 2**20: finer ones take longer."""
    sensitivity = _change_of_utility(largest)
    fine = GRID_BITS - math.ceil(math.log2(2.0 * float(sensitivity) / epsilon))
    grid_bits = min(fine, 2 * gradient_bits)
    try:
        noise = GumbelNoise.for_choice(sensitivity=sensitivity, epsilon=epsilon, grid_bits=grid_bits)
    except InvalidParameter as problem:
        raise InvalidParameter(
            f"epsilon={epsilon:.3g} for each choice of a split cannot be had: {problem}"
        ) from problem
    return noise, 2 * gradient_bits - grid_bits
