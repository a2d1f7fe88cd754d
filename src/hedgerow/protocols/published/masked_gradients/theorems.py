"""The noise of MaskedXGBoost from its own theorems, with their errors put right. Not a mechanism: see the end.

A feature holder (PP) draws noise vectors B, with a part of strength sigma1 that vanishes in the sums it is interested
in, and a part of strength sigma2 that does not. The label holder (AP) sends g + B c, where |c|^2 = C.

Theorem 1. The sum over n_A rows has noise of standard deviation kappa = sqrt(n_A C) sigma2 (printed: C for sqrt(C)).
Its bound on the score takes the noise of G and that of H for independent. Both are made of the same B: with one vector
they are equal but for sign. So no bound is offered here, only kappa.

Theorem 2. g + B c is (eps_ap, delta_ap)-DP for any two vectors of gradients, if nobody knew B, for

    n_A mu^2 / (C sigma2^2) + n_I mu^2 / (C (2 sigma1^2 + sigma2^2)) <= R,    R = 2 (eps + 2 L - 2 sqrt(L (L + eps))),

L = ln(1 / delta), where |g_i - g'_i| <= mu. AP is not told n_A, so all n rows must count as active: C sigma2^2 = n mu^2
/ R. The sum itself is at most n_A mu / 2, so its ratio to kappa is at most sqrt(R) / 2, for every n ("vector" reading).
For one changed gradient C sigma2^2 = mu^2 / R is enough ("record" reading, not the paper's).

Theorem 3. B is (eps_pp, delta_pp)-DP for one flipped bit of one candidate's rows. With e = eps_pp / W,

    delta_pp >= W Pr[k1 y1^2 + k2 y2^2 + k3 y3^2 >= 2 e - 2 ln 2]     (printed in places: 2 e - ln 2),  e > ln 2,

k being the eigenvalues of Sigma_2^-1 Sigma_1 - I, where Sigma_1 and Sigma_2 are the covariances with and without the
bit. The paper says that the other direction is "similar". It is not: its eigenvalues are -k / (1 + k), and its tail is
larger. Here both must be small enough. What this does not repair: the proof is for large active sets. For sets of
one or two rows the claim is false (one row: u = p1 - p1 = 0, and the entry's variance tells that it is alone).

Why none of this is a guarantee. Theorem 2 averages over B, but PP has drawn B itself. Given B, g + B c lies on a known
W-dimensional flat, two vectors of gradients almost never share one, and no (epsilon, delta) with delta < 1 holds. So
what `calibrate_masked` returns is what the paper asks for, and nothing is claimed for it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import log_ndtr

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.curves import smallest

Reading = Literal["vector", "record"]
VECTOR: Reading = "vector"
RECORD: Reading = "record"

LEAST_SNR = 1.0
"""A sum that is at its largest possible value should exceed the standard deviation of its noise; below that, nothing
can be told from it."""

_ANGLES = 512
"""Of the trapezoidal rule on a smooth periodic function, which converges faster than any power."""


@dataclass(frozen=True)
class MaskedNoise:
    """The parameters of one run, and what the theorems say about them."""

    sigma1: float
    sigma2: float
    C: float
    n: int
    n_vectors: int = 1
    reading: Reading | None = None  # None: given, not calibrated
    mu: float | None = None
    R: float | None = None
    snr_bound: float | None = None
    budgets: tuple[float, float, float, float] | None = None  # eps_ap, delta_ap, eps_pp, delta_pp of one message

    def C_for(self, n_rows: int) -> float:  # noqa: N802 - the paper's C
        """C in a node of this many rows: Theorem 2 asks for less in a smaller one."""
        return self.C * n_rows / self.n if self.reading == VECTOR else self.C

    @property
    def ratio(self) -> float:
        """sigma1^2 / sigma2^2."""
        return self.sigma1**2 / self.sigma2**2 if self.sigma2 else math.inf

    @property
    def harmless_share(self) -> float:
        """The share of the noise's energy that vanishes in sums."""
        total = 2.0 * self.sigma1**2 + self.sigma2**2
        return 2.0 * self.sigma1**2 / total if total else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        names = ["sigma1", "sigma2", "C", "n", "n_vectors", "reading"]
        if self.budgets is None:
            return {name: getattr(self, name) for name in names}
        names += ["mu", "R", "snr_bound", "ratio", "harmless_share"]
        budgets = zip(("eps_ap", "delta_ap", "eps_pp", "delta_pp"), self.budgets, strict=True)
        return {**{name: getattr(self, name) for name in names}, **dict(budgets)}


