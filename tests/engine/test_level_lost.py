"""A tree whose sums stop coming ends at the last complete level, and rows, leaves and scores agree about it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.growth import LevelLost, TreeGrower
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser
from twins.horizontal import StoppingRows

N_ROWS, N_BINS = 300, 12
MAPPER = BinMapper(tuple(FeatureBins(f"x{k}", np.arange(N_BINS - 1, dtype=np.float64)) for k in range(4)))


def make_rows(seed=0):
    """Rows with something to learn at every level."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, N_BINS, (4, N_ROWS)).astype(np.uint8)
    signal = np.sin(codes[0]) + np.cos(codes[1]) * (codes[2] > 5) + rng.normal(scale=0.2, size=N_ROWS)
    loss = Loss("logistic")
    quantiser = Quantiser.for_job(loss, float(N_ROWS), n_rows=N_ROWS)
    bases = np.array([0.1])
    labels = (signal > 0.3).astype(float)
    return codes, StoppingRows.from_codes(
        MAPPER, codes, labels, None, loss=loss, base_scores=bases, quantiser=quantiser
    )


def grower_on(rows, **rules):
    """A grower with these rules."""
    edges = [feature.edges for feature in MAPPER.features]
    return TreeGrower(rows, BoostingParams(**rules), rows.loss, rows.quantiser, edges, weighted=False)


def grow(stop_at=None, **rules):
    """One tree on fresh rows whose sums stop at a level."""
    codes, rows = make_rows()
    rows.gradients()
    rows.start_tree()
    rows.stop_at = stop_at
    return codes, rows, grower_on(rows, **rules).grow(0)


@pytest.mark.parametrize("rules", [{}, {"min_samples_leaf": 20}, {"max_leaves": 7}, {"monotone": (1, 0, -1, 0)}])
@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_tree_is_that_of_the_complete_levels(lost, rules):
    """Losing level k gives the tree, and the scores, of max_depth=k."""
    _, rows, tree = grow(stop_at=lost, max_depth=6, **rules)
    _, shallow_rows, shallow = grow(max_depth=lost, **rules)
    assert tree == shallow
    assert dataclasses.replace(tree) == tree
    np.testing.assert_array_equal(rows.scores, shallow_rows.scores)


@pytest.mark.parametrize("lost", [1, 3])
def test_scores_are_those_of_the_tree(lost):
    """What the rows' scores grew by is what the tree predicts for them."""
    codes, rows, tree = grow(stop_at=lost, max_depth=6)
    model = Ensemble(MAPPER, "logistic", [0.1])
    scores = np.zeros(N_ROWS, np.float32)
    model.add_binned(codes, tree, scores)
    assert np.unique(scores).size > 1
    np.testing.assert_array_equal(rows.scores[0], scores)


def test_without_a_root_there_is_no_tree():
    """A lost root is the caller's affair: LevelLost comes out, scores stay, and the tree can begin again."""
    _, rows = make_rows()
    grower = grower_on(rows, max_depth=3)
    rows.gradients()
    rows.start_tree()
    rows.stop_at = 0
    with pytest.raises(LevelLost):
        grower.grow(0)
    assert not rows.scores.any()
    rows.start_tree()
    rows.stop_at = None
    _, twin_rows, twin = grow(max_depth=3)
    assert grower.grow(0) == twin
    np.testing.assert_array_equal(rows.scores, twin_rows.scores)


def test_next_tree_is_not_disturbed():
    """The tree after one that was cut short grows to its full depth from the scores that the short one left."""
    _, rows = make_rows()
    grower = grower_on(rows, max_depth=4)
    trees = []
    for number, stop_at in enumerate([None, 2, None]):
        rows.gradients()
        rows.start_tree()
        rows.stop_at = stop_at
        trees.append(grower.grow(number))
    assert [tree.depth for tree in trees] == [4, 2, 4]
    _, twin = make_rows()
    for number, depth in enumerate([4, 2, 4]):
        twin.gradients()
        twin.start_tree()
        assert grower_on(twin, max_depth=depth).grow(number) == trees[number]


def test_a_level_of_no_splits_is_not_waited_for():
    """Where nothing was left to split the tree is over before its sums can be lost."""
    _, _, tree = grow(stop_at=1, max_depth=6, min_gain=1e9)
    assert tree.n_nodes == 1
