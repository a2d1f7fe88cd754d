"""Following a peer to its new key: only by the word of the certificate that is pinned."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from hedgerow.errors import InvalidInput, PeerRefused
from hedgerow.node import documents, keys
from hedgerow.node.peers import PEER, Peer
from hedgerow.node.succession import FORMAT, follow, write_succession
from hedgerow.transport.mtls import Identity
from twins.homes import introduce


@pytest.fixture
def introduced(bank, shop):
    """Two homes that have pinned each other."""
    introduce(bank, shop)
    return bank, shop


def test_a_peer_is_followed_to_its_new_key(introduced):
    """Its address stays, the new certificate is pinned and the old one is not accepted any more."""
    bank, shop = introduced
    old = shop.certificate
    done = keys.rotate(shop.path)
    peer = follow(bank.peers, done.succession)
    assert peer == bank.peers.get("shop")
    assert peer.certificate.fingerprint == shop.certificate.fingerprint != old.fingerprint
    assert peer.address == "shop.example.org:7341"
    assert old.fingerprint in peer.how
    with pytest.raises(PeerRefused, match="but the one pinned"):
        bank.peers.trust_store(["shop"]).check("shop", old)


def test_rotations_are_followed_in_their_order(introduced):
    """One left out or one too early is refused; an old document does not bring an old key back."""
    bank, shop = introduced
    first, second = keys.rotate(shop.path), keys.rotate(shop.path)
    with pytest.raises(PeerRefused, match="follow its files in their order"):
        follow(bank.peers, second.succession)
    follow(bank.peers, first.succession)
    with pytest.raises(PeerRefused, match="pinned already"):
        follow(bank.peers, first.succession)
    follow(bank.peers, second.succession)
    with pytest.raises(PeerRefused, match="in their order"):
        follow(bank.peers, first.succession)
    assert bank.peers.get("shop").certificate.fingerprint == shop.certificate.fingerprint


def test_nobody_else_can_hand_over(introduced, tmp_path):
    """A document by another key, with a changed certificate, or of a stranger is refused and nothing changes."""
    bank, shop = introduced
    thief, pinned = Identity.create("shop"), bank.peers.get("shop").certificate
    path = tmp_path / "succession.json"
    document = {
        "format": FORMAT,
        "version": 1,
        "name": "shop",
        "old": pinned.fingerprint,
        "certificate": thief.certificate.pem.decode(),
        "made": documents.stamp(),
    }
    documents.write(path, documents.sign(document, thief))
    with pytest.raises(PeerRefused, match="is said to be of shop is not"):
        follow(bank.peers, path)
    done = keys.rotate(shop.path)
    real = json.loads(done.succession.read_text(encoding="utf-8"))
    documents.write(path, {**real, "certificate": thief.certificate.pem.decode()})
    with pytest.raises(PeerRefused, match="is said to be of shop is not"):
        follow(bank.peers, path)
    write_succession(path, Identity.create("mill"), Identity.create("mill").certificate)
    with pytest.raises(PeerRefused, match="mill is not paired"):
        follow(bank.peers, path)
    assert bank.peers.get("shop").certificate == pinned


def test_the_new_certificate_must_be_of_the_same_party(introduced, tmp_path):
    """The old key cannot hand its name over to a certificate of another name, nor to one that was revoked."""
    bank, shop = introduced
    write_succession(tmp_path / "s.json", shop.identity(), Identity.create("farm").certificate)
    with pytest.raises(PeerRefused, match="made for farm, not for shop"):
        follow(bank.peers, tmp_path / "s.json")
    farm = Identity.create("shop")
    bank.peers.revoke("shop")
    bank.peers.add("shop", farm.certificate, None, how="code")
    write_succession(tmp_path / "s.json", farm, shop.certificate)
    with pytest.raises(PeerRefused, match="was revoked here"):
        follow(bank.peers, tmp_path / "s.json")


def test_a_revoked_certificate_hands_over_nothing(introduced):
    """After revoking, the document of its owner (or of whoever stole the key) is worth nothing."""
    bank, shop = introduced
    bank.peers.revoke("shop")
    with pytest.raises(PeerRefused, match="is not paired"):
        follow(bank.peers, keys.rotate(shop.path).succession)


def test_an_expired_certificate_hands_over_nothing(bank, tmp_path):
    """Its key may have been thrown away, or found, since then: the parties pair again."""
    old = Identity.create("shop", 1, valid_from=documents.now() - dt.timedelta(days=2))
    peer = Peer("shop", old.certificate, None, "code", documents.stamp())
    documents.write(bank.peers_folder / "shop.json", {"format": PEER, "version": 1, **peer.to_dict()})
    write_succession(tmp_path / "s.json", old, Identity.create("shop").certificate)
    with pytest.raises(PeerRefused, match="the certificate of shop expired"):
        follow(bank.peers, tmp_path / "s.json")


def test_a_damaged_document_is_refused(introduced, tmp_path):
    """Half a file, another document, and a date that is not one."""
    bank, shop = introduced
    path = keys.rotate(shop.path).succession
    whole = path.read_text(encoding="utf-8")
    (tmp_path / "s.json").write_text(whole[: len(whole) // 2], encoding="utf-8")
    with pytest.raises(InvalidInput, match="damaged"):
        follow(bank.peers, tmp_path / "s.json")
    (tmp_path / "s.json").write_text(json.dumps({**json.loads(whole), "made": "soon"}), encoding="utf-8")
    with pytest.raises(InvalidInput, match="not a date"):
        follow(bank.peers, tmp_path / "s.json")
    with pytest.raises(InvalidInput, match="is not a hedgerow succession"):
        follow(bank.peers, bank.peers_folder / "shop.json")
