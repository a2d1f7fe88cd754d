"""Mechanisms: an exact answer goes in, a noisy one comes out together with the event that says what it is worth.

Noise on whole numbers (`discrete_gaussian`, `discrete_laplace`), on real ones (`laplace`), on categories
(`randomised_response`); choices among candidates (`exponential`, `permute_and_flip`) are in choices.py. None of them
draws a float: floating-point noise has gaps and repetitions that give secrets away (Mironov 2012). An infinite epsilon,
or a sigma of 0, adds no noise, and the event says so.

Gaussian noise is drawn in discrete_gaussian.py. Everything else here is made of coins, and exact.

Coins. A chance of heads is a number like 1 / (1 + e^x). A toss is: draw U uniform in [0, 1), heads if U < p. Only the
first 16 bits of U are drawn at first. They settle the toss unless they equal the first 16 bits of p, a chance of 2^-16;
then 64 more bits of U are drawn and compared with the next 64 of p, and so on. At every length n, comparing
floor(2^n U) with floor(2^n p) decides U < p whenever the two differ, so P(heads) = p with no error at all, whatever p
is. It ends: the chance to go on falls by 2^-64 each time.

Bits of p. p = 1 / (a + c e^x) for whole a and c, and a fraction x other than 0, such that 0 < p < 1. Python's decimal
rounds exp, +, * and / correctly: with d digits each is off by a factor within 1 -+ u, u = 10^(1-d) / 2. Rounding x
moves e^x by a factor within e^(-+ |x| u), and there are four operations after it, so the computed 2^n p is off by a
factor within 1 -+ (|x| + 5) u. Twice that, and more, is taken as its error, which also covers the rounding of the error
itself and of the two numbers between which 2^n p must then lie. If both have the same floor (at most 2^n - 1, as p <
1), that is the floor of 2^n p; if not, d is doubled. It ends: e^x is not a fraction (Lindemann), so 2^n p is never a
whole number.

Discrete Laplace noise has P(k) proportional to exp(-|k| / t) for a scale t. Write q = e^(-1/t).

Digits. Let G be geometric, P(G = k) = (1 - q) q^k for k = 0, 1, 2, ... Its binary digits are independent, with
P(digit j is 1) = q^(2^j) / (1 + q^(2^j)) = 1 / (1 + e^(2^j / t)): for digits d_0, d_1, ... of k, of which finitely many
are 1, the product of their probabilities is prod_j q^(d_j 2^j) / prod_j (1 + q^(2^j)), where the first product is q^k
and the second is 1 / (1 - q), because (1 - q)(1 + q)(1 + q^2)(1 + q^4) ... telescopes to 1.

Beyond. Only digits 0 .. b - 1 are drawn, 2^b >= 16 t. The rest, G / 2^b rounded down, is independent of them and itself
geometric, of ratio q^(2^b); that it is not 0 has probability q^(2^b) = e^(-2^b / t) <= e^-16. One more coin decides. If
it shows heads, G >= 2^b, and as a geometric variable has no memory, G - 2^b given this is distributed as G: add 2^b and
draw all digits afresh. Every digit, and what lies beyond, is the toss of a coin, so G is exact.

Sign. Draw a fair sign, and start again if it is minus and G = 0. The outcomes k > 0 and -k have probability
(1 - q) q^k / 2 each in one round, and 0 has (1 - q) / 2: all proportional to q^|k|, which starting again does not
change.

Numbers beyond 2^62 are an error, not a wrapped number. Whether it happens does not depend on any data, and it does not:
with scale 2^48 at most, its probability is below e^-16000.

Time is not constant: who can time single numbers learns that one was drawn again, or which of the first bits were met.
"""

from __future__ import annotations

