"""The compiled exponential mechanism is the one of whole numbers of any length: same words, same choice."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from hedgerow.privacy.choices import exponential
from hedgerow.privacy.events import Exponential, NonPrivate, Released
from hedgerow.privacy.mechanisms import below


class Counted:
    """A stream that remembers how many bytes were drawn."""

    def __init__(self, seed):
        self.generator, self.n_bytes = np.random.default_rng(seed), 0

    def bytes(self, n):
        """The next n bytes."""
        self.n_bytes += n
        return self.generator.bytes(n)


def case(seed):
    """A random problem: one to forty choices among one to some hundred groups, flat or steep."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, [2, 10, 400][seed % 3], size=rng.integers(1, 41))
    utilities = rng.normal(size=sizes.sum()) * 10.0 ** rng.uniform(-3, 4)
    utilities[rng.random(len(utilities)) < 0.1] = utilities.max()
    starts = np.concatenate([[0], np.cumsum(sizes)])
    how = {
        "starts": starts,
        "multiplicity": rng.integers(1, [2, 2000][seed % 2], size=len(utilities)),
        "sensitivity": float(10.0 ** rng.uniform(-1, 1)),
        "epsilon": float(10.0 ** rng.uniform(-4, 2)),
        "magnitude": [2.0**24, 5.0][seed % 2],
        "adjacency": ["add_remove", "replace_one"][seed % 2],
    }
    return utilities, how


def slow(utilities, random, *, starts, multiplicity, sensitivity, epsilon, magnitude, adjacency):
    """The exponential mechanism by the steps of the proof in privacy/choices.py, one group after the other."""
    moved = 2 if adjacency == "replace_one" and len(starts) > 2 else 1
    rate = (epsilon * (1 - 2.0**-40) - 2.0**-26) / (2 * (sensitivity + 2 * moved * magnitude * 2.0**-48))
    s = 62 - int(multiplicity.sum()).bit_length()
    clipped = np.clip(utilities, -magnitude, magnitude)
    shares, open_, group = [], list(range(len(starts) - 1)), np.zeros(len(starts) - 1, int)
    for start, stop in pairwise(starts):
        x = np.maximum((clipped[start:stop] - clipped[start:stop].max()) * rate, -28.0)
        shares.append(
            [int(Fraction(math.exp(v)) * 4**s) * int(n) for v, n in zip(x, multiplicity[start:stop], strict=True)]
        )
    while open_:
        words = np.frombuffer(random.bytes(16 * len(open_)), "<u8").tolist()
        again = []
        for k, choice in enumerate(open_):
            total = sum(shares[choice])
            bits = math.frexp(float(total >> s))[1]
            number = (words[k] >> (64 - bits) << s) + (words[len(open_) + k] >> (64 - s))
            if number >= total:
                again.append(choice)
            else:
                ends = np.cumsum(np.array(shares[choice], object))
                group[choice] = starts[choice] + sum(end <= number for end in ends)
        open_ = again
    member = below(multiplicity[group], len(group), random)
    return Released((group, member), Exponential(sensitivity, epsilon, adjacency))


@pytest.mark.parametrize("seed", range(60))
def test_same_words_same_choice(seed):
    """To the last word drawn, also where words are rejected and utilities are beyond the magnitude."""
    utilities, how = case(seed)
    fast, other = Counted(seed), Counted(seed)
    for _ in range(5):
        ours, theirs = exponential(utilities, random=fast, **how), slow(utilities, other, **how)
        assert ours.event == theirs.event
        assert np.array_equal(ours.values.group, theirs.values[0])
        assert np.array_equal(ours.values.member, theirs.values[1])
        assert fast.n_bytes == other.n_bytes


def test_frequencies():
    """The chance of a group is its multiplicity times e^(epsilon u / (2 Delta)), up to a constant."""
    utilities, multiplicity = np.array([0.0, 1.0, 3.0]), np.array([5, 1, 2])
    n = 20_000
    chosen, _ = exponential(
        np.tile(utilities, n),
        starts=np.arange(0, 3 * n + 1, 3),
        multiplicity=np.tile(multiplicity, n),
        sensitivity=1.0,
        epsilon=1.0,
        random=np.random.default_rng(0),
        magnitude=10.0,
    )
    wanted = multiplicity * np.exp(utilities / 2)
    wanted /= wanted.sum()
    found = np.bincount(chosen.group % 3, minlength=3)
    assert np.abs(found - n * wanted).max() < 5 * math.sqrt(n / 4)
    assert np.abs(np.bincount(chosen.member[chosen.group % 3 == 0]) * 5 / found[0] - 1).max() < 0.1


def test_without_noise():
    """An infinite epsilon takes the first of the best."""
    utilities, how = case(3)
    ours = exponential(utilities, random=np.random.default_rng(0), **(how | {"epsilon": math.inf}))
    best = [start + int(np.argmax(utilities[start:stop])) for start, stop in pairwise(how["starts"])]
    assert ours.event == NonPrivate("no noise was added")
    assert ours.values.group.tolist() == best
