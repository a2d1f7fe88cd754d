"""Tables of every library become the same columns, or an error that names the column."""

from __future__ import annotations

import decimal
import math
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.table import read_table
from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter, InvalidType

NAN = math.nan


def only(table):
    """The single column of a table."""
    (column,) = table.columns
    return column


def as_list(values):
    """A list that compares equal to another with NaN in the same places."""
    return [None if isinstance(value, float) and math.isnan(value) else value for value in np.asarray(values).tolist()]


NUMBERS = {
    "numpy float32": (np.array([[1.0], [NAN], [3.0]], np.float32), np.float32),
    "numpy float64": (np.array([[1.0], [NAN], [3.0]]), np.float64),
    "numpy float16": (np.array([[1.0], [NAN], [3.0]], np.float16), np.float32),
    "numpy big-endian": (np.array([[1.0], [NAN], [3.0]], ">f4"), np.float32),
    "numpy objects": (np.array([[1], [None], [3.0]], object), np.float32),
    "numpy text": (np.array([["1"], ["nan"], ["3"]]), np.float32),
    "numpy masked": (np.ma.array([[1], [2], [3]], mask=[[0], [1], [0]]), np.float64),
    "list of lists": ([[1.0], [NAN], [3.0]], np.float64),
    "pandas float32": (pd.DataFrame({"x": [1.0, NAN, 3.0]}, dtype="float32"), np.float32),
    "pandas Int64": (pd.DataFrame({"x": pd.array([1, None, 3], dtype="Int64")}), np.float32),
    "pandas Float32": (pd.DataFrame({"x": pd.array([1, None, 3], dtype="Float32")}), np.float64),
    "pandas arrow": (pd.DataFrame({"x": pd.array([1, None, 3], dtype="int32[pyarrow]")}), np.float32),
    "pandas objects": (pd.DataFrame({"x": pd.Series([1, pd.NA, 3.0], dtype=object)}), np.float32),
    "polars Int64": (pl.DataFrame({"x": [1, None, 3]}), np.float32),
    "polars Float64": (pl.DataFrame({"x": [1.0, None, 3.0]}), np.float64),
    "polars Float32": (pl.DataFrame({"x": pl.Series([1.0, None, 3.0], dtype=pl.Float32)}), np.float32),
    "arrow int64": (pa.table({"x": [1, None, 3]}), np.float32),
    "arrow chunks": (pa.table({"x": pa.chunked_array([[1.0], [None, 3.0]])}), np.float64),
    "arrow batch": (pa.record_batch({"x": [1.0, None, 3.0]}), np.float64),
}

LEVELS = {
    "pandas str": pd.DataFrame({"x": ["b", None, "a", "b"]}),
    "pandas string": pd.DataFrame({"x": pd.array(["b", None, "a", "b"], dtype="string")}),
    "pandas arrow string": pd.DataFrame({"x": pd.array(["b", None, "a", "b"], dtype=pd.ArrowDtype(pa.string()))}),
    "pandas object": pd.DataFrame({"x": pd.Series(["b", None, "a", "b"], dtype=object)}),
    "pandas category": pd.DataFrame({"x": pd.Categorical(["b", None, "a", "b"], categories=["b", "a"])}),
    "polars String": pl.DataFrame({"x": ["b", None, "a", "b"]}),
    "polars Categorical": pl.DataFrame({"x": pl.Series(["b", None, "a", "b"], dtype=pl.Categorical)}),
    "polars Enum": pl.DataFrame({"x": pl.Series(["b", None, "a", "b"], dtype=pl.Enum(["b", "a"]))}),
    "arrow string": pa.table({"x": ["b", None, "a", "b"]}),
    "arrow large string": pa.table({"x": pa.array(["b", None, "a", "b"], pa.large_string())}),
    "arrow dictionary": pa.table({"x": pa.array(["b", None, "a", "b"]).dictionary_encode()}),
    "arrow chunks with their own dictionaries": pa.table(
        {"x": pa.chunked_array([pa.array(["b", None]).dictionary_encode(), pa.array(["a", "b"]).dictionary_encode()])}
    ),
}


