"""A link between two processes of one machine that a test can cut, stall and restore.

A small TCP proxy: dial `link.address` instead of the peer's, then

    link.cut()          every connection breaks and none can be made, as when a cable is pulled out and resets follow
    link.stall()        connections stay, but nothing gets through, as when a network silently drops packets
    link.restore()      all is well again (for connections made from now on, and for stalled ones)
    link.cut_after(n)   cut once n more bytes have passed, wherever in a message that is; restored after `for_seconds`

With a delay, what comes in goes out that many seconds later. As a program it forwards until it is ended:

    python cut_link.py LISTEN TARGET [DELAY]
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Self

_CHUNK = 1 << 16


class CutLink:
    """Forwards what comes to its own port to `target` ("host:port"), until told otherwise."""

    def __init__(self, target: str, listen: str = "127.0.0.1:0", delay: float = 0.0) -> None:
        host, _, port = listen.rpartition(":")
        self._listener = socket.create_server((host, int(port)))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        host, _, port = target.rpartition(":")
        self._target, self._delay = (host, int(port)), delay
        self.bytes_passed = 0
        self.connections_made = 0
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._is_cut = False
        self._cut_at: int | None = None
        self._cut_seconds = 0.0
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True, name="cut-link").start()

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        with self._lock:
            self._is_cut = True
            self._cut_at = None
            sockets, self._sockets = self._sockets, set()
        self._flowing.set()
        for each in sockets:
            _shut(each)

    def stall(self) -> None:
        """Let nothing through, without breaking anything."""
        self._flowing.clear()

    def restore(self) -> None:
        """Let connections be made, and what was held back pass."""
        with self._lock:
            self._is_cut = False
        self._flowing.set()

    def cut_after(self, n_bytes: int, for_seconds: float) -> None:
        """Cut when this many more bytes have passed (both directions together), and restore after a while."""
        with self._lock:
            self._cut_at = self.bytes_passed + n_bytes
            self._cut_seconds = for_seconds

    def close(self) -> None:
        """End it all."""
        _shut(self._listener)
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                far = socket.create_connection(self._target, timeout=5)
            except OSError:
                _shut(near)  # the target is not there; whoever dialled tries again
                continue
            far.settimeout(None)
            with self._lock:
                wanted = not self._is_cut
                if wanted:
                    self._sockets |= {near, far}
                    self.connections_made += 1
            if not wanted:
                _shut(near)
                _shut(far)
                continue
            for each in (near, far):  # before either can be closed again
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True, name="cut-link").start()

    def _arriving(self, source: socket.socket) -> Iterator[bytes]:
        """What comes in, each chunk when its delay is over."""
        if not self._delay:
            while data := source.recv(_CHUNK):
                yield data
            return
        on_the_way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def read() -> None:
            data = b"-"
            while data:
                try:
                    data = source.recv(_CHUNK)
                except OSError:
                    data = b""
                on_the_way.put((time.monotonic() + self._delay, data))

        threading.Thread(target=read, daemon=True, name="cut-link").start()
        while True:
            due, data = on_the_way.get()
            time.sleep(max(due - time.monotonic(), 0.0))
            if not data:
                return
            yield data

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for data in self._arriving(source):
                self._flowing.wait()
                passing, cuts = self._count(len(data))
                sink.sendall(data[:passing])
                if cuts:
                    self.cut()
                    time.sleep(self._cut_seconds)
                    self.restore()
                    return
        with self._lock:
            self._sockets -= {source, sink}
        _shut(source)
        _shut(sink)

    def _count(self, size: int) -> tuple[int, bool]:
        """How many of these bytes still pass, and whether the link is to be cut then."""
        with self._lock:
            if self._cut_at is not None and self.bytes_passed + size >= self._cut_at:
                passing = self._cut_at - self.bytes_passed
                self.bytes_passed = self._cut_at
                self._cut_at = None
                return passing, True
            self.bytes_passed += size
            return size, False


def _shut(each: socket.socket) -> None:
    # shutdown() also wakes a thread that is blocked in recv() or accept(); close() alone does not.
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


if __name__ == "__main__":
    with CutLink(sys.argv[2], sys.argv[1], *map(float, sys.argv[3:])):
        threading.Event().wait()
