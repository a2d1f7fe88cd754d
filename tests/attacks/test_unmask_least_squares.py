"""Masks that their receiver drew itself: labels from one message, gradients exactly from two, whatever the noise."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from experiments.label_guesses import from_masked_gradients as attack
from experiments.masked_xgboost.masked_noise import mask, noise_vectors, square_sum_by_theorem_2
from hedgerow.attacks.masked_gradients.unmask_least_squares import (
    Masked,
    labels_of,
    one_message,
)
from hedgerow.attacks.results import area_under_roc
from hedgerow.errors import InvalidInput
from hedgerow.privacy.calibrate import mu_for
from twins.unmask_with_hessians import one_message_with_hessians, several_messages

EPSILON, DELTA = 0.5, 1e-3


class Node:
    """A node of the first tree, or of a later one: labels, scores, and messages about some candidates."""

    def __init__(self, n_rows, n_vectors=3, ratio=0.0037, *, later=False, seed=0, strength=1.5):
        self.rng = np.random.default_rng(seed)
        self.n_rows, self.n_vectors, self.sigma1 = n_rows, n_vectors, math.sqrt(ratio)
        signal = strength * self.rng.normal(size=n_rows)
        self.labels = (self.rng.random(n_rows) < 1 / (1 + np.exp(-signal))).astype(np.int64)
        self.p = 1 / (1 + np.exp(-signal - 0.5 * self.rng.normal(size=n_rows))) if later else np.full(n_rows, 0.5)
        self.g, self.h = self.p - self.labels, self.p * (1 - self.p)

    def message(self, hessians=False, zero=False):
        """Of another candidate each time, half of the rows left, with the noise that Theorem 2 asks for."""
        active = self.rng.random(self.n_rows) < 0.5
        noise = noise_vectors(active, self.n_vectors, self.sigma1, 1.0, self.rng) * (not zero)
        C = square_sum_by_theorem_2(EPSILON, DELTA, active, self.sigma1, 1.0)
        return Masked(noise, *(mask(x, noise, C, self.rng) for x in ((self.g, self.h) if hessians else (self.g,))))


@pytest.mark.parametrize(
    ("n_rows", "n_vectors", "ratio", "spread", "later"),
    [(1000, 3, 0.0037, 340, 0.984), (5000, 3, 0.0037, 783, 0.9928), (30000, 3, 0.0037, 1926, 0.9985)],
)
def test_one_message_gives_the_labels(n_rows, n_vectors, ratio, spread, later):
    """All in the first tree, all but a few in a later one, though noise is thousands of times as large as gradients."""
    first = Node(n_rows, n_vectors, ratio)
    message = first.message()
    result = attack([message], first.labels, mu=mu_for(EPSILON, DELTA))
    received = message.gradients
    assert received.std() == pytest.approx(spread, rel=0.1)
    assert area_under_roc(-received[first.labels == 1], -received[first.labels == 0]).low < 0.53
    assert result.accuracy.estimate == 1.0
    assert result.area.estimate == 1.0
    assert result.refutes
    assert result.verdict().startswith("ALARM")
    nodes = [Node(n_rows, n_vectors, ratio, later=True, seed=seed) for seed in range(5)]
    shares = [attack([node.message()], node.labels).accuracy.estimate for node in nodes]
    assert np.mean(shares) >= later


def test_one_vector_is_unmasked_too():
    """W = 1 and epsilon 1 towards the label holder: the noise is as large, and there is less to find out."""
    node = Node(30_000, 1, 0.033)
    message = node.message()
    assert attack([message], node.labels).accuracy.estimate == 1.0
    found = one_message(message.noise, message.gradients, total=node.g.sum())
    assert found == pytest.approx(node.g, abs=1e-8)  # the node's sum alone gives c


def test_the_sum_of_a_node_helps():
    """One exact equation for W numbers: the error falls, and the recovered values have that sum."""
    errors = np.zeros(2)
    for seed in range(20):
        node = Node(1000, later=True, seed=seed)
        message = node.message()
        for k, total in enumerate((None, float(node.g.sum()))):
            found = one_message(message.noise, message.gradients, total)
            errors[k] += ((found - node.g) ** 2).mean()
        assert found.sum() == pytest.approx(node.g.sum(), abs=1e-6)
    assert errors[1] < 0.85 * errors[0]


@pytest.mark.parametrize("n_rows", [200, 1000, 30_000])
def test_one_message_with_hessians_is_exact(n_rows):
    """h = |g| (1 - |g|) holds for the right c and d alone: no second message is needed in a later tree."""
    node = Node(n_rows, later=True)
    found = one_message_with_hessians(node.message(hessians=True))
    assert found.gradients == pytest.approx(node.g, abs=1e-8)
    assert found.hessians == pytest.approx(node.h, abs=1e-8)


@pytest.mark.parametrize("n_rows", [1000, 30_000])
def test_a_model_that_is_sure_hides_signs_from_one_message_only(n_rows):
    """Gradients near 0 are smaller than the error of least squares; hessians or a second message leave no error."""
    node = Node(n_rows, later=True, strength=6.0)
    messages = [node.message(hessians=True) for _ in range(2)]
    assert 0.75 < attack(messages[:1], node.labels).accuracy.estimate < 0.95
    for found in (one_message_with_hessians(messages[0]), several_messages(messages)):
        assert found.gradients == pytest.approx(node.g, abs=1e-8)


def test_hessians_do_no_harm_in_the_first_tree():
    """There they are all alike."""
    node = Node(1000)
    found = one_message_with_hessians(node.message(hessians=True)).gradients
    assert (labels_of(found) == node.labels).all()
    assert np.abs(found - node.g).max() < 0.2


@pytest.mark.parametrize(
    ("n_rows", "n_vectors", "ratio"),
    [(10, 3, 0.0037), (1000, 3, 0.0037), (5000, 3, 0.0037), (30_000, 3, 0.0037), (30_000, 1, 0.033), (30_000, 3, 0.22)],
)
@pytest.mark.parametrize("later", [False, True])
def test_two_messages_give_gradients_exactly(n_rows, n_vectors, ratio, later):
    """And hessians, where they are sent; ten rows are enough, where one message leaves much open."""
    node = Node(n_rows, n_vectors, ratio, later=later)
    messages = [node.message(hessians=True) for _ in range(2)]
    found = several_messages(messages)
    assert found.gradients == pytest.approx(node.g, abs=1e-9)
    assert found.hessians == pytest.approx(node.h, abs=1e-9)
    assert (labels_of(found.gradients) == node.labels).all()


def test_gradients_alone_are_enough():
    """score="first_order" sends no hessians: the same."""
    node = Node(1000, later=True)
    found = several_messages([node.message(), node.message()])
    assert found.hessians is None
    assert found.gradients == pytest.approx(node.g, abs=1e-9)
    result = attack([node.message(), node.message()], node.labels, mu=mu_for(EPSILON, DELTA))
    assert result.accuracy.estimate == 1.0
    assert "2 messages" in result.verdict()


def test_a_tiny_node_needs_more_messages():
    """Five rows and W = 3: two messages have fewer equations than unknowns, three are enough."""
    node = Node(5, later=True)
    messages = [node.message() for _ in range(8)]
    assert several_messages(messages).gradients == pytest.approx(node.g, abs=1e-9)
    assert np.abs(several_messages(messages[:2]).gradients - node.g).max() > 1e-3


def test_ten_rows_and_one_message_leave_much_open():
    """Too few rows for W + 1 numbers: some labels are right, as by chance, and not all."""
    shares = [(labels_of(one_message(*node.message()[:2])) == node.labels).mean() for node in map_seeds(40)]
    assert 0.55 < np.mean(shares) < 0.95


def map_seeds(n):
    """Nodes of ten rows of a later tree."""
    return [Node(10, later=True, seed=seed) for seed in range(n)]


def test_single_precision_does_not_protect():
    """Masked values of several hundreds rounded to 24 bits: errors far below what a label needs."""
    node = Node(5000, later=True)
    drawn = [node.message() for _ in range(2)]
    messages = [
        Masked(b.astype(np.float32).astype(np.float64), (1000.0 * g).astype(np.float32).astype(np.float64) / 1000.0)
        for b, g, *_ in drawn
    ]
    assert attack(messages, node.labels).accuracy.estimate > 0.999
    assert np.abs(several_messages(messages).gradients - node.g).max() < 1e-3


def test_who_sends_no_noise_gets_gradients():
    """B = 0: a feature holder that deviates harms nobody but the label holder."""
    node = Node(1000, later=True)
    message = node.message(zero=True)
    assert (message.gradients == node.g).all()
    assert one_message(message.noise, message.gradients, total=node.g.sum()) == pytest.approx(node.g, abs=1e-12)
    assert attack([message], node.labels).accuracy.estimate == 1.0


def test_noise_of_the_label_holder_is_not_taken_off():
    """What vertical.noised_gradients does instead: the same attack stays below the ceiling."""
    node = Node(20_000)
    own = node.g + 4.0 * node.rng.normal(size=node.n_rows)
    message = node.message()
    masked = message.gradients - node.g + own
    result = attack([Masked(message.noise, masked)], node.labels, mu=0.25, confidence=0.999)
    assert not result.refutes
    assert result.area.estimate == pytest.approx(result.ceiling, abs=0.02)


def test_sums_tell_how_many_rows_are_positive():
    """G of a node in clear, scores known: the number of positive rows."""
    for later in (False, True):
        node = Node(500, later=later)
        assert round(float(node.p.sum() - node.g.sum())) == node.labels.sum()


def test_results_are_json():
    """For statements; infinity, which JSON does not have, is null."""
    node = Node(100)
    read = json.loads(json.dumps(attack([node.message()], node.labels).to_dict(), allow_nan=False))
    assert read["mu"] is None
    assert read["area"]["low"] <= read["area"]["high"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: several_messages([m]), "two messages"),
        (one_message_with_hessians, "no hessians"),
        (lambda m: one_message(m.noise[:3], m.gradients), "per row"),
        (lambda m: one_message(m.noise, m.gradients * np.nan), "finite"),
        (lambda _: attack([], np.zeros(4)), "no message"),
        (lambda m: attack([m], np.array([0, 1, 2, 0])), "0 or 1"),
    ],
)
def test_what_does_not_fit_is_refused(call, words):
    """With the reason."""
    with pytest.raises(InvalidInput, match=words):
        call(Masked(np.ones((4, 1)), np.arange(4.0)))
