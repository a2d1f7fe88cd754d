"""Counts of rows below probes: equal to counting, for any columns and probes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine.table import Column, Table, read_table
from hedgerow.errors import InvalidInput
from hedgerow.protocols.horizontal.secure_sum.sorted_columns import SortedColumns
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
    names = tuple(f"x{j}" for j in range(len(columns)))
    table = Table(tuple(map(Column, names, columns)), n_rows, names, has_names=False)
    offsets = np.cumsum([0, *map(len, asked)])
    owner = SortedColumns(table)
    counts = owner.counts_below(np.concatenate(asked), offsets)
    expected = [sum(x < p for x in column.tolist()) for column, some in zip(columns, asked, strict=True) for p in some]
    assert counts.tolist() == expected
    assert counts.dtype == np.int64
    assert owner.n_present.tolist() == [np.isfinite(c).sum() + np.isinf(c).sum() for c in columns]


def test_a_large_column():
    """Long jumps between few probes, and many probes between two values."""
    rng = np.random.default_rng(0)
    column = rng.standard_normal(20_000)
    owner = SortedColumns(read_table(column[:, None]))
    for some in (np.array([-9.0, 0.0, 9.0]), np.linspace(-5, 5, 50_000)):
        counts = owner.counts_below(some, np.array([0, len(some)]))
        assert counts.tolist() == np.searchsorted(np.sort(column), some).tolist()


def test_only_numeric_columns_take_part():
    """Categorical columns have no place on a number line; the caller's data are left as they were."""
    x = np.array([3.0, math.nan, 1.0])
    columns = (Column("c", np.array([0, 1, -1], np.int32), ("a", "b")), Column("x", x))
    owner = SortedColumns(Table(columns, 3, ("c", "x"), has_names=True))
    assert (owner.n_present.tolist(), x[0]) == ([2], 3.0)


def test_kinds_are_read_from_the_values():
    """Whole numbers, missing ones aside, are "integer", and so is a column without any value."""
    X = {
        "whole": np.array([1.0, math.nan, -4.0, math.inf]),
        "none": np.full(4, math.nan),
        "wide": np.array([0.5, 1, 2, 3]),
        "narrow": np.array([0.5, 1, 2, 3], np.float32),
    }
    assert [kind_of(values) for values in X.values()] == ["integer", "integer", "float64", "float32"]


@pytest.mark.parametrize(
    ("asked", "offsets", "message"),
    [
        ([1.0, 0.0], [0, 2, 2], "strictly increasing"),
        ([1.0, 1.0], [0, 0, 2], "strictly increasing"),
        ([0.0, math.nan], [0, 1, 2], "finite"),
        ([0.0, math.inf], [0, 0, 2], "finite"),
        ([0.0], [0, 1], "among 2 numeric columns"),
        ([0.0], [0, 1, 2], "offsets must divide the 1 probes"),
        ([0.0], [0, 2, 1], "offsets must divide"),
        ([0.0], [1, 1, 1], "offsets must divide"),
        ([0.0], [0.0, 0.5, 1.0], "offsets must divide"),
    ],
)
def test_bad_probes_are_refused(asked, offsets, message):
    """Whoever asks in disorder gets an error, not wrong counts."""
    owner = SortedColumns(read_table(np.ones((3, 2))))
    with pytest.raises(InvalidInput, match=message):
        owner.counts_below(np.array(asked), np.array(offsets))
    assert owner.counts_below(np.array([2.0, 1.0]), np.array([0, 1, 2])).tolist() == [3, 0]
