"""Choices: one of many public candidates, the better the likelier. Pure differential privacy, in floats too.

Several choices may be made at once, each from its own set of records, as the nodes of one level of a tree. Candidates
of equal utility come as one group with a multiplicity. How many candidates there are is public; how they fall into
groups is not, and no candidate's probability depends on it.

Privacy of the ideal choice. Write u_i for the utilities of one choice, M for the largest, x_i = r (M - u_i) with a rate
r. Let one change of the records move them by d_i, and let w = max d_i - min d_i be the width of that change.

(1) Exponential mechanism: P(i) proportional to e^(-x_i), that is, to e^(r u_i). Then log P'(i) - log P(i) =
r d_i - log(sum_j P(j) e^(r d_j)), and the logarithm is between r min d and r max d, so the ratio is within -+ r w.

(2) Permute-and-flip: toss a coin with P(heads) = e^(-x_i) for each candidate, and take one of those that show heads,
all with the same probability. (McKenna and Sheldon 2020 visit candidates in random order and take the first whose coin
shows heads; as coins and order are independent, that is the same.) The outcome is distributed as the largest of
u_i + E_i, for independent exponential E_i of rate r: a candidate exceeds M with probability e^(-x_i), independently of
the others; some do; by how much is again exponential of rate r for each, so each of them is the largest with the same
probability. Now fix all E_j but E_i: i wins if E_i > max_j (u_j + E_j) - u_i, and the right side moves by at most w. An
exponential variable exceeds a limit y with probability e^(-r max(y, 0)), so the ratio is at most e^(r w), whatever the
other E_j are, and so on average.

With |d_i| <= Delta the width is at most 2 Delta, so r = epsilon / (2 Delta) gives epsilon. But only the width counts:
`sensitivity` may be that of the utilities after adding any number, the same for all candidates of a choice, which may
even depend on the records (sensitivity.py: `centred_gain_sensitivity`). Over several choices the losses of those that a
change moves add up, so `sensitivity` is the largest sum, over choices, of half the width. Adding or removing a record
moves one choice; replacing one may move two.

Privacy of what runs. All that is computed is the ideal mechanism for slightly other utilities:

(3) Utilities are computed with an error of at most e = magnitude 2^-48 each, which is more than a dozen operations on
exact sums make. Those beyond -+ magnitude are moved there; this takes each d_i to a number between 0 and d_i, so a
range of changes that holds 0 does not become wider. Errors add at most 2 e to Delta for each choice that moved. Choices
whose records did not change have the very same utilities; so sums must not depend on what else is computed beside them,
as sums of whole numbers do not.

(4) x_i is cut at 28, that is, u_i becomes max(u_i, M - 28 / r). M moves by a number between min d and max d, so this
does too, and the width does not grow. Now all e^(-x_i) > 2^-41; hopeless candidates together have a chance of at most
2^-40 times their number.

(5) e^(-x_i) is computed in floats. M - u_i and its product with r are each rounded by a factor within 1 -+ 2^-53, so
x_i, at most 28, is off by less than 2^-47. numpy's exp is taken to be right to a factor within 1 -+ 2^-48 (16 units in
the last place; it states at most 4), and to be exactly 1 at 0. So the float W_i is e^(-y_i) with |y_i - x_i| < 2^-46:
the exact weight for a utility that is off by less than 2^-46 / r, and M itself stays. That adds 2^-44 to r w.

(6) Given the floats W_i, choices are exact. Exponential: W_i in units of 2^-2s, rounded down. For s >= 47 that is
exact, as W_i is a multiple of 2^-93; in any case s >= 35, so it is off by a factor within 1 - 2^-29, which adds less
than 2^-27 to r w. Sums of these whole numbers are exact; a whole number below their sum is drawn by rejection, and
falls to a candidate with probability W_i / sum. Permute-and-flip: a coin compares 128 uniform bits with W_i, and one of
all heads is drawn by rejection.

So r is computed for epsilon (1 - 2^-40) - 2^-26, which pays for (5) and (6) in two choices that move and for the
rounding of r and of `sensitivity`, and for Delta + 2 e per choice that may move. What runs has at most the epsilon of
the event. By (1) the logarithms log P'(i) - log P(i) even lie in an interval of length epsilon, on which the zCDP bound
epsilon^2 / 8 for the exponential mechanism rests; that is not so for permute-and-flip.

Not claimed: constant time. Who can time a call learns something about how many draws were rejected, or groups compared.

Why not add Gumbel noise and take the largest: in floats -log(-log U) takes few and unevenly spaced values. The largest
of many is decided where they are sparsest, and candidates far behind cannot win at all; a probability of 0 beside one
above 0 is no pure differential privacy. `exponential_by_gumbel` is for study.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.coins import below, short_words, words
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Adjacency, Exponential, NonPrivate, PermuteAndFlip, Released

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Pair = tuple[Ints, Ints]
"""Whole numbers of more than 64 bits: upper 2^s + lower."""

SMALLEST_EPSILON = 2.0**-20
MOST_CANDIDATES = 2**26
"""Over all choices of one call."""

_LARGEST = 2.0**250  # so that no product of three such numbers overflows
_REACH = 28.0
_UTILITY_ERROR = 2.0**-48
_COIN_BITS = 16
_BLOCK = 1 << 8
_CHUNK = 1 << 13
"""Groups or candidates per round, whole blocks: the intermediate arrays stay in the second-level cache."""


class Chosen(NamedTuple):
    """The chosen candidate of each choice: its group, as a place in the utilities, and which of the group's members."""

    group: Ints
    member: Ints


