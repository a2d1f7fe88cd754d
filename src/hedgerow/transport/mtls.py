"""Who is who: a party's key and certificate, and the certificates it accepts from others.

A party makes its key and a self-signed certificate on its own machine. Others pin that certificate under the party's
name, after comparing its fingerprint over another way (telephone, signed mail). Or all trust one certificate authority
of their own, and accept what it signed for that name.

The key is ECDSA on P-256: the TLS inside grpcio refuses Ed25519 certificates (no common signature algorithm). The same
key signs statements, such as "this is my masking key for run 7"; what is signed starts with a text that no TLS
handshake contains, so neither kind of signature can pass for the other.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hedgerow.errors import InvalidInput, InvalidParameter, PeerRefused, plain

E = TypeVar("E", bound=x509.ExtensionType)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_SIGNED = b"hedgerow signed statement, version 1\0"
_FILES_BESIDE_PARTIES = ("parties.json", "alignment.json")  # each party has a folder beside them
# Clocks of two organisations differ; without this, a certificate made a minute ago could be "not yet valid" elsewhere.
_CLOCK_DIFFERENCE = dt.timedelta(hours=1)


def check_party_name(name: str) -> str:
    """The name itself if it can stand in a certificate and be told apart by TLS."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidParameter(
            f"a party's name is 1 to 63 letters, digits, dots, hyphens or underscores, "
            f"with a letter or digit at both ends, got {name!r}"
        )
    return name


@functools.lru_cache(maxsize=256)
def check_party_names(names: tuple[str, ...]) -> None:
    """InvalidParameter unless all are names of parties, and no two of them would be one file on some disk."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(check_party_name(name).casefold(), name)
        if other != name:
            raise InvalidParameter(
                f"the parties {other!r} and {name!r} differ only in capitals, which files on some disks do not; "
                "rename one of them"
            )
        if name.casefold() in _FILES_BESIDE_PARTIES:
            raise InvalidParameter(f"a party cannot be called {name!r}: saved models have a file of that name")


def now() -> dt.datetime:
    """The current time with its zone, as certificates state theirs."""
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True)
class Certificate:
    """A party's certificate: its name, its public key and how long it is valid."""

    x509: x509.Certificate

    def __post_init__(self) -> None:
        try:  # these are read only now; whatever is wrong with them must not come up later
            self.x509.public_key(), self.x509.not_valid_before_utc, self.x509.not_valid_after_utc
        except (ValueError, UnsupportedAlgorithm) as error:
            raise PeerRefused(f"this certificate holds a key or a date that is none: {plain(str(error))}") from error

    @classmethod
    def from_pem(cls, pem: bytes) -> Certificate:
        """The one certificate in a PEM text."""
        try:
            found = x509.load_pem_x509_certificates(pem)
        except (ValueError, x509.InvalidVersion) as error:
            raise PeerRefused(f"this is not a certificate in PEM form: {plain(str(error))}") from error
        if len(found) != 1:
            raise PeerRefused(f"expected one certificate, got {len(found)}")
        return cls(found[0])

    @property
    def pem(self) -> bytes:
        """As text."""
        return self.x509.public_bytes(serialization.Encoding.PEM)

    @property
    def der(self) -> bytes:
        """As bytes; what the fingerprint is taken of."""
        return self.x509.public_bytes(serialization.Encoding.DER)

    @property
    def fingerprint(self) -> str:
        """To be compared by people: "sha256:" and 64 hexadecimal digits."""
        return "sha256:" + hashlib.sha256(self.der).hexdigest()

    @property
    def key_fingerprint(self) -> str:
        """The same of its public key alone, which a new certificate for an old key still has."""
        key = self.x509.public_key()
        form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return "sha256:" + hashlib.sha256(key.public_bytes(*form)).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        """The names it was made for (its DNS names; the common name counts for nothing)."""
        found = self._extension(x509.SubjectAlternativeName)
        return () if found is None else tuple(found.get_values_for_type(x509.DNSName))

    @property
    def owner(self) -> str:
        """Whose it is, in words."""
        return plain(" or ".join(self.names)) or "nobody"

    @property
    def is_authority(self) -> bool:
        """May it sign other certificates?"""
        found = self._extension(x509.BasicConstraints)
        return found is not None and bool(found.ca)

    def _extension(self, kind: type[E]) -> E | None:
        try:
            return self.x509.extensions.get_extension_for_class(kind).value
        except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError):
            return None

    def check_validity(self, whose: str, at: dt.datetime | None = None) -> None:
        """PeerRefused if it has expired or is not valid yet."""
        at = at or now()
        if at > self.x509.not_valid_after_utc:
            raise PeerRefused(f"the certificate of {whose} expired on {_day(self.x509.not_valid_after_utc)}")
        if at < self.x509.not_valid_before_utc:
            raise PeerRefused(f"the certificate of {whose} is valid only from {_day(self.x509.not_valid_before_utc)}")

    def verify(self, signature: bytes, data: bytes) -> None:
        """PeerRefused unless this certificate's key signed the data."""
        key = self.x509.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise PeerRefused(f"the certificate of {self.owner} does not hold an elliptic-curve key")
        try:
            key.verify(signature, _SIGNED + data, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise PeerRefused(f"a signature that is said to be of {self.owner} is not") from None


@dataclass(frozen=True, repr=False)
class Identity:
    """A party's private key together with its certificate. The key is never shown."""

    key: ec.EllipticCurvePrivateKey
    certificate: Certificate

    def __post_init__(self) -> None:
        if self.certificate.x509.public_key() != self.key.public_key():
            raise InvalidInput("the key does not belong to the certificate")

    def __repr__(self) -> str:
        return f"Identity({' or '.join(self.certificate.names)}, {self.fingerprint})"

    @classmethod
    def create(cls, name: str, days: float = 365, *, valid_from: dt.datetime | None = None) -> Identity:
        """A new key and a self-signed certificate for it."""
        check_party_name(name)
        if not days > 0:
            raise InvalidParameter(f"days must be positive, got {days}")
        key = ec.generate_private_key(ec.SECP256R1())
        start = valid_from or now() - _CLOCK_DIFFERENCE
        end = (valid_from or now()) + dt.timedelta(days=days)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            # No authority: whoever pins this certificate accepts it alone, and nothing that its key signs.
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        return cls(key, Certificate(builder.sign(key, hashes.SHA256())))

    @classmethod
    def from_pem(cls, key: bytes, certificate: bytes, password: bytes | None = None) -> Identity:
        """From a key, encrypted if there is a password, and a certificate for it."""
        try:
            loaded = serialization.load_pem_private_key(key, password)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise InvalidInput(f"this is not a private key in PEM form that can be opened: {error}") from error
        if not isinstance(loaded, ec.EllipticCurvePrivateKey) or not isinstance(loaded.curve, ec.SECP256R1):
            raise InvalidInput("a party's key must be an elliptic-curve key on P-256")
        return cls(loaded, Certificate.from_pem(certificate))

    @property
    def fingerprint(self) -> str:
        """The certificate's fingerprint."""
        return self.certificate.fingerprint

    @property
    def key_pem(self) -> bytes:
        """The private key as text, for TLS and for the key file."""
        return self.encrypted_key_pem(None)

    def encrypted_key_pem(self, password: bytes | None) -> bytes:
        """The private key as text that only this password opens; without one it is in the clear."""
        how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)

    def sign(self, data: bytes) -> bytes:
        """A signature that `certificate.verify` accepts for the same data and no other."""
        return self.key.sign(_SIGNED + data, ec.ECDSA(hashes.SHA256()))


