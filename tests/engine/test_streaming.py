"""Tables that are read block by block are binned as those in memory, bit for bit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hedgerow.engine import blocks as reading
from hedgerow.engine import edge_search, streaming
from hedgerow.engine.binning import BinMapper, FeatureBins, whole_weights
from hedgerow.engine.blocks import Blocks
from hedgerow.engine.edge_search import EdgeSearch, merge
from hedgerow.engine.streaming import RowChoice, ask, code_blocks, fit_bins, write_codes
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType
from hedgerow.node.sources import is_streamed


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Several batches in a row group, and points that are told of few values only."""
    monkeypatch.setattr(reading, "BATCH_VALUES", 2000)
    monkeypatch.setattr(reading, "FEWEST_ROWS", 50)
    monkeypatch.setattr(edge_search, "POINTS", 500)
    monkeypatch.setattr(streaming, "COLUMNS_READ", 5)
    monkeypatch.setattr(streaming, "COLUMNS_SEARCHED", 3)


def mixed(n_rows=5000, seed=0) -> pa.Table:
    """Columns of every type that a table in memory may have."""
    rng = np.random.default_rng(seed)
    holes = rng.random(n_rows) < 0.1
    small, text = rng.integers(-9, 90, n_rows), np.array(["b", "a", "", "zé", "d"])[rng.integers(0, 5, n_rows)]
    large = rng.integers(-(2**60), 2**60, n_rows)
    return pa.table(
        {
            "single": pa.array(rng.normal(size=n_rows).astype(np.float32)),
            "double": pa.array(np.where(holes, np.nan, rng.normal(size=n_rows))),
            "nulls": pa.array(rng.normal(size=n_rows), mask=holes),
            "small": pa.array(small, pa.int16()),
            "large": pa.array(large),
            "whole": pa.array(rng.integers(0, 2**26, n_rows), mask=holes),
            "unsigned": pa.array(rng.integers(0, 2**63, n_rows).astype(np.uint64) * 2),
            "yes": pa.array(rng.random(n_rows) < 0.3, mask=holes),
            "text": pa.array(text.tolist(), mask=holes),
            "category": pa.array(text.tolist()).dictionary_encode(),
            "half": pa.array(rng.normal(size=n_rows).astype(np.float16)),
            "nothing": pa.nulls(n_rows),
            "level": pa.array(small % 7, pa.int8()),
        }
    )


def written(folder, table, limits=(1500, 1500, 4000), row_group_size=900):
    """The table as files of a folder, split at `limits`."""
    folder.mkdir(exist_ok=True)
    for number, (a, b) in enumerate(zip((0, *limits), (*limits, table.num_rows), strict=True)):
        pq.write_table(table.slice(a, b - a), folder / f"part-{number}.parquet", row_group_size=row_group_size)
    return folder


def same_bins(mapper, other):
    """Equal to the last bit."""
    assert [f.name for f in mapper.features] == [f.name for f in other.features]
    assert mapper == other


@pytest.mark.parametrize("categorical", ["from_dtype", ["level", "text", "category"], [8, 9, 12]])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_bins_and_codes_are_those_of_the_whole_table(tmp_path, categorical, n_threads):
    """With every type of column, missing values, files of any length, one of them empty."""
    table = mixed()
    blocks = Blocks(written(tmp_path / "rows", table))
    whole = read_table(table, categorical_features=categorical)
    expected = BinMapper.fit(whole, 40)
    mapper = fit_bins(blocks, 40, categorical_features=categorical, n_threads=n_threads)
    same_bins(mapper, expected)
    codes = np.empty((table.num_columns, table.num_rows), np.uint8)
    batches = blocks.batches(blocks.names)
    assert write_codes(batches, mapper, RowChoice(), codes, n_threads=n_threads) == table.num_rows
    np.testing.assert_array_equal(codes, expected.transform(whole))
    codes[:] = 0
    code_blocks(blocks, mapper, RowChoice(), codes, n_threads=n_threads)
    np.testing.assert_array_equal(codes, expected.transform(whole))


