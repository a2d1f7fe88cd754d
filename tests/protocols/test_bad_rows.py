"""Rows that do not fit the schema become rows that do, or do not count; what becomes of one depends on no other."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.protocols.bad_rows import check_columns, fit_labels, fit_rows, fit_table
from hedgerow.schema import Schema

SCHEMA = Schema.from_public(
    bounds={"age": (0, 101), "share": (0.0, 1.0), "debt": (0, 10)},
    levels={"sex": ["f", "m"], "where": ["town", "other"], "grade": [1, 2, 3]},
    integers=["age"],
    may_be_missing=["debt", "grade"],
    classes=["no", "yes"],
)
AMOUNTS = Schema.from_public(bounds={"a": (0, 1)}, label_bounds=(10, 20))

CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**400), 10**400), st.floats(), st.text(max_size=4), st.binary(max_size=2),
    st.sampled_from([
        "f", "m", "town", "1", "1.0", " 2 ", "inf", "-1e999", "True", 1, 1.0, np.float32(0.1), np.int64(3),
        pd.NA, pd.NaT, Decimal("1.0"), Decimal("sNaN"), Fraction(1, 1), datetime(2024, 1, 1, tzinfo=UTC), (1, 2), 1j,
        math.inf, "yes", "no",
    ]),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=1), st.integers(), max_size=1),
)  # fmt: skip
ROWS = st.lists(st.tuples(*[CELLS] * 7), max_size=6)


def frame(rows):
    """Rows of Python objects as a data frame, and their labels."""
    columns = [np.empty(len(rows), object) for _ in range(7)]
    for number, row in enumerate(rows):
        for column, cell in zip(columns, row, strict=True):
            column[number] = cell
    table = pd.DataFrame(dict(zip(SCHEMA.names, columns[:6], strict=True)), dtype=object)
    return table, columns[6]


def content(fitted):
    """What became of each row: values, label, whether it counts and whether it fitted."""
    values = [
        column.values.astype(np.float64)
        if column.levels is None
        else np.where(column.values < 0, np.nan, column.values)
        for column in fitted.table.columns
    ]
    both = np.column_stack([*values, fitted.labels, fitted.counts, fitted.misfits])
    return [tuple("gap" if math.isnan(v) else v for v in row) for row in both.tolist()]


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_what_becomes_of_a_row_depends_on_that_row_alone(rows):
    """A table of any rows is read, and each becomes what it becomes alone."""
    together = fit_rows(*frame(rows), SCHEMA)
    alone = [content(fit_rows(*frame([row]), SCHEMA))[0] for row in rows]
    assert content(together)[: len(rows)] == alone
    for column, described in zip(together.table.columns, SCHEMA.columns, strict=True):
        gaps = np.isnan(column.values) if column.levels is None else column.values < 0
        assert described.may_be_missing or not gaps.any()
    if not rows:
        assert together.table.n_rows == 1
        assert not together.counts.any()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((30, 0.5, 1, "f", "town", 2, "yes"), (30, 0.5, 1, 0, 0, 1, 1, True, False)),
        ((None, math.nan, None, None, None, None, "no"), (50, 0.5, "gap", 0, 1, "gap", 0, True, True)),
        (("n/a", "1e999", "?", "x", "moon", 9, "no"), (50, math.inf, "gap", 0, 1, "gap", 0, True, True)),
        (("30", " 0.5", "1", "m", "other", "3", "maybe"), (30, 0.5, 1, 1, 1, 2, 0, False, True)),
        (([], {}, (), 1j, b"f", Fraction(1), None), (50, 0.5, "gap", 0, 1, "gap", 0, False, True)),
    ],
)
def test_public_defaults(row, expected):
    """The middle of the bounds, the level "other" or the first, the cell of gaps; no weight for an unknown class."""
    assert content(fit_rows(*frame([row]), SCHEMA)) == [expected]


def test_one_odd_cell_does_not_change_how_others_are_read():
    """A column that a file makes text because of one cell has the numbers and levels that it would have without."""
    clean = pd.DataFrame({"a": [0.1, 0.25, 1.0], "b": [1, 2, 3]})
    odd = pd.DataFrame({"a": ["0.1", "0.25", "1.0", "n/a"], "b": ["1", "2", "3", "?"]})
    schema = Schema.from_public(bounds={"a": (0, 1)}, levels={"b": [1, 2, 3]}, classes=[0, 1])
    first, second = fit_rows(clean, [0, 1, 0], schema), fit_rows(odd, ["0", "1", "0", "x"], schema)
    assert content(first) == content(second)[:3]
    rows = [[0.1, 1], [0.25, 2], [1.0, 3]]
    assert content(fit_rows([*rows, ["n/a", "?"]], [0, 1, 0, 1], schema))[:3] == content(first)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_tables_without_rows(library):
    """Of every library: one row that does not count."""
    given_rows = library({"a": np.empty(0)})
    fitted = fit_rows(given_rows, [], AMOUNTS)
    assert (fitted.table.n_rows, fitted.counts.tolist(), fitted.misfits.tolist()) == (1, [False], [False])


def test_labels_as_the_schema_has_them():
    """Classes in the schema's order, 1.0 and 1 being the same; numbers clipped; others do not count."""
    swapped = Schema.from_public(bounds={"a": (0, 1)}, classes=[1, 0])
    assert fit_labels([1.0, 0.0, 1.0], swapped).values.tolist() == [0.0, 1.0, 0.0]
    assert fit_labels([True, 0, 2, None], swapped).counts.tolist() == [True, True, False, False]
    encoded = pa.array(["no", "yes", "no"]).dictionary_encode()
    assert fit_labels(encoded, SCHEMA).values.tolist() == [0.0, 1.0, 0.0]
    amounts = fit_labels([10, 15, 99, -math.inf, math.nan], AMOUNTS)
    assert amounts.values.tolist() == [10, 15, 20, 10, 15]
    assert amounts.counts.tolist() == [True, True, True, True, False]
    assert amounts.misfits.tolist() == [False, False, True, True, True]
    texts = fit_labels(np.array(["12", None, "x", 10**400], object), AMOUNTS)
    assert texts.values[texts.counts].tolist() == [12.0, 20.0]


