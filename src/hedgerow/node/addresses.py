"""Addresses of machines, as people write them in files and on the command line: HOST:PORT."""

from __future__ import annotations

import ipaddress
import re

from hedgerow.errors import InvalidParameter, plain

EVERYWHERE = frozenset({"0.0.0.0", "[::]"})  # noqa: S104 - compared with, not bound to
"""What a party listens on to mean all addresses of its machine, and what nobody can dial."""
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")


def check_address(text: str, *, to_listen: bool = False) -> tuple[str, int]:
    """Host and port of "host:port" ("[::1]:7341" for IPv6).

    To listen, the port may be 0 (the machine chooses one) and the host all of a machine's, which nobody can dial.
    """
    host, colon, port = text.rpartition(":")
    number = int(port) if re.fullmatch(r"[0-9]{1,5}", port) else -1
    if not colon or not (0 if to_listen else 1) <= number <= 65_535:
        raise InvalidParameter(f"an address is HOST:PORT, for instance bank.example.org:7341, got {plain(text)!r}")
    if not to_listen and host in EVERYWHERE:
        raise InvalidParameter(f"{host} means all addresses of a machine, so nobody can dial {plain(text)!r}")
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1])), number
        except ValueError:
            raise InvalidParameter(f"{plain(host)!r} is not an IPv6 address in brackets") from None
    if not _HOST.fullmatch(host) or ".." in host:
        raise InvalidParameter(
            f"{plain(host)!r} in the address {plain(text)!r} is not the name or the number of a host; IPv6 numbers "
            "stand in brackets, as in [::1]:7341"
        )
    return host, number


def is_local(host: str) -> bool:
    """Whether only programs of this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
