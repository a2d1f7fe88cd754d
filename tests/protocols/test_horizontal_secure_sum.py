"""horizontal.secure_sum: the federated model is the plain engine's on pooled rows, to the last bit."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hedgerow.engine import growth
from hedgerow.engine.boosting import BoostingParams
from hedgerow.errors import FrameError, InvalidParameter, PeerFailed, PeerLost
from hedgerow.ledger import reconcile
from hedgerow.protocols.horizontal.secure_sum.job import NOT_WITH_DP, Job
from hedgerow.protocols.horizontal.secure_sum.messages import MaskedHistogram, NextStep, Probes
from hedgerow.protocols.horizontal.secure_sum.protocol import PROTOCOL
from hedgerow.protocols.protocol import Request
from hedgerow.schema import Schema
from hedgerow.testing.horizontal import NAMES, document, make_pooled, pooled_model, share_out, with_losses
from hedgerow.testing.transcripts import Recording, plan_of, play, positions, summed_levels, vanishing_at

SCHEMA = Schema.from_public(bounds={"x0": (-5, 5)}, classes=[0, 1])
SMALL = {"n_iterations": 4, "max_depth": 3, "learning_rate": 0.3}


def job_for(data, **changes):
    """A job of these owners; parameters of trees and of the job alike."""
    tree_names = set(BoostingParams.__dataclass_fields__)
    trees = {name: changes.pop(name) for name in list(changes) if name in tree_names}
    return Job(owners=tuple(data), run_id="a test", boosting=BoostingParams(**{**SMALL, **trees}), **changes)


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
    model = run(job, data).results["anna"]
    twin = replace(job, boosting=replace(job.boosting, loss="squared"))
    assert document(model)["trees"] != document(pooled_model(twin, pooled, model))["trees"]
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
    """Exactly one round per level, none for leaves, none between trees; fewer for a tree that ends earlier."""
    pooled = make_pooled(np.random.default_rng(14), 400)
    data = share_out(pooled, [150, 150, 100])
    model = run(job_for(data, n_iterations=6, max_depth=4), data).results["coordinator"]
    assert [tree.depth for tree in model.trees] == [4] * 6
    assert model.meta["rounds"]["training"] == 6 * 4
    assert model.meta["rounds"]["setup"] <= 3 + 12
    short = run(job_for(data, n_iterations=6, max_depth=9, min_gain=2.0), data).results["coordinator"]
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


# --- the job -------------------------------------------------------------------------------------------------------

THREE = ("a", "b", "c")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"owners": ("a",)}, "at least 2 owners, got 1"),
        ({"owners": ()}, "at least 2 owners, got 0"),
        ({"owners": ("a", "b", "a")}, "owners must have different names"),
        ({"owners": ("a", "b", "")}, "owners must have different names"),
        ({"owners": ("a", "b")}, "with 2 owners protects nothing.*accept_no_masking=True"),
        ({"owners": ("a", "b"), "coordinator": "a"}, "with 2 owners protects nothing"),
        ({"min_owners": 1}, "min_owners must be between 2 and 3, got 1"),
        ({"min_owners": 4}, "min_owners must be between 2 and 3, got 4"),
        ({"owners": ("a", "b"), "accept_no_masking": True, "double_masking": True}, "double_masking needs at least 3"),
        ({"double_masking": True, "coordinator": "a"}, "double_masking needs a coordinator that is not one of"),
        ({"task": "ranking"}, "task must be one of classification, regression, got 'ranking'"),
        ({"quantiles": "exact"}, "quantiles must be one of search, private, given, got 'exact'"),
        ({"max_bins": 1}, "max_bins must be between 2 and 256, got 1"),
        ({"max_bins": 257}, "max_bins must be between 2 and 256, got 257"),
        ({"max_bins": 16.0}, "max_bins must be between"),
        ({"max_bins": True}, "max_bins must be between"),
        ({"quantiles": "given"}, "quantiles='given' and edges"),
        ({"edges": {"x": [1.0]}}, "quantiles='given' and edges"),
        ({"boosting": BoostingParams(subsample=0.5)}, "does not draw rows, got subsample=0.5"),
        ({"quantiles": "private", "quantile_epsilon": 1.0, "quantile_delta": 1e-6}, "needs the columns' public bounds"),
        ({"quantiles": "private", "schema": SCHEMA}, "quantile_epsilon and quantile_delta must be"),
        (
            {"quantiles": "private", "schema": SCHEMA, "quantile_epsilon": 1.0, "quantile_delta": 1.0},
            "a delta between 0 and 1, got 1.0 and 1.0",
        ),
        ({"dp": (1.0,), "schema": SCHEMA}, r"dp must be \(epsilon, delta\)"),
        ({"dp": (0.0, 1e-5), "schema": SCHEMA}, "an epsilon above 0"),
        ({"dp": (1.0, 0.0), "schema": SCHEMA}, "a delta between 0 and 1"),
        ({"dp": (float("nan"), 1e-5), "schema": SCHEMA}, "an epsilon above 0"),
        ({"dp": ("1", 1e-5), "schema": SCHEMA}, "an epsilon above 0"),
        ({"dp": (True, 1e-5), "schema": SCHEMA}, "an epsilon above 0"),
        ({"dp": (1.0, 1e-5)}, "dp needs the public bounds and levels.*would not be private"),
        ({"dp": (1.0, 1e-5), "schema": SCHEMA, "double_masking": True}, "not offered together with dp"),
        ({"dp": (1.0, 1e-5), "schema": SCHEMA, "max_bins": 64}, "leave out quantiles and max_bins"),
        (
            {"dp": (1.0, 1e-5), "schema": SCHEMA, "quantiles": "given", "edges": {"x0": [0.0]}},
            "leave out quantiles and max_bins",
        ),
        ({"honest_owners": 0}, "honest_owners must be between 1 and 3, got 0"),
        ({"honest_owners": 4}, "honest_owners must be between 1 and 3, got 4"),
    ],
    ids=str,
)
def test_a_wrong_job_is_refused(fields, sentence):
    """Each rule of a job has its sentence, which comes before any party is asked for anything."""
    with pytest.raises(InvalidParameter, match=sentence):
        Job(**{"owners": THREE, "run_id": "r", **fields})


OTHER_VALUES = {
    "n_iterations": 7, "learning_rate": 0.2, "max_depth": 3, "max_leaves": 8, "l2": 2.0, "min_gain": 0.1,
    "min_child_weight": 2.0, "min_samples_leaf": 3, "colsample_bytree": 0.5, "colsample_bynode": 0.5, "monotone": (1,),
    "base_score": 0.5, "gradient_bits": 10,
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_WITH_DP)
def test_with_dp_no_wish_about_trees_is_ignored(name):
    """A parameter of trees that the private recipe would not look at is refused by the name people know."""
    with pytest.raises(InvalidParameter, match="the recipe decides") as refusal:
        Job(
            owners=THREE, run_id="r", dp=(1.0, 1e-5), schema=SCHEMA,
            boosting=BoostingParams(**{name: OTHER_VALUES[name]}),
        )  # fmt: skip
    assert NOT_WITH_DP[name] in str(refusal.value)
    assert str(OTHER_VALUES[name]) in str(refusal.value)


def test_two_owners_need_a_reason():
    """Two owners are fine with dp, or when somebody writes that there is no masking."""
    assert Job(owners=("a", "b"), run_id="r", accept_no_masking=True).masked_owners == ("a", "b")
    assert Job(owners=("a", "b"), run_id="r", dp=(1.0, 1e-5), schema=SCHEMA).assumed_honest == 1


@pytest.mark.parametrize(("n_owners", "fewest"), [(2, 2), (3, 3), (4, 3), (5, 4), (6, 4), (9, 6), (32, 22)])
def test_how_many_owners_must_be_left(n_owners, fewest):
    """By default two thirds, and never fewer than three where there were three."""
    job = Job(owners=tuple(f"o{k}" for k in range(n_owners)), run_id="r", accept_no_masking=True)
    assert job.fewest_owners == fewest
    assert job.assumed_honest == n_owners - 1


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"task": "regression", "boosting": BoostingParams(loss="squared", label_range=(0.0, 2.0), monotone=(1, 0))},
        {"quantiles": "given", "edges": {"x": np.array([1.0, 2.5])}, "max_bins": 8, "coordinator": "b"},
        {"dp": (2.0, 1e-6), "schema": SCHEMA, "honest_owners": 2, "classes": ("no", "yes")},
        {"quantiles": "private", "schema": SCHEMA, "quantile_epsilon": 0.5, "quantile_delta": 1e-7, "min_owners": 2},
        {"double_masking": True},
    ],
    ids=str,
)
def test_a_job_goes_through_json(fields):
    """A job that was written down and read again is the same job."""
    job = Job(owners=THREE, run_id="r", **fields)
    again = Job.from_dict(json.loads(json.dumps(job.to_dict())))
    assert again.to_dict() == job.to_dict()
    assert again.boosting == job.boosting
    assert again.schema == job.schema
    assert PROTOCOL.job_from_dict(job.to_dict()).to_dict() == job.to_dict()


@pytest.mark.parametrize(
    ("parties", "options", "sentence"),
    [
        (THREE, {"coordinator": "d"}, "coordinator must be one of the owners"),
        (("a", "b", "coordinator"), {}, "an owner may not be called 'coordinator'"),
    ],
)
def test_names_of_coordinators(parties, options, sentence):
    """The coordinator is an owner by name, or somebody that no owner is called like."""
    with pytest.raises(InvalidParameter, match=sentence):
        PROTOCOL.job(Request(parties, "r", "classification", BoostingParams(), 256, options))


# --- owners that disappear -----------------------------------------------------------------------------------------

SIZES = [60, 50, 40, 30, 20]
OWNED = {
    name: range(start, stop)
    for name, (start, stop) in zip(NAMES, itertools.pairwise([0, *itertools.accumulate(SIZES)]), strict=False)
}


def lose(lost, having_sent=(), **changes):
    """Five owners of which some vanish: how it ended, the job, and all rows."""
    pooled = make_pooled(np.random.default_rng(20), sum(SIZES), **changes.pop("problem", {}))
    data = share_out(pooled, SIZES)
    job = job_for(data, **{"n_iterations": 5, "min_owners": 3, **changes})
    around = {name: vanishing_at(*when, having_sent=name in having_sent) for name, when in lost.items()}
    return play(PROTOCOL, job, data, around={"coordinator": Recording, **around}), job, pooled, data


@pytest.mark.parametrize(
    "lost",
    [
        {"carla": (2, 1)},
        {"carla": (2, 2)},
        {"carla": (2, 0)},
        {"carla": (0, 0)},
        {"anna": (4, 2)},
        {"anna": (1, 1), "emil": (3, 2)},
        {"anna": (1, 1), "emil": (1, 1)},
        {"anna": (1, 0), "emil": (1, 0)},
        {"anna": (1, 1), "emil": (2, 0)},
    ],
    ids=str,
)
@pytest.mark.parametrize("changes", [{}, {"min_samples_leaf": 4}], ids=["", "counts"])
def test_survivors_go_on(lost, changes):
    """Trees before the loss are those of all, the one at hand ends at its last complete level, later ones lack it."""
    played, job, pooled, data = lose(lost, **changes)
    assert played.errors == {}
    assert set(played.results) == {"coordinator", *data} - set(lost)
    model = played.results["coordinator"]
    assert document(model) == document(with_losses(job, pooled, OWNED, lost, model))
    for result in played.results.values():
        assert document(result) == document(model)
    assert model.meta["lost_owners"] == {name: tree for name, (tree, _) in lost.items()}
    undisturbed = run(job, data).results["coordinator"]
    first = min(tree for tree, _ in lost.values())
    assert model.trees[:first] == undisturbed.trees[:first]
    assert model.trees[first] != undisturbed.trees[first]
    level = min(level for tree, level in lost.values() if tree == first)
    assert model.trees[first].depth == (level or 3)
    survivors = {name: played.parties[name].ledger for name in {"coordinator", *data} - set(lost)}
    reconcile(survivors)


def test_an_owner_lost_while_coordinated_by_an_owner():
    """The coordinator's own rows stay in every sum."""
    lost = {"carla": (1, 1)}
    played, job, pooled, _ = lose(lost, coordinator="anna")
    assert played.errors == {}
    model = played.results["anna"]
    assert document(model) == document(with_losses(job, pooled, OWNED, lost, model))
    assert document(played.results["emil"]) == document(model)


