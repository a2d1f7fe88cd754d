"""What central differential privacy claims, put to the test: honest trainings stay below, broken twins are caught.

A bound below the claim proves nothing by itself. So every audit here is also run on a training that breaks the claim by
a mistake that has been made before, and there it must raise the alarm.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from hedgerow.attacks.central.all_but_one import likelihood_ratio, watched_fit
from hedgerow.attacks.central.audit import Trials, audit, audit_mechanism, audit_one_run, lower_bound
from hedgerow.attacks.central.canaries import append, canary_for
from hedgerow.attacks.central.membership import Ceiling, attack, label_confidence
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.estimators.plain import BoostedTreesClassifier
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.choices import exponential, permute_and_flip
from hedgerow.privacy.mechanisms import discrete_laplace, laplace, randomised_response
from hedgerow.protocols.central.bins import grid_of
from hedgerow.protocols.central.dpboost.fit import fit_central
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.protocols.central.gaussian.rows import PrivateRows
from hedgerow.schema import Schema
from twins.broken_privacy import (
    RestartingRandom,
    bounds_from_rows,
    noise_where_rows_are,
    repeated_noise,
    silent_sums,
    weak_noise,
)
from twins.local_fit import fit_locally
from twins.scattered_canaries import canaries_for

DELTA = 1e-6
SCHEMA = Schema.from_public(bounds={"a": (0.0, 1.0), "b": (0.0, 1.0)}, classes=[0, 1])


def secret(number):
    """Noise that a test can repeat."""
    return SecureRandom.from_seed(number.to_bytes(32, "little"))


def make_table(n=300, seed=0):
    """Rows in one corner of what the schema allows; the canary sits alone in the opposite one."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2)) / 2.0
    return X, (rng.random(n) < 0.2 + 0.4 * (X[:, 0] > 0.25)).astype(np.int64)


X, Y = make_table()
CANARY = canary_for(SCHEMA, X, Y)


# --- central.gaussian ----------------------------------------------------------------------------------------------


def watch(epsilon, with_canary, trial, source=secret, **how):
    """One training of the recipe as an adversary sees it who knows all other rows: every noisy sum."""
    return watched_fit(
        X, Y, SCHEMA, CANARY, with_canary=with_canary, epsilon=epsilon, delta=DELTA, random=source(trial), **how
    ).seen


def watched(statistic, epsilon, **how):
    """The same, reduced to one number for an audit."""
    return lambda with_canary, trial: statistic(watch(epsilon, with_canary, trial, **how))


@pytest.fixture(scope="module", params=[1.0, 4.0])
def honest(request):
    """(epsilon, what was seen of 30 honest trainings with the canary and 30 without)."""
    epsilon = request.param
    return epsilon, [[watch(epsilon, flag, 30 * (not flag) + trial) for trial in range(30)] for flag in (True, False)]


def test_gaussian_recipe_keeps_its_promise(honest):
    """The best statistic against Gaussian noise, under the family that the accountant claims: mu stays below."""
    epsilon, worlds = honest
    trials = Trials(*(np.array([likelihood_ratio(seen) for seen in world]) for world in worlds))
    result = lower_bound(trials, delta=DELTA, family="gaussian")
    assert result.mu_lower <= mu_for(epsilon, DELTA)
    assert not result.refutes(epsilon)


@pytest.mark.parametrize("statistic", [silent_sums, repeated_noise])
def test_statistics_for_mistakes_say_nothing_of_honest_noise(honest, statistic):
    """The audits of the broken twins below do not cry wolf."""
    trials = Trials(*(np.array([statistic(seen) for seen in world]) for world in honest[1]))
    assert lower_bound(trials, delta=DELTA).epsilon_lower == 0.0


def test_canary_moves_sums_far_but_no_farther_than_stated(honest):
    """In every sum of every training it stays within the sensitivity; over all it uses much of what mu allows."""
    epsilon, worlds = honest
    for seen in (seen for world in worlds for seen in world):
        assert all(int(own.canary @ own.canary) <= own.request.sensitivity_squared for own in seen)
    moved = [
        sum(float(own.canary @ own.canary) / own.request.sigma**2 for own in seen) for world in worlds for seen in world
    ]
    allowed = mu_for(epsilon, DELTA) ** 2
    assert 0.4 * allowed < np.mean(moved) <= max(moved) <= allowed


