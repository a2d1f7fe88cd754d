"""Histograms and the packed layout against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine import histogram
from hedgerow.engine.histogram import CELLS_PER_WORD, pack
from hedgerow.engine.splitting import marginal


def random_codes(rng, n_features, n_rows, low_cardinality=0.5):
    """Codes with their numbers of value bins; some features are small enough to be bundled."""
    n_bins = np.where(
        rng.random(n_features) < low_cardinality, rng.integers(1, 6, n_features), rng.integers(33, 256, n_features)
    )
    codes = np.stack([rng.integers(0, n + 1, n_rows) for n in n_bins]).astype(np.uint8)
    return codes, n_bins.astype(np.int64)


def feature_histogram(codes, values, rows, n_codes):
    """Definition: one sum per code."""
    return [int(values[rows][codes[rows] == code].sum()) for code in range(n_codes)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.booleans())
def test_every_features_histogram_can_be_read_off(seed, n_features, bundle):
    """For any number of columns per word, bundled or not, cells hold the sums of the definition."""
    rng = np.random.default_rng(seed)
    n_rows = 257
    codes, n_bins = random_codes(rng, n_features, n_rows)
    packed = pack(codes, n_bins, np.zeros(n_features, bool), bundle=bundle)
    where = packed.layout
    values = rng.integers(-(2**40), 2**40, n_rows)
    rows = rng.permutation(n_rows)[:100].astype(np.uint32)
    cells = np.full((2, where.n_cells), 7, np.int64)
    histogram.node_histograms(
        packed.records, values, rows, np.array([[0, 10], [5, 60]]), np.array([[5, 60], [10, 100]]), np.array([1]),
        np.array([0]), cells,
        where.first_cell, where.n_codes, where.columns_in_word,
    )  # fmt: skip
    root = np.full(where.n_cells, 7, np.int64)
    histogram.root_histogram(
        packed.words, values, np.array([0, 200]), np.array([150, n_rows]), root,
        where.first_cell, where.n_codes, where.columns_in_word,
    )  # fmt: skip
    in_ranges = np.r_[0:150, 200:n_rows]
    out = np.empty(256, np.int64)
    for feature in range(n_features):
        column = where.column_of_feature[feature]
        first, n_codes = where.first_cell[column], int(n_bins[feature]) + 1
        for source, chosen in ((cells[0], rows[10:]), (root, in_ranges)):
            marginal(source[first : first + 256], where.bin_of_code[feature], where.n_codes[column], n_codes, out)
            assert out[:n_codes].tolist() == feature_histogram(codes[feature], values, chosen, n_codes)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_bundles_lose_nothing(seed):
    """A member's code can be read back from the bundle's code for every row."""
    rng = np.random.default_rng(seed)
    one_hot = np.eye(40, dtype=np.uint8)[rng.integers(0, 40, 3000)].T
    codes, n_bins = random_codes(rng, 6, 3000)
    codes, n_bins = np.vstack([codes, one_hot]), np.concatenate([n_bins, np.ones(40, np.int64) * 2])
    packed = pack(codes, n_bins, np.zeros(46, bool))
    assert packed.columns.shape[0] < 12  # forty one-hot columns have forty combinations, so they fit one byte
    for feature in range(46):
        column = packed.columns[packed.layout.column_of_feature[feature]]
        np.testing.assert_array_equal(packed.layout.bin_of_code[feature][column], codes[feature])


def test_bundle_that_fits_the_sample_but_not_all_rows_is_not_made():
    """Two columns whose combinations overflow a byte only after the sampled rows stay apart."""
    n_rows = histogram.SAMPLE_ROWS + 2000
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 31, (2, n_rows)).astype(np.uint8)
    codes[:, : histogram.SAMPLE_ROWS] = 0
    packed = pack(codes, np.array([31, 31]), np.zeros(2, bool))
    assert packed.columns.shape[0] == 2


@pytest.mark.parametrize("n_columns", [1, 3, 4, 7, 8, 9, 15, 28, 54])
def test_words_hold_their_columns(n_columns):
    """Each byte of a word is one column; no word has more than one column more than another."""
    rng = np.random.default_rng(n_columns)
    codes = rng.integers(0, 200, (n_columns, 5000)).astype(np.uint8)
    packed = pack(codes, np.full(n_columns, 199), np.zeros(n_columns, bool), n_threads=2)
    in_word = packed.layout.columns_in_word
    assert in_word.sum() == n_columns
    assert in_word.max() - in_word.min() <= 1
    column = 0
    for word in range(len(in_word)):
        for position in range(in_word[word]):
            byte = (packed.words[word] >> np.uint64(8 * position)).astype(np.uint8)
            np.testing.assert_array_equal(byte, codes[column])
            np.testing.assert_array_equal(packed.records[:, word], packed.words[word])
            assert packed.layout.first_cell[column] == word * CELLS_PER_WORD + 256 * position
            column += 1


def test_cells_are_added_subtracted_and_cleared_only_where_used():
    """Cells beyond a column's codes keep whatever lay there."""
    first, n_codes = np.array([0, 256]), np.array([3, 200])
    a, b = np.arange(2048), np.full(2048, 5)
    histogram.add_cells(a, b, first, n_codes)
    assert a[2] == 7
    assert a[3] == 3
    assert a[455] == 460
    assert a[456] == 456
    histogram.subtract_cells(a, b, first, n_codes)
    np.testing.assert_array_equal(a, np.arange(2048))
    histogram.clear_cells(a, first, n_codes)
    assert a[:3].tolist() == [0, 0, 0]
    assert a[3] == 3