@pytest.mark.parametrize("lost", [{"dora": (4, 1)}, {"dora": (4, 0)}, {"dora": (5, 2)}], ids=str)
def test_an_owner_lost_among_the_trees_of_several_classes(lost):
    """Softmax: the trees of one round keep the gradients of its beginning, also after a loss between them."""
    played, job, pooled, _ = lose(lost, n_iterations=3, problem={"n_classes": 3})
    assert played.errors == {}
    model = played.results["coordinator"]
    assert document(model) == document(with_losses(job, pooled, OWNED, lost, model))
    assert document(played.results["ben"]) == document(model)


def test_an_owner_that_goes_after_its_answer():
    """Sums that were sent count; the owner is missed at the level after."""
    played, job, pooled, _ = lose({"carla": (2, 1)}, having_sent=("carla",))
    assert played.errors == {}
    model = played.results["coordinator"]
    assert document(model) == document(with_losses(job, pooled, OWNED, {"carla": (2, 2)}, model))


def test_full_and_reduced_sum_of_a_node_are_never_both_finished():
    """What the coordinator received, position by position: one complete sum at most, and later ones among survivors."""
    for lost in ({"carla": (2, 1)}, {"carla": (2, 0)}, {"anna": (1, 1), "emil": (3, 2)}, {"anna": (1, 0)}):
        played, _, _, data = lose(lost)
        attempts = positions(summed_levels(played.recording("coordinator")))
        assert len(attempts) > 10
        for (tree, level, _), tries in attempts.items():
            assert [attempt.is_complete for attempt in tries].count(True) <= 1
            gone = {name for name, when in lost.items() if when < (tree, level)}
            for attempt in tries:
                assert gone.isdisjoint(attempt.parts)
            for name, when in lost.items():
                if when == (tree, level):
                    assert name not in tries[0].parts
                    assert not tries[0].is_complete
                    # A first sum is asked for again among those who are left; a later one never.
                    assert len(tries) == (2 if level == 0 else 1)
            if len(tries) == 2:
                assert set(tries[1].parts) == set(data) - gone - {n for n, w in lost.items() if w == (tree, level)}
                assert tries[1].plan.new_round > tries[0].plan.new_round


