"""horizontal.secure_sum: the federated model is the plain engine's on pooled rows, to the last bit."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hedgerow.attacks.secure_sum.singleton_cells import summed_levels
from hedgerow.engine import growth
from hedgerow.ledger import reconcile
from hedgerow.protocols.horizontal.secure_sum.messages import NextStep, Probes
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL
from hedgerow.testing.transcripts import play
from hedgerow.transport.transcripts import Recording
from twins.horizontal import NAMES, document, job_for, make_pooled, pooled_model, share_out


def run(job, data, **how):
    """All parties' results, with the books of all compared."""
    played = play(PROTOCOL, job, data, **how)
    assert played.errors == {}
    reconcile({name: party.ledger for name, party in played.parties.items()})
    return played


def assert_equals_pooled(job, data, pooled):
    """The coordinator's model is the engine's, and every owner has the same one."""
    played = run(job, data)
    model = played.results[job.coordinator]
    assert document(model) == document(pooled_model(job, pooled, model))
    assert set(played.results) == set(PROTOCOL.parties(job))
    for result in played.results.values():
        assert document(result) == document(model)
    return played, model


# --- the law -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_owners", range(2, 9))
def test_model_is_the_engines_on_pooled_rows(n_owners):
    """With 2 to 8 owners of very unequal size the model is that of the pooled rows, bit for bit."""
    sizes = [1, 150, 2, 60, 33, 1, 20, 45][:n_owners]
    pooled = make_pooled(np.random.default_rng(n_owners), sum(sizes))
    data = share_out(pooled, sizes)
    job = job_for(data, accept_no_masking=n_owners == 2)
    _, model = assert_equals_pooled(job, data, pooled)
    assert max(tree.depth for tree in model.trees) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"min_samples_leaf": 7},
        {"min_samples_leaf": 5, "max_depth": 5, "min_child_weight": 0.0},
        {"colsample_bytree": 0.5, "seed": 3},
        {"colsample_bynode": 0.5, "seed": 4},
        {"monotone": (1, 0, -1, 0, 0)},
        {"max_leaves": 5, "max_depth": 6},
        {"max_depth": None, "min_child_weight": 0.0},
        {"max_depth": None, "max_leaves": 9},
        {"max_depth": 1, "n_iterations": 9},
        {"min_gain": 0.5},
        {"base_score": 0.25},
        {"gradient_bits": 12},
        {"missing_unseen": "right"},
        {"max_bins": 8},
        {"max_bins": 2},
        {"coordinator": "carla"},
        {"coordinator": "anna", "min_samples_leaf": 4},
    ],
    ids=str,
)
def test_every_parameter_of_trees_means_the_same(changes):
    """Whatever is asked of the trees, federated and pooled trainings do the same."""
    pooled = make_pooled(np.random.default_rng(11), 160)
    data = share_out(pooled, [90, 30, 40])
    assert_equals_pooled(job_for(data, **changes), data, pooled)


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("regression", {"loss": "squared"}),
        ("regression", {"loss": "squared", "min_samples_leaf": 9}),
        ("counts", {"loss": "poisson"}),
        ("counts", {"loss": "poisson", "min_samples_leaf": 3}),
    ],
)
def test_numbers_as_labels(task, changes):
    """Squared and Poisson loss: the same law, with a label range that no owner has for itself."""
    pooled = make_pooled(np.random.default_rng(2), 150, task=task)
    order = np.argsort(pooled.labels, kind="stable")
    pooled = pooled.rows(order)
    data = share_out(pooled, [50, 60, 40])
    assert_equals_pooled(job_for(data, task="regression", **changes), data, pooled)


def test_declared_label_range_is_gone_by():
    """With a declared label range nobody's own range matters."""
    pooled = make_pooled(np.random.default_rng(4), 90, task="regression")
    data = share_out(pooled, [30, 30, 30])
    job = job_for(data, task="regression", loss="squared", label_range=(-50.0, 50.0))
    _, model = assert_equals_pooled(job, data, pooled)
    narrow = replace(job, boosting=replace(job.boosting, label_range=None), exact_label_range=True)
    assert document(model)["base_scores"] != document(pooled_model(narrow, pooled, model))["base_scores"]
    played = play(PROTOCOL, replace(job, boosting=replace(job.boosting, label_range=(0.0, 0.1))), data)
    assert "outside the declared label_range" in str(played.errors["anna"])


@pytest.mark.parametrize("n_classes", [3, 5])
def test_more_than_two_classes(n_classes):
    """Softmax, with owners that have met some of the classes only."""
    pooled = make_pooled(np.random.default_rng(n_classes), 180, n_classes=n_classes)
    pooled = pooled.rows(np.argsort(pooled.labels[:140], kind="stable").tolist() + list(range(140, 180)))
    data = share_out(pooled, [70, 70, 40])
    assert len(data["anna"].classes) < n_classes
    _, model = assert_equals_pooled(job_for(data, n_iterations=3), data, pooled)
    assert model.n_outputs == n_classes