class TestNumbers:
    """Numeric columns."""

    @pytest.mark.parametrize("kind", NUMBERS)
    def test_of_every_library(self, kind):
        """Values are kept, missing ones are NaN, and float32 is used only where it was given or is exact."""
        X, dtype = NUMBERS[kind]
        column = only(read_table(X))
        assert as_list(column.values) == [1.0, None, 3.0]
        assert column.values.dtype == dtype
        assert column.values.dtype.isnative
        assert column.levels is None

    @pytest.mark.parametrize(
        "X",
        [
            np.array([[True], [False]]),
            pd.DataFrame({"x": [True, False]}),
            pd.DataFrame({"x": pd.array([True, False], dtype="boolean")}),
            pl.DataFrame({"x": [True, False]}),
            pa.table({"x": [True, False]}),
        ],
        ids=["numpy", "pandas", "pandas nullable", "polars", "arrow"],
    )
    def test_truth_values_are_one_and_zero(self, X):
        """A bool column is numeric, whichever library it comes from."""
        column = only(read_table(X))
        assert (column.values.tolist(), column.values.dtype) == ([1.0, 0.0], np.float32)

    @pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
    def test_missing_truth_values(self, frame):
        """A bool column with holes is numeric too."""
        column = only(read_table(frame({"x": [True, None, False]})))
        assert (as_list(column.values), column.values.dtype) == ([1.0, None, 0.0], np.float32)

    @pytest.mark.parametrize("frame", [pl.DataFrame, pa.table, pd.DataFrame], ids=["polars", "arrow", "pandas"])
    def test_nothing_but_missing_values(self, frame):
        """A column without any value is numeric and all NaN."""
        assert as_list(only(read_table(frame({"x": [None, None]}))).values) == [None, None]

    @given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5))
    @settings(max_examples=60, deadline=None)
    def test_whole_numbers_keep_value_and_order(self, whole):
        """float32 only where exact; float64 beyond, where the order of two numbers is never reversed."""
        values = only(read_table(np.array(whole)[:, None])).values
        if values.dtype == np.float32:
            assert [int(value) for value in values] == whole
        for a, x in zip(whole, values, strict=True):
            assert x == float(a)
            assert all(x <= y for b, y in zip(whole, values, strict=True) if a <= b)

    def test_wide_and_narrow_columns_side_by_side(self):
        """Each whole-number column is as narrow as its own values allow."""
        table = read_table(np.array([[1, 2**24 + 1], [2**24, 5]]))
        assert [column.values.dtype for column in table.columns] == [np.float32, np.float64]


class TestLevels:
    """Categorical columns, by their type."""

    @pytest.mark.parametrize("kind", LEVELS)
    def test_of_every_library(self, kind):
        """Sorted levels, codes into them, -1 for missing."""
        column = only(read_table(LEVELS[kind]))
        assert column.levels == ("a", "b")
        assert column.values.dtype == np.int32
        assert column.values.tolist() == [1, -1, 0, 1]

    def test_do_not_depend_on_the_order_of_rows(self):
        """The same rows in another order have the same levels."""
        for frame in LEVELS.values():
            backwards = frame[::-1] if not isinstance(frame, pa.Table) else frame.take([3, 2, 1, 0])
            column = only(read_table(backwards))
            assert (column.levels, column.values.tolist()) == (("a", "b"), [1, 0, -1, 1])

    def test_declared_levels_are_kept(self):
        """A level that no row has keeps its place, if it was declared."""
        declared = ["c", "a", "b"]
        for frame in (
            pd.DataFrame({"x": pd.Categorical(["b"], categories=declared)}),
            pl.DataFrame({"x": pl.Series(["b"], dtype=pl.Enum(declared))}),
            pa.table({"x": pa.DictionaryArray.from_arrays([2], declared)}),
        ):
            column = only(read_table(frame))
            assert (column.levels, column.values.tolist()) == (("a", "b", "c"), [1])

    def test_declared_levels_that_do_not_occur_give_way_when_there_are_too_many(self):
        """1000 categories declared, two in use: two levels."""
        X = pd.DataFrame({"x": pd.Categorical([7, 900], categories=range(1000))})
        assert only(read_table(X)).levels == (7, 900)

    def test_repeated_and_missing_dictionary_entries(self):
        """An arrow dictionary may repeat itself or hold a null; equal text is one level."""
        dictionary = pa.DictionaryArray.from_arrays([0, 1, 2, None], pa.array(["a", "a", None]))
        column = only(read_table(pa.table({"x": dictionary})))
        assert (column.levels, column.values.tolist()) == (("a",), [0, 0, -1, -1])

    def test_whole_number_categories(self):
        """A pandas category of integers has integer levels, in numeric order."""
        column = only(read_table(pd.DataFrame({"x": pd.Categorical([10, 9, None, 10])})))
        assert (column.levels, column.values.tolist()) == ((9, 10), [1, 0, -1, 1])
        assert all(type(level) is int for level in column.levels)

    def test_text_without_any_value_stays_categorical(self):
        """A text column that is missing throughout has no levels, but is not taken for numbers."""
        for X in (
            pd.DataFrame({"x": pd.array([None], dtype="string")}),
            pa.table({"x": pa.array([None], pa.string())}),
        ):
            column = only(read_table(X))
            assert (column.levels, column.values.tolist()) == ((), [-1])

    def test_too_many(self):
        """The error names the column and the number of levels; 255 still work."""
        text = [f"{i:03d}" for i in range(256)]
        assert len(only(read_table(pd.DataFrame({"x": text[:255]}))).levels) == 255
        with pytest.raises(InvalidInput, match="column 'town' has 256 levels, but at most 255"):
            read_table(pd.DataFrame({"town": text}))


