"""DPBoost: more than two classes, weights, constraints, draws of columns, other losses, a paid number of trees."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hedgerow import DPBoostClassifier, DPBoostRegressor
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.accountants import BasicComposition
from hedgerow.privacy.events import Parallel, PermuteAndFlip, walk
from hedgerow.protocols.central.dpboost.assignment import set_apart
from hedgerow.protocols.central.dpboost.fit import CentralTraining
from hedgerow.protocols.central.dpboost.growth import make_monotone
from hedgerow.protocols.central.dpboost.plan import LOOK_UNIT, look_rounds, release_looks
from hedgerow.protocols.central.dpboost.records import bounded_losses, losses_to_units
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.schema import Schema

BOUNDS = {f"x{j}": (-3.0, 3.0) for j in range(4)}


@pytest.fixture(scope="module")
def table():
    """3,000 rows of four numeric columns; the first two decide about three classes, and about a number."""
    X = np.random.default_rng(7).normal(size=(3000, 4))
    return X, (X[:, 0] > 0.3).astype(int) + (X[:, 1] > 0), np.clip(10 * X[:, 0], -30, 30)


def classes(*names):
    """The schema of these classes."""
    return Schema.from_public(bounds=BOUNDS, classes=list(names))


NUMBERS = Schema.from_public(bounds=BOUNDS, label_bounds=(-30, 30))


def test_three_classes_are_learned(table):
    """Nearly all rows without noise; with it, epsilon is that of two classes, and probabilities add up to 1."""
    X, y, _ = table
    exact = DPBoostClassifier(epsilon=math.inf, schema=classes(0, 1, 2), max_depth=3).fit(X, y)
    assert exact.score(X, y) > 0.9
    noisy = DPBoostClassifier(epsilon=2.0, schema=classes(0, 1, 2), max_depth=3, max_iter=20).fit(X, y)
    assert noisy.privacy_statement().epsilon <= 2.0
    assert np.allclose(noisy.predict_proba(X).sum(axis=1), 1.0)
    assert {len(noisy.ensemble_.trees), noisy.n_iter_} == {60, 20}


def test_trees_of_one_iteration_ask_the_same(table):
    """One structure for all classes: choices are paid for once."""
    X, y, _ = table
    model = DPBoostClassifier(epsilon=2.0, schema=classes(0, 1, 2), max_depth=3, max_iter=4).fit(X, y).ensemble_
    for place in range(0, 12, 3):
        first, *others = model.trees[place : place + 3]
        assert all(np.array_equal(first.feature, other.feature) for other in others)


def test_baselines_are_for_two_classes():
    """The paper's, as the paper has them."""
    with pytest.raises(InvalidParameter, match="more than two classes"):
        DPBoostSettings(epsilon=1.0, protocol="central.sequential", n_classes=3)


# --- weights ---------------------------------------------------------------------------------------------------------


def test_a_weight_is_a_share_of_rows(table):
    """Without noise, every row twice at half of the largest weight is every row once at the largest."""
    X, y, _ = table
    common = {"epsilon": math.inf, "schema": classes(0, 1), "max_iter": 1, "max_depth": 3, "max_weight": 2.0}
    y = (y > 0).astype(int)
    once = DPBoostClassifier(**common).fit(X, y, np.full(len(y), 2.0))
    twice = DPBoostClassifier(**common).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2), np.full(2 * len(y), 1.0))
    assert all(
        np.array_equal(a.feature, b.feature) for a, b in zip(once.ensemble_.trees, twice.ensemble_.trees, strict=True)
    )
    assert np.allclose(once.decision_function(X), twice.decision_function(X), atol=1e-4)


def test_heavier_classes_are_predicted_more_often(table):
    """By class_weight as by scale_pos_weight, and the other way round by the other class."""
    X, y, _ = table
    y = (X[:, 0] + np.random.default_rng(0).normal(size=len(X)) > 0).astype(int)
    common = {"epsilon": math.inf, "schema": classes(0, 1), "max_depth": 3}
    plain = DPBoostClassifier(**common).fit(X, y).predict(X).mean()
    assert DPBoostClassifier(**common, scale_pos_weight=5.0).fit(X, y).predict(X).mean() > plain + 0.1
    assert DPBoostClassifier(**common, class_weight={0: 5.0}).fit(X, y).predict(X).mean() < plain - 0.1


