"""Salts of runs, and commitments under them."""

from __future__ import annotations

import hashlib
import hmac
import json

import pyarrow as pa
import pytest

from hedgerow.errors import InvalidInput
from hedgerow.node.commitments import Opening
from hedgerow.node.inputs import How, Inputs

HOW = How("people", ("age",), (), None, None)


def test_a_run_has_one_salt(tmp_path):
    """Made when it begins, read in later attempts, for nobody else to read; another run has another one."""
    first = Opening.of_run(tmp_path, "bank", "r1")
    assert Opening.of_run(tmp_path, "bank", "r1") == first
    assert (tmp_path / "opening.json").stat().st_mode & 0o777 == 0o600
    (tmp_path / "other").mkdir()
    assert Opening.of_run(tmp_path / "other", "bank", "r2").salt != first.salt


def test_how_a_table_was_read_is_kept(tmp_path):
    """With many columns, too, and the commitment to it beside the salt."""
    columns = tuple(f"a column with a long name, number {k}" for k in range(4000))
    inputs = Inputs(How("wide", columns, (), None, None), pa.table({name: [1] for name in columns}))
    opening = Opening.of_run(tmp_path, "bank", "r1").with_inputs(inputs)
    opening.write(tmp_path / "opening.json")
    again = Opening.read(tmp_path / "opening.json")
    assert again == opening
    assert again.inputs == again.commit("inputs", inputs.blocks())


def test_a_commitment_is_what_the_reference_says():
    """HMAC-SHA-256 under the salt, of the name and the bytes; however these are cut up."""
    opening = Opening("bank", "r1", bytes(range(32)))
    named = b"hedgerow commitment to rows, version 1\0"
    assert opening.commit("rows", [b"ab", b"c"]) == hmac.new(opening.salt, named + b"abc", hashlib.sha256).hexdigest()
    assert opening.commit("rows", [b"abc"]) == opening.commit("rows", [b"a", b"", b"bc"])


def test_name_salt_and_bytes_count():
    """None of them can be exchanged."""
    small = [Inputs(HOW, pa.table({"age": [age]})) for age in range(100)]
    salts = (bytes(32), b"\x01" + bytes(31))
    made = {Opening("bank", "r1", salt).commit("inputs", each.blocks()) for salt in salts for each in small}
    made |= {Opening("bank", "r1", salt).commit("model", small[0].blocks()) for salt in salts}
    assert len(made) == 2 * len(small) + 2


@pytest.mark.parametrize("change", [{"salt": "00" * 31}, {"salt": "xy" * 32}, {"how": {"dataset": 3}}, {"party": None}])
def test_a_damaged_file_is_refused(tmp_path, change):
    """In words that name it: a short salt would not hide anything."""
    path = tmp_path / "opening.json"
    Opening("bank", "r1", bytes(32), HOW, "ab" * 32).write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InvalidInput, match=r"opening\.json"):
        Opening.read(path)
