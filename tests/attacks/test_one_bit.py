"""Theorem 3 of MaskedXGBoost for small active sets: the delta that really holds, against the one it claims."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.masked_xgboost.one_bit import smallest_delta
from hedgerow.errors import InvalidInput
from hedgerow.protocols.published.masked_gradients.theorems import largest_ratio

TARGET = 1e-3


def test_equal_splits_need_no_delta():
    """Nothing changes, nothing is told."""
    assert smallest_delta([1, 1, 0], [1, 1, 0], 1.0, 1.0, 0.1, n_samples=100).estimate == 0.0


def test_one_row_by_hand():
    """None active and then one: two normals of variances 2 s1^2 + s2^2 and s2^2, whose tails are known."""
    s1, epsilon = 1.0, 0.7
    wide, narrow = 3.0, 1.0
    at = math.sqrt((2 * epsilon + math.log(wide / narrow)) / (1 / narrow - 1 / wide))  # where the log-ratio is epsilon
    tails = [math.erfc(at / math.sqrt(2 * v)) for v in (wide, narrow)]
    exact = tails[0] - math.exp(epsilon) * tails[1]
    found = smallest_delta([0], [1], s1, 1.0, epsilon, confidence=0.999)
    # Rows that are active in neither are left out, so one that becomes active is the only one.
    assert found.low <= exact <= found.high


def test_splits_must_be_of_the_same_rows():
    """With the reason."""
    with pytest.raises(InvalidInput, match="same rows"):
        smallest_delta([1, 0], [1], 1.0, 1.0, 1.0)


def flipped(n_active, change):
    """Two splits: one with so many active rows, and one with a row more (+1) or less (-1)."""
    size = n_active + max(change, 0)
    return np.arange(size) < n_active, np.arange(size) < n_active + change


@pytest.mark.parametrize(
    ("epsilon", "n_active", "change", "delta"),
    [(4.0, 0, 1, 0.012), (4.0, 2, -1, 0.027), (8.0, 0, 1, 0.054), (8.0, 2, -1, 0.076), (8.0, 9, -1, 0.0015)],
)
def test_small_active_sets_break_the_theorem(epsilon, n_active, change, delta):
    """W = 1 and a target of 1e-3: where a single row is active before or after, it is exceeded ten times and more."""
    ratio = largest_ratio(epsilon, TARGET, 1000, direction="forward")
    found = smallest_delta(*flipped(n_active, change), math.sqrt(ratio), 1.0, epsilon, confidence=0.999)
    assert found.estimate == pytest.approx(delta, rel=0.15)
    assert found.low > TARGET


@pytest.mark.parametrize(("n_active", "change"), [(0, 1), (2, -1), (9, -1), (61, -1)])
def test_the_theorem_is_loose_at_small_epsilons(n_active, change):
    """At epsilon 1 it holds for small sets as well."""
    ratio = largest_ratio(1.0, TARGET, 1000, direction="forward")
    found = smallest_delta(*flipped(n_active, change), math.sqrt(ratio), 1.0, 1.0, n_samples=50_000)
    assert found.high < TARGET
