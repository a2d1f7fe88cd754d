"""What a query to a PostgreSQL server gives, read by a process of its own that lives as long as the query.

The driver is C. A byte that was damaged on the way lets it wait for ever for the rest of a message that never comes,
and a fault of its own would end the process that reads. So it does not read here:

    this process -> child, on its stdin       {"address": ..., "query": ..., "rows": true}
    child -> this process, on its stdout      an arrow stream; every batch was checked before it was written
    child -> this process, on its stderr      {"error": "JobError", "message": ...}, if it came to nothing

A child that crashes, or is not done in time and is ended, is an InvalidInput.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hedgerow.errors import HedgerowError, InvalidInput, JobError, plain
from hedgerow.runtime.party_start import end_with, leave_no_core_dump

SECONDS_TO_CONNECT = 10
SECONDS_TO_ANSWER = 3600.0

_DRIVER = "adbc_driver_postgresql.dbapi"
_PROGRAM = "from hedgerow.node.postgresql import main; main()"
_MOST_TOLD = 1 << 16
_TOLD = 3  # the code of a child that has told its error


def fetch(address: str, query: str, *, rows: bool) -> Any:
    """What the query gives, as an arrow table; without `rows` none of them."""
    if not _is_there(_DRIVER):
        raise missing("adbc-driver-postgresql", "reading from PostgreSQL")
    asked = {"address": _with_patience(address), "query": query, "rows": rows, "parent": os.getpid()}
    late = threading.Event()
    with subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-P", "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [_HERE, os.environ.get("PYTHONPATH")]))},
    ) as child:

        def end() -> None:
            late.set()
            child.kill()

        limit = threading.Timer(SECONDS_TO_ANSWER, end)
        limit.daemon = True
        limit.start()
        try:
            table, told = _heard(child, json.dumps(asked).encode())
        finally:
            limit.cancel()
            child.kill()
    return _judged(table, told, child.returncode, f"{_shown(address)}: ", late=late.is_set())


_HERE = str(Path(__file__).resolve().parents[2])


def _is_there(module: str) -> bool:
    """Whether a module can be loaded, which is not done: it takes seconds."""
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _with_patience(address: str) -> str:
    """The address, with a limit for connecting, if nobody has set one."""
    if "connect_timeout=" in address or "PGCONNECT_TIMEOUT" in os.environ:
        return address
    return f"{address}{'&' if '?' in address else '?'}connect_timeout={SECONDS_TO_CONNECT}"


def _shown(address: str) -> str:
    return address.partition("?")[0]


def _heard(child: subprocess.Popen[bytes], asked: bytes) -> tuple[Any, bytes]:
    """The child's table, None if there is no whole one, and what it told of an error."""
    import pyarrow as pa

    stdin, stdout, stderr = child.stdin, child.stdout, child.stderr
    assert stdin and stdout and stderr  # noqa: S101, PT018 - all three are pipes
    with contextlib.suppress(BrokenPipeError), stdin:
        stdin.write(asked)
    table = None
    with contextlib.suppress(pa.ArrowException, OSError):
        table = pa.ipc.open_stream(stdout).read_all()
    told = stderr.read(_MOST_TOLD)
    child.wait()
    return table, told


def _judged(table: Any, told: bytes, code: int, shown: str, *, late: bool) -> Any:
    """The table, or an error in words."""
    if late:
        raise InvalidInput(
            f"{shown}the server gave no whole answer in {SECONDS_TO_ANSWER:g} s; if the query takes that long, let it "
            "write a table there, and read that"
        )
    if code == 0 and table is not None:
        return table
    if code == _TOLD:
        about = json.loads(told)
        raise (JobError if about["error"] == "JobError" else InvalidInput)(about["message"])
    how = signal.Signals(-code).name if code < 0 else f"code {code}"
    raise InvalidInput(f"{shown}the driver ended with {how} while it read the answer; was it damaged on the way?")


# --- the child -------------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer the one question on stdin."""
    report, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)  # notices of the server, which libpq prints
    asked = json.loads(sys.stdin.buffer.read())
    end_with(asked["parent"])
    leave_no_core_dump()
    shown = _shown(asked["address"])
    try:
        _answer(asked["address"], asked["query"], rows=asked["rows"])
    except HedgerowError as problem:
        kind, message = type(problem).__name__, str(problem)
    except Exception as problem:  # noqa: BLE001 - of the driver, of arrow, or of Python: all about this answer
        kind, message = "InvalidInput", f"{shown}: the query cannot be answered: {one_line(problem)}"
    else:
        return
    os.write(report, json.dumps({"error": kind, "message": message}).encode())
    os._exit(_TOLD)  # without a goodbye to a server that may not answer it


class _Without:
    """No packages that the driver would load to hand over tables in their forms: it takes seconds, and nobody asks."""

    @staticmethod
    def find_spec(fullname: str, *_: Any) -> None:
        """Says that they are not there."""
        if fullname in ("pandas", "polars"):
            raise ModuleNotFoundError(fullname)


def _answer(address: str, query: str, *, rows: bool) -> None:
    sys.meta_path.insert(0, _Without)
    import pyarrow as pa

    dbapi: Any = import_module(_DRIVER)
    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute("SELECT current_setting('transaction_read_only')")
        if cursor.fetchone() != ("on",):
            raise InvalidInput(
                f"{_shown(address)}: the server does not keep the transaction read-only, so nothing is read"
            )
        # Prepared, not run. What gives no columns would be run as it is: COPY, for one, can write files.
        schema = cursor.adbc_execute_schema(query)
        if not len(schema):
            raise JobError(f"{_shown(address)}: the query must be one SELECT")
        if rows:
            cursor.execute(query)
            batches = cursor.fetch_record_batch()
            schema = batches.schema
        else:
            batches = []
        with pa.ipc.new_stream(sys.stdout.buffer, schema) as out:
            for batch in batches:
                batch.validate(full=True)  # offsets within the data, text in UTF-8
                out.write_batch(batch)
        sys.stdout.buffer.flush()


# --- for all databases -----------------------------------------------------------------------------------------------


def missing(package: str, purpose: str) -> JobError:
    """What to do about an optional package that is not there."""
    return JobError(f"{purpose} needs the package {package}; install it with: pip install 'hedgerow[sql]'")


def one_line(problem: Exception) -> str:
    """What a database says, without what it must not say."""
    text = " ".join(str(problem).split())
    secret = os.environ.get("PGPASSWORD")
    return plain(text.replace(secret, "***") if secret else text)
