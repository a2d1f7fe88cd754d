"""Other policies: exact answers, sensitivities, budgets in three currencies, and models that have learned something."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.privacy.accountants import GaussianDP, PrivacyLoss, ZeroConcentratedDP
from hedgerow.privacy.calibrate import PlannedBudget
from hedgerow.privacy.events import DiscreteGaussian, Exponential, NonPrivate, PoissonSampled, Released, Repeated
from hedgerow.protocols.central.gaussian.central import fit_gaussian, planned_event, sample_of
from hedgerow.protocols.central.gaussian.policies import POLICIES, Candidates
from hedgerow.protocols.central.gaussian.requests import (
    LARGEST_HESSIAN,
    UNIT,
    NodeRequest,
    SumRequest,
    record_sensitivity_squared,
)
from hedgerow.protocols.central.gaussian.rows import GrowingRows
from hedgerow.protocols.central.gaussian.training import GaussianSettings
from hedgerow.protocols.central.gaussian.trees import perfect_tree
from hedgerow.schema import Schema

CELLS = (4, 3, 5)
IDENTITY = np.tile(np.arange(256, dtype=np.uint8), (3, 1))
BINS = BinMapper(
    (FeatureBins("a", [1.0, 2.0, 3.0]), FeatureBins("b", levels=("x", "y", "z")), FeatureBins("c", [1.0, 2.0, 3.0]))
)
"""Three columns; the last may be missing."""

every_policy = pytest.mark.parametrize("policy", list(POLICIES))


def random_rows(n, loss="logistic", seed=0, extra=None):
    """Rows over three small columns, started at a score of 0; `extra` is one more record (codes, label)."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, cells, n) for cells in CELLS]).astype(np.uint8)
    labels = rng.integers(0, 2, n).astype(float) if loss == "logistic" else rng.uniform(-0.5, 0.5, n)
    if extra is not None:
        codes = np.concatenate([codes, np.array([extra[0]], np.uint8).T], axis=1)
        labels = np.append(labels, extra[1])
    return GrowingRows(codes, labels, CELLS, loss)


def node_request(kind, number=1, depth=0, clip=40_000, loss="logistic", **fields):
    """A request with the true sensitivity and the right number of sums."""
    features = fields.setdefault("features", np.array([0, 2] if kind == "node_sums" else [], np.int32))
    each = sum(CELLS[f] for f in features.tolist()) if kind == "node_sums" else 1
    n_sums = 0 if kind == "node_gains" else (2 << depth) * each
    squared = record_sensitivity_squared(kind, loss, len(features), clip)
    return NodeRequest(number, kind, n_sums, squared, 0.0, clip, depth=depth, **fields)


START = {"update": "start", "bins": IDENTITY}


def split(n_nodes, seed=0):
    """Random splits of a level."""
    rng = np.random.default_rng(seed)
    return {
        "split_features": rng.integers(0, 3, n_nodes).astype(np.int32),
        "split_right": rng.integers(0, 2, (n_nodes, 256)).astype(np.uint8),
    }


