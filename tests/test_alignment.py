from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hedgerow.crypto.identifiers import IdRule
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType
from hedgerow.federation.alignment import Alignment, align, split_ids, take_rows
from hedgerow.transport.emulate import Link

BANK = [f"c-{i:02}" for i in range(30)]
SHOP = [f"c-{i:02}" for i in range(40, 10, -1)]
MAIL = ["c-15", "c-99", "c-20", "c-12"]


def assert_joined(ids, found):
    """Everybody's rows are those of the common ids, in one order."""
    common = set.intersection(*map(set, ids.values()))
    lists = [[column[row] for row in found.rows[name].tolist()] for name, column in ids.items()]
    assert all(one == lists[0] for one in lists)
    assert sorted(lists[0]) == sorted(common)
    assert found.n_common == len(common)
    assert found.sizes == {name: len(column) for name, column in ids.items()}


# Aligning


@pytest.mark.parametrize("comparer", [None, "shop"])
def test_rows_of_common_ids_in_one_order(comparer):
    """All parties' rows are those of the join, in the order of the parties as they were given."""
    ids = {"bank": BANK, "shop": SHOP, "mail": MAIL}
    found = align(ids, comparer=comparer)
    assert_joined(ids, found)
    assert list(found.rows) == list(found.sizes) == list(found.ledgers) == list(found.meters) == list(ids)
    assert found.job.comparer == (comparer or "bank")
    assert found.rule == IdRule()
    assert found.seconds > 0
    assert str(found) == "Alignment of bank, shop, mail: 3 common ids"


def test_processes_find_the_same_join():
    """Over gRPC, with each party in a process of its own, the join and the kinds and sizes of messages are the same."""
    rng = np.random.default_rng(0)
    ids = {name: [f"id {i}\x00" for i in rng.permutation(330)[:300].tolist()] for name in ("a", "b", "c")}
    found = align(ids, transport="grpc", comparer="b", block=256, n_jobs=2)
    assert_joined(ids, found)
    twin = align(ids, comparer="b", block=256)
    for name in ids:
        assert found.meters[name].to_dict() == twin.meters[name].to_dict()
    assert found.transport == "grpc"


def test_errors_of_processes_name_the_party():
    """Bad ids in one process end all of them, with the party's own error."""
    with pytest.raises(InvalidInput, match=r"shop: column 'id' holds 1 missing ids of 2"):
        align({"bank": ["a", "b"], "shop": ["a", None]}, transport="grpc")


@pytest.mark.parametrize(
    "made",
    [
        list,
        tuple,
        np.array,
        lambda values: np.array(values, object),
        pd.Series,
        lambda values: pd.Series(values, index=range(len(values), 0, -1)),
        lambda values: pd.Series(values, dtype="category"),
        lambda values: pd.Series(values, dtype=object),
        pd.Index,
        pl.Series,
        lambda values: pl.Series(values, dtype=pl.Categorical),
        pa.array,
        lambda values: pa.chunked_array([values[:7], values[7:]]),
        lambda values: pa.array(values).dictionary_encode(),
        iter,
    ],
)
def test_columns_of_all_kinds(made):
    """Ids are read from lists, arrays, series and columns, by position."""
    found = align({"bank": made(BANK), "shop": SHOP})
    assert_joined({"bank": BANK, "shop": SHOP}, found)


@pytest.mark.parametrize(
    "made",
    [
        list,
        np.array,
        lambda values: np.array(values, np.uint8),
        pd.Series,
        lambda values: pd.Series(values, dtype="Int64"),
        pl.Series,
        pa.array,
    ],
)
def test_whole_numbers_are_compared_as_such(made):
    """If all columns hold whole numbers, the rule is that for whole numbers."""
    numbers = [91, 5, 7, 0, 12]
    found = align({"bank": made(numbers), "shop": [12, 7, 91]})
    assert found.rule == IdRule("integer")
    assert_joined({"bank": numbers, "shop": [12, 7, 91]}, found)


