"""One party of a federation as a process of its own: `python -m hedgerow.local_party FOLDER`.

The folder holds what this party alone has (key, rows) and what all know (job, certificates). The process talks to its
peers over mutual TLS, and to whoever started it in JSON lines: on stdout what happens, on stdin what to do next.

    -> {"event": "listening", "port": 40123}       it can be dialled
    <- {"dial": {"coordinator": "127.0.0.1:40123"}}
    -> {"event": "ready"}                          all peers are connected, all kernels compiled
    <- {"go": true}
    -> {"event": "progress", "done": 3, "total": 20}, {"event": "log", "level": 30, "message": "..."}
    -> {"event": "done", ...} or {"event": "failed", "error": "InvalidInput", "message": "..."}
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.budgets import play, read
from hedgerow.engine.table import Column, Table
from hedgerow.party import LOGGER, Party
from hedgerow.protocols.protocol import PartyData, find
from hedgerow.transport.emulate import Emulated, Link
from hedgerow.transport.endpoint import Endpoint
from hedgerow.transport.mtls import Identity, TrustStore
from hedgerow.transport.transcripts import Recording, TranscriptFile

ABOUT, ROWS, RESULT, LEDGER = "party.json", "rows.npz", "result.json", "ledger.jsonl"
PART, TRANSCRIPT = "part.json", "transcript.frames"


def write_folder(folder: Path, about: Mapping[str, Any], identity: Identity, data: PartyData | None) -> None:
    """Everything that a party needs, readable by nobody else."""
    folder.mkdir(mode=0o700)
    identity.save(folder)
    described = dict(about)
    if data is not None:
        columns = {f"column_{k}": column.values for k, column in enumerate(data.table.columns)}
        more = {"labels": data.labels, "ids": data.ids}
        more = {name: values for name, values in more.items() if values is not None}
        np.savez(folder / ROWS, allow_pickle=False, **columns, **more)  # type: ignore[arg-type]  # the stubs take keywords for options
        described["data"] = {
            "names": list(data.table.names),
            "has_names": data.table.has_names,
            "n_rows": data.table.n_rows,
            "levels": [None if c.levels is None else list(c.levels) for c in data.table.columns],
            "classes": None if data.classes is None else list(data.classes),
            "n_threads": data.n_threads,
        }
        if data.part is not None:
            (folder / PART).write_text(json.dumps(data.part))
    (folder / ABOUT).write_text(json.dumps(described))


def _read_data(folder: Path, described: Mapping[str, Any]) -> PartyData:
    with np.load(folder / ROWS, allow_pickle=False) as arrays:
        columns = tuple(
            Column(name, arrays[f"column_{k}"], None if levels is None else tuple(levels))
            for k, (name, levels) in enumerate(zip(described["names"], described["levels"], strict=True))
        )
        labels, ids = arrays.get("labels"), arrays.get("ids")
    table = Table(columns, described["n_rows"], tuple(described["names"]), described["has_names"])
    classes = None if described["classes"] is None else tuple(described["classes"])
    part = json.loads((folder / PART).read_text()) if (folder / PART).exists() else None
    return PartyData(table, labels, classes, described["n_threads"], part, ids)


def main(folder: Path) -> int:
    """Play one party's role; 0 if it came to its end."""
    about = json.loads((folder / ABOUT).read_text())
    LOGGER.addHandler(_TellLog(logging.WARNING))
    endpoint: Endpoint | None = None
    try:
        identity = Identity.load(folder)
        trust = TrustStore()
        for name, pem in about["certificates"].items():
            trust.pin(name, pem.encode())
        protocol = find(about["protocol"])
        job = protocol.job_from_dict(about["job"])
        data = _read_data(folder, about["data"]) if "data" in about else None
        protocol.rehearse(job)
        endpoint = _connect(about, identity, trust)
        transcript = None
        if "record" in about:
            transcript = TranscriptFile(about["record"], endpoint.name, endpoint.peers, about["run_id"])
            endpoint = Recording(endpoint, transcript)
        party = Party(endpoint, identity, trust, deadline=about["deadline"], on_progress=_tell_progress)
        _tell(event="ready")
        _wait_for("go")
        started = time.monotonic()
        result = play(protocol, party, job, data, read(about.get("budget")))
        ended = time.monotonic()
        (folder / RESULT).write_text(json.dumps(result.to_dict()))
        (folder / LEDGER).write_text(party.ledger.to_json_lines())
        if transcript is not None:
            transcript.close()
        endpoint.close()
        _tell(event="done", started=started, ended=ended, traffic=party.meter.to_dict())
    except Exception as error:  # noqa: BLE001 - whatever it is, the peers and the one who started us must hear of it
        if endpoint is not None:
            endpoint.abort(str(error))
        _tell(event="failed", error=type(error).__name__, message=str(error), party=getattr(error, "party", None))
        return 1
    return 0


def _connect(about: Mapping[str, Any], identity: Identity, trust: TrustStore) -> Endpoint:
    """Dial those that this party is to dial, listen if others dial it, and wait for all."""
    from hedgerow.transport.grpc import GrpcEndpoint

    endpoint = GrpcEndpoint.open(
        about["name"],
        identity,
        trust,
        run_id=about["run_id"],
        peers=about["peers"],
        listen="127.0.0.1:0" if about["listens"] else None,
        dial=_wait_for("dial") if about["dials"] else {},
        grace=about["grace"],
    )
    if about["listens"]:
        _tell(event="listening", port=endpoint.port)
    endpoint.wait_connected()
    return Emulated(endpoint, Link(**about["link"])) if about["link"] else endpoint


def _tell(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class _TellLog(logging.Handler):
    """Warnings go to whoever started the process: its own stderr is a file that nobody reads while all is well."""

    def emit(self, record: logging.LogRecord) -> None:
        _tell(event="log", level=record.levelno, message=record.getMessage())


def _tell_progress(done: int, total: int) -> None:
    _tell(event="progress", done=done, total=total)


def _wait_for(key: str) -> Any:
    line = sys.stdin.readline()
    if not line:  # whoever started us is gone
        os._exit(1)
    return json.loads(line)[key]


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
