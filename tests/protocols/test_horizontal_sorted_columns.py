"""Counts of rows below probes: equal to counting, for any columns and probes."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine.table import Column, read_table
from hedgerow.protocols.horizontal.secure_sum.quantile_search import counts_below, sorted_values
from hedgerow.protocols.number_line import kind_of

values = st.lists(st.one_of(st.integers(-5, 5).map(float), st.floats(width=32)), max_size=60)
probes = st.lists(
    st.one_of(st.integers(-6, 6).map(float), st.floats(allow_nan=False, allow_infinity=False)), max_size=40, unique=True
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(values, probes, st.sampled_from([np.float32, np.float64])), min_size=1, max_size=4))
def test_counts_equal_counting(drawn):
    """Per column and probe: the rows whose value is below it; missing values never are."""
    n_rows = max(len(column) for column, _, _ in drawn)
    columns = [np.array(column + [math.nan] * (n_rows - len(column)), dtype) for column, _, dtype in drawn]
    asked = [np.unique(np.array(some, np.float64)) for _, some, _ in drawn]
    offsets = np.cumsum([0, *map(len, asked)])
    ordered = [sorted_values(Column(f"x{j}", column)) for j, column in enumerate(columns)]
    counts = counts_below(ordered, np.concatenate(asked), offsets)
    expected = [sum(x < p for x in column.tolist()) for column, some in zip(columns, asked, strict=True) for p in some]
    assert counts.tolist() == expected
    assert counts.dtype == np.int64
    assert [len(values) for values in ordered] == [np.isfinite(c).sum() + np.isinf(c).sum() for c in columns]


def test_a_large_column():
    """Long jumps between few probes, and many probes between two values."""
    rng = np.random.default_rng(0)
    column = rng.standard_normal(20_000)
    ordered = [sorted_values(read_table(column[:, None]).columns[0])]
    for some in (np.array([-9.0, 0.0, 9.0]), np.linspace(-5, 5, 50_000)):
        counts = counts_below(ordered, some, np.array([0, len(some)]))
        assert counts.tolist() == np.searchsorted(np.sort(column), some).tolist()


def test_a_column_is_left_as_it_was():
    """Sorting leaves missing values out, and the caller's data as they were."""
    x = np.array([3.0, math.nan, 1.0])
    assert (sorted_values(Column("x", x)).tolist(), x[0]) == ([1.0, 3.0], 3.0)


def test_kinds_are_read_from_the_values():
    """Whole numbers, missing ones aside, are "integer", and so is a column without any value."""
    X = {
        "whole": np.array([1.0, math.nan, -4.0, math.inf]),
        "none": np.full(4, math.nan),
        "wide": np.array([0.5, 1, 2, 3]),
        "narrow": np.array([0.5, 1, 2, 3], np.float32),
    }
    assert [kind_of(values) for values in X.values()] == ["integer", "integer", "float64", "float32"]
