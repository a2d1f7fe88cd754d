"""Mechanisms: an exact answer goes in, a noisy one comes out together with the event that says what it is worth.

Noise on whole numbers (`discrete_gaussian`, `discrete_laplace`), on real ones (`laplace`), on categories
(`randomised_response`); choices among candidates (`exponential`, `permute_and_flip`) are in choices.py. None of them
draws a float. An infinite epsilon, or a sigma of 0, adds no noise, and the event says so.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hedgerow.errors import FixedPointOverflow, InvalidInput, InvalidParameter
from hedgerow.privacy import discrete_gaussian as gaussian_sampler
from hedgerow.privacy import discrete_laplace as laplace_sampler
from hedgerow.privacy.coins import Coin, below
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import (
    Adjacency,
    DiscreteGaussian,
    DiscreteLaplace,
    Laplace,
    NonPrivate,
    RandomisedResponse,
    Released,
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Codes = TypeVar("Codes", npt.NDArray[np.uint8], npt.NDArray[np.int64])

_LARGEST = 2**62
"""Sums and noise stay below half of what 64 bits hold, so that the sum of the two cannot wrap round."""

_LARGEST_EPSILON = 1e6
"""Of randomised response: e^-epsilon is computed to any number of digits that a toss asks for."""

_FINE_BITS = 20
"""Reals are rounded to about 2^-20 of the noise: nothing that anybody would see."""


_CHUNK = 1 << 13
"""Codes per round: the intermediate arrays stay in the second-level cache."""


def discrete_gaussian(
    values: npt.NDArray[Any],
    *,
    sensitivity: float,
    sigma: float,
    random: RandomBytes,
    parties: int = 1,
    adjacency: Adjacency = "add_remove",
) -> Released[Ints]:
    """Whole numbers plus discrete Gaussian noise of scale `sigma`.

    With several `parties`, each of them adds noise of scale `sigma` to its own part of one sum, and the event is that
    of the sum. `sigma=0` adds nothing and says so in the event.
    """
    exact = _checked(values)
    if sigma == 0.0:
        return Released(exact.copy(), NonPrivate("no noise was added"))
    event = DiscreteGaussian(sensitivity, sigma, max(exact.size, 1), parties, adjacency)
    noise = gaussian_sampler.sample(sigma, exact.size, random).reshape(exact.shape)
    return Released(exact + noise, event)


def discrete_laplace(
    values: npt.NDArray[Any],
    *,
    sensitivity: float,
    epsilon: float,
    random: RandomBytes,
    adjacency: Adjacency = "add_remove",
) -> Released[Ints]:
    """Whole numbers plus discrete Laplace noise of scale sensitivity / epsilon, rounded up; sensitivity in L1.

    P(v + noise = z) is proportional to exp(-|z - v| / scale) in each coordinate, so moving v by at most `sensitivity`
    in L1 changes the probability of any outcome by a factor of at most exp(sensitivity / scale) <= e^epsilon.
    """
    exact = _checked(values)
    if epsilon == math.inf:
        return Released(exact.copy(), NonPrivate("no noise was added"))
    event = DiscreteLaplace(sensitivity, _scale_for(sensitivity, epsilon), adjacency)
    noise = laplace_sampler.sample(event.scale, exact.size, random).reshape(exact.shape)
    return Released(exact + noise, event)


def laplace(
    values: npt.NDArray[Any],
    *,
    sensitivity: float,
    epsilon: float,
    random: RandomBytes,
    bounds: tuple[float, float] | None = None,
    adjacency: Adjacency = "add_remove",
) -> Released[Floats]:
    """Real numbers plus Laplace noise; sensitivity in L1, of the whole array and of the exact values.

    1. Values are clipped to the public `bounds`, if there are any, which moves no two values apart.
    2. They are divided by a grid, a power of two, and rounded to whole numbers, half to even. The grid is about 2^-20
       of the sensitivity or of the noise, whichever is smaller; coarser if the bounds, or noise of more than 2^46 grid
       units, ask for it. It depends on public numbers only.
    3. Discrete Laplace noise is added, exact (discrete_laplace.py). The sum is multiplied by the grid, and clipped to
       the bounds again, which is free.

    A coordinate that differs between neighbours, by d, differs by at most d / grid + 1 after rounding, because each
    side moves by 1/2 at most. One more is added for values that are computed in floats, and are a quarter of the grid
    from their exact value at most, and for the rounding of `sensitivity` itself. Coordinates that one change of the
    records does not touch are the very same numbers on both sides, and round alike. Adding or removing a record must
    touch one coordinate at most, as one leaf of a tree, and replacing one two. So the whole numbers have an L1
    sensitivity of at most ceil(sensitivity / grid) + 2, or 4. The event states it, and the noise is for it.

    Without bounds, values of 2^52 grid units or more are refused. Give bounds where the data could bring that about.
    """
    if not isinstance(values, np.ndarray) or values.dtype != np.float64:
        raise InvalidParameter(f"Laplace noise is for float64 arrays, got {getattr(values, 'dtype', type(values))}")
    low, high = _checked_bounds(bounds)
    if np.isnan(values).any():
        raise InvalidInput("Laplace noise is for numbers; a value is missing (NaN)")
    exact = np.clip(values, low, high)
    if epsilon == math.inf:
        return Released(exact, NonPrivate("no noise was added"))
    moved = 2 if adjacency == "replace_one" else 1
    _check_positive("sensitivity", sensitivity)
    _check_positive("epsilon", epsilon)
    exponent = _grid_exponent(sensitivity, epsilon, max(abs(low), abs(high)) if bounds else None)
    grid = math.ldexp(1.0, exponent)
    units = float(math.ceil(Fraction(sensitivity) / Fraction(grid)) + 2 * moved)
    scale = _scale_for(units, epsilon)
    scaled = np.rint(np.ldexp(exact, -exponent))
    if scaled.size and not float(np.abs(scaled).max()) <= 2.0**52:
        raise FixedPointOverflow("a value is 2^52 grid units or more from 0; give bounds, or more noise")
    noisy = scaled.astype(np.int64) + laplace_sampler.sample(scale, scaled.size, random).reshape(scaled.shape)
    released = np.clip(np.ldexp(noisy.astype(np.float64), exponent), low, high)
    return Released(released, Laplace(units * grid, scale * grid, adjacency))


def randomised_response(codes: Codes, *, categories: int, epsilon: float, random: RandomBytes) -> Released[Codes]:
    """Each code is kept with probability e^epsilon / (e^epsilon + categories - 1), else any other one takes its place.

    The true code comes out with e^epsilon times the probability of each other one, exactly: the coin is exact
    (coins.py), and the others are drawn by rejection. Epsilon is for one record, whatever the others are.
    """
    if not isinstance(codes, np.ndarray) or codes.dtype not in (np.uint8, np.int64):
        found = getattr(codes, "dtype", type(codes))
        raise InvalidParameter(f"randomised response is for uint8 or int64 arrays, got {found}")
    if not 2 <= categories <= int(np.iinfo(codes.dtype).max) + 1:
        raise InvalidParameter(f"categories must be at least 2 and fit {codes.dtype}, got {categories!r}")
    if codes.size and not (int(codes.min()) >= 0 and int(codes.max()) < categories):
        raise InvalidInput(f"randomised response: a code is not within 0 .. {categories - 1}")
    if epsilon == math.inf:
        return Released(codes.copy(), NonPrivate("no noise was added"))
    event = RandomisedResponse(categories, epsilon)
    if epsilon > _LARGEST_EPSILON:
        raise InvalidParameter(f"epsilon must be at most {_LARGEST_EPSILON:.0e}, or infinite for none, got {epsilon!r}")
    keep = Coin(-Fraction(epsilon), times=categories - 1)
    answers = codes.copy()
    flat = answers.reshape(-1)
    for start in range(0, codes.size, _CHUNK):
        piece = flat[start : start + _CHUNK]
        lost = np.flatnonzero(~keep.toss(len(piece), random))
        others = below(categories - 1, len(lost), random)
        others += others >= piece[lost]  # all but the code itself
        piece[lost] = others
    return Released(answers, event)


def _scale_for(sensitivity: float, epsilon: float) -> float:
    """sensitivity / epsilon, rounded up by more than its rounding error, so that the event has at most this epsilon."""
    _check_positive("sensitivity", sensitivity)
    _check_positive("epsilon", epsilon)
    return sensitivity / epsilon * (1.0 + 2.0**-50)


def _check_positive(name: str, value: float) -> None:
    if not (isinstance(value, float | int) and 0.0 < value < math.inf):
        raise InvalidParameter(f"{name} must be a number above 0, got {value!r}")


def _grid_exponent(sensitivity: float, epsilon: float, largest: float | None) -> int:
    """The exponent of the grid: 2^-20 of the smaller of sensitivity and noise, or coarser as bounds and noise ask."""
    scale = sensitivity / epsilon
    exponent = max(math.frexp(min(sensitivity, scale))[1] - _FINE_BITS, math.frexp(scale)[1] - 46)
    if largest:
        exponent = max(exponent, math.frexp(largest)[1] - 52)
    if not -900 < exponent < 900:
        raise InvalidParameter(
            f"Laplace noise of scale {scale:.3g} on values up to {largest} does not fit floats; use other units"
        )
    return exponent


def _checked_bounds(bounds: tuple[float, float] | None) -> tuple[float, float]:
    if bounds is None:
        return -math.inf, math.inf
    low, high = bounds
    if not -math.inf < low <= high < math.inf:
        raise InvalidParameter(f"bounds must be two finite numbers in order, got {bounds!r}")
    return low, high


def _checked(values: npt.NDArray[Any]) -> Ints:
    if not isinstance(values, np.ndarray) or values.dtype != np.int64:
        raise InvalidParameter(f"discrete noise is for int64 arrays, got {getattr(values, 'dtype', type(values))}")
    if values.size and (int(values.max()) >= _LARGEST or int(values.min()) <= -_LARGEST):
        raise FixedPointOverflow("a sum of 2^62 or more leaves no room for noise; use a coarser fixed point")
    return values
