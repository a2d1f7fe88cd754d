"""Whose turn it is to take events off a queue: the thread that waits for one, and an idle thread when nobody waits.

A thread that waits for a message leads: it takes events itself, acts on them, and sees the one it waits for without
being woken by another thread. Others that wait meanwhile follow: they sleep until the leader tells them that something
happened. When nobody has led for a while, the idle thread does, so that pings are answered and ends are noticed; it
makes room as soon as somebody waits.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

_log = logging.getLogger("hedgerow")

IDLE_SECONDS = 0.02  # when nobody has led for so long, the idle thread does


class Pump(ABC):
    """One completion queue. Whoever waits for something on it leads: takes events and acts on them; others follow."""

    def __init__(self, label: str) -> None:
        self.stopped = False
        self.leader_until: float | None = None  # when the leader wants to be interrupted, if it cannot see to it itself
        self._led_at = 0.0
        self._leading = threading.Lock()
        self._changed = threading.Condition()
        self._following = 0
        self._kick = threading.Event()
        self._idle = threading.Thread(target=self._watch_when_idle, daemon=True, name=f"hedgerow-{label}")

    def start(self) -> None:
        """Start the idle thread."""
        self._idle.start()

    @abstractmethod
    def poll(self, until: float) -> None:
        """Take the next event and act on it, or return without one, around `until` (monotonic) at the latest."""

    @abstractmethod
    def interrupt(self) -> None:
        """Make the leader look at its deadline."""

    @abstractmethod
    def stop(self) -> None:
        """End every call and give back what the queue belongs to."""

    def wait(self, ready: Callable[[], object], until: float) -> bool:
        """Act on events until `ready()`; False if it was not so at `until` (monotonic)."""
        while not ready():
            if self._leading.acquire(blocking=False):
                try:
                    while not ready():
                        if time.monotonic() >= until:
                            return False
                        self.poll(until)
                        self._tell_followers()
                finally:
                    self._led_at = time.monotonic()
                    self._leading.release()
                    self._tell_followers()
            elif not self._follow(ready, until):
                return False
        return True

    def take_over(self) -> None:
        """Let the idle thread watch now: something is under way, and the caller has other things to do."""
        self._kick.set()

    def tell(self) -> None:
        """Something changed that a waiting thread may be waiting for, other than by an event."""
        self._tell_followers()
        if self._leading.locked():
            self.interrupt()

    def lead(self) -> None:
        """Become the leader for good (to take everything down)."""
        while not self._leading.acquire(timeout=0.01):
            self.interrupt()

    def _follow(self, ready: Callable[[], object], until: float) -> bool:
        with self._changed:
            # Counted before looking once more: a leader that misses us has made its change before our look.
            self._following += 1
            try:
                if not ready() and self._leading.locked():
                    left = until - time.monotonic()
                    if left <= 0:
                        return False
                    self._changed.wait(min(left, 1.0))
            finally:
                self._following -= 1
        return True

    def _tell_followers(self) -> None:
        if self._following:
            with self._changed:
                self._changed.notify_all()

    def _watch_when_idle(self) -> None:
        while not self.stopped:
            kicked = self._kick.wait(IDLE_SECONDS)
            if kicked:
                self._kick.clear()
            elif time.monotonic() - self._led_at < IDLE_SECONDS:
                continue
            if not self._leading.acquire(blocking=False):
                continue
            try:
                # A thread that waits does better to lead itself: make room for it after the next event.
                while not self._following and not self.stopped:
                    self.poll(float("inf"))
            except Exception:  # noqa: BLE001 - without this thread nobody would notice a peer that goes
                _log.exception("an event of a connection could not be handled")
            finally:
                self._leading.release()
                self._tell_followers()
