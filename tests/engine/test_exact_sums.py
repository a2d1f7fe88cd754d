"""Exact sums of floats: the same however they are divided, and never below the truth."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.engine.exact_sums import N_LIMBS, exact_limbs, nearest_above
from hedgerow.engine.losses import Loss, Quantiser, weight_total

WEIGHTS = st.lists(st.floats(0.0, 1e300, allow_subnormal=True), min_size=1, max_size=30)


@given(WEIGHTS, st.integers(0, 30))
def test_the_sum_is_the_next_float_and_adds_up_over_parties(values, cut):
    """The smallest float that is not below the exact sum; digits of two parties add up to those of both."""
    weights = np.array(values)
    exact = sum(map(Fraction, values))
    total = nearest_above(exact_limbs(weights))
    assert Fraction(total) >= exact
    assert total == 0 or Fraction(math.nextafter(total, 0.0)) < exact
    limbs = exact_limbs(weights[:cut]) + exact_limbs(weights[cut:])
    assert limbs.shape == (N_LIMBS,)
    assert nearest_above(limbs) == total


def test_whole_weights_are_summed_as_they_are():
    """Weight 2 is the row twice, in the scale of gradients too."""
    weights = np.array([1.0, 2.0, 0.0, 5.0])
    assert weight_total(weights, 4) == 8.0
    loss = Loss("logistic")
    assert Quantiser.for_rows(loss, 4, weights) == Quantiser.for_job(loss, 8.0, n_rows=3)
    assert nearest_above(exact_limbs(np.full(3, 1.7e308))) == math.inf
