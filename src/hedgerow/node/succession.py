"""The document by which peers follow a party to its new key: the old key says which certificate comes after it.

Whoever pinned the old certificate checks the signature with it and pins the new one instead. The document holds no
secret; it can be mailed. Only the certificate that is pinned at that moment can hand over, so an old document does not
bring an old key back. A revoked certificate hands over nothing.
"""

from __future__ import annotations

from pathlib import Path

from hedgerow.errors import InvalidParameter, PeerRefused, plain
from hedgerow.node import documents
from hedgerow.node.peers import Peer, Peers
from hedgerow.transport.mtls import Certificate, Identity

FORMAT = "hedgerow succession"


def write_succession(path: Path, old: Identity, new: Certificate) -> None:
    """The old key's word that the new certificate takes its place."""
    document = {
        "format": FORMAT,
        "version": documents.VERSION,
        "name": old.certificate.names[0],
        "old": old.fingerprint,
        "certificate": new.pem.decode(),
        "made": documents.stamp(),
    }
    documents.write(path, documents.sign(document, old))


def follow(peers: Peers, path: Path) -> Peer:
    """Pin the new certificate of a peer in place of the old one, if the old one signed for it."""
    peer, new = successor(peers, path)
    return peers.replace(peer.name, new, how=f"followed {peer.certificate.fingerprint}")


def successor(peers: Peers, path: Path) -> tuple[Peer, Certificate]:
    """The peer as it is pinned now, and the certificate that may take the place of that; an error if it may not."""
    fields = dict.fromkeys(("name", "old", "certificate", "made", "signature"), str)
    document = documents.read(path, FORMAT, fields)
    documents.moment(document["made"], f"{path}, made")
    try:
        peer = peers.get(document["name"])
        new = Certificate.from_pem(document["certificate"].encode())
    except (InvalidParameter, PeerRefused) as problem:
        raise PeerRefused(f"{path} cannot be followed: {problem}") from None
    if new.fingerprint == peer.certificate.fingerprint:
        raise PeerRefused(f"the new certificate of {peer.name} is pinned already; nothing changed")
    if document["old"] != peer.certificate.fingerprint:
        raise PeerRefused(
            f"{path} hands over from {plain(document['old'])[:80]}, but {peer.certificate.fingerprint} is pinned for "
            f"{peer.name}. If it rotated several times, follow its files in their order; otherwise pair again"
        )
    try:
        documents.verify(document, peer.certificate)
        peer.certificate.check_validity(peer.name)
    except PeerRefused as problem:
        raise PeerRefused(f"{path} cannot be followed: {problem}") from None
    peers.check_successor(peer.name, new)
    return peer, new
