"""Tables from DuckDB files and from a PostgreSQL server that the test starts: read-only, and passwords stay secret."""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hedgerow.errors import HedgerowError, InvalidInput, JobError
from hedgerow.node import postgresql
from hedgerow.node.databases import check_source
from hedgerow.node.party_file import Dataset
from hedgerow.node.sources import Look, look, read
from twins.damage import as_often

ROWS = [("b", 40, 2.0, True), ("a", 30, None, None), ("c", None, 3.25, False)]
PEOPLE = {
    "id": ["a", "b", "c"],
    "age": [30, 40, None],
    "pay": [None, 2.0, 3.25],
    "member": [None, True, False],
}
IN_ORDER = "SELECT id, age, pay, member FROM people ORDER BY id"


def asked(source: str, query: str = IN_ORDER) -> Dataset:
    """A dataset of a database."""
    return Dataset(name="people", source=source, query=query)


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "people.csv",
        "folder/with spaces",
        "duckdb:people.db",
        "duckdb:/data/people.db",
        "postgresql://db/crm",
        "postgresql:///crm",
        "postgresql://reader@db:5432/crm?sslmode=verify-full&passfile=/run/pass",
        "postgres://reader@[::1]:5432/crm",
        "postgresql://reader@one:5432,two:5433/crm?target_session_attrs=any",
        "postgresql:///crm?host=/run/postgresql",
        "postgresql://first%20last@db/crm",
    ],
)
def test_addresses_that_are_right(source):
    """Files, DuckDB files and servers, with settings of libpq and without a password."""
    check_source(source)


@given(st.text("abc:/@?&=#,[]% \tp", max_size=30).map("postgresql://".__add__) | st.text(max_size=30))
@example("postgresql://" + "a," * 5000 + "@")
def test_no_address_holds_a_password(source):
    """Whatever passes has nothing between a colon and an at sign, and is checked in no time."""
    try:
        check_source(source)
    except JobError:
        return
    if source.startswith("postgresql://"):
        assert not re.search(r":[^/]*@", source.removeprefix("postgresql://"))


# --- DuckDB ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def duck(tmp_path):
    """A DuckDB file with people."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "people.db")) as connection:
        connection.execute("CREATE TABLE people (id VARCHAR, age INTEGER, pay DECIMAL(10, 2), member BOOLEAN)")
        connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", ROWS)
    return tmp_path


def test_a_duckdb_file_is_read(duck):
    """By relative and absolute path; decimal numbers become floating ones; a look reads no rows."""
    assert read(asked("duckdb:people.db"), base=duck).to_pydict() == PEOPLE
    assert read(asked(f"duckdb:{duck}/people.db"), base=Path()).to_pydict() == PEOPLE
    assert read(asked("duckdb:people.db"), base=duck, columns=["pay"]).to_pydict() == {"pay": PEOPLE["pay"]}
    types = {"id": "string", "age": "int32", "pay": "double", "member": "bool"}
    assert look(asked("duckdb:people.db"), duck) == Look(types, None)
    schema = read(asked("duckdb:people.db"), base=duck).schema
    assert {field.name: str(field.type) for field in schema} == types
    assert read(asked("duckdb:people.db", "SELECT uuid() AS u, sum(age) AS s FROM people;"), base=duck).num_rows == 1


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("DELETE FROM people", "the query must be one SELECT"),
        ("DELETE FROM people RETURNING id", "the query must be one SELECT|read-only"),
        ("SELECT 1; DROP TABLE people", "the query must be one SELECT"),
        ("COPY people TO '{folder}/out.csv'", "the query must be one SELECT"),
        ("SET lock_configuration = false", "the query must be one SELECT"),
        ("", "a database needs a query"),
        ("SELECT * FROM read_text('{folder}/secret.txt')", "the query cannot be answered: .*disabled"),
        ("SELECT * FROM nobody", "people.db: the query cannot be answered: .*nobody"),
        ("SELECT * FROM people WHERE false", "the query of dataset 'people' gives no rows"),
        ("SELECT * FROM statements", "the query cannot be answered: .*statements"),
        ("SELECT * FROM os", "the query cannot be answered: .*os"),
        ("ATTACH '{folder}/other.db'", "the query must be one SELECT"),
        ("nonsense", "the query cannot be answered"),
    ],
)
def test_what_a_duckdb_file_refuses(duck, query, sentence):
    """Everything but one SELECT, and any other file; nothing has changed afterwards."""
    (duck / "secret.txt").write_text("hunter2")
    before = (duck / "people.db").read_bytes()
    with pytest.raises(HedgerowError, match=sentence) as caught:
        read(asked("duckdb:people.db", query.format(folder=duck)), base=duck)
    assert "hunter2" not in str(caught.value)
    assert (duck / "people.db").read_bytes() == before
    assert not (duck / "out.csv").exists()


def test_a_duckdb_file_that_is_none(tmp_path):
    """It is not made, and what is not DuckDB's is named."""
    pytest.importorskip("duckdb")
    with pytest.raises(InvalidInput, match=r"none\.db: there is no such file"):
        read(asked("duckdb:none.db"), base=tmp_path)
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "none.db").write_text("hello" * 1000)
    with pytest.raises(InvalidInput, match=r"none\.db: the query cannot be answered"):
        look(asked("duckdb:none.db"), tmp_path)