import decimal
import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hedgerow.errors import FixedPointOverflow, InvalidInput, InvalidParameter
from hedgerow.privacy import discrete_gaussian as gaussian_sampler
from hedgerow.privacy import events
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Adjacency, NonPrivate, Released, check_positive

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Codes = TypeVar("Codes", npt.NDArray[np.uint8], npt.NDArray[np.int64])

FIRST_BITS = 16
"""Of a toss: so few that random bytes are cheap, so many that one toss in 65,536 only takes the slow way."""

_MORE_BITS = 64

_LARGEST = 2**62
"""Sums and noise stay below half of what 64 bits hold, so that the sum of the two cannot wrap round."""

_LARGEST_EPSILON = 1e6
"""Of randomised response: e^-epsilon is computed to any number of digits that a toss asks for."""

_MIN_SCALE, _MAX_SCALE = 2.0**-30, 2.0**48
_REACH = 16
_FINE_BITS = 20
"""Reals are rounded to about 2^-20 of the noise: nothing that anybody would see."""

_CHUNK = 1 << 13
"""Samples or codes per round: the intermediate arrays stay in the second-level cache."""


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
    event = events.DiscreteGaussian(sensitivity, sigma, max(exact.size, 1), parties, adjacency)
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
    event = events.DiscreteLaplace(sensitivity, _scale_for(sensitivity, epsilon), adjacency)
    noise = sample_laplace(event.scale, exact.size, random).reshape(exact.shape)
    return Released(exact + noise, event)


def laplace(
    values: npt.NDArray[Any],
    *,
    sensitivity: float,
    epsilon: float,
    random: RandomBytes,
    bounds: tuple[float, float] | None = None,
    adjacency: Adjacency = "add_remove",
    touched: int = 1,
) -> Released[Floats]:
    """Real numbers plus Laplace noise; sensitivity in L1, of the whole array and of the exact values.

    1. Values are clipped to the public `bounds`, if there are any, which moves no two values apart.
    2. They are divided by a grid, a power of two, and rounded to whole numbers, half to even. The grid is about 2^-20
       of the sensitivity or of the noise, whichever is smaller; coarser if the bounds, or noise of more than 2^46 grid
       units, ask for it. It depends on public numbers only.
    3. Discrete Laplace noise is added, exact. The sum is multiplied by the grid, and clipped to
       the bounds again, which is free.

    A coordinate that differs between neighbours, by d, differs by at most d / grid + 1 after rounding, because each
    side moves by 1/2 at most. One more is added for values that are computed in floats, and are a quarter of the grid
    from their exact value at most, and for the rounding of `sensitivity` itself. Coordinates that one change of the
    records does not touch are the very same numbers on both sides, and round alike. Adding or removing a record must
    touch `touched` coordinates at most, as the values of one leaf of a tree, and replacing one twice as many. So the
    whole numbers have an L1 sensitivity of at most ceil(sensitivity / grid) + 2 touched, or 4. The event states it, and
    the noise is for it.

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
    moved = touched * (2 if adjacency == "replace_one" else 1)
    check_positive("sensitivity", sensitivity)
    check_positive("epsilon", epsilon)
    exponent = _grid_exponent(sensitivity, epsilon, max(abs(low), abs(high)) if bounds else None)
    grid = math.ldexp(1.0, exponent)
    units = float(math.ceil(Fraction(sensitivity) / Fraction(grid)) + 2 * moved)
    scale = _scale_for(units, epsilon)
    scaled = np.rint(np.ldexp(exact, -exponent))
    if scaled.size and not float(np.abs(scaled).max()) <= 2.0**52:
        raise FixedPointOverflow("a value is 2^52 grid units or more from 0; give bounds, or more noise")
    noisy = scaled.astype(np.int64) + sample_laplace(scale, scaled.size, random).reshape(scaled.shape)
    released = np.clip(np.ldexp(noisy.astype(np.float64), exponent), low, high)
    return Released(released, events.Laplace(units * grid, scale * grid, adjacency))


def randomised_response(codes: Codes, *, categories: int, epsilon: float, random: RandomBytes) -> Released[Codes]:
    """Each code is kept with probability e^epsilon / (e^epsilon + categories - 1), else any other one takes its place.

    The true code comes out with e^epsilon times the probability of each other one, exactly: the coin is
    exact, and the others are drawn by rejection. Epsilon is for one record, whatever the others are.
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
    event = events.RandomisedResponse(categories, epsilon)
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
    check_positive("sensitivity", sensitivity)
    check_positive("epsilon", epsilon)
    return sensitivity / epsilon * (1.0 + 2.0**-50)


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