def test_rows_may_be_chosen_and_weighted(tmp_path):
    """Rows that are left out count as little as those that are not there."""
    table, rng = mixed().drop_columns(["text", "category"]), np.random.default_rng(1)
    blocks = Blocks(written(tmp_path / "rows", table))
    weights = rng.choice([0.0, 0.5, 2.25], table.num_rows)
    keep = weights > 0
    counted = whole_weights(weights[keep])
    spread = np.zeros(table.num_rows, np.int64)
    spread[keep] = counted
    kept = read_table(table.filter(pa.array(keep)))
    expected = BinMapper.fit(kept, 30, weights[keep])
    choice = RowChoice(keep, spread)
    mapper = fit_bins(blocks, 30, choice)
    same_bins(mapper, expected)
    codes = np.empty((table.num_columns, int(keep.sum())), np.uint8)
    write_codes(blocks.batches(blocks.names), mapper, choice, codes)
    np.testing.assert_array_equal(codes, expected.transform(kept))


def test_pieces_can_be_worked_on_elsewhere(tmp_path):
    """Parts of about equal size hold every row once, in order, and can be coded one by one."""
    table = mixed()
    blocks = Blocks(written(tmp_path / "rows", table))
    parts = blocks.parts(3)
    assert [piece for part in parts for piece in part] == list(blocks.pieces)
    assert all(1000 < sum(piece.n_rows for piece in part) < 2500 for part in parts)
    mapper = fit_bins(blocks, 20)
    whole = mapper.transform(read_table(table, like=mapper.features))
    for part in parts:
        first, n_rows = part[0].first_row, sum(piece.n_rows for piece in part)
        codes = np.empty((table.num_columns, n_rows), np.uint8)
        write_codes(blocks.batches(blocks.names, part), mapper, RowChoice(offset=first), codes)
        np.testing.assert_array_equal(codes, whole[:, first : first + n_rows])


def test_some_may_have_no_rows_to_tell_of(tmp_path):
    """All rows of a part may have been left out: its answers count nothing, to either question."""
    table = pa.table({"x": np.random.default_rng(0).normal(size=4000)})
    blocks = Blocks(written(tmp_path / "rows", table, (2000,)))
    keep = np.arange(4000) < 2000
    (expected,) = BinMapper.fit(read_table(table.slice(0, 2000)), 30).features
    search, feature = EdgeSearch(2000, 29), FeatureBins("x", edges=[])
    parts = blocks.parts(2)
    while search.question is not None:
        answers = [
            ask(blocks.batches(["x"], part), [feature], {"x": search.question}, RowChoice(keep))["x"] for part in parts
        ]
        assert not len(answers[1].values)
        search.learn(merge(answers))
    assert search.edges.tobytes() == expected.edges.tobytes()


def test_a_list_of_files_keeps_its_order(tmp_path):
    """And a single file is a list of one."""
    table = pa.table({"x": np.arange(3000.0)})
    folder = written(tmp_path / "rows", table, (1000, 2000))
    paths = [folder / f"part-{number}.parquet" for number in (2, 0, 1)]
    found = np.concatenate([batch["x"].to_numpy() for _, batch in Blocks(paths).batches(["x"])])
    np.testing.assert_array_equal(found, np.roll(np.arange(3000.0), 1000))
    assert Blocks(str(paths[0])).n_rows == 1000


def test_levels_that_a_type_declares_are_kept(tmp_path):
    """Although no row has them; unless there are too many of them."""
    few = pa.DictionaryArray.from_arrays(pa.array([0, 2] * 10), pa.array(["x", "never", "y"]))
    many = pa.DictionaryArray.from_arrays(pa.array([0, 299] * 10), pa.array([f"{k:03}" for k in range(300)]))
    table = pa.table({"few": few, "many": many})
    mapper = fit_bins(Blocks(written(tmp_path / "rows", table, (8,))), 10)
    same_bins(mapper, BinMapper.fit(read_table(pq.read_table(tmp_path / "rows" / "part-0.parquet")), 10))
    assert mapper.features[1].levels == ("000", "299")