class TestCategoricalFeatures:
    """Categorical columns, by wish."""

    def test_by_index_mask_and_name(self):
        """Exactly the columns asked for become categorical, numbers too."""
        X = np.array([[1.0, 5.0], [NAN, 6.5], [3.0, 5.0]])
        frame = pd.DataFrame(X, columns=["a", "b"])
        for table in (
            read_table(X, categorical_features=[1]),
            read_table(X, categorical_features=np.array([False, True])),
            read_table(frame, categorical_features=["b"]),
        ):
            assert table.columns[0].levels is None
            assert table.columns[1].levels == (5, 6.5)
            assert table.columns[1].values.tolist() == [0, 1, 0]

    def test_missing_numbers_are_no_level(self):
        """NaN in a column of numbers asked for as categorical is missing."""
        column = only(read_table(np.array([[2.0], [NAN], [1.0]]), categorical_features=[0]))
        assert (column.levels, column.values.tolist()) == ((1, 2), [1, -1, 0])

    def test_text_of_an_array(self):
        """A numpy array of text is read as numbers, or as levels where asked."""
        X = np.array([["red", "1.5"], ["blue", "2"]])
        table = read_table(X, categorical_features=[0])
        assert table.columns[0].levels == ("blue", "red")
        assert table.columns[1].values.tolist() == [1.5, 2.0]

    def test_none_reads_categories_of_numbers_as_numbers(self):
        """Without categorical columns a category of numbers is those numbers, and text is an error."""
        X = pd.DataFrame({"x": pd.Categorical([10, None, 9])})
        assert as_list(only(read_table(X, categorical_features=None)).values) == [10.0, None, 9.0]
        with pytest.raises(InvalidInput, match="column 'x' holds text \\('a'\\) where numbers are expected"):
            read_table(pd.DataFrame({"x": ["a"]}), categorical_features=None)

    @pytest.mark.parametrize(
        ("wish", "message"),
        [
            ("auto", "must be 'from_dtype', None, a list"),
            (["z"], "names 'z', which is not a column of X"),
            ([2], "has index 2, but X has columns 0 to 1"),
            ([-1], "has index -1"),
            ([True], "mask of length 1, but X has 2 columns"),
            ([1.5], "got 1.5"),
            (3, "got 3"),
        ],
    )
    def test_wrong_wishes(self, wish, message):
        """The error says what was asked for and what there is."""
        with pytest.raises(InvalidParameter, match=message):
            read_table(pd.DataFrame({"a": [1.0], "b": [2.0]}), categorical_features=wish)


