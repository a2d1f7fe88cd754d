"""Organisations with a network each: Linux network namespaces, and a third one between them.

    with Networks() as networks:                    # Unavailable, in words, where the machine does not allow it
        Office(folder, around=networks.inside("bank"))
        networks.cut("shop"); networks.restore("shop")

    bank 10.203.1.2 ------ 10.203.1.1 middle 10.203.2.1 ------ 10.203.2.2 shop

The middle passes packets on, like a router between two sites, unless it is told not to: then a site reaches only what
listens in the middle.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType
from typing import Self

SITES = {"bank": "10.203.1", "shop": "10.203.2"}


class Unavailable(Exception):
    """Why there are no namespaces here."""


class Networks:
    """Namespaces of a bank, a shop and what is between them, all gone in the end."""

    def __init__(self) -> None:
        self._mark = f"hg{os.getpid() % 100_000}"

    def __enter__(self) -> Self:
        if shutil.which("ip") is None:
            raise Unavailable("network namespaces need the command ip (Debian's package iproute2)")
        try:
            self._make()
        except subprocess.CalledProcessError as problem:
            self._remove()
            said = problem.stderr.decode().strip()
            raise Unavailable(
                f"network namespaces are not allowed here ({said or problem}); root may make them"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def address(self, name: str) -> str:
        """Of a site."""
        return f"{SITES[name]}.2"

    def middle(self, name: str) -> str:
        """The address of the middle, as a site sees it."""
        return f"{SITES[name]}.1"

    def inside(self, name: str) -> tuple[str, ...]:
        """What a command is started with to be in there: a site, or "middle"."""
        return ("ip", "netns", "exec", self._named(name))

    def route(self, *, passes: bool) -> None:
        """Whether the middle passes packets on."""
        self._run("sh", "-c", f"echo {passes:d} > /proc/sys/net/ipv4/ip_forward", inside="middle")

    def cut(self, name: str) -> None:
        """From now on no packet reaches the site or leaves it, and nobody is told."""
        self._ip("link", "set", self._near(name), "down", inside="middle")

    def restore(self, name: str) -> None:
        """All is well again."""
        self._ip("link", "set", self._near(name), "up", inside="middle")

    def delay(self, name: str, milliseconds: float) -> None:
        """Hold back every packet to and from a site. Unavailable if the kernel cannot."""
        try:
            for inside, device in (("middle", self._near(name)), (name, "eth0")):
                self._run(
                    "tc", "qdisc", "add", "dev", device, "root", "netem", "delay", f"{milliseconds}ms", inside=inside
                )
        except (FileNotFoundError, subprocess.CalledProcessError):
            raise Unavailable("delays need tc and the kernel's module sch_netem") from None

    def listening(self, name: str) -> list[str]:
        """Addresses that somebody in a site listens on, as the kernel has them in hexadecimal digits."""
        found = []
        for table in ("tcp", "tcp6"):
            lines = self._run("cat", f"/proc/net/{table}", inside=name).splitlines()[1:]
            found += [line.split()[1] for line in lines if line.split()[3] == "0A"]
        return found

    def _make(self) -> None:
        self._ip("netns", "add", self._named("middle"))
        for name in SITES:
            self._ip("netns", "add", self._named(name))
            there = ["peer", "name", "eth0", "netns", self._named(name)]
            self._ip("link", "add", self._near(name), "netns", self._named("middle"), "type", "veth", *there)
            self._ip("addr", "add", f"{self.middle(name)}/24", "dev", self._near(name), inside="middle")
            self._ip("addr", "add", f"{self.address(name)}/24", "dev", "eth0", inside=name)
            self._ip("link", "set", self._near(name), "up", inside="middle")
            for device in ("lo", "eth0"):
                self._ip("link", "set", device, "up", inside=name)
            self._ip("route", "add", "default", "via", self.middle(name), inside=name)
        self._ip("link", "set", "lo", "up", inside="middle")
        self.route(passes=True)

    def _remove(self) -> None:
        for name in ("middle", *SITES):
            subprocess.run(["ip", "netns", "del", self._named(name)], check=False, capture_output=True)

    def _named(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def _near(self, name: str) -> str:
        return f"{self._mark}{name}"[:15]

    def _ip(self, *words: str, inside: str | None = None) -> None:
        self._run("ip", *words, inside=inside)

    def _run(self, *words: str, inside: str | None = None) -> str:
        around = () if inside is None else self.inside(inside)
        return subprocess.run([*around, *words], check=True, capture_output=True).stdout.decode()
