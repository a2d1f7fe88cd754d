"""One party of a federation as a process of its own, started by `hedgerow.runtime.processes`.

Nothing that is secret has a name on disk. The process gets its key, its part of a model and what all know (job,
certificates) in the first line of its standard input, and its rows in a file without a name, whose space is free again
as soon as they are read. It talks to its peers over mutual TLS, and to whoever started it in JSON lines: on stdout what
happens, on stdin what to do next.

    <- {"start": {"name": "shop", "key": "...", "certificates": {...}, "job": {...}, ...}}
    -> {"event": "listening", "port": 40123}       it can be dialled
    <- {"dial": {"coordinator": "127.0.0.1:40123"}}
    -> {"event": "ready"}                          all peers are connected, all kernels compiled
    <- {"go": true}
    -> {"event": "progress", "done": 3, "total": 20}, {"event": "log", "level": 30, "message": "..."}
    -> {"event": "done", "result": {...}, "ledger": "...", ...}
       or {"event": "failed", "error": "InvalidInput", "message": "...", "ledger": "..."}
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hedgerow.engine.blocks import Blocks
from hedgerow.engine.table import Column, SparseColumn, Table
from hedgerow.runtime import backends
from hedgerow.runtime.budgets import read
from hedgerow.runtime.party import LOGGER, Party
from hedgerow.runtime.party_start import Orders
from hedgerow.runtime.protocol import Job, PartyData, Protocol, agreed, find
from hedgerow.runtime.running import role, warm_up
from hedgerow.transport.emulate import Emulated, Link
from hedgerow.transport.endpoint import Agreed, Endpoint
from hedgerow.transport.mtls import Identity, TrustStore
from hedgerow.transport.transcripts import Recording, TranscriptFile

if TYPE_CHECKING:
    from hedgerow.transport.grpc import GrpcEndpoint

# --- what a party brings, on its way into the process ----------------------------------------------------------------

_OF_ROWS = ("labels", "ids", "misfits", "weight", "validation", "init_scores")
"""Fields with values for each row, beside the table."""


def describe(data: PartyData) -> dict[str, Any]:
    """What a party brings, but for the numbers in its rows."""
    return {
        "names": list(data.table.names),
        "has_names": data.table.has_names,
        "n_rows": data.table.n_rows,
        "levels": [None if c.levels is None else list(c.levels) for c in data.table.columns],
        "rules": [column.rule for column in data.table.columns],
        "classes": None if data.classes is None else list(data.classes),
        "n_threads": data.n_threads,
        "backend": backends.written(data.backend),
        "blocks": None if data.blocks is None else data.blocks.described(),
        "part": None if data.part is None else data.part.to_dict(),
    }


def rows_file(data: PartyData) -> IO[bytes]:
    """The numbers, in a file that has no name: it is gone when the last process that has it open is."""
    columns: dict[str, Any] = {}
    for k, column in enumerate(data.table.columns):
        if isinstance(column, SparseColumn):
            columns |= {f"column_{k}": column.stored, f"rows_{k}": column.rows}
        else:
            columns[f"column_{k}"] = column.values
    more = {name: values for name in _OF_ROWS if (values := getattr(data, name)) is not None}
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it, once a process has it
    np.savez(file, allow_pickle=False, **columns, **more)
    file.seek(0)
    return file


def _read_data(rows: int, described: Mapping[str, Any], protocol: Protocol) -> PartyData:
    with os.fdopen(rows, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        about = zip(described["names"], described["levels"], described["rules"], strict=True)
        columns = tuple(
            SparseColumn(name, described["n_rows"], arrays[f"rows_{k}"], arrays[f"column_{k}"])
            if f"rows_{k}" in arrays
            else Column(name, arrays[f"column_{k}"], None if levels is None else tuple(levels), rule)
            for k, (name, levels, rule) in enumerate(about)
        )
        of_rows = {name: arrays.get(name) for name in _OF_ROWS}
    table = Table(columns, described["n_rows"], tuple(described["names"]), described["has_names"])
    classes = None if described["classes"] is None else tuple(described["classes"])
    part = None if described["part"] is None else (protocol.part or protocol.result)(described["part"])
    backend = backends.read(described["backend"])
    blocks = None if described["blocks"] is None else Blocks.opened_again(described["blocks"])
    how = {"n_threads": described["n_threads"], "backend": backend, "blocks": blocks}
    return PartyData(table, classes=classes, part=part, **how, **of_rows)


# --- the process -----------------------------------------------------------------------------------------------------


def prepare(protocol: str, job: Mapping[str, Any]) -> None:
    """Load, and compile where it is not on disk, what a run of this job needs.

    If something is wrong with that, each party finds it by itself, and says so.
    """
    with contextlib.suppress(Exception):
        import hedgerow.transport.grpc  # noqa: F401 - starts no thread before there is a connection

        chosen = find(protocol)
        warm_up(chosen, chosen.job.from_dict(job))


def play(orders: Orders, rows: int | None, transcript_file: int | None) -> int:
    """Play one party's role; 0 if it came to its end. Rows and transcript are descriptors of files."""
    about = orders.wait_for("start")
    LOGGER.addHandler(_TellLog(logging.WARNING))
    party: Party | None = None
    try:
        protocol = find(about["protocol"])
        data = None if rows is None else _read_data(rows, about["data"], protocol)
        certificates = about["certificates"]
        identity = Identity.from_pem(about["key"].encode(), certificates[about["name"]].encode())
        trust = TrustStore()
        for name, pem in certificates.items():
            trust.pin(name, pem.encode())
        job = protocol.job.from_dict(about["job"])
        warm_up(protocol, job)
        attempt, checkpoints = about.get("attempt", 1), None
        if "checkpoints" in about:
            from hedgerow.runtime.checkpoint import CheckpointFiles

            checkpoints = CheckpointFiles(about["checkpoints"], protocol, job, about["name"])
        connection = _open(orders, about, identity, trust, job, agreed(protocol, job, attempt))
        endpoint: Endpoint = Emulated(connection, Link(**about["link"])) if about["link"] else connection
        transcript = None
        place = about.get("record", transcript_file)
        if place is not None:
            transcript = TranscriptFile(place, endpoint.name, endpoint.peers, job.run_id)
            endpoint = Recording(endpoint, transcript)
        how = {"deadline": about["deadline"], "on_progress": _tell_progress}
        party = Party(endpoint, identity, trust, attempt=attempt, checkpoints=checkpoints, **how)
        connection.wait_connected()
        _tell(event="ready")
        orders.wait_for("go")
        started = time.monotonic()
        result = role(protocol, party, job, data, read(about.get("budget")))()
        ended = time.monotonic()
        if transcript is not None:
            transcript.close()
        endpoint.close()
        told = {"result": result.to_dict(), "ledger": party.ledger.to_json_lines()}
        _tell(event="done", started=started, ended=ended, **told)
    except Exception as error:  # noqa: BLE001 - whatever it is, the peers and the one who started us must hear of it
        if party is not None:
            party.abort(error)
        ledger = "" if party is None else party.ledger.to_json_lines()
        told = {name: getattr(error, name, None) for name in ("party", "code")}
        _tell(event="failed", error=type(error).__name__, message=str(error), ledger=ledger, **told)
        return 1
    return 0