def exponential(
    utilities: Floats,
    *,
    starts: Ints,
    multiplicity: Ints,
    sensitivity: float,
    epsilon: float,
    random: RandomBytes,
    magnitude: float,
    adjacency: Adjacency = "add_remove",
) -> Released[Chosen]:
    """One candidate for each choice by the exponential mechanism, exact as described at the top of this file.

    Choice c is among the groups starts[c] to starts[c + 1]; group i stands for multiplicity[i] candidates of utility
    utilities[i]. `magnitude` is a public bound of the utilities, from which follows how large rounding errors may be.
    Epsilon is for all choices together, for records of which each takes part in one of them.
    """
    groups = _Groups(utilities, starts, multiplicity)
    if epsilon == math.inf:
        return Released(groups.first_best(), NonPrivate("no noise was added"))
    event = Exponential(sensitivity, epsilon, adjacency)
    rate = _rate(sensitivity, epsilon, magnitude, groups.moved(adjacency))
    group = _by_weight(groups, _Weights(groups, rate, magnitude), random)
    return Released(Chosen(group, below(multiplicity[group], len(group), random)), event)


def permute_and_flip(
    utilities: Floats,
    *,
    starts: Ints,
    multiplicity: Ints,
    sensitivity: float,
    epsilon: float,
    random: RandomBytes,
    magnitude: float,
    adjacency: Adjacency = "add_remove",
) -> Released[Chosen]:
    """As `exponential`, by permute-and-flip: at the same epsilon its expected utility is never lower."""
    groups = _Groups(utilities, starts, multiplicity)
    if epsilon == math.inf:
        return Released(groups.first_best(), NonPrivate("no noise was added"))
    event = PermuteAndFlip(sensitivity, epsilon, adjacency)
    rate = _rate(sensitivity, epsilon, magnitude, groups.moved(adjacency))
    return Released(_by_coins(groups, _Weights(groups, rate, magnitude), random), event)


def _rate(sensitivity: float, epsilon: float, magnitude: float, moved: int) -> float:
    """The r of the proof: epsilon / (2 Delta) after what the steps of the proof take."""
    if not SMALLEST_EPSILON <= epsilon <= _LARGEST:
        raise InvalidParameter(f"epsilon of a choice must be at least 2^-20, got {epsilon!r}")
    if not 0.0 < magnitude <= _LARGEST:
        raise InvalidParameter(f"magnitude must be above 0 and at most 2^250, got {magnitude!r}")
    if not 1.0 / _LARGEST <= sensitivity <= _LARGEST:
        raise InvalidParameter(f"sensitivity of a choice must be between 2^-250 and 2^250, got {sensitivity!r}")
    kept = epsilon * (1.0 - 2.0**-40) - 2.0**-26
    return kept / (2.0 * (sensitivity + 2.0 * moved * magnitude * _UTILITY_ERROR))


