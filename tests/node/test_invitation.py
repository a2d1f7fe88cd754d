"""Invitation files: signed by their own key, valid for days, pinned only after people compared fingerprints."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter, PeerRefused
from hedgerow.node import documents, invitation
from hedgerow.node.invitation import accept_invitation, read_invitation, write_invitation
from hedgerow.node.keys import grouped
from hedgerow.transport.mtls import Identity, now

SHOP = Identity.create("shop")
ADDRESS = "shop.example.org:7341"


@pytest.fixture
def path(tmp_path):
    """An invitation by the shop."""
    write_invitation(tmp_path / "shop.json", "shop", SHOP, ADDRESS)
    return tmp_path / "shop.json"


def test_an_invitation_says_who_and_where(path):
    """What is read is what was written, and no key is in it."""
    found = read_invitation(path)
    assert (found.name, found.address, found.certificate) == ("shop", ADDRESS, SHOP.certificate)
    assert dt.timedelta(days=6) < found.expires - now() <= dt.timedelta(days=7)
    assert "PRIVATE" not in path.read_text(encoding="utf-8")


def test_an_accepted_invitation_is_pinned(path, bank):
    """Once, if the fingerprint is the one that was read out, however it is typed."""
    peer = accept_invitation(bank.peers, "bank", read_invitation(path), " ".join(grouped(SHOP.fingerprint)).upper())
    assert bank.peers.get("shop") == peer
    assert peer.how == "invitation"


def test_another_fingerprint_pins_nothing(path, bank):
    """That is what comparing is for; half of one is not compared at all."""
    with pytest.raises(PeerRefused, match=r"as was agreed.*Nothing was pinned"):
        accept_invitation(bank.peers, "bank", read_invitation(path), Identity.create("shop").fingerprint)
    with pytest.raises(InvalidParameter, match="64 hexadecimal digits"):
        accept_invitation(bank.peers, "bank", read_invitation(path), SHOP.fingerprint[:32])
    assert bank.peers.names() == []


def test_an_invitation_of_oneself_is_refused(bank, tmp_path):
    """Names differ, also from one's own."""
    write_invitation(tmp_path / "i.json", "bank", bank.identity(), None)
    with pytest.raises(PeerRefused, match="called bank too"):
        accept_invitation(bank.peers, "bank", read_invitation(tmp_path / "i.json"), bank.certificate.fingerprint)


def test_a_revoked_certificate_cannot_come_back_by_invitation(path, bank):
    """Revoked is revoked."""
    accept_invitation(bank.peers, "bank", read_invitation(path), SHOP.fingerprint)
    bank.peers.revoke("shop")
    with pytest.raises(PeerRefused, match="was revoked here"):
        accept_invitation(bank.peers, "bank", read_invitation(path), SHOP.fingerprint)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "farm"},
        {"address": "thief.example.org:7341"},
        {"address": None},
        {"certificate": Identity.create("shop").certificate.pem.decode()},
        {"certificate": "nonsense"},
        {"expires": "2999-01-01T00:00:00+00:00"},
        {"signature": ""},
    ],
)
def test_a_changed_invitation_is_refused(change, path):
    """Every field is signed."""
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**document, **change}), encoding="utf-8")
    with pytest.raises(PeerRefused, match="damaged, or was changed"):
        read_invitation(path)


@given(st.data())
def test_no_changed_byte_is_accepted_as_something_else(data):
    """An invitation with one other byte is refused, or says the same as before (a space, say)."""
    text = data.draw(st.sampled_from([WHOLE]))
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.integers(0, 255))
    FUZZED.write_bytes(text[:place] + bytes([other]) + text[place + 1 :])
    try:
        found = read_invitation(FUZZED)
    except HedgerowError:
        return
    assert (found.name, found.address, found.certificate) == ("shop", ADDRESS, SHOP.certificate)


@pytest.fixture(autouse=True, scope="module")
def _whole(tmp_path_factory):
    """The bytes of an invitation, and a place to put changed ones."""
    global WHOLE, FUZZED  # noqa: PLW0603 - hypothesis and fixtures of a function do not go together
    FUZZED = tmp_path_factory.mktemp("fuzzed") / "shop.json"
    write_invitation(FUZZED, "shop", SHOP, ADDRESS)
    WHOLE = FUZZED.read_bytes()


def rewritten(path, **change):
    """The invitation with other content, signed again by its own key."""
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["signature"]
    documents.write(path, documents.sign({**document, **change}, SHOP))


def test_dates_are_looked_at(path):
    """Expired, made in the future, valid for years: each has its own words."""
    rewritten(path, expires=documents.stamp(now() - dt.timedelta(minutes=1)))
    with pytest.raises(PeerRefused, match=r"expired on .*; ask shop for a new one"):
        read_invitation(path)
    far = now() + dt.timedelta(days=2)
    rewritten(path, made=documents.stamp(far), expires=documents.stamp(far))
    with pytest.raises(PeerRefused, match="compare your clocks"):
        read_invitation(path)
    rewritten(path, made=documents.stamp(), expires=documents.stamp(now() + dt.timedelta(days=400)))
    with pytest.raises(InvalidInput, match="more than 90 days"):
        read_invitation(path)


def test_signed_nonsense_is_refused(path):
    """A signature does not make a name or an address out of something else."""
    for change in ({"name": "farm"}, {"name": "sh op"}, {"address": "nowhere"}, {"address": "0.0.0.0:80"}):
        rewritten(path, **change)
        with pytest.raises(PeerRefused):
            read_invitation(path)
        rewritten(path, name="shop", address=ADDRESS)
    read_invitation(path)


def test_foreign_and_large_files_are_refused(tmp_path):
    """A certificate, a huge file, a folder and nothing at all."""
    other = tmp_path / "other"
    other.write_bytes(SHOP.certificate.pem)
    with pytest.raises(InvalidInput, match="damaged, or not a hedgerow invitation"):
        read_invitation(other)
    other.write_bytes(b" " * 100_000)
    with pytest.raises(InvalidInput, match="more than 65,536 bytes"):
        read_invitation(other)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_invitation(tmp_path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_invitation(tmp_path / "nothing")


def test_what_cannot_be_read_again_is_not_written(tmp_path):
    """A wrong address, a wrong number of days or a certificate of another name is refused before writing."""
    for arguments in (("shop", SHOP, "nowhere"), ("shop", SHOP, ADDRESS, 0), ("shop", SHOP, ADDRESS, 91)):
        name, identity, address, *days = arguments
        with pytest.raises(InvalidParameter):
            write_invitation(tmp_path / "i.json", name, identity, address, days=days[0] if days else 7)
    with pytest.raises(PeerRefused):
        write_invitation(tmp_path / "i.json", "bank", SHOP, ADDRESS)
    assert not (tmp_path / "i.json").exists()
    assert invitation.DAYS == 7
