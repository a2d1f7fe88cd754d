"""Numbers of a run for Prometheus, on a local port and on request: `hedgerow run --metrics 127.0.0.1:9101`.

    with Metrics(address_of("9101"), party="bank", run_id=proposal.run_id) as metrics:
        play(node, paper, on_progress=metrics.on_progress, books=metrics.books)

They are what this party knows about its own traffic and how far it has got: names of parties, counts of messages and
bytes, never anything out of a row. They are answered without a password, and so on a loopback address unless another
one is asked for. One connection at a time is served, and has five seconds.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import HTTPServer
from typing import Any, Self

from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.ledger import Ledger, Meter
from hedgerow.node.addresses import check_address
from hedgerow.node.timed_http import TimedHandler

LOOPBACK = "127.0.0.1"
SECONDS = 5.0
"""For one who asks."""
_COUNTERS = {
    "messages_sent": "Messages sent to a peer, in this attempt.",
    "bytes_sent": "Bytes of messages sent to a peer, as encoded, without the envelopes of the transport.",
    "messages_received": "Messages received from a peer, in this attempt.",
    "bytes_received": "Bytes of messages received from a peer, as encoded.",
}


def address_of(text: str) -> tuple[str, int]:
    """Host and port of --metrics; a port alone is one of this machine's loopback address."""
    try:
        return check_address(text if ":" in text else f"{LOOPBACK}:{text}", to_listen=True)
    except InvalidParameter:
        raise InvalidParameter(f"--metrics must be PORT or HOST:PORT, as 127.0.0.1:9101, got {text!r}") from None


class Metrics:
    """The numbers of one run, and the port at which they are asked for. For a `with` statement."""

    def __init__(self, address: tuple[str, int], *, party: str, run_id: str) -> None:
        self.books: dict[str, Ledger] = {}
        """Ledgers by what they are of; `play` fills them in."""
        self._labels = {"party": party}
        self._run_id = run_id
        self._done = self._total = 0
        self._started = time.monotonic()
        try:
            self._server = _Server(address, self)
        except OSError as problem:
            where = f"{address[0]}:{address[1]}"
            raise InvalidInput(f"--metrics: cannot listen on {where}: {problem.strerror or problem}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def on_progress(self, done: int, total: int) -> None:
        """How far the run has got; what trains calls this."""
        self._done, self._total = done, total

    def text(self) -> str:
        """All numbers, in the text format of Prometheus."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        meter = Meter()
        for book in tuple(self.books.values()):
            meter += Meter(book)
        by_peer = meter.by_peer()
        for name, words in _COUNTERS.items():
            yield from _head(f"hedgerow_{name}_total", "counter", words)
            for peer, traffic in by_peer.items():
                labels = _labels({**self._labels, "peer": peer})
                yield f"hedgerow_{name}_total{labels} {getattr(traffic, name)}"
        gauges = {
            "run_done": (self._done, "Steps of the run that are done; steps are mostly trees."),
            "run_steps": (self._total, "Steps of the run in all; 0 until they are known."),
            "run_seconds": (round(time.monotonic() - self._started, 3), "Seconds since the command started."),
        }
        for name, (value, words) in gauges.items():
            yield from _head(f"hedgerow_{name}", "gauge", words)
            yield f"hedgerow_{name}{_labels(self._labels)} {value}"
        yield from _head("hedgerow_run_info", "gauge", "Which run this is; always 1.")
        yield f"hedgerow_run_info{_labels({**self._labels, 'run_id': self._run_id})} 1"


def _head(name: str, kind: str, words: str) -> Iterator[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: dict[str, str]) -> str:
    """Names of parties and ids of runs have no character that would need escaping."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


class _Server(HTTPServer):
    """One connection after the other."""

    def __init__(self, address: tuple[str, int], metrics: Metrics) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.metrics = metrics
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Without the look-up of the host's name that HTTPServer does, which may wait for a name server."""
        super(HTTPServer, self).server_bind()
        self.server_name, self.server_port = "hedgerow", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: one who hangs up in the middle is no matter for the log."""


class _Handler(TimedHandler):
    server: _Server
    timeout = SECONDS

    def do_GET(self) -> None:  # noqa: N802 - as the base class calls it
        """/metrics; there is nothing else."""
        is_known = self.path.partition("?")[0] == "/metrics"
        body = (self.server.metrics.text() if is_known else "there is /metrics\n").encode()
        self.send_response(HTTPStatus.OK if is_known else HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8" if is_known else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
