"""Edges and codes: equal to the slow twin, and to themselves under any order of rows and any number of threads."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hedgerow.engine.binning import BinMapper, FeatureBins, edges_between, whole_weights
from hedgerow.engine.table import Column, Table, read_table
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.testing import naive

FLOAT32_MAX = float(np.finfo(np.float32).max)
FLOAT64_MAX = float(np.finfo(np.float64).max)

# Few different values make heavy ties, the special ones meet every corner, the free ones everything else.
special = st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 2.0**24 + 1, 2.0**53, FLOAT64_MAX, 5e-324])
values_64 = st.lists(st.one_of(special, st.integers(-20, 20).map(float), st.floats()), min_size=1, max_size=80)
values_32 = st.lists(
    st.one_of(special.map(lambda x: float(np.clip(x, -FLOAT32_MAX, FLOAT32_MAX)) if math.isfinite(x) else x),
              st.integers(-20, 20).map(float), st.floats(width=32)), min_size=1, max_size=80
)  # fmt: skip
columns = st.one_of(values_64.map(lambda v: np.array(v, np.float64)), values_32.map(lambda v: np.array(v, np.float32)))
relaxed = settings(max_examples=150, deadline=None)


def one_column(values) -> Table:
    """A table of one numeric column."""
    values = np.asarray(values)
    return Table((Column("x", values),), len(values), ("x",), has_names=True)


def edges_of(values, max_bins=256, weights=None, n_threads=1) -> np.ndarray:
    """The edges of one numeric column."""
    return BinMapper.fit(one_column(values), max_bins, weights, n_threads).features[0].edges


def skewed(rng, n_rows: int, n_columns: int, dtype=np.float32) -> np.ndarray:
    """Continuous, rounded, heavy-tailed, zero-inflated and incomplete columns, in turn."""
    X = rng.standard_normal((n_rows, n_columns))
    X[:, 1::5] = np.round(X[:, 1::5] * 100)
    X[:, 2::5] = np.exp(3 * X[:, 2::5])
    X[:, 3::5] *= rng.random(X[:, 3::5].shape) < 0.2
    X[:, 4::5][rng.random(X[:, 4::5].shape) < 0.2] = np.nan
    return X.astype(dtype)


class TestEdges:
    """Where a column is cut."""

    @relaxed
    @given(columns, st.integers(2, 40))
    @example(np.array([math.nan]), 2)
    def test_equal_the_slow_twin(self, values, max_bins):
        """Edges are exactly those of the plain Python walk."""
        assert edges_of(values, max_bins).tolist() == naive.edges(values, max_bins - 1)

    @relaxed
    @given(columns, st.integers(2, 40), st.data())
    def test_weighted_equal_the_slow_twin(self, values, max_bins, data):
        """With weights too, zeros among them."""
        weight = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 1e-12]), st.floats(0, 1e6))
        weights = np.array(data.draw(st.lists(weight, min_size=len(values), max_size=len(values))))
        weights[0] = 1.0
        assert edges_of(values, max_bins, weights).tolist() == naive.edges(values, max_bins - 1, weights)

    @relaxed
    @given(columns, st.integers(2, 40), st.integers(0, 2**32 - 1))
    def test_do_not_depend_on_the_order_of_rows(self, values, max_bins, seed):
        """Permuted rows, with their weights, give identical edges."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(values))
        weights = rng.random(len(values)) * rng.integers(0, 2, len(values)) + 0.001
        assert edges_of(values[order], max_bins).tobytes() == edges_of(values, max_bins).tobytes()
        permuted = edges_of(values[order], max_bins, weights[order])
        assert permuted.tobytes() == edges_of(values, max_bins, weights).tobytes()

    @relaxed
    @given(columns, st.integers(2, 40))
    def test_separate_what_they_can(self, values, max_bins):
        """Finite, strictly increasing, no bin empty, and every distinct value alone if they all fit."""
        edges = edges_of(values, max_bins)
        assert np.isfinite(edges).all()
        assert (np.diff(edges) > 0).all()
        assert len(edges) <= max_bins - 2
        present = values[~np.isnan(values)].astype(np.float64)
        distinct = np.unique(np.clip(present, -FLOAT64_MAX, FLOAT64_MAX))
        occupied = {naive.code(value, edges) for value in present}
        if len(distinct):
            assert occupied == set(range(len(edges) + 1))
            n_values = len(np.unique(present))
            assert len(edges) + 1 >= (
                len(distinct) if n_values < max_bins else max_bins - 1 - (n_values - len(distinct))
            )

    def test_same_for_any_number_of_threads_and_any_memory_layout(self):
        """C order, Fortran order, a strided slice and 1 to 5 threads: one result."""
        X = skewed(np.random.default_rng(1), 20_000, 11)
        reference = BinMapper.fit(read_table(X))
        codes = reference.transform(read_table(X))
        wide = np.zeros((40_000, 23), np.float32)
        wide[::2, 1::2] = X
        for variant in (X, np.asfortranarray(X), wide[::2, 1::2], X[::-1][::-1]):
            for n_threads in (1, 2, 5):
                mapper = BinMapper.fit(read_table(variant), n_threads=n_threads)
                assert mapper == reference
                assert mapper.transform(read_table(variant), n_threads=n_threads).tobytes() == codes.tobytes()

    def test_constant_weights_are_no_weights(self):
        """A weight of 3 for every row changes nothing, nor does doubling all weights."""
        rng = np.random.default_rng(2)
        table = read_table(skewed(rng, 3000, 5))
        assert BinMapper.fit(table, 64, np.full(3000, 3.0)) == BinMapper.fit(table, 64)
        weights = rng.random(3000)
        assert BinMapper.fit(table, 64, 2 * weights) == BinMapper.fit(table, 64, weights)

    def test_a_whole_weight_stands_for_repeated_rows(self):
        """Weights 1, 2, 4 give the edges of rows written once, twice, four times."""
        rng = np.random.default_rng(3)
        values = np.round(rng.standard_normal(4000) * 300)
        times = 2 ** rng.integers(0, 3, 4000)
        assert edges_of(values, 100, times).tolist() == edges_of(np.repeat(values, times), 100).tolist()

    def test_rows_of_weight_zero_take_no_part(self):
        """As if they were not there: their values create no edge."""
        values = np.array([1.0, 2.0, 3.0, 50.0])
        assert edges_of(values, weights=np.array([1.0, 2.0, 0.0, 0.0])).tolist() == [1.5]

    def test_constant_and_empty_columns_have_none(self):
        """One value, one row, no value at all: no edge, and missing is code 1."""
        for values in ([3.0, 3.0, math.nan], [7.0], [math.nan, math.nan], [0.0, -0.0], [math.inf]):
            feature = BinMapper.fit(one_column(values)).features[0]
            assert (len(feature.edges), feature.n_value_bins, feature.missing_code, feature.n_codes) == (0, 1, 1, 2)

    def test_two_bins_are_one_of_values_and_one_of_missing(self):
        """max_bins=2 leaves a single bin for all values."""
        table = one_column([1.0, 2.0, math.nan])
        assert BinMapper.fit(table, 2).transform(table).tolist() == [[0, 0, 1]]

    def test_a_heavy_value_gets_a_bin_of_its_own(self):
        """Half of all rows are zero; zero shares its bin with nobody, and the budget is used up."""
        rng = np.random.default_rng(4)
        values = np.where(rng.random(20_000) < 0.5, 0.0, rng.standard_normal(20_000)).astype(np.float32)
        edges = edges_of(values, 64)
        assert len(edges) == 62
        zero_bin = naive.code(0.0, edges)
        assert set(values[np.searchsorted(edges, values, side="right") == zero_bin]) == {0.0}

    def test_no_bin_holds_much_more_than_its_share(self):
        """At most twice an even share of the rows, unless it holds a single value."""
        values = np.exp(2 * np.random.default_rng(5).standard_normal(50_000)).round(2)
        held = np.searchsorted(edges_of(values, 101), values, side="right")
        several = [b for b in range(100) if len(np.unique(values[held == b])) > 1]
        assert np.bincount(held)[several].max() <= 2 * len(values) / 100

    def test_midpoints_where_float32_can_tell_the_values_apart(self):
        """A midpoint that float32 holds exactly, else the upper value; never the lower one."""
        step = float(np.spacing(np.float32(1.0)))
        lower = np.array([1.0, 0.1, 1.0, 2.0**24, 2.0**53, 1.0])
        upper = np.array([2.0, 0.4, 1.0 + step, 2.0**24 + 1, 2.0**53 + 2, 1.0 + step / 1024])
        edges = edges_between(lower, upper)
        assert edges.tolist() == [1.5, 0.25, 1.0 + step, 2.0**24 + 1, 2.0**53 + 2, 1.0 + step / 1024]

    def test_float32_data_agree_with_float64_edges(self):
        """Edges from float64 data put the same data, rounded to float32, into the same bins where these differ."""
        values = np.unique(np.random.default_rng(6).random(200))
        mapper = BinMapper.fit(one_column(values))
        narrow = mapper.transform(one_column(values.astype(np.float32)))
        assert narrow.tolist() == mapper.transform(one_column(values)).tolist() == [list(range(200))]

    def test_whole_numbers_beyond_float32_stay_apart(self):
        """2**24 and 2**24 + 1 are one number in float32, yet two bins here; beyond 2**53 neighbours merge in order."""
        table = read_table(np.array([[2**24], [2**24 + 1], [2**24 + 2]]))
        assert BinMapper.fit(table).transform(table).tolist() == [[0, 1, 2]]
        table = read_table(np.array([[2**60], [2**60 + 1], [2**60 + 512]]))
        assert BinMapper.fit(table).transform(table).tolist() == [[0, 0, 1]]

    def test_whole_weights_keep_small_ones(self):
        """Only a true zero becomes zero, and sums stay exact in float64."""
        whole = whole_weights(np.array([0.0, 1e-300, 1.0, 3.0]))
        assert whole.tolist()[:2] == [0, 1]
        assert int(whole.sum()) < 2**53
        assert whole_weights(np.ones(3)) is None