# --- Laplace noise ---------------------------------------------------------------------------------------------------


def sample_laplace(scale: float, size: int, random: RandomBytes) -> Ints:
    """`size` independent discrete Laplace variables of this scale, centred on 0."""
    if not _MIN_SCALE <= scale <= _MAX_SCALE:
        raise InvalidParameter(f"scale of a discrete Laplace must be between 2^-30 and 2^48, got {scale!r}")
    digits = _digits(float(scale))
    out = np.empty(size, np.int64)
    for start in range(0, size, _CHUNK):
        piece = out[start : start + _CHUNK]
        piece[:] = _signed(digits, len(piece), random)
        while len(again := np.flatnonzero(piece == _AGAIN)):
            piece[again] = _signed(digits, len(again), random)
    return out


_AGAIN = np.iinfo(np.int64).min
"""Stands for a zero with a minus."""


class _Digits(NamedTuple):
    """The coins of one scale: one for each digit, the lowest first, and the one for what lies beyond."""

    coins: tuple[Coin, ...]
    thresholds: npt.NDArray[np.uint16]  # the first bits of each chance, in a column
    shifts: npt.NDArray[np.uint8]  # the place of each digit in its byte, in a column
    beyond: int  # 2^b


@lru_cache(maxsize=256)
def _digits(scale: float) -> _Digits:
    t = Fraction(scale)
    n = 1
    while 2**n < _REACH * t:
        n += 1
    coins = (*(Coin(2**j / t) for j in range(n)), Coin(2**n / t, plus=0))
    thresholds = np.array([[coin.bits(FIRST_BITS)] for coin in coins], np.uint16)
    return _Digits(coins, thresholds, np.array([[j % 8] for j in range(n)], np.uint8), 2**n)


def _signed(digits: _Digits, size: int, random: RandomBytes) -> Ints:
    magnitude = _geometric(digits, size, random)
    minus = fair_bits(size, random)
    return np.where(minus, np.where(magnitude == 0, _AGAIN, -magnitude), magnitude)


def _geometric(digits: _Digits, size: int, random: RandomBytes) -> Ints:
    drawn, more = _one_round(digits, size, random)
    beyond = digits.beyond
    while len(more):
        if beyond >= _LARGEST:
            raise FixedPointOverflow("noise of 2^62 or more was drawn; this has a chance below e^-16000")
        again, more_of_them = _one_round(digits, len(more), random)
        drawn[more] = again + beyond
        more, beyond = more[more_of_them], beyond + digits.beyond
    return drawn


