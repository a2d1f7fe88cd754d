"""Keys, certificates, and who is accepted."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hedgerow.errors import InvalidInput, InvalidParameter, PeerRefused
from hedgerow.transport.mtls import Certificate, Identity, TrustStore, now
from twins.parties import Authority

DAY = dt.timedelta(days=1)


@pytest.fixture(scope="module")
def bank():
    """The identity of a party."""
    return Identity.create("bank")


@pytest.fixture(scope="module")
def shop():
    """The identity of another party."""
    return Identity.create("shop")


def test_a_certificate_names_its_party_and_is_no_authority(bank):
    """What others pin holds the party's name, lasts as long as asked for, and can sign no other certificate."""
    certificate = bank.certificate
    assert certificate.names == ("bank",)
    assert not certificate.is_authority
    assert abs(certificate.x509.not_valid_after_utc - now() - 365 * DAY) < DAY
    assert certificate.fingerprint == bank.fingerprint == Certificate.from_pem(certificate.pem).fingerprint
    assert certificate.fingerprint.startswith("sha256:")
    assert len(certificate.fingerprint) == 7 + 64


@pytest.mark.parametrize("name", ["", "two words", "-bank", "bank.", "Zoë", "a" * 64, "a/b", "*.bank"])
def test_names_that_cannot_stand_in_a_certificate_are_refused(name):
    """A name that TLS could misread is an error that shows the name."""
    with pytest.raises(InvalidParameter, match="a party's name"):
        Identity.create(name)


@pytest.mark.parametrize("days", [0, -1, float("nan")])
def test_a_validity_that_is_none_is_refused(days):
    """A certificate has to be valid for some time."""
    with pytest.raises(InvalidParameter, match="days must be positive"):
        Identity.create("bank", days=days)


def test_what_was_signed_is_accepted_and_nothing_else(bank, shop):
    """Other data, another signature or another party's certificate: refused."""
    signature = bank.sign(b"my key")
    bank.certificate.verify(signature, b"my key")
    for certificate, forged, data in (
        (bank.certificate, signature, b"my kez"),
        (bank.certificate, signature[:-1] + bytes([signature[-1] ^ 1]), b"my key"),
        (bank.certificate, b"", b"my key"),
        (shop.certificate, signature, b"my key"),
    ):
        with pytest.raises(PeerRefused, match="is said to be of"):
            certificate.verify(forged, data)


def test_a_signature_of_bare_data_is_not_accepted(bank):
    """A signature that the key gave in another setting (TLS, say) is not one of a statement."""
    with pytest.raises(PeerRefused):
        bank.certificate.verify(bank.key.sign(b"my key", ec.ECDSA(hashes.SHA256())), b"my key")


def test_unusable_texts_say_what_is_wrong(bank, shop):
    """No PEM, or a key and a certificate of two parties."""
    with pytest.raises(InvalidInput, match="not a private key"):
        Identity.from_pem(b"nonsense", bank.certificate.pem)
    with pytest.raises(PeerRefused, match="not a certificate"):
        Identity.from_pem(bank.key_pem, b"nonsense")
    with pytest.raises(InvalidInput, match="does not belong"):
        Identity.from_pem(bank.key_pem, shop.certificate.pem)


def test_the_key_is_not_shown(bank):
    """Printing an identity shows the party and the fingerprint only."""
    assert repr(bank) == f"Identity(bank, {bank.fingerprint})"


def test_the_pinned_certificate_is_accepted_and_no_other(bank):
    """Another certificate made for the same name is refused, and so is a name that nothing is pinned for."""
    trust = TrustStore()
    trust.pin("bank", bank.certificate.pem, bank.fingerprint)
    trust.check("bank", bank.certificate)
    assert trust.roots(["bank"]) == bank.certificate.pem
    with pytest.raises(PeerRefused, match="but the one pinned"):
        trust.check("bank", Identity.create("bank").certificate)
    with pytest.raises(PeerRefused, match="no certificate is pinned for shop"):
        trust.roots(["bank", "shop"])