def test_weak_noise_is_caught():
    """A tenth of the noise that is claimed, with the honest event beside it."""
    broken = watched(likelihood_ratio, 4.0, add_noise=weak_noise(0.1))
    result = audit(broken, delta=DELTA, n_trials=40, family="gaussian")
    assert result.mu_lower > mu_for(4.0, DELTA)
    assert result.verdict(4.0).startswith("ALARM")


def test_noise_left_out_of_empty_cells_is_caught():
    """Where nobody else is, silence means that the canary is not there either."""
    result = audit(watched(silent_sums, 1.0, add_noise=noise_where_rows_are), delta=DELTA, n_trials=28)
    assert result.refutes(1.0)


def test_noise_used_twice_is_caught():
    """Differences of two trees with the same noise are exact."""
    result = audit(watched(repeated_noise, 1.0, source=RestartingRandom), delta=DELTA, n_trials=28)
    assert result.refutes(1.0)


def test_bounds_read_off_the_rows_are_caught():
    """The model's edges lie on the grid of the bounds: if those are the rows' own, another row means another grid."""
    known = grid_of(bounds_from_rows(SCHEMA, X)).features

    def train(with_canary, trial, *, broken):
        table, labels = CANARY.appended_to(X, Y) if with_canary else (X, Y)
        schema = bounds_from_rows(SCHEMA, table) if broken else SCHEMA
        rows = PrivateRows.read(table, labels, schema)
        model = fit_locally([rows], schema, epsilon=1.0, delta=DELTA, random=secret(trial)).model
        on_grid = [np.isin(own.edges, grid.edges) for own, grid in zip(model.features, known, strict=True)]
        return float(sum(np.where(on, 1, -1).sum() for on in on_grid))

    assert audit(lambda *trial: train(*trial, broken=True), delta=DELTA, n_trials=30).refutes(1.0)
    assert not audit(lambda *trial: train(*trial, broken=False), delta=DELTA, n_trials=8).refutes(1.0)


# --- central.dpboost -----------------------------------------------------------------------------------------------

CROWD = np.linspace(0.0, 0.05, 40)[:, None]
"""All in the first of eight bins: whatever the tree asks, the canary at the other end has a leaf of its own."""
CROWD_LABELS = np.arange(40) % 2
ONE_COLUMN = Schema.from_public(bounds={"a": (0.0, 1.0)}, classes=[0, 1])


def boosted(epsilon, n_trees, max_depth):
    """A training of central.dpboost for an audit: the adversary sees the model's score at the canary."""
    settings = DPBoostSettings(
        epsilon=epsilon, n_trees=n_trees, trees_per_ensemble=n_trees, max_depth=max_depth, max_bins=8
    )
    canary = canary_for(ONE_COLUMN, CROWD, CROWD_LABELS)
    tables = {True: canary.appended_to(CROWD, CROWD_LABELS), False: (CROWD, CROWD_LABELS)}

    def train(with_canary, trial):
        model = fit_central(*tables[with_canary], ONE_COLUMN, settings, random=secret(trial)).model
        return float(model.raw_scores(np.array([canary.values]))[0, 0])

    return train


@pytest.mark.parametrize(
    ("epsilon", "n_trees", "max_depth", "n_trials"), [(1.0, 1, 1, 200), (1.0, 5, 2, 100), (4.0, 5, 2, 100)]
)
def test_dpboost_keeps_its_promise(epsilon, n_trees, max_depth, n_trials):
    """Pure epsilon: delta is 0."""
    result = audit(boosted(epsilon, n_trees, max_depth), delta=0.0, n_trials=n_trials)
    assert not result.refutes(epsilon)


def test_dpboost_with_a_quarter_of_the_noise_is_caught():
    """A training at epsilon 4 that is passed off as one at epsilon 1."""
    result = audit(boosted(4.0, 1, 1), delta=0.0, n_trials=400)
    assert result.refutes(1.0)
    assert not result.refutes(4.0)


# --- mechanisms ----------------------------------------------------------------------------------------------------


def choosing(mechanism):
    """Many choices between one candidate and fifty others, all utilities moved as far as one record may."""

    def sample(utilities, n, random):
        starts = np.arange(0, 2 * n + 1, 2)
        multiplicity = np.tile(np.array([1, 50]), n)
        how = {"sensitivity": 1.0, "epsilon": 1.0, "random": random, "magnitude": 10.0}
        return mechanism(np.tile(utilities, n), starts=starts, multiplicity=multiplicity, **how).values.group % 2

    return sample


