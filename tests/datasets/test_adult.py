"""The shipped dataset is whole, needs pyarrow only, and looks the same in every kind of frame."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from hedgerow.datasets import load_adult
from hedgerow.errors import InvalidParameter

CATEGORICAL = [
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
]


@pytest.mark.parametrize(("split", "rows", "positives"), [("train", 32_561, 7_841), ("test", 16_281, 3_846)])
def test_official_split(split, rows, positives):
    """Both splits have the published numbers of rows and of positive labels."""
    X, y = load_adult(split)
    assert (X.num_rows, X.num_columns) == (rows, 14)
    assert y.shape == (rows,)
    assert y.dtype == np.int64
    assert y.sum() == positives


def test_all_is_train_then_test():
    """Reading everything gives the training rows followed by the test rows."""
    train, test, everything = load_adult("train"), load_adult("test"), load_adult("all")
    assert pa.concat_tables([train.X, test.X]).equals(everything.X)
    assert np.array_equal(np.concatenate([train.y, test.y]), everything.y)


def test_label_is_not_a_feature():
    """The label never comes back among the features."""
    assert "label" not in load_adult().X.column_names


def test_missing_values_are_null():
    """Unknown values are nulls, in the three columns that have them, in the published number."""
    X, _ = load_adult("all")
    nulls = {name: X.column(name).null_count for name in X.column_names if X.column(name).null_count}
    assert nulls == {"workclass": 2_799, "occupation": 2_809, "native-country": 857}


def test_levels_are_sorted_and_shared_by_the_splits():
    """Each categorical column declares the same sorted levels in both splits, also levels that occur in one only."""
    train, test = load_adult("train").X, load_adult("test").X
    for name in CATEGORICAL:
        levels = train.column(name).chunk(0).dictionary.to_pylist()
        assert levels == sorted(levels)
        assert levels == test.column(name).chunk(0).dictionary.to_pylist()


def test_pandas_frame_equals_arrow():
    """The pandas frame has the same values, with category and integer dtypes."""
    pytest.importorskip("pandas")
    arrow, frame = load_adult("test").X, load_adult("test", as_frame="pandas").X
    assert [name for name in frame.columns if frame[name].dtype == "category"] == CATEGORICAL
    assert pa.Table.from_pandas(frame, preserve_index=False).to_pylist() == arrow.to_pylist()


def test_polars_frame_equals_arrow():
    """The polars frame has the same values, with categorical columns."""
    pl = pytest.importorskip("polars")
    arrow, frame = load_adult("test").X, load_adult("test", as_frame="polars").X
    assert [name for name in frame.columns if frame.schema[name] in (pl.Categorical, pl.Enum)] == CATEGORICAL
    assert frame.to_dicts() == arrow.to_pylist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "valid"}, "split must be one of 'train', 'test', 'all', got 'valid'"),
        ({"as_frame": "numpy"}, "as_frame must be one of 'arrow', 'pandas', 'polars', got 'numpy'"),
    ],
)
def test_unknown_choice_is_named(arguments, message):
    """A choice that does not exist raises a sentence with the parameter, the choices and the value."""
    with pytest.raises(InvalidParameter) as caught:
        load_adult(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frame_library_not_installed_is_explained(library, monkeypatch):
    """Without the library behind a frame, the error says what to install and what works without it."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'hedgerow\[{library}\]'.*as_frame='arrow'"):
        load_adult(as_frame=library)


def test_arrow_needs_no_other_library():
    """Loading as arrow works where pandas and polars cannot be imported, and loads nothing of the engine."""
    program = (
        "import sys; sys.modules['pandas'] = sys.modules['polars'] = None\n"
        "from hedgerow.datasets import load_adult; rows = load_adult().X.num_rows\n"
        "print(rows, sorted({'numba', 'sklearn', 'hedgerow.engine'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "32561 []"
