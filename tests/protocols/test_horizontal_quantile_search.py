"""Edges found from counts alone: as even as ties allow, the same for any division of the rows, and in few rounds."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.table import Column, read_table
from hedgerow.errors import InvalidInput
from hedgerow.protocols.horizontal.secure_sum.quantile_search import (
    MAX_ROUNDS,
    TOLERANCE,
    QuantileSearch,
    counts_below,
    sorted_values,
)
from hedgerow.protocols.number_line import kind_of

FLOAT32_MAX = float(np.finfo(np.float32).max)
FLOAT64_MAX = float(np.finfo(np.float64).max)

special = st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 2.0**24 + 1, 2.0**53, FLOAT64_MAX, 5e-324])
values_64 = st.lists(st.one_of(special, st.integers(-20, 20).map(float), st.floats()), min_size=1, max_size=80)
values_32 = st.lists(st.one_of(st.integers(-20, 20).map(float), st.floats(width=32)), min_size=1, max_size=80)
whole = st.lists(
    st.one_of(st.integers(-20, 20), st.integers(-(2**60), 2**60)).map(float), min_size=1, max_size=80
)  # fmt: skip
columns = st.one_of(
    st.tuples(st.just("float64"), values_64.map(lambda v: np.array(v, np.float64))),
    st.tuples(st.just("float32"), values_32.map(lambda v: np.array(v, np.float32))),
    st.tuples(st.just("integer"), whole.map(lambda v: np.array(v, np.float64))),
)
relaxed = settings(max_examples=120, deadline=None)


class SortedColumns:
    """An owner's columns, ready to be counted in."""

    def __init__(self, columns) -> None:
        self._ordered = [sorted_values(Column(f"x{j}", values)) for j, values in enumerate(columns)]
        self.n_present = np.array([len(values) for values in self._ordered], np.int64)

    def counts_below(self, probes, offsets):
        """Rows below each probe."""
        return counts_below(self._ordered, probes, offsets)


def searched(owners, kinds, n_bins, **options) -> QuantileSearch:
    """A search that has come to its end; `owners` is a list of lists of columns."""
    ordered = [SortedColumns(columns) for columns in owners]
    search = QuantileSearch(kinds, sum(owner.n_present for owner in ordered), n_bins, **options)
    while (asked := search.next_probes()) is not None:
        search.update(sum(owner.counts_below(*asked) for owner in ordered))
    assert search.rounds <= MAX_ROUNDS
    return search


def of_one(values, n_bins, kind=None, **options) -> tuple[QuantileSearch, np.ndarray]:
    """Search and edges of a single column with a single owner."""
    values = np.asarray(values)
    search = searched([[values]], [kind or values.dtype.name], n_bins, **options)
    return search, search.edges()[0]


def clipped(values) -> np.ndarray:
    """The present values in order, with infinities as the largest finite number of their type."""
    present = values[~np.isnan(values)]
    return np.sort(np.clip(present, np.finfo(values.dtype).min, np.finfo(values.dtype).max).astype(np.float64))


def check_valid(edges, n_bins) -> None:
    """What any list of edges must be."""
    assert edges.dtype == np.float64
    assert len(edges) <= n_bins - 1
    assert np.isfinite(edges).all()
    assert (edges[1:] > edges[:-1]).all()
    assert not np.signbit(edges[edges == 0]).any()


def check_even(values, edges, n_bins, tolerance=TOLERANCE) -> None:
    """The naive twin: from the pooled, sorted values, every cut is where it is due or where ties put it.

    Cuts are due at even shares of the rows, counted anew after a cut that a tie has moved by more than half a share. A
    cut must lie within the tolerance (or half a row), or at the boundary of two values nearest to where it is due,
    among those that leave a boundary for every cut to come. If the distinct values fit the bins, all are separated.
    """
    ordered = clipped(values).tolist()
    below = [i for i in range(1, len(ordered)) if ordered[i] > ordered[i - 1]]  # rows below each boundary of values
    found = [bisect_left(ordered, edge) for edge in edges.tolist()]
    if len(below) <= n_bins - 1:
        assert found == below
        return
    assert len(found) == n_bins - 1
    anchor, bins, step, previous = 0, n_bins, 1, -1
    for k, count in enumerate(found):
        due = Fraction(anchor * bins + step * (len(ordered) - anchor), bins)
        position = below.index(count)  # an edge lies between two values
        last_allowed = len(below) - (len(found) - k)
        assert previous < position <= last_allowed
        if position == last_allowed:
            assert found[k:] == below[position:]
            return
        distance = abs(count - due)
        if distance * bins > tolerance * (len(ordered) - anchor) and distance > Fraction(1, 2):
            assert distance == min(abs(other - due) for other in below[previous + 1 : last_allowed + 1])
        step += 1
        if 2 * distance * bins > len(ordered) - anchor:
            anchor, bins, step = count, n_bins - 1 - k, 1
        previous = position