def test_survivors_use_new_keys():
    """After a loss the rest agree on keys of the next round; nobody's old masks are used again."""
    played, _, _, _ = lose({"carla": (2, 1)})
    keys = [line for line in played.parties["ben"].ledger.lines("disclosed") if line.message == "horizontal.mask_key"]
    assert len(keys) == 2
    rounds = [plan_of(step).new_round for step in played.recording("coordinator").messages(NextStep, "sent", "ben")]
    assert [number for number in rounds if number] == [2]


def test_too_few_owners_end_the_run():
    """Below min_owners the run stops, with a sentence that names the owner, the tree and the limit."""
    played, _, _, _ = lose({"anna": (1, 1), "ben": (2, 1), "emil": (3, 1)})
    error = played.errors["coordinator"]
    assert isinstance(error, PeerLost)
    assert str(error) == (
        "emil was lost in tree 4 and only 2 of 5 owners are left; the job asks for at least 3 (min_owners)"
    )
    for name in ("carla", "dora"):
        assert isinstance(played.errors[name], PeerFailed)
        assert "emil was lost in tree 4" in str(played.errors[name])


def test_default_threshold_ends_a_run_of_three():
    """With three owners and no min_owners nobody may be lost."""
    pooled = make_pooled(np.random.default_rng(21), 90)
    data = share_out(pooled, [30, 30, 30])
    played = play(PROTOCOL, job_for(data), data, around={"ben": vanishing_at(1, 1)})
    assert "ben was lost in tree 2 and only 2 of 3 owners are left" in str(played.errors["coordinator"])


