"""Trees grown by the fast path are the naive grower's trees: same splits, same values, to the last bit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine import growth
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.feature_choice import FeatureDraw, InteractionPaths
from hedgerow.engine.growth import TreeGrower
from hedgerow.engine.histogram import pack
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser, weight_total
from hedgerow.engine.rows import Rows
from hedgerow.errors import InvalidParameter
from hedgerow.testing import naive

pytestmark = pytest.mark.usefixtures("threads_for_small_data")


def make_problem(seed, n_rows=120, loss="logistic", weighted=False, categorical=True, missing=True, n_small=3):
    """Random codes (numeric, categorical, tiny bundled columns; some missing), labels and scores."""
    rng = np.random.default_rng(seed)
    features, codes = [], []
    for number in range(6 + n_small):
        if number < 4:
            n_bins = int(rng.integers(1, 40))
            feature = FeatureBins(f"n{number}", np.arange(n_bins - 1, dtype=np.float64), None)
        elif number < 6 and categorical:
            n_bins = int(rng.integers(1, 12))
            feature = FeatureBins(f"c{number}", None, tuple(f"level{k}" for k in range(n_bins)))
        else:
            n_bins = int(rng.integers(1, 4))
            feature = FeatureBins(f"s{number}", np.arange(n_bins - 1, dtype=np.float64), None)
        column = rng.integers(0, n_bins, n_rows)
        if missing and number % 2 == 0:
            column = np.where(rng.random(n_rows) < 0.2, n_bins, column)
        features.append(feature)
        codes.append(column)
    codes = np.array(codes, np.uint8)
    signal = codes[0] / 20 + (codes[4] % 3) - codes[-1] + rng.normal(size=n_rows)
    n_outputs = 3 if loss == "softmax" else 1
    if loss == "logistic":
        labels, the_loss = (signal > np.median(signal)).astype(float), Loss("logistic")
    elif loss == "softmax":
        labels, the_loss = np.digitize(signal, np.quantile(signal, [0.3, 0.7])).astype(float), Loss("softmax", 3)
    elif loss == "poisson":
        labels = rng.poisson(np.exp(np.clip(signal / 4, -2, 2))).astype(float)
        the_loss = Loss("poisson", 1, (0.0, float(labels.max() + 1)))
    else:
        labels = signal if loss == "squared" else np.round(signal * 4) / 4  # with ties among what rows lack
        the_loss = Loss(loss, 1, (float(labels.min()), float(labels.max())), 0.3 if loss == "quantile" else 0.5)
        scores_like = labels - 0.125
    weight = rng.choice([0.0, 0.5, 1.0, 2.0, 3.25], n_rows) if weighted else None
    scores = rng.normal(scale=0.5, size=(n_outputs, n_rows)).astype(np.float32)
    if the_loss.refits_leaves:
        scores = np.where(rng.random(scores.shape) < 0.2, scores_like, np.round(scores * 4) / 4).astype(np.float32)
    return features, codes, labels, weight, the_loss, scores


def grow_both(problem, rules, *, n_threads=1, bundle=True, output=0):
    """The same tree by the fast grower (with its scores before and after) and by the naive one."""
    features, codes, labels, weight, loss, scores = problem
    n_positive = len(labels) if weight is None else int((weight > 0).sum())
    quantiser = Quantiser.for_job(loss, weight_total(weight, n_positive), n_rows=n_positive)
    bases = np.full(loss.n_outputs, 0.125)
    n_bins = np.array([f.n_value_bins for f in features], np.int64)
    packed = pack(codes, n_bins, np.array([f.levels is not None for f in features]), bundle=bundle)
    rows = Rows(packed, labels, weight, loss, bases, quantiser, n_threads=n_threads, scores=scores.copy())
    assert rows.n_parts == n_threads
    grower = TreeGrower(rows, rules, loss, quantiser, [f.edges for f in features], weighted=weight is not None)
    rows.gradients()
    rows.start_tree(output)
    tree = grower.grow(0)
    pairs = naive.quantised(loss, quantiser, scores, labels, bases, weight)[output]
    nodes = naive.grow_tree(codes, pairs, features, rules, quantiser)
    if loss.refits_leaves:
        lacking = (labels - bases[0]).astype(np.float32) - scores[0]
        weights = np.ones(len(labels)) if weight is None else weight
        naive.refit_leaves(nodes, lacking, weights, loss, rules.learning_rate)
    return tree, rows, nodes


def assert_same_tree(tree, nodes, features):
    """Every field of the fast tree follows from the naive one, and the tree passes the checks it was spared."""
    assert dataclasses.replace(tree) == tree
    assert tree.n_nodes == len(nodes)
    for number, node in enumerate(nodes):
        assert tree.value[number] == node.value
        assert tree.left[number] == node.left
        if node.split is None:
            assert tree.feature[number] == -1
            continue
        split = node.split
        assert tree.feature[number] == split.feature
        assert tree.bin[number] == split.bin
        assert bool(tree.missing_left[number]) == split.missing_left
        assert tree.gain[number] == np.float32(split.gain)
        if split.bin < 0:
            levels = tree.left_levels[tree.level_set[number]]
            n_codes = features[split.feature].n_codes
            assert set(np.flatnonzero(levels[:n_codes]).tolist()) == set(split.left_codes)


def assert_scores_follow(nodes, rows, problem, output=0):
    """Each row's score grew by exactly the value of the leaf it fell into."""
    expected = problem[-1][output].copy()
    for node in nodes:
        if node.split is None:
            for row in node.rows:
                expected[row] += node.value
    np.testing.assert_array_equal(rows.scores[output], expected)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(["logistic", "squared", "softmax", "poisson", "absolute", "quantile"]),
    weighted=st.booleans(),
    n_threads=st.sampled_from([1, 2, 3]),
    bundle=st.booleans(),
    rules=st.builds(
        BoostingParams,
        max_depth=st.sampled_from([1, 2, 3, 5, None]),
        max_leaves=st.sampled_from([None, 2, 3, 7]),
        l2=st.sampled_from([0.0, 0.5, 1.0, 10.0]),
        min_gain=st.sampled_from([0.0, 0.1, 1.0]),
        min_child_weight=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
        min_samples_leaf=st.sampled_from([1, 2, 10]),
        min_rows_per_sum=st.sampled_from([1, 1, 2, 15, 121]),
        learning_rate=st.sampled_from([0.1, 1.0]),
        missing_unseen=st.sampled_from(["heavier", "right"]),
        one_hot_levels=st.sampled_from([(), (), (4,), (4, 5)]),
        interaction=st.sampled_from(
            [None, None, ((0, 4), (4, 5, 6)), ((0, 1), (1, 2, 3)), tuple((k,) for k in range(9))]
        ),
    ),
)
def test_grown_tree_equals_naive_tree(seed, loss, weighted, n_threads, bundle, rules):
    """Whatever the rules, the loss, the weights and the threads: the naive tree, and scores that follow from it."""
    problem = make_problem(seed, loss=loss, weighted=weighted)
    tree, rows, nodes = grow_both(problem, rules, n_threads=n_threads, bundle=bundle)
    assert_same_tree(tree, nodes, problem[0])
    assert_scores_follow(nodes, rows, problem)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), loss=st.sampled_from(["logistic", "squared"]), depth=st.sampled_from([2, 4]))
