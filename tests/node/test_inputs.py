"""What a party brings: one way to write it as bytes, and a file that gives the same bytes again."""

from __future__ import annotations

import hashlib
import itertools
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.engine.blocks import Blocks
from hedgerow.errors import InvalidInput
from hedgerow.node import inputs as inputs_module
from hedgerow.node import sources
from hedgerow.node.inputs import How, Inputs, StoredInputs, read_rows

NAMES = ("age", "name", "level", "is_new", "price", "empty", "deep", "day")


def table_of(**changes):
    """Four rows of every kind of column, with gaps."""
    columns = {
        "age": pa.array([1, None, 3, 4], pa.int64()),
        "name": pa.array(["a", "bc", None, ""]),
        "level": pa.array(["north", "east", None, "north"]).dictionary_encode(),
        "is_new": pa.array([True, None, False, True]),
        "price": pa.array([Decimal("1.50"), Decimal("2.00"), None, Decimal("0.01")], pa.decimal128(9, 2)),
        "empty": pa.nulls(4),
        "deep": pa.array([[1.0], None, [2.0, 3.0], []]),
        "day": pa.array([0, 1, None, 3], pa.timestamp("s")),
    }
    return pa.table({**columns, **changes})


def made(table=None, **how):
    """Inputs of this table."""
    about = {"dataset": "d", "columns": NAMES, "categorical": (), "label": None, "id": None, **how}
    return Inputs(How(**about), (table_of() if table is None else table).unify_dictionaries())


def digest(inputs):
    """Of all its bytes."""
    found = hashlib.sha256()
    for block in inputs.blocks():
        found.update(block)
    return found.hexdigest()


def test_chunks_and_what_lies_behind_a_gap_do_not_count(monkeypatch):
    """The same table cut up, sliced out of another, or with other bytes where nothing is: the same."""
    whole = digest(made())
    cut = pa.concat_tables([table_of().slice(0, 1), table_of().slice(1, 0), table_of().slice(1)])
    assert cut.column("age").num_chunks > 1
    assert digest(made(cut)) == whole
    twice = pa.concat_tables([table_of(), table_of()]).combine_chunks().slice(4)
    assert digest(made(twice)) == whole
    values, valid = pa.py_buffer(np.array([1, 99, 3, 4], np.int64)), pa.py_buffer(bytes([0b1101]))
    behind = pa.Array.from_buffers(pa.int64(), 4, [valid, values])
    assert behind.to_pylist() == [1, None, 3, 4]
    assert digest(made(table_of(age=behind))) == whole
    monkeypatch.setattr(inputs_module, "BLOCK_ROWS", 3)
    assert digest(made(cut)) == digest(made()) != whole


CHANGES = {
    "a value": {"age": pa.array([1, None, 3, 5])},
    "a gap for a value": {"age": pa.array([1, 0, 3, 4])},
    "the order of rows": {"age": pa.array([None, 1, 3, 4])},
    "a type": {"age": pa.array([1, None, 3, 4], pa.int32())},
    "the border of two texts": {"name": pa.array(["ab", "c", None, ""])},
    "no text for an empty one": {"name": pa.array(["a", "bc", "", None])},
    "a level": {"level": pa.array(["north", "west", None, "north"]).dictionary_encode()},
    "a level that no row has": {
        "level": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.int32()), ["north", "east", "west"])
    },
    "the numbers of levels": {
        "level": pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1], pa.int32()), ["east", "north"])
    },
    "a truth value": {"is_new": pa.array([True, None, True, True])},
    "a decimal": {"price": pa.array([Decimal("1.50"), Decimal("2.00"), None, Decimal("0.02")], pa.decimal128(9, 2))},
    "a list": {"deep": pa.array([[1.0], None, [2.0, 3.0], [0.0]])},
    "a moment": {"day": pa.array([0, 1, None, 4], pa.timestamp("s"))},
    "the sign of zero": {"empty": pa.array([-0.0, 0.0, 0.0, 0.0])},
}