def test_numbers_and_text_are_not_mixed_silently():
    """Where one column is text, numbers elsewhere are refused, unless the rule says what they are."""
    ids = {"bank": [7, 8, 9], "shop": ["007", "8", "10"]}
    with pytest.raises(InvalidType, match=r"bank: column 'id' holds 3 ids of 3 that are not text"):
        align(ids)
    found = align(ids, rule={**IdRule("integer").to_dict()})
    assert {name: sorted(rows.tolist()) for name, rows in found.rows.items()} == {"bank": [0, 1], "shop": [0, 1]}


@pytest.mark.parametrize("value", [1.5, b"bytes", pd.Timestamp("2020-01-01"), True])
def test_what_is_no_id_is_counted_and_not_shown(value):
    """Values that no rule takes for an id are refused with party, column and count."""
    with pytest.raises(InvalidType, match=r"^bank: column 'customer' holds 1 ids of 2 that are not text, which"):
        align({"bank": ["a", value], "shop": ["a", "b"]}, column="customer")


def test_missing_ids_are_refused():
    """A gap is counted, in whatever way it is marked."""
    for gap in (None, float("nan"), pd.NA, pd.NaT):
        with pytest.raises(InvalidInput, match="bank: column 'id' holds 1 missing ids of 2"):
            align({"bank": ["a", gap], "shop": ["a", "b"]})


def test_duplicates():
    """An id in two rows is refused with a count; the first row is taken if that is wanted."""
    ids = {"bank": ["x", "y", "x"], "shop": ["y", "x"]}
    with pytest.raises(InvalidInput, match=r"bank: column 'id' holds 1 rows of 3 whose id stands in an earlier row"):
        align(ids)
    found = align(ids, duplicates="first")
    assert dict(zip(found.rows["bank"].tolist(), found.rows["shop"].tolist(), strict=True)) == {0: 1, 1: 0}
    assert found.sizes == {"bank": 2, "shop": 2}


@pytest.mark.parametrize("transport", ["memory", "grpc"])
def test_too_few_common_ids(transport):
    """A result that is too small is an error that does not tell its size."""
    with pytest.raises(InvalidInput, match=r"bank: fewer than 2 ids are common to all parties") as caught:
        align({"bank": ["a", "b"], "shop": ["a", "c"]}, transport=transport)
    assert " 1 " not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"ids": ["a"]}, InvalidInput, "takes a dict of two or more parties"),
        ({"ids": {"bank": ["a"]}}, InvalidInput, "takes a dict of two or more parties"),
        ({"ids": {"bank": "text", "shop": ["a"]}}, InvalidType, "bank: column 'id' must be a column of ids"),
        ({"ids": {"bank": np.zeros((2, 2)), "shop": ["a"]}}, InvalidType, "bank: column 'id' must be one column"),
        ({"ids": {"../bank": ["a"], "shop": ["a"]}}, InvalidParameter, "a party's name"),
        ({"transport": "pigeon"}, InvalidParameter, "transport"),
        ({"deadline": 0}, InvalidParameter, "deadline"),
        ({"comparer": "eve"}, InvalidParameter, "comparer"),
        ({"rule": "text"}, InvalidParameter, "rule"),
        ({"rule": {"kind": "text"}}, InvalidParameter, "id rule"),
        ({"duplicates": "last"}, InvalidParameter, "duplicates"),
        ({"minimum": 0}, InvalidParameter, "minimum"),
    ],
)
def test_bad_arguments(change, error, words):
    """Every argument is checked, and the error says which is wrong."""
    arguments = {"ids": {"bank": ["a", "b"], "shop": ["a", "b"]}, **change}
    with pytest.raises(error, match=words):
        align(arguments.pop("ids"), **arguments)


def test_progress_is_told(caplog):
    """Blocks of all sets are counted, to a program and to a person."""
    told = []
    with caplog.at_level("INFO", logger="hedgerow"):
        align(
            {"bank": list(map(str, range(300))), "shop": list(map(str, range(100)))},
            block=256,
            verbose=1,
            on_progress=lambda *step: told.append(step),
        )
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert sum("blocks of ids" in line for line in caplog.messages) == 3


