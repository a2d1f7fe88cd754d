"""Private selection: the best of a random number of private runs, for a price that does not grow with their number.

A run is a private mechanism whose outcome has a score: draw one of the public settings at random, train with it, say
how good the model is on rows that were set apart, with noise. The same is done K times, independently, and the best
outcome is released, alone. If K were fixed, the best of K would cost K runs. With K drawn from a truncated negative
binomial distribution, and never told, it costs about two or three (Liu and Talwar 2019; Papernot and Steinke 2022).

The distribution D(shape, stop), with c = stop, k = 1, 2, ...:

    P(k) = (1 - c)^k / (c^-shape - 1) * prod over l < k of (l + shape) / (l + 1)        for shape != 0
    P(k) = (1 - c)^k / (k log(1 / c))                                                   for shape = 0 (logarithmic)

shape = 1 is the geometric distribution: after each run, a coin that ends it with chance c.

Theorem 2 of Papernot and Steinke 2022 ("Hyperparameter tuning with Renyi differential privacy", ICLR). If a run has
Renyi DP e1 at order a > 1 and e2 at order b >= 1, the best of K has, at order a,

    e1 + (1 + shape) (1 - 1 / b) e2 + (1 + shape) log(1 / c) / b + log(E K) / (a - 1).

A pure epsilon (a and b without limit) becomes (2 + shape) epsilon. Where a run is rho-zCDP, its Renyi DP is rho times
the order, and the best b is sqrt(log(1 / c) / rho), if that is at least 1. From Renyi DP r at order a follows
(epsilon, delta) with epsilon = r + log((a - 1) / a) - (log delta + log a) / (a - 1) (Canonne, Kamath and Steinke 2020,
proposition 12). Every a and b give a true bound: that the search for the best ones is numerical spoils nothing.

What the theorems ask for, and where it is seen to:

- Runs are independent and alike, given the rows: each draws its setting anew, with replacement. Rows may be set apart
  once for all runs: for any fixed division of the rows the theorem holds, and so for a random one that does not depend
  on what rows hold.
- Outcomes can be put in order. Equal scores: the first of them is taken, which is a random one, since runs are alike.
- K does not depend on the rows, and is not released; nor is how long it took.
- Real samplers are within a statistical distance b of ideal ones in each run, so within E K times b in all, which is
  (1 + e^epsilon) E K b more of delta. For pure runs b is 0.
- K itself is drawn by comparing 128 random bits with sums of P(k) that are right to 2^-128 each; what is beyond the
  last k with a chance above 2^-128 is cut off, m of them at most. With f the generating function of K, the chance of an
  outcome is an integral of f' over chances of one run (their lemma 7), f' >= P(1), and what is drawn instead of K has
  an f' that differs by at most m^2 2^-127, so by a factor within 1 -+ m^2 2^-127 / P(1): below 2^-60 for all that
  `best_of` accepts, and `_KEPT_BACK` of epsilon pays for it.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import NamedTuple

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import check_positive, is_number

MOST_RUNS = 1000.0
"""The largest mean number of runs."""

LARGEST_SHAPE = 10.0

_KEPT_BACK = 1.0 - 2.0**-36
_BITS = 128
_ORDERS = tuple(1.0 + 2.0 ** (k / 8.0) for k in range(-80, 161))


class BestOf(NamedTuple):
    """How many runs there are: the distribution of their number."""

    shape: float
    stop: float

    @property
    def mean(self) -> float:
        """E K."""
        return mean_runs(self.shape, self.stop)

    def draw(self, random: RandomBytes) -> int:
        """A number of runs, from secret randomness."""
        drawn = int.from_bytes(random.bytes(_BITS // 8), "little")
        below = 0
        for runs, chance in enumerate(chances(self.shape, self.stop), 1):
            below += chance
            if drawn < below:
                return runs
        return runs


def best_of(mean: float, shape: float = 0.0) -> BestOf:
    """The distribution with this shape whose mean is `mean`, or a little less."""
    if not is_number(shape) or not 0.0 <= shape <= LARGEST_SHAPE:
        raise InvalidParameter(f"shape must be between 0 and {LARGEST_SHAPE:g}, got {shape!r}")
    if not is_number(mean) or not 1.0 < mean <= MOST_RUNS:
        raise InvalidParameter(
            f"the mean number of runs must be above 1 and at most {MOST_RUNS:g}, got {mean!r}; a single run needs no "
            "selection"
        )
    low, high = 2.0**-60, 1.0 - 2.0**-40  # the mean falls as stop rises
    for _ in range(200):
        middle = math.sqrt(low * high) if low < 0.01 else (low + high) / 2.0
        low, high = (middle, high) if mean_runs(shape, middle) > mean else (low, middle)
    return BestOf(float(shape), high)


def mean_runs(shape: float, stop: float) -> float:
    """E K of D(shape, stop): shape (1 - stop) / (stop (1 - stop^shape)), or (1 / stop - 1) / log(1 / stop)."""
    log_stop = math.log(stop)
    if abs(shape * log_stop) < 1e-9:
        return (1.0 / stop - 1.0) / -log_stop
    return shape * (1.0 - stop) / (stop * -math.expm1(shape * log_stop))


def chances(shape: float, stop: float) -> list[int]:
    """P(1), P(2), ... in units of 2^-128, each rounded down, as long as they are above 0."""
    with localcontext() as exact:
        exact.prec = 70
        eta, c, unit = Decimal(shape), Decimal(stop), Decimal(2) ** _BITS
        first = (1 - c) * eta / (c**-eta - 1) if shape else (1 - c) / -c.ln()
        found, chance, runs = list[int](), first, 1
        while (whole := int(chance * unit)) > 0:
            found.append(whole)
            chance *= (1 - c) * (runs + eta) / (runs + 1)
            runs += 1
    return found


# --- what it costs ---------------------------------------------------------------------------------------------------


def pure_epsilon_of_best(epsilon: float, shape: float) -> float:
    """Of the best of runs that are epsilon-DP each: (2 + shape) epsilon, and what the bits of K cost."""
    return (2.0 + shape) * epsilon / _KEPT_BACK


def epsilon_of_best(rho: float, pure: float, shape: float, stop: float, delta: float, distance: float = 0.0) -> float:
    """Of the best of runs that are rho-zCDP, and `pure`-DP (or infinite), at `delta`; infinite if there is none.

    `distance` is that of one run's samplers to ideal ones.
    """
    simple = pure_epsilon_of_best(pure, shape) if distance == 0.0 else math.inf
    if delta == 0.0:
        return simple
    ideal_delta, epsilon = delta, math.inf
    for _ in range(3):  # what samplers take of delta depends on epsilon
        found = min(
            renyi + math.log1p(-1.0 / a) - math.log(ideal_delta * a) / (a - 1.0)
            for a, renyi in _renyi_of_best(rho, pure, shape, stop)
        )
        epsilon = max(found, 0.0) / _KEPT_BACK
        lost = (1.0 + math.exp(min(epsilon * 1.01, 600.0))) * mean_runs(shape, stop) * distance
        if lost == 0.0:
            break
        if delta <= 2.0 * lost:
            return simple
        ideal_delta = delta - lost
    return min(epsilon, simple)


def delta_of_best(rho: float, best: BestOf, epsilon: float) -> float:
    """The delta of the best of rho-zCDP runs at this epsilon, with ideal samplers: the inverse of `epsilon_of_best`."""
    logs = [
        (a - 1.0) * (renyi + math.log1p(-1.0 / a) - epsilon * _KEPT_BACK) - math.log(a)
        for a, renyi in _renyi_of_best(rho, math.inf, *best)
    ]
    return math.exp(min(*logs, 0.0))


def _renyi_of_best(rho: float, pure: float, shape: float, stop: float) -> list[tuple[float, float]]:
    """Orders, and what theorem 2 says at each."""
    log_stop, log_mean = -math.log(stop), math.log(mean_runs(shape, stop))
    order = max(math.sqrt(log_stop / rho), 1.0)
    by_order = rho * (order - 1.0) + log_stop / order
    more = (1.0 + shape) * min(by_order, pure)
    return [(a, min(rho * a, pure) + more + log_mean / (a - 1.0)) for a in _ORDERS]


def rho_of_runs(epsilon: float, delta: float, best: BestOf) -> float:
    """How much each run may cost, in zCDP, for the best of them to be (epsilon, delta)-DP: the most, or a little less.

    Five per cent of delta are left for samplers.
    """
    check_positive("epsilon", epsilon)
    if not 0.0 < delta < 1.0:
        raise InvalidParameter(f"delta must be above 0 and below 1, got {delta!r}")
    low, high = 0.0, epsilon**2 + epsilon
    for _ in range(100):
        middle = (low + high) / 2.0
        fits = middle > 0.0 and epsilon_of_best(middle, math.inf, *best, 0.95 * delta) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    if low == 0.0:
        raise InvalidParameter(
            f"epsilon={epsilon!r} at delta={delta!r} is too little for any selection; use fewer runs"
        )
    return low


def epsilon_of_runs(epsilon: float, best: BestOf) -> float:
    """The same for pure runs: the epsilon of each."""
    check_positive("epsilon", epsilon)
    return epsilon * _KEPT_BACK * _KEPT_BACK / (2.0 + best.shape)
