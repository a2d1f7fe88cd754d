"""Who is paired, who is revoked, and what a transport is told to accept."""

from __future__ import annotations

import datetime as dt
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import InvalidInput, InvalidParameter, PeerRefused
from hedgerow.node.addresses import check_address
from hedgerow.node.peers import Peers, check_certificate, check_other_name
from hedgerow.transport.mtls import Certificate, Identity, now
from twins.parties import Authority

SHOP, OTHER, FARM = Identity.create("shop"), Identity.create("shop"), Identity.create("farm")
ADDRESS = "shop.example.org:7341"


@pytest.fixture
def peers(tmp_path):
    """Nobody is paired yet."""
    return Peers(tmp_path / "peers", tmp_path / "revoked.json")


def test_what_was_added_is_there(peers, tmp_path):
    """With certificate, address, how and when; the file is for its owner alone."""
    assert peers.names() == []
    added = peers.add("shop", SHOP.certificate, ADDRESS, how="code")
    assert peers.names() == ["shop"]
    found = peers.get("shop")
    assert found == added
    assert (found.name, found.address, found.how) == ("shop", ADDRESS, "code")
    assert dt.datetime.fromisoformat(found.at) <= now()
    assert (tmp_path / "peers" / "shop.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "peers").stat().st_mode & 0o777 == 0o700


def test_a_pinned_certificate_is_not_replaced(peers):
    """The same one may come with another address; another one is refused and the ways out are named."""
    peers.add("shop", SHOP.certificate, ADDRESS, how="code")
    assert peers.add("shop", SHOP.certificate, None, how="code").address is None
    with pytest.raises(PeerRefused, match=r"paired already.*keys follow.*keys revoke shop"):
        peers.add("shop", OTHER.certificate, ADDRESS, how="code")
    assert peers.get("shop").certificate == SHOP.certificate


def test_who_is_not_paired_is_named_with_those_who_are(peers):
    """The error says who there is."""
    with pytest.raises(PeerRefused, match="nobody is paired yet"):
        peers.get("shop")
    peers.add("farm", FARM.certificate, None, how="code")
    with pytest.raises(PeerRefused, match="shop is not paired with this party; there are farm"):
        peers.get("shop")
    with pytest.raises(InvalidParameter, match="a party's name"):
        peers.get("../key")


def test_names_that_differ_in_capitals_only_are_refused(peers):
    """They would be one file on some disks."""
    peers.add("shop", SHOP.certificate, None, how="code")
    with pytest.raises(InvalidParameter, match="differ only in capitals"):
        peers.add("Shop", Identity.create("Shop").certificate, None, how="code")


def test_certificates_that_nobody_could_use_are_refused(peers):
    """Of another name, expired, not valid yet, of an authority, or with a key that our TLS does not take."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    day = dt.timedelta(days=1)
    key = ec.generate_private_key(ec.SECP384R1())
    original = SHOP.certificate.x509
    builder = x509.CertificateBuilder(original.subject, original.subject, key.public_key(), 7)
    builder = builder.not_valid_before(now() - day).not_valid_after(now() + day)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("shop")]), critical=False)
    for certificate, words in (
        (FARM.certificate, "made for farm, not for shop"),
        (Identity.create("shop", 1, valid_from=now() - 2 * day).certificate, "expired"),
        (Identity.create("shop", 9, valid_from=now() + 2 * day).certificate, "valid only from"),
        (Authority("shop").certificate, "an authority's"),
        (Certificate(builder.sign(key, hashes.SHA256())), "on P-256"),
    ):
        with pytest.raises(PeerRefused, match=words):
            peers.add("shop", certificate, None, how="code")
    assert peers.names() == []


# --- revoked ---------------------------------------------------------------------------------------------------------


def test_a_revoked_certificate_is_never_accepted_again(peers, tmp_path):
    """Not to be paired, not to be used if its file comes back, nor a new certificate for the same key."""
    peers.add("shop", SHOP.certificate, ADDRESS, how="code")
    kept = (tmp_path / "peers" / "shop.json").read_bytes()
    assert peers.revoke("shop").certificate == SHOP.certificate
    assert peers.names() == []
    with pytest.raises(PeerRefused, match="was revoked here"):
        peers.add("shop", SHOP.certificate, ADDRESS, how="code")
    (tmp_path / "peers" / "shop.json").write_bytes(kept)
    for use in (lambda: peers.get("shop"), lambda: peers.trust_store(["shop"])):
        with pytest.raises(PeerRefused, match="was revoked here"):
            use()
    (tmp_path / "peers" / "shop.json").unlink()
    with pytest.raises(PeerRefused, match="was revoked here"):
        peers.add("shop", renewed(SHOP), ADDRESS, how="code")
    assert peers.add("shop", OTHER.certificate, ADDRESS, how="code").certificate == OTHER.certificate
    (entry,) = peers.revoked()
    assert entry["fingerprint"] == SHOP.fingerprint


def renewed(identity):
    """Another certificate for the same key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    old = identity.certificate.x509
    builder = x509.CertificateBuilder(old.subject, old.subject, identity.key.public_key(), 7)
    builder = builder.not_valid_before(old.not_valid_before_utc).not_valid_after(old.not_valid_after_utc)
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    return Certificate(builder.sign(identity.key, hashes.SHA256()))


def test_revoking_at_once_loses_nothing(peers):
    """However many revoke at the same moment, all of them are on the list."""
    names = [f"party{k}" for k in range(6)]
    for name in names:
        peers.add(name, Identity.create(name).certificate, None, how="code")
    threads = [threading.Thread(target=peers.revoke, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entry["name"] for entry in peers.revoked()) == names
    assert peers.names() == []


@pytest.mark.parametrize("entry", [1, {}, {"name": "a"}, {"name": "a", "fingerprint": 1, "key": "b", "at": "c"}])
def test_a_damaged_list_of_revoked_stops_everything(entry, peers, tmp_path):
    """Who is revoked must be known before anybody is accepted."""
    peers.add("shop", SHOP.certificate, None, how="code")
    document = {"format": "hedgerow revoked certificates", "version": 1, "revoked": [entry]}
    (tmp_path / "revoked.json").write_text(json.dumps(document), encoding="utf-8")
    for use in (lambda: peers.get("shop"), lambda: peers.trust_store([]), lambda: peers.revoke("shop")):
        with pytest.raises(InvalidInput, match=r"revoked\.json is damaged"):
            use()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "farm"),
        ("fingerprint", "sha256:00"),
        ("certificate", "nonsense"),
        ("address", 7),
        ("certificate", FARM.certificate.pem.decode()),
    ],
)
def test_a_changed_file_of_a_peer_is_refused(key, value, peers, tmp_path):
    """Name, fingerprint and certificate must belong together."""
    peers.add("shop", SHOP.certificate, ADDRESS, how="code")
    path = tmp_path / "peers" / "shop.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), key: value}), encoding="utf-8")
    with pytest.raises(InvalidInput, match="is damaged"):
        peers.get("shop")


