"""The HTTP door of a standing service, for programs on the label holder's own machine.

    POST /score      {"ids": [...]} or {"rows": [{"id": ..., own columns}]}  ->  {"scores": [...], "unknown": [...]}
    GET /health      whether all partners are there
    GET /metrics     for Prometheus

It speaks plain HTTP and so listens on a loopback address alone; who wants more puts a proxy with TLS before it. Every
request but /health shows a token, which is made when the service first starts and lies in the home folder, for its
owner's eyes. Bodies, rows, connections and times are bounded. Errors are one sentence, and quote nothing.
"""

from __future__ import annotations

import bisect
import json
import logging
import secrets
import threading
import time
from collections import Counter, deque
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter
from hedgerow.node.addresses import check_address, is_local
from hedgerow.node.documents import read_bounded
from hedgerow.node.serving import Absent, Limited
from hedgerow.node.serving_scores import MOST_ASKED, Scorer
from hedgerow.node.timed_http import BoundedHandler, BoundedHTTPServer
from hedgerow.runtime.saved_files import write_private

_log = logging.getLogger("hedgerow")

TOKEN_FILE = "serve.token"  # noqa: S105 - the name of the file, not what is in it
MOST_BODY = 1 << 20
IDLE_SECONDS = 30.0
"""For a request to be there as a whole, from the end of the one before."""
_MOST_TOKEN = 1024
_BUCKETS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096)
_LAST = 2048  # requests that quantiles are of


def token_of(home: Path) -> str:
    """The token in the home folder; a new one if there is none."""
    path = home / TOKEN_FILE
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32) + "\n")
    token = read_bounded(path, _MOST_TOKEN).decode("ascii", "replace").strip()
    if len(token) < 32 or not token.isprintable():
        raise InvalidInput(f"{path} holds no token of 32 letters or more; take it away, and a new one is made")
    return token


def address_of(text: str) -> tuple[str, int]:
    """Host and port of --http; InvalidParameter for what is not an address of this machine's own."""
    try:
        host, port = check_address(text, to_listen=True)
    except InvalidParameter:
        host, port = "", -1
    if not is_local(host):
        raise InvalidParameter(
            f"--http must be a loopback address and a port, as 127.0.0.1:8080, got {text!r}: the endpoint speaks plain "
            "HTTP, so put a proxy with TLS before it for other machines"
        )
    return host, port


class Metrics:
    """What happened, for Prometheus."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[int] = Counter()
        self._rows = self._unknown = 0
        self._buckets = [0] * (len(_BUCKETS) + 1)
        self._seconds = 0.0
        self._last: deque[float] = deque(maxlen=_LAST)

    def add(self, status: int, seconds: float | None = None, n_rows: int = 0, n_unknown: int = 0) -> None:
        """One request; seconds of those that were scored."""
        with self._lock:
            self._requests[status] += 1
            if seconds is not None:
                self._rows += n_rows
                self._unknown += n_unknown
                self._buckets[bisect.bisect_left(_BUCKETS, seconds)] += 1
                self._seconds += seconds
                self._last.append(seconds)

    def text(self, absent: list[str]) -> str:
        """In the format of Prometheus."""
        with self._lock:
            last, buckets = sorted(self._last), list(self._buckets)
            lines = ["# TYPE hedgerow_requests_total counter"]
            lines += [f'hedgerow_requests_total{{status="{code}"}} {n}' for code, n in sorted(self._requests.items())]
            lines += ["# TYPE hedgerow_rows_total counter", f"hedgerow_rows_total {self._rows}"]
            lines += ["# TYPE hedgerow_unknown_rows_total counter", f"hedgerow_unknown_rows_total {self._unknown}"]
            lines += ["# TYPE hedgerow_absent_partners gauge", f"hedgerow_absent_partners {len(absent)}"]
            lines.append("# TYPE hedgerow_score_seconds histogram")
            total = 0
            for end, n in zip((*map(str, _BUCKETS), "+Inf"), buckets, strict=True):
                total += n
                lines.append(f'hedgerow_score_seconds_bucket{{le="{end}"}} {total}')
            lines += [f"hedgerow_score_seconds_sum {self._seconds}", f"hedgerow_score_seconds_count {total}"]
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            lines.append(f"# TYPE hedgerow_score_seconds_{name} gauge")
            value = last[min(int(share * len(last)), len(last) - 1)] if last else "NaN"
            lines.append(f"hedgerow_score_seconds_{name} {value}")
        return "\n".join(lines) + "\n"


class Door(BoundedHTTPServer):
    """The server."""

    def __init__(self, address: tuple[str, int], scorer: Scorer, token: str) -> None:
        super().__init__(address, Handler, token)
        self.scorer, self.metrics = scorer, Metrics()

    def turned_away(self) -> None:
        """Counted."""
        self.metrics.add(HTTPStatus.SERVICE_UNAVAILABLE)


class Refused(Exception):
    """A request that is answered with a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str, *, hang_up: bool = False) -> None:
        super().__init__(sentence)
        self.status, self.hang_up = status, hang_up


