"""Two people read each other a short code over the telephone; afterwards both parties have pinned each other.

One side listens on its one port and shows a code of eight digits; the other dials and types it. The conversation runs
inside TLS 1.3. The certificates in it are not known to anybody yet, so TLS keeps out listeners only; that nobody sits
in between is what the code is for:

    dialler  -> listener   hello: name, address, certificate
    listener -> dialler    hello: name, address                      its certificate is the one that TLS showed
    dialler  -> listener   SPAKE2, side A
    listener -> dialler    SPAKE2, side B
    dialler  -> listener   proof: it has the code and its certificate's key
    listener -> dialler    proof: the same of the listener
    dialler  -> listener   checked: it accepts the listener
    listener -> dialler    pinned: it has written down the dialler; now the dialler writes down the listener

From SPAKE2 both get a key, which is the same only if both had the same code. The transcript is a hash of both names,
addresses, certificates and SPAKE2's messages; a proof is an HMAC of it under that key, and a signature of it under the
certificate's key. Somebody in between would have to show another certificate on at least one side, so that the two
transcripts differ. Nothing is pinned before both proofs were checked.

Guessing: 10**8 codes are 26.6 bits. Whoever tries one learns only whether it was right, because the dialler proves
first. A wrong proof costs an attempt; after three the code is dead, as it is after ten minutes, or when it was used. So
a stranger succeeds with a chance of 3 in 100 million. Before the code was proven the listener tells strangers nothing
but its own name, address and certificate: not whom it knows, not whom it revoked.

Timing: the library computes in plain Python, longer for some codes than for others. So what depends on the code is
answered after a fixed time, and after 64 conversations that came that far the code is dead too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from spake2 import SPAKE2_A, SPAKE2_B, SPAKEError
from spake2.ed25519_basic import NotOnCurve

from hedgerow.errors import (
    DeadlineExceeded,
    FrameError,
    HedgerowError,
    InvalidParameter,
    PeerLost,
    PeerRefused,
    TransportError,
    VersionMismatch,
    plain,
)
from hedgerow.node.addresses import check_address
from hedgerow.node.documents import write_whole
from hedgerow.node.peers import Peer, Peers, check_certificate, check_other_name
from hedgerow.transport.mtls import Certificate, Identity

DIGITS = 8
ATTEMPTS = 3
MINUTES = 10.0
VERSION = "1"
MOST_BYTES = 16 * 1024
CONVERSATION_SECONDS = 30.0
"""A conversation takes less than a second, without anybody typing; who takes longer is not a partner's program."""
MOST_CONVERSATIONS = 64
MOST_STARTS = 64
"""Conversations in which one code is used for computing, whether or not the other side then tries to prove it."""
ANSWER_SECONDS = 0.3
"""Ten times what SPAKE2 takes on a usual machine."""
_LABEL = b"hedgerow pairing, version 1\0"
_POLL_SECONDS = 0.05

REFUSALS = {
    "wrong_code": "the code was not the one that the other side shows, or somebody sits between you",
    "dead": "the code is used up; ask the other side to start again, with a new code",
    "malformed": "the other side did not understand the conversation; both need the same version of hedgerow",
    "name": "the other side cannot pair with a party of this name; it must differ from its own",
    "certificate": "the other side does not accept this certificate: it is damaged, expired, or not yet valid",
    "not_accepted": "the other side has the right code but does not accept this party; its own terminal says why",
}
"""What one side tells the other when it stops."""


def new_code() -> str:
    """A code to be read out: "4821-0937"."""
    digits = f"{secrets.randbelow(10**DIGITS):0{DIGITS}d}"
    return f"{digits[:4]}-{digits[4:]}"


def clean_code(text: str) -> str:
    """A code as somebody typed it, in the form that `new_code` gives; a typing mistake must not cost an attempt."""
    digits = re.sub(r"[\s-]", "", text)
    if not re.fullmatch(rf"[0-9]{{{DIGITS}}}", digits):
        raise InvalidParameter(f"the code has {DIGITS} digits, as in 4821-0937")
    return f"{digits[:4]}-{digits[4:]}"


# --- what is said ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Card:
    """What a party says of itself."""

    name: str
    address: str | None
    certificate: Certificate


