"""Sensitivities: a search for the worst case comes close to each bound, and never above it."""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.sensitivity import (
    bounded_choice_sensitivity,
    bounded_sum_sensitivity,
    centred_gain_sensitivity,
    clipped_leaf_sensitivity,
    gain_sensitivity,
    histogram_sensitivity,
    leaf_sensitivity,
)

L2 = pytest.mark.parametrize("l2", [0.0, 0.1, 1.0, 10.0])
ROUNDING = 1e-9
"""Gains of many records are computed with errors of this order."""


def gain(S, n, l2):
    """S^2 / (n + l2), and 0 for nothing."""
    return S * S / (n + l2) if n + l2 > 0 else 0.0


def leaf(S, n, l2):
    """-S / (n + l2), and 0 for nothing."""
    return -S / (n + l2) if n + l2 > 0 else 0.0


def sides(rng, bound, draws=1500):
    """Sides of a split, from empty to many records, with sums anywhere in their range and often at its ends."""
    for _ in range(draws):
        n = int(rng.choice([0, 1, 2, 3, 10, 1000, 10**6]) * rng.random() + 0.5)
        yield n, n * bound * rng.choice([-1.0, 1.0, rng.uniform(-1, 1)])


class NewtonCounterexample(NamedTuple):
    """A side of a split before and after one record of logistic loss is added, and what G^2 / (H + l) makes of it."""

    before: tuple[float, float]  # G, H
    after: tuple[float, float]
    change: float  # of the gain
    claimed: float  # 3 bound^2, which holds with counts as denominators


def newton_counterexample(l2=0.1, records=10_000, probability=0.999):
    """Gains with hessians as denominators, G^2 / (H + l), have no such bound: here is a case.

    `records` of label 0, which the model gives `probability`: g = p and h = p (1 - p) each. One more of them moves
    n^2 p^2 / (n p (1 - p) + l) by about p / (1 - p) for many records, which is as large as the model is sure and wrong;
    |g| <= 1 does not help. So split selection by the gain is for counts as denominators only.
    """
    g, h = probability, probability * (1.0 - probability)
    before, after = (records * g, records * h), ((records + 1) * g, (records + 1) * h)
    gains = [G * G / (H + l2) if G else 0.0 for G, H in (before, after)]
    return NewtonCounterexample(before, after, gains[1] - gains[0], gain_sensitivity(1.0))


def climb(change, start, limits, rng, steps=300):
    """The largest value of `change` that random steps within the limits find, from `start` on."""
    place, best, width = np.array(start, float), change(*start), 1.0
    for _ in range(steps):
        moved = np.clip(place + width * rng.normal(size=len(place)) * limits, -limits, limits)
        if (value := change(*moved)) > best:
            place, best = moved, value
        else:
            width = max(width * 0.95, 1e-3)
    return best


# --- gains -----------------------------------------------------------------------------------------------------------


@L2
@pytest.mark.parametrize("bound", [1.0, 0.5])
def test_adding_a_record_moves_the_gain_by_minus_3_to_1(l2, bound):
    """Random sides and hill climbing find nearly 3 down and 1 up, and nothing beyond."""
    rng = np.random.default_rng(0)
    changes = [
        gain(S + g, n + 1, l2) - gain(S, n, l2)
        for n, S in sides(rng, bound)
        for g in (-bound, bound, rng.uniform(-bound, bound))
    ]
    n = 10**6
    limits = np.array([n * bound, bound])
    changes.append(climb(lambda S, g: gain(S + g, n + 1, l2) - gain(S, n, l2), (0.0, 0.0), limits, rng))
    changes.append(-climb(lambda S, g: gain(S, n, l2) - gain(S + g, n + 1, l2), (0.0, 0.0), limits, rng))
    up, down, square = max(changes), -min(changes), bound**2
    assert down <= gain_sensitivity(bound) + ROUNDING
    assert up <= square + ROUNDING
    assert down >= 0.99 * gain_sensitivity(bound)
    assert up + down >= 0.99 * 2 * centred_gain_sensitivity(bound)
    assert up + down <= 2 * centred_gain_sensitivity(bound) + ROUNDING


@L2
def test_replacing_a_record_moves_the_gain_by_4(l2):
    """On one side or from one side to the other: nearly 4, and nothing beyond."""
    rng = np.random.default_rng(1)
    within, across = [], []
    for (n, T), (m, R) in zip(sides(rng, 1.0), sides(rng, 1.0), strict=True):
        out, new = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], 2)
        within.append(gain(T + new, n + 1, l2) - gain(T + out, n + 1, l2))
        across.append(gain(T, n, l2) - gain(T + out, n + 1, l2) + gain(R + new, m + 1, l2) - gain(R, m, l2))
    for changes in (within, across):
        largest = max(abs(change) for change in changes)
        assert 0.99 * gain_sensitivity(1.0, "replace_one") <= largest <= 4 + ROUNDING