def test_monotone_tree_equals_naive_tree_and_is_monotone(seed, loss, depth):
    """With constraints the trees are the naive ones, and leaf values never move against the constraint."""
    problem = make_problem(seed, loss=loss, categorical=False, missing=False)
    directions = tuple(int(x) for x in np.random.default_rng(seed).choice([-1, 0, 1], len(problem[0])))
    rules = BoostingParams(max_depth=depth, monotone=directions, min_child_weight=0.1)
    tree, _, nodes = grow_both(problem, rules)
    assert_same_tree(tree, nodes, problem[0])
    codes = problem[1]
    for feature, direction in enumerate(directions):
        if direction == 0:
            continue
        for row in range(0, codes.shape[1], 7):
            values = []
            for code in range(problem[0][feature].n_value_bins):
                probe = codes[:, row].copy()
                probe[feature] = code
                values.append(_walk(tree, probe))
            steps = np.diff(np.array(values)) * direction
            assert (steps >= 0).all()


def _walk(tree, codes):
    node = 0
    while tree.feature[node] >= 0:
        node = tree.left[node] if codes[tree.feature[node]] <= tree.bin[node] else tree.right[node]
    return tree.value[node]


def test_histograms_in_batches_give_the_same_tree(monkeypatch):
    """When histograms may not be kept, nodes are summed afresh in batches and nothing changes."""
    problem = make_problem(3, n_rows=300)
    rules = BoostingParams(max_depth=6, min_child_weight=0.0)
    kept, _, _ = grow_both(problem, rules)
    monkeypatch.setattr(growth, "HISTOGRAM_BYTES", 3 * 8 * 4096)
    batched, rows, nodes = grow_both(problem, rules, n_threads=2)
    assert kept == batched
    assert_scores_follow(nodes, rows, problem)