def test_an_owner_with_no_rows_of_a_class():
    """Owners with one class only, of two, take part like all others."""
    pooled = make_pooled(np.random.default_rng(7), 120)
    pooled = pooled.rows(np.argsort(pooled.labels, kind="stable"))
    data = share_out(pooled, [30, 60, 30])
    assert data["anna"].classes == (0,)
    assert data["carla"].classes == (1,)
    assert_equals_pooled(job_for(data), data, pooled)


def test_levels_that_only_one_owner_has():
    """Levels are those of all owners together, whoever has met them; a column may be missing altogether somewhere."""
    rng = np.random.default_rng(8)
    pooled = make_pooled(rng, 150, n_levels=9)
    codes, numbers = pooled.columns[-1].values, pooled.columns[0].values
    codes[:50] = np.where(codes[:50] > 3, 0, codes[:50])
    codes[120:] = -1
    numbers[120:] = np.nan
    data = share_out(pooled, [50, 70, 30])
    assert len(data["anna"].table.columns[-1].levels) < 9
    assert data["carla"].table.columns[-1].levels == ()
    _, model = assert_equals_pooled(job_for(data, n_iterations=8), data, pooled)
    assert any((tree.level_set >= 0).any() for tree in model.trees)


def test_nothing_but_levels():
    """Without a numeric column there are no edges to look for."""
    rng = np.random.default_rng(9)
    pooled = make_pooled(rng, 90, n_numeric=0)
    pooled = replace(pooled, columns=pooled.columns[1:])
    data = share_out(pooled, [30, 30, 30])
    assert_equals_pooled(job_for(data), data, pooled)


def test_columns_that_say_nothing():
    """A constant column and one without any value are carried along."""
    pooled = make_pooled(np.random.default_rng(10), 90)
    pooled.columns[0].values[:] = np.nan
    pooled.columns[3].values[:] = 4.0
    data = share_out(pooled, [30, 40, 20])
    assert_equals_pooled(job_for(data), data, pooled)


GIVEN = {"x0": [-1.0, -0.3, 0.2, 0.9], "x1": [-8.0, 0.0, 7.5], "x2": [-60.0, -10.0, 30.0], "few": [0.5, 1.5]}


@pytest.mark.parametrize("min_samples_leaf", [1, 3])
@pytest.mark.parametrize("kept", [1, 3])
def test_levels_too_wide_to_keep_are_summed_in_parts(monkeypatch, kept, min_samples_leaf):
    """Where memory is short a level is asked for in several messages, each under masks of its own; same model."""
    monkeypatch.setattr(growth, "HISTOGRAM_BYTES", kept * 8 * 2048 * (1 if min_samples_leaf == 1 else 2))
    pooled = make_pooled(np.random.default_rng(18), 200)
    data = share_out(pooled, [80, 60, 60])
    job = job_for(data, max_depth=5, n_iterations=2, min_samples_leaf=min_samples_leaf, min_child_weight=0.1)
    played = run(job, data, around={"coordinator": Recording})
    model = played.results["coordinator"]
    assert document(model) == document(pooled_model(job, pooled, model))
    parts = [level.plan.part for level in summed_levels(played.recording("coordinator"))]
    assert max(parts) >= 2


def test_given_edges_are_taken():
    """quantiles="given": the edges of the job are the model's, and nobody is asked to count anything."""
    pooled = make_pooled(np.random.default_rng(12), 120)
    data = share_out(pooled, [40, 40, 40])
    played, model = assert_equals_pooled(job_for(data, quantiles="given", edges=GIVEN), data, pooled)
    for feature in model.features:
        if feature.edges is not None:
            assert feature.edges.tolist() == GIVEN[feature.name]
    assert not any(line.message == "horizontal.masked_counts" for line in played.parties["anna"].ledger)


def test_given_edges_for_every_numeric_column():
    """A numeric column without edges is named before training."""
    pooled = make_pooled(np.random.default_rng(12), 60)
    data = share_out(pooled, [20, 20, 20])
    edges = {name: edges for name, edges in GIVEN.items() if name != "x1"}
    played = play(PROTOCOL, job_for(data, quantiles="given", edges=edges), data)
    assert "no entry for the numeric column 'x1'" in str(played.errors["coordinator"])