def test_the_default_is_the_same_number_whatever_else_the_column_holds():
    """A column of float32 and one of float64 give a gap the same value, so other rows do not decide its bin."""
    schema = Schema.from_public(bounds={"a": (0.0, 0.2)}, classes=[0, 1])
    for dtype in (np.float32, np.float64):
        table, _ = fit_table(np.array([[math.nan], [0.0]], dtype), schema.columns)
        assert table.columns[0].values[0] == 0.1


def test_what_a_table_is_without_its_rows_may_be_refused():
    """Names and types of columns, lengths that differ, labels that are not one per row."""
    two = pd.DataFrame({"a": [0.5, 0.6]})
    for wrong in (two.rename(columns={"a": "b"}), pd.DataFrame({"a": pd.to_datetime(["2024-01-01"] * 2)})):
        with pytest.raises(InvalidInput, match=r"'[ab]'"):
            check_columns(wrong, AMOUNTS)
        with pytest.raises(InvalidInput, match=r"'[ab]'"):
            fit_rows(wrong, [1, 2], AMOUNTS)
    check_columns(pd.DataFrame({"a": ["?", []]}, dtype=object), AMOUNTS)
    check_columns([["?"]], AMOUNTS)
    for labels, sentence in [([1], "not equally many"), ([[1], [2]], "one per row"), (None, "no labels")]:
        with pytest.raises(InvalidInput, match=sentence):
            fit_rows(two, labels, AMOUNTS)
    with pytest.raises(InvalidParameter, match="on_bad_rows must be 'map' or 'raise', got 'drop'"):
        fit_rows(two, [1, 2], AMOUNTS, on_bad_rows="drop")


@pytest.mark.parametrize(
    ("a", "y", "sentence"),
    [
        ([0.1, None], [11, 12], "'a' has missing values"),
        ([0.1, 0.2], [11, None], "a label is missing"),
        ([0.1, 0.2], [11, "x"], "must be numbers"),
    ],
)
def test_public_rows_may_raise(a, y, sentence):
    """With on_bad_rows="raise" the first thing that does not fit is named."""
    rows = pd.DataFrame({"a": a}), np.array(y, object)
    assert fit_rows(*rows, AMOUNTS).table.n_rows == 2
    with pytest.raises(InvalidInput, match=sentence):
        fit_rows(*rows, AMOUNTS, on_bad_rows="raise")


def test_clean_rows_are_as_they_always_were():
    """Where everything fits, the table is the one that `read_table` gives, in the caller's own memory."""
    X = np.random.default_rng(0).uniform(size=(5, 1))
    fitted = fit_rows(X, [10, 12, 14, 16, 20], AMOUNTS)
    assert np.shares_memory(fitted.table.columns[0].values, X)
    assert fitted.table.grid is not None
    assert (fitted.table.columns[0].values == read_table(X).columns[0].values).all()
    assert fitted.counts.all()
    assert not fitted.misfits.any()
