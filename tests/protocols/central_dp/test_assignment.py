"""Subsets: disjoint, of the right sizes, and such that one record more touches one of them only."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hedgerow.protocols.central.dpboost.assignment import exact_sizes, independent_places, shares, subsets
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings

DPBOOST = DPBoostSettings(epsilon=1.0)
PARALLEL = DPBoostSettings(epsilon=1.0, protocol="central.parallel")


def as_fractions(settings, n_trees):
    """The shares as numbers."""
    parts, whole = shares(settings, n_trees)
    return [Fraction(part, whole) for part in parts]


def test_shares():
    """eta (1 - eta)^k / (1 - (1 - eta)^n) exactly; halves of what is left for the parallel baseline."""
    eta = Fraction(0.1)
    wanted = as_fractions(DPBOOST, 4)
    assert wanted == [eta * (1 - eta) ** k / (1 - (1 - eta) ** 4) for k in range(4)]
    assert sum(wanted) == 1
    assert as_fractions(PARALLEL, 3) == [Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)]


@pytest.mark.parametrize("settings", [DPBOOST, PARALLEL], ids=["dpboost", "parallel"])
@pytest.mark.parametrize("n_rows", [1, 999, 1000, 1033])
def test_adding_a_record_changes_one_subset(settings, n_rows):
    """With the same stream, all rows but the new one stay where they were: what parallel composition rests on."""
    before = subsets(settings, n_rows, 20, np.random.default_rng(3))
    after = subsets(settings, n_rows + 1, 20, np.random.default_rng(3))
    changed = [k for k, (a, b) in enumerate(zip(before, after, strict=True)) if a.tolist() != b.tolist()]
    assert len(changed) <= 1
    for k in changed:
        assert after[k].tolist() == [*before[k].tolist(), n_rows]


def test_removing_any_record_changes_one_subset():
    """Not only the last one: places belong to records, each with its own word of the stream."""
    words = np.random.default_rng(8).bytes(8 * 500)

    class Stream:
        def __init__(self, data):
            self.data = data

        def bytes(self, n):
            assert n == len(self.data)
            return self.data

    wanted = shares(DPBOOST, 50)
    places = independent_places(wanted, 500, Stream(words))
    for gone in (0, 123, 499):
        without = independent_places(wanted, 499, Stream(words[: 8 * gone] + words[8 * gone + 8 :]))
        assert np.array_equal(without, np.delete(places, gone))


def test_the_papers_sizes_change_several_subsets():
    """Why they are accounted for under replace_one only: one record more changes the sizes of several subsets."""
    several, wanted = 0, shares(DPBOOST, 50)
    for n_rows in range(1000, 1400):
        sizes = [exact_sizes(DPBOOST, wanted, n) for n in (n_rows, n_rows + 1)]
        several += sum(a != b for a, b in zip(*sizes, strict=True)) >= 2
    assert 0.2 < several / 400 < 0.35


@pytest.mark.parametrize("assignment", ["independent", "paper"])
@pytest.mark.parametrize("protocol", ["central.dpboost", "central.parallel", "central.sequential"])
def test_subsets_are_disjoint_and_as_large_as_they_should_be(protocol, assignment):
    """Exactly for the paper's, within six standard deviations for independent ones."""
    settings = DPBoostSettings(epsilon=1.0, protocol=protocol, assignment=assignment)
    n_rows, n_trees = 20_000, settings.ensembles[0]
    found = subsets(settings, n_rows, n_trees, np.random.default_rng(1))
    together = np.concatenate(found)
    assert len(found) == n_trees
    assert len(np.unique(together)) == len(together) <= n_rows
    if protocol == "central.sequential":
        assert together.tolist() == list(range(n_rows))
        return
    for rows, share in zip(found, as_fractions(settings, n_trees), strict=True):
        expected, deviation = n_rows * float(share), math.sqrt(n_rows * float(share * (1 - share)))
        assert abs(len(rows) - expected) <= (1.0 if assignment == "paper" else 6 * deviation + 1)
    if protocol == "central.dpboost" and assignment == "independent":
        assert len(together) == n_rows


def test_first_trees_get_most():
    """Position counts from 0: the first tree of an ensemble has the largest share, in every ensemble."""
    wanted = as_fractions(DPBOOST, 50)
    assert wanted == sorted(wanted, reverse=True)
    assert float(wanted[0]) == pytest.approx(0.1 / (1 - 0.9**50))


def test_rows_of_the_paper_are_a_random_permutation():
    """Every row is equally likely to be in the first subset."""
    settings = DPBoostSettings(epsilon=1.0, assignment="paper", learning_rate=0.5)
    counts = np.zeros(10)
    for seed in range(300):
        counts[subsets(settings, 10, 2, np.random.default_rng(seed))[0]] += 1
    assert counts.sum() == 300 * 6  # floor(10 * 2/3)
    assert np.abs(counts - 180).max() < 5 * math.sqrt(300 * 0.6 * 0.4)