def test_a_slow_link_changes_nothing():
    """With an emulated network the join is the same."""
    ids = {"bank": BANK, "shop": SHOP}
    assert_joined(ids, align(ids, link=Link(round_trip=0.01, bandwidth=1e8)))


def test_statement_and_ledgers():
    """They say what was disclosed: numbers in the clear, ids blinded."""
    found = align({"bank": BANK, "shop": SHOP, "mail": MAIL})
    words = " ".join(str(found.statement()).split())
    assert "3 ids are common to all (bank 30, shop 30, mail 4)" in words
    assert "bank, which compared blinded ids, also learned how many ids each group" in words
    facts = found.statement().to_dict()
    assert facts["n_ids"] == {"bank": 30, "shop": 30, "mail": 4}
    assert facts["rule"] == IdRule().to_dict()
    assert "blinded with a key that the receiver does not know" in found.ledgers["shop"].to_text()


# Files


def test_saved_alignments_come_back(tmp_path):
    """All that was saved is loaded again; the file for all holds nobody's rows."""
    found = align({"bank": BANK, "shop": SHOP}, rule=IdRule(case="fold"), minimum=3)
    found.save(tmp_path / "run")
    back = Alignment.load(tmp_path / "run")
    for name in found.rows:
        assert np.array_equal(back.rows[name], found.rows[name])
        assert list(back.ledgers[name]) == list(found.ledgers[name])
        assert back.meters[name].to_dict() == found.meters[name].to_dict()
    for what in ("job", "sizes", "n_common", "seconds", "transport", "rule"):
        assert getattr(back, what) == getattr(found, what)
    back.reconcile()
    about = (tmp_path / "run" / "alignment.json").read_text()
    assert "rows" not in json.loads(about)
    assert not any(value in about for value in BANK)
    assert sorted(p.relative_to(tmp_path / "run").as_posix() for p in (tmp_path / "run").rglob("*.*")) == [
        "alignment.json", "bank/ledger.jsonl", "bank/rows.npy", "shop/ledger.jsonl", "shop/rows.npy",
    ]  # fmt: skip


def test_one_party_loads_its_own_part(tmp_path):
    """With its own sub-folder alone a party has its rows and what all know."""
    found = align({"bank": BANK, "shop": SHOP})
    found.save(tmp_path)
    for file in (tmp_path / "bank").iterdir():
        file.unlink()
    back = Alignment.load(tmp_path)
    assert list(back.rows) == ["shop"]
    assert np.array_equal(back.rows["shop"], found.rows["shop"])
    assert back.statement().facts["n_common"] == found.n_common


def test_what_is_no_saved_alignment_is_refused(tmp_path):
    """Empty folders, other files, and rows that do not fit are errors that say so."""
    with pytest.raises(InvalidInput, match="no saved alignment"):
        Alignment.load(tmp_path)
    (tmp_path / "alignment.json").write_text("{}")
    with pytest.raises(InvalidInput, match="not an alignment of a kind"):
        Alignment.load(tmp_path)
    align({"bank": BANK, "shop": SHOP}).save(tmp_path)
    np.save(tmp_path / "bank" / "rows.npy", np.arange(3))
    with pytest.raises(InvalidInput, match=r"bank: .* should hold 19 rows"):
        Alignment.load(tmp_path)
    for name in ("bank", "shop"):
        (tmp_path / name / "rows.npy").unlink()
    with pytest.raises(InvalidInput, match="holds the rows of none"):
        Alignment.load(tmp_path)


# Tables

ROWS = np.array([2, 0])
COLUMNS = {"a": [1.0, 2.0, 3.0], "key": ["x", "y", "z"], "b": [4, 5, 6]}


