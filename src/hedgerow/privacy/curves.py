"""Privacy curves: delta as a function of epsilon, for pure mechanisms and the two families of Gaussian noise.

Each is an upper bound also in floating point: where terms are subtracted, the rounding goes against us.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_ROUNDING = 2.0**-40
"""More than the relative error of erfc, exp and a few operations, by a factor of thousands."""


_TINY = 2.0**-1000
"""Stands for what underflows: these curves never reach 0, and no epsilon may be claimed at delta = 0."""


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The delta of the Gaussian mechanism with sensitivity / noise = mu, at this epsilon.

    Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2): Balle and Wang 2018, theorem 8; as the curve of mu-GDP,
    Dong, Roth and Su 2022, corollary 2.13. It is exact, so no accountant of Gaussian noise can do better.
    """
    if mu == 0.0:
        return 0.0
    gained = _tail(epsilon / mu - mu / 2.0) * (1.0 + _ROUNDING)
    if epsilon > 600.0:  # e^epsilon overflows soon; without the second term the bound still holds
        return min(max(gained, _TINY), 1.0)
    lost = math.exp(epsilon) * _tail(epsilon / mu + mu / 2.0) * (1.0 - _ROUNDING)
    return min(max(gained - lost, _TINY), 1.0)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """The delta of any rho-zCDP mechanism at this epsilon.

    min over alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha - 1): Canonne, Kamath and
    Steinke 2020, corollary 13. Every alpha gives a valid bound; the logarithm is convex enough for a search by thirds
    over log(alpha - 1), and a search that stops early only costs tightness.
    """
    if rho == 0.0:
        return 0.0

    def log_delta(t: float) -> float:
        a = math.exp(t)  # alpha - 1
        return a * ((a + 1.0) * rho - epsilon) - (a + 1.0) * math.log1p(1.0 / a) - t

    low, high = -20.0, 20.0
    while high - low > 1e-5:
        third = (high - low) / 3.0
        if log_delta(low + third) < log_delta(high - third):
            high -= third
        else:
            low += third
    best = log_delta((low + high) / 2.0)
    return min(max(math.exp(best) * (1.0 + _ROUNDING), _TINY), 1.0) if best < 0.0 else 1.0


def pure_delta(total: float, epsilon: float) -> float:
    """The delta, at this epsilon, of any mechanism that is purely `total`-DP: that of randomised response.

    Its two answers have chances e^total / (1 + e^total) and 1 / (1 + e^total), exchanged by the secret; the larger less
    e^epsilon times the smaller is (e^total - e^epsilon) / (1 + e^total). Written so that nothing overflows.
    """
    if epsilon >= total:
        return 0.0
    return min(-math.expm1(epsilon - total) / (1.0 + math.exp(-total)) * (1.0 + _ROUNDING), 1.0)


def smallest(
    holds: Callable[[float], bool], limit: float = 2.0**200, start: float = 2.0**-40, precision: float = 1e-13
) -> float:
    """The smallest x for which `holds`, or a little more, found by doubling from `start`; infinite if above `limit`.

    What is returned holds, always; it is the smallest where holding once means holding for everything larger.
    """
    low, high = 0.0, start
    while not holds(high):
        low, high = high, 2.0 * high
        if high > limit:
            return math.inf
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high) or high - low <= precision * high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _tail(x: float) -> float:
    """P(a standard Gaussian is above x)."""
    return 0.5 * math.erfc(x / math.sqrt(2.0))