def test_replacing_a_record_moves_two_nodes_by_3_each():
    """From one node to another: 6 by the gain alone, which is why levels need the centred one."""
    n = 10**6
    once = gain(n - 1, n + 1, 0.1) - gain(
        n, n, 0.1
    )  # a record of the other sign comes in; one like it leaves elsewhere
    assert abs(once) > 2.99
    assert 2 * abs(once) > 1.4 * gain_sensitivity(1.0, "replace_one")
    # Width 4 in each of the two nodes, so 2 + 2.
    assert centred_gain_sensitivity(1.0, "replace_one") == 2 * centred_gain_sensitivity(1.0)


@pytest.mark.parametrize("l2", [0.0, 0.1, 1.0])
def test_gains_of_all_small_cases(l2):
    """Every side of up to five records with gradients -1, 0 and 1, every record added, removed or replaced."""
    for n in range(6):
        sums = {sum(gradients) for gradients in product((-1, 0, 1), repeat=n)}
        for S, g in product(sums, (-1, 0, 1)):
            change = gain(S + g, n + 1, l2) - gain(S, n, l2)
            assert -3 < change <= 1 + ROUNDING
            assert all(abs(gain(S + new, n + 1, l2) - gain(S + g, n + 1, l2)) < 4 for new in (-1, 0, 1))


def test_whole_number_gradients_change_nothing():
    """Gradients in units of 2^-10 have the sensitivity of their bound in units."""
    assert gain_sensitivity(1024.0) == 1024.0**2 * gain_sensitivity(1.0)
    assert leaf_sensitivity(1024.0, 0.5) == pytest.approx(1024.0 * leaf_sensitivity(1.0, 0.5), rel=1e-15)
    n, bound = 10**6, 1024
    assert 0.99 < (gain(n * bound, n, 0.1) - gain((n - 1) * bound, n + 1, 0.1)) / gain_sensitivity(bound) <= 1


def test_hessians_as_denominators_have_no_such_bound():
    """The Newton gain moves by more than fifty times 3 bound^2, and the more the surer the model is."""
    case = newton_counterexample()
    assert case.claimed == gain_sensitivity(1.0)
    gains = [G * G / (H + 0.1) for G, H in (case.before, case.after)]
    assert case.change == pytest.approx(gains[1] - gains[0])
    assert case.change > 50 * case.claimed
    assert newton_counterexample(probability=0.9999).change > 5 * case.change
    assert newton_counterexample(l2=1.0, records=10**6).change > 50 * case.claimed
    assert newton_counterexample(records=0, probability=0.5).change == pytest.approx(0.25 / 0.35)


# --- leaves ----------------------------------------------------------------------------------------------------------


@L2
@pytest.mark.parametrize("clip", [math.inf, 0.3])
def test_leaves_move_by_their_bound(l2, clip):
    """Adding a record and replacing one, in one leaf or from one to another: the bound is met and not exceeded."""
    rng = np.random.default_rng(2)

    def value(S, n):
        return min(max(leaf(S, n, l2), -clip), clip)

    added, replaced = [], []
    for (n, S), (m, R) in zip(sides(rng, 1.0), sides(rng, 1.0), strict=True):
        out, new = rng.choice([-1.0, 1.0], 2)
        added.append(abs(value(S + new, n + 1) - value(S, n)))
        replaced.append(abs(value(S + new, n + 1) - value(S + out, n + 1)))
        replaced.append(abs(value(S, n) - value(S + out, n + 1)) + abs(value(R + new, m + 1) - value(R, m)))
    for changes, adjacency in ((added, "add_remove"), (replaced, "replace_one")):
        bound = clipped_leaf_sensitivity(1.0, l2, clip, adjacency)
        assert max(changes) <= bound * (1 + 1e-12)
        # Clipping far below the leaf's own range leaves a gap: a record cannot move a value from end to end.
        tight = 1.0 if math.isinf(clip) or clip >= 1 / (1 + l2) else 0.49
        assert max(changes) >= 0.99 * tight * bound
    if math.isinf(clip):
        assert clipped_leaf_sensitivity(1.0, l2, clip) == leaf_sensitivity(1.0, l2) == 1.0 / (1.0 + l2)


def test_a_clip_below_the_bound_counts_from_end_to_end():
    """With one record of each sign in turn, a clipped leaf moves by twice the clip."""
    assert clipped_leaf_sensitivity(1.0, 0.0, 0.01) == 0.02
    assert clipped_leaf_sensitivity(1.0, 0.0, 0.01, "replace_one") == 0.04
    before, after = (float(np.clip(leaf(S, n, 0.0), -0.01, 0.01)) for S, n in ((0.02, 1), (-0.98, 2)))
    assert abs(after - before) == pytest.approx(0.02)


