"""What HTTP doors of a node have in common: each request has so many seconds in all, and nothing is kept of who asks.

Python's own server waits anew for every byte. Whoever sends one now and then would hold a connection, and where one is
served after the other, everybody else and the end of the run.
"""

from __future__ import annotations

import io
import socket
import time
from http.server import BaseHTTPRequestHandler
from typing import Any


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
