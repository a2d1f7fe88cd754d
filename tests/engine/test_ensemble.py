"""Trees and ensembles as objects: what they refuse, what they count, what stays in step when trees are added."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType
from hedgerow.testing import naive
from twins.random_models import random_ensemble, random_mapper, random_matrix, random_tree

MAPPER = BinMapper((FeatureBins("age", [1.0, 2.0]), FeatureBins("town", levels=("a", "b"))))


def small_tree(**changes: Any) -> Tree:
    """age < 2 -> (town in {b} -> 1, 2), 3."""
    goes_left = np.zeros((1, 256), np.bool_)
    goes_left[0, 1] = True
    nodes: dict[str, Any] = {
        "feature": [0, 1, -1, -1, -1],
        "bin": [1, -1, -1, -1, -1],
        "threshold": [2.0, np.nan, np.nan, np.nan, np.nan],
        "missing_left": [True, False, False, False, False],
        "left": [1, 3, -1, -1, -1],
        "right": [2, 4, -1, -1, -1],
        "value": [0.0, 0.0, 3.0, 1.0, 2.0],
        "gain": [5.0, 2.5, 0.0, 0.0, 0.0],
        "cover": [10.0, 6.0, 4.0, 3.0, 3.0],
        "level_set": [-1, 0, -1, -1, -1],
        "left_levels": goes_left,
    }
    return Tree(**(nodes | changes))


def test_a_small_tree_by_hand() -> None:
    """Values below the threshold, levels in the set, missing values and unseen levels take the way written down."""
    model = Ensemble(MAPPER, "squared", [10.0], trees=[small_tree()])
    rows = np.array([[1.9, 1], [1.9, 0], [2.0, 1], [np.nan, 1], [np.nan, np.nan], [0.0, 7], [np.inf, 1], [-np.inf, 1]])
    assert model.raw_scores(rows)[:, 0].tolist() == [11.0, 12.0, 13.0, 11.0, 12.0, 12.0, 13.0, 11.0]
    assert model.apply(rows)[:, 0].tolist() == [3, 4, 2, 3, 4, 4, 2, 3]
    assert (small_tree().depth, small_tree().n_leaves, small_tree().n_nodes) == (2, 3, 5)
    assert model.importances().tolist() == [5.0, 2.5]
    assert model.importances("count").tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"left": [1, 0, -1, -1, -1]}, "node 1, inner node 1, should have children 3 and 4 after it, got 0 and 4"),
        ({"left": [1, 5, -1, -1, -1]}, "breadth-first"),
        ({"right": [2, 3, -1, -1, -1]}, "breadth-first"),
        ({"left": [1, 3, 3, -1, -1]}, "a leaf has no children"),
        ({"feature": [0, 1, 1, -1, -1]}, "a tree of 3 inner nodes has 7 nodes, got 5"),
        ({"value": [0.0]}, r"value must have one entry per node, 5; got shape \(1,\)"),
        ({"feature": []}, "at least one node"),
        ({"left_levels": np.zeros((1, 3))}, "left_levels must have 256 columns"),
        ({"left_levels": np.zeros((2, 256))}, "every row of left_levels must belong to exactly one node"),
        ({"level_set": [-1, 1, -1, -1, -1]}, "level_set must name one of the 1 rows of left_levels"),
        ({"level_set": [-1, 0, 0, -1, -1]}, "in inner nodes only"),
        ({"bin": [-1, -1, -1, -1, -1]}, "bin must be from 0 on"),
        ({"bin": [1, 1, -1, -1, -1]}, "bin must be from 0 on in splits of numeric features and -1 elsewhere"),
    ],
)
def test_a_tree_that_could_not_be_followed_is_refused(changes: dict[str, Any], sentence: str) -> None:
    """Kernels follow children without looking, so a broken tree never comes into being."""
    with pytest.raises(InvalidInput, match=sentence):
        small_tree(**changes)


def test_an_inner_node_after_its_children_is_refused() -> None:
    """Node 2 with children 1 and 2 would be its own child, and nobody would be the root's."""
    with pytest.raises(InvalidInput, match="breadth-first"):
        Tree(
            feature=[-1, -1, 0], bin=[-1, -1, 0], threshold=[np.nan, np.nan, 1.0], missing_left=[False] * 3,
            left=[-1, -1, 1], right=[-1, -1, 2], value=[0.0] * 3, gain=[0.0] * 3, cover=[0.0] * 3, level_set=[-1] * 3,
            left_levels=np.zeros((0, 256)),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        (MAPPER.features[:1], "splits feature 1, but the ensemble has 1 features"),
        (MAPPER.features[::-1], "node 0 splits 'town' by levels where it is numeric, or the other way round"),
        (
            (FeatureBins("age", []), MAPPER.features[1]),
            "node 0 splits after bin 1 at 2.0, which is not that bin's edge",
        ),
        ((FeatureBins("age", [1.0, 3.0]), MAPPER.features[1]), "which is not that bin's edge"),
    ],
)
def test_a_tree_over_other_features_is_refused(features: Any, sentence: str) -> None:
    """The features of the ensemble must be able to answer what the tree asks."""
    with pytest.raises(InvalidInput, match=sentence):
        Ensemble(BinMapper(tuple(features)), "squared", [0.0]).append(small_tree())