class TrustStore:
    """The certificates that a party accepts: pinned ones by name, and those of its own authorities."""

    def __init__(self) -> None:
        self._pinned: dict[str, Certificate] = {}
        self._authorities: list[Certificate] = []
        self._refused: set[str] = set()

    def refuse(self, *fingerprints: str) -> None:
        """Accept no certificate that has one of these fingerprints, or whose key has one, whoever signed it."""
        self._refused |= set(fingerprints)

    def pin(self, name: str, pem: bytes, fingerprint: str | None = None) -> Certificate:
        """Accept this certificate, and no other, as that party's."""
        check_party_name(name)
        certificate = Certificate.from_pem(pem)
        if fingerprint is not None and fingerprint.strip().lower() != certificate.fingerprint:
            raise PeerRefused(
                f"the certificate of {name} has the fingerprint {certificate.fingerprint}, not {fingerprint} as agreed"
            )
        if certificate.is_authority:
            raise PeerRefused(f"the certificate given for {name} is an authority's; it belongs into own_ca()")
        _check_name(name, certificate)
        certificate.check_validity(name)
        self._pinned[name] = certificate
        return certificate

    def own_ca(self, pem: bytes) -> None:
        """Accept what this authority itself signed, each certificate for the names in it."""
        certificate = Certificate.from_pem(pem)
        if not certificate.is_authority:
            raise PeerRefused("the certificate given to own_ca() is not an authority's")
        certificate.check_validity("the certificate authority")
        self._authorities.append(certificate)

    def check(self, name: str, certificate: Certificate, at: dt.datetime | None = None) -> None:
        """PeerRefused unless this is that party's certificate, accepted here and valid now."""
        pinned = self._pinned.get(name)
        _check_name(name, certificate)
        if not self._refused.isdisjoint((certificate.fingerprint, certificate.key_fingerprint)):
            raise PeerRefused(f"{name} showed the certificate {certificate.fingerprint}, which was revoked here")
        if certificate.is_authority:
            raise PeerRefused(f"{name} showed the certificate of an authority, which is nobody's own")
        if pinned is not None:
            if pinned.der != certificate.der:
                raise PeerRefused(
                    f"{name} showed the certificate {certificate.fingerprint}, "
                    f"but the one pinned for that name is {pinned.fingerprint}"
                )
        elif not any(_signed_by(certificate, authority, at) for authority in self._authorities):
            raise PeerRefused(f"{name} showed the certificate {certificate.fingerprint}, which is not known here")
        certificate.check_validity(name, at)

    def has_pinned(self, name: str) -> bool:
        """Is one certificate accepted for this name, and no other?"""
        return name in self._pinned

    def roots(self, names: Iterable[str]) -> bytes:
        """What TLS checks the certificates of these parties against, as PEM. PeerRefused if one is unknown."""
        chosen: dict[str, Certificate] = {}
        for name in names:
            accepted = [self._pinned[name]] if name in self._pinned else self._authorities
            if not accepted:
                raise PeerRefused(f"no certificate is pinned for {name}, and there is no certificate authority")
            chosen.update((certificate.fingerprint, certificate) for certificate in accepted)
        return b"".join(certificate.pem for certificate in chosen.values())


def _check_name(name: str, certificate: Certificate) -> None:
    if name not in certificate.names:
        raise PeerRefused(f"the certificate is made for {certificate.owner}, not for {name}")


def _signed_by(certificate: Certificate, authority: Certificate, at: dt.datetime | None) -> bool:
    try:
        authority.check_validity("the certificate authority", at)
        certificate.x509.verify_directly_issued_by(authority.x509)
    except (PeerRefused, ValueError, TypeError, InvalidSignature):
        return False
    return True


def _day(moment: dt.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
