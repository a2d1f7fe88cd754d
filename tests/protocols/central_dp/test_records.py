"""The private side: gradients are bounded whatever the records are, scores are those of the released model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.protocols.central.dpboost.fit import CentralTraining
from hedgerow.protocols.central.dpboost.records import class_gradients, keep_bounded
from hedgerow.protocols.central.dpboost.settings import (
    COUNT_BITS,
    GRADIENT_BITS,
    MAX_ROWS,
    UNWEIGHTED,
    WEIGHT_BITS,
    WEIGHTED,
    DPBoostSettings,
)


@given(
    gradients=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=30),
    bound=st.integers(1, 2**15),
    filtering=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_no_gradient_is_beyond_the_bound(gradients, bound, filtering):
    """Filtered out or clipped, in whole numbers; the count of each record that takes part is one."""
    packed = np.array([(g << 32) + 1 for g in gradients], np.int64)
    ids = np.arange(len(gradients), dtype=np.uint32)
    values = np.zeros(len(gradients), np.int64)
    kept = keep_bounded(ids, packed, np.ones(1, np.int64), bound, filtering, UNWEIGHTED, values)
    inside = [abs(g) <= bound for g in gradients]
    assert ids[:kept].tolist() == [k for k, is_in in enumerate(inside) if is_in or not filtering]
    for row in ids[:kept].tolist():
        assert values[row] & MAX_ROWS == 1
        assert values[row] >> COUNT_BITS == max(-bound, min(bound, gradients[row]))


def test_sums_of_the_most_rows_fit():
    """The largest sum over the largest table stays inside its field."""
    for q in (2**15, -(2**15)):
        total = MAX_ROWS * ((q << COUNT_BITS) + 1)
        assert -(2**63) <= total < 2**63
        assert total & MAX_ROWS == MAX_ROWS
        assert total >> COUNT_BITS == MAX_ROWS * q
    assert 2 * 2**GRADIENT_BITS == 2**15


@given(
    gradients=st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(1, 256)), max_size=30),
    bound=st.integers(1, 2**13),
)
@settings(max_examples=200, deadline=None)
def test_no_weighed_gradient_is_beyond_its_weights_share(gradients, bound):
    """|S| <= bound n for every record, in whole numbers, on which the sensitivities with weights rest."""
    packed = np.array([(g << 32) + 1 for g, _ in gradients], np.int64)
    weights = np.array([weight for _, weight in gradients], np.int64)
    ids, values = np.arange(len(gradients), dtype=np.uint32), np.zeros(len(gradients), np.int64)
    assert keep_bounded(ids, packed, weights, bound, False, WEIGHTED, values) == len(gradients)
    for value, (g, weight) in zip(values.tolist(), gradients, strict=True):
        assert value & (2**WEIGHTED.count_bits - 1) == weight
        assert abs(value >> WEIGHTED.count_bits) * 2**WEIGHT_BITS <= min(abs(g), bound) * weight


@given(
    scores=st.lists(
        st.lists(st.floats(-1e4, 1e4, width=32), min_size=4, max_size=4) | st.just([0.0] * 4), min_size=1, max_size=20
    ),
    own=st.lists(st.integers(0, 3), min_size=20, max_size=20),
    filtering=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_no_vector_of_gradients_is_beyond_either_bound(scores, own, filtering):
    """Length and sum of absolute values, in whole numbers, whatever the scores are."""
    options, rows = DPBoostSettings(epsilon=1.0, n_classes=4), np.array(scores, np.float32).T.copy()
    n_rows = rows.shape[1]
    limit = (options.gradient_bound, options.gradient_bound_l1)
    ids, values = np.arange(n_rows, dtype=np.uint32), np.zeros((4, n_rows), np.int64)
    labels, one = np.array(own[:n_rows], np.float32), np.ones(1, np.int64)
    kept = class_gradients(ids, rows, labels, one, limit, filtering, UNWEIGHTED, values)
    for row in ids[:kept].tolist():
        steps = [value >> COUNT_BITS for value in values[:, row].tolist()]
        assert all(value & MAX_ROWS == 1 for value in values[:, row].tolist())
        assert sum(q * q for q in steps) <= (limit[0] * 2**GRADIENT_BITS) ** 2
        assert sum(map(abs, steps)) <= limit[1] * 2**GRADIENT_BITS


def test_sums_of_the_most_weighed_rows_fit():
    """The largest weights and gradients of the largest table stay inside their fields."""
    for q in (2**13, -(2**13)):
        total = WEIGHTED.most_rows * ((q << WEIGHTED.count_bits) + 2**WEIGHT_BITS)
        assert -(2**63) <= total < 2**63
        assert total & (2**WEIGHTED.count_bits - 1) == WEIGHTED.most_rows * 2**WEIGHT_BITS
        assert total >> WEIGHTED.count_bits == WEIGHTED.most_rows * q


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_scores_are_those_of_the_model(numbers, loss):
    """After a training, bringing every record up to date gives the model's own predictions, to the last bit."""
    X, y, schema = numbers
    options = DPBoostSettings(epsilon=5.0, loss=loss, n_trees=9, trees_per_ensemble=4, max_depth=4)
    training = CentralTraining(schema, options, np.random.default_rng(2), 1)
    records = training.load(training.read(X, y))
    model = training.boost(records)
    records._scored(np.arange(len(y), dtype=np.uint32))
    assert np.array_equal(records.scores[0], model.raw_scores(X)[:, 0].astype(np.float32))


def test_records_are_scored_only_as_far_as_their_turn_needs(numbers):
    """A record that served the first tree of the only ensemble has not seen any tree."""
    X, y, schema = numbers
    options = DPBoostSettings(epsilon=5.0, n_trees=5, trees_per_ensemble=5, max_depth=2)
    training = CentralTraining(schema, options, np.random.default_rng(2), 1)
    records = training.load(training.read(X, y))
    training.boost(records)
    assert np.bincount(records._seen, minlength=5).min() > 0
    assert records._seen.max() == 4


def test_filtering_leaves_out_what_is_on_the_wrong_side(numbers):
    """Squared loss with labels -1 and 1: a score of the wrong sign, or one beyond 2, makes |g| > 1."""
    X, y, schema = numbers
    options = DPBoostSettings(epsilon=5.0, n_trees=2, max_depth=2)
    training = CentralTraining(schema, options, np.random.default_rng(2), 1)
    records = training.load(training.read(X, y))
    records.scores[0][:] = np.random.default_rng(0).normal(size=len(y)).astype(np.float32)
    right_side = int((np.abs(records.scores[0] - (2 * y - 1)) <= 1).sum())
    ids = np.arange(len(y), dtype=np.uint32)
    steps = 2**GRADIENT_BITS
    records.start_subset(ids, steps, filtering=True)
    assert abs(int(records.node_counts[0]) - right_side) <= 2  # but for those that round to the bound
    records.start_subset(ids, steps, filtering=False)
    assert int(records.node_counts[0]) == len(y)