class Refusal(PeerRefused):
    """The end of a conversation of which the other side is told a code from the public list."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Line:
    """One end of a conversation: messages of bounded size, all of them before one deadline."""

    def __init__(self, tls: ssl.SSLSocket, seconds: float = CONVERSATION_SECONDS) -> None:
        self._tls = tls
        self._end = time.monotonic() + seconds

    def handshake(self) -> None:
        """Agree on TLS."""
        with self._in_time():
            self._tls.do_handshake()

    def send(self, kind: str, **fields: str) -> None:
        """Say something."""
        content = json.dumps({"kind": kind, **fields}).encode()
        with self._in_time():
            self._tls.sendall(struct.pack(">I", len(content)) + content)

    def recv(self, kind: str, *fields: str) -> dict[str, str]:
        """The next message, which must be of this kind and have these fields; all of them are texts, and ASCII."""
        (size,) = struct.unpack(">I", self._exactly(4))
        if size > MOST_BYTES:
            raise FrameError(f"the other side announced a message of {size:,} bytes; the most is {MOST_BYTES:,}")
        try:
            said = json.loads(self._exactly(size))
        except (ValueError, RecursionError):
            raise FrameError("the other side sent something that is not a message") from None
        if not isinstance(said, dict) or not all(isinstance(text, str) and text.isascii() for text in said.values()):
            raise FrameError("the other side sent something that is not a message")
        if said.get("kind") == "refused" and said.get("code") == "version":
            raise VersionMismatch(_two_versions(said.get("version", "?")))
        if said.get("kind") == "hello" and said.get("version", VERSION) != VERSION:  # its fields may be others
            raise VersionMismatch(_two_versions(said["version"]))
        if said.get("kind") == "refused":
            raise PeerRefused(REFUSALS.get(said.get("code", ""), "the other side stopped without a reason"))
        if said.get("kind") != kind or set(said) != {"kind", *fields}:
            raise FrameError(f"the other side said {plain(str(said.get('kind')))!r} where {kind!r} was due")
        return said

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            with self._in_time():
                part = self._tls.recv(size)
            if not part:
                raise PeerLost("the other side ended the conversation")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        try:
            # Not 0, which would mean "do not wait at all" and raise another error.
            self._tls.settimeout(max(self._end - time.monotonic(), 1e-6))
            yield
        except TimeoutError:
            raise DeadlineExceeded("the other side took too long to answer") from None
        except ssl.SSLError as problem:
            raise TransportError(f"no TLS 1.3 with the other side: {plain(problem.reason or str(problem))}") from None
        except (OSError, ValueError) as problem:  # ValueError: closed by another thread
            raise PeerLost(f"the other side is gone: {plain(str(problem))}") from None


class Secret:
    """The key that SPAKE2 gave, bound to all that was said; the same on both sides, or good for nothing."""

    def __init__(self, key: bytes, dialler: Card, listener: Card, side_a: bytes, side_b: bytes) -> None:
        parts = [_LABEL, side_a, side_b]
        for card in (dialler, listener):
            parts += [card.name.encode(), (card.address or "").encode(), card.certificate.der]
        # Each part with its length in front of it: no two conversations give the same bytes.
        joined = b"".join(struct.pack(">I", len(part)) + part for part in parts)
        self._transcript = hashlib.sha256(joined).digest()
        self._key = HKDF(hashes.SHA256(), 32, salt=self._transcript, info=_LABEL).derive(key)

    def proof(self, step: str) -> str:
        """What shows that this side has the code; each step has its own, so that none can be sent back."""
        return hmac.digest(self._key, step.encode() + b"\0" + self._transcript, "sha256").hex()

    def is_proof(self, step: str, given: str) -> bool:
        """Is it?"""
        return hmac.compare_digest(self.proof(step).encode(), given.encode())

    def to_sign(self, step: str) -> bytes:
        """What the certificate's key signs."""
        return _LABEL + step.encode() + b"\0" + self._transcript


@contextmanager
def _in_fixed_time() -> Iterator[None]:
    """Hide how long the code took to compute with, from whoever waits for the answer, an error included."""
    end = time.monotonic() + ANSWER_SECONDS
    try:
        yield
    finally:
        time.sleep(max(0.0, end - time.monotonic()))


