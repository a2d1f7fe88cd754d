"""`privacy.choices.exponential`, compiled: the same arithmetic on the same random words, and so the same choices.

A tree of depth 6 makes six calls for a few hundred groups each, where numpy spends its time on calls rather than on
numbers. The proof that the choice is exact and what it costs is in privacy/choices.py; its steps are named below. Tests
hold the two against each other, word for word (tests/protocols/central_dp/test_choosing.py).
"""

from __future__ import annotations

import math

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.dtypes import Floats, Ints, Words
from hedgerow.privacy import choices
from hedgerow.privacy.choices import Chosen
from hedgerow.privacy.coins import below
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Adjacency, Exponential, Released

_REACH = 28.0
"""Step (4): differences of utilities beyond this many units of the rate are cut."""


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
    """As `privacy.choices.exponential`, for utilities that are finite and groups that have members, unchecked."""
    n_choices = len(starts) - 1
    candidates = int(multiplicity.sum())
    if math.isinf(epsilon) or epsilon < choices.SMALLEST_EPSILON or candidates > choices.MOST_CANDIDATES:
        return choices.exponential(
            utilities, starts=starts, multiplicity=multiplicity, sensitivity=sensitivity, epsilon=epsilon,
            random=random, magnitude=magnitude, adjacency=adjacency,
        )  # fmt: skip
    event = Exponential(sensitivity, epsilon, adjacency)
    moved = 2 if adjacency == "replace_one" and n_choices > 1 else 1
    kept = epsilon * (1.0 - 2.0**-40) - 2.0**-26
    rate = kept / (2.0 * (sensitivity + 2.0 * moved * magnitude * 2.0**-48))
    s = 62 - candidates.bit_length()
    weights, totals = np.empty(len(utilities)), np.empty((3, n_choices), np.int64)
    weigh(utilities, starts, multiplicity, rate, magnitude, s, weights, totals)
    group, open_ = np.empty(n_choices, np.int64), np.arange(n_choices)
    n_open = n_choices
    while n_open:
        words = np.frombuffer(random.bytes(16 * n_open), "<u8")
        n_open = draw(weights, starts, multiplicity, totals, s, words, n_open, open_, group)
    return Released(Chosen(group, below(multiplicity[group], n_choices, random)), event)


@kernel
def weigh(
    utilities: Floats,
    starts: Ints,
    multiplicity: Ints,
    rate: float,
    magnitude: float,
    s: int,
    weights: Floats,  # out [groups]
    totals: Ints,  # out [3, choices] upper and lower half of the sum of all weights, and a shift
) -> None:
    """Steps (3) to (6): weights as floats, and their exact sums in units of 2^-2s, as upper 2^s + lower.

    The shift makes a random word as long as the upper half.
    """
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
        totals[2, choice] = 64 - math.frexp(np.float64(upper))[1]


@kernel
def draw(
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
