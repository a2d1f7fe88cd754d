"""Losses: gradients against the definition, scales that cannot overflow, base scores that ignore the order of rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hedgerow.engine import losses
from hedgerow.engine.histogram import pack
from hedgerow.engine.losses import LOSSES, Loss, Quantiser, weight_total
from hedgerow.engine.rows import Rows
from hedgerow.errors import InvalidParameter
from hedgerow.testing import naive


def a_loss(name, high=10.0):
    """Each loss with a label range that suits it."""
    span = (0.0, 1.0) if name in ("logistic", "softmax") else (0.0, high)
    return Loss(name, 3 if name == "softmax" else 1, span, 0.2 if name == "quantile" else 0.5)


def random_labels(name, rng, n):
    """Labels that suit the loss."""
    return {
        "logistic": rng.integers(0, 2, n),
        "softmax": rng.integers(0, 3, n),
        "squared": rng.uniform(0, 10, n),
        "poisson": rng.integers(0, 11, n),
        "absolute": rng.integers(0, 11, n),
        "quantile": rng.uniform(0, 10, n),
    }[name].astype(float)


def rows_with(loss, labels, scores, weight, quantiser, bases):
    """Rows over one meaningless column, for their gradients."""
    codes = np.zeros((1, len(labels)), np.uint8)
    packed = pack(codes, np.array([1]), np.array([False]))
    return Rows(packed, labels, weight, loss, bases, quantiser, scores=scores.copy())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(LOSSES), st.booleans())
def test_packed_gradients_equal_the_naive_ones(seed, name, weighted):
    """Both fields of every row are the integers that the definition gives."""
    rng = np.random.default_rng(seed)
    loss, n = a_loss(name), 64
    labels = random_labels(name, rng, n)
    scores = rng.normal(scale=3, size=(loss.n_outputs, n)).astype(np.float32)
    if name == "absolute":
        scores = np.round(scores)  # with scores that hit their label
    weight = rng.choice([0.0, 0.3, 1.0, 2.0, 700.0], n) if weighted else None
    quantiser = Quantiser.for_job(loss, weight_total(weight, n), n_rows=n)
    bases = np.round(rng.normal(size=loss.n_outputs))
    rows = rows_with(loss, labels, scores, weight, quantiser, bases)
    rows.gradients()
    expected = naive.quantised(loss, quantiser, scores, labels, bases, weight)
    for output in range(loss.n_outputs):
        packed = rows.gradients_packed[output]
        got = list(zip((packed >> 32).tolist(), (packed & 0xFFFFFFFF).tolist(), strict=True))
        assert got == expected[output]


def test_rational_sigmoid_and_own_exponential_are_accurate():
    """Both are within a few float32 units of the true function, so far below a gradient's quantum."""
    x = np.linspace(-30, 30, 20001).astype(np.float32)
    true = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert np.abs(naive.sigmoid(x) - true).max() < 2e-7
    ratio = naive.exponential(x).astype(np.float64) / np.exp(x.astype(np.float64))
    assert np.abs(ratio - 1).max() < 2.5e-7


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(LOSSES),
    st.integers(1, 2**28),
    st.floats(1e-6, 1e6),
    st.floats(1e-3, 1e6),
)
@example("logistic", 2**28, 15.9, 1.0)
@example("squared", 2**28, 1.0, 1e6)
@example("poisson", 1, 0.5, 1e-3)
def test_no_subset_of_rows_can_overflow(name, n_rows, mean_weight, high):
    """scale x bound x total weight + rounding stays below 2**31 for any number of rows and any weights."""
    loss = a_loss(name, high)
    total = mean_weight * n_rows
    quantiser = Quantiser.for_job(loss, total, n_rows=n_rows)
    for scale, bound in (
        (quantiser.gradient_scale, loss.gradient_bound),
        (quantiser.hessian_scale, loss.hessian_bound),
    ):
        # rounding: half a unit per unit of weight (first rounding, times weight) and half per row (second)
        worst = scale * bound * total + (total / quantiser.weight_unit + n_rows) / 2
        assert worst < 2**31
        assert math.log2(scale) == int(math.log2(scale))


def test_worst_case_sums_do_not_overflow_in_fact():
    """All gradients at their bound, all rows in one cell: the packed sum still unpacks to the exact fields."""
    n = 200_000
    loss = Loss("squared", 1, (-3.0, 3.0))
    quantiser = Quantiser.for_job(loss, float(n), n_rows=n)
    labels = np.full(n, -3.0)
    scores = np.full((1, n), 1e6, np.float32)  # far beyond the range: clipped to the bound
    rows = rows_with(loss, labels, scores, None, quantiser, np.zeros(1))
    rows.gradients()
    total = int(rows.gradients_packed[0].sum())
    assert total >> 32 == int(6.0 * quantiser.gradient_scale) * n
    assert total & 0xFFFFFFFF == int(quantiser.hessian_scale) * n


def test_gradient_bits_fix_both_scales_or_are_refused():
    """An agreed number of bits is used as it is, and refused when sums could overflow."""
    quantiser = Quantiser.for_job(Loss("logistic"), 1000.0, n_rows=1000, gradient_bits=13)
    assert quantiser.gradient_scale == quantiser.hessian_scale == 2**13
    with pytest.raises(InvalidParameter, match="gradient_bits=25"):
        Quantiser.for_job(Loss("logistic"), 1000.0, n_rows=1000, gradient_bits=25)