class TestLikeAModel:
    """Tables for a trained model."""

    X = pd.DataFrame({"n": [1.0, 2.0], "c": ["a", "b"], "i": pd.Categorical([1, 2])})
    features = BinMapper.fit(read_table(X)).features

    def test_columns_are_found_by_name(self):
        """Another order of columns is put right."""
        table = read_table(self.X[["i", "n", "c"]], like=self.features)
        assert table.names == ("n", "c", "i")
        assert [column.values.tolist() for column in table.columns] == [[1.0, 2.0], [0, 1], [0, 1]]

    def test_unseen_levels_are_missing(self):
        """Levels map onto the model's, in any library; what the model has not seen is -1."""
        X = pl.DataFrame({"n": [1, 2, 3], "c": ["z", "b", None], "i": [2, 7, None]})
        table = read_table(X, like=self.features)
        assert [column.values.tolist() for column in table.columns[1:]] == [[-1, 1, -1], [1, -1, -1]]
        assert [column.levels for column in table.columns] == [None, ("a", "b"), (1, 2)]

    def test_by_position_without_names(self):
        """An array is taken column by column."""
        table = read_table(np.array([[1.0, "a", 2]], object), like=self.features)
        assert [column.values.tolist() for column in table.columns] == [[1.0], [0], [1]]

    def test_a_frame_for_a_model_of_an_array(self):
        """A model trained without names takes a frame by position."""
        features = BinMapper.fit(read_table(np.ones((2, 2)))).features
        table = read_table(pd.DataFrame({"a": [1.0], "b": [2.0]}), like=features)
        assert (table.names, table.has_names) == (("x0", "x1"), False)

    def test_columns_without_values_fit_anything(self):
        """An all-missing column is accepted whatever the model has there."""
        table = read_table(pd.DataFrame({"n": [None], "c": [NAN], "i": [None]}), like=self.features)
        assert [as_list(column.values) for column in table.columns] == [[None], [-1], [-1]]

    @pytest.mark.parametrize(
        ("X", "message"),
        [
            (X.drop(columns="c"), "X lacks 'c'"),
            (X.assign(extra=1), "X has 'extra', unseen at fit time"),
            (X.assign(n="text"), "column 'n' is numeric in the model, but holds text here"),
            (X.assign(c=1.0), "column 'c' has levels that are text in the model, but holds number here"),
            (X.assign(i="a"), "column 'i' has levels that are numbers in the model, but holds text here"),
            (np.ones((1, 2)), "X has 2 features, but the model is expecting 3 features as input"),
        ],
    )
    def test_what_does_not_fit_is_named(self, X, message):
        """A missing, an extra and a changed column each have their sentence."""
        with pytest.raises(InvalidInput, match=message):
            read_table(X, like=self.features)


class TestMatrix:
    """Columns put back together."""

    def test_of_an_array_is_a_view(self):
        """No copy for C-ordered floats, also through a pandas frame; rows can be picked."""
        X = np.arange(12, dtype=np.float32).reshape(4, 3)
        assert np.shares_memory(read_table(X).matrix(), X)
        assert read_table(X).matrix(1, 3).tolist() == X[1:3].tolist()
        X64 = np.arange(12.0).reshape(4, 3)
        frame = pd.DataFrame(X64, columns=list("abc"), copy=False)
        assert np.shares_memory(read_table(frame).matrix(), X64)

    @pytest.mark.parametrize("order", ["C", "F"])
    def test_rows_are_neighbours(self, order):
        """The result is C-ordered whatever the input was."""
        X = np.asarray(np.random.default_rng(0).random((5, 3)), order=order)
        for table in (read_table(X), read_table(X[::2]), read_table(X[:, ::-1]), read_table(X[:, 1:])):
            matrix = table.matrix()
            assert matrix.flags.c_contiguous
            assert matrix.tolist() == [
                [float(column.values[i]) for column in table.columns] for i in range(table.n_rows)
            ]

    def test_of_mixed_columns(self):
        """Codes become floats, missing becomes NaN, one wide column widens all."""
        X = pd.DataFrame({"a": ["x", None], "b": np.array([1, 2], np.int8)})
        matrix = read_table(X).matrix()
        assert (matrix.dtype, [as_list(row) for row in matrix]) == (np.float32, [[0.0, 1.0], [None, 2.0]])
        assert read_table(X.assign(c=0.1)).matrix().dtype == np.float64
        assert read_table(X).matrix(dtype=np.float64).dtype == np.float64


