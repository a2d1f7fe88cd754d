"""Privacy loss distributions: how likely each log ratio between two neighbouring worlds is, on a grid, composed by FFT.

dp-accounting does the composing. It is imported when first needed, and only these parts of it are used: Gaussian noise
with and without Poisson sampling, and composition. Its accountants are not used: that of version 0.6.0 loses count of
how often randomised response is repeated (tests/laws/test_accountants.py).

What is composed is a `Form`: how often each `Unit` ran. A unit is Gaussian noise (mu squared), a pure epsilon, or one
of the two under Poisson sampling. As little as possible is left to the FFT:

- All Gaussian units are one: their mu squared add up, exactly. Without other units their closed curve is used as it is.
- n times the same pure epsilon is randomised response n times, whose loss is (n - 2k) epsilon with k binomial: written
  down, not convolved. Sampling a pure epsilon at rate q makes it log(1 + q (e^epsilon - 1)) (Balle, Barthe and Gaboardi
  2018), which is a pure epsilon again.
- A sampled Gaussian is composed with itself by one FFT, and units of different kinds by one FFT each.

Everything is rounded against us. A loss between two points of the grid is divided between both such that its mass, and
its mass in the other world, stay what they are ("connect the dots", Doroshenko et al. 2022): the curve becomes a chord
of the true one, which lies above it because curves are convex in e^epsilon. The grid is a power of two that grows with
what is composed, so coarser grids are parts of finer ones. Tails that are cut off count as infinite loss.

One error has no proof: that of the FFT in floating point, a sum of many roundings. `FFT_ERROR` for every composed
release is added to delta. Measured, FFT against direct convolution of the same masses (16 to 1,024 Gaussians, total mu
from 0.3 to 3, up to 20,000 points), it was at most 1e-16 for each release, a hundredth of that. Nothing was measured
beyond; a test repeats a part of it.

Of `Parallel` events one branch affects a given record, so a curve is wanted that is above that of each branch.
It is that of one form that has the most of each kind that any branch has (sorted epsilons against sorted epsilons):
above all of them, and never above the sum of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Self

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.curves import gaussian_delta, pure_delta

FFT_ERROR = 1e-14
"""Added to delta for each release that went through an FFT: an allowance, not a bound; see above."""

_POINTS_PER_SPREAD = 2.0**11
_POINTS_PER_REACH = 2.0**13
_FINEST, _COARSEST = 2.0**-30, 2.0**-8
_UP = 1.0 + 2.0**-45
_LOG_LOST_TAIL = -46.0
"""e^-46 = 1e-20: rarer outcomes are counted as infinite losses, or on the other side as the smallest that is kept."""

Kind = Literal["gaussian", "pure", "sampled gaussian"]
"""Gaussian noise, any mechanism of pure differential privacy, and Gaussian noise on a Poisson sample."""


class Unit(NamedTuple):
    """Something that has a loss distribution: `size` is mu squared of a Gaussian, or an epsilon."""

    kind: Kind
    size: float
    rate: float = 1.0

    @classmethod
    def sampled(cls, rate: float, epsilon: float) -> Self:
        """A pure mechanism on a Poisson sample: a pure mechanism of less epsilon."""
        if epsilon > 30.0:  # log(1 + q (e^x - 1)) <= x + log(q + e^-x); the plain formula would overflow soon
            return cls("pure", min(epsilon, epsilon + math.log(rate + math.exp(-epsilon)) + 1e-12))
        return cls("pure", min(epsilon, math.log1p(rate * math.expm1(epsilon)) * _UP))


Form = tuple[tuple[Unit, int], ...]
"""How often each unit ran, sorted, so that equal ones are equal keys."""


def together(parts: Iterable[tuple[Form, int]]) -> Form:
    """All of these, each as often as that."""
    counts: Counter[Unit] = Counter()
    for form, times in parts:
        for unit, count in form:
            counts[unit] += count * times
    return tuple(sorted(counts.items()))


def most_of(forms: Iterable[Form]) -> Form:
    """A form that covers all of them: as much or more of everything."""
    different = set(forms)
    if len(different) == 1:
        return different.pop()
    found: dict[tuple[Kind, float], list[tuple[float, int]]] = {}
    for form in different:
        for key, stairs in _stairs(form).items():
            found[key] = _highest(found[key], stairs) if key in found else stairs
    units = (((Unit(kind, size, rate), count),) for (kind, rate), stairs in found.items() for size, count in stairs)
    return together((unit, 1) for unit in units)


def _stairs(form: Form) -> dict[tuple[Kind, float], list[tuple[float, int]]]:
    """Per kind and rate, sizes from the largest down and how often each; Gaussian noise as one step."""
    stairs: dict[tuple[Kind, float], list[tuple[float, int]]] = {}
    noise = _mu_squared(form)
    if noise > 0.0:
        stairs["gaussian", 1.0] = [(noise, 1)]
    for unit, count in sorted(form, reverse=True):
        if unit.kind != "gaussian":
            stairs.setdefault((unit.kind, unit.rate), []).append((unit.size, count))
    return stairs


def _highest(one: list[tuple[float, int]], other: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """The larger of two staircases at every place; both fall."""
    (ends_one, ends_other) = (list(accumulate(count for _, count in stairs)) for stairs in (one, other))
    steps: list[tuple[float, int]] = []
    start = 0
    for end in sorted({*ends_one, *ends_other}):
        size = max(_at(one, ends_one, end), _at(other, ends_other, end))
        if steps and steps[-1][0] == size:
            steps[-1] = (size, steps[-1][1] + end - start)
        else:
            steps.append((size, end - start))
        start = end
    return steps


def _at(stairs: list[tuple[float, int]], ends: list[int], place: int) -> float:
    step = bisect_left(ends, place)
    return stairs[step][0] if step < len(stairs) else 0.0


def _mu_squared(form: Form) -> float:
    return math.fsum(count * unit.size for unit, count in form if unit.kind == "gaussian") * _UP


# --- curves ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deltas:
    """The curve of one form."""

    distribution: Any
    error: float
    mu: float | None  # where all is Gaussian noise
    pure: float | None  # where all is pure

    def delta(self, epsilon: float) -> float:
        """An upper bound at this epsilon: the best of those that hold."""
        bounds = [1.0]
        if self.distribution is not None:
            bounds.append(float(self.distribution.get_delta_for_epsilon(epsilon)) * (1.0 + 1e-12) + self.error)
        if self.mu is not None:
            bounds.append(gaussian_delta(self.mu, epsilon))
        if self.pure is not None:
            bounds.append(pure_delta(self.pure, epsilon))
        return min(bounds)


@lru_cache(maxsize=64)
def deltas_of(form: Form) -> Deltas:
    """The curve of a form."""
    kinds = {unit.kind for unit, _ in form}
    if not form:
        return Deltas(None, 0.0, 0.0, 0.0)
    noise = _mu_squared(form)
    if kinds == {"gaussian"}:  # the closed curve is exact; nothing is left to compute
        return Deltas(None, 0.0, math.sqrt(noise), None)
    step = _grid(form)
    parts = [_gaussian(noise, step)] if noise > 0.0 else []
    convolved = 0
    for unit, count in form:
        if unit.kind == "pure":
            parts.append(_randomised_responses(unit.size, count, step))
        elif unit.kind == "sampled gaussian":
            parts.append(_gaussian(unit.size, step, unit.rate, count))
            convolved += count
    convolved += len(parts) - 1
    return Deltas(
        reduce(lambda whole, part: whole.compose(part), parts),
        convolved * FFT_ERROR,
        None,
        math.fsum(count * unit.size for unit, count in form) * _UP if kinds == {"pure"} else None,
    )


def _grid(form: Form) -> float:
    """The distance of two points, a power of two: a small part of the spread of the sum of all losses.

    A rare sample hardly ever moves the loss, but then by much. So that one distribution stays below some ten thousand
    points, the distance is also a part of how far it reaches. Both grow with whatever is added.
    """
    variance, reach = 0.0, 0.0
    for unit, count in form:
        if unit.kind == "pure":
            variance += count * min(unit.size, 8.0) ** 2
        else:
            variance += count * unit.size * unit.rate**2
            # The largest loss that is not in the tail cut off, log(1 + q (e^x - 1)) at ten standard deviations.
            far = math.sqrt(unit.size) * 10.0 + unit.size / 2.0
            reach = max(reach, Unit.sampled(unit.rate, far).size)
    wanted = max(math.sqrt(variance) / _POINTS_PER_SPREAD, reach / _POINTS_PER_REACH)
    step = 2.0 ** math.floor(math.log2(wanted))
    return min(max(step, _FINEST), _COARSEST)


def _gaussian(mu_squared: float, step: float, rate: float = 1.0, count: int = 1) -> Any:
    single = _pld().from_gaussian_mechanism(
        1.0 / (math.sqrt(mu_squared) * _UP), sampling_prob=rate, value_discretization_interval=step
    )
    return single if count == 1 else single.self_compose(count)


def _randomised_responses(epsilon: float, count: int, step: float) -> Any:
    """Randomised response this often: loss (count - 2k) epsilon, where k of them lied."""
    masses: dict[int, float] = {}
    infinite, unplaced = 0.0, 0.0
    lied, told = -_log1pexp(epsilon), -_log1pexp(-epsilon)
    for k in range(count, -1, -1):  # from the smallest loss to the largest
        ways = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        log_mass = ways + k * lied + (count - k) * told
        # lgamma of up to a million is known to 1e-9; of one or two releases exactly.
        mass = math.exp(log_mass) * (1.0 + (1e-9 if count > 2 else 1e-14))
        if log_mass < _LOG_LOST_TAIL:
            if masses:
                infinite += mass
            else:
                unplaced += mass
            continue
        mass, unplaced = mass + unplaced, 0.0
        loss = (count - 2 * k) * epsilon * (_UP if count > 2 * k else 1.0 / _UP)
        below = math.floor(loss / step)
        above = min(math.expm1(below * step - loss) / math.expm1(-step), 1.0)
        masses[below + 1] = masses.get(below + 1, 0.0) + mass * above
        masses[below] = masses.get(below, 0.0) + mass * (1.0 - above)
    return _pld().PrivacyLossDistribution.create_from_rounded_probability(masses, infinite, step)


def _log1pexp(x: float) -> float:
    """log(1 + e^x)."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def library() -> str:
    """The name and version of what composes."""
    try:
        return f"dp-accounting {version('dp-accounting')}"
    except PackageNotFoundError:
        return "dp-accounting, not installed"


def _pld() -> Any:
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError as error:
        raise InvalidParameter(
            "privacy loss distributions need the package dp-accounting; install it with: pip install 'hedgerow[pld]'"
        ) from error
    return privacy_loss_distribution