@pytest.mark.parametrize(
    ("module", "package", "source"),
    [
        ("duckdb", "duckdb", "duckdb:people.db"),
        ("adbc_driver_postgresql.dbapi", "adbc-driver-postgresql", "postgresql://reader@localhost/crm"),
    ],
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, module, package, source):
    """With the extra that brings it."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        JobError, match=re.escape(f"needs the package {package}; install it with: pip install")
    ) as caught:
        read(asked(source), base=tmp_path)
    assert "hedgerow[sql]" in str(caught.value)


# --- PostgreSQL ------------------------------------------------------------------------------------------------------

PASSWORD = secrets.token_hex(8)
SET_UP = """
CREATE TABLE people (id text, age int, pay numeric(10, 2), member boolean, code uuid, ip inet);
INSERT INTO people VALUES ('b', 40, 2.0, true, '00000000-0000-0000-0000-00000000000b', '127.0.0.1'),
    ('a', 30, NULL, NULL, NULL, NULL), ('c', NULL, 3.25, false, NULL, NULL);
CREATE SEQUENCE counter;
"""


def _programs() -> Path | None:
    """Where initdb and pg_ctl are: on the path, or where Debian puts them."""
    on_path = shutil.which("initdb")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return Path(on_path).parent if on_path else places[-1].parent if places else None


@pytest.fixture(scope="module")
def server():
    """The address of a PostgreSQL server with people, whose superuser `keeper` may do everything."""
    pytest.importorskip("adbc_driver_postgresql")
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: neither initdb on the PATH nor /usr/lib/postgresql/*/bin/initdb")
    user = None
    if os.geteuid() == 0:  # it refuses to run as root
        user = next((entry.pw_name for entry in pwd.getpwall() if entry.pw_name in {"postgres", "nobody"}), None)
        if user is None:
            pytest.skip("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
    place = Path(tempfile.mkdtemp(prefix="hedgerow-pg-"))
    (place / "password").write_text(PASSWORD)
    if user is not None:
        for path in (place, place / "password"):
            shutil.chown(path, user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def call(program: str, *args: str) -> None:
        subprocess.run(
            [programs / program, *args],
            check=True,
            cwd=place,
            user=user,
            timeout=120,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdout=subprocess.DEVNULL,
        )

    data = str(place / "data")
    try:
        call("initdb", "-D", data, "-U", "keeper", "-A", "scram-sha-256", "--pwfile", str(place / "password"), "-N")
        options = f"-p {port} -k {place} -c listen_addresses=127.0.0.1 -c fsync=off"
        call("pg_ctl", "-D", data, "-w", "-l", str(place / "log"), "-o", options, "start")
        try:
            address = f"postgresql://keeper@127.0.0.1:{port}/postgres"
            _execute(address, SET_UP)
            yield address
        finally:
            call("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _execute(address: str, statements: str) -> None:
    from adbc_driver_postgresql import dbapi

    with_password = address.replace("keeper@", f"keeper:{PASSWORD}@")
    with dbapi.connect(with_password, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements.split(";\n"):
            if statement.strip():
                cursor.execute(statement)


@pytest.fixture
def password(monkeypatch):
    """The password in the environment."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


