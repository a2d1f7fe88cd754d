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
x_i, at most 28, is off by less than 2^-47. exp is taken to be right to a factor within 1 -+ 2^-48 (16 units in the
last place; libraries state at most 4), and to be exactly 1 at 0. So the float W_i is e^(-y_i) with |y_i - x_i| < 2^-46:
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
above 0 is no pure differential privacy.

Weights, their sums and the search for a group are compiled: a tree of depth 6 makes six calls for a few hundred groups
each, where numpy would spend its time on calls rather than on numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, NotRequired, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import kernel
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Adjacency, Exponential, NonPrivate, PermuteAndFlip, Released
from hedgerow.privacy.mechanisms import below, short_words

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

SMALLEST_EPSILON = 2.0**-20
MOST_CANDIDATES = 2**26
"""Over all choices of one call."""

_LARGEST = 2.0**250  # so that no product of three such numbers overflows
_REACH = 28.0
_UTILITY_ERROR = 2.0**-48
_COIN_BITS = 16
_CHUNK = 1 << 13
"""Candidates per round: the intermediate arrays stay in the second-level cache."""


class Chosen(NamedTuple):
    """The chosen candidate of each choice: its group, as a place in the utilities, and which of the group's members."""

    group: Ints
    member: Ints


class Choices(TypedDict):
    """What is chosen from, and what it may cost.

    Choice c is among the groups starts[c] to starts[c + 1]; group i stands for multiplicity[i] candidates of utility
    utilities[i]. `magnitude` is a public bound of the utilities, from which follows how large rounding errors may be.
    Epsilon is for all choices together, for records of which each takes part in one of them.
    """

    starts: Ints
    multiplicity: Ints
    sensitivity: float
    epsilon: float
    random: RandomBytes
    magnitude: float
    adjacency: NotRequired[Adjacency]


def exponential(utilities: Floats, **of: Unpack[Choices]) -> Released[Chosen]:
    """One candidate for each choice by the exponential mechanism, exact as described at the top of this file."""
    return _choose(Exponential, _by_weight, utilities, of)


def permute_and_flip(utilities: Floats, **of: Unpack[Choices]) -> Released[Chosen]:
    """As `exponential`, by permute-and-flip: at the same epsilon its expected utility is never lower."""
    return _choose(PermuteAndFlip, _by_coins, utilities, of)


def _choose(
    kind: type[Exponential | PermuteAndFlip],
    draw: Callable[[_Groups, _Weights, RandomBytes], Chosen],
    utilities: Floats,
    of: Choices,
) -> Released[Chosen]:
    groups = _Groups(utilities, of["starts"], of["multiplicity"])
    if of["epsilon"] == math.inf:
        return Released(groups.first_best(), NonPrivate("no noise was added"))
    event = kind(of["sensitivity"], of["epsilon"], of.get("adjacency", "add_remove"))
    rate = _rate(event.sensitivity, event.epsilon, of["magnitude"], groups.moved(event.adjacency))
    return Released(draw(groups, _weights(groups, rate, of["magnitude"]), of["random"]), event)


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
        self.utilities, self.starts, self.multiplicity = utilities, starts, multiplicity
        problem, self.candidates = _look_through(utilities, starts, multiplicity)
        if problem:
            raise InvalidInput(_PROBLEMS[problem])
        if self.candidates > MOST_CANDIDATES:
            raise InvalidInput(f"at most 2^26 candidates can be chosen from at once, got {self.candidates}")

    def moved(self, adjacency: Adjacency) -> int:
        """How many choices one change of the records can move."""
        return 2 if adjacency == "replace_one" and len(self.starts) > 2 else 1

    def first_best(self) -> Chosen:
        """The first group of the largest utility in each choice."""
        begins, sizes = self.starts[:-1], np.diff(self.starts)
        places = np.flatnonzero(self.utilities == np.repeat(np.maximum.reduceat(self.utilities, begins), sizes))
        return Chosen(places[np.searchsorted(places, begins)], np.zeros(len(sizes), np.int64))


_PROBLEMS = {
    1: "starts must rise from 0 to the number of utilities, with a candidate in every choice",
    2: "a utility is not a finite number",
    3: "a group must stand for at least 1 candidate and at most 2^26",
}


@kernel
def _look_through(utilities: Floats, starts: Ints, multiplicity: Ints) -> tuple[int, int]:
    """Which of the problems there is, 0 for none, and the number of all candidates."""
    if starts.shape[0] < 2 or starts[0] != 0 or starts[-1] != utilities.shape[0]:
        return 1, 0
    for choice in range(starts.shape[0] - 1):
        if starts[choice + 1] <= starts[choice]:
            return 1, 0
    for i in range(utilities.shape[0]):
        if not math.isfinite(utilities[i]):
            return 2, 0
    candidates = 0
    for i in range(multiplicity.shape[0]):
        if not 1 <= multiplicity[i] <= MOST_CANDIDATES:
            return 3, 0
        candidates += multiplicity[i]
    return 0, candidates