def test_wrong_parameters_are_named() -> None:
    """Loss, base scores, kinds and numbers of iterations out of range."""
    model = Ensemble(MAPPER, "squared", [0.0], trees=[small_tree()])
    with pytest.raises(InvalidParameter, match="loss must be one of logistic, squared, softmax, poisson, got 'hinge'"):
        Ensemble(MAPPER, "hinge", [0.0])
    with pytest.raises(InvalidParameter, match="base_scores must be finite, one per output"):
        Ensemble(MAPPER, "squared", [np.nan])
    with pytest.raises(InvalidParameter, match="the squared loss does not go with 2 outputs"):
        Ensemble(MAPPER, "squared", [0.0, 0.0])
    with pytest.raises(InvalidParameter, match="kind must be"):
        model.importances("cover")
    with pytest.raises(InvalidParameter, match="n_iterations must be between 0 and 1, got 2"):
        model.raw_scores(np.zeros((1, 2)), n_iterations=2)
    with pytest.raises(InvalidParameter, match="got -1"):
        model.truncated(-1)


def test_wrong_data_is_named() -> None:
    """Shapes and types that do not fit the model."""
    model = Ensemble(MAPPER, "squared", [0.0], trees=[small_tree()])
    with pytest.raises(InvalidInput, match="the data has 3 columns, but the model was trained on 2"):
        model.raw_scores(np.zeros((4, 3)))
    with pytest.raises(InvalidInput, match="1 dimension"):
        model.raw_scores(np.zeros(2))
    with pytest.raises(InvalidType, match="a matrix of numbers is needed, got dtype <U1"):
        model.raw_scores(np.array([["a", "b"]]))
    with pytest.raises(InvalidInput, match=r"codes must be uint8 \[2 features, rows\], got int64\[2, 3\]"):
        model.raw_scores_binned(np.zeros((2, 3), np.int64))  # type: ignore[arg-type] # the wrong type is the point
    with pytest.raises(InvalidInput, match="scores must be contiguous float32"):
        model.add_binned(np.zeros((2, 3), np.uint8), small_tree(), np.zeros(3))  # type: ignore[arg-type] # the wrong type is the point


def test_whole_numbers_half_floats_and_strides_are_scored_as_numbers() -> None:
    """What numpy calls a matrix of numbers need not be float and contiguous."""
    model = Ensemble(MAPPER, "squared", [0.0], trees=[small_tree()])
    rows = np.array([[0, 1], [1, 0], [2, 0], [3, 1]])
    expected = model.raw_scores(rows.astype(np.float64))
    for matrix in (
        rows,
        rows.astype(np.uint8),
        rows.astype(np.float16),
        np.repeat(rows, 2, axis=1)[:, ::2].astype(np.float32),
    ):
        assert np.array_equal(model.raw_scores(matrix), expected)


