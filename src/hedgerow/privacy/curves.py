"""Privacy curves: delta as a function of epsilon, for pure mechanisms and the two families of Gaussian noise.

Each is an upper bound also in floating point: where terms are subtracted, the rounding goes against us.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

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


def pure_mu(epsilon: float) -> float:
    """The smallest mu such that every mechanism of pure `epsilon` is mu-GDP, or a little more.

    -2 Phi^-1(1 / (1 + e^epsilon)). Proof: a test of level alpha against such a mechanism misses with a chance of at
    least f(alpha) = max(0, 1 - e^epsilon alpha, e^-epsilon (1 - alpha)) (Wasserman and Zhou 2010, theorem 2.4; Dong,
    Roth and Su 2022, proposition 2.5): the two chords from (0, 1) over (a, a) to (1, 0), where a = 1/(1 + e^epsilon).
    The same chance for a Gaussian, G(alpha) = Phi(Phi^-1(1 - alpha) - mu), is convex, 1 at 0 and 0 at 1, so it lies
    below both chords if G(a) <= a, which is Phi(-mu/2) <= a. Randomised response has f itself, so no smaller mu does.

    Two bounds hold for every epsilon. sqrt(8 epsilon), because Phi(-x) <= e^(-x^2/2) / 2 and a >= e^-epsilon / 2. And
    sqrt(pi/2) epsilon, because with c = sqrt(pi/8), Phi(c x) - 1/(1 + e^-x) is 0 at 0 and at infinity, and its slope,
    e^(-pi x^2/16) / 4 - 1 / (4 cosh^2(x/2)), is first above and then below 0: 2 log cosh(x/2) - pi x^2/16 has a slope,
    tanh(x/2) - pi x/8, that is concave, 0 at 0, first above and then below 0. They are used where Phi^-1 would be
    inexact (near 1/2) or undefined (at 0).

    Phi^-1 itself is not relied on: what it says is tried, and enlarged until Phi(-mu/2) <= a holds with room for the
    rounding of erfc and exp that is assumed everywhere here.
    """
    if epsilon == 0.0:
        return 0.0
    bound = min(math.sqrt(math.pi / 2.0) * epsilon, math.sqrt(8.0 * epsilon)) * (1.0 + _ROUNDING)
    if not 2.0**-10 <= epsilon <= 600.0:
        return bound
    level = 1.0 / (1.0 + math.exp(epsilon))
    mu, more = -2.0 * NormalDist().inv_cdf(level), _ROUNDING
    while _tail(mu / 2.0) * (1.0 + _ROUNDING) > level * (1.0 - _ROUNDING) and mu < bound:
        mu, more = mu * (1.0 + more), 2.0 * more
    return min(mu, bound)


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
