"""The kernels that run an ensemble: every way through a tree gives what walking one row at a time gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine import tree_layout
from hedgerow.engine.binning import FeatureBins, code_values, coding_tables
from hedgerow.engine.ensemble import Ensemble, add_scores
from hedgerow.engine.table import Column, Table
from hedgerow.testing import naive
from twins.random_models import random_ensemble, random_mapper, random_matrix

SHAPES: list[dict[str, Any]] = [
    {"depth": 0},
    {"depth": 1},
    {"depth": 6},
    {"depth": 7},  # as many choices as are made at most
    {"depth": 8},  # choices on top, one level below
    {"depth": 10, "split_probability": 0.85},
    {"depth": 60, "split_probability": 0.52},  # thin and deep
]


def coded(model: Ensemble, matrix: np.ndarray) -> np.ndarray:
    """Codes by numpy's own search, independent of the coding kernels."""
    codes = np.empty(matrix.T.shape, np.uint8)
    for j, bins in enumerate(model.features):
        x = matrix[:, j].astype(np.float64)
        if bins.edges is None:
            known = np.isin(x, np.arange(bins.n_value_bins))
            codes[j] = np.where(known, np.nan_to_num(x), bins.missing_code)
        else:
            codes[j] = np.where(np.isnan(x), bins.missing_code, np.searchsorted(bins.edges, x, side="right"))
    return codes


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("n_categorical", [0, 2])
def test_every_shape_of_tree_is_scored_as_row_by_row(shape: dict[str, Any], n_categorical: int) -> None:
    """Stumps, full, ragged, thin and deep trees, with and without sets of levels: the naive scores, to the last bit."""
    rng = np.random.default_rng(3)
    mapper = random_mapper(rng, 4, n_categorical)
    model = random_ensemble(rng, mapper, n_trees=4, **shape)
    matrix = random_matrix(rng, mapper, 600)
    expected = naive.raw_scores(model, matrix)
    assert np.array_equal(model.raw_scores(matrix), expected)
    assert np.array_equal(model.raw_scores_binned(coded(model, matrix)), expected)
    assert np.array_equal(model.apply(matrix), naive.leaves(model, matrix))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    depth=st.integers(0, 9),
    split_probability=st.sampled_from([0.6, 0.9, 1.0]),
    n_outputs=st.sampled_from([1, 3]),
    n_bins=st.sampled_from([1, 2, 3, 8, 255]),
    n_levels=st.sampled_from([1, 5, 255]),
    n_rows=st.sampled_from([0, 1, 15, 16, 255, 257, 300]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_scores_equal_the_naive_ones(
    seed: int, depth: int, split_probability: float, n_outputs: int, n_bins: int, n_levels: int, n_rows: int, dtype: Any
) -> None:
    """Any random model on any random rows: raw, coded and one-row-at-a-time scores are equal to the last bit."""
    rng = np.random.default_rng(seed)
    mapper = random_mapper(rng, 3, 1, n_bins, n_levels)
    model = random_ensemble(rng, mapper, 3, n_outputs, depth=depth, split_probability=split_probability)
    matrix = random_matrix(rng, mapper, n_rows, dtype)
    expected = naive.raw_scores(model, matrix)
    assert np.array_equal(model.raw_scores(matrix), expected)
    assert np.array_equal(model.raw_scores(np.asfortranarray(matrix), n_threads=2), expected)
    assert np.array_equal(model.raw_scores_binned(coded(model, matrix), n_threads=2), expected)
    assert np.array_equal(model.apply(matrix), naive.leaves(model, matrix))


def test_walking_and_choosing_agree() -> None:
    """A layout whose choices are taken away walks every row, and gives the same scores."""
    rng = np.random.default_rng(4)
    mapper = random_mapper(rng)
    model = random_ensemble(rng, mapper, n_trees=6, depth=6, split_probability=0.9)
    codes = coded(model, random_matrix(rng, mapper, 500))
    layout = tree_layout.lay_out(model.trees, model.features)
    assert (np.diff(layout.choice_start) > 0).any()
    walking = layout._replace(choice_start=np.zeros_like(layout.choice_start))
    chosen, walked = np.zeros((1, 500), np.float32), np.zeros((1, 500), np.float32)
    add_scores(layout, codes, 0, 500, 6, 1, chosen)
    add_scores(walking, codes, 0, 500, 6, 1, walked)
    assert np.array_equal(chosen, walked)


def test_trees_with_too_many_sets_of_levels_are_walked() -> None:
    """Where nearly every node has a set of levels, looking all of them up would cost more than walking."""
    rng = np.random.default_rng(5)
    mapper = random_mapper(rng, n_numeric=0, n_categorical=3, n_levels=200)
    model = random_ensemble(rng, mapper, n_trees=3, depth=7)
    assert not np.diff(tree_layout.lay_out(model.trees, model.features).choice_start).any()
    matrix = random_matrix(rng, mapper, 300)
    assert np.array_equal(model.raw_scores(matrix), naive.raw_scores(model, matrix))


def test_float32_and_float64_values_are_coded_by_the_exact_edge() -> None:
    """An edge between two float32 numbers separates them, and float64 values on either side of it, in both dtypes."""
    edge = 1.0 + 2.0**-30
    features = (FeatureBins("x0", [edge]),)
    for dtype, values, expected in [
        (np.float32, [1.0, np.nextafter(np.float32(1), np.float32(2)), np.nan, np.inf], [0, 1, 2, 1]),
        (np.float64, [edge, np.nextafter(edge, 0), np.nan, -np.inf], [1, 0, 2, 0]),
    ]:
        codes = np.empty((1, 4), np.uint8)
        flat = np.array(values, dtype)
        flat.flags.writeable = False
        code_values(coding_tables(features, np.zeros(1, np.int64), flat.dtype), flat, 0, 1, 1, codes, 0, 4)
        assert codes[0].tolist() == expected


def test_tables_are_scored_as_the_matrix_they_hold() -> None:
    """A table of separate columns, one of them categorical, gives the scores of its matrix."""
    rng = np.random.default_rng(6)
    mapper = random_mapper(rng, 2, 1)
    model = random_ensemble(rng, mapper)
    matrix = random_matrix(rng, mapper, 300)
    levels = matrix[:, 2]
    known = np.isin(levels, np.arange(mapper.features[2].n_value_bins))
    columns = (
        Column("x0", matrix[:, 0].copy(), None),
        Column("x1", matrix[:, 1].copy(), None),
        Column("c0", np.where(known, np.nan_to_num(levels), -1).astype(np.int32), mapper.features[2].levels),
    )
    table = Table(columns, 300, ("x0", "x1", "c0"), has_names=True)
    assert np.array_equal(model.raw_scores(table, n_threads=2), naive.raw_scores(model, matrix))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n_rows=st.integers(0, 40000))
def test_one_tree_is_added_in_place(seed: int, n_rows: int) -> None:
    """Adding trees one by one to float32 scores gives the ensemble's own sums, for any number of threads."""
    rng = np.random.default_rng(seed)
    mapper = random_mapper(rng)
    model = random_ensemble(rng, mapper, n_trees=2, depth=4, split_probability=0.8)
    codes = coded(model, random_matrix(rng, mapper, n_rows))
    scores = np.zeros(n_rows, np.float32)
    for tree in model.trees:
        model.add_binned(codes, tree, scores, n_threads=2)
    assert np.array_equal(model.base_scores[0] + scores, model.raw_scores_binned(codes)[:, 0])
