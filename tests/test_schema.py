from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.schema import CategoricalColumn, NumericColumn, Schema

PEOPLE = Schema.from_public(
    bounds={"age": (0, 120), "income": (-1e5, 1e6)},
    levels={"sex": ["f", "m"], "stars": [1, 2, 3.0]},
    integers=["age"],
    may_be_missing=["income", "sex"],
    classes=["no", "yes"],
)


def test_a_schema_says_what_was_stated():
    """Columns come in the order of writing, with bounds, levels and flags as given; 3.0 is written 3."""
    assert PEOPLE.names == ("age", "income", "sex", "stars")
    assert PEOPLE["age"] == NumericColumn("age", 0.0, 120.0, integer=True)
    assert PEOPLE["income"] == NumericColumn("income", -1e5, 1e6, may_be_missing=True)
    assert PEOPLE["stars"] == CategoricalColumn("stars", (1, 2, 3))
    assert PEOPLE.classes == ("no", "yes")
    with pytest.raises(InvalidParameter, match="no column 'weight'"):
        PEOPLE["weight"]


def test_true_means_that_any_column_may_be_missing():
    """may_be_missing=True is short for all columns."""
    schema = Schema.from_public(bounds={"a": (0, 1)}, levels={"b": ["x"]}, may_be_missing=True)
    assert [column.may_be_missing for column in schema.columns] == [True, True]


def test_columns_gives_the_order():
    """A table without names is read by position, so the order can be stated."""
    schema = Schema.from_public(bounds={"x1": (0, 1)}, levels={"x0": ["a"]}, columns=["x0", "x1"])
    assert schema.names == ("x0", "x1")


def test_json_and_back():
    """A schema survives JSON, also one with label bounds and numpy scalars in it."""
    assert Schema.from_dict(json.loads(json.dumps(PEOPLE.to_dict()))) == PEOPLE
    numbers = Schema.from_public(
        bounds={"a": (np.float32(0.5), np.int64(3))}, levels={"b": list(np.array([1, 2]))}, label_bounds=(0, 10)
    )
    assert Schema.from_dict(json.loads(json.dumps(numbers.to_dict()))) == numbers


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5),
        st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda pair: pair[0] < pair[1]),
        min_size=1,
        max_size=5,
    )
)
def test_any_bounds_survive_json(bounds):
    """Bounds are read back exactly, whatever the floats."""
    schema = Schema.from_public(bounds=bounds)
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "at least one column"),
        ({"bounds": {"a": (1, 1)}}, "bounds of column 'a' must be two finite numbers, the lower one first"),
        ({"bounds": {"a": (0, float("inf"))}}, "bounds of column 'a' must be two finite numbers"),
        ({"bounds": {"a": (True, 3)}}, "two finite numbers"),
        ({"bounds": {"a": ("0", 3)}}, "two finite numbers"),
        ({"bounds": {"a": 3}}, "must be a pair"),
        ({"bounds": {"a": (-1.7e308, 1.7e308)}}, "too far apart"),
        ({"bounds": {"a": (0.5, 3)}, "integers": ["a"]}, "integer column 'a' must be whole numbers"),
        ({"bounds": {"a": (0, 1)}, "levels": {"a": ["x"]}}, "'a' has bounds and levels"),
        ({"levels": {"a": []}}, "'a' must have 1 to 255 levels, got 0"),
        ({"levels": {"a": range(256)}}, "'a' must have 1 to 255 levels, got 256"),
        ({"levels": {"a": "xyz"}}, "must be a list, 'hash' or a number of groups, got 'xyz'"),
        ({"levels": {"a": ["x", 1]}}, "all text or all numbers"),
        ({"levels": {"a": ["x", "x"]}}, "without repetition"),
        ({"levels": {"a": [None]}}, "must be text or finite numbers, got None"),
        ({"levels": {"a": ["x"]}, "integers": ["a"]}, "integers names 'a', which is not a column with bounds"),
        ({"bounds": {"a": (0, 1)}, "may_be_missing": ["b"]}, "may_be_missing names 'b'"),
        ({"bounds": {"a": (0, 1)}, "may_be_missing": "a"}, "must be a list of columns, got the text 'a'"),
        ({"bounds": {"a": (0, 1)}, "columns": ["a", "b"]}, "columns must list every column once"),
        ({"bounds": {"a": (0, 1)}, "classes": [1]}, "classes must list at least two"),
        ({"bounds": {"a": (0, 1)}, "label_bounds": (3, 2)}, "label_bounds must be two finite numbers"),
        ({"bounds": {"": (0, 1)}}, "name must be text"),
    ],
)
def test_a_wrong_statement_is_refused(arguments, sentence):
    """Each mistake is named with the column and the value."""
    with pytest.raises(InvalidParameter, match=sentence):
        Schema.from_public(**arguments)


@pytest.mark.parametrize(
    "damage",
    [
        {"columns": {}},
        {"columns": [{"name": "a"}]},
        {"columns": [{"name": "a", "bounds": [0, 1], "integer": 1, "may_be_missing": False}]},
        {"columns": [{"name": "a", "levels": "xy", "may_be_missing": False}]},
        {"columns": [{"name": "a", "levels": ["x"], "may_be_missing": None}]},
        {"more": 1},
    ],
)
def test_a_damaged_description_is_refused(damage):
    """from_dict takes what to_dict gives, and nothing else."""
    with pytest.raises((InvalidInput, InvalidParameter)):
        Schema.from_dict(PEOPLE.to_dict() | damage)