def test_lost_before_training():
    """Who is gone before the first tree ends the run, whatever min_owners says."""
    pooled = make_pooled(np.random.default_rng(22), 90)
    data = share_out(pooled, [20, 20, 20, 30])

    def wrap(endpoint):
        from hedgerow.testing.transcripts import Vanishing
        from hedgerow.transport.frames import peek

        return Vanishing(endpoint, lambda _, frame: peek(frame)[0] == "horizontal.probes")

    played = play(PROTOCOL, job_for(data, min_owners=2), data, around={"dora": wrap})
    assert isinstance(played.errors["coordinator"], PeerLost)
    assert "dora was lost before training began" in str(played.errors["coordinator"])


def test_a_failing_owner_is_not_a_lost_one():
    """An owner that says that it failed ends the run for all, and its reason is what they read."""
    pooled = make_pooled(np.random.default_rng(23), 120)
    data = share_out(pooled, [20, 20, 20, 30, 30])

    class Failing(Recording):
        def send(self, to, frame):
            if len(self.messages(MaskedHistogram, "sent")) == 4:
                raise MemoryError("no more room at dora")
            super().send(to, frame)

    played = play(PROTOCOL, job_for(data, min_owners=3), data, around={"dora": Failing})
    assert isinstance(played.errors["dora"], MemoryError)
    for name in ("coordinator", "anna"):
        assert "no more room at dora" in str(played.errors[name])


def test_a_sum_of_another_shape_is_refused():
    """A vector that is not what was asked for ends the run and names its sender."""
    pooled = make_pooled(np.random.default_rng(24), 90)
    data = share_out(pooled, [30, 30, 30])

    class Short(Recording):
        def send(self, to, frame):
            from hedgerow.transport.frames import decode, encode, peek

            if peek(frame)[0] == MaskedHistogram.NAME:
                frame = encode(MaskedHistogram(np.ascontiguousarray(decode(frame, MaskedHistogram).values[:, :-1])))
            super().send(to, frame)

    played = play(PROTOCOL, job_for(data), data, around={"ben": Short})
    assert isinstance(played.errors["coordinator"], FrameError)
    assert "ben sent horizontal.masked_histogram of shape" in str(played.errors["coordinator"])
