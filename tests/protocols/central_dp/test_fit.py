"""The training as a whole: what is released, what it costs, and that it is what was planned."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from hedgerow.datasets import adult_schema, load_adult
from hedgerow.engine import rows as rows_module
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.privacy.accountants import BasicComposition
from hedgerow.privacy.events import Composed, DiscreteLaplace, NonPrivate, Parallel, walk
from hedgerow.protocols.bad_rows import MISFITS_FACT
from hedgerow.protocols.central.dpboost import fit as fit_module
from hedgerow.protocols.central.dpboost import records as records_module
from hedgerow.protocols.central.dpboost.assignment import subsets
from hedgerow.protocols.central.dpboost.fit import fit_central
from hedgerow.protocols.central.dpboost.plan import planned_event
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.schema import Schema

PRIVATE = ("central.dpboost", "central.sequential", "central.parallel")
SMALL = {"n_trees": 7, "trees_per_ensemble": 3, "max_depth": 3}


def stream(seed=0):
    """A stream of bytes that repeats itself."""
    return np.random.default_rng(seed)


def auc(y, scores):
    """The chance that a positive is above a negative."""
    order = np.argsort(np.argsort(scores, kind="stable"), kind="stable")
    n_positive = int(y.sum())
    return (order[y == 1].sum() - n_positive * (n_positive - 1) / 2) / (n_positive * (len(y) - n_positive))


# --- what it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PRIVATE)
@pytest.mark.parametrize("assignment", ["independent", "paper"])
@pytest.mark.parametrize("binning", ["public", "private"])
@pytest.mark.parametrize("epsilon", [0.3, 7.0, math.inf])
def test_event_is_the_planned_one_and_costs_epsilon(numbers, protocol, assignment, binning, epsilon):
    """The event is known beforehand, and its epsilon is the one asked for, or a rounding less."""
    X, y, schema = numbers
    settings = DPBoostSettings(
        protocol=protocol, assignment=assignment, binning=binning, epsilon=epsilon, max_bins=9, **SMALL
    )
    fit = fit_central(X, y, schema, settings, stream())
    assert fit.event == planned_event(settings, schema) == fit.statement.event
    assert fit.statement.adjacency == ("replace_one" if assignment == "paper" else "add_remove")
    accountant = BasicComposition(settings.adjacency)
    accountant.compose(fit.event)
    if math.isinf(epsilon):
        assert not accountant.is_private
        assert str(fit.statement).startswith("NOT PRIVATE")
    else:
        assert epsilon * (1 - 1e-9) < accountant.total <= epsilon
        assert fit.statement.epsilon == accountant.total
        assert fit.statement.delta == 0.0


def test_structure_of_the_event(numbers):
    """Ensembles add up, trees of an ensemble are side by side, levels and leaves of a tree add up."""
    _, _, schema = numbers
    event = planned_event(DPBoostSettings(epsilon=2.0, **SMALL), schema)
    count, *ensembles = event.events
    assert isinstance(count, DiscreteLaplace)
    assert [len(ensemble.events) for ensemble in ensembles] == [3, 3, 1]
    assert all(isinstance(ensemble, Parallel) for ensemble in ensembles)
    for ensemble in ensembles:
        for place, tree in enumerate(ensemble.events):
            *levels, leaves = tree.events
            assert isinstance(tree, Composed)
            assert len(levels) == 3
            assert {level.sensitivity for level in levels} == {2.0}
            wanted = min(1 / 1.1, 2 * 0.9**place)  # plus what rounding to a grid may add
            assert wanted <= leaves.sensitivity <= wanted * (1 + 1e-5)
    replaced = planned_event(DPBoostSettings(epsilon=2.0, assignment="paper", **SMALL), schema)
    tree = replaced.events[1].events[2]
    assert tree.events[0].sensitivity == 4.0
    assert tree.events[-1].sensitivity == pytest.approx(min(2 / 1.1, 4 * 0.81), rel=1e-5)
    logistic = planned_event(DPBoostSettings(epsilon=2.0, loss="logistic", **SMALL), schema)
    assert logistic.events[1].events[0].events[0].sensitivity == 0.5
    for of_paper in ({"gain": "paper"}, {"protocol": "central.parallel"}, {"protocol": "central.sequential"}):
        paper = planned_event(DPBoostSettings(epsilon=2.0, **(SMALL | of_paper)), schema)
        assert paper.events[1].events[0].events[0].sensitivity == 3.0


def test_a_release_that_was_not_planned_is_an_error(numbers, monkeypatch):
    """A model whose event is not the planned one never leaves."""
    X, y, schema = numbers
    monkeypatch.setattr(fit_module, "planned_event", lambda *_: NonPrivate("something else"))
    with pytest.raises(ProtocolError, match="planned"):
        fit_central(X, y, schema, DPBoostSettings(epsilon=1.0, **SMALL), stream())


def test_clipped_rows_are_counted_with_noise(numbers):
    """The statement holds a noisy number of clipped rows; it can be switched off, and costs nothing then."""
    X, y, schema = numbers
    exact = int(
        (np.abs(X[:, 4]) > 1.0).sum() + ((np.abs(X[:, [0, 1, 3]]) > 3.0).any(1) & (np.abs(X[:, 4]) <= 1.0)).sum()
    )
    key = MISFITS_FACT
    near = fit_central(X, y, schema, DPBoostSettings(epsilon=1000.0, **SMALL), stream()).statement.facts[key]
    assert abs(near - exact) <= 5
    noisy = [
        fit_central(X, y, schema, DPBoostSettings(epsilon=1.0, **SMALL), stream(seed)).statement.facts[key]
        for seed in range(3)
    ]
    assert len(set(noisy)) > 1
    off = DPBoostSettings(epsilon=1.0, clipped_count_share=0.0, **SMALL)
    assert key not in fit_central(X, y, schema, off, stream()).statement.facts
    assert not [event for event in walk(planned_event(off, schema)) if isinstance(event, DiscreteLaplace)]


# --- what is released ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PRIVATE)
def test_trees_are_complete_and_hold_nothing_exact(numbers, protocol):
    """All leaves are there; inner values, gains and covers follow from the leaves and from nothing else."""
    X, y, schema = numbers
    settings = DPBoostSettings(epsilon=3.0, protocol=protocol, **SMALL)
    model = fit_central(X, y, schema, settings, stream()).model
    assert len(model.trees) == settings.n_trees
    for number, tree in enumerate(model.trees):
        assert tree.n_leaves == 2**settings.max_depth
        assert tree.depth == settings.max_depth
        depth_of = np.floor(np.log2(np.arange(tree.n_nodes) + 1))
        assert np.array_equal(tree.cover, 0.5**depth_of)
        for node in np.flatnonzero(tree.feature >= 0)[::-1]:
            left, right = float(tree.value[tree.left[node]]), float(tree.value[tree.right[node]])
            assert tree.value[node] == np.float32((left + right) / 2)
            assert tree.gain[node] == np.float32((left - right) ** 2 * tree.cover[node] / 4)
        if protocol == "central.dpboost":
            tau = 0.9 ** (number % settings.trees_per_ensemble)
            assert np.abs(tree.value).max() <= np.float32(0.1 * tau)
    again = Ensemble.from_dict(model.to_dict())  # checks shapes, order and thresholds
    assert all(a == b for a, b in zip(again.trees, model.trees, strict=True))


def test_same_stream_same_model_other_stream_other_model(numbers):
    """The model is a function of records, settings and stream."""
    X, y, schema = numbers
    settings = DPBoostSettings(epsilon=3.0, **SMALL)
    first, again, other = (fit_central(X, y, schema, settings, stream(seed)).model for seed in (1, 1, 2))
    assert first.to_dict() == again.to_dict()
    assert first.to_dict() != other.to_dict()


@pytest.mark.parametrize("protocol", PRIVATE)
def test_threads_change_nothing(numbers, protocol, monkeypatch):
    """Two threads that share every tree give the model of one."""
    X, y, schema = numbers
    X, y = np.tile(X, (16, 1)), np.tile(y, 16)  # more than a chunk of rows
    settings = DPBoostSettings(epsilon=3.0, protocol=protocol, **SMALL)
    one = fit_central(X, y, schema, settings, stream(), n_threads=1).model
    monkeypatch.setattr(rows_module, "CODES_WORTH_THREADS", 1)
    monkeypatch.setattr(rows_module, "UPDATES_WORTH_A_THREAD", 1)
    monkeypatch.setattr(records_module, "_ROWS_WORTH_A_THREAD", 64)
    two = fit_central(X, y, schema, settings, stream(), n_threads=2).model
    assert one.to_dict() == two.to_dict()


def test_progress_is_told_after_every_tree(numbers):
    """The callback gets the number of trees so far, and of all."""
    X, y, schema = numbers
    seen = []
    settings = DPBoostSettings(epsilon=3.0, **SMALL)
    fit_central(X, y, schema, settings, stream(), on_progress=lambda *step: seen.append(step))
    assert seen == [(n, 7) for n in range(1, 8)]


def recorded_subsets(monkeypatch, *arguments):
    """The subsets that a training used, and its model."""
    seen = []

    def record(*wanted):
        found = subsets(*wanted)
        seen.extend(rows.tolist() for rows in found)
        return found

    monkeypatch.setattr(fit_module, "subsets", record)
    return seen, fit_central(*arguments).model


def test_noise_has_no_say_in_the_subsets(numbers, monkeypatch):
    """The same stream gives the same subsets for every epsilon, infinite or not, in every ensemble."""
    X, y, schema = numbers
    found = [
        recorded_subsets(
            monkeypatch, X, y, schema, DPBoostSettings(epsilon=epsilon, binning="private", **SMALL), stream()
        )
        for epsilon in (0.5, 20.0, math.inf)
    ]
    assert found[0][0] == found[1][0] == found[2][0]
    assert len(found[0][0]) == 7


@pytest.mark.parametrize("new", range(4))
def test_adding_a_record_changes_one_subset_of_each_ensemble(numbers, monkeypatch, new):
    """Parallel composition, seen in a whole training: trees before the one that the record serves stay as they are."""
    X, y, schema = numbers
    n = 1000 + new
    settings = DPBoostSettings(epsilon=5.0, n_trees=6, trees_per_ensemble=6, max_depth=3, clipped_count_share=0.0)
    before, model = recorded_subsets(monkeypatch, X[:n], y[:n], schema, settings, stream(new))
    after, other = recorded_subsets(monkeypatch, X[: n + 1], y[: n + 1], schema, settings, stream(new))
    changed = [place for place, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert len(changed) == 1
    assert after[changed[0]] == [*before[changed[0]], n]
    for mine, theirs in zip(model.trees[: changed[0]], other.trees[: changed[0]], strict=True):
        assert mine == theirs


# --- strange tables --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PRIVATE)
@pytest.mark.parametrize("epsilon", [2.0, math.inf])
def test_one_row(protocol, epsilon):
    """Almost all trees then have no record; they are grown all the same."""
    schema = Schema.from_public(bounds={"a": (0, 1), "b": (0, 1)}, classes=["n", "p"])
    settings = DPBoostSettings(epsilon=epsilon, protocol=protocol, **SMALL)
    model = fit_central(np.array([[0.2, 0.9]]), np.array(["p"]), schema, settings, stream()).model
    assert len(model.trees) == 7
    if epsilon == 2.0:
        assert all(tree.n_leaves == 8 for tree in model.trees)


def test_empty_subsets():
    """More trees than records: empty trees are complete, their leaves are noise around 0."""
    schema = Schema.from_public(bounds={"a": (0, 1), "b": (0, 1)}, classes=[0, 1])
    X, y = np.array([[0.2, 0.9], [0.3, 0.1]]), np.array([0, 1])
    settings = DPBoostSettings(epsilon=2.0, n_trees=30, trees_per_ensemble=30, max_depth=4)
    model = fit_central(X, y, schema, settings, stream()).model
    assert all(tree.n_leaves == 16 for tree in model.trees)
    assert len({int(tree.feature[0]) for tree in model.trees}) == 2  # any candidate is as good as any other


@pytest.mark.parametrize("epsilon", [2.0, math.inf])
def test_a_column_that_is_all_missing(numbers, epsilon):
    """It is a column like any other, whose questions all have the same answer."""
    X, y, _ = numbers
    X = X.copy()
    X[:, 0] = np.nan
    schema = Schema.from_public(bounds={f"x{j}": (-3, 7) for j in range(5)}, may_be_missing=["x0"], classes=[0, 1])
    model = fit_central(X, y, schema, DPBoostSettings(epsilon=epsilon, **SMALL), stream()).model
    used = {int(feature) for tree in model.trees for feature in tree.feature[tree.feature >= 0]}
    assert (0 in used) == (epsilon == 2.0)  # noise asks about it, the best split does not


def test_values_out_of_bounds_count_as_the_bounds(numbers):
    """Clipping a table beforehand changes nothing but the number of clipped rows."""
    X, y, schema = numbers
    low = np.array([schema[f"x{j}"].low for j in range(5)])
    high = np.array([schema[f"x{j}"].high for j in range(5)])
    settings = DPBoostSettings(epsilon=3.0, clipped_count_share=0.0, **SMALL)
    models = [fit_central(Z, y, schema, settings, stream()).model for Z in (X, np.clip(X, low, high))]
    assert models[0].to_dict() == models[1].to_dict()


# --- wrong input -----------------------------------------------------------------------------------------------------


class Untouchable:
    """A table nobody may look at."""

    def __getattr__(self, name):
        raise AssertionError(f"the table was touched: {name}")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"classes": None}, "either classes"),
        ({"label_bounds": (0.0, 1.0)}, "either classes"),
        ({"classes": ("a", "b", "c")}, "3 classes, but the settings are for 2"),
    ],
)
def test_a_schema_without_two_classes_is_refused_before_the_rows_are_read(numbers, change, words):
    """The labels must be described, in one way, and be two classes."""
    schema = dataclasses.replace(numbers[2], **change)
    with pytest.raises(InvalidParameter, match=words):
        fit_central(Untouchable(), Untouchable(), schema, DPBoostSettings(epsilon=1.0), stream())


def test_other_unusable_schemas():
    """No schema at all, nothing to ask, a loss that does not go with the labels."""
    settings = DPBoostSettings(epsilon=1.0)
    with pytest.raises(InvalidParameter, match="Schema"):
        fit_central(Untouchable(), Untouchable(), None, settings, stream())
    constant = Schema.from_public(levels={"a": ["only"]}, classes=[0, 1])
    with pytest.raises(InvalidParameter, match="nothing to split on"):
        fit_central(Untouchable(), Untouchable(), constant, settings, stream())
    regression = Schema.from_public(bounds={"a": (0, 1)}, label_bounds=(0, 1))
    with pytest.raises(InvalidParameter, match="logistic"):
        fit_central(Untouchable(), Untouchable(), regression, DPBoostSettings(epsilon=1.0, loss="logistic"), stream())


class NoRandomness:
    """A stream that nobody may draw from."""

    def bytes(self, n):
        """No bytes."""
        raise AssertionError(f"{n} random bytes were drawn")


def test_a_table_that_is_not_the_schemas(numbers):
    """Missing columns, too few labels, and where rows are public also gaps: errors that name what is wrong.

    They come before any randomness is drawn, so that nothing has been released.
    """
    X, y, schema = numbers
    settings = DPBoostSettings(epsilon=1.0, **SMALL)
    gap = X.copy()
    gap[3, 1] = np.nan
    with pytest.raises(InvalidInput, match=r"'x1'.*may_be_missing"):
        fit_central(gap, y, schema, settings, NoRandomness(), on_bad_rows="raise")
    with pytest.raises(InvalidInput, match="4 features"):
        fit_central(X[:, :4], y, schema, settings, NoRandomness())
    named = Schema.from_public(bounds={"age": (0, 100), "height": (0, 300)}, classes=[0, 1])
    with pytest.raises(InvalidInput, match="height"):
        fit_central(pd.DataFrame({"age": X[:, 0], "weight": X[:, 1]}), y, named, settings, NoRandomness())
    with pytest.raises(InvalidInput, match="not equally many"):
        fit_central(X, y[1:], schema, settings, NoRandomness())
    with pytest.raises(InvalidInput, match="classes"):
        fit_central(X, y + 1, schema, settings, NoRandomness(), on_bad_rows="raise")


def test_more_rows_than_can_be_summed_are_refused(numbers, monkeypatch):
    """The limit keeps packed sums exact."""
    X, y, schema = numbers
    monkeypatch.setattr(records_module, "MAX_ROWS", 1000)
    with pytest.raises(InvalidInput, match="at most 1,000 rows"):
        fit_central(X, y, schema, DPBoostSettings(epsilon=1.0, **SMALL), stream())


# --- it learns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"loss": "logistic"}, {"selection": "permute_and_flip"}, {"binning": "private"}]
)
def test_adult_is_learned_with_a_large_epsilon(options):
    """AUC on the official test rows."""
    train, test = load_adult("train"), load_adult("test")
    settings = DPBoostSettings(epsilon=50.0, **options)
    model = fit_central(train.X, train.y, adult_schema(), settings, stream()).model
    scores = model.raw_scores(read_table(test.X, like=model.features))[:, 0]
    assert auc(test.y, scores) > 0.75
    assert model.classes == (0, 1)
    if settings.loss == "squared":
        assert model.meta["probability"] == "clip((score + 1) / 2, 0, 1)"


@pytest.mark.parametrize("protocol", [*PRIVATE, "central.plain"])
def test_regression_is_in_the_units_of_the_labels(lengths, protocol):
    """Predictions start from the middle of the bounds and come near the labels where noise allows."""
    X, y, schema = lengths
    epsilon = math.inf if protocol == "central.plain" else 2000.0
    settings = DPBoostSettings(epsilon=epsilon, protocol=protocol, n_trees=40, trees_per_ensemble=40, max_depth=4)
    model = fit_central(X, y, schema, settings, stream()).model
    assert model.base_scores.tolist() == [20.0]
    assert model.meta["prediction_bounds"] == [10.0, 30.0]
    error = model.raw_scores(X)[:, 0] - y
    assert np.sqrt(np.mean(error**2)) < 0.9 * y.std()


def test_plain_is_not_private_and_learns_most(numbers):
    """The engine on the same bins, and a statement that begins with what it is not."""
    X, y, schema = numbers
    fit = fit_central(X, y, schema, DPBoostSettings(epsilon=math.inf, protocol="central.plain"), stream())
    assert str(fit.statement).startswith("NOT PRIVATE")
    assert isinstance(fit.event, NonPrivate)
    assert auc(y, fit.model.raw_scores(X)[:, 0]) > 0.97