def calibrate_masked(
    eps_ap: float,
    delta_ap: float,
    eps_pp: float,
    delta_pp: float,
    n: int,
    W: int = 1,
    *,
    mu: float = 2.0,
    reading: Reading = VECTOR,
    least_snr: float = LEAST_SNR,
) -> MaskedNoise:
    """sigma1, sigma2 and C that Theorems 2 and 3, corrected, ask for. sigma2 is 1; only C sigma^2 counts.

    `mu`: how far a gradient can move (two classes: 2 for any two vectors, 1 for a changed label at a fixed score).
    InvalidParameter, with the numbers, where a theorem is empty, and where sums drown (SNR below `least_snr`).
    """
    _check(eps_ap, delta_ap, "ap")
    _check(eps_pp, delta_pp, "pp")
    if n < 3 or W < 1 or not mu > 0.0:
        raise InvalidParameter(f"n must be at least 3, W at least 1 and mu positive, got {n}, {W} and {mu}")
    if reading not in (VECTOR, RECORD):
        raise InvalidParameter(f"reading must be {VECTOR!r} or {RECORD!r}, got {reading!r}")
    if eps_pp <= W * math.log(2.0):
        raise InvalidParameter(
            f"Theorem 3 of MaskedXGBoost is empty for eps_pp={eps_pp:g}: with W={W} noise vectors it needs more than "
            f"W ln 2 = {W * math.log(2.0):.4f}; use fewer vectors, a larger eps_pp, or give sigma1, sigma2 and C"
        )
    ratio = largest_ratio(eps_pp, delta_pp, n, W)
    if ratio <= 0.0:
        raise InvalidParameter(
            f"Theorem 3 of MaskedXGBoost allows no sigma1 at eps_pp={eps_pp:g}, delta_pp={delta_pp:g} and W={W}"
        )
    R = theorem2_R(eps_ap, delta_ap)
    snr = math.sqrt(R * (n if reading == RECORD else 1)) / 2.0
    if snr < least_snr:
        raise InvalidParameter(
            f"Theorem 2 of MaskedXGBoost at eps_ap={eps_ap:g} and delta_ap={delta_ap:g} (R = {R:.4g}) asks for noise "
            f"that is larger than any sum: no candidate's signal-to-noise ratio can exceed {snr:.3g}, for any number "
            f"of rows, before composition. Splits would be no better than random; accept_low_snr=True, or sigma1, "
            "sigma2 and C given directly, run it all the same"
        )
    C = mu * mu / R * (n if reading == VECTOR else 1)
    budgets = (eps_ap, delta_ap, eps_pp, delta_pp)
    return MaskedNoise(math.sqrt(ratio), 1.0, C, n, W, reading, mu, R, snr, budgets)


def _check(epsilon: float, delta: float, whose: str) -> None:
    if not (epsilon > 0.0 and math.isfinite(epsilon) and 0.0 < delta < 1.0):
        raise InvalidParameter(
            f"eps_{whose} must be positive and finite and delta_{whose} between 0 and 1, got {epsilon!r} and {delta!r}"
        )


# --- Theorem 2 -------------------------------------------------------------------------------------------------------


def theorem2_R(epsilon: float, delta: float) -> float:  # noqa: N802 - the spec's name for it
    """The largest v' Sigma^-1 v that Theorem 2 allows: mu^2 of Gaussian DP, by a tail bound.

    2 (eps + 2 L - 2 sqrt(L (L + eps))) = 2 (sqrt(L + eps) - sqrt(L))^2, written so that nothing cancels.
    """
    L = math.log(1.0 / delta)
    return 2.0 * (epsilon / (math.sqrt(L + epsilon) + math.sqrt(L))) ** 2


# --- Theorem 3 -------------------------------------------------------------------------------------------------------


def circulant_entries(ratio: float, n: int) -> tuple[float, float, float]:
    """The paper's a, b and c: entries 0, 1 and 2 of sigma1^2 Sigma_2^-1, for sigma1^2 / sigma2^2 = ratio.

    In closed form: the inverse of a circulant matrix with 2 + 1/ratio on the diagonal and -1 beside it is
    A (x^k + x^(n - k)) / (1 - x^n), where x + 1/x = 2 + 1/ratio and A = 1 / (1/x - x).
    """
    x = 2.0 * ratio / (2.0 * ratio + 1.0 + math.sqrt(1.0 + 4.0 * ratio))
    A = ratio / math.sqrt(1.0 + 4.0 * ratio)
    a, b, c = ((x**k + x ** (n - k)) / (1.0 - x**n) * A for k in range(3))
    return a, b, c


def eigenvalues(ratio: float, n: int, *, reverse: bool = False) -> tuple[float, float, float]:
    """k1, k2, k3: two above and one below 0. In the reverse direction -k / (1 + k).

    k2 = a - c, with eigenvector (1, 0, -1) / sqrt 2; the others have the sum 4 b - a - c and the product
    2 (2 b^2 - a^2 - a c) < 0, because b^2 <= a c holds for such entries.
    """
    a, b, c = circulant_entries(ratio, n)
    total, product = 4.0 * b - a - c, 2.0 * (2.0 * b * b - a * a - a * c)
    root = math.sqrt(total * total - 4.0 * product)
    larger = (abs(total) + root) / 2.0
    pair = (larger, product / larger) if total >= 0.0 else (-larger, -product / larger)
    k = (max(pair), a - c, min(pair))
    return (-k[0] / (1.0 + k[0]), -k[1] / (1.0 + k[1]), -k[2] / (1.0 + k[2])) if reverse else k