def _finish(side: SPAKE2_A | SPAKE2_B, said: dict[str, str]) -> tuple[bytes, bytes]:
    """The other side's message of SPAKE2, and the key that follows."""
    try:
        message = base64.b64decode(said["message"], validate=True)
        key = side.finish(message) if len(message) == 33 else b""  # the library ignores what is behind 33 bytes
    except (ValueError, binascii.Error, SPAKEError, NotOnCurve, AssertionError) as problem:
        raise Refusal("malformed", f"the other side's message of SPAKE2 is not one: {type(problem).__name__}") from None
    if not key:
        raise Refusal("malformed", f"the other side's message of SPAKE2 has {len(message)} bytes instead of 33")
    return message, key


def _two_versions(theirs: str) -> str:
    older = "this side" if theirs.isdecimal() and int(theirs[:9]) > int(VERSION) else "the other side"
    return (
        f"the other side speaks version {plain(theirs)[:20]} of pairing, this program version {VERSION}: "
        f"{older} needs a newer hedgerow (pip install -U hedgerow)"
    )


def _card(own: str, said: dict[str, str], certificate: Certificate) -> Card:
    """What the other side says of itself, if it can be so."""
    try:
        check_other_name(own, said["name"])
    except PeerRefused as problem:
        raise Refusal("name", str(problem)) from None
    try:
        check_certificate(said["name"], certificate)
    except (PeerRefused, InvalidParameter) as problem:
        raise Refusal("certificate", str(problem)) from None
    try:
        if said["address"]:
            check_address(said["address"])
    except InvalidParameter as problem:
        raise Refusal("malformed", f"the other side's address is not one: {problem}") from None
    return Card(said["name"], said["address"] or None, certificate)


def _signed(certificate: Certificate, secret: Secret, step: str, said: dict[str, str]) -> bool:
    try:
        certificate.verify(base64.b64decode(said["signature"], validate=True), secret.to_sign(step))
    except (PeerRefused, ValueError, binascii.Error):
        return False
    return True


def _prove(line: Line, identity: Identity, secret: Secret, step: str) -> None:
    signature = base64.b64encode(identity.sign(secret.to_sign(step))).decode()
    line.send("proof", mac=secret.proof(step), signature=signature)


# --- the side that dials ---------------------------------------------------------------------------------------------


def dial(
    identity: Identity,
    name: str,
    peers: Peers,
    address: str,
    code: str,
    *,
    advertise: str | None = None,
    seconds: float = CONVERSATION_SECONDS,
) -> Peer:
    """Pair with the party that listens at this address and shows this code."""
    code = clean_code(code)
    host, port = check_address(address)
    if advertise is not None:
        check_address(advertise)
    # Nobody vouches for the listener's certificate yet: the proofs below do.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        raw = socket.create_connection((host, port), timeout=seconds)
    except (OSError, UnicodeError) as problem:
        raise TransportError(
            f"nobody can be reached at {address} ({plain(str(problem))}); does the other side wait with hedgerow pair "
            "--listen, and is this the address that leads to it from here?"
        ) from None
    with raw, context.wrap_socket(raw, server_hostname=host, do_handshake_on_connect=False) as tls:
        line = Line(tls, seconds)
        line.handshake()
        try:
            shown = Certificate(x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b""))
        except ValueError:
            raise PeerRefused(f"{address} showed a damaged certificate") from None
        return _dialled(line, Card(name, advertise, identity.certificate), identity, shown, peers, code)