class TestNames:
    """What columns are called."""

    def test_of_frames_and_arrays(self):
        """Frames bring names; arrays, and frames without a single string among their names, get x0, x1, ..."""
        assert read_table(pd.DataFrame({"a": [1], "b": [2]})).names == ("a", "b")
        for X in (np.ones((1, 2)), pd.DataFrame([[1, 2]]), pd.DataFrame([[1, 2]], columns=[(1, 2), (3, 4)])):
            table = read_table(X)
            assert (table.names, table.has_names) == (("x0", "x1"), False)

    def test_mixed_or_repeated(self):
        """Names that are partly strings, or not unique, are refused."""
        with pytest.raises(InvalidType, match="only supported if all input features have string names"):
            read_table(pd.DataFrame([[1, 2]], columns=["a", 1]))
        with pytest.raises(InvalidInput, match="more than one column named 'a'"):
            read_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))

    def test_a_table_is_read_again(self):
        """What read_table returns can be given to it, for a model too."""
        table = read_table(pd.DataFrame({"n": [1.0], "c": ["b"]}))
        again = read_table(table, like=(FeatureBins("n", [0.0]), FeatureBins("c", None, ("a", "b"))))
        assert [column.values.tolist() for column in again.columns] == [[1.0], [1]]


REFUSED = {
    "one dimension": (np.ones(3), "Reshape your data"),
    "series": (pd.Series([1.0]), "Reshape your data"),
    "scalar": (5.0, "got scalar array"),
    "three dimensions": (np.ones((1, 1, 1)), "Found array with dim 3"),
    "no rows": (np.ones((0, 3)), r"0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required."),
    "no columns": (np.ones((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required."),
    "empty frame": (pd.DataFrame({"a": []}), r"0 sample\(s\)"),
    "ragged": ([[1, 2], [3]], "X is not a table of numbers"),
    "complex": (np.ones((1, 1), complex), "Complex data not supported"),
    "complex pandas": (pd.DataFrame({"a": [1j]}), "column 'a' has dtype complex128"),
    "lazy polars": (pl.LazyFrame({"a": [1]}), "call .collect"),
    "text array": (np.array([["1", "a"]]), r"column 'x1' holds text \('a'\)"),
    "dict": (np.array([[{"a": 1}]], object), "column 'x0' .*'dict'.* argument must be a string or a real number"),
    "huge whole number": (np.array([[10**400]], object), "column 'x0' holds a whole number too large"),
    "pandas periods": (
        pd.DataFrame({"when": pd.period_range("2020", periods=1, freq="Y")}),
        "column 'when' .*'Period'",
    ),
    "pandas intervals": (pd.DataFrame({"a": pd.cut([1.0, 2.0], 2)}), "column 'a' .*'Interval'"),
    "pandas decimals": (pd.DataFrame({"price": [decimal.Decimal(1)]}), "column 'price' .*'Decimal'"),
    "pandas mixture": (pd.DataFrame({"a": ["x", 1]}), "column 'a' mixes text and numbers"),
    "polars decimals": (pl.DataFrame({"price": [decimal.Decimal("1.5")]}), "column 'price' has dtype Decimal"),
    "polars lists": (pl.DataFrame({"a": [[1]]}), "column 'a' has dtype List"),
    "arrow decimals": (pa.table({"price": [decimal.Decimal("1.5")]}), "column 'price' has dtype decimal128"),
}


class TestRefusals:
    """What cannot be used."""

    @pytest.mark.parametrize("kind", REFUSED)
    def test_say_which_column_and_why(self, kind):
        """Nothing unusable is guessed at, and the sentence helps."""
        X, message = REFUSED[kind]
        with pytest.raises(HedgerowError, match=message):
            read_table(X)

    def test_name_the_table(self):
        """`where` tells apart the tables of one call."""
        with pytest.raises(InvalidInput, match="X_val: column 'a' mixes"):
            read_table(pd.DataFrame({"a": ["x", 1]}), where="X_val")

    def test_an_infinite_level(self):
        """Infinity is a number, but no level."""
        with pytest.raises(InvalidInput, match="column 'x0' has an infinite value"):
            read_table(np.array([[math.inf]]), categorical_features=[0])


def test_no_data_frame_library_is_imported():
    """Reading an array loads neither pandas nor polars nor pyarrow."""
    code = (
        "import sys, numpy as np; from hedgerow.engine.table import read_table; read_table(np.ones((2, 2))); "
        "assert not {'pandas', 'polars', 'pyarrow', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