def test_predictions_follow_added_trees() -> None:
    """A prediction after append knows the new tree, whatever was prepared before."""
    rng = np.random.default_rng(0)
    mapper = random_mapper(rng)
    matrix = random_matrix(rng, mapper, 40)
    model = Ensemble(mapper, "squared", [0.5])
    assert (model.raw_scores(matrix) == 0.5).all()
    for _ in range(4):
        model.append(random_tree(rng, mapper))
        assert np.array_equal(model.raw_scores(matrix), naive.raw_scores(model, matrix))


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_the_first_iterations_are_the_truncated_model(n_outputs: int) -> None:
    """n_iterations, truncated and the naive sum over the first trees agree; the original keeps all its trees."""
    rng = np.random.default_rng(1)
    mapper = random_mapper(rng)
    model = random_ensemble(rng, mapper, 4, n_outputs)
    matrix = random_matrix(rng, mapper, 30)
    for n in range(5):
        shorter = model.truncated(n)
        assert shorter.trees == model.trees[: n * n_outputs]
        assert (shorter.n_iterations, shorter.classes, shorter.meta) == (n, model.classes, model.meta)
        assert np.array_equal(model.raw_scores(matrix, n_iterations=n), naive.raw_scores(shorter, matrix))
    assert model.n_iterations == 4


def test_importances_sum_over_trees() -> None:
    """Gain and count per feature, by hand over all nodes."""
    rng = np.random.default_rng(2)
    model = random_ensemble(rng, random_mapper(rng), 6)
    gain, count = np.zeros(5), np.zeros(5)
    for tree in model.trees:
        for feature, its_gain in zip(tree.feature, tree.gain, strict=True):
            if feature >= 0:
                gain[feature] += its_gain
                count[feature] += 1
    np.testing.assert_allclose(model.importances("gain"), gain)
    assert model.importances("count").tolist() == count.tolist()


def test_threads_may_predict_at_once() -> None:
    """The first prediction prepares the trees; several threads doing so at once get the same scores."""
    rng = np.random.default_rng(3)
    mapper = random_mapper(rng)
    model = random_ensemble(rng, mapper, 10)
    matrix = random_matrix(rng, mapper, 3000)
    expected = copy.deepcopy(model).raw_scores(matrix)
    results: list[Any] = [None] * 6
    start = threading.Barrier(6)

    def predict(k: int) -> None:
        start.wait()
        results[k] = model.raw_scores(matrix.astype(np.float64) if k % 2 else matrix, n_threads=2)

    threads = [threading.Thread(target=predict, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(result, expected) for result in results)


def test_scores_do_not_depend_on_threads_or_on_neighbours() -> None:
    """One row alone, all rows, one thread, four threads: the same bits."""
    rng = np.random.default_rng(4)
    mapper = random_mapper(rng)
    model = random_ensemble(rng, mapper, 10)
    matrix = random_matrix(rng, mapper, 5000)
    together = model.raw_scores(matrix)
    assert np.array_equal(model.raw_scores(matrix, n_threads=4), together)
    assert np.array_equal(model.raw_scores(matrix[::-1])[::-1], together)
    for row in (0, 1234, 4999):
        assert np.array_equal(model.raw_scores(matrix[row : row + 1])[0], together[row])


def test_equal_trees_are_equal() -> None:
    """Trees compare by content, and NaN thresholds do not stand in the way."""
    assert small_tree() == small_tree()
    assert hash(small_tree()) == hash(small_tree())
    assert small_tree() != small_tree(value=[0.0, 0.0, 3.0, 1.0, 2.5])
    assert small_tree() != "a tree"
