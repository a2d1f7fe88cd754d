"""How near sums over a lattice are to integrals: the one lemma behind discrete noise, with its numbers.

Write N(x; v) for the density of a Gaussian of variance v at x. Poisson summation gives, for every real c,

    sum over whole k of N(k - c; v)  =  1 + 2 sum_{m >= 1} exp(-2 pi^2 v m^2) cos(2 pi m c)                         (1)

so the left side is within 1 -+ theta(v), theta(v) = 2 sum_{m >= 1} exp(-2 pi^2 v m^2). The discrete Gaussian of
variance parameter v has P(k) = N(k; v) / Z(v), with 1 <= Z(v) <= 1 + theta(v). Three facts follow, each about the
largest |log(P(k) / Q(k))| over ALL whole k, tails included ("log ratio"). Log ratios survive any later processing, and
those of independent coordinates and of successive steps add up.

(2) Sum. X1, X2 independent discrete Gaussians of v1, v2 and a whole number s >= 1. Completing the square,
N(x - s j; v1) N(j; v2) = N(x; v) N(j - c_x; w) with v = v1 + s^2 v2 and w = v1 v2 / v, so by (1)
P(X1 + s X2 = x) = N(x; v) (1 -+ theta(w)) / (Z(v1) Z(v2)). As w < v1, v2, v, the log ratio to the discrete Gaussian of
v is at most -log(1 - theta(w)) + 2 log(1 + theta(w)) <= 4 theta(w), whenever theta(w) <= 1/4.

(3) Several parties. Adding up n discrete Gaussians of v one by one, step k has w = v k / (k + 1): the log ratio of
their sum to ONE discrete Gaussian of n v is at most 4 sum_{k=1}^{n-1} theta(v k / (k + 1)). This is the tau of Kairouz,
Liu and Steinke, "The Distributed Discrete Gaussian Mechanism" (2021), with other constants.

(4) Real noise inside discrete noise. Add real Gaussian noise of variance v - e to a whole number x, giving t; then
output k with probability N(k - t; e) / W(t), where W(t) is the sum (1), within 1 -+ theta(e). The result has
P(k) = integral of N(t - x; v - e) N(k - t; e) / W(t) dt = N(k - x; v) / (1 -+ theta(e)): the log ratio to the discrete
Gaussian of v around x is at most 4 theta(e). So discrete noise of variance v is, up to that ratio, a post-processing of
the REAL Gaussian mechanism of variance v - e, and inherits its whole privacy curve, not just its zCDP.
"""

from __future__ import annotations

import math

ROUNDING_VARIANCE = 5.0625
"""The e of (4), 2.25 squared: theta(e) = 2^-143, while a noise scale of 64 or more loses less than 0.07% of itself."""


def theta(variance: float) -> float:
    """An upper bound for 2 sum_{m >= 1} exp(-2 pi^2 variance m^2), for variances of at least 1/4."""
    first = math.exp(-2.0 * math.pi**2 * variance)
    # The terms fall faster than first^m, hence the geometric series. 2^-1000 stands for what underflows; the factor
    # covers the rounding of this line.
    return max(2.0 * first / (1.0 - first) * (1.0 + 1e-9), 2.0**-1000)


def log_ratio_of_sum(sigma: float, parties: int) -> float:
    """How far the sum of `parties` discrete Gaussians of scale `sigma` is from a single one; see (3)."""
    variance = sigma * sigma
    if parties > 1 and variance / 2.0 < 0.25:
        return math.inf
    total, step = 0.0, 1
    while step < parties:
        term = 4.0 * theta(variance * step / (step + 1))
        if step >= 64:  # the terms fall with each step, so the present one bounds all that are left
            return total + term * (parties - step)
        total += term
        step += 1
    return total


def log_ratio_to_rounded_real() -> float:
    """How far discrete noise is from rounded real noise; see (4)."""
    return 4.0 * theta(ROUNDING_VARIANCE)