def _dialled(line: Line, own: Card, identity: Identity, shown: Certificate, peers: Peers, code: str) -> Peer:
    line.send(
        "hello", version=VERSION, name=own.name, address=own.address or "", certificate=own.certificate.pem.decode()
    )
    with _told(line):
        other = _card(own.name, line.recv("hello", "version", "name", "address"), shown)
        with _in_fixed_time():
            side = SPAKE2_A(code.encode(), idA=own.name.encode(), idB=other.name.encode())
            mine = side.start()
        line.send("spake", message=base64.b64encode(mine).decode())
        answer = line.recv("spake", "message")
        with _in_fixed_time():
            theirs, key = _finish(side, answer)
        secret = Secret(key, own, other, mine, theirs)
        _prove(line, identity, secret, "dialler")
        said = line.recv("proof", "mac", "signature")
        if not secret.is_proof("listener", said["mac"]) or not _signed(shown, secret, "listener", said):
            raise Refusal("wrong_code", f"{other.name} did not prove the code: {REFUSALS['wrong_code']}")
        _check_new(peers, other)
        line.send("checked", mac=secret.proof("dialler checked"))
        if not secret.is_proof("listener pinned", line.recv("pinned", "mac")["mac"]):
            raise Refusal("malformed", f"the last word of {other.name} is not its own; nothing was pinned here")
        return peers.add(other.name, other.certificate, other.address, how="code")


def _check_new(peers: Peers, other: Card) -> None:
    try:
        peers.check_new(other.name, other.certificate)
    except HedgerowError as problem:
        raise Refusal("not_accepted", str(problem)) from None


@contextmanager
def _told(line: Line) -> Iterator[None]:
    """Whoever stops tells the other side a code for it, if the line still stands."""
    try:
        yield
    except VersionMismatch:
        with suppress(TransportError):
            line.send("refused", code="version", version=VERSION)
        raise
    except (Refusal, FrameError) as problem:
        with suppress(TransportError):
            line.send("refused", code=problem.code if isinstance(problem, Refusal) else "malformed")
        raise


# --- the side that listens -------------------------------------------------------------------------------------------