@pytest.mark.parametrize("fewest", [2, 20])
def test_children_go_on_together_or_not_at_all(fewest, monkeypatch):
    """Every node that splits has min_rows_per_sum rows, and so has its sibling; in batches it is the same tree."""
    problem = make_problem(3, n_rows=300)
    rules = BoostingParams(max_depth=6, min_child_weight=0.0, min_rows_per_sum=fewest)
    tree, _, nodes = grow_both(problem, rules)
    assert_same_tree(tree, nodes, problem[0])
    pairs = [(nodes[node.left], nodes[node.right]) for node in nodes if node.split is not None]
    going_on = [pair for pair in pairs if any(child.split is not None for child in pair)]
    assert going_on
    assert all(len(child.rows) >= fewest for pair in going_on for child in pair)
    assert any(len(child.rows) < fewest for pair in pairs for child in pair)
    monkeypatch.setattr(growth, "HISTOGRAM_BYTES", 3 * 8 * 4096)
    assert grow_both(problem, rules)[0] == tree


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_missing_values_that_no_row_had_go_where_they_are_told(loss):
    """Nothing else changes: the same splits and values, and gaps that rows did have go where they gain more."""
    problem = make_problem(8, n_rows=300, loss=loss)
    rules = BoostingParams(max_depth=4, min_child_weight=0.0)
    heavier, rows, _ = grow_both(problem, rules)
    right, same_rows, nodes = grow_both(problem, dataclasses.replace(rules, missing_unseen="right"))
    assert_same_tree(right, nodes, problem[0])
    for name in ("feature", "bin", "left", "right", "value", "gain", "cover"):
        np.testing.assert_array_equal(getattr(heavier, name), getattr(right, name))
    np.testing.assert_array_equal(rows.scores, same_rows.scores)
    seen = [
        bool(node.split) and bool((problem[1][node.split.feature, node.rows] == _missing_code(problem, node)).any())
        for node in nodes
    ]
    np.testing.assert_array_equal(heavier.missing_left[seen], right.missing_left[seen])
    assert right.missing_left[seen].any()
    assert not right.missing_left[np.logical_not(seen)].any()
    assert heavier.missing_left[np.logical_not(seen)].any()


def _missing_code(problem, node):
    return problem[0][node.split.feature].n_value_bins


def test_feature_without_values_is_never_split():
    """A column in which everything is missing has no cut."""
    features = [FeatureBins("x", np.array([0.5]), None), FeatureBins("void", np.empty(0), None)]
    codes = np.array([[0, 1] * 20, [1] * 40], np.uint8)
    labels = np.array([0.0, 1.0] * 20)
    problem = (features, codes, labels, None, Loss("logistic"), np.zeros((1, 40), np.float32))
    tree, _, nodes = grow_both(problem, BoostingParams(max_depth=3))
    assert_same_tree(tree, nodes, features)
    assert set(tree.feature.tolist()) == {0, -1}


def test_column_sampling_uses_only_the_drawn_features():
    """colsample_bytree limits a tree to its draw; the draw changes with the tree and repeats with the seed."""
    problem = make_problem(5, n_rows=400)
    features, codes, labels, weight, loss, _ = problem
    quantiser = Quantiser.for_job(loss, len(labels), n_rows=len(labels))
    n_bins = np.array([f.n_value_bins for f in features], np.int64)
    packed = pack(codes, n_bins, np.array([f.levels is not None for f in features]))
    rules = BoostingParams(max_depth=4, colsample_bytree=0.34, min_child_weight=0.1, seed=11)
    used = []
    for _ in range(2):
        rows = Rows(packed, labels, weight, loss, np.zeros(1), quantiser)
        grower = TreeGrower(rows, rules, loss, quantiser, [f.edges for f in features], weighted=False)
        draws = []
        for number in range(4):
            rows.gradients()
            rows.start_tree()
            tree = grower.grow(number)
            draws.append(frozenset(tree.feature[tree.feature >= 0].tolist()))
        used.append(draws)
    assert used[0] == used[1]
    assert len(set(used[0])) > 1
    assert all(len(draw) <= 3 for draw in used[0])


