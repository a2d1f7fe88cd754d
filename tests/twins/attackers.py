"""Hostile connections to one port, a hundred of a kind at a time: of strangers, and of partners gone astray."""

from __future__ import annotations

import contextlib
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from hedgerow.transport.grpc_envelope import HELLO_KEY
from hedgerow.transport.grpc_streams import METHOD
from hedgerow.transport.mtls import Identity

N = 100
_PATIENCE = 20.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")  # and empty settings
_GET = bytes.fromhex("0000 03 01 05 00000001 828487".replace(" ", ""))  # GET / over https, of no known service


@dataclass
class Target:
    """A port, who listens there, and what attackers have in their hands."""

    name: str
    port: int
    certificate: bytes  # of the one who listens
    identities: Mapping[str, Identity]
    hello: Callable[[], bytes] = lambda: b""  # one that was overheard
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)  # kind of attack -> how its connections ended

    def count(self, attack: str, outcome: str) -> None:
        """One connection ended so."""
        ended = self.outcomes.setdefault(attack, {})
        ended[outcome] = ended.get(outcome, 0) + 1


def _connected(target: Target) -> socket.socket:
    return socket.create_connection(("127.0.0.1", target.port), timeout=_PATIENCE)


def _drain(target: Target, attack: str, sockets: list[Any], seconds: float) -> None:
    """Hold all of them for a while; then see which were hung up on."""
    time.sleep(seconds)
    for each in sockets:
        each.settimeout(0.0)
        ended = "open"
        try:
            while each.recv(65536):
                pass
            ended = "closed"
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except OSError:
            ended = "closed"
        target.count(attack, ended)
        each.close()


# --- below TLS -------------------------------------------------------------------------------------------------------


def _plain(says: bytes) -> Callable[[Target, str, float], None]:
    def attack(target: Target, kind: str, seconds: float) -> None:
        sockets = [_connected(target) for _ in range(N)]
        for each in sockets:
            with contextlib.suppress(OSError):
                each.sendall(says)
        _drain(target, kind, sockets, seconds)

    return attack


def _client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def _slowly(target: Target, kind: str, seconds: float) -> None:
    """A byte of a handshake now and then."""
    sockets, hello = [_connected(target) for _ in range(N)], _client_hello()
    until, place = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for each in sockets:
            with contextlib.suppress(OSError):
                each.sendall(hello[place : place + 1])
        place += 1
        time.sleep(0.1)
    _drain(target, kind, sockets, 0.0)


# --- TLS -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _context(identity: Identity | None) -> Iterator[ssl.SSLContext]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with tempfile.TemporaryDirectory() as folder:
        if identity is not None:
            chain = Path(folder, "chain.pem")
            chain.write_bytes(identity.certificate.pem + identity.key_pem)
            context.load_cert_chain(chain)
        yield context


def _tls(who: str | None, says: bytes) -> Callable[[Target, str, float], None]:
    def attack(target: Target, kind: str, seconds: float) -> None:
        sockets: list[Any] = []
        with _context(None if who is None else target.identities[who]) as context:
            for _ in range(N):
                try:
                    each = context.wrap_socket(_connected(target), server_hostname=target.name)
                    each.sendall(says)
                    sockets.append(each)
                except OSError:
                    target.count(kind, "closed")
        _drain(target, kind, sockets, seconds)

    return attack


# --- gRPC ------------------------------------------------------------------------------------------------------------


def _calls(
    who: str, method: str = METHOD, hello: Callable[[Target], bytes] = lambda _: b"", of: int = 1
) -> Callable[[Target, str, float], None]:
    """Calls with this HELLO in their header, `of` on each connection."""

    def attack(target: Target, kind: str, seconds: float) -> None:
        identity = target.identities[who]
        credentials = grpc.ssl_channel_credentials(target.certificate, identity.key_pem, identity.certificate.pem)
        options = [("grpc.ssl_target_name_override", target.name), ("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.secure_channel(f"127.0.0.1:{target.port}", credentials, options) for _ in range(N // of)]
        said = [(HELLO_KEY, hello(target))]
        calls = [
            channel.stream_stream(method)(iter([b"x" * 1000]), metadata=said, timeout=max(seconds, 2.0))
            for channel in channels
            for _ in range(of)
        ]
        for call in calls:
            with contextlib.suppress(grpc.RpcError):
                list(call)
            target.count(kind, call.code().name)
        for channel in channels:
            channel.close()

    return attack


ATTACKS: dict[str, Callable[[Target, str, float], None]] = {
    "says nothing": _plain(b""),
    "half a handshake": _plain(_client_hello()),
    "HTTP/1.1": _plain(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "slow bytes": _slowly,
    "no certificate": _tls(None, b""),
    "an unknown certificate": _tls("unknown", _PREFACE),
    "an expired certificate": _tls("expired", _PREFACE),
    "a revoked key": _tls("revoked", _PREFACE),
    "HTTP/2 without gRPC": _tls("partner", _PREFACE + _GET),
    "a partner of another run": _calls("other", hello=lambda target: target.hello()),
    "a HELLO again": _calls("partner", hello=lambda target: target.hello(), of=4),
    "no HELLO": _calls("partner", of=4),
    "a huge header": _calls("partner", hello=lambda _: bytes(100_000), of=4),
    "unknown methods": _calls("partner", method="/hedgerow.Transport/Open", of=4),
}
"""Each makes its hundred connections or calls, keeps them for some seconds, and is gone when it returns."""