def by_hand(rows, nodes, column, clip):
    """Sums per node and bin at score 0 of two classes: minus gradients, hessians, counts."""
    out = np.zeros((max(nodes, default=0) + 1, CELLS[column], 3), np.int64)
    for node, code, label in zip(nodes, rows._codes[column], rows._labels, strict=True):
        out[node, code] += (min(max(round((label - 0.5) * UNIT), -clip), clip), UNIT // 4, 1)
    return out


def test_sums_and_gains_of_growing_trees_by_hand():
    """Two levels down, histograms, leaves and gains are those of rows sorted into nodes one by one."""
    rows, clip = random_rows(200), 30_000
    nodes = np.zeros(200, int)
    steps = [{}, split(1, 1), split(2, 2)]
    for depth, step in enumerate(steps):
        if depth:
            column = step["split_features"][nodes]
            nodes = 2 * nodes + step["split_right"][nodes, rows._codes[column, np.arange(200)]]
        fields = (START if depth == 0 else {}) | step
        sums = rows.node_answer(node_request("node_sums", 10 * depth + 1, depth, clip, **fields))
        wanted = [by_hand(rows, nodes, column, clip)[:, :, :2].reshape(-1) for column in (0, 2)]
        assert sums.tolist() == np.concatenate(wanted).tolist()
    leaves = rows.node_answer(node_request("node_leaves", 30, 0, clip, update="none"))
    assert leaves.tolist() == by_hand(rows, np.zeros(200, int), 0, clip)[:, :, :2].sum(axis=(0, 1)).tolist()


@pytest.mark.parametrize("n", [0, 1, 4, 200])
@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_gains_by_hand(n, l2):
    """Every candidate's gain is that of its two sides; one without records counts for nothing."""
    rows, clip = random_rows(n), 30_000
    gains = rows.node_gains(node_request("node_gains", 1, 0, clip, l2=l2, **START), BINS)
    candidates = Candidates.of(BINS)
    assert gains.shape == (1, len(candidates.feature)) == (1, 3 + 3 + 3)
    for gain, column, right in zip(gains[0], candidates.feature, candidates.goes_right, strict=True):
        sums = by_hand(rows, np.zeros(n, int), column, clip)[0]
        sides = [sums[right[: len(sums)] == side].sum(axis=0) for side in (0, 1)]
        wanted = sum((side[0] / UNIT) ** 2 / (side[2] + l2) for side in sides if side[2])
        assert gain == pytest.approx(wanted, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    codes=st.tuples(*(st.integers(0, cells - 1) for cells in CELLS)),
    label=st.sampled_from([0.0, 1.0]),
    score=st.floats(-40, 40),
    clip=st.integers(1, UNIT),
    n=st.integers(0, 30),
    l2=st.sampled_from([0.0, 1.0]),
)
def test_one_record_moves_nodes_by_no_more_than_stated(codes, label, score, clip, n, l2):
    """Sums move by at most their sensitivity, exactly; gains of one node by a width of at most twice theirs."""
    tables = {"update": "tables", "update_values": np.full((3, 256), score / 3)}
    answers = []
    for extra in (None, (codes, label)):
        rows = random_rows(n, seed=n, extra=extra)
        first = rows.node_answer(node_request("node_sums", 1, clip=clip, **START))
        leaves = rows.node_answer(node_request("node_leaves", 2, 1, clip, **split(1), **tables))
        gains = rows.node_gains(node_request("node_gains", 3, 2, clip, l2=l2, **split(2)), BINS)
        answers.append((first, leaves, gains))
    for kind, one, other in zip(("node_sums", "node_leaves"), *(answer[:2] for answer in answers), strict=True):
        moved = int(((one - other).astype(object) ** 2).sum())
        assert moved <= record_sensitivity_squared(kind, "logistic", 2, clip)
    change = answers[1][2] - answers[0][2]
    widths = change.max(axis=1) - change.min(axis=1)
    limit = 2 * node_request("node_gains", clip=clip).gain_sensitivity
    assert np.count_nonzero(np.abs(change).max(axis=1)) <= 1
    # By adding n clip^2 a choice is unchanged, and then each gain moves by at most the sensitivity.
    assert widths.max() <= limit * (1 + 1e-12)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"number": 1}, "came after request 1"),
        ({"sensitivity_squared": 5}, "squared sensitivity of 5"),
        ({"n_sums": 8}, "asks for 8 sums"),
        ({"depth": 2}, "does not fit the tree"),
        ({"split_features": np.array([7], np.int32)}, "does not fit the tree"),
        ({"split_right": np.full((1, 256), 2, np.uint8)}, "does not fit the tree"),
        ({"features": np.array([1, 1], np.int32)}, "does not fit the tree"),
        ({"clip": 0}, "does not fit the tree"),
    ],
)
def test_a_wrong_request_is_refused(changes, sentence):
    """Kernels do not look where they read, and the guarantee rests on stated sensitivities: so requests are checked."""
    rows = random_rows(20)
    rows.node_answer(node_request("node_sums", 1, **START))
    right = node_request("node_sums", 2, 1, **split(1))
    with pytest.raises(ProtocolError, match=sentence):
        rows.node_answer(dataclasses.replace(right, **changes))
    rows.node_answer(right)


def test_nothing_to_split():
    """A schema of constants leaves no candidate."""
    with pytest.raises(InvalidInput, match="leaves nothing to split"):
        Candidates.of(BinMapper((FeatureBins("one", []),)))


