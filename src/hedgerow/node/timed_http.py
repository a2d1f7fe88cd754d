"""What HTTP doors of a node have in common: bounds on time and on connections, tokens, and nothing kept of who asks.

Python's own server waits anew for every byte. Whoever sends one now and then would hold a connection, and where one is
served after the other, everybody else and the end of the run. So each request has so many seconds in all. Where there
is a thread for each connection, there are not too many of them.
"""

from __future__ import annotations

import contextlib
import hmac
import io
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any

MOST_CONNECTIONS = 64


class _Timed(io.RawIOBase):
    """What comes over a connection, until a moment that is set for each request."""

    def __init__(self, connection: socket.socket) -> None:
        self.until = 0.0
        self._connection = connection

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes; TimeoutError when the time is over."""
        patience = self._connection.gettimeout()
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("a request takes too long")
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(patience)  # which is for sending


class TimedHandler(BaseHTTPRequestHandler):
    """One connection, request by request; each has `timeout` seconds from the end of the one before."""

    server_version, sys_version = "hedgerow", ""
    timeout = 30.0

    def setup(self) -> None:
        """Read with the clock in view."""
        super().setup()
        self.rfile.close()
        self._incoming = _Timed(self.connection)
        self.rfile = io.BufferedReader(self._incoming)

    def handle_one_request(self) -> None:
        """The next request, whose time begins now."""
        self._incoming.until = time.monotonic() + self.timeout
        super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class spells it
        """Nothing: paths and addresses of those who ask are not kept."""


class BoundedHTTPServer(ThreadingHTTPServer):
    """A server with a thread for each connection, and not too many of them, for whoever shows its token.

    When all places are taken, whoever has kept one for longest without a request makes room.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BoundedHandler], token: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)
        self._token = token.encode()
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._idle: dict[socket.socket, None] = {}  # connections without a request, the oldest first
        self._lock = threading.Lock()

    def server_bind(self) -> None:
        """Without the look-up of the host's name that HTTPServer does, which may wait for a name server."""
        super(HTTPServer, self).server_bind()
        self.server_name, self.server_port = "hedgerow", int(self.server_address[1])

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    def is_token(self, header: str | None) -> bool:
        """Whether a request shows the token; how long that takes does not tell how much of it is right."""
        scheme, _, shown = (header or "").partition(" ")
        return hmac.compare_digest(shown.strip().encode("utf-8", "replace"), self._token) and scheme.lower() == "bearer"

    def turned_away(self) -> None:
        """Called when there was no room for a connection."""

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, unless there are too many that are being answered."""
        if not self._free.acquire(blocking=False) and not (self._cut_oldest() and self._free.acquire(timeout=1.0)):
            self.turned_away()
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One connection, to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def waits(self, connection: socket.socket, *, idle: bool) -> None:
        """Whether a connection waits for a request, or has one that is being answered."""
        with self._lock:
            self._idle.pop(connection, None)
            if idle:
                self._idle[connection] = None

    def _cut_oldest(self) -> bool:
        with self._lock:
            oldest = next(iter(self._idle), None)
            if oldest is not None:
                del self._idle[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        return oldest is not None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle is no matter for the log."""


class BoundedHandler(TimedHandler):
    """One connection of such a server; while it waits for a request, it may be cut for another one."""

    server: BoundedHTTPServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def handle_one_request(self) -> None:
        """Until it is there the connection may be cut."""
        self.server.waits(self.connection, idle=True)
        super().handle_one_request()

    def finish(self) -> None:
        """Its place is free."""
        self.server.waits(self.connection, idle=False)
        super().finish()