# --- what a transport accepts ----------------------------------------------------------------------------------------


def test_a_trust_store_has_the_pinned_certificates(peers):
    """Those of the named parties, and no others."""
    peers.add("shop", SHOP.certificate, None, how="code")
    peers.add("farm", FARM.certificate, None, how="code")
    trust = peers.trust_store(["shop"])
    trust.check("shop", SHOP.certificate)
    with pytest.raises(PeerRefused, match="not known here"):
        trust.check("farm", FARM.certificate)
    with pytest.raises(PeerRefused, match="is not paired"):
        peers.trust_store(["shop", "mill"])


def test_an_authority_vouches_for_those_who_are_not_pinned(tmp_path):
    """A pinned certificate stays the only one of its name; what was revoked stays so, whoever signed it."""
    ours = Authority("ours")
    (tmp_path / "ca.pem").write_bytes(ours.certificate.pem)
    peers = Peers(tmp_path / "peers", tmp_path / "revoked.json", authority=lambda: tmp_path / "ca.pem")
    peers.add("shop", SHOP.certificate, None, how="code")
    mill, bad = ours.issue("mill"), ours.issue("farm")
    peers.add("farm", bad.certificate, None, how="code")
    peers.trust_store(["farm"]).check("farm", bad.certificate)
    peers.revoke("farm")
    trust = peers.trust_store(["shop", "mill", "farm"])
    trust.check("mill", mill.certificate)
    trust.check("shop", SHOP.certificate)
    with pytest.raises(PeerRefused, match="but the one pinned"):
        trust.check("shop", ours.issue("shop").certificate)
    with pytest.raises(PeerRefused, match="revoked here"):
        trust.check("farm", bad.certificate)
    trust.check("farm", ours.issue("farm").certificate)
    (tmp_path / "ca.pem").write_bytes(SHOP.certificate.pem)
    with pytest.raises(InvalidInput, match=r"ca.pem of \[network\] .* not an authority's"):
        peers.trust_store([])
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(InvalidInput, match=r"ca\.pem cannot be read"):
        peers.trust_store([])


# --- addresses and names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("bank.example.org:7341", ("bank.example.org", 7341)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("bank_1:80", ("bank_1", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, parts):
    """Names, numbers, and IPv6 in brackets."""
    assert check_address(text) == parts


@pytest.mark.parametrize(
    "text",
    [
        *("", "bank", "bank:", ":7341", "bank:0", "bank:65536", "bank:+80", "bank:٣", "::1:80", "[::1:80", "[x]:80"),
        *("-bank:80", "ba nk:80", "bank\n:80", "a..b:80", "http://bank:80", f"{'a' * 254}:80"),
        *("0.0.0.0:80", "[::]:80"),
    ],
)
def test_what_is_not_an_address_is_refused(text):
    """Nothing but a host that can be dialled and a port goes into a peer's file."""
    with pytest.raises(InvalidParameter):
        check_address(text)


def test_a_machine_may_listen_everywhere():
    """On all of its addresses, and on a port that it chooses."""
    assert check_address("0.0.0.0:0", to_listen=True) == ("0.0.0.0", 0)  # noqa: S104 - text
    assert check_address("[::]:7341", to_listen=True) == ("::", 7341)


@given(st.text(max_size=30))
def test_no_address_has_control_characters(text):
    """Whatever is accepted is printable, and short."""
    try:
        host, port = check_address(text)
    except InvalidParameter:
        return
    assert host.isprintable()
    assert 1 <= port <= 65_535


def test_another_party_has_another_name():
    """Not its own, not in other capitals, not that of a file."""
    check_other_name("bank", "shop")
    check_certificate("shop", SHOP.certificate)
    for other in ("bank", "BANK", "parties.json", "../x", ""):
        with pytest.raises(PeerRefused):
            check_other_name("bank", other)
