"""What features of vertical.secret_shared tell: the statement says it where a message has it, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from hedgerow.engine.losses import Loss
from hedgerow.protocols.shares.scales import Weighing
from twins.features import Case, fitted

NAME = "vertical.secret_shared"
SENTENCES = {
    "early_stopping": ("After each iteration anna said whether it goes on", "vertical.onward"),
    "sample_weight": ("Everybody learned bounds of the sum and of the mean of the weights of rows", None),
    "max_leaf_nodes": ("anna said which ones gain most", "vertical.secret_shared.nodes_kept"),
    "colsample_bytree": ("Everybody learned how many columns each party has", None),
    "interaction_cst": ("which of the public groups of columns hold its column", "vertical.secret_shared.groups_asked"),
}
"""Feature -> a part of its sentence, and the message that is sent for it alone."""


@pytest.fixture(scope="module")
def plain():
    """A run without features."""
    return fitted(Case.of(), NAME)


def told(run):
    """All kinds of messages of a run."""
    return {kind.message for ledger in run.ledgers.values() for _, _, kind, _, _ in ledger.entries()}


@pytest.mark.parametrize("feature", SENTENCES)
def test_a_feature_is_stated_where_it_tells_something(feature, plain):
    """Its sentence is there with it and not without; so is its message."""
    sentence, message = SENTENCES[feature]
    run = fitted(Case.of(feature), NAME)
    assert sentence in str(run.statement())
    assert sentence not in str(plain.statement())
    assert (told(run) - told(plain)) <= {message, "vertical.secret_shared.groups_asked"}
    if message is not None:
        assert message in told(run) or feature == "max_leaf_nodes"  # only where there was no room for all


def test_of_weights_powers_of_two_are_told(plain):
    """Of rows without weights nothing; else how large sums can be, and in which units weights are counted."""
    run = fitted(Case.of("sample_weight"), NAME)
    assert run.meta["weighted"]
    assert "weighted" not in plain.meta
    for weight in (np.array([1.0, 2.0, 5.0]), np.full(1000, 1e-6), np.linspace(0.0, 1e9, 77)):
        told = Weighing.of(Loss("logistic"), weight)
        assert told.n_units.bit_count() == 1
        assert told.n_units * 2.0**told.unit_exponent >= weight.sum()