def test_rows_of_weight_0_and_no_weight_at_all_do_not_count(table):
    """Neither they nor negative or missing weights move the model; a weight above the largest is the largest."""
    X, _, z = table
    common = {"epsilon": math.inf, "schema": NUMBERS, "max_iter": 1, "max_depth": 2, "max_weight": 1.0}
    weight = np.ones(len(z))
    weight[1500:] = np.tile([0.0, -1.0, math.nan], 500)
    some = DPBoostRegressor(**common).fit(X, z, weight)
    there = DPBoostRegressor(**common).fit(X[:1500], z[:1500], np.full(1500, 7.0))
    assert np.array_equal(some.predict(X), there.predict(X))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"class_weight": "balanced"}, "read off the labels"),
        ({"class_weight": {7: 1.0}}, "not one of the classes"),
        ({"class_weight": {0: -1.0}}, "at least 0"),
        ({"class_weight": {0: 0.0, 1: 0.0}}, "no class that counts"),
        ({"scale_pos_weight": 0.0}, "above 0"),
        ({"scale_pos_weight": 2.0, "class_weight": {0: 1.0}}, "leave out one"),
        ({"max_weight": -1.0}, "max_weight must"),
        ({"early_stopping": True, "protocol": "central.parallel"}, "baseline"),
        ({"monotonic_cst": {"x9": 1}}, "x9"),
        ({"interaction_cst": [{9}]}, "9"),
    ],
)
def test_what_cannot_be_is_refused_before_a_row_is_read(parameters, words):
    """In a sentence that names the parameter."""
    with pytest.raises(InvalidParameter, match=words):
        DPBoostClassifier(epsilon=1.0, schema=classes(0, 1), **parameters).planned_event()


def test_weights_need_a_declared_largest_one(table):
    """Nobody may read it off the rows."""
    X, y, _ = table
    with pytest.raises(InvalidParameter, match="max_weight"):
        DPBoostClassifier(schema=classes(0, 1, 2)).fit(X, y, np.ones(len(y)))


# --- constraints, draws of columns, losses ---------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
def test_predictions_are_monotone_whatever_the_noise(table, sign):
    """Also where noise is all that there is: constraints are kept by what is released."""
    X, _, z = table
    model = DPBoostRegressor(epsilon=0.5, schema=NUMBERS, monotonic_cst={"x0": sign}, max_depth=4).fit(X, z)
    line = np.linspace(-3.5, 3.5, 50)
    for others in np.random.default_rng(3).uniform(-3, 3, size=(20, 4)):
        rows = np.tile(others, (50, 1))
        rows[:, 0] = line
        assert (sign * np.diff(model.predict(rows)) >= -1e-9).all()


def test_leaves_that_keep_the_order_stay():
    """What is monotone already is not moved."""
    child = np.array([1, -1, -1])
    value = np.array([0.0, -0.5, 0.25])
    make_monotone(child, np.array([1, 0, 0]), value)
    assert value.tolist() == [0.0, -0.5, 0.25]
    make_monotone(child, np.array([-1, 0, 0]), value)
    assert value.tolist() == [0.0, -0.125, -0.125]


def paths(tree, node=0, asked=frozenset()):
    """The columns on the way to each leaf."""
    if tree.left[node] < 0:
        return [asked]
    below = asked | {int(tree.feature[node])}
    return paths(tree, int(tree.left[node]), below) + paths(tree, int(tree.right[node]), below)


def test_only_columns_of_one_group_meet_on_a_path(table):
    """Columns in no group are a group."""
    X, y, _ = table
    model = DPBoostClassifier(epsilon=1.0, schema=classes(0, 1, 2), interaction_cst=[{0, 1}], max_iter=6, max_depth=4)
    for tree in model.fit(X, y).ensemble_.trees:
        assert all(path <= {0, 1} or path <= {2, 3} for path in paths(tree))


def test_draws_of_columns(table):
    """Each tree, or each level, or each node, asks about as many columns as were drawn for it."""
    X, y, _ = table
    common = {"epsilon": 1.0, "schema": classes(0, 1, 2), "max_iter": 8, "max_depth": 4, "random_state": 1}
    by_tree = DPBoostClassifier(**common, colsample_bytree=0.5).fit(X, y).ensemble_.trees
    assert all(len(set(tree.feature[tree.feature >= 0].tolist())) <= 2 for tree in by_tree)
    by_level = DPBoostClassifier(**common, colsample_bylevel=0.25).fit(X, y).ensemble_.trees
    assert all(len(set(tree.feature[3:7].tolist())) == 1 for tree in by_level)
    by_node = DPBoostClassifier(**common, max_features=0.25).fit(X, y).ensemble_.trees
    assert any(len(set(tree.feature[3:7].tolist())) > 1 for tree in by_node)


def test_draw_and_groups_that_leave_nothing_still_leave_a_question(table):
    """A noisy tree is always complete."""
    X, y, _ = table
    model = DPBoostClassifier(
        epsilon=1.0, schema=classes(0, 1, 2), interaction_cst="no_interactions", max_features=0.25, max_iter=5
    ).fit(X, y)
    assert all(tree.n_leaves == 64 for tree in model.ensemble_.trees)


def test_quantiles(table):
    """Of the rows as many are below the prediction as the quantile says, without noise; gradients need no bound."""
    X, _, z = table
    z = np.clip(np.random.default_rng(5).normal(0, 10, size=len(z)), -30, 30)
    common = {"epsilon": math.inf, "schema": NUMBERS, "max_depth": 1, "learning_rate": 0.05, "max_iter": 40}
    for quantile in (0.2, 0.9):
        model = DPBoostRegressor(**common, loss="quantile", quantile=quantile).fit(X, z)
        assert abs((z <= model.predict(X)).mean() - quantile) < 0.12
    median = DPBoostRegressor(**common, loss="absolute_error").fit(X, z)
    assert abs((z <= median.predict(X)).mean() - 0.5) < 0.12


