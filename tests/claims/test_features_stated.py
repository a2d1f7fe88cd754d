"""What features tell where columns are split: the statement says it where a message has it, and only there."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from hedgerow.engine.losses import Loss
from hedgerow.protocols.shares.scales import Weighing
from twins.features import Case, fitted

SHARES, CIPHERTEXTS, MASKED = "vertical.secret_shared", "vertical.homomorphic", "vertical.masked_gradients"
ONWARD, SPLIT_COLUMNS = "vertical.onward", "vertical.split_columns"
STATED = [
    (SHARES, "early_stopping", "After each iteration anna said whether it goes on", {ONWARD}),
    (SHARES, "sample_weight", "Everybody learned bounds of the sum and of the mean of the weights of rows", set()),
    (SHARES, "max_leaf_nodes", "anna said which ones gain most", {"vertical.secret_shared.nodes_kept"}),
    (SHARES, "colsample_bytree", "Everybody learned how many columns each party has", set()),
    (SHARES, "interaction_cst", "which of the public groups of columns hold", {"vertical.secret_shared.groups_asked"}),
    (CIPHERTEXTS, "early_stopping", "ben and carla learned whether the rows that anna watches still improve", {ONWARD}),
    (CIPHERTEXTS, "min_samples_leaf", "how many rows each of these sums is over", {"vertical.homomorphic.bin_counts"}),
    (CIPHERTEXTS, "colsample_bytree", "Columns come in their own order", set()),
    (CIPHERTEXTS, "monotonic_cst", "Columns come in their own order", set()),
    (MASKED, "early_stopping", "ben and carla learned whether the rows that anna watches still improve", {ONWARD}),
    (
        MASKED,
        "monotonic_cst",
        "all parties know by which column, of whichever party, each node splits",
        {SPLIT_COLUMNS},
    ),
    (MASKED, "interaction_cst", "all parties know by which column, of whichever party, each node", {SPLIT_COLUMNS}),
]
"""Protocol, feature, a part of its sentence, and messages that are sent for it alone."""
SETUP = {"vertical.learning_rows", "vertical.place_of_columns", "vertical.homomorphic.counted_rows"}
"""Messages about rows and columns that several features have in common."""


@cache
def run_of(protocol, *features):
    """A run with these features."""
    return fitted(Case.of(*features), protocol)


def told(run):
    """All kinds of messages of a run."""
    return {kind.message for ledger in run.ledgers.values() for _, _, kind, _, _ in ledger.entries()}


@pytest.mark.parametrize(("protocol", "feature", "sentence", "messages"), STATED)
def test_a_feature_is_stated_where_it_tells_something(protocol, feature, sentence, messages):
    """Its sentence is there with it and not without; and it has no messages but its own."""
    run, plain = run_of(protocol, feature), run_of(protocol)
    assert sentence in " ".join(run.statement().guarantee)
    assert sentence not in " ".join(plain.statement().guarantee)
    assert told(run) - told(plain) - SETUP <= messages
    if feature != "max_leaf_nodes":  # told only where there was no room for all
        assert messages <= told(run)


def test_of_weights_powers_of_two_are_told():
    """Of rows without weights nothing; else how large sums can be, and in which units weights are counted."""
    assert run_of(SHARES, "sample_weight").meta["weighted"]
    assert "weighted" not in run_of(SHARES).meta
    for weight in (np.array([1.0, 2.0, 5.0]), np.full(1000, 1e-6), np.linspace(0.0, 1e9, 77)):
        told = Weighing.of(Loss("logistic"), weight)
        assert told.n_units.bit_count() == 1
        assert told.n_units * 2.0**told.unit_exponent >= weight.sum()