@pytest.mark.usefixtures("password")
def test_a_server_is_read(server, tmp_path):
    """Rows in the order of the query, numeric as floating numbers, UUIDs as text; a look reads no rows."""
    assert read(asked(server), base=tmp_path).to_pydict() == PEOPLE
    assert read(asked(server), base=tmp_path, columns=["age"]).to_pydict() == {"age": PEOPLE["age"]}
    types = {"id": "string", "age": "int32", "pay": "double", "member": "bool"}
    assert look(asked(server), tmp_path) == Look(types, None)
    schema = read(asked(server), base=tmp_path).schema
    assert {field.name: str(field.type) for field in schema} == types
    codes = read(asked(server, "SELECT code FROM people ORDER BY id;"), base=tmp_path)
    assert codes.to_pydict() == {"code": [None, "00000000-0000-0000-0000-00000000000b", None]}
    assert codes.schema.field("code").type == pa.string()


def test_the_password_may_come_from_a_file(server, tmp_path, monkeypatch):
    """Which PGPASSFILE names, or the address itself."""
    monkeypatch.delenv("PGPASSWORD", raising=False)
    file = tmp_path / "pass"
    file.write_text(f"*:*:*:keeper:{PASSWORD}\n")
    file.chmod(0o600)
    assert read(asked(f"{server}?passfile={file}"), base=tmp_path).to_pydict() == PEOPLE
    monkeypatch.setenv("PGPASSFILE", str(file))
    assert read(asked(server), base=tmp_path).to_pydict() == PEOPLE


@pytest.mark.usefixtures("password")
@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("DELETE FROM people", "the query must be one SELECT"),
        ("DELETE FROM people RETURNING id", "cannot execute DELETE in a read-only transaction"),
        ("WITH gone AS (DELETE FROM people RETURNING id) SELECT * FROM gone", "in a read-only transaction"),
        ("SELECT nextval('counter')", "cannot execute nextval.. in a read-only transaction"),
        ("SELECT 1; DROP TABLE people", "cannot insert multiple commands"),
        ("COPY people TO '{folder}/out.csv'", "the query must be one SELECT"),
        ("SET TRANSACTION READ WRITE", "the query must be one SELECT"),
        ("COMMIT", "the query must be one SELECT"),
        ("SELECT set_config('transaction_read_only', 'off', false)", "read-write mode must be set before any query"),
        ("SELECT * FROM nobody", 'relation "nobody" does not exist'),
        ("SELECT id FROM people WHERE false", "the query of dataset 'people' gives no rows"),
        ("SELECT 1 AS a, 2 AS a", "2 columns are called 'a'"),
        ("SELECT ip FROM people", "column 'ip' has the type inet, which cannot be trained on; leave it out"),
        ("  ", "a database needs a query"),
    ],
)
def test_what_a_server_is_not_asked(server, tmp_path, query, sentence):
    """Whatever writes, by a user who may write: the server itself refuses it, and nothing has changed afterwards."""
    tmp_path.chmod(0o777)
    with pytest.raises(HedgerowError, match=sentence) as caught:
        read(asked(server, query.format(folder=tmp_path)), base=tmp_path)
    assert len(str(caught.value)) < 600
    assert PASSWORD not in str(caught.value)
    assert read(asked(server), base=tmp_path).to_pydict() == PEOPLE
    assert not (tmp_path / "out.csv").exists()


def test_a_server_that_does_not_let_us_in(server, tmp_path, monkeypatch):
    """No password, a wrong one, nobody listening: one line each, that repeats no password."""
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    monkeypatch.delenv("PGPASSWORD", raising=False)
    with pytest.raises(InvalidInput, match="no password supplied"):
        look(asked(server), tmp_path)
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    with pytest.raises(InvalidInput, match="password authentication failed") as caught:
        look(asked(server), tmp_path)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidInput, match="Connection refused"):
        look(asked("postgresql://keeper@127.0.0.1:1/postgres"), tmp_path)


# --- answers that were damaged on their way --------------------------------------------------------------------------

SILENT = 3.0  # how long an answer may take in these tests


class Damage(NamedTuple):
    """What happens to the bytes of a server's answer, at a place counted from the end of an undamaged one."""

    kind: str
    before_end: int
    junk: bytes = b""

    def pieces(self, whole: bytes, start: int, place: int) -> list[bytes | float]:
        """What to send in place of bytes that came, of which the first is the one at `start`; a number is a pause."""
        at = place - start
        if not 0 <= at < len(whole):
            return [whole]
        before, after, n = whole[:at], whole[at:], max(len(self.junk), 1)
        return {
            "changed": [before, self.junk[: len(after)], after[n:]],
            "left out": [before, after[n:]],
            "put in": [before, self.junk, after],
            "repeated": [before, after[:200], after],
            "delayed": [before, 0.3, after],
            "cut": [before, 0.0],
            "silent": [before, 2 * SILENT],
        }[self.kind]