def test_a_column_without_values_in_some_files_has_the_type_of_the_others(tmp_path):
    """Whichever file comes first."""
    for name, column in (("a", pa.nulls(5)), ("b", pa.array([1.5, 2.5])), ("c", pa.nulls(3))):
        pq.write_table(pa.table({"x": column}), tmp_path / f"{name}.parquet")
    blocks = Blocks(tmp_path)
    assert blocks.types == {"x": pa.float64()}
    assert sum(batch["x"].null_count for _, batch in blocks.batches(["x"])) == 8


class TestRefusals:
    """What cannot be worked on is said before the work begins, and names the file."""

    def test_files_that_differ(self, tmp_path):
        """In columns, their order or their types."""
        pq.write_table(pa.table({"x": [1.0], "y": [1]}), tmp_path / "a.parquet")
        for other, said in (
            ({"x": [1.0]}, "lacks 'y'"),
            ({"y": [1], "x": [1.0]}, "another order"),
            ({"x": ["1"], "y": [1]}, "column 'x' is string here and double"),
        ):
            pq.write_table(pa.table(other), tmp_path / "b.parquet")
            with pytest.raises(InvalidInput, match=rf"b\.parquet.*{said}"):
                Blocks(tmp_path)

    def test_what_is_no_parquet(self, tmp_path):
        """A file of other bytes, one that is cut off, an empty folder, nothing at all, a folder in a folder."""
        with pytest.raises(InvalidInput, match="no Parquet file"):
            Blocks(tmp_path)
        with pytest.raises(InvalidInput, match="there is no such file"):
            Blocks(tmp_path / "nothing.parquet")
        pq.write_table(pa.table({"x": np.arange(1000.0)}), tmp_path / "a.parquet")
        (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-40])
        with pytest.raises(InvalidInput, match=r"b\.parquet: cannot be read as Parquet"):
            Blocks(tmp_path)
        (tmp_path / "b.parquet").unlink()
        (tmp_path / "c").mkdir()
        with pytest.raises(InvalidInput, match="this is a folder"):
            Blocks(tmp_path)

    def test_columns_that_are_not_there(self, tmp_path):
        """Target, weight, dropped and chosen ones; no columns and no rows."""
        pq.write_table(pa.table({"x": [1.0], "y": [1]}), tmp_path / "a.parquet")
        for wrong in ({"target": "z"}, {"weight": "z"}, {"drop": ["z"]}, {"columns": ["z"]}):
            with pytest.raises(InvalidInput, match="there is no column 'z'; it has 'x', 'y'"):
                Blocks(tmp_path, **wrong)
        with pytest.raises(InvalidInput, match="no columns beside"):
            Blocks(tmp_path, target="x", drop=["y"])
        with pytest.raises(InvalidParameter, match="lists of names"):
            Blocks(tmp_path, drop="y")
        with pytest.raises(InvalidType, match="got int"):
            Blocks(3)
        pq.write_table(pa.table({"x": pa.array([], pa.float64())}), tmp_path / "a.parquet")
        with pytest.raises(InvalidInput, match="there are no rows"):
            Blocks(tmp_path)

    def test_types_that_are_neither_numbers_nor_levels(self, tmp_path):
        """Lists, as in a table in memory; but not in columns that are left out."""
        pq.write_table(pa.table({"x": [1.0], "seen": [[1, 2]]}), tmp_path / "a.parquet")
        with pytest.raises(InvalidInput, match="'seen' has dtype list"):
            Blocks(tmp_path)
        assert Blocks(tmp_path, drop=["seen"]).names == ("x",)

    def test_too_many_levels(self, tmp_path):
        """By the column's name, with the ways out."""
        table = pa.table({"id": [str(k) for k in range(400)]})
        with pytest.raises(InvalidInput, match=r"column 'id' has 400 levels, but at most 255 .* many_levels='hash'"):
            fit_bins(Blocks(written(tmp_path / "rows", table, (100, 200))), 10)