# --- pairs and histograms --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [1, 7])
def test_histograms(columns):
    """Counted from two actual tables that differ in one record in every column."""
    before = np.zeros((columns, 4), int)
    before[:, 0] = 1
    added, replaced = before.copy(), np.roll(before, 1, axis=1)
    added[:, 2] += 1
    for after, adjacency in ((added, "add_remove"), (replaced, "replace_one")):
        change = (after - before).ravel()
        assert histogram_sensitivity(columns, adjacency) == np.abs(change).sum()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gain_sensitivity(0.0), "bound"),
        (lambda: gain_sensitivity(math.inf), "bound"),
        (lambda: gain_sensitivity(1.0, "both"), "adjacency"),
        (lambda: leaf_sensitivity(1.0, -0.1), "l2"),
        (lambda: clipped_leaf_sensitivity(1.0, 0.0, 0.0), "clip"),
        (lambda: clipped_leaf_sensitivity(1.0, 0.0, math.nan), "clip"),
        (lambda: histogram_sensitivity(0), "columns"),
    ],
)
def test_bad_parameters_are_refused(call, words):
    """Each with its name."""
    with pytest.raises(InvalidParameter, match=words):
        call()


# --- weights and several outputs -------------------------------------------------------------------------------------


def vector_gain(sums, weight, l2):
    """The part of one side: squares of all outputs, by the weight."""
    return float((sums**2).sum()) / (weight + l2) if weight + l2 > 0.0 else 0.0


@pytest.mark.parametrize("l2", [0.0, 0.1, 1.0, 7.0])
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_weighed_record_moves_a_gain_by_between_minus_three_and_one(l2, outputs):
    """Times its weight, in a search over sides of records at their bound, and both ends are approached."""
    rng = np.random.default_rng(int(10 * l2) + outputs)
    lowest = highest = 0.0
    for _ in range(20_000):
        n = float(rng.choice([0.0, 0.001, 0.3, 1.0, 5.0, 1e4]) * rng.uniform(0.5, 1.0))
        direction = rng.normal(size=outputs)
        direction /= np.linalg.norm(direction)
        sums = direction * n * rng.choice([0.0, 0.5, 1.0])
        own = direction * rng.choice([-1.0, 1.0, 0.3])
        weight = float(rng.choice([0.01, 0.5, 1.0]))
        moved = vector_gain(sums + weight * own, n + weight, l2) - vector_gain(sums, n, l2)
        lowest, highest = min(lowest, moved / weight), max(highest, moved / weight)
    assert -gain_sensitivity(1.0) - 1e-9 <= lowest < -2.9
    assert 0.9 < highest <= 1.0 + 1e-9


@pytest.mark.parametrize("l2", [0.0, 0.01, 0.1, 1.0, 7.0])
def test_a_weighed_record_moves_a_leaf_by_the_bound_at_most(l2):
    """Over any weight of the others, of a scalar or of a vector in L1; and the bound is reached."""
    bound, most = leaf_sensitivity(1.0, l2, weighted=True), 0.0
    for n in np.concatenate([[0.0], np.geomspace(1e-6, 100.0, 4000)]).tolist():
        for weight in (0.1, 0.7, 1.0):
            before = n / (n + l2) if n + l2 > 0.0 else 0.0
            after = (n - weight) / (n + weight + l2)  # the others pull one way, the record the other
            most = max(most, abs(before - after))
    assert 0.999 * bound <= most <= bound * (1.0 + 1e-9)
    assert leaf_sensitivity(1.0, l2) <= bound
    assert leaf_sensitivity(1.0, l2, "replace_one", weighted=True) == 2.0 * bound


@pytest.mark.parametrize("outputs", [2, 3, 10])
def test_a_vector_moves_the_values_of_a_leaf_by_its_absolute_sum_at_most(outputs):
    """In L1, clipped or not, over random records of which one is added."""
    rng = np.random.default_rng(outputs)
    bound, l2, clip = 2.0 * (1.0 - 1.0 / outputs), 0.1, 0.2

    def records(n):
        drawn = rng.normal(size=(n, outputs))
        return drawn / np.abs(drawn).sum(axis=1, keepdims=True) * bound

    for _ in range(3000):
        n = int(rng.integers(0, 4))
        others, own = records(n).sum(axis=0), records(1)[0]
        if rng.random() < 0.3 and n:
            others = -own * n
        before, after = others / (n + l2), (others + own) / (n + 1 + l2)
        moved = np.abs(before - after).sum()
        clipped = np.abs(np.clip(before, -clip, clip) - np.clip(after, -clip, clip)).sum()
        assert moved <= leaf_sensitivity(bound, l2) * (1.0 + 1e-9)
        assert clipped <= clipped_leaf_sensitivity(bound, l2, clip, outputs=outputs) * (1.0 + 1e-9)


def test_sums_to_which_a_record_adds_a_share():
    """All of them together by the largest each; a choice by half the width."""
    assert bounded_sum_sensitivity(11, 4096) == 11 * 4096.0 == bounded_sum_sensitivity(11, 4096, "replace_one")
    assert bounded_choice_sensitivity(4096.0) == 2048.0
    assert bounded_choice_sensitivity(4096.0, "replace_one") == 4096.0
    for wrong in ((0, 1), (1, 0)):
        with pytest.raises(InvalidParameter, match="at least 1"):
            bounded_sum_sensitivity(*wrong)