def test_who_owns_which_row_does_not_matter():
    """With given edges, any order of owners and any assignment of rows give the same trees."""
    rng = np.random.default_rng(13)
    pooled = make_pooled(rng, 100)
    wanted = None
    for sizes in ([40, 30, 30], [1, 98, 1], [25, 25, 25, 25]):
        shuffled = pooled.rows(rng.permutation(100))
        data = share_out(shuffled, sizes)
        data = dict(sorted(data.items(), reverse=len(sizes) == 4))
        model = run(job_for(data, quantiles="given", edges=GIVEN), data).results["coordinator"]
        wanted = wanted or document(model)
        assert document(model) == wanted


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 40), min_size=3, max_size=5),
    task=st.sampled_from(["classification", "three classes", "regression"]),
    max_bins=st.sampled_from([3, 16, 256]),
    max_depth=st.sampled_from([1, 2, 4, None]),
    min_samples_leaf=st.sampled_from([1, 3]),
    own=st.booleans(),
)
def test_law_on_small_random_problems(seed, sizes, task, max_bins, max_depth, min_samples_leaf, own):
    """Federated and pooled models are equal on whatever small problem."""
    n_classes = 3 if task == "three classes" else 2
    kind = "regression" if task == "regression" else "classification"
    pooled = make_pooled(
        np.random.default_rng(seed), sum(sizes), task=kind, n_classes=n_classes, n_levels=int(seed % 4), missing=0.2
    )
    for first in itertools.accumulate([0, *sizes[:-1]]):
        pooled.columns[-1].values[first] = 0  # one level in common, else they are taken for codings that differ
    data = share_out(pooled, sizes)
    job = job_for(
        data,
        task=kind,
        loss="squared" if kind == "regression" else "logistic",
        max_bins=max_bins,
        max_depth=max_depth,
        min_samples_leaf=min_samples_leaf,
        n_iterations=2,
        coordinator=NAMES[1] if own else "coordinator",
        classes=pooled.classes,
    )
    assert_equals_pooled(job, data, pooled)


# --- rounds and messages -------------------------------------------------------------------------------------------


def test_a_tree_takes_as_many_rounds_as_levels():
    """Exactly one round per level, none for leaves, none between trees; fewer for a tree that ends earlier.

    Where a run goes on without a lost owner there is one more per tree, to take the owners' own masks off its first
    sum, and one for their seeds.
    """
    pooled = make_pooled(np.random.default_rng(14), 400)
    data = share_out(pooled, [150, 150, 100])
    model = run(job_for(data, n_iterations=6, max_depth=4), data).results["coordinator"]
    assert [tree.depth for tree in model.trees] == [4] * 6
    assert model.meta["rounds"]["training"] == 6 * 4
    assert model.meta["rounds"]["setup"] <= 3 + 12
    more = share_out(pooled, [150, 100, 80, 70])
    masked = run(job_for(more, n_iterations=6, max_depth=4), more).results["coordinator"]
    assert masked.meta["rounds"]["training"] == 1 + 6 * (4 + 1)
    few = {"n_iterations": 6, "max_depth": 9, "min_gain": 2.0}
    short = run(job_for(data, **few), data).results["coordinator"]
    depths = [tree.depth for tree in short.trees]
    assert min(depths) < 9
    assert short.meta["rounds"]["training"] <= sum(depth + 1 for depth in depths)


def test_one_message_per_owner_and_level():
    """An owner sends one masked vector per level, of the smaller children only, and gets one step for it."""
    pooled = make_pooled(np.random.default_rng(14), 400)
    data = share_out(pooled, [150, 150, 100])
    played = run(job_for(data, n_iterations=2, max_depth=3), data, around={"coordinator": Recording})
    levels = list(summed_levels(played.recording("coordinator")))
    assert [(level.plan.tree, level.plan.level, len(level.step.build)) for level in levels] == [
        (0, 0, 1), (0, 1, 1), (0, 2, 2), (1, 0, 1), (1, 1, 1), (1, 2, 2),
    ]  # fmt: skip
    for name in data:
        sent = [line.message for line in played.parties[name].ledger.lines("disclosed")]
        assert sent.count("horizontal.masked_histogram") == 6
    assert len(played.recording("coordinator").messages(NextStep, "sent", "ben")) == 7


def test_edges_are_found_in_at_most_twelve_rounds():
    """All quantiles of all columns together take no more than 12 rounds of probes."""
    pooled = make_pooled(np.random.default_rng(15), 500, n_numeric=6)
    data = share_out(pooled, [200, 200, 100])
    played = run(job_for(data, n_iterations=1), data, around={"ben": Recording})
    probes = [message for message in played.recording("ben").messages(Probes, "received") if len(message.points)]
    assert 1 <= len(probes) <= 12


def test_masked_messages_show_nothing_and_their_sum_everything():
    """What one owner sends is no histogram; what all send together is that of the pooled rows."""
    pooled = make_pooled(np.random.default_rng(16), 200)
    data = share_out(pooled, [70, 70, 60])
    played = run(job_for(data, n_iterations=1), data, around={"coordinator": Recording})
    root = next(iter(summed_levels(played.recording("coordinator"))))
    exact = root.sums.view(np.int64)
    assert (exact & 0xFFFFFFFF).sum() > 0
    assert np.abs(exact >> 32).max() < 2**31
    assert (exact == 0).any()
    for part in root.parts.values():
        assert not (part == 0).any()
        assert np.unique(part).size == part.size


def test_own_sums_of_a_coordinating_owner_never_leave():
    """A coordinator that is an owner sends no sums, and its name is among nobody's masks."""
    pooled = make_pooled(np.random.default_rng(17), 120)
    data = share_out(pooled, [40, 40, 40])
    played = run(job_for(data, coordinator="ben"), data)
    said = {line.message for line in played.parties["ben"].ledger.lines("disclosed")}
    assert not any("masked" in message or "table_description" in message for message in said)
    assert {line.peer for line in played.parties["anna"].ledger} == {"ben"}