@pytest.mark.parametrize("many_levels", ["hash", "frequent"])
def test_many_levels_and_dates_are_those_of_memory(tmp_path, many_levels):
    """Groups of levels and seconds are the same, whatever blocks rows come in."""
    rng = np.random.default_rng(0)
    shops = [f"shop {k}" for k in rng.zipf(1.3, 3000) % 900]
    days = np.datetime64("2026-01-01", "D") + rng.integers(0, 900, 3000).astype("timedelta64[D]")
    waits = pa.array(rng.integers(0, 5000, 3000), pa.duration("ms"))
    table = pa.table({"shop": shops, "day": days, "wait": waits, "open": rng.random(3000) < 0.5})
    blocks = Blocks(written(tmp_path / "rows", table, (700, 1100)))
    found = fit_bins(blocks, 32, many_levels=many_levels)
    assert found == BinMapper.fit(read_table(table, many_levels=many_levels), 32)
    assert [feature.rule for feature in found.features] == [many_levels, "time", "duration", None]
    codes = np.empty((4, 3000), np.uint8)
    code_blocks(blocks, found, RowChoice(), codes)
    np.testing.assert_array_equal(codes, found.transform(read_table(table, like=found.features)))


class TestFilesThatDoNotStay:
    """A file that changes while it is worked on is named."""

    def test_it_vanishes(self, tmp_path):
        """Between one file and the next."""
        blocks = Blocks(written(tmp_path / "rows", mixed()))
        batches = blocks.batches(blocks.names)
        next(batches)
        (tmp_path / "rows" / "part-3.parquet").unlink()
        with pytest.raises(InvalidInput, match=r"part-3\.parquet: there is no such file any more"):
            list(batches)

    def test_it_is_another_one(self, tmp_path):
        """Of the same size, written anew; in the middle of a row group, too."""
        folder = written(tmp_path / "rows", mixed())
        blocks = Blocks(folder)
        batches = blocks.batches(blocks.names)
        next(batches)
        content = (folder / "part-0.parquet").read_bytes()
        (folder / "part-0.parquet").write_bytes(content[: len(content) // 2])
        with pytest.raises(InvalidInput, match=r"part-0\.parquet: the file has changed since"):
            next(batches)

    def test_its_bytes_are_damaged(self, tmp_path):
        """Pages that cannot be decoded, in a file that looks well from outside."""
        path = written(tmp_path / "rows", mixed(), ()) / "part-0.parquet"
        content = bytearray(path.read_bytes())
        content[50 : len(content) // 2] = b"\xff" * (len(content) // 2 - 50)
        path.write_bytes(content)
        blocks = Blocks(path)
        with pytest.raises(InvalidInput, match=r"part-0\.parquet: cannot be read as Parquet"):
            fit_bins(blocks, 10)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A Parquet file, and a place to write damaged ones to."""
    path = tmp_path_factory.mktemp("damaged") / "rows.parquet"
    pq.write_table(mixed(600), path, row_group_size=250)
    return path, path.read_bytes()


@given(places=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=4)), min_size=1, max_size=5))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_is_an_error_of_ours(sound, places):
    """Bytes that were changed, in front as well as at the end where sizes stand: all rows are read, or a sentence."""
    path, content = sound
    damaged = bytearray(content)
    for place, other in places:
        at = int(place * (len(content) - len(other)))
        damaged[at : at + len(other)] = other
    path.write_bytes(damaged)
    try:
        is_streamed(path)
        blocks = Blocks(path)
        mapper = fit_bins(blocks, 10)
        codes = np.empty((len(mapper.features), min(blocks.n_rows, 10_000)), np.uint8)
        assert write_codes(blocks.batches(blocks.names), mapper, RowChoice(), codes) == blocks.n_rows
    except (InvalidInput, InvalidType):
        return