def adding(mechanism):
    """Many numbers with noise of their own."""
    return lambda value, n, random: mechanism(np.full(n, value), sensitivity=1.0, epsilon=1.0, random=random).values


def answering(value, n, random):
    """Whether randomised response among four says "one"."""
    return randomised_response(np.full(n, value), categories=4, epsilon=1.0, random=random).values == 1


@pytest.mark.parametrize(
    ("sample", "value", "neighbour", "least"),
    [
        (adding(laplace), 1.0, 0.0, 0.9),
        (adding(discrete_laplace), 1, 0, 0.9),
        (answering, 1, 0, 0.9),
        (choosing(exponential), np.array([1.0, 0.0]), np.array([0.0, 1.0]), 0.7),
        (choosing(permute_and_flip), np.array([1.0, 0.0]), np.array([0.0, 1.0]), 0.0),
    ],
    ids=["laplace", "discrete_laplace", "randomised_response", "exponential", "permute_and_flip"],
)
def test_mechanisms_keep_their_promise(sample, value, neighbour, least):
    """Neighbours that differ as much as they may: the bound is close to epsilon where that is tight, and not above.

    One bound may be too large with a chance of 5%, so five audits are made and their median is looked at.
    """
    random = np.random.default_rng(1)
    found = [
        audit_mechanism(lambda own, n: sample(own, n, random), value, neighbour, n_samples=60_000).epsilon_lower
        for _ in range(5)
    ]
    assert least <= np.median(found) <= 1.0


# --- members -------------------------------------------------------------------------------------------------------


def overfitted(rows, table, labels):
    """A model that learns its rows by heart."""
    model = BoostedTreesClassifier(n_estimators=60, max_depth=8, learning_rate=0.5, reg_lambda=0.0, min_child_weight=0)
    model.fit(table[rows], labels[rows])
    return label_confidence(model.predict_proba(table), model.classes_, labels)


def private(rows, table, labels, epsilon, number):
    """The recipe on the same rows."""
    own = PrivateRows.read(table[rows], labels[rows], SCHEMA)
    model = fit_locally([own], SCHEMA, epsilon=epsilon, delta=DELTA, random=secret(number)).model
    chance = 1.0 / (1.0 + np.exp(-model.raw_scores(table)[:, 0]))
    return np.where(labels == 1, chance, 1.0 - chance)


def test_members_of_an_overfitted_model_are_found():
    """Without privacy the attack succeeds, with an advantage that no small epsilon would allow."""
    table, labels = make_table(500, 1)
    (result,) = attack(lambda rows, _: overfitted(rows, table, labels), 500, rng=np.random.default_rng(1), delta=DELTA)
    assert result.advantage.low > Ceiling(1.0, DELTA).advantage
    assert result.verdict(Ceiling(1.0, DELTA)).startswith("WARNING")
    # A proof needs more than a warning: five hundred records, of which fifty are guessed, give it for half of epsilon.
    assert result.verdict(Ceiling(0.5, DELTA)).startswith("ALARM")


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_members_of_a_private_model_are_not(epsilon):
    """The same attacks, one of them with shadow models, on the private recipe."""
    table, labels = make_table(500, 1)
    results = attack(
        lambda rows, number: private(rows, table, labels, epsilon, number),
        500,
        rng=np.random.default_rng(2),
        n_shadows=8,
        delta=DELTA,
    )
    ceiling = Ceiling(epsilon, DELTA)
    for result in results:
        assert result.advantage.low <= ceiling.advantage
        assert result.epsilon_lower <= epsilon
        assert "not contradicted" in result.verdict(ceiling)


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_one_training_tells_an_overfitted_model_from_a_private_one(epsilon):
    """Two hundred canaries in one training: enough to refute epsilon 1 for a model without privacy."""
    canaries = canaries_for(SCHEMA, 200, np.random.default_rng(3))
    everybody, labels = append(canaries, X, Y)

    def train(included):
        rows = np.concatenate([np.arange(len(X)), len(X) + np.flatnonzero(included)])
        if math.isinf(epsilon):
            return overfitted(rows, everybody, labels)[len(X) :]
        return private(rows, everybody, labels, epsilon, 9)[len(X) :]

    result = audit_one_run(train, 200, guesses=100, delta=DELTA, random=secret(4))
    assert result.refutes(1.0) == math.isinf(epsilon)