class _Groups:
    """The groups of all choices, checked."""

    def __init__(self, utilities: Floats, starts: Ints, multiplicity: Ints) -> None:
        _check_array("utilities", utilities, np.float64)
        _check_array("starts", starts, np.int64)
        _check_array("multiplicity", multiplicity, np.int64)
        if len(multiplicity) != len(utilities):
            raise InvalidInput(f"{len(utilities)} utilities came with {len(multiplicity)} multiplicities")
        self.sizes = starts[1:] - starts[:-1]
        if len(starts) < 2 or starts[0] != 0 or starts[-1] != len(utilities) or self.sizes.min() < 1:
            raise InvalidInput("starts must rise from 0 to the number of utilities, with a candidate in every choice")
        self.utilities, self.starts, self.multiplicity = utilities, starts, multiplicity
        self.best, self.lowest = np.maximum.reduceat(utilities, starts[:-1]), utilities.min()
        if not (self.best.max() < math.inf and self.lowest > -math.inf):  # both are NaN if any is
            raise InvalidInput("a utility is not a finite number")
        if multiplicity.min() < 1 or multiplicity.max() > MOST_CANDIDATES:
            raise InvalidInput("a group must stand for at least 1 candidate and at most 2^26")
        self.candidates = int(multiplicity.sum())
        if self.candidates > MOST_CANDIDATES:
            raise InvalidInput(f"at most 2^26 candidates can be chosen from at once, got {self.candidates}")

    def moved(self, adjacency: Adjacency) -> int:
        """How many choices one change of the records can move."""
        return 2 if adjacency == "replace_one" and len(self.sizes) > 1 else 1

    def blocks(self) -> Ints:
        """Where blocks begin, and where the last ends: a choice, or 256 groups of a long one; none in two rounds."""
        every = np.arange(0, self.starts[-1], _BLOCK)
        if len(every) == 1:
            return self.starts
        long = self.sizes[np.searchsorted(self.starts, every, side="right") - 1] > _BLOCK
        return np.unique(np.concatenate([self.starts, every[long | (every % _CHUNK == 0)]]))

    def first_best(self) -> Chosen:
        """The first group of the largest utility in each choice."""
        places = np.flatnonzero(self.utilities == np.repeat(self.best, self.sizes))
        return Chosen(places[np.searchsorted(places, self.starts[:-1])], np.zeros(len(self.sizes), np.int64))


class _Weights:
    """e^(-x) for the groups, a piece at a time: steps (3) to (5) of the proof."""

    def __init__(self, groups: _Groups, rate: float, magnitude: float) -> None:
        self._groups, self._rate, self._magnitude = groups, rate, magnitude
        self._beyond = groups.lowest < -magnitude or groups.best.max() > magnitude
        self._best = np.minimum(np.maximum(groups.best, -magnitude), magnitude)

    def piece(self, start: int, stop: int, out: Floats | None = None) -> Floats:
        """Those of the groups from `start` to before `stop`."""
        utilities = self._groups.utilities[start:stop]
        if self._beyond:
            utilities = np.minimum(np.maximum(utilities, -self._magnitude), self._magnitude)
        x = np.subtract(utilities, self._best_of(start, stop), out=out)
        x *= self._rate
        np.maximum(x, -_REACH, out=x)
        return np.exp(x, out=x)

    def _best_of(self, start: int, stop: int) -> Floats:
        """The largest utility of the choice of each group, in an array, or as one number if it is one choice."""
        starts = self._groups.starts
        first, last = (int(place) for place in np.searchsorted(starts, (start, stop - 1), side="right") - 1)
        if first == last:
            return self._best[first : first + 1]
        ends = np.minimum(starts[first + 1 : last + 2], stop)
        return np.repeat(self._best[first : last + 1], ends - np.maximum(starts[first : last + 1], start))