def test_columns_are_drawn_by_tree_then_level_then_node():
    """Each draw is a share of the one before it, the same for whoever asks, and another one on every level."""
    rules = BoostingParams(colsample_bytree=0.5, colsample_bylevel=0.5, colsample_bynode=0.5, seed=3)
    n_nodes = (1, 2, 4, 8)
    draws = [[FeatureDraw(rules, 40, tree) for tree in range(3)] for _ in range(2)]
    found = [[[draw.for_nodes(n) for n in n_nodes] for draw in each] for each in draws]
    by_level = [FeatureDraw(dataclasses.replace(rules, colsample_bynode=1.0), 40, tree) for tree in range(3)]
    for tree, level in np.ndindex(3, 4):
        one, other = found[0][tree][level], found[1][tree][level]
        np.testing.assert_array_equal(one, other)
        assert one.shape == (n_nodes[level], 40)
        assert (one.sum(axis=1) == 5).all()
        of_level = by_level[tree].for_nodes(n_nodes[level])
        assert of_level.shape == (1, 40)
        assert of_level.sum() == 10
        assert (one <= of_level).all()
    levels = [found[0][0][level].any(axis=0) for level in range(4)]
    assert not (levels[1] == levels[2]).all()


def test_draws_without_levels_are_what_they_were():
    """With colsample_bylevel=1 trees and nodes draw as before there were draws for levels."""
    rules = BoostingParams(colsample_bytree=0.5, colsample_bynode=0.5, seed=8)
    draw = FeatureDraw(rules, 12, 2)
    expected = np.random.default_rng((8, 2, 0)).permutation(12)[:6]
    rng = np.random.default_rng((8, 2, 1))
    for n_nodes in (1, 2):
        found = draw.for_nodes(n_nodes)
        for of_node in found:
            assert set(np.flatnonzero(of_node)) == set(rng.permutation(np.sort(expected))[:3])


def test_paths_stay_within_a_group():
    """What a node may ask about is the union of groups that hold its path; columns of no group are a group."""
    paths = InteractionPaths(((0, 1), (1, 2)), 5)
    assert paths.allowed.all()
    paths.split(np.array([1]))
    np.testing.assert_array_equal(paths.allowed, [[True, True, True, False, False]] * 2)
    paths.split(np.array([-1, 2]))
    np.testing.assert_array_equal(paths.allowed, [[False, True, True, False, False]] * 2)
    others = InteractionPaths(((0, 1), (1, 2)), 5)
    others.split(np.array([4]))
    np.testing.assert_array_equal(others.allowed, [[False, False, False, True, True]] * 2)
    with pytest.raises(InvalidParameter, match="interaction names feature 7, but there are 5 features"):
        InteractionPaths(((0, 7),), 5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("max_depth", 0),
        ("max_leaves", 1),
        ("l2", -1.0),
        ("min_gain", float("inf")),
        ("min_child_weight", -0.1),
        ("min_samples_leaf", 0),
        ("colsample_bytree", 0.0),
        ("colsample_bylevel", 0.0),
        ("colsample_bynode", 1.5),
        ("quantile", 1.0),
        ("interaction", ((0, 1), ())),
        ("monotone", (2,)),
        ("missing_unseen", "left"),
    ],
)
def test_rules_out_of_range_are_refused_by_name(name, value):
    """The error names the parameter and the value."""
    with pytest.raises(InvalidParameter, match=name):
        BoostingParams(**{name: value})


def test_mapper_codes_and_tree_thresholds_agree():
    """The threshold of a split is the edge above its last left bin."""
    rng = np.random.default_rng(0)
    edges = [np.sort(rng.normal(size=9)), np.sort(rng.normal(size=4))]
    mapper = BinMapper((FeatureBins("a", edges[0]), FeatureBins("b", edges[1])))
    codes = np.stack([rng.integers(0, 10, 500), rng.integers(0, 5, 500)]).astype(np.uint8)
    labels = (codes[0] + codes[1] > 7).astype(float)
    problem = (list(mapper.features), codes, labels, None, Loss("logistic"), np.zeros((1, 500), np.float32))
    tree, _, _ = grow_both(problem, BoostingParams(max_depth=3))
    for node in np.flatnonzero(tree.feature >= 0):
        assert tree.threshold[node] == edges[tree.feature[node]][tree.bin[node]]