class TestLaws:
    """What holds for any columns."""

    @relaxed
    @given(columns, st.integers(1, 40))
    @example(("float64", np.array([math.nan])), 5)
    @example(("float64", np.array([math.inf, -math.inf, FLOAT64_MAX])), 5)
    @example(("float64", np.array([5e-324, -5e-324, 0.0, -0.0])), 5)
    @example(("float32", np.array([FLOAT32_MAX, math.inf, 1e-45, 0.0], np.float32)), 5)
    def test_edges_are_valid_and_even(self, column, n_bins):
        """Valid edges at every moment of the search; at its end as even as the pooled rows allow."""
        kind, values = column
        owner = SortedColumns([values])
        search = QuantileSearch([kind], owner.n_present, n_bins)
        while (asked := search.next_probes()) is not None:
            check_valid(search.edges()[0], n_bins)
            search.update(owner.counts_below(*asked))
        edges = search.edges()[0]
        check_valid(edges, n_bins)
        assert search.rounds <= MAX_ROUNDS
        if kind == "float32":
            assert (edges.astype(np.float32) == edges).all()
        if search.converged:
            check_even(values, edges, n_bins)

    @relaxed
    @given(st.lists(columns, min_size=1, max_size=3), st.integers(2, 20), st.integers(1, 5), st.integers(0, 2**32 - 1))
    def test_edges_do_not_depend_on_who_holds_the_rows(self, drawn, n_bins, n_owners, seed):
        """One owner or several, any rows each or none: identical edges, and the same with other columns beside."""
        n_rows = max(len(values) for _, values in drawn)
        kinds = [kind for kind, _ in drawn]
        pooled = [np.append(v, np.full(n_rows - len(v), np.nan, v.dtype)) for _, v in drawn]
        holder = np.random.default_rng(seed).integers(0, n_owners, n_rows)
        together = searched([pooled], kinds, n_bins)
        apart = searched([[v[holder == i] for v in pooled] for i in range(n_owners)], kinds, n_bins)
        assert [e.tobytes() for e in apart.edges()] == [e.tobytes() for e in together.edges()]
        assert apart.rounds == together.rounds
        alone = of_one(drawn[0][1], n_bins, drawn[0][0])[1]
        assert alone.tobytes() == together.edges()[0].tobytes()

    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 2**32 - 1), st.sampled_from([2, 16, 64, 255]), st.sampled_from([1 / 16, 1 / 8, 1 / 3]))
    def test_larger_columns_are_even_too(self, seed, n_bins, tolerance):
        """Continuous, rounded, heavy-tailed, tied and clustered values: all cuts where they are due."""
        rng = np.random.default_rng(seed)
        x = rng.standard_normal(3000)
        column = [
            x,
            np.round(x, int(rng.integers(0, 4))),
            np.exp(float(rng.uniform(1, 60)) * x),
            x * (rng.random(3000) < rng.random()),
            1e9 + np.round(x * 1000) / 4,
            np.sign(x) * rng.geometric(0.01, 3000) ** 2.0,
        ][seed % 6]
        kind = ["float64", "float32", "integer"][rng.integers(0, 3)]
        values = np.clip(np.round(column) if kind == "integer" else column, -FLOAT32_MAX, FLOAT32_MAX)
        values = values.astype(np.float32 if kind == "float32" else np.float64)
        search, edges = of_one(values, n_bins, kind, tolerance=tolerance)
        check_valid(edges, n_bins)
        assert search.converged
        check_even(values, edges, n_bins, tolerance)