class _Weights(NamedTuple):
    """e^(-x) of each group, and the exact sums of each choice in units of 2^-2s, as upper 2^s + lower.

    Sums of upper halves, and of lower ones, stay below 2^62, as s = 62 - (bits of the number of candidates).
    """

    floats: Floats
    totals: Ints
    """[3, choices] the two halves, and a shift that makes a random word as long as the upper one."""
    s: int


def _weights(groups: _Groups, rate: float, magnitude: float) -> _Weights:
    s = 62 - groups.candidates.bit_length()
    floats, totals = np.empty(len(groups.utilities)), np.empty((3, len(groups.starts) - 1), np.int64)
    _weigh(groups.utilities, groups.starts, groups.multiplicity, rate, magnitude, s, floats, totals)
    return _Weights(floats, totals, s)


@kernel
def _weigh(
    utilities: Floats,
    starts: Ints,
    multiplicity: Ints,
    rate: float,
    magnitude: float,
    s: int,
    weights: Floats,  # out [groups]
    totals: Ints,  # out [3, choices]
) -> None:
    """Steps (3) to (6): weights as floats, and their exact sums."""
    unit = 2.0**s
    for choice in range(starts.shape[0] - 1):
        best = -magnitude
        for i in range(starts[choice], starts[choice + 1]):
            best = max(best, utilities[i])
        best = min(best, magnitude)
        upper, lower = np.int64(0), np.int64(0)
        for i in range(starts[choice], starts[choice + 1]):
            x = (min(max(utilities[i], -magnitude), magnitude) - best) * rate
            weights[i] = math.exp(max(x, -_REACH))
            scaled = weights[i] * unit
            high = np.int64(scaled)
            upper += high * multiplicity[i]
            lower += np.int64((scaled - np.float64(high)) * unit) * multiplicity[i]
        upper += lower >> np.int64(s)
        totals[0, choice] = upper
        totals[1, choice] = lower & ((np.int64(1) << np.int64(s)) - np.int64(1))
        # As many bits as the sum has. A float may round it up to the next power of two: one bit more, still uniform.
        totals[2, choice] = 64 - math.frexp(np.float64(upper))[1]


def _by_weight(groups: _Groups, weights: _Weights, random: RandomBytes) -> Chosen:
    """A candidate for each choice, with probability proportional to its weight, exactly."""
    n_choices = len(groups.starts) - 1
    group, open_ = np.empty(n_choices, np.int64), np.arange(n_choices)
    n_open = n_choices
    while n_open:
        drawn = np.frombuffer(random.bytes(16 * n_open), "<u8")
        n_open = _draw(
            weights.floats, groups.starts, groups.multiplicity, weights.totals, weights.s, drawn, n_open, open_, group
        )
    return Chosen(group, below(groups.multiplicity[group], n_choices, random))


@kernel
def _draw(
    weights: Floats,
    starts: Ints,
    multiplicity: Ints,
    totals: Ints,
    s: int,
    words: Words,  # in  [2 x n_open] upper halves, then lower halves
    n_open: int,
    open_: Ints,  # in/out the choices that are still to be made come first
    group: Ints,  # out [choices]
) -> int:
    """A uniform number below each total by rejection, and the group it falls into; returns how many were rejected."""
    unit, mask = 2.0**s, (np.int64(1) << np.int64(s)) - np.int64(1)
    n_rejected = 0
    for k in range(n_open):
        choice = open_[k]
        upper = np.int64(words[k] >> np.uint64(totals[2, choice]))
        lower = np.int64(words[n_open + k] >> np.uint64(64 - s))
        if upper > totals[0, choice] or (upper == totals[0, choice] and lower >= totals[1, choice]):
            open_[n_rejected] = choice
            n_rejected += 1
            continue
        sum_upper, sum_lower = np.int64(0), np.int64(0)
        for i in range(starts[choice], starts[choice + 1]):
            scaled = weights[i] * unit
            high = np.int64(scaled)
            sum_lower += np.int64((scaled - np.float64(high)) * unit) * multiplicity[i]
            sum_upper += high * multiplicity[i] + (sum_lower >> np.int64(s))
            sum_lower &= mask
            group[choice] = i
            if sum_upper > upper or (sum_upper == upper and sum_lower > lower):
                break
    return n_rejected


def _by_coins(groups: _Groups, weights: _Weights, random: RandomBytes) -> Chosen:
    """A coin for each candidate, and one of those that show heads for each choice."""
    ends = np.cumsum(groups.multiplicity)
    heads: list[Ints] = []
    group, begin = 0, 0
    while group < len(ends):
        stop = max(int(np.searchsorted(ends, begin + _CHUNK, side="right")), group + 1)
        heads.append(_heads(weights.floats[group:stop], groups.multiplicity[group:stop], random) + begin)
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


def _check_array(name: str, array: object, dtype: type) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
        found = getattr(array, "dtype", type(array).__name__)
        raise InvalidInput(f"{name} must be a one-dimensional array of {np.dtype(dtype)}, got {found}")
