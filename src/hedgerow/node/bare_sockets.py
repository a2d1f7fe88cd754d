"""What bare sockets tell about the way to a peer, where a connection of gRPC only says that it failed.

    resolved, connected, shown_certificate      this party dials: a name, a port, what is shown there
    look_at_arrivals                            the peer dials: who was turned away by TLS, and why

Nothing is said to whoever is there, and nothing is believed.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cryptography import x509

from hedgerow.errors import plain
from hedgerow.node import documents
from hedgerow.node.addresses import check_address
from hedgerow.node.peers import Peer
from hedgerow.transport.mtls import Certificate, Identity, TrustStore

if TYPE_CHECKING:
    from hedgerow.node.home import Home

OK, FAILED, ELSEWHERE, NOT_REACHED = "ok", "failed", "seen by the peer", "not reached"
ONE_TRY_SECONDS = 3.0
_AGAIN_SECONDS = 0.2

Tell = Callable[[str], None]


class Step(NamedTuple):
    """One step: how it went, what was seen, and what to do if it failed."""

    name: str
    state: str
    seen: str
    fix: str = ""


class Ill(Exception):
    """A step failed."""

    def __init__(self, step: str, seen: str, fix: str) -> None:
        super().__init__(seen)
        self.step = Step(step, FAILED, seen, fix)


def resolved(host: str, port: int, peer: Peer) -> list[tuple[int, Any]]:
    """Families and addresses of a host, for sockets."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise Ill(
            "dns",
            f"{host} is not known to this machine: {getattr(problem, 'strerror', None) or problem}",
            f"ask {peer.name} for its address, then: hedgerow pair HOST:PORT; or have the name put into your DNS",
        ) from None
    return [(family, place) for family, _, _, _, place in found]


def connected(addresses: list[tuple[int, Any]], peer: Peer, until: float, tell: Tell) -> socket.socket:
    """A connection; what is refused is tried again, because the peer may be about to start."""
    is_told = False
    while True:
        problem: OSError | None = None
        for family, place in addresses:
            attempt = socket.socket(family, socket.SOCK_STREAM)
            attempt.settimeout(ONE_TRY_SECONDS)
            try:
                attempt.connect(place)
            except OSError as failure:
                attempt.close()
                problem = failure
            else:
                return attempt
        left = until - time.monotonic()
        if left <= 0:
            break
        if not is_told:
            tell(f"{peer.name} does not answer at {peer.address} yet; waiting for {left:.0f} s at most")
            is_told = True
        time.sleep(min(_AGAIN_SECONDS, left))
    if isinstance(problem, ConnectionRefusedError):
        raise Ill(
            "tcp",
            f"nothing listens at {peer.address}: the connection was refused",
            f"{peer.name}: hedgerow doctor, or any verb that listens; and compare bind in its party.toml",
        )
    raise Ill(
        "tcp",
        f"no answer from {peer.address}: {getattr(problem, 'strerror', None) or 'timed out'}",
        f"{peer.name}: let TCP connections to {peer.address} through firewalls and routers; you: let them out",
    )


def shown_certificate(connection: socket.socket, peer: Peer) -> Certificate:
    """The certificate that is shown there. Nothing is said or believed meanwhile."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    connection.settimeout(ONE_TRY_SECONDS)
    try:
        with context.wrap_socket(connection, server_hostname=peer.name) as secure:
            der, language = secure.getpeercert(binary_form=True), secure.selected_alpn_protocol()
        shown = Certificate(x509.load_der_x509_certificate(der or b""))
    except TimeoutError:
        raise Ill(
            "tls",
            f"{peer.address} takes the connection and then says nothing",
            f"{peer.name}: see that a firewall or proxy in front of the port passes TLS on, and restart the node",
        ) from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", None) or getattr(problem, "strerror", None) or str(problem)
        raise Ill(
            "tls",
            f"what answers at {peer.address} does not speak TLS ({plain(str(reason))})",
            f"ask {peer.name} for the right port, then pair again; a proxy there must pass TLS through unopened",
        ) from None
    if language != "h2":
        raise Ill(
            "tls",
            f"what answers at {peer.address} speaks TLS, but not HTTP/2",
            f"ask {peer.name} for the right port; a proxy there must pass TLS through unopened",
        )
    return shown


def look_at_arrivals(home: Home, identity: Identity, trust: TrustStore, peer: Peer, seconds: float, tell: Tell) -> Ill:
    """Why nobody came through: listen in place of the node, and look at what arrives."""
    bind = str(home.party_file.network.bind)
    tell(f"nobody came through; looking at what arrives at {bind} for {seconds:.0f} s")
    host, port = check_address(bind, to_listen=True)
    until = time.monotonic() + seconds
    seen: Ill | None = None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as server:
        context = _server_context(identity, trust, peer)
        while seen is None and (left := until - time.monotonic()) > 0:
            server.settimeout(left)
            try:
                arrived, place = server.accept()
            except TimeoutError:
                break
            cut = threading.Timer(2 * ONE_TRY_SECONDS, _cut, [arrived])  # each byte may take its time, all may not
            cut.start()
            with arrived:
                seen = _why_it_failed(arrived, context, home, peer, str(place[0]))
            cut.cancel()
    at = home.party_file.network.advertise or bind
    return seen or Ill(
        "tcp",
        f"no connection arrived at {bind} within {seconds:.0f} s",
        f"{peer.name}: hedgerow doctor {home.name}; you: see that {at} leads to this machine",
    )


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _server_context(identity: Identity, trust: TrustStore, peer: Peer) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=trust.roots([peer.name]).decode())
    password = secrets.token_hex(16).encode()  # the file is for its owner alone, and of no use without this
    with tempfile.TemporaryDirectory() as folder:
        files = {"key.pem": identity.encrypted_key_pem(password), "certificate.pem": identity.certificate.pem}
        for name, content in files.items():
            documents.write_whole(Path(folder, name), content)
        context.load_cert_chain(Path(folder, "certificate.pem"), Path(folder, "key.pem"), password=password)
    return context


def _why_it_failed(arrived: socket.socket, context: ssl.SSLContext, home: Home, peer: Peer, place: str) -> Ill | None:
    """None if nothing is wrong with this one."""
    arrived.settimeout(ONE_TRY_SECONDS)
    try:
        if not arrived.recv(1, socket.MSG_PEEK):
            return None  # it hung up without a word
        with context.wrap_socket(arrived, server_side=True) as secure:
            secure.recv(1)  # with TLS 1.3, what the other side thinks of our certificate comes after the handshake
    except ssl.SSLCertVerificationError as problem:
        return Ill(
            "identity",
            f"{place} showed another certificate than the one pinned for {peer.name} ({problem.verify_message})",
            f"ask {peer.name} whether it rotated its key: hedgerow keys follow FILE; otherwise it was a stranger",
        )
    except ssl.SSLError as problem:
        reason = str(problem.reason or problem)
        if "DID_NOT_RETURN_A_CERTIFICATE" in reason:
            return None  # a look at our certificate, by the same party: its next connection tells more
        if isinstance(problem, ssl.SSLEOFError) or "ALERT" in reason:  # gRPC hangs up without an alert
            return Ill(
                "identity",
                f"{place} came and does not accept the certificate of {home.name} ({plain(reason)})",
                f"{peer.name}: hedgerow keys follow FILE with what your hedgerow keys rotate wrote, or pair again",
            )
        return Ill(
            "tls",
            f"{place} came and does not speak TLS ({plain(reason)})",
            f"{peer.name}: dial from Hedgerow, and through no proxy that opens TLS",
        )
    except OSError:
        return None
    return None