def test_a_perfect_tree_answers_as_it_was_asked():
    """Every row comes out at the leaf that its questions lead to, missing values included."""
    rng = np.random.default_rng(4)
    candidates = Candidates.of(BINS)
    chosen = rng.integers(0, len(candidates.feature), 7)
    leaves = rng.normal(0, 1, 8).astype(np.float32).astype(float)
    tree = perfect_tree(candidates.feature[chosen], candidates.goes_right[chosen], BINS.features, leaves, np.ones(8))
    model = Ensemble(BINS, "squared", [0.0], trees=[tree])
    codes = np.stack([rng.integers(0, cells, 100) for cells in (5, 4, 5)]).astype(np.uint8)
    found = model.raw_scores_binned(codes)[:, 0]
    for row, score in zip(codes.T, found, strict=True):
        node = 0
        while node < 7:
            node = 2 * node + 1 + candidates.goes_right[chosen[node], row[candidates.feature[chosen[node]]]]
        assert score == leaves[node - 7]


# --- trainings -----------------------------------------------------------------------------------------------------


def fitted(tables, loss, policy, n=1500, epsilon=2.0, noise=0, **options):
    """A model of one policy, and its settings."""
    schema, make = tables[loss]
    wishes = GaussianSettings(epsilon, 1e-5, policy=policy, **options)
    return fit_gaussian(*make(n), schema, wishes, np.random.default_rng(noise)), wishes


@every_policy
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_a_signal_is_found_within_the_budget(tables, loss, policy, frame_of):
    """The noise-free twin explains most, noise leaves some of it, and what was spent is what was planned or less."""
    frame, effect = frame_of(2000, seed=5)
    for epsilon, floor in ((8.0, 0.6), (math.inf, 0.75)):
        fit, wishes = fitted(tables, loss, policy, 4000, epsilon)
        scores = fit.model.raw_scores(read_table(frame, like=fit.model.features))[:, 0]
        assert np.corrcoef(scores, effect)[0, 1] > floor, (policy, epsilon)
        if math.isinf(epsilon):
            assert not fit.statement.is_private
            continue
        accountant = (ZeroConcentratedDP if policy == "exponential" else GaussianDP)()
        planned = planned_event(wishes)
        assert 0.98 * accountant.cost(planned) <= accountant.cost(fit.event) <= accountant.cost(planned)
        accountant.compose(planned)
        assert accountant.epsilon(1e-5) <= epsilon
        assert fit.statement.epsilon <= epsilon
        assert fit.statement.is_private
    assert fit.model.meta["policy"] == policy
    assert ("prediction_bounds" in fit.model.meta) == (loss == "squared")
    for tree in fit.model.trees:
        fit.model._check(tree)


@every_policy
def test_training_is_repeatable(tables, policy):
    """Same rows, seed and noise: the same model, bit for bit; other noise: another one."""
    one, same, other = (fitted(tables, "logistic", policy, 300, noise=noise, n_trees=5)[0] for noise in (0, 0, 1))
    assert one.model.to_dict() == same.model.to_dict()
    assert one.model.to_dict() != other.model.to_dict()


@every_policy
def test_scores_in_training_are_those_of_the_model(tables, policy):
    """Rows that have seen eight trees grow stand where the model of the first seven puts them."""
    schema, make = tables["logistic"]
    frame, labels = make(300)
    for n_trees in (7, 8):
        rows = GrowingRows.read(frame, labels, schema)
        settings = GaussianSettings(math.inf, 1e-5, policy=policy, n_trees=n_trees, clipped_count_share=0.0)
        training = POLICIES[policy](schema, settings)
        model = training.run(lambda request, rows=rows, training=training: exact(rows, training, request))
        if n_trees == 7:
            predicted = model.raw_scores(read_table(frame, like=model.features))[:, 0] - model.base_scores[0]
    np.testing.assert_allclose(rows._scores[0], predicted, atol=1e-5)
    assert np.ptp(predicted) > 0.1


def exact(rows, training, request):
    """An answer without noise."""
    if request.kind == "node_gains":
        values = rows.node_gains(request, training.described).argmax(axis=1)
    else:
        values = rows.node_answer(request) if isinstance(request, NodeRequest) else rows.answer(request)
    return Released(values, NonPrivate("no noise was added"))


