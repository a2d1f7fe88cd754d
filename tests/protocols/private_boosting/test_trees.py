"""Tables and oblivious trees as engine trees: every code gets the value that the table or the leaf says."""

from __future__ import annotations

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble
from hedgerow.protocols.central.gaussian.tables import merged
from hedgerow.protocols.central.gaussian.trees import merged_feature, oblivious_trees, table_tree

NUMERIC = FeatureBins("age", [1.0, 2.0, 3.0, 5.0])
LEVELS = FeatureBins("town", levels=("a", "b", "c"))
CONSTANT = FeatureBins("one", [])


def values_of(tree, feature, number, n_features):
    """What the tree says for each code of one feature, the others being missing."""
    features = [FeatureBins(f"x{j}", [0.5]) for j in range(n_features)]
    features[number] = feature
    model = Ensemble(BinMapper(tuple(features)), "squared", [0.0], trees=[tree])
    codes = np.full((n_features, feature.n_codes), 2, np.uint8)
    codes[number] = np.arange(feature.n_codes)
    return model.raw_scores_binned(codes)[:, 0]


@pytest.mark.parametrize("feature", [NUMERIC, LEVELS, CONSTANT], ids=lambda feature: feature.name)
@pytest.mark.parametrize("has_missing", [False, True])
def test_a_table_becomes_a_tree(feature, has_missing):
    """Each bin's leaf holds its value; missing values have their own, or that of the bin nearest to the average."""
    n = feature.n_value_bins + has_missing
    rng = np.random.default_rng(n)
    table, weights = rng.normal(0, 1, n).astype(np.float32).astype(float), rng.uniform(1, 5, n)
    tree = table_tree(1, feature, table, weights)
    found = values_of(tree, feature, 1, 3)
    assert found[:n].tolist() == table.tolist()
    if not has_missing:
        assert found[n] == table[np.argmin(np.abs(table - np.average(table, weights=weights)))]
    assert tree.n_leaves == n
    assert tree.depth <= max(n - 1, 0).bit_length() + has_missing


def test_gains_add_up_to_the_variance():
    """The gains of a table's tree sum to the weighted variance of its values; the root's value is their mean."""
    table, weights = np.array([1.0, 4, -2, 0, 3]), np.array([1.0, 2, 3, 4, 5])
    tree = table_tree(0, NUMERIC, table, weights)
    mean = np.average(table, weights=weights)
    assert tree.gain.sum() == pytest.approx(weights @ (table - mean) ** 2, rel=1e-6)
    assert tree.value[0] == pytest.approx(mean)
    assert tree.cover[0] == weights.sum()


def test_an_oblivious_tree_asks_one_question_per_level():
    """The leaf of a row has its answers as bits, first level first, for numbers, levels and missing values."""
    features = (NUMERIC, LEVELS, CONSTANT)
    goes_right = np.zeros((3, 256), np.uint8)
    goes_right[0, [0, 2, 3]] = 1  # town: a, c and missing go right
    goes_right[1, 3:5] = 1  # age: 3 and above go right, missing left
    goes_right[2, 1:] = 1  # one: values left, missing right
    asked = np.array([1, 0, 2], np.int32)
    leaves = np.arange(8.0)
    (tree,) = oblivious_trees(asked, goes_right, features, leaves[None], np.arange(1.0, 9.0)[None])
    model = Ensemble(BinMapper(features), "squared", [0.0], trees=[tree])
    codes = np.array([[a, t, o] for a in range(6) for t in range(4) for o in range(2)], np.uint8).T
    wanted = 4 * goes_right[0][codes[1]] + 2 * goes_right[1][codes[0]] + goes_right[2][codes[2]]
    assert model.raw_scores_binned(np.ascontiguousarray(codes))[:, 0].tolist() == wanted.tolist()
    assert (tree.depth, tree.n_leaves) == (3, 8)
    mean = np.average(leaves, weights=np.arange(1.0, 9.0))
    assert tree.gain.sum() == pytest.approx(np.arange(1.0, 9.0) @ (leaves - mean) ** 2, rel=1e-6)
    assert Ensemble.from_dict(model.to_dict()).trees == model.trees


def test_merged_bins_have_the_edges_between_them():
    """Codes by merged edges are the merged codes of cells; levels stay as they are."""
    bins = merged(np.array([3.0, 9, 1, 1, 10, 7]), n_ordered=5, target=10)
    feature = merged_feature(NUMERIC, bins)
    values = np.array([0.0, 1, 1.5, 2, 2.9, 3, 4, 5, 9])
    cells = np.searchsorted(NUMERIC.edges, values, side="right")
    assert np.searchsorted(feature.edges, values, side="right").tolist() == bins.of_cell[cells].tolist()
    assert merged_feature(LEVELS, bins) is LEVELS
