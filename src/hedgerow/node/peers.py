"""Who this party is paired with, one file each, and whom it never accepts again.

    peers = Peers(home / "peers", home / "revoked.json")
    peers.add("shop", certificate, "shop.example.org:7341", how="code")
    peers.get("shop").certificate
    peers.trust_store(["shop"])        # what a transport checks connections against

A pinned certificate changes in two ways only: its owner hands over to a new one (`succession.py`), or somebody here
revokes it and pairs again. What is revoked stays so, the certificate and the key in it, also where an authority of
one's own would vouch for it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from hedgerow.errors import InvalidInput, InvalidParameter, PeerRefused, plain
from hedgerow.node import documents
from hedgerow.node.addresses import check_address
from hedgerow.runtime.saved_files import private_folder
from hedgerow.transport.mtls import Certificate, TrustStore, check_party_name, check_party_names

PEER, REVOKED = "hedgerow peer", "hedgerow revoked certificates"
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "certificate": str,
    "fingerprint": str,
    "address": (str, type(None)),
    "how": str,
    "at": str,
}
_ENTRY = ("name", "fingerprint", "key", "at")
_MOST_AUTHORITY = 16 * 1024


@dataclass(frozen=True)
class Peer:
    """Another party: its pinned certificate, where it can be dialled (None: it only dials), how and when it came."""

    name: str
    certificate: Certificate
    address: str | None
    how: str
    at: str

    def to_dict(self) -> dict[str, Any]:
        """For its file, and for --json."""
        return {
            "name": self.name,
            "certificate": self.certificate.pem.decode(),
            "fingerprint": self.certificate.fingerprint,
            "address": self.address,
            "how": self.how,
            "at": self.at,
        }


class Peers:
    """The peers in a folder."""

    def __init__(self, folder: Path, revoked: Path, *, authority: Callable[[], Path | None] = lambda: None) -> None:
        """`authority` tells the file of a certificate authority of one's own; asked when a trust store is made."""
        self._folder = folder
        self._revoked = revoked
        self._authority = authority

    def names(self) -> list[str]:
        """Everybody who is paired, in order."""
        return sorted(path.stem for path in self._folder.glob("*.json") if not path.name.startswith("."))

    def get(self, name: str) -> Peer:
        """The peer of this name; PeerRefused if nobody is paired under it."""
        path = self._path(name)
        if not path.exists():
            others = f"there are {', '.join(self.names())}" if self.names() else "nobody is paired yet"
            raise PeerRefused(f"{name} is not paired with this party; {others}. See hedgerow pair --help")
        document = documents.read(path, PEER, _FIELDS)
        try:
            certificate = Certificate.from_pem(document["certificate"].encode())
        except PeerRefused as problem:
            raise InvalidInput(f"{path} is damaged: {problem}") from None
        if document["name"] != name or document["fingerprint"] != certificate.fingerprint:
            raise InvalidInput(f"{path} is damaged: its name or its fingerprint is not that of its certificate")
        if document["address"] is not None:
            try:
                check_address(document["address"])
            except InvalidParameter as problem:
                raise InvalidInput(f"{path} is damaged: {problem}") from None
        self._check_not_revoked(name, certificate)
        return Peer(name, certificate, document["address"], document["how"], document["at"])

    def add(self, name: str, certificate: Certificate, address: str | None, how: str) -> Peer:
        """Pin a certificate. One that is pinned already may get another address; another certificate is refused."""
        if address is not None:
            check_address(address)
        with self._alone():
            self.check_new(name, certificate)
            return self._write(Peer(name, certificate, address, how, documents.stamp()))

    def replace(self, name: str, certificate: Certificate, how: str) -> Peer:
        """Pin another certificate for a peer that proved to be the same: the caller has checked that."""
        with self._alone():
            self.check_successor(name, certificate)
            return self._write(Peer(name, certificate, self.get(name).address, how, documents.stamp()))

    def check_successor(self, name: str, certificate: Certificate) -> None:
        """PeerRefused if the certificate cannot be that party's, or was revoked."""
        check_certificate(name, certificate)
        self._check_not_revoked(name, certificate)

    def check_new(self, name: str, certificate: Certificate) -> None:
        """PeerRefused unless the certificate could be pinned for that name now."""
        self.check_successor(name, certificate)
        check_party_names((*(known for known in self.names() if known != name), name))
        if self._path(name).exists():
            pinned = self.get(name).certificate
            if pinned.fingerprint != certificate.fingerprint:
                raise PeerRefused(
                    f"{name} is paired already, with the certificate {pinned.fingerprint}; it is not replaced by "
                    f"{certificate.fingerprint}. If {name} rotated its key: hedgerow keys follow FILE. If its key is "
                    f"lost: hedgerow keys revoke {name}, then pair again"
                )

    def revoke(self, name: str) -> Peer:
        """Forget a peer and never accept its certificate or its key again."""
        with self._alone():
            peer = self.get(name)
            entry = {
                "name": name,
                "fingerprint": peer.certificate.fingerprint,
                "key": peer.certificate.key_fingerprint,
                "at": documents.stamp(),
            }
            document = {"format": REVOKED, "version": documents.VERSION, "revoked": [*self.revoked(), entry]}
            documents.write(self._revoked, document)  # first: if the machine stops now, the peer's file is not usable
            self._path(name).unlink()
        return peer

    def revoked(self) -> list[dict[str, str]]:
        """What is never accepted again: name, fingerprint of the certificate, fingerprint of the key, when."""
        if not self._revoked.exists():
            return []
        found: list[dict[str, str]] = documents.read(self._revoked, REVOKED, {"revoked": list})["revoked"]
        for entry in found:
            texts = isinstance(entry, dict) and all(isinstance(value, str) for value in entry.values())
            if not texts or sorted(entry) != sorted(_ENTRY):
                raise InvalidInput(f"{self._revoked} is damaged: an entry must have {', '.join(_ENTRY)}")
        return found

    def trust_store(self, names: Iterable[str]) -> TrustStore:
        """What is accepted of these parties: the pinned certificate, or what one's own authority signed."""
        trust = TrustStore()
        for entry in self.revoked():
            trust.refuse(entry["fingerprint"], entry["key"])
        authority = self._authority()
        if authority is not None:
            try:
                trust.own_ca(documents.read_bounded(authority, _MOST_AUTHORITY))
            except PeerRefused as problem:
                raise InvalidInput(f"the authority {authority} of [network] cannot be used: {problem}") from None
        for name in names:
            if authority is None or self._path(name).exists():
                trust.pin(name, self.get(name).certificate.pem)
        return trust

    def _path(self, name: str) -> Path:
        return self._folder / f"{check_party_name(name)}.json"

    def _write(self, peer: Peer) -> Peer:
        documents.write(self._path(peer.name), {"format": PEER, "version": documents.VERSION, **peer.to_dict()})
        return peer

    def _check_not_revoked(self, name: str, certificate: Certificate) -> None:
        own = {certificate.fingerprint, certificate.key_fingerprint}
        for entry in self.revoked():
            if own & {entry["fingerprint"], entry["key"]}:
                raise PeerRefused(
                    f"the certificate {certificate.fingerprint} of {name}, or its key, was revoked here on "
                    f"{plain(entry['at'])}; {name} needs a new key (hedgerow keys rotate), and then to pair again"
                )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time changes the folder: of two that revoke at once, neither may undo the other."""
        descriptor = os.open(private_folder(self._folder), os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def check_certificate(name: str, certificate: Certificate) -> None:
    """PeerRefused unless this could be that party's own certificate, today."""
    TrustStore().pin(name, certificate.pem)
    key = certificate.x509.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise PeerRefused(f"the certificate of {name} does not hold an elliptic-curve key on P-256")


def check_other_name(own: str, other: str) -> None:
    """PeerRefused unless another party may have this name beside one's own."""
    if own == other:
        raise PeerRefused(f"the other party is called {own} too; one of them must have another name (hedgerow init)")
    try:
        check_party_names((own, other))
    except InvalidParameter as problem:
        raise PeerRefused(str(problem)) from None