def _open(
    orders: Orders, about: Mapping[str, Any], identity: Identity, trust: TrustStore, job: Job, same: Agreed
) -> GrpcEndpoint:
    """Dial those that this party is to dial, and listen if others dial it: as the job's links say."""
    from hedgerow.transport.grpc import GrpcEndpoint

    name = about["name"]
    links = [link for link in job.links if name in link]
    peers = [b if a == name else a for a, b in links]
    listens = any(a == name for a, _ in links)
    listen, dial = "127.0.0.1:0" if listens else None, {}
    if any(b == name for _, b in links):
        dial = orders.wait_for("dial")
    how = {"listen": listen, "dial": dial, "grace": about["grace"]}
    endpoint = GrpcEndpoint(name, identity, trust, run_id=job.run_id, peers=peers, job=same, **how)
    if listens:
        _tell(event="listening", port=endpoint.port)
    return endpoint


_telling = threading.Lock()


def _tell(**what: Any) -> None:
    line = json.dumps(what) + "\n"
    with _telling:  # a warning may come from any thread
        sys.stdout.write(line)
        sys.stdout.flush()


class _TellLog(logging.Handler):
    """Warnings go to whoever started the process: its own stderr is a file that nobody reads while all is well."""

    def emit(self, record: logging.LogRecord) -> None:
        _tell(event="log", level=record.levelno, message=record.getMessage())


def _tell_progress(done: int, total: int) -> None:
    _tell(event="progress", done=done, total=total)