class Handler(BoundedHandler):
    """One connection, request by request."""

    server: Door
    timeout = IDLE_SECONDS
    _PATHS: ClassVar = {"/score": "POST", "/health": "GET", "/metrics": "GET"}

    def do_GET(self) -> None:  # noqa: N802 - as the base class calls it
        """/health and /metrics."""
        self._respond("GET")

    def do_POST(self) -> None:  # noqa: N802 - as the base class calls it
        """/score."""
        self._respond("POST")

    def _respond(self, method: str) -> None:
        try:
            self._route(method)
        except Refused as refused:
            self.close_connection = self.close_connection or refused.hang_up
            self.server.metrics.add(refused.status)
            self._send(refused.status, {"error": str(refused)})
        except OSError:  # the client has gone
            raise
        except Exception:  # noqa: BLE001 - one request must not end without an answer, nor the service because of it
            _log.exception("a request for scores failed")
            self.close_connection = True
            self.server.metrics.add(HTTPStatus.INTERNAL_SERVER_ERROR)
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "this went wrong here; the service's log says more"})

    def _route(self, method: str) -> None:
        path = self.path.partition("?")[0]
        if path not in self._PATHS:
            self._refuse(HTTPStatus.NOT_FOUND, f"there are {', '.join(self._PATHS)}")
        if method != self._PATHS[path]:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} is for {self._PATHS[path]}")
        is_known = self.server.is_token(self.headers.get("Authorization"))
        if path == "/health":
            self._health(is_known)
            return
        if not is_known:
            self._refuse(HTTPStatus.UNAUTHORIZED, "a request shows the token, as Authorization: Bearer TOKEN")
        if path == "/metrics":
            self._write(HTTPStatus.OK, self.server.metrics.text(self.server.scorer.absent).encode(), "text/plain")
        else:
            self._score()

    def _refuse(self, status: HTTPStatus, sentence: str) -> NoReturn:
        """What comes after the head was not read, so the connection ends with it if there was anything."""
        raise Refused(status, sentence, hang_up=self.headers.get("Content-Length", "0") != "0")

    def _health(self, is_known: bool) -> None:
        absent = self.server.scorer.absent
        status = HTTPStatus.SERVICE_UNAVAILABLE if absent else HTTPStatus.OK
        told = {"status": "waiting" if absent else "ok", **({"absent": absent} if is_known else {})}
        self.server.metrics.add(status)
        self._send(status, told)

    def _score(self) -> None:
        started = time.perf_counter()
        document = self._document()
        self.server.waits(self.connection, idle=False)
        scorer = self.server.scorer
        key, asked = _asked(document)
        try:
            found = scorer.score(scorer.by_ids(asked) if key == "ids" else scorer.by_rows(asked))
        except Absent as problem:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(problem)) from None
        except Limited as problem:
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, str(problem)) from None
        except HedgerowError as problem:
            raise Refused(HTTPStatus.BAD_REQUEST, str(problem)) from None
        self.server.metrics.add(HTTPStatus.OK, time.perf_counter() - started, found.n_rows, len(found.unknown))
        self._send(HTTPStatus.OK, {"scores": found.scores, "unknown": found.unknown, "classes": scorer.classes})

    def _document(self) -> Any:
        length = self.headers.get("Content-Length")
        if length is None or not length.isascii() or not length.isdigit() or "Transfer-Encoding" in self.headers:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the body's length stands in Content-Length", hang_up=True)
        if len(length) > 12 or int(length) > MOST_BODY:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has {MOST_BODY} bytes at most", hang_up=True)
        body = self.rfile.read(int(length))
        if len(body) != int(length):
            raise Refused(HTTPStatus.BAD_REQUEST, "the body breaks off", hang_up=True)
        try:
            return json.loads(body, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise Refused(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None

    def _send(self, status: HTTPStatus, document: Any) -> None:
        self._write(status, json.dumps(document).encode(), "application/json")

    def _write(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def _no_constant(_name: str) -> NoReturn:
    raise ValueError("JSON has no NaN and no infinity")


def _asked(document: Any) -> tuple[str, list[Any]]:
    """Which of the two ways, and what; Refused for anything else."""
    keys = list(document) if isinstance(document, dict) else []
    if keys not in (["ids"], ["rows"]):
        raise Refused(HTTPStatus.BAD_REQUEST, 'the body is {"ids": [...]} or {"rows": [{"id": ..., ...}]}')
    asked = document[keys[0]]
    if not isinstance(asked, list) or not 1 <= len(asked) <= MOST_ASKED:
        raise Refused(HTTPStatus.BAD_REQUEST, f"{keys[0]} is a list of 1 to {MOST_ASKED} records")
    if keys == ["rows"] and not all(isinstance(row, dict) for row in asked):
        raise Refused(HTTPStatus.BAD_REQUEST, "each of rows is an object of id and columns")
    return keys[0], asked