def test_parameters_are_heard(tables):
    """Number of trees, depth, learning rate and l2 change what they say."""
    fit, _ = fitted(tables, "logistic", "random", 300, n_trees=6, max_depth=2)
    assert [tree.depth for tree in fit.model.trees] == [2] * 6
    fit, _ = fitted(tables, "logistic", "exponential", 300, n_trees=4, max_depth=2)
    assert [tree.depth for tree in fit.model.trees] == [2] * 4
    fit, _ = fitted(tables, "logistic", "cyclic", 300, n_trees=7, max_depth=2)
    assert fit.statement.stages[-1].releases == 7
    assert len(fit.model.features[0].edges) == 3
    sizes = [
        max(np.abs(tree.value).max() for tree in fitted(tables, "logistic", "random", 300, **more)[0].model.trees[:3])
        for more in ({}, {"learning_rate": 0.03}, {"l2": 1e4})
    ]
    assert sizes[1] < 0.3 * sizes[0]
    assert sizes[2] < 0.1 * sizes[0]


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"n_trees": 0}, "n_trees must be a whole number from 1"),
        ({"n_trees": 2.5}, "n_trees must be a whole number"),
        ({"max_depth": 9}, "max_depth must be a whole number from 1 to 8, got 9"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"l2": -1.0}, "l2 must be a finite number of at least 0"),
        ({"subsample": 0.0}, "subsample must be above 0 and at most 1"),
        ({"subsample": 1.5}, "subsample must be above 0 and at most 1"),
    ],
)
def test_impossible_parameters_are_refused(wishes, sentence):
    """By name and value."""
    with pytest.raises(InvalidParameter, match=sentence):
        GaussianSettings(1.0, 1e-5, policy="random", **wishes)


@pytest.mark.parametrize("policy", ["histogram", "exponential"])
def test_samples_are_for_two_policies(policy):
    """The others have nothing to gain from it that was proved."""
    with pytest.raises(InvalidParameter, match=f"subsample is for the policies random and cyclic, not for {policy}"):
        GaussianSettings(1.0, 1e-5, policy=policy, subsample=0.5)


@every_policy
@pytest.mark.parametrize("columns", [{"levels": {"one": ["x"], "two": ["x", "y"]}}, {"bounds": {"a": (0, 1)}}])
def test_little_to_split_is_enough(policy, columns):
    """A single column, levels that do not differ, hardly any rows: a model all the same."""
    schema = Schema.from_public(**columns, classes=[0, 1])
    frame = pd.DataFrame({"one": ["x"] * 4, "two": ["x", "y"] * 2} if "levels" in columns else {"a": [0.1, 0.9] * 2})
    for epsilon, l2 in ((1.0, None), (math.inf, 0.0)):
        settings = GaussianSettings(epsilon, 1e-5, policy=policy, n_trees=40, l2=l2)
        fit = fit_gaussian(frame, [0, 1, 0, 1], schema, settings, np.random.default_rng(0))
        assert np.isfinite(fit.model.raw_scores(read_table(frame, like=fit.model.features))).all()
        for tree in fit.model.trees:
            fit.model._check(tree)


@every_policy
def test_more_than_two_classes_are_refused(policy, tables):
    """Before the rows are read."""
    with pytest.raises(InvalidParameter, match="for two classes, but the schema lists 4"):
        fitted(tables, "softmax", policy, 50)


# --- samples -------------------------------------------------------------------------------------------------------


def test_a_sample_takes_each_row_with_its_chance():
    """The rate is exactly one that 32 bits can have; rows are independent of each other."""
    rate = GaussianSettings(1.0, 1e-5, policy="random", subsample=0.1).rate
    assert rate <= 0.1 < rate + 2.0**-32
    assert GaussianSettings(1.0, 1e-5, policy="random", subsample=1.0).rate == 1.0
    rng = np.random.default_rng(0)
    draws = np.stack([sample_of(200, 0.3, rng) for _ in range(3000)])
    assert draws.mean() == pytest.approx(0.3, abs=0.003)
    assert np.abs(np.corrcoef(draws.T) - np.eye(200)).max() < 0.12


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_only_chosen_rows_are_summed(loss):
    """A sample's sums are those of its rows; all rows are updated."""
    rows, few = random_rows(100, loss), random_rows(100, loss)
    chosen = np.random.default_rng(1).integers(0, 2, 100).astype(np.uint8)
    request = SumRequest(1, "bin_sums", 8, 2**60, 0.0, 40_000, features=np.array([0], np.int32), **START)
    part = rows.answer(request, chosen=chosen)
    rest = few.answer(request, chosen=1 - chosen)
    assert (part + rest).tolist() == random_rows(100, loss).answer(request).tolist()
    assert np.count_nonzero(part) > 4
    kept = np.flatnonzero(chosen)
    alone = GrowingRows(rows._codes[:, kept], rows._labels[kept], CELLS, loss)
    assert part.tolist() == alone.answer(request).tolist()