def test_rows_are_taken_by_position():
    """Tables and columns of all kinds give the rows in the order that was asked for."""
    frame = pd.DataFrame(COLUMNS, index=[2, 1, 0])
    assert take_rows(frame, ROWS)["key"].tolist() == ["z", "x"]
    assert take_rows(frame["key"], ROWS).tolist() == ["z", "x"]
    assert take_rows(pl.DataFrame(COLUMNS), ROWS)["key"].to_list() == ["z", "x"]
    assert take_rows(pl.Series(COLUMNS["key"]), ROWS).to_list() == ["z", "x"]
    assert take_rows(pa.table(COLUMNS), ROWS)["key"].to_pylist() == ["z", "x"]
    assert take_rows(pa.chunked_array([["x"], ["y", "z"]]), ROWS).to_pylist() == ["z", "x"]
    assert take_rows(np.arange(6).reshape(3, 2), ROWS).tolist() == [[4, 5], [0, 1]]
    assert take_rows(["x", "y", "z"], ROWS) == ["z", "x"]
    assert take_rows(("x", "y", "z"), ROWS) == ("z", "x")
    with pytest.raises(InvalidType, match="got dict"):
        take_rows(COLUMNS, ROWS)


@pytest.mark.parametrize("made", [pd.DataFrame, pl.DataFrame, pa.table])
def test_ids_are_taken_out_of_tables(made):
    """The column of ids leaves the table, whose other columns stay as they are; a missing one names the party."""
    table = made(COLUMNS)
    ids, others = split_ids(table, "key", "bank: X")
    assert list(map(str, ids)) == ["x", "y", "z"]
    assert list(getattr(others, "column_names", None) or others.columns) == ["a", "b"]
    assert "key" in (getattr(table, "column_names", None) or table.columns)
    with pytest.raises(InvalidInput, match=r"bank: X: there is no column 'customer' to take ids from; there are 'a'"):
        split_ids(table, "customer", "bank: X")


def test_ids_are_taken_out_of_arrays():
    """Of an array by number; whole numbers among floats become integers again."""
    table = np.array([[1.5, 7.0], [2.5, 9.0]])
    ids, others = split_ids(table, 1, "bank")
    assert ids.tolist() == [7, 9]
    assert ids.dtype == np.int64
    assert others.tolist() == [[1.5], [2.5]]
    assert split_ids(table, 0, "bank")[0].dtype == np.float64  # no ids, which aligning will say
    for bad in ("key", 2, -1, True):
        with pytest.raises(InvalidInput, match="bank: there is no column"):
            split_ids(table, bad, "bank")
    with pytest.raises(InvalidInput, match="cannot be kept in float32"):
        split_ids(np.array([[2.0**24, 1.0]], np.float32), 0, "bank")
    with pytest.raises(InvalidInput, match="bank: ids are taken out of a table"):
        split_ids(np.zeros(3), 0, "bank")
    with pytest.raises(InvalidType, match=r"bank: .* structured"):
        split_ids(np.zeros(3, [("key", "i8")]), "key", "bank")
    with pytest.raises(InvalidType, match=r"bank: .* got list"):
        split_ids([[1]], 0, "bank")


def test_two_columns_of_one_name_are_refused():
    """Which of them holds the ids is not guessed."""
    table = pd.DataFrame([[1, 2]], columns=["key", "key"])
    with pytest.raises(InvalidInput, match="bank: 2 columns are called 'key'"):
        split_ids(table, "key", "bank")


def test_from_tables_to_aligned_tables():
    """Splitting, aligning and taking rows together give tables that agree row by row."""
    bank = pd.DataFrame({"customer": BANK, "income": np.arange(30.0)})
    shop = pl.DataFrame({"customer": SHOP, "basket": np.arange(40, 10, -1)})
    split = {"bank": split_ids(bank, "customer", "bank"), "shop": split_ids(shop, "customer", "shop")}
    found = align({name: ids for name, (ids, _) in split.items()})
    tables = {name: take_rows(table, found.rows[name]) for name, (_, table) in split.items()}
    assert tables["bank"]["income"].astype(int).tolist() == tables["shop"]["basket"].to_list()
    assert len(tables["bank"]) == 19