def test_everything_else_counts():
    """Each change of a table, or of how it is read, gives other bytes; and all of them differ from each other."""
    found = {"as it is": digest(made()), "zeros": digest(made(table_of(empty=pa.array([0.0] * 4))))}
    found |= {name: digest(made(table_of(**change))) for name, change in CHANGES.items()}
    found["other columns"] = digest(made(columns=NAMES[:-1]))
    found["other order of columns"] = digest(made(columns=NAMES[::-1]))
    found["a label"] = digest(made(columns=NAMES[1:], label="age"))
    found["an id"] = digest(made(columns=NAMES[1:], id="age"))
    found["a weight"] = digest(made(columns=NAMES[2:], label="name", weight="age"))
    found["no weight"] = digest(made(columns=NAMES[2:], label="name", id="age"))
    found["categorical"] = digest(made(categorical=("age",)))
    assert len(set(found.values())) == len(found)


def test_inputs_without_weights_have_the_bytes_that_they_always_had():
    """A trail of a version that knew no weights is still opened by its table."""
    _, heading = itertools.islice(made().blocks(), 2)
    assert "weight" not in json.loads(bytes(heading))["how"]


@given(
    st.lists(st.lists(st.text(max_size=3) | st.none(), min_size=3, max_size=3), min_size=2, max_size=2, unique_by=str)
)
def test_different_texts_have_different_bytes(columns):
    """Whatever they are: no two columns of texts are written alike."""
    first, second = (made(pa.table({"name": pa.array(c, pa.string())}), columns=("name",)) for c in columns)
    assert digest(first) != digest(second)


def test_a_file_gives_the_same_bytes(tmp_path):
    """Types, levels and gaps survive; a file that is cut, or of other columns, is refused."""
    path = tmp_path / "inputs.arrow"
    before = made()
    before.save(path)
    after = Inputs.load(before.how, path)
    assert after.table.schema == before.table.schema
    assert digest(after) == digest(before)
    with pytest.raises(InvalidInput, match="and should have"):
        Inputs.load(How("d", NAMES[:-1], (), None, None), path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InvalidInput, match="cannot be read"):
        Inputs.load(before.how, path)


def test_rows_of_another_table_are_refused(tmp_path):
    """Positions are whole numbers within the table."""
    path = tmp_path / "rows.npy"
    np.save(path, np.array([2, 0]))
    assert read_rows(path, 3).tolist() == [2, 0]
    for wrong in (np.array([3]), np.array([-1]), np.array([[0]]), np.array([0.0])):
        np.save(path, wrong)
        with pytest.raises(InvalidInput, match="does not have rows of the table"):
            read_rows(path, 3)
    np.save(path, np.array([{}], object), allow_pickle=True)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_rows(path, 3)


@pytest.mark.parametrize("block_rows", [3, 7, 1000])
def test_files_that_stay_where_they_are_have_the_bytes_of_the_table(tmp_path, monkeypatch, block_rows):
    """Read some rows at a time, with levels numbered in each file and row group in another way, and with gaps."""
    monkeypatch.setattr(inputs_module, "BLOCK_ROWS", block_rows)
    for part, levels in enumerate((["b", "a", None], ["c", "b", "c", "a", "d"], [None, None], ["d", "e", "b", "a"])):
        n_rows = len(levels)
        columns = {"level": pa.array(levels, pa.string()).dictionary_encode(), "text": pa.array(levels, pa.string())}
        numbers = pa.array([None if k == 1 else k / 2 for k in range(n_rows)], pa.float64())
        table = pa.table({**columns, "number": numbers, "whole": list(range(n_rows)), "label": [True] * n_rows})
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=2)
    how = How("d", ("level", "number", "text", "whole"), (), "label", None)
    blocks = Blocks(tmp_path, target="label", columns=how.columns)
    stored = StoredInputs(how, blocks)
    held = Inputs(how, sources.read_folder(tmp_path, how.names).unify_dictionaries())
    assert b"".join(map(bytes, stored.blocks())) == b"".join(map(bytes, held.blocks()))