def tail(k: tuple[float, float, float], t: float) -> float:
    """Pr[k1 y1^2 + k2 y2^2 + k3 y3^2 >= t], t > 0, for independent standard normals; one or two of k are above 0.

    Exact but for one integral over an angle. Two positive ones: in polar coordinates their sum is v(a) s^2 with v(a) =
    k1 cos^2 a + k2 sin^2 a and s^2 exponential with mean 2, so given the rest it exceeds t + |k3| y3^2 with chance
    exp(-(t + |k3| y3^2) / (2 v)), whose mean over y3 is exp(-t / (2 v)) / sqrt(1 + |k3| / v). With one positive one the
    same formula holds with k2 = 0 and a factor for each negative one (Craig's form of the normal tail).
    """
    positive = sorted((x for x in k if x > 0.0), reverse=True)
    negative = [-x for x in k if x < 0.0]
    if not positive or len(positive) > 2:
        raise InvalidParameter(f"one or two of the three must be above 0, got {k}")
    first, second = (*positive, 0.0)[:2]
    angles = math.pi / (2.0 * _ANGLES) * (np.arange(_ANGLES) + 0.5)
    v = first * np.sin(angles) ** 2 + second * np.cos(angles) ** 2
    chances = np.exp(-t / (2.0 * v)) / np.sqrt(np.prod([1.0 + x / v for x in negative], axis=0))
    return float(chances.mean())


def theorem3_delta(eps_pp: float, ratio: float, n: int, W: int = 1, *, direction: str = "both") -> float:
    """The delta_pp that Theorem 3 gives: "forward" as published, "reverse", or the larger of "both".

    Infinite where it is empty, at or below W ln 2.
    """
    t = 2.0 * eps_pp / W - 2.0 * math.log(2.0)
    if t <= 0.0:
        return math.inf
    ways = {"forward": (False,), "reverse": (True,), "both": (False, True)}
    if direction not in ways:
        raise InvalidParameter(f"direction must be one of {', '.join(ways)}, got {direction!r}")
    return W * max(tail(eigenvalues(ratio, n, reverse=reverse), t) for reverse in ways[direction])


@functools.lru_cache(maxsize=64)
def largest_ratio(eps_pp: float, delta_pp: float, n: int, W: int = 1, *, direction: str = "both") -> float:
    """The largest sigma1^2 / sigma2^2 that Theorem 3 allows, or a little less; 0 if it allows none."""

    def allowed(inverse: float) -> bool:
        return theorem3_delta(eps_pp, 1.0 / inverse, n, W, direction=direction) <= delta_pp

    inverse = smallest(allowed, 2.0**40, 2.0**-20, 1e-9)
    return 0.0 if math.isinf(inverse) else 1.0 / inverse


# --- what they would add up to ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AddedUp:
    """What this many messages would compose to, if the theorem for one of them were true."""

    messages: int
    basic: tuple[float, float]  # sums of epsilons and deltas
    gaussian: float | None = None  # epsilon at the delta of one message, by Gaussian DP; None: not Gaussian


def added_up(noise: MaskedNoise, *, messages_ap: int, messages_pp: int) -> dict[str, AddedUp]:
    """Of a calibrated run: "ap" for the gradients that were sent, "pp" for the noise vectors of all candidates.

    Numbers of messages that concern one row: vectors <g> and <h> count one each, a candidate's B counts once.
    """
    if noise.budgets is None or noise.R is None:
        raise InvalidParameter("noise that was given directly has no theorem to add up")
    eps_ap, delta_ap, eps_pp, delta_pp = noise.budgets
    return {
        "ap": compose_theorem2(eps_ap, delta_ap, messages_ap),
        "pp": AddedUp(messages_pp, (messages_pp * eps_pp, messages_pp * delta_pp)),
    }


def compose_theorem2(epsilon: float, delta: float, messages: int) -> AddedUp:
    """Messages of Theorem 2, each (epsilon, delta): basic composition, and exactly, as Gaussians of mu^2 = R."""
    mu = math.sqrt(theorem2_R(epsilon, delta) * messages)
    total = smallest(lambda x: gaussian_curve(mu, x) <= delta, 2.0**40, 2.0**-20, 1e-9)
    return AddedUp(messages, (messages * epsilon, messages * delta), total)


def gaussian_curve(mu: float, epsilon: float) -> float:
    """delta of mu-GDP at this epsilon, however large: Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2)."""
    gained = log_ndtr(mu / 2.0 - epsilon / mu)
    lost = epsilon + log_ndtr(-mu / 2.0 - epsilon / mu)
    return max(math.exp(gained) - math.exp(min(lost, 0.0)), 0.0)