class TestNastyColumns:
    """Inputs that a plain search by halving does not end on, or takes very long for."""

    @pytest.mark.parametrize("kind", ["float64", "float32", "integer"])
    @pytest.mark.parametrize("n_bins", [2, 16, 255])
    def test_all_equal(self, kind, n_bins):
        """One value, whatever it is, gives no edge, and the search finds out that it is one."""
        for value in (0.0, 7.0, -3.0, 1e30, math.inf, -math.inf, 0.1, 1 / 3):
            number = np.float32(value) if kind == "float32" else math.floor(value) if value == 1 / 3 else value
            search, edges = of_one(np.full(1000, number, np.float64 if kind != "float32" else np.float32), n_bins, kind)
            assert len(edges) == 0
            assert search.converged

    def test_two_values(self):
        """One edge between them, a round one, also when they are neighbours."""
        assert of_one([0.0, 1.0] * 50, 255)[1].tolist() == [0.5]
        assert of_one([3.0, 4.0] * 50, 16, "integer")[1].tolist() == [3.5]
        search, edges = of_one([-math.inf, math.inf] * 50, 16)
        assert (search.converged, len(edges)) == (True, 1)
        for low in (1.0, 1 / 3, 1e300, -5e-324):
            values = np.array([low, np.nextafter(low, math.inf)] * 5)
            search, edges = of_one(values, 16)
            assert search.converged
            assert edges.tolist() == [values[1]]

    def test_pairs_at_any_distance(self):
        """Two rows, equal, neighbours or far apart, anywhere on the line: told apart, or known to be one value."""
        rng = np.random.default_rng(10)
        for _ in range(300):
            low = 10.0 ** rng.uniform(-300, 300) * rng.choice([-1, 1])
            high = low * (1 + 2.0 ** -rng.integers(1, 53) * rng.integers(0, 2))
            search, edges = of_one([low, high], 2)
            assert search.converged
            assert len(edges) == (low != high)

    def test_denormals_and_huge_ranges(self):
        """A thousand numbers near zero, or from 1e-300 to 1e300 with both signs: even bins."""
        rng = np.random.default_rng(0)
        tiny = rng.integers(1, 10**6, 1000) * 5e-324
        wide = 10.0 ** rng.uniform(-300, 300, 1000) * rng.choice([-1, 1], 1000)
        for values in (tiny, wide, np.concatenate([tiny, wide])):
            search, edges = of_one(values, 16)
            assert search.converged
            check_even(values, edges, 16)

    def test_infinities_are_in_the_outermost_bins(self):
        """They count as rows, but no edge is infinite."""
        values = np.concatenate([np.full(100, math.inf), np.full(50, -math.inf), np.arange(200.0)])
        for kind in ("float64", "integer"):
            search, edges = of_one(values, 20, kind)
            assert search.converged
            check_valid(edges, 20)
            check_even(values, edges, 20)

    def test_no_value_has_exactly_the_wanted_rank(self):
        """1,000 rows in 16 bins (62.5 each), where a search for equality never ends."""
        values = np.random.default_rng(0).standard_normal(1000)
        search, edges = of_one(values, 16)
        assert search.converged
        assert search.rounds <= 5
        sizes = np.diff([0, *np.searchsorted(np.sort(values), edges), 1000])
        assert len(sizes) == 16
        assert np.abs(sizes - 62.5).max() <= 2 * TOLERANCE * 62.5

    @pytest.mark.parametrize("n_bins", [8, 16, 255])
    def test_forty_percent_zeros(self, n_bins):
        """Zero has a bin of its own, with an edge on each side, and the others share the rest evenly."""
        rng = np.random.default_rng(1)
        values = np.where(rng.random(5000) < 0.4, 0.0, rng.standard_normal(5000))
        search, edges = of_one(values, n_bins)
        assert search.converged
        check_even(values, edges, n_bins)
        assert len(edges) == n_bins - 1
        code = np.searchsorted(edges, 0.0, side="right")
        assert set(values[np.searchsorted(edges, values, side="right") == code]) == {0.0}

    def test_heavy_ties_at_odd_numbers(self):
        """300 values without a round digit, each on many rows: separated as far as bins allow, within the rounds."""
        rng = np.random.default_rng(2)
        values = rng.choice(rng.standard_normal(300), 20_000)
        for n_bins in (16, 255):
            search, edges = of_one(values, n_bins)
            check_even(values, edges, n_bins)
            assert search.rounds <= MAX_ROUNDS
        _, edges = of_one(values[values > np.median(values)], 255)
        assert len(edges) == len(np.unique(values[values > np.median(values)])) - 1

    def test_rows_closer_than_float32_can_tell(self):
        """Spread evenly between two neighbouring float32 numbers they still get even bins."""
        values = 1.0 + np.arange(1000) * 2.0**-40
        search, edges = of_one(values, 16)
        assert search.converged
        check_even(values, edges, 16)

    def test_whole_numbers_of_any_size(self):
        """Identifiers, powers and small codes in one column; only whole numbers are asked for."""
        rng = np.random.default_rng(3)
        values = np.concatenate([rng.integers(0, 5, 500), 10**15 + rng.integers(0, 50, 500), 2.0 ** np.arange(300)])
        owner = SortedColumns([values])
        search = QuantileSearch(["integer"], owner.n_present, 100)
        while (asked := search.next_probes()) is not None:
            assert (asked[0] == np.floor(asked[0])).all()
            search.update(owner.counts_below(*asked))
        assert search.converged
        check_even(values, search.edges()[0], 100)