# --- more trees ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_a_training_goes_on_where_another_ended(table, kind):
    """The first trees stay, the model gets no worse, and what both cost adds up in the statement."""
    X, y, z = table
    if kind == "numbers":
        model, y = DPBoostRegressor(epsilon=1000.0, schema=NUMBERS, max_iter=2, max_depth=3, learning_rate=0.3), z
    else:
        model = DPBoostClassifier(epsilon=1000.0, schema=classes(0, 1, 2), max_iter=2, max_depth=3, learning_rate=0.3)
    model.set_params(warm_start=True)
    first = model.fit(X, y).ensemble_
    before, epsilon = model.score(X, y), model.privacy_statement().epsilon
    model.set_params(max_iter=12, epsilon=500.0).fit(X, y)
    assert model.n_iter_ == 12
    assert model.ensemble_.trees[: len(first.trees)] == first.trees
    assert model.score(X, y) >= before
    assert model.privacy_statement().epsilon == pytest.approx(epsilon + 500.0)
    with pytest.raises(InvalidParameter, match="max_bins"):
        model.set_params(max_iter=15, max_bins=7).fit(X, y)


# --- the number of trees ---------------------------------------------------------------------------------------------


def test_a_record_pays_for_trees_or_for_looks(table):
    """Both are as dear as a training without looks; the plan is what happens, and the curve has ten points."""
    X, y, _ = table
    model = DPBoostClassifier(epsilon=3.0, schema=classes(0, 1, 2), early_stopping=True, max_iter=30, max_depth=3)
    done = model.fit(X, y)
    statement = done.privacy_statement()
    assert statement.epsilon <= 3.0
    trees, looks = statement.event.events[-1].events
    assert isinstance(statement.event.events[-1], Parallel)
    of_trees, of_looks = BasicComposition().cost(trees), BasicComposition().cost(looks)
    assert of_looks == pytest.approx(of_trees, rel=1e-9)
    assert sum(isinstance(part, PermuteAndFlip) for part in walk(looks)) == 1
    assert done.n_iter_ == done.best_iteration_ + 1 <= 30
    assert len(done.evals_result_["valid"]["brier"]) == 10
    assert "number of trees" in str(statement)


def test_without_noise_the_best_number_of_trees_is_kept(table):
    """That with the least loss on the rows that were set apart."""
    X, _, z = table
    noisy = z + np.random.default_rng(1).normal(0, 10, len(z))
    model = DPBoostRegressor(epsilon=math.inf, schema=NUMBERS, early_stopping=True, max_iter=60, trees_per_ensemble=5)
    model.fit(X, noisy)
    curve = model.evals_result_["valid"]["squared_error"]
    assert model.n_iter_ < 60
    assert min(curve) < curve[-1]


def test_rows_that_are_set_apart_serve_no_tree(table):
    """Whatever their labels are: the trees are those of the other rows."""
    X, _, z = table
    settings = DPBoostSettings(epsilon=math.inf, early_stopping=True, validation_fraction=0.3, n_trees=3, max_depth=2)
    seed = bytes(range(32))
    drawn = SecureRandom.from_seed(seed)
    drawn.bytes(32)
    apart = set_apart(settings, len(z), SecureRandom.from_seed(drawn.bytes(32)))
    assert 0.25 < apart.mean() < 0.35

    def trees(labels):
        training = CentralTraining(NUMBERS, settings, SecureRandom.from_seed(seed), 1)
        return training.boost(training.load(training.read(X, labels))).trees

    changed = np.where(apart, -z, z)
    for one, other in zip(trees(z), trees(changed), strict=False):  # the number kept may differ
        assert one == other


def test_one_record_moves_losses_by_a_unit_at_most():
    """Whatever its score, label and weight, under every loss; so the sensitivities of looks are true."""
    rng = np.random.default_rng(0)
    for options in ({}, {"loss": "logistic"}, {"loss": "quantile", "quantile": 0.9}, {"n_classes": 5}):
        settings = DPBoostSettings(epsilon=1.0, **options)
        scores = rng.normal(0, 100, size=(settings.n_outputs, 500))
        binary = rng.integers(0, 2, 500)
        labels = (
            rng.integers(0, 5, 500) if settings.n_outputs > 1 else binary if "loss" in options else 2.0 * binary - 1
        )
        for lost in bounded_losses(settings, scores, labels.astype(np.float32)).tolist():
            assert 0 <= losses_to_units(np.array([lost]), np.array([256])) <= LOOK_UNIT
    assert losses_to_units(np.array([1.0]), np.array([256])) == LOOK_UNIT


def test_the_best_number_of_trees_is_likely():
    """With many rows the choice finds it."""
    settings = DPBoostSettings(epsilon=1.0, early_stopping=True, n_trees=20)
    losses = LOOK_UNIT * (1000 + 40 * np.abs(np.arange(20) - 7))
    kept = [release_looks(settings, losses, LOOK_UNIT * 5000, SecureRandom())[0] for _ in range(20)]
    assert kept.count(8) >= 18
    assert look_rounds(settings) == list(range(2, 21, 2))
