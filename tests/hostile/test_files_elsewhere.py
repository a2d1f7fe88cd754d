"""Files and first bytes that are in no home: probes that were measured, certificates, databases, a HELLO."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.cli.audit import _certificate
from hedgerow.errors import FrameError, InvalidInput
from hedgerow.node.estimate import OfParty, Probe, _Kept
from hedgerow.transport.endpoint import Agreed
from hedgerow.transport.grpc_envelope import WIRE_VERSION, Hello, decode_hello, hello_version
from hedgerow.transport.mtls import Identity
from twins.damage import as_often, damaged

pytestmark = pytest.mark.filterwarnings("ignore:Parsed a serial number")  # of a damaged certificate, by its library

PEM = Identity.create("bank").certificate.pem
HELLO = Hello(WIRE_VERSION, 7, 0, "a run", "bank", "shop", Agreed.of({"epsilon": 1.0, "trees": 3})).encode()


@given(data=st.data())
@as_often(100)
def test_any_first_bytes_are_a_hello_or_none(data):
    """A FrameError for all others, whatever lengths they announce."""
    with suppress(FrameError):
        found = data.draw(damaged(HELLO, "bytes") | st.binary(max_size=100).map(HELLO[:8].__add__))
        hello_version(found)
        decode_hello(found)


@given(data=st.data())
@as_often(60)
def test_any_file_given_as_a_certificate_is_one_or_is_named(tmp_path_factory, data):
    """What somebody gives to the checker of a trail."""
    path = tmp_path_factory.getbasetemp() / "somebody.pem"
    path.write_bytes(data.draw(damaged(PEM, "pem")))
    try:
        _certificate(path)
    except InvalidInput as problem:
        assert "somebody.pem" in str(problem)  # noqa: PT017 - most are refused, and then in words


@given(data=st.data())
@as_often(60)
def test_probes_are_what_they_were_or_measured_again(tmp_path_factory, data):
    """Whatever the file says: numbers where numbers belong, or nothing."""
    path = tmp_path_factory.getbasetemp() / "probes.json"
    probe = Probe(0.5, 3, 1.0, 0.1, 12.0, {"bank": OfParty(10, 10, 10, 10)})
    path.write_bytes(data.draw(damaged(json.dumps({"one": asdict(probe), "two": asdict(probe)}).encode(), "json")))
    for key in ("one", "two"):
        found = _Kept(path).get(key)
        if found is not None:
            assert all(type(number) in (int, float) for number in (found.share, found.seconds, found.took))
            assert all(isinstance(each, OfParty) for each in found.parties.values())


def test_a_database_file_that_was_changed_is_refused(tmp_path):
    """A hundred changed DuckDB files, in a process of their own: none ends it otherwise than in words."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "people.db")) as made:
        made.execute("CREATE TABLE people AS SELECT range AS age, 'x' || range AS name FROM range(500)")
    found = subprocess.run(
        [sys.executable, "-c", CHANGING, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert json.loads(found.stdout)["refused"] > 0


CHANGING = """
import json, random, sys
from pathlib import Path
from hedgerow.errors import HedgerowError
from hedgerow.node.databases import fetch
folder, chance, refused = Path(sys.argv[1]), random.Random(7), 0
whole = (folder / "people.db").read_bytes()
for _ in range(100):
    place = chance.randrange(len(whole))
    (folder / "people.db").write_bytes(whole[:place] + bytes([chance.randrange(256)]) + whole[place + 1:])
    try:
        fetch("duckdb:people.db", "SELECT * FROM people", folder)
    except HedgerowError as problem:
        assert "people.db" in str(problem)
        refused += 1
for size in range(0, len(whole), len(whole) // 20):
    (folder / "people.db").write_bytes(whole[:size])
    try:
        fetch("duckdb:people.db", "SELECT * FROM people", folder)
    except HedgerowError as problem:
        refused += 1
print(json.dumps({"refused": refused}))
"""