def _by_weight(groups: _Groups, weights: _Weights, random: RandomBytes) -> Ints:
    """A group for each choice, with probability proportional to weight times multiplicity, exactly.

    Weights are whole numbers, high 2^s + low, in units of 2^-2s. Sums of high, and of low, over all candidates stay
    below 2^62, as s = 62 - (bits of the number of candidates). First a block of groups is found, then a group in it.
    """
    s = 62 - groups.candidates.bit_length()
    blocks = groups.blocks()
    floats = np.empty(len(groups.utilities))
    high, low = np.empty(len(blocks) - 1, np.int64), np.empty(len(blocks) - 1, np.int64)
    begin = 0
    for start in range(0, len(floats), _CHUNK):
        stop = min(start + _CHUNK, len(floats))
        end = int(np.searchsorted(blocks, stop))
        piece = weights.piece(start, stop, floats[start:stop])
        inside = blocks[begin:end] - start
        for half, sums in zip(_halves(piece, groups.multiplicity[start:stop], s), (high, low), strict=True):
            np.add.reduceat(half, inside, out=sums[begin:end])
        begin = end
    block, drawn = _draw_block(groups.starts, blocks, high, low, s, random)
    group = np.empty(len(block), np.int64)
    longest = int((blocks[block + 1] - blocks[block]).max())
    step = max(_CHUNK // longest, 1)
    for first in range(0, len(block), step):
        chosen = block[first : first + step]
        places, outside = _rows(blocks[chosen], blocks[chosen + 1])
        halves = _halves(floats[places], np.where(outside, 0, groups.multiplicity[places]), s)
        running = _tidy(np.cumsum(halves[0], axis=1), np.cumsum(halves[1], axis=1), s)
        rest = drawn[0][first : first + step], drawn[1][first : first + step]
        group[first : first + step] = blocks[chosen] + _passed(running, rest)
    return group


def _draw_block(starts: Ints, blocks: Ints, high: Ints, low: Ints, s: int, random: RandomBytes) -> tuple[Ints, Pair]:
    """A uniform number below the total of each choice: the block that it falls into, and where in the block."""
    if len(blocks) == len(starts):  # each choice is one block
        return np.arange(len(blocks) - 1), _below(_tidy(high, low, s), s, random)
    begin = np.searchsorted(blocks, starts)
    totals = np.add.reduceat(high, begin[:-1]), np.add.reduceat(low, begin[:-1])
    drawn = _below(_tidy(*totals, s), s, random)
    places, outside = _rows(begin[:-1], begin[1:])
    upper, lower = (np.cumsum(np.where(outside, 0, half[places]), axis=1) for half in (high, low))
    upper, lower = _tidy(upper, lower, s)
    passed = _passed((upper, lower), drawn)
    # The blocks passed over add up to the last sum that is not above what was drawn, or to 0.
    rows, last = np.arange(len(passed)), np.maximum(passed - 1, 0)
    gone_upper, gone_lower = (np.where(passed > 0, half[rows, last], 0) for half in (upper, lower))
    return begin[:-1] + passed, _tidy(drawn[0] - gone_upper, drawn[1] - gone_lower, s)


def _rows(starts: Ints, stops: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The places from each start to before its stop, a row for each; and the cells of that table which are too many."""
    places = starts[:, np.newaxis] + np.arange((stops - starts).max())
    outside = places >= stops[:, np.newaxis]
    places[outside] = 0
    return places, outside


def _passed(sums: Pair, drawn: Pair) -> Ints:
    """How many of the running sums in each row are not above what was drawn."""
    upper, lower = sums
    drawn_upper, drawn_lower = drawn[0][:, np.newaxis], drawn[1][:, np.newaxis]
    not_above: npt.NDArray[np.bool_] = (upper < drawn_upper) | ((upper == drawn_upper) & (lower <= drawn_lower))
    passed: Ints = not_above.sum(axis=1)
    return passed


def _halves(weights: Floats, multiplicity: Ints, s: int) -> Pair:
    """Weights times multiplicities in units of 2^-2s, rounded down: what counts 2^s, and the rest."""
    scaled = weights * 2.0**s
    high = scaled.astype(np.int64)
    scaled -= high
    scaled *= 2.0**s
    low = scaled.astype(np.int64)
    high *= multiplicity
    low *= multiplicity
    return high, low


def _tidy(upper: Ints, lower: Ints, s: int) -> Pair:
    """The same numbers with a lower half in 0 .. 2^s - 1. A shift rounds down, so what is below 0 borrows."""
    return upper + (lower >> s), lower & ((1 << s) - 1)


def _below(limits: Pair, s: int, random: RandomBytes) -> Pair:
    """Uniform whole numbers below the limits, by rejection, which at worst takes half of them."""
    limit_upper, limit_lower = limits
    # As many bits as the limit has. A float may round it up to the next power of two: one bit more, and still uniform.
    shift = (64 - np.frexp(limit_upper.astype(np.float64))[1]).astype(np.uint64)
    upper, lower = _pairs(shift, s, random)
    while len(again := np.flatnonzero((upper > limit_upper) | ((upper == limit_upper) & (lower >= limit_lower)))):
        upper[again], lower[again] = _pairs(shift[again], s, random)
    return upper, lower


def _pairs(shift: npt.NDArray[np.uint64], s: int, random: RandomBytes) -> Pair:
    drawn = words(2 * len(shift), random)
    return (drawn[: len(shift)] >> shift).view(np.int64), (drawn[len(shift) :] >> np.uint64(64 - s)).view(np.int64)


def _by_coins(groups: _Groups, weights: _Weights, random: RandomBytes) -> Chosen:
    """A coin for each candidate, and one of those that show heads for each choice."""
    ends = np.cumsum(groups.multiplicity)
    heads: list[Ints] = []
    group, begin = 0, 0
    while group < len(ends):
        stop = max(int(np.searchsorted(ends, begin + _CHUNK, side="right")), group + 1)
        heads.append(_heads(weights.piece(group, stop), groups.multiplicity[group:stop], random) + begin)
        group, begin = stop, int(ends[stop - 1])
    candidates = np.concatenate(heads)
    bounds = np.searchsorted(candidates, np.concatenate([[0], ends[groups.starts[1:] - 1]]))
    chosen = candidates[bounds[:-1] + below(np.diff(bounds), len(bounds) - 1, random)]
    found = np.searchsorted(ends, chosen, side="right")
    return Chosen(found, chosen - (ends[found] - groups.multiplicity[found]))


def _heads(weights: Floats, multiplicity: Ints, random: RandomBytes) -> Ints:
    """The candidates whose coin shows heads: 128 uniform bits, of which 16 are drawn at first, below the weight."""
    first = (weights * 2.0**_COIN_BITS).astype(np.int32)  # 2^16 for a weight of 1, which no 16 bits reach
    thresholds = np.repeat(first, multiplicity)
    drawn = short_words(len(thresholds), random)
    shown = drawn < thresholds
    tied = np.flatnonzero(drawn == thresholds)
    if len(tied):
        of_group = np.searchsorted(np.cumsum(multiplicity), tied, side="right")
        for place, group in zip(tied, of_group, strict=True):
            shown[place] = _settle(float(weights[group]), int(drawn[place]), random)
    return np.flatnonzero(shown)


def _settle(weight: float, drawn: int, random: RandomBytes) -> bool:
    """The outcome of a coin whose first 16 bits equal those of its weight: the other 112 decide."""
    rest = int.from_bytes(random.bytes(14), "little")
    return (drawn << 112) + rest < int(math.ldexp(weight, 128))


def exponential_by_gumbel(
    utilities: Floats, *, starts: Ints, sensitivity: float, epsilon: float, generator: np.random.Generator
) -> Ints:
    """For study only: the distribution of `exponential` by the largest of utilities with Gumbel noise, in floats.

    No event comes with it, because in floats it is not differentially private; see the top of this file.
    """
    noisy = utilities * (epsilon / (2.0 * sensitivity)) + generator.gumbel(size=len(utilities))
    places = [start + int(np.argmax(noisy[start:stop])) for start, stop in pairwise(starts.tolist())]
    return np.array(places, np.int64)


def _check_array(name: str, array: object, dtype: type) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
        found = getattr(array, "dtype", type(array).__name__)
        raise InvalidInput(f"{name} must be a one-dimensional array of {np.dtype(dtype)}, got {found}")