class Listener:
    """Waits on one port for the one party that knows the code.

    with Listener(identity, "bank", peers, "0.0.0.0:7341", advertise="bank.example.org:7341") as listener:
        print(listener.code)
        peer = listener.wait()
    """

    def __init__(
        self,
        identity: Identity,
        name: str,
        peers: Peers,
        bind: str,
        *,
        advertise: str | None = None,
        minutes: float = MINUTES,
        told: Callable[[str], None] = lambda _: None,
        patience: float = CONVERSATION_SECONDS,
    ) -> None:
        if not 0 < minutes <= 24 * 60:
            raise InvalidParameter(f"minutes must be more than 0 and at most {24 * 60}, got {minutes}")
        host, port = check_address(bind, to_listen=True)
        if advertise is not None:
            check_address(advertise)
        self.code = new_code()
        self._own = Card(name, advertise, identity.certificate)
        self._identity = identity
        self._peers = peers
        self._minutes = minutes
        self._told = told
        self._patience = patience
        self._context = _server_context(identity)
        self._lock = threading.Lock()
        self._attempts = ATTEMPTS
        self._starts = 0
        self._dead = ""  # why, once the code is
        self._proven = False
        self._outcome: Peer | HedgerowError | OSError | None = None
        self._conversations: dict[threading.Thread, socket.socket] = {}
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=MOST_CONVERSATIONS)
        except OSError as problem:
            raise TransportError(f"cannot listen on {bind}: {plain(str(problem))}") from None
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the port and end all conversations."""
        self._socket.close()
        for thread, line in list(self._conversations.items()):
            _cut(line)
            thread.join()

    def wait(self) -> Peer:
        """The party that proved the code, pinned; DeadlineExceeded or PeerRefused if there was none."""
        end = time.monotonic() + self._minutes * 60
        self._socket.settimeout(_POLL_SECONDS)
        while self._outcome is None:
            if time.monotonic() > end:
                raise DeadlineExceeded(f"nobody paired within {self._minutes:g} minutes; the code is dead")
            try:
                line, where = self._socket.accept()
            except TimeoutError:
                continue
            except OSError as problem:  # one that hung up before it was let in, or too many open files
                self._told(f"a connection was lost: {plain(str(problem))}")
                time.sleep(_POLL_SECONDS)
                continue
            self._start(line, f"{where[0]}:{where[1]}")
        if not isinstance(self._outcome, Peer):
            raise self._outcome
        return self._outcome

    def _start(self, line: socket.socket, where: str) -> None:
        """Talk in a thread of its own. Of too many the oldest is cut: a partner's takes less than a second."""
        if len(self._conversations) >= MOST_CONVERSATIONS:
            _cut(next(iter(list(self._conversations.values()))))
        thread = threading.Thread(target=self._talk, args=(line, where), daemon=True)
        self._conversations[thread] = line
        thread.start()

    def _talk(self, raw: socket.socket, where: str) -> None:
        try:
            # A duplicate goes into TLS, so that the number of the original stays valid for whoever cuts it.
            with self._context.wrap_socket(raw.dup(), server_side=True, do_handshake_on_connect=False) as tls:
                line = Line(tls, self._patience)
                line.handshake()
                self._converse(line)
        except (HedgerowError, OSError) as problem:
            self._told(f"{where}: {plain(str(problem))}")
        finally:
            raw.close()
            self._conversations.pop(threading.current_thread(), None)

    def _converse(self, line: Line) -> None:
        proven = False
        try:
            with _told(line):
                other, secret = self._introduced(line)
                self._check_proof(line, other, secret)
                proven = True
                _check_new(self._peers, other)
                _prove(line, self._identity, secret, "listener")
                if not secret.is_proof("dialler checked", line.recv("checked", "mac")["mac"]):
                    raise Refusal("malformed", f"the last word of {other.name} is not its own; nothing was pinned")
                peer = self._peers.add(other.name, other.certificate, other.address, how="code")
        except (HedgerowError, OSError) as problem:
            if proven:  # the code was said aloud and used: it is not good for a second time
                self._settle(problem)
            elif self._dead:
                self._settle(PeerRefused(f"{self._dead}; the code is dead and nothing was pinned"))
            raise
        try:
            line.send("pinned", mac=secret.proof("listener pinned"))
        finally:
            self._settle(peer)

    def _introduced(self, line: Line) -> tuple[Card, Secret]:
        """Who dials, and the key that both have if both have the code."""
        own = self._own
        said = line.recv("hello", "version", "name", "address", "certificate")
        try:
            certificate = Certificate.from_pem(said["certificate"].encode())
        except PeerRefused as problem:
            raise Refusal("certificate", str(problem)) from None
        other = _card(own.name, said, certificate)
        line.send("hello", version=VERSION, name=own.name, address=own.address or "")
        answer = line.recv("spake", "message")
        self._count_start()
        with _in_fixed_time():
            side = SPAKE2_B(self.code.encode(), idA=other.name.encode(), idB=own.name.encode())
            mine = side.start()
            theirs, key = _finish(side, answer)
        line.send("spake", message=base64.b64encode(mine).decode())
        return other, Secret(key, other, own, theirs, mine)

    def _count_start(self) -> None:
        with self._lock:
            self._starts += 1
            if self._starts > MOST_STARTS and not self._proven:
                self._dead = self._dead or f"more than {MOST_STARTS} conversations were begun"
            if self._dead or self._proven:
                raise Refusal("dead", "the code is used up")

    def _check_proof(self, line: Line, other: Card, secret: Secret) -> None:
        """Refusal unless the dialler has the code and its certificate's key, and nobody else proved that before."""
        said = line.recv("proof", "mac", "signature")
        with self._lock:  # of many that try at once, no more than three are looked at
            if self._proven or self._dead:
                raise Refusal("dead", "the code is used up")
            right = secret.is_proof("dialler", said["mac"]) and _signed(other.certificate, secret, "dialler", said)
            self._proven = right
            self._attempts -= not right
            left = self._attempts
            if not left:
                self._dead = f"{ATTEMPTS} wrong codes were tried"
        if not right:
            raise Refusal("wrong_code", f"a wrong code, by somebody called {other.name}; attempts left: {left}")

    def _settle(self, outcome: Peer | HedgerowError | OSError) -> None:
        with self._lock:
            if self._outcome is None:
                self._outcome = outcome


def _cut(line: socket.socket) -> None:
    """End a conversation from outside: whoever reads from it is told that it is over."""
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def _server_context(identity: Identity) -> ssl.SSLContext:
    """TLS 1.3 with the party's own certificate.

    Python's TLS reads keys from files only, so the key goes through one for a moment, encrypted with a password that
    nobody ever sees.
    """
    password = secrets.token_hex(32)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.pem"
        write_whole(path, identity.certificate.pem + identity.encrypted_key_pem(password.encode()))
        context.load_cert_chain(path, password=password)
    return context
