"""Whole-number Gumbel noise: the largest of utilities with such noise is the exponential mechanism, nearly.

For choices that are made where nobody sees the utilities, as on shares: noise is drawn beforehand, without knowing
them, and only a largest one has to be found. Where utilities are seen, choices.py is exact and has no delta.

What is drawn. U uniform in (0, 1), G = -log(-log U) (standard Gumbel), y = beta G / grid with grid = 2^-grid_bits, and
nu the whole number nearest to y (the lower one of two), moved into lowest .. highest. Utilities s_i are in the units of
beta. Chosen is a largest one of t_i = s_i + grid nu_i, of equal ones any, by any rule that may even depend on the data.
Utilities are what is computed: s_i need not be what was meant, and Delta is the sensitivity of what they are.

(1) Without rounding, the largest of s_i + beta G_i is i with probability P(i) = w_i / W, where w_i is
e^(s_i / beta) and W their sum: the exponential mechanism.

(2) With it. Nothing is clipped yet. |nu_i - y_i| <= 1/2, so t_i is off from s_i + beta G_i by at most
eta = grid / 2. If i is chosen, then s_i + beta G_i + 2 eta >= s_j + beta G_j for all j: i is the largest by (1) if
s_i is raised by 2 eta. With q = e^(2 eta / beta) that has the probability q w_i / (W + (q - 1) w_i) <= q P(i). And if i
is the only largest one after s_i is lowered by 2 eta, then it is chosen: (w_i / q) / (W - (1 - 1/q) w_i) >= P(i) / q.
Hence the probability P~(i) that i is chosen is within a factor e^(-+ grid / beta) of P(i). This holds for candidates
that are far behind, too.

(3) Privacy. Let one change of the records move s_i by d_i, with max d - min d <= 2 Delta. By (1) of choices.py the
log ratios log P'(i) - log P(i) lie in an interval of length epsilon_0 = 2 Delta / beta. By (2) those of P~ lie in one
that is longer by grid / beta for each of the two worlds at each end:

    epsilon = (2 Delta + 4 grid) / beta.

The interval holds 0, as both are probabilities that add up to 1. So the choice is epsilon-differentially private, and
because its log ratios have the range epsilon it is (epsilon^2 / 8)-zCDP (Cesar and Rogers 2021, lemma 3.4).

(4) Clipping. With c = `clip`, highest >= c beta / grid and lowest <= -log(c) beta / grid. P(nu > highest) <= P(G > c) =
1 - exp(-e^-c) <= e^-c, and P(nu < lowest) <= P(G < -log c) = exp(-e^(log c)) = e^-c. So n noises are, with probability
at least 1 - 2 n e^-c, the same with clipping and without: that is a statistical distance of at most 2 n e^-c, which
accountants turn into delta. Pure differential privacy is lost by it: a candidate that is further behind than clipped
noise reaches is never chosen. Only noises in choices that a record can move count; the others are the same in both
worlds.

(5) Sampling is exact. U's bits are drawn as far as needed. V = 1 - U begins with a word w of 64 bits, and y falls with
V. With E = -log(1 - V), log E moves by at most 2 2^-64 / min(V, U) over all V that begin with w: its derivative is
1 / (U E), and E >= V, U >= 1/2 if V < 1/2, else E >= log 2. It is computed in floats, as log(-log1p(-V)) for V < 1/2
and as log(-log U) otherwise, so that nothing cancels: numpy's log and log1p, and the operations beside them, are taken
to be right to 2^-42 of their result (2,048 units in the last place; they state less than 4), which moves log E by less
than 2^-40 (1 + |log E|). If no number half-way between two whole ones is that near to y, then nu is settled. If one is
(for about one draw in 2^38 grid / beta), or if V or U is below 2^-34, then y is computed in decimal arithmetic (correct
to the last of its digits) for the smallest and the largest V that is left, and 64 more bits are drawn until both give
the same nu. So nothing has to be said of floats and of how finely uniform numbers are spaced.

Not claimed: constant time. Who can time single draws learns which were slow.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
import numpy.typing as npt

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.accountants import float_above
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import GumbelChoice, check_positive
from hedgerow.privacy.mechanisms import exact_context, words

Ints = npt.NDArray[np.int64]
Number = int | float | Fraction

LARGEST_SCALE = 2**32
"""Of beta / grid: beyond it too many draws would need the slow way."""

_CHUNK = 1 << 14
_FLOAT_ERROR = 2.0**-40
_FEWEST = np.uint64(1 << 30)
_MORE_BITS = 64


@dataclass(frozen=True, slots=True)
class GumbelNoise:
    """Noise of scale `beta` in units of 2^-grid_bits, clipped to -log(clip) beta and clip beta."""

    beta: Fraction  # or a whole number or a float, which become one
    grid_bits: int
    clip: float = 96.0  # 2 e^-96 is 2^-137 for each noise

    def __post_init__(self) -> None:
        check_positive("beta", self.beta)
        object.__setattr__(self, "beta", Fraction(self.beta))
        if not isinstance(self.grid_bits, int) or not -1000 <= self.grid_bits <= 1000:
            raise InvalidParameter(f"grid_bits must be a whole number between -1000 and 1000, got {self.grid_bits!r}")
        if not 1 <= self.scale <= LARGEST_SCALE:
            raise InvalidParameter(
                f"beta must be between 1 and 2^32 units of 2^-grid_bits, got {float(self.scale):.6g} of them"
            )
        if not 8.0 <= self.clip <= 700.0:
            raise InvalidParameter(f"clip must be between 8 and 700, got {self.clip!r}")

    @classmethod
    def for_choice(cls, *, sensitivity: Number, epsilon: Number, grid_bits: int) -> Self:
        """The least noise whose choice costs at most epsilon: beta = (2 Delta + 4 grid) / epsilon, exactly.

        `sensitivity` is half the width of a change (`choices`).
        """
        check_positive("epsilon", epsilon)
        return cls(_width(sensitivity, grid_bits) / Fraction(epsilon), grid_bits)

    @property
    def scale(self) -> Fraction:
        """beta in units of the grid."""
        return self.beta * Fraction(2) ** self.grid_bits

    @property
    def highest(self) -> int:
        """No noise is above."""
        return math.ceil(Fraction(self.clip) * self.scale)

    @property
    def lowest(self) -> int:
        """No noise is below; a little more than the text asks for, since the logarithm is rounded."""
        return -math.ceil(Fraction(math.log(self.clip) * (1.0 + 2.0**-40)) * self.scale)

    @property
    def clipped(self) -> float:
        """The chance that one noise is clipped: a bound, 2 e^-clip."""
        return 2.0 * math.exp(-self.clip) * (1.0 + 2.0**-40)

    def epsilon(self, sensitivity: Number) -> float:
        """The range of log ratios of a choice: (2 Delta + 4 grid) / beta, rounded up."""
        return float_above(_width(sensitivity, self.grid_bits) / self.beta)

    def event(self, *, sensitivity: Number, n_noises: int) -> GumbelChoice:
        """What choosing by this noise costs; `n_noises` are those of all choices that one record can move."""
        if n_noises < 1:
            raise InvalidParameter(f"n_noises must be at least 1, got {n_noises}")
        return GumbelChoice(
            float_above(Fraction(sensitivity)),
            self.epsilon(sensitivity),
            n_noises * self.clipped * (1.0 + 2.0**-40),
        )

    def draw(self, shape: int | tuple[int, ...], random: RandomBytes) -> Ints:
        """Independent noises, in units of the grid."""
        out = np.empty(shape, np.int64)
        flat = out.reshape(-1)
        for start in range(0, len(flat), _CHUNK):
            piece = flat[start : start + _CHUNK]
            drawn = words(len(piece), random)
            open_ = self._in_floats(drawn, piece)
            for place in np.flatnonzero(open_):
                piece[place] = self._settled(int(drawn[place]), random)
        return out

    def _in_floats(self, drawn: npt.NDArray[np.uint64], out: Ints) -> npt.NDArray[np.bool_]:
        """Noises for the first words of V; gives where floats do not settle them."""
        rest = ~drawn
        smaller = np.minimum(drawn, rest)
        part = np.ldexp(np.maximum(smaller, _FEWEST).astype(np.float64), -64)
        log_e = np.log(-np.where(drawn < rest, np.log1p(-part), np.log(part)))
        scale = float(self.scale)
        near = scale * (np.ldexp(2.0, -64) / part + _FLOAT_ERROR * (1.0 + np.abs(log_e)))
        middle = -scale * log_e - 0.5
        low, high = np.ceil(middle - near), np.ceil(middle + near)
        np.clip(low, self.lowest, self.highest, out=low)
        out[:] = low
        return np.asarray((low != np.clip(high, self.lowest, self.highest)) | (smaller < _FEWEST))

    def _settled(self, drawn: int, random: RandomBytes) -> int:
        """The noise for a V that begins with these 64 bits: more of them are drawn until it is settled."""
        n = 64
        while True:
            low, high = self._bound(drawn + 1, n, -1), self._bound(drawn, n, 1)
            if low == high:
                return low
            n += _MORE_BITS
            drawn = (drawn << _MORE_BITS) + int.from_bytes(random.bytes(_MORE_BITS // 8), "little")

    def _bound(self, v: int, n: int, side: int) -> int:
        """A number that the noise for V = v / 2^n is not above (side 1) or below (side -1), mostly the noise itself.

        With n + 40 digits, 1 - V is off by a part of 10^-(n+39), its logarithm E >= 2^-n by a part of 2^n 10^-(n+38),
        and y by less than scale (1 + |log E|) 10^-(n/2+20), which is allowed for.
        """
        if v in {0, 1 << n}:
            return self.lowest if v else self.highest
        with decimal.localcontext(exact_context(n + 40)):
            e = -(decimal.Decimal((1 << n) - v) / (1 << n)).ln()
            log_e = e.ln()
            scale = decimal.Decimal(self.scale.numerator) / self.scale.denominator
            error = scale * (1 + abs(log_e)) * decimal.Decimal(10) ** -(n // 2 + 20)
            nearest = -scale * log_e - decimal.Decimal("0.5") + side * error
            return min(max(int(nearest.to_integral_value(decimal.ROUND_CEILING)), self.lowest), self.highest)


def _width(sensitivity: Number, grid_bits: int) -> Fraction:
    check_positive("sensitivity", sensitivity)
    return 2 * Fraction(sensitivity) + 4 / Fraction(2) ** grid_bits