# --- a public table, an outline, files -------------------------------------------------------------------------------


PUBLISHED = pa.table(
    {
        "age": pa.array([20, 64, 33]),
        "income": pa.array([1.5, math.nan, 9.0]),
        "sex": pa.array(["m", "f", None]),
        "sick": pa.array([0, 1, 0]),
        "cost": pa.array([0.5, 2.5, 4.0]),
    }
)


def test_a_public_table_describes_its_columns():
    """Bounds, levels, whole numbers and gaps are read off it, classes off the label."""
    schema = Schema.from_public(PUBLISHED.drop_columns(["cost"]), label="sick")
    assert schema == Schema.from_public(
        bounds={"age": (20, 64), "income": (1.5, 9.0)},
        levels={"sex": ["f", "m"]},
        integers=["age"],
        may_be_missing=["income", "sex"],
        classes=[0, 1],
    )


def test_a_public_table_of_numbers_to_predict():
    """A label of real numbers gives bounds instead of classes."""
    schema = Schema.from_public(PUBLISHED.drop_columns(["sick"]), label="cost")
    assert schema.label_bounds == (0.5, 4.0)
    assert schema.classes is None


def test_what_is_stated_beats_a_public_table():
    """Wider bounds, other gaps and an order of one's own can be stated beside the table."""
    schema = Schema.from_public(
        PUBLISHED.drop_columns(["cost", "sick"]),
        bounds={"age": (0, 120)},
        levels={"income": [1, 2]},
        classes=["a", "b"],
    )
    assert schema.names == ("age", "income", "sex")
    assert schema["age"] == NumericColumn("age", 0, 120)
    assert schema["income"] == CategoricalColumn("income", (1, 2), may_be_missing=True)
    assert schema.classes == ("a", "b")


def test_frames_are_tables_too():
    """Pandas and polars frames say the same as arrow tables."""
    schemas = {
        Schema.from_public(table, label="sick")
        for table in (PUBLISHED, PUBLISHED.to_pandas(), pl.from_arrow(PUBLISHED))
    }
    assert len(schemas) == 1


def test_a_public_table_that_says_nothing():
    """No names, an empty column, a label that is not there: refused with the reason."""
    with pytest.raises(InvalidInput, match="named columns"):
        Schema.from_public(np.zeros((3, 2)))
    with pytest.raises(InvalidParameter, match="given by name"):
        Schema.from_public({"a": (0, 1)})
    with pytest.raises(InvalidInput, match="column 'a' of the public table is empty"):
        Schema.from_public(pa.table({"a": pa.array([None, None], pa.float64())}))
    with pytest.raises(InvalidParameter, match="label='b' is not a column"):
        Schema.from_public(pa.table({"a": [1.0]}), label="b")
    with pytest.raises(InvalidParameter, match="no table is given"):
        Schema.from_public(bounds={"a": (0, 1)}, label="b")


def test_an_outline_shows_no_values():
    """Names and kinds only: nothing of the rows is in it."""
    outline = Schema.outline(pa.table({"age": [41], "town": ["Ulm"], "weight": [71.25]}))
    assert '"age": (LOWEST, HIGHEST)' in outline
    assert '"town": [EVERY, LEVEL]' in outline
    assert 'integers=["age"]' in outline
    assert not any(value in outline for value in ("41", "Ulm", "71.25"))


def test_an_outline_looks_at_no_row():
    """Objects that mix numbers and text have the outline of any others: their types would be read off the rows."""
    pd = pytest.importorskip("pandas")
    mixed, text = (pd.DataFrame({"a": pd.Series(cells, dtype=object)}) for cells in ([1, "x"], ["x", "y"]))
    assert Schema.outline(mixed) == Schema.outline(text) == Schema.outline(mixed[:0])


def test_a_schema_goes_to_a_file_and_back(tmp_path):
    """Saved and loaded it is equal; a file of something else is refused with its name."""
    PEOPLE.save(tmp_path / "people.json")
    assert Schema.load(tmp_path / "people.json") == PEOPLE
    (tmp_path / "other.json").write_text("[1, 2")
    with pytest.raises(InvalidInput, match=r"other\.json: not a schema"):
        Schema.load(tmp_path / "other.json")
    with pytest.raises(InvalidInput, match=r"none\.json: the schema cannot be read"):
        Schema.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    "index",
    [None, pd.Index([7, 8], name="customer"), pd.Index(["x", "y"]), pd.MultiIndex.from_arrays([[1, 2], [3, 4]])],
)
def test_the_names_of_rows_are_no_column(index):
    """A pandas frame has an index, with a name or without, which is neither public nor a feature."""
    frame = pd.DataFrame({"age": [30, 40], "sex": ["f", "m"]}, index=index)
    assert Schema.from_public(frame).names == ("age", "sex")
    assert Schema.outline(frame) == Schema.outline(frame.reset_index(drop=True))
    assert "customer" not in Schema.outline(frame)