def test_an_unknown_certificate_is_refused(shop):
    """With nothing pinned and no authority, nobody is accepted."""
    with pytest.raises(PeerRefused, match="not known here"):
        TrustStore().check("shop", shop.certificate)


def test_a_certificate_is_accepted_under_its_own_name_only(bank, shop):
    """It can neither be pinned nor used under another party's name."""
    trust = TrustStore()
    with pytest.raises(PeerRefused, match="made for bank, not for shop"):
        trust.pin("shop", bank.certificate.pem)
    trust.pin("bank", bank.certificate.pem)
    trust.pin("shop", shop.certificate.pem)
    with pytest.raises(PeerRefused, match="made for shop, not for bank"):
        trust.check("bank", shop.certificate)


def test_another_fingerprint_than_agreed_is_refused(bank, shop):
    """The fingerprint that was read out over the telephone decides."""
    with pytest.raises(PeerRefused, match="as agreed"):
        TrustStore().pin("bank", bank.certificate.pem, shop.fingerprint)


def test_expired_and_early_certificates_are_refused(bank):
    """When pinned, and again whenever they are used."""
    expired = Identity.create("bank", days=1, valid_from=now() - 3 * DAY)
    early = Identity.create("bank", days=1, valid_from=now() + 3 * DAY)
    with pytest.raises(PeerRefused, match="bank expired on 20"):
        TrustStore().pin("bank", expired.certificate.pem)
    with pytest.raises(PeerRefused, match="bank is valid only from 20"):
        TrustStore().pin("bank", early.certificate.pem)
    trust = TrustStore()
    trust.pin("bank", bank.certificate.pem)
    with pytest.raises(PeerRefused, match="expired"):
        trust.check("bank", bank.certificate, now() + 366 * DAY)


def test_an_authority_cannot_be_pinned_as_a_party():
    """Or it could sign certificates that TLS accepts in the party's place."""
    with pytest.raises(PeerRefused, match="own_ca"):
        TrustStore().pin("authority", Authority("authority").certificate.pem)


def test_what_the_own_authority_signed_is_accepted():
    """For the name in the certificate; not for another one, not when expired, and not what another authority signed."""
    authority, other = Authority("authority"), Authority("authority")
    trust = TrustStore()
    trust.own_ca(authority.certificate.pem)
    issued = authority.issue("bank")
    trust.check("bank", issued.certificate)
    assert trust.roots(["bank"]) == authority.certificate.pem
    for name, certificate, why in (
        ("shop", issued.certificate, "made for bank"),
        ("bank", other.issue("bank").certificate, "not known here"),
        ("bank", Identity.create("bank").certificate, "not known here"),
        ("bank", authority.issue("bank", days=1, valid_from=now() - 3 * DAY).certificate, "expired"),
    ):
        with pytest.raises(PeerRefused, match=why):
            trust.check(name, certificate)


def test_a_pin_stands_above_the_authority():
    """Where a certificate is pinned for a name, the authority cannot put another in its place."""
    authority, bank = Authority("authority"), Identity.create("bank")
    trust = TrustStore()
    trust.own_ca(authority.certificate.pem)
    trust.pin("bank", bank.certificate.pem)
    with pytest.raises(PeerRefused, match="but the one pinned"):
        trust.check("bank", authority.issue("bank").certificate)
    assert trust.roots(["bank"]) == bank.certificate.pem


def test_a_party_is_no_authority(bank):
    """A party's certificate given as an authority's is refused."""
    with pytest.raises(PeerRefused, match="not an authority"):
        TrustStore().own_ca(bank.certificate.pem)


def test_a_certificate_without_names_is_nobodys():
    """The common name counts for nothing."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bank")])
    bare = (
        x509.CertificateBuilder(subject, subject, key.public_key(), 7, now() - DAY, now() + DAY)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    with pytest.raises(PeerRefused, match="made for nobody"):
        TrustStore().pin("bank", Certificate(bare).pem)


def test_several_certificates_in_one_text_are_refused(bank, shop):
    """Pinning is of one certificate; a list could hide a second one."""
    with pytest.raises(PeerRefused, match="expected one certificate, got 2"):
        TrustStore().pin("bank", bank.certificate.pem + shop.certificate.pem)
