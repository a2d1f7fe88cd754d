"""Tables from databases: DuckDB files and PostgreSQL servers, read-only. Optional: pip install 'hedgerow[sql]'.

    duckdb:customers.db                           a file; opened read-only, without access to any other file
    postgresql://reader@db.example:5432/crm       a server, through ADBC; in a transaction that is declared READ ONLY

A query is one statement that gives columns. The database's own check that it writes nothing comes on top of the rights
of the user, which should not allow it either. A password never stands in an address, since that is in a file for people
to read: it comes from PGPASSWORD or from a password file, where the database's own library finds it.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from hedgerow.errors import InvalidInput, JobError, plain
from hedgerow.node import postgresql

DUCKDB = "duckdb:"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_POSTGRESQL = re.compile(
    r"postgres(?:ql)?://(?:[^:@/?#\s]*@)?(?P<hosts>[^@/?#\s]*)(?:/[^@/?#\s]*)?(?:\?(?P<settings>[^@#\s]*))?"
)
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(?::[0-9]*)?")
_SECRET = re.compile(r"pass(?:word|wd)\s*=", re.IGNORECASE)

WITHOUT_IT = (  # what to do about a password
    "leave the password out of it, and set the environment variable PGPASSWORD, or put it into a password file "
    "(~/.pgpass, or the one that PGPASSFILE names) that only you can read"
)


def is_database(source: str) -> bool:
    """Whether a source is the address of a database, and no file or folder."""
    return source.startswith(DUCKDB) or _is_postgresql(source)


def _is_postgresql(source: str) -> bool:
    return source.lower().startswith(("postgresql:", "postgres:"))


def check_source(source: str) -> None:
    """JobError for an address that is malformed or holds a password, in words that do not repeat it."""
    if _is_postgresql(source):
        if not _is_address_of_server(source):
            raise JobError(f"the address of a server must be postgresql://user@host:port/database; {WITHOUT_IT}")
    elif _SECRET.search(source):
        raise JobError(f"this looks like a password; write postgresql://user@host:port/database, {WITHOUT_IT}")
    elif source.startswith(f"{DUCKDB}//") or source == DUCKDB:
        raise JobError("the address of a DuckDB file must be duckdb: and its path, as in duckdb:data/customers.db")
    elif scheme := _SCHEME.match(source):
        known = "a path, duckdb:... and postgresql://..."
        raise JobError(f"{plain(scheme[1])}:// cannot be read from; a source is {known}")


def _is_address_of_server(source: str) -> bool:
    """Whether it says who, where and which database, and holds no password in any of the places for one."""
    match = _POSTGRESQL.fullmatch(source)
    if match is None or not all(map(_HOST.fullmatch, match["hosts"].split(","))):
        return False
    settings = parse_qsl(match["settings"] or "", keep_blank_values=True)
    return not any("password" in name.lower() for name, _ in settings)


def fetch(source: str, query: str, base: Path, *, rows: bool = True) -> Any:
    """What the query gives, as an arrow table; without `rows` none of them, to see the columns."""
    check_source(source)
    if not query.strip():
        raise JobError(f"{source}: a database needs a query, which says in SQL what to read")
    if source.startswith(DUCKDB):
        table = _from_duckdb(base / source.removeprefix(DUCKDB), query, rows=rows)
    else:
        table = postgresql.fetch(source, query, rows=rows)
    return _with_plain_types(table, source)


def _from_duckdb(path: Path, query: str, *, rows: bool) -> Any:
    try:
        duckdb: Any = import_module("duckdb")
    except ImportError:
        raise postgresql.missing("duckdb", f"{path}: reading a DuckDB file") from None
    try:
        if not path.is_file():
            raise InvalidInput(f"{path}: there is no such file")
        # Without external access no statement reads or writes another file, loads an extension or attaches a database;
        # without replacements no name in it is taken for a variable of this program.
        config = {
            "enable_external_access": "false",
            "python_enable_replacements": "false",
            "lock_configuration": "true",
        }
        with duckdb.connect(str(path), read_only=True, config=config) as connection:
            statements = connection.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise JobError(f"{path}: the query must be one SELECT")
            asked = connection.sql(query)
            return (asked if rows else asked.limit(0)).to_arrow_table()
    except (duckdb.Error, OSError) as problem:
        raise InvalidInput(f"{path}: the query cannot be answered: {postgresql.one_line(problem)}") from None


def _with_plain_types(table: Any, source: str) -> Any:
    """The table in types that the engine knows, and without what the database notes beside them."""
    import pyarrow as pa

    columns = [_with_plain_type(field, table.column(place), source) for place, field in enumerate(table.schema)]
    return pa.table(columns, names=table.column_names)


def _with_plain_type(field: Any, column: Any, source: str) -> Any:
    """Decimal numbers become floating ones, UUIDs text; what is foreign is refused."""
    import pyarrow as pa

    if pa.types.is_decimal(field.type):
        return column.cast(pa.float64())
    if isinstance(field.type, pa.UuidType):
        texts = [None if each is None else str(each) for each in column.to_pylist()]
        return pa.chunked_array([texts], pa.string())
    name = _foreign_type(field)
    if name is None:
        return column
    if name != "numeric":
        raise InvalidInput(
            f"{source.partition('?')[0]}: column {field.name!r} has the type {name}, which cannot be trained on; leave "
            "it out of the query, or turn it into text or a number there, as in CAST(... AS text)"
        )
    digits = [getattr(chunk, "storage", chunk) for chunk in column.chunks]
    return pa.chunked_array(digits, pa.string()).cast(pa.float64())


def _foreign_type(field: Any) -> str | None:
    """The database's own name of a type that arrow has nothing for; drivers mark such columns in one way or another."""
    import pyarrow as pa

    if isinstance(field.type, pa.BaseExtensionType):
        return str(getattr(field.type, "type_name", field.type.extension_name))
    marked = (field.metadata or {}).get(b"ADBC:postgresql:typname")
    return None if marked is None else marked.decode("utf-8", "replace")
