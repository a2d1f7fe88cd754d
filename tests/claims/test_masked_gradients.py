"""What masked gradients give away, on real runs: labels to who made the noise, columns to who gets it."""

from __future__ import annotations

from functools import cache
from itertools import groupby, islice

import numpy as np
import pytest

from experiments.label_guesses import from_masked_gradients as attack
from experiments.masked_xgboost.active_sets import SeenNoise, attack_chain
from hedgerow import Federation
from hedgerow.attacks.masked_gradients.unmask_least_squares import Masked, root_candidates
from hedgerow.attacks.results import ceiling
from hedgerow.privacy.calibrate import mu_for
from hedgerow.protocols.vertical.noised_gradients.messages import NoisyGradients

N_ROWS = 1500
MASKED = "vertical.masked_gradients"


@cache
def rows():
    """A column of the bank, one of the shop with few values, and labels that follow from both."""
    rng = np.random.default_rng(5)
    bank, shop = rng.normal(size=N_ROWS), rng.integers(0, 4, N_ROWS).astype(np.float64)
    labels = (bank + shop + rng.normal(size=N_ROWS) > 1.5).astype(int)
    return bank, shop, labels


@cache
def recorded(protocol, **params):
    """A run with all that the two said to each other."""
    bank, shop, labels = rows()
    federation = Federation.vertical({"bank": bank[:, None], "shop": shop[:, None]}, labels=("bank", labels))
    return federation.fit(protocol, record=True, **params)


@cache
def published(trees, **noise):
    """MaskedXGBoost as published."""
    return recorded(MASKED, n_estimators=trees, max_depth=2, accept_known_leaks=True, **noise)


def seen_by(run, party, peer):
    """Tree -> its candidates at the root, as a party saw them."""
    found = root_candidates(run.transcript(party), peer, run.job.n_vectors)
    return {tree: list(candidates) for tree, candidates in groupby(found, key=lambda each: each.tree)}


NOISE = {"sigma1": 3.0, "sigma2": 0.3, "C": 4.0}


@pytest.mark.parametrize("n_vectors", [1, 3])
def test_least_squares_recovers_labels_from_the_published_protocol(n_vectors):
    """One message of the first tree: at least 98 of 100 labels. Two of any tree: every one of them."""
    run = published(3, n_vectors=n_vectors, **NOISE)
    labels = rows()[2]
    trees = seen_by(run, "shop", "bank")
    assert len(trees) == 3
    for tree, candidates in trees.items():
        if tree == 0:
            assert attack(candidates[:1], labels, total=candidates[0].total).accuracy.low > 0.98
        assert attack(candidates[:2], labels).accuracy.estimate == 1.0


def test_the_statement_prints_what_came_out():
    """The run tried the attack on itself, and says so instead of the theorem's epsilon."""
    run = published(3, n_vectors=1, **NOISE)
    recovery = run.statement().facts["label_recovery"]
    assert recovery["value"] > 0.98
    assert f"{recovery['value']:.2%}" in str(run.statement())
    assert run.statement().facts["stamp"].startswith("accepted known leaks")


def test_a_party_that_deviates_gains_labels_and_a_better_model(monkeypatch):
    """Against appendix G: a shop that sends vectors of zeros gets plain gradients, and trees without noise."""

    def no_noise(start, stop, *arrays):
        arrays[-1][start:stop] = 0.0

    labels = rows()[2]
    monkeypatch.setattr("hedgerow.protocols.published.masked_gradients.vectors.fill_noise", no_noise)
    options = {"n_estimators": 2, "max_depth": 2, "n_vectors": 1, "accept_known_leaks": True}
    deviating = recorded.__wrapped__(MASKED, **options, **NOISE)
    first, *_ = seen_by(deviating, "shop", "bank")[0]
    assert not first.noise.any()
    assert ((first.gradients < 0) == (labels == 1)).all()
    unmasked = recorded.__wrapped__(MASKED, **options, **(NOISE | {"C": 0.0}))
    tables = {"bank": rows()[0][:, None], "shop": rows()[1][:, None]}
    assert (deviating.model.decision_function(tables) == unmasked.model.decision_function(tables)).all()


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_same_attack_on_noise_of_the_label_holder_stays_below_the_ceiling(epsilon):
    """vertical.noised_gradients: the shop has no part in the noise, so its own vectors explain nothing of it."""
    run = recorded("vertical.noised_gradients", n_estimators=3, max_depth=2, epsilon=epsilon, delta=1e-5)
    labels = rows()[2]
    (received,) = run.transcript("shop").messages(NoisyGradients, "received", "bank")
    vectors = np.random.default_rng(1).normal(size=(N_ROWS, 2))
    mu = mu_for(epsilon, 1e-5)
    seen = Masked(vectors, received.gradients.astype(np.float64), None)
    result = attack([seen], labels, mu=mu, confidence=1.0 - 1e-6)  # the ceiling is reached, so chance must not decide
    assert result.area.low <= ceiling(mu)
    assert not result.refutes


def decoded(run, n_trees):
    """How well the bank decodes which rows a candidate of the shop sends left."""
    noise = run.job.noise_for(N_ROWS)
    shop = rows()[1]
    trees = seen_by(run, "bank", "shop")
    messages = [SeenNoise(candidates[1].noise) for candidates in islice(trees.values(), n_trees)]
    return attack_chain(messages, noise.sigma1, noise.sigma2, shop <= 1, prior=0.5)


def test_the_active_set_shows_at_the_ratio_of_the_papers_example():
    """Example 2 has sigma1^2 = 10 sigma2^2. From the noise of 24 trees the bank knows the rows."""
    run = published(24, n_vectors=1, sigma1=1.0, sigma2=0.1**0.5, C=1.0)
    assert decoded(run, 24).accuracy.low > 0.95


def test_and_not_at_the_calibrated_ratio():
    """With sigma1 by Theorem 3 for epsilon 1, the same attack does little better than guessing."""
    noise = {"eps_ap": 8.0, "delta_ap": 1e-3, "eps_pp": 1.0, "reading": "record", "accept_low_snr": True}
    run = published(24, n_vectors=1, **noise)
    assert decoded(run, 24).accuracy.estimate < 0.6