class TestCodes:
    """Which bin a value falls into."""

    @relaxed
    @given(columns, st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30, unique=True))
    def test_equal_counting(self, values, edges):
        """A code is the number of edges <= x, and one more than all of them for NaN, for float32 as for float64."""
        edges = np.unique(np.array(edges) + 0.0)
        codes = BinMapper((FeatureBins("x", edges),)).transform(one_column(values))
        assert codes.tolist() == [[naive.code(float(value), edges) for value in values]]

    @pytest.mark.parametrize("n_edges", [0, 1, 2, 3, 15, 16, 127, 128, 253, 254])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_any_number_of_edges(self, n_edges, dtype):
        """On, just below and far beyond every edge, infinities and NaN included."""
        edges = np.sort(np.random.default_rng(n_edges).standard_normal(n_edges).astype(np.float32)).astype(np.float64)
        near = np.concatenate(
            [edges, np.nextafter(edges.astype(dtype), dtype(-9)), [-np.inf, np.inf, np.nan, 0.0, -0.0]]
        )
        values = np.tile(near.astype(dtype), 3)
        codes = BinMapper((FeatureBins("x", edges),)).transform(one_column(values))[0]
        expected = np.where(np.isnan(values), n_edges + 1, np.searchsorted(edges, values, side="right"))
        assert codes.tolist() == expected.tolist()

    @pytest.mark.parametrize("n_rows", [1, 255, 256, 257, 70_000])
    def test_any_number_of_rows(self, n_rows):
        """Blocks of the search and ranges of the threads leave no row out."""
        X = skewed(np.random.default_rng(n_rows), n_rows, 6)
        mapper = BinMapper.fit(read_table(X), n_threads=2)
        codes = mapper.transform(read_table(X), n_threads=3)
        assert codes.flags.c_contiguous
        assert codes.dtype == np.uint8
        for column, feature, row in zip(X.T, mapper.features, codes, strict=True):
            counted = np.searchsorted(feature.edges, column, side="right")
            assert (row == np.where(np.isnan(column), feature.missing_code, counted)).all()

    def test_infinities_are_the_outermost_bins(self):
        """They get bins of their own when present, and join the extremes when not."""
        table = one_column([-np.inf, 1.0, 2.0, np.inf])
        assert BinMapper.fit(table).transform(table).tolist() == [[0, 1, 2, 3]]
        assert BinMapper.fit(one_column([1.0, 2.0])).transform(table).tolist() == [[0, 0, 1, 1]]

    def test_levels_keep_their_place_and_missing_comes_last(self):
        """Codes of a categorical column are its level codes; -1 becomes the missing code."""
        table = Table((Column("x", np.array([2, -1, 0], np.int32), ("a", "b", "c")),), 3, ("x",), has_names=True)
        mapper = BinMapper.fit(table, max_bins=2)  # max_bins is about numbers
        assert mapper.transform(table).tolist() == [[2, 3, 0]]
        assert mapper.features[0].n_codes == 4

    def test_255_levels_fit(self):
        """The largest categorical column uses every code of a byte."""
        levels = tuple(range(255))
        column = Column("x", np.arange(-1, 255, dtype=np.int32), levels)
        table = Table((column,), 256, ("x",), has_names=True)
        assert BinMapper.fit(table).transform(table)[0].tolist() == [255, *range(255)]

    def test_a_table_of_other_levels_or_width_is_refused(self):
        """Codes of other levels would be nonsense, so they are not made."""
        table = Table((Column("x", np.zeros(1, np.int32), ("a",)),), 1, ("x",), has_names=True)
        mapper = BinMapper((FeatureBins("x", None, ("a", "b")),))
        with pytest.raises(InvalidInput, match="column 'x' does not have the levels"):
            mapper.transform(table)
        with pytest.raises(InvalidInput, match="1 columns, but the bins are for 2"):
            BinMapper((FeatureBins("x0", [1.0]), FeatureBins("x1", [2.0]))).transform(table)