def test_scale_depends_on_public_things_only():
    """Same loss, label range, rows and weight: same scale, whatever the labels are."""
    first = Quantiser.for_job(Loss("squared", 1, (0, 5)), 100.0, n_rows=100)
    second = Quantiser.for_job(Loss("squared", 1, (0, 5)), 100.0, n_rows=100)
    assert first == second
    assert first != Quantiser.for_job(Loss("squared", 1, (0, 500)), 100.0, n_rows=100)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(LOSSES), st.booleans())
def test_base_scores_ignore_the_order_of_rows(seed, name, weighted):
    """A permutation of the rows gives the same base score to the last bit, near the weighted mean's."""
    rng = np.random.default_rng(seed)
    loss, n = a_loss(name), 500
    labels = random_labels(name, rng, n)
    weight = rng.uniform(0, 3, n) if weighted else None
    order = rng.permutation(n)
    straight = loss.base_scores(labels, weight)
    shuffled = loss.base_scores(labels[order], None if weight is None else weight[order])
    np.testing.assert_array_equal(straight, shuffled)
    if name == "squared":
        assert straight[0] == pytest.approx(np.average(labels, weights=weight), rel=1e-7)
    if loss.refits_leaves:
        whole = losses.weights_in_steps(np.ones(n) if weight is None else weight)
        assert straight[0] == naive.quantile_of(labels.tolist(), whole.tolist(), loss.quantile)
    if name == "poisson":
        assert np.exp(straight[0]) == pytest.approx(np.average(labels, weights=weight), rel=1e-6)


def test_weights_in_steps_equal_repeated_rows():
    """Weight 3 gives three times the integers of the row alone, weight 0 nothing."""
    loss = Loss("logistic")
    labels, scores = np.array([0.0, 1.0]), np.array([[0.3, -0.7]], np.float32)
    quantiser = Quantiser(2.0**12, 2.0**14)
    plain = rows_with(loss, labels, scores, None, quantiser, np.zeros(1))
    plain.gradients()
    weighted = rows_with(loss, labels, scores, np.array([3.0, 0.0]), quantiser, np.zeros(1))
    weighted.gradients()
    assert weighted.gradients_packed[0, 0] == 3 * plain.gradients_packed[0, 0]
    assert weighted.gradients_packed[0, 1] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hinge",), "loss must be one of"),
        (("softmax", 2), "softmax needs at least 3"),
        (("squared", 1, (1.0, 0.0)), "label_range"),
        (("squared", 1, (0.0, math.inf)), "label_range"),
        (("poisson", 1, (-1.0, 1.0)), "poisson"),
        (("quantile", 1, (0.0, 1.0), 1.0), "quantile must be between 0 and 1"),
    ],
)
def test_impossible_losses_are_refused(arguments, message):
    """The error says what is wrong."""
    with pytest.raises(InvalidParameter, match=message):
        Loss(*arguments)


def test_too_many_rows_are_refused():
    """Beyond 2**28 rows the rounding errors alone could overflow."""
    with pytest.raises(InvalidParameter, match="rows do not fit"):
        Quantiser.for_job(Loss("logistic"), 2.0**29, n_rows=2**29)


def test_mean_of_a_constant_is_the_constant():
    """A range of one point leaves nothing to average."""
    assert losses.Loss("squared", 1, (2.5, 2.5)).base_scores(np.full(5, 2.5))[0] == 2.5


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["logistic", "squared", "softmax", "poisson"]), st.integers(1, 4))
def test_label_totals_add_up_over_owners(seed, name, n_parts):
    """The base score of the sum of parts' totals is that of all rows together, bit for bit."""
    rng = np.random.default_rng(seed)
    loss, labels = a_loss(name), random_labels(name, rng, 50)
    parts = np.array_split(labels, np.sort(rng.integers(0, 51, n_parts - 1)))
    totals = sum(loss.label_totals(part) for part in parts)
    np.testing.assert_array_equal(loss.base_scores_from(totals), loss.base_scores(labels))


@pytest.mark.parametrize("name", ["absolute", "quantile"])
def test_losses_that_refit_leaves_have_no_totals(name):
    """A quantile of the labels does not follow from sums, and the error says so."""
    assert a_loss(name).refits_leaves
    with pytest.raises(InvalidParameter, match="begins with a quantile of the labels"):
        a_loss(name).label_totals(np.arange(3.0))


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.integers(-20, 20), min_size=1, max_size=30),
    seed=st.integers(0, 10**6),
    quantile=st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.9]),
    weighted=st.booleans(),
)
def test_weighted_quantile_costs_least_and_counts_weights_as_rows(values, seed, quantile, weighted):
    """It is the naive one, for any order of the rows, and a whole weight is that many rows."""
    rng = np.random.default_rng(seed)
    numbers = np.array(values, np.float64) / 4
    repeats = rng.integers(0, 4, len(numbers)) if weighted else np.ones(len(numbers), np.int64)
    weight = losses.weights_in_steps(repeats.astype(float)) if weighted and repeats.any() else None
    repeats = repeats if weight is not None else np.ones(len(numbers), np.int64)
    found = losses.weighted_quantile(numbers, weight, quantile)
    assert found == naive.quantile_of(numbers.tolist(), repeats.tolist(), quantile)
    assert found == losses.weighted_quantile(np.repeat(numbers, repeats), None, quantile)
    order = rng.permutation(len(numbers))
    assert found == losses.weighted_quantile(numbers[order], None if weight is None else weight[order], quantile)
    assert losses.weighted_quantile(numbers, None, 0.5) == np.median(numbers)