class BadLink:
    """A proxy before the server at `target` whose connections, one after the other, damage the answers."""

    def __init__(self, target: int) -> None:
        self._listener, self._target = socket.create_server(("127.0.0.1", 0)), target
        self.port = self._listener.getsockname()[1]
        self.damage, self.place, self.passed = Damage("", 0), -1, 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """No more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self.passed = 0
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError), source, sink:
            while data := source.recv(1 << 16):
                sink.sendall(data)

    def _answer(self, source: socket.socket, sink: socket.socket) -> None:
        damage, place, passed = self.damage, self.place, 0
        with suppress(OSError), source, sink:
            while data := source.recv(1 << 16):
                for piece in damage.pieces(data, passed, place) if damage.kind else [data]:
                    if piece == 0.0:
                        for each in (sink, source):  # closing alone says nothing while the other thread reads
                            each.shutdown(socket.SHUT_RDWR)
                        return
                    if isinstance(piece, float):
                        time.sleep(piece)
                    else:
                        sink.sendall(piece)
                passed += len(data)
                self.passed = passed


@pytest.fixture(scope="module")
def link(server):
    """The proxy, and the address of the server through it."""
    host, _, database = server.rpartition("/")
    port = int(host.rpartition(":")[2])
    with closing(BadLink(port)) as made:
        yield made, f"postgresql://keeper@127.0.0.1:{made.port}/{database}?sslmode=disable"


def judge(link, damage, base, patch):
    """Read through the link: an error in words, or a table; and never for longer than the limit."""
    made, address = link
    made.damage, made.place = Damage("", 0), -1
    if not hasattr(made, "length"):
        assert read(asked(address), base=base).to_pydict() == PEOPLE
        made.length = made.passed
    made.damage, made.place = damage, max(made.length - damage.before_end, 0)
    if damage.kind != "delayed":  # which comes in the end, however busy the machine is
        patch.setattr(postgresql, "SECONDS_TO_ANSWER", SILENT)
    begun = time.monotonic()
    try:
        table = read(asked(address), base=base)
    except HedgerowError as problem:
        said = str(problem)
        assert f"127.0.0.1:{made.port}" in said or "dataset 'people'" in said
        assert said.isprintable()
        assert len(said) < 700
        assert PASSWORD not in said
        assert damage.kind != "delayed", said
    else:
        table.validate(full=True)
        if damage.kind in ("delayed", "cut", "silent"):
            assert table.to_pydict() == PEOPLE
    assert time.monotonic() - begun < SILENT + 60.0


KINDS = ("changed", "changed", "changed", "left out", "put in", "repeated", "delayed", "cut")
ODD = [b"\x7f\xff\xff\xff", b"\xff" * 4, b"\0" * 8, b"Z", b"D" * 300]
JUNK = st.binary(min_size=1, max_size=8) | st.sampled_from(ODD)
DAMAGE = st.builds(Damage, st.sampled_from(KINDS), st.integers(1, 1300), JUNK)


@pytest.mark.usefixtures("password")
@given(DAMAGE)
@example(Damage("silent", 200))
@as_often(10)
def test_a_damaged_answer_is_an_error_or_a_table(link, tmp_path_factory, damage):
    """Whatever arrives in place of the server's bytes: words, or a table that is one, within the time limit."""
    with pytest.MonkeyPatch.context() as patch:
        judge(link, damage, tmp_path_factory.getbasetemp(), patch)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("password")
@given(DAMAGE)
@as_often(100)
def test_many_damaged_answers(link, tmp_path_factory, damage):
    """The same, more often."""
    with pytest.MonkeyPatch.context() as patch:
        judge(link, damage, tmp_path_factory.getbasetemp(), patch)


@pytest.mark.parametrize(("crash", "told"), [("os.abort()", "SIGABRT"), ("os._exit(1)", "code 1")])
def test_a_driver_that_crashes_ends_nothing_else(tmp_path, monkeypatch, crash, told):
    """What ends the process that reads is told, and this one goes on."""
    pytest.importorskip("adbc_driver_postgresql")
    monkeypatch.setattr(postgresql, "_PROGRAM", f"import os; {crash}")
    with pytest.raises(InvalidInput, match=f"127.0.0.1:1/postgres: the driver ended with {told}"):
        read(asked("postgresql://keeper@127.0.0.1:1/postgres"), base=tmp_path)