class TestDescriptions:
    """Bins written down, given from outside, and refused."""

    @relaxed
    @given(columns)
    def test_survive_json(self, values):
        """to_dict, JSON text and from_dict give the same bins back, exactly."""
        feature = BinMapper.fit(one_column(values)).features[0]
        text = json.dumps(feature.to_dict(), allow_nan=False)
        assert FeatureBins.from_dict(json.loads(text)) == feature

    def test_levels_survive_json(self):
        """Text, whole numbers, fractions and truth values are read back as they were."""
        levels = {"t": ("a", "b"), "i": (1, 2), "f": (0.5, 1), "b": (False, True), "none": ()}
        by_levels = [FeatureBins(name, None, these) for name, these in levels.items()]
        mapper = BinMapper((FeatureBins("n", [0.1]), *by_levels))
        written = json.dumps([feature.to_dict() for feature in mapper.features])
        again = BinMapper(tuple(FeatureBins.from_dict(feature) for feature in json.loads(written)))
        assert again == mapper
        assert [feature.name for feature in again.features] == ["n", "t", "i", "f", "b", "none"]
        assert hash(again) == hash(mapper)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: FeatureBins("f", [2.0, 1.0]), "edges of feature 'f' must be finite and strictly increasing"),
            (lambda: FeatureBins("f", [1.0, 1.0]), "strictly increasing"),
            (lambda: FeatureBins("f", [math.nan]), "finite"),
            (lambda: FeatureBins("f", [math.inf]), "finite"),
            (lambda: FeatureBins("f", ["a"]), "must be a list of numbers"),
            (lambda: FeatureBins("f", range(255)), "255 edges, but at most 254"),
            (lambda: FeatureBins("f", None, tuple(range(256))), "256 levels, but at most 255"),
            (lambda: FeatureBins("f", None, ("a", "a")), "without repetition"),
            (lambda: FeatureBins("f", None, ("a", 1)), "all text or all numbers"),
            (lambda: FeatureBins("f"), "either edges or levels"),
            (lambda: FeatureBins("f", [1.0], ("a",)), "either edges or levels"),
            (lambda: FeatureBins.from_dict({"name": "f", "edges": [], "colour": 1}), "colour"),
            (lambda: FeatureBins.from_dict({"name": "f", "levels": "abc"}), "feature 'f' must be a list"),
            (lambda: FeatureBins.from_dict({"name": "f", "edges": ["1"]}), "must be a list of numbers"),
            (lambda: FeatureBins.from_dict({"name": 1, "edges": []}), "by its name and either edges or levels"),
            (lambda: FeatureBins.from_dict([]), "by its name and either edges or levels"),
            (lambda: edges_of([1.0], max_bins=1), "max_bins must be a whole number between 2 and 256, got 1"),
            (lambda: edges_of([1.0], max_bins=257), "got 257"),
            (lambda: edges_of([1.0], max_bins=2.5), "got 2.5"),
            (lambda: edges_of([1.0], weights=[1.0, 2.0]), "one entry per row"),
            (lambda: edges_of([1.0], weights=[-1.0]), "not negative"),
            (lambda: edges_of([1.0], weights=[math.nan]), "finite"),
            (lambda: edges_of([1.0], weights=[0.0]), "zero for every row"),
        ],
    )
    def test_wrong_ones_are_refused_in_words(self, make, message):
        """The error names the feature or parameter and what is wrong with it."""
        with pytest.raises((InvalidInput, InvalidParameter), match=message):
            make()
