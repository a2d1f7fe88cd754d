"""The port of the live page, for a browser on the same machine.

    GET /              the page; it has nothing of the party in it
    GET /live.js       what the page runs
    GET /live.css      how it looks
    GET /events        what there is, and then what happens, as server-sent events; shows the token

It only reads: every other method is refused. The token is random, is made anew with each start, and stands in the part
of the address behind #, which a browser keeps to itself. The page's own script takes it from there and shows it in a
header, as Authorization: Bearer. So it is in no request line, no log and no cookie, which other ports of this machine
would get to see; and no other page can make a browser send it, because a header that a page sets itself needs a leave
that is never given here (no CORS). A request whose Host is another name than this machine's own is refused: a name
that an attacker points here does not help. The policy of the page lets it fetch and run nothing but these paths.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from hedgerow.errors import HedgerowError, InvalidInput, plain
from hedgerow.node.timed_http import BoundedHandler, BoundedHTTPServer
from hedgerow.node.watching import Event, Watch
from hedgerow.report.style import PAGE, sheet

LOOPBACK = "127.0.0.1"
LOOK_SECONDS = 0.5
"""Between two looks at the home."""
HEARTBEAT_SECONDS = 10.0
"""Without an event, a stream says so often that it is alive; who has gone is noticed then."""
MOST_STREAMS = 8
"""Pages that are open at the same time."""
REQUEST_SECONDS = 10.0
"""For a request to be there, and for whoever reads a stream to take what was sent."""
KEPT = 1000
"""Events that a slow reader may be behind; then it is shown all there is once more."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def _asset(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()


class Told:
    """What happens in a home, for several readers: one thread looks, all others wait for it. For a `with` statement."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._changed = threading.Condition()
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._n_events = 0
        self._trouble: Event = {"event": "trouble", "words": None}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="hedgerow watch", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._thread.join()

    def close(self) -> None:
        """End it for all who read."""
        self._is_over.set()
        with self._changed:
            self._changed.notify_all()

    def _look_on(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        """A damaged file of the home is an event too: the page says which, and when it is whole again."""
        with self._changed:
            try:
                new, words = self._watch.look(), None
            except HedgerowError as problem:
                new, words = [], plain(str(problem))
            if words != self._trouble["words"]:
                self._trouble = {"event": "trouble", "words": words}
                new = [*new, self._trouble]
            self._events += new
            self._n_events += len(new)
            if new:
                self._changed.notify_all()

    def events(self) -> Iterator[Event | None]:
        """All there is, then what happens, until the end; None now and then while nothing does."""
        with self._changed:
            seen, waiting = self._n_events, self._now()
        while not self._is_over.is_set():
            yield from waiting
            with self._changed:
                if seen == self._n_events and not self._is_over.is_set():
                    self._changed.wait(HEARTBEAT_SECONDS)
                n_new = self._n_events - seen
                seen = self._n_events
                is_behind = n_new > len(self._events)
                waiting = self._now() if is_behind else list(self._events)[len(self._events) - n_new :]
            if not waiting:
                yield None

    def _now(self) -> list[Event]:
        return [*self._watch.now(), self._trouble]


class LiveDoor(BoundedHTTPServer):
    """The server, on this machine's loopback address alone."""

    def __init__(self, port: int, told: Told, token: str) -> None:
        try:
            super().__init__((LOOPBACK, port), _Handler, token)
        except OSError as problem:
            raise InvalidInput(f"--port {port}: cannot listen on {LOOPBACK}: {problem.strerror or problem}") from None
        self.told = told
        self.hosts = {f"{name}:{self.port}" for name in (LOOPBACK, "localhost")}
        if self.port == 80:
            self.hosts |= {LOOPBACK, "localhost"}
        self.streams = threading.BoundedSemaphore(MOST_STREAMS)
        self.pages = {
            "/": ("text/html; charset=utf-8", _asset("live.html")),
            "/live.js": ("text/javascript; charset=utf-8", _asset("live.js")),
            "/live.css": ("text/css; charset=utf-8", (PAGE + sheet(_asset("live.css").decode())).encode()),
        }


class _Handler(BoundedHandler):
    server: LiveDoor
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:  # noqa: N802 - as the base class calls it
        """The page, or the events; a connection is for one of them."""
        self.close_connection = True
        if self.headers.get("Host") not in self.server.hosts:
            self._say(HTTPStatus.FORBIDDEN, "this page is for the browser of this machine")
        elif self.path in self.server.pages:
            self._write(HTTPStatus.OK, *self.server.pages[self.path])
        elif self.path != "/events":
            self._say(HTTPStatus.NOT_FOUND, "there is no such page")
        elif not self.server.is_token(self.headers.get("Authorization")):
            self._say(HTTPStatus.FORBIDDEN, "the address that hedgerow watch printed has the token")
        elif not self.server.streams.acquire(blocking=False):
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_STREAMS} pages are open already")
        else:
            try:
                self._stream()
            finally:
                self.server.streams.release()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """In a word, which quotes nothing of the request. What is not GET is not allowed."""
        del message, explain
        self.close_connection = True  # a body may follow, and is not read
        if code == HTTPStatus.NOT_IMPLEMENTED:
            known = self.headers.get("Host") in self.server.hosts
            code = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.FORBIDDEN
        self._say(HTTPStatus(code), "this page is only read, with GET")

    def _stream(self) -> None:
        self.server.waits(self.connection, idle=False)
        self._head(HTTPStatus.OK, "text/event-stream; charset=utf-8")
        for event in self.server.told.events():
            self.wfile.write(b": still here\n\n" if event is None else as_sent(event))
            self.wfile.flush()

    def _say(self, status: HTTPStatus, sentence: str) -> None:
        self._write(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())

    def _write(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self._head(status, kind, {"Content-Length": str(len(body)), "Allow": "GET"})
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _head(self, status: HTTPStatus, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        closing = {"Connection": "close"} if self.close_connection else {}
        for name, value in {"Content-Type": kind, **(more or {}), **closing, **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()


def as_sent(event: Event) -> bytes:
    """An event as browsers read them."""
    return f"event: {event['event']}\ndata: {as_line(event)}\n\n".encode()


def as_line(event: Any) -> str:
    """An event in one line of JSON."""
    return json.dumps(event, ensure_ascii=True, allow_nan=False)