class TestBesideTheEngine:
    """The same edges, or as good ones, as those of the pooled rows."""

    def test_small_whole_numbers_get_the_very_same_edges(self):
        """Codes, counts and ages: each value a bin of its own, with the edge halfway, as in `cuts.py`."""
        rng = np.random.default_rng(4)
        X = np.column_stack([
            rng.integers(0, 2, 5000), rng.integers(17, 91, 5000), rng.poisson(0.3, 5000), 10 * rng.integers(-9, 9, 5000)
        ]).astype(np.float64)  # fmt: skip
        parts = [list(part.T) for part in np.array_split(X, 3)]
        search = searched(parts, [kind_of(column) for column in parts[0]], 255)
        pooled = BinMapper.fit(read_table(X))
        assert search.rounds == 1
        for edges, feature in zip(search.edges(), pooled.features, strict=True):
            assert edges.tolist() == feature.edges.tolist()

    def test_ordinary_numbers_need_two_or_three_rounds(self):
        """50,000 rows of 15 columns: few rounds, and edges that float32 can hold, in float32 and in float64."""
        X = np.random.default_rng(5).standard_normal((50_000, 15)) * 10.0 ** np.arange(-4, 11)
        for dtype in (np.float32, np.float64):
            columns = list(X.T.astype(dtype))
            search = searched([columns], [np.dtype(dtype).name] * 15, 255)
            assert search.converged
            assert search.rounds <= 3
            for values, edges in zip(columns, search.edges(), strict=True):
                check_even(values, edges, 255)
                assert (edges.astype(np.float32) == edges).all()

    def test_decimal_prices(self):
        """Ties at numbers with two decimals are found by guessing round numbers."""
        values = np.round(np.exp(np.random.default_rng(6).standard_normal(20_000)), 2)
        search, edges = of_one(values, 255)
        assert search.converged
        assert search.rounds <= 6
        check_even(values, edges, 255)


class TestManners:
    """Wrong use is refused in words, and the search keeps to its limits."""

    def test_probes_stay_within_the_budget(self):
        """Never more per column than allowed, even for nasty columns, and none for settled ones."""
        rng = np.random.default_rng(7)
        columns = [rng.choice(rng.standard_normal(400), 5000), np.zeros(5000), rng.standard_normal(5000)]
        owner = SortedColumns(columns)
        for budget in (12 * 40, 4096):
            search = QuantileSearch(["float64"] * 3, owner.n_present, 40, probes_per_column=budget)
            while (asked := search.next_probes()) is not None:
                probes, offsets = asked
                assert np.diff(offsets).max() <= min(budget, 1024)
                assert search.next_probes()[0].tobytes() == probes.tobytes()  # asking twice changes nothing
                search.update(owner.counts_below(probes, offsets))
            assert search.converged

    def test_rounds_stay_within_their_limit(self):
        """After one round there are edges already, valid if less even."""
        values = np.random.default_rng(8).standard_normal(10_000)
        search, edges = of_one(values, 255, max_rounds=1)
        assert (search.rounds, search.converged) == (1, False)
        check_valid(edges, 255)
        assert len(edges) > 150

    def test_nothing_to_do(self):
        """No column, no value, one row or one bin: no probe and no edge."""
        assert QuantileSearch([], np.empty(0, np.int64), 5).next_probes() is None
        for n_present, n_bins in ((0, 5), (1, 5), (100, 1)):
            search = QuantileSearch(["float64"], np.array([n_present]), n_bins)
            assert search.next_probes() is None
            assert [e.tolist() for e in search.edges()] == [[]]

    @pytest.mark.parametrize("change", ["falling", "too many", "negative"])
    def test_impossible_counts_are_refused(self, change):
        """Owners that answered for other probes, or falsely, are noticed where counts contradict each other."""
        values = np.random.default_rng(9).standard_normal(100)
        owner = SortedColumns([values, values])
        search = QuantileSearch(["float64", "float64"], owner.n_present, 5)
        asked = search.next_probes()
        counts = owner.counts_below(*asked)
        wrong = {"falling": counts[::-1], "too many": counts + 1, "negative": counts - 1}[change]
        with pytest.raises(InvalidInput, match="counts of numeric column 0 are impossible"):
            search.update(wrong)
