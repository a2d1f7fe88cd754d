"""Dates, times and durations: seconds, the same ones from every library and unit, in the model and in its file."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow import BoostedTreesClassifier, DPBoostClassifier, Federation, Schema, load_model
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput, ModelFileError
from hedgerow.times import seconds_of, seconds_of_text, seconds_of_value, written

NOON = [*map(dt.datetime.fromisoformat, ["2026-03-01T12:00", "1969-12-31T23:59:59.25"])]
NOON.insert(1, None)
IN_SECONDS = [1_772_366_400.0, np.nan, -0.75]
WAITS = [dt.timedelta(hours=1), None, dt.timedelta(microseconds=-1)]
BERLIN = [None if t is None else t.replace(tzinfo=dt.UTC) for t in NOON]

TIMES = {
    "numpy": np.array(NOON, "datetime64[us]")[:, None],
    "numpy, nanoseconds": np.array(NOON, "datetime64[ns]")[:, None],
    "numpy objects": np.array(NOON, object)[:, None],
    "pandas": pd.DataFrame({"x0": pd.to_datetime(pd.Series(NOON))}),
    "pandas with a zone": pd.DataFrame({"x0": pd.to_datetime(pd.Series(BERLIN)).dt.tz_convert("Europe/Berlin")}),
    "pandas objects": pd.DataFrame({"x0": pd.Series(NOON, dtype=object)}),
    "pandas on arrow": pd.DataFrame({"x0": pd.Series(NOON, dtype=pd.ArrowDtype(pa.timestamp("us")))}),
    "polars": pl.DataFrame({"x0": NOON}),
    "polars with a zone": pl.DataFrame({"x0": pl.Series(BERLIN).dt.convert_time_zone("Europe/Berlin")}),
    "arrow": pa.table({"x0": pa.array(NOON, pa.timestamp("ms"))}),
    "arrow with a zone": pa.table({"x0": pa.array(BERLIN, pa.timestamp("ns", "Europe/Berlin"))}),
}


@pytest.mark.parametrize("kind", TIMES)
def test_times_of_every_library_are_the_same_seconds(kind):
    """Whatever unit and zone they come in, with NaN for what is missing."""
    column = read_table(TIMES[kind]).columns[0]
    assert column.rule == "time"
    np.testing.assert_array_equal(column.values, IN_SECONDS)


@pytest.mark.parametrize(
    "X",
    [
        np.array(WAITS, "timedelta64[us]")[:, None],
        pd.DataFrame({"x0": pd.to_timedelta(pd.Series(WAITS))}),
        pl.DataFrame({"x0": WAITS}),
        pa.table({"x0": pa.array(WAITS, pa.duration("us"))}),
        pd.DataFrame({"x0": pd.Series(WAITS, dtype=object)}),
    ],
)
def test_durations_are_seconds(X):
    """Negative ones too."""
    column = read_table(X).columns[0]
    assert column.rule == "duration"
    np.testing.assert_array_equal(column.values, [3600.0, np.nan, -1e-6])


def test_times_of_the_day_are_durations_since_midnight():
    """polars and arrow have them."""
    noon = [dt.time(12), None]
    for X in (pl.DataFrame({"at": noon}), pa.table({"at": noon})):
        column = read_table(X).columns[0]
        assert column.rule == "duration"
        np.testing.assert_array_equal(column.values, [43_200.0, np.nan])


@given(st.datetimes(*map(dt.datetime.fromisoformat, ["1700-01-01", "2200-01-01"])))
def test_the_unit_does_not_show(when):
    """A time is the same number as a Python object, in microseconds, in nanoseconds and as text."""
    number = seconds_of_value(when)
    for unit in ("us", "ns"):
        assert seconds_of(np.array([when], f"datetime64[{unit}]"))[0] == number
    assert seconds_of_value(pd.Timestamp(when)) == number
    assert seconds_of_text(when.isoformat()) == number


@given(st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)))
def test_a_date_is_its_first_second(day):
    """As a Python object, of numpy's type, of arrow's, and written down and read again."""
    number = seconds_of_value(day)
    assert seconds_of(np.array([day], "datetime64[D]"))[0] == number
    assert read_table(pa.table({"x": [day]})).columns[0].values[0] == number
    assert seconds_of_text(written(number)) == number


def test_months_are_no_durations():
    """How long one is nobody can say."""
    with pytest.raises(InvalidInput, match=r"timedelta64\[M\], which is neither numbers nor levels"):
        read_table(np.array([[3]], "timedelta64[M]"))


DAYS = [dt.date(2026, 1, 1) + dt.timedelta(days=k) for k in range(60)]
LATE = [int(k > 25) for k in range(60)]


@pytest.fixture(scope="module")
def model():
    """Trained on dates."""
    return BoostedTreesClassifier(max_iter=3, min_child_weight=0.0).fit(pa.table({"day": DAYS}), LATE)


def test_a_model_predicts_other_units_alike(model, tmp_path):
    """Dates at training, timestamps of any unit at prediction; and so does the model that its file holds."""
    expected = model.predict_proba(pa.table({"day": DAYS}))
    assert (model.predict(pa.table({"day": DAYS})) == LATE).all()
    model.save_model(tmp_path / "model.json")
    for one in (model, load_model(tmp_path / "model.json")):
        for unit in ("s", "ms", "us", "ns"):
            table = pa.table({"day": pa.array(DAYS, pa.date32()).cast(pa.timestamp(unit))})
            np.testing.assert_array_equal(one.predict_proba(table), expected)
        np.testing.assert_array_equal(one.predict_proba(pl.DataFrame({"day": DAYS})), expected)


def test_a_model_of_dates_takes_no_numbers(model):
    """Nor the other way round: a number could be of any unit."""
    with pytest.raises(InvalidInput, match="'day' holds dates or times in the model, but numbers here"):
        model.predict(pa.table({"day": [1.0]}))
    unnamed = BoostedTreesClassifier(max_iter=1).fit(np.array(DAYS, "datetime64[D]")[:, None], LATE)
    with pytest.raises(InvalidInput, match="holds dates or times in the model, but numbers here"):
        unnamed.predict(np.array([[1.0]]))
    numbers = BoostedTreesClassifier(max_iter=1).fit(np.arange(60.0)[:, None], LATE)
    with pytest.raises(InvalidInput, match="holds numbers in the model, but dates or times here"):
        numbers.predict(np.array(DAYS, "datetime64[D]")[:, None])
    assert len(model.predict(pd.DataFrame({"day": pd.Series([None, None], dtype=object)}))) == 2


def test_the_model_file_says_so_in_version_2(model):
    """Version 1, which older releases read, is written where no column has a rule; it may not have any."""
    document = model.ensemble_.to_dict()
    assert (document["version"], document["features"][0]["rule"]) == (2, "time")
    plain = BoostedTreesClassifier(max_iter=1).fit(np.arange(60.0)[:, None], LATE)
    assert plain.ensemble_.to_dict()["version"] == 1
    for wrong, message in (
        ({"version": 1}, 'has a field "rule"'),
        ({"features": [{**document["features"][0], "rule": "hash"}]}, "must be one of time, duration"),
    ):
        with pytest.raises(ModelFileError, match=message):
            type(model.ensemble_).from_dict({**document, **wrong})


def test_dates_and_numbers_do_not_mix():
    """In one column of Python objects."""
    with pytest.raises(InvalidInput, match="column 'x0' mixes numbers and dates"):
        read_table(np.array([[dt.date(2026, 1, 1)], [3]], object))


# --- public bounds ---------------------------------------------------------------------------------------------------


def test_a_schema_has_dates_for_bounds(tmp_path):
    """As dates, times and durations, in its file too, for people to read."""
    schema = Schema.from_public(
        bounds={
            "day": (dt.date(2026, 1, 1), dt.date(2026, 3, 1)),
            "at": (dt.datetime.fromisoformat("2026-01-01T12:00"), np.datetime64("2026-02-01")),
            "wait": (dt.timedelta(0), dt.timedelta(hours=1)),
            "age": (0, 120),
        },
        classes=[0, 1],
    )
    assert [column.rule for column in schema.columns] == ["time", "time", "duration", None]
    assert schema["day"].low == seconds_of_value(dt.date(2026, 1, 1))
    schema.save(tmp_path / "schema.json")
    assert "2026-01-01T12:00:00" in (tmp_path / "schema.json").read_text()
    assert Schema.load(tmp_path / "schema.json") == schema


def test_a_public_table_has_dates_and_truth_values():
    """Bounds are read off it; truth values are 0 and 1."""
    schema = Schema.from_public(pa.table({"day": DAYS, "open": [True] * 60, "late": LATE}), label="late")
    assert (schema["day"].low, schema["day"].high) == (seconds_of_value(DAYS[0]), seconds_of_value(DAYS[-1]))
    assert (schema["open"].low, schema["open"].high, schema["open"].integer) == (0.0, 1.0, True)


def test_private_training_on_dates(tmp_path):
    """Text that is a date counts as one, what is none as a gap, and a column of another type is refused."""
    schema = Schema.from_public(bounds={"day": (DAYS[0], DAYS[-1])}, may_be_missing=["day"], classes=[0, 1])
    how = {"schema": schema, "epsilon": float("inf"), "max_iter": 2, "max_depth": 2}
    model = DPBoostClassifier(**how).fit(pa.table({"day": DAYS}), LATE)
    model.save_model(tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(pl.DataFrame({"day": DAYS})), model.predict(pa.table({"day": DAYS})))
    odd = pd.DataFrame({"day": [day.isoformat() for day in DAYS[:-1]] + ["n/a"]})
    DPBoostClassifier(**how).fit(odd, LATE)
    with pytest.raises(InvalidInput, match="holds dates or times in the model, but numbers here"):
        DPBoostClassifier(**how).fit(np.arange(60.0)[:, None], LATE)


def test_owners_of_rows_with_dates_and_files(tmp_path):
    """One owner's dates are in a Parquet file, the other's in memory: the model is that of all rows together."""
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    table = pa.table({"day": DAYS * 5, "open": rng.random(300) < 0.5, "late": LATE * 5})
    pq.write_table(table.slice(0, 150), tmp_path / "a.parquet")
    rest, params = [table.slice(150, 70), table.slice(220)], {"max_iter": 2, "max_depth": 3}
    owners = {
        name: (part.drop(["late"]), part.column("late").to_numpy()) for name, part in zip("bc", rest, strict=True)
    }
    owners["a"] = (str(tmp_path / "a.parquet"), "late")
    run = Federation.horizontal(owners).fit("horizontal.secure_sum", **params)
    features = table.drop(["late"])
    pooled = BoostedTreesClassifier(**params).fit(features, LATE * 5)
    np.testing.assert_array_equal(run.model.predict_proba(features), pooled.predict_proba(features))
    assert [feature.rule for feature in run.model.ensemble_.features] == ["time", None]


def test_bins_of_another_rule_are_not_these():
    """Two features that differ by their rule alone are not equal, and codes of one are not those of the other."""
    times = read_table(pa.table({"day": DAYS}))
    mapper = BinMapper.fit(times, 10)
    numbers = read_table(pa.table({"day": times.columns[0].values}))
    assert BinMapper.fit(numbers, 10) != mapper
    with pytest.raises(InvalidInput, match="read the table with like="):
        mapper.transform(numbers)
