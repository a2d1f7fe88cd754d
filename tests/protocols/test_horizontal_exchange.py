"""Exchanged histograms: every feature's own sums, whatever layout they were summed in, and back again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.histogram import pack
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.protocols.horizontal.secure_sum.levels import ExchangedCells
from hedgerow.testing import naive


def make_features(rng, n_features):
    """Numeric and categorical features, many of them small enough to be bundled."""
    features = []
    for number in range(n_features):
        n_bins = int(rng.choice([1, 2, 3, 5, 31, 32, 255]))
        if number % 3 == 2:
            features.append(FeatureBins(f"c{number}", None, tuple(f"level {k:03}" for k in range(n_bins))))
        else:
            features.append(FeatureBins(f"n{number}", np.arange(n_bins - 1, dtype=np.float64)))
    return features


def make_rows(rng, features, n_rows, *, bundle):
    """Rows with random codes, at the children of a first split, and their gradients as pairs."""
    codes = np.array([rng.integers(0, feature.n_codes, n_rows) for feature in features], np.uint8)
    labels = rng.integers(0, 2, n_rows).astype(float)
    loss, bases = Loss("logistic"), np.array([0.25])
    quantiser = Quantiser.for_job(loss, float(n_rows), n_rows=n_rows)
    n_bins = np.array([feature.n_value_bins for feature in features], np.int64)
    packed = pack(codes, n_bins, np.array([f.is_categorical for f in features]), bundle=bundle)
    scores = rng.normal(size=(1, n_rows)).astype(np.float32)
    rows = Rows(packed, labels, None, loss, bases, quantiser, scores=scores)
    rows.gradients()
    rows.start_tree()
    return codes, rows, naive.quantised(loss, quantiser, scores, labels, bases, None)[0]


def naive_vector(codes, pairs, rows, features):
    """One node's exchanged vector from its definition: feature after feature, bins, then missing."""
    cells = []
    for number, feature in enumerate(features):
        sums = naive.histogram(codes, pairs, rows, number, feature.n_codes)
        cells += [(g << 32) + h for g, h, _ in sums]
    return np.array(cells, np.int64)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n_features=st.integers(1, 20), n_rows=st.integers(1, 60), bundle=st.booleans())
def test_gathered_sums_are_the_features_own(seed, n_features, n_rows, bundle):
    """A gathered vector holds every feature's histogram in turn, bundled or not, for each of several nodes."""
    rng = np.random.default_rng(seed)
    features = make_features(rng, n_features)
    codes, rows, pairs = make_rows(rng, features, n_rows, bundle=bundle)
    goes_left = np.zeros((1, 256), np.uint8)
    goes_left[0, ::2] = 1
    rows.descend(np.zeros(1, np.int64), goes_left)
    left = np.flatnonzero(codes[0] % 2 == 0)
    right = np.flatnonzero(codes[0] % 2 == 1)
    cells = np.empty((2, rows.layout.n_cells), np.int64)
    rows.histograms(np.array([1, 0]), np.array([0, 1]), cells)
    exchanged = ExchangedCells(BinMapper(tuple(features)))
    out = np.full((3, exchanged.n_cells), 99, np.uint64)
    exchanged.gather(cells, 2, rows.layout, out)
    np.testing.assert_array_equal(out[0].view(np.int64), naive_vector(codes, pairs, right, features))
    np.testing.assert_array_equal(out[1].view(np.int64), naive_vector(codes, pairs, left, features))
    assert (out[2] == 99).all()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n_features=st.integers(1, 20))
def test_scattered_vectors_are_gathered_again(seed, n_features):
    """Scattering into slots and gathering in the plain layout gives the vectors back; other slots are left alone."""
    rng = np.random.default_rng(seed)
    exchanged = ExchangedCells(BinMapper(tuple(make_features(rng, n_features))))
    sums = rng.integers(0, 2**64, (2, exchanged.n_cells), dtype=np.uint64)
    cells = np.full((3, exchanged.layout.n_cells), -7, np.int64)
    exchanged.scatter(sums, np.array([2, 0]), cells)
    assert (cells[1] == -7).all()
    out = np.empty((2, exchanged.n_cells), np.uint64)
    exchanged.gather(np.ascontiguousarray(cells[[2, 0]]), 2, exchanged.layout, out)
    np.testing.assert_array_equal(out, sums)


def test_sums_over_owners_do_not_depend_on_their_layouts():
    """Two owners whose rows are bundled differently add up to the vector of all rows, which nobody bundled alike."""
    rng = np.random.default_rng(5)
    features = [FeatureBins(f"n{k}", np.arange(4, dtype=np.float64)) for k in range(12)]
    exchanged = ExchangedCells(BinMapper(tuple(features)))
    codes, rows, _ = make_rows(rng, features, 400, bundle=True)
    total = np.zeros((1, exchanged.n_cells), np.uint64)
    layouts = []
    for chosen in (np.arange(10), np.arange(10, 400)):
        n_bins = np.array([feature.n_value_bins for feature in features], np.int64)
        packed = pack(np.ascontiguousarray(codes[:, chosen]), n_bins, np.zeros(len(features), np.bool_))
        part = Rows(packed, rows._labels[chosen].astype(float), None, rows.loss, np.array([0.25]), rows.quantiser)
        part.scores[:] = rows.scores[:, chosen]
        part.gradients()
        part.start_tree()
        cells = np.empty((1, part.layout.n_cells), np.int64)
        part.histograms(np.zeros(1, np.int64), np.zeros(1, np.int64), cells)
        out = np.empty_like(total)
        exchanged.gather(cells, 1, part.layout, out)
        total += out
        layouts.append(part.layout)
    cells = np.empty((1, rows.layout.n_cells), np.int64)
    rows.histograms(np.zeros(1, np.int64), np.zeros(1, np.int64), cells)
    out = np.empty_like(total)
    exchanged.gather(cells, 1, rows.layout, out)
    assert layouts[0].n_columns < layouts[1].n_columns < len(features)
    np.testing.assert_array_equal(total, out)


@pytest.mark.parametrize("n_features", [1, 8, 9])
def test_places_follow_from_the_bins_alone(n_features):
    """A vector has one place per bin and one for missing values, feature after feature."""
    features = make_features(np.random.default_rng(n_features), n_features)
    exchanged = ExchangedCells(BinMapper(tuple(features)))
    assert exchanged.first.tolist() == np.cumsum([0, *(f.n_value_bins + 1 for f in features)]).tolist()
    assert exchanged.n_cells == sum(f.n_codes for f in features)
    assert exchanged.layout.owns_column.all()