def times(event):
    """How often it happened."""
    return event.times if isinstance(event, Repeated) else 1


@pytest.mark.parametrize("policy", ["random", "cyclic"])
def test_samples_are_paid_for_as_such(tables, policy):
    """Every release is a Poisson sample; all are within the budget, and without sampling they would not be."""
    pytest.importorskip("dp_accounting")
    options = {"subsample": 0.2, "n_trees": 20, "max_depth": 2, "clipped_count_share": 0.01}
    fit, wishes = fitted(tables, "logistic", policy, 2000, 1.0, **options)
    flat = [
        part.event if isinstance(part, Repeated) else part for part in fit.event.parts() for _ in range(times(part))
    ]
    assert sum(isinstance(part, PoissonSampled) for part in flat) == 21
    assert len(flat) == 22
    assert fit.statement.epsilon == 1.0
    assert "counts on sampling" in str(fit.statement)
    accountant = PrivacyLoss()
    accountant.compose(planned_event(wishes))
    assert 0.5e-5 < accountant.delta(1.0) <= 1e-5
    unsampled = GaussianDP()
    for event, count in fit.event.leaves():
        unsampled.compose(event, count)
    assert unsampled.epsilon(1e-5) > 1.5


def test_an_answer_without_the_sample_ends_the_training(tables):
    """A sum over all rows, with the noise of a sample, is not what was asked for."""
    pytest.importorskip("dp_accounting")
    schema, make = tables["logistic"]
    rows = GrowingRows.read(*make(50), schema)
    options = {"subsample": 0.2, "n_trees": 20, "max_depth": 2, "clipped_count_share": 0.01}
    training = POLICIES["random"](schema, GaussianSettings(1.0, 1e-5, policy="random", **options))

    def release(request):
        return Released(rows.answer(request), DiscreteGaussian(request.sensitivity, request.sigma, request.n_sums))

    with pytest.raises(ProtocolError, match="request 1 was answered with"):
        training.run(release)


def test_a_choice_with_a_larger_epsilon_ends_the_training(tables):
    """What a choice was worth is compared with what was asked for."""
    schema, make = tables["logistic"]
    rows = GrowingRows.read(*make(50), schema)
    training = POLICIES["exponential"](
        schema, GaussianSettings(1.0, 1e-5, policy="exponential", clipped_count_share=0.0)
    )

    def release(request):
        if request.kind == "node_gains":
            return Released(np.zeros(1, int), Exponential(request.gain_sensitivity, 1.01 * request.choice_epsilon))
        return Released(rows.answer(request), request.event())

    with pytest.raises(ProtocolError, match="request 2 was answered with Exponential"):
        training.run(release)


def test_a_plan_that_is_broken_gives_no_model():
    """A purse whose events were planned is counted again at the end."""
    purse = PlannedBudget(1.0, 1e-5, ZeroConcentratedDP())
    purse.spend(DiscreteGaussian(1.0, 10.0, 1))
    purse.check()
    purse.spend(DiscreteGaussian(1.0, 1.0, 1))
    with pytest.raises(ProtocolError, match=r"more than 1\.0"):
        purse.check()


def test_hessians_of_growing_trees_are_bounded():
    """Of a regression too: the constant that sensitivities are made of is what rows add."""
    rows = random_rows(1, "squared")
    sums = rows.node_answer(node_request("node_leaves", 1, loss="squared", centre=0.0, spread=0.1, **START))
    assert sums[1] == LARGEST_HESSIAN["squared"]
    assert abs(sums[0]) <= 40_000