def _one_round(digits: _Digits, size: int, random: RandomBytes) -> tuple[Ints, npt.NDArray[np.intp]]:
    """Numbers below 2^b, and the places of those that lie beyond."""
    n = len(digits.coins)
    first = short_words(n * size, random).reshape(n, size)
    heads = first < digits.thresholds
    tied = first == digits.thresholds
    if tied.any():
        for row, column in zip(*np.nonzero(tied), strict=True):
            heads[row, column] = digits.coins[row].settle(random)
    # Eight digits make a byte, eight bytes a number.
    placed = heads[:-1].view(np.uint8) << digits.shifts
    as_bytes = np.zeros((size, 8), np.uint8)
    as_bytes[:, : (n + 6) // 8] = np.bitwise_or.reduceat(placed, range(0, n - 1, 8), axis=0).T
    return as_bytes.view("<i8").reshape(size).astype(np.int64), np.flatnonzero(heads[-1])


# --- coins -----------------------------------------------------------------------------------------------------------


class Coin(NamedTuple):
    """Heads with chance 1 / (plus + times e^exponent), which must lie between 0 and 1; the exponent is not 0."""

    exponent: Fraction
    times: int = 1
    plus: int = 1

    def bits(self, n: int) -> int:
        """The first n bits of the chance of heads after the point, as a whole number."""
        return _bits(self, n)

    def settle(self, random: RandomBytes) -> bool:
        """The outcome of a toss whose first 16 bits are those of the chance."""
        n, drawn = FIRST_BITS, self.bits(FIRST_BITS)
        while drawn == self.bits(n):
            n += _MORE_BITS
            drawn = (drawn << _MORE_BITS) + int.from_bytes(random.bytes(_MORE_BITS // 8), "little")
        return drawn < self.bits(n)

    def toss(self, size: int, random: RandomBytes) -> Bools:
        """`size` independent tosses; True is heads."""
        first, threshold = short_words(size, random), np.uint16(self.bits(FIRST_BITS))
        heads: Bools = first < threshold
        for place in np.flatnonzero(first == threshold):
            heads[place] = self.settle(random)
        return heads


@lru_cache(maxsize=4096)
def _bits(coin: Coin, n: int) -> int:
    x = coin.exponent
    digits = n // 3 + 25
    while True:
        with decimal.localcontext(exact_context(digits)):
            exponent = decimal.Decimal(x.numerator) / decimal.Decimal(x.denominator)
            scaled = 2**n / (coin.plus + coin.times * exponent.exp())
            error = scaled * (abs(exponent) + 8) * decimal.Decimal(10) ** (1 - digits)
            low = int((scaled - error).to_integral_value(decimal.ROUND_FLOOR))
            high = int((scaled + error).to_integral_value(decimal.ROUND_FLOOR))
            if low == min(high, 2**n - 1):
                return low
        digits *= 2


def exact_context(digits: int) -> decimal.Context:
    """Room for e^(-10^12) and the like, whatever the thread's own is; a result that no proof allows raises."""
    return decimal.Context(
        prec=digits,
        rounding=decimal.ROUND_HALF_EVEN,
        Emax=decimal.MAX_EMAX,
        Emin=decimal.MIN_EMIN,
        traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow, decimal.Underflow],
    )


def short_words(size: int, random: RandomBytes) -> npt.NDArray[np.uint16]:
    """Uniform words of 16 bits."""
    return np.frombuffer(random.bytes(2 * size), "<u2")


def words(size: int, random: RandomBytes) -> npt.NDArray[np.uint64]:
    """Uniform words of 64 bits, in an array of their own."""
    return np.frombuffer(random.bytes(8 * size), "<u8").astype(np.uint64)


def fair_bits(size: int, random: RandomBytes) -> Bools:
    """Tosses of a fair coin."""
    return np.unpackbits(np.frombuffer(random.bytes((size + 7) // 8), np.uint8), count=size).view(np.bool_)


def below(limit: int | Ints, size: int, random: RandomBytes) -> Ints:
    """`size` whole numbers, each uniform among 0 .. limit - 1, for one limit or for one of its own; at least 1.

    A word modulo the limit, for words below the largest multiple of it that fits 64 bits; others are drawn again. That
    multiple is 2^64 - (2^64 mod limit), and 2^64 mod limit = (2^64 - limit) mod limit, which fits 64 bits.
    """
    limits = np.asarray(limit).astype(np.uint64)
    last = ~((~limits + np.uint64(1)) % limits)
    drawn = words(size, random)
    while len(again := np.flatnonzero(drawn > last)):
        drawn[again] = words(len(again), random)
    drawn %= limits
    return drawn.view(np.int64)
